"""A topic of the source that is deleted and created again, and then has more than was copied."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest

from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.bridge.status import CopyStatus
from aiokafka08.bridge.target import Target
from aiokafka08.bridge.topic_identity import TopicIdentities
from aiokafka08.structs import TopicPartition
from tests.bridge.clusters import (
    Message,
    TargetReader,
    bridge_config,
    config_without_zookeeper,
    copy,
    running_bridge,
    write,
)
from tests.brokers import RealCluster
from tests.brokers.fixtures import BrokerClusters
from tests.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

OLD = [Message(b"old", b"%d" % one) for one in range(10)]
NEW = [Message(b"new", b"%d" % one) for one in range(25)]


async def recreate(source: RealCluster, topic: str) -> None:
    """Delete the topic, create it again, and write more than the copy has."""
    await asyncio.to_thread(source.delete_topic, topic)
    await asyncio.to_thread(source.create_topic, topic)
    await write(source, topic, {0: NEW})


def recreated(status: CopyStatus, topic: str) -> bool:
    reason = status.stopped.get(TopicPartition(topic, 0), "")
    return f"topic {topic!r}, partition 0: it was deleted and created again" in reason


@pytest.mark.parametrize(
    ("version", "make_config", "kind"),
    [
        ("0.8.2.2", bridge_config, "zookeeper "),
        pytest.param("3.9.1", config_without_zookeeper, "id ", marks=pytest.mark.full),
    ],
)
async def test_recreated_topic_that_has_grown_is_stopped(
    version: str,
    make_config: Callable[..., BridgeConfig],
    kind: str,
    broker_clusters: BrokerClusters,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
) -> None:
    """The others go on; with `skip` the topic is copied from its beginning."""
    source = await asyncio.to_thread(broker_clusters.get, version)
    topic, other = unique_topic("grown"), unique_topic("other")
    for name in (topic, other):
        await asyncio.to_thread(source.create_topic, name)
    await write(source, topic, {0: OLD})
    config = make_config(topic, source, target, f"{topic}|{other}")
    assert (await copy(config)).records == 10
    await recreate(source, topic)
    await write(source, other, {0: OLD})
    for _ in range(2):  # it stays stopped
        status = await copy(config)
        assert recreated(status, topic)
        assert kind in status.stopped[TopicPartition(topic, 0)]
    assert await asyncio.to_thread(reader.messages, topic) == {0: OLD}
    assert await asyncio.to_thread(reader.messages, other) == {0: OLD}
    skipping = make_config(topic, source, target, f"{topic}|{other}", '[copy]\non_loss = "skip"\n')
    assert (await copy(skipping)).records == 25
    assert (await copy(config)).records == 0  # the new topic is the known one now
    assert await asyncio.to_thread(reader.messages, topic) == {0: OLD + NEW}


async def test_topic_recreated_during_the_copy_is_stopped(
    source: RealCluster,
    target: RealCluster,
    unique_topic: Callable[..., str],
) -> None:
    topic = unique_topic("during")
    source.create_topic(topic)
    await write(source, topic, {0: OLD})
    config = bridge_config(topic, source, target, topic, "[copy]\nrefresh_s = 0.5\n")
    async with running_bridge(config) as (status, running):
        await until(lambda: status.records == 10, "all is copied", 60)
        await recreate(source, topic)
        await until(lambda: recreated(status, topic) or running.done(), "it is noticed", 60)
    assert recreated(status, topic)


async def test_interrupted_begin_of_a_recreated_topic_is_repeated(
    source: RealCluster,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process is killed after the positions were set back, and before it says so."""
    topic = unique_topic("again")
    source.create_topic(topic)
    await write(source, topic, {0: OLD})
    config = bridge_config(topic, source, target, topic, '[copy]\non_loss = "skip"\n')
    await copy(config)
    await recreate(source, topic)

    class KilledError(Exception):
        pass

    async def killed(self: TopicIdentities, identities: Mapping[str, str]) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(TopicIdentities, "_write", killed)
        with pytest.raises(KilledError):
            await copy(config)
    connection = Target(config)
    try:
        positions = await connection.committed(config.position_group, [TopicPartition(topic, 0)])
    finally:
        await connection.close()
    assert positions == {TopicPartition(topic, 0): 0}
    assert (await copy(config)).records == 25
    assert await asyncio.to_thread(reader.messages, topic) == {0: OLD + NEW}


async def test_topic_of_an_older_release_is_taken_as_it_is(
    source: RealCluster,
    target: RealCluster,
    unique_topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No identity was written at its first copy: the next start writes the present one."""
    topic = unique_topic("older")
    source.create_topic(topic)
    await write(source, topic, {0: OLD})
    config = bridge_config(topic, source, target, topic)

    async def nothing(self: TopicIdentities, stored: object) -> None:
        pass

    with monkeypatch.context() as patch:
        patch.setattr(TopicIdentities, "start", nothing)
        await copy(config)
    await write(source, topic, {0: OLD})
    assert (await copy(config)).records == 10
    await recreate(source, topic)
    assert recreated(await copy(config), topic)
