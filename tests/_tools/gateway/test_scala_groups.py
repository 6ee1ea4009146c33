"""Scala consumers, tools and clients of ZooKeeper at gateways in front of a real 4.1.0.

The ZooKeeper is a real one without brokers; the gateways are processes of their own, which are
killed. A member is a ConsoleConsumer of the old kind, which writes what it reads to a file.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from aiokafka08 import AIOKafkaConsumer
from tests._tools.gateway.processes import Gateways
from tests.brokers.cluster import RealCluster
from tests.brokers.fixtures import zookeeper_alone
from tests.brokers.java_process import JavaProcess, write_logging_files
from tests.brokers.tools import JavaTools
from tests.brokers.versions import find_version
from tests.brokers.waiting import wait_for
from tests.brokers.zookeeper import ZooKeeperServer
from tests.support.full import in_full

pytestmark = [pytest.mark.real, pytest.mark.release("4.1.0"), pytest.mark.timeout(600)]

WITH_GROUPS = ("0.8.0", "0.8.1.1", "0.8.2.2", "0.9.0.1", "0.10.2.2", "0.11.0.3", "1.1.1")
"""Releases of the Scala consumer; from 0.8.2 on it can commit to Kafka."""
NUMBERS = itertools.count()
WAIT_S = 120.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with zookeeper_alone(tmp_path_factory.mktemp("zookeeper")) as made:
        yield made


class Tree:
    """An empty chroot; paths are below it."""

    def __init__(self, server: ZooKeeperServer) -> None:
        root = f"/scala-{next(NUMBERS)}"
        self.connect = server.connect + root
        self.client = KazooClient(server.connect, timeout=60)
        self.client.start(60)
        self.client.ensure_path(root)
        self.client.chroot = root

    def has(self, path: str) -> bool:
        return self.client.exists(path) is not None

    def names(self, path: str) -> list[str]:
        try:
            return sorted(self.client.get_children(path))
        except NoNodeError:
            return []

    def data(self, path: str) -> bytes:
        try:
            return bytes(self.client.get(path)[0])
        except NoNodeError:
            return b""

    def wait_for_topic(self, name: str, partitions: int) -> None:
        last = f"/brokers/topics/{name}/partitions/{partitions - 1}/state"
        wait_for(lambda: self.has(last), WAIT_S, f"topic {name} is there")


@pytest.fixture
def tree(server: ZooKeeperServer) -> Iterator[Tree]:
    made = Tree(server)
    try:
        yield made
    finally:
        made.client.stop()
        made.client.close()


@pytest.fixture
def new_gateways(
    modern_cluster: RealCluster, tree: Tree, tmp_path: Path
) -> Iterator[Callable[[int], Gateways]]:
    """Return a function that starts so many gateways, which keep the same ZooKeeper current."""
    made: list[Gateways] = []

    def start(count: int) -> Gateways:
        servers = modern_cluster.bootstrap_servers
        gateways = Gateways(servers, tmp_path, count, "--zookeeper", tree.connect)
        made.append(gateways)
        for number in range(count):
            gateways.start(number)
        return gateways

    yield start
    for one in made:
        one.close()


class Topics:
    """Topics of the target; values are numbers that go on in each."""

    def __init__(self, cluster: RealCluster, unique_topic: Callable[..., str]) -> None:
        self._servers: Any = {"bootstrap.servers": cluster.bootstrap_servers}
        self._admin = AdminClient(self._servers)
        self._unique_topic = unique_topic

    def create(self, partitions: int, replicas: int = 1) -> str:
        name = self._unique_topic("scala")
        self._admin.create_topics([NewTopic(name, partitions, replicas)])[name].result(30)
        return name

    def leaders(self, name: str) -> list[int]:
        partitions = self._admin.list_topics(name, 30).topics[name].partitions
        return [partitions[number].leader for number in sorted(partitions)]

    def grow(self, name: str, partitions: int) -> None:
        self._admin.create_partitions([NewPartitions(name, partitions)])[name].result(30)

    def delete(self, name: str) -> None:
        self._admin.delete_topics([name])[name].result(30)

    def send(self, name: str, values: range, partitions: int) -> None:
        producer = confluent_kafka.Producer(self._servers)  # an old one doesn't know new partitions
        for value in values:
            producer.produce(name, b"%d" % value, partition=value % partitions)
        assert producer.flush(30) == 0


@pytest.fixture
def topics(modern_cluster: RealCluster, unique_topic: Callable[..., str]) -> Topics:
    return Topics(modern_cluster, unique_topic)


class Members:
    """Members of one group, each a process."""

    def __init__(
        self, release: str, group: str, connect: str, folder: Path, storage: str = "zookeeper"
    ) -> None:
        folder.mkdir()
        write_logging_files(folder)
        version = find_version(release)
        self.tools = JavaTools(version, folder)
        self._connect = connect
        settings = folder / "consumer.properties"
        settings.write_text(
            f"group.id={group}\nauto.commit.interval.ms=500\nzookeeper.session.timeout.ms=6000\n"
            "rebalance.backoff.ms=1000\nrebalance.max.retries=20\n"
            f"offsets.storage={storage}\ndual.commit.enabled=false\n"
        )
        self._program = "kafka.tools.ConsoleConsumer"
        self._options: tuple[str, ...] = ("--consumer.config", str(settings))
        if version.number < (0, 8, 2):
            self._program = "kafka.consumer.ConsoleConsumer"
            self._options = ("--group", group, "--autocommit.interval.ms", "500")
        self._processes: list[JavaProcess] = []

    def start(self, topic: str) -> JavaProcess:
        """Start a member; only the first one may be asked to read from the beginning."""
        process = self.tools.popen(
            self._program,
            *("--zookeeper", self._connect, "--topic", topic),
            *self._options,
            *(() if self._processes else ("--from-beginning",)),
        )
        self._processes.append(process)
        return process

    def values(self, process: JavaProcess | None = None) -> list[int]:
        """Return what a member, or all of them, have read."""
        some = self._processes if process is None else [process]
        return [int(line) for one in some for line in one.stdout().split()]

    def logs(self) -> str:
        """Return the end of each member's log, for an error message."""
        return "\n".join(f"{one}: {one.log_tail()}" for one in self._processes)

    def wait_for(self, values: range) -> None:
        wanted = set(values)
        wait_for(lambda: wanted <= set(self.values()), WAIT_S, f"{values} are read")


