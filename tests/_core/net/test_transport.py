"""`BrokerConnection`: pipelining, matching of responses, backpressure, silence, closing, TLS."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from aiokafka08._core.net.config import NetConfig
from aiokafka08._core.net.transport import BrokerConnection, next_silence_check_s, open_connection
from aiokafka08._core.net.versions import BrokerLine, BrokerVersion
from aiokafka08.errors import (
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    UnsupportedVersionError,
)
from aiokafka08.protocol.api import Topic, encode_response
from aiokafka08.protocol.connection import ClientConnection
from aiokafka08.protocol.requests.groups import (
    GroupCoordinatorRequest,
    GroupCoordinatorResponse,
    JoinGroupRequest,
)
from aiokafka08.protocol.requests.list_offsets import (
    ListedOffsets,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from aiokafka08.protocol.requests.metadata import MetadataRequest, MetadataResponse, TopicState
from aiokafka08.protocol.requests.produce import ProducePartition, ProduceRequest, ProduceResponse
from aiokafka08.testing import Hang
from aiokafka08.testing.simulation import simulate
from tests._core.net.conftest import MakeConfig
from tests._core.net.scripted_peers import Peer, PeerConnection, listening
from tests.support.waiting import until

pytestmark = pytest.mark.both_loops

TLS = Path(__file__).with_name("tls")


class Closed:
    """Record the calls of `on_close`."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    def __call__(self, connection: BrokerConnection, reason: str, lost: int) -> None:
        self.calls.append((reason, lost))


@contextlib.asynccontextmanager
async def connected(
    peer: Peer,
    config: NetConfig,
    on_close: Closed | None = None,
    line: BrokerLine = BrokerLine.V0_8_2,
    protocol: ClientConnection | None = None,
) -> AsyncIterator[BrokerConnection]:
    # Without a timeout: tests with short ones mean those of requests.
    _, connection = await asyncio.get_running_loop().create_connection(
        lambda: BrokerConnection(
            peer.address, config, BrokerVersion.of(line), on_close or Closed(), protocol
        ),
        *peer.address,
        ssl=config.ssl_context,
    )
    try:
        yield connection
    finally:
        connection.close("end of the test")
        await connection.socket_closed


@pytest.fixture
def config(make_config: MakeConfig) -> NetConfig:
    return make_config()


def requesting(number: int) -> ListOffsetsRequest:
    """A request with a number that its response repeats."""
    return ListOffsetsRequest(-1, [Topic("t", [ListOffsetsPartition(number, -1, 1)])])


def responding(request: Any) -> ListOffsetsResponse:
    (part,) = request.topics[0].partitions
    return ListOffsetsResponse([Topic("t", [ListedOffsets(part.partition, 0, [part.partition])])])


def told(response: ListOffsetsResponse) -> int:
    [offset] = response.topics[0].partitions[0].offsets or []
    return offset


async def serve(link: PeerConnection) -> None:
    """Respond to everything at once."""
    while True:
        request = await link.read()
        link.respond(request, responding(request.body))


def produce(size: int, acks: int = 1) -> ProduceRequest:
    return ProduceRequest(acks, 1000, [Topic("t", [ProducePartition(0, bytes(size))])])


# --- pipelining -----------------------------------------------------------------------------------


async def test_hundreds_of_requests_in_flight_get_their_responses(
    config: NetConfig,
) -> None:
    async with listening() as peer, connected(peer, config) as connection:
        link = await peer.link()
        calls = [asyncio.create_task(connection.request(requesting(i))) for i in range(500)]
        requests = [await link.read() for _ in calls]
        assert connection.in_flight == 500
        assert not any(call.done() for call in calls)
        for request in requests:
            link.respond(request, responding(request.body))
        assert [told(await call) for call in calls] == list(range(500))
        assert connection.in_flight == 0


async def test_requests_are_written_in_the_order_of_the_calls(config: NetConfig) -> None:
    async with listening() as peer, connected(peer, config) as connection:
        link = await peer.link()
        calls = [asyncio.create_task(connection.request(requesting(i))) for i in range(50)]
        requests: list[Any] = [await link.read() for _ in calls]
        order = [request.body.topics[0].partitions[0].partition for request in requests]
        assert order == list(range(50))
        connection.close("enough")
        await asyncio.gather(*calls, return_exceptions=True)


