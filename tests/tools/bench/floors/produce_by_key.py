"""Produce to many partitions with nothing but a bare asyncio protocol: the floor of "by key".

    python -m tests.tools.bench.floors.produce_by_key 127.0.0.1:9092 TOPIC 500000 --partitions 1000
    \
        --fill 20 --sets 200 --append

It sends Produce requests (version 0, acks=1), each with a message set for each of `--sets`
partitions, and the next one when the response is complete. A set has `--fill` messages of 100 bytes
with keys. All sets are ready before the clock starts; with `--append` each is appended to a new
builder, from lists that are split by partition already, just before it is sent. `--fill` and
`--sets` are the means of the client's run that it is compared with: `--client send_many` or
`--client send` does that run first, by key, and takes the means from it.

With `--calls` nothing is prepared: for each message a coroutine hashes the key, appends to its
partition's builder, and returns an object that can be awaited for the offset; all these objects are
awaited. It is the floor of `send`.

Prints CPU seconds per million messages and CPU microseconds per batch. What the client takes beyond
`--append` is: choose partitions and split the list, open a batch and its delivery, queues and
deadlines, match responses to batches, and (`send`) what `--calls` adds, checks and memory.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import struct
import time
from collections.abc import Generator, Iterator
from typing import Final, NamedTuple, cast

import uvloop

from aiokafka08 import AIOKafkaProducer
from aiokafka08.producer.batch import Batch
from aiokafka08.protocol.compression import Codec
from aiokafka08.protocol.message_set import MessageSetBuilder, murmur2
from tests.tools.bench.cases import BATCH_BYTES, GATHERED, LINGER_MS, LISTED, keys, values
from tests.tools.bench.clients.gathering import send_all

_SET = struct.Struct(">ii")
_PRODUCED = struct.Struct(">ihq")
_CLIENT_ID: Final = b"floor"
_HEADER = struct.Struct(f">hhih{len(_CLIENT_ID)}shiih")
_WARM_UP = 20_000


class Shape(NamedTuple):
    """What is sent: messages in a batch, and batches in a request."""

    fill: int
    sets: int


class ProducingFloor(asyncio.Protocol):
    """Sends a request, and the next one when the response to it is complete."""

    def __init__(self, topic: str, requests: Iterator[list[tuple[int, bytes]]]) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._topic = topic.encode()
        self._requests = requests
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        self._transport = cast("asyncio.Transport", transport)
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the measurement if the broker closes the connection."""
        if not self.done.done():
            self.done.set_exception(exc or ConnectionResetError("closed by the broker"))

    def data_received(self, data: bytes) -> None:
        """Check the error codes when the response is complete, then send the next request."""
        data = self._received = self._received + data
        if len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
            return
        self._received = b""
        results = data[4 + 4 + 4 + 2 + len(self._topic) + 4 :]
        for _, error, _ in _PRODUCED.iter_unpack(results):
            assert not error, error
        self._send()

    def _send(self) -> None:
        sets = next(self._requests, None)
        if sets is None:
            self.done.set_result(None)
            return
        self.send(sets)

    def send(self, sets: list[tuple[int, bytes]]) -> None:
        """Send the message sets in one request."""
        body = [
            _HEADER.pack(0, 0, 1, len(_CLIENT_ID), _CLIENT_ID, 1, 30_000, 1, len(self._topic)),
            self._topic,
            struct.pack(">i", len(sets)),
        ]
        for partition, message_set in sets:
            body += (_SET.pack(partition, len(message_set)), message_set)
        self._transport.write(b"".join((struct.pack(">i", sum(map(len, body))), *body)))


