"""Read a topic with nothing but a bare asyncio protocol: the floor of the consumer's calls.

    python -m tests.tools.bench.floors.consume 127.0.0.1:9092 TOPIC 1000000 --decode
    python -m tests.tools.bench.floors.consume 127.0.0.1:9092 TOPIC 1000000 --records --partitions
    1000

It sends the Fetch requests of a consumer (version 0, the next one when a response is complete) to
the leader of all partitions and receives the responses into one buffer. With `--decode` it checks
the CRCs and decodes to Arrow's buffers, in one reused piece of memory, with `--records` to records;
without, it reads only the headers, which give the next offsets. It prints CPU seconds per million
messages and the rate.

What `getmany_arrow` takes beyond `--decode`, and `getmany` beyond `--records`, is the client: the
loop's other work, requests with deadlines, the memory of frames, record batches, and for each
partition its position, its plan and its buffer.
"""

from __future__ import annotations

import argparse
import asyncio
import struct
import time
from typing import cast

import uvloop

from aiokafka08 import TopicPartition
from aiokafka08.protocol.api import Topic, encode_request
from aiokafka08.protocol.message_set import ColumnMemory, Columns, MessageSetReader, summarize_set
from aiokafka08.protocol.requests.fetch import FetchPartition, FetchRequest
from tests.tools.bench.cases import PARTITIONS

FETCH_BYTES = 1024 * 1024
BUFFER_BYTES = 6 * FETCH_BYTES
_PARTITION = struct.Struct(">ihqi")


class Floor(asyncio.BufferedProtocol):
    """Fetch all partitions of a topic until `count` messages have come."""

    def __init__(self, topic: str, count: int, partitions: int, decode: str | None) -> None:
        self.done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._topic = topic
        self._count = count
        self._decode = decode
        self._offsets = [0] * partitions
        self._fetch_bytes = min(FETCH_BYTES, BUFFER_BYTES // partitions)
        self._memory = ColumnMemory()
        self._buffer = memoryview(bytearray(BUFFER_BYTES + 64 * partitions))
        self._filled = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's has no common base
        self._fetch()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the measurement if the broker closes the connection."""
        if not self.done.done():
            self.done.set_exception(exc or ConnectionResetError("closed by the broker"))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the rest of the buffer."""
        return self._buffer[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Send the next request when a response is complete, and then decode."""
        self._filled += nbytes
        if self._filled < 4 or self._filled < 4 + int.from_bytes(self._buffer[:4], "big"):
            return
        self._filled = 0
        at = 12  # size, correlation id, number of topics
        at += 2 + int.from_bytes(self._buffer[at : at + 2], "big") + 4
        sets = []
        for _ in self._offsets:
            partition, error, _, size = _PARTITION.unpack_from(self._buffer, at)
            at += _PARTITION.size
            message_set = self._buffer[at : at + size]
            at += size
            start, end = self._offsets[partition], summarize_set(message_set).next_offset
            assert not error, error
            if end is not None:
                self._offsets[partition] = end
                sets.append((partition, start, message_set))
        if sum(self._offsets) < self._count:
            if self._decode:  # before the next response overwrites the buffer
                self._read(sets)
            self._fetch()
            return
        if self._decode:
            self._read(sets)
        self.done.set_result(sum(self._offsets))

    def _read(self, sets: list[tuple[int, int, memoryview]]) -> None:
        for partition, start, message_set in sets:
            tp = TopicPartition(self._topic, partition)
            reader = MessageSetReader(tp, message_set, start, max_decompressed_bytes=1 << 27)
            if self._decode == "records":
                while reader.read(10_000):
                    pass
                continue
            while reader.read_columns(columns := Columns(memory=self._memory), 10_000):
                columns.column_value()

    def _fetch(self) -> None:
        asked = [
            FetchPartition(partition, offset, self._fetch_bytes)
            for partition, offset in enumerate(self._offsets)
        ]
        request = FetchRequest(-1, 500, 1, [Topic(self._topic, asked)])
        self._transport.writelines(encode_request(request, 0, 1, "floor"))


async def measure(
    address: str, topic: str, count: int, partitions: int, decode: str | None
) -> None:
    """Read the messages, and print what it took."""
    host, port = address.split(":")
    loop = asyncio.get_running_loop()
    cpu, wall = time.process_time(), time.perf_counter()
    transport, floor = await loop.create_connection(
        lambda: Floor(topic, count, partitions, decode), host, int(port)
    )
    read = await floor.done
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    transport.close()
    print(f"CPU {cpu / read * 1e6:.3f} s per million, {read / wall:,.0f} messages/s")


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.bench.floors.consume")
    parser.add_argument("address", help="the broker that leads all partitions")
    parser.add_argument("topic")
    parser.add_argument("count", type=int, help="how many messages the topic has")
    parser.add_argument("--partitions", type=int, default=PARTITIONS)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--decode", action="store_const", const="columns", help="to Arrow's buffers")
    how.add_argument("--records", dest="decode", action="store_const", const="records")
    options = parser.parse_args()
    uvloop.run(
        measure(options.address, options.topic, options.count, options.partitions, options.decode)
    )


if __name__ == "__main__":
    main()
