"""Junk in any node of a tree like that of a cluster: it is named, and all other nodes are read."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka08._core.json_objects import json_object
from aiokafka08._core.net.config import ZookeeperCheck
from aiokafka08._core.zookeeper.group_nodes import owner_of
from aiokafka08._core.zookeeper.nodes import decode_node, remedy_of, shown_path
from aiokafka08._tools.doctor.examination import Examination, examine
from aiokafka08._tools.monitoring.cluster_sample import ClusterSample
from aiokafka08._tools.monitoring.sampler import ClusterSampler
from aiokafka08._wording import shorten
from aiokafka08.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka08.admin.group_lag import GroupLags
from aiokafka08.bridge.config import BridgeConfig, parse_config
from aiokafka08.bridge.groups.carry_over import source_members, source_offsets
from aiokafka08.bridge.source.source_clients import unreadable_topics
from aiokafka08.errors import KafkaError
from aiokafka08.testing.simulation import World, simulate

pytestmark = pytest.mark.fast

GROUPS = ("g", "no\u00a0break", "\u3000wide", "zero\u200bwidth")
KAFKA_NODE = "nodegroup_60ed80f4-2427-4f39-9876-b79301e7057e"
PYKAFKA = "host:1935768d-bb28-48b9-add7-f1413fdbe2fd"
STATE: dict[str, Any] = {"controller_epoch": 1, "leader": 0, "version": 1, "leader_epoch": 0}
TREE: dict[str, Any] = {
    "/config/topics/t": {"version": 1, "config": {"retention.ms": "1000"}},
    "/controller": {"version": 1, "brokerid": 0},
    "/controller_epoch": 1,
    "/cluster/id": {"version": "1", "id": "x"},
    "/admin/reassign_partitions": {
        "version": 1,
        "partitions": [{"topic": "t", "partition": 0, "replicas": [1]}],
    },
    "/admin/delete_topics/u": "",
}
for name in GROUPS:
    registration = {"version": 1, "subscription": {"t": 1}, "pattern": "static"}
    TREE |= {
        f"/consumers/{name}/ids/go-1-2": registration,
        f"/consumers/{name}/ids/scala": registration,
        f"/consumers/{name}/ids/{PYKAFKA}": "t",
        f"/consumers/{name}/owners/t/0": "go-1-2",
        f"/consumers/{name}/owners/t/1": "scala-0",
        f"/consumers/{name}/owners/b't'/0-2": PYKAFKA,
        f"/consumers/{name}/offsets/t/0": 0,
        f"/consumers/{name}/offsets/t/1": 0,
        f"/consumers/{name}/offsets/t/2": 0,
    }
BROKERS, TOPICS = (0, 1), {"t": 3, "u": 1}
PLACES = [path for path, value in TREE.items() if value != ""]
PLACES += [f"/brokers/topics/{topic}" for topic in TOPICS]
PLACES += [f"/brokers/topics/t/partitions/{number}/state" for number in range(TOPICS["t"])]
PLACES += [f"/brokers/ids/{number}" for number in BROKERS]
"""All nodes whose data are read."""
JUNK = (b"", b"junk \xff", b"null", b'{"version":1}', b"[" * 10_000)
FOREIGN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=4,
)
FIELDS = sorted(
    {"partitions", "config", "brokerid", "id", "host", "port", "endpoints", "subscription", *STATE}
)
NODES = st.tuples(
    st.sampled_from([*PLACES, "/brokers/ids/x", "/consumers/g/offsets/t/0-1", "/config/topics/u"]),
    st.binary()
    | FOREIGN.map(lambda value: json.dumps(value).encode())
    | st.dictionaries(st.sampled_from(FIELDS), FOREIGN).map(lambda some: json.dumps(some).encode()),
)


def write(world: World, path: str, data: bytes) -> None:
    """Write a node behind the backs of the simulated controller's watches."""
    tree, parts = world.zookeeper.tree, path.split("/")[1:]
    for end in range(1, len(parts) + 1):
        node = "/" + "/".join(parts[:end])
        if tree.find(node) is None:
            tree.create(node, b"", 0)
    tree.set(path, data, 0)


def bridge_of(world: World) -> BridgeConfig:
    return parse_config(
        f'name = "b"\n[source]\nbootstrap = "{world.cluster.bootstrap_servers}"\n'
        f'zookeeper = "{world.zookeeper_connect}"\n[target]\nbootstrap = "127.0.0.1:1"\n'
        '[topics]\ninclude = [".*"]\n[groups]\ninclude = [".*"]\n'
    )


