"""Groups of a real 0.8.2.2 go on at a real 4.1.0, and MirrorMaker 2's own client agrees."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka08.bridge.config import read_config
from aiokafka08.bridge.groups.carry_over import GroupTransfer
from aiokafka08.bridge.groups.rollback import roll_back
from tests._tools.cli.conftest import RunCommand
from tests.bridge.clusters import TargetReader
from tests.bridge.hand_copy import HandCopy, Message, create_topics, write_config
from tests.brokers import RealCluster
from tests.brokers.java_process import write_logging_files
from tests.brokers.tools import JavaTools
from tests.brokers.versions import find_version

PEER = Path(__file__).parent / "MirrorPeer.java"
COUNT = 60


async def write_source(cluster: RealCluster, topic: str, partition: int = 0) -> list[Message]:
    values = [b"%d" % number for number in range(COUNT)]
    async with AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, acks="all"
    ) as producer:
        await (await producer.send_many(topic, values, partition=partition))
    return [(number, None, value) for number, value in enumerate(values)]


async def commit(cluster: RealCluster, group: str, storage: Any, topic: str, offset: int) -> None:
    async with AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers,
        zookeeper_connect=cluster.zookeeper_connect,
        group_id=group,
        offsets_storage=storage,
        enable_auto_commit=False,
    ) as consumer:
        tp = TopicPartition(topic, 0)
        consumer.assign([tp])
        await consumer.commit({tp: offset})


def next_value(servers: str, group: str, topic: str) -> bytes:
    """Return the first message that a consumer of the group reads at the target."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([topic])
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None, message.error()
        value = message.value()
        assert value is not None
        return value
    finally:
        consumer.close()


@pytest.mark.real
@pytest.mark.timeout(240)
async def test_groups_go_on_where_they_were(
    source: RealCluster,
    target: RealCluster,
    unique_topic: Callable[..., str],
    tmp_path: Path,
    cli: RunCommand,
) -> None:
    topic, run = unique_topic("groups"), unique_topic("run")
    await asyncio.to_thread(source.create_topic, topic)
    servers = target.bootstrap_servers
    copied = f"old.{topic}"
    await asyncio.to_thread(create_topics, servers, {copied: 1})
    messages = await write_source(source, topic)
    groups = {f"{store}-{run}": store for store in ("zookeeper", "kafka", "dual")}
    for number, (group, store) in enumerate(groups.items()):
        await commit(source, group, store, topic, 11 * (number + 1))
    await commit(source, f"other-{run}", "zookeeper", topic, 1)
    late = f"late-{run}"
    await commit(source, late, "zookeeper", topic, COUNT)
    config = write_config(
        tmp_path,
        run,
        source,
        target,
        [topic],
        f'rename = [{{ pattern = "(.*)", to = "old.\\\\1" }}]\n'
        f'[groups]\ninclude = ["(zookeeper|kafka|dual|late)-{run}"]\n',
    )
    more = config.path.read_text().replace("[target]", f'alias = "{run}"\n[target]')
    config.path.write_text(more)

    copy = await asyncio.to_thread(HandCopy, config)
    for start, abort in ((0, False), (7, True), (7, False), (20, True), (20, False), (35, True)):
        some = messages[start : start + (30 if start == 20 else 13)]
        some = some[:7] if start == 0 else some
        await asyncio.to_thread(copy.copy, topic, 0, some, abort=abort)

    async def bridge(*arguments: str) -> tuple[int, dict[str, Any], str]:
        name, *rest = arguments
        done = await asyncio.to_thread(
            cli, "bridge", name, str(config.path), *rest, "--format", "json"
        )
        return done.code, {row["group"]: row for row in done.json}, done.err

    code, planned, _ = await bridge("groups")
    assert code == 1  # the late group's messages aren't copied
    assert {group: row["outcome"] for group, row in planned.items()} == {
        **dict.fromkeys(groups, "move"),
        late: "waiting",
    }
    assert planned[late]["reason"] == "the bridge is at 50"
    assert (await bridge("groups"))[1] == planned  # it has changed nothing
    code, moved, _ = await bridge("groups", "--execute")
    assert (code, moved) == (1, planned)
    for number, group in enumerate(groups):
        value = await asyncio.to_thread(next_value, servers, group, copied)
        assert value == b"%d" % (11 * (number + 1)), group

    # MirrorMaker 2's own client finds the same offsets.
    write_logging_files(tmp_path)
    tools = JavaTools(find_version("3.9.1-mirror"), tmp_path)
    done = await asyncio.to_thread(
        tools.run, str(PEER), "translate", servers, run, *groups, input=None, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert [line.split() for line in done.stdout.splitlines()] == [
        [group, copied, "0", str(moved[group]["target_offset"])] for group in groups
    ]

    # The rest is copied: the last group follows. Nothing goes back.
    await asyncio.to_thread(copy.copy, topic, 0, messages[50:])
    await commit(source, f"zookeeper-{run}", "zookeeper", topic, 3)
    code, moved, _ = await bridge("groups", "--execute")
    assert {group: row["outcome"] for group, row in moved.items()} == {
        **dict.fromkeys(groups, "same"),
        f"zookeeper-{run}": "behind",
        late: "move",
    }
    code, moved, _ = await bridge("groups", "--execute", "--rewind")
    assert (code, moved[f"zookeeper-{run}"]["outcome"]) == (0, "move")
    value = await asyncio.to_thread(next_value, servers, f"zookeeper-{run}", copied)
    assert value == b"3"

    # A group with members is left alone, and named.
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": f"kafka-{run}", "client.id": "worker-7"}
    )
    try:
        consumer.subscribe([copied])
        while not await asyncio.to_thread(consumer.consume, 1, 0.2):
            pass
        await commit(source, f"kafka-{run}", "kafka", topic, 30)
        code, moved, _ = await bridge("groups", "--execute")
    finally:
        await asyncio.to_thread(consumer.close)
    assert (code, moved[f"kafka-{run}"]["outcome"]) == (1, "refused")
    assert "worker-7" in moved[f"kafka-{run}"]["reason"]


