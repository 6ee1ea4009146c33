"""What a scenario does to a simulated ZooKeeper, and what the brokers make of its nodes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss, SessionExpiredError
from kazoo.handlers.threading import KazooTimeoutError

from aiokafka08 import AIOKafkaConsumer, TopicPartition
from aiokafka08.errors import KafkaTimeoutError
from aiokafka08.testing.broker_lines import LINES
from aiokafka08.testing.simulation import simulate
from aiokafka08.testing.simulation.zookeeper_brokers import BrokerNodes
from aiokafka08.testing.simulation.zookeeper_client import SimulatedKazooClient
from aiokafka08.testing.state import BrokerSettings, BrokerState, ClusterState
from tests.conformance.contract.zookeeper.conftest import SESSION_S, SimulatedEnsemble, StateOnly


@pytest.fixture
def ensemble() -> SimulatedEnsemble:
    return SimulatedEnsemble()


@pytest.fixture
def client(ensemble: SimulatedEnsemble) -> Any:
    client = ensemble.client()
    client.create("/ids")
    client.create("/ids/me", ephemeral=True)
    return client


def _states(client: Any) -> list[str]:
    states: list[str] = []
    client.add_listener(states.append)
    return states


def test_short_outage_keeps_the_session(ensemble: SimulatedEnsemble, client: Any) -> None:
    states, session = _states(client), client.client_id
    ensemble.server.disconnect(SESSION_S - 0.5)
    assert client.client_id is None
    late = client.set_async("/ids", b"late")
    with pytest.raises(KazooTimeoutError):
        late.get(timeout=2)
    assert ensemble.spent_s == 2
    with pytest.raises(KafkaTimeoutError):
        client.get("/ids")
    with pytest.raises(KazooTimeoutError):
        ensemble.client()
    ensemble.sleep(SESSION_S)
    assert states == ["SUSPENDED", "CONNECTED"]
    assert client.client_id == session
    # As with kazoo: the caller has given up, but the request was kept and is sent now.
    assert client.get("/ids")[0] == b"late"
    assert client.get_children("/ids") == ["me"]


def test_long_outage_ends_the_session(ensemble: SimulatedEnsemble, client: Any) -> None:
    states = _states(client)
    near = ensemble.client()
    seen: list[str] = []
    near.get_children("/ids", watch=lambda event: seen.append(event.type))
    ensemble.server.disconnect(2 * SESSION_S, [client])
    kept = client.set_async("/ids", b"never")
    ensemble.sleep(SESSION_S - 0.1)
    assert near.get_children("/ids") == ["me"]
    ensemble.sleep(0.2)
    assert near.get_children("/ids") == []
    assert seen == ["CHILD"]
    assert states == ["SUSPENDED"]
    ensemble.sleep(SESSION_S)
    assert states == ["SUSPENDED", "LOST", "CONNECTED"]
    with pytest.raises(SessionExpiredError):
        kept.get(timeout=1)
    assert near.get("/ids")[0] == b""


def test_silent_network_is_noticed_late(ensemble: SimulatedEnsemble, client: Any) -> None:
    states = _states(client)
    ensemble.server.disconnect(SESSION_S - 0.5, silent=True)
    ensemble.sleep(SESSION_S / 2)
    assert states == []
    assert client.connected
    request = client.get_async("/ids")
    ensemble.sleep(SESSION_S / 3 + 0.1)
    assert states == ["SUSPENDED"]
    with pytest.raises(ConnectionLoss):
        request.get(timeout=1)
    ensemble.sleep(1)
    assert states == ["SUSPENDED", "CONNECTED"]


@pytest.mark.parametrize(
    ("requests_at", "noticed_after"), [((), 2 / 3), ((0.25,), 0.25 + 2 / 3), ((0.5,), 0.5 + 1 / 3)]
)
def test_requests_count_as_pings_in_a_silent_network(
    ensemble: SimulatedEnsemble, client: Any, requests_at: tuple[float, ...], noticed_after: float
) -> None:
    """As in kazoo: a ping goes a third of the session after what was sent last, and the connection
    is given up if nothing comes for a third after that.
    """
    states, results = _states(client), []
    client.get("/ids")
    ensemble.server.disconnect(3 * SESSION_S, silent=True)
    for part in requests_at:
        ensemble.sleep(part * SESSION_S)
        request = client.exists_async("/ids")
        request.rawlink(lambda result: results.append(result.successful()))
    ensemble.sleep((noticed_after - sum(requests_at)) * SESSION_S - 0.1)
    assert states == []
    ensemble.sleep(0.2)
    assert states == ["SUSPENDED"]
    assert results == [False for _ in requests_at]


def test_lost_response_took_effect(ensemble: SimulatedEnsemble, client: Any) -> None:
    states = _states(client)
    ensemble.server.lose_response(client)
    assert client.get("/ids")[0] == b""
    with pytest.raises(ConnectionLoss):
        client.set("/ids", b"set")
    ensemble.sleep(1)
    assert states == ["SUSPENDED", "CONNECTED"]
    assert client.get("/ids")[0] == b"set"


def test_client_that_stops_while_away_leaves_its_nodes(
    ensemble: SimulatedEnsemble, client: Any
) -> None:
    near = ensemble.client()
    ensemble.server.disconnect(1, [client])
    client.stop()
    ensemble.sleep(SESSION_S - 0.1)
    assert near.get_children("/ids") == ["me"]
    ensemble.sleep(0.2)
    assert near.get_children("/ids") == []


def test_stop_makes_the_calls_that_are_due(ensemble: SimulatedEnsemble, client: Any) -> None:
    """As with kazoo, whose `stop` waits for the threads that make them."""
    seen: list[str] = []
    near = ensemble.client()
    near.get_children("/ids", watch=lambda event: seen.append(event.type))
    client.create("/ids/you")
    assert seen == []
    near.stop()
    assert seen == ["CHILD"]
    ensemble.sleep(1)
    assert seen == ["CHILD"]


def test_slow_answers_take_time_of_the_caller(ensemble: SimulatedEnsemble, client: Any) -> None:
    ensemble.server.latency_s = 0.25
    client.get("/ids")
    client.set("/ids", b"")
    assert ensemble.spent_s == 0.5


def test_settings_in_zookeeper_change_the_brokers(ensemble: SimulatedEnsemble) -> None:
    state = ClusterState(
        LINES["0.8.2"], BrokerSettings(), [BrokerState(0, "h", 1), BrokerState(1, "h", 2)]
    )
    BrokerNodes(ensemble.server, StateOnly(state))
    client = ensemble.client()
    assert sorted(client.get_children("/brokers/ids")) == ["0", "1"]
    client.create("/config/topics/t", b'{"config": {"max.message.bytes": "99"}}')
    client.create("/brokers/topics/t", b'{"partitions": {"0": [1, 0], "1": [0]}}')
    assert "t" not in state.topics
    ensemble.sleep(1)
    first, second = state.topics["t"]
    assert (first.leader, second.leader) == (1, 0)
    assert first.log_config.max_message_bytes == 99
    client.set("/config/topics/t", b'{"config": {"min.insync.replicas": "2"}}')
    client.create("/config/changes/config_change_", b'"t"', sequence=True)
    ensemble.sleep(1)
    assert first.log_config.max_message_bytes == state.settings.message_max_bytes
    assert first.min_insync_replicas == 2
    state.mark_dead(0)
    state.notice(0)
    assert state.publish is not None
    state.publish()
    assert client.get_children("/brokers/ids") == ["1"]
    assert b'"isr": [1]' in client.get("/brokers/topics/t/partitions/0/state")[0]
    client.create("/admin/delete_topics/t")
    ensemble.sleep(1)
    assert "t" not in state.topics
    assert client.exists("/brokers/topics/t") is client.exists("/config/topics/t") is None
    assert client.get_children("/admin/delete_topics") == []


@pytest.mark.parametrize("line", ["0.8.1", "0.10"])
def test_new_topic_has_the_settings_of_its_line(ensemble: SimulatedEnsemble, line: str) -> None:
    """A setting that the line doesn't know is left out: its brokers only log it."""
    state = ClusterState(LINES[line], BrokerSettings(), [BrokerState(0, "h", 1)])
    BrokerNodes(ensemble.server, StateOnly(state))
    client = ensemble.client()
    client.create("/config/topics/t", b'{"config": {"min.insync.replicas": "2"}}')
    client.create("/brokers/topics/t", b'{"partitions": {"0": [0]}}')
    ensemble.sleep(1)
    assert state.topics["t"][0].min_insync_replicas == (1 if line == "0.8.1" else 2)


