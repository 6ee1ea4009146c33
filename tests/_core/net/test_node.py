"""`Node`: lanes, shared attempts, backoff, version probes, idle connections, closing."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from aiokafka08._core.net.config import Address, NetConfig
from aiokafka08._core.net.limits import NetLimits
from aiokafka08._core.net.node import IDLE, Lane, Node
from aiokafka08._core.net.transport import open_connection
from aiokafka08._core.net.versions import BrokerLine, BrokerVersion
from aiokafka08.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError
from aiokafka08.protocol.requests.committed_offsets import OffsetFetchRequest
from aiokafka08.protocol.requests.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.telemetry import Connected, ConnectFailed, Disconnected
from aiokafka08.testing import Answer, Close, Delay, EmbeddedCluster, Hang, Truncate
from aiokafka08.testing.faults import is_version_probe
from aiokafka08.testing.simulation import simulate
from tests._core.net.conftest import MakeConfig, Recorder
from tests._core.net.scripted_peers import (
    OF_0_8_2,
    PeerConnection,
    ScriptedPeer,
    close_at_once,
    listening,
    swallow,
)
from tests.brokers.ports import free_port
from tests.support.waiting import until

pytestmark = pytest.mark.both_loops

ASK = ListOffsetsRequest(-1, [])

MakeNode = Callable[..., Node]


@pytest.fixture
async def make_node(make_config: MakeConfig, telemetry: Recorder) -> AsyncIterator[MakeNode]:
    """Makes nodes that are closed at the end of the test."""
    made = []

    def make(at: EmbeddedCluster | Address, config: NetConfig | None = None, **parts: Any) -> Node:
        if isinstance(at, EmbeddedCluster):
            at = address(at)
        made.append(Node(0, at, config or make_config(), telemetry, **parts))
        return made[-1]

    yield make
    for node in made:
        await node.stop()


def address(cluster: EmbeddedCluster) -> Address:
    info = cluster.nodes[0]
    return info.host, info.port


def probes(cluster: EmbeddedCluster) -> int:
    """Return how often the version was probed: each time by one Fetch without topics."""
    return sum(is_version_probe(recorded.request) for recorded in cluster.history)


async def serve(link: PeerConnection) -> None:
    """A broker of 0.8.2, as far as `ASK` and the detection go."""
    await ScriptedPeer(OF_0_8_2)(link)


# --- lanes ----------------------------------------------------------------------------------------


async def test_a_lane_opens_on_first_use(make_node: MakeNode, telemetry: Recorder) -> None:
    async with EmbeddedCluster() as cluster:
        node = make_node(cluster)
        host, port = node.address
        assert not node.is_connected
        assert node.version is None
        assert repr(node) == f"<Node 0 {host}:{port} not connected>"
        await node.request(ASK)
        assert node.is_connected
        assert node.version == BrokerVersion.of(BrokerLine.V0_8)
        assert repr(node) == f"<Node 0 {host}:{port} control=0>"
        assert telemetry.events == [Connected(f"{host}:{port}", "control", "0.8")]
        await until(lambda: cluster.connections() == 1, "the probing connection has gone")


async def test_each_lane_has_its_own_connection(make_node: MakeNode) -> None:
    async with EmbeddedCluster() as cluster:
        node = make_node(cluster)
        connections = [await node.connection(lane) for lane in Lane]
        assert len(set(connections)) == len(Lane)
        assert [await node.connection(lane) for lane in Lane] == connections
        await until(lambda: cluster.connections() == len(Lane), "one connection per lane")


async def test_a_hanging_lane_does_not_delay_others(make_node: MakeNode) -> None:
    async with EmbeddedCluster() as cluster:
        cluster.fault(OffsetFetchRequest, then=Hang())
        node = make_node(cluster)
        hanging = asyncio.create_task(
            node.request(OffsetFetchRequest("g", []), lane=Lane.PRODUCE, version=0)
        )
        await asyncio.wrap_future(cluster.next_request(OffsetFetchRequest))
        await until(lambda: node.in_flight == 1, "it hangs")
        await asyncio.wait_for(node.request(ASK), 20)
        assert not node.is_unresponsive
        assert not hanging.done()
        hanging.cancel()


@pytest.mark.parametrize("lane", [Lane.PRODUCE, Lane.FETCH, Lane.URGENT_FETCH, Lane.CONTROL])
async def test_a_node_with_an_overdue_response_is_unresponsive(
    lane: Lane, make_node: MakeNode, make_config: MakeConfig
) -> None:
    async with EmbeddedCluster() as cluster:
        cluster.fault(OffsetFetchRequest, then=Hang(), times=2)
        node = make_node(cluster, make_config(limits=NetLimits(unresponsive_s=0.05)))
        question = OffsetFetchRequest("g", [])
        # The other members of a group are what it waits for.
        join = await node.connection(Lane.JOIN)
        joining, answer = (asyncio.get_running_loop().create_future() for _ in range(2))
        join.send(question, joining, version=0)
        connection = await node.connection(lane)
        await until(lambda: join.response_wait_s > 0.05, "the response on the join lane is overdue")
        assert not node.is_unresponsive
        connection.send(question, answer, version=0)
        await until(lambda: node.is_unresponsive, "the lane hangs")
        await node.stop()
        for lost in (joining, answer):
            with pytest.raises(KafkaConnectionError):
                await lost
        assert not node.is_unresponsive


# --- one attempt for all callers ------------------------------------------------------------------


async def test_callers_share_one_attempt_per_lane(make_node: MakeNode, telemetry: Recorder) -> None:
    async with EmbeddedCluster() as cluster:
        node = make_node(cluster)
        answers = await asyncio.gather(
            *(node.request(ASK, lane=lane) for lane in Lane for _ in range(50))
        )
        assert len(answers) == 50 * len(Lane)
        assert len(telemetry.of(Connected)) == len(Lane)
        assert probes(cluster) == 1  # the version is probed once, too
        await until(lambda: cluster.connections() == len(Lane), "one connection per lane")


@pytest.mark.parametrize("turns", [0, 1, 2, 5, 10, 20])
async def test_a_cancelled_caller_does_not_cancel_the_attempt(
    make_node: MakeNode, telemetry: Recorder, turns: int
) -> None:
    async with EmbeddedCluster() as cluster:
        node = make_node(cluster)
        callers = [asyncio.create_task(node.connection(Lane.FETCH)) for _ in range(5)]
        for _ in range(turns):
            await asyncio.sleep(0)
        callers[0].cancel()
        connections = {await caller for caller in callers[1:]}
        assert connections == {await node.connection(Lane.FETCH)}
        assert len(telemetry.of(Connected)) == 1


async def test_an_attempt_without_callers_serves_the_next_one(
    make_node: MakeNode, telemetry: Recorder
) -> None:
    async with EmbeddedCluster() as cluster:
        node = make_node(cluster)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(node.connection(Lane.FETCH), 0)
        caller = asyncio.create_task(node.connection(Lane.FETCH))
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.wait((caller,))
        await node.connection(Lane.FETCH)
        assert len(telemetry.of(Connected)) == 1


async def test_a_failed_attempt_without_callers_logs_no_error(
    make_node: MakeNode, telemetry: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    node = make_node(("127.0.0.1", free_port()))
    caller = asyncio.create_task(node.connection(Lane.FETCH))
    await asyncio.sleep(0)
    caller.cancel()
    await until(lambda: telemetry.of(ConnectFailed), "the attempt has failed")
    await node.stop()
    assert "never retrieved" not in caplog.text


async def test_all_callers_get_the_error_of_the_attempt(make_node: MakeNode) -> None:
    node = make_node(("127.0.0.1", free_port()))
    callers = [asyncio.create_task(node.connection(Lane.FETCH)) for _ in range(10)]
    for caller in callers:
        with pytest.raises(KafkaConnectionError, match="Connection refused"):
            await caller


async def test_each_caller_has_its_own_deadline(make_node: MakeNode) -> None:
    async with listening(swallow) as peer:
        node = make_node(peer.address)
        patient = asyncio.create_task(node.connection(Lane.FETCH))
        await until(lambda: peer.accepted, "its version is probed")
        with pytest.raises(
            KafkaTimeoutError, match="within 50 ms: it accepts connections but doesn't respond"
        ):
            await node.connection(Lane.FETCH, timeout_s=0.05)
        assert not patient.done()
        await node.stop()
        with pytest.raises(KafkaConnectionError, match="closed by the client"):
            await patient


async def test_the_request_deadline_includes_connecting(make_config: MakeConfig) -> None:
    async with listening(swallow) as peer:
        node = Node(0, peer.address, make_config(), Recorder())
        with pytest.raises(KafkaTimeoutError):
            await asyncio.wait_for(node.request(ASK, timeout_s=0.05), 20)
        await node.stop()


# --- backoff --------------------------------------------------------------------------------------


def test_the_wait_between_attempts_grows(make_config: MakeConfig, telemetry: Recorder) -> None:
    """In virtual time: on a busy machine a wait may be over before the test looks."""

    async def scenario() -> None:
        node = Node(0, address(world.cluster), make_config(), telemetry)
        loop = asyncio.get_running_loop()
        waits = []
        for _ in range(5):
            begin = loop.time()
            with pytest.raises(KafkaConnectionError):
                await node.connection(Lane.CONTROL)
            assert node.is_backing_off
            waits.append(loop.time() - begin)
        assert waits[0] < waits[1] < waits[2]
        assert waits[4] > 2 * waits[2]
        await node.stop()

    with simulate(1, brokers=1) as world:
        world.network.refuse("broker 0")
        world.run(scenario)
    assert len(telemetry.of(ConnectFailed)) == 5
    assert telemetry.of(ConnectFailed)[0].reason == "Connection refused"


async def test_lanes_that_fail_together_count_once(make_node: MakeNode) -> None:
    node = make_node(("127.0.0.1", free_port()))
    attempts = [node.connection(lane) for lane in Lane]
    results = await asyncio.gather(*attempts, return_exceptions=True)
    assert all(isinstance(result, KafkaConnectionError) for result in results)
    assert node.failures == 1


async def test_no_backoff_after_a_success(make_node: MakeNode, telemetry: Recorder) -> None:
    port = free_port()
    node = make_node(("127.0.0.1", port))
    for _ in range(3):
        with pytest.raises(KafkaConnectionError):
            await node.connection(Lane.CONTROL)
    async with listening(serve, port=port):
        await node.request(ASK)
        assert not node.is_backing_off
        assert node.failures == 0
        await node.request(ASK, lane=Lane.FETCH)


async def test_a_timeout_in_the_backoff_names_the_failure(make_node: MakeNode) -> None:
    node = make_node(("127.0.0.1", free_port()))
    for _ in range(4):
        with pytest.raises(KafkaConnectionError):
            await node.connection(Lane.CONTROL)
    with pytest.raises(
        KafkaTimeoutError, match="within 1 ms: backing off after: Connection refused"
    ):
        await node.connection(Lane.CONTROL, timeout_s=0.001)


async def test_a_peer_that_accepts_and_closes_is_backed_off_from(
    make_node: MakeNode, make_config: MakeConfig
) -> None:
    async with listening(close_at_once) as peer:
        node = make_node(peer.address, make_config(api_version="0.8.2"))
        for tries in (1, 2, 3):
            with pytest.raises(KafkaError, match=r"closed by the broker|it closes on ListOffsets"):
                await node.request(ASK)
            assert node.is_backing_off
            assert node.failures == tries
        await node.stop()


async def test_a_recovered_broker_is_reconnected_without_backoff(
    make_node: MakeNode, make_config: MakeConfig
) -> None:
    port = free_port()
    node = make_node(("127.0.0.1", port), make_config(api_version="0.8.2"))
    async with listening(close_at_once, port=port):
        for _ in range(3):
            with pytest.raises(KafkaError):
                await node.request(ASK)
    async with listening(serve, port=port) as peer:
        for _ in range(3):
            await node.request(ASK)
            peer.links[-1].close()
            await until(lambda: not node.is_connected, "lost")
            assert not node.is_backing_off
            assert node.failures == 0 or peer.accepted == 1


# --- the version ----------------------------------------------------------------------------------


async def test_a_pinned_version_is_not_probed(make_node: MakeNode, make_config: MakeConfig) -> None:
    async with EmbeddedCluster(version="0.8.2") as cluster:
        node = make_node(cluster, make_config(api_version="0.8.1"))
        await node.request(ASK)
        assert node.version == BrokerVersion.of(BrokerLine.V0_8_1)
        assert [type(one.request) for one in cluster.history] == [ListOffsetsRequest]


async def test_request_without_a_response_ends_at_its_deadline(make_node: MakeNode) -> None:
    async with EmbeddedCluster(1) as cluster:
        node = make_node(cluster)
        await node.request(ASK)
        cluster.fault(ListOffsetsRequest, then=Hang())
        async with asyncio.timeout(10):
            with pytest.raises(KafkaTimeoutError, match="no response to ListOffsetsRequest"):
                await node.request(ASK, timeout_s=0.1)


async def test_a_broker_that_only_closes_hints_at_a_wrong_pin(
    make_node: MakeNode, make_config: MakeConfig
) -> None:
    async def close(link: PeerConnection) -> None:
        await link.read()

    async def respond_then_close(link: PeerConnection) -> None:
        request = await link.read()
        link.respond(request, ListOffsetsResponse([]))
        await link.read()

    hint = r"closed by the broker.*api_version pins the line 0\.8\.1: check that it is the broker's"
    for serve, pinned, hinted in (
        (close, "0.8.1", True),
        (respond_then_close, "0.8.1", False),  # it speaks so; other reasons are likelier
    ):
        async with listening(serve) as peer:
            node = make_node(peer.address, make_config(api_version=pinned))
            if not hinted:
                await node.request(ASK)
            with pytest.raises(KafkaConnectionError, match="closed by the broker") as caught:
                await node.request(ASK)
            assert bool(re.search(hint, str(caught.value))) is hinted


async def test_an_unreadable_response_hints_at_a_wrong_pin(
    make_node: MakeNode, make_config: MakeConfig
) -> None:
    """A later version has more fields than the response of a broker that takes it for its own."""
    async with EmbeddedCluster(version="0.8.2") as cluster:
        cluster.fault(ListOffsetsRequest, then=Truncate(1))
        node = make_node(cluster, make_config(api_version="0.9"))
        hint = r"frame cut short: .* api_version pins the line 0\.9: check that it is the broker's"
        with pytest.raises(KafkaConnectionError, match=hint):
            await node.request(ASK)


async def test_a_lane_opened_beside_others_probes_no_version(make_node: MakeNode) -> None:
    async with EmbeddedCluster() as cluster:
        node = make_node(cluster)
        for lane in Lane:
            await node.connection(lane)
        assert probes(cluster) == 1


async def test_a_new_version_is_detected_after_a_reconnect(
    make_node: MakeNode, telemetry: Recorder
) -> None:
    async with EmbeddedCluster(version="0.8.2", port=free_port()) as cluster:
        node = make_node(cluster)
        connection = await node.connection(Lane.FETCH)
        assert connection.version.highest(MetadataRequest) == 0
    await until(lambda: not node.is_connected, "the broker is gone")
    assert [event.reason for event in telemetry.of(Disconnected)] == ["closed by the broker"]
    _, port = node.address
    async with EmbeddedCluster(version="0.10", port=port):
        connection = await node.connection(Lane.FETCH)
        assert connection.version.highest(MetadataRequest) == 2
        assert node.version is not None
        assert node.version.line is BrokerLine.V0_10
    assert [event.broker for event in telemetry.of(Connected)] == ["0.8", "0.10"]


async def test_a_broker_that_ends_after_the_probe_is_probed_again(make_node: MakeNode) -> None:
    # The broker ends after the probe; the connection then reaches another broker at its address.
    calls = 0

    async def fail_once(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise KafkaConnectionError("the broker has ended")
        return await open_connection(*args)

    async with EmbeddedCluster() as cluster:
        node = make_node(cluster, open_connection=fail_once)
        with pytest.raises(KafkaConnectionError):
            await node.connection(Lane.CONTROL)
        await node.connection(Lane.CONTROL)
        assert probes(cluster) == 2


async def test_a_lane_opened_while_another_is_lost_probes_again(
    make_node: MakeNode, telemetry: Recorder
) -> None:
    # The broker ended after the probe, and the connection reached another broker at its address.
    async with EmbeddedCluster() as cluster:
        loses_other = False

        async def lose_the_other_first(*args: Any) -> Any:
            nonlocal loses_other
            if loses_other:
                loses_other = False
                cluster.drop_connections()
                await until(lambda: not node.is_connected, "the other lane is lost")
            return await open_connection(*args)

        node = make_node(cluster, open_connection=lose_the_other_first)
        await node.connection(Lane.CONTROL)
        loses_other = True
        connection = await node.connection(Lane.FETCH)
        assert connection.close_reason is None
        assert probes(cluster) == 2
        await until(lambda: cluster.connections() == 1, "the one from before is closed")
        assert [event.lane for event in telemetry.of(Connected)] == ["control", "fetch"]


async def test_a_downgrade_is_believed_after_two_probes_only(
    make_node: MakeNode,
) -> None:
    broker = ScriptedPeer(OF_0_8_2)
    async with listening(broker) as peer:
        node = make_node(peer.address)
        await node.exact_version()
        # Both questions for OffsetFetch are cut: the same as what an 0.8.0 broker does.
        broker.cut_at = {len(broker.requests) + 4: 0, len(broker.requests) + 6: 0}
        peer.links[-1].close()
        await until(lambda: not node.is_connected, "the connection is lost")
        connection = await node.connection(Lane.CONTROL)
        assert connection.version.line is BrokerLine.V0_8_2


async def test_a_real_downgrade_is_detected(make_node: MakeNode) -> None:
    async with EmbeddedCluster(version="0.10", port=free_port()) as cluster:
        node = make_node(cluster)
        await node.connection(Lane.CONTROL)
    await until(lambda: not node.is_connected, "the broker is gone")
    async with EmbeddedCluster(version="0.8.0", port=node.address[1]):
        connection = await node.connection(Lane.CONTROL)
        assert connection.version.line is BrokerLine.V0_8
        assert (await node.exact_version()).line is BrokerLine.V0_8_0


# --- the exact line -------------------------------------------------------------------------------


async def test_exact_line_reaches_connections_that_are_open(make_node: MakeNode) -> None:
    async with EmbeddedCluster(version="0.8.2", topics={"t": 1}) as cluster:
        node = make_node(cluster)
        connections = [await node.connection(lane) for lane in (Lane.CONTROL, Lane.PRODUCE)]
        assert {one.version.line for one in connections} == {BrokerLine.V0_8}
        versions = await asyncio.gather(*(node.exact_version() for _ in range(5)))
        assert {one.line for one in versions} == {BrokerLine.V0_8_2}
        assert {one.version.line for one in connections} == {BrokerLine.V0_8_2}
        assert len(cluster.requests(OffsetFetchRequest)) == 1


async def test_exact_line_reaches_a_lane_beside_one_that_has_it(make_node: MakeNode) -> None:
    """The simulation's seed 2627: the new lane was never used, and each message timed out."""
    async with EmbeddedCluster(version="0.8.2", topics={"t": 1}) as cluster:
        node = make_node(cluster)
        control = await node.connection(Lane.CONTROL)
        produce = await node.connection(Lane.PRODUCE)
        await node.exact_version()
        cluster.fault(MetadataRequest, then=Answer(5))
        produce.close("closed by the test")
        produce = await node.connection(Lane.PRODUCE)
        assert control.version.is_exact
        assert not produce.version.is_exact
        await node.exact_version()
        assert produce.version.line is BrokerLine.V0_8_2


