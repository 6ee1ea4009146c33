"""`Trace`: a running hash over the events, frames and virtual times of a run.

Invariant: two runs with the same hash have had the same events in the same order.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Final

_STEP: Final = struct.Struct("<dI")


class Trace:
    """A hash that grows with each event; two runs are alike if their hashes are.

    Attributes:
        steps: event-loop iterations.
        callbacks: callbacks that the event loop has run.
        segments: pieces of data that have arrived.
    """

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=8)
        self.steps = self.callbacks = self.segments = 0

    def step(self, now: float, callbacks: int) -> None:
        """Add an event-loop iteration."""
        self.steps += 1
        self.callbacks += callbacks
        self._hash.update(_STEP.pack(now, callbacks))

    def segment(self, wire: int, data: bytes) -> None:
        """Add data that has arrived on a wire."""
        self.segments += 1
        self._hash.update(_STEP.pack(len(data), wire))
        self._hash.update(data)

    def event(self, text: str) -> None:
        """Add an event."""
        self._hash.update(text.encode())

    @property
    def hash(self) -> str:
        """The hash so far, 16 hex digits."""
        return self._hash.hexdigest()
