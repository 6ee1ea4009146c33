"""Rare orders of events in ZooKeeper groups: the unmodified consumer in virtual time."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from aiokafka08 import AIOKafkaConsumer, TopicPartition, environment
from aiokafka08._core.net.config import OffsetsStorage
from aiokafka08._core.zookeeper.scala_registry import ScalaRegistry
from aiokafka08._core.zookeeper.session import temporary_session
from aiokafka08.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka08.errors import (
    CommitFailedError,
    IllegalStateError,
    KafkaConfigurationError,
    KafkaUnavailableError,
    PartitionRevokedError,
)
from aiokafka08.telemetry import Event, GroupJoined, GroupLeft
from aiokafka08.testing.simulation import World, simulate
from tests.support.clients import OpenConsumer
from tests.support.waiting import until
from tests.support.zookeeper import UncheckedZookeeper

SESSION_S = 8.0
WHOLE_TOPIC = {TopicPartition("t", 0)}


async def start_member(world: World, host: str, **options: Any) -> OpenConsumer:
    """Start a member in a process of its own; members are sorted by their hosts."""
    with world.process(host):
        consumer = OpenConsumer(
            "t",
            bootstrap_servers=world.cluster.bootstrap_servers,
            zookeeper_connect=world.zookeeper_connect,
            group_id="g",
            session_timeout_ms=int(SESSION_S * 1000),
            rebalance_max_retries=10,
            **options,
        )
        await asyncio.create_task(consumer.start())
    return consumer


def test_error_of_the_start_is_only_raised(caplog: pytest.LogCaptureFixture) -> None:
    """The caller has it: it isn't logged as well. Two members read different topics here."""
    with simulate(1, version="0.8.2", topics={"t": 1, "other": 1}) as world:

        async def scenario() -> None:
            strategy = [RoundRobinPartitionAssignor]
            first = await start_member(world, "a.example", partition_assignment_strategy=strategy)
            with world.process("b.example"):
                second: AIOKafkaConsumer = AIOKafkaConsumer(
                    "other",
                    bootstrap_servers=world.cluster.bootstrap_servers,
                    zookeeper_connect=world.zookeeper_connect,
                    group_id="g",
                    partition_assignment_strategy=strategy,
                    client_id="second",
                )
                with pytest.raises(KafkaConfigurationError, match="use range"):
                    await asyncio.create_task(second.start())
            await first.stop()

        world.run(scenario)
    errors = [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR]
    assert not [text for text in errors if text.startswith("second")]


def test_member_without_share_releases_what_it_dropped() -> None:
    """A member is cut off for so long that it drops its partition, but its session goes on. When it
    is back, another member is to have the partition: its node must not stay.
    """
    with simulate(1, version="0.8.2") as world:

        async def scenario() -> set[TopicPartition]:
            world.cluster.create_topic("t", 1)
            cut_off = await start_member(world, "b.example")
            assert cut_off.assignment() == WHOLE_TOPIC
            world.zookeeper.disconnect(0.9 * SESSION_S, world.zookeeper.clients)
            other = await start_member(world, "a.example")
            owned = other.assignment()
            assert cut_off.assignment() == set()
            await asyncio.gather(cut_off.stop(), other.stop())
            return owned

        assert world.run(scenario) == WHOLE_TOPIC


@pytest.mark.parametrize("storage", ["zookeeper", "dual"])
def test_bad_offset_node_stops_its_own_partition_only(
    storage: OffsetsStorage, caplog: pytest.LogCaptureFixture
) -> None:
    """It is named once, however often it is read; once it is mended its partition goes on."""
    with simulate(1, version="0.8.2") as world, caplog.at_level(logging.WARNING):

        async def scenario() -> None:
            world.cluster.create_topic("t", 3)
            for partition in range(3):
                world.cluster.append("t", partition, [b"0", b"1"])
            path = "/consumers/g/offsets/t/1"

            def write(data: bytes) -> None:
                with temporary_session(
                    UncheckedZookeeper(world.zookeeper_connect), 10, "test"
                ) as client:
                    if client.exists(path) is None:
                        client.create(path, data, makepath=True)
                    client.set(path, data)

            await environment.run_in_thread(write, b"garbage")
            member = await start_member(
                world, "a.example", auto_offset_reset="earliest", offsets_storage=storage
            )
            read = [await member.getone() for _ in range(4)]
            assert {record.partition for record in read} == {0, 2}
            await asyncio.sleep(60)
            with pytest.raises(KafkaUnavailableError, match=f"the node {path} holds b'garbage'"):
                await member.committed(TopicPartition("t", 1))
            assert await member.committed(TopicPartition("t", 2)) is not None
            await environment.run_in_thread(write, b"1")
            late = await member.getone()
            assert (late.partition, late.offset) == (1, 1)
            await member.stop()

        world.run(scenario)
    named = [text for text in caplog.messages if "garbage" in text]
    assert len(named) == 1
    assert "topic 't', partition 1" in named[0]


