"""`ReadBudget`: share the reading of large requests among the connections of a server.

A connection (`connection`) reports each large read: one of `LEAST_BYTES`, or in the middle of a
request that is larger than the buffer of small ones. All listeners of a server share one budget.

Invariants: in one iteration of the event loop the connections read about `_READ_BYTES` at most, and
one buffer for each connection more that has begun to send. A connection that has read its share
pauses while others wait; they go on in the order in which they have paused, at most `_READERS` in
an iteration. So the time of an iteration doesn't grow with the number of connections that go on
sending. One that sends alone never waits for more than an iteration, and small requests don't wait.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

_READ_BYTES: Final = 4 << 20
_BUFFER_BYTES: Final = 64 << 10
LEAST_BYTES: Final = 16 << 10
_READERS: Final = 16


class BudgetedReader(Protocol):
    """A connection, as `ReadBudget` sees it."""

    def hold_reading(self) -> None:
        """Read nothing more until `go_on_reading()`."""

    def go_on_reading(self) -> None:
        """Read again."""


class ReadBudget:
    """What may still be read in this iteration of the event loop, and who waits for the next."""

    def __init__(self) -> None:
        self._waiting: dict[BudgetedReader, None] = {}
        self._left_bytes = _READ_BYTES
        self._share_bytes = _READ_BYTES
        self._read_bytes: dict[BudgetedReader, int] = {}  # in this iteration
        self._runs = False

    def next_bytes(self) -> int:
        """Return how many bytes a connection may read at once."""
        return max(_BUFFER_BYTES, min(self._share_bytes, self._left_bytes))

    def received(self, reader: BudgetedReader, count: int) -> None:
        """Note that a connection has read `count` bytes; hold it if need be."""
        self._begin()
        self._left_bytes -= count
        read_bytes = self._read_bytes[reader] = self._read_bytes.get(reader, 0) + count
        if self._waiting or read_bytes >= self._share_bytes or self._left_bytes <= 0:
            self._waiting[reader] = None
            reader.hold_reading()

    def forget(self, reader: BudgetedReader) -> None:
        """Remove a connection that reads no more."""
        self._waiting.pop(reader, None)
        self._read_bytes.pop(reader, None)

    def _begin(self) -> None:
        if not self._runs:
            self._runs = True
            asyncio.get_running_loop().call_soon(self._next_iteration)

    def _next_iteration(self) -> None:
        self._runs = False
        readers = min(_READERS, len(self._read_bytes.keys() | self._waiting))
        self._left_bytes, self._share_bytes = _READ_BYTES, _READ_BYTES // max(1, readers)
        self._read_bytes.clear()
        if self._waiting:
            self._begin()
        for reader in list(self._waiting)[:_READERS]:
            del self._waiting[reader]
            reader.go_on_reading()
