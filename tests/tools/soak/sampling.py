"""Sample gauges for as long as a soak lasts, print a line a minute, and the trends in the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any

from tests.tools.soak import gauges
from tests.tools.soak.gauges import S


async def sample(
    found: gauges.Gauges[S],
    tasks: Collection[asyncio.Task[Any]],
    seconds: float,
    every_s: float,
    describe: Callable[[], str],
    read: Callable[[], S],
) -> None:
    """Add samples of a process.

    Args:
        found: gets the samples.
        tasks: what must not end meanwhile; the error of one that does is raised.
        seconds: how long the soak lasts.
        every_s: the time between two samples.
        describe: returns what the workload has done so far.
        read: measures the process.

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
        found.samples.append(read())
        if loop.time() - said >= 60:
            said = loop.time()
            last = found.samples[-1]
            values = zip(last._fields[1:], last[1:], strict=True)
            measured = ", ".join(f"{name} {value:.1f}" for name, value in values)
            print(f"{said - began:.0f} s: {measured}; {describe()}", flush=True)


def report(found: gauges.Gauges[S]) -> int:
    """Print the trend of each gauge; return the exit code, 1 if one grows."""
    trends = found.trends()
    print("\n".join(map(str, trends)))
    return 0 if all(trend.is_flat for trend in trends) else 1
