"""What the package reads and writes in the ZooKeeper of a real and of a simulated cluster."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest

from aiokafka08 import environment
from aiokafka08._core.zookeeper.group_nodes import GroupNodes
from aiokafka08._core.zookeeper.scala_registry import ScalaRegistry
from aiokafka08._core.zookeeper.topic_nodes import TopicNodes
from aiokafka08._core.zookeeper.topic_states import (
    PartitionNode,
    TopicNode,
    read_cluster_nodes,
    read_topic_creations,
)
from aiokafka08.errors import NonEmptyGroup, TopicAlreadyExistsError, UnknownTopicOrPartitionError
from aiokafka08.structs import TopicPartition
from aiokafka08.testing.broker_lines import LINES
from aiokafka08.testing.simulation.zookeeper_brokers import BrokerNodes
from aiokafka08.testing.simulation.zookeeper_client import SimulatedKazooClient
from aiokafka08.testing.state import BrokerSettings, BrokerState, ClusterState, CommitKey
from tests.brokers.fixtures import BrokerClusters
from tests.conformance.contract.zookeeper.conftest import (
    RELEASE,
    Ensemble,
    RealEnsemble,
    SimulatedEnsemble,
    StateOnly,
    simulated_and_real,
)
from tests.support.names import unique_name
from tests.support.zookeeper import UncheckedZookeeper


class Cluster(NamedTuple):
    """A cluster of two brokers with its ZooKeeper."""

    connect: str
    ensemble: Ensemble


@simulated_and_real
def cluster(request: pytest.FixtureRequest) -> Any:
    if request.param == RELEASE:
        clusters: BrokerClusters = request.getfixturevalue("broker_clusters")
        connect = clusters.get(RELEASE, 3).zookeeper_connect
        real = RealEnsemble(connect)
        yield Cluster(connect, real)
        real.close()
        return
    simulated = SimulatedEnsemble()
    nodes = [BrokerState(number, "127.0.0.1", 9092 + number) for number in range(3)]
    state = ClusterState(LINES["0.8.2"], BrokerSettings(), nodes)
    BrokerNodes(simulated.server, StateOnly(state))
    with environment.replace(
        zookeeper_client=partial(SimulatedKazooClient, simulated.server),
        monotonic=simulated.time,
    ):
        yield Cluster("127.0.0.1:2181", simulated)


def _topic(cluster: Cluster, name: str) -> TopicNode | None:
    return read_cluster_nodes(UncheckedZookeeper(cluster.connect), 10).topics.get(name)


def _has_leaders(cluster: Cluster, name: str, partitions: int) -> Callable[[], bool]:
    def check() -> bool:
        node = _topic(cluster, name)
        if node is None or len(node.partitions) != partitions:
            return False
        return all(one.leader is not None for one in node.partitions.values())

    return check


def test_topic_is_created_extended_and_deleted(cluster: Cluster) -> None:
    topics, name = TopicNodes(UncheckedZookeeper(cluster.connect), 10), unique_name()
    assert topics.broker_ids() == {0, 1, 2}
    topics.create_topic(name, {0: [1, 0], 1: [2, 1]}, {"max.message.bytes": "5000"})
    with pytest.raises(TopicAlreadyExistsError):
        topics.create_topic(name, {0: [0]}, {})
    cluster.ensemble.wait_for(_has_leaders(cluster, name, 2))
    found = _topic(cluster, name)
    assert found is not None
    assert found.config == {"max.message.bytes": "5000"}
    assert found.partitions[0].replicas == (1, 0)
    assert found.partitions[1] == PartitionNode((2, 1), 2, (2, 1))
    topics.add_partitions(name, {2: [0, 2]})
    cluster.ensemble.wait_for(_has_leaders(cluster, name, 3))
    assert topics.assignment(name) == {0: [1, 0], 1: [2, 1], 2: [0, 2]}
    _delete(cluster, name)
    assert _topic(cluster, name) is None
    with pytest.raises(UnknownTopicOrPartitionError):
        topics.assignment(name)


def test_creation_of_a_topic_lasts_until_it_is_deleted(cluster: Cluster) -> None:
    topics, name, other = (
        TopicNodes(UncheckedZookeeper(cluster.connect), 10),
        unique_name(),
        unique_name(),
    )
    parents: set[str] = set()

    def creation() -> int | None:
        found = read_topic_creations(UncheckedZookeeper(cluster.connect), 10, name.__eq__)
        assert set(found.topics) <= {name}
        parents.add(found.parent)
        return found.topics.get(name)

    assert creation() is None
    topics.create_topic(other, {0: [0]}, {})
    topics.create_topic(name, {0: [0]}, {})
    first = creation()
    assert first is not None
    cluster.ensemble.wait_for(_has_leaders(cluster, name, 1))
    topics.add_partitions(name, {1: [0]})
    cluster.ensemble.wait_for(_has_leaders(cluster, name, 2))
    assert creation() == first
    _delete(cluster, name)
    topics.create_topic(name, {0: [0]}, {})
    second = creation()
    assert second is not None
    assert second > first
    assert len(parents) == 1


def _delete(cluster: Cluster, name: str) -> None:
    topics = TopicNodes(UncheckedZookeeper(cluster.connect), 10)
    topics.request_deletion(name)
    cluster.ensemble.wait_for(lambda: topics.deletion_state(name) == (False, False))


def test_settings_of_a_topic_are_changed(cluster: Cluster) -> None:
    topics, name = TopicNodes(UncheckedZookeeper(cluster.connect), 10), unique_name()
    topics.create_topic(name, {0: [0]}, {})
    cluster.ensemble.wait_for(_has_leaders(cluster, name, 1))
    assert topics.overrides([name]) == {name: {}}
    changed = topics.alter_overrides(name, {"max.message.bytes": "7"}, [], as_json_object=False)
    assert changed == topics.overrides([name])[name] == {"max.message.bytes": "7"}
    topics.alter_overrides(name, {}, ["max.message.bytes"], as_json_object=False)
    assert topics.overrides([name]) == {name: {}}


def test_members_share_a_group_and_leave_it(cluster: Cluster) -> None:
    topic, group = unique_name(), unique_name("g")
    TopicNodes(UncheckedZookeeper(cluster.connect), 10).create_topic(topic, {0: [0], 1: [1]}, {})
    cluster.ensemble.wait_for(_has_leaders(cluster, topic, 2))
    changes: list[None] = []

    def member(name: str) -> ScalaRegistry:
        client = cluster.ensemble.client()
        return ScalaRegistry(
            client, cluster.connect, group, 10, lambda: changes.append(None), name, lambda *_: None
        )

    one, two = member("one"), member("two")
    assert one.register_and_read(frozenset({topic})).partitions == {topic: [0, 1]}
    snapshot = two.register_and_read(frozenset({topic}))
    assert snapshot.threads == {topic: sorted([f"{one.member}-0", f"{two.member}-0"])}
    cluster.ensemble.wait_for(lambda: changes)
    first = TopicPartition(topic, 0)
    assert one.claim({first: f"{one.member}-0"}) is None
    assert two.claim({first: "x"}) == f"{topic}/0 is owned by '{one.member}-0'"
    groups = GroupNodes(UncheckedZookeeper(cluster.connect), 10)
    assert group in groups.names()
    [found] = groups.describe([group])
    assert (found.errors, found.error) == ((), None)
    assert {some.member for some in found.described.members} == {one.member, two.member}
    [refused] = groups.delete([group]).values()
    assert isinstance(refused, NonEmptyGroup)
    one.leave([first])
    assert two.claim({first: f"{two.member}-0"}) is None
    two.leave([first])
    assert groups.delete([group]) == {group: True}
    assert groups.delete([group]) == {group: False}


def test_commit_through_a_broker_is_a_node() -> None:
    """The contract suite of OffsetCommit shows that real brokers keep it in ZooKeeper."""
    simulated = SimulatedEnsemble()
    state = ClusterState(LINES["0.8.2"], BrokerSettings(), [BrokerState(0, "127.0.0.1", 9092)])
    BrokerNodes(simulated.server, StateOnly(state))
    client = simulated.client()
    state.zookeeper_commits[CommitKey("g", "t", 3)] = state_commit = _commit(7)
    assert client.get("/consumers/g/offsets/t/3")[0] == b"7"
    assert state.zookeeper_commits.get(CommitKey("g", "t", 3)) == state_commit
    client.set("/consumers/g/offsets/t/3", b"9")
    assert state.zookeeper_commits[CommitKey("g", "t", 3)] == _commit(9)
    assert state.zookeeper_commits.get(CommitKey("g", "t", 4)) is None


def _commit(offset: int) -> Any:
    from aiokafka08.testing.state import Commit

    return Commit(offset, "")
