"""SASL on a connection: clients on the embedded cluster, and servers that refuse, lie or hang."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka08._core.concurrency.daemon_thread import DaemonThread
from aiokafka08._core.net.authentication import MAX_TOKENS, open_authenticated
from aiokafka08._core.net.config import NETWORK_DEFAULTS, net_config
from aiokafka08._core.net.node import Lane, Node
from aiokafka08._core.net.probe import probe_version
from aiokafka08._core.net.raw_stream import connect_raw
from aiokafka08._core.net.versions import BrokerLine
from aiokafka08._core.sasl.failure import FailureKind, SaslFailure, failures_of
from aiokafka08._core.sasl.mechanism import Mechanism, Steps
from aiokafka08.abc import AbstractTokenProvider
from aiokafka08.admin import AIOKafkaAdminClient
from aiokafka08.errors import (
    AuthenticationFailedError,
    AuthenticationMethodNotSupported,
    KafkaError,
    KafkaTimeoutError,
    NoBrokersAvailable,
)
from aiokafka08.protocol.api import ApiKey, Request, Response, encode_response
from aiokafka08.protocol.requests.api_versions import ApiVersionsResponse, VersionRange
from aiokafka08.protocol.requests.fetch import FetchResponse
from aiokafka08.protocol.requests.groups import HeartbeatRequest
from aiokafka08.protocol.requests.list_offsets import ListOffsetsResponse
from aiokafka08.protocol.requests.metadata import MetadataResponse
from aiokafka08.protocol.requests.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from aiokafka08.protocol.requests.sasl_handshake import SaslHandshakeResponse
from aiokafka08.telemetry import Disconnected, Event, Telemetry
from aiokafka08.testing import EmbeddedCluster
from tests.protocol.decoding import decode_request
from tests.support.stream_server import StreamServer
from tests.support.waiting import until

PASSWORD = "s3cret-hunter2"
USER = {"sasl_plain_username": "alice", "sasl_plain_password": PASSWORD}
SASL = {"security_protocol": "SASL_PLAINTEXT", **USER}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_clients_work_through_sasl(mechanism: str) -> None:
    async with EmbeddedCluster(
        version="0.10", brokers=2, topics={"t": 2}, sasl={"alice": PASSWORD}
    ) as cluster:
        options: dict[str, Any] = {
            "bootstrap_servers": cluster.bootstrap_servers,
            "sasl_mechanism": mechanism,
            **SASL,
        }
        async with AIOKafkaProducer(**options) as producer:
            for partition in (0, 1):
                await producer.send_and_wait("t", b"value", partition=partition)
        async with AIOKafkaConsumer(
            "t", group_id="g", auto_offset_reset="earliest", **options
        ) as consumer:
            assert {(await consumer.getone()).partition for _ in range(2)} == {0, 1}
            await consumer.commit()
        async with AIOKafkaAdminClient(**options) as admin:
            assert await admin.list_consumer_groups()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_wrong_password_is_one_typed_error_without_it(
    mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    events: list[Event] = []
    async with EmbeddedCluster(version="0.10", sasl={"alice": "another"}) as cluster:
        producer = AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers,
            sasl_mechanism=mechanism,
            on_event=events.append,
            **SASL,  # type: ignore[arg-type]
        )
        with pytest.raises(AuthenticationFailedError, match="without a reason") as caught:
            await producer.start()
        await producer.stop()
    assert f"{mechanism} as user 'alice'" in str(caught.value)
    assert events
    shown = caplog.text + repr(events) + repr(producer) + repr(caught.value)
    assert PASSWORD not in shown
    assert "sasl_plain_password" not in caplog.text


async def test_mechanism_that_the_broker_lacks_is_named_with_its_own() -> None:
    class Provider(AbstractTokenProvider):
        async def token(self) -> str:
            return "t"

    async with EmbeddedCluster(version="0.10", sasl={"alice": PASSWORD}) as cluster:
        producer = AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Provider(),
        )
        with pytest.raises(AuthenticationMethodNotSupported, match="offers PLAIN, SCRAM-SHA-256"):
            await producer.start()
        await producer.stop()


async def test_plain_listener_is_named() -> None:
    async with EmbeddedCluster(version="0.9") as cluster:
        producer = AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers,
            request_timeout_ms=1000,
            **SASL,  # type: ignore[arg-type]
        )
        with pytest.raises(AuthenticationFailedError, match="the port isn't a SASL listener"):
            await producer.start()
        await producer.stop()


async def test_slow_authentication_is_not_held_by_the_look_for_a_plain_listener() -> None:
    """The look hangs: the listener waits for SASL, and says nothing to anything else."""
    looks: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readexactly(8)
        if int.from_bytes(head[4:6], "big") != ApiKey.API_VERSIONS:
            looks.append(head)
            await reader.read()
            return
        await until(lambda: bool(looks), "the client looks for a plain listener")
        upstream = await asyncio.open_connection("127.0.0.1", cluster.nodes[0].port)
        upstream[1].write(head)

        async def pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(1 << 16):
                sink.write(data)

        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(pass_on(reader, upstream[1]))
                await pass_on(upstream[0], writer)
        finally:
            upstream[1].close()

    async with (
        EmbeddedCluster(version="0.10", sasl={"alice": PASSWORD}) as cluster,
        StreamServer(serve) as server,
    ):
        options = {"bootstrap_servers": server.address, "client_id": "c", **SASL}
        config = net_config(**{**NETWORK_DEFAULTS, **options, "sasl_mechanism": "PLAIN"})
        version = await probe_version(config.bootstrap[0], config)
    assert version.line is BrokerLine.V0_10
    assert len(looks) == 1


# --- a broker of 2.2 that a test scripts ----------------------------------------------------------

Respond = Callable[[Request[Any]], Response | bytes | None]
"""What the broker says to a request: a response, raw bytes, or nothing, and it closes."""

VERSIONS = [
    VersionRange(key, 0, last)
    for key, last in {0: 2, 1: 2, 2: 1, 3: 2, 12: 0, 17: 1, 18: 0, 36: 1}.items()
]


@contextlib.asynccontextmanager
async def broker(respond: Respond) -> AsyncIterator[str]:
    """Run the broker; yield its address. It is the only one in its metadata, without a topic."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            size = int.from_bytes(await reader.readexactly(4), "big")
            envelope = decode_request(await reader.readexactly(size))
            assert envelope.body is not None
            answer: Response | bytes | None
            match envelope.header.api_key:
                case ApiKey.API_VERSIONS:
                    said = respond(envelope.body)
                    answer = said if isinstance(said, bytes) else None
                    answer = answer or ApiVersionsResponse(0, VERSIONS)
                case ApiKey.LIST_OFFSETS:
                    answer = ListOffsetsResponse([])
                case ApiKey.FETCH:
                    answer = FetchResponse(0, [])
                case ApiKey.METADATA:
                    answer = MetadataResponse([], -1, [])
                case _:
                    answer = respond(envelope.body)
            if answer is None:
                return
            if isinstance(answer, bytes):
                writer.write(answer)
                continue
            version = envelope.header.api_version
            header = envelope.header.correlation_id
            writer.write(b"".join(encode_response(answer, version, header)))

    async with StreamServer(serve) as server:
        yield server.address