def requests(
    count: int, partitions: int, shape: Shape, *, append: bool
) -> Iterator[list[tuple[int, bytes]]]:
    """Yield the message sets of each request; they are ready unless `append`."""
    fill, sets = shape
    places = itertools.cycle(range(partitions))
    some_keys, some_values = keys(fill), values(fill, 100)

    def message_set() -> bytes:
        builder = MessageSetBuilder(0, Codec.NONE)
        builder.extend(some_keys, some_values, -1, 0, BATCH_BYTES)
        return bytes(builder.build())

    ready = message_set()
    for _ in range(max(count // (fill * sets), 1)):
        yield [
            (partition, message_set() if append else ready)
            for partition in itertools.islice(places, sets)
        ]


async def floor(
    address: str, topic: str, count: int, partitions: int, shape: Shape, *, append: bool
) -> None:
    """Send the requests, and print what it took."""
    host, port = address.split(":")
    loop = asyncio.get_running_loop()
    some = requests(count, partitions, shape, append=append)
    begun = time.process_time()
    transport, sending = await loop.create_connection(
        lambda: ProducingFloor(topic, some), host, int(port)
    )
    await sending.done
    name = "floor, appending" if append else "floor"
    _report(name, time.process_time() - begun, count, shape)
    transport.close()


class Sent:
    """A message's index in a request, to be awaited until the response has come."""

    __slots__ = ("_index", "_response")

    def __init__(self, response: asyncio.Future[None], index: int) -> None:
        self._response = response
        self._index = index

    def __await__(self) -> Generator[object, None, int]:
        if not self._response.done():
            yield from self._response
        return self._index


async def floor_of_calls(
    address: str, topic: str, count: int, partitions: int, shape: Shape
) -> None:
    """Call a coroutine for each message, and print what it took."""
    host, port = address.split(":")
    loop = asyncio.get_running_loop()
    all_values, all_keys = values(count, 100), keys(count)
    builders: dict[int, MessageSetBuilder] = {}
    in_request = shape.fill * shape.sets
    response: asyncio.Future[None] = loop.create_future()
    appended = batches = 0

    async def call(key: bytes, value: bytes) -> Sent:
        nonlocal appended
        place = (murmur2(key) & 0x7FFFFFFF) % partitions
        builder = builders.get(place)
        if builder is None:
            builder = builders[place] = MessageSetBuilder(0, Codec.NONE)
        builder.append(key, value, -1)
        appended += 1
        return Sent(response, appended)

    begun = time.process_time()
    transport, sending = await loop.create_connection(
        lambda: ProducingFloor(topic, iter([])), host, int(port)
    )
    sent: list[Sent] = []
    for start in range(0, count, in_request):
        some = slice(start, start + in_request)
        sent += [await call(*one) for one in zip(all_keys[some], all_values[some], strict=True)]
        sending.done = response
        sending.send([(place, bytes(one.build())) for place, one in builders.items()])
        batches += len(builders)
        builders.clear()
        await response
        response = loop.create_future()
        if len(sent) >= GATHERED:
            for one in sent:
                await one
            sent.clear()
    for one in sent:
        await one
    mean = Shape(max(round(count / batches), 1), shape.sets)
    _report("floor, calls", time.process_time() - begun, count, mean)
    transport.close()


async def client(address: str, topic: str, count: int, call: str, linger_ms: int) -> Shape:
    """Send by key with the client, print what it took, and return the means of its run."""
    all_values, all_keys = values(count, 100), keys(count)
    batches = 0
    async with AIOKafkaProducer(
        bootstrap_servers=address, acks=1, linger_ms=linger_ms, max_batch_size=BATCH_BYTES
    ) as producer:
        await (await producer.send_many(topic, all_values[:_WARM_UP], all_keys[:_WARM_UP]))
        assert producer._engine is not None
        finish = producer._engine.sender.accumulator.finish

        def counted(batch: Batch, now: float) -> None:
            nonlocal batches
            batches += 1
            finish(batch, now)

        producer._engine.sender.accumulator.finish = counted  # type: ignore[method-assign]
        before = producer.metrics()["requests_sent"]
        begun = time.process_time()
        if call == "send":
            await send_all(producer, topic, all_values, iter([{"key": one} for one in all_keys]))
        else:
            waiting = []
            for start in range(0, count, LISTED):
                some = slice(start, start + LISTED)
                waiting.append(await producer.send_many(topic, all_values[some], all_keys[some]))
                if len(waiting) > 1:
                    await waiting.pop(0)
            await waiting.pop()
        took = time.process_time() - begun
        sent = producer.metrics()["requests_sent"] - before
    shape = Shape(max(round(count / batches), 1), max(round(batches / sent), 1))
    _report(call, took, count, shape)
    return shape


def _report(name: str, cpu: float, count: int, shape: Shape) -> None:
    each = cpu / count * 1e6
    print(
        f"{name:18} CPU {each:6.3f} s per million, {each * shape.fill:6.1f} us per batch of "
        f"{shape.fill}, {shape.sets} batches in a request"
    )


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.bench.floors.produce_by_key")
    parser.add_argument("address", help="the broker that leads all partitions")
    parser.add_argument("topic")
    parser.add_argument("count", type=int, help="how many messages to send")
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--fill", type=int, default=20, help="messages in a batch")
    parser.add_argument("--sets", type=int, default=200, help="batches in a request")
    parser.add_argument("--client", choices=("send", "send_many"), help="take the means from it")
    parser.add_argument("--linger", type=int, default=LINGER_MS, help="of the client, in ms")
    parser.add_argument("--append", action="store_true", help="append the messages too")
    parser.add_argument("--calls", action="store_true", help="call a coroutine for each message")
    options = parser.parse_args()
    address, topic, count = options.address, options.topic, options.count
    shape = Shape(options.fill, options.sets)
    if options.client:
        shape = uvloop.run(client(address, topic, count, options.client, options.linger))
    places = options.partitions
    if options.calls:
        uvloop.run(floor_of_calls(address, topic, count, places, shape))
    else:
        uvloop.run(floor(address, topic, count, places, shape, append=options.append))


if __name__ == "__main__":
    main()
