"""Changes of groups on the embedded cluster beside a real ZooKeeper, which a test fills itself.

The ZooKeeper knows broker 0 below the chroot /ours, broker 77 below /theirs, and none at the root.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl

from aiokafka08._core.zookeeper.group_nodes import GroupNodes
from aiokafka08._core.zookeeper.nodes import NodeReader
from aiokafka08.errors import (
    KafkaError,
    KafkaTimeoutError,
    KafkaUnavailableError,
    NonEmptyGroup,
)
from aiokafka08.protocol.requests.committed_offsets import OffsetCommitRequest
from aiokafka08.testing import EmbeddedCluster
from tests._tools.cli.conftest import RunCommand
from tests._tools.cli.test_group import T0, V0, commit, committed
from tests.brokers.fixtures import zookeeper_alone
from tests.support.zookeeper import UncheckedZookeeper

pytestmark = [pytest.mark.real, pytest.mark.timeout(60)]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KazooClient]:
    with zookeeper_alone(tmp_path_factory.mktemp("zookeeper"), "0.10.2.2") as server:
        client = KazooClient(server.connect)
        client.start()
        try:
            client.create("/ours/brokers/ids/0", makepath=True)
            theirs = b'{"version":1,"host":"other","port":9092}'
            client.create("/theirs/brokers/ids/77", theirs, makepath=True)
            yield client
        finally:
            client.stop()
            client.close()


@pytest.fixture
def address(session: KazooClient) -> str:
    host, port = session.hosts[0]
    return f"{host}:{port}"


@pytest.fixture(params=["0.8.2", "0.10"])
def cluster(request: pytest.FixtureRequest, session: KazooClient) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(1, request.param, {"orders": 2, "visits": 1}) as running:
        broker = running.nodes[0]
        node = json.dumps({"version": 1, "host": broker.host, "port": broker.port})
        session.set("/ours/brokers/ids/0", node.encode())
        running.append("orders", 0, [b"v"] * 10)
        yield running


def register(session: KazooClient, group: str, member: str = "m") -> None:
    data = b'{"version":1,"subscription":{"orders":1},"pattern":"static"}'
    session.create(f"/ours/consumers/{group}/ids/{member}", data, makepath=True)


def test_other_zookeeper_protects_no_group(
    cluster: EmbeddedCluster, cli: RunCommand, session: KazooClient, address: str
) -> None:
    server = ("-b", cluster.bootstrap_servers)
    commit(cluster, "g", {T0: 4}, "zookeeper")
    session.ensure_path("/theirs/consumers/g/offsets/orders")
    reset = ("group", "reset", "g", "--to-latest", "--topic", "orders:0", "--store", "zookeeper")
    exported = cli("group", "export", "g", "--store", "zookeeper", *server).out
    for chroot, text in (
        ("", "isn't that of the brokers: it registers no broker; the brokers are 0 at "),
        ("/theirs", "isn't that of the brokers: it registers 77 at other:9092; the brokers are 0"),
    ):
        for arguments in (
            reset,
            (*reset, "--execute"),
            ("group", "import", "--execute"),
            ("group", "delete", "g", "--yes"),
        ):
            done = cli(*arguments, *server, "--zookeeper", address + chroot, stdin=exported)
            assert (done.code, done.out, done.err.count("\n")) == (2, b"", 1)
            assert text in done.err
            assert "Check --zookeeper, its chroot, and -b." in done.err
            assert "set -X zookeeper.check=warn" in done.err
    assert session.exists("/theirs/consumers/g/offsets/orders")
    assert committed(cluster, "g", "orders", 0, "zookeeper") == 4
    done = cli(*reset, "--execute", *server, "--zookeeper", f"{address}/ours")
    assert (done.code, session.get("/ours/consumers/g/offsets/orders/0")[0]) == (0, b"10")


def test_wrong_zookeeper_without_groups_is_named(
    cluster: EmbeddedCluster, cli: RunCommand, address: str
) -> None:
    """With zookeeper.check=warn a wrong chroot has no groups, and isn't refused."""
    commit(cluster, "g", {T0: 4})
    server = ("-b", cluster.bootstrap_servers, "-X", "zookeeper.check=warn")
    for call in (("list",), ("lag", "--all"), ("export", "--all")):
        done = cli("group", *call, *server, "--zookeeper", address)
        assert (done.code, b"g" in done.out, done.err.count("\n")) == (0, True, 1)
        assert f"perhaps since it is the wrong one. ZooKeeper {address} isn't that" in done.err
        done = cli("group", *call, *server, "--zookeeper", f"{address}/ours")
        assert (done.code, done.err) == (0, "")


