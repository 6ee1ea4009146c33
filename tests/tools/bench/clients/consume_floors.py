"""Floors of `getmany`, `async for` and `getmany_arrow`: this codec, and a bare asyncio Protocol.

A floor is the least that a client with this project's codec does for the same messages: it sends a
Fetch request (version 0) for all partitions, receives the response into one buffer, sends the next
request, checks the CRCs and decodes. One broker leads all partitions. There are no deadlines, no
positions that a caller may move, and no buffered records. The codec is the compiled twin.

Frozen: later claims "x times its floor" are measured by this code. A change needs a new row beside
the old one, not an edit.

Invariant: a measurement is of messages that were decoded. Each message set must give as many as its
offsets say, and all sets together as many as were to be read.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Final, NamedTuple, cast

from aiokafka08 import ConsumerRecord, TopicPartition
from aiokafka08._core.arrow import record_batch, require_pyarrow
from aiokafka08.protocol.message_set import ColumnMemory, Columns, MessageSetReader, summarize_set
from tests.tools.bench.cases import PARTITIONS
from tests.tools.bench.clients.running import run
from tests.tools.bench.measure import WARM_UP, Measurement, TickingMeter

FETCH_BYTES: Final = 1024 * 1024
"""The default of `max_partition_fetch_bytes`."""
RESPONSE_BYTES: Final = 8 * 1024 * 1024
"""The messages that the consumer expects in a response at most."""
SLICE: Final = 1000
"""Records that are decoded at a time, as `ours.getmany` takes them."""
ARROW_BYTES: Final = 4 * 1024 * 1024
"""Keys and values in a record batch, as in those of `getmany_arrow`."""
ARROW_ROWS: Final = 10_000

_HEAD: Final = struct.Struct(">ihhih5siiiih")  # from the frame's size to that of the topic's name
_PARTITION: Final = struct.Struct(">iqi")
_FETCHED: Final = struct.Struct(">ihqi")


class FetchedSet(NamedTuple):
    """A message set in the buffer of the response, and the offsets that it must have."""

    topic_partition: TopicPartition
    start: int
    end: int
    message_set: memoryview

    def reader(self) -> MessageSetReader:
        """Return a reader that checks CRCs."""
        return MessageSetReader(
            self.topic_partition, self.message_set, self.start, max_decompressed_bytes=1 << 27
        )

    def check(self, decoded: int, last_offset: int) -> None:
        """Raise AssertionError unless all its messages were decoded."""
        found, expected = (decoded, last_offset), (self.end - self.start, self.end - 1)
        assert found == expected, f"{self.topic_partition}: {found}; expected {expected}"


class FetchFloor(asyncio.BufferedProtocol):
    """Fetches all partitions of a topic from the start until `count` messages have come.

    The sets of a response are views of the buffer: the next response overwrites them once the event
    loop runs.
    """

    def __init__(self, topic: str, count: int, partitions: int) -> None:
        self._name = topic.encode()
        self._count = count
        self._partitions = [TopicPartition(topic, number) for number in range(partitions)]
        self._offsets = [0] * partitions
        self._fetch_bytes = min(FETCH_BYTES, RESPONSE_BYTES // partitions)
        self._buffer = memoryview(bytearray(partitions * (self._fetch_bytes + 64) + 1024))
        self._filled = 0
        self._response: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's has no common base

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail what waits for a response."""
        if self._response is not None and not self._response.done():
            self._response.set_exception(exc or ConnectionResetError("closed by the broker"))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the rest of the buffer."""
        return self._buffer[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Resolve the future when the response is complete."""
        self._filled += nbytes
        if self._filled >= 4 and self._filled == 4 + int.from_bytes(self._buffer[:4], "big"):
            assert self._response is not None, "a response without a request"
            self._response.set_result(None)

    async def responses(self) -> AsyncIterator[list[FetchedSet]]:
        """Yield the sets of each response, while the broker already works on the next one."""
        response = self._fetch()
        while sum(self._offsets) < self._count:
            await response
            sets = list(self._sets())
            if sum(self._offsets) < self._count:
                response = self._fetch()
            yield sets

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()

    def _fetch(self) -> asyncio.Future[None]:
        if self._transport.is_closing():
            raise ConnectionResetError("closed by the broker")
        self._filled = 0
        self._response = asyncio.get_running_loop().create_future()
        wanted = [
            _PARTITION.pack(partition, offset, self._fetch_bytes)
            for partition, offset in enumerate(self._offsets)
        ]
        size = _HEAD.size - 4 + len(self._name) + 4 + len(wanted) * _PARTITION.size
        head = _HEAD.pack(size, 1, 0, 1, 5, b"floor", -1, 500, 1, 1, len(self._name))
        self._transport.write(b"".join((head, self._name, len(wanted).to_bytes(4, "big"), *wanted)))
        return self._response

    def _sets(self) -> Iterator[FetchedSet]:
        at = 4 + 4 + 4 + 2 + len(self._name) + 4  # behind the number of partitions
        for _ in self._offsets:
            partition, error, _, size = _FETCHED.unpack_from(self._buffer, at)
            assert not error, f"partition {partition}: error code {error}"
            at += _FETCHED.size
            message_set = self._buffer[at : at + size]
            at += size
            start, end = self._offsets[partition], summarize_set(message_set).next_offset
            if end is not None:
                self._offsets[partition] = end
                yield FetchedSet(self._partitions[partition], start, end, message_set)