async def test_an_api_of_some_0_8_lines_makes_the_line_exact(make_node: MakeNode) -> None:
    async with EmbeddedCluster(version="0.8.2", topics={"t": 1}) as cluster:
        node = make_node(cluster)
        await node.request(ASK)
        assert not cluster.requests(OffsetFetchRequest)
        await node.request(OffsetFetchRequest("g", []))
        assert node.version == BrokerVersion.of(BrokerLine.V0_8_2)


async def test_the_line_is_exact_once_there_is_a_topic(make_node: MakeNode) -> None:
    async with EmbeddedCluster(version="0.8.1") as cluster:
        node = make_node(cluster)
        assert (await node.exact_version()).line is BrokerLine.V0_8
        cluster.create_topic("t")
        assert (await node.exact_version()).line is BrokerLine.V0_8_1


async def test_0_8_0_is_asked_again_after_its_last_lane_is_lost(make_node: MakeNode) -> None:
    async with EmbeddedCluster(version="0.8.0", port=free_port(), topics={"t": 1}) as cluster:
        node = make_node(cluster)
        port = node.address[1]
        assert (await node.exact_version()).line is BrokerLine.V0_8_0
        await node.connection(Lane.FETCH)
        for reason in ("closed by the test", IDLE):
            connection = await node.connection(Lane.CONTROL)
            assert connection.version.line is BrokerLine.V0_8_0
            connection.close(reason)
        lane = node.open_lane(Lane.FETCH)
        assert lane is not None
        lane.close(IDLE)
        connection = await node.connection(Lane.CONTROL)
        assert connection.version.line is BrokerLine.V0_8_0
        metadata_requests = len(cluster.requests(MetadataRequest))
        assert metadata_requests == 2  # it precedes each question for the exact line
    await until(lambda: not node.is_connected, "the connection is lost")
    async with EmbeddedCluster(version="0.8.2", port=port, topics={"t": 1}):
        connection = await node.connection(Lane.CONTROL)
        assert connection.version.line is BrokerLine.V0_8_2


