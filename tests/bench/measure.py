"""Measures a stretch of work in this process: wall time, CPU time, peak memory, and how late a
10 ms ticker in the same event loop was."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

TICK_S = 0.01


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a stretch of work took. CPU is user + system of the whole process, threads included.

    `more`: p50_ms and p99_ms of single operations; ticker_p999_ms and ticker_max_ms.
    """

    messages: int
    seconds: float
    cpu_seconds: float
    peak_rss_mb: float
    more: dict[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, float]:
        """For JSON."""
        made = asdict(self)
        return made | made.pop("more")


class Meter:
    """Starts when made; `stop(messages)` gives the measurement."""

    def __init__(self) -> None:
        self._cpu = _cpu()
        self._wall = time.perf_counter()

    def stop(self, messages: int) -> Measurement:
        """What happened since this meter was made."""
        seconds = time.perf_counter() - self._wall
        return Measurement(messages, seconds, _cpu() - self._cpu, _peak_rss_mb())


@asynccontextmanager
async def ticker() -> AsyncIterator[dict[str, float]]:
    """Ticks while the body runs; what it gives is filled in at the end."""
    late: list[float] = []
    loop = asyncio.get_running_loop()

    async def tick() -> None:
        while True:
            due = loop.time() + TICK_S
            await asyncio.sleep(TICK_S)
            late.append((loop.time() - due) * 1000)

    found: dict[str, float] = {}
    task = loop.create_task(tick())
    try:
        yield found
        await asyncio.sleep(TICK_S)  # one that is late now counts too
    finally:
        task.cancel()
        late.append(0.0)
        found["ticker_p999_ms"] = percentile(late, 99.9)
        found["ticker_max_ms"] = max(late)


def percentile(numbers: Sequence[float], percent: float) -> float:
    """The number that so many percent aren't above."""
    ordered = sorted(numbers)
    return ordered[min(int(len(ordered) * percent / 100), len(ordered) - 1)]


def latencies(seconds: Sequence[float]) -> dict[str, float]:
    """p50 and p99 of single operations, in milliseconds."""
    return {"p50_ms": percentile(seconds, 50) * 1000, "p99_ms": percentile(seconds, 99) * 1000}


def _peak_rss_mb() -> float:
    """Not getrusage's, which begins with what the process had before its exec: the parent's."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("/proc/self/status has no VmHWM")


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
