"""Floors of `send_many` and `send`: this project's codec, and a bare asyncio Protocol over TCP.

A floor is the least that a client with this codec does for the same messages. Here these are
appended to sets of the batch size, built, written as one Produce request (version 0, acks=1) for
each set, and checked in the response. One broker leads all partitions, no request is tried again,
and nobody waits for a linger time. The codec is the compiled twin. The garbage collector is off: it
would walk over the futures of the messages again and again, and they have no cycles.

Frozen: later claims "x times its floor" are measured by this code. A change needs a new row beside
the old one, not an edit.

Invariant: a measurement is of messages that the broker has stored. Each response must have no error
and the offset after those of the partition's set before.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import struct
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from itertools import repeat
from typing import Any, Final, cast

from aiokafka08.protocol.compression import Codec
from aiokafka08.protocol.message_set import MessageSetBuilder
from aiokafka08.protocol.types import Buffer
from tests.tools.bench.cases import (
    BATCH_BYTES,
    FEW_LISTED,
    GATHERED,
    LISTED,
    PARTITIONS,
)
from tests.tools.bench.clients.running import run
from tests.tools.bench.measure import WARM_UP, Measurement, TickingMeter

IN_FLIGHT: Final = 5
"""The default of `max_in_flight_requests_per_connection`."""

_HEAD: Final = struct.Struct(">ihhih5shiih")  # from the frame's size to that of the topic's name
_SET: Final = struct.Struct(">iii")  # number of partitions, partition, size of the set
_RESULT: Final = struct.Struct(">ihq")
_MESSAGE_BYTES: Final = 26  # of a message in format 0 beside its value

Results = list[asyncio.Future[int]]


class ProduceFloor(asyncio.Protocol):
    """Sends message sets of a topic, up to `IN_FLIGHT` at a time, and checks the responses."""

    def __init__(self, topic: str) -> None:
        self.acknowledged = 0
        self._name = topic.encode()
        self._response_bytes = 4 + 4 + 4 + 2 + len(self._name) + 4 + _RESULT.size
        self._received = b""
        self._in_flight: deque[tuple[int, int, Results]] = deque()
        self._offsets: dict[int, int] = {}
        self._response: asyncio.Future[None] | None = None
        self._lost: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's has no common base

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail what waits; a wrong response closes the connection too."""
        self._lost = exc or ConnectionResetError("closed by the broker")
        if self._response is not None and not self._response.done():
            self._response.set_exception(self._lost)
        for _, _, results in self._in_flight:
            for future in results:
                future.set_exception(self._lost)

    def data_received(self, data: bytes) -> None:
        """Check complete responses, and resolve the futures of their messages."""
        data = self._received + data
        while len(data) >= self._response_bytes:
            result = _RESULT.unpack_from(data, self._response_bytes - _RESULT.size)
            data = data[self._response_bytes :]
            partition, count, results = self._in_flight[0]
            offset = self._offsets.get(partition, result[2])
            assert result == (partition, 0, offset), f"{result}; expected {(partition, 0, offset)}"
            self._in_flight.popleft()
            self._offsets[partition] = offset + count
            self.acknowledged += count
            for at, future in enumerate(results, offset):
                future.set_result(at)
        self._received = data
        if self._response is not None and not self._response.done():
            self._response.set_result(None)

    async def send(self, partition: int, builder: MessageSetBuilder, results: Results) -> None:
        """Write the builder's messages once fewer than `IN_FLIGHT` requests are in flight."""
        while len(self._in_flight) >= IN_FLIGHT:
            await self._responded()
        if self._lost is not None:
            raise self._lost
        built: Buffer = builder.build()
        name = self._name
        size = _HEAD.size - 4 + len(name) + _SET.size + len(built)
        head = _HEAD.pack(size, 0, 0, 1, 5, b"floor", 1, 30_000, 1, len(name))
        self._in_flight.append((partition, len(builder), results))
        self._transport.writelines((head, name, _SET.pack(1, partition, len(built)), built))

    async def finish(self) -> None:
        """Wait until all requests have their responses."""
        while self._in_flight:
            await self._responded()

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()

    async def _responded(self) -> None:
        if self._lost is not None:
            raise self._lost
        self._response = asyncio.get_running_loop().create_future()
        await self._response


Work = Callable[[ProduceFloor, Codec], Coroutine[Any, Any, None]]


