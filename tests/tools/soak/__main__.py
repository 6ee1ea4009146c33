"""`python -m tests.tools.soak --minutes 60`: clients of a real 0.8.2.2 and 3.9.1, with kills.

`bridge` or `gateway` in front of the options lets one run instead (`tests.tools.soak.bridge`,
`.gateway`).
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

from tests.brokers.cluster import RealCluster
from tests.support.arguments import positive_number
from tests.tools.soak import bridge, gateway, gauges
from tests.tools.soak.sampling import report, sample
from tests.tools.soak.workload import Workload

VERSIONS = {"0.8.2.2": 3, "3.9.1": 1}
"""The versions, with the number of brokers of each: the harness runs one of 3.9."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["bridge"]:
        return bridge.main(arguments[1:])
    if arguments[:1] == ["gateway"]:
        return gateway.main(arguments[1:])
    parser = argparse.ArgumentParser(prog="nox -s soak --", description=__doc__)
    parser.add_argument("--minutes", type=positive_number, default=10.0)
    parser.add_argument("--kill-every", type=positive_number, default=60.0, metavar="SECONDS")
    parser.add_argument("--sample-every", type=positive_number, default=5.0, metavar="SECONDS")
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
    return report(found)


async def soak(
    versions: Sequence[str], seconds: float, kill_every_s: float, sample_every_s: float
) -> gauges.Gauges[gauges.Sample]:
    """Run the workload on a cluster of each version; return the samples."""
    found = gauges.Gauges[gauges.Sample]()
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
            await sample(
                found,
                killers,
                seconds,
                sample_every_s,
                lambda: "; ".join(f"{work.cluster.version}: {work.counts}" for work in works),
                gauges.read,
            )
        finally:
            for killer in killers:
                killer.cancel()
            await asyncio.gather(*killers, return_exceptions=True)
        for work in works:
            await asyncio.to_thread(work.cluster.heal)
    for work in works:
        print(f"{work.cluster.version}: {work.counts}, lost 0", flush=True)
    return found


async def _kill(work: Workload, every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        await work.kill_and_restart()


if __name__ == "__main__":
    sys.exit(main())
