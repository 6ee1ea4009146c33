"""A client with one blocking socket: it sends and receives frames, and nothing more."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Any, Self, TypeVar

from aiokafka08.protocol.api import Request, Response, decode_response, encode_request

R = TypeVar("R", bound=Response)

LONG_MS = 120_000
"""A `max_wait_ms` longer than any timeout of a test."""


class WireClient:
    """One connection to one broker.

    Any wait beyond `timeout` seconds fails the test. A test shows that a response comes "at once"
    by a request that may wait longer than that (`LONG_MS`).
    """

    def __init__(self, address: tuple[str, int], timeout: float = 30.0) -> None:
        self.socket = socket.create_connection(address, timeout=timeout)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.socket.close()

    def send(self, request: Request[Any], version: int = 0) -> int:
        self._correlation_id += 1
        frame = encode_request(request, version, self._correlation_id, "peer")
        self.socket.sendall(b"".join(frame))
        return self._correlation_id

    def receive(self, request: type[Request[R]], layout: int = 0) -> R:
        return decode_response(request, layout, self.read_frame())

    def request(self, request: Request[Any], version: int = 0, layout: int | None = None) -> Any:
        """Send a request and return the response; by default its layout is that of `version`."""
        correlation_id = self.send(request, version)
        frame = self.read_frame()
        assert int.from_bytes(frame[:4], "big", signed=True) == correlation_id
        return decode_response(type(request), version if layout is None else layout, frame)

    def read_frame(self) -> bytes:
        """Return the next frame, without its size."""
        return self.read_exactly(int.from_bytes(self.read_exactly(4), "big"))

    def read_exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            part = self.socket.recv(count - len(data))
            if not part:
                raise EOFError(f"closed after {len(data)} of {count} bytes")
            data += part
        return bytes(data)

    def is_closed(self) -> bool:
        """Wait for data; return whether the broker has closed the connection instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def is_silent(self, seconds: float = 0.15) -> bool:
        """Return whether nothing arrives for so long, not even a close."""
        before = self.socket.gettimeout()
        self.socket.settimeout(seconds)
        try:
            self.socket.recv(1)
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(before)
        return False