def test_hdp_registers_its_brokers_without_a_host(
    cluster: EmbeddedCluster, cli: RunCommand, session: KazooClient, address: str
) -> None:
    """Only by `PLAINTEXTSASL://` (docs/brokers.md 14.15)."""
    server = ("-b", cluster.bootstrap_servers, "--zookeeper", f"{address}/ours")
    commit(cluster, "g", {T0: 4})
    broker = cluster.nodes[0]
    for port, code in ((broker.port, 0), (1, 2)):
        endpoints = [f"PLAINTEXTSASL://{broker.host}:{port}", f"SSL://{broker.host}:2"]
        node = {"version": 2, "host": None, "port": -1, "endpoints": endpoints}
        session.set("/ours/brokers/ids/0", json.dumps(node).encode())
        done = cli("group", "list", *server)
        assert (done.code, "isn't that of the brokers" in done.err) == (code, bool(code))


def test_both_stores_are_reset(
    cluster: EmbeddedCluster, cli: RunCommand, session: KazooClient, address: str
) -> None:
    both = ("-b", cluster.bootstrap_servers, "--zookeeper", f"{address}/ours", "--format", "json")
    group = f"both{cluster.version}"
    commit(cluster, group, {T0: 4})
    session.create(f"/ours/consumers/{group}/offsets/orders/0", b"3", makepath=True)
    done = cli("group", "reset", group, "--to-latest", "--execute", *both)
    assert [(one["store"], one["committed"], one["new"]) for one in done.json] == [
        ("kafka", 4, 10),
        ("zookeeper", 3, 10),
    ]
    assert committed(cluster, group, "orders", 0) == 10
    assert session.get(f"/ours/consumers/{group}/offsets/orders/0")[0] == b"10"


def test_reset_saves_the_text_of_a_node_without_an_offset(
    cluster: EmbeddedCluster, cli: RunCommand, session: KazooClient, address: str, tmp_path: Path
) -> None:
    """The plan names it, the file has all of it, and import says how to write it again."""
    both = ("-b", cluster.bootstrap_servers, "--zookeeper", f"{address}/ours")
    group = f"junk{cluster.version}"
    root, junk = f"/ours/consumers/{group}/offsets/orders", b"junk \xff" + b"x" * 200
    session.create(f"{root}/0", b"3", makepath=True)
    session.create(f"{root}/1", junk)
    reset = ("group", "reset", group, "--to-latest", "--store", "zookeeper", *both)
    plan = cli(*reset, "--format", "json")
    assert [(one["committed"], one["error"] is None) for one in plan.json] == [
        (3, True),
        (None, False),
    ]
    done = cli(*reset, "--execute")
    assert (done.code, session.get(f"{root}/1")[0]) == (0, b"0")
    [path] = tmp_path.rglob("offsets-*")
    text = json.loads(path.read_bytes().decode())[1]["text"]
    assert text.encode("utf-8", "surrogateescape") == junk
    saved, _, back, how = done.err.splitlines()
    assert saved == (
        f"aiokafka08: 1 present offset and 1 text of a node without an offset saved in {path}"
    )
    assert "to go back (1 partition had an unreadable one, and keeps the new one): " in back
    for line in (how, cli(*shlex.split(back.partition(": aiokafka08 ")[2])).err.splitlines()[-1]):
        assert f"/consumers/{group}/offsets/orders/1 held 'junk " in line
        assert f" zkCli.sh -server {address}/ours set /consumers/{group}/offsets/orders/1 " in line
    assert [session.get(f"{root}/{number}")[0] for number in (0, 1)] == [b"3", b"0"]


def test_offset_that_cant_be_saved_is_not_changed(
    cluster: EmbeddedCluster, cli: RunCommand, session: KazooClient, address: str, tmp_path: Path
) -> None:
    both = ("-b", cluster.bootstrap_servers, "--zookeeper", f"{address}/ours")
    group = f"hidden{cluster.version}"
    root = f"/ours/consumers/{group}/offsets/orders"
    session.create(f"{root}/0", b"3", makepath=True)
    session.create(f"{root}/1", b"2", [make_acl("world", "anyone", write=True, delete=True)])
    for change in (("reset", group, "--to-latest", "--execute"), ("delete", group, "--yes")):
        done = cli("group", *change, "--store", "zookeeper", *both)
        assert (done.code, b"deleted" in done.out) == (1, False)
        assert f"group {group!r} isn't changed, since" in done.err
        assert "offsets/orders/1 refuses this client" in done.err
        assert (session.get(f"{root}/0")[0], session.exists(f"{root}/1").version) == (b"3", 0)
    options = ("--topic", "orders:0", "--store", "zookeeper", "--execute")
    assert cli("group", "reset", group, "--to-latest", *options, *both).code == 0
    assert session.get(f"{root}/0")[0] == b"10"


