"""A gateway as a process that `hostile_peers` attack, and a target of today's versions.

`python -m tests.testing.attacked_gateway --max-held-bytes N` runs the gateway, and the two brokers
of the target in processes of their own, so that memory and time of them aren't mixed up. The first
line of the log ends with the address for the first broker, the second line with that for the other
one: a client there doesn't wait for a broker that is attacked. `hostile_run` starts it.

With `--relay` it is a plain relay to the same target in place of a gateway: the floor under the
gateway's times. It only passes bytes, and reads no more from one side than the other one takes.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import struct
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import cast

import uvloop

from aiokafka08._core.garbage import short_holds
from aiokafka08._tools.gateway.gateway import Gateway
from aiokafka08._tools.gateway.layouts import apis
from aiokafka08._tools.gateway.options import gateway_options
from aiokafka08._tools.gateway.port_table import PortTable
from aiokafka08.protocol.record_batch import RecordBatchBuilder
from tests.brokers.ports import free_port

HOST = "127.0.0.1"
_log = logging.getLogger(__name__)
_WAITS = 1 << 40
"""A fetch from this offset is never answered."""


def _fetched() -> bytes:
    """Return a response of Fetch 10: 16 MB of the partition that `hostile_peers` read."""
    builder = RecordBatchBuilder()
    for _ in range(2):
        builder.append(None, bytes(500_000), 0)
    records = b"".join(builder.build(2 * number) for number in range(16))
    head = struct.pack(">ihiih4sii", 0, 0, 0, 1, 4, b"full", 1, 0)
    return head + struct.pack(">hqqqii", 0, 32, 32, 0, 0, len(records)) + records


class Target(asyncio.Protocol):
    """A connection to the target: it answers each request, and has one topic."""

    fetched = b""
    ports: Sequence[int] = ()

    def __init__(self) -> None:
        self._data = bytearray()
        self._is_paused = False
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def pause_writing(self) -> None:
        self._is_paused = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._is_paused = False
        self.data_received(b"")
        if not self._is_paused:
            self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= 4 and not self._is_paused:
            size = int.from_bytes(self._data[:4], "big")
            if len(self._data) < 4 + size:
                break
            frame = bytes(self._data[4 : 4 + size])
            del self._data[: 4 + size]
            body = answer(frame, self.ports, self.fetched)
            if body is not None:
                self._transport.write((4 + len(body)).to_bytes(4, "big") + frame[4:8] + body)


def answer(frame: bytes, ports: Sequence[int], fetched: bytes = bytes(14)) -> bytes | None:
    """Return the body of the response to a request in today's versions; None: there is none.

    Args:
        frame: the request.
        ports: those of the brokers, whose ids begin with 0.
        fetched: the response to a fetch.
    """
    key, version = struct.unpack_from(">hh", frame)
    if key == 3:
        rack = b"\xff\xff" if version else b""
        brokers = [
            struct.pack(">ih9si", node, 9, HOST.encode(), port) + rack
            for node, port in enumerate(ports)
        ]
        controller = bytes(4) if version else b""
        return len(brokers).to_bytes(4, "big") + b"".join(brokers) + controller + bytes(4)
    if key == 1:
        (offset,) = struct.unpack_from(">q", frame, max(len(frame) - 24, 0))
        return None if offset >= _WAITS else fetched
    if key == 18:
        known = {api.key: api.versions for api in apis().values() if api.versions}
        known[3] = range(2)  # see above
        ranges = [(one, versions[0], versions[-1]) for one, versions in known.items()]
        listed = b"".join(struct.pack(">3h", *one) for one in ranges)
        return bytes(2) + len(ranges).to_bytes(4, "big") + listed
    if (key, version) == (2, 0):  # a client of the relay
        return bytes(4)  # no topics
    return bytes(8)  # no topics, and a throttle time


class RelayHalf(asyncio.Protocol):
    """One of the two connections of a relay.

    Args:
        port: that of the target.
        other: the client's connection; None: this is the client's.
    """

    def __init__(self, port: int, other: RelayHalf | None = None) -> None:
        self._port = port
        self.other = other
        self.transport: asyncio.Transport | None = None
        self._waiting: list[bytes] = []  # until the other one is there
        self._opening: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        if self.other is None:
            self._opening = asyncio.get_running_loop().create_task(self._open())
        elif self.other.transport is None:  # the client has gone
            self.transport.abort()
        else:
            self.other.other = self
            self.transport.writelines(self.other._waiting)
            self.other.transport.resume_reading()

    async def _open(self) -> None:
        assert self.transport is not None
        self.transport.pause_reading()
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: RelayHalf(self._port, self), HOST, self._port)
        except OSError:
            if self.transport is not None:
                self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self.other is None or self.other.transport is None:
            self._waiting.append(data)
        else:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


def _run_broker(number: int, ports: Sequence[int]) -> None:
    async def run() -> None:
        Target.fetched, Target.ports = _fetched(), ports
        await asyncio.get_running_loop().create_server(Target, HOST, ports[number])
        print("listening", flush=True)
        await asyncio.to_thread(sys.stdin.read)

    asyncio.run(run())


def _run_gateway(max_held_bytes: int, *, is_relay: bool) -> None:
    ports = [free_port() for _ in range(2)]
    command = [sys.executable, "-m", "tests.testing.attacked_gateway", "--ports", *map(str, ports)]
    with ExitStack() as brokers:
        for number in range(2):
            broker = brokers.enter_context(
                subprocess.Popen(
                    [*command, "--broker", str(number)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
            )
            assert broker.stdout is not None
            assert broker.stdout.readline() == b"listening\n"
        logging.basicConfig(level=logging.INFO)
        if is_relay:
            uvloop.run(_relay(ports))
            return
        options = gateway_options(f"{HOST}:{ports[0]}", f"{HOST}:{free_port()}")
        options = replace(options, max_held_bytes=max_held_bytes)
        uvloop.run(_serve(Gateway(options, PortTable())))  # as the command does


async def _serve(gateway: Gateway) -> None:
    await gateway.start()
    with short_holds():
        await asyncio.Event().wait()


async def _relay(ports: Sequence[int]) -> None:
    loop = asyncio.get_running_loop()
    with short_holds():
        for port in ports:
            server = await loop.create_server(partial(RelayHalf, port), HOST, 0)
            _log.info("listening on %s:%d", *server.sockets[0].getsockname())
        await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--broker", type=int, metavar="NUMBER", help="run one of the brokers")
    parser.add_argument("--ports", type=int, nargs="+", help="those of all brokers")
    parser.add_argument("--max-held-bytes", type=int, default=1 << 30)
    parser.add_argument("--relay", action="store_true", help="run a plain relay")
    parser.add_argument("--quiet", action="store_true", help="ignored")
    options = parser.parse_args()
    if options.broker is None:
        _run_gateway(options.max_held_bytes, is_relay=options.relay)
    else:
        _run_broker(options.broker, options.ports)


if __name__ == "__main__":
    main()
