"""Measure for how long compression and decompression hold the event loop, and their memory.

`python -m tests.tools.bench.loop_hold` prints one row per twin, codec, size and shape: one large
message, or many of 1,000 bytes. A client sends them to an embedded cluster in another process and
reads them back, while a ticker runs beside it in the client's loop.

- *late*: how long the loop didn't run the ticker: the highest of a run, then the median of the
  runs. It includes waiting for the GIL, and for a processor if the machine is busy.
- *cpu*: the same in CPU time of the loop's thread.
- *copies*: how far resident memory rose above what it was before the row, divided by the size. The
  messages that the user gets are one copy; the batch that is sent isn't counted. Memory that
  earlier rows have freed is reused, so measure one size and codec for this column.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka08.structs import TopicPartition
from aiokafka08.testing import EmbeddedCluster

if TYPE_CHECKING:
    from aiokafka08.producer.options import CompressionType

MIB = 1024 * 1024
SIZES = (256 * 1024, MIB, 8 * MIB, 60 * MIB)
CODECS = ("none", "gzip", "snappy", "lz4")
MESSAGE_BYTES = 1000
LIMIT_BYTES = 200 * MIB
HOLD_S = 0.005


def text(size: int) -> bytes:
    """Return bytes that compress to about a third."""
    some = random.Random(1)
    words = [some.randbytes(5).hex().encode() for _ in range(2000)]
    page = b" ".join(some.choices(words, k=100_000))
    return (page * (size // len(page) + 1))[:size]


class Ticker:
    """Runs a task beside `work`, and records the longest times between two of its steps."""

    def __init__(self) -> None:
        self.late_s = self.cpu_s = 0.0
        self.holds: list[float] = []
        """Seconds between two steps, for those that were more than `HOLD_S` apart."""

    async def beside(self, work: Awaitable[object]) -> None:
        """Await `work` with the ticker beside it."""
        ticking = asyncio.ensure_future(self._tick())
        await asyncio.sleep(0)
        await work
        await asyncio.sleep(0.002)  # the ticker sees what came last
        ticking.cancel()

    async def _tick(self) -> None:
        wall, cpu = time.perf_counter(), time.thread_time()
        while True:
            await asyncio.sleep(0.0002)
            now, used = time.perf_counter(), time.thread_time()
            self.late_s, self.cpu_s = max(self.late_s, now - wall), max(self.cpu_s, used - cpu)
            if now - wall > HOLD_S:
                self.holds.append(now - wall)
            wall, cpu = now, used


def _memory(field: str) -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{field}:")[1].split()[0]) * 1024


async def _row(
    label: str, size: int, runs: int, work: Callable[[], Awaitable[object]], base: int
) -> None:
    tickers = []
    peaks = []
    for _ in range(runs):
        Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
        ticker = Ticker()
        await ticker.beside(work())
        tickers.append(ticker)
        peaks.append(_memory("VmHWM"))
    late = statistics.median(ticker.late_s for ticker in tickers) * 1000
    cpu = statistics.median(ticker.cpu_s for ticker in tickers) * 1000
    copies = (max(peaks) - base) / size
    print(f"{label} | {late:6.1f} | {cpu:6.1f} | {copies:5.1f} |", flush=True)


async def _client(servers: str, codecs: list[str], sizes: list[int], runs: int) -> None:
    twin = os.environ["AIOKAFKA08_IMPL"]
    for codec in codecs:
        for size in sizes:
            whole = text(size)
            shapes = {"one": [whole], "many": []}
            shapes["many"] = [
                whole[at : at + MESSAGE_BYTES] for at in range(0, size, MESSAGE_BYTES)
            ]
            for shape, values in shapes.items():
                topic = f"{twin}-{codec}-{size}-{shape}"
                label = f"| {twin:6} | {codec:6} | {size / MIB:5.2f} | {shape:4} "
                await _measure(servers, topic, codec, size, values, runs, label)


async def _measure(
    servers: str, topic: str, codec: str, size: int, values: list[bytes], runs: int, label: str
) -> None:
    partition = TopicPartition(topic, 0)
    async with AIOKafkaProducer(
        bootstrap_servers=servers,
        compression_type=cast("CompressionType | None", None if codec == "none" else codec),
        max_batch_size=LIMIT_BYTES,
        max_request_size=LIMIT_BYTES,
        buffer_memory=2 * LIMIT_BYTES,
        linger_ms=1,
        request_timeout_ms=120_000,
    ) as producer:
        await producer.partitions_for(topic)

        batches = [producer.create_batch() for _ in range(runs)]
        for batch in batches:
            for value in values:
                batch.append(key=None, value=value, timestamp=None)

        async def send() -> None:
            await (await producer.send_batch(batches.pop(), topic, partition=0))

        await _row(f"{label}| send", size, runs, send, _memory("VmRSS"))
    consumer = AIOKafkaConsumer(
        bootstrap_servers=servers,
        fetch_max_bytes=LIMIT_BYTES,
        max_partition_fetch_bytes=LIMIT_BYTES,
        request_timeout_ms=120_000,
    )
    consumer.assign([partition])
    async with consumer:
        await consumer.seek_to_beginning()

        async def read() -> None:
            left = len(values)
            while left:
                found = await consumer.getmany(timeout_ms=1000, max_records=left)
                left -= sum(map(len, found.values()))

        await _row(f"{label}| read", size, runs, read, _memory("VmRSS"))


def main() -> None:
    """Run both twins, each in a process of its own."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.bench.loop_hold", description=__doc__
    )
    parser.add_argument("--client", metavar="SERVERS", help="internal: measure against these")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="bytes")
    parser.add_argument("--codecs", default=",".join(CODECS))
    parser.add_argument("--twins", default="c,python")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    if options.client:
        sizes = [int(size) for size in options.sizes.split(",")]
        asyncio.run(_client(options.client, options.codecs.split(","), sizes, options.runs))
        return
    print("| twin | codec | MiB | messages | call | late, ms | cpu, ms | copies |")
    print("|---|---|---:|---|---|---:|---:|---:|", flush=True)
    with EmbeddedCluster(version="0.8.2", message_max_bytes=LIMIT_BYTES) as cluster:
        for twin in options.twins.split(","):
            subprocess.run(
                [
                    *(sys.executable, "-m", "tests.tools.bench.loop_hold"),
                    *("--client", cluster.bootstrap_servers),
                    *("--codecs", options.codecs),
                    *("--sizes", options.sizes, "--runs", str(options.runs)),
                ],
                env={**os.environ, "AIOKAFKA08_IMPL": twin},
                check=True,
            )


if __name__ == "__main__":
    main()