async def seen_by_bridge(config: BridgeConfig, admin: AIOKafkaAdminClient) -> list[str]:
    """Return why a cut-over isn't ready."""
    offsets = await source_offsets(config, admin, {})
    assert set(offsets) == set(GROUPS)
    _, members = await source_members(config, admin, GROUPS)
    texts = [one.error for of_group in offsets.values() for one in of_group.values() if one.error]
    return [*texts, *members, *await unreadable_topics(config, admin)]


class Seen(NamedTuple):
    """What all readers found in a cluster."""

    sample: ClusterSample
    lags: GroupLags
    of_bridge: list[str]

    @property
    def texts(self) -> list[str]:
        """What the doctor says can't be read, each with what to do."""
        found = examine(Examination(self.sample, self.sample))
        return [f"{one.why}. {one.action}" for one in found if one.code.value == "unreadable"]


class Reader:
    """Reads a simulated cluster with a sound tree, in which a test changes nodes."""

    def __init__(self, world: World, admin: AIOKafkaAdminClient) -> None:
        self.world, self.admin = world, admin
        self._sampler = ClusterSampler(admin, has_zookeeper=True)

    async def look(self) -> Seen:
        lags = await self.admin.read_group_lags()
        of_bridge = await seen_by_bridge(bridge_of(self.world), self.admin)
        return Seen(await self._sampler.sample(), lags, of_bridge)

    async def look_at(self, path: str, data: bytes) -> Seen:
        """Look at the cluster while a node holds this, or exists beside the others."""
        tree = self.world.zookeeper.tree
        node = tree.find(path)
        before = None if node is None else node.data
        write(self.world, path, data)
        try:
            return await self.look()
        finally:
            if before is None:
                tree.delete(path)
            else:
                write(self.world, path, before)


def run_with_reader(scenario: Callable[[Reader], Awaitable[None]]) -> None:
    async def run(world: World) -> None:
        for path, value in TREE.items():
            write(world, path, (value if isinstance(value, str) else json.dumps(value)).encode())
        async with AIOKafkaAdminClient(
            bootstrap_servers=world.cluster.bootstrap_servers,
            zookeeper_connect=world.zookeeper_connect,
        ) as admin:
            await scenario(Reader(world, admin))

    with simulate(1, brokers=len(BROKERS), version="0.8.2", topics=TOPICS) as world:
        world.run(lambda: run(world))


def check_that_the_rest_is_read(seen: Seen, sound: Seen, place: str) -> None:
    """Only rows of the group and partition of the node may have changed."""
    assert len(seen.lags.rows) == len(sound.lags.rows)
    for row in set(sound.lags.rows) - set(seen.lags.rows):
        assert place.startswith(f"/consumers/{row.group}/")
        is_of_partition = place.rpartition("-")[2].endswith(f"{row.partition}")
        assert "/ids/" in place or is_of_partition
    assert {group.group for group in seen.sample.groups} == set(GROUPS)
    assert seen.sample.topics.keys() == sound.sample.topics.keys()
    for topic, sample in sound.sample.topics.items():
        if place not in (f"/brokers/topics/{topic}", f"/config/topics/{topic}"):
            is_of_topic = place.startswith(f"/brokers/topics/{topic}/") or "reassign" in place
            assert is_of_topic or seen.sample.topics[topic] == sample


def test_junk_in_any_node_is_named_and_hides_nothing() -> None:
    async def scenario(reader: Reader) -> None:
        sound = await reader.look()
        assert sound.texts == sound.of_bridge == []
        assert sound.lags.errors == []
        assert {(row.group, row.partition, row.member) for row in sound.lags.rows} == {
            (name, number, member)
            for name in GROUPS
            for number, member in ((0, "go-1-2"), (1, "scala"), (2, PYKAFKA))
        }
        made = await reader.admin.create_topics([NewTopic("u", 1, 1)])
        grown = await reader.admin.create_partitions({"u": NewPartitions(2)})
        for _, code, reason in (*made.topic_errors, *grown.topic_errors):
            assert code
            assert "marked for deletion" in str(reason)
        codes = {one.code.value for one in examine(Examination(sound.sample, sound.sample))}
        assert {"marked-for-deletion", "pending-reassignment"} <= codes
        for place in PLACES:
            for data in JUNK:
                if (not data and place == "/config/topics/t") or (
                    data == b"null" and place.endswith(PYKAFKA)
                ):
                    continue  # the topic has no settings; pykafka reads a topic of this name
                seen = await reader.look_at(place, data)
                [error] = [text for text in seen.sample.errors if shown_path(place) in text]
                assert f"holds {shorten(data)}" in error
                assert "; expected " in error
                assert seen.texts == [error]
                if place.startswith("/consumers") or "/topics/" in place:
                    assert [shown_path(place) in text for text in seen.of_bridge] == [True]
                check_that_the_rest_is_read(seen, sound, place)
                if "/offsets/" in place:
                    [row] = [row for row in seen.lags.rows if row.error is not None]
                    assert place.endswith(f"/{row.partition}")
                    assert row.committed is None
                    assert shown_path(place) in (row.error or "")

    run_with_reader(scenario)


