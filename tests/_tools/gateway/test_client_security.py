"""TLS and SASL of the gateway's listeners, in front of brokers of the embedded cluster."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from aiokafka08._core.sasl.mechanism import Mechanism
from aiokafka08._core.sasl.plain import Plain
from aiokafka08._core.sasl.scram import Scram
from aiokafka08._core.server.sasl import SaslUsers
from aiokafka08._core.server.transports import reset
from aiokafka08._tools.findings import Code
from aiokafka08._tools.gateway import handler
from aiokafka08._tools.gateway.check import CheckCode, judge
from aiokafka08._tools.gateway.client_security import read_users, server_context
from aiokafka08._tools.gateway.config import read_settings
from aiokafka08._tools.gateway.gateway import Gateway
from aiokafka08._tools.gateway.metrics import PrometheusMetrics
from aiokafka08._tools.gateway.options import FLAG_NAMES, GatewayOptions, gateway_options
from aiokafka08._tools.gateway.target_client import TargetClient
from aiokafka08._tools.gateway.target_connection import target_network
from aiokafka08._tools.gateway.target_sample import TargetSample
from aiokafka08.errors import (
    AuthenticationFailedError,
    IllegalArgumentError,
    KafkaError,
)
from aiokafka08.helpers import create_ssl_context
from aiokafka08.protocol.requests.api_versions import ApiVersionsRequest
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.protocol.requests.sasl_authenticate import SaslAuthenticateRequest
from aiokafka08.protocol.requests.sasl_handshake import SaslHandshakeRequest
from aiokafka08.testing import EmbeddedCluster
from tests._tools.gateway.gateways import (
    HOST,
    RawClient,
    ScriptedBroker,
    first_port,
    make_certificate,
    running,
)
from tests.support.waiting import until

pytestmark = pytest.mark.fast

PASSWORD = "alice-secret"
TOKEN = b"\0alice\0alice-secret"
WRONG = b"\0alice\0wrong-secret"
PASSWORDS_CODE = CheckCode.PASSWORDS
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


def users() -> SaslUsers:
    return SaslUsers({"alice": PASSWORD})


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a certificate that is its own authority, for servers and clients."""
    folder = tmp_path_factory.mktemp("certificate")
    make_certificate(folder)
    return folder


@asynccontextmanager
async def secured(**changed: Any) -> AsyncIterator[Gateway]:
    async with (
        EmbeddedCluster(version="0.10", topics={"t": 1}) as cluster,
        running(cluster.bootstrap_servers, **changed) as gateway,
    ):
        yield gateway


async def listed(gateway: Gateway, **options: Any) -> list[str]:
    """Return the topics that a client finds."""
    address = HOST, first_port(gateway)
    async with TargetClient.connected(address, target_network([address], **options)) as client:
        return [
            topic["Name"] for topic in (await client.call("Metadata", 1, Topics=None))["Topics"]
        ]


