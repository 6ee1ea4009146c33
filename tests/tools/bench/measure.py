"""Meters for one measurement in this process: wall time, CPU time, peak memory, and the ticker.

The ticker is a 10 ms timer in the client's event loop; the meter records how late it is. The
functions in `clients` create a meter after the warm-up and stop it after the last result.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

TICK_S = 0.01
WARM_UP = 1000
"""Messages that each client sends, or reads with another consumer, before the measurement."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """The figures of one measurement.

    Attributes:
        cpu_seconds: user and system time of the whole process, with its threads.
        more: p50_ms and p99_ms of single operations; ticker_p999_ms and ticker_max_ms; in growth
            the batches, requests and bytes sent.
    """

    messages: int
    seconds: float
    cpu_seconds: float
    peak_rss_mb: float
    more: dict[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, float]:
        """Return a flat dictionary for JSON."""
        made = asdict(self)
        return made | made.pop("more")


class Meter:
    """Measures from its creation to `stop(messages)`.

    It freezes the objects that exist at its creation. Otherwise the garbage collector would walk
    again and again over a list of a million values, which only a benchmark has.
    """

    def __init__(self) -> None:
        gc.freeze()
        self._cpu = _cpu()
        self._wall = time.perf_counter()

    def stop(self, messages: int) -> Measurement:
        """Return the figures since this meter was created."""
        seconds = time.perf_counter() - self._wall
        return Measurement(messages, seconds, _cpu() - self._cpu, _peak_rss_mb())


class TickingMeter(Meter):
    """A meter with a ticker in the running event loop.

    The lateness is read from the clock of the process, since uvloop's clock stands still during a
    callback. A tick costs some 10 µs, which is 0.1 % of a core at a hundred ticks a second.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._late_ms: list[float] = []
        super().__init__()
        self._wait()

    def stop(self, messages: int) -> Measurement:
        """Return the figures with `ticker_p999_ms` and `ticker_max_ms`; an overdue tick counts."""
        measurement = super().stop(messages)
        self._timer.cancel()
        self._note()
        more = {
            "ticker_p999_ms": percentile(self._late_ms, 99.9),
            "ticker_max_ms": max(self._late_ms),
        }
        return replace(measurement, more=more)

    def _wait(self) -> None:
        self._due = time.perf_counter() + TICK_S
        self._timer = self._loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        self._note()
        self._wait()

    def _note(self) -> None:
        self._late_ms.append(max(0.0, time.perf_counter() - self._due) * 1000)


def percentile(numbers: Sequence[float], percent: float) -> float:
    """Return the number below or at which this percentage lies."""
    ordered = sorted(numbers)
    return ordered[min(int(len(ordered) * percent / 100), len(ordered) - 1)]


def latencies(seconds: Sequence[float]) -> dict[str, float]:
    """Return p50 and p99 of single operations, in milliseconds."""
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
