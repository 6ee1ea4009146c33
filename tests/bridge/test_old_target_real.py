"""A copy to real brokers below 0.11: equal, and at least once if the bridge is killed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from aiokafka08 import AIOKafkaConsumer
from aiokafka08.bridge.config import parse_config
from aiokafka08.bridge.cutover import plan_steps
from aiokafka08.bridge.daemon import run_bridge
from aiokafka08.bridge.groups import GroupTransfer
from aiokafka08.bridge.own_topics import OWN_CONFIG, create_own_topics
from aiokafka08.bridge.sink.base import BridgeRun
from aiokafka08.bridge.status import CopyStatus
from aiokafka08.bridge.target_choice import guarantee, make_target, with_releases
from aiokafka08.bridge.verify import verify
from aiokafka08.errors import UnknownTopicOrPartitionError
from aiokafka08.structs import TopicPartition
from aiokafka08.testing import EmbeddedCluster
from tests.bridge.clusters import (
    MESSAGES,
    Message,
    TargetReader,
    bridge_text,
    running_bridge,
    write,
)
from tests.bridge.rounds import BridgeProcess
from tests.bridge.test_old_target import check_at_least_once
from tests.brokers import RealCluster
from tests.brokers.fixtures import BrokerClusters
from tests.full import in_full
from tests.waiting import eventually, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


@pytest.fixture(params=["0.10.2.2", *in_full("0.9.0.1", "0.8.2.2")])
def old_target(request: pytest.FixtureRequest, broker_clusters: BrokerClusters) -> RealCluster:
    return broker_clusters.get(request.param)


def text_of(
    name: str, source: RealCluster | EmbeddedCluster, target: RealCluster, more: str = ""
) -> str:
    """Return the file of a bridge that copies topic `name` to another name."""
    text = bridge_text(name, source, target, name, more)
    of_target = f'[target]\nzookeeper = "{target.zookeeper_connect}"\nreplication_factor = 1\n'
    rename = f'[topics]\nrename = [{{ pattern = "(.*)", to = "{name}-copy" }}]\n'
    return text.replace("[target]\n", of_target).replace("[topics]\n", rename)


async def read_copy(target: RealCluster, topic: str, partitions: int) -> list[list[Message]]:
    """Return what the target holds, by partition."""
    found: list[list[Message]] = []
    async with AIOKafkaConsumer(bootstrap_servers=target.bootstrap_servers) as consumer:
        for tp in [TopicPartition(topic, number) for number in range(partitions)]:
            records: list[Message] = []
            end = (await consumer.end_offsets([tp]))[tp]
            consumer.assign([tp])
            consumer.seek(tp, 0)
            while await consumer.position(tp) < end:
                for some in (await consumer.getmany(timeout_ms=500)).values():
                    records += [Message(one.key, one.value) for one in some]
            found.append(records)
    return found


async def test_copy_to_an_old_target_is_equal(
    source: RealCluster, old_target: RealCluster, unique_topic: Callable[..., str]
) -> None:
    """Over two runs; the bridge creates the topics, verifies them, and moves a group."""
    name = unique_topic("old")
    source.create_topic(name, partitions=3)
    file = text_of(
        name, source, old_target, '[groups]\ninclude = ["g"]\nstore = "file"\nfile = "f"\n'
    )
    config = await with_releases(parse_config(file))
    assert "at least once" in guarantee(config)
    written = [[*MESSAGES], [Message(b"1", b"one")] * 3, []]
    await write(source, name, dict(enumerate(written)))
    first, second = CopyStatus(), CopyStatus()
    await run_bridge(config, first, until_caught_up=True)
    await write(source, name, {0: MESSAGES})
    await run_bridge(config, second, until_caught_up=True)
    written[0] += MESSAGES
    assert (first.records, second.records, second.lag()) == (8, 5, 0)
    assert await read_copy(old_target, f"{name}-copy", 3) == written
    assert all(one.is_equal for one in await verify(config))
    here, there = TopicPartition(name, 0), TopicPartition(f"{name}-copy", 0)
    transfer = GroupTransfer(config, {"g": {here: (7, "text")}})
    try:
        [move] = await transfer.carry_over()
        assert (move.outcome, move.target_offset) == ("move", 7)
        assert await transfer.committed("g", [there]) == {there: 7}
    finally:
        await transfer.close()


@pytest.mark.full
async def test_plan_names_topics_that_may_lose_messages(
    source: RealCluster, old_target: RealCluster, unique_topic: Callable[..., str]
) -> None:
    """Those of the bridge are created with clean elections, which isn't the default there."""
    name = unique_topic("unclean")
    source.create_topic(name)
    source.create_topic(f"{name}-own")
    old_target.create_topic(f"{name}-own-copy")
    file = text_of(name, source, old_target).replace(
        f'include = ["{name}"]', f'include = ["{name}.*"]'
    )
    file = file.replace(f'to = "{name}-copy"', r'to = "\\1-copy"')
    config = parse_config(file)
    await run_bridge(config, CopyStatus(), until_caught_up=True)
    first = (await plan_steps(config, {}, quiet_s=0.0))[0]
    assert (first.step, first.is_ready) == ("guarantee", True)
    assert f"may lose messages of 1 topics: {name}-own-copy. Set unclean" in first.detail


