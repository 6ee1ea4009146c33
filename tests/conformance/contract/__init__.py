"""Tests of one contract: embedded clusters and real brokers behave alike.

`client/` shows how the clients of this package behave, `wire/` how brokers respond to single
requests. Each test runs unchanged on the embedded cluster and on real brokers of the same line.
`aiokafka/` compares this package with aiokafka, on a real broker.
"""

import pytest

pytestmark = pytest.mark.suite
