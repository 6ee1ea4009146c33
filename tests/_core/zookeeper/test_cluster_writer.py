"""The nodes that stand for brokers and topics of a gateway, in a real ZooKeeper of 0.8.2.2."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from time import monotonic
from typing import Any

import pytest
from kazoo.client import KazooClient

from aiokafka08._core.zookeeper.cluster_check import read_registered
from aiokafka08._core.zookeeper.cluster_writer import (
    MARK,
    ClusterWriter,
    NodeChange,
    WrittenCluster,
    WrittenPartition,
)
from aiokafka08.errors import KafkaConnectionError, KafkaUnavailableError
from tests.brokers.fixtures import zookeeper_alone
from tests.brokers.ports import free_port
from tests.brokers.zookeeper import ZooKeeperServer

pytestmark = [pytest.mark.real, pytest.mark.timeout(60)]

NAME, PEER = "gateway-1:9092", "gateway-2:9092"
NUMBERS = itertools.count()


def partition(leader: int = 0, epoch: int = 0) -> WrittenPartition:
    return WrittenPartition(leader, epoch, [0, 1], [1, 0])


def cluster(topics: dict[str, int] | None = None, cluster_id: str | None = None) -> WrittenCluster:
    """Return a cluster of node 0 with topics of so many partitions."""
    made = {
        name: dict.fromkeys(range(count), partition()) for name, count in (topics or {}).items()
    }
    return WrittenCluster({0: ("gateway-1", 9093)}, made, cluster_id)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with zookeeper_alone(tmp_path_factory.mktemp("zookeeper")) as made:
        yield made


class Tree:
    """An empty chroot, and what is in it."""

    def __init__(self, server: ZooKeeperServer) -> None:
        root = f"/tree-{next(NUMBERS)}"
        self.client = KazooClient(server.connect)
        self.client.start()
        self.client.ensure_path(root)
        self.client.chroot = root
        self.connect = server.connect + root

    def put(self, path: str, text: str, *, is_ephemeral: bool = False) -> None:
        self.client.create(path, text.encode(), ephemeral=is_ephemeral, makepath=True)

    def get(self, path: str) -> dict[str, Any]:
        """Return the fields of a node."""
        found = json.loads(self.client.get(path)[0])
        assert isinstance(found, dict)
        return found

    def has(self, path: str) -> bool:
        return self.client.exists(path) is not None

    def all(self, path: str = "") -> dict[str, bytes]:
        """Return all nodes."""
        found = {}
        for name in self.client.get_children(path or "/"):
            found[f"{path}/{name}"] = self.client.get(f"{path}/{name}")[0]
            found |= self.all(f"{path}/{name}")
        return found


@pytest.fixture
def tree(server: ZooKeeperServer) -> Iterator[Tree]:
    made = Tree(server)
    try:
        yield made
    finally:
        made.client.stop()
        made.client.close()


@pytest.fixture
def new_writer(tree: Tree) -> Iterator[Callable[..., ClusterWriter]]:
    """Return a function that returns the writer of a gateway, whose peer is the other one."""
    made = []

    def writer(name: str = NAME, changed: Callable[[], object] = lambda: None) -> ClusterWriter:
        others = {NAME, PEER} - {name}
        made.append(ClusterWriter(tree.connect, name, others, changed))
        return made[-1]

    yield writer
    for one in made:
        one.close()


def test_cluster_is_written_as_brokers_write_it(tree: Tree, new_writer: Any) -> None:
    with closing(new_writer()) as writer:
        writer.write(cluster({"t": 2}))
        broker = tree.get("/brokers/ids/0")
        assert (broker["version"], broker["host"], broker["port"]) == (1, "gateway-1", 9093)
        assert tree.get("/controller")["brokerid"] == 0
        assert tree.get("/brokers/topics/t")["partitions"] == {"0": [0, 1], "1": [0, 1]}
        state = tree.get("/brokers/topics/t/partitions/1/state")
        del state[MARK]
        wanted = {"controller_epoch": 0, "leader": 0, "leader_epoch": 0, "version": 1}
        assert state == wanted | {"isr": [0, 1]}
        assert tree.has("/consumers")
        assert not tree.has("/cluster/id")
        assert writer.write(cluster({"t": 2})).changes == []
    assert tree.client.get_children("/brokers/ids") == []
    assert not tree.has("/controller")
    assert tree.has("/brokers/topics/t")


def test_changes_of_the_cluster_are_followed(tree: Tree, new_writer: Any) -> None:
    writer = new_writer()
    writer.write(cluster({"t": 1, "gone": 1}))
    now = WrittenCluster(
        {0: ("gateway-1", 9095), 1: ("gateway-1", 9094)},
        {"t": {0: partition(1, 5), 1: partition(-1)}, "new": {0: partition()}},
    )
    writer.write(now)
    assert tree.get("/brokers/ids/0")["port"] == 9095
    assert tree.get("/brokers/ids/1")["port"] == 9094
    assert sorted(tree.client.get_children("/brokers/topics")) == ["new", "t"]
    assert tree.get("/brokers/topics/t")["partitions"].keys() == {"0", "1"}
    moved = tree.get("/brokers/topics/t/partitions/0/state")
    assert (moved["leader"], moved["leader_epoch"]) == (1, 5)
    assert tree.get("/brokers/topics/t/partitions/1/state")["leader"] == -1
    tree.client.delete("/brokers/topics/new", recursive=True)  # by a tool
    writer.write(cluster({"t": 1, "new": 1}))
    assert tree.client.get_children("/brokers/topics/t/partitions") == ["0"]
    assert tree.client.get_children("/brokers/ids") == ["0"]
    assert tree.has("/brokers/topics/new")


def test_topic_that_went_while_no_gateway_ran_is_removed(tree: Tree, new_writer: Any) -> None:
    with closing(new_writer()) as first:
        first.write(cluster({"t": 1, "gone": 1}))
    new_writer().write(cluster({"t": 1}))
    assert tree.client.get_children("/brokers/topics") == ["t"]


@pytest.mark.parametrize("path", ["/brokers/ids/7", "/controller"])
def test_nothing_is_written_while_a_broker_is_registered(
    path: str, tree: Tree, new_writer: Any
) -> None:
    tree.put(path, '{"version":1,"host":"kafka1","port":9092}', is_ephemeral=True)
    before = tree.all()
    writer = new_writer()
    for call in (writer.write, writer.plan):
        with pytest.raises(KafkaUnavailableError, match=r"a broker \(kafka1:9092\).*--peers"):
            call(cluster({"t": 1}))
    assert tree.all() == before
    tree.client.delete(path)
    writer.write(cluster({"t": 1}))
    assert tree.has("/brokers/ids/0")


def test_gateway_that_is_no_peer_is_a_stranger(tree: Tree, new_writer: Any) -> None:
    stranger = ClusterWriter(tree.connect, "gateway-9:9092", [], lambda: None)
    with closing(stranger):
        stranger.write(cluster())
        with pytest.raises(KafkaUnavailableError, match="is registered by gateway gateway-9:9092"):
            new_writer().write(cluster())


def test_one_of_two_gateways_writes_until_it_goes(tree: Tree, new_writer: Any) -> None:
    has_changed = threading.Event()
    first, second = new_writer(), new_writer(PEER, has_changed.set)
    first.write(cluster({"t": 1}))
    before = tree.all()
    assert second.write(cluster({"t": 2})).owner == NAME
    assert tree.all() == before
    has_changed.clear()
    first.close()
    assert has_changed.wait(20)
    assert second.write(cluster({"t": 2})).owner is None
    assert tree.get("/brokers/ids/0")[MARK] == PEER
    assert tree.get("/brokers/topics/t")["partitions"].keys() == {"0", "1"}
    assert first.write(cluster({"t": 2})).owner == PEER


OLD_TREE = {
    "/brokers/topics/t": '{"version":1,"partitions":{"0":[3,4]}}',
    "/brokers/topics/t/partitions/0/state": (
        '{"controller_epoch":7,"leader":3,"version":1,"leader_epoch":9,"isr":[3,4]}'
    ),
    "/brokers/topics/only-here": '{"version":1,"partitions":{"0":[3]}}',
    "/cluster/id": '{"version":"1","id":"old"}',
    "/consumers/g/offsets/t/0": "42",
    "/config/topics/t": '{"version":1,"config":{"retention.ms":"1"}}',
}


def test_clients_of_any_gateway_see_the_same_cluster(tree: Tree, new_writer: Any) -> None:
    """By its id, and by the peers, whose ids have ten digits; without peers by the id alone."""
    brokers = {0: ("gateway-1", 9093), 1_000_000_001: ("gateway-1", 9092)}
    with closing(new_writer()) as writer:
        writer.write(WrittenCluster(brokers, {}, "new"))
        registered = read_registered(tree.client, tree.connect, monotonic() + 10)
        assert registered.brokers.keys() == brokers.keys()
        assert registered.cluster_id == "new"
    with closing(new_writer()) as writer:
        writer.apply(writer.plan_restore())
    assert not tree.has("/cluster/id")


def test_what_brokers_have_written_can_be_put_back(tree: Tree, new_writer: Any) -> None:
    for path, text in OLD_TREE.items():
        tree.put(path, text)
    for _ in range(2):  # a second gateway keeps what the first one has kept
        with closing(new_writer()) as writer:
            plan = writer.write(cluster({"t": 2, "new": 1}, "new"))
            assert plan.left == ["only-here"]
    state = tree.get("/brokers/topics/t/partitions/0/state")
    assert (state["leader"], state["isr"], state["controller_epoch"]) == (0, [0, 1], 7)
    assert tree.get("/cluster/id")["id"] == "new"
    assert tree.get("/brokers/topics/t")["partitions"].keys() == {"0", "1"}
    with closing(new_writer()) as writer:
        changes = writer.plan_restore()
        writer.apply(changes)
        assert writer.plan_restore() == []
    for path, text in OLD_TREE.items():
        assert json.loads(tree.client.get(path)[0]) == json.loads(text)
    assert tree.client.get_children("/brokers/topics/t/partitions") == ["0"]
    assert sorted(tree.client.get_children("/brokers/topics")) == ["only-here", "t"]


def test_what_brokers_have_written_outlives_a_deleted_topic(tree: Tree, new_writer: Any) -> None:
    """The target shows no topic for a while, and then has it with fewer partitions."""
    same = {"version": 1, "partitions": {"0": [0, 1]}}  # as the gateway would write it
    texts = OLD_TREE | {"/brokers/topics/same": json.dumps(same)}
    for path, text in texts.items():
        tree.put(path, text)
    with closing(new_writer()) as writer:
        writer.write(cluster({"t": 2, "same": 1, "new": 1}))
        writer.write(cluster({}), removes=False)
        assert "new" in tree.client.get_children("/brokers/topics")
        writer.write(cluster({}))
        assert tree.get("/brokers/topics/t")["partitions"] == {}
        assert tree.get("/brokers/topics/same")["partitions"] == {}
        assert not tree.has("/brokers/topics/new")
        writer.write(cluster({"t": 2}))
        assert tree.get("/brokers/topics/t")["partitions"].keys() == {"0", "1"}
        writer.write(cluster({"t": 1}))
        writer.write(WrittenCluster({}, {"t": {5: partition()}}))
    with closing(new_writer()) as writer:
        writer.apply(writer.plan_restore())
    for path, text in texts.items():
        assert json.loads(tree.client.get(path)[0]) == json.loads(text)


def test_what_tools_have_changed_is_written_again(tree: Tree, new_writer: Any) -> None:
    writer = new_writer()
    writer.write(cluster({"t": 2}))
    tree.client.set("/brokers/topics/t", b'{"version":1,"partitions":{"0":[0],"1":[0],"2":[0]}}')
    tree.client.delete("/brokers/topics/t/partitions/1/state")
    writer.write(cluster({"t": 2}), compares=True)
    assert tree.get("/brokers/topics/t")["partitions"] == {"0": [0, 1], "1": [0, 1]}
    assert tree.get("/brokers/topics/t/partitions/1/state")["leader"] == 0


@pytest.mark.parametrize("mark", [5, "before", [1], {"before": 5}, {"before": "x"}])
def test_field_that_no_gateway_wrote_is_left_and_named(
    mark: object, tree: Tree, new_writer: Any
) -> None:
    text = json.dumps({"version": 1, "partitions": {}, MARK: mark})
    tree.put("/brokers/topics/t", text)
    with pytest.raises(KafkaUnavailableError, match="/brokers/topics/t holds"):
        new_writer().plan_restore()


def test_names_of_others_are_shown_in_short(tree: Tree, new_writer: Any) -> None:
    host = "kafka1\n2026-11-28 ERROR forged" + "y" * 3000
    tree.put("/brokers/ids/5", json.dumps({"host": host, "port": 9092}))
    with pytest.raises(KafkaUnavailableError) as raised:
        new_writer().write(cluster())
    assert len(raised.value.text) < 1500
    assert "\n" not in raised.value.text


def test_nothing_is_put_back_while_a_gateway_writes(tree: Tree, new_writer: Any) -> None:
    new_writer().write(cluster({"t": 1}))
    with pytest.raises(KafkaUnavailableError, match="Stop the gateways that write there first"):
        new_writer(PEER).plan_restore()


def test_node_that_no_broker_wrote_is_left_and_named(tree: Tree, new_writer: Any) -> None:
    tree.put("/brokers/topics/t", "not JSON")
    with pytest.raises(KafkaUnavailableError, match="/brokers/topics/t holds b'not JSON'"):
        new_writer().write(cluster({"t": 1}))
    assert tree.client.get("/brokers/topics/t")[0] == b"not JSON"


def test_node_that_changed_meanwhile_is_not_overwritten(tree: Tree, new_writer: Any) -> None:
    tree.put("/brokers/topics/t", OLD_TREE["/brokers/topics/t"])
    writer = new_writer()
    stale = NodeChange("/brokers/topics/t", b"{}", b"{}", version=5)
    with pytest.raises(KafkaUnavailableError, match="another program has changed"):
        writer.apply([stale])


def test_zookeeper_that_is_away_is_an_error(server: ZooKeeperServer) -> None:
    with pytest.raises(KafkaConnectionError, match=r"can't be reached: [Cc]onnection refused"):
        ClusterWriter(f"127.0.0.1:{free_port()}", NAME, [], lambda: None).write(cluster())
    with pytest.raises(KafkaUnavailableError, match="has no chroot /nowhere"):
        ClusterWriter(f"{server.connect}/nowhere", NAME, [], lambda: None).write(cluster())
