"""How far the bridge is behind a producer that writes at a fixed rate, and its memory.

    python -m tests.tools.bench.bridge_lag --mb-per-s 20 --size 1024 --seconds 60

The lag in seconds is taken from outside: a sampler notes when the source's logs ended where, and
when the bridge had committed that at the target. `--source` and `--partitions` as in
`tests.tools.bench.bridge`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections import deque

import psutil

from aiokafka08 import AIOKafkaProducer
from tests.brokers import RealCluster
from tests.support.arguments import positive, positive_number
from tests.tools.bench.bridge import TOPIC, bridge_command, clusters, running, used_by, values_of
from tests.tools.bench.bridge_meter import TargetMeter

_STEP_S = 0.05
_START_S = 120.0
_DRAIN_S = 60.0


class LagMeter:
    """Which totals were written when, and how old the oldest is that isn't committed."""

    def __init__(self) -> None:
        self._written: deque[tuple[float, int]] = deque()
        self.lags: list[float] = []

    def observe(self, now: float, written: int, committed: int) -> None:
        """Take note of both totals."""
        if not self._written or written > self._written[-1][1]:
            self._written.append((now, written))
        while self._written and self._written[0][1] <= committed:
            self._written.popleft()
        self.lags.append(now - self._written[0][0] if self._written else 0.0)


async def write(
    source: RealCluster,
    per_second: float,
    size: int,
    partitions: int,
    seconds: float,
    sent: list[int],
) -> None:
    """Write at a fixed rate; `sent` has the number of acknowledged messages."""
    values = values_of(size, 1000, 1)
    loop = asyncio.get_running_loop()
    async with AIOKafkaProducer(bootstrap_servers=source.bootstrap_servers, acks="all") as producer:
        began, number = loop.time(), 0
        while loop.time() - began < seconds:
            due = int((loop.time() - began) * per_second)
            for partition in range(partitions):
                count = min((due - number) // (partitions - partition), len(values))
                if count > 0:
                    await (await producer.send_many(TOPIC, values[:count], partition=partition))
                    number += count
            sent[0] = number
            await asyncio.sleep(_STEP_S)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        prog="python -m tests.tools.bench.bridge_lag",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--mb-per-s", type=positive_number, default=20.0, help="default 20")
    parser.add_argument("--size", type=positive, default=1024, help="bytes of a value (1024)")
    parser.add_argument("--seconds", type=positive_number, default=60.0, help="default 60")
    parser.add_argument("--partitions", type=positive, default=4, help="default 4")
    parser.add_argument("--source", default="0.10.2.2", help="version (default 0.10.2.2)")
    print(asyncio.run(run(parser.parse_args())))


async def run(options: argparse.Namespace) -> str:
    """Write, copy and sample; return the figures."""
    with clusters(options.source) as (source, target, folder):
        await asyncio.to_thread(source.create_topic, TOPIC, options.partitions)
        meter = TargetMeter(target.bootstrap_servers)
        topic = f"lag.{TOPIC}"
        meter.create(topic, options.partitions)
        log = folder / "log"
        with running(bridge_command(source, target, "lag", folder), log) as process:
            deadline = time.monotonic() + _START_S
            while b"copying" not in log.read_bytes():
                if time.monotonic() > deadline or process.poll() is not None:
                    raise RuntimeError(f"the bridge doesn't copy:\n{log.read_text()[-4000:]}")
                await asyncio.sleep(0.1)
            return await _sample(options, source, meter, topic, psutil.Process(process.pid))


async def _sample(
    options: argparse.Namespace,
    source: RealCluster,
    meter: TargetMeter,
    topic: str,
    process: psutil.Process,
) -> str:
    """Sample until all that was written is committed."""
    per_second = options.mb_per_s * 1e6 / options.size
    lags, sent, peak = LagMeter(), [0], 0.0
    used_before, _ = used_by(process)
    writing = asyncio.create_task(
        write(source, per_second, options.size, options.partitions, options.seconds, sent)
    )
    try:
        began, ended = time.monotonic(), 0.0
        while True:
            committed = (await asyncio.to_thread(meter.written, topic, options.partitions))[1]
            now = time.monotonic()
            lags.observe(now, sent[0], committed)
            used, rss = used_by(process)
            peak = max(peak, rss)
            if writing.done():
                writing.result()
                ended = ended or now
                if committed >= sent[0] or now - ended > _DRAIN_S:
                    break
            await asyncio.sleep(_STEP_S)
    finally:
        writing.cancel()
        await asyncio.wait([writing])
    ordered = sorted(lags.lags)
    rate = sent[0] / (ended - began)
    return (
        f"{sent[0]:,} messages of {options.size} B, {options.partitions} partitions, "
        f"{options.source} to 4.1.0, written at {rate:,.0f}/s ({rate * options.size / 1e6:.1f} "
        f"MB/s, wanted {options.mb_per_s:g}): lag median {ordered[len(ordered) // 2]:.2f} s, "
        f"99 % {ordered[len(ordered) * 99 // 100]:.2f} s, highest {ordered[-1]:.2f} s; "
        f"{(used - used_before) / sent[0] * 1e6:.1f} CPU-s per million, peak RSS {peak:.0f} MB, "
        f"load {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    main()