async def failure(respond: Respond, mechanism: str = "PLAIN", **options: Any) -> KafkaError:
    """Return the error of a start, which must come within the limit for the first broker."""
    given = {"sasl_mechanism": mechanism, **(options or USER)}
    async with broker(respond) as address, asyncio.timeout(10):
        producer = AIOKafkaProducer(
            bootstrap_servers=address,
            security_protocol="SASL_PLAINTEXT",
            request_timeout_ms=700,
            **given,
        )
        try:
            await producer.start()
        except KafkaError as error:
            return error
        finally:
            await producer.stop()
    raise AssertionError("it has started")


def handshake(request: Request[Any]) -> Response | None:
    if request.api is ApiKey.SASL_HANDSHAKE:
        return SaslHandshakeResponse(0, [])
    return None


def token(content: bytes) -> Respond:
    """Return a broker that says the same to each token."""

    def respond(request: Request[Any]) -> Response | None:
        if isinstance(request, SaslAuthenticateRequest):
            return SaslAuthenticateResponse(0, None, content)
        return handshake(request)

    return respond


def scram_first(iterations: int) -> Respond:
    """Return a broker whose first message of SCRAM asks for so many iterations."""

    def respond(request: Request[Any]) -> Response | None:
        if isinstance(request, SaslAuthenticateRequest):
            nonce = bytes(request.auth_bytes).decode().partition("r=")[2]
            first = f"r={nonce}x,s=c2FsdHNhbHRzYWx0c2FsdA==,i={iterations}"
            return SaslAuthenticateResponse(0, None, first.encode())
        return handshake(request)

    return respond


