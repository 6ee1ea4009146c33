"""A target below 0.11 is refused by name: only one with a broker that is known to be old."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from aiokafka08._core.net.config import Address
from aiokafka08.admin import AIOKafkaAdminClient
from aiokafka08.bridge.config import BridgeConfig, parse_config
from aiokafka08.bridge.copy.status import CopyStatus
from aiokafka08.bridge.daemon import run_bridge
from aiokafka08.bridge.errors import TargetUnavailableError
from aiokafka08.bridge.target.target_cluster import Target
from aiokafka08.bridge.target.target_release import refuse_old_target
from aiokafka08.errors import KafkaConfigurationError, UnsupportedVersionError
from aiokafka08.protocol.api import ApiKey
from aiokafka08.protocol.requests.api_versions import ApiVersionsResponse, VersionRange
from aiokafka08.protocol.requests.list_offsets import ListOffsetsResponse
from tests._core.net.scripted_peers import (
    OF_0_8_2,
    ScriptedPeer,
    Serve,
    close_at_once,
    http,
    listening,
    swallow,
)
from tests._tools.cli.conftest import RunCommand
from tests.bridge.clusters import MESSAGES, TargetReader, bridge_text, write
from tests.brokers import RealCluster
from tests.brokers.fixtures import BrokerClusters
from tests.brokers.ports import free_port
from tests.support.paths import ROOT

pytestmark = [pytest.mark.timeout(60)]

CERTIFICATE = ROOT / "tests/_core/net/tls"
PROBE_S = 20
"""Below the 27 s after which an address that never responds is given up."""


def of_4_x() -> ScriptedPeer:
    ranges = [VersionRange(1, 4, 18), VersionRange(2, 1, 10), VersionRange(18, 0, 4)]
    return ScriptedPeer({ApiKey.API_VERSIONS: ApiVersionsResponse(0, ranges)})


def of_another_maker() -> ScriptedPeer:
    """Respond to ListOffsets 0, and close on Fetch 1."""
    return ScriptedPeer({ApiKey.LIST_OFFSETS: ListOffsetsResponse([])})


def config_of(*addresses: Address, more: str = "") -> BridgeConfig:
    """Return a bridge's file; `more` are lines of `[target.properties]`."""
    bootstrap = ",".join(f"{host}:{port}" for host, port in addresses)
    return parse_config(
        f'name = "b"\n[source]\nbootstrap = "localhost:1"\n[target]\nbootstrap = "{bootstrap}"\n'
        f'[target.properties]\n{more}\n[topics]\ninclude = ["t"]\n'
    )


async def check(config: BridgeConfig) -> None:
    async with asyncio.timeout(PROBE_S):
        await refuse_old_target(config)


@pytest.mark.parametrize("serve", [of_another_maker(), http, close_at_once])
async def test_target_that_proves_no_release_is_not_refused(serve: Serve) -> None:
    """librdkafka can write to some of them; to the others it says what is wrong."""
    async with listening(serve) as peer:
        await check(config_of(peer.address))


async def test_tls_that_only_python_refuses_is_not_refused() -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(CERTIFICATE / "cert.pem", CERTIFICATE / "key.pem")
    server.maximum_version = ssl.TLSVersion.TLSv1_2
    server.set_ciphers("AES128-SHA")  # OpenSSL has it by default, Python's ssl doesn't
    tls = f'"security.protocol" = "SSL"\n"ssl.ca.location" = "{CERTIFICATE / "cert.pem"}"'
    async with listening(swallow, tls=server) as peer:
        await check(config_of(peer.address, more=tls))


async def test_target_out_of_reach_is_named_with_each_reason() -> None:
    ports = free_port(), free_port()
    refused = "; ".join(rf"127\.0\.0\.1:{port}: Connection refused" for port in ports)
    with pytest.raises(TargetUnavailableError, match=f"no broker responds: {refused}"):
        await check(config_of(*(("127.0.0.1", port) for port in ports)))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ssl.certificate.pem", "-----BEGIN CERTIFICATE-----"),
        ("ssl.cipher.suites", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("ssl.keystore.password", "of-no-value"),
        ("sasl.mechanism", "PLAIN"),
    ],
)
async def test_security_that_only_librdkafka_knows_is_not_refused(name: str, text: str) -> None:
    """This client could ask no broker for its release, though librdkafka can connect."""
    more = f'"security.protocol" = "SSL"\n"{name}" = "{text}"'
    await check(config_of(("127.0.0.1", free_port()), more=more))


async def test_target_that_cannot_be_asked_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """librdkafka may read the file all the same, and doesn't tell an old target from an outage."""
    tls = '"security.protocol" = "SSL"\n"ssl.ca.location" = "/none/ca.pem"'
    await refuse_old_target(config_of(("localhost", 1), more=tls))
    [warning] = caplog.messages
    assert "b: the target's release isn't checked; expected 0.11 or later" in warning
    assert "/none/ca.pem" in warning


