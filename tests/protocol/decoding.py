"""The server's side of decoding, and bytes fed without a socket, for tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from aiokafka08.protocol.api import Request, RequestHeader
from aiokafka08.protocol.connection import ClientConnection, MatchedResponse
from aiokafka08.protocol.frame import FrameReader
from aiokafka08.protocol.requests.registry import APIS
from aiokafka08.protocol.types import Buffer, compiled


@dataclass(slots=True)
class Envelope:
    """A request as a server reads it; `body` is None if the key or the version is unknown."""

    header: RequestHeader
    body: Request[Any] | None = None


def decode_request(frame: Buffer) -> Envelope:
    """Decode a request from its frame (without the size prefix); ignore bytes after the body.

    Raises:
        KafkaProtocolError: the frame is cut short or malformed.
    """
    header, pos = compiled(RequestHeader, 0).read(frame, 0, len(frame))
    request = APIS.get(header.api_key)
    if request is None or header.api_version not in request.versions:
        return Envelope(header)
    body, _ = compiled(request, header.api_version).read(frame, pos, len(frame))
    return Envelope(header, body)


def feed(reader: FrameReader, data: Buffer) -> Iterator[memoryview]:
    """Yield the frames that these bytes complete."""
    for count in _written(reader, data):
        yield from reader.received(count)


def receive(connection: ClientConnection, data: Buffer) -> Iterator[MatchedResponse]:
    """Yield the responses that these bytes complete."""
    for count in _written(connection.frames, data):
        yield from connection.received(count)


def pending_bytes(reader: FrameReader) -> int:
    """Return how many bytes of an incomplete frame the reader has received."""
    return reader._filled


def _written(reader: FrameReader, data: Buffer) -> Iterator[int]:
    """Write the bytes into the reader's buffer, part by part; yield the size of each part."""
    rest = memoryview(data)
    while rest:
        buffer = reader.get_buffer()
        count = min(len(buffer), len(rest))
        buffer[:count] = rest[:count]
        rest = rest[count:]
        yield count