async def test_0_8_0_is_believed_after_two_probes_only(make_node: MakeNode) -> None:
    async with EmbeddedCluster(version="0.8.2", topics={"t": 1}) as cluster:
        cluster.fault(OffsetFetchRequest, then=Close(reset=True), times=2)
        node = make_node(cluster)
        assert (await node.exact_version()).line is BrokerLine.V0_8_2
    async with EmbeddedCluster(version="0.8.2", topics={"t": 1}) as cluster:
        node = make_node(cluster)
        connection = await node.connection(Lane.CONTROL)
        cluster.fault(OffsetFetchRequest, then=Close(reset=True), times=2)
        assert (await node.exact_version()).line is BrokerLine.V0_8_2
        assert connection.version.line is BrokerLine.V0_8_2


async def test_exact_line_reaches_a_lane_while_another_is_lost(make_node: MakeNode) -> None:
    async with EmbeddedCluster(version="0.8.2", topics={"t": 1}) as cluster:
        node = make_node(cluster)
        control, produce = [await node.connection(lane) for lane in (Lane.CONTROL, Lane.PRODUCE)]
        probe = cluster.fault(OffsetFetchRequest, then=Delay(0.2))
        asking = asyncio.create_task(node.exact_version())
        await until(lambda: probe.hits, "the broker is asked for its line")
        control.close("closed by the test")
        assert (await asking).line is BrokerLine.V0_8_2
        assert node.open_lane(Lane.PRODUCE) is produce
        assert produce.version.line is BrokerLine.V0_8_2


