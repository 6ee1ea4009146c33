"""What a bridge does about records, positions and partitions that can't be as they should."""

from __future__ import annotations

import asyncio
import logging
import os
import struct
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from aiokafka08 import AIOKafkaProducer
from aiokafka08.admin import AIOKafkaAdminClient, NewPartitions
from aiokafka08.bridge.config import BridgeConfig, parse_config
from aiokafka08.bridge.copy.copy_positions import StoredRuns, read_stored_runs
from aiokafka08.bridge.copy.copy_session import CopySession
from aiokafka08.bridge.errors import TargetError
from aiokafka08.bridge.target.target_cluster import Target, TopicSpec
from aiokafka08.structs import TopicPartition
from aiokafka08.testing import EmbeddedCluster
from tests._tools.cli.conftest import RunCommand
from tests.bridge.clusters import (
    Message,
    TargetReader,
    bridge_config,
    bridge_text,
    config_without_zookeeper,
    copy,
    running_bridge,
    write,
)
from tests.bridge.hand_copy import confluent_admin, create_topics, write_config
from tests.brokers import RealCluster
from tests.brokers.fixtures import BrokerClusters
from tests.support.full import in_full
from tests.support.waiting import eventually, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]


async def stored_runs(config: BridgeConfig) -> StoredRuns:
    connection = Target(config)
    try:
        return await read_stored_runs(config, connection)
    finally:
        await connection.close()


CONTROL_BATCH = 0x20
"""The attribute of a batch that ends a transaction."""
LARGE = Message(b"large", os.urandom(5000))


def numbered(count: int, first: int = 0) -> list[Message]:
    return [Message(b"%d" % one, b"v" * 50) for one in range(first, first + count)]


async def test_refused_record_stops_its_partition_only(
    source: RealCluster,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
) -> None:
    """The transaction is aborted and repeated; the runs stay exact, the reason is named."""
    topic = unique_topic("refused")
    source.create_topic(topic, partitions=2)
    config = bridge_config(topic, source, target, topic)
    connection = Target(config)
    limit = {"max.message.bytes": "2000"}
    await connection.create_topic(TopicSpec(topic, 2, 1, limit))
    await connection.close()
    large = [*numbered(3), Message(b"large", os.urandom(5000)), *numbered(2)]
    await write(source, topic, {0: large, 1: numbered(100)})
    status = await copy(config)
    reason = status.stopped[TopicPartition(topic, 0)]
    assert "the target refuses the record at offset 3 of the source: MSG_SIZE_TOO_LARGE" in reason
    assert status.aborts + status.transactions >= 2
    copied = await asyncio.to_thread(reader.read, topic)
    assert [one.key() for one in copied[1]] == [one.key for one in numbered(100)]
    runs = (await stored_runs(config)).offset_map(TopicPartition(topic, 1))
    for offset, record in enumerate(copied[1]):
        assert runs.to_target(offset) == record.offset()