@pytest.mark.parametrize("pattern", ["Static", "", "white_list"])
def test_foreign_registration_takes_part_in_the_group(pattern: str) -> None:
    """As in Scala's TopicCount; the other members count its threads, too."""
    with simulate(1, version="0.8.2") as world:

        async def scenario() -> None:
            world.cluster.create_topic("t", 2)
            path, fields = "/consumers/g/ids/zz", {"subscription": {"t": 1, "no": 3}}
            data = json.dumps({**fields, "pattern": pattern}).encode()

            def register() -> None:
                with temporary_session(
                    UncheckedZookeeper(world.zookeeper_connect), 10, "test"
                ) as client:
                    client.create(path, data, makepath=True)

            await environment.run_in_thread(register)
            member = await start_member(world, "a.example")
            assert member.assignment() == {TopicPartition("t", 0)}
            await member.stop()

        world.run(scenario)


def test_partitions_claimed_during_connection_loss_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The connection breaks after the partitions are claimed and before they are read. When it is
    back, the session goes on, and the claim stands.
    """
    with simulate(1, version="0.8.2") as world:
        claim = ScalaRegistry.claim

        def claim_and_lose_connection(registry: Any, wanted: Any) -> str | None:
            result = claim(registry, wanted)
            if registry.member.startswith("g_a."):
                monkeypatch.undo()
                world.zookeeper.disconnect(0, [registry._client])
                world.zookeeper.spend(0.01)  # the connection's loss is known before the claim
            return result

        async def scenario() -> list[set[TopicPartition]]:
            world.cluster.create_topic("t", 2)
            members = [await start_member(world, "a.example")]
            monkeypatch.setattr(ScalaRegistry, "claim", claim_and_lose_connection)
            members.append(await start_member(world, "b.example"))
            await asyncio.sleep(SESSION_S)
            owned = [one.assignment() for one in members]
            await asyncio.gather(*(one.stop() for one in members))
            return owned

        assert world.run(scenario) == [{TopicPartition("t", 0)}, {TopicPartition("t", 1)}]


@pytest.mark.parametrize("changes_s", [(1.0,), (1.0, 5.5), (5.5,), ()])
def test_partitions_are_dropped_in_time_in_a_silent_network(changes_s: tuple[float, ...]) -> None:
    """Requests delay when kazoo notices that the network is lost. The member doesn't wait for it,
    also while a rebalance waits for a response, and goes on when the network is back.
    """
    with simulate(1, version="0.8.2") as world:

        async def scenario() -> None:
            world.cluster.create_topic("t", 1)
            member = await start_member(world, "a.example")
            membership: Any = member.engine.membership
            loop = asyncio.get_running_loop()
            await asyncio.sleep(10.3 * SESSION_S)
            begin = loop.time()
            world.zookeeper.disconnect(3 * SESSION_S, silent=True)
            for change_s in changes_s:
                loop.call_later(change_s, membership.on_change)
            await until(lambda: not member.assignment(), "dropped", SESSION_S)
            assert 2 / 3 * SESSION_S <= loop.time() - begin < 0.9 * SESSION_S
            assert member.engine.member_state.session_lost
            await until(lambda: not membership._is_connected, "noticed", 2 * SESSION_S)
            await until(lambda: member.assignment() == WHOLE_TOPIC, "back", 3 * SESSION_S)
            await member.commit({TopicPartition("t", 0): 0})
            await member.stop()

        world.run(scenario)


@pytest.mark.parametrize("silent", [False, True])
def test_partitions_are_kept_through_a_short_loss(silent: bool) -> None:
    with simulate(1, version="0.8.2") as world:

        async def scenario() -> None:
            world.cluster.create_topic("t", 1)
            events: list[Event] = []
            member = await start_member(world, "a.example", on_event=events.append)
            for _ in range(10):
                await asyncio.sleep(1.07 * SESSION_S)
                world.zookeeper.disconnect(0.6 * SESSION_S, silent=silent)
            await asyncio.sleep(SESSION_S)
            assert len([one for one in events if isinstance(one, GroupJoined)]) == 1
            await member.stop()

        world.run(scenario)


def test_commit_after_blocked_loop_is_refused() -> None:
    """The session may have ended unnoticed; before, while the loop ran, a commit is accepted."""
    with simulate(1, version="0.8.2") as world:

        async def scenario() -> None:
            world.cluster.create_topic("t", 1)
            member = await start_member(world, "a.example")
            await asyncio.sleep(10 * SESSION_S)
            await member.commit({TopicPartition("t", 0): 0})
            world.hold(SESSION_S)
            with pytest.raises(CommitFailedError, match="session in ZooKeeper"):
                await member.commit({TopicPartition("t", 0): 0})
            await asyncio.sleep(3 * SESSION_S)
            assert member.assignment() == WHOLE_TOPIC
            await member.stop()

        world.run(scenario)


def test_commit_of_revoked_partitions_is_a_failed_commit() -> None:
    """A worker that lost them while it processed their messages goes on; so does an idle one."""
    with simulate(1, version="0.8.2") as world:

        async def scenario() -> None:
            world.cluster.create_topic("t", 2)
            kept, moved = TopicPartition("t", 0), TopicPartition("t", 1)
            first = await start_member(world, "a.example")
            joining = asyncio.create_task(start_member(world, "b.example"))
            await until(lambda: not first.assignment(), "rebalancing", SESSION_S)
            for commit in (first.commit({kept: 0}), first.commit()):
                with pytest.raises(PartitionRevokedError) as failure:
                    await commit
                assert isinstance(failure.value, CommitFailedError)
                assert isinstance(failure.value, IllegalStateError)  # aiokafka's, later
            with pytest.raises(IllegalStateError, match="not assigned") as other:
                await first.commit({TopicPartition("other", 0): 0})
            assert not isinstance(other.value, CommitFailedError)
            second = await joining
            await until(first.assignment, "reading", SESSION_S)
            assert first.assignment() == {kept}
            await first.commit({kept: 0})
            wanted = "partition 1: not assigned to this member now"
            with pytest.raises(PartitionRevokedError, match=wanted):
                await first.commit({kept: 0, moved: 0})
            with pytest.raises(IllegalStateError, match="not assigned to this consumer") as other:
                await first.commit({TopicPartition("t", 7): 0})
            assert not isinstance(other.value, CommitFailedError)
            idle = await start_member(world, "c.example")
            membership: Any = idle.engine.membership
            await until(lambda: membership.is_joined, "joining", SESSION_S)
            assert idle.assignment() == set()
            await idle.commit()
            await asyncio.gather(first.stop(), second.stop(), idle.stop())

        world.run(scenario)


def test_error_that_ended_the_membership_is_raised_at_each_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with simulate(1, version="0.8.2") as world:

        def fail(registry: Any, wanted: Any) -> str | None:
            raise RuntimeError("a bug")

        async def scenario() -> None:
            world.cluster.create_topic("t", 1)
            member = await start_member(world, "a.example")
            monkeypatch.setattr(ScalaRegistry, "claim", fail)
            world.cluster.create_topic("u", 1)
            member.subscribe(["t", "u"])
            await asyncio.sleep(SESSION_S)
            for _ in range(2):
                with pytest.raises(RuntimeError, match="a bug"):
                    await member.getmany()
            await member.stop()

        world.run(scenario)


def test_member_of_broker_waits_for_members_in_zookeeper() -> None:
    """As after an upgrade from 0.8: what brokers coordinate doesn't see the older members."""
    with simulate(1, version="0.8.2") as world:

        async def scenario() -> None:
            world.cluster.create_topic("t", 1)
            older = await start_member(world, "a.example")
            nodes = list(world.cluster.nodes)
            for node in nodes:
                world.cluster.kill(node)
            world.cluster.change_version("0.9")
            for node in nodes:
                world.cluster.restart(node)
            loop = asyncio.get_running_loop()
            begin = loop.time()
            text = (
                r"not joined in \d+ s, \d+ tries \(rebalance_max_retries=10, "
                r"session_timeout_ms=8000\): it has members in ZooKeeper, g_a"
            )
            with pytest.raises(KafkaUnavailableError, match=text):
                await start_member(world, "b.example")
            assert loop.time() - begin >= SESSION_S
            waiting = asyncio.create_task(start_member(world, "c.example"))
            await asyncio.sleep(SESSION_S / 2)
            assert not waiting.done()
            await older.stop()
            newer = await waiting
            assert newer.assignment() == WHOLE_TOPIC
            await newer.stop()

        world.run(scenario)


def test_only_a_member_reports_that_it_left() -> None:
    with simulate(1, version="0.8.2") as world:
        events: list[Event] = []

        async def scenario() -> list[str]:
            world.cluster.create_topic("t", 1)
            member = await start_member(world, "a.example", on_event=events.append)
            member.unsubscribe()
            member.assign(WHOLE_TOPIC)
            await asyncio.sleep(SESSION_S)
            await member.stop()
            return [one.reason for one in events if isinstance(one, GroupLeft)]

        assert world.run(scenario) == ["unsubscribed"]
