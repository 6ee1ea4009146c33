"""`stop()` while a thread waits for ZooKeeper: nothing of the member runs on."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka08 import AIOKafkaConsumer
from aiokafka08.testing.simulation import simulate


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
