"""ZooKeeper sessions that end, expire while the loop is blocked, or lose the connection."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss

from aiokafka08 import AIOKafkaConsumer
from aiokafka08._core.zookeeper.scala_registry import ScalaRegistry
from aiokafka08.errors import (
    CommitFailedError,
    KafkaUnavailableError,
)
from tests.brokers import RealCluster
from tests.brokers.proxy import TcpProxy
from tests.consumer.membership.group_harness import PARTITIONS, eventually, kill_and_pause, produce
from tests.consumer.membership.worker_process import Worker
from tests.consumer.membership.zookeeper.group_state import (
    Group,
    end_session,
    new_member,
    options_for,
)
from tests.support.clients import OpenConsumer

pytestmark = [pytest.mark.real, pytest.mark.timeout(150)]


async def test_member_returns_after_its_session_ended(
    cluster: RealCluster, group: Group, registry: KazooClient
) -> None:
    async with new_member(cluster, group) as one, new_member(cluster, group) as two:
        await group.shared(2)
        before = group.members()
        await end_session(cluster, one.consumer)
        await eventually(lambda: group.members() != before, "a new member")
        await group.shared(2)
        await eventually(
            lambda: (
                len(one.consumer.assignment()) == len(two.consumer.assignment()) == PARTITIONS // 2
            ),
            "reading",
        )
        assert not one.consumer.assignment() & two.consumer.assignment()
        sent = await produce(cluster, group.topic, "one")
        await eventually(lambda: sorted([*one.values, *two.values]) == sorted(sent), "all messages")


async def test_commit_after_blocked_loop_is_refused(cluster: RealCluster, group: Group) -> None:
    options = {**options_for(cluster, group.name), "enable_auto_commit": False}
    async with AIOKafkaConsumer(group.topic, **options) as consumer:
        sent = await produce(cluster, group.topic, "one")
        records = [await consumer.getone() for _ in range(3)]
        time.sleep(3.6)  # the loop is blocked, as when the process is stopped
        with pytest.raises(CommitFailedError, match="session in ZooKeeper"):
            await consumer.commit()
        assert group.offsets() == [0] * PARTITIONS
        values: list[bytes | None] = []
        async with asyncio.timeout(40):
            while sum(group.offsets()) < len(sent):
                values.append((await consumer.getone()).value)
                with contextlib.suppress(CommitFailedError):  # until it owns partitions again
                    await consumer.commit()
        # Nothing was committed, so these are delivered again.
        assert {one.value for one in records} <= {*values}


async def test_session_end_during_backoff_is_noticed(
    cluster: RealCluster, group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**options_for(cluster, group.name), "rebalance_backoff_ms": 3_600_000}
    async with OpenConsumer(group.topic, **options) as consumer:
        membership: Any = consumer.engine.membership
        registry = membership._registry
        tried = 0

        def fail(topics: frozenset[str]) -> None:
            nonlocal tried
            tried += 1
            raise KafkaUnavailableError("not now")

        with monkeypatch.context() as patch:
            patch.setattr(registry, "register_and_read", fail)
            membership.on_change()
            await eventually(lambda: tried > 0, "a failed attempt")
        [tp, *_] = consumer.assignment()
        await end_session(cluster, consumer)
        await eventually(lambda: len(group.members()) == 1, "a new member")
        await eventually(lambda: len(consumer.assignment()) == PARTITIONS, "reading")
        await consumer.commit({tp: 1})


async def test_disconnected_member_drops_partitions_in_time(
    cluster: RealCluster, group: Group
) -> None:
    async with TcpProxy(cluster.zookeeper_connect) as proxy:
        options = {"session_timeout_ms": 8000, "zookeeper_connect": proxy.address}
        async with (
            new_member(cluster, group, **options) as cut_off,
            new_member(cluster, group) as other,
        ):
            await group.shared(2)
            await eventually(
                lambda: (
                    len(cut_off.consumer.assignment() | other.consumer.assignment()) == PARTITIONS
                ),
                "reading",
            )
            proxy.black_hole()
            both: set[object] = set()

            def taken_over() -> bool:
                both.update(cut_off.consumer.assignment() & other.consumer.assignment())
                return len(other.consumer.assignment()) == PARTITIONS

            await eventually(taken_over, "the other member to own all")
            assert both == set()
            assert cut_off.consumer.assignment() == set()


async def test_requests_delay_no_drop_in_a_silent_network(
    cluster: RealCluster, group: Group
) -> None:
    """kazoo takes each request for a heartbeat, also one without a response."""
    session_s = 6.0
    async with TcpProxy(cluster.zookeeper_connect) as proxy:
        options = {
            "session_timeout_ms": int(session_s * 1000),
            "zookeeper_connect": proxy.address,
            "offsets_storage": "kafka",
        }
        async with new_member(cluster, group, **options) as member:
            await eventually(lambda: len(member.consumer.assignment()) == PARTITIONS, "reading")
            await asyncio.sleep(session_s)
            membership: Any = member.consumer.engine.membership
            proxy.black_hole()
            begin = time.monotonic()
            membership.on_change()  # this rebalance waits for a response
            for _ in range(4):
                await asyncio.sleep(session_s / 5)
                membership._registry._client.exists_async("/")
            await eventually(lambda: not member.consumer.assignment(), "dropped partitions")
            assert time.monotonic() - begin < session_s
            await proxy.heal()
            proxy.close_all()
            await eventually(lambda: len(member.consumer.assignment()) == PARTITIONS, "reading")


@pytest.mark.parametrize("step", ["_create", "_delete"])
def test_lost_zookeeper_response_leaves_one_registration(
    cluster: RealCluster,
    group: Group,
    registry: KazooClient,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    member = ScalaRegistry(
        registry, cluster.zookeeper_connect, group.name, 10, lambda: None, "c", lambda *_: None
    )
    if step == "_delete":
        member.register_and_read(frozenset({"elsewhere"}))
    lose = {step}
    real = getattr(member, step)

    def lost(path: str, *args: Any) -> None:
        if step == "_create":
            real(path, *args)
        if lose:
            lose.clear()
            raise ConnectionLoss
        if step == "_delete":
            real(path, *args)

    monkeypatch.setattr(member, step, lost)
    topics = frozenset({group.topic})
    with pytest.raises(KafkaUnavailableError, match="ConnectionLoss"):
        member.register_and_read(topics)
    snapshot = member.register_and_read(topics)
    assert group.members() == [member.member]
    assert snapshot.threads == {group.topic: [f"{member.member}-0"]}


async def test_unregistering_is_retried_after_an_error(
    cluster: RealCluster, group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with OpenConsumer(group.topic, **options_for(cluster, group.name)) as consumer:
        membership: Any = consumer.engine.membership
        registry = membership._registry
        real = registry.leave
        failed: list[Any] = []

        def leave(owned: Any) -> None:
            if not failed:
                failed.append(owned)
                raise KafkaUnavailableError("not now")
            real(owned)

        monkeypatch.setattr(registry, "leave", leave)
        consumer.unsubscribe()
        await eventually(lambda: group.members() == [] and not group.owners(), "no registration")
        await eventually(lambda: consumer.metrics()["group_leaves"] == 1, "the event")
        assert failed


@pytest.mark.full
async def test_killed_and_paused_workers_lose_no_message(
    cluster: RealCluster, group: Group, tmp_path: Path, stops: list[Callable[[], Any]]
) -> None:
    options = "--zookeeper", cluster.zookeeper_connect
    workers = [Worker(cluster, group.name, group.topic, tmp_path, *options) for _ in range(3)]
    stops += [worker.stop for worker in workers]
    await kill_and_pause(cluster, group.topic, workers, group.offsets, group.shared)


@pytest.mark.full
async def test_zookeeper_outage_longer_than_the_session(
    restarted: RealCluster, group: Group
) -> None:
    async with new_member(restarted, group) as one, new_member(restarted, group) as two:
        await group.shared(2)
        before = await produce(restarted, group.topic, "before")
        done = [len(before) // PARTITIONS] * PARTITIONS
        await eventually(lambda: group.offsets() == done, "committing")
        await asyncio.to_thread(restarted.stop_zookeeper)
        await eventually(
            lambda: not one.consumer.assignment() | two.consumer.assignment(), "dropped partitions"
        )
        await asyncio.to_thread(restarted.start_zookeeper)
        await group.shared(2)
        await eventually(
            lambda: len(one.consumer.assignment() | two.consumer.assignment()) == PARTITIONS,
            "reading",
        )
        assert group.offsets() == done
        sent = before | await produce(restarted, group.topic, "one")
        await eventually(lambda: {*one.values, *two.values} == sent, "all messages")
