"""Groups carried over again and again follow the source, and wait for a target that is away."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import create_autospec

import pytest

from aiokafka08.bridge.config import BridgeConfig, parse_config
from aiokafka08.bridge.copy.status import CopyStatus
from aiokafka08.bridge.errors import TargetUnavailableError
from aiokafka08.bridge.groups import carry_over as groups
from aiokafka08.bridge.groups.carry_over import (
    CopiedCluster,
    GroupTransfer,
    carry_over_continuously,
)
from aiokafka08.bridge.groups.group_plan import UNREAD, GroupMove, GroupOutcome, SourceOffset
from aiokafka08.bridge.target.target_cluster import Target
from aiokafka08.structs import TopicPartition
from tests.bridge.clusters import bridge_config, running_bridge
from tests.bridge.test_groups import COUNT, commit, write_source
from tests.brokers import RealCluster
from tests.support.waiting import eventually, until


def config_without_target(port: int) -> BridgeConfig:
    return parse_config(
        f'name = "b"\n[source]\nbootstrap = "127.0.0.1:{port}"\n'
        f'[target]\nbootstrap = "127.0.0.1:{port}"\n[topics]\ninclude = ["orders"]\n'
        f'[groups]\ninclude = ["billing"]\nstore = "kafka"\ninterval_s = 0.1\n'
    )


NOTHING_COPIED = CopiedCluster({}, {})


def use(transfer: GroupTransfer, monkeypatch: pytest.MonkeyPatch) -> None:
    async def is_modern(config: BridgeConfig) -> None:
        pass

    monkeypatch.setattr(groups, "GroupTransfer", lambda *_: transfer)
    monkeypatch.setattr(groups, "refuse_old_target", is_modern)


async def carry_over_four_times(transfer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    use(transfer, monkeypatch)
    config = config_without_target(1)
    work = asyncio.create_task(carry_over_continuously(config, {}, CopyStatus()))
    try:
        await until(lambda: work.done() or transfer.carry_over.await_count >= 4, timeout_s=60)
        assert not work.done()
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


async def test_pattern_of_no_group_is_logged_once_until_a_group_comes(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING, "aiokafka08.bridge")
    transfer = create_autospec(GroupTransfer, instance=True)
    transfer.carry_over.return_value = [], NOTHING_COPIED
    transfer.unmatched.side_effect = ["groups.include: 'biling' matches no group"] * 2 + [None]
    await carry_over_four_times(transfer, monkeypatch)
    [one] = caplog.records
    text = "groups not carried over: groups.include: 'biling' matches no group"
    assert text in one.getMessage()


async def test_offsets_in_topics_that_are_not_copied_are_logged_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING, "aiokafka08.bridge")
    transfer = create_autospec(GroupTransfer, instance=True)
    state = {TopicPartition("state", 0): SourceOffset(3, "", "kafka")}
    transfer.carry_over.return_value = [], CopiedCluster({}, {"both": state})
    transfer.unmatched.return_value = None
    await carry_over_four_times(transfer, monkeypatch)
    [one] = caplog.records
    text = "nothing of group 'both' is carried over: the bridge doesn't copy state"
    assert one.getMessage().endswith(text)


async def test_target_away_at_the_start_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    """With `continuous = true` an error here would end `bridge run`."""
    caplog.set_level(logging.WARNING, "aiokafka08.bridge")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # it doesn't listen
        config = config_without_target(closed.getsockname()[1])
        work = asyncio.create_task(carry_over_continuously(config, {}, CopyStatus()))
        try:
            await until(lambda: work.done() or len(caplog.records) >= 2, timeout_s=60)
            assert not work.done()
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
    for one in caplog.records[:2]:
        text = one.getMessage()
        assert "groups not carried over: target.bootstrap=" in text
        assert "no broker responds" in text


async def test_unreadable_offset_is_an_error_of_the_bridge(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is logged and counted, its group isn't counted as translated, and other groups are."""
    caplog.set_level(logging.WARNING, "aiokafka08.bridge")
    tp = TopicPartition("orders", 0)

    def move(group: str, source: TopicPartition, outcome: GroupOutcome) -> GroupMove:
        return GroupMove(group, source, source, "zookeeper", None, "", None, None, outcome, "junk")

    sound = [move("paying", tp, "move"), move("billing", tp, "same")]
    odd = [
        move("billing", TopicPartition("orders", 1), "unreadable"),
        move("b2", UNREAD, "unreadable"),
    ]
    transfer = create_autospec(GroupTransfer, instance=True)
    transfer.carry_over.return_value = sound + odd, NOTHING_COPIED
    transfer.unmatched.return_value = None
    use(transfer, monkeypatch)
    status = CopyStatus()
    work = asyncio.create_task(carry_over_continuously(config_without_target(1), {}, status))
    try:
        await until(lambda: work.done() or len(caplog.records) >= 2, timeout_s=60)
        assert status.translated_groups == 1
        [(what, error)] = status.errors.items()
        assert (what, error.count >= 2) == ("unreadable offsets", True)
        for text in (error.text, caplog.records[0].getMessage()):
            assert "billing, orders/1: junk. b2: junk" in text
        transfer.carry_over.return_value = sound, NOTHING_COPIED
        await until(lambda: not status.errors, "the error ends", 60)
        await until(lambda: status.translated_groups == 2, "both are translated", 60)
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


@pytest.mark.real
@pytest.mark.timeout(180)
async def test_group_of_a_running_bridge_follows_its_source(
    source: RealCluster, target: RealCluster, unique_topic: Callable[..., str]
) -> None:
    """Its offset moves twice at the source; what isn't copied yet is carried over later."""
    topic, group = unique_topic("follows"), unique_topic("group")
    await asyncio.to_thread(source.create_topic, topic)
    more = f'[groups]\ninclude = ["{group}"]\ncontinuous = true\ninterval_s = 0.5\n'
    config = bridge_config(topic, source, target, topic, more)
    connection, tp = Target(config), TopicPartition(topic, 0)

    async def wait_committed(offset: int, status: CopyStatus) -> None:
        async def is_committed() -> bool:
            try:
                return await connection.committed(group, [tp]) == {tp: offset}
            except TargetUnavailableError:  # its coordinator isn't ready yet
                return False

        before = time.time()
        await eventually(is_committed, 60, 0.2)
        translated = status.translated_at or 0.0
        await until(lambda: (status.translated_at or 0.0) > max(before, translated), "again", 60)
        assert status.translated_groups == 1
        assert not status.errors

    try:
        async with running_bridge(config) as (status, running):
            work = asyncio.create_task(carry_over_continuously(config, {}, status))
            try:
                await until(lambda: status.translated_at is not None, "groups are translated", 60)
                assert status.translated_groups == 0
                await write_source(source, topic)
                for offset in (7, 20, COUNT):
                    await commit(source, group, "zookeeper", topic, offset)
                    await wait_committed(offset, status)
                assert not running.done()
                assert not work.done()
            finally:
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)
    finally:
        await connection.close()
