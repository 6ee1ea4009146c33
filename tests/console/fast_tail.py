"""Live views of a topic that is written faster than anyone reads: pages stay usable, memory flat.

    python -m tests.console.fast_tail [--rate 500000] [--views 5] [--seconds 60]

The embedded cluster, the producer and the console have a process each; the viewers are in this one.
It ends with 1 if the console's memory grows by more than `--growth` MiB after the first quarter.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from tests.console.consoles import is_ready
from tests.console.viewers import MIB, console_of
from tests.support.waiting import eventually
from tests.tools.bench.embedded import embedded_cluster

TOPIC = "fast"
PARTITIONS = 4
TICK_S = 0.05
PAGES = ("/", f"/topics/{TOPIC}", f"/topics/{TOPIC}/messages", "/groups", "/watch")


async def produce(servers: str, rate: int) -> None:
    """Write this number of messages of 100 bytes each second, until the process is ended."""
    values = [b"%0100d" % number for number in range(round(rate * TICK_S / PARTITIONS))]
    async with AIOKafkaProducer(bootstrap_servers=servers, acks=1) as producer:
        at = time.monotonic()
        while True:
            sent = [
                await producer.send_many(TOPIC, values, partition=one) for one in range(PARTITIONS)
            ]
            await asyncio.gather(*sent)
            at = max(at + TICK_S, time.monotonic() - 1)
            await asyncio.sleep(at - time.monotonic())


@contextmanager
def producing(servers: str, rate: int) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.console.fast_tail", "--produce", servers, str(rate)]
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()


async def written(servers: str) -> int:
    """Return how many messages the topic has had."""
    tps = [TopicPartition(TOPIC, one) for one in range(PARTITIONS)]
    async with AIOKafkaConsumer(bootstrap_servers=servers) as consumer:
        return sum((await consumer.end_offsets(tps)).values())


async def look(client: httpx.AsyncClient, states: Counter[str]) -> None:
    """Keep a live view open; count its states and rows."""
    path = f"/topics/{TOPIC}/tail/events"
    async with client.stream("GET", path, timeout=60) as response:
        async for line in response.aiter_lines():
            states["rows"] += line.count("<tr>")
            if line.startswith(("data: Sampled", "data: Live")):
                states[line.split()[1].strip(":")] += 1


async def load(client: httpx.AsyncClient, end: float) -> list[float]:
    """Load a page after the other; return how long each took, in order of length."""
    took: list[float] = []
    while time.monotonic() < end:
        started = time.perf_counter()
        page = await client.get(PAGES[len(took) % len(PAGES)])
        took.append(time.perf_counter() - started)
        assert page.status_code == 200, page.text
        await asyncio.sleep(0.1)
    return sorted(took)


async def measure(servers: str, options: argparse.Namespace) -> bool:
    states = Counter[str]()
    with console_of(servers, 2.0) as (process, base, token), producing(servers, options.rate):
        headers = {"authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(base_url=base, headers=headers, timeout=60) as client:
            await eventually(lambda: is_ready(client))
            views = [asyncio.create_task(look(client, states)) for _ in range(options.views)]
            await load(client, time.monotonic() + options.seconds / 4)
            before, begin, first = (
                process.memory_info().rss,
                time.monotonic(),
                await written(servers),
            )
            took = await load(client, time.monotonic() + options.seconds * 3 / 4)
            rate = (await written(servers) - first) / (time.monotonic() - begin)
            grown = (process.memory_info().rss - before) / MIB
            assert not any(view.done() for view in views), "a live view has ended"
            for view in views:
                view.cancel()
            await asyncio.gather(*views, return_exceptions=True)
    p50, p99 = (took[math.ceil(len(took) * share) - 1] for share in (0.5, 0.99))
    print(
        f"{rate:,.0f} messages/s, {options.views} live views, {options.seconds:g} s: "
        f"{states['Sampled']} periods sampled, {states['Live']} whole, {states['rows']} rows; "
        f"{len(took)} pages, median {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms; "
        f"memory {before / MIB:.0f} MiB, grown by {grown:.1f} MiB"
    )
    return grown <= options.growth


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rate", type=int, default=500_000)
    parser.add_argument("--views", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--growth", type=float, default=16.0)
    parser.add_argument("--produce", nargs=2, metavar=("SERVERS", "RATE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.produce:
        asyncio.run(produce(options.produce[0], int(options.produce[1])))
    with embedded_cluster({TOPIC: PARTITIONS}, "--version=0.10") as servers:
        sys.exit(not asyncio.run(measure(servers, options)))


if __name__ == "__main__":
    main()
