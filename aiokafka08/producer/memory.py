"""Bound the bytes that a producer buffers (`buffer_memory`).

Counts the wire format, before compression, of all messages that are accepted and not yet
acknowledged or failed. The compiled appender (`_producer_c.pyx`) reads and writes the slots
`_waiters`, `limit_bytes` and `used_bytes` directly.

Invariants: only `release` of a negative size raises `used_bytes` above `limit_bytes`. Waiters are
served in FIFO order: while one waits, no later caller acquires anything. A waiter that is cancelled
holds nothing, even if it was served in the same event-loop iteration.
"""

from __future__ import annotations

import asyncio
import copy
from collections import deque

from aiokafka08.errors import KafkaError


class BufferMemory:
    """Counts bytes up to a limit."""

    __slots__ = ("_closed", "_waiters", "limit_bytes", "used_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0  # bytes acquired and not released
        self._waiters: deque[tuple[asyncio.Future[None], int]] = deque()
        self._closed: KafkaError | None = None

    @property
    def waiters(self) -> int:
        return len(self._waiters)

    def available_bytes(self) -> int:
        """Return how many bytes can be acquired without waiting."""
        return 0 if self._waiters else self.limit_bytes - self.used_bytes

    def try_acquire(self, size: int) -> bool:
        if self._waiters or self._closed is not None or self.used_bytes + size > self.limit_bytes:
            return False
        self.used_bytes += size
        return True

    async def acquire(self, size: int) -> None:
        """Acquire bytes; wait until earlier waiters are served and enough bytes are released.

        Raises a copy of the KafkaError that `close` was called with.
        """
        if self._closed is not None:
            raise copy.copy(self._closed)
        if self.try_acquire(size):
            return
        served: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((served, size))
        try:
            await served
            if self._closed is not None:  # closed after `_serve`, before this task ran
                raise copy.copy(self._closed)
        except BaseException:
            if served.done() and not served.cancelled() and served.exception() is None:
                # `_serve` acquired the bytes; then, before this task ran, it was cancelled or the
                # memory was closed.
                self.release(size)
            else:
                self._serve()  # a smaller request after the cancelled one may fit now
            raise

    def release(self, size: int) -> None:
        """Release acquired bytes. A negative size acquires bytes without a check of the limit."""
        self.used_bytes -= size
        if self._waiters:
            self._serve()

    def close(self, error: KafkaError) -> None:
        """Refuse every further acquisition, and raise the error in all waiters."""
        self._closed = error
        while self._waiters:
            served, _ = self._waiters.popleft()
            if not served.done():
                served.set_exception(copy.copy(error))

    def _serve(self) -> None:
        while self._waiters:
            served, size = self._waiters[0]
            if not served.done():  # else its task was cancelled and hasn't run yet
                if self.used_bytes + size > self.limit_bytes:
                    return
                self.used_bytes += size
                served.set_result(None)
            self._waiters.popleft()