@pytest.mark.real
@pytest.mark.timeout(120)
async def test_offsets_of_a_file_go_to_the_target(
    source: RealCluster,
    target: RealCluster,
    unique_topic: Callable[..., str],
    tmp_path: Path,
    cli: RunCommand,
) -> None:
    """Storm keeps its own offsets: a file of them does."""
    topic, run = unique_topic("file"), unique_topic("run")
    await asyncio.to_thread(source.create_topic, topic)
    await asyncio.to_thread(create_topics, target.bootstrap_servers, {topic: 1})
    messages = await write_source(source, topic)
    more = f'[groups]\ninclude = ["storm-{run}"]\nstore = "file"\nfile = "storm.csv"\n'
    config = write_config(tmp_path, run, source, target, [topic], more)
    copy = await asyncio.to_thread(HandCopy, config)
    await asyncio.to_thread(copy.copy, topic, 0, messages)
    done = await asyncio.to_thread(cli, "bridge", "groups", str(config.path))
    assert (done.code, "storm.csv" in done.err) == (2, True)
    file = tmp_path / "storm.csv"
    file.write_text(f"{topic},0,17\n")
    done = await asyncio.to_thread(cli, "bridge", "groups", str(config.path))
    assert (done.code, "has no group" in done.err) == (2, True)
    file.write_text(f"storm-{run},{topic},0,17\n")
    done = await asyncio.to_thread(cli, "bridge", "groups", str(config.path), "--execute")
    assert done.code == 0, done.err
    value = await asyncio.to_thread(next_value, target.bootstrap_servers, f"storm-{run}", topic)
    assert value == b"17"
    back = ("bridge", "cutover", str(config.path), "--rollback")
    done = await asyncio.to_thread(cli, *back)
    assert (done.code, "--dry-run shows the offsets for it" in done.err) == (2, True)
    done = await asyncio.to_thread(cli, *back, "--dry-run", "--format", "json")
    [row] = done.json
    assert (done.code, row["before"], row["source_offset"], row["outcome"]) == (0, 17, 17, "same")


