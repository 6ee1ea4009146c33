"""A scenario for several tests; as a program, it prints the trace hash of a seed.

python -m tests.testing.simulation.round_trip SEED VERSION
"""

from __future__ import annotations

import asyncio
import sys

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka08.testing.simulation import Network, World, simulate

MESSAGES = 30


async def round_trip(world: World) -> list[bytes]:
    """Send messages to several partitions and return what a consumer reads."""
    servers = world.cluster.bootstrap_servers
    group = None if world.cluster.version.startswith("0.8") else "g"
    async with (
        AIOKafkaProducer(bootstrap_servers=servers) as producer,
        AIOKafkaConsumer(
            *("t", "u"),
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
        ) as consumer,
    ):
        for number in range(MESSAGES):
            await producer.send_and_wait("tu"[number % 2], b"%d" % number)
            if number % 10 == 0:
                await asyncio.sleep(5)
                world.network.reset("client", f"broker {number // 10}")
        return [(await consumer.getone()).value or b"" for _ in range(MESSAGES)]


def run(seed: int, version: str) -> tuple[list[bytes], str]:
    """Return what the consumer has read, and the trace hash."""
    network = Network(latency_ms=(1, 30), fragment=True)
    with simulate(seed, version=version, network=network, topics={"t": 3, "u": 2}) as world:
        values = world.run(round_trip, world)
        return values, world.trace_hash


if __name__ == "__main__":
    print(run(int(sys.argv[1]), sys.argv[2])[1])
