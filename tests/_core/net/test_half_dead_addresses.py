"""Addresses where something listens that isn't a broker (yet): skipped, and tried again.

A balancer without a broker behind it accepts connections and closes them, responds in HTTP, or says
nothing. Neither one bootstrap address nor one address of a name may end the search.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest

from aiokafka08._core.net.config import Address, NetConfig
from aiokafka08._core.net.limits import NET_LIMITS
from aiokafka08._core.net.node import Lane, Node
from aiokafka08._core.net.probe import probe_version
from aiokafka08._core.net.raw_stream import WrongPortError
from aiokafka08._core.net.router import Router
from aiokafka08.errors import (
    KafkaConnectionError,
    KafkaTimeoutError,
    NoBrokersAvailable,
    UnsupportedVersionError,
)
from aiokafka08.protocol.api import ApiKey
from aiokafka08.protocol.requests.api_versions import ApiVersionsResponse, VersionRange
from aiokafka08.protocol.requests.list_offsets import ListOffsetsRequest
from aiokafka08.telemetry import Connected, ConnectFailed
from aiokafka08.testing import EmbeddedCluster
from tests._core.net.conftest import MakeConfig, Recorder
from tests._core.net.scripted_peers import (
    OF_0_8_2,
    PeerConnection,
    ScriptedPeer,
    Serve,
    close_at_once,
    http,
    listening,
    swallow,
)
from tests.brokers.ports import free_port
from tests.support.waiting import until

pytestmark = pytest.mark.both_loops

ASK = ListOffsetsRequest(-1, [])
HALF_DEAD: dict[str, Serve] = {"closes": close_at_once, "speaks HTTP": http, "silent": swallow}
PINNED = [None, "0.8.2"]


async def zookeeper(link: PeerConnection) -> None:
    """A ZooKeeper server: it closes on a request for a session that makes no sense to it."""
    if await link.reader.readexactly(4) == b"srvr":
        link.writer.write(b"Zookeeper version: 3.4.6-1569965, built on 02/20/2014 09:09 GMT\n")
        await link.writer.drain()


class Balancer:
    """Serves the first connections like `before`, and is a broker of 0.8.2 after `recover()`."""

    def __init__(self, before: Serve) -> None:
        self.served = 0
        self._serve: Serve = before

    def recover(self) -> None:
        """Be a broker from now on."""
        self._serve = ScriptedPeer(OF_0_8_2)

    async def __call__(self, link: PeerConnection) -> None:
        self.served += 1
        await self._serve(link)


@pytest.fixture
async def make_router(make_config: MakeConfig, telemetry: Recorder) -> AsyncIterator[Any]:
    """Makes routers, not started, that are stopped at the end of the test."""
    made: list[Router] = []

    def make(*addresses: Address, **options: Any) -> Router:
        made.append(Router(make_config(list(addresses), **options), telemetry))
        return made[-1]

    yield make
    for router in made:
        await router.stop()


@pytest.fixture
def stands_for(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have every host name stand for these IP addresses."""

    def stands_for(*ips: str) -> None:
        async def resolve(host: str, port: int) -> list[str]:
            return list(ips)

        monkeypatch.setattr("aiokafka08._core.net.connect.resolve", resolve)

    return stands_for


def address(cluster: EmbeddedCluster) -> Address:
    (info,) = cluster.nodes.values()
    return info.host, info.port


# --- bootstrap addresses --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", HALF_DEAD)
async def test_a_balancer_without_a_broker_is_tried_again(
    make_router: Any, telemetry: Recorder, kind: str
) -> None:
    balancer = Balancer(HALF_DEAD[kind])
    limits = NET_LIMITS._replace(attempt_s=0.1)
    async with listening(balancer) as peer:
        router = make_router(
            peer.address, request_timeout_ms=400, start_timeout_ms=60_000, limits=limits
        )
        starting = asyncio.create_task(router.start())
        await until(lambda: len(telemetry.of(ConnectFailed)) >= 2, "tried again")
        assert not starting.done()
        balancer.recover()
        await asyncio.wait_for(starting, 30)
        await router.request(ASK)