Take = Callable[[FetchFloor], Awaitable[int]]
"""Decodes all messages, touches the values, and returns the number of messages."""


async def _records(floor: FetchFloor) -> AsyncIterator[list[ConsumerRecord[bytes, bytes]]]:
    async for sets in floor.responses():
        for some in sets:
            reader = some.reader()
            decoded, last = 0, -1
            while records := reader.read(SLICE):
                decoded += len(records)
                last = records[-1].offset
                yield records
            some.check(decoded, last)


async def take_many(floor: FetchFloor) -> int:
    """Decode to lists of records."""
    seen = size = 0
    async for records in _records(floor):
        for record in records:
            size += len(record.value or b"")
        seen += len(records)
    return seen


async def _each(floor: FetchFloor) -> AsyncIterator[ConsumerRecord[bytes, bytes]]:
    async for records in _records(floor):
        for record in records:
            yield record


async def take_one_by_one(floor: FetchFloor) -> int:
    """Decode to records, and step an asynchronous generator for each of them."""
    seen = size = 0
    async for record in _each(floor):
        size += len(record.value or b"")
        seen += 1
    return seen


async def take_arrow(floor: FetchFloor) -> int:
    """Decode to Arrow's buffers, and make record batches of them."""
    seen = size = 0
    memory = ColumnMemory()
    async for sets in floor.responses():
        columns = Columns(ARROW_BYTES, memory)
        runs = []
        for some in sets:
            reader = some.reader()
            decoded, last = 0, -1
            while run_rows := reader.read_columns(columns, ARROW_ROWS):
                decoded += run_rows
                last = columns.last_offset
                runs.append((some.topic_partition, run_rows))
                if columns.is_full:
                    batch = record_batch(runs, columns)
                    size += batch.column("value").nbytes
                    seen += batch.num_rows
                    columns, runs = Columns(ARROW_BYTES, memory), []
            some.check(decoded, last)
        batch = record_batch(runs, columns)
        size += batch.column("value").nbytes
        seen += batch.num_rows
    return seen


def _read(bootstrap: str, topic: str, count: int, partitions: int, take: Take) -> Measurement:
    async def work() -> Measurement:
        host, port = bootstrap.rsplit(":", 1)
        loop = asyncio.get_running_loop()
        for wanted in (WARM_UP, count):
            _, floor = await loop.create_connection(
                lambda wanted=wanted: FetchFloor(topic, wanted, partitions),  # type: ignore[misc]
                host,
                int(port),
            )
            meter = TickingMeter()
            seen = await take(floor)
            measurement = meter.stop(seen)
            assert seen >= wanted, f"{seen} messages; expected {wanted}"
            floor.close()
        return measurement

    return run(work())


def getmany(bootstrap: str, topic: str, count: int, partitions: int = PARTITIONS) -> Measurement:
    """Measure records in lists, touching the values."""
    return _read(bootstrap, topic, count, partitions, take_many)


def iterate(bootstrap: str, topic: str, count: int, partitions: int = PARTITIONS) -> Measurement:
    """Measure records one at a time, touching the values."""
    return _read(bootstrap, topic, count, partitions, take_one_by_one)


def arrow(bootstrap: str, topic: str, count: int, partitions: int = PARTITIONS) -> Measurement:
    """Measure record batches."""
    require_pyarrow()
    return _read(bootstrap, topic, count, partitions, take_arrow)
