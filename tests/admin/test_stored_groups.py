"""Groups on the embedded cluster: moved coordinators, errors, a changed offsets topic.

What needs no fault is in tests/conformance/contract/client/test_stored_groups.py.
"""

from __future__ import annotations

import logging
import tracemalloc
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from aiokafka08 import AIOKafkaConsumer, OffsetAndMetadata, TopicPartition
from aiokafka08._core.net.config import OffsetsStorage
from aiokafka08._tools.group_reset import TargetMoves
from aiokafka08.admin import AIOKafkaAdminClient, LogBounds, StoredGroup
from aiokafka08.errors import (
    GroupAuthorizationFailedError,
    IllegalArgumentError,
    KafkaError,
    KafkaUnavailableError,
    NotCoordinatorForGroupError,
    UnknownTopicOrPartitionError,
)
from aiokafka08.protocol.compression import Codec
from aiokafka08.protocol.message_set import encode_entry
from aiokafka08.protocol.offsets_topic import (
    OffsetRecord,
    OffsetRecordKey,
    encode_record_key,
    encode_record_value,
)
from aiokafka08.protocol.requests.committed_offsets import OffsetFetchRequest
from aiokafka08.protocol.requests.groups import DescribeGroupsRequest
from aiokafka08.protocol.requests.list_offsets import ListOffsetsRequest
from aiokafka08.testing import Answer, Close, EmbeddedCluster
from tests.conformance.contract.wire.requests import bad_crc

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
OFFSETS = "__consumer_offsets"


@pytest.fixture(params=["0.8.2", "0.9", "0.10"])
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(3, request.param, {"t": 2}) as running:
        yield running


@pytest.fixture
async def one_broker() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(1, "0.9", {"t": 2}) as running:
        yield running


@pytest.fixture
async def admin(request: pytest.FixtureRequest) -> AsyncIterator[AIOKafkaAdminClient]:
    name = "cluster" if "cluster" in request.fixturenames else "one_broker"
    running: EmbeddedCluster = request.getfixturevalue(name)
    async with AIOKafkaAdminClient(
        bootstrap_servers=running.bootstrap_servers,
        request_timeout_ms=5000,
        retry_backoff_ms=10,
    ) as client:
        yield client


async def commit(
    cluster: EmbeddedCluster,
    group: str,
    offsets: Mapping[TopicPartition, int],
    storage: OffsetsStorage = "kafka",
) -> None:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers,
        group_id=group,
        offsets_storage=storage,
        enable_auto_commit=False,
    )
    consumer.assign(list(offsets))
    async with consumer:
        await consumer.commit(dict(offsets))


def kafka(*names: str) -> list[StoredGroup]:
    return [StoredGroup(name, "kafka", "") for name in names]


def offsets_partition(cluster: EmbeddedCluster, group: str) -> int:
    """Return the group's partition of the offsets topic: that with its records."""
    found = [
        number
        for number in range(4)
        if any(group.encode() in (one.key or b"") for one in cluster.log(OFFSETS, number))
    ]
    return found[0]


async def test_moved_coordinator_does_not_look_like_no_commits(
    cluster: EmbeddedCluster, admin: AIOKafkaAdminClient
) -> None:
    """A former coordinator responds to OffsetFetch 1 without topics with nothing, and no error."""
    await commit(cluster, "g", {T0: 0})
    [first] = await admin.list_stored_offsets(kafka("g"))
    assert first.offsets == {T0: OffsetAndMetadata(0, "")}
    partition = offsets_partition(cluster, "g")
    for _ in range(2):
        cluster.move_leader(OFFSETS, partition)
        assert await admin.list_stored_offsets(kafka("g")) == [first]
        assert [one.offsets for one in await admin.list_stored_offsets(kafka("none"))] == [{}]


async def test_error_of_one_group_is_in_its_result(
    cluster: EmbeddedCluster, admin: AIOKafkaAdminClient
) -> None:
    await commit(cluster, "good", {T0: 0})
    cluster.fault(
        OffsetFetchRequest,
        then=Answer(GroupAuthorizationFailedError.errno),
        times=None,
        where=lambda request: request.group == "bad",
    )
    bad, good = await admin.list_stored_offsets(kafka("bad", "good"))
    assert isinstance(bad.error, GroupAuthorizationFailedError)
    assert "group 'bad'" in bad.error.text
    assert (bad.offsets, good.error) == ({}, None)
    assert good.offsets == {T0: OffsetAndMetadata(0, "")}
    with pytest.raises(GroupAuthorizationFailedError, match="group 'bad'"):
        await admin.list_group_lags(["good", "bad"])


