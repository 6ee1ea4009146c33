"""`bridge plan` and `bridge cutover` say what isn't ready, and what to do, on real clusters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from aiokafka08 import TopicPartition
from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.bridge.target import Target
from tests.bridge.hand_copy import HandCopy, create_topics, write_config
from tests.bridge.test_groups import commit, write_source
from tests.brokers import RealCluster
from tests.cli.conftest import Done, RunCommand


class CopiedTopic(NamedTuple):
    """A topic whose messages are copied, and a group that has read 40 of them."""

    topic: str
    group: str
    config: BridgeConfig
    copy: HandCopy


@pytest.fixture
async def copied(
    source: RealCluster,
    target: RealCluster,
    unique_topic: Callable[..., str],
    tmp_path: Path,
) -> CopiedTopic:
    topic, group = unique_topic("0-orders"), unique_topic("0-billing")
    await asyncio.to_thread(source.create_topic, topic)
    await asyncio.to_thread(create_topics, target.bootstrap_servers, {topic: 1})
    messages = await write_source(source, topic)
    await commit(source, group, "zookeeper", topic, 40)
    more = f'[groups]\ninclude = ["{group}"]\n'
    config = write_config(tmp_path, unique_topic("b"), source, target, [topic], more)
    copy = await asyncio.to_thread(HandCopy, config)
    await asyncio.to_thread(copy.copy, topic, 0, messages)
    return CopiedTopic(topic, group, config, copy)


async def bridge(cli: RunCommand, config: BridgeConfig, *arguments: str) -> Done:
    name, *options = arguments
    return await asyncio.to_thread(
        cli, "bridge", name, str(config.path), *options, "--format", "json"
    )


def steps_of(done: Done) -> dict[str, tuple[bool, str]]:
    return {row["step"]: (row["ready"], row["detail"]) for row in done.json}


async def at_target(copied: CopiedTopic) -> dict[TopicPartition, int]:
    """Return what the group has committed at the target."""
    cluster = Target(copied.config)
    try:
        return await cluster.committed(copied.group, [TopicPartition(copied.topic, 0)])
    finally:
        await cluster.close()


def replace_text(config: BridgeConfig, old: str, new: str) -> None:
    text = config.path.read_text()
    assert old in text
    config.path.write_text(text.replace(old, new))


@pytest.mark.real
@pytest.mark.timeout(180)
async def test_pattern_that_matches_nothing_isnt_ready(
    copied: CopiedTopic, cli: RunCommand
) -> None:
    config, execute = copied.config, ("cutover", "--execute", "--quiet", "0.1")
    replace_text(config, f'"{copied.topic}"', f'"{copied.topic}", "cliks-.*"')
    found = steps_of(await bridge(cli, config, "plan", "--quiet", "0.1"))
    ready, detail = found["topics"]
    assert not ready
    assert "topics.include: 'cliks-.*' matches no topic of the source" in detail
    assert f"The topics found: {copied.topic}" in detail
    done = await bridge(cli, config, *execute)
    assert (done.code, list(steps_of(done))) == (1, ["topics"])

    replace_text(config, ', "cliks-.*"', "")
    replace_text(config, f'"{copied.group}"', f'"{copied.group}", "biling"')
    ready, detail = steps_of(await bridge(cli, config, "plan", "--quiet", "0.1"))["consumers"]
    assert not ready
    assert "groups.include: 'biling' matches no group of the source" in detail
    assert f"The groups found: {copied.group}" in detail
    done = await bridge(cli, config, *execute)
    assert (done.code, list(steps_of(done))[-1]) == (1, "consumers")
    assert await at_target(copied) == {}

    replace_text(config, f'"{copied.group}", ', "")
    found = steps_of(await bridge(cli, config, "plan", "--quiet", "0.1"))
    assert found["groups"] == (
        False,
        "no group of [groups] has committed offsets in the topics of the bridge",
    )
