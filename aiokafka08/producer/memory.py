"""The bound on buffered bytes, and the queue of senders that wait for room.

Law: first come, first served: while anybody waits, nobody passes. A waiter that is cancelled, also
in the instant in which it was served, leaves nothing taken. What is counted is the wire format of
all messages that are accepted and not yet acknowledged or given up, before compression.
"""

from __future__ import annotations

import asyncio
import copy
from collections import deque

from aiokafka08.errors import KafkaError


class BufferMemory:
    """Counts bytes up to `limit_bytes`.

    Attributes:
        used_bytes: taken now.
        waiting: senders that wait for room.
    """

    __slots__ = ("_closed", "_queue", "limit_bytes", "used_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._queue: deque[tuple[asyncio.Future[None], int]] = deque()
        self._closed: KafkaError | None = None

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def room(self) -> int:
        """Bytes that can be taken at once; 0 while others wait."""
        return 0 if self._queue else self.limit_bytes - self.used_bytes

    def try_take(self, size: int) -> bool:
        """Take bytes if there is room, nobody waits, and it isn't closed."""
        if self._queue or self._closed is not None or self.used_bytes + size > self.limit_bytes:
            return False
        self.used_bytes += size
        return True

    async def take(self, size: int) -> None:
        """Take bytes, once those who came before have theirs and there is room.

        Raises:
            KafkaError: that which `close` was given.
        """
        if self._closed is not None:
            raise copy.copy(self._closed)
        if self.try_take(size):
            return
        served: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((served, size))
        try:
            await served
        except BaseException:
            if served.done() and not served.cancelled() and served.exception() is None:
                self.give(size)  # served and cancelled in the same turn of the loop
            else:
                self._serve()  # it is passed over, and a smaller request behind it may fit now
            raise

    def give(self, size: int) -> None:
        """Give bytes back."""
        self.used_bytes -= size
        if self._queue:
            self._serve()

    def close(self, error: KafkaError) -> None:
        """From now on nobody gets anything; those who wait get the error."""
        self._closed = error
        while self._queue:
            served, _ = self._queue.popleft()
            if not served.done():
                served.set_exception(copy.copy(error))

    def _serve(self) -> None:
        while self._queue:
            served, size = self._queue[0]
            if not served.done():  # else: cancelled, its task hasn't run yet
                if self.used_bytes + size > self.limit_bytes:
                    return
                self.used_bytes += size
                served.set_result(None)
            self._queue.popleft()
