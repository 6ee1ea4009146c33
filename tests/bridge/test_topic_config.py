"""If the target refuses settings of a topic, an error names them before anything is created."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aiokafka08 import AIOKafkaProducer
from aiokafka08._tools.cli.main import FAILED, WRONG_USAGE
from aiokafka08.bridge.config import read_config
from aiokafka08.bridge.errors import BridgeError
from aiokafka08.bridge.target.target_cluster import Target
from aiokafka08.errors import KafkaConfigurationError
from tests._tools.cli.conftest import RunCommand
from tests.bridge.clusters import bridge_text, copy
from tests.bridge.hand_copy import create_topics
from tests.brokers import RealCluster

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

REFUSED = "INVALID_CONFIG: Invalid value soon for configuration retention.ms"
ADVICE = "Mend it in [target.topic_config], which overrides what the source has"


@pytest.mark.parametrize("exists", [False, True])
async def test_settings_that_the_target_refuses_end_the_start(
    exists: bool,
    source: RealCluster,
    target: RealCluster,
    unique_topic: Callable[..., str],
    tmp_path: Path,
    cli: RunCommand,
) -> None:
    """Also if each topic exists at the target: the next new topic of the source would fail."""
    topic, path = unique_topic("settings"), tmp_path / "bridge.toml"
    source.create_topic(topic)
    if exists:
        await asyncio.to_thread(create_topics, target.bootstrap_servers, {topic: 1})
    more = '[target.topic_config]\n"retention.ms" = "soon"\n'
    path.write_text(bridge_text(topic, source, target, topic, more))
    config = read_config(path)
    plan = ("bridge", "plan", str(path), "--quiet", "0.1", "--format", "json")
    (step,) = [one for one in (await asyncio.to_thread(cli, *plan)).json if one["step"] == "topics"]
    name = f"{config.client_id}.new-topic" if exists else topic
    assert not step["ready"]
    assert step["detail"].startswith(f"the target refuses: {name}: {REFUSED}")
    assert step["detail"].endswith(ADVICE)

    with pytest.raises(KafkaConfigurationError) as raised:
        await copy(config)
    assert raised.value.text.startswith(f"the target refuses to create {name}: {REFUSED}")
    assert raised.value.text.endswith(ADVICE)
    run = ("bridge", "run", str(path), "--until-caught-up")
    done = await asyncio.to_thread(cli, *run)
    assert done.code == WRONG_USAGE == 2
    assert done.err.splitlines()[-1] == f"aiokafka08: {raised.value.text}"
    cluster = Target(config)
    try:
        there = await cluster.partition_counts()
    finally:
        await cluster.close()
    assert not there.keys() & {config.state_topic, config.offsets_topic}
    assert (topic in there) is exists


@pytest.mark.full
async def test_setting_of_the_source_that_a_new_release_refuses(
    source: RealCluster,
    target: RealCluster,
    unique_topic: Callable[..., str],
    tmp_path: Path,
    cli: RunCommand,
) -> None:
    """4.x takes no segments below 1 MiB; `topic_config` overrides the source's setting.

    Nothing is wrong in the file, so the exit code isn't that of wrong usage.
    """
    topic, path = unique_topic("segments"), tmp_path / "bridge.toml"
    source.create_topic(topic, config={"segment.bytes": "100000"})
    plan = ("bridge", "plan", str(path), "--quiet", "0.1", "--format", "json")

    def detail(more: str) -> str:
        path.write_text(bridge_text(topic, source, target, topic, more))
        steps = {one["step"]: one["detail"] for one in cli(*plan).json}
        return str(steps["topics"])

    refused = await asyncio.to_thread(detail, "")
    assert f"{topic}: INVALID_CONFIG: Invalid value 100000" in refused
    assert "segment.bytes" in refused
    run = ("bridge", "run", str(path), "--until-caught-up")
    done = await asyncio.to_thread(cli, *run)
    assert done.code == FAILED == 1
    last = done.err.splitlines()[-1]
    assert f"the target refuses to create {topic}: INVALID_CONFIG: Invalid value 100000" in last
    assert last.endswith(ADVICE)
    mended = '[target.topic_config]\n"segment.bytes" = 1048576\n'
    assert await asyncio.to_thread(detail, mended) == (
        f"1 of 1 doesn't exist at the target: 'bridge run' creates {topic} "
        "(1 partition, replication of the target's default, segment.bytes=1048576)"
    )
    assert (await asyncio.to_thread(cli, *run)).code == 0


async def test_messages_are_judged_by_settings_of_the_new_topic(
    source: RealCluster,
    target: RealCluster,
    unique_topic: Callable[..., str],
    tmp_path: Path,
    cli: RunCommand,
) -> None:
    """The source's setting is carried over, unless `topic_config` has it."""
    small, big, path = unique_topic("small"), unique_topic("big"), tmp_path / "bridge.toml"
    source.create_topic(small)
    source.create_topic(big, config={"max.message.bytes": "3000000"})
    async with AIOKafkaProducer(
        bootstrap_servers=source.bootstrap_servers, acks="all", max_request_size=4_000_000
    ) as producer:
        await producer.send_and_wait(small, b"without key")
        await producer.send_and_wait(big, bytes(2_000_000), b"key")
    plan = ("bridge", "plan", str(path), "--quiet", "0.1", "--format", "json")

    def messages(more: str) -> tuple[bool, str]:
        path.write_text(bridge_text(small, source, target, f"{small}|{big}", more))
        (step,) = [one for one in cli(*plan).json if one["step"] == "messages"]
        return step["ready"], step["detail"]

    accepted = await asyncio.to_thread(messages, "")
    assert accepted == (True, "2 messages sampled; --scan reads all")
    more = '[target.topic_config]\n"cleanup.policy" = "compact"\n"max.message.bytes" = 1500000\n'
    ready, detail = await asyncio.to_thread(messages, more)
    assert not ready
    assert f"{small}/0 from offset 0 on: a null key, and the topic is compacted" in detail
    assert f"{big}/0 from offset 0 on: 2000086 bytes, and max.message.bytes=1500000" in detail


