"""`Router`: bootstrap, requests, cluster changes, start and stop at any moment."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from aiokafka08._core.net.config import Address
from aiokafka08._core.net.limits import NetLimits
from aiokafka08._core.net.router import Lane, Router
from aiokafka08._core.net.versions import BrokerLine
from aiokafka08.errors import (
    IllegalStateError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NoBrokersAvailable,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from aiokafka08.protocol.api import ApiKey, Topic
from aiokafka08.protocol.message_set import encode_entry
from aiokafka08.protocol.requests.api_versions import ApiVersionsResponse, VersionRange
from aiokafka08.protocol.requests.committed_offsets import OffsetFetchRequest
from aiokafka08.protocol.requests.fetch import FetchPartition, FetchRequest
from aiokafka08.protocol.requests.groups import GroupCoordinatorRequest, GroupCoordinatorResponse
from aiokafka08.protocol.requests.list_offsets import ListOffsetsPartition, ListOffsetsRequest
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.protocol.requests.produce import ProducePartition, ProduceRequest
from aiokafka08.structs import TopicPartition
from aiokafka08.telemetry import Connected, ConnectFailed, Disconnected
from aiokafka08.testing import (
    Answer,
    Close,
    Delay,
    EmbeddedCluster,
    Hang,
    Silence,
    Truncate,
    WrongCorrelationId,
)
from aiokafka08.testing.faults import is_version_probe
from tests._core.net.conftest import MakeConfig, Recorder
from tests._core.net.scripted_peers import (
    PeerConnection,
    ScriptedPeer,
    close_at_once,
    http,
    listening,
    swallow,
)
from tests.brokers.ports import free_port
from tests.brokers.proxy import TcpProxy
from tests.support.ipv6 import needs_ipv6
from tests.support.waiting import until

pytestmark = pytest.mark.both_loops

TLS = Path(__file__).with_name("tls")
ASK = ListOffsetsRequest(-1, [])

MakeRouter = Callable[..., Router]


@pytest.fixture
async def make_router(make_config: MakeConfig, telemetry: Recorder) -> AsyncIterator[MakeRouter]:
    """Makes routers, not started, that are stopped at the end of the test."""
    made = []

    def make(*addresses: EmbeddedCluster | Address | str, **options: Any) -> Router:
        servers: list[str | Address] = []
        for one in addresses:
            servers += (
                one.bootstrap_servers.split(",") if isinstance(one, EmbeddedCluster) else [one]
            )
        made.append(Router(make_config(servers, **options), telemetry))
        return made[-1]

    yield make
    for router in made:
        await router.stop()


async def within(seconds: float, work: Any) -> Any:
    return await asyncio.wait_for(work, seconds)


@contextlib.asynccontextmanager
async def broker_4_1() -> AsyncIterator[Address]:
    ranges = [VersionRange(1, 4, 18), VersionRange(2, 1, 10), VersionRange(18, 0, 4)]
    async with listening(
        ScriptedPeer({ApiKey.API_VERSIONS: ApiVersionsResponse(0, ranges)})
    ) as peer:
        yield peer.address


# --- bootstrap addresses --------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["0.8.0", "0.8.1", "0.8.2", "0.9", "0.10"])
async def test_router_connects_to_every_line(make_router: MakeRouter, version: str) -> None:
    async with EmbeddedCluster(brokers=3, version=version, topics={"t": 3}) as cluster:
        router = make_router(cluster)
        router.metadata.add_topics(["t"])
        await router.start()
        for partition in range(3):
            leader = router.metadata.snapshot.leader(TopicPartition("t", partition))
            assert leader == partition
            await router.request(ASK, node_id=leader)
            assert str((await router.exact_version(leader)).line) == version


async def test_router_starts_with_what_another_one_knows(make_router: MakeRouter) -> None:
    async with EmbeddedCluster(2, topics={"t": 2}) as cluster:
        first, second = make_router(cluster), make_router(cluster)
        await first.start()
        await first.metadata.wait_for_topic("t", timeout_s=10)
        known = first.leaders()
        assert known.by_partition == {
            TopicPartition("t", number): cluster.leader("t", number) for number in range(2)
        }
        requests = len(cluster.requests(MetadataRequest))
        await second.start(known)
        assert second.leaders().by_partition == known.by_partition
        assert len(cluster.requests(MetadataRequest)) == requests


async def test_open_lane_is_returned_without_connecting(make_router: MakeRouter) -> None:
    async with EmbeddedCluster(1, topics={"t": 1}) as cluster:
        router = make_router(cluster)
        await router.start()
        await router.metadata.wait_for_topic("t", timeout_s=10)
        assert router.open_lane(0, Lane.FETCH) is None
        assert router.open_lane(99, Lane.FETCH) is None
        connection = await router.connection(0, Lane.FETCH)
        assert router.open_lane(0, Lane.FETCH) is connection


async def test_exact_line_is_known_while_a_broker_is_dead(make_router: MakeRouter) -> None:
    async with EmbeddedCluster(brokers=3, version="0.8.2", topics={"t": 3}) as cluster:
        router = make_router(cluster)
        router.metadata.add_topics(["t"])
        await router.start()
        for node_id in range(3):
            await router.request(ASK, node_id=node_id)
        cluster.kill(2)
        for _ in range(2):
            assert (await router.exact_version()).line is BrokerLine.V0_8_2
        await until(lambda: router.nodes.get(2) is None, "the metadata is refreshed")


async def test_nodes_known_later_have_the_exact_line(make_router: MakeRouter) -> None:
    async with EmbeddedCluster(brokers=2, version="0.8.2", topics={"t": 1}) as cluster:
        router = make_router(cluster)
        await router.start()
        await router.exact_version()
        info = cluster.nodes[1]
        router.register_broker(7, (info.host, info.port))
        connection = await router.connection(7, Lane.CONTROL)
        assert connection.version.line is BrokerLine.V0_8_2


async def test_exact_version_ends_when_the_router_is_stopped(make_router: MakeRouter) -> None:
    async with EmbeddedCluster(version="0.8.2", topics={"t": 1}) as cluster:
        router = make_router(cluster, request_timeout_ms=60_000)
        await router.start()
        probe = cluster.fault(OffsetFetchRequest, then=Hang(), times=None)
        asking = asyncio.create_task(router.exact_version())
        await until(lambda: probe.hits, "the broker is asked for its line")
        await router.stop()
        with pytest.raises(IllegalStateError, match="was stopped"):
            await within(20, asking)


async def test_addresses_that_are_no_brokers_are_skipped(make_router: MakeRouter) -> None:
    async with (
        EmbeddedCluster(topics={"t": 1}) as cluster,
        listening(http) as web,
        listening(swallow) as silent,
        listening(close_at_once) as closing,
        broker_4_1() as modern,
    ):
        router = make_router(
            ("127.0.0.1", free_port()),
            web.address,
            ("no-such-host.invalid", 9092),
            silent.address,
            closing.address,
            modern,
            cluster,
            request_timeout_ms=60_000,
        )
        await within(30, router.start())  # the silent one costs a second
        await router.request(ASK)


@pytest.mark.parametrize("first", [("127.0.0.1", 0), "http", "silent", "closing"])
async def test_a_bad_first_address_costs_a_second_at_most(
    make_router: MakeRouter, first: Any
) -> None:
    serve = {"http": http, "silent": swallow, "closing": close_at_once}.get(str(first), swallow)
    async with EmbeddedCluster() as cluster, listening(serve) as peer:
        bad = peer.address if isinstance(first, str) else ("127.0.0.1", free_port())
        router = make_router(bad, cluster, request_timeout_ms=60_000)
        await within(20, router.start())


async def test_no_broker_at_any_address_raises_each_reason(
    make_router: MakeRouter, telemetry: Recorder
) -> None:
    async with (
        listening(http) as web,
        listening(swallow) as silent,
        listening(close_at_once) as closing,
    ):
        dead = ("127.0.0.1", free_port())
        router = make_router(
            dead,
            web.address,
            silent.address,
            closing.address,
            ("no-such-host.invalid", 9092),
            request_timeout_ms=1500,
        )
        with pytest.raises(NoBrokersAvailable) as caught:
            await within(20, router.start())
        text = str(caught.value)
        for address, reason in (
            (dead, "Connection refused"),
            (web.address, "it responds in HTTP"),
            (silent.address, "accepts connections but doesn't respond to ListOffsetsRequest"),
            (closing.address, "closes on ListOffsets and on ApiVersions"),
        ):
            assert f"{address[0]}:{address[1]}" in text
            assert reason in text
        assert "no-such-host.invalid:9092: " in text
        assert not telemetry.of(Connected)


async def test_start_tries_again_after_a_connection_cut_while_probing(
    make_router: MakeRouter, telemetry: Recorder
) -> None:
    async with EmbeddedCluster(topics={"t": 1}) as cluster:
        cluster.fault(ListOffsetsRequest, then=Close(after_bytes=6), times=2)
        router = make_router(cluster, request_timeout_ms=60_000)
        await within(30, router.start())
        assert len(telemetry.of(ConnectFailed)) == 2
        await router.request(ASK)


async def test_start_waits_for_a_broker_that_comes_up(
    make_router: MakeRouter, telemetry: Recorder
) -> None:
    async with EmbeddedCluster(topics={"t": 1}) as cluster, listening(swallow) as silent:
        cluster.kill(0)
        router = make_router(silent.address, cluster, request_timeout_ms=60_000)
        starting = asyncio.create_task(router.start())
        await until(lambda: len(telemetry.of(ConnectFailed)) >= 2, "tried more than once")
        cluster.restart(0)
        await within(30, starting)
        await router.request(ASK)


async def test_start_timeout_may_be_longer_than_requests_take(
    make_router: MakeRouter, telemetry: Recorder
) -> None:
    async with EmbeddedCluster(topics={"t": 1}) as cluster:
        cluster.kill(0)
        router = make_router(cluster, request_timeout_ms=100, start_timeout_ms=60_000)
        starting = asyncio.create_task(router.start())
        await asyncio.sleep(0.2)  # the time that a request may take is over
        await until(lambda: len(telemetry.of(ConnectFailed)) >= 2, "two attempts")
        assert not starting.done()
        cluster.restart(0)
        await within(30, starting)


async def test_start_timeout_may_be_shorter_than_requests_take(make_router: MakeRouter) -> None:
    router = make_router(
        ("127.0.0.1", free_port()), request_timeout_ms=60_000, start_timeout_ms=200
    )
    with pytest.raises(NoBrokersAvailable, match="Connection refused"):
        await within(30, router.start())


async def test_start_names_the_hang_of_a_broker_that_came_up(
    make_router: MakeRouter, telemetry: Recorder
) -> None:
    async with EmbeddedCluster(version="0.10", topics={"t": 1}) as cluster:
        cluster.fault(MetadataRequest, then=Hang(), times=None)
        cluster.kill(0)
        router = make_router(cluster, request_timeout_ms=6000)
        starting = asyncio.create_task(router.start())
        await until(lambda: telemetry.of(ConnectFailed), "tried once")
        cluster.restart(0)
        with pytest.raises(NoBrokersAvailable) as caught:
            await within(30, starting)
        assert "doesn't respond" in str(caught.value)
        assert "before that: " in str(caught.value)


async def test_start_tries_the_first_metadata_request_again(make_router: MakeRouter) -> None:
    async with EmbeddedCluster(topics={"t": 1}) as cluster:
        cluster.fault(MetadataRequest, then=Close(), times=3)
        router = make_router(cluster, request_timeout_ms=60_000)
        router.metadata.add_topics(["t"])
        await within(30, router.start())
        assert set(router.metadata.snapshot.topics) == {"t"}


async def test_a_tls_listener_without_tls_is_tried_once(
    make_router: MakeRouter, telemetry: Recorder
) -> None:
    async def alert(link: PeerConnection) -> None:
        link.writer.write(b"\x15\x03\x01\x00\x02\x02\x46")
        await link.wait_eof()

    async with listening(alert) as peer:
        router = make_router(peer.address, request_timeout_ms=60_000)
        with pytest.raises(NoBrokersAvailable, match="it responds in TLS"):
            await within(30, router.start())
        assert len(telemetry.of(ConnectFailed)) == 1


async def test_an_untrusted_certificate_is_tried_once(
    make_router: MakeRouter, telemetry: Recorder
) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(TLS / "cert.pem", TLS / "key.pem")
    async with listening(swallow, tls=server) as peer:
        trusting_others = ssl.create_default_context()
        router = make_router(peer.address, ssl_context=trusting_others, request_timeout_ms=60_000)
        with pytest.raises(NoBrokersAvailable, match=r"certificate verify failed.*Check the CA"):
            await within(30, router.start())
        assert len(telemetry.of(ConnectFailed)) == 1


async def test_start_limits_metadata_to_the_time_that_is_left(make_router: MakeRouter) -> None:
    async with EmbeddedCluster(topics={"t": 1}) as cluster:
        cluster.fault(ListOffsetsRequest, then=Delay(0.5))
        cluster.fault(MetadataRequest, then=Hang(), times=None)
        router = make_router(cluster, request_timeout_ms=1000)
        router.metadata.add_topics(["t"])
        with pytest.raises(NoBrokersAvailable, match="got no metadata within 1000 ms"):
            await within(30, router.start())


async def test_many_silent_addresses_time_out_in_time(make_router: MakeRouter) -> None:
    async with contextlib.AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(listening(swallow)) for _ in range(8)]
        router = make_router(*(peer.address for peer in peers), request_timeout_ms=3000)
        with pytest.raises(NoBrokersAvailable) as caught:
            await within(15, router.start())  # each in turn would take 24
        for peer in peers:
            assert f":{peer.address[1]}" in str(caught.value)
        assert str(caught.value).count("doesn't respond to ListOffsetsRequest") == 8


async def test_4_x_brokers_only_are_named_as_the_reason(make_router: MakeRouter) -> None:
    async with broker_4_1() as modern:
        router = make_router(("127.0.0.1", free_port()), modern)
        with pytest.raises(UnsupportedVersionError, match=r"4\.x"):
            await within(20, router.start())


async def test_localhost_is_found_where_only_ipv4_listens(make_router: MakeRouter) -> None:
    async with EmbeddedCluster() as cluster:
        (info,) = cluster.nodes.values()
        router = make_router(f"localhost:{info.port}")
        await within(20, router.start())


@needs_ipv6
async def test_localhost_is_found_where_only_ipv6_listens(make_router: MakeRouter) -> None:
    async with EmbeddedCluster(host="::1", topics={"t": 1}) as cluster:
        (info,) = cluster.nodes.values()
        router = make_router(("::1", info.port))
        router.metadata.add_topics(["t"])
        await within(20, router.start())
        await router.request(ASK, node_id=0)
        assert f"[::1]:{info.port}" in repr(router.nodes.get(0))
        await router.stop()


@needs_ipv6
async def test_an_advertised_address_may_have_brackets(
    make_router: MakeRouter, telemetry: Recorder
) -> None:
    """`advertised.host.name=[::1]`: brokers, and coordinators, which have their own response."""
    async with EmbeddedCluster(host="::1", advertised_host="[::1]", topics={"t": 1}) as cluster:
        (info,) = cluster.nodes.values()
        assert info.host == "[::1]"
        router = make_router(("::1", info.port))
        router.metadata.add_topics(["t"])
        await within(20, router.start())
        await router.request(ASK, node_id=0)
        assert len(telemetry.of(Connected)) == 1  # the bootstrap connection is the broker's
        router.register_broker(7, (info.host, info.port))
        await router.request(ASK, node_id=7)
        assert {event.address for event in telemetry.of(Connected)} == {f"[::1]:{info.port}"}
        await router.stop()


async def test_the_bootstrap_connection_is_reused_for_its_broker(
    make_router: MakeRouter, telemetry: Recorder
) -> None:
    async with EmbeddedCluster(brokers=2, topics={"t": 2}) as cluster:
        router = make_router(cluster)
        router.metadata.add_topics(["t"])
        await router.start()
        for node_id in (0, 1):
            await router.request(ASK, node_id=node_id)
        assert len(telemetry.of(Connected)) == 2
        assert sum(is_version_probe(one.request) for one in cluster.history) == 2  # once each
        node = router.nodes.get(0)
        assert repr(node).startswith("<Node 0 ")


# --- requests -------------------------------------------------------------------------------------


async def test_a_request_without_node_goes_to_any_broker(make_router: MakeRouter) -> None:
    async with EmbeddedCluster(brokers=3, topics={"t": 3}) as cluster:
        router = make_router(cluster)
        router.metadata.add_topics(["t"])
        await router.start()
        for node_id in (0, 1):
            cluster.kill(node_id)
            await router.request(ASK)
        cluster.kill(2)
        with pytest.raises(NoBrokersAvailable, match=r"no broker responded: .*refused"):
            await router.request(ASK)


async def test_a_hanging_broker_leaves_time_for_the_others(
    make_router: MakeRouter,
) -> None:
    # Time enough for each request to reach its broker: the last one may take all that is left.
    limits = NetLimits(attempt_s=1.0)
    async with EmbeddedCluster(brokers=3, topics={"t": 3}) as cluster:
        router = make_router(cluster, request_timeout_ms=60_000, limits=limits)
        router.metadata.add_topics(["t"])
        await router.start()
        cluster.fault(GroupCoordinatorRequest, then=Hang(), times=2)
        response = await within(30, router.request(GroupCoordinatorRequest("g")))
        assert isinstance(response, GroupCoordinatorResponse)


async def test_a_request_to_any_broker_keeps_its_deadline(
    make_router: MakeRouter,
) -> None:
    async with EmbeddedCluster(brokers=3, topics={"t": 3}) as cluster:
        router = make_router(cluster, request_timeout_ms=60_000)
        router.metadata.add_topics(["t"])
        await router.start()
        cluster.fault(GroupCoordinatorRequest, then=Hang(), times=None)
        with pytest.raises(NoBrokersAvailable):
            await within(20, router.request(GroupCoordinatorRequest("g"), timeout_s=0.3))


async def test_a_request_that_no_broker_supports_raises_at_once(make_router: MakeRouter) -> None:
    async with EmbeddedCluster(version="0.8.1", topics={"t": 1}) as cluster:
        router = make_router(cluster)
        await router.start()
        with pytest.raises(UnsupportedVersionError, match=r"0\.8\.1"):
            await router.request(GroupCoordinatorRequest("g"))


@pytest.mark.parametrize(
    "call",
    [
        lambda router: router.request(ASK, node_id=7),
        lambda router: router.connection(7, Lane.FETCH),
        lambda router: router.exact_version(7, timeout_s=0.01),
    ],
    ids=["request", "connection", "exact_version"],
)
async def test_an_unknown_node_raises_and_refreshes_the_metadata(
    make_router: MakeRouter, call: Callable[[Router], Awaitable[object]]
) -> None:
    async with EmbeddedCluster(topics={"t": 1}) as cluster:
        router = make_router(cluster)
        router.metadata.add_topics(["t"])
        await router.start()
        asked = cluster.next_request(MetadataRequest)
        with pytest.raises(KafkaConnectionError, match="node 7 isn't in the cluster's metadata"):
            await call(router)
        await within(10, asyncio.wrap_future(asked))
        assert router.version(7) is None


@pytest.mark.parametrize(
    "effect",
    [
        Close(),
        Close(after_bytes=5),
        Close(reset=True),
        Truncate(2),
        WrongCorrelationId(),
        Silence(),
        Hang(),
    ],
)
async def test_a_lost_or_silent_broker_refreshes_the_metadata(
    make_router: MakeRouter, effect: Any
) -> None:
    async with EmbeddedCluster(brokers=2, topics={"t": 2}) as cluster:
        router = make_router(cluster, request_timeout_ms=1000)
        router.metadata.add_topics(["t"])
        await router.start()
        await router.request(ASK, node_id=1)
        cluster.fault(ListOffsetsRequest, node=1, then=effect)
        asked = cluster.next_request(MetadataRequest)
        with pytest.raises((KafkaConnectionError, KafkaTimeoutError)):
            await router.request(ASK, node_id=1)
        await within(20, asyncio.wrap_future(asked))


async def test_an_error_code_in_a_response_is_left_to_the_caller(make_router: MakeRouter) -> None:
    async with EmbeddedCluster(topics={"t": 1}) as cluster:
        router = make_router(cluster)
        router.metadata.add_topics(["t"])
        await router.start()
        cluster.fault(ListOffsetsRequest, then=Answer(6))
        question = ListOffsetsRequest(-1, [Topic("t", [ListOffsetsPartition(0, -1, 1)])])
        answer = await router.request(question, node_id=0)
        assert answer.topics[0].partitions[0].error_code == 6


async def test_version_without_node_is_the_lowest_line_known(
    make_router: MakeRouter,
) -> None:
    async with EmbeddedCluster(brokers=1, version="0.10", topics={"t": 1}) as cluster:
        router = make_router(cluster)
        assert router.version() is None
        await router.start()
        version = router.version()
        assert version is not None
        assert version.line is BrokerLine.V0_10


async def test_metadata_responds_while_produce_and_fetch_hang(make_router: MakeRouter) -> None:
    async with EmbeddedCluster(brokers=2, topics={"t": 1}) as cluster:
        router = make_router(cluster)
        router.metadata.add_topics(["t"])
        await router.start()
        cluster.kill(1, then="unnoticed")  # it is in the ISR: acks=-1 waits for it
        produce = ProduceRequest(-1, 30_000, [Topic("t", [ProducePartition(0, _MESSAGE)])])
        fetch = FetchRequest(-1, 30_000, 1 << 20, [Topic("t", [FetchPartition(0, 0, 1 << 20)])])
        hanging = [
            asyncio.create_task(router.request(produce, node_id=0, lane=Lane.PRODUCE)),
            asyncio.create_task(router.request(fetch, node_id=0, lane=Lane.FETCH)),
        ]
        for request in (ProduceRequest, FetchRequest):
            await until(lambda r=request: cluster.requests(r), "it hangs")  # type: ignore[misc]
        await within(20, router.metadata.refresh())
        await within(20, router.request(ASK, node_id=0))
        assert not any(task.done() for task in hanging)
        await router.stop()
        for task in hanging:
            with pytest.raises(KafkaConnectionError, match="closed by the client"):
                await task


_MESSAGE = encode_entry(0, None, b"a")


# --- following the cluster ------------------------------------------------------------------------


async def request_until_success(router: Router, node_id: int) -> None:
    """As a sender or fetcher does: again and again, with what metadata says."""
    while True:
        try:
            await router.request(ASK, node_id=node_id)
        except KafkaError as error:
            assert error.retriable  # noqa: PT017
            await asyncio.sleep(0.01)
        else:
            return


async def test_a_broker_that_comes_back_at_another_port_is_found(make_router: MakeRouter) -> None:
    async with EmbeddedCluster(brokers=2, topics={"t": 2}) as cluster:
        router = make_router(cluster)
        router.metadata.add_topics(["t"])
        await router.start()
        await router.request(ASK, node_id=1)
        ports = {cluster.nodes[1].port}
        for _ in range(2):
            cluster.kill(1)
            cluster.restart(1, port=0)
            ports.add(cluster.nodes[1].port)
            await within(30, request_until_success(router, 1))
            node = router.nodes.get(1)
            assert node is not None
            assert node.address[1] == cluster.nodes[1].port
        assert len(ports) > 1  # the third may be the first again


async def test_bootstrap_address_is_used_when_all_brokers_moved(
    make_router: MakeRouter,
) -> None:
    # A virtual address, or a name that is resolved anew: it leads to the cluster, wherever that is.
    async with (
        EmbeddedCluster(brokers=1, topics={"t": 1}) as cluster,
        TcpProxy(cluster.bootstrap_servers) as proxy,
    ):
        router = make_router(proxy.address)
        router.metadata.add_topics(["t"])
        await router.start()
        await router.request(ASK, node_id=0)
        cluster.kill(0)
        cluster.restart(0, port=0)
        proxy.upstream = cluster.bootstrap_servers
        await within(30, request_until_success(router, 0))


@pytest.mark.parametrize("version", ["0.8.0", "0.8.1"])
async def test_bootstrap_is_used_if_responses_name_few_brokers(
    make_router: MakeRouter, version: str
) -> None:
    async with EmbeddedCluster(brokers=3, version=version) as cluster:
        cluster.create_topic("t", 1, 1)  # on broker 0
        cluster.create_topic("u", 1, 2)  # on 0 and 1
        router = make_router(cluster)
        router.metadata.add_topics(["t"])
        await router.start()
        assert list(router.metadata.snapshot.brokers) == [0]
        await router.request(ASK, node_id=0)
        with pytest.raises(UnknownTopicOrPartitionError):
            await _topic_of_no_broker(router, cluster)
        assert list(router.metadata.snapshot.brokers) == [0]  # never emptier
        cluster.kill(0)
        with pytest.raises(KafkaConnectionError):
            await router.request(ASK, node_id=0)
        assert len(router.nodes.candidates()) == 3
        await within(20, router.request(ASK))
        info = await router.metadata.wait_for_topic("u", timeout_s=20)
        assert info.partitions[0].leader == 1
        await router.request(ASK, node_id=1)


async def _topic_of_no_broker(router: Router, cluster: EmbeddedCluster) -> None:
    cluster.fault(MetadataRequest, then=Answer(3), times=None)
    try:
        await router.metadata.wait_for_topic("nowhere", timeout_s=0.2)
    finally:
        cluster.clear_faults()


async def test_a_broker_that_leaves_loses_its_connections(
    make_router: MakeRouter, telemetry: Recorder
) -> None:
    async with EmbeddedCluster(brokers=2, topics={"t": 1}) as cluster:
        router = make_router(cluster)
        router.metadata.add_topics(["t"])
        await router.start()
        connection = await router.connection(1, Lane.CONTROL)
        await connection.request(ASK)
        cluster.fault(OffsetFetchRequest, node=1, then=Hang())
        question = router.request(OffsetFetchRequest("g", []), node_id=1, version=0)
        call = asyncio.create_task(question)
        await asyncio.wrap_future(cluster.next_request(OffsetFetchRequest, node=1))
        snapshot = router.metadata.snapshot
        alone = type(snapshot)({0: snapshot.brokers[0]}, snapshot.topics)
        router.nodes.follow(alone)
        with pytest.raises(KafkaConnectionError, match="left, or moved"):
            await call
        await connection.socket_closed
        with pytest.raises(KafkaConnectionError, match="isn't in the cluster's metadata"):
            await router.request(ASK, node_id=1)
        router.nodes.follow(snapshot)  # and back
        await router.request(ASK, node_id=1)


# --- brokers that Metadata doesn't name -----------------------------------------------------------


async def coordinator(router: Router, group: str = "g") -> GroupCoordinatorResponse:
    """Send lookups to any broker until one names it: the first responses are code 15."""
    async with asyncio.timeout(20):
        while True:
            answer = await router.request(GroupCoordinatorRequest(group))
            if not answer.error_code:
                return answer
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("version", ["0.8.2", "0.9", "0.10"])
async def test_coordinator_is_reached_without_tracked_topics(
    make_router: MakeRouter, version: str
) -> None:
    async with EmbeddedCluster(brokers=3, version=version, topics={"t": 1}) as cluster:
        router = make_router((cluster.nodes[0].host, cluster.nodes[0].port))
        await router.start()
        for group in ("g", "h", "i"):
            found = await coordinator(router, group)
            router.register_broker(found.node_id, (found.host, found.port))
            asked = cluster.next_request(OffsetFetchRequest, node=found.node_id)
            await router.request(OffsetFetchRequest(group, []), node_id=found.node_id)
            await within(20, asyncio.wrap_future(asked))
            found_version = router.version(found.node_id)
            assert found_version is not None
            assert str(found_version.line) == version
        assert {node.node_id for node in router.nodes} - {None} == (
            {0, 1, 2} if version == "0.10" else {cluster.coordinator(g) for g in "ghi"}
        )


async def test_a_registered_broker_survives_metadata_updates(
    make_router: MakeRouter,
) -> None:
    async with EmbeddedCluster(brokers=3, topics={"t": 3}) as cluster:
        router = make_router((cluster.nodes[0].host, cluster.nodes[0].port))
        await router.start()
        router.register_broker(2, (cluster.nodes[2].host, cluster.nodes[2].port))
        connection = await router.connection(2, Lane.CONTROL)
        snapshot = router.metadata.snapshot
        router.nodes.follow(type(snapshot)({}, {}))
        assert await router.connection(2, Lane.CONTROL) is connection
        router.metadata.add_topics(["t"])
        await router.metadata.refresh()  # names all three, 2 at the same address
        assert sorted(router.metadata.snapshot.brokers) == [0, 1, 2]
        assert await router.connection(2, Lane.CONTROL) is connection
        router.register_broker(2, (cluster.nodes[2].host, cluster.nodes[2].port))
        assert await router.connection(2, Lane.CONTROL) is connection
        # It is Metadata's from now on, which also says when it has left.
        snapshot = router.metadata.snapshot
        router.nodes.follow(type(snapshot)({0: snapshot.brokers[0]}, snapshot.topics))
        await connection.socket_closed
        assert {node.node_id for node in router.nodes} - {None} == {0}


async def test_the_last_reported_address_of_a_node_holds(make_router: MakeRouter) -> None:
    async with EmbeddedCluster(brokers=2, topics={"t": 2}) as cluster:
        router = make_router((cluster.nodes[0].host, cluster.nodes[0].port))
        await router.start()
        old = (cluster.nodes[1].host, cluster.nodes[1].port)
        router.register_broker(1, old)
        await router.request(ASK, node_id=1)
        cluster.kill(1)
        cluster.restart(1, port=0)
        new = (cluster.nodes[1].host, cluster.nodes[1].port)
        router.register_broker(1, new)
        await router.request(ASK, node_id=1)
        router.register_broker(1, old)  # a stale registration
        with pytest.raises(KafkaConnectionError):
            await router.request(ASK, node_id=1)
        router.metadata.add_topics(["t"])
        await router.metadata.refresh()
        node = router.nodes.get(1)
        assert node is not None
        assert node.address == new
        await router.request(ASK, node_id=1)


async def test_a_rolling_upgrade_is_detected(make_router: MakeRouter) -> None:
    old = EmbeddedCluster(version="0.8.2", port=free_port(), topics={"t": 1})
    await old.__aenter__()
    port = old.nodes[0].port
    router = make_router(("127.0.0.1", port))
    router.metadata.add_topics(["t"])
    await router.start()
    await router.request(ASK, node_id=0)
    await old.__aexit__(None, None, None)
    async with EmbeddedCluster(version="0.10", port=port, topics={"t": 1}):
        await within(30, request_until_success(router, 0))
        version = router.version(0)
        assert version is not None
        assert version.line is BrokerLine.V0_10
        await router.stop()


# --- the end --------------------------------------------------------------------------------------


async def test_a_start_that_fails_half_way_leaves_nothing(
    make_router: MakeRouter, telemetry: Recorder
) -> None:
    async with EmbeddedCluster(topics={"t": 1}) as cluster:
        cluster.fault(MetadataRequest, then=Close(), times=None)
        router = make_router(cluster, request_timeout_ms=500)
        router.metadata.add_topics(["t"])
        with pytest.raises(NoBrokersAvailable, match="no broker responded"):
            await router.start()
        await until(lambda: cluster.connections() == 0, "all closed")
        with pytest.raises(IllegalStateError):
            await router.request(ASK)


@pytest.mark.parametrize("turns", [*range(0, 60, 4), 80, 100, 140])
@pytest.mark.parametrize("how", ["stop", "cancel"])
async def test_stop_at_any_moment_of_the_start_leaves_nothing(
    make_config: MakeConfig, turns: int, how: str
) -> None:
    telemetry = Recorder()
    async with EmbeddedCluster(brokers=2, topics={"t": 2}) as cluster, listening(swallow) as silent:
        servers = [silent.address, *cluster.bootstrap_servers.split(",")]
        config = make_config(servers if turns % 8 else servers[1:])
        router = Router(config, telemetry)
        router.metadata.add_topics(["t"])
        starting = asyncio.create_task(router.start())
        for _ in range(turns):
            await asyncio.sleep(0)
        if how == "stop":
            await within(20, router.stop())
        else:
            starting.cancel()
        await asyncio.wait((starting,), timeout=20)
        assert starting.done()
        if not starting.cancelled():
            assert isinstance(starting.exception(), IllegalStateError | None)
        await within(20, router.stop())
        await until(lambda: cluster.connections() == 0, "all closed")
        assert len(telemetry.of(Connected)) == len(telemetry.of(Disconnected))


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8, 13, 21, 34, 55])
async def test_stop_at_any_moment_of_the_work_leaves_nothing(
    make_config: MakeConfig, turns: int
) -> None:
    async with EmbeddedCluster(brokers=3, topics={"t": 3}) as cluster:
        router = Router(make_config(cluster.bootstrap_servers), Recorder())
        router.metadata.add_topics(["t"])
        await router.start()

        async def work(node_id: int | None) -> None:
            while True:
                await router.request(ASK, node_id=node_id)
                await router.metadata.refresh()

        tasks = [asyncio.create_task(work(node_id)) for node_id in (0, 1, 2, None)]
        tasks.append(asyncio.create_task(router.metadata.wait_for_topic("u", timeout_s=30)))  # type: ignore[arg-type]
        for _ in range(turns):
            await asyncio.sleep(0)
        cluster.drop_connections(turns % 3)
        await within(20, router.stop())
        done, pending = await asyncio.wait(tasks, timeout=20)
        assert not pending
        for task in done:
            assert isinstance(task.exception(), KafkaError | None)
        await until(lambda: cluster.connections() == 0, "all closed")


async def test_concurrent_and_repeated_stops_do_no_harm(make_router: MakeRouter) -> None:
    async with EmbeddedCluster(topics={"t": 1}) as cluster:
        router = make_router(cluster)
        await router.start()
        await asyncio.gather(router.stop(), router.stop())
        await router.stop()


async def test_a_cancelled_stop_has_closed_everything(make_router: MakeRouter) -> None:
    async with EmbeddedCluster(brokers=2, topics={"t": 2}) as cluster:
        router = make_router(cluster)
        router.metadata.add_topics(["t"])
        await router.start()
        connections = [await router.connection(node_id, Lane.CONTROL) for node_id in (0, 1)]
        cluster.fault(MetadataRequest, then=Hang(), times=None)
        router.metadata.request_refresh()
        await asyncio.wrap_future(cluster.next_request(MetadataRequest))
        stopping = asyncio.create_task(router.stop())
        await asyncio.sleep(0)
        stopping.cancel()
        await asyncio.wait((stopping,))
        await within(20, asyncio.gather(*(connection.socket_closed for connection in connections)))


async def test_calls_after_the_stop_raise_at_once(make_router: MakeRouter) -> None:
    async with EmbeddedCluster(topics={"t": 1}) as cluster:
        router = make_router(cluster)
        router.metadata.add_topics(["t"])
        await router.start()
        await router.stop()
        for call in (
            router.request(ASK),
            router.request(ASK, node_id=0),
            router.connection(0, Lane.FETCH),
            router.start(),
        ):
            with pytest.raises(IllegalStateError, match="stopped"):
                await within(20, call)
        with pytest.raises(IllegalStateError, match="stopped"):
            router.register_broker(7, ("127.0.0.1", 9092))


async def test_a_router_that_never_started_can_be_stopped(make_router: MakeRouter) -> None:
    await make_router(("127.0.0.1", free_port())).stop()


async def test_stop_while_a_silent_address_is_still_probed(
    make_router: MakeRouter, telemetry: Recorder
) -> None:
    async with EmbeddedCluster() as cluster, listening(swallow) as silent:
        router = make_router(silent.address, cluster, request_timeout_ms=60_000)
        await router.start()
        assert silent.accepted == 1
        await within(20, router.stop())
        await until(silent.links[0].reader.at_eof, "closed")
        assert not telemetry.of(ConnectFailed)


async def test_a_slow_broker_is_found_before_the_race_ends(
    make_router: MakeRouter,
) -> None:
    async with EmbeddedCluster() as cluster, listening(swallow) as silent:
        cluster.fault(ListOffsetsRequest, then=Delay(1.5))
        router = make_router(cluster, silent.address)
        await within(20, router.start())


async def test_router_works_over_tls(make_router: MakeRouter) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(TLS / "cert.pem", TLS / "key.pem")
    client = ssl.create_default_context(cafile=str(TLS / "cert.pem"))
    async with EmbeddedCluster(topics={"t": 1}) as cluster:
        (info,) = cluster.nodes.values()

        async def forward(link: Any) -> None:
            reader, writer = await asyncio.open_connection(info.host, info.port)

            async def copy(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
                while data := await source.read(65536):
                    to.write(data)
                to.close()

            try:
                await asyncio.gather(copy(link.reader, writer), copy(reader, link.writer))
            finally:
                writer.transport.abort()

        async with listening(forward, tls=server) as proxy:
            router = make_router(proxy.address, ssl_context=client)
            await router.start()
            await asyncio.gather(*(router.request(ASK) for _ in range(50)))
            await within(20, router.stop())


async def test_round_trip_without_a_probed_broker_is_0(make_config: MakeConfig) -> None:
    router = Router(make_config("127.0.0.1:9"), Recorder())
    assert router.expected_round_trip_s(None) == router.expected_round_trip_s(1) == 0