async def test_responses_may_arrive_in_any_pieces(config: NetConfig) -> None:
    async def drip(link: PeerConnection) -> None:
        while True:
            request = await link.read()
            frame = encode_response(responding(request.body), 0, request.header.correlation_id)
            for byte in b"".join(frame):
                link.writer.write(bytes([byte]))
                await asyncio.sleep(0)

    async with listening(drip) as peer, connected(peer, config) as connection:
        answers = await asyncio.gather(*(connection.request(requesting(i)) for i in range(5)))
        assert [told(answer) for answer in answers] == list(range(5))


async def test_a_response_larger_than_the_receive_buffer(config: NetConfig) -> None:
    offsets = list(range(100_000))

    async def big(link: PeerConnection) -> None:
        while True:
            request = await link.read()
            link.respond(request, ListOffsetsResponse([Topic("t", [ListedOffsets(0, 0, offsets)])]))

    async with listening(big) as peer, connected(peer, config) as connection:
        for answer in await asyncio.gather(*(connection.request(requesting(0)) for _ in range(3))):
            assert answer.topics[0].partitions[0].offsets == offsets


@pytest.mark.parametrize(
    ("overdue_s", "check_in_s"), [(-10.0, 10.5), (0.1, 0.4), (0.5 - 1e-9, 0.001), (0.51, None)]
)
def test_next_silence_check_is_never_at_once(overdue_s: float, check_in_s: float | None) -> None:
    """A rest of 1e-15 s would set the check again and again in the same instant."""
    assert next_silence_check_s(overdue_s, 10.0) == pytest.approx(check_in_s)


# --- callers that give up -------------------------------------------------------------------------


async def test_later_responses_match_after_a_timeout(config: NetConfig) -> None:
    async with listening() as peer, connected(peer, config) as connection:
        link = await peer.link()
        late = asyncio.create_task(connection.request(requesting(1), timeout_s=0.02))
        first = await link.read()
        behind = asyncio.create_task(connection.request(requesting(2)))
        second = await link.read()
        with pytest.raises(KafkaTimeoutError, match=r"ListOffsetsRequest within 20 ms"):
            await late
        assert connection.close_reason is None
        assert connection.in_flight == 2  # its slot stays
        link.respond(first, responding(first.body))
        link.respond(second, responding(second.body))
        assert told(await behind) == 2
        assert connection.in_flight == 0


async def test_later_responses_match_after_a_cancellation(config: NetConfig) -> None:
    async with listening() as peer, connected(peer, config) as connection:
        link = await peer.link()
        calls = [asyncio.create_task(connection.request(requesting(i))) for i in range(10)]
        requests = [await link.read() for _ in calls]
        for call in calls[::2]:
            call.cancel()
        await asyncio.wait(calls[::2])
        for request in requests:
            link.respond(request, responding(request.body))
        assert [told(await call) for call in calls[1::2]] == [1, 3, 5, 7, 9]
        assert all(call.cancelled() for call in calls[::2])


async def test_cancel_at_the_arrival_of_the_response_is_harmless(
    config: NetConfig,
) -> None:
    async with listening(serve) as peer, connected(peer, config) as connection:
        for turns in range(12):
            call = asyncio.create_task(connection.request(requesting(1)))
            for _ in range(turns):
                await asyncio.sleep(0)
            call.cancel()
            assert told(await connection.request(requesting(2))) == 2
            await asyncio.wait((call,))


async def test_a_request_without_time_left_times_out(config: NetConfig) -> None:
    async with listening(serve) as peer, connected(peer, config) as connection:
        with pytest.raises(KafkaTimeoutError):
            await connection.request(requesting(1), timeout_s=0)
        assert told(await connection.request(requesting(2))) == 2


# --- a stream that can't be trusted ---------------------------------------------------------------


