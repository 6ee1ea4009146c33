"""Measure a process again and again, and tell growth from ups and downs. Pure but for `read…`.

Invariant: a gauge is flat if its low value in the last third of the run is at most `slack` above
that in the third before. A tenth of the samples are below the low value, so a sample or two in
which the program was just connecting again don't count. A leak raises what is left when nothing
goes on; work, a rebalance or a retry raises only what is there for a while.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

import psutil

MIB = 1 << 20


class Sample(NamedTuple):
    """This process at a moment.

    `rss_mib` is the resident memory: what is in use, and what allocators keep of what was in use.
    `blocks_k` counts Python's blocks of memory in thousands. `malloc_mib` is what is in use of the
    C library's memory, 0 where it doesn't tell (it isn't glibc).
    """

    at_s: float
    rss_mib: float
    blocks_k: float
    malloc_mib: float
    fds: float
    tasks: float
    timers: float
    threads: float


class OtherSample(NamedTuple):
    """Another process at a moment: what the system tells of it."""

    at_s: float
    rss_mib: float
    fds: float
    threads: float


SLACK = {
    "rss_mib": 4.0,
    "blocks_k": 10.0,
    "malloc_mib": 2.0,
    "fds": 4.0,
    "tasks": 2.0,
    "timers": 4.0,
    "threads": 2.0,
}
"""What a gauge may grow by: allocators keep pieces, and a timer may just have been set."""


S = TypeVar("S", bound=Sample | OtherSample)


def read() -> Sample:
    """Measure this process, after a garbage collection; call it in the event loop."""
    gc.collect()
    process, loop = psutil.Process(), asyncio.get_running_loop()
    timers = [one for one in loop._scheduled if not one.cancelled()]  # type: ignore[attr-defined]
    return Sample(
        loop.time(),
        process.memory_info().rss / MIB,
        sys.getallocatedblocks() / 1000,
        _malloc_in_use() / MIB,
        process.num_fds(),
        len(asyncio.all_tasks()),
        len(timers),
        process.num_threads(),
    )


def read_other(process: psutil.Process) -> OtherSample:
    """Measure another process; call it in the event loop."""
    return OtherSample(
        asyncio.get_running_loop().time(),
        process.memory_info().rss / MIB,
        process.num_fds(),
        process.num_threads(),
    )


class _Mallinfo2(ctypes.Structure):
    """`struct mallinfo2` of glibc 2.33, malloc.h."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def _malloc_in_use() -> int:
    if (mallinfo := getattr(ctypes.CDLL(None), "mallinfo2", None)) is None:
        return 0
    mallinfo.restype = _Mallinfo2
    found = mallinfo()
    return int(found.uordblks + found.hblkhd)


@dataclass(frozen=True, slots=True)
class Trend:
    """What became of a gauge.

    Attributes:
        low_before: its low value in the second third of the run.
        low_after: its low value in the last third.
        highest: its highest value in both.
        per_hour: the slope of the line through all values of both (least squares).
    """

    name: str
    low_before: float
    low_after: float
    highest: float
    per_hour: float

    @property
    def is_flat(self) -> bool:
        """Whether it hasn't grown."""
        return self.low_after <= self.low_before + SLACK[self.name]

    def __str__(self) -> str:
        verdict = "flat" if self.is_flat else "GROWS"
        return (
            f"{self.name}: low {self.low_before:.1f}, then {self.low_after:.1f}; "
            f"highest {self.highest:.1f}; slope {self.per_hour:+.2f} per hour: {verdict}"
        )


@dataclass
class Gauges(Generic[S]):
    """The samples of a run, all of one process."""

    samples: list[S] = field(default_factory=list)

    def trends(self) -> list[Trend]:
        """Return the trend of each gauge; the first third of the run warms up.

        Raises:
            ValueError: there are fewer than six samples.
        """
        count = len(self.samples)
        if count < 6:
            raise ValueError(f"{count} samples: expected at least 6, from a longer run")
        before, after = self.samples[count // 3 : 2 * count // 3], self.samples[2 * count // 3 :]
        times = [one.at_s for one in (*before, *after)]
        found = []
        for name in self.samples[0]._fields[1:]:
            first = [float(getattr(one, name)) for one in before]
            second = [float(getattr(one, name)) for one in after]
            slope = 3600 * slope_of(times, first + second)
            found.append(Trend(name, _low(first), _low(second), max(first + second), slope))
        return found


def _low(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 10]


def slope_of(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Return the slope of the line that fits best; 0 if all xs are the same."""
    x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - x_mean) ** 2 for x in xs)
    if not spread:
        return 0.0
    return sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True)) / spread