@pytest.mark.parametrize("other", ["0.8.1", "0.10"])
async def test_a_probe_does_not_change_the_exact_line_of_a_lane(
    make_node: MakeNode, other: str
) -> None:
    """Behind a load balancer, connections to one address may reach different brokers."""
    async with (
        EmbeddedCluster(version="0.8.2", topics={"t": 1}) as cluster,
        EmbeddedCluster(version=other, topics={"t": 1}) as replaced,
    ):
        node = make_node(cluster)
        await node.exact_version()
        produce = await node.connection(Lane.PRODUCE)
        node.address = address(replaced)
        (await node.connection(Lane.CONTROL)).close("closed by the test")
        control = await node.connection(Lane.CONTROL)
        assert str(control.version.line) == other
        assert node.open_lane(Lane.PRODUCE) is produce
        assert produce.version.line is BrokerLine.V0_8_2


async def test_a_lane_of_0_8_is_closed_if_a_probe_finds_0_10(make_node: MakeNode) -> None:
    async with (
        EmbeddedCluster(version="0.8.2", topics={"t": 1}) as cluster,
        EmbeddedCluster(version="0.10", topics={"t": 1}) as replaced,
    ):
        node = make_node(cluster)
        await node.connection(Lane.CONTROL)
        node.address = address(replaced)
        assert (await node.exact_version()).line is BrokerLine.V0_10
        assert not node.is_connected