def test_process_that_sleeps_loses_its_session(ensemble: SimulatedEnsemble, client: Any) -> None:
    """A client whose process stands still sends no pings."""
    states = _states(client)
    near = ensemble.client()
    client._ping.cancel()
    ensemble.sleep(SESSION_S + 1)
    assert near.get_children("/ids") == []
    assert states == []
    with pytest.raises(ConnectionLoss):
        client.get("/ids")
    ensemble.sleep(1)
    assert states == ["SUSPENDED", "LOST", "CONNECTED"]


def test_group_of_0_8_moves_to_the_member_that_is_left() -> None:
    """The unmodified consumer, in virtual time: one member is suspended for a minute."""
    with simulate(3, version="0.8.2") as world:

        async def scenario() -> set[TopicPartition]:
            world.cluster.create_topic("t", 4)
            consumers = []
            for name in ("one", "two"):
                with world.process(name):
                    consumers.append(
                        AIOKafkaConsumer(
                            "t",
                            bootstrap_servers=world.cluster.bootstrap_servers,
                            zookeeper_connect=world.zookeeper_connect,
                            group_id="g",
                        )
                    )
                    await asyncio.create_task(consumers[-1].start())
            one, two = consumers
            await asyncio.sleep(10)
            assert len(one.assignment()) == len(two.assignment()) == 2
            world.pause("one")
            await asyncio.sleep(60)
            owned = two.assignment()
            world.resume("one")
            await asyncio.sleep(10)
            assert len(one.assignment()) == len(two.assignment()) == 2
            for consumer in consumers:
                await consumer.stop()
            return owned

        assert len(world.run(scenario)) == 4


