"""`GatewayExchange`: measure the time to the response of a client, and change it on its way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from aiokafka08._core.server.connection import Exchange
from aiokafka08._core.server.scheduler import Job
from aiokafka08._core.server.work import Work, offload
from aiokafka08._tools.gateway.upstream import respond
from aiokafka08.errors import KafkaProtocolError
from aiokafka08.protocol.types import Buffer

T = TypeVar("T")

WALKED_BYTES: Final = 8 << 10
"""A larger frame may have so many fields that it is read and written in the worker thread."""


def apart(size_bytes: int, function: Callable[[], T]) -> Work[T]:
    """Return the result of a pure function; for a large input it runs in the worker thread."""
    if size_bytes > WALKED_BYTES:
        return (yield from offload(function))
    return function()


class GatewayExchange(Exchange):
    """An exchange in place of that of the client's connection, which it completes.

    Args:
        inner: that exchange.
        answered: called when the client gets a response.
        failed: called if the response can't be read by `change`.

    Attributes:
        change: from the frame of the response to another one, both without sizes; None: it stays.
    """

    __slots__ = ("_answered", "_failed", "_inner", "change")

    def __init__(
        self,
        inner: Exchange,
        answered: Callable[[], None],
        failed: Callable[[KafkaProtocolError], None],
    ) -> None:
        super().__init__(inner.connection, 0)
        self._inner = inner
        self._answered = answered
        self._failed = failed
        self.change: Callable[[memoryview], list[Buffer]] | None = None

    def end(self) -> None:
        """See `Exchange.end`."""
        self._inner.end()

    def release(self) -> None:
        """See `Exchange.release`."""
        self._inner.release()

    def run(self, work: Work[None], ended: Callable[[], None]) -> Job:
        """See `Exchange.run`."""
        return self._inner.run(work, ended)

    def respond(self, response: list[Buffer]) -> None:
        """See `Exchange.respond`."""
        if self.change is None:
            self._answered()
            self._inner.respond(response)
            return
        frame = memoryview(b"".join(response))[4:]
        work = self._respond_changed(frame, self.change)
        if len(frame) > WALKED_BYTES:
            # Not at once: this may be a step of other work for the connection.
            asyncio.get_running_loop().call_soon(self.run, work, lambda: None)
        else:
            next(work, None)  # it has one step

    def _respond_changed(
        self, frame: memoryview, change: Callable[[memoryview], list[Buffer]]
    ) -> Work[None]:
        try:
            changed = yield from apart(len(frame), lambda: change(frame))
        except KafkaProtocolError as error:
            self._inner.end()
            self._failed(error)
        else:
            self._answered()
            respond(self._inner, changed)
