"""Threads that wait for ZooKeeper: `stop()` leaves none behind, and no session outlives its end."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka08 import AIOKafkaConsumer, TopicPartition
from aiokafka08.testing.simulation import simulate
from tests.support.waiting import until


@pytest.mark.parametrize("after_s", [0.1, 0.3, 0.5, 0.7])
def test_stop_within_a_rebalance_leaves_no_thread(after_s: float) -> None:
    with simulate(1, brokers=1, topics={"t": 2}) as world:

        def member() -> AIOKafkaConsumer[bytes, bytes]:
            return AIOKafkaConsumer(
                "t",
                bootstrap_servers=world.cluster.bootstrap_servers,
                zookeeper_connect=world.zookeeper_connect,
                group_id="g",
            )

        async def run() -> dict[str, int]:
            with world.process("other"):
                other = member()
                await other.start()
            with world.process("member"):
                leaving = member()
                await leaving.start()
                world.zookeeper.latency_s = 0.2
                with world.process("other"):
                    await other.stop()
                await asyncio.sleep(after_s)
                await leaving.stop()
                return await world.left_by("member")

        assert world.run(run) == {"tasks": 0, "connections": 0, "timers": 0}


def test_stop_after_a_cancelled_commit_leaves_no_thread() -> None:
    """The commit's thread still waits for ZooKeeper; seed 305 of the mixed scenario found it."""
    with simulate(1, brokers=1, version="0.8.1", topics={"t": 1}) as world:

        async def run() -> dict[str, int]:
            with world.process("member"):
                consumer = AIOKafkaConsumer[bytes, bytes](
                    bootstrap_servers=world.cluster.bootstrap_servers,
                    zookeeper_connect=world.zookeeper_connect,
                    group_id="g",
                    enable_auto_commit=False,
                )
                partition = TopicPartition("t", 0)
                consumer.assign([partition])
                await consumer.start()
                world.zookeeper.disconnect(for_s=3, silent=True)
                commit = asyncio.create_task(consumer.commit({partition: 1}))
                await asyncio.sleep(0.5)
                commit.cancel()
                await asyncio.wait([commit])
                await consumer.stop()
                return await world.left_by("member")

        assert world.run(run) == {"tasks": 0, "connections": 0, "timers": 0}


def test_partitions_are_dropped_in_time_beside_a_waiting_commit() -> None:
    """Automatic commits wait for ZooKeeper too; the session's end doesn't wait for them."""
    session_s = 8.0
    with simulate(1, brokers=1, version="0.8.1", topics={"t": 1}) as world:

        async def run() -> float:
            clock = asyncio.get_running_loop().time
            world.cluster.append("t", 0, [b"v"])
            with world.process("member"):
                async with AIOKafkaConsumer[bytes, bytes](
                    "t",
                    bootstrap_servers=world.cluster.bootstrap_servers,
                    zookeeper_connect=world.zookeeper_connect,
                    group_id="g",
                    session_timeout_ms=int(1000 * session_s),
                    auto_offset_reset="earliest",
                    auto_commit_interval_ms=100,
                ) as consumer:
                    await consumer.getone()
                    world.zookeeper.disconnect(for_s=2 * session_s, silent=True)
                    begin = clock()
                    await until(lambda: not consumer.assignment(), "dropped", 2 * session_s)
                    return clock() - begin

        assert session_s / 2 < world.run(run) < session_s
