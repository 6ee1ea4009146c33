"""The fixtures `target`, `wire` and `topic`: a target as the tests of single requests see it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.brokers.fixtures import BrokerClusters
from tests.conformance.contract.targets import TargetSpec, line_targets
from tests.conformance.contract.wire.target import RealTarget, Target, embedded
from tests.conformance.contract.wire.wire_client import WireClient
from tests.support.names import unique_name


@pytest.fixture(params=line_targets())
def spec(request: pytest.FixtureRequest) -> TargetSpec:
    """The target of the test: of a line that the embedded cluster knows."""
    target: TargetSpec = request.param
    return target


@pytest.fixture
def target(spec: TargetSpec, request: pytest.FixtureRequest) -> Iterator[Target]:
    """One broker of each line; several where `on_lines` says so."""
    if spec.kind == "embedded":
        with embedded(spec.version, spec.brokers) as target:
            yield target
    else:
        # Tests of this suite kill brokers: each test starts with a cluster that is healthy.
        clusters: BrokerClusters = request.getfixturevalue("broker_clusters")
        yield RealTarget(clusters.get(spec.version, spec.brokers))


@pytest.fixture
def wire(target: Target) -> Iterator[WireClient]:
    """A connection to the one broker."""
    with WireClient(target.address(0)) as wire:
        yield wire


@pytest.fixture
def topic(target: Target) -> str:
    """A new topic with three partitions."""
    name = unique_name()
    target.create_topic(name, 3)
    return name
