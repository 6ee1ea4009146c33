"""An embedded broker in a simulation, which gets each example on a new connection.

Each line of brokers in turn serves `EXAMPLES_OF_A_WORLD` examples; then a client that is good must
still be served, and a new world begins. Time is virtual: long polls and sessions cost none.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from aiokafka08.protocol.api import encode_request
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.testing import LINES
from aiokafka08.testing.simulation import World, simulate
from tests.protocol.hostile import Endured
from tests.tools.fuzz import worlds
from tests.tools.fuzz.targets import Steps

EXAMPLES_OF_A_WORLD = 200
_ANSWER_S = 0.02
"""Virtual seconds that a request and its response take."""
_PATIENCE_S = 0.05
"""Virtual seconds after which a connection is cut: the broker waits, or waits for more bytes."""
_GOOD = b"".join(encode_request(MetadataRequest(["good"]), 0, 1, "good"))


class InternalError(AssertionError):
    """A server has logged an exception that it didn't expect."""


class Client(asyncio.Protocol):
    """Counts what it receives."""

    def __init__(self) -> None:
        self.received = 0
        self.closed = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.received += len(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()


async def received(host: str, port: int, data: bytes, answer_s: float, patience_s: float) -> int:
    """Send bytes, and return how many come until the server ends the connection, or is cut off."""
    loop = asyncio.get_running_loop()
    transport, client = await loop.create_connection(Client, host, port)
    transport.write(data)
    await asyncio.sleep(answer_s)  # some lines respond to no request before a FIN
    if not transport.is_closing():
        transport.write_eof()
    try:
        async with asyncio.timeout(patience_s):
            await client.closed.wait()
    except TimeoutError:
        transport.abort()
        await client.closed.wait()
    return client.received


class Broker:
    """A world with one broker of a line."""

    def __init__(self, number: int) -> None:
        gc.collect()  # what is left of the world before: it would be frozen, and never freed
        gc.freeze()  # each run collects garbage: not what existed before
        self._stack = ExitStack()
        line = list(LINES)[number % len(LINES)]
        self._world: World = self._stack.enter_context(
            simulate(number, brokers=1, version=line, topics={"t": 2})
        )
        self.served = 0

    def serve(self, data: bytes, seen: Endured, steps: Steps) -> None:
        """Send an example, and check that nothing unexpected happened."""
        self.served += 1
        with errors_raised("aiokafka08.testing.server"), callbacks_measured(steps):
            received = self._world.run(self._exchange, data)
            seen.values += bool(received)
            seen.errors += not received

    async def _exchange(self, data: bytes) -> int:
        return await received("kafka0", 9092, data, _ANSWER_S, _PATIENCE_S)

    def close(self) -> None:
        """Check that a good client is still served, and end the world."""
        try:
            assert self._world.run(self._exchange, _GOOD), "the broker serves a good client no more"
        finally:
            self._stack.close()


_numbers = itertools.count()
_current: list[Broker] = []


def serve(data: bytes, seen: Endured, steps: Steps) -> None:
    """Serve an example by the current broker."""
    if not _current:
        worlds.begin(finish)
        _current.append(Broker(next(_numbers)))
    broker = _current[0]
    try:
        broker.serve(data, seen, steps)
    except BaseException:
        _current.clear()
        broker.close()
        raise
    if broker.served >= EXAMPLES_OF_A_WORLD:
        finish()


def finish() -> None:
    """End the current world, if there is one."""
    while _current:
        _current.pop().close()


@contextmanager
def callbacks_measured(steps: Steps) -> Iterator[None]:
    """Take each callback of the event loop as a step."""
    real = asyncio.Handle._run

    def run(handle: asyncio.Handle) -> None:
        with steps.step():
            real(handle)

    asyncio.Handle._run = run  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        asyncio.Handle._run = real  # type: ignore[method-assign]


@contextmanager
def errors_raised(name: str) -> Iterator[None]:
    """Raise what a logger gets as an error with a traceback."""
    errors: list[logging.LogRecord] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.exc_info:
                errors.append(record)

    logger, handler = logging.getLogger(name), Collect(logging.ERROR)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
    if errors:
        cause = errors[0].exc_info[1] if errors[0].exc_info else None
        raise InternalError(errors[0].getMessage()) from cause