def test_deletion_shows_each_outcome_and_goes_back(
    cluster: EmbeddedCluster, cli: RunCommand, session: KazooClient, address: str
) -> None:
    """Two groups have nodes that this client may not read or delete; the third one goes."""
    both = ("-b", cluster.bootstrap_servers, "--zookeeper", f"{address}/ours")
    hidden, kept, gone = (f"{name}{cluster.version}" for name in ("hides", "kept", "gone"))
    for group in (hidden, kept, gone):
        session.create(f"/ours/consumers/{group}/offsets/orders/0", b"3", makepath=True)
    session.create(f"/ours/consumers/{gone}/offsets/orders/1", b"junk")
    session.create(f"/ours/consumers/{gone}/offsets/vanished/0", b"7", makepath=True)
    commit(cluster, gone, {T0: 4})
    may_not_list = [make_acl("world", "anyone", create=True, delete=True, write=True)]
    may_not_delete = [make_acl("world", "anyone", create=True, read=True, write=True)]
    session.create(f"/ours/consumers/{hidden}/owners", b"", may_not_list)
    session.create(f"/ours/consumers/{hidden}/owners/orders")
    session.set_acls(f"/ours/consumers/{kept}/offsets/orders", may_not_delete)
    done = cli("group", "delete", hidden, kept, gone, "--yes", *both, "--format", "json")
    assert (done.code, [(row["group"], row["store"], row["outcome"]) for row in done.json]) == (
        1,
        [
            (gone, "kafka", "expiring"),
            (gone, "zookeeper", "deleted"),
            (hidden, "zookeeper", "failed"),
            (kept, "zookeeper", "failed"),
        ],
    )
    for group, node in ((hidden, "owners"), (kept, "offsets/orders")):
        text = f"not deleted: {group!r} (zookeeper): ZooKeeper {address}/ours: the ACL of the node "
        assert f"{text}/consumers/{group}/{node} refuses this client. Change the ACL" in done.err
    assert "is live" not in done.err
    text = "2 groups not deleted, 1 expiring in kafka and deleted in zookeeper, on cluster"
    assert text in done.err
    back, how = done.err.splitlines()[-2:]
    assert f" create /consumers/{gone}/offsets/orders/1 junk" in how
    assert "to go back: aiokafka08 " in back
    words = shlex.split(back.partition(": aiokafka08 ")[2])
    refused = cli(*(word for word in words if word != "--skip-missing"))
    assert (refused.code, "--skip-missing leaves such offsets out" in refused.err) == (1, True)
    restored = cli(*words)
    assert restored.code == 1  # because of the junk
    assert "left out, since these partitions don't exist: vanished/0" in restored.err
    assert session.get(f"/ours/consumers/{gone}/offsets/orders/0")[0] == b"3"
    assert committed(cluster, gone, "orders", 0) == 4


def test_nothing_is_changed_if_one_group_is_live(
    cluster: EmbeddedCluster, cli: RunCommand, session: KazooClient, address: str
) -> None:
    both = ("-b", cluster.bootstrap_servers, "--zookeeper", f"{address}/ours")
    prefix = f"v{cluster.version}"
    names = [f"{prefix}{letter}" for letter in "abc"]
    for name in names:
        commit(cluster, name, {T0: 4})
    commits = len(cluster.requests(OffsetCommitRequest))
    register(session, names[1])
    text = "".join(f"{name},orders,0,5\n" for name in names).encode()
    for arguments in (("import", "--execute"), ("delete", *names, "--store", "kafka", "--yes")):
        done = cli("group", *arguments, *both, stdin=text)
        assert (done.code, done.out) == (1, b"")
        assert f"group {names[1]!r} is live" in done.err
        assert len(cluster.requests(OffsetCommitRequest)) == commits


