"""The doctor on real brokers: states that it finds, and that it leaves no trace.

The states that take no real broker are in `test_states`.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager

import psutil
import pytest
from kazoo.client import KazooClient

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka08._tools.doctor.examination import examine
from aiokafka08._tools.doctor.finding import Finding
from aiokafka08._tools.findings import is_healthy
from aiokafka08.admin import AIOKafkaAdminClient, NewTopic
from tests._tools.cli.conftest import RunCommand
from tests._tools.doctor.samples import look_at, told
from tests.brokers.broker import Broker
from tests.brokers.cluster import RealCluster
from tests.brokers.fixtures import BrokerClusters
from tests.brokers.log_entries import entries
from tests.brokers.ports import accepts
from tests.brokers.versions import find_version
from tests.brokers.waiting import wait_for
from tests.brokers.wire import metadata
from tests.support.waiting import eventually

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

NewName = Callable[..., str]
COMPLAINT = re.compile(r"\b(WARN|ERROR|FATAL)\b")


@contextmanager
def without_a_trace(cluster: RealCluster) -> Iterator[None]:
    """Check that the block changes no lasting node of ZooKeeper, and that no broker complains."""
    wait_for(lambda: not dangling(cluster), 30, "the brokers have closed dead connections")
    logged = {node_id: len(cluster.log(node_id)) for node_id in cluster.nodes}
    nodes = lasting_nodes(cluster)
    yield
    assert lasting_nodes(cluster) == nodes
    for node_id, length in logged.items():
        logged_since = entries(cluster.log(node_id)[length:])
        assert not [entry for entry in logged_since if COMPLAINT.search(entry.splitlines()[0])]


def dangling(cluster: RealCluster) -> list[object]:
    """Return the connections of running brokers of 0.8 whose peer is gone.

    The broker notices that when it responds to the long poll of a consumer or of another broker,
    and logs an error (docs/brokers.md 3.13).
    """
    if not cluster.version.startswith("0.8"):
        return []
    return [
        one
        for process in psutil.process_iter(["cmdline", "status"])
        if str(cluster.folder) in " ".join(process.info["cmdline"] or ())
        if process.info["status"] != psutil.STATUS_STOPPED
        for one in process.net_connections("tcp")
        if one.status == psutil.CONN_CLOSE_WAIT
    ]


def lasting_nodes(cluster: RealCluster) -> dict[str, int]:
    """Return the mzxid of each node that isn't ephemeral, by its path."""
    found: dict[str, int] = {}

    def walk(client: KazooClient, path: str) -> None:
        for name in client.get_children(path):
            child = f"{path.rstrip('/')}/{name}"
            stat = client.exists(child)
            if stat is not None and not stat.ephemeralOwner and child != "/zookeeper":
                found[child] = stat.mzxid
                walk(client, child)

    client = KazooClient(cluster.zookeeper_connect)
    client.start(15)
    try:
        walk(client, "/")
    finally:
        client.stop()
        client.close()
    return found


async def examined(
    cluster: RealCluster,
    *,
    zookeeper: bool = True,
    watch: Callable[[], Awaitable[object]] | None = None,
    timeout_s: float | None = None,
    search_clock: Callable[[], float] = time.monotonic,
) -> list[Finding]:
    """Return the findings; `watch` runs between the two samples."""
    connect = cluster.zookeeper_connect if zookeeper else None
    address = (cluster.bootstrap_servers, connect, timeout_s)
    if watch is None:
        return examine(await look_at(*address, watch_s=None, search_clock=search_clock))

    async def sleep(seconds: float) -> None:
        await watch()

    return examine(await look_at(*address, watch_s=60, sleep=sleep))


def about(findings: list[Finding], topic: str) -> dict[str, Finding]:
    """Return the findings whose place names a topic, by their codes."""
    return {one.code.value: one for one in findings if topic in one.where}


async def fill(
    cluster: RealCluster, topic: str, values: list[bytes], set_bytes: int = 16384
) -> None:
    """Send messages with three keys to partition 0, in sets of at most `set_bytes`."""
    async with AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers,
        acks="all",
        max_batch_size=set_bytes,
        max_request_size=set_bytes,
    ) as producer:
        keys = [b"%d" % (number % 3) for number in range(len(values))]
        await (await producer.send_many(topic, values, keys=keys, partition=0))


