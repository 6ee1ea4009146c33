"""The floors of `aiokafka08 produce`: what the broker takes, and what reading the lines takes.

    python -m tests.tools.bench.floors.produce_lines send 127.0.0.1:9092 TOPIC --lines 3000000
    python -m tests.tools.bench.floors.produce_lines send 127.0.0.1:9092 TOPIC --in-flight 2
    cat FILE | python -m tests.tools.bench.floors.produce_lines split

`send` writes Produce requests (version 0, acks=-1) of one message set each to a bare blocking
socket. The set is encoded before, once: lines of 100 bytes in message format 0, as many as fit
`--set-bytes`. As many requests as `--in-flight` says wait for their responses. No client can be
faster with sets of that size, since this one does nothing but write them and read the
responses.

`split` reads stdin as `produce` does, cuts it into lines and appends them to message sets, which it
drops: what `produce` takes without a producer and without a broker.

`tests.tools.bench.command_line` runs both beside `produce` and kcat.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import struct
import sys
from io import BufferedReader

from aiokafka08._tools.cli.moving.pipes import read_blocks
from aiokafka08._tools.records.raw import RawDecoder, RawInput, RawLayout
from aiokafka08.protocol.api import Topic, encode_request
from aiokafka08.protocol.compression import Codec
from aiokafka08.protocol.message_set import BinaryColumn, MessageSetBuilder
from aiokafka08.protocol.requests.produce import ProducePartition, ProduceRequest

SET_BYTES = 256 * 1024
LINE = b"x" * 99
_SIZE = struct.Struct(">i")


def send(address: str, topic: str, lines: int, set_bytes: int, in_flight: int) -> None:
    """Send the lines, and wait for all responses."""
    builder = MessageSetBuilder(0, Codec.NONE)
    values = [LINE] * (set_bytes // len(LINE))
    in_set = builder.extend(None, values, -1, 0, set_bytes)
    partition = ProducePartition(0, builder.build())
    request = ProduceRequest(-1, 30_000, [Topic(topic, [partition])])
    frame = b"".join(encode_request(request, 0, 1, "floor"))
    host, port = address.split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        responses = connection.makefile("rb")
        pending = 0
        for _ in range(-(-lines // in_set)):
            connection.sendall(frame)
            pending += 1
            if pending == in_flight:
                _receive(responses, len(topic))
                pending -= 1
        for _ in range(pending):
            _receive(responses, len(topic))


def _receive(responses: BufferedReader, topic_bytes: int) -> None:
    (size,) = _SIZE.unpack(responses.read(4))
    response = responses.read(size)
    (error,) = struct.unpack_from(">h", response, 4 + 4 + 2 + topic_bytes + 4 + 4)
    assert not error, error


async def split() -> None:
    """Read stdin to its end."""
    decoder = RawDecoder(RawLayout(), RawInput())
    async for block in read_blocks(sys.stdin.fileno()):
        values = decoder.decode(block).values
        assert isinstance(values, BinaryColumn)
        start = 0
        while start < len(values):
            builder = MessageSetBuilder(0, Codec.NONE)
            start = builder.extend(None, values, -1, start, SET_BYTES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    sending = commands.add_parser("send", help="send ready message sets")
    sending.add_argument("address", help="HOST:PORT of the leader of the topic's partition 0")
    sending.add_argument("topic")
    sending.add_argument("--lines", type=int, default=3_000_000)
    sending.add_argument("--set-bytes", type=int, default=SET_BYTES)
    sending.add_argument("--in-flight", type=int, default=1)
    commands.add_parser("split", help="read stdin, cut it and append")
    options = parser.parse_args()
    if options.command == "send":
        send(options.address, options.topic, options.lines, options.set_bytes, options.in_flight)
    else:
        asyncio.run(split())


if __name__ == "__main__":
    main()