# --- a connection is lost -------------------------------------------------------------------------


async def test_a_lost_lane_is_reopened_and_reported(
    make_node: MakeNode, telemetry: Recorder
) -> None:
    async with EmbeddedCluster() as cluster:
        node = make_node(cluster)
        await node.request(ASK)
        assert cluster.drop_connections() == 1
        await until(lambda: not node.is_connected, "it is noticed")
        await node.request(ASK)
        where = "{}:{}".format(*node.address)
        assert [type(event) for event in telemetry.events] == [Connected, Disconnected, Connected]
        assert telemetry.events[1] == Disconnected(where, "control", "closed by the broker", 0)


async def test_requests_in_flight_fail_with_a_lost_lane(
    make_node: MakeNode, telemetry: Recorder
) -> None:
    async with EmbeddedCluster() as cluster:
        node = make_node(cluster)
        await node.request(ASK)
        cluster.fault(ListOffsetsRequest, then=Hang())
        calls = [asyncio.create_task(node.request(ASK)) for _ in range(3)]
        await asyncio.wrap_future(cluster.next_request(ListOffsetsRequest))
        cluster.drop_connections()
        for call in calls:
            with pytest.raises(KafkaConnectionError, match="closed by the broker"):
                await call
        assert telemetry.of(Disconnected)[0].lost == 3


