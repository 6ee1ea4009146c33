"""What counts as a target below 0.11: only one with a broker that is known to be old."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from aiokafka08.bridge.config import BridgeConfig, parse_config
from aiokafka08.bridge.errors import TargetUnavailableError
from aiokafka08.bridge.target_choice import with_releases
from aiokafka08.net.config import Address
from aiokafka08.protocol.api import ApiKey
from aiokafka08.protocol.requests.api_versions import ApiVersionsResponse, VersionRange
from aiokafka08.protocol.requests.list_offsets import ListOffsetsResponse
from tests.net.scripted_peers import (
    OF_0_8_2,
    Peer,
    ScriptedPeer,
    Serve,
    close_at_once,
    closed_port,
    http,
    listening,
    swallow,
)

pytestmark = [pytest.mark.timeout(60)]

CERTIFICATE = Path(__file__).parents[1] / "net" / "tls"
PROBE_S = 20
"""Below the 36 s after which an address that never responds is given up."""


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


async def release_of(config: BridgeConfig) -> str | None:
    async with asyncio.timeout(PROBE_S):
        return (await with_releases(config)).target.release


def connections(*peers: Peer) -> list[int]:
    return [peer.accepted for peer in peers]


@pytest.mark.parametrize("serve", [of_another_maker(), http, close_at_once])
async def test_target_that_proves_no_release_counts_as_modern(serve: Serve) -> None:
    """librdkafka can write to some of them; to the others it says what is wrong."""
    async with listening(serve) as peer:
        assert await release_of(config_of(peer.address)) is None


async def test_tls_that_only_python_refuses_counts_as_modern() -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(CERTIFICATE / "cert.pem", CERTIFICATE / "key.pem")
    server.maximum_version = ssl.TLSVersion.TLSv1_2
    server.set_ciphers("AES128-SHA")  # OpenSSL has it by default, Python's ssl doesn't
    tls = f'"security.protocol" = "SSL"\n"ssl.ca.location" = "{CERTIFICATE / "cert.pem"}"'
    async with listening(swallow, tls=server) as peer:
        assert await release_of(config_of(peer.address, more=tls)) is None


async def test_target_out_of_reach_is_named_with_each_reason() -> None:
    ports = closed_port(), closed_port()
    refused = "; ".join(rf"127\.0\.0\.1:{port}: Connection refused" for port in ports)
    with pytest.raises(TargetUnavailableError, match=f"no broker responds: {refused}"):
        await release_of(config_of(*(("127.0.0.1", port) for port in ports)))


@pytest.mark.parametrize("name", ["request", "socket", "socket.connection.setup"])
async def test_timeouts_of_the_file_limit_the_probe(name: str) -> None:
    async with listening(swallow) as peer:
        config = config_of(peer.address, more=f'"{name}.timeout.ms" = 200')
        with pytest.raises(TargetUnavailableError, match="within 180 ms"):
            await release_of(config)


async def test_address_that_hangs_holds_up_no_other() -> None:
    async with listening(swallow) as hanging, listening(ScriptedPeer(OF_0_8_2)) as peer:
        assert await release_of(config_of(hanging.address, peer.address)) == "0.8.2"
    async with listening(swallow) as hanging, listening(of_4_x()) as peer:
        assert await release_of(config_of(hanging.address, peer.address)) is None


async def test_one_old_broker_makes_the_target_old() -> None:
    """In an upgrade the first broker that responds would decide, anew in each session."""
    async with listening(of_4_x()) as new, listening(ScriptedPeer(OF_0_8_2)) as old:
        assert await release_of(config_of(new.address, old.address)) == "0.8.2"
        assert await release_of(config_of(old.address, new.address)) == "0.8.2"


async def test_release_that_is_known_is_not_asked_again() -> None:
    """All parts of a process write alike, also while the target is upgraded."""
    async with listening(ScriptedPeer(OF_0_8_2)) as old, listening(of_4_x()) as new:
        config, modern = config_of(old.address), config_of(new.address)
        assert (await release_of(config), await release_of(modern)) == ("0.8.2", None)
        asked = connections(old, new)
        assert await release_of(await with_releases(config)) == "0.8.2"
        assert (await release_of(config), await release_of(modern)) == ("0.8.2", None)
        assert connections(old, new) == asked


async def test_answer_that_proves_nothing_is_not_kept() -> None:
    """A proxy responds so while an old broker behind it restarts."""
    broker = ScriptedPeer({})
    async with listening(broker) as peer:
        config = config_of(peer.address)
        assert await release_of(config) is None
        broker.responses = OF_0_8_2
        assert await release_of(config) == "0.8.2"