@pytest.mark.parametrize("wrong", [0, 1, 3, -1, 2**31 - 1])
async def test_a_wrong_correlation_id_closes_the_connection(config: NetConfig, wrong: int) -> None:
    closed = Closed()
    async with listening() as peer, connected(peer, config, closed) as connection:
        link = await peer.link()
        calls = [asyncio.create_task(connection.request(requesting(i))) for i in range(4)]
        requests = [await link.read() for _ in calls]
        link.respond(requests[0], responding(requests[0].body))
        link.respond(requests[1], responding(requests[1].body), correlation_id=wrong)
        link.respond(requests[2], responding(requests[2].body))
        assert told(await calls[0]) == 0
        for call in calls[1:]:
            with pytest.raises(KafkaConnectionError, match=rf"correlation id {wrong}; expected"):
                await call
        ((reason, lost),) = closed.calls
        assert "correlation id" in reason
        assert lost == 3
        await link.wait_eof()


async def test_cancelled_requests_do_not_count_as_lost(config: NetConfig) -> None:
    closed = Closed()
    async with listening() as peer, connected(peer, config, closed) as connection:
        link = await peer.link()
        calls = [asyncio.create_task(connection.request(requesting(i))) for i in range(2)]
        for _ in calls:
            await link.read()
        calls[0].cancel()
        await asyncio.wait(calls[:1])
        connection.close("closed by the client")
        with pytest.raises(KafkaConnectionError, match="closed by the client"):
            await calls[1]
        assert closed.calls == [("closed by the client", 1)]


async def test_id_0_of_0_8_2_matches_the_oldest_coordinator_lookup(config: NetConfig) -> None:
    async with listening() as peer, connected(peer, config) as connection:
        link = await peer.link()
        lookup = asyncio.create_task(connection.request(GroupCoordinatorRequest("g")))
        behind = asyncio.create_task(connection.request(requesting(2)))
        link.respond(await link.read(), GroupCoordinatorResponse(15, -1, "", -1), correlation_id=0)
        second = await link.read()
        link.respond(second, responding(second.body))
        assert (await lookup).error_code == 15
        assert told(await behind) == 2


async def test_an_unrequested_response_closes_the_connection(config: NetConfig) -> None:
    async with listening() as peer, connected(peer, config) as connection:
        link = await peer.link()
        link.writer.write(b"\0\0\0\4\0\0\0\1")
        await until(lambda: connection.close_reason, "closed")
        with pytest.raises(KafkaConnectionError, match="no request is in flight"):
            await connection.request(requesting(1))


@pytest.mark.parametrize(
    ("bytes_", "reason"),
    [
        (b"\x7f\xff\xff\xff", "frame of 2147483647 bytes"),
        (b"\xff\xff\xff\xff", "frame of -1 bytes"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "isn't a Kafka broker"),
        (b"\0\0\0\2\0\0", "a response: 2 bytes; expected at least 4"),
        (b"\0\0\0\4\0\0\0\1", "an array count needs 4 bytes"),
        (b"\0\0\0\x09\0\0\0\1\0\0\0\0!", "1 bytes after its end"),
        (b"\0\0\0\x08\0\0\0\1\x7f\xff\xff\xff", "array of 2147483647"),
    ],
)
async def test_malformed_bytes_close_the_connection_with_a_reason(
    config: NetConfig, bytes_: bytes, reason: str
) -> None:
    closed = Closed()
    async with listening() as peer, connected(peer, config, closed) as connection:
        link = await peer.link()
        calls = [asyncio.create_task(connection.request(requesting(i))) for i in range(2)]
        await link.read()
        link.writer.write(bytes_)
        for call in calls:
            with pytest.raises(KafkaConnectionError, match=reason):
                await call
        assert len(closed.calls) == 1
        await link.wait_eof()


async def test_malformed_large_response_closes_the_connection(config: NetConfig) -> None:
    """Such a response is decoded in steps, by the task that waits for it."""
    closed = Closed()
    async with listening() as peer, connected(peer, config, closed) as connection:
        link = await peer.link()
        call = asyncio.create_task(connection.request(MetadataRequest([]), version=0))
        await link.read()
        topics = [TopicState(0, f"topic-{number}", False, []) for number in range(2000)]
        body = b"".join(encode_response(MetadataResponse([], -1, topics), 0, 1))[4:-1]
        link.writer.write(len(body).to_bytes(4, "big") + body)
        with pytest.raises(KafkaConnectionError, match="frame cut short"):
            await call
        assert len(closed.calls) == 1
        await link.wait_eof()


