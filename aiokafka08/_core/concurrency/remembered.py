"""`Remembered`: facts about the target or a client, which are believed for a limited time.

Invariant: at most `MAX_VALUES` values are kept, and none is returned after its time.
"""

from __future__ import annotations

import math
from typing import Final, Generic, TypeVar

from aiokafka08 import environment

K = TypeVar("K")
V = TypeVar("V")

MAX_VALUES: Final = 10_000


class Remembered(Generic[K, V]):
    """Values by key; all methods may be called in any thread.

    Args:
        for_s: how long a value is believed, in seconds.
    """

    def __init__(self, for_s: float = math.inf) -> None:
        self._for_s = for_s
        self._values: dict[K, tuple[V, float]] = {}

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        """Return a value; None: it isn't known, or not any more."""
        found = self._values.get(key)
        return None if found is None or environment.monotonic() >= found[1] else found[0]

    def note(self, key: K, value: V) -> None:
        """Note a value, which is believed from now on."""
        if len(self._values) >= MAX_VALUES and key not in self._values:
            self._values.clear()
        self._values[key] = value, environment.monotonic() + self._for_s

    def forget(self, key: K) -> None:
        """Forget the value of a key."""
        self._values.pop(key, None)

    def forget_value(self, value: V) -> None:
        """Forget all keys that have this value."""
        for key in [key for key, (one, _) in list(self._values.items()) if one == value]:
            self.forget(key)
