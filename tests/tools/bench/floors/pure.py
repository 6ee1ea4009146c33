"""Encode and decode messages in plain Python, with nothing else: the floor of the pure twin.

    python -m tests.tools.bench.floors.pure --bytes 100

For each message that is sent it calls a coroutine that packs the message, takes its CRC, appends it
to a buffer, and returns an object, which is awaited later; each 256 KiB are written to a TCP
connection, whose other end is a process that drops them. For each message that is read it unpacks
the header, takes the CRC, cuts out the value and makes a `ConsumerRecord`. Prints CPU seconds per
million messages.

What the pure twin takes beyond is what `send` and `getmany` do besides: checks of arguments and
state, the partition, the batch and its memory, responses, positions.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from typing import Final
from zlib import crc32

from aiokafka08 import ConsumerRecord
from tests.tools.bench.cases import BATCH_BYTES, GATHERED

_HEAD: Final = struct.Struct(">qiI")
_BODY: Final = struct.Struct(">bbii")

_DROP: Final = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
    while connection.recv(1 << 20):
        pass
"""


class Sent(int):
    """A message's number, to be awaited."""

    __slots__ = ()

    def __await__(self) -> Generator[object, None, int]:
        return self
        yield  # it is a generator all the same


async def send_all(count: int, value: bytes, write: Callable[[bytes], None]) -> None:
    """Send each message by a coroutine, and await all that it returns."""
    buffer = bytearray()

    async def send(value: bytes, number: int) -> Sent:
        body = _BODY.pack(0, 0, -1, len(value)) + value
        buffer.extend(_HEAD.pack(0, len(body) + 4, crc32(body)) + body)
        if len(buffer) >= BATCH_BYTES:
            write(bytes(buffer))
            buffer.clear()
        return Sent(number)

    for start in range(0, count, GATHERED):
        for sent in [await send(value, number) for number in range(start, start + GATHERED)]:
            await sent


def read_all(count: int, value: bytes) -> None:
    """Decode sets with as many messages as fit into 16 KiB."""
    body = _BODY.pack(0, 0, -1, len(value)) + value
    entry = _HEAD.pack(7, len(body) + 4, crc32(body)) + body
    message_set = memoryview(entry * (16_384 // len(entry)))
    read = 0
    while read < count:
        at = 0
        records = []
        while at < len(message_set):
            offset, size, crc = _HEAD.unpack_from(message_set, at)
            end = at + 12 + size
            assert crc32(message_set[at + 16 : end]) == crc
            key_size, value_size = _BODY.unpack_from(message_set, at + 16)[2:]
            assert key_size == -1
            content = bytes(message_set[end - value_size : end])
            records.append(
                ConsumerRecord("t", 0, offset, -1, None, None, content, 0, -1, value_size, ())
            )
            at = end
        read += len(records)


def measure(count: int, value: bytes) -> None:
    """Print what sending and reading take."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        with (
            subprocess.Popen([sys.executable, "-c", _DROP, port]),
            server.accept()[0] as connection,
        ):
            begun = time.process_time()
            asyncio.run(send_all(count, value, connection.sendall))
            sent = time.process_time() - begun
    begun = time.process_time()
    read_all(count, value)
    read = time.process_time() - begun
    print(f"send {sent / count * 1e6:.2f}, read {read / count * 1e6:.2f} CPU s per million")


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.bench.floors.pure")
    parser.add_argument("--bytes", type=int, default=100, help="size of a value")
    parser.add_argument("--messages", type=int, default=500_000)
    options = parser.parse_args()
    measure(options.messages, bytes(options.bytes))


if __name__ == "__main__":
    main()