async def test_group_that_cannot_be_described_hides_no_other(
    one_broker: EmbeddedCluster, admin: AIOKafkaAdminClient
) -> None:
    consumer = AIOKafkaConsumer(
        "t", bootstrap_servers=one_broker.bootstrap_servers, group_id="good"
    )
    async with consumer:
        one_broker.fault(
            DescribeGroupsRequest,
            then=Answer(GroupAuthorizationFailedError.errno),
            times=None,
            where=lambda request: request.groups == ["bad"],
        )
        bad, good = await admin.describe_stored_groups(kafka("bad", "good"))
        assert (bad.group, bad.store, bad.description) == ("bad", "kafka", None)
        assert isinstance(bad.error, GroupAuthorizationFailedError)
        assert (good.group, good.error) == ("good", None)
        assert good.description is not None
        assert len(good.description.members) == 1
        with pytest.raises(GroupAuthorizationFailedError, match="group 'bad'"):
            await admin.list_partition_owners(kafka("bad", "good"))


@pytest.mark.parametrize("then", [Answer(NotCoordinatorForGroupError.errno), Close()])
async def test_failure_that_passes_is_retried(
    cluster: EmbeddedCluster, admin: AIOKafkaAdminClient, then: Answer | Close
) -> None:
    await commit(cluster, "g", {T0: 0})
    await admin.list_stored_groups()
    fault = cluster.fault(OffsetFetchRequest, then=then)
    [found] = await admin.list_stored_offsets(kafka("g"))
    assert (fault.hits, found.error) == (1, None)
    assert found.offsets == {T0: OffsetAndMetadata(0, "")}


async def test_one_request_is_sent_per_group(
    cluster: EmbeddedCluster, admin: AIOKafkaAdminClient
) -> None:
    names = [f"g{number}" for number in range(5)]
    for name in names:
        await commit(cluster, name, {T0: 0, T1: 0})
    await admin.list_stored_groups()
    before = len(cluster.requests(OffsetFetchRequest))
    await admin.list_stored_offsets(kafka(*names))
    assert len(cluster.requests(OffsetFetchRequest)) - before == len(names)


async def test_partition_without_a_leader_does_not_fail_the_others(
    cluster: EmbeddedCluster, admin: AIOKafkaAdminClient
) -> None:
    cluster.append("t", 1, [b"v"] * 3)
    await commit(cluster, "g", {T0: 0, T1: 1})
    cluster.create_topic("single", 3, replication_factor=1)
    [dead] = {cluster.leader("single", 2)} - {None}
    cluster.kill(dead)
    bounds = await admin.list_log_bounds()
    assert bounds[T1] == LogBounds(0, 3)
    lost = [tp for tp, one in bounds.items() if one == LogBounds(None, None)]
    assert TopicPartition("single", 2) in lost
    assert {tp.topic for tp in lost} == {"single"}
    assert [(row.end, row.lag) for row in await admin.list_group_lags(["g"])] == [(0, 0), (3, 2)]


async def test_moved_leader_is_asked_once_more(
    cluster: EmbeddedCluster, admin: AIOKafkaAdminClient
) -> None:
    fault = cluster.fault(ListOffsetsRequest, then=Close(), times=1)
    assert await admin.list_log_bounds([T0], starts=False) == {T0: LogBounds(None, 0)}
    assert fault.hits == 1


async def test_first_and_next_offsets_come_by_one_request_per_leader(
    cluster: EmbeddedCluster, admin: AIOKafkaAdminClient
) -> None:
    assert await admin.list_log_bounds([T0, T1]) == {T0: LogBounds(0, 0), T1: LogBounds(0, 0)}
    assert len([one for one in cluster.requests(ListOffsetsRequest) if one.topics]) == 2


