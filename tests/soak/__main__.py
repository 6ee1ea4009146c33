"""`python -m tests.soak --minutes 60`: clients of a real 0.8.2.2 and 3.9.1, with kills.

Prints a line a minute, and in the end the trend of each gauge. Exit code 0, or 1 if a gauge grows.
An acknowledged message that isn't read is an error.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import sys
from collections.abc import Sequence
from typing import Any

from tests.brokers.cluster import RealCluster
from tests.soak import gauges
from tests.soak.workload import Workload

VERSIONS = {"0.8.2.2": 3, "3.9.1": 1}
"""The versions, with the number of brokers of each: the harness runs one of 3.9."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit code."""
    parser = argparse.ArgumentParser(prog="nox -s soak --", description=__doc__)
    parser.add_argument("--minutes", type=_positive, default=10.0)
    parser.add_argument("--kill-every", type=_positive, default=60.0, metavar="SECONDS")
    parser.add_argument("--sample-every", type=_positive, default=5.0, metavar="SECONDS")
    parser.add_argument("--version", action="append", choices=list(VERSIONS), dest="versions")
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)  # each kill logs
    found = asyncio.run(
        soak(
            options.versions or list(VERSIONS),
            60 * options.minutes,
            options.kill_every,
            options.sample_every,
        )
    )
    trends = found.trends()
    print("\n".join(map(str, trends)))
    return 0 if all(trend.is_flat for trend in trends) else 1


async def soak(
    versions: Sequence[str], seconds: float, kill_every_s: float, sample_every_s: float
) -> gauges.Gauges:
    """Run the workload on a cluster of each version; return the samples."""
    found = gauges.Gauges()
    async with contextlib.AsyncExitStack() as stack:
        works = []
        for version in versions:
            cluster = RealCluster(version, VERSIONS[version])
            stack.push_async_callback(asyncio.to_thread, cluster.close)
            await asyncio.to_thread(cluster.start)
            works.append(Workload(cluster))
        for work in works:
            await work.create_topic()
            await stack.enter_async_context(work.running())
        killers = [asyncio.create_task(_kill(work, kill_every_s)) for work in works]
        try:
            await _sample(found, works, killers, seconds, sample_every_s)
        finally:
            for killer in killers:
                killer.cancel()
            await asyncio.gather(*killers, return_exceptions=True)
        for work in works:
            await asyncio.to_thread(work.cluster.heal)
    for work in works:
        print(f"{work.cluster.version}: {work.counts}, lost 0", flush=True)
    return found


async def _sample(
    found: gauges.Gauges,
    works: Sequence[Workload],
    killers: Sequence[asyncio.Task[Any]],
    seconds: float,
    every_s: float,
) -> None:
    loop = asyncio.get_running_loop()
    began = said = loop.time()
    while loop.time() - began < seconds:
        done, _ = await asyncio.wait(killers, timeout=every_s)
        for killer in done:
            killer.result()  # it has failed
        found.samples.append(gauges.read())
        if loop.time() - said >= 60:
            said = loop.time()
            _say(said - began, found.samples[-1], works)


def _say(after_s: float, sample: gauges.Sample, works: Sequence[Workload]) -> None:
    counts = "; ".join(f"{work.cluster.version}: {work.counts}" for work in works)
    print(
        f"{after_s:.0f} s: {sample.rss_mib:.1f} MiB, {sample.fds:.0f} descriptors, "
        f"{sample.tasks:.0f} tasks, {sample.timers:.0f} timers; {counts}",
        flush=True,
    )


async def _kill(work: Workload, every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        await work.kill_and_restart()


def _positive(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text}: expected a number > 0")
    return value


if __name__ == "__main__":
    sys.exit(main())