def login(mechanism: str = "PLAIN", password: str = PASSWORD, **others: Any) -> dict[str, Any]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": password,
        **others,
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_client_logs_in_and_is_listed(
    mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with secured(users=users()) as gateway:
        assert await listed(gateway, **login(mechanism)) == ["t"]
        rows = gateway.clients.rows()
        assert {row["principal"] for row in rows if "Metadata" in str(row)} == {"alice"}
        with pytest.raises(AuthenticationFailedError, match="without a reason"):
            await listed(gateway, **login(mechanism, "wrong-secret"))
    assert "secret" not in caplog.text + repr(gateway.clients.rows())


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
async def test_client_of_0_10_logs_in_by_plain_tokens(mechanism: str) -> None:
    client_side: Mechanism = Plain("alice", PASSWORD)
    if mechanism != "PLAIN":
        client_side = Scram(mechanism, "alice", PASSWORD)
    async with (
        secured(users=users()) as gateway,
        await RawClient.connect(first_port(gateway)) as client,
    ):
        found = await client.call(SaslHandshakeRequest(mechanism), 0)
        assert (found.error_code, found.mechanisms) == (0, MECHANISMS)
        steps = await client_side.begin(HOST)
        token = next(steps)
        with contextlib.suppress(StopIteration):
            while True:
                client.send(token)
                token = steps.send(await client.frame())
        metadata = await client.call(MetadataRequest(["t"]), 0)
        assert metadata.brokers[0].port == first_port(gateway)
        assert (await client.call(SaslHandshakeRequest("PLAIN"), 1)).error_code == 34
        assert (await client.call(SaslAuthenticateRequest(TOKEN), 0)).error_code == 34


async def test_versions_are_told_before_the_login_and_nothing_else() -> None:
    async with secured(users=users()) as gateway:
        async with await RawClient.connect(first_port(gateway)) as client:
            assert (await client.call(ApiVersionsRequest(), 0)).api_versions
            client.send_request(MetadataRequest([]), 0)
            assert await client.is_closed()
        for request in (SaslAuthenticateRequest(TOKEN), MetadataRequest([])):
            async with await RawClient.connect(first_port(gateway)) as client:
                client.send_request(request, 0)
                assert await client.is_closed()
        async with await RawClient.connect(first_port(gateway)) as client:
            client.send(struct.pack(">hhih", 18, 0, 1, -1) + bytes(600_000))
            assert await client.is_closed()


async def test_wrong_logins_are_answered_and_closed(caplog: pytest.LogCaptureFixture) -> None:
    async with secured(users=users()) as gateway:
        async with await RawClient.connect(first_port(gateway)) as client:
            await client.call(SaslHandshakeRequest("PLAIN"), 1)
            found = await client.call(SaslAuthenticateRequest(WRONG), 1)
            assert (found.error_code, found.auth_bytes) == (58, b"")
            assert await client.is_closed()
        async with await RawClient.connect(first_port(gateway)) as client:
            found = await client.call(SaslHandshakeRequest("GSSAPI"), 1)
            assert (found.error_code, found.mechanisms) == (33, MECHANISMS)
            assert await client.is_closed()
        for token in (WRONG, b"", b"\xff" * 100, b"bob\0alice\0alice-secret"):
            async with await RawClient.connect(first_port(gateway)) as client:
                await client.call(SaslHandshakeRequest("PLAIN"), 0)
                client.send(token)
                assert await client.is_closed()
        async with await RawClient.connect(first_port(gateway)) as client:
            await client.call(SaslHandshakeRequest("PLAIN"), 0)
            client.send_request(SaslHandshakeRequest("PLAIN"), 0)  # a token by now
            assert await client.is_closed()
    assert "secret" not in caplog.text


async def refused_steps(
    gateway: Gateway, mechanism: str, user: str
) -> list[tuple[int, str | None, int]]:
    """Log in with a wrong password; return the code, text and size of each answer."""
    client_side: Mechanism = Plain(user, "wrong-secret")
    if mechanism != "PLAIN":
        client_side = Scram(mechanism, user, "wrong-secret")
    found = []
    async with await RawClient.connect(first_port(gateway)) as client:
        await client.call(SaslHandshakeRequest(mechanism), 1)
        steps = await client_side.begin(HOST)
        token = next(steps)
        while True:
            answer = await client.call(SaslAuthenticateRequest(token), 1)
            found.append((answer.error_code, answer.error_message, len(answer.auth_bytes)))
            if answer.error_code:
                assert await client.is_closed()
                return found
            token = steps.send(answer.auth_bytes)


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_unknown_user_is_answered_as_a_wrong_password_is(
    mechanism: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "users.toml"
    path.write_text('alice = "alice-secret"\n')
    path.chmod(0o600)
    metrics = PrometheusMetrics()
    async with (
        ScriptedBroker(lambda frame: b"") as broker,
        running(broker.address, users=read_users(path), measurements=metrics) as gateway,
    ):
        known = await refused_steps(gateway, mechanism, "alice")
        assert known[-1][:2] == (58, "Authentication failed: Invalid username or password")
        for _ in range(2):
            assert await refused_steps(gateway, mechanism, "mallory") == known
    failed = f'aiokafka08_gateway_failed_logins_total{{mechanism="{mechanism}"}} 3.0'
    assert failed in metrics.text().decode()
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2  # the second one is the count
    assert f"login as user 'alice' failed: {mechanism}" in lines[0]
    assert lines[0].startswith(HOST)
    assert "(2 more times" in lines[1]
    assert "secret" not in caplog.text


async def test_user_of_a_failed_login_is_shortened_and_escaped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with secured(users=users()) as gateway:
        await refused_steps(gateway, "PLAIN", "m\x1b[31m" + "m" * 9000)
    (line,) = [record.getMessage() for record in caplog.records]
    assert "login as user 'm\\x1b[31mmm" in line
    assert len(line) < 400


async def test_salt_of_an_unknown_user_stays() -> None:
    hiding = SaslUsers({"alice": PASSWORD}, hiding_key=b"key")

    def salt(user: str) -> bytes:
        steps = hiding.authenticate("SCRAM-SHA-256")
        next(steps)
        return steps.send(f"n,,n={user},r=abcdefgh".encode()).split(b",")[1]

    assert salt("bob") == salt("bob") != salt("carol")
    assert len(salt("bob")) == len(salt("alice"))


async def test_failed_login_is_answered_late_and_others_do_not_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with secured(users=users()) as gateway:
        await refused_steps(gateway, "PLAIN", "alice")
        async with await RawClient.connect(first_port(gateway)) as client:
            await client.call(SaslHandshakeRequest("PLAIN"), 1)
            client.send_request(SaslAuthenticateRequest(WRONG), 1)
            found = await client.call(SaslAuthenticateRequest(TOKEN), 1)  # a second guess
            assert found.error_code == 58
            assert await client.is_closed()
        monkeypatch.setattr(handler, "FAILED_LOGIN_S", 3600.0)
        async with await RawClient.connect(first_port(gateway)) as client:
            await client.call(SaslHandshakeRequest("PLAIN"), 1)
            client.send_request(SaslAuthenticateRequest(WRONG), 1)
            answer = asyncio.ensure_future(client.frame())
            assert await listed(gateway, **login()) == ["t"]
            assert not answer.done()
            reset(cast("asyncio.Transport", client.writer.transport))  # what waits for it ends
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await answer


async def test_client_that_does_not_log_in_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler, "LOGIN_S", 0.05)
    async with (
        secured(users=users()) as gateway,
        await RawClient.connect(first_port(gateway)) as client,
    ):
        assert await client.is_closed()


async def test_client_that_has_not_logged_in_costs_the_target_nothing() -> None:
    async with (
        ScriptedBroker(lambda frame: b"") as broker,
        running(broker.address, users=users()) as gateway,
    ):
        connections = broker.connection_count
        async with await RawClient.connect(first_port(gateway)) as client:
            await client.call(SaslHandshakeRequest("PLAIN"), 1)
            await client.call(SaslAuthenticateRequest(WRONG), 1)
            assert await client.is_closed()
        assert broker.connection_count == connections


async def test_clients_without_a_login_share_what_a_broker_offers() -> None:
    async with (
        EmbeddedCluster(version="0.10") as cluster,
        running(cluster.bootstrap_servers, users=users()) as gateway,
    ):
        told = []
        for is_first in (True, False, False):
            async with await RawClient.connect(first_port(gateway)) as client:
                told.append((await client.call(ApiVersionsRequest(), 0)).api_versions)
            if is_first:
                cluster.kill(0)  # it can't be asked again
        assert told[0]
        assert told[1:] == told[:1] * 2


async def test_large_frame_before_the_login_is_refused_by_its_size() -> None:
    async with (
        ScriptedBroker(lambda frame: b"") as broker,
        running(broker.address, users=users()) as gateway,
        await RawClient.connect(first_port(gateway)) as client,
        asyncio.timeout(10),
    ):
        client.writer.write((90 << 20).to_bytes(4, "big"))
        assert await client.is_closed()


@pytest.mark.parametrize("has_handshake", [False, True])
async def test_token_in_place_of_a_request_is_not_shown(
    has_handshake: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A client id begins where the password of this user does."""
    password = "4f3b8b7d2a6c9e1f0a5d4c3b2e1f6a7b8c9d0e1f2a3b4c5d6e7f8a9b0c1d2e3f"
    caplog.set_level(logging.DEBUG)
    async with (
        ScriptedBroker(lambda frame: b"") as broker,
        running(broker.address, users=SaslUsers({"billing": password})) as gateway,
        await RawClient.connect(first_port(gateway)) as client,
    ):
        if has_handshake:
            await client.call(SaslHandshakeRequest("PLAIN"), 1)
        client.send(b"\0billing\0" + password.encode())
        assert await client.is_closed()
        shown = caplog.text + repr(gateway.clients.rows())
    assert password[5:20] not in shown
    assert "is refused" in caplog.text


async def test_sasl_requests_never_reach_the_target() -> None:
    """The connection to it may be authenticated as the gateway."""
    async with (
        ScriptedBroker(lambda frame: b"") as broker,
        running(broker.address) as gateway,
        await RawClient.connect(first_port(gateway)) as client,
    ):
        assert (await client.call(SaslHandshakeRequest("PLAIN"), 1)).error_code == 34
        assert (await client.call(SaslAuthenticateRequest(TOKEN), 1)).error_code == 34
        client.send(struct.pack(">hhih", 36, 2, 1, -1))
        assert await client.is_closed()
        assert not broker.requests


async def test_clients_use_tls_and_sasl(certificate: Path) -> None:
    tls = server_context(certificate / "cert.pem", certificate / "key.pem", None)
    trusted = create_ssl_context(cafile=certificate / "cert.pem")
    async with secured(tls=tls, users=users()) as gateway:
        options = login(security_protocol="SASL_SSL", ssl_context=trusted)
        assert await listed(gateway, **options) == ["t"]
        with pytest.raises(KafkaError, match="certificate verify failed"):
            await listed(gateway, **options | {"ssl_context": create_ssl_context()})


async def test_client_certificate_is_demanded_and_listed(
    certificate: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cert, key = certificate / "cert.pem", certificate / "key.pem"
    tls = server_context(cert, key, cert)
    named = create_ssl_context(cafile=cert, certfile=cert, keyfile=key)
    async with secured(tls=tls) as gateway:
        options = {"security_protocol": "SSL"}
        assert await listed(gateway, **options, ssl_context=named) == ["t"]
        assert {row["principal"] for row in gateway.clients.rows()} == {"commonName=me"}
        with pytest.raises(KafkaError):
            await listed(gateway, **options, ssl_context=create_ssl_context(cafile=cert))
        with pytest.raises(KafkaError):
            await listed(gateway)
    assert "no TLS: " in caplog.text


async def test_large_responses_and_ends_pass_through_tls(certificate: Path) -> None:
    tls = server_context(certificate / "cert.pem", certificate / "key.pem", None)
    large = b"x" * 3_000_000
    async with (
        ScriptedBroker(lambda frame: frame[4:8] + large) as broker,
        running(broker.address, tls=tls) as gateway,
    ):
        context = create_ssl_context(cafile=certificate / "cert.pem")
        opened = await asyncio.open_connection(HOST, first_port(gateway), ssl=context)
        async with RawClient(*opened) as client, asyncio.timeout(30):
            for _ in range(3):
                client.send(struct.pack(">hhih", 12, 0, 1, -1))
            for _ in range(3):
                assert (await client.frame())[4:] == large


@pytest.fixture(params=[False, True], ids=["TCP", "TLS"])
def transport(request: pytest.FixtureRequest, certificate: Path) -> tuple[Any, Any]:
    """The TLS of a listener and that of its client; None for both, or for none."""
    if not request.param:
        return None, None
    served = server_context(certificate / "cert.pem", certificate / "key.pem", None)
    return served, create_ssl_context(cafile=certificate / "cert.pem")


def unacknowledged(size: int, version: int = 7) -> bytes:
    """Return a request of Produce with acks=0 and this many bytes that are no records."""
    head = struct.pack(">hhih", 0, version, 1, -1) + struct.pack(">hhi", -1, 0, 1000)
    topic = struct.pack(">ih1sii", 1, 1, b"t", 1, 0) + struct.pack(">i", size)
    return head + topic + bytes(size)


@pytest.mark.parametrize(("count", "size"), [(10, 100), (50, 20_000), (5, 300_000)])
async def test_client_that_closes_behind_unacknowledged_messages_loses_none(
    transport: tuple[Any, Any], count: int, size: int
) -> None:
    tls, context = transport
    async with (
        ScriptedBroker(lambda frame: b"") as broker,
        running(broker.address, tls=tls) as gateway,
    ):
        opened = await asyncio.open_connection(HOST, first_port(gateway), ssl=context)
        client = RawClient(*opened)
        for _ in range(count):
            client.send(unacknowledged(size))
        client.writer.close()
        await client.writer.wait_closed()
        await until(lambda: len(broker.requests) == count, "all have come")
        await until(lambda: not connections(gateway), "the connection has ended")


async def test_unacknowledged_messages_outlive_a_response_that_nobody_reads(
    transport: tuple[Any, Any],
) -> None:
    """The client has gone. If the gateway had closed its socket, the response would reset it."""
    tls, context = transport
    list_groups, count = struct.pack(">hhih", 16, 0, 7, -1), 5
    async with ScriptedBroker(lambda frame: b"", tls) as broker:
        protocol = "PLAINTEXT" if tls is None else "SSL"
        network = target_network(broker.address, security_protocol=protocol, ssl_context=context)
        async with (
            running("unused:1", network=network) as gateway,
            await RawClient.connect(first_port(gateway)) as client,
        ):
            client.send(list_groups)
            await until(lambda: list_groups in broker.requests, "the request has come")
            broker.reads.clear()
            for _ in range(count):
                client.send(unacknowledged(300_000))

            def passed() -> int:
                rows: list[dict[str, Any]] = gateway.clients.rows()
                found = [row["requests"]["passed"].get("Produce", {}) for row in rows]
                return sum(sum(one.values()) for one in found)

            await until(lambda: passed() == count, "the gateway has taken all")
            reset(cast("asyncio.Transport", client.writer.transport))
            await until(lambda: not connections(gateway), "the client has gone")
            broker.send(list_groups[4:8] + bytes(6))
            broker.reads.set()
            await until(lambda: len(broker.requests) == 1 + count, "all have come")


async def test_client_of_another_network_gets_no_handshake(
    certificate: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tls = server_context(certificate / "cert.pem", certificate / "key.pem", None)
    context = create_ssl_context(cafile=certificate / "cert.pem")
    async with (
        ScriptedBroker(lambda frame: b"") as broker,
        running(broker.address, tls=tls, allowed=()) as gateway,
    ):
        with pytest.raises((OSError, ssl.SSLError)):
            await asyncio.open_connection(HOST, first_port(gateway), ssl=context)
    assert "in no network that --allow names" in caplog.text


async def test_what_a_broker_does_not_read_counts_in_the_limit(
    transport: tuple[Any, Any], caplog: pytest.LogCaptureFixture
) -> None:
    tls, context = transport
    async with ScriptedBroker(lambda frame: frame[4:8], tls) as broker:
        protocol = "PLAINTEXT" if tls is None else "SSL"
        network = target_network(broker.address, security_protocol=protocol, ssl_context=context)
        async with (
            running("unused:1", network=network, max_held_bytes=12 << 20) as gateway,
            await RawClient.connect(first_port(gateway)) as client,
        ):
            client.send(struct.pack(">hhih", 12, 0, 1, -1))
            await client.frame()
            broker.reads.clear()
            client.send(struct.pack(">hhih", 12, 0, 1, -1))  # it waits for this one
            for _ in range(2):
                client.send(unacknowledged(8 << 20))
            assert await client.is_closed()
    assert "max_held_bytes=12582912" in caplog.text


def connections(gateway: Gateway) -> int:
    """Return how many connections of clients are open."""
    return sum(state.connections for state in gateway.states())


# --- options --------------------------------------------------------------------------------------


def codes(options: GatewayOptions) -> set[Code]:
    return {one.code for one in judge(TargetSample((HOST, 1), {}, {}), options, FLAG_NAMES)}


def test_password_for_the_target_should_not_be_readable() -> None:
    options = gateway_options(f"{HOST}:1")
    network = target_network(f"{HOST}:1", **login())
    assert PASSWORDS_CODE in codes(replace(options, network=network))
    network = target_network(f"{HOST}:1", **login("SCRAM-SHA-256"))
    assert PASSWORDS_CODE not in codes(replace(options, network=network))


def test_users_need_a_file_that_others_cannot_read(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    path.write_text('alice = "alice-secret"\n')
    path.chmod(0o644)
    with pytest.raises(IllegalArgumentError, match=r"users\.toml: .*chmod 600"):
        read_users(path)
    path.chmod(0o600)
    assert "secret" not in repr(read_users(path))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "no users"),
        ("alice", "not TOML"),
        ("alice = 7", "'alice'=…: expected user"),
        ("alice = ''", "'alice'=…: expected user"),
        ("[users]\nalice = 'alice-secret'", "'users'=…: expected user"),
    ],
)
def test_wrong_users_are_named_without_passwords(tmp_path: Path, text: str, error: str) -> None:
    path = tmp_path / "users.toml"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(IllegalArgumentError, match=error) as caught:
        read_users(path)
    assert "secret" not in str(caught.value)


def test_files_of_security_are_relative_to_that_of_options(
    tmp_path: Path, certificate: Path
) -> None:
    for name in ("cert.pem", "key.pem"):
        (tmp_path / name).write_bytes((certificate / name).read_bytes())
        (tmp_path / name).chmod(0o640)
    (tmp_path / "users.toml").write_text('alice = "alice-secret"\n')
    (tmp_path / "users.toml").chmod(0o600)
    path = tmp_path / "gateway.toml"
    path.write_text(
        'to = "kafka:9092"\nlisten = "10.0.0.5:9092"\ntls_cert = "cert.pem"\n'
        'tls_key = "key.pem"\nusers = "users.toml"\n'
    )
    settings = read_settings(path, {})
    assert PASSWORDS_CODE not in codes(settings.options)
    assert PASSWORDS_CODE in codes(replace(settings.options, tls=None))
    assert settings.options.tls is not None
    assert settings.options.tls.verify_mode is ssl.CERT_NONE
    assert settings.options.is_allowed("192.0.2.1")  # who they are is known otherwise
    assert "secret" not in repr(settings)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"tls_key": "key.pem"}, "--tls-key key.pem: expected --tls-cert too"),
        ({"tls_client_ca": "ca.pem"}, "--tls-client-ca ca.pem: expected --tls-cert too"),
        ({"tls_cert": "/no/cert.pem"}, "--tls-cert: /no/cert.pem: No such file"),
        ({"users": "/no/users.toml"}, "/no/users.toml: No such file"),
    ],
)
def test_wrong_files_of_security_are_named(given: dict[str, Any], error: str) -> None:
    with pytest.raises(IllegalArgumentError, match=error):
        read_settings(None, {"to": "kafka:9092", **given})


def test_key_that_others_can_read_is_refused(tmp_path: Path, certificate: Path) -> None:
    key = tmp_path / "key.pem"
    key.write_bytes((certificate / "key.pem").read_bytes())
    given = {"to": "kafka:9092", "tls_cert": str(certificate / "cert.pem"), "tls_key": str(key)}
    for mode in (0o644, 0o660):
        key.chmod(mode)
        with pytest.raises(
            IllegalArgumentError, match=r"key\.pem: it has a private key, and others"
        ):
            read_settings(None, given)
    key.write_bytes(key.read_bytes() + (certificate / "cert.pem").read_bytes())
    key.chmod(0o644)  # certificate and key in one file
    with pytest.raises(IllegalArgumentError, match="it has a private key"):
        read_settings(None, {"to": "kafka:9092", "tls_cert": str(key)})
    key.chmod(0o640)  # of root, with the gateway's group
    assert read_settings(None, given).options.tls is not None


def test_listener_without_certificates_needs_networks(tmp_path: Path, certificate: Path) -> None:
    given = {"to": "kafka:9092", "listen": "10.0.0.5:9092"}
    given["tls_cert"], given["tls_key"] = (
        str(certificate / name) for name in ("cert.pem", "key.pem")
    )
    with pytest.raises(IllegalArgumentError, match="Name the clients' networks"):
        read_settings(None, given)
    given["tls_client_ca"] = str(certificate / "cert.pem")
    assert read_settings(None, given).options.is_allowed("192.0.2.1")