@pytest.fixture
def new_members(tmp_path: Path) -> Iterator[Callable[..., Members]]:
    """Return a function that returns a group of a release without members."""
    made: list[Members] = []

    def new(release: str, group: str, connect: str, storage: str = "zookeeper") -> Members:
        folder = tmp_path / f"java-{release}-{len(made)}"
        made.append(Members(release, group, connect, folder, storage))
        return made[-1]

    yield new
    for one in made:
        one.tools.kill_all()


@pytest.mark.parametrize("release", ["0.8.2.2", *in_full("0.10.2.2")])
def test_scala_group_goes_on_through_all_changes(
    new_gateways: Callable[[int], Gateways],
    new_members: Callable[..., Members],
    topics: Topics,
    tree: Tree,
    release: str,
) -> None:
    """A second member, a new partition, a deleted topic, a killed gateway, a killed member."""
    gateways = new_gateways(2)
    topic, other = topics.create(2), topics.create(1)
    members = new_members(release, topic, tree.connect)

    def until_owned(count: int, by: int) -> None:
        owners = f"/consumers/{topic}/owners/{topic}"

        def found() -> dict[str, bytes]:
            return {one: tree.data(f"{owners}/{one}") for one in tree.names(owners)}

        def is_owned() -> bool:
            owned = found()
            return (len(owned), len(set(owned.values()))) == (count, by)

        def wanted() -> str:
            return f"{by} members own {count} partitions: {found()}; {members.logs()}"

        wait_for(is_owned, WAIT_S, wanted)

    tree.wait_for_topic(topic, 2)
    tree.wait_for_topic(other, 1)
    first = members.start(topic)
    topics.send(topic, range(20), 2)
    members.wait_for(range(20))
    second = members.start(topic)
    until_owned(2, by=2)
    topics.send(topic, range(20, 40), 2)
    members.wait_for(range(40))
    assert members.values(second)
    topics.grow(topic, 3)
    until_owned(3, by=2)
    topics.delete(other)
    wait_for(lambda: not tree.has(f"/brokers/topics/{other}"), WAIT_S, "the topic is gone")
    topics.send(topic, range(40, 70), 3)
    members.wait_for(range(70))
    gateways.kill(0 if "keeping brokers" in gateways.log(0) else 1)
    topics.send(topic, range(70, 100), 3)
    members.wait_for(range(100))
    first.kill()
    until_owned(3, by=1)
    topics.send(topic, range(100, 130), 3)
    members.wait_for(range(130))
    assert sorted(set(members.values())) == list(range(130))
    assert second.running