async def test_own_topics_that_exist_get_the_settings_they_lack(
    old_target: RealCluster, unique_topic: Callable[..., str]
) -> None:
    """By ZooKeeper, so that a broker compacts them soon."""
    config = await with_releases(parse_config(text_of(unique_topic(), old_target, old_target)))
    name = config.offsets_topic
    old_target.create_topic(name, config={"cleanup.policy": "compact", "segment.ms": "7200000"})
    cluster = make_target(config)
    try:
        for _ in range(2):
            await create_own_topics(config, cluster, await cluster.partition_counts(), BridgeRun())
        found = await cluster.topic_configs([name, config.state_topic])
    finally:
        await cluster.close()
    settings = {**OWN_CONFIG, "unclean.leader.election.enable": "false"}
    assert found[config.state_topic].items() >= settings.items()
    assert found[name].items() >= {**settings, "segment.ms": "7200000"}.items()


async def test_librdkafka_reads_the_copy_at_0_10(
    source: RealCluster, broker_clusters: BrokerClusters, unique_topic: Callable[..., str]
) -> None:
    """A reader that shares no code with the bridge."""
    target = broker_clusters.get("0.10.2.2")
    name = unique_topic("old")
    source.create_topic(name)
    await write(source, name, {0: MESSAGES})
    await run_bridge(
        parse_config(text_of(name, source, target)), CopyStatus(), until_caught_up=True
    )
    reader = TargetReader(target)
    try:
        assert await asyncio.to_thread(reader.messages, f"{name}-copy") == {0: MESSAGES}
    finally:
        reader.close()