def test_address_leads_to_another_zookeeper_and_back() -> None:
    """Clients get new sessions there; the brokers write where they did before."""
    elsewhere = {"/brokers": b"", "/brokers/topics": b"", "/brokers/topics/other": b"{}"}

    async def scenario() -> None:
        client = SimulatedKazooClient(world.zookeeper, timeout=SESSION_S)
        client.start()
        client.create("/mine", ephemeral=True)
        session = client.client_id
        tree = world.lead_zookeeper_to(elsewhere)
        assert client.client_id is None
        await asyncio.sleep(1)
        assert client.client_id not in (None, session)
        world.cluster.create_topic("t", 1)
        assert tree.contents() == {"/": b"", **elsewhere}
        client.create("/brokers/topics/t", b"", ephemeral=True)
        world.lead_zookeeper_to(None)
        await asyncio.sleep(1)
        assert tree.contents() == {"/": b"", **elsewhere}
        assert client.get_children("/brokers/topics") == ["t"]
        assert b"partitions" in client.get("/brokers/topics/t")[0]
        assert client.exists("/mine") is None
        client.stop()

    with simulate(1, version="0.8.2") as world:
        world.run(scenario)


def test_timer_that_rounds_to_nothing_does_not_stop_time() -> None:
    with simulate(1) as world:

        async def scenario() -> None:
            loop = asyncio.get_running_loop()
            end = loop.time() + 0.00001
            while loop.time() < end:  # noqa: ASYNC110
                await asyncio.sleep(1e-15)

        world.run(scenario, limit_s=1)