def committed(cluster: RealCluster, group: str, topic: str) -> list[int]:
    """Return the offsets of two partitions that a group has committed to Kafka."""
    places = [confluent_kafka.TopicPartition(topic, number) for number in (0, 1)]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    asked = [confluent_kafka.ConsumerGroupTopicPartitions(group, places)]
    (found,) = admin.list_consumer_group_offsets(asked).values()
    return [one.offset for one in found.result(30).topic_partitions]


@pytest.mark.parametrize(
    "release",
    ["0.8.2.2", "2.8.2", *in_full(*(one for one in WITH_GROUPS if one != "0.8.2.2"))],
)
def test_tools_find_topics_and_leaders(
    release: str,
    new_gateways: Callable[[int], Gateways],
    topics: Topics,
    tree: Tree,
    java: Callable[[str], JavaTools],
) -> None:
    """`kafka-topics` reads ZooKeeper until 2.8, and is `ListTopicCommand` in 0.8.0."""
    gateways = new_gateways(1)
    topic = topics.create(2)
    topics.send(topic, range(26), 2)
    tree.wait_for_topic(topic, 2)
    tools = java(release)
    if release != "0.8.0":
        listed = run(tools, "kafka.admin.TopicCommand", "--zookeeper", tree.connect, "--list")
        assert topic in listed.split()
    described = describe(tools, release, tree, "--topic", topic)
    for number in (0, 1):
        line = rf"(?i)topic: {topic}\s+Partition: {number}\s+Leader: (\d+)\s+Replicas: \1\s+Isr: \1"
        assert re.search(line, described), described
    asked = ("--broker-list", gateways.servers, "--topic", topic, "--time", "-1")
    ends = run(tools, "kafka.tools.GetOffsetShell", *asked).split()
    assert sorted(ends) == [f"{topic}:0:13", f"{topic}:1:13"]


