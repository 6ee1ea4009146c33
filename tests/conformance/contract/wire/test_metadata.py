"""Metadata and auto-creation (docs/brokers.md 4)."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence

import pytest

from aiokafka08.protocol import api
from aiokafka08.protocol.requests.groups import (
    GroupCoordinatorRequest,
    GroupCoordinatorResponse,
    HeartbeatRequest,
)
from aiokafka08.protocol.requests.metadata import (
    Broker,
    MetadataRequest,
    MetadataResponse,
    PartitionState,
)
from aiokafka08.testing.broker_lines import LINES
from tests.brokers import RealCluster
from tests.brokers.fixtures import require_real_brokers
from tests.conformance.contract.targets import RELEASES, on_lines
from tests.conformance.contract.wire.requests import find_coordinator, metadata, plain, produce
from tests.conformance.contract.wire.target import RealTarget, Target, embedded
from tests.conformance.contract.wire.wire_client import WireClient
from tests.support.names import unique_name


def topics_of(response: MetadataResponse) -> dict[str, tuple[int, int]]:
    """Return name → (error code, number of partitions)."""
    return {topic.topic: (topic.error_code, len(topic.partitions)) for topic in response.topics}


def leaders_of(wire: WireClient, topic: str) -> dict[int, int]:
    """Return the leaders; request them until all partitions have one."""
    deadline = time.monotonic() + 10
    while True:
        [state] = metadata(wire, [topic]).topics
        leaders = {one.partition: one.leader for one in state.partitions}
        if (leaders and min(leaders.values()) >= 0) or time.monotonic() > deadline:
            return leaders
        time.sleep(0.02)


def test_metadata_of_one_topic(target: Target, wire: WireClient, topic: str) -> None:
    response = metadata(wire, [topic])
    host, port = target.address(0)
    assert response.brokers == [Broker(0, host, port)]
    [state] = response.topics
    assert (state.error_code, state.topic) == (0, topic)
    assert sorted(state.partitions, key=lambda one: one.partition) == [
        PartitionState(0, number, 0, [0], [0]) for number in range(3)
    ]


def test_metadata_of_all_topics(wire: WireClient, topic: str) -> None:
    assert topics_of(metadata(wire))[topic] == (0, 3)


def test_duplicate_topic_gets_one_response(wire: WireClient, topic: str) -> None:
    assert len(metadata(wire, [topic, topic]).topics) == 1


def test_unknown_topics_are_auto_created(wire: WireClient, topic: str) -> None:
    new, other = unique_name("new"), unique_name("new")
    response = metadata(wire, [new, topic, other])
    assert len(response.brokers) == 1
    assert topics_of(response) == {new: (5, 0), other: (5, 0), topic: (0, 3)}
    assert leaders_of(wire, new) == {0: 0, 1: 0, 2: 0}
    assert produce(wire, new, plain(b"x")) == (0, 0)


@pytest.mark.parametrize("name", ["a b/c!", "", ".", "x" * 300])
def test_invalid_topic_names(target: Target, wire: WireClient, topic: str, name: str) -> None:
    line = target.line
    response = metadata(wire, [topic, name])
    if line.invalid_topic_fails_all:
        assert response.brokers == []
        assert topics_of(response) == {
            topic: (line.invalid_topic_code, 0),
            name: (line.invalid_topic_code, 0),
        }
    else:
        assert len(response.brokers) == 1
        assert topics_of(response) == {topic: (0, 3), name: (17, 0)}


def test_metadata_versions_and_layouts(target: Target, wire: WireClient, topic: str) -> None:
    layout = 1 if target.line.name == "0.10" else 0
    response = wire.request(MetadataRequest([topic]), 1, layout)
    assert topics_of(response) == {topic: (0, 3)}
    assert response.controller_id == (0 if layout else -1)
    assert [broker.rack for broker in response.brokers] == [None]
    nothing = wire.request(MetadataRequest([]), 1, layout)
    assert (topics_of(nothing) == {}) == bool(layout)


@on_lines(lambda line: line.name == "0.10")
def test_metadata_v1_of_all_topics(target: Target, wire: WireClient, topic: str) -> None:
    assert topics_of(wire.request(MetadataRequest(None), 1))[topic] == (0, 3)


@on_lines(lambda line: line.has_cluster_id)
def test_metadata_v2_has_the_cluster_id(target: Target, wire: WireClient, topic: str) -> None:
    response = wire.request(MetadataRequest([topic]), 2)
    assert topics_of(response) == {topic: (0, 3)}
    assert re.fullmatch(r"[A-Za-z0-9_-]{22}", response.cluster_id or "")
    assert response.controller_id == 0
    assert wire.request(MetadataRequest([]), 2).cluster_id == response.cluster_id


# --- a cluster without topics ---------------------------------------------------------------------


def _params() -> Sequence[object]:
    # Real clusters start for this test only, so not for lines that respond alike.
    return [pytest.param(("embedded", line), id=f"embedded-{line}") for line in LINES] + [
        pytest.param(("real", line), id=f"real-{line}", marks=pytest.mark.real)
        for line in ("0.8.0", "0.8.2", "0.9")
    ]


@pytest.fixture(params=_params())
def fresh(request: pytest.FixtureRequest) -> Iterator[Target]:
    """A cluster without any topic."""
    kind, line = request.param
    if kind == "embedded":
        with embedded(line, 1) as target:
            yield target
    else:
        require_real_brokers()
        # The default of brokers; the harness limits it to the number of brokers.
        properties = {"offsets.topic.replication.factor": 3} if line == "0.8.2" else {}
        with RealCluster(RELEASES[line], properties=properties) as cluster:
            yield RealTarget(cluster)


def test_empty_cluster(fresh: Target) -> None:
    with WireClient(fresh.address(0)) as wire:
        if fresh.line.empty_cluster_lists_brokers:
            deadline = time.monotonic() + 10
            while not metadata(wire).brokers and time.monotonic() < deadline:
                time.sleep(0.02)
            assert len(metadata(wire).brokers) == 1
            assert topics_of(metadata(wire)) == {}
        else:
            assert metadata(wire) == MetadataResponse([], -1, [])
        if fresh.line.coordinator_forgets_correlation_id and has_coordinators(fresh):
            for _ in range(3):
                wire.send(GroupCoordinatorRequest("g"))
                frame = wire.read_frame()
                assert frame[:4] == bytes(4)
                response = api.decode_response(GroupCoordinatorRequest, 0, frame)
                assert response == GroupCoordinatorResponse(15, -1, "", -1)
        if api.ApiKey.HEARTBEAT in fresh.line.apis:  # no broker is a coordinator yet
            code = wire.request(HeartbeatRequest("g", -1, "")).error_code
            assert code == (-1 if fresh.line.heartbeat_is_a_stub else 16)
        name = unique_name("first")
        first = metadata(wire, [name])
        assert topics_of(first) == {name: (5, 0)}
        assert len(first.brokers) == fresh.line.empty_cluster_lists_brokers
        assert set(leaders_of(wire, name).values()) == {0}
        assert len(metadata(wire).brokers) == 1
        if has_coordinators(fresh):
            assert find_coordinator(wire, "g").node_id == 0


def has_coordinators(target: Target) -> bool:
    return api.ApiKey.GROUP_COORDINATOR in target.line.apis
