"""Match the responses on one connection to the requests in flight.

Invariant: a response carries the correlation id of the oldest request in flight, since brokers
respond in the order of the requests; with any other id the connection is unusable. The only
exception is the id 0 in a response to GroupCoordinator (docs/brokers.md 8.9).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from aiokafka08.errors import CorrelationIdError
from aiokafka08.protocol.api import (
    ApiKey,
    Request,
    Response,
    decode_correlation_id,
    decode_response,
    decode_response_in_steps,
    encode_request,
)
from aiokafka08.protocol.frame import DEFAULT_MAX_FRAME_BYTES, FrameReader
from aiokafka08.protocol.requests.produce import ProduceRequest
from aiokafka08.protocol.single_produce import decode_single_produce, encode_single_produce
from aiokafka08.protocol.types import Buffer

LARGE_RESPONSE_BYTES: Final = 1 << 14
"""A response of at least this size stays undecoded if its receiver can decode it `in_steps`."""


class InFlight(NamedTuple):
    """A request whose response hasn't arrived; `in_steps`: a large response stays undecoded."""

    correlation_id: int
    request: type[Request[Any]]
    version: int
    in_steps: bool


class UndecodedResponse(NamedTuple):
    """A large response as it arrived."""

    request: type[Request[Any]]
    version: int
    frame: memoryview

    def decode(self) -> Generator[None, None, Response]:
        """Decode it in steps, so that the receiver doesn't hold the event loop.

        Raises:
            KafkaProtocolError: it is malformed. The caller has to close the connection then.
        """
        return decode_response_in_steps(self.request, self.version, self.frame)


MatchedResponse: TypeAlias = tuple[int, Response | UndecodedResponse]
"""A response, after the correlation id of its request."""


class ClientConnection:
    """Pipeline requests on one connection and match the responses to them."""

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
        """The number of requests in flight."""
        return len(self._in_flight)

    def send(
        self, request: Request[Any], version: int, *, in_steps: bool = False
    ) -> tuple[int | None, list[Buffer]]:
        """Encode a request; return its correlation id and the buffers to write.

        The id is None if the broker sends no response to it. With `in_steps` its response is an
        `UndecodedResponse` if it is large.

        Raises:
            ValueError: the request can't be encoded in this version. Then it isn't in flight.
        """
        # Never 0: 0.8.2 responds to GroupCoordinator with that id (docs/brokers.md 8.9).
        correlation_id = self._next_id = self._next_id % 0x7FFFFFFF + 1
        buffers = None
        if isinstance(request, ProduceRequest):
            buffers = encode_single_produce(request, version, correlation_id, self._client_id)
        if buffers is None:
            buffers = encode_request(request, version, correlation_id, self._client_id)
        if not request.expects_response:
            return None, buffers
        self._in_flight.append(InFlight(correlation_id, type(request), version, in_steps))
        return correlation_id, buffers

    def received(self, count: int) -> Iterator[MatchedResponse]:
        """Yield the responses completed by `count` bytes written into `frames.get_buffer()`.

        Raises:
            KafkaProtocolError: a frame isn't the expected response (`CorrelationIdError`), is too
                large or malformed. It is raised while iterating. The caller has to close the
                connection then; `eof()` returns the requests that are lost.
        """
        return map(self._match, self.frames.received(count))

    def eof(self) -> list[int]:
        """Return the ids of the requests left without a response, oldest first, and forget them."""
        lost = [request.correlation_id for request in self._in_flight]
        self._in_flight.clear()
        return lost

    def _match(self, frame: memoryview) -> MatchedResponse:
        correlation_id = decode_correlation_id(frame)
        if not self._in_flight:
            raise CorrelationIdError(
                f"a response has the correlation id {correlation_id}; expected none, since no "
                "request is in flight"
            )
        expected = self._in_flight[0]
        if correlation_id != expected.correlation_id and not (
            # 0.8.2 sends 0 while it can't create the offsets topic (docs/brokers.md 8.9)
            correlation_id == 0 and expected.request.api is ApiKey.GROUP_COORDINATOR
        ):
            raise CorrelationIdError(
                f"a response has the correlation id {correlation_id}; expected "
                f"{expected.correlation_id}, of {expected.request.__name__} version "
                f"{expected.version}"
            )
        response: Response | UndecodedResponse | None = None
        if expected.in_steps and len(frame) >= LARGE_RESPONSE_BYTES:
            response = UndecodedResponse(expected.request, expected.version, frame)
        elif expected.request is ProduceRequest:
            response = decode_single_produce(expected.version, frame)
        if response is None:
            response = decode_response(expected.request, expected.version, frame)
        self._in_flight.popleft()
        return expected.correlation_id, response
