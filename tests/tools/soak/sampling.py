"""Sample gauges for as long as a soak lasts, and print a line a minute."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any

from tests.tools.soak import gauges


async def sample(
    found: gauges.Gauges,
    tasks: Collection[asyncio.Task[Any]],
    seconds: float,
    every_s: float,
    describe: Callable[[], str],
) -> None:
    """Add samples of this process.

    Args:
        found: gets the samples.
        tasks: what must not end meanwhile; the error of one that does is raised.
        seconds: how long the soak lasts.
        every_s: the time between two samples.
        describe: returns what the workload has done so far.

    Raises:
        RuntimeError: a task has ended without an error.
    """
    loop = asyncio.get_running_loop()
    began = said = loop.time()
    while loop.time() - began < seconds:
        done, _ = await asyncio.wait(tasks, timeout=every_s)
        for task in done:
            task.result()
            raise RuntimeError(f"{task.get_name()} has ended before the soak")
        found.samples.append(gauges.read())
        if loop.time() - said >= 60:
            said = loop.time()
            last = found.samples[-1]
            print(
                f"{said - began:.0f} s: {last.rss_mib:.1f} MiB ({last.blocks_k:.0f},000 blocks, "
                f"{last.malloc_mib:.1f} MiB by malloc), {last.fds:.0f} descriptors, "
                f"{last.tasks:.0f} tasks, {last.timers:.0f} timers, {last.threads:.0f} threads; "
                f"{describe()}",
                flush=True,
            )
