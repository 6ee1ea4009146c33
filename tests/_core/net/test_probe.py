"""`probe_version()`: each kind of peer that isn't a Kafka broker is recognised in time."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aiokafka08._core.net.config import NetConfig
from aiokafka08._core.net.node import Lane, Node
from aiokafka08._core.net.probe import probe_version
from aiokafka08._core.net.versions import BrokerLine
from aiokafka08.errors import (
    CertificateError,
    KafkaConnectionError,
    KafkaError,
    KafkaProtocolError,
    KafkaTimeoutError,
    UnsupportedVersionError,
)
from aiokafka08.protocol.api import ApiKey
from aiokafka08.protocol.requests.api_versions import ApiVersionsResponse, VersionRange
from aiokafka08.protocol.requests.list_offsets import ListOffsetsResponse
from aiokafka08.testing import LINES, EmbeddedCluster
from tests._core.net.conftest import MakeConfig, Recorder
from tests._core.net.scripted_peers import (
    OF_0_8_2,
    PeerConnection,
    ScriptedPeer,
    close_at_once,
    http,
    listening,
    swallow,
)
from tests.brokers.ports import free_port
from tests.support.waiting import until

pytestmark = pytest.mark.both_loops

TLS = Path(__file__).with_name("tls")


@pytest.fixture
def config(make_config: MakeConfig) -> NetConfig:
    return make_config(request_timeout_ms=2000)


@pytest.fixture
def server_tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "cert.pem", TLS / "key.pem")
    return context


@pytest.fixture
def client_tls() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(TLS / "cert.pem"))


@pytest.mark.parametrize("version", LINES)
async def test_every_line_of_the_embedded_cluster_is_detected(
    version: str, config: NetConfig
) -> None:
    async with EmbeddedCluster(version=version, topics={"t": 1}) as cluster:
        (node,) = cluster.nodes.values()
        took: list[float] = []
        address = (node.host, node.port)
        found = await probe_version(address, config, responded=took.append, exact=True)
        assert str(found.line) == version
        assert len(took) >= 2  # seconds of the event loop; uvloop counts milliseconds
        await until(lambda: cluster.connections() == 0, "the connection was thrown away")


async def test_a_closed_port_is_refused(config: NetConfig) -> None:
    port = free_port()
    with pytest.raises(KafkaConnectionError, match=rf"127\.0\.0\.1:{port}: Connection refused"):
        await probe_version(("127.0.0.1", port), config)


async def test_a_missing_host_name_is_named(config: NetConfig) -> None:
    with pytest.raises(KafkaConnectionError, match=r"no-such-host\.invalid:9092: .*(n|N)ame"):
        await probe_version(("no-such-host.invalid", 9092), config)


@pytest.mark.parametrize("host", ["a..b", "x" * 64, "\ud800"])
async def test_an_impossible_host_name_is_an_error(config: NetConfig, host: str) -> None:
    with pytest.raises(KafkaConnectionError):
        await probe_version((host, 9092), config)


@pytest.mark.parametrize("port", [-1, 0, 65536, 2**31 - 1])
async def test_an_impossible_port_is_an_error(config: NetConfig, port: int) -> None:
    with pytest.raises(KafkaConnectionError):  # brokers without a plain listener say -1
        await probe_version(("127.0.0.1", port), config)


async def test_a_peer_that_closes_at_once_is_no_broker(config: NetConfig) -> None:
    async with listening(close_at_once) as peer:
        with pytest.raises(KafkaProtocolError, match="closes on ListOffsets and on ApiVersions"):
            await probe_version(peer.address, config)


async def test_a_silent_peer_times_out_and_is_called_silent(
    make_config: MakeConfig,
) -> None:
    config = make_config(request_timeout_ms=300)
    async with listening(swallow) as peer:
        with pytest.raises(KafkaTimeoutError, match="accepts connections but doesn't respond"):
            await asyncio.wait_for(probe_version(peer.address, config), 5)
        await until(peer.links[0].reader.at_eof, "the connection was thrown away")


async def test_an_http_server_is_recognised(config: NetConfig) -> None:
    async with listening(http) as peer:
        with pytest.raises(KafkaProtocolError, match="not a Kafka broker: it responds in HTTP"):
            await probe_version(peer.address, config)


@pytest.mark.parametrize(
    "greeting", [b"SSH-2.0-OpenSSH_9.6\r\n", b"220 smtp ready\r\n", b"\0\0\0\3abc", b"\xff" * 100]
)
async def test_the_first_bytes_of_another_protocol_are_quoted(
    config: NetConfig, greeting: bytes
) -> None:
    async def greet(link: PeerConnection) -> None:
        link.writer.write(greeting)
        await link.wait_eof()

    async with listening(greet) as peer:
        with pytest.raises(KafkaProtocolError, match="its response begins with"):
            await probe_version(peer.address, config)


async def test_a_tls_listener_is_recognised_by_its_alert(
    config: NetConfig, server_tls: ssl.SSLContext
) -> None:
    async with listening(swallow, tls=server_tls) as peer:
        with pytest.raises(KafkaError, match=r"TLS.*security_protocol='SSL'"):
            await probe_version(peer.address, config)


async def test_tls_to_a_plaintext_broker_fails_with_the_reason(
    make_config: MakeConfig, client_tls: ssl.SSLContext
) -> None:
    config = make_config(ssl_context=client_tls)
    async with EmbeddedCluster() as cluster:
        (node,) = cluster.nodes.values()
        with pytest.raises(KafkaConnectionError, match="TLS"):
            await probe_version((node.host, node.port), config)


async def test_an_untrusted_certificate_fails_with_the_reason(
    make_config: MakeConfig, server_tls: ssl.SSLContext
) -> None:
    config = make_config(ssl_context=ssl.create_default_context())
    async with listening(swallow, tls=server_tls) as peer:
        with pytest.raises(CertificateError, match=r"TLS.*certificate verify failed"):
            await probe_version(peer.address, config)


async def test_a_wrong_certificate_name_fails_with_the_reason(
    make_config: MakeConfig, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    config = make_config(ssl_context=client_tls)
    async with listening(swallow, host="127.0.0.2", tls=server_tls) as peer:
        with pytest.raises(KafkaConnectionError, match=r"127\.0\.0\.2"):
            await probe_version(peer.address, config)


async def test_an_endless_tls_handshake_times_out(
    make_config: MakeConfig, client_tls: ssl.SSLContext
) -> None:
    config = make_config(ssl_context=client_tls, request_timeout_ms=300)
    async with listening() as peer:
        with pytest.raises(KafkaTimeoutError, match="TLS handshake"):
            await probe_version(peer.address, config)


@pytest.mark.parametrize("question", [1, 2, 3, 4])
async def test_a_connection_cut_before_a_response_is_probed_again(
    config: NetConfig, question: int
) -> None:
    broker = ScriptedPeer(OF_0_8_2)
    broker.cut_at[question] = 0
    async with listening(broker) as peer:
        found = await probe_version(peer.address, config, exact=True)
        assert found.line is BrokerLine.V0_8_2
        assert ApiKey.API_VERSIONS not in broker.requests


@pytest.mark.parametrize("cut", [1, 3, 4, 7])
@pytest.mark.parametrize("question", [1, 2, 3, 4])
async def test_a_connection_cut_within_a_response_is_an_error(
    config: NetConfig, question: int, cut: int
) -> None:
    broker = ScriptedPeer(OF_0_8_2)
    broker.cut_at[question] = cut
    async with listening(broker) as peer:
        with pytest.raises(KafkaConnectionError, match="closed in the middle of a response"):
            await probe_version(peer.address, config, exact=True)


async def test_a_broker_that_closes_after_each_first_response(config: NetConfig) -> None:
    responses = {key: one for key, one in OF_0_8_2.items() if key != ApiKey.OFFSET_FETCH}
    broker = ScriptedPeer(responses)
    async with listening(broker) as peer:  # that is what 0.8.0 does
        found = await probe_version(peer.address, config, exact=True)
        assert found.line is BrokerLine.V0_8_0
        assert broker.requests == [2, 1, 3, 9, 2, 9]


async def test_a_4_x_broker_is_recognised(config: NetConfig) -> None:
    ranges = [VersionRange(1, 4, 18), VersionRange(2, 1, 10), VersionRange(18, 0, 4)]
    broker = ScriptedPeer({ApiKey.API_VERSIONS: ApiVersionsResponse(0, ranges)})
    async with listening(broker) as peer:
        host, port = peer.address
        with pytest.raises(UnsupportedVersionError, match=rf"{host}:{port}: .*4\.x"):
            await probe_version(peer.address, config)


async def test_a_wrong_correlation_id_means_no_kafka_broker(config: NetConfig) -> None:
    async def wrong(link: PeerConnection) -> None:
        link.respond(await link.read(), ListOffsetsResponse([]), correlation_id=77)
        await link.wait_eof()

    async with listening(wrong) as peer:
        with pytest.raises(KafkaProtocolError, match="wrong correlation id"):
            await probe_version(peer.address, config)


@pytest.mark.parametrize("turns", range(0, 40, 3))
async def test_cancelled_at_any_moment_leaves_no_socket(config: NetConfig, turns: int) -> None:
    async with EmbeddedCluster(version="0.10") as cluster:
        (node,) = cluster.nodes.values()
        probing = asyncio.create_task(probe_version((node.host, node.port), config))
        for _ in range(turns):
            await asyncio.sleep(0)
        probing.cancel()
        await asyncio.wait((probing,))
        await until(lambda: cluster.connections() == 0, "the connection was thrown away")


async def test_localhost_works_where_only_ipv4_listens(config: NetConfig) -> None:
    async with EmbeddedCluster() as cluster:
        (node,) = cluster.nodes.values()
        assert (await probe_version(("localhost", node.port), config)).line is BrokerLine.V0_8


# --- names that stand for several addresses -------------------------------------------------------


@pytest.fixture
def stands_for(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have every host name stand for these IP addresses."""

    def stands_for(*ips: str) -> None:
        async def resolve(host: str, port: int) -> list[str]:
            return list(ips)

        monkeypatch.setattr("aiokafka08._core.net.connect.resolve", resolve)

    return stands_for


