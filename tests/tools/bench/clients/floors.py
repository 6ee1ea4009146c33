"""Lower bounds: the bytes of `ours`, sent with nothing but an asyncio Protocol and futures.

Rows of the benchmark, beside those of `ours`, and the peers of their goals. A floor assumes one
broker, one partition, no errors and no lost connection. Each message is encoded before the meter
starts. So a floor has only what any client in this event loop must do for the same requests: write,
receive, and wake the task that awaits a message.
"""

from __future__ import annotations

import asyncio
import struct
import time
import zlib
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from dataclasses import replace
from typing import cast

import uvloop

from tests.tools.bench.cases import BATCH_BYTES, LOOPS
from tests.tools.bench.clients.running import run
from tests.tools.bench.measure import WARM_UP, Measurement, TickingMeter, latencies

_PRODUCE = struct.Struct(">hhih5shiih")  # header, acks, timeout, one topic's name
_OFFSET = struct.Struct(">q")


def message(value: bytes) -> bytes:
    """Return a message set of one message in format 0."""
    body = struct.pack(">bbii", 0, 0, -1, len(value)) + value
    return struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body


def request(topic: str, message_set: bytes) -> bytes:
    """Return the frame of a Produce request, version 0, for partition 0, with acks=1."""
    name = topic.encode()
    body = (
        _PRODUCE.pack(0, 0, 1, 5, b"floor", 1, 30_000, 1, len(name))
        + name
        + struct.pack(">iii", 1, 0, len(message_set))
    )
    return b"".join((struct.pack(">i", len(body) + len(message_set)), body, message_set))


class Floor(asyncio.Protocol):
    """Writes frames, and completes the futures of the oldest one for each response.

    All responses have the same size: that of the only topic and partition.
    """

    def __init__(self, topic: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._response_bytes = 4 + 4 + 4 + 2 + len(topic.encode()) + 4 + 14
        self._received = b""
        self._in_flight: deque[list[asyncio.Future[int]]] = deque()
        self._topic = topic
        self._buffered: list[bytes] = []
        self._waiting: list[asyncio.Future[int]] = []
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        data = self._received + data
        size = self._response_bytes
        while len(data) >= size:
            (error,) = struct.unpack_from(">h", data, size - 10)
            assert error == 0, f"error code {error}"
            (offset,) = _OFFSET.unpack_from(data, size - 8)
            for index, future in enumerate(self._in_flight.popleft()):
                future.set_result(offset + index)
            data = data[size:]
        self._received = data

    def send_frame(self, frame: bytes) -> asyncio.Future[int]:
        """Write a frame with one message; return the future of its offset."""
        assert self._transport is not None
        future: asyncio.Future[int] = self._loop.create_future()
        self._in_flight.append([future])
        self._transport.write(frame)
        return future

    def send_message(self, encoded: bytes) -> asyncio.Future[int]:
        """Buffer a message until the next event-loop iteration; return the future of its offset."""
        future: asyncio.Future[int] = self._loop.create_future()
        if not self._buffered:
            self._loop.call_soon(self._send_buffered)
        self._buffered.append(encoded)
        self._waiting.append(future)
        return future

    def close(self) -> None:
        """Close the connection."""
        assert self._transport is not None
        self._transport.close()

    def _send_buffered(self) -> None:
        assert self._transport is not None
        self._in_flight.append(self._waiting)
        self._transport.write(request(self._topic, b"".join(self._buffered)))
        self._buffered, self._waiting = [], []


async def _connect(bootstrap: str, topic: str) -> Floor:
    host, port = bootstrap.rsplit(":", 1)
    loop = asyncio.get_running_loop()
    _, floor = await loop.create_connection(lambda: Floor(topic), host, int(port))
    return floor


def send_kept(
    bootstrap: str, topic: str, values: list[bytes], compression: str | None
) -> Measurement:
    """Measure a coroutine and an awaitable object per message; all objects are kept, then awaited.

    The object is the message's number: it takes 32 bytes, and nothing smaller in Python can be
    awaited and know its message. Every frame is the same object, so none takes memory.
    """
    value, count = values[0], len(values)
    values.clear()  # as `ours.send_kept`

    async def work() -> Measurement:
        floor = await _connect(bootstrap, topic)
        encoded = message(value)
        in_frame = BATCH_BYTES // len(encoded)
        frame = request(topic, encoded * in_frame)
        written: list[asyncio.Future[int]] = []

        class Sent(int):
            __slots__ = ()

            def __await__(self) -> Generator[object, None, int]:
                acknowledged = written[self // in_frame]
                if not acknowledged.done():
                    yield from acknowledged
                return acknowledged.result() + self % in_frame

        async def send(number: int) -> Sent:
            if number % in_frame == 0:
                written.append(floor.send_frame(frame))
                await asyncio.sleep(0)
            return Sent(number)

        meter = TickingMeter()
        for sent in [await send(number) for number in range(count)]:
            await sent
        measurement = meter.stop(count)
        floor.close()
        return measurement

    return run(work())


def one_by_one(
    bootstrap: str,
    topic: str,
    values: list[bytes],
    compression: str | None,
    new_loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop,
) -> Measurement:
    """Measure one coroutine that writes a ready frame and awaits a future, again and again."""

    async def work() -> Measurement:
        floor = await _connect(bootstrap, topic)
        frames = [request(topic, message(value)) for value in values]
        for frame in frames[:WARM_UP]:
            await floor.send_frame(frame)
        took = []
        meter = TickingMeter()
        for frame in frames:
            begun = time.perf_counter()
            await floor.send_frame(frame)
            took.append(time.perf_counter() - begun)
        measurement = meter.stop(len(values))
        floor.close()
        return replace(measurement, more=measurement.more | latencies(took))

    return run(work(), new_loop)


def one_by_one_asyncio(
    bootstrap: str, topic: str, values: list[bytes], compression: str | None
) -> Measurement:
    """Measure the same on asyncio's own event loop."""
    return one_by_one(bootstrap, topic, values, compression, asyncio.new_event_loop)


def loops(
    bootstrap: str,
    topic: str,
    values: list[bytes],
    compression: str | None,
    new_loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop,
    send: Callable[[Floor, bytes], Awaitable[int]] = Floor.send_message,
) -> Measurement:
    """Measure a thousand coroutines, with a future for each message and a frame per iteration."""

    async def work() -> Measurement:
        floor = await _connect(bootstrap, topic)
        encoded = [message(value) for value in values]

        async def walk(share: list[bytes]) -> None:
            for one in share:
                await send(floor, one)

        await asyncio.gather(*[walk(encoded[:1]) for _ in range(LOOPS)])
        shares = [encoded[start::LOOPS] for start in range(LOOPS)]
        meter = TickingMeter()
        await asyncio.gather(*map(walk, shares))
        measurement = meter.stop(len(values))
        floor.close()
        return measurement

    return run(work(), new_loop)


async def _send_and_wait(floor: Floor, encoded: bytes) -> int:
    return await floor.send_message(encoded)


def loops_in_coroutines(
    bootstrap: str, topic: str, values: list[bytes], compression: str | None
) -> Measurement:
    """Measure the same with one more coroutine per message, as `send_and_wait()` is one."""
    return loops(bootstrap, topic, values, compression, send=_send_and_wait)


def loops_asyncio(
    bootstrap: str, topic: str, values: list[bytes], compression: str | None
) -> Measurement:
    """Measure the same on asyncio's own event loop."""
    return loops(bootstrap, topic, values, compression, asyncio.new_event_loop)