@pytest.mark.real
@pytest.mark.timeout(120)
@pytest.mark.full
async def test_offset_syncs_name_the_last_copy_of_each_partition(
    source: RealCluster,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    """MirrorMaker 2's topic has only these; both offsets are those of the same message."""
    topic, run = unique_topic("syncs"), unique_topic("run")
    await asyncio.to_thread(source.create_topic, topic, partitions=3)
    await asyncio.to_thread(create_topics, target.bootstrap_servers, {topic: 3})
    await commit(source, run, "zookeeper", topic, 4)
    more = f'[groups]\ninclude = ["{run}"]\n'
    config = write_config(tmp_path, run, source, target, [topic], more)
    config.path.write_text(
        config.path.read_text().replace("[target]", f'alias = "{run}"\n[target]')
    )
    config = read_config(config.path)
    messages = [await write_source(source, topic, partition) for partition in range(2)]
    hand = await asyncio.to_thread(HandCopy, config)

    async def carry_over() -> dict[tuple[bytes, int], tuple[int, int]]:
        """Return the last sync of each partition, by MirrorMaker 2's format."""
        transfer = GroupTransfer(config)
        try:
            await transfer.carry_over()
        finally:
            await transfer.close()
        [records] = (await asyncio.to_thread(reader.read, syncs_topic)).values()
        found = {}
        for one in records:
            key, value = one.key(), one.value()
            assert key is not None
            assert value is not None
            (length,) = struct.unpack_from(">h", key)
            (partition,) = struct.unpack(">i", key[2 + length :])
            found[key[2 : 2 + length], partition] = struct.unpack(">qq", value)
        return found

    syncs_topic, name = f"mm2-offset-syncs.{run}.internal", topic.encode()
    # Partition 0 has an aborted copy in front, and 1 the mark of a transaction in between.
    await asyncio.to_thread(hand.copy, topic, 0, messages[0][:10], abort=True)
    await asyncio.to_thread(hand.copy, topic, 0, messages[0][:10])
    await asyncio.to_thread(hand.copy, topic, 1, messages[1][:5])
    await asyncio.to_thread(hand.copy, topic, 1, messages[1][5:20])
    first = {(name, 0): (9, 20), (name, 1): (19, 20)}
    assert await carry_over() == first
    await asyncio.to_thread(hand.copy, topic, 0, messages[0][10:40])
    second = first | {(name, 0): (39, 51)}
    assert await carry_over() == second
    copies = await asyncio.to_thread(reader.read, topic)
    for (_, partition), (upstream, downstream) in second.items():
        assert copies[partition][-1].offset() == downstream
        assert copies[partition][-1].value() == messages[partition][upstream][2]


@pytest.mark.real
@pytest.mark.timeout(120)
async def test_group_in_an_empty_partition_misses_nothing_at_the_target(
    source: RealCluster, target: RealCluster, unique_topic: Callable[..., str], tmp_path: Path
) -> None:
    """What producers write there after the cut-over is new to it; and the call may be repeated."""
    topic, run = unique_topic("empty"), unique_topic("run")
    await asyncio.to_thread(source.create_topic, topic)
    await commit(source, run, "kafka", topic, 0)
    config = write_config(
        tmp_path, run, source, target, [topic], f'[groups]\ninclude = ["{run}"]\n'
    )
    copy = TopicPartition(topic, 0)

    async def carried_over() -> tuple[str, int | None]:
        transfer = GroupTransfer(config)
        try:
            [move] = (await transfer.carry_over())[0]
            at = await transfer.committed(run, [copy]) if move.outcome != "waiting" else {}
        finally:
            await transfer.close()
        return move.outcome, at.get(copy)

    assert await carried_over() == ("waiting", None)  # the topic isn't there yet
    await asyncio.to_thread(create_topics, target.bootstrap_servers, {topic: 1})
    producer = confluent_kafka.Producer({"bootstrap.servers": target.bootstrap_servers})
    for number in range(5):
        producer.produce(topic, b"%d" % number, partition=0)
    assert await asyncio.to_thread(producer.flush, 30) == 0
    assert await carried_over() == ("move", 0)
    assert await carried_over() == ("same", 0)
    assert await asyncio.to_thread(next_value, target.bootstrap_servers, run, topic) == b"0"
    back = await roll_back(config, execute=False)
    assert [(move.outcome, move.source_offset) for move in back.moves] == [("same", 0)]