# --- no trace -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["0.8.0", "0.8.1.1", "0.8.2.2", "0.9.0.1", "0.10.2.2", "3.9.1"])
async def test_doctor_leaves_no_trace(
    broker_clusters: BrokerClusters, unique_topic: NewName, cli: RunCommand, version: str
) -> None:
    cluster = await asyncio.to_thread(broker_clusters.get, version)
    topic, group = unique_topic(), unique_topic("g")
    await asyncio.to_thread(cluster.create_topic, topic)
    await fill(cluster, topic, [b"v"] * 10)
    async with AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers,
        group_id=group,
        zookeeper_connect=cluster.zookeeper_connect,
        enable_auto_commit=False,
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        await consumer.commit({TopicPartition(topic, 0): 4})
    with without_a_trace(cluster):
        address = ("-b", cluster.bootstrap_servers, "--zookeeper", cluster.zookeeper_connect)
        done = await asyncio.to_thread(
            cli, "doctor", *address, "--watch", "100ms", "--format", "json"
        )
    assert (done.code, done.err) == (1, "")
    assert done.json["healthy"] is False
    urgent = [one for one in done.json["findings"] if one["severity"] != "note"]
    found = {one["where"]: one for one in urgent if group in one["where"]}
    [idle] = found.values()
    assert idle["code"] == "idle-group-lag"
    assert idle["why"].startswith(f"no members, and 6 offsets behind in {topic}. ")
    assert not [one for one in urgent if topic in one["where"]]
    formats = [one["why"] for one in done.json["findings"] if one["code"] == "message-formats"]
    number = {"0.10.2.2": "format 1", "3.9.1": "unknown"}.get(version, "format 0")
    assert number in formats[0]


# --- replicas -------------------------------------------------------------------------------------


@pytest.fixture
def slow_to_notice() -> Iterator[RealCluster]:
    """Three brokers; a paused one leaves the ISR after a second, and ZooKeeper after 30 s."""
    with RealCluster(
        "0.8.2.2",
        3,
        {"replica.lag.time.max.ms": 1000, "zookeeper.session.timeout.ms": 30000},
    ) as cluster:
        yield cluster


async def test_broker_that_hangs_and_then_dies(
    slow_to_notice: RealCluster, unique_topic: NewName
) -> None:
    cluster, create = slow_to_notice, slow_to_notice.create_topic
    controller = await asyncio.to_thread(cluster.controller)
    assert controller is not None
    victim, *others = sorted({0, 1, 2} - {controller})
    others.append(controller)
    alone, clean, three, strict = (unique_topic() for _ in range(4))
    spread = {0: [*others, victim]}
    config = {"unclean.leader.election.enable": "false", "min.insync.replicas": "2"}
    await asyncio.to_thread(create, unique_topic(), config=config, assignment=spread)
    assert is_healthy(await examined(cluster, watch=nothing))

    await asyncio.to_thread(create, alone, assignment={0: [victim]})
    config = {"unclean.leader.election.enable": "false", "min.insync.replicas": "2"}
    await asyncio.to_thread(create, clean, config=config, assignment={0: [victim]})
    config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    await asyncio.to_thread(create, three, config=config, assignment=spread)
    config = {"min.insync.replicas": "3"}
    await asyncio.to_thread(create, strict, config=config, assignment=spread)

    await asyncio.to_thread(cluster.pause, victim)
    for topic in (three, strict):
        await asyncio.to_thread(cluster.wait_isr, topic, 0, others)
    with without_a_trace(cluster):
        found = await examined(cluster, timeout_s=1)
    [hangs] = [one for one in found if one.code.value == "unreachable-broker"]
    assert hangs.where == f"broker {victim} at {cluster.nodes[victim]}"
    stale = about(found, three)["stale-isr"]
    assert stale.why.startswith(
        f"Metadata reports the ISR [0, 1, 2], ZooKeeper has {sorted(others)}: "
    )
    lacking = about(found, three)["under-replicated"].why
    assert lacking.startswith(f"2 of 3 replicas in sync; missing: broker {victim}. ")
    assert about(found, three).keys() >= {"unclean-election", "min-isr-too-low"}
    assert about(found, strict).keys() >= {"under-min-isr", "min-isr-all-replicas"}
    assert about(found, clean).keys() == {"min-isr-too-high"}

    await asyncio.to_thread(cluster.kill, victim)
    await asyncio.to_thread(cluster.expire, victim)
    for topic in (alone, clean):
        await asyncio.to_thread(cluster.wait_leader, topic, 0, [-1])
    with without_a_trace(cluster):
        found = await examined(cluster)
    dead = about(found, clean)["leaderless-partition"]
    assert dead.where == f"topic {clean!r}, partition 0"
    assert dead.action.startswith(f"Start broker {victim}: the last ISR")
    dead = about(found, alone)["leaderless-partition"]
    assert dead.action.startswith(f"Start broker {victim}, which has its replicas. ")
    lacking = about(found, three)["under-replicated"].why
    assert lacking.startswith(
        f"2 of 3 replicas in sync; missing: broker {victim} (the cluster doesn't name"
    )
    # Without ZooKeeper the dead replica is only known to exist (docs/brokers.md 4.7).
    found = await examined(cluster, zookeeper=False)
    assert about(found, three)["under-replicated"].why.startswith(
        "2 of at least 3 replicas in sync; Metadata leaves out a replica"
    )
    assert about(found, alone)["leaderless-partition"].action.startswith("Start the stopped")


