"""An error that is retried, and never passes, is named with its count; or it ends the run.

The source is an embedded cluster, the target a real 4.1.0.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from aiokafka08.bridge.copy.copy_session import CopySession
from aiokafka08.bridge.copy.copy_starts import CopyStart
from aiokafka08.bridge.copy.status import CopyStatus, PartitionStatus, RepeatedError
from aiokafka08.bridge.copy.status_pages import health_page, metrics_page
from aiokafka08.bridge.daemon import run_bridge
from aiokafka08.bridge.errors import BridgeError, BridgeFencedError, TargetUnavailableError
from aiokafka08.bridge.sink.events import TransactionAborted, TransactionCommitted
from aiokafka08.structs import TopicPartition
from aiokafka08.testing import EmbeddedCluster
from tests.bridge.clusters import config_without_zookeeper, copy, running_bridge
from tests.bridge.sessions import UnstartedSession, record
from tests.bridge.test_recovery import CONFIG, append, no_check, old
from tests.brokers import RealCluster
from tests.support.waiting import until

__all__ = ["old"]

pytestmark = [pytest.mark.timeout(180)]


@pytest.mark.real
async def test_leader_that_stays_away_is_named(
    old: EmbeddedCluster, target: RealCluster, unique_topic: Callable[..., str]
) -> None:
    """The source's consumer waits for it, and says nothing."""
    topic = unique_topic("away")
    old.create_topic(topic, 2, replication_factor=1)
    for partition in range(2):
        append(old, topic, partition, 3)
    config = config_without_zookeeper(topic, old, target, topic, "[copy]\nrefresh_s = 0.5\n")
    node = old.leader(topic, 0)
    async with running_bridge(config) as (status, _):
        await until(lambda: status.records == 6, "all is copied", 60)
        old.kill(node, "leaderless")
        errors = status.errors
        await until(lambda: any(one.count > 1 for one in errors.values()), "it is named", 60)
        page = health_page(status, 0.0).body.decode()
        wanted = f"look for leaders: the source has no leader for {topic}/0 ("
        assert wanted in page
        assert " times since " in page
        text = metrics_page(status, 0.0).body.decode()
        assert 'aiokafka08_bridge_error_repeats{what="look for leaders"} ' in text
        old.restart(node)
        old.elect()
        await until(lambda: not errors, "it has a leader again", 60)


@pytest.mark.real
@pytest.mark.full
async def test_copy_until_caught_up_gives_up_a_lost_leader(
    old: EmbeddedCluster,
    target: RealCluster,
    unique_topic: Callable[..., str],
) -> None:
    """It is lost behind the start, when the end is known: the copy would never end."""
    topic = unique_topic("lost")
    old.create_topic(topic, 2, replication_factor=1)
    for partition in range(2):
        append(old, topic, partition, 3)
    gone = TopicPartition(topic, 0)

    class Session(CopySession):
        """Loses the leader before the first read."""

        has_begun = False

        async def step(self, ends: Mapping[TopicPartition, int] | None) -> None:
            if not self.has_begun:
                self.has_begun = True
                self.parts.source.suspend(gone)  # else it may be read already
                old.kill(old.leader(*gone), "leaderless")
            await super().step(ends)

    more = "[copy]\nrefresh_s = 0.5\noutage_s = 2\n"
    config = config_without_zookeeper(topic, old, target, topic, more)
    status = await copy(config, new_session=Session)
    assert status.records == 3
    assert status.stopped == {
        gone: f"topic {topic!r}, partition 0: the source has no leader for it, for 2 s"
    }


@pytest.mark.parametrize(
    ("position", "log_end", "stopped"), [(3, 3, 0), (3, 5, 0), (2, 3, 1), (3, None, 1), (3, 2, 1)]
)
async def test_copied_partition_is_not_given_up_for_its_leader(
    position: int, log_end: int | None, stopped: int
) -> None:
    """Others are still copied: `--until-caught-up` ended with exit code 1, and nothing is missing.

    Without a fetch nobody knows that the log isn't shorter, so that would be waited for.
    """
    made, gone = UnstartedSession(CONFIG), TopicPartition("t", 0)
    made.source.end_of.return_value = log_end
    made.status.partitions[gone] = PartitionStatus(position)
    made.watch.leaderless = {gone}
    await made.session.step({gone: 3})
    assert len(made.status.stopped) == stopped
    assert made.session.has_reached({gone: 3})


