"""Exchanges that do something with the response on its way to the client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiokafka08._core.server.connection import Exchange
from aiokafka08._core.server.scheduler import Job
from aiokafka08._core.server.work import Work, offload
from aiokafka08._tools.gateway.upstream import respond
from aiokafka08.errors import KafkaProtocolError
from aiokafka08.protocol.types import Buffer


class WrappedExchange(Exchange):
    """An exchange in place of another one, which it completes."""

    __slots__ = ("inner",)

    def __init__(self, inner: Exchange) -> None:
        super().__init__(inner.connection, 0)
        self.inner = inner

    def respond(self, response: list[Buffer]) -> None:
        """See `Exchange.respond`."""
        self.inner.respond(response)

    def end(self) -> None:
        """See `Exchange.end`."""
        self.inner.end()

    def release(self) -> None:
        """See `Exchange.release`."""
        self.inner.release()

    def run(self, work: Work[None], ended: Callable[[], None]) -> Job:
        """See `Exchange.run`."""
        return self.inner.run(work, ended)


class TimedExchange(WrappedExchange):
    """Calls `answered` when the client gets a response."""

    __slots__ = ("_answered",)

    def __init__(self, inner: Exchange, answered: Callable[[], None]) -> None:
        super().__init__(inner)
        self._answered = answered

    def respond(self, response: list[Buffer]) -> None:
        """See `Exchange.respond`."""
        self._answered()
        super().respond(response)


class ChangedExchange(WrappedExchange):
    """Changes the response.

    Args:
        inner: see `WrappedExchange`.
        change: from the frame of the response to another one, both without sizes.
        offloaded_bytes: larger responses are changed in the worker thread.
        failed: called if the response can't be read.
    """

    __slots__ = ("_change", "_failed", "_offloaded_bytes")

    def __init__(
        self,
        inner: Exchange,
        change: Callable[[memoryview], list[Buffer]],
        offloaded_bytes: int,
        failed: Callable[[KafkaProtocolError], None],
    ) -> None:
        super().__init__(inner)
        self._change = change
        self._offloaded_bytes = offloaded_bytes
        self._failed = failed

    def respond(self, response: list[Buffer]) -> None:
        """See `Exchange.respond`."""
        frame = memoryview(b"".join(response))[4:]
        if len(frame) > self._offloaded_bytes:
            # Not at once: this may be a step of other work for the connection.
            loop = asyncio.get_running_loop()
            loop.call_soon(self.run, self._respond_later(frame), lambda: None)
            return
        try:
            changed = self._change(frame)
        except KafkaProtocolError as error:
            self._fail(error)
        else:
            respond(self.inner, changed)

    def _respond_later(self, frame: memoryview) -> Work[None]:
        try:
            changed = yield from offload(lambda: self._change(frame))
        except KafkaProtocolError as error:
            self._fail(error)
        else:
            respond(self.inner, changed)

    def _fail(self, error: KafkaProtocolError) -> None:
        self.inner.end()
        self._failed(error)