def refuses(request: Request[Any]) -> Response | None:
    if isinstance(request, SaslAuthenticateRequest):
        return SaslAuthenticateResponse(58, "no such user", b"")
    return handshake(request)


async def test_reason_of_the_broker_is_in_the_error() -> None:
    error = await failure(refuses)
    assert type(error) is AuthenticationFailedError
    assert "PLAIN as user 'alice': the broker refuses: no such user" in str(error)


@pytest.mark.parametrize(
    ("respond", "mechanism", "text"),
    [
        (lambda request: None, "PLAIN", "closed the connection on SaslHandshake"),
        (handshake, "PLAIN", "closed the connection on SaslAuthenticate"),
        (lambda request: SaslHandshakeResponse(34, []), "PLAIN", "isn't a SASL listener"),
        (lambda request: SaslHandshakeResponse(99, []), "PLAIN", "SaslHandshake: UnknownError"),
        (token(b"nonsense"), "SCRAM-SHA-256", "SCRAM-SHA-256 as user 'alice': "),
        (token(b"\xff\xfe"), "SCRAM-SHA-256", "isn't UTF-8"),
        (token(b"e=unknown-user"), "SCRAM-SHA-512", "SCRAM-SHA-512 as user 'alice': "),
        (scram_first(1), "SCRAM-SHA-256", "asks for 1 iterations; expected 4096 to 1000000"),
        (scram_first(999_999_999), "SCRAM-SHA-256", "asks for 999999999 iterations"),
        (scram_first(10**30), "SCRAM-SHA-256", "asks for 10000000000000000000 iterations"),
        (scram_first(4096), "SCRAM-SHA-256", "SCRAM-SHA-256 as user 'alice': "),  # no proof
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
async def test_hostile_step_is_a_typed_error(respond: Respond, mechanism: str, text: str) -> None:
    error = await failure(respond, mechanism)
    assert isinstance(error, AuthenticationFailedError)
    assert text in str(error)
    assert PASSWORD not in str(error)


async def test_hashes_of_scram_hold_neither_loop_nor_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broker names their number; scramp's take seconds for the most that is accepted."""
    released = threading.Event()
    monkeypatch.setattr("scramp.core.hi", lambda *args: released.wait(30) and b"")
    try:
        error = await failure(scram_first(1_000_000), "SCRAM-SHA-256")
    finally:
        released.set()
    assert "'alice': the hashes of the password haven't been computed" in str(error)


@pytest.mark.parametrize("size", [-1, 3, 1 << 18, 2**31 - 1])
async def test_frame_of_a_wrong_size_isnt_read(size: int) -> None:
    def respond(request: Request[Any]) -> bytes:
        return (size + (1 if size == 1 << 18 else 0)).to_bytes(4, "big", signed=True) + b"x" * 9

    error = await failure(respond)
    assert isinstance(error, NoBrokersAvailable)
    assert "not a Kafka broker: its response begins with" in str(error)


async def test_silent_broker_is_a_timeout_that_names_the_step() -> None:
    def respond(request: Request[Any]) -> Response | bytes:
        if isinstance(request, SaslAuthenticateRequest):
            return b""
        return SaslHandshakeResponse(0, [])

    error = await failure(respond)
    assert "doesn't respond to SaslAuthenticate" in str(error)


async def test_wait_for_a_kdc_is_no_doubt_about_the_broker() -> None:
    """Whatever the mechanism's description begins with."""
    released = threading.Event()

    class Hanging(Mechanism):
        name = "GSSAPI"
        description = "accepts tickets"
        starts_raw = True
        wait = "no KDC of the realm has responded"
        wait_kind = FailureKind.KDC
        hint = ""
        thread = DaemonThread()

        async def begin(self, host: str) -> Steps:
            def steps() -> Steps:
                released.wait(30)
                yield b""
                return None

            return steps()

    async with broker(handshake) as address:
        options = {"bootstrap_servers": address, "client_id": "c", "request_timeout_ms": 300}
        config = replace(net_config(**{**NETWORK_DEFAULTS, **options}), sasl=Hanging())
        try:
            with pytest.raises(KafkaTimeoutError) as caught:
                await probe_version(config.bootstrap[0], config)
        finally:
            released.set()
    assert "accepts tickets: no KDC of the realm has responded within" in str(caught.value)
    assert "Check that it is a Kafka broker" not in str(caught.value)
    assert failures_of(caught.value) == [SaslFailure(FailureKind.KDC)]


async def test_endless_challenges_are_bounded() -> None:
    """Of a mechanism that would answer for ever, as a hostile KDC and broker could have it."""
    sent = 0

    class Endless(Mechanism):
        name = description = "ENDLESS"
        starts_raw = False
        hint = ""

        async def begin(self, host: str) -> Steps:
            def steps() -> Steps:
                nonlocal sent
                while True:
                    sent += 1
                    yield b"more"

            return steps()

    async with broker(token(b"more")) as address:
        config = net_config(**{**NETWORK_DEFAULTS, "bootstrap_servers": address, "client_id": "c"})
        [where] = config.bootstrap

        def connect() -> Awaitable[Any]:
            return connect_raw("127.0.0.1", where, config)

        with pytest.raises(AuthenticationFailedError, match="asks for more than 16 tokens"):
            await open_authenticated(connect, where, config, Endless(), None, lambda text: None)
    assert sent == MAX_TOKENS


async def test_token_of_oauthbearer_is_sent_and_refused_without_it() -> None:
    seen: list[bytes] = []

    class Provider(AbstractTokenProvider):
        async def token(self) -> str:
            return "abc.DEF-secret"

        def extensions(self) -> dict[str, str]:
            return {"logicalCluster": "lkc"}

    def respond(request: Request[Any]) -> Response | None:
        if isinstance(request, SaslAuthenticateRequest):
            seen.append(bytes(request.auth_bytes))
            if len(seen) == 1:
                return SaslAuthenticateResponse(0, None, b'{"status":"invalid_token"}')
            return SaslAuthenticateResponse(58, "no", b"")
        return handshake(request)

    error = await failure(respond, "OAUTHBEARER", sasl_oauth_token_provider=Provider())
    assert seen == [
        b"n,,\x01auth=Bearer abc.DEF-secret\x01logicalCluster=lkc\x01\x01",
        b"\x01",
    ]
    assert isinstance(error, AuthenticationFailedError)
    assert "secret" not in str(error)


@pytest.mark.parametrize("wrong", ["two\x01tokens", "", None, ValueError("secret-text")])
async def test_wrong_token_of_a_provider_is_an_error_without_it(wrong: Any) -> None:
    class Provider(AbstractTokenProvider):
        async def token(self) -> str:
            if isinstance(wrong, Exception):
                raise wrong
            token: str = wrong
            return token

    error = await failure(handshake, "OAUTHBEARER", sasl_oauth_token_provider=Provider())
    assert isinstance(error, AuthenticationFailedError)
    assert "sasl_oauth_token_provider" in str(error)
    assert "secret-text" not in str(error)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"auth": "Bearer other-secret"}, "'auth': the name is reserved"),
        ({"two words": "v"}, "'two words': expected a name of ASCII letters"),
        ({5: "v"}, "5: expected a name of ASCII letters"),
        ({"size": 5}, "'size': expected a text of printable ASCII"),
        ({"size": "secret\x01auth=Bearer x"}, "'size': expected a text of printable ASCII"),
        (None, "expected a mapping of texts, got NoneType"),
        (["secret"], "expected a mapping of texts, got list"),
    ],
    ids=str,
)
async def test_wrong_extension_of_a_provider_is_named_without_its_value(
    wrong: Any, text: str
) -> None:
    """KIP-342: an extension can't be named auth, which is the token."""

    class Provider(AbstractTokenProvider):
        async def token(self) -> str:
            return "abc"

        def extensions(self) -> dict[str, str]:
            found: dict[str, str] = wrong
            return found

    error = await failure(handshake, "OAUTHBEARER", sasl_oauth_token_provider=Provider())
    assert isinstance(error, AuthenticationFailedError)
    assert "sasl_oauth_token_provider: extension" in str(error)
    assert text in str(error)
    assert "secret" not in str(error)


