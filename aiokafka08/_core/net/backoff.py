"""Retry delays: exponential, with jitter. The module only computes the delays; the caller sleeps.

Invariant: a delay is at most 1.2 times `longest_s`. The first delay, and the first after `reset()`,
is within ±20 % of `first_s`, or of `longest_s` if that is shorter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiokafka08 import environment

if TYPE_CHECKING:
    from random import Random


def delay_s(attempts: int, first_s: float, longest_s: float, random: Random | None = None) -> float:
    """Return how many seconds to wait before the next attempt, after `attempts` failed ones."""
    delay = min(first_s * 2.0 ** min(attempts, 30), longest_s)
    # The jitter keeps a thousand clients from retrying at the same moment.
    return delay * (random or environment.random).uniform(0.8, 1.2)


@dataclass(slots=True, eq=False)
class Backoff:
    """Delays that double from `first_s` to `longest_s`, each varied by ±20 %."""

    first_s: float
    longest_s: float
    random: Random | None = None  # makes the jitter; None: the generator of `environment`
    attempts: int = 0  # the number of delays since the last `reset()`

    def next(self) -> float:
        delay = delay_s(self.attempts, self.first_s, self.longest_s, self.random)
        self.attempts += 1
        return delay

    def reset(self) -> None:
        """Start again with the shortest delay, after a successful attempt."""
        self.attempts = 0
