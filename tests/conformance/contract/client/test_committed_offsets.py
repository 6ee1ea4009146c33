"""Commits: what is stored and where the next consumer starts, on every line that stores offsets."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafka08 import OffsetAndMetadata, TopicPartition
from aiokafka08.errors import (
    IllegalStateError,
    KafkaConfigurationError,
    NoOffsetForPartitionError,
    OffsetMetadataTooLargeError,
    UnsupportedVersionError,
)
from tests.conformance.contract.client.broker import Broker, Consumer, Record, read_records
from tests.conformance.contract.targets import on_targets
from tests.support.waiting import eventually

pytestmark = pytest.mark.both_loops

keeps_offsets = on_targets(since="0.8.1")
has_both_stores = on_targets(since="0.8.2")


async def member(
    broker: Broker, group: str, topic: str, *partitions: int, **options: Any
) -> Consumer:
    """Return a started consumer of the group, by default without auto-commit."""
    options.setdefault("enable_auto_commit", False)
    return await broker.reader(topic, *partitions, group_id=group, **options)


def numbers(count: int) -> list[bytes | None]:
    return [b"%d" % number for number in range(count)]


def values(records: list[Record]) -> list[bytes | None]:
    return [record.value for record in records]


# --- nothing committed ----------------------------------------------------------------------------


@keeps_offsets
async def test_committed_without_commit_is_none(broker: Broker) -> None:
    topic, group = await broker.new_log(numbers(3)), broker.unique_topic("g")
    one = await member(broker, group, topic)
    here, beside = TopicPartition(topic, 0), TopicPartition(topic, 7)
    elsewhere = TopicPartition(broker.unique_topic("nowhere"), 0)
    assert [await one.committed(tp) for tp in (here, beside, elsewhere)] == [None] * 3
    assert await one.seek_to_committed() == {here: None}
    assert values(await read_records(one, 3)) == numbers(3)


@keeps_offsets
async def test_no_commit_and_no_reset_policy_raises(broker: Broker) -> None:
    topic, group = await broker.new_log(numbers(3)), broker.unique_topic("g")
    one = await member(broker, group, topic, auto_offset_reset="none")
    with pytest.raises(NoOffsetForPartitionError, match=f"{topic}.*partition 0"):
        await one.getone()
    one.seek(TopicPartition(topic, 0), 1)
    assert values(await read_records(one, 2)) == [b"1", b"2"]


# --- explicit commits -----------------------------------------------------------------------------


@keeps_offsets
async def test_next_consumer_starts_after_committed_records(broker: Broker) -> None:
    topic, group = await broker.new_log(numbers(10)), broker.unique_topic("g")
    tp = TopicPartition(topic, 0)
    one = await member(broker, group, topic)
    await read_records(one, 3)
    assert await one.committed(tp) is None
    await one.commit()  # without the records that were fetched ahead
    assert await one.committed(tp) == 3
    await read_records(one, 2)
    await one.stop()
    two = await member(broker, group, topic)
    assert await two.position(tp) == 3
    assert values(await read_records(two, 7)) == numbers(10)[3:]
    other_group = await member(broker, broker.unique_topic("g"), topic)
    assert await other_group.committed(tp) is None


@keeps_offsets
async def test_commit_of_explicit_offsets(broker: Broker) -> None:
    topic, group = await broker.create_topic(partitions=3), broker.unique_topic("g")
    tps = [TopicPartition(topic, number) for number in range(3)]
    one = await member(broker, group, topic, 0, 1, 2)
    await one.commit({tps[0]: 5, tps[1]: (6, "why"), tps[2]: OffsetAndMetadata(0, "")})
    assert [await one.committed(tp) for tp in tps] == [5, 6, 0]
    await one.commit({tps[1]: 2})
    assert [await one.committed(tp) for tp in tps] == [5, 2, 0]
    assert await one.seek_to_committed(tps[0], tps[1]) == {tps[0]: 5, tps[1]: 2}
    one.assign(tps[:1])
    assert await one.seek_to_committed() == {tps[0]: 5}
    with pytest.raises(IllegalStateError, match="not assigned"):
        await one.commit({tps[1]: 1})
    assert await one.committed(tps[1]) == 2


@keeps_offsets
async def test_commit_of_invalid_offset_raises_before_sending(broker: Broker) -> None:
    topic, group = await broker.create_topic(), broker.unique_topic("g")
    tp = TopicPartition(topic, 0)
    one = await member(broker, group, topic)
    for offset in (-1, 2**63, True, 1.5, None, "5", (1, "a", 2)):
        with pytest.raises(ValueError, match="expected"):
            await one.commit({tp: offset})  # type: ignore[dict-item]
    wrong: list[Any] = [{}, [tp]]
    for offsets in wrong:
        with pytest.raises(ValueError, match="expected a dict"):
            await one.commit(offsets)
    with pytest.raises(TypeError, match="a TopicPartition"):
        await one.commit({(topic, 0): 1})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="a string"):
        await one.commit({tp: (1, b"bytes")})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="a TopicPartition"):
        await one.committed((topic, 0))  # type: ignore[arg-type]
    assert await one.committed(tp) is None


@keeps_offsets
async def test_commit_with_long_metadata_commits_nothing(broker: Broker) -> None:
    topic, group = await broker.create_topic(), broker.unique_topic("g")
    tp = TopicPartition(topic, 0)
    one = await member(broker, group, topic)
    limit = 4096 if broker.version >= (0, 8, 2) else 1024
    await one.commit({tp: (1, "x" * limit)})
    with pytest.raises(OffsetMetadataTooLargeError, match=f"{topic}.*0.* at most {limit}"):
        await one.commit({tp: (2, "x" * (limit + 1))})
    assert await one.committed(tp) == 1


# --- auto-commit ----------------------------------------------------------------------------------


@keeps_offsets
async def test_auto_commit_commits_periodically(broker: Broker) -> None:
    topic, group = await broker.new_log(numbers(5)), broker.unique_topic("g")
    tp = TopicPartition(topic, 0)
    one = await member(broker, group, topic, enable_auto_commit=True, auto_commit_interval_ms=50)
    other = await member(broker, group, topic)
    for count in (3, 5):
        await read_records(one, count - (await one.position(tp)))

        async def it_is_committed(count: int = count) -> bool:
            return await other.committed(tp) == count

        await eventually(it_is_committed)


@keeps_offsets
@pytest.mark.parametrize("automatic", [True, False])
async def test_stop_with_auto_commit_commits_position(broker: Broker, automatic: bool) -> None:
    topic, group = await broker.new_log(numbers(5)), broker.unique_topic("g")
    one = await member(
        broker, group, topic, enable_auto_commit=automatic, auto_commit_interval_ms=3_600_000
    )
    await read_records(one, 2)
    await one.stop()
    two = await member(broker, group, topic)
    assert await two.committed(TopicPartition(topic, 0)) == (2 if automatic else None)


# --- the stores -----------------------------------------------------------------------------------


@has_both_stores
async def test_offset_stores_are_independent(broker: Broker) -> None:
    topic, group = await broker.create_topic(), broker.unique_topic("g")
    tp = TopicPartition(topic, 0)
    default = await member(broker, group, topic)
    in_kafka = await member(broker, group, topic, offsets_storage="kafka")
    in_zookeeper = await member(broker, group, topic, offsets_storage="zookeeper")
    await in_kafka.commit({tp: 3})
    assert [await one.committed(tp) for one in (default, in_kafka, in_zookeeper)] == [3, 3, None]
    await in_zookeeper.commit({tp: 2})
    assert [await one.committed(tp) for one in (default, in_kafka, in_zookeeper)] == [3, 3, 2]


@has_both_stores
async def test_dual_store_reads_larger_offset_and_writes_both(broker: Broker) -> None:
    topic, group = await broker.create_topic(partitions=3), broker.unique_topic("g")
    tps = [TopicPartition(topic, number) for number in range(3)]
    dual, in_kafka, in_zookeeper = [
        await member(broker, group, topic, 0, 1, 2, offsets_storage=storage)
        for storage in ("dual", "kafka", "zookeeper")
    ]
    await in_kafka.commit({tps[0]: 3, tps[1]: 9})
    await in_zookeeper.commit({tps[0]: 7, tps[1]: 8})
    assert await dual.seek_to_committed() == {tps[0]: 7, tps[1]: 9, tps[2]: None}
    await dual.commit({tps[0]: 4, tps[2]: 5})
    for one in (dual, in_kafka, in_zookeeper):
        assert [await one.committed(tp) for tp in (tps[0], tps[2])] == [4, 5]


@on_targets(since="0.9")
async def test_dual_member_moves_offsets_of_idle_partitions(broker: Broker) -> None:
    """Else a member with "kafka" would start at the end, after messages that nobody has read."""
    topic, group = await broker.create_topic(partitions=3), broker.unique_topic("g")
    tps = [TopicPartition(topic, number) for number in range(3)]
    in_kafka, in_zookeeper = [
        await member(broker, group, topic, 0, 1, 2, offsets_storage=storage)
        for storage in ("kafka", "zookeeper")
    ]
    await in_kafka.commit({tps[1]: 2})
    await in_zookeeper.commit({tps[0]: 3, tps[1]: 1})
    dual = broker.new_consumer(
        topic, group_id=group, offsets_storage="dual", enable_auto_commit=False
    )

    async def are_level() -> bool:
        stored = [[await one.committed(tp) for tp in tps] for one in (in_kafka, in_zookeeper)]
        return stored == [[3, 2, None]] * 2

    async with dual:
        await eventually(are_level)


@on_targets(below="0.8.2")
@pytest.mark.parametrize("storage", ["kafka", "dual"])
async def test_old_line_has_no_kafka_store(broker: Broker, storage: str) -> None:
    topic = await broker.create_topic()
    one = broker.new_consumer(group_id="g", offsets_storage=storage)
    one.assign([TopicPartition(topic, 0)])
    with pytest.raises(UnsupportedVersionError, match=f"'{storage}': .* from 0.8.2"):
        await one.start()


@on_targets(below="0.8.1")
async def test_0_8_0_has_no_store_and_error_names_alternatives(broker: Broker) -> None:
    topic = await broker.create_topic()
    one = broker.new_consumer(group_id="g")
    one.assign([TopicPartition(topic, 0)])
    with pytest.raises(KafkaConfigurationError, match=r"zookeeper_connect=.*leave group_id out"):
        await one.start()