async def test_large_response_is_decoded_within_the_timeout(config: NetConfig) -> None:
    async with listening() as peer, connected(peer, config) as connection:
        link = await peer.link()
        limit_s = 0.2
        call = asyncio.create_task(
            connection.request(MetadataRequest([]), version=0, timeout_s=limit_s)
        )
        request = await link.read()
        # The response arrives in time; its first step begins when the time is over.
        connection.on_received = lambda: time.sleep(limit_s)
        topics = [TopicState(0, f"topic-{number}", False, []) for number in range(2000)]
        link.respond(request, MetadataResponse([], -1, topics))
        with pytest.raises(KafkaTimeoutError):
            await call
        assert connection.close_reason is None


async def test_a_frame_over_the_limit_is_refused_before_it_is_read(make_config: MakeConfig) -> None:
    config = dataclasses.replace(make_config(), max_frame_bytes=1000)
    async with listening() as peer, connected(peer, config) as connection:
        link = await peer.link()
        call = asyncio.create_task(connection.request(requesting(1)))
        request = await link.read()
        big = ListOffsetsResponse([Topic("t", [ListedOffsets(0, 0, [0] * 1000)])])
        link.respond(request, big, cut=5)
        with pytest.raises(KafkaConnectionError, match="expected 0 to 1000"):
            await call


# --- the end of a connection ----------------------------------------------------------------------


async def test_requests_in_flight_fail_when_the_broker_closes(config: NetConfig) -> None:
    closed = Closed()
    async with listening() as peer, connected(peer, config, closed) as connection:
        link = await peer.link()
        calls = [asyncio.create_task(connection.request(requesting(i))) for i in range(3)]
        request = await link.read()
        link.respond(request, responding(request.body))
        link.close()
        assert told(await calls[0]) == 0
        for call in calls[1:]:
            with pytest.raises(KafkaConnectionError, match="closed by the broker"):
                await call
        assert closed.calls == [("closed by the broker", 2)]
        with pytest.raises(KafkaConnectionError, match="closed by the broker"):
            await connection.request(requesting(1))
        assert not connection.writable
        with pytest.raises(KafkaConnectionError, match="closed by the broker"):
            connection.send(requesting(1), asyncio.Future())
        with pytest.raises(KafkaConnectionError, match="closed by the broker"):
            await connection.wait_writable()


async def test_a_reset_is_reported_as_such(config: NetConfig) -> None:
    closed = Closed()
    async with listening() as peer, connected(peer, config, closed) as connection:
        link = await peer.link()
        call = asyncio.create_task(connection.request(requesting(1)))
        await link.read()
        link.reset()
        with pytest.raises(
            KafkaConnectionError, match=r"connection lost: Connection reset by peer"
        ):
            await call
        assert len(closed.calls) == 1


async def test_a_half_close_by_an_unreading_broker_ends_at_once(
    config: NetConfig,
) -> None:
    # What is not written yet would keep the socket, and all that wait, until their deadlines.
    async with (
        listening(receive_buffer=65536) as peer,
        connected(peer, config) as connection,
    ):
        link = await peer.link()
        calls = [asyncio.create_task(connection.request(produce(1 << 20))) for _ in range(10)]
        await until(lambda: not connection.writable, "the socket is full")
        link.writer.write_eof()
        for call in calls:
            with pytest.raises(KafkaConnectionError, match="closed by the broker"):
                await asyncio.wait_for(call, 20)


async def test_close_fails_waiting_callers_and_reports_once(
    config: NetConfig,
) -> None:
    closed = Closed()
    async with listening() as peer, connected(peer, config, closed) as connection:
        link = await peer.link()
        calls = [asyncio.create_task(connection.request(requesting(i))) for i in range(3)]
        await link.read()
        connection.close("the client stops")
        connection.close("again")
        for call in calls:
            with pytest.raises(KafkaConnectionError, match="the client stops"):
                await call
        await connection.socket_closed
        assert closed.calls == [("the client stops", 3)]
        assert connection.close_reason == "the client stops"
        await link.wait_eof()


async def test_close_wakes_the_tasks_that_wait_to_write(config: NetConfig) -> None:
    async with (
        listening(receive_buffer=65536) as peer,
        connected(peer, config) as connection,
    ):
        await peer.link()
        calls = [asyncio.create_task(connection.request(produce(1 << 20))) for _ in range(10)]
        await until(lambda: not connection.writable, "the socket is full")
        waiting = asyncio.create_task(connection.wait_writable())
        await asyncio.sleep(0)
        connection.close("the client stops")
        for call in [*calls, waiting]:
            with pytest.raises(KafkaConnectionError, match="the client stops"):
                await call


