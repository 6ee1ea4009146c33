"""Hostile clients of a broker: many connections that try to exhaust its memory or its time.

`python -m tests.testing.hostile_peers HOST:PORT --connections 1000` runs them until its input ends.
The test of the embedded cluster and `tests.tools.bench.hostile` start it as a process, so that the
attackers don't take the time of the client that they measure.

An attack is a coroutine that uses one connection. It is repeated, on a new connection, when it has
ended or when the broker has closed the connection.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import itertools
import os
import struct
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka08.protocol.api import Request, Topic, encode_request
from aiokafka08.protocol.compression import Codec, compress
from aiokafka08.protocol.message_set import encode_entry
from aiokafka08.protocol.requests.committed_offsets import OffsetFetchRequest
from aiokafka08.protocol.requests.fetch import FetchPartition, FetchRequest
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.protocol.requests.produce import ProducePartition, ProduceRequest

FULL_TOPIC = "full"
"""A topic with data in partition 0, for `hoard_responses`."""
LARGEST_REQUEST_BYTES = 100 << 20

_numbers = itertools.count()


class Peer:
    """One connection of an attacker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def request(self, request: bytes) -> None:
        """Send a request and read its response."""
        await self.send(request)
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        while size:
            size -= len(await self._reader.readexactly(min(size, 1 << 16)))

    async def until_closed(self) -> None:
        await self._reader.read()

    def stop_reading(self) -> None:
        self._writer.transport.pause_reading()  # type: ignore[attr-defined]


Attack = Callable[[Peer], Awaitable[None]]


def encoded(request: Request[Any], version: int = 0) -> bytes:
    return b"".join(encode_request(request, version, 1, "hostile"))


def gzipped(plain: bytes) -> bytes:
    """Return a Produce request with a gzip wrapper around a set."""
    wrapper = encode_entry(0, None, compress(Codec.GZIP, plain), attributes=Codec.GZIP)
    produced = [Topic("bombs", [ProducePartition(0, wrapper)])]
    return encoded(ProduceRequest(1, 1000, produced))


@functools.cache
def bomb(plain_bytes: int) -> bytes:
    """One message of zeros, in a thousandth of its size."""
    return gzipped(encode_entry(0, None, bytes(plain_bytes - 26)))


@functools.cache
def fine_bomb(plain_bytes: int) -> bytes:
    """As many empty messages as possible."""
    message = encode_entry(0, None, b"")
    return gzipped(message * (plain_bytes // len(message)))


@functools.cache
def many_committed(topics: int) -> bytes:
    """OffsetFetch of many topics."""
    body = b"".join(struct.pack(">h7sii", 7, b"%07d" % number, 1, 0) for number in range(topics))
    head = encoded(OffsetFetchRequest("g", []), 1)[4:-4]
    frame = head + struct.pack(">i", topics) + body
    return struct.pack(">i", len(frame)) + frame


@functools.cache
def new_topics(topics: int) -> bytes:
    """Metadata for topics that don't exist yet; `renamed` makes others of them."""
    return encoded(MetadataRequest([f"new-0000-{number}" for number in range(topics)]))


def renamed(request: bytes) -> bytes:
    return request.replace(b"new-0000", b"new-%04d" % next(_numbers))


# --- attacks --------------------------------------------------------------------------------------


async def announce(peer: Peer) -> None:
    """Announce the largest request, and send 10 bytes of it."""
    await peer.send(struct.pack(">i", LARGEST_REQUEST_BYTES) + bytes(10))
    await peer.until_closed()


async def send_most(peer: Peer) -> None:
    """Send the largest request, but not its end."""
    await peer.send(struct.pack(">i", LARGEST_REQUEST_BYTES))
    for _ in range(99):
        await peer.send(bytes(1 << 20))
    await peer.until_closed()


async def queue_empty_requests(peer: Peer) -> None:
    """Send empty requests behind one that waits."""
    waiting = [Topic(FULL_TOPIC, [FetchPartition(0, 1 << 40, 1)])]
    await peer.send(encoded(FetchRequest(-1, 3_600_000, 1 << 30, waiting)))
    for _ in range(100):
        await peer.send(bytes(4) * 16_000)
    await peer.until_closed()


async def hoard_responses(peer: Peer) -> None:
    """Fetch all of a partition, again and again, and read nothing."""
    peer.stop_reading()
    whole = [Topic(FULL_TOPIC, [FetchPartition(0, 0, 2**31 - 1)])]
    for _ in range(100):
        await peer.send(encoded(FetchRequest(-1, 0, 0, whole)))
    await asyncio.sleep(3600)


MIB = 1 << 20

REQUESTS: dict[str, Callable[[], bytes]] = {
    "create topics": lambda: new_topics(5_000),
    "create too many topics": lambda: new_topics(200_000),
    "fetch many offsets": lambda: many_committed(2_000_000),
    "list all topics": lambda: encoded(MetadataRequest([])),
    "send bomb": lambda: bomb(100 * MIB),
    "send too large bomb": lambda: bomb(200 * MIB),
    "send fine bomb": lambda: fine_bomb(20 * MIB),
}


def requesting(name: str) -> Attack:
    """Return an attack that sends a request and reads the response."""

    async def attack(peer: Peer) -> None:
        await peer.request(renamed(REQUESTS[name]()))

    return attack


ATTACKS: dict[str, Attack] = {
    "announce": announce,
    "send most": send_most,
    "queue empty requests": queue_empty_requests,
    "hoard responses": hoard_responses,
    **{name: requesting(name) for name in REQUESTS},
}


async def attack_again_and_again(attack: Attack, host: str, port: int) -> None:
    while True:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                await attack(Peer(reader, writer))
            finally:
                writer.transport.abort()
        await asyncio.sleep(0.01)


async def run(address: str, connections: int, names: list[str]) -> None:
    """Attack until the input of this process ends."""
    host, _, port = address.rpartition(":")
    for name in names:
        REQUESTS.get(name, bytes)()  # makes it, while nothing is measured
    attacks = itertools.cycle([ATTACKS[name] for name in names])
    tasks = [
        asyncio.create_task(attack_again_and_again(next(attacks), host, int(port)))
        for _ in range(connections)
    ]
    print("attacking", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for task in tasks:
        task.cancel()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--attacks", nargs="+", choices=ATTACKS, default=list(ATTACKS))
    options = parser.parse_args()
    os.nice(10)  # on few processors, measure the broker rather than the scheduler
    asyncio.run(run(options.address, options.connections, options.attacks))


if __name__ == "__main__":
    main()