async def test_refusal_is_warned_of_once_and_by_its_cause(
    source: RealCluster,
    target: RealCluster,
    unique_topic: Callable[..., str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """librdkafka says "skipped sequence numbers" of four attempts, and nothing of the record."""
    topic = unique_topic("keyless")
    source.create_topic(topic)
    config = bridge_config(topic, source, target, topic)
    connection = Target(config)
    await connection.create_topic(TopicSpec(topic, 1, 1, {"cleanup.policy": "compact"}))
    await connection.close()
    await write(source, topic, {0: [*numbered(420), Message(None, b"no key")]})
    caplog.set_level(logging.INFO, "aiokafka08.bridge")
    status = await copy(config)
    assert list(status.stopped) == [TopicPartition(topic, 0)]
    bridge = [one for one in caplog.records if one.name.startswith("aiokafka08.bridge")]
    again = [one.getMessage() for one in bridge if "is read again" in one.getMessage()]
    assert len(again) == 1
    assert f"the target refuses records of {topic}/0 (INVALID_RECORD: " in again[0]
    [error] = [one.getMessage() for one in bridge if one.levelno == logging.ERROR]
    assert "the record at offset 420 of the source: INVALID_RECORD" in error


@pytest.mark.full
async def test_refused_record_that_expires_is_skipped(
    target: RealCluster, reader: TargetReader, unique_topic: Callable[..., str]
) -> None:
    """The source deletes it, by its retention, while the partition is stopped there."""
    topic = unique_topic("expired")
    await asyncio.to_thread(
        create_topics, target.bootstrap_servers, {topic: 1}, {"max.message.bytes": "2000"}
    )
    more = '[copy]\non_loss = "skip"\nrefresh_s = 0.2\n'
    with EmbeddedCluster(segment_bytes=8000, retention_bytes=20_000) as source:
        source.create_topic(topic)
        config = config_without_zookeeper(topic, source, target, topic, more)
        await write(source, topic, {0: [*numbered(3), Message(b"large", os.urandom(5000))]})
        async with running_bridge(config) as (status, _):
            tp, of = TopicPartition(topic, 0), status.partitions
            await until(lambda: tp in of and of[tp].stopped, "it is refused", 60)
            await until(lambda: status.records == 3, "what is in front of it is copied", 60)
            await write(source, topic, {0: numbered(2000)})
            await until(lambda: of[tp].position == 2004, "the rest is copied", 60)
            assert of[tp].stopped is None
            skipped = of[tp].skipped
    assert skipped > 0
    found = await asyncio.to_thread(reader.messages, topic)
    assert found == {0: [*numbered(3), *numbered(2000)[skipped - 1 :]]}


@pytest.mark.parametrize("on_loss", ["stop", "skip"])
async def test_range_gone_from_source_stops_or_is_skipped(
    on_loss: str,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Retention deletes messages between two runs; the other partition is copied in any case."""
    topic = unique_topic("gone")
    with EmbeddedCluster(segment_bytes=8000, retention_bytes=20_000) as source:
        source.create_topic(topic, 2)
        more = f'[copy]\non_loss = "{on_loss}"\n'
        config = config_without_zookeeper(topic, source, target, topic, more)
        await write(source, topic, {0: numbered(3), 1: numbered(3)})
        await copy(config)
        await write(source, topic, {0: numbered(2000, 3), 1: numbered(4, 3)})
        source.apply_retention()
        tp, first = TopicPartition(topic, 0), source.offsets(topic, 0).start
        assert first > 3
        status = await copy(config)
    reason = (
        f"topic {topic!r}, partition 0: offsets 3 to {first - 1} are gone from the source before "
        f"they were copied (retention, or a deleted topic); its log begins at {first}"
    )
    found = await asyncio.to_thread(reader.messages, topic)
    assert found[1] == numbered(7)
    if on_loss == "stop":
        assert status.stopped == {tp: f'{reason}. Go on with copy.on_loss = "skip"'}
        assert (status.partitions[tp].position, status.partitions[tp].skipped) == (3, 0)
        assert found[0] == numbered(3)
    else:
        assert not status.stopped
        assert (status.partitions[tp].position, status.partitions[tp].skipped) == (2003, first - 3)
        assert f"{config.client_id}: {reason}; skipped to offset {first}" in caplog.messages
        assert found[0] == numbered(3) + numbered(2003 - first, first)


@pytest.mark.parametrize(
    ("version", "config", "bad", "error"),
    [
        ("0.8.2.2", {"cleanup.policy": "compact"}, Message(None, b"no key"), "INVALID_RECORD"),
        *in_full(
            ("0.8.2.2", {"max.message.bytes": "2000"}, LARGE, "MSG_SIZE_TOO_LARGE"),
            (
                "0.10.2.2",
                {"message.timestamp.before.max.ms": "3600000"},
                Message(b"late", b"late"),
                "INVALID_TIMESTAMP",
            ),
        ),
    ],
)
async def test_refused_record_is_named_without_a_timeout(
    version: str,
    config: dict[str, str],
    bad: Message,
    error: str,
    broker_clusters: BrokerClusters,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
    tmp_path: Path,
    cli: RunCommand,
) -> None:
    """librdkafka keeps records behind a refused one until they time out: here after 15 minutes."""
    source = await asyncio.to_thread(broker_clusters.get, version)
    topic = unique_topic("named")
    await asyncio.to_thread(source.create_topic, topic)
    more = '[target.properties]\n"transaction.timeout.ms" = 900000\n'
    bridge = write_config(tmp_path, topic, source, target, [topic], more)
    await asyncio.to_thread(create_topics, target.bootstrap_servers, {topic: 1}, config)
    messages = [*numbered(2500), bad, *numbered(2500, 2500)]
    async with AIOKafkaProducer(bootstrap_servers=source.bootstrap_servers, acks="all") as producer:
        for value, key in ((one.value, one.key) for one in messages):
            stamp = 1_500_000_000_000 if key == b"late" else None
            await producer.send(topic, value, key, partition=0, timestamp_ms=stamp)
    run = ("bridge", "run", str(bridge.path), "--until-caught-up")
    done = await asyncio.to_thread(cli, *run)
    assert done.code == 1
    named = f"topic {topic!r}, partition 0: the target refuses the record at offset 2500"
    assert f"{named} of the source: {error}" in done.err
    assert await asyncio.to_thread(reader.messages, topic) == {0: messages[:2500]}
    await asyncio.to_thread(remove_settings, target, topic, config)
    assert (await asyncio.to_thread(cli, *run)).code == 0
    assert await asyncio.to_thread(reader.messages, topic) == {0: messages}


def remove_settings(target: RealCluster, topic: str, config: dict[str, str]) -> None:
    """Give a topic of the target its default settings again."""
    types = confluent_admin
    entries = [
        types.ConfigEntry(name, None, incremental_operation=types.AlterConfigOpType.DELETE)
        for name in config
    ]
    resource = types.ConfigResource(types.ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = types.AdminClient({"bootstrap.servers": target.bootstrap_servers})
    admin.incremental_alter_configs([resource])[resource].result(30)


@pytest.mark.full
async def test_runs_are_exact_beside_a_foreign_producer(
    source: RealCluster,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
) -> None:
    """Another program writes to the target's topic at the same time."""
    topic = unique_topic("foreign")
    source.create_topic(topic)
    config = bridge_config(topic, source, target, topic, "[copy]\ntransaction_records = 3000\n")
    await write(source, topic, {0: numbered(30_000)})
    await copy(config)  # creates the topic, and copies the first part
    await write(source, topic, {0: numbered(30_000, 30_000)})
    foreign = confluent_kafka.Producer({"bootstrap.servers": target.bootstrap_servers})
    ended = asyncio.Event()

    async def disturb() -> None:
        while not ended.is_set():
            foreign.produce(topic, b"foreign", b"foreign", 0)
            foreign.poll(0)
            await asyncio.sleep(0.001)

    disturbing = asyncio.create_task(disturb())
    try:
        await copy(config)
    finally:
        ended.set()
        await disturbing
        await asyncio.to_thread(foreign.flush)
    records = (await asyncio.to_thread(reader.read, topic))[0]
    ours = [one for one in records if one.value() != b"foreign"]
    assert [one.key() for one in ours] == [one.key for one in numbered(60_000)]
    runs = (await stored_runs(config)).offset_map(TopicPartition(topic, 0))
    assert [runs.to_target(offset) for offset in range(60_000)] == [one.offset() for one in ours]


async def test_copy_goes_on_behind_a_restart_of_target(
    source: RealCluster,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
) -> None:
    """By the same session: librdkafka's call isn't stuck at the coordinator that it remembers."""
    topic = unique_topic("restarted")
    source.create_topic(topic)
    config = bridge_config(topic, source, target, topic, "[copy]\ntransaction_s = 0.2\n")
    written: list[Message] = []

    async def write_for(seconds: int) -> None:
        for _ in range(seconds * 10):
            written.append(Message(b"%d" % len(written), b"v"))
            await asyncio.gather(write(source, topic, {0: written[-1:]}), asyncio.sleep(0.1))

    async with running_bridge(config) as (status, _):
        await write_for(1)
        await until(lambda: status.records == len(written), "the first part is copied", 60)
        (node,) = target.nodes
        writing = asyncio.create_task(write_for(10))
        await asyncio.to_thread(target.kill, node)
        await until(lambda: len(written) >= 80, "messages wait", 60)
        await asyncio.to_thread(target.restart, node)
        await writing
        await until(lambda: status.records == len(written), "the rest is copied", 50)
        assert status.sessions == 1
    assert await asyncio.to_thread(reader.messages, topic) == {0: written}


@pytest.mark.full
async def test_expired_position_comes_from_the_offsets_topic(
    source: RealCluster,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
) -> None:
    topic = unique_topic("expired")
    source.create_topic(topic)
    config = bridge_config(topic, source, target, topic)
    await write(source, topic, {0: numbered(10)})
    await copy(config)
    await asyncio.to_thread(delete_group, target, config.position_group)
    await write(source, topic, {0: numbered(5, 10)})
    status = await copy(config)
    assert status.records == 5
    assert await asyncio.to_thread(reader.messages, topic) == {0: numbered(15)}


@pytest.mark.full
async def test_lost_position_is_found_by_the_tail(
    source: RealCluster,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
) -> None:
    """Neither the group nor the offsets topic is left; where the tail is ambiguous, it says so."""
    topic = unique_topic("lost")
    source.create_topic(topic, partitions=2)
    config = bridge_config(topic, source, target, topic)
    same = [Message(b"same", b"same")] * 150
    await write(source, topic, {0: numbered(10), 1: same})
    await copy(config)
    admin = AdminClient({"bootstrap.servers": target.bootstrap_servers})
    await asyncio.to_thread(delete_group, target, config.position_group)
    deleting = admin.delete_topics([config.offsets_topic])[config.offsets_topic]
    await asyncio.to_thread(deleting.result)
    await write(source, topic, {0: numbered(5, 10)})
    status = await copy(config)
    assert list(status.stopped) == [TopicPartition(topic, 1)]
    assert "the position of bridge" in status.stopped[TopicPartition(topic, 1)]
    found = await asyncio.to_thread(reader.messages, topic)
    assert found == {0: numbered(15), 1: same}


def delete_group(target: RealCluster, group: str) -> None:
    """Remove a group, as the brokers do when its offsets expire."""
    admin = AdminClient({"bootstrap.servers": target.bootstrap_servers})
    admin.delete_consumer_groups([group])[group].result()
    [listing] = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    assert not [one for one in listing.result().topic_partitions if one.offset >= 0]


async def test_recreated_source_topic_stops_its_partition(
    source: RealCluster,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
) -> None:
    """The log ends before the position: the range is named, and with `skip` the copy goes on."""
    topic, other = unique_topic("recreated"), unique_topic("other")
    source.create_topic(topic)
    source.create_topic(other)
    config = config_without_zookeeper(topic, source, target, f"{topic}|{other}")
    await write(source, topic, {0: numbered(10)})
    await copy(config)
    await asyncio.to_thread(source.delete_topic, topic)
    source.create_topic(topic)
    await write(source, topic, {0: numbered(4)})
    await write(source, other, {0: numbered(3)})
    status = await copy(config)
    reason = status.stopped[TopicPartition(topic, 0)]
    assert "the source's log ends at 4, but offsets up to 9 were copied" in reason
    assert await asyncio.to_thread(reader.messages, other) == {0: numbered(3)}
    more = '[copy]\non_loss = "skip"\n'
    skipping = config_without_zookeeper(topic, source, target, f"{topic}|{other}", more)
    assert not (await copy(skipping)).stopped
    await write(source, topic, {0: numbered(2, 4)})
    assert (await copy(skipping)).records == 2
    assert await asyncio.to_thread(reader.messages, topic) == {0: numbered(10) + numbered(2, 4)}


async def test_topic_that_grows_is_followed(
    source: RealCluster,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
) -> None:
    """Partitions are added between two runs; the target's topic grows with it."""
    topic = unique_topic("grows")
    source.create_topic(topic)
    config = bridge_config(topic, source, target, topic)
    await write(source, topic, {0: numbered(3)})
    await copy(config)
    async with AIOKafkaAdminClient(
        bootstrap_servers=source.bootstrap_servers, zookeeper_connect=source.zookeeper_connect
    ) as admin:
        await admin.create_partitions({topic: NewPartitions(3)})
    await write(source, topic, {2: numbered(4)})
    await copy(config)
    found = await asyncio.to_thread(reader.messages, topic)
    assert found == {0: numbered(3), 1: [], 2: numbered(4)}


@pytest.mark.full
async def test_growth_while_a_bridge_runs_is_found_by_one_look(
    source: RealCluster,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first look that begins after the growth finds it, and the next one is a second away."""
    topic = unique_topic("growing")
    source.create_topic(topic)
    config = bridge_config(topic, source, target, topic, "[copy]\nrefresh_s = 1\n")
    assert config.copy.look_s == 1
    await write(source, topic, {0: numbered(3)})
    looks, added_at = 0, list[int]()
    original, original_add = CopySession._new_pairs, CopySession.add

    async def new_pairs(session: CopySession) -> dict[TopicPartition, TopicPartition]:
        nonlocal looks
        looks += 1
        return await original(session)

    async def add(
        session: CopySession, pairs: dict[TopicPartition, TopicPartition], wait_s: float = 0.0
    ) -> None:
        if pairs:
            added_at.append(looks)
        await original_add(session, pairs, wait_s)

    monkeypatch.setattr(CopySession, "add", add)
    monkeypatch.setattr(CopySession, "_new_pairs", new_pairs)
    async with running_bridge(config) as (status, _):
        await until(lambda: status.records == 3, "the first partition is copied", 60)
        assert added_at == [1]
        async with AIOKafkaAdminClient(
            bootstrap_servers=source.bootstrap_servers, zookeeper_connect=source.zookeeper_connect
        ) as admin:
            await admin.create_partitions({topic: NewPartitions(3)})
        await write(source, topic, {0: numbered(2, 3), 2: numbered(4)})
        before = looks  # the last one of these may have been too early
        await until(lambda: status.records == 9, "the new partitions are copied", 60)
        # The session adds them while the watch pauses, or on a busy machine begins the next look.
        assert added_at[1] <= before + 2
        assert status.sessions == 1
    found = await asyncio.to_thread(reader.messages, topic)
    assert found == {0: numbered(5), 1: [], 2: numbered(4)}


async def test_foreign_topic_with_fewer_partitions_is_refused(
    source: RealCluster, target: RealCluster, unique_topic: Callable[..., str]
) -> None:
    topic = unique_topic("fewer")
    source.create_topic(topic, partitions=2)
    config = bridge_config(topic, source, target, topic)
    connection = Target(config)
    await connection.create_topic(TopicSpec(topic, 1, 1, {}))
    await connection.close()
    await write(source, topic, {0: numbered(3)})
    status = await copy(config)
    assert "has only 1; expected at least as many" in status.refused_topics[topic]
    assert status.records == 0


@pytest.mark.full
async def test_idle_positions_are_committed_again(
    source: RealCluster, target: RealCluster, unique_topic: Callable[..., str]
) -> None:
    """The offsets of an idle group expire; a deleted group comes back."""
    topic = unique_topic("idle")
    source.create_topic(topic)
    config = bridge_config(topic, source, target, topic, "[copy]\nrecommit_s = 1\n")
    await write(source, topic, {0: numbered(3)})
    connection = Target(config)
    tp = TopicPartition(topic, 0)

    async def is_back() -> bool:
        return await connection.committed(config.position_group, [tp]) == {tp: 3}

    try:
        async with running_bridge(config) as (status, _):
            await until(lambda: status.records == 3, "all is copied", 60)
            await asyncio.to_thread(delete_group, target, config.position_group)
            await eventually(is_back, 30, 0.2)
    finally:
        await connection.close()


@pytest.mark.full
async def test_position_of_a_stopped_partition_is_kept(
    target: RealCluster, unique_topic: Callable[..., str]
) -> None:
    """It expires as that of an idle partition does, and may have passed a hole of the log."""
    topic = unique_topic("stopped")
    tp = TopicPartition(topic, 0)
    with EmbeddedCluster() as source:
        source.create_topic(topic)
        more = "[copy]\nrecommit_s = 2\n"
        config = config_without_zookeeper(topic, source, target, topic, more)
        await write(source, topic, {0: numbered(5)})
        source.remove(topic, 0, [3, 4])
        connection = Target(config)

        async def has_position() -> bool:
            return await connection.committed(config.position_group, [tp]) == {tp: 5}

        try:
            async with running_bridge(config) as (status, _):
                await until(lambda: tp in status.partitions, "the copy begins", 60)
                await until(lambda: status.partitions[tp].position == 5, "all is copied", 60)
            await write(source, topic, {0: numbered(5, 5)})
            source.delete_before(topic, 0, 7)
            async with running_bridge(config) as (status, _):
                await until(lambda: tp in status.stopped, "the partition stops", 60)
                assert "offsets 5 to 6 are gone from the source" in status.stopped[tp]
                await asyncio.to_thread(delete_group, target, config.position_group)
                await eventually(has_position, 30, 0.2)
                assert tp in status.stopped
        finally:
            await connection.close()


@pytest.mark.full
async def test_latest_start_is_committed_before_any_record(
    source: RealCluster,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
) -> None:
    """What comes between two runs is copied, though the first one has copied nothing."""
    topic = unique_topic("latest")
    source.create_topic(topic)
    config = bridge_config(topic, source, target, topic, '[copy]\nstart = "latest"\n')
    await write(source, topic, {0: numbered(3)})
    await copy(config)
    await write(source, topic, {0: numbered(2, 3)})
    await copy(config)
    assert await asyncio.to_thread(reader.messages, topic) == {0: numbered(2, 3)}


async def test_target_that_refuses_the_start_ends_the_run(
    source: RealCluster, target: RealCluster, unique_topic: Callable[..., str]
) -> None:
    topic = unique_topic("replicas")
    source.create_topic(topic)
    text = bridge_text(topic, source, target, topic)
    config = parse_config(text.replace("[target]", "[target]\nreplication_factor = 5"))
    with pytest.raises(TargetError, match=r"create the topic .*INVALID_REPLICATION_FACTOR"):
        await asyncio.wait_for(copy(config), 30)


LZ4, ZSTD = 3, 4
"""In the attributes of a batch."""


def stored_codecs(cluster: RealCluster, topic: str) -> set[int]:
    """Return the codecs of the batches of messages in the log files of a topic."""
    found: set[int] = set()
    for path in cluster.folder.rglob(f"{topic}-[0-9]*/*.log"):
        data, place = path.read_bytes(), 0
        while place + 23 <= len(data):
            size, _, magic, _, attributes = struct.unpack_from(">iibih", data, place + 8)
            if size <= 0:
                break  # the rest of the file is reserved
            assert magic == 2
            if not attributes & CONTROL_BATCH:
                found.add(attributes & 7)
            place += 12 + size
    return found


@pytest.mark.parametrize(
    ("setting", "codec"), [("", LZ4), ('compression = "zstd"\n', ZSTD)], ids=["default", "zstd"]
)
async def test_target_stores_batches_of_the_configured_codec(
    setting: str,
    codec: int,
    source: RealCluster,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
) -> None:
    topic = unique_topic("codec")
    source.create_topic(topic)
    text = bridge_text(topic, source, target, topic)
    config = parse_config(text.replace("[target]\n", f"[target]\n{setting}"))
    await write(source, topic, {0: numbered(200)})
    await copy(config)
    assert await asyncio.to_thread(reader.messages, topic) == {0: numbered(200)}
    assert await asyncio.to_thread(stored_codecs, target, topic) == {codec}
