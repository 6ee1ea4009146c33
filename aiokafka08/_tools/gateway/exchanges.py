"""`GatewayExchange`: measure the time to a client's response, and change the response."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from aiokafka08._core.server.connection import Exchange, ServerConnection
from aiokafka08._core.server.work import Work, offload
from aiokafka08._tools.gateway.upstream import respond
from aiokafka08.errors import KafkaProtocolError
from aiokafka08.protocol.types import Buffer

T = TypeVar("T")

Change = Callable[[memoryview], list[Buffer]]
"""Makes a new frame from the frame of a response; neither has the size field."""

WALKED_BYTES: Final = 8 << 10
"""A larger frame is read and written in the worker thread, since it may have many fields."""


def apart(size_bytes: int, function: Callable[[], T]) -> Work[T]:
    """Return the result of a pure function; for a large input it runs in the worker thread."""
    return (yield from offload(function)) if size_bytes > WALKED_BYTES else function()


class GatewayExchange(Exchange):
    """See the module.

    Attributes:
        answered: called when the client gets a response (default: does nothing).
        change: makes the frame to send from the frame of the response; None: the response isn't
            changed.
        failed: called if `change` can't read the response.
    """

    __slots__ = ("answered", "change", "failed")

    def __init__(self, connection: ServerConnection, held_bytes: int) -> None:
        super().__init__(connection, held_bytes)
        self.answered: Callable[[], None] = lambda: None
        self.change: Change | None = None
        self.failed: Callable[[KafkaProtocolError], None]

    def respond(self, response: list[Buffer]) -> None:
        """See `Exchange.respond`."""
        if (change := self.change) is None:
            self.answered()
            super().respond(response)
            return
        self.change = None
        frame = memoryview(b"".join(response))[4:]
        work = self._respond_changed(frame, change)
        if len(frame) > WALKED_BYTES:
            # Run it later, since this call may be a step of other work for the connection.
            asyncio.get_running_loop().call_soon(self.run, work, lambda: None)
        else:
            next(work, None)  # it has one step

    def _respond_changed(self, frame: memoryview, change: Change) -> Work[None]:
        try:
            changed = yield from apart(len(frame), lambda: change(frame))
        except KafkaProtocolError as error:
            self.end()
            self.failed(error)
        else:
            respond(self, changed)
