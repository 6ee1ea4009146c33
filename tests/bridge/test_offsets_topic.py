"""The topic of exact offsets at a real 4.1.0: the size of its records, and its settings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from aiokafka08.bridge.config import parse_config
from aiokafka08.bridge.formats import decode_runs
from aiokafka08.bridge.offset_runs import RECORD_RUNS
from aiokafka08.bridge.own_topics import OWN_CONFIG, create_own_topics
from aiokafka08.bridge.positions import read_stored_runs
from aiokafka08.bridge.target import Target
from aiokafka08.bridge.target_cluster import TopicSpec
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
            await create_own_topics(config, cluster, await cluster.partition_counts())
        found = await cluster.topic_configs([config.state_topic, name])
    finally:
        await cluster.close()
    assert found[config.state_topic].items() >= OWN_CONFIG.items()
    assert found[name].items() >= {**OWN_CONFIG, **chosen}.items()
    (told,) = [one for one in caplog.messages if "now has" in one]
    assert "segment.bytes=8388608" in told
    assert "segment.ms" not in told
