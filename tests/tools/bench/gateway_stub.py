"""A target that costs little, and a plain relay, as processes beside the gateway that is measured.

    python -m tests.tools.bench.gateway_stub target --codec lz4 --partitions 10 --messages 1000
    python -m tests.tools.bench.gateway_stub relay 9092

Each prints its port, and ends with its stdin. The target answers by tables: each produce request as
one of all partitions, and each fetch with the same messages.
"""

from __future__ import annotations

import argparse
import asyncio
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

import uvloop

from aiokafka08.protocol.compression import BatchCodec, Codec
from aiokafka08.protocol.message_set import MessageSetBuilder
from aiokafka08.protocol.record_batch import RecordBatchBuilder
from tests.tools.bench.cases import values

HOST = "127.0.0.1"
TOPIC = b"speed"
NOW_MS = 1_795_000_000_000
VERSIONS = {0: (3, 10), 1: (4, 12), 2: (1, 7), 3: (0, 1), 8: (2, 8), 9: (1, 7), 18: (0, 3)}
"""As far as it answers them; those of 4.1.0, but for Metadata."""


def message_set(codec: Codec, contents: list[bytes]) -> bytes:
    """Return a set of format 1."""
    builder = MessageSetBuilder(1, codec)
    builder.extend(None, contents, NOW_MS, 0, 1 << 30)
    return bytes(builder.build())


def batch(codec: Codec, contents: list[bytes]) -> bytes:
    """Return a batch."""
    builder = RecordBatchBuilder(BatchCodec(codec))
    for index, value in enumerate(contents):
        builder.append(None, value, NOW_MS + index)
    return bytes(builder.build())


def contents_of(partition_messages: int, value_bytes: int) -> list[bytes]:
    """Return the values of one partition."""
    return values(partition_messages, value_bytes)


class Answers:
    """The bodies of all responses."""

    def __init__(self, options: argparse.Namespace, port: int) -> None:
        own = contents_of(options.messages // options.partitions, options.bytes)
        codec = Codec[options.codec.upper()]
        name = struct.pack(">ih", 1, len(TOPIC)) + TOPIC + struct.pack(">i", options.partitions)
        numbers = range(options.partitions)
        stored = name + b"".join(struct.pack(">ihqq", one, 0, 0, -1) for one in numbers)
        self._produced = stored + bytes(4)
        self._fetched = {
            2: bytes(4) + name + _partitions(numbers, message_set(codec, own), b""),
            10: bytes(10) + name + _partitions(numbers, batch(codec, own), bytes(20)),
        }
        nodes = range(options.brokers)
        brokers = b"".join(struct.pack(">ih9si", one, 9, HOST.encode(), port) for one in nodes)
        self._nodes = struct.pack(">i", options.brokers)
        self._metadata = {
            0: self._nodes + brokers + bytes(4),
            1: self._nodes
            + b"".join(struct.pack(">ih9sih", one, 9, HOST.encode(), port, -1) for one in nodes)
            + bytes(8),
        }
        rows = (struct.pack(">hhh", key, *row) for key, row in VERSIONS.items())
        self._versions = struct.pack(">hi", 0, len(VERSIONS)) + b"".join(rows)

    def of(self, frame: memoryview) -> bytes:
        """Return the body of a response."""
        key, version = struct.unpack_from(">hh", frame)
        if key == 0:
            return self._produced
        if key == 1:
            return self._fetched[version]
        if key == 3:
            return self._metadata[version]
        return self._versions if key == 18 else bytes(8)


def _partitions(numbers: range, data: bytes, before: bytes) -> bytes:
    """Return the partitions of a fetch response; `before` are fields of newer versions."""
    return b"".join(
        struct.pack(">ihq", one, 0, 1 << 40) + before + struct.pack(">i", len(data)) + data
        for one in numbers
    )


class Target(asyncio.Protocol):
    """A connection to the target."""

    answers: Answers

    def __init__(self) -> None:
        self._data = bytearray()
        self._transport: asyncio.WriteTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        self._data += data
        position = 0
        with memoryview(self._data) as view:
            while len(view) - position >= 4:
                stop = position + 4 + int.from_bytes(view[position : position + 4], "big")
                if stop > len(view):
                    break
                body = self.answers.of(view[position + 4 : stop])
                head = (4 + len(body)).to_bytes(4, "big") + view[position + 8 : position + 12]
                self._transport.writelines([head, body])
                position = stop
        del self._data[:position]


class Half(asyncio.Protocol):
    """One of the two connections of a relay; data waits until the other one is there."""

    def __init__(self, other: Half | None = None) -> None:
        self.other = other
        self.waiting: list[bytes] = []
        self.transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.WriteTransport, transport)
        if self.other is not None:
            self.other.other = self
            self.transport.writelines(self.other.waiting)

    def data_received(self, data: bytes) -> None:
        if self.other is None or self.other.transport is None:
            self.waiting.append(data)
        else:
            self.other.transport.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


class Accepted(Half):
    """The connection of a client, which opens that to the target."""

    port = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        loop = asyncio.get_running_loop()
        opening = loop.create_connection(lambda: Half(self), HOST, self.port)
        self._opening = loop.create_task(opening)  # the loop itself keeps no task


async def _serve(protocol: Callable[[], asyncio.Protocol], prepare: Callable[[int], None]) -> None:
    server = await asyncio.get_running_loop().create_server(protocol, HOST, 0)
    port = server.sockets[0].getsockname()[1]
    prepare(port)
    print(port, flush=True)
    await asyncio.to_thread(sys.stdin.read)


@contextmanager
def stub(*arguments: str) -> Iterator[tuple[int, int]]:
    """Run this program; yield its process id and its port."""
    command = [sys.executable, "-m", "tests.tools.bench.gateway_stub", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield process.pid, int(process.stdout.readline())


def main() -> None:
    """Run the target or the relay."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.bench.gateway_stub")
    parser.add_argument("role", choices=("target", "relay"))
    parser.add_argument("port", type=int, nargs="?", default=0)
    parser.add_argument("--codec", default="none")
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--messages", type=int, default=1000)
    parser.add_argument("--bytes", type=int, default=100)
    parser.add_argument("--brokers", type=int, default=1)
    options = parser.parse_args()

    def prepare(port: int) -> None:
        if options.role == "target":
            Target.answers = Answers(options, port)

    Accepted.port = options.port
    uvloop.run(_serve(Target if options.role == "target" else Accepted, prepare))


if __name__ == "__main__":
    main()
