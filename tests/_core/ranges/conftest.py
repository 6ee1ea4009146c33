"""The tests of ranges have the cluster of the consumer's tests."""

from tests.consumer.conftest import cluster

__all__ = ["cluster"]
