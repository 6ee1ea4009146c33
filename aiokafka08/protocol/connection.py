"""What is in flight on one connection: correlation ids, and answers in the order of the requests.

Law: one FIFO, kept only here; an answer must carry the id of the oldest request in flight, else
the stream can't be trusted any more. No sockets and no clock: bytes in, answers out
(`net.transport` does the I/O, `frame` the cutting, `api` the decoding).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from aiokafka08.errors import CorrelationIdError
from aiokafka08.protocol.api import (
    GroupCoordinatorRequest,
    Request,
    Response,
    decode_correlation_id,
    decode_response,
    encode_request,
)
from aiokafka08.protocol.frame import DEFAULT_MAX_FRAME_BYTES, FrameReader
from aiokafka08.protocol.types import Buffer


class InFlight(NamedTuple):
    """A request whose answer is still to come."""

    correlation_id: int
    request: type[Request[Any]]
    version: int


class MatchedResponse(NamedTuple):
    """A response, and the correlation id of the request that it answers."""

    correlation_id: int
    response: Response


class ClientConnection:
    """Pipelines requests on one connection and matches the answers to them."""

    __slots__ = ("_client_id", "_in_flight", "_next_id", "frames")

    def __init__(
        self,
        client_id: str,
        *,
        max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
        peer: str = "the broker",
    ) -> None:
        self.frames = FrameReader(max_frame_bytes, peer)
        self._client_id = client_id
        self._in_flight: deque[InFlight] = deque()
        self._next_id = 0

    @property
    def in_flight(self) -> int:
        """How many requests wait for their answers."""
        return len(self._in_flight)

    def send(self, request: Request[Any], version: int) -> tuple[int | None, list[Buffer]]:
        """The correlation id and the buffers to write; the id is None where no answer will come.

        Raises:
            ValueError: the request can't be encoded in this version; nothing is in flight for it.
        """
        # 0 is left out: 0.8.2 answers it to GroupCoordinator whatever was asked (brokers.md 8.9).
        correlation_id = self._next_id = self._next_id % 0x7FFFFFFF + 1
        buffers = encode_request(request, version, correlation_id, self._client_id)
        if not request.expects_response:
            return None, buffers
        self._in_flight.append(InFlight(correlation_id, type(request), version))
        return correlation_id, buffers

    def received(self, count: int) -> Iterator[MatchedResponse]:
        """Yields the answers that `count` bytes put into `frames.get_buffer()` complete.

        Raises:
            KafkaProtocolError: a frame isn't the awaited answer (`CorrelationIdError`), is too
                large or malformed. The connection is of no use then; `eof()` tells what is lost.
        """
        return map(self._answer, self.frames.received(count))

    def receive(self, data: Buffer) -> Iterator[MatchedResponse]:
        """`received` for bytes that are at hand."""
        return map(self._answer, self.frames.feed(data))

    def eof(self) -> list[int]:
        """The connection is gone: the ids that were never answered, oldest first."""
        lost = [request.correlation_id for request in self._in_flight]
        self._in_flight.clear()
        return lost

    def _answer(self, frame: memoryview) -> MatchedResponse:
        correlation_id = decode_correlation_id(frame)
        if not self._in_flight:
            raise CorrelationIdError(
                f"an answer with correlation id {correlation_id} came, but nothing was asked"
            )
        awaited = self._in_flight[0]
        if correlation_id != awaited.correlation_id and not (
            # 0.8.2 says 0 while it can't create the offsets topic (docs/brokers.md 8.9)
            correlation_id == 0 and awaited.request is GroupCoordinatorRequest
        ):
            raise CorrelationIdError(
                f"an answer carries the correlation id {correlation_id}, awaited was "
                f"{awaited.correlation_id} ({awaited.request.__name__} version {awaited.version})"
            )
        response = decode_response(awaited.request, awaited.version, frame)
        self._in_flight.popleft()
        return MatchedResponse(awaited.correlation_id, response)