# --- what takes a cluster of its own --------------------------------------------------------------


@pytest.fixture(scope="module")
def neglected() -> Iterator[RealCluster]:
    """A cluster whose log cleaner is off."""
    with RealCluster("0.8.2.2", properties={"log.cleaner.enable": False}) as cluster:
        yield cluster


async def test_dead_log_cleaner(neglected: RealCluster, unique_topic: NewName) -> None:
    topic = unique_topic()
    config = {"cleanup.policy": "compact", "segment.bytes": 16384}
    await asyncio.to_thread(neglected.create_topic, topic, config=config)
    await fill(neglected, topic, [b"v" * 100] * 500, 4000)

    async def grow() -> None:
        await fill(neglected, topic, [b"v"])

    with without_a_trace(neglected):
        found = await examined(neglected, watch=grow)
    assert about(found, topic)["dead-cleaner"].where == f"topic {topic!r}, partition 0"
    assert "dead-cleaner" not in about(await examined(neglected, watch=nothing), topic)


async def test_topic_that_retention_empties(neglected: RealCluster, unique_topic: NewName) -> None:
    topic = unique_topic()
    await asyncio.to_thread(neglected.create_topic, topic, config={"retention.ms": -1})
    with without_a_trace(neglected):
        found = await examined(neglected)
    finding = about(found, topic)["retention-deletes-all"]
    assert (finding.where, finding.code.severity) == (f"topic {topic!r}", "critical")


async def test_live_log_cleaner(broker_clusters: BrokerClusters, unique_topic: NewName) -> None:
    cluster, topic = await asyncio.to_thread(broker_clusters.get, "0.8.2.2"), unique_topic()
    config = {"cleanup.policy": "compact", "segment.bytes": 16384}
    await asyncio.to_thread(cluster.create_topic, topic, config=config)
    await fill(cluster, topic, [b"v" * 100] * 500, 4000)

    async def compacted() -> None:
        log = cluster.folder / "data-0" / f"{topic}-0"
        await fill(cluster, topic, [b"v"])
        await asyncio.to_thread(
            wait_for,
            lambda: (log / f"{0:020}.log").stat().st_size < 16384 // 4,
            30,
            f"the oldest segment of {topic} is compacted",
        )

    assert "dead-cleaner" not in about(await examined(cluster, watch=compacted), topic)


@pytest.mark.skipif(sys.platform != "linux", reason="reads the CPU time of another process")
async def test_sets_that_make_the_broker_search(
    neglected: RealCluster, unique_topic: NewName, cli: RunCommand
) -> None:
    """The broker's CPU time is measured: on a busy machine a fetch may take several times as long
    as the search, since broker and client wait for the CPU.

    What the command `produce` fills with its defaults is no finding. Its input is paced: sets grow
    as far as the round trip needs, and that of a busy machine is long.
    """
    large, small, ours = unique_topic("large"), unique_topic("small"), unique_topic("ours")
    for topic in (large, small, ours):
        await asyncio.to_thread(neglected.create_topic, topic)
    values = [b"v" * 100] * 40_000
    await fill(neglected, large, values, 2_000_000)
    await fill(neglected, small, values)
    at = ("-b", neglected.bootstrap_servers)
    paced = ("--rate", "1MB/s")
    done = await asyncio.to_thread(cli, "produce", ours, *at, *paced, stdin=b"\n".join(values))
    assert done.code == 0
    with without_a_trace(neglected):
        found = await examined(neglected, search_clock=lambda: neglected.cpu_s(0))
    assert about(found, large)["large-sets"].where == f"topic {large!r}, partition 0"
    assert "large-sets" not in about(found, small)
    assert "large-sets" not in about(found, ours)


@contextmanager
def joined(cluster: RealCluster, version: str) -> Iterator[Broker]:
    """Run a broker of another version, with the node id 1, in a cluster of one."""
    is_newer = version == "0.9.0.1"
    broker = Broker(
        find_version(version),
        1,
        1,
        cluster.folder,
        zookeeper_connect=cluster.zookeeper_connect,
        properties={"inter.broker.protocol.version": "0.8.2.X"} if is_newer else {},
        voters={},
        port=None,
        advertised_port=None,
        java_options=(),
    )
    broker.launch()
    try:
        wait_for(broker.responds, 60, "the other broker responds")
        yield broker
    finally:
        broker.process.terminate(60)