async def test_killed_bridge_to_an_old_target_loses_nothing(
    source: RealCluster,
    old_target: RealCluster,
    unique_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    """Killed twice in the middle: each message is there, in order; a tail may be doubled."""
    name, count, tps = unique_topic("killed"), 10_000, 2
    source.create_topic(name, partitions=tps)
    numbered = [Message(None, b"%0100d" % number) for number in range(count)]
    await write(source, name, dict.fromkeys(range(tps), numbered))
    file = tmp_path / "bridge.toml"
    slow = '[copy]\nrate = "250kB/s"\ntransaction_s = 0.2\n'
    file.write_text(text_of(name, source, old_target, slow))
    bridge = BridgeProcess(file)
    ends = [TopicPartition(f"{name}-copy", number) for number in range(tps)]
    try:
        async with AIOKafkaConsumer(bootstrap_servers=old_target.bootstrap_servers) as consumer:
            for least in (2000, 8000):
                bridge.start()

                async def copied(least: int = least) -> bool:
                    try:
                        return sum((await consumer.end_offsets(ends)).values()) >= least
                    except UnknownTopicOrPartitionError:
                        return False

                await eventually(copied, 60)
                bridge.kill()
                assert sum((await consumer.end_offsets(ends)).values()) < tps * count
    finally:
        bridge.close()
    file.write_text(text_of(name, source, old_target))
    last = BridgeProcess(file, "--until-caught-up")
    last.start()
    try:
        assert await asyncio.to_thread(last.finish) == 0, last.tail()
    finally:
        last.close()
    for of_partition in await read_copy(old_target, f"{name}-copy", tps):
        check_at_least_once([int(one.value or b"-1") for one in of_partition], count)


@pytest.mark.parametrize("version", ["0.9.0.1", "0.10.2.2"])
@pytest.mark.full
async def test_null_key_in_a_batch_is_named(
    source: RealCluster,
    broker_clusters: BrokerClusters,
    unique_topic: Callable[..., str],
    version: str,
) -> None:
    """The broker refuses all of the batch, by code 2."""
    target, name = broker_clusters.get(version), unique_topic("nullkey")
    source.create_topic(name)
    target.create_topic(f"{name}-copy", config={"cleanup.policy": "compact"})
    written = [Message(b"key %d" % one, b"") for one in range(3000)]
    written[2345] = Message(None, b"")
    await write(source, name, {0: written})
    status = CopyStatus()
    await run_bridge(parse_config(text_of(name, source, target)), status, until_caught_up=True)
    [text] = status.stopped.values()
    assert "refuses the record at offset 2345 of the source: [Error 2]" in text
    assert "null key" in text
    assert status.partitions[TopicPartition(name, 0)].position == 2345


@pytest.mark.release("0.10.2.2")
@pytest.mark.full
async def test_wrong_timestamp_in_a_batch_is_named(
    broker_clusters: BrokerClusters, unique_topic: Callable[..., str]
) -> None:
    """The broker refuses all of the batch, by code 32."""
    target, name = broker_clusters.get("0.10.2.2"), unique_topic("stamp")
    limit = {"message.timestamp.difference.max.ms": 3_600_000}
    target.create_topic(f"{name}-copy", config=limit)
    now_ms = int(time.time() * 1000)
    with EmbeddedCluster(version="0.10", topics={name: 1}) as source:
        source.append(name, 0, [b"v"] * 1234, timestamp_ms=now_ms)
        source.append(name, 0, [b"v"], timestamp_ms=1)
        source.append(name, 0, [b"v"] * 1000, timestamp_ms=now_ms)
        status = CopyStatus()
        config = parse_config(text_of(name, source, target))
        await run_bridge(config, status, until_caught_up=True)
    [text] = status.stopped.values()
    assert "refuses the record at offset 1234 of the source: [Error 32]" in text


@pytest.mark.parametrize("fault", ["killed", "paused"])
@pytest.mark.full
async def test_stop_without_an_old_target_ends_within_5_s(
    fault: str,
    source: RealCluster,
    broker_clusters: BrokerClusters,
    unique_topic: Callable[..., str],
) -> None:
    """The promise for SIGTERM: records wait for the end of their round, which it gives up."""
    target, name = broker_clusters.get("0.10.2.2"), unique_topic("gone")
    source.create_topic(name)
    slow = text_of(name, source, target, "[copy]\ntransaction_s = 30\n")
    (node,) = target.nodes
    async with running_bridge(parse_config(slow)) as (status, running):
        await until(lambda: status.problem is None, "the bridge copies", 60)
        await asyncio.to_thread(target.kill if fault == "killed" else target.pause, node)
        try:
            await write(source, name, {0: MESSAGES})
            await until(lambda: status.lag() == len(MESSAGES), "the messages are seen", 60)
            running.cancel()
            async with asyncio.timeout(5):
                await asyncio.wait([running])
        finally:
            await asyncio.to_thread(target.restart if fault == "killed" else target.resume, node)
    assert running.cancelled()
    config = parse_config(text_of(name, source, target))
    await run_bridge(config, CopyStatus(), until_caught_up=True)
    assert await read_copy(target, f"{name}-copy", 1) == [MESSAGES]


@pytest.mark.full
async def test_modern_target_with_librdkafkas_tls_is_copied_to(
    source: RealCluster, unique_topic: Callable[..., str]
) -> None:
    """It wants a certificate, given by a property that this package's client doesn't know."""
    files = Path(__file__).parent.parent / "net" / "tls"
    certificate, key = ((files / f"{one}.pem").read_text() for one in ("cert", "key"))
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": files / "cert.pem"}
    with RealCluster("4.1.0", properties=trust | {"ssl.client.auth": "required"}, ssl=True) as to:
        name = unique_topic("tls")
        source.create_topic(name)
        await write(source, name, {0: MESSAGES})
        properties = (
            '[target.properties]\n"security.protocol" = "SSL"\n'
            f'"ssl.ca.location" = "{to.ca_path}"\n'
            f'"ssl.certificate.pem" = """{certificate}"""\n"ssl.key.pem" = """{key}"""\n'
        )
        text = bridge_text(name, source, to, name, properties)
        text = text.replace(to.bootstrap_servers, to.ssl_bootstrap_servers)
        status = CopyStatus()
        await run_bridge(parse_config(text), status, until_caught_up=True)
        assert status.records == len(MESSAGES)
        reader = TargetReader(to)
        try:
            assert await asyncio.to_thread(reader.messages, name) == {0: MESSAGES}
        finally:
            reader.close()