async def test_log_of_many_segments_begins_at_its_first_message() -> None:
    """With a limit of offsets that would be the start of a later segment."""
    async with EmbeddedCluster(1, "0.8.2", {"t": 1}, segment_bytes=64) as running:
        for _ in range(300):
            running.append("t", 0, [b"v" * 30])
        running.delete_before("t", 0, 7)
        async with AIOKafkaAdminClient(bootstrap_servers=running.bootstrap_servers) as client:
            assert await client.list_log_bounds() == {T0: LogBounds(7, 300)}


# --- the offsets topic ----------------------------------------------------------------------------


async def test_offsets_topic_is_read_again_after_it_was_cut(
    one_broker: EmbeddedCluster, admin: AIOKafkaAdminClient
) -> None:
    await commit(one_broker, "g", {T0: 0, T1: 0})
    partition = offsets_partition(one_broker, "g")
    assert set((await admin.read_offsets_topic()).offsets["g"]) == {T0, T1}
    one_broker.truncate(OFFSETS, partition, 1)  # an unclean election: the second record is lost
    assert set((await admin.read_offsets_topic()).offsets["g"]) == {T0}
    await commit(one_broker, "g", {T1: 0})
    one_broker.delete_before(OFFSETS, partition, 1)
    assert set((await admin.read_offsets_topic()).offsets["g"]) == {T0, T1}
    async with AIOKafkaAdminClient(bootstrap_servers=one_broker.bootstrap_servers) as fresh:
        assert set((await fresh.read_offsets_topic()).offsets["g"]) == {T1}


async def test_tombstones_wrappers_and_odd_records_are_understood(
    one_broker: EmbeddedCluster,
    admin: AIOKafkaAdminClient,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await commit(one_broker, "other", {T0: 0})
    keys = [encode_record_key(OffsetRecordKey("g", "t", number), 1) for number in range(3)]
    values = [encode_record_value(OffsetRecord(number, -1, "", 1, 2), 1) for number in range(3)]
    one_broker.append(
        OFFSETS,
        0,
        [*values, None, values[2], b"\0\1damaged", b"\0\x63new", b"any", None],
        [*keys, keys[0], keys[1], keys[2], keys[2], b"\0\x63new", b"\0"],
        codec=Codec.GZIP,
    )
    with caplog.at_level(logging.WARNING, "aiokafka08.admin"):
        topic = await admin.read_offsets_topic()
    assert {tp: one.offset for tp, one in topic.offsets["g"].items()} == {T1: 2}
    assert not caplog.records  # the value of a version to come has replaced the damaged one
    one_broker.append(OFFSETS, 1, [b"\0\1damaged", b"v"], [keys[0], b"\0"])
    with caplog.at_level(logging.WARNING, "aiokafka08.admin"):
        topic = await admin.read_offsets_topic()
    assert set(topic.offsets) == {"g", "other"}
    texts = [one.getMessage() for one in caplog.records if one.name == "aiokafka08.admin"]
    assert len(texts) == 2
    assert all("record of __consumer_offsets with the key b'" in one for one in texts)
    groups = await admin.list_stored_groups()
    assert groups == kafka("g", "other")


async def test_corrupt_message_of_the_offsets_topic_is_left_out(
    one_broker: EmbeddedCluster, admin: AIOKafkaAdminClient
) -> None:
    await commit(one_broker, "g", {T0: 0})
    number = offsets_partition(one_broker, "g")
    at = one_broker.offsets(OFFSETS, number).end
    one_broker.append_raw(OFFSETS, number, bad_crc(encode_entry(at, b"key", b"value")))
    await commit(one_broker, "g", {T1: 0})
    for _ in range(2):  # a later read still names it
        topic = await admin.read_offsets_topic()
        assert set(topic.offsets["g"]) == {T0, T1}
        [(tp, error)] = topic.errors.items()
        assert (tp, error.text) == (
            TopicPartition(OFFSETS, number),
            f"the message at offset {at} is corrupt, and was left out",
        )
    listing = await admin.list_groups_of_store("kafka")
    assert list(listing.groups) == kafka("g")
    [error] = listing.errors
    assert f"groups of {OFFSETS}/{number} not read: the message at" in error.text
    with pytest.raises(KafkaUnavailableError, match="is corrupt"):
        await admin.list_stored_groups()


async def test_partition_of_the_offsets_topic_may_be_unreadable() -> None:
    """The groups of the others are found; only if none can be read the call fails."""
    async with EmbeddedCluster(2, "0.9", {"t": 2}) as cluster:
        cluster.create_topic(OFFSETS, 2, replication_factor=1)
        keys = [encode_record_key(OffsetRecordKey(f"g{number}", "t", 0), 1) for number in range(2)]
        value = encode_record_value(OffsetRecord(0, -1, "", 1, 2), 1)
        for number, key in enumerate(keys):
            cluster.append(OFFSETS, number, [value], [key])
        dead, alive = (cluster.leader(OFFSETS, number) for number in range(2))
        assert dead is not None
        assert alive is not None
        options: dict[str, Any] = {
            "bootstrap_servers": cluster.bootstrap_servers,
            "request_timeout_ms": 500,
        }
        async with (
            AIOKafkaAdminClient(**options) as admin,
            AIOKafkaAdminClient(**options) as fresh,
        ):
            assert set((await admin.read_offsets_topic()).offsets) == {"g0", "g1"}
            cluster.kill(dead)
            for client, groups in ((admin, {"g0", "g1"}), (fresh, {"g1"})):
                topic = await client.read_offsets_topic()
                assert set(topic.offsets) == groups
                assert list(topic.errors) == [TopicPartition(OFFSETS, 0)]
            cluster.fault(ListOffsetsRequest, then=Close(), node=alive, times=None)
            with pytest.raises(KafkaError):
                await admin.read_offsets_topic()


async def test_offsets_topic_of_unknown_versions_takes_no_memory(
    one_broker: EmbeddedCluster, admin: AIOKafkaAdminClient
) -> None:
    await commit(one_broker, "g", {T0: 0})
    keys = [b"\0\x63%d" % number for number in range(5000)]
    one_broker.append(OFFSETS, 0, [b"v" * 1000] * len(keys), keys)
    tracemalloc.start()
    try:
        topic = await admin.read_offsets_topic()
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert set(topic.offsets) == {"g"}
    assert held_bytes < 2_000_000  # of 5 MB


async def test_reset_of_an_absent_topic_says_that_it_may_be_hidden(
    one_broker: EmbeddedCluster, admin: AIOKafkaAdminClient
) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match="'no' doesn't exist, or this principal"):
        await admin.reset_consumer_group_offsets("g", {TopicPartition("no", 0): "earliest"})