@pytest.mark.full
def test_tools_find_partitions_without_leaders_and_replicas(
    tree: Tree,
    java: Callable[[str], JavaTools],
    unique_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    with ExitStack() as stack:
        cluster = stack.enter_context(RealCluster("4.1.0", 3, start_timeout=180))
        options = ("--zookeeper", tree.connect)
        gateways = Gateways(cluster.bootstrap_servers, tmp_path, 1, *options)
        stack.enter_context(closing(gateways))
        gateways.start(0)
        topics = Topics(cluster, unique_topic)
        alone, replicated = topics.create(3), topics.create(3, replicas=3)
        leaders = topics.leaders(alone)
        cluster.kill(leaders[1])

        def states(topic: str) -> list[Any]:
            folder = f"/brokers/topics/{topic}/partitions"
            data = [tree.data(f"{folder}/{number}/state") for number in range(3)]
            return [json.loads(one or b"{}") for one in data]

        def are_written() -> bool:
            found = [one.get("leader") for one in states(alone)]
            in_sync = [len(one.get("isr", ())) for one in states(replicated)]
            return found == [leaders[0], -1, leaders[2]] and in_sync == [2, 2, 2]

        wait_for(are_written, WAIT_S, "the leaders are written")
        for release in (*WITH_GROUPS, "2.8.2"):
            tools = java(release)
            unavailable = partitions(describe(tools, release, tree, "--unavailable-partitions"))
            assert unavailable == {(alone, 1)}, release
            incomplete = partitions(describe(tools, release, tree, "--under-replicated-partitions"))
            assert incomplete == {(alone, 1), *((replicated, number) for number in range(3))}


def run(tools: JavaTools, tool: str, *arguments: str) -> str:
    """Run a tool, and return what it has printed."""
    done = tools.run(tool, *arguments, input=None, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def describe(tools: JavaTools, release: str, tree: Tree, *arguments: str) -> str:
    """Return what a release tells about topics."""
    options = ("--zookeeper", tree.connect, *arguments)
    if release == "0.8.0":
        return run(tools, "kafka.admin.ListTopicCommand", *options)
    return run(tools, "kafka.admin.TopicCommand", *options, "--describe")


def partitions(described: str) -> set[tuple[str, int]]:
    """Return the partitions that are described."""
    found = re.findall(r"(?i)topic: (\S+)\s+partition: (\d+)", described)
    return {(topic, int(number)) for topic, number in found}


@pytest.mark.parametrize(
    ("release", "storage"),
    [
        ("0.8.2.2", "zookeeper"),
        *in_full(*((one, "zookeeper") for one in WITH_GROUPS if one != "0.8.2.2")),
        *in_full(*((one, "kafka") for one in WITH_GROUPS[2:])),
    ],
)
def test_tools_find_the_lag_of_a_group(
    release: str,
    storage: str,
    new_gateways: Callable[[int], Gateways],
    new_members: Callable[..., Members],
    topics: Topics,
    tree: Tree,
    modern_cluster: RealCluster,
) -> None:
    """ConsumerOffsetChecker until 0.11, and `kafka-consumer-groups --zookeeper` from 0.9 to 1.1."""
    new_gateways(1)
    topic = topics.create(2)
    members = new_members(release, topic, tree.connect, storage)
    tree.wait_for_topic(topic, 2)
    one = members.start(topic)
    topics.send(topic, range(20), 2)
    members.wait_for(range(20))
    offsets = f"/consumers/{topic}/offsets/{topic}"

    def is_committed() -> bool:
        if storage == "kafka":
            return committed(modern_cluster, topic, topic) == [10, 10]
        return [tree.data(f"{offsets}/{number}") for number in (0, 1)] == [b"10", b"10"]

    wait_for(is_committed, WAIT_S, "the group has committed")
    one.kill()
    topics.send(topic, range(20, 26), 2)
    number = find_version(release).number
    option = "--zookeeper" if number >= (0, 8, 2) else "--zkconnect"
    asked = (option, tree.connect, "--group", topic)
    done = []
    if number < (1,):
        checker = "kafka.tools.ConsumerOffsetChecker"
        done.append(members.tools.run(checker, *asked, input=None, timeout=120))
    if number >= (0, 9):
        command = "kafka.admin.ConsumerGroupCommand"
        done.append(members.tools.run(command, *asked, "--describe", input=None, timeout=120))
    for found in done:
        assert found.returncode == 0, found.stderr
        for partition in (0, 1):
            line = rf"{topic},?\s+{partition},?\s+10,?\s+13,?\s+3\b"
            assert re.search(line, found.stdout), found.stdout + found.stderr


def test_group_of_an_old_cluster_goes_on_and_the_cluster_comes_back(
    new_members: Callable[..., Members], topics: Topics, modern_cluster: RealCluster, tmp_path: Path
) -> None:
    """Its ZooKeeper becomes the gateway's, and then its own again."""
    with RealCluster("0.8.2.2") as old:
        topic = topics.create(2)
        old.create_topic(topic, partitions=1)
        lines = "".join(f"{value}\n" for value in range(10))
        arguments = ("--broker-list", old.bootstrap_servers, "--topic", topic)
        done = old.run_java("kafka.tools.ConsoleProducer", *arguments, input=lines)
        assert done.returncode == 0, done.stderr
        members = new_members("0.8.2.2", topic, old.zookeeper_connect)
        first = members.start(topic)
        members.wait_for(range(10))
        committed = f"/consumers/{topic}/offsets/{topic}/0"
        client = KazooClient(old.zookeeper_connect, timeout=60)
        client.start(60)

        def data(path: str) -> bytes:
            return bytes(client.get(path)[0])

        wait_for(lambda: client.exists(committed) and data(committed) == b"10", WAIT_S, "a commit")
        first.kill()
        old.stop(0)
        before = data(f"/brokers/topics/{topic}")
        topics.send(topic, range(20, 40), 2)  # ten in each partition
        servers = modern_cluster.bootstrap_servers
        options = ("--zookeeper", old.zookeeper_connect)
        with closing(Gateways(servers, tmp_path, 1, *options)) as gateways:
            gateways.start(0)
            wait_for(lambda: data(f"/brokers/topics/{topic}") != before, WAIT_S, "it is written")
            second = members.start(topic)
            topics.send(topic, range(40, 50), 2)
            members.wait_for(range(40, 50, 2))
            in_partition_0 = [value for value in members.values(second) if value % 2 == 0]
            assert in_partition_0 == list(range(40, 50, 2))  # from the committed offset on
            second.kill()
        wait_for(lambda: not client.exists("/controller"), WAIT_S, "its session has ended")
        restored = subprocess.run(
            [
                *(sys.executable, "-m", "aiokafka08", "gateway", "restore"),
                *("--to", servers, *options),
            ],
            capture_output=True,
            timeout=120,
        )
        assert restored.returncode == 0, restored.stderr
        assert json.loads(data(f"/brokers/topics/{topic}")) == json.loads(before)
        client.stop()
        client.close()
        old.restart(0)
        read = old.run_java(
            "kafka.tools.SimpleConsumerShell",
            *("--broker-list", old.bootstrap_servers, "--topic", topic, "--partition", "0"),
            *("--no-wait-at-logend", "--print-offsets"),
        )
        assert [int(one) for one in read.stdout.splitlines() if one.isdecimal()] == list(range(10))


@pytest.mark.parametrize(("line", "storage"), [("0.8.2", None), (None, "zookeeper")])
async def test_this_client_uses_groups_and_offsets_in_zookeeper(
    line: Any,
    storage: Any,
    new_gateways: Callable[[int], Gateways],
    topics: Topics,
    tree: Tree,
) -> None:
    """It compares its brokers with those that are registered first."""
    gateways = await asyncio.to_thread(new_gateways, 2)
    topic = topics.create(2)
    await asyncio.to_thread(tree.wait_for_topic, topic, 2)
    topics.send(topic, range(10), 2)
    async with AIOKafkaConsumer(
        topic,
        bootstrap_servers=gateways.servers,
        api_version=line,
        zookeeper_connect=tree.connect,
        group_id=topic,
        offsets_storage=storage,
        auto_offset_reset="earliest",
    ) as consumer:
        found: list[Any] = []
        while len(found) < 10:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                found += records
        is_member = bool(tree.names(f"/consumers/{topic}/ids"))
        assert is_member == (line is not None)
        await consumer.commit()
    assert tree.names(f"/consumers/{topic}/offsets/{topic}") == ["0", "1"]