async def test_a_peer_that_accepts_and_closes_fails_each_time(
    make_node: MakeNode, make_config: MakeConfig, telemetry: Recorder
) -> None:
    async with listening(close_at_once) as peer:
        node = make_node(peer.address)
        for _ in range(2):
            with pytest.raises(KafkaError, match="not a Kafka broker"):
                await node.request(ASK)
        assert not telemetry.of(Connected)
        assert len(telemetry.of(ConnectFailed)) == 2


# --- idling ---------------------------------------------------------------------------------------


async def test_an_idle_lane_is_closed_and_reopened_on_demand(
    make_node: MakeNode, make_config: MakeConfig, telemetry: Recorder
) -> None:
    async with EmbeddedCluster() as cluster:
        node = make_node(cluster, make_config(connections_max_idle_ms=50))
        await node.request(ASK)
        await until(lambda: not node.is_connected, "closed by us")
        assert telemetry.of(Disconnected)[0].reason == "idle"
        await node.request(ASK)
        assert len(telemetry.of(Connected)) == 2


def test_an_idle_lane_is_closed_on_time(make_config: MakeConfig, telemetry: Recorder) -> None:
    # Brokers from 0.9 on close after 600 s. 540 s must not become 675 s.
    async def scenario() -> None:
        config = make_config(connections_max_idle_ms=540_000)
        node = Node(0, address(world.cluster), config, telemetry)
        first = await node.connection(Lane.CONTROL)
        await asyncio.sleep(300)
        await node.connection(Lane.FETCH)  # later lanes don't put it off
        await first.socket_closed
        assert asyncio.get_running_loop().time() - first.last_used == pytest.approx(540, abs=5)
        assert first.close_reason == IDLE
        assert node.is_connected
        await node.stop()

    with simulate(1, brokers=1) as world:
        world.run(scenario)