async def test_old_broker_is_named_with_its_release_and_what_to_do() -> None:
    async with listening(ScriptedPeer(OF_0_8_2)) as peer:
        host, port = peer.address
        with pytest.raises(UnsupportedVersionError) as caught:
            await check(config_of(peer.address))
    assert caught.value.text == (
        f"target.bootstrap='{host}:{port}': the broker at {host}:{port} is of 0.8.2: expected 0.11 "
        "or later, since the bridge writes in transactions. Are the source and the target "
        "swapped? Else upgrade all brokers of the target, or "
        "name another cluster"
    )


async def test_old_broker_with_tls_is_refused() -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(CERTIFICATE / "cert.pem", CERTIFICATE / "key.pem")
    tls = (
        f'"security.protocol" = "SSL"\n"ssl.ca.location" = "{CERTIFICATE / "cert.pem"}"\n'
        '"ssl.endpoint.identification.algorithm" = "none"'
    )
    async with listening(ScriptedPeer(OF_0_8_2), tls=server) as peer:
        with pytest.raises(UnsupportedVersionError, match=r"is of 0\.8\.2"):
            await check(config_of(peer.address, more=tls))


async def test_address_that_hangs_holds_up_no_other() -> None:
    async with listening(swallow) as hanging, listening(ScriptedPeer(OF_0_8_2)) as peer:
        with pytest.raises(UnsupportedVersionError):
            await check(config_of(hanging.address, peer.address))
    async with listening(swallow) as hanging, listening(of_4_x()) as peer:
        await check(config_of(hanging.address, peer.address))


async def test_one_old_broker_is_enough() -> None:
    """In an upgrade the first broker that responds would decide, anew in each session."""
    async with listening(of_4_x()) as new, listening(ScriptedPeer(OF_0_8_2)) as old:
        for addresses in ((new.address, old.address), (old.address, new.address)):
            with pytest.raises(UnsupportedVersionError):
                await check(config_of(*addresses))


@pytest.mark.real
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("version", "release"), [("0.8.2.2", "0.8.2"), ("0.9.0.1", "0.9"), ("0.10.2.2", "0.10.2")]
)
async def test_real_target_below_0_11_is_refused_and_left_alone(
    version: str,
    release: str,
    source: RealCluster,
    broker_clusters: BrokerClusters,
    unique_topic: Callable[..., str],
    cli: RunCommand,
    tmp_path: Path,
) -> None:
    """By a run, and by each command that would change or compare something."""
    old, topic = await asyncio.to_thread(broker_clusters.get, version), unique_topic("refused")
    source.create_topic(topic)
    await write(source, topic, {0: MESSAGES})
    rename = f'rename = [{{ pattern = "(.*)", to = "{topic}-copy" }}]\n'
    text = bridge_text(topic, source, old, topic, rename)
    with pytest.raises(UnsupportedVersionError):
        async with asyncio.timeout(PROBE_S):
            await run_bridge(parse_config(text), CopyStatus())
    file = tmp_path / "bridge.toml"
    file.write_text(text)
    for command in (["run"], ["status"], ["verify"], ["plan"], ["groups", "--execute"]):
        done = await asyncio.to_thread(cli, "bridge", *command, str(file))
        assert done.code == 1, done.err
        assert done.err.splitlines()[-1] == (
            f"aiokafka08: target.bootstrap='{old.bootstrap_servers}': the broker at "
            f"{old.bootstrap_servers} is of {release}: expected 0.11 or later, since the bridge "
            "writes in transactions. Are the source and the target swapped? Else upgrade all "
            "brokers of the target, or name another cluster"
        )
    async with AIOKafkaAdminClient(bootstrap_servers=old.bootstrap_servers) as admin:
        assert {name for name in await admin.list_topics() if topic in name} <= {topic}


@pytest.mark.real
@pytest.mark.full
async def test_modern_target_with_librdkafkas_tls_is_copied_to(
    source: RealCluster, unique_topic: Callable[..., str]
) -> None:
    """It wants a certificate, given by a property that this package's client doesn't know."""
    certificate, key = ((CERTIFICATE / f"{one}.pem").read_text() for one in ("cert", "key"))
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": CERTIFICATE / "cert.pem"}
    with RealCluster("4.1.0", properties=trust | {"ssl.client.auth": "required"}, ssl=True) as to:
        name = unique_topic("tls")
        source.create_topic(name)
        await write(source, name, {0: MESSAGES})
        properties = (
            '[target.properties]\n"security.protocol" = "SSL"\n'
            f'"ssl.ca.location" = "{to.ca_path}"\n'
            f'"ssl.certificate.pem" = """{certificate}"""\n"ssl.key.pem" = """{key}"""\n'
        )
        text = bridge_text(name, source, to, name, properties)
        text = text.replace(to.bootstrap_servers, to.ssl_bootstrap_servers)
        status = CopyStatus()
        await run_bridge(parse_config(text), status, until_caught_up=True)
        assert status.records == len(MESSAGES)
        reader = TargetReader(to)
        try:
            assert await asyncio.to_thread(reader.messages, name) == {0: MESSAGES}
        finally:
            reader.close()


def test_kerberos_that_librdkafka_lacks_is_refused_by_name() -> None:
    more = '"security.protocol" = "SASL_PLAINTEXT"'
    with pytest.raises(KafkaConfigurationError, match=r"GSSAPI .* has no Kerberos; expected PLAIN"):
        Target(config_of(("127.0.0.1", free_port()), more=more))
