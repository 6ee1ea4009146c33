"""A gateway on free ports, and raw clients of it."""

from __future__ import annotations

import asyncio
import ssl
import struct
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from aiokafka08._tools.gateway.gateway import Gateway
from aiokafka08._tools.gateway.layouts import apis
from aiokafka08._tools.gateway.measurements import NO_MEASUREMENTS, Measurements
from aiokafka08._tools.gateway.options import gateway_options
from aiokafka08._tools.gateway.port_table import PortTable
from aiokafka08._tools.gateway.translation import Budget, Translation
from aiokafka08.protocol.api import Request, decode_response, encode_request
from tests.brokers.ports import free_ports
from tests.support.stream_server import StreamServer

HOST = "127.0.0.1"

_FETCH, _METADATA_0, _METADATA = b"\0\1\0\1", b"\0\3\0\0", b"\0\3\0\1"
_API_VERSIONS = b"\0\x12\0\0"


@asynccontextmanager
async def running(
    targets: str,
    table: PortTable | None = None,
    measurements: Measurements = NO_MEASUREMENTS,
    **changed: Any,
) -> AsyncIterator[Gateway]:
    """Run a gateway to these brokers; `changed` are fields of its options."""
    options = replace(gateway_options(targets, f"{HOST}:{free_ports()}"), **changed)
    gateway = Gateway(options, table or PortTable(), measurements)
    await gateway.start()
    try:
        yield gateway
    finally:
        await gateway.stop()


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """Return the files of a certificate that is its own authority, and of its key."""
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=me -keyout key.pem"
    command += f" -out cert.pem -addext subjectAltName=IP:{HOST}"
    command += " -addext keyUsage=digitalSignature,keyCertSign"
    subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    return folder / "cert.pem", folder / "key.pem"


def first_port(gateway: Gateway) -> int:
    return next(iter(gateway.ports.values()))


def responded(translation: Translation, answer: bytes, budget: Budget | None = None) -> bytes:
    """Return the client's response to a broker's, which ends the translation."""
    made = translation.respond(memoryview(answer), budget or Budget())
    assert isinstance(made, list)
    return b"".join(made)


class RawClient:
    """A connection that sends and reads frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, port: int) -> Self:
        return cls(*await asyncio.open_connection(HOST, port))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.writer.transport.abort()
        try:
            await self.writer.wait_closed()
        except OSError:
            pass

    def send(self, body: bytes) -> None:
        self.writer.write(len(body).to_bytes(4, "big") + body)

    def send_request(self, request: Request, version: int, correlation_id: int = 1) -> None:
        frame = encode_request(request, version, correlation_id, "raw client")
        self.writer.write(b"".join(frame))

    async def frame(self) -> bytes:
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        return await self.reader.readexactly(size)

    async def call(self, request: Request, version: int) -> Any:
        """Send a request and return its response, which has its correlation id."""
        self.send_request(request, version)
        frame = await self.frame()
        assert frame[:4] == bytes((0, 0, 0, 1))
        return decode_response(type(request), version, frame)

    async def is_closed(self) -> bool:
        """Read to the end; return whether that comes without any data."""
        try:
            return not await self.reader.read()
        except ConnectionError:
            return True


@asynccontextmanager
async def connected(targets: str, **changed: Any) -> AsyncIterator[tuple[Gateway, RawClient]]:
    """Run a gateway, and connect to its first listener."""
    async with (
        running(targets, **changed) as gateway,
        await RawClient.connect(first_port(gateway)) as client,
    ):
        yield gateway, client


class ScriptedBroker:
    """A listener that answers Metadata as node 0, and each other frame as `answer` says.

    It answers a gateway's own ApiVersions, too.

    Args:
        answer: from the frame of a request to that of the response; None closes the connection,
            b"" is no response.
        tls: its TLS (default None: none).

    Attributes:
        reads: it reads no further request while this isn't set.
        is_of_0_9: whether the gateway takes it for a broker of 0.9.
    """

    def __init__(self, answer: Any, tls: ssl.SSLContext | None = None) -> None:
        self.answer = answer
        self.is_of_0_9 = False
        self.requests: list[bytes] = []
        self.reads = asyncio.Event()
        self.reads.set()
        self._server = StreamServer(self._serve, tls=tls)
        self._writers: list[asyncio.StreamWriter] = []
        self._ended: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self.listen()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._server.close()

    def listen(self) -> None:
        """Accept connections, at the same port as before."""
        self._server.open()

    def stop_listening(self) -> None:
        """Accept no more connections."""
        self._server.refuse()

    @property
    def port(self) -> int:
        """Where it listens, or did."""
        return self._server.port

    def send(self, frame: bytes) -> None:
        """Send a response that `answer` has left out, over the connection that was opened last."""
        self._writers[-1].write(len(frame).to_bytes(4, "big") + frame)

    def end_responses(self) -> None:
        """Send the end of all connections, at once."""
        for writer in self._writers:
            if not writer.is_closing() and not writer.transport.is_closing():
                writer.write_eof()
                self._ended.add(writer)

    @property
    def connection_count(self) -> int:
        """How many connections it has accepted."""
        return len(self._writers)

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def metadata(self, nodes: dict[int, int] | None = None) -> bytes:
        """Return the body of a Metadata response of version 1 with these nodes and ports."""
        nodes = {0: self.port} if nodes is None else nodes
        rack, controller = (b"", b"") if self.is_of_0_9 else (b"\xff\xff", bytes(4))
        brokers = b"".join(
            node.to_bytes(4, "big") + b"\0\x09127.0.0.1" + port.to_bytes(4, "big") + rack
            for node, port in nodes.items()
        )
        return len(nodes).to_bytes(4, "big") + brokers + controller + bytes(4)

    def own_answer(self, frame: bytes) -> bytes | None:
        """Return the body of the response to a gateway's own request; None: it isn't such a one."""
        is_old, begin = self.is_of_0_9, frame[:4]
        if b"aiokafka08-gateway" not in frame:
            return None
        if begin == _METADATA or (is_old and begin == _METADATA_0):
            return self.metadata()
        if begin == _API_VERSIONS and not is_old:
            ranges = (struct.pack(">hhh", key, 0, 1 if key == 3 else 20) for key in apis())
            return struct.pack(">hi", 0, len(apis())) + b"".join(ranges)
        return bytes(8) if is_old and begin == _FETCH else None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        while await self.reads.wait():
            size = int.from_bytes(await reader.readexactly(4), "big")
            frame = await reader.readexactly(size)
            if (own := self.own_answer(frame)) is not None:
                body: bytes | None = frame[4:8] + own
            else:
                self.requests.append(frame)
                body = self.answer(frame)
            if body is None:
                break
            if body and writer not in self._ended:
                writer.write(len(body).to_bytes(4, "big") + body)