async def test_a_lane_in_use_is_not_idle(
    make_node: MakeNode, make_config: MakeConfig, telemetry: Recorder
) -> None:
    async with EmbeddedCluster() as cluster:
        node = make_node(cluster, make_config(connections_max_idle_ms=30))
        await node.connection(Lane.FETCH)
        cluster.fault(ListOffsetsRequest, then=Delay(0.3))
        await node.request(ASK, lane=Lane.FETCH)
        assert not telemetry.of(Disconnected)
        await until(lambda: not node.is_connected, "idle after the response")


def test_idle_lanes_stay_open_without_a_limit(make_config: MakeConfig, telemetry: Recorder) -> None:
    async def scenario() -> None:
        config = make_config(connections_max_idle_ms=None)
        node = Node(0, address(world.cluster), config, telemetry)
        await node.request(ASK)
        await asyncio.sleep(3_000)
        assert node.is_connected
        await node.stop()

    with simulate(1, brokers=1) as world:
        world.run(scenario)


@pytest.mark.parametrize("idle_ms", [1, 2, 5])
async def test_closing_idle_lanes_loses_no_request(
    make_node: MakeNode, make_config: MakeConfig, telemetry: Recorder, idle_ms: int
) -> None:
    async with EmbeddedCluster() as cluster:
        config = make_config(connections_max_idle_ms=idle_ms, api_version="0.8.2")
        node = make_node(cluster, config)

        async def ask(lane: Lane) -> None:
            for i in range(60):
                await node.request(ASK, lane=lane)
                await asyncio.sleep(idle_ms / 1000 * (0.8 + i % 5 / 10))

        await asyncio.gather(*(ask(lane) for lane in Lane))
        assert len(telemetry.of(Disconnected)) > 4  # it did happen
        assert {event.reason for event in telemetry.of(Disconnected)} == {"idle"}
        assert {event.lost for event in telemetry.of(Disconnected)} == {0}


async def test_the_version_is_probed_again_after_all_lanes_idled(
    make_node: MakeNode, make_config: MakeConfig
) -> None:
    # Without a connection, a replaced broker would go unnoticed.
    async with EmbeddedCluster() as cluster:
        node = make_node(cluster, make_config(connections_max_idle_ms=50))
        await node.request(ASK)
        await until(lambda: not node.is_connected, "closed by us")
        await node.request(ASK)
        assert probes(cluster) == 2


