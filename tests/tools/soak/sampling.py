"""Sample a soak for as long as it lasts, print a line a minute, and the trends in the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any

from tests.tools.soak import gauges
from tests.tools.soak.gauges import S
from tests.tools.soak.rates import Point, Rates


async def sample(
    found: gauges.Gauges[S],
    tasks: Collection[asyncio.Task[Any]],
    seconds: float,
    every_s: float,
    describe: Callable[[], str],
    read: Callable[[], S],
    rates: Rates | None = None,
    count: Callable[[], float] = lambda: 0.0,
) -> None:
    """Add samples of a process.

    Args:
        found: gets the samples.
        tasks: what must not end meanwhile; the error of one that does is raised.
        seconds: how long the soak lasts.
        every_s: the time between two samples.
        describe: returns what the workload has done so far.
        read: measures the process.
        rates: gets a point with each sample; each line has the rate since the last one (default
            None: nothing is counted).
        count: returns how much was done so far.

    Raises:
        RuntimeError: a task has ended without an error.
    """
    loop = asyncio.get_running_loop()
    began = said = loop.time()
    told = Point(began, count())
    if rates is not None:
        rates.points.append(told)
    while loop.time() - began < seconds:
        done, _ = await asyncio.wait(tasks, timeout=every_s)
        for task in done:
            task.result()
            raise RuntimeError(f"{task.get_name()} has ended before the soak")
        found.samples.append(read())
        if rates is not None:
            rates.points.append(Point(loop.time(), count()))
        if loop.time() - said >= 60:
            said = loop.time()
            last = found.samples[-1]
            values = zip(last._fields[1:], last[1:], strict=True)
            measured = ", ".join(f"{name} {value:.1f}" for name, value in values)
            text = f"{said - began:.0f} s: {measured}; {describe()}"
            if rates is not None:
                text, told = f"{text}, {rates.since(told)}", rates.points[-1]
            print(text, flush=True)


def report(found: gauges.Gauges[S], rates: Rates | None = None) -> int:
    """Print the trend of each gauge, and the rates; return the exit code.

    It is 1 if a gauge grows, or the rate doesn't hold.
    """
    trends = found.trends()
    print("\n".join(map(str, trends)))
    if rates is not None:
        print(rates)
    is_held = rates is None or rates.is_held
    return 0 if is_held and all(trend.is_flat for trend in trends) else 1