async def test_repr_shows_the_state(config: NetConfig) -> None:
    async with listening() as peer, connected(peer, config) as connection:
        call = asyncio.create_task(connection.request(requesting(1)))
        await until(lambda: connection.in_flight, "in flight")
        host, port = peer.address
        assert repr(connection) == f"<BrokerConnection {host}:{port} 1 in flight>"
        connection.close("the client stops")
        await asyncio.wait((call,))
        assert repr(connection) == f"<BrokerConnection {host}:{port} the client stops>"
        assert isinstance(call.exception(), KafkaConnectionError)


# --- a peer that doesn't read ---------------------------------------------------------------------


async def test_requests_wait_while_the_peer_does_not_read(
    make_config: MakeConfig,
) -> None:
    size = 200_000
    config = make_config(request_timeout_ms=60_000)
    async with (
        listening(receive_buffer=65536) as peer,
        connected(peer, config) as connection,
    ):
        link = await peer.link()
        largest = 0

        def measure() -> int:
            nonlocal largest
            largest = max(largest, connection.unsent_bytes)
            return largest

        calls = []
        for i in range(100):
            request = produce(size)
            request.timeout_ms = i
            calls.append(asyncio.create_task(connection.request(request)))
        for _ in range(50):
            await asyncio.sleep(0)
            measure()
        assert not connection.writable
        assert connection.in_flight < 50  # a socket takes some MB by itself
        # It reads again, slowly: each time there is room the waiters must not all write at once.
        order = []
        for _ in calls:
            got: Any = await link.read()
            measure()
            order.append(got.body.timeout_ms)
            link.respond(got, ProduceResponse([]))
        await asyncio.gather(*calls)
        assert order == list(range(100))
        assert largest < 2 * size + 128 * 1024


async def test_a_request_cancelled_before_its_write_is_never_sent(
    make_config: MakeConfig,
) -> None:
    config = make_config(request_timeout_ms=60_000)
    async with (
        listening(receive_buffer=65536) as peer,
        connected(peer, config) as connection,
    ):
        link = await peer.link()
        calls = []
        for i in range(60):
            request = produce(200_000)
            request.timeout_ms = i
            calls.append(asyncio.create_task(connection.request(request)))
        await until(lambda: not connection.writable, "the socket is full")
        written = connection.in_flight
        assert written < 40
        gone = range(written, 60, 2)
        for i in gone:
            calls[i].cancel()
        order = []
        for _ in range(60 - len(gone)):
            got: Any = await link.read()
            order.append(got.body.timeout_ms)
            link.respond(got, ProduceResponse([]))
        done, _ = await asyncio.wait(calls)
        assert order == [i for i in range(60) if i not in gone]
        assert sum(call.cancelled() for call in done) == len(gone)


async def test_a_request_that_was_never_written_times_out(make_config: MakeConfig) -> None:
    config = make_config(request_timeout_ms=200)
    async with (
        listening(receive_buffer=65536) as peer,
        connected(peer, config) as connection,
    ):
        await peer.link()
        calls = [asyncio.create_task(connection.request(produce(1 << 20))) for _ in range(10)]
        done, _ = await asyncio.wait(calls, timeout=5)
        assert len(done) == 10
        assert all(isinstance(call.exception(), KafkaError) for call in done)
        await until(lambda: connection.close_reason, "the peer that takes nothing is given up")


# --- acks=0 ---------------------------------------------------------------------------------------


async def test_a_request_without_response_is_not_in_flight(config: NetConfig) -> None:
    async with listening() as peer, connected(peer, config) as connection:
        link = await peer.link()
        connection.send(produce(10, acks=0), asyncio.Future())
        assert connection.in_flight == 0
        call = asyncio.create_task(connection.request(requesting(2)))
        assert (await link.read()).header.api_key == 0
        request = await link.read()
        link.respond(request, responding(request.body))
        assert told(await call) == 2