@pytest.mark.full
async def test_plan_tells_what_a_run_says_of_the_own_topics(
    source: RealCluster,
    target: RealCluster,
    unique_topic: Callable[..., str],
    tmp_path: Path,
    cli: RunCommand,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Created by hand: with a size that takes no record, and one that isn't compacted."""
    topic, path = unique_topic("own"), tmp_path / "bridge.toml"
    source.create_topic(topic)
    path.write_text(bridge_text(topic, source, target, topic))
    config = read_config(path)
    servers, make = target.bootstrap_servers, create_topics
    await asyncio.to_thread(make, servers, {config.state_topic: 1}, {"cleanup.policy": "delete"})
    plan = ("bridge", "plan", str(path), "--quiet", "0.1", "--format", "json")

    async def topics_step() -> dict[str, Any]:
        found = (await asyncio.to_thread(cli, *plan)).json
        (step,) = [one for one in found if one["step"] == "topics"]
        return dict(step)

    policy = (
        f"topic {config.state_topic!r} at the target has cleanup.policy=delete of its own, and so "
        "loses what the bridge needs: set cleanup.policy=compact"
    )
    step = await topics_step()
    assert (step["ready"], step["detail"].partition(". But ")[2]) == (False, policy)
    await copy(config)
    assert [policy in one for one in caplog.messages].count(True) == 1
    step = await topics_step()
    assert (step["ready"], step["detail"]) == (True, f"1 topic, 1 partition. But {policy}")

    other = read_config(write_other(path, topic))
    limit = {"max.message.bytes": "50000"}
    await asyncio.to_thread(make, servers, {other.offsets_topic: 1}, limit)
    step = await topics_step()
    with pytest.raises(BridgeError) as raised:
        await copy(other)
    assert not step["ready"]
    assert step["detail"] == f"'bridge run' ends: {raised.value.text}"
    assert "max.message.bytes=50000: expected at least 99328" in step["detail"]


@pytest.mark.full
async def test_plan_tells_that_own_topics_cannot_be_created(
    source: RealCluster,
    target: RealCluster,
    unique_topic: Callable[..., str],
    tmp_path: Path,
    cli: RunCommand,
) -> None:
    """The copies exist, so nothing else is to be created."""
    topic, path = unique_topic("replicas"), tmp_path / "bridge.toml"
    source.create_topic(topic)
    await asyncio.to_thread(create_topics, target.bootstrap_servers, {topic: 1})
    text = bridge_text(topic, source, target, topic)
    path.write_text(text.replace("[topics]", "replication_factor = 99\n[topics]"))
    plan = ("bridge", "plan", str(path), "--quiet", "0.1", "--format", "json")
    (step,) = [one for one in (await asyncio.to_thread(cli, *plan)).json if one["step"] == "topics"]
    assert not step["ready"]
    state = read_config(path).state_topic
    assert f"'bridge run' ends: {state}: INVALID_REPLICATION_FACTOR" in step["detail"]


def write_other(path: Path, topic: str) -> Path:
    """Give the bridge another name, and a topic name of its own at the target."""
    text = path.read_text().replace(f'name = "{topic}"', f'name = "{topic}-tiny"')
    path.write_text(f'{text}rename = [{{ pattern = "(.*)", to = "tiny.\\\\1" }}]\n')
    return path
