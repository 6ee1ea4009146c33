"""Send and get an Arrow batch in a simulation, twice, and print both trace hashes.

The first run imports pyarrow, which outside a simulation is done in a thread.
"""

from __future__ import annotations

import sys

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka08.testing.simulation import World, simulate


async def exchange(world: World) -> list[bytes]:
    """Return the values that arrive."""
    servers = world.cluster.bootstrap_servers
    async with (
        AIOKafkaConsumer("t", bootstrap_servers=servers, auto_offset_reset="earliest") as consumer,
        AIOKafkaProducer(bootstrap_servers=servers) as producer,
    ):
        await producer.send_and_wait("t", b"tea")
        rows = await consumer.getmany_arrow(timeout_ms=5000)
        await (await producer.send_arrow("t", rows))
        again = await consumer.getmany_arrow(timeout_ms=5000)
        values: list[bytes] = again.column("value").to_pylist()
        return values


def main() -> None:
    """Print whether pyarrow was imported before, the values, and the hash; for each run."""
    for _ in range(2):
        was_imported = "pyarrow" in sys.modules
        with simulate(7, topics={"t": 1}) as world:
            print(was_imported, world.run(exchange, world), world.trace_hash)


if __name__ == "__main__":
    main()