async def test_sends_without_response_wait_for_a_socket_in_time(
    make_config: MakeConfig,
) -> None:
    config = make_config(request_timeout_ms=200)
    async with (
        listening(receive_buffer=65536) as peer,
        connected(peer, config) as connection,
    ):
        await peer.link()

        async def send_on() -> None:
            while True:
                await connection.wait_writable()
                connection.send(produce(1 << 20, acks=0), asyncio.Future())

        with pytest.raises(KafkaConnectionError, match="no response for 200 ms"):
            await asyncio.wait_for(send_on(), 5)


async def test_request_without_a_response_is_refused(
    config: NetConfig,
) -> None:
    async with listening() as peer, connected(peer, config) as connection:
        with pytest.raises(ValueError, match="never respond"):
            await connection.request(produce(10, acks=0))


# --- a peer that is silent ------------------------------------------------------------------------


async def test_a_silent_peer_is_closed_after_the_request_timeout(make_config: MakeConfig) -> None:
    closed = Closed()
    config = make_config(request_timeout_ms=100)
    async with listening() as peer, connected(peer, config, closed) as connection:
        with pytest.raises(KafkaTimeoutError, match="ListOffsetsRequest within 100 ms"):
            await connection.request(requesting(1))
        await connection.socket_closed
        assert closed.calls == [("no response for 100 ms", 0)]


async def test_a_silent_peer_is_closed_without_waiting_callers(
    make_config: MakeConfig,
) -> None:
    # Callers with shorter deadlines of their own come and go: the lane must not stay dead.
    closed = Closed()
    config = make_config(request_timeout_ms=150)
    async with listening() as peer, connected(peer, config, closed) as connection:
        for i in range(3):
            with pytest.raises(KafkaTimeoutError):
                await connection.request(requesting(i), timeout_s=0.01)
        cancelled = asyncio.create_task(connection.request(requesting(4)))
        await asyncio.sleep(0)
        cancelled.cancel()
        assert connection.close_reason is None
        async with asyncio.timeout(5):
            await connection.socket_closed
        assert closed.calls == [("no response for 150 ms", 0)]


def play_silence(
    make_config: MakeConfig, scenario: Callable[[BrokerConnection], Awaitable[None]]
) -> None:
    """Play a scenario in virtual time, with `request_timeout_ms` of 10 s and a silent broker."""

    async def play() -> None:
        world.cluster.fault(ListOffsetsRequest, then=Hang(), times=None)
        broker = world.cluster.nodes[0]
        connection = await open_connection(
            (broker.host, broker.port),
            make_config(request_timeout_ms=10_000),
            BrokerVersion.of(BrokerLine.V0_8_2),
            Closed(),
        )
        await scenario(connection)
        connection.close("end of the test")
        await connection.socket_closed

    with simulate(1, brokers=1) as world:
        world.run(play)


class NoTransport(asyncio.Transport):
    """Drops what is written."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Any limits."""

    def write(self, data: object) -> None:
        """Any data."""

    def abort(self) -> None:
        """There is nothing to end."""


@pytest.mark.parametrize(
    ("ends", "began"),
    [
        ((0.5, 1.0, 2.0), (0, 2)),
        ((0.5, 1.1, 2.0), (0, 1)),  # the second one begins in the read that ends the first
        ((1.1, 2.0), (0, 0)),
        ((1.0, 1.03, 2.0), (0, 1)),  # a part of the size
        ((2.0,), (0, 0)),
    ],
    ids=str,
)
def test_response_begins_with_its_first_bytes(
    make_config: MakeConfig, ends: tuple[float, ...], began: tuple[int, int]
) -> None:
    """Reads come a second after each other; `ends` are in sizes of a response."""

    async def play() -> None:
        loop = asyncio.get_running_loop()
        connection = BrokerConnection(
            ("kafka1", 9092), make_config(), BrokerVersion.of(BrokerLine.V0_8_2), Closed()
        )
        connection.connection_made(NoTransport())
        waiters: list[asyncio.Future[Any]] = [loop.create_future() for _ in range(2)]
        for number, waiter in enumerate(waiters, 1):
            connection.send(requesting(number), waiter, version=0)
        frames = [
            b"".join(encode_response(responding(requesting(number)), 0, number))
            for number in (1, 2)
        ]
        data, first_at, taken = b"".join(frames), loop.time(), 0
        found: list[float] = []
        for end in ends:
            size = round(end * len(frames[0])) - taken
            taken += size
            connection.get_buffer(-1)[:size], data = data[:size], data[size:]
            connection.buffer_updated(size)
            found += [connection.response_began - first_at] * (
                sum(waiter.done() for waiter in waiters) - len(found)
            )
            await asyncio.sleep(1)
        assert not data
        assert tuple(map(round, found)) == began
        connection.close("end of the test")

    with simulate(1, brokers=1) as world:
        world.run(play)


