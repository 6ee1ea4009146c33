"""The topic of exact offsets at a real 4.1.0: the size of its records, and its settings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest

from aiokafka08.bridge.config import BridgeConfig, parse_config
from aiokafka08.bridge.copy.copy_positions import read_stored_runs
from aiokafka08.bridge.copy.copy_session import CopySession
from aiokafka08.bridge.copy.offset_runs import RECORD_BYTES, RECORD_RUNS, OffsetRun
from aiokafka08.bridge.copy.run_formats import RunsKey, decode_runs, encode_runs, encode_runs_key
from aiokafka08.bridge.copy.status import CopyStatus
from aiokafka08.bridge.errors import BridgeError, TargetUnavailableError
from aiokafka08.bridge.sink.sink import BridgeRun
from aiokafka08.bridge.target.own_topics import OWN_CONFIG, create_own_topics
from aiokafka08.bridge.target.target_cluster import Target, TopicSpec
from aiokafka08.structs import TopicPartition
from aiokafka08.testing import EmbeddedCluster
from tests.bridge.clusters import config_without_zookeeper, copy
from tests.brokers import RealCluster

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

SURVIVORS = 60_000
TEXT = """
name = "{}"
[source]
bootstrap = "localhost:1"
[target]
bootstrap = "{}"
[topics]
include = ["t"]
"""


@pytest.fixture
def old() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(version="0.8.2") as running:
        yield running


@pytest.mark.full
async def test_thinly_compacted_topic_is_copied(
    old: EmbeddedCluster, target: RealCluster, unique_topic: Callable[..., str]
) -> None:
    """One transaction has 60,000 runs, 1.4 MB: more than the target takes as one record."""
    topic = unique_topic("thin")
    old.create_topic(topic)
    tp = TopicPartition(topic, 0)
    old.append(*tp, [b"x"] * (2 * SURVIVORS))
    old.remove(*tp, range(0, 2 * SURVIVORS, 2))
    limits = f"[copy]\ntransaction_records = {SURVIVORS}\ntransaction_s = 30\n"
    config = config_without_zookeeper(topic, old, target, topic, limits)
    config = replace(config, target=replace(config.target, compression="none"))
    async with asyncio.timeout(60):
        status = await copy(config)
    assert (status.records, status.aborts) == (SURVIVORS, 0)
    cluster = Target(config)
    try:
        records = await cluster.read_topic(config.offsets_topic)
        known = (await read_stored_runs(config, cluster)).offset_map(tp)
    finally:
        await cluster.close()
    assert {len(decode_runs(one.value or b"") or ()) for one in records[:-1]} == {RECORD_RUNS}
    assert [known.to_target(at) for at in range(2 * SURVIVORS)] == [
        at // 2 for at in range(2 * SURVIVORS)
    ]


@pytest.mark.full
async def test_small_limit_of_the_offsets_topic_is_respected(
    old: EmbeddedCluster, target: RealCluster, unique_topic: Callable[..., str]
) -> None:
    """It takes one record of 4,096 runs, but not two in a batch."""
    config = await thin_copy(old, target, unique_topic("small"), 120_000)
    async with asyncio.timeout(60):
        status = await copy(config)
    assert (status.records, status.aborts) == (SURVIVORS, 0)


async def test_offsets_topic_that_takes_no_record_is_refused(
    old: EmbeddedCluster, target: RealCluster, unique_topic: Callable[..., str]
) -> None:
    config = await thin_copy(old, target, unique_topic("tiny"), RECORD_BYTES - 1)
    with pytest.raises(BridgeError) as raised:
        await copy(config)
    assert raised.value.text.startswith(
        f"topic {config.offsets_topic!r} at the target: max.message.bytes=99327: expected at least "
        "99328, for a record of exact offsets. Raise max.message.bytes of this topic"
    )


async def test_first_start_waits_for_a_broker_that_lacks_the_topic(
    old: EmbeddedCluster,
    target: RealCluster,
    unique_topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The offsets topic is new, and another broker is asked for its limit; Spark starts once."""
    topic = unique_topic("new")
    old.create_topic(topic)
    config = config_without_zookeeper(topic, old, target, topic, "")
    asked, describe = list[Sequence[str]](), Target.topic_configs

    async def topic_configs(self: Target, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        asked.append(topics)
        if asked.count([config.offsets_topic]) == 1:
            raise TargetUnavailableError("UNKNOWN_TOPIC_OR_PART")
        return await describe(self, topics)

    monkeypatch.setattr(Target, "topic_configs", topic_configs)
    prepared = await CopySession(config, CopyStatus(), BridgeRun()).prepare()
    assert prepared.positions == {TopicPartition(topic, 0): (TopicPartition(topic, 0), 0)}
    assert asked.count([config.offsets_topic]) == 2


async def test_largest_record_of_offsets_is_within_the_least_limit(
    target: RealCluster, unique_topic: Callable[..., str]
) -> None:
    """With a key of the longest name of a topic; the broker judges the batch."""
    name = unique_topic("largest")
    config = parse_config(TEXT.format(name, target.bootstrap_servers))
    runs = tuple(OffsetRun(2**62 + at, at, 1) for at in range(RECORD_RUNS))
    cluster = Target(config)
    try:
        limit = {"max.message.bytes": str(RECORD_BYTES)}
        await cluster.create_topic(TopicSpec(name, 1, -1, limit))
        key = encode_runs_key(RunsKey("t" * 249, 2**31 - 1, 2**62))
        await cluster.write(name, key, encode_runs(runs))
        assert len(await cluster.read_topic(name)) == 1
    finally:
        await cluster.close()


async def thin_copy(
    old: EmbeddedCluster, target: RealCluster, topic: str, limit: int
) -> BridgeConfig:
    """A source whose transaction has 60,000 runs, and an offsets topic with this limit."""
    old.create_topic(topic)
    old.append(topic, 0, [b"x"] * (2 * SURVIVORS))
    old.remove(topic, 0, range(0, 2 * SURVIVORS, 2))
    limits = f"[copy]\ntransaction_records = {SURVIVORS}\ntransaction_s = 30\n"
    config = config_without_zookeeper(topic, old, target, topic, limits)
    cluster = Target(config)
    try:
        own = {"cleanup.policy": "compact", "max.message.bytes": str(limit)}
        await cluster.create_topic(TopicSpec(config.offsets_topic, 1, -1, own))
    finally:
        await cluster.close()
    return config


async def test_own_topics_are_compacted_soon_also_existing_ones(
    target: RealCluster, unique_topic: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    """A topic of an older release has `cleanup.policy`; what somebody has chosen stays."""
    config = parse_config(TEXT.format(unique_topic("own"), target.bootstrap_servers))
    cluster = Target(config)
    name, chosen = config.offsets_topic, {"cleanup.policy": "compact", "segment.ms": "7200000"}
    try:
        await cluster.create_topic(TopicSpec(name, 1, -1, chosen))
        caplog.set_level("INFO")
        for _ in range(2):
            there = await cluster.partition_counts()
            await create_own_topics(config, cluster, there, BridgeRun())
        found = await cluster.topic_configs([config.state_topic, name])
    finally:
        await cluster.close()
    assert found[config.state_topic].items() >= OWN_CONFIG.items()
    assert found[name].items() >= {**OWN_CONFIG, **chosen}.items()
    (told,) = [one for one in caplog.messages if "now has" in one]
    assert "segment.bytes=8388608" in told
    assert "segment.ms" not in told