async def send_lists(floor: ProduceFloor, codec: Codec, lists: list[list[bytes]]) -> None:
    """Append lists, one partition after the other, and send each full set."""
    builders = [MessageSetBuilder(0, codec) for _ in range(PARTITIONS)]
    for some, partition in zip(lists, itertools.cycle(range(PARTITIONS)), strict=False):
        start = 0
        while True:
            start = builders[partition].extend(None, some, -1, start, BATCH_BYTES)
            if start == len(some):
                break
            await floor.send(partition, builders[partition], [])
            builders[partition] = MessageSetBuilder(0, codec)
    for partition, builder in enumerate(builders):
        if len(builder):
            await floor.send(partition, builder, [])
    await floor.finish()


async def send_each(
    floor: ProduceFloor, codec: Codec, values: Iterable[bytes], value_bytes: int, gathered: int
) -> None:
    """Append one message at a time with a future each, and await the futures in groups.

    The futures of `gathered` messages are awaited while as many more are in flight.
    """
    create_future = asyncio.get_running_loop().create_future
    full = BATCH_BYTES - _MESSAGE_BYTES - value_bytes
    builders = [MessageSetBuilder(0, codec) for _ in range(PARTITIONS)]
    results: list[Results] = [[] for _ in range(PARTITIONS)]
    messages = zip(values, itertools.cycle(range(PARTITIONS)), strict=False)
    before: Results = []
    while True:
        sent: Results = []
        for value, partition in itertools.islice(messages, gathered):
            builder = builders[partition]
            builder.append(None, value, -1)
            future = create_future()
            results[partition].append(future)
            sent.append(future)
            if builder.size_bytes > full:
                await floor.send(partition, builder, results[partition])
                builders[partition], results[partition] = MessageSetBuilder(0, codec), []
        if not sent:
            break
        for future in before:  # the messages behind these have filled their sets
            await future
        before = sent
    for partition, builder in enumerate(builders):
        if len(builder):
            await floor.send(partition, builder, results[partition])
    for future in before:
        await future
    await floor.finish()


def _measure(
    bootstrap: str,
    topic: str,
    compression: str | None,
    count: int,
    warm_up: Work,
    work: Work,
) -> Measurement:
    codec = Codec[(compression or "none").upper()]

    async def measured() -> Measurement:
        host, port = bootstrap.rsplit(":", 1)
        loop = asyncio.get_running_loop()
        _, floor = await loop.create_connection(lambda: ProduceFloor(topic), host, int(port))
        await warm_up(floor, codec)
        floor.acknowledged = 0
        gc.disable()
        meter = TickingMeter()
        await work(floor, codec)
        measurement = meter.stop(count)
        assert floor.acknowledged == count, f"{floor.acknowledged} acknowledged; expected {count}"
        floor.close()
        return measurement

    return run(measured())


def _send_lists(
    bootstrap: str, topic: str, values: list[bytes], compression: str | None, listed: int
) -> Measurement:
    lists = [values[start : start + listed] for start in range(0, len(values), listed)]
    return _measure(
        *(bootstrap, topic, compression, len(values)),
        lambda floor, codec: send_lists(floor, codec, [values[:WARM_UP]]),
        lambda floor, codec: send_lists(floor, codec, lists),
    )


def send_many_few(
    bootstrap: str, topic: str, values: list[bytes], compression: str | None
) -> Measurement:
    """Measure lists of `FEW_LISTED`, each appended by calls of `extend`."""
    return _send_lists(bootstrap, topic, values, compression, FEW_LISTED)


def send_many(
    bootstrap: str, topic: str, values: list[bytes], compression: str | None
) -> Measurement:
    """Measure lists of `LISTED`, each appended by calls of `extend`."""
    return _send_lists(bootstrap, topic, values, compression, LISTED)


def send(bootstrap: str, topic: str, values: list[bytes], compression: str | None) -> Measurement:
    """Measure an append and a future for each message, awaited as `ours.send` does."""
    size = len(values[0])
    return _measure(
        *(bootstrap, topic, compression, len(values)),
        lambda floor, codec: send_each(floor, codec, values[:WARM_UP], size, GATHERED),
        lambda floor, codec: send_each(floor, codec, values, size, GATHERED),
    )


def send_kept(
    bootstrap: str, topic: str, values: list[bytes], compression: str | None
) -> Measurement:
    """Measure an append and a future for each message; all futures are kept, then awaited."""
    value, count = values[0], len(values)
    values.clear()  # as `ours.send_kept`
    size = len(value)
    return _measure(
        *(bootstrap, topic, compression, count),
        lambda floor, codec: send_each(floor, codec, repeat(value, WARM_UP), size, WARM_UP),
        lambda floor, codec: send_each(floor, codec, repeat(value, count), size, count),
    )
