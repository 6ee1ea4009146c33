"""Send Metadata, Produce and Fetch v0 over a blocking socket, without aiokafka08.

The client must not decide itself if a broker is ready for it, and tests read a log without trusting
the code under test. Only uncompressed messages of format 0 are supported.
"""

from __future__ import annotations

import socket
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(slots=True)
class MetadataView:
    """The Metadata response of one broker."""

    brokers: dict[int, tuple[str, int]] = field(default_factory=dict)
    topic_errors: dict[str, int] = field(default_factory=dict)
    leaders: dict[str, dict[int, int]] = field(default_factory=dict)


class Message(NamedTuple):
    """One message of a log."""

    offset: int
    key: bytes | None
    value: bytes | None


class BrokerError(Exception):
    """The broker responded with an error code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"error {code}")
        self.code = code


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def number(self, code: str) -> int:
        (value,) = struct.unpack_from(f">{code}", self._data, self._at)
        self._at += struct.calcsize(f">{code}")
        return int(value)

    def text(self) -> str:
        size = self.number("h")
        self._at += size
        return self._data[self._at - size : self._at].decode()

    def data(self) -> bytes | None:
        size = self.number("i")
        if size < 0:
            return None
        self._at += size
        return self._data[self._at - size : self._at]

    def count(self) -> range:
        return range(self.number("i"))


def call(port: int, api_key: int, api_version: int, body: bytes, timeout: float = 20.0) -> bytes:
    """Send one request on a new connection; return the response after the correlation id."""
    request = struct.pack(">hhih7s", api_key, api_version, 1, 7, b"harness") + body
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        with connection.makefile("rb") as stream:
            head = stream.read(4)
            if len(head) < 4:
                raise ConnectionError(f"the broker on port {port} closed without a response")
            (size,) = struct.unpack(">i", head)
            response = stream.read(size)
    if len(response) < size:
        raise ConnectionError(f"the broker on port {port} closed within its response")
    return response[4:]


def metadata(port: int, topics: Iterable[str] = (), timeout: float = 20.0) -> MetadataView:
    """Return Metadata v0 of some topics, or of all; 0.8.0 to 4.1.0 understand it."""
    names = [_text(name) for name in topics]
    body = struct.pack(">i", len(names)) + b"".join(names)
    reader = _Reader(call(port, 3, 0, body, timeout))
    view = MetadataView()
    for _ in reader.count():
        node_id = reader.number("i")
        view.brokers[node_id] = (reader.text(), reader.number("i"))
    for _ in reader.count():
        error, topic = reader.number("h"), reader.text()
        view.topic_errors[topic] = error
        leaders = view.leaders[topic] = {}
        for _ in reader.count():
            reader.number("h")  # error 9 beside a leader is normal while a replica is down
            partition, leader = reader.number("i"), reader.number("i")
            leaders[partition] = leader
            for _ in range(2):  # replicas, isr: stale on 0.8, so not used
                for _ in reader.count():
                    reader.number("i")
    return view


def produce(
    port: int, topic: str, partition: int, messages: Iterable[tuple[bytes | None, bytes | None]]
) -> int:
    """Produce (key, value) pairs with acks=-1, and return the first offset."""
    entries = []
    for key, value in messages:
        body = b"\0\0" + _data(key) + _data(value)  # magic 0, attributes 0
        message = struct.pack(">I", zlib.crc32(body)) + body
        entries.append(struct.pack(">qi", 0, len(message)) + message)
    body = struct.pack(">hii", -1, 15000, 1) + _text(topic)
    body += struct.pack(">ii", 1, partition) + _data(b"".join(entries))
    reader = _single_partition(call(port, 0, 0, body))
    _raise_for(reader.number("h"))
    return reader.number("q")


def fetch(
    port: int, topic: str, partition: int, offset: int = 0, max_bytes: int = 4 * 1024 * 1024
) -> list[Message]:
    """Fetch once, without waiting, and return the complete messages."""
    body = struct.pack(">iiii", -1, 0, 0, 1) + _text(topic)
    body += struct.pack(">iiqi", 1, partition, offset, max_bytes)
    reader = _single_partition(call(port, 1, 0, body))
    _raise_for(reader.number("h"))
    reader.number("q")  # high watermark
    messages = []
    entries = _Reader(reader.data() or b"")
    while entries.left >= 12:
        at, size = entries.number("q"), entries.number("i")
        if size > entries.left:  # a partial message, or the filler of a modern broker
            break
        entries.number("i")  # crc
        magic, attributes = entries.number("b"), entries.number("b")
        if magic or attributes & 7:
            raise ValueError(f"message {magic=} {attributes=}: expected plain format 0")
        messages.append(Message(at, entries.data(), entries.data()))
    return messages


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _data(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def _single_partition(response: bytes) -> _Reader:
    """Skip to the error code of a response with one topic and one partition."""
    reader = _Reader(response)
    reader.count()
    reader.text()
    reader.count()
    reader.number("i")
    return reader


def _raise_for(error: int) -> None:
    if error:
        raise BrokerError(error)