# --- sessions that end ----------------------------------------------------------------------------


async def test_connection_is_replaced_before_its_session_ends() -> None:
    """The broker closes a session at its first request after the lifetime, as 2.2 and later do."""
    lifetime_ms = 600
    loop = asyncio.get_running_loop()
    opened: list[float] = []

    def respond(request: Request[Any]) -> Response | None:
        if isinstance(request, SaslAuthenticateRequest):
            opened.append(loop.time())
            return SaslAuthenticateResponse(0, None, b"", lifetime_ms)
        if request.api is ApiKey.SASL_HANDSHAKE:
            return SaslHandshakeResponse(0, [])
        if not isinstance(request, HeartbeatRequest):
            return None
        is_late = (loop.time() - opened[-1]) * 1000 > 4 * lifetime_ms  # for a busy machine
        return None if is_late else HeartbeatRequest.response(0)

    events: list[Event] = []
    async with broker(respond) as address:
        config = net_config(
            **{**NETWORK_DEFAULTS, **SASL, "bootstrap_servers": address, "client_id": "c"}
        )
        node = Node(None, config.bootstrap[0], config, Telemetry(events.append))
        try:
            await node.connection(Lane.CONTROL)
            probed = len(opened)
            async with asyncio.timeout(30):
                while len(opened) < probed + 3:
                    await node.request(HeartbeatRequest("g", 1, "m"))
                    await asyncio.sleep(0)
        finally:
            await node.stop()
    reasons = {one.reason for one in events if isinstance(one, Disconnected)}
    assert reasons - {"closed by the client"} == {"the SASL session ends"}


async def test_lifetime_of_nothing_is_no_storm_of_connections() -> None:
    authenticated = 0

    def respond(request: Request[Any]) -> Response | None:
        nonlocal authenticated
        if isinstance(request, SaslAuthenticateRequest):
            authenticated += 1
            return SaslAuthenticateResponse(0, None, b"", 1)
        if request.api is ApiKey.SASL_HANDSHAKE:
            return SaslHandshakeResponse(0, [])
        return HeartbeatRequest.response(0) if isinstance(request, HeartbeatRequest) else None

    loop = asyncio.get_running_loop()
    async with broker(respond) as address:
        config = net_config(
            **{**NETWORK_DEFAULTS, **SASL, "bootstrap_servers": address, "client_id": "c"}
        )
        node = Node(None, config.bootstrap[0], config, Telemetry())
        try:
            await node.connection(Lane.CONTROL)
            probed, deadline = authenticated, loop.time() + 0.5
            while loop.time() < deadline:
                await node.request(HeartbeatRequest("g", 1, "m"))
                await asyncio.sleep(0)
        finally:
            await node.stop()
    # Each needs a probe of the version too, with connections of its own: no other lane is open.
    assert authenticated - probed <= 40
