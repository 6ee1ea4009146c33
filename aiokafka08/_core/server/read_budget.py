"""`ReadBudget`: share the reading of large requests among the connections of a server.

Invariant: in one iteration of the event loop the connections read about `_READ_BYTES` at most, plus
one buffer for each connection that has begun to send. What a connection copies to a larger buffer
counts too, so an iteration has one large copy at most. Thus the time of an iteration doesn't grow
with the number of connections that continue to send. A connection that sends alone waits for one
iteration at most, and small requests don't wait.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

_READ_BYTES: Final = 2 << 20
_BUFFER_BYTES: Final = 64 << 10
# A read of fewer bytes isn't counted, unless it is a part of a request that needs a large buffer.
LEAST_BYTES: Final = 16 << 10
# How many connections continue in one iteration.
_READERS: Final = 16


class BudgetedReader(Protocol):
    """A connection, as `ReadBudget` sees it."""

    def hold_reading(self) -> None:
        """Read nothing more until `go_on_reading()`."""

    def go_on_reading(self) -> None:
        """Read again."""


class ReadBudget:
    """The bytes left to read in this iteration of the event loop, and the connections that wait."""

    def __init__(self) -> None:
        self._waiting: dict[BudgetedReader, int] = {}  # with the bytes that they will copy
        self._left_bytes = _READ_BYTES
        self._share_bytes = _READ_BYTES
        self._read_bytes: dict[BudgetedReader, int] = {}  # in this iteration
        self._runs = False

    def next_bytes(self) -> int:
        """Return how many bytes a connection may read at once."""
        return max(_BUFFER_BYTES, min(self._share_bytes, self._left_bytes))

    def received(self, reader: BudgetedReader, count: int, to_copy: int = 0) -> None:
        """Note that a connection has read `count` bytes; pause it if its share is used.

        It is paused, too, if its next read copies bytes (`to_copy`).
        """
        self._begin()
        self._left_bytes -= count
        read_bytes = self._read_bytes[reader] = self._read_bytes.get(reader, 0) + count
        is_share_used = read_bytes >= self._share_bytes or self._left_bytes <= 0
        if self._waiting or is_share_used or to_copy:
            self._waiting[reader] = to_copy
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
        # In the order in which they have paused.
        for reader, to_copy in list(self._waiting.items())[:_READERS]:
            if self._left_bytes <= 0:
                return
            self._left_bytes -= to_copy
            del self._waiting[reader]
            reader.go_on_reading()
