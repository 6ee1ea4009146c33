"""A gateway as a process that `hostile_peers` attack, and a target of today's versions.

`python -m tests.testing.attacked_gateway --max-held-bytes N` runs the gateway, and the target in
another process, so that memory and time of both aren't mixed up. The first line of the log ends
with the gateway's address. `hostile_run` starts it.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import uvloop

from aiokafka08._tools.gateway.gateway import Gateway
from aiokafka08._tools.gateway.options import gateway_options
from aiokafka08._tools.gateway.port_table import PortTable
from aiokafka08.protocol.record_batch import RecordBatchBuilder
from tests.brokers.ports import free_port

HOST = "127.0.0.1"
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
    port = 0

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
            body = answer(frame, self.port, self.fetched)
            if body is not None:
                self._transport.write((4 + len(body)).to_bytes(4, "big") + frame[4:8] + body)


def answer(frame: bytes, port: int, fetched: bytes = bytes(14)) -> bytes | None:
    """Return the body of the response to a request in today's versions; None: there is none.

    Args:
        frame: the request.
        port: that of the only broker.
        fetched: the response to a fetch.
    """
    key, version = struct.unpack_from(">hh", frame)
    if key == 3:
        broker = struct.pack(">iih9si", 1, 0, 9, HOST.encode(), port)
        return broker + (b"\xff\xff" + bytes(4) if version else b"") + bytes(4)
    if key == 1:
        (offset,) = struct.unpack_from(">q", frame, max(len(frame) - 24, 0))
        return None if offset >= _WAITS else fetched
    return bytes(8)  # no topics, and a throttle time


def _run_target() -> None:
    async def run() -> None:
        Target.fetched = _fetched()
        server = await asyncio.get_running_loop().create_server(Target, HOST, 0)
        Target.port = server.sockets[0].getsockname()[1]
        print(Target.port, flush=True)
        await asyncio.to_thread(sys.stdin.read)

    asyncio.run(run())


def _run_gateway(max_held_bytes: int) -> None:
    command = [sys.executable, "-m", "tests.testing.attacked_gateway", "--target"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as target:
        assert target.stdout is not None
        address = f"{HOST}:{int(target.stdout.readline())}"
        options = gateway_options(address, f"{HOST}:{free_port()}")
        options = replace(options, max_held_bytes=max_held_bytes)
        logging.basicConfig(level=logging.INFO)
        uvloop.run(_serve(Gateway(options, PortTable())))  # as the command does


async def _serve(gateway: Gateway) -> None:
    await gateway.start()
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", action="store_true", help="run the target")
    parser.add_argument("--max-held-bytes", type=int, default=1 << 30)
    parser.add_argument("--quiet", action="store_true", help="ignored")
    options = parser.parse_args()
    run: Callable[[], None] = (
        _run_target if options.target else lambda: _run_gateway(options.max_held_bytes)
    )
    run()


if __name__ == "__main__":
    main()
