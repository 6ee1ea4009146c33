"""How long to wait before the next try: exponential, with jitter. Pure; the caller sleeps."""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass(slots=True)
class Backoff:
    """Delays that double from `first_s` to `longest_s`, each varied by ±20 %.

    The jitter keeps a thousand clients from coming back in the same instant.
    """

    first_s: float
    longest_s: float
    random: random.Random = field(default_factory=random.Random)
    _tries: int = 0

    def next(self) -> float:
        """Seconds to wait before the next try."""
        delay = min(self.first_s * 2.0 ** min(self._tries, 30), self.longest_s)
        self._tries += 1
        return delay * self.random.uniform(0.8, 1.2)

    def reset(self) -> None:
        """A try has worked: begin small again."""
        self._tries = 0