async def test_reset_of_both_stores_names_partitions_that_neither_has(
    one_broker: EmbeddedCluster, admin: AIOKafkaAdminClient
) -> None:
    await commit(one_broker, "g", {T0: 1})
    await commit(one_broker, "g", {T0: 1, T1: 1}, "zookeeper")
    both = TargetMoves("g", "earliest", {}, None)
    moved = {group.store: len(targets) for group, targets in await both.find(admin)}
    assert (moved, both.uncommitted) == ({"kafka": 1, "zookeeper": 2}, set())
    one = TargetMoves("g", "earliest", {}, "kafka")
    await one.find(admin)
    assert one.uncommitted == {T1}


@pytest.mark.parametrize("call", ["plan_group_reset", "check_group_change", "delete_stored_group"])
async def test_name_in_place_of_a_stored_group_is_refused(
    one_broker: EmbeddedCluster, admin: AIOKafkaAdminClient, call: str
) -> None:
    targets = ({TopicPartition("t", 0): "earliest"},) if call == "plan_group_reset" else ()
    expected = r"""group='billing': expected a StoredGroup.*StoredGroup\('billing', "kafka", ""\)"""
    with pytest.raises(IllegalArgumentError, match=expected):
        await getattr(admin, call)("billing", *targets)


@pytest.mark.parametrize(
    "call", ["list_stored_offsets", "describe_stored_groups", "list_partition_owners"]
)
async def test_names_in_place_of_stored_groups_are_refused(
    one_broker: EmbeddedCluster, admin: AIOKafkaAdminClient, call: str
) -> None:
    with pytest.raises(IllegalArgumentError, match="group='billing': expected a StoredGroup"):
        await getattr(admin, call)(["billing"])