async def test_brokers_of_two_lines(neglected: RealCluster, unique_topic: NewName) -> None:
    topic = unique_topic()
    await asyncio.to_thread(neglected.create_topic, topic)
    await fill(neglected, topic, [b"v"])
    assert "mixed-lines" not in dict(told(await examined(neglected)))
    async with AsyncExitStack() as stack:
        newer = await asyncio.to_thread(stack.enter_context, joined(neglected, "0.9.0.1"))
        # A broker of 0.8.2 learns of a new one with the next leaders (docs/brokers.md 4.11).
        await asyncio.to_thread(knows_both, newer.listeners.port)
        assert 1 not in metadata(neglected.port(0)).brokers
        await asyncio.to_thread(neglected.create_topic, unique_topic())
        await asyncio.to_thread(knows_both, neglected.port(0))
        found = await examined(neglected)
    [mixed] = [one for one in found if one.code.value == "mixed-lines"]
    assert mixed.why.startswith("brokers of several releases: 0.8.2: broker 0; 0.9: broker 1. ")


@pytest.mark.full
async def test_brokers_of_two_lines_of_0_8(unique_topic: NewName) -> None:
    topic = unique_topic()
    async with AsyncExitStack() as stack:
        cluster = await asyncio.to_thread(stack.enter_context, RealCluster("0.8.1.1"))
        await asyncio.to_thread(stack.enter_context, joined(cluster, "0.8.2.2"))
        await asyncio.to_thread(registered, cluster)
        async with AIOKafkaAdminClient(
            bootstrap_servers=cluster.bootstrap_servers, zookeeper_connect=cluster.zookeeper_connect
        ) as admin:
            new = NewTopic(topic, -1, -1, replica_assignments={0: [0], 1: [1]})
            assert (await admin.create_topics([new])).topic_errors == [(topic, 0, None)]
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for number in (0, 1):
                await producer.send_and_wait(topic, b"v", partition=number)
        with without_a_trace(cluster):
            found = await examined(cluster)
    [mixed] = [one for one in found if one.code.value == "mixed-lines"]
    assert mixed.why.startswith(
        "brokers of several releases: 0.8.0 or 0.8.1: broker 0; 0.8.2: broker 1. "
    )


def registered(cluster: RealCluster) -> None:
    def node_ids() -> list[str]:
        client = KazooClient(cluster.zookeeper_connect)
        client.start(15)
        try:
            return sorted(client.get_children("/brokers/ids"))
        finally:
            client.stop()
            client.close()

    wait_for(lambda: node_ids() == ["0", "1"], 30, "both brokers are in ZooKeeper")


def knows_both(port: int) -> None:
    wait_for(lambda: metadata(port).brokers.keys() == {0, 1}, 30, f"{port} knows both brokers")


async def nothing() -> None:
    """Change nothing between the two samples."""


@pytest.mark.full
@pytest.mark.parametrize("version", ["0.8.2.2", "0.9.0.1"])
async def test_too_long_topic_name_disables_a_broker(version: str, cli: RunCommand) -> None:
    """An older client has made the topic; after a restart the broker leads a part of the others."""
    name = "x" * 254
    with RealCluster(version) as cluster:
        await asyncio.to_thread(cluster.create_topic, "good", 8)
        at = ("-b", cluster.bootstrap_servers)
        for command in (
            ("topic", "create", name, *at, "--zookeeper", cluster.zookeeper_connect),
            ("produce", name, *at),
        ):
            done = await asyncio.to_thread(cli, *command, stdin=b"v")
            assert (done.code, "expected at most 249" in done.err) == (1, True)
        async with AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
            assert await admin.list_topics() == ["good"]
        zookeeper = KazooClient(cluster.zookeeper_connect)
        await asyncio.to_thread(zookeeper.start)
        try:
            path = f"/brokers/topics/{name}"
            await asyncio.to_thread(zookeeper.create, path, b'{"version":1,"partitions":{"0":[0]}}')
        finally:
            await asyncio.to_thread(zookeeper.stop)
            zookeeper.close()

        async def is_found(code: str) -> bool:
            return any(code == one for one, _ in told(await examined(cluster)))

        await eventually(lambda: is_found("long-topic-name"))
        await asyncio.to_thread(restart_crippled, cluster)
        await eventually(lambda: is_found("not-leading"), 60)


def restart_crippled(cluster: RealCluster) -> None:
    """Restart the broker without waiting until it leads: it won't."""
    cluster.stop(0)
    broker = cluster._node(0)
    broker.launch()
    wait_for(lambda: accepts(cluster.port(0)), 60, "the broker listens")
    zookeeper = KazooClient(cluster.zookeeper_connect)
    zookeeper.start()
    try:  # 0.8 listens before it registers
        wait_for(lambda: zookeeper.get_children("/brokers/ids"), 60, "the broker registers")
    finally:
        zookeeper.stop()
        zookeeper.close()