async def test_no_probe_after_idling_while_another_lane_is_open(
    make_node: MakeNode, make_config: MakeConfig
) -> None:
    async with EmbeddedCluster() as cluster:
        cluster.fault(ListOffsetsRequest, nth=2, then=Hang())
        node = make_node(cluster, make_config(connections_max_idle_ms=50))
        hanging = asyncio.create_task(node.request(ASK, lane=Lane.FETCH))
        await until(lambda: node.in_flight, "a lane that is in use")
        control = await node.connection(Lane.CONTROL)
        await until(lambda: control.close_reason, "closed by us")
        assert await node.connection(Lane.CONTROL) is not control
        assert probes(cluster) == 1
        hanging.cancel()


# --- closing --------------------------------------------------------------------------------------


async def test_a_closed_node_refuses_and_leaves_no_socket(make_node: MakeNode) -> None:
    async with EmbeddedCluster() as cluster:
        node = make_node(cluster)
        for lane in Lane:
            await node.connection(lane)
        await node.stop("the broker left")
        await until(lambda: cluster.connections() == 0, "all closed")
        with pytest.raises(KafkaConnectionError, match="is closed"):
            await node.request(ASK)
        await node.stop()


async def test_requests_in_flight_get_the_close_reason(make_node: MakeNode) -> None:
    async with EmbeddedCluster() as cluster:
        node = make_node(cluster)
        await node.request(ASK)
        cluster.fault(ListOffsetsRequest, then=Hang())
        call = asyncio.create_task(node.request(ASK))
        await asyncio.wrap_future(cluster.next_request(ListOffsetsRequest))
        await node.stop("the broker left")
        with pytest.raises(KafkaConnectionError, match="the broker left"):
            await call


@pytest.mark.parametrize("api_version", ["auto", "0.8.2"])
@pytest.mark.parametrize("turns", range(0, 40, 2))
async def test_close_at_any_moment_of_connecting_leaves_nothing(
    make_config: MakeConfig, turns: int, api_version: str
) -> None:
    telemetry = Recorder()
    async with EmbeddedCluster() as cluster:
        node = Node(0, address(cluster), make_config(api_version=api_version), telemetry)
        callers = [asyncio.create_task(node.request(ASK, lane=lane)) for lane in Lane]
        for _ in range(turns):
            await asyncio.sleep(0)
        await node.stop()
        for caller in callers:
            with contextlib.suppress(KafkaConnectionError):
                await asyncio.wait_for(caller, 20)
        assert not node.is_connected
        assert len(telemetry.of(Connected)) == len(telemetry.of(Disconnected))
        await until(lambda: cluster.connections() == 0, "all closed")


async def test_close_during_the_backoff_leaves_nothing(make_node: MakeNode) -> None:
    node = make_node(("127.0.0.1", free_port()))
    for _ in range(4):
        with pytest.raises(KafkaConnectionError):
            await node.connection(Lane.CONTROL)
    waiting = asyncio.create_task(node.connection(Lane.CONTROL))
    await asyncio.sleep(0)
    await asyncio.wait_for(node.stop(), 20)
    with pytest.raises(KafkaConnectionError, match="closed by the client"):
        await waiting


async def test_a_cancelled_stop_has_closed_the_node(make_node: MakeNode) -> None:
    async with EmbeddedCluster() as cluster:
        node = make_node(cluster)
        for lane in Lane:
            await node.connection(lane)
        connecting = make_node(("127.0.0.1", free_port()))
        attempt = asyncio.create_task(connecting.connection(Lane.CONTROL))
        await asyncio.sleep(0)
        for one in (node, connecting):
            closing = asyncio.create_task(one.stop())
            await asyncio.sleep(0)
            closing.cancel()
            await asyncio.wait((closing,))
            assert not one.is_connected
        await until(lambda: cluster.connections() == 0, "all closed")
        with pytest.raises(KafkaConnectionError):
            await attempt


async def test_a_lane_lost_and_requested_at_the_same_moment(make_node: MakeNode) -> None:
    async with listening(serve) as peer:
        node = make_node(peer.address)
        for _ in range(30):
            await node.request(ASK)
            peer.links[-1].close()
            try:  # it is lost, or gets its response on a new connection
                assert await asyncio.wait_for(node.request(ASK), 20) == ListOffsetsResponse([])
            except KafkaConnectionError as error:
                assert "closed by" in error.text or "lost" in error.text  # noqa: PT017