def test_change_that_fails_later_shows_what_is_done(
    cluster: EmbeddedCluster,
    cli: RunCommand,
    session: KazooClient,
    address: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A member of the second group registers while the first group is deleted."""
    both = ("-b", cluster.bootstrap_servers, "--zookeeper", f"{address}/ours", "--format", "json")
    first, second = (f"late{cluster.version}{letter}" for letter in "ab")
    for name in (first, second):
        session.ensure_path(f"/ours/consumers/{name}/offsets/visits")
    delete = GroupNodes.delete

    def register_and_delete(
        nodes: GroupNodes, groups: Collection[str]
    ) -> dict[str, bool | KafkaError]:
        deleted = delete(nodes, [first])
        register(session, second)
        return deleted | delete(nodes, [group for group in groups if group != first])

    monkeypatch.setattr(GroupNodes, "delete", register_and_delete)
    arguments = ("group", "delete", first, second, "--store", "zookeeper", "--yes")
    done = cli(*arguments, *both)
    assert done.code == 1
    assert [(row["group"], row["outcome"], row["error"] is None) for row in done.json] == [
        (first, "deleted", True),
        (second, "failed", False),
    ]
    assert f"group {second!r} is live" in done.err
    assert f"1 group deleted, 1 not deleted, on cluster {cluster.bootstrap_servers}" in done.err
    assert session.exists(f"/ours/consumers/{second}/offsets/visits")

    # So for an import: its second group begins to live after the first one is committed.
    session.delete(f"/ours/consumers/{second}/ids/m")
    for name in (first, second):
        commit(cluster, name, {V0: 0, T0: 4})
    describe = GroupNodes.describe

    def describe_and_register(nodes: GroupNodes, groups: Any) -> Any:
        if committed(cluster, first, "orders", 0) == 5:
            session.ensure_path(f"/ours/consumers/{second}/ids/m")
        return describe(nodes, groups)

    monkeypatch.setattr(GroupNodes, "describe", describe_and_register)
    text = f"{first},orders,0,5\n{second},orders,0,5\n".encode()
    done = cli("group", "import", "--store", "kafka", "--execute", *both, stdin=text)
    assert (done.code, [one["group"] for one in done.json]) == (1, [first])
    assert f"group {second!r} is live" in done.err
    assert "to go back: aiokafka08 group import " in done.err
    assert [committed(cluster, name, "orders", 0) for name in (first, second)] == [5, 4]


@pytest.mark.parametrize("has_ids", [True, False])
def test_member_that_registers_meanwhile_is_kept(
    session: KazooClient, address: str, monkeypatch: pytest.MonkeyPatch, has_ids: bool
) -> None:
    group = f"meanwhile{has_ids}"
    session.ensure_path(f"/ours/consumers/{group}/{'ids' if has_ids else 'owners'}")
    nodes = GroupNodes(UncheckedZookeeper(f"{address}/ours"), 10)
    read = NodeReader.children

    def read_and_register(self: NodeReader, paths: Any) -> Any:
        found = read(self, paths)
        if session.exists(f"/ours/consumers/{group}/ids/m") is None:
            register(session, group)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(NodeReader, "children", read_and_register)
        [refused] = nodes.delete([group]).values()
    assert isinstance(refused, NonEmptyGroup)
    assert "has just started" in refused.text
    assert session.exists(f"/ours/consumers/{group}/ids/m")
    session.delete(f"/ours/consumers/{group}/ids/m")
    assert nodes.delete([group]) == {group: True}
    assert session.exists(f"/ours/consumers/{group}") is None
    assert nodes.delete([group]) == {group: False}


@pytest.mark.parametrize("is_read", [False, True])
def test_each_group_has_an_outcome_if_zookeeper_stops_responding(
    session: KazooClient, address: str, monkeypatch: pytest.MonkeyPatch, is_read: bool
) -> None:
    """One request has no response: to delete a node of the second group, or to read it."""
    groups = [f"silent{is_read}{letter}" for letter in "abc"]
    for group in groups:
        session.create(f"/ours/consumers/{group}/offsets/orders/0", b"1", makepath=True)
    name = "get_children_async" if is_read else "delete_async"
    send = getattr(KazooClient, name)

    def send_or_lose(client: KazooClient, path: str, *arguments: Any) -> Any:
        if path == f"/consumers/{groups[1]}/offsets/orders":
            return client.handler.async_result()
        return send(client, path, *arguments)

    nodes = GroupNodes(UncheckedZookeeper(f"{address}/ours"), 1)
    with monkeypatch.context() as patch:
        patch.setattr(KazooClient, name, send_or_lose)
        outcomes = nodes.delete(groups)
    assert list(outcomes) == groups
    # The session itself may end meanwhile: on a busy machine it is silent for its second.
    assert isinstance(outcomes[groups[1]], KafkaTimeoutError | KafkaUnavailableError)
    for group in groups:
        is_there = session.exists(f"/ours/consumers/{group}") is not None
        assert is_there is (outcomes[group] is not True)
    assert [outcomes[group] is True for group in (groups[0], groups[2])] == [not is_read] * 2