@pytest.mark.parametrize("kind", HALF_DEAD)
async def test_the_reason_is_raised_at_the_deadline_only(make_router: Any, kind: str) -> None:
    async with listening(HALF_DEAD[kind]) as peer:
        router = make_router(peer.address, start_timeout_ms=400)
        began = asyncio.get_running_loop().time()
        with pytest.raises(NoBrokersAvailable, match=r"not a Kafka broker|doesn't respond"):
            await asyncio.wait_for(router.start(), 30)
        assert asyncio.get_running_loop().time() - began >= 0.39


@pytest.mark.parametrize("kind", HALF_DEAD)
async def test_a_pinned_version_skips_a_half_dead_address(make_router: Any, kind: str) -> None:
    async with EmbeddedCluster(topics={"t": 1}) as cluster, listening(HALF_DEAD[kind]) as peer:
        router = make_router(
            peer.address,
            address(cluster),
            api_version="0.8.2",
            request_timeout_ms=60_000,
            start_timeout_ms=4000,
        )
        await asyncio.wait_for(router.start(), 30)
        await router.request(ASK)


@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("api_version", PINNED)
async def test_zookeepers_port_is_named_at_once(
    make_router: Any, telemetry: Recorder, api_version: str | None, others: int
) -> None:
    async with listening(zookeeper) as peer, listening(zookeeper) as other:
        addresses = [peer.address, other.address][: 1 + others]
        router = make_router(*addresses, api_version=api_version, request_timeout_ms=60_000)
        text = "it is a ZooKeeper server. Expected the port of a broker, usually 9092"
        with pytest.raises(NoBrokersAvailable, match=text):
            await asyncio.wait_for(router.start(), 20)
        assert len(telemetry.of(ConnectFailed)) == len(addresses)


async def test_web_server_is_named_with_a_pinned_version(make_router: Any) -> None:
    async with listening(http) as peer:
        router = make_router(peer.address, api_version="0.8.2", start_timeout_ms=1000)
        with pytest.raises(NoBrokersAvailable, match="not a Kafka broker: it responds in HTTP"):
            await asyncio.wait_for(router.start(), 20)


async def test_broker_of_4_x_is_refused_with_a_pinned_version(make_router: Any) -> None:
    async with listening(of_4_x()) as peer:
        router = make_router(peer.address, api_version="0.8.2")
        with pytest.raises(UnsupportedVersionError, match=r"4\."):
            await asyncio.wait_for(router.start(), 20)


# --- names that stand for several addresses -------------------------------------------------------


@pytest.mark.parametrize("api_version", PINNED)
@pytest.mark.parametrize("kind", HALF_DEAD)
async def test_a_half_dead_address_of_a_name_is_skipped(
    make_config: MakeConfig,
    telemetry: Recorder,
    stands_for: Callable[..., None],
    kind: str,
    api_version: str | None,
) -> None:
    config = make_config(api_version=api_version, request_timeout_ms=10_000)
    stands_for("127.0.0.2", "127.0.0.1")
    async with EmbeddedCluster(version="0.8.2", topics={"t": 1}) as cluster:
        port = address(cluster)[1]
        async with listening(HALF_DEAD[kind], host="127.0.0.2", port=port):
            node = Node(0, ("kafka.test", port), config, telemetry)
            for lane in (Lane.CONTROL, Lane.FETCH):
                connection = await asyncio.wait_for(node.connection(lane), 9)
                await connection.request(ASK, timeout_s=5)
            await node.stop()
    assert not telemetry.of(ConnectFailed)


