"""`FrameProtocol`: read frames from a transport, within the limits of all connections of a server.

`ServerConnection` reads requests with it, and a relay also the responses of its upstream server.
"""

from __future__ import annotations

import asyncio

from aiokafka08._core.server import transports
from aiokafka08._core.server.resources import ServerResources
from aiokafka08.protocol.frame import FrameReader


class FrameProtocol(asyncio.BufferedProtocol):
    """See the module.

    Args:
        resources: shared by all connections.
        max_frame_bytes: a larger frame is an error.
        sender: the name of the peer that sends the frames, for errors.
    """

    def __init__(self, resources: ServerResources, max_frame_bytes: int, sender: str) -> None:
        self._memory = resources.memory
        self._reading = resources.reading
        self._reading_held = False  # `ReadBudget` has paused it
        self._reading_paused = False
        self._frames = FrameReader(max_frame_bytes, sender)
        self._output: transports.PacedOutput

    def get_buffer(self, sizehint: int) -> memoryview:
        if not self._output.is_tls:
            return self._frames.get_buffer()[: self._reading.next_bytes()]
        # After a FIN, TLS reads only once, and drops the bytes that don't fit. `sizehint` is the
        # number of bytes that it has.
        return self._frames.get_buffer(sizehint)[: max(sizehint, self._reading.next_bytes())]

    def hold_reading(self) -> None:
        """See `read_budget.BudgetedReader`."""
        self._reading_held = True
        self._pause_or_resume_reading()

    def go_on_reading(self) -> None:
        """See `read_budget.BudgetedReader`."""
        self._reading_held = False
        self._pause_or_resume_reading()

    def drop_kept(self) -> int:
        """See `memory_limit.MemoryHolder`."""
        return self._frames.drop_kept()

    def _free_memory(self) -> None:
        """Free the receive buffers and the unsent bytes of a lost connection.

        A connection and its handler refer to each other, so the garbage collector may free them
        much later: meanwhile they would hold memory that isn't counted any more.
        """
        self._frames.close()
        self._output.drop()

    def _pause_or_resume_reading(self) -> None:
        """Pause the transport's reading, or let it read again."""
        raise NotImplementedError