@given(st.lists(NODES, min_size=1, max_size=4))
@pytest.mark.timeout(240)  # in `full`, many examples
def test_no_data_of_a_node_hide_another(nodes: list[tuple[str, bytes]]) -> None:
    """Whether they are junk or not: nothing raises, and the rest is read."""

    async def scenario(reader: Reader) -> None:
        sound = await reader.look()
        for path, data in nodes:
            seen = await reader.look_at(path, data)
            assert len(seen.texts) <= 1
            check_that_the_rest_is_read(seen, sound, path)

    run_with_reader(scenario)


@pytest.mark.parametrize("name", ["x", "-1", "01", "9" * 10])
def test_node_that_is_not_named_after_a_partition_is_named(name: str) -> None:
    place = f"/consumers/g/offsets/t/{name}"

    async def scenario() -> None:
        write(world, place, b"5")
        async with AIOKafkaAdminClient(
            bootstrap_servers=world.cluster.bootstrap_servers,
            zookeeper_connect=world.zookeeper_connect,
        ) as admin:
            lags = await admin.read_group_lags()
        assert lags.rows == []
        [error] = lags.errors
        assert f"{place} isn't named after a partition. No consumer of Kafka 0.8" in error.text

    with simulate(1, version="0.8.2", topics={"t": 2}) as world:
        world.run(scenario)


@pytest.mark.parametrize("node", [b"junk", b""])
@pytest.mark.parametrize("check", ["refuse", "warn"])
def test_only_broker_with_an_unreadable_node_is_named(node: bytes, check: ZookeeperCheck) -> None:
    """Whether it is its ZooKeeper can't be known: that isn't a wrong address."""

    async def scenario() -> None:
        write(world, "/brokers/ids/0", node)
        write(world, "/consumers/g/offsets/t/0", b"0")
        async with AIOKafkaAdminClient(
            bootstrap_servers=world.cluster.bootstrap_servers,
            zookeeper_connect=world.zookeeper_connect,
            zookeeper_check=check,
        ) as admin:
            sample = await ClusterSampler(admin, has_zookeeper=True).sample()
            texts = list(sample.errors)
            lags = await admin.read_group_lags()
            texts += [error.text for error in lags.errors]
            assert [row.committed for row in lags.rows] == ([0] if check == "warn" else [])
            assert len(lags.errors) == (check == "refuse")
        assert sample.errors
        for text in texts:
            assert f"the node /brokers/ids/0 holds {node!r}; expected a broker such as" in text
            assert text.endswith("take it out of the cluster while it runs")
        found = examine(Examination(sample, sample))
        actions = {one.action for one in found if one.code.value == "unreadable"}
        assert [action.split(",")[0] for action in actions] == ["Restart this broker"]

    with simulate(1, brokers=1, version="0.8.2", topics={"t": 1}) as world:
        world.run(scenario)


HARMFUL = re.compile("(?<!Don't )[Dd]elete (it|the node)(?! only)")


@pytest.mark.parametrize("place", PLACES)
def test_no_advice_about_a_node_harms_a_cluster(place: str) -> None:
    """A deleted offset makes a cut-over say "yes"; other nodes are those of live processes."""
    error = decode_node("zk:2181", place, b"junk", json_object, "JSON")
    assert isinstance(error, KafkaError)
    remedy = remedy_of(error)
    assert remedy is not None
    assert error.text.endswith(f"; expected JSON. {remedy}")
    assert "Find out what wrote it" not in remedy
    assert HARMFUL.search(remedy) is None


def test_node_without_data_counts_as_empty() -> None:
    """kafka-node creates its node so, and writes the data then."""
    error = decode_node("zk:2181", "/consumers/g/ids/m", None, json_object, "JSON")
    assert isinstance(error, KafkaError)
    assert "holds b''; expected JSON" in error.text


@pytest.mark.parametrize(
    ("owner", "member"),
    [
        # As pykafka 2.8.0 and kafka-node 2.6.1 wrote them on 0.8.2.2 (docs/brokers.md 11.7).
        (PYKAFKA.encode(), PYKAFKA),
        (KAFKA_NODE.encode(), KAFKA_NODE),
        (b"go-1-2", "go-1-2"),
        (b"scala-0", "scala"),
        (b"scala-x-12", "scala-x"),
        (b"go-1", None),
        (b"", None),
        (b"\xff", None),
    ],
)
def test_owner_is_a_members_id_or_the_name_of_its_thread(owner: bytes, member: str | None) -> None:
    members = ["go-1-2", "scala", "scala-x", PYKAFKA, KAFKA_NODE]
    assert owner_of(owner, members) == member