async def test_a_name_with_one_address_costs_no_request(
    make_config: MakeConfig, telemetry: Recorder
) -> None:
    async with EmbeddedCluster(version="0.8.2", topics={"t": 1}) as cluster:
        node = Node(0, address(cluster), make_config(api_version="0.8.2"), telemetry)
        await node.connection(Lane.CONTROL)
        assert not cluster.history
        await node.stop()


async def test_a_lane_goes_where_the_broker_responded(
    make_config: MakeConfig, telemetry: Recorder, stands_for: Callable[..., None]
) -> None:
    """The other address is a listener that accepts connections first, and is no broker."""
    stands_for("127.0.0.2", "127.0.0.1")
    async with EmbeddedCluster(topics={"t": 1}) as cluster:
        port = address(cluster)[1]
        async with listening(close_at_once, host="127.0.0.2", port=port) as peer:
            node = Node(0, ("kafka.test", port), make_config(), telemetry)
            await node.connection(Lane.CONTROL)
            probed = peer.accepted
            for lane in (Lane.PRODUCE, Lane.FETCH, Lane.JOIN):
                await node.connection(lane)
            assert peer.accepted == probed
            assert len(telemetry.of(Connected)) == 4
            await node.stop()


async def test_a_broker_that_moves_to_the_other_address_is_found(
    make_config: MakeConfig, telemetry: Recorder, stands_for: Callable[..., None]
) -> None:
    stands_for("127.0.0.2", "127.0.0.1")
    async with EmbeddedCluster(topics={"t": 1}) as cluster:
        port = address(cluster)[1]
        node = Node(0, ("kafka.test", port), make_config(), telemetry)
        await node.request(ASK)
        cluster.kill(0)
        await until(lambda: not node.is_connected, "the connection is lost")
        async with listening(ScriptedPeer(OF_0_8_2), host="127.0.0.2", port=port):
            await node.request(ASK)
            await node.stop()


async def test_different_failures_are_named_with_their_address(
    make_config: MakeConfig, stands_for: Callable[..., None]
) -> None:
    port = free_port()
    stands_for("127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4")
    config = make_config(request_timeout_ms=500)
    async with contextlib.AsyncExitStack() as stack:
        for host, serve in (("127.0.0.2", http), ("127.0.0.3", swallow)):
            await stack.enter_async_context(listening(serve, host=host, port=port))
        with pytest.raises(KafkaConnectionError) as caught:
            await probe_version(("kafka.test", port), config)
    assert caught.value.text == (
        f"kafka.test:{port}: 127.0.0.1, 127.0.0.4: Connection refused; 127.0.0.2: not a Kafka "
        "broker: it responds in HTTP; 127.0.0.3: accepts connections but doesn't respond to "
        "ListOffsetsRequest within 450 ms. Check that it is a Kafka broker"
    )


def of_4_x() -> ScriptedPeer:
    ranges = [VersionRange(1, 4, 18), VersionRange(2, 1, 10), VersionRange(18, 0, 4)]
    return ScriptedPeer({ApiKey.API_VERSIONS: ApiVersionsResponse(0, ranges)})


@pytest.mark.parametrize(
    ("serve", "error"), [(of_4_x(), UnsupportedVersionError), (zookeeper, WrongPortError)]
)
async def test_what_the_user_must_change_is_final_beside_a_closed_port(
    make_config: MakeConfig, stands_for: Callable[..., None], serve: Serve, error: type[Exception]
) -> None:
    """As on localhost, where often nothing listens at ::1."""
    stands_for("127.0.0.2", "127.0.0.1")
    async with listening(serve) as peer:
        with pytest.raises(error):
            await probe_version(("kafka.test", peer.address[1]), make_config())


async def test_a_name_that_resolves_slowly_times_out(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr("aiokafka08._core.net.connect.resolve", resolve)
    config: NetConfig = replace(make_config(), request_timeout_s=0.1)
    with pytest.raises(KafkaTimeoutError, match="the name wasn't resolved within 90 ms"):
        await asyncio.wait_for(probe_version(("kafka.test", 9092), config), 10)
