"""A bridge that has never run copies behind other messages only if `topics.append` allows it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import confluent_kafka
import pytest

from aiokafka08.bridge.config import read_config
from aiokafka08.bridge.copy.copy_session import CopySession
from aiokafka08.bridge.copy.status import CopyStatus
from aiokafka08.bridge.errors import BridgeError, TargetUnavailableError
from aiokafka08.bridge.sink.sink import BridgeRun
from aiokafka08.bridge.topic_map import rename_rule
from aiokafka08.structs import TopicPartition
from tests._tools.cli.conftest import RunCommand
from tests.bridge.clusters import (
    MESSAGES,
    Message,
    TargetReader,
    bridge_config,
    bridge_text,
    copy,
    write,
)
from tests.bridge.hand_copy import confluent_admin, write_config
from tests.brokers import RealCluster

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]


@pytest.mark.full
async def test_second_name_into_the_same_topics_is_refused(
    source: RealCluster,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
    tmp_path: Path,
    cli: RunCommand,
) -> None:
    """Each start says the same, and writes nothing; `append` copies behind the first copy."""
    topic = unique_topic("filled")
    source.create_topic(topic, 2)
    await write(source, topic, {0: MESSAGES})
    await copy(bridge_config(topic, source, target, topic))
    config = write_config(tmp_path, f"{topic}-again", source, target, [topic])
    plan = ("bridge", "plan", str(config.path), "--quiet", "0.1", "--format", "json")
    found = await asyncio.to_thread(cli, *plan)
    detail = {row["step"]: row["detail"] for row in found.json if not row["ready"]}["topics"]
    for _ in range(2):
        with pytest.raises(BridgeError) as raised:
            await copy(config)
        assert raised.value.text == detail
    assert f"the target has messages in {topic}, and bridge '{topic}-again' has never run" in detail
    assert await asyncio.to_thread(reader.messages, topic) == {0: MESSAGES, 1: []}

    text = bridge_text(f"{topic}-again", source, target, topic, f'append = ["{topic}"]\n')
    config.path.write_text(text)
    for count in (len(MESSAGES), 0):
        assert (await copy(read_config(config.path))).records == count
    assert await asyncio.to_thread(reader.messages, topic) == {0: MESSAGES * 2, 1: []}


@pytest.mark.full
async def test_new_topic_with_messages_of_others_is_appended(
    source: RealCluster,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
) -> None:
    """By a bridge that has run before, whose other positions are known."""
    first, second = unique_topic("first"), unique_topic("second")
    for topic in (first, second):
        source.create_topic(topic)
        await write(source, topic, {0: MESSAGES})
    await copy(bridge_config(f"{second}-test", source, target, second))
    await copy(bridge_config(first, source, target, first))
    status = await copy(
        bridge_config(first, source, target, f"{first}|{second}", f'append = ["{second}"]\n')
    )
    assert (status.records, status.stopped) == (len(MESSAGES), {})
    assert await asyncio.to_thread(reader.messages, second) == {0: MESSAGES * 2}


async def test_bridge_whose_state_was_deleted_doubles_nothing(
    source: RealCluster,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
) -> None:
    """An offset that is committed by hand lets it go on."""
    topic = unique_topic("deleted")
    source.create_topic(topic, 2)
    await write(source, topic, {0: MESSAGES})
    config = bridge_config(topic, source, target, topic)
    await copy(config)
    admin = confluent_admin.AdminClient({"bootstrap.servers": target.bootstrap_servers})
    for future in admin.delete_topics([config.state_topic, config.offsets_topic]).values():
        await asyncio.to_thread(future.result, 30)
    for future in admin.delete_consumer_groups([config.position_group]).values():
        await asyncio.to_thread(future.result, 30)
    await write(source, topic, {1: MESSAGES})
    with pytest.raises(BridgeError, match="its topics and group at the target were deleted"):
        await copy(config)
    by_hand = confluent_kafka.Consumer(
        {"bootstrap.servers": target.bootstrap_servers, "group.id": config.position_group}
    )
    offset = confluent_kafka.TopicPartition(topic, 0, len(MESSAGES))
    await asyncio.to_thread(by_hand.commit, offsets=[offset], asynchronous=False)
    by_hand.close()
    await write(source, topic, {0: MESSAGES[:1]})
    status = await copy(config)
    assert status.partitions[TopicPartition(topic, 0)].position == len(MESSAGES) + 1
    assert await asyncio.to_thread(reader.messages, topic) == {
        0: [*MESSAGES, MESSAGES[0]],
        1: MESSAGES,
    }


@pytest.mark.parametrize("has_begun", [False, True])
async def test_later_session_of_first_process_copies_behind_nothing(
    source: RealCluster,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
    has_begun: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The topic comes to the source between two sessions; the claim there is the process's own.

    If the first session had begun, the topic is left out; if it ended before, the bridge has never
    run, and this session is refused as a first start is. The next start leaves the topic out.
    """
    first, filled = unique_topic("first"), unique_topic("filled")
    source.create_topic(first)
    await write(source, first, {0: MESSAGES})
    config = bridge_config(first, source, target, f"{first}|{filled}")
    run, status = BridgeRun(), CopyStatus()
    if has_begun:
        await CopySession(config, status, run).run(until_caught_up=True)
    else:
        with monkeypatch.context() as broken:
            broken.setattr(CopySession, "add", away)
            with pytest.raises(TargetUnavailableError):
                await CopySession(config, status, run).run(until_caught_up=True)
    source.create_topic(filled)
    await write(source, filled, {0: MESSAGES})
    other = confluent_kafka.Producer({"bootstrap.servers": target.bootstrap_servers})
    other.produce(filled, b"of another program", partition=0)
    assert await asyncio.to_thread(other.flush, 30) == 0
    session = CopySession(config, status, run)
    if has_begun:
        await session.run(until_caught_up=True)
    else:
        with pytest.raises(BridgeError, match=f"the target has messages in {filled}, and bridge"):
            await session.run(until_caught_up=True)
        status = await copy(config)  # the next start isn't the first: it finds a claim
    assert "topics.append copies all behind" in status.stopped[TopicPartition(filled, 0)]
    assert status.records == len(MESSAGES)
    of_target = await asyncio.to_thread(reader.messages, filled)
    assert [one for of in of_target.values() for one in of] == [
        Message(None, b"of another program")
    ]


async def away(*_: object) -> None:
    raise TargetUnavailableError("the target is away")


@pytest.mark.full
async def test_other_rename_does_not_split_a_copy(
    source: RealCluster,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
) -> None:
    """A run that leaves `--rename` out, or has another one, writes nothing to another topic."""
    topic = unique_topic("named")
    source.create_topic(topic)
    config = bridge_config(topic, source, target, topic)
    await write(source, topic, {0: MESSAGES})
    await copy(config)
    await write(source, topic, {0: MESSAGES})
    rules = (rename_rule("--rename", "(.*)", r"other.\1"),)
    status = await copy(replace(config, topics=replace(config.topics, rename=rules)))
    [text] = status.stopped.values()
    assert f"it was copied to another topic than 'other.{topic}'" in text
    assert (await copy(config)).records == len(MESSAGES)
    assert await asyncio.to_thread(reader.messages, topic) == {0: MESSAGES * 2}
    assert await asyncio.to_thread(reader.messages, f"other.{topic}") == {0: []}