async def give_up(connection: BrokerConnection) -> None:
    """Send a request whose caller gives up at once."""
    with pytest.raises(KafkaTimeoutError):
        await connection.request(requesting(1), timeout_s=0.001)


@pytest.mark.parametrize(("waited_s", "closes"), [(9.95, True), (9.85, False)])
def test_silence_is_judged_with_a_percent_of_tolerance(
    make_config: MakeConfig, waited_s: float, closes: bool
) -> None:
    """A caller's deadline may end a little before the time limit of its request."""

    async def scenario(connection: BrokerConnection) -> None:
        await give_up(connection)
        await asyncio.sleep(waited_s)
        connection.close_if_silent(10.0)
        assert (connection.close_reason is not None) == closes

    play_silence(make_config, scenario)


def test_silence_without_callers_is_closed_a_bit_later(make_config: MakeConfig) -> None:
    """By a twentieth of the timeout, also if the check for the first request comes before."""

    async def scenario(connection: BrokerConnection) -> None:
        loop = asyncio.get_running_loop()
        await connection.request(GroupCoordinatorRequest("g"))  # sets the check
        await asyncio.sleep(5)
        began = loop.time()
        await give_up(connection)
        await connection.socket_closed
        assert connection.close_reason == "no response for 10000 ms"
        assert loop.time() - began == pytest.approx(10.5, abs=0.1)

    play_silence(make_config, scenario)


@pytest.mark.parametrize(("waited_s", "closes"), [(9.5, False), (10.1, True)])
def test_full_buffer_is_judged_as_silence_is(
    make_config: MakeConfig, waited_s: float, closes: bool
) -> None:
    async def scenario(connection: BrokerConnection) -> None:
        connection.pause_writing()  # as the event loop calls it
        await asyncio.sleep(waited_s)
        connection.close_if_silent(10.0)
        assert (connection.close_reason is not None) == closes

    play_silence(make_config, scenario)


async def test_a_request_with_a_long_deadline_gets_it(make_config: MakeConfig) -> None:
    # JoinGroup waits for the other members, longer than request_timeout_ms.
    config = make_config(request_timeout_ms=50)
    async with listening() as peer, connected(peer, config) as connection:
        link = await peer.link()
        call = asyncio.create_task(connection.request(requesting(1), timeout_s=10))
        request = await link.read()
        await asyncio.wait((call,), timeout=0.3)
        assert connection.close_reason is None
        link.respond(request, responding(request.body))
        assert told(await call) == 1


async def test_one_slow_response_does_not_close_the_connection(
    make_config: MakeConfig,
) -> None:
    config = make_config(request_timeout_ms=1000)
    async with listening() as peer, connected(peer, config) as connection:
        link = await peer.link()
        calls = [
            asyncio.create_task(connection.request(requesting(i), timeout_s=10)) for i in range(5)
        ]
        given_up = asyncio.create_task(connection.request(requesting(7), timeout_s=1.1))
        for call in calls:  # together they take longer than the timeout, one alone doesn't
            await asyncio.wait((call,), timeout=0.25)
            request = await link.read()
            link.respond(request, responding(request.body))
            await call
        with pytest.raises(KafkaTimeoutError):
            await given_up
        assert connection.close_reason is None


async def test_an_idle_connection_is_not_closed_as_silent(make_config: MakeConfig) -> None:
    config = make_config(request_timeout_ms=50)
    async with listening(serve) as peer, connected(peer, config) as connection:
        assert told(await connection.request(requesting(1))) == 1
        await asyncio.wait((connection.socket_closed,), timeout=0.3)
        assert connection.close_reason is None
        assert told(await connection.request(requesting(2))) == 2


# --- what can't be sent ---------------------------------------------------------------------------