async def test_transactions_that_are_always_aborted_end_the_run() -> None:
    """The error would be retried without end, within one session."""
    made = UnstartedSession(CONFIG)
    made.status.errors["producer 0"] = RepeatedError("NOT_ENOUGH_REPLICAS", 0.0, 3)
    made.sink.events.append(TransactionAborted(1, 1, "NOT_ENOUGH_REPLICAS"))
    await made.session.step(None)  # the first one of this producer
    made.sink.events.append(TransactionAborted(0, 1, "NOT_ENOUGH_REPLICAS"))
    wanted = r"producer 0 has committed nothing for 1 s; .*REPLICAS \(4 times since 1970"
    with pytest.raises(BridgeError, match=wanted):
        await made.session.step(None)


async def test_consequence_of_a_known_refusal_is_for_debugging(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "aiokafka08.bridge")
    made = UnstartedSession(CONFIG)
    made.sink.events.append(TransactionAborted(0, 1, "the target refuses records of t/0"))
    made.sink.events.append(TransactionAborted(0, 2, "skipped sequence numbers", is_known=True))
    await made.session.step(None)
    levels = [one.levelname for one in caplog.records if "is read again" in one.getMessage()]
    assert levels == ["WARNING", "DEBUG"]


async def test_target_that_acknowledges_nothing_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """librdkafka reports a timeout only after a minute."""
    caplog.set_level(logging.WARNING, "aiokafka08.bridge")
    made, tp = UnstartedSession(CONFIG), TopicPartition("t", 0)
    await made.add({tp: CopyStart(0, False)})
    await made.read({tp: [record(tp)]})
    made.now += 5
    made.session.note_silence()
    assert made.status.away == {}
    for _ in range(3):
        made.now += 10
        made.session.note_silence()
    [line] = [one.getMessage() for one in caplog.records]
    assert "the target is away: no response: messages have been waiting for 15 s" in line
    assert "waiting for 35 s" in made.status.away["target"].text
    made.sink.events.append(TransactionCommitted(0, {tp: 1}, {}, 1, 1))
    await made.session.step(None)
    made.session.note_silence()
    assert made.status.away == {}


async def test_commit_that_waits_to_be_applied_is_no_silence() -> None:
    """A low `copy.rate` keeps the session from the events of the sink while a read is put."""
    made, tp = UnstartedSession(CONFIG), TopicPartition("t", 0)
    await made.add({tp: CopyStart(0, False)})
    await made.read({tp: [record(tp), record(tp, 1)]})
    made.now += 35
    made.sink.events.append(TransactionCommitted(0, {tp: 1}, {}, 1, 1))
    made.session.note_silence()
    assert made.status.away == {}
    await made.session.step(None)
    made.now += 35
    made.session.note_silence()
    assert "waiting for 35 s" in made.status.away["target"].text


async def test_position_of_an_aborted_transaction_is_put_again() -> None:
    """It had no records, so nothing is read again; without this it waited for `recommit_s`."""
    made, tp = UnstartedSession(CONFIG), TopicPartition("t", 0)
    await made.add({tp: CopyStart(5, False)})
    await made.session.step(None)
    assert made.put == []
    made.sink.events.append(TransactionAborted(0, 1, "NOT_ENOUGH_REPLICAS"))
    await made.session.step(None)
    await made.session.step(None)
    assert made.put == [(tp, 5)]
    assert made.sink.chunks[0].epoch == 1


async def test_sessions_that_only_begin_end_the_run() -> None:
    """Each begins well, and fails before it has committed anything."""
    status = CopyStatus()

    class Session:
        def __init__(self, *_: object) -> None:
            pass

        async def run(self, *, until_caught_up: bool) -> None:
            status.begin_session()
            raise TargetUnavailableError("the target is away")

    new_session: Any = Session
    with pytest.raises(TargetUnavailableError, match="the target is away"):
        async with asyncio.timeout(60):
            await run_bridge(CONFIG, status, new_session=new_session, check_target=no_check)
    assert status.errors["copy"].count == status.sessions > 1
    assert f"the target is away ({status.sessions} times since" in (status.problem or "")


@pytest.mark.real
@pytest.mark.full
async def test_idle_start_ends_soon_after_a_newer_one(
    old: EmbeddedCluster, target: RealCluster, unique_topic: Callable[..., str]
) -> None:
    """Its next commit, which would be fenced, is up to an hour away."""
    topic = unique_topic("idle")
    old.create_topic(topic)
    append(old, topic, 0, 3)
    config = config_without_zookeeper(topic, old, target, topic, "[copy]\nrefresh_s = 0.5\n")
    async with running_bridge(config) as (status, running):
        await until(lambda: status.records == 3, "all is copied", 60)
        await copy(config)
        await until(running.done, "the older start ends", 60)
        with pytest.raises(BridgeFencedError):
            await running
