"""OffsetCommit, OffsetFetch and GroupCoordinator (docs/brokers.md 8.3 - 8.10)."""

from __future__ import annotations

import itertools
import time

import pytest

from aiokafka08.protocol import api
from aiokafka08.protocol.api import Topic
from aiokafka08.protocol.requests.committed_offsets import (
    CommitPartition,
    CommittedPartition,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from aiokafka08.protocol.requests.groups import GroupCoordinatorRequest
from aiokafka08.testing.broker_lines import SupportedVersions
from tests.brokers.waiting import wait_for
from tests.conformance.contract.targets import on_lines
from tests.conformance.contract.wire.requests import (
    commit,
    committed,
    find_coordinator,
    list_offsets,
    metadata,
)
from tests.conformance.contract.wire.target import Target
from tests.conformance.contract.wire.wire_client import WireClient
from tests.support.names import unique_name


@pytest.fixture
def group() -> str:
    return unique_name("g")


_NOTHING = SupportedVersions(range(0))
commits = on_lines(lambda line: api.ApiKey.OFFSET_COMMIT in line.apis)
coordinates = on_lines(lambda line: api.ApiKey.GROUP_COORDINATOR in line.apis)


@pytest.fixture
def ready(target: Target, wire: WireClient, topic: str, group: str) -> None:
    """Wait until the group has its coordinator."""
    response = find_coordinator(wire, group)
    assert (response.error_code, response.node_id) == (0, 0)
    assert (response.host, response.port) == target.address(0)
    if target.real:  # on 0.9 the coordinator needs a moment more until it serves the group
        deadline = time.monotonic() + 10
        while committed(wire, group, topic, version=1)[2] and time.monotonic() < deadline:
            time.sleep(0.02)


def test_offset_requests_close_0_8_0(target: Target, topic: str) -> None:
    for request in (
        OffsetCommitRequest("g", -1, "", -1, []),
        OffsetFetchRequest("g", []),
        GroupCoordinatorRequest("g"),
    ):
        if request.api not in target.line.apis:
            with WireClient(target.address(0)) as wire:
                wire.send(request)
                assert wire.is_closed()


def java_hash(text: str) -> int:
    """Return Java's `String.hashCode` of ASCII text."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value - (value >> 31 << 32)


@coordinates
@pytest.mark.usefixtures("ready")
def test_groups_partition_is_its_absolute_hash(wire: WireClient, topic: str, group: str) -> None:
    """Not the hash without its sign, as the Scala producers before 0.8.2 take it."""
    offsets_topic = "__consumer_offsets"
    [state] = metadata(wire, [offsets_topic]).topics
    count = len(state.partitions)

    def ends() -> list[int]:
        return [
            list_offsets(wire, offsets_topic, -1, partition=number)[1][0] for number in range(count)
        ]

    names = (f"{number}-{group}" for number in itertools.count())
    hashes = {name: java_hash(name) for name in itertools.islice(names, 10_000)}
    name, signed = next(
        (name, signed)
        for name, signed in hashes.items()
        if signed < 0 and -signed % count != (signed & 0x7FFFFFFF) % count
    )
    before = ends()
    wait_for(lambda: commit(wire, name, topic, 3, version=1) == 0, 10, "the group is served")
    grown = [
        number
        for number, (one, other) in enumerate(zip(before, ends(), strict=True))
        if other > one
    ]
    assert grown == [-signed % count]


# --- version 0: ZooKeeper -------------------------------------------------------------------------


@commits
def test_commit_v0_drops_metadata(wire: WireClient, topic: str, group: str) -> None:
    assert committed(wire, group, topic) == (-1, "", 3)
    assert commit(wire, group, topic, 3, "dropped") == 0
    assert committed(wire, group, topic) == (3, "", 0)
    assert committed(wire, group, topic, partition=1) == (-1, "", 3)
    assert commit(wire, group, topic, -5) == 0
    assert committed(wire, group, topic) == (-5, "", 0)


@commits
def test_commit_v0_to_unknown_topic_or_partition(wire: WireClient, topic: str, group: str) -> None:
    assert commit(wire, group, topic, 7, partition=99) == 0
    assert committed(wire, group, topic, partition=99) == (7, "", 0)
    missing = unique_name("missing")
    assert commit(wire, group, missing, 7) == 3
    assert committed(wire, group, missing) == (-1, "", 3)
    assert commit(wire, "", topic, 7) == -1


@commits
def test_commit_v0_limits_metadata(
    target: Target, wire: WireClient, topic: str, group: str
) -> None:
    limit = target.line.offset_metadata_chars
    assert commit(wire, group, topic, 1, "m" * limit) == 0
    assert commit(wire, group, topic, 2, "m" * (limit + 1)) == 12
    assert committed(wire, group, topic) == (1, "", 0)


@commits
def test_commit_and_fetch_of_no_topics(wire: WireClient, topic: str, group: str) -> None:
    assert wire.request(OffsetFetchRequest(group, [])).topics == []


@commits
def test_null_group(target: Target, wire: WireClient, topic: str) -> None:
    if target.line.null_group_closes:
        with pytest.raises((EOFError, ConnectionResetError)):
            commit(wire, None, topic, 4)
    else:
        assert commit(wire, None, topic, 4) == 0
        assert committed(wire, None, topic) == (4, "", 0)


@on_lines(lambda line: line.name == "0.8.1")
def test_0_8_1_reads_commit_v1_as_v0_and_stores_nothing(
    target: Target, wire: WireClient, topic: str, group: str
) -> None:
    items = [Topic(topic, [CommitPartition(0, 5, -1, "")])]
    for version in (1, 2):
        response = wire.request(OffsetCommitRequest(group, -1, "", -1, items), version)
        assert response.topics == []
    assert committed(wire, group, topic) == (-1, "", 3)


@on_lines(lambda line: line.name in ("0.8.2", "0.9", "0.10"))
def test_commit_v2(target: Target, wire: WireClient, topic: str, group: str) -> None:
    request = OffsetCommitRequest(group, -1, "", -1, [])
    if target.line.name == "0.8.2":
        wire.send(request, 2)
        assert wire.is_closed()
    else:
        assert wire.request(request, 2).topics == []


# --- versions 1 and 2: the offsets topic ----------------------------------------------------------


@coordinates
@pytest.mark.usefixtures("ready")
def test_commit_v1_keeps_metadata(target: Target, wire: WireClient, topic: str, group: str) -> None:
    assert committed(wire, group, topic, version=1) == (-1, "", 0)
    assert commit(wire, group, topic, 12, "métadonnée", version=1) == 0
    assert committed(wire, group, topic, version=1) == (12, "métadonnée", 0)
    assert commit(wire, group, topic, 13, None, version=1) == 0
    null = None if target.line.keeps_null_metadata else ""
    assert committed(wire, group, topic, version=1) == (13, null, 0)
    if target.line.name in ("0.9", "0.10"):
        assert commit(wire, group, topic, 14, "two", version=2) == 0
        assert committed(wire, group, topic, version=1) == (14, "two", 0)


@coordinates
@pytest.mark.usefixtures("ready")
def test_stores_are_independent(wire: WireClient, topic: str, group: str) -> None:
    commit(wire, group, topic, 1, version=0)
    commit(wire, group, topic, 2, version=1)
    commit(wire, group, topic, 3, partition=1, version=1)
    assert committed(wire, group, topic, version=0) == (1, "", 0)
    assert committed(wire, group, topic, version=1) == (2, "", 0)
    assert committed(wire, group, topic, partition=1, version=0) == (-1, "", 3)


@coordinates
@pytest.mark.usefixtures("ready")
def test_commit_v1_to_unknown_topic_or_partition(
    target: Target, wire: WireClient, topic: str, group: str
) -> None:
    line, missing = target.line, unique_name("missing")
    assert commit(wire, group, topic, 7, partition=99, version=1) == 0
    assert commit(wire, group, missing, 7, version=1) == line.unknown_topic_commit_code
    assert committed(wire, group, missing, version=1)[2] == line.unknown_partition_fetch_code
    if line.unknown_partition_fetch_code:
        assert committed(wire, group, topic, partition=98, version=1) == (-1, "", 3)
        assert committed(wire, group, topic, partition=99, version=1) == (-1, "", 3)
    else:
        assert committed(wire, group, topic, partition=98, version=1) == (-1, "", 0)


@coordinates
@pytest.mark.usefixtures("ready")
def test_commit_v1_limits_metadata(
    target: Target, wire: WireClient, topic: str, group: str
) -> None:
    assert commit(wire, group, topic, 1, "m" * 4096, version=1) == 0
    assert commit(wire, group, topic, 2, "n" * 4097, version=1) == 12
    offset, metadata, code = committed(wire, group, topic, version=1)
    if target.line.stores_long_metadata:
        assert (offset, metadata, code) == (2, "n" * 4097, 0)
    else:
        assert (offset, metadata, code) == (1, "m" * 4096, 0)


@coordinates
@pytest.mark.usefixtures("ready")
def test_commit_with_generation_without_group(
    target: Target, wire: WireClient, topic: str, group: str
) -> None:
    code = commit(wire, group, topic, 1, version=1, generation=5, member="x")
    assert code == target.line.generation_code
    commit(wire, group, topic, 1, version=1)
    code = commit(wire, group, topic, 1, version=1, generation=5, member="x")
    assert code == target.line.known_group_generation_code


@coordinates
@pytest.mark.usefixtures("ready")
def test_offset_fetch_v1_of_no_topics(
    target: Target, wire: WireClient, topic: str, group: str
) -> None:
    assert wire.request(OffsetFetchRequest(group, []), 1).topics == []
    commit(wire, group, topic, 12, "text", version=1)
    topics = wire.request(OffsetFetchRequest(group, []), 1).topics
    if target.line.fetch_of_no_topics_is_all:
        assert topics == [Topic(topic, [CommittedPartition(0, 12, "text", 0)])]
    else:
        assert topics == []


@on_lines(lambda line: 2 in line.apis.get(api.ApiKey.OFFSET_FETCH, _NOTHING).known)
@pytest.mark.usefixtures("ready")
def test_offset_fetch_v2_of_null_topics(wire: WireClient, topic: str, group: str) -> None:
    response = wire.request(OffsetFetchRequest(group, None), 2)
    assert (response.topics, response.error_code) == ([], 0)
    commit(wire, group, topic, 12, "text", version=1)
    response = wire.request(OffsetFetchRequest(group, None), 2)
    assert response.topics == [Topic(topic, [CommittedPartition(0, 12, "text", 0)])]
    assert wire.request(OffsetFetchRequest(group, []), 2).topics == []
    response = wire.request(OffsetFetchRequest(group, [Topic(topic, [0, 1])]), 2)
    [found] = response.topics
    assert {one.partition: (one.offset, one.error_code) for one in found.partitions} == {
        0: (12, 0),
        1: (-1, 0),
    }


@coordinates
@pytest.mark.usefixtures("ready")
def test_null_group_has_no_coordinator(target: Target, wire: WireClient) -> None:
    correlation_id = wire.send(GroupCoordinatorRequest(None))
    if target.line.null_coordinator_group_closes:
        assert wire.is_closed()
        return
    frame = wire.read_frame()
    assert correlation_id != 0
    assert frame[:4] == bytes(4)
    assert api.decode_response(GroupCoordinatorRequest, 0, frame).error_code == 15
