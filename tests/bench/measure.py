"""Measures a stretch of work in this process: wall time, CPU time, peak memory."""

from __future__ import annotations

import resource
import time
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a stretch of work took. CPU is user + system of the whole process, threads included."""

    messages: int
    seconds: float
    cpu_seconds: float
    peak_rss_mb: float

    def as_dict(self) -> dict[str, float]:
        """For JSON."""
        return asdict(self)


class Meter:
    """Starts when made; `stop(messages)` gives the measurement."""

    def __init__(self) -> None:
        self._cpu = _cpu()
        self._wall = time.perf_counter()

    def stop(self, messages: int) -> Measurement:
        """What happened since this meter was made."""
        seconds = time.perf_counter() - self._wall
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return Measurement(messages, seconds, _cpu() - self._cpu, usage.ru_maxrss / 1024)


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