async def test_a_request_that_cannot_be_encoded_has_no_effect(config: NetConfig) -> None:
    async with listening(serve) as peer, connected(peer, config) as connection:
        with pytest.raises(ValueError, match="32768"):
            await connection.request(GroupCoordinatorRequest("x" * 32768))
        with pytest.raises(ValueError, match="version 9; expected"):
            await connection.request(requesting(1), version=9)
        assert connection.in_flight == 0
        assert told(await connection.request(requesting(2))) == 2


async def test_an_api_that_the_line_lacks_is_not_sent(config: NetConfig) -> None:
    async with listening(serve) as peer, connected(peer, config) as connection:
        with pytest.raises(UnsupportedVersionError, match=r"0\.8\.2.*JoinGroupRequest"):
            await connection.request(JoinGroupRequest("g", 1000, "", "consumer", []))
        assert told(await connection.request(requesting(2))) == 2


# --- TLS ------------------------------------------------------------------------------------------


@pytest.fixture
def server_tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "cert.pem", TLS / "key.pem")
    return context


@pytest.fixture
def client_tls() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(TLS / "cert.pem"))


async def test_plain_connection_receives_where_the_frame_is_assembled(config: NetConfig) -> None:
    """uvloop asks each transport's protocol for 64 KiB: another buffer would be a copy per read."""
    async with listening() as peer, connected(peer, config) as connection:
        assert len(connection.get_buffer(100_000)) < 100_000


async def test_requests_work_over_tls(
    make_config: MakeConfig, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    offsets = list(range(20_000))

    async def big(link: PeerConnection) -> None:
        while True:
            request = await link.read()
            link.respond(request, ListOffsetsResponse([Topic("t", [ListedOffsets(0, 0, offsets)])]))

    config = make_config(ssl_context=client_tls)
    async with listening(big, tls=server_tls) as peer, connected(peer, config) as connection:
        for answer in await asyncio.gather(*(connection.request(requesting(0)) for _ in range(5))):
            assert answer.topics[0].partitions[0].offsets == offsets


async def test_a_damaged_tls_stream_closes_without_noise(
    make_config: MakeConfig,
    server_tls: ssl.SSLContext,
    client_tls: ssl.SSLContext,
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = make_config(ssl_context=client_tls)
    async with listening(tls=server_tls) as peer, connected(peer, config) as connection:
        link = await peer.link()
        call = asyncio.create_task(connection.request(requesting(1)))
        await link.read()
        link.writer.write(b"\xff" * (1 << 20))
        with pytest.raises(KafkaConnectionError, match="frame of -1 bytes"):
            await call
        await connection.socket_closed
    assert not [record for record in caplog.records if record.levelname in ("ERROR", "WARNING")]


async def test_the_end_of_a_tls_stream_is_reported(
    make_config: MakeConfig, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    config = make_config(ssl_context=client_tls)
    for end in (PeerConnection.close, PeerConnection.reset):
        closed = Closed()
        async with (
            listening(tls=server_tls) as peer,
            connected(peer, config, closed) as connection,
        ):
            link = await peer.link()
            call = asyncio.create_task(connection.request(requesting(1)))
            await link.read()
            end(link)
            with pytest.raises(KafkaConnectionError):
                await call
            await connection.socket_closed
            assert len(closed.calls) == 1


class ShortOfMemory(ClientConnection):
    """Fails after the first response."""

    def received(self, nbytes: int) -> Any:
        yield from super().received(nbytes)
        raise MemoryError("no memory for the next response")


async def test_received_responses_are_reported_before_an_exception(config: NetConfig) -> None:
    """`producer.sender` holds its callbacks until the report; it must come whatever happens."""
    short = ShortOfMemory(config.client_id)
    async with listening() as peer, connected(peer, config, protocol=short) as connection:
        link = await peer.link()
        reports: list[None] = []
        connection.on_received = lambda: reports.append(None)
        loop = asyncio.get_running_loop()
        unhandled: list[Any] = []
        loop.set_exception_handler(lambda _, context: unhandled.append(context["exception"]))
        call = asyncio.create_task(connection.request(requesting(1)))
        request = await link.read()
        link.respond(request, responding(request.body))
        assert told(await call) == 1
        assert reports == [None]
        await until(lambda: connection.close_reason, "the connection is lost")
        assert [type(error) for error in unhandled] == [MemoryError]