@contextlib.contextmanager
def black_hole(ip: str, port: int) -> Iterator[None]:
    """An address that connections are made to in vain: its backlog is full, SYNs are dropped."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((ip, port))
        listener.listen(0)
        for _ in range(3):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex((ip, port))
        yield


async def test_a_dead_address_of_a_name_is_skipped(
    config: NetConfig, stands_for: Callable[..., None]
) -> None:
    async with EmbeddedCluster() as cluster:
        stands_for("127.0.0.2", "::1", "127.0.0.1", "127.0.0.3")
        (node,) = cluster.nodes.values()
        assert (await probe_version(("kafka.test", node.port), config)).line is BrokerLine.V0_8


async def test_a_silent_address_of_a_name_is_skipped_in_time(
    config: NetConfig, stands_for: Callable[..., None]
) -> None:
    async with EmbeddedCluster() as cluster:
        stands_for("127.0.0.2", "127.0.0.1")
        (info,) = cluster.nodes.values()
        with black_hole("127.0.0.2", info.port):
            node = Node(0, ("kafka.test", info.port), config, Recorder())
            await asyncio.wait_for(node.connection(Lane.CONTROL), 10)
            await node.stop()


async def test_a_name_with_dead_addresses_only_gives_the_reasons(
    config: NetConfig, stands_for: Callable[..., None]
) -> None:
    port = free_port()
    stands_for("127.0.0.1", "127.0.0.2")
    with pytest.raises(KafkaConnectionError) as caught:
        await probe_version(("kafka.test", port), config)
    assert caught.value.text == f"kafka.test:{port}: Connection refused"


async def test_a_name_without_addresses_is_an_error(
    config: NetConfig, stands_for: Callable[..., None]
) -> None:
    stands_for()
    with pytest.raises(KafkaConnectionError, match=r"kafka\.test:9092: .*no address"):
        await probe_version(("kafka.test", 9092), config)


async def test_the_certificate_is_checked_against_the_host_name(
    make_config: MakeConfig,
    stands_for: Callable[..., None],
    server_tls: ssl.SSLContext,
    client_tls: ssl.SSLContext,
) -> None:
    config = make_config(ssl_context=client_tls)
    stands_for("127.0.0.2")  # which is not in the certificate
    async with listening(ScriptedPeer(OF_0_8_2), host="127.0.0.2", tls=server_tls) as peer:
        found = await probe_version(("localhost", peer.address[1]), config)
        assert found.line is BrokerLine.V0_8
        with pytest.raises(KafkaConnectionError, match=r"kafka\.test"):
            await probe_version(("kafka.test", peer.address[1]), config)


async def test_the_dot_of_an_absolute_name_is_not_in_the_certificate(
    make_config: MakeConfig,
    stands_for: Callable[..., None],
    server_tls: ssl.SSLContext,
    client_tls: ssl.SSLContext,
) -> None:
    config = make_config(ssl_context=client_tls)
    stands_for("127.0.0.1")
    async with listening(ScriptedPeer(OF_0_8_2), tls=server_tls) as peer:
        node = Node(0, ("localhost.", peer.address[1]), config, Recorder())
        await node.connection(Lane.CONTROL)
        await node.stop()
