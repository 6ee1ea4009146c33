"""`group` on real brokers of each line, beside Kafka's own tools.

The judges: ConsumerOffsetChecker (0.8), ConsumerGroupCommand (0.9 and later), ExportZkOffsets and
ImportZkOffsets (up to 0.10).
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from tests._tools.cli.conftest import RunCommand
from tests.admin.test_offsets_topic_on_brokers import nodes
from tests.brokers.cluster import RealCluster
from tests.brokers.fixtures import BrokerClusters
from tests.brokers.versions import VERSIONS

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

NewName = Callable[..., str]
RELEASES = [name for name, version in VERSIONS.items() if version.needs_zookeeper]
NEW_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"

Numbers = dict[int, tuple[int, int, int]]
"""Partition → committed offset, end of the log, lag."""


def numbers_of_kafka(cluster: RealCluster, group: str, topic: str, store: str) -> Numbers:
    """Return what the tool of the brokers' own release prints of a group."""
    version = VERSIONS[cluster.version].number
    bootstrap, zookeeper = cluster.bootstrap_servers, cluster.zookeeper_connect
    if version < (0, 9):
        option = "--zookeeper" if version >= (0, 8, 2) else "--zkconnect"
        tool = "kafka.tools.ConsumerOffsetChecker"
        arguments = [option, zookeeper, "--group", group, "--topic", topic]
    elif store == "zookeeper":
        tool = "kafka.admin.ConsumerGroupCommand"
        arguments = ["--zookeeper", zookeeper, "--describe", "--group", group]
    else:
        tool = NEW_TOOL if version >= (3,) else "kafka.admin.ConsumerGroupCommand"
        arguments = ["--bootstrap-server", bootstrap, "--describe", "--group", group]
        arguments += ["--new-consumer"] if version < (0, 10) else []
        # On a busy machine the 5 s that it waits for a broker may be too short. Older ones have no
        # option for that.
        arguments += ["--timeout", "60000"] if version >= (3,) else []
    done = cluster.run_java(tool, *arguments)
    rows = re.findall(
        rf"\b{topic}[,\s]+(\d+)[,\s]+(\d+)[,\s]+(\d+)[,\s]+(-?\d+)", done.stdout, re.M
    )
    assert rows, done
    return {int(row[0]): (int(row[1]), int(row[2]), int(row[3])) for row in rows}


def numbers_of_ours(rows: list[dict[str, Any]], store: str) -> Numbers:
    return {
        row["partition"]: (row["committed"], row["end"], row["lag"])
        for row in rows
        if row["store"] == store and row["committed"] is not None
    }


def fill(cluster: RealCluster, topic: str, *counts: int) -> None:
    cluster.create_topic(topic, partitions=len(counts))

    async def work() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, acks="all"
        ) as producer:
            for partition, count in enumerate(counts):
                if count:
                    await (await producer.send_many(topic, [b"v"] * count, partition=partition))

    asyncio.run(work())


@contextlib.contextmanager
def zookeeper(cluster: RealCluster) -> Iterator[KazooClient]:
    client = KazooClient(cluster.zookeeper_connect)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


@pytest.mark.parametrize("version", RELEASES)
def test_groups_are_those_of_kafkas_tools(
    version: str,
    broker_clusters: BrokerClusters,
    unique_topic: NewName,
    cli: RunCommand,
    tmp_path: Path,
) -> None:
    cluster = broker_clusters.get(version)
    number = VERSIONS[version].number
    server = ("-b", cluster.bootstrap_servers, "--format", "json")
    both = (*server, "--zookeeper", cluster.zookeeper_connect)
    topic, group = unique_topic("cli"), unique_topic("g")
    fill(cluster, topic, 10, 5, 0)

    # Reading changes nothing, on no release.
    before = nodes(cluster)
    for arguments in (["list"], ["describe", group], ["lag", group], ["lag", "--all"]):
        cli("group", *arguments, *both)
    cli("group", "reset", group, "--to-earliest", "--topic", topic, "--store", "zookeeper", *both)
    assert nodes(cluster) == before

    # Offsets in ZooKeeper: in and out, also in the files of Kafka's tools.
    lines = [f"/consumers/{group}/offsets/{topic}/{p}:{offset}" for p, offset in ((0, 4), (1, 5))]
    text = "".join(f"{line}\n" for line in [*lines, f"/consumers/{group}/offsets/{topic}/2:0"])
    imported = cli("group", "import", "--execute", *both, stdin=text.encode())
    done = f"aiokafka08: 3 offsets committed: group {group!r}, cluster {cluster.bootstrap_servers}"
    assert (imported.code, imported.err.startswith(done)) == (0, True)
    assert {"group": group, "store": "zookeeper", "protocol_type": "consumer"} in cli(
        "group", "list", *both
    ).json
    rows = cli("group", "lag", group, *both).json
    assert numbers_of_ours(rows, "zookeeper") == {0: (4, 10, 6), 1: (5, 5, 0), 2: (0, 0, 0)}
    if version != "0.8.0":  # brokers read ZooKeeper too
        assert cli("group", "lag", group, *server).json == rows
    exported = cli("group", "export", group, "--as", "zookeeper", "--zookeeper",
                   cluster.zookeeper_connect, *server[:2])  # fmt: skip
    assert exported.out.decode() == text
    if number < (3,):
        with zookeeper(cluster) as client:  # the tool of 0.9 and 0.10 needs these nodes
            client.ensure_path(f"/consumers/{group}/owners/{topic}")
            client.ensure_path(f"/consumers/{group}/ids")
        theirs = numbers_of_kafka(cluster, group, topic, "zookeeper")
        assert theirs == numbers_of_ours(rows, "zookeeper")
        if version in ("0.8.2.2", "0.10.2.2"):  # each run of Java takes a second
            exchange_with_kafkas_tools(cluster, group, text, cli, tmp_path)

    # Offsets in Kafka, of an idle group and of a live one.
    if number >= (0, 8, 2):
        idle = unique_topic("idle")
        reset = ("group", "reset", idle, "--topic", topic, "--store", "kafka", "--execute")
        assert cli(*reset, "--to-offset", "3", *both).code == 0
        assert {"group": idle, "store": "kafka", "protocol_type": ""} in cli(
            "group", "list", *server
        ).json
        rows = cli("group", "lag", idle, *server).json
        assert numbers_of_ours(rows, "kafka") == {0: (3, 10, 7), 1: (3, 5, 2), 2: (0, 0, 0)}
        if number < (0, 9):  # 0.9 describes live groups only
            assert numbers_of_kafka(cluster, idle, topic, "kafka") == numbers_of_ours(rows, "kafka")
        deleted = cli("group", "delete", idle, "--store", "kafka", "--yes", *both)
        outcome = "deleted" if number >= (1, 1) else "expiring"
        assert deleted.json == [
            {"group": idle, "store": "kafka", "outcome": outcome, "error": None}
        ]
    if number >= (0, 9):
        compare_live_group(cluster, topic, unique_topic("live"), cli)

    deleted = cli("group", "delete", group, "--store", "zookeeper", "--yes", *both)
    assert deleted.json == [
        {"group": group, "store": "zookeeper", "outcome": "deleted", "error": None}
    ]
    with zookeeper(cluster) as client:
        assert client.exists(f"/consumers/{group}") is None
    again = cli("group", "delete", group, "--store", "zookeeper", "--yes", *both)
    assert (again.code, again.out) == (1, b"")


def exchange_with_kafkas_tools(
    cluster: RealCluster, group: str, text: str, cli: RunCommand, folder: Path
) -> None:
    """Their export is ours; their import reads ours; our import reads theirs."""
    connect, theirs, ours = cluster.zookeeper_connect, folder / "theirs", folder / "ours"
    both = ("-b", cluster.bootstrap_servers, "--zookeeper", connect)
    export = ["--zkconnect", connect, "--group", group, "--output-file", str(theirs)]
    done = cluster.run_java("kafka.tools.ExportZkOffsets", *export)
    assert sorted(theirs.read_text().splitlines()) == sorted(text.splitlines()), done
    ours.write_text(text.replace(":4\n", ":1\n"))
    done = cluster.run_java(
        "kafka.tools.ImportZkOffsets", "--zkconnect", connect, "--input-file", str(ours)
    )
    exported = cli("group", "export", group, "--as", "zookeeper", "--store", "zookeeper", *both)
    assert exported.out.decode() == ours.read_text(), done
    assert cli("group", "import", str(theirs), "--execute", *both).code == 0
    exported = cli("group", "export", group, "--as", "zookeeper", "--store", "zookeeper", *both)
    assert exported.out.decode() == text


def compare_live_group(cluster: RealCluster, topic: str, group: str, cli: RunCommand) -> None:
    """The lag of a group with a member is that of Kafka's tool; a change of it is refused."""
    server = ("-b", cluster.bootstrap_servers, "--format", "json")

    async def with_a_member() -> None:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=cluster.bootstrap_servers,
            group_id=group,
            enable_auto_commit=False,
        )
        async with consumer:
            await consumer.commit({TopicPartition(topic, 0): 7, TopicPartition(topic, 1): 5})
            rows = (await asyncio.to_thread(cli, "group", "lag", group, *server)).json
            theirs = await asyncio.to_thread(numbers_of_kafka, cluster, group, topic, "kafka")
            assert theirs == numbers_of_ours(rows, "kafka") == {0: (7, 10, 3), 1: (5, 5, 0)}
            [member] = {row["member"] for row in rows}
            assert [row["partition"] for row in rows] == [0, 1, 2]
            for change in (["reset", group, "--to-earliest", "--execute"],
                           ["delete", group, "--yes"]):  # fmt: skip
                refused = await asyncio.to_thread(cli, "group", *change, *server)
                assert (refused.code, refused.out, member in refused.err) == (1, b"", True)

    asyncio.run(with_a_member())


@pytest.mark.parametrize("version", ["0.8.0", "0.8.2.2"])
def test_member_in_zookeeper_protects_its_group(
    version: str, broker_clusters: BrokerClusters, unique_topic: NewName, cli: RunCommand
) -> None:
    cluster = broker_clusters.get(version)
    server = ("-b", cluster.bootstrap_servers, "--format", "json")
    both = (*server, "--zookeeper", cluster.zookeeper_connect)
    topic, group = unique_topic("cli"), unique_topic("g")
    fill(cluster, topic, 3, 0)

    async def with_a_member() -> None:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=cluster.bootstrap_servers,
            zookeeper_connect=cluster.zookeeper_connect,
            group_id=group,
            enable_auto_commit=False,
        )
        async with consumer:
            await consumer.commit({TopicPartition(topic, 0): 2})
            [member] = (await asyncio.to_thread(cli, "group", "describe", group, *both)).json[-1:]
            assert (member["store"], member["state"]) == ("zookeeper", "Stable")
            assert member["partitions"] == [f"{topic}/0", f"{topic}/1"]
            rows = (await asyncio.to_thread(cli, "group", "lag", group, *both)).json
            assert [(row["committed"], row["lag"], row["member"]) for row in rows] == [
                (2, 1, member["member"]),
                (None, None, member["member"]),
            ]
            for change in (
                ["reset", group, "--to-earliest"],
                ["reset", group, "--to-earliest", "--execute"],
                ["delete", group, "--store", "zookeeper", "--yes"],
            ):
                refused = await asyncio.to_thread(cli, "group", *change, *both)
                assert (refused.code, refused.out) == (1, b"")
                assert member["member"] in refused.err

    asyncio.run(with_a_member())
    blind = cli("group", "reset", group, "--to-earliest", "--execute", *server)
    assert (blind.code, "--zookeeper host:2181" in blind.err) == (1, True)
    reset = cli("group", "reset", group, "--to-earliest", "--execute", *both)
    assert [(row["partition"], row["committed"], row["new"]) for row in reset.json] == [(0, 2, 0)]
    command = reset.err.splitlines()[-1].partition(": aiokafka08 ")[2]
    assert cli(*shlex.split(command)).code == 0
    [row, *_] = cli("group", "lag", group, *both, "--format", "json").json
    assert (row["partition"], row["committed"]) == (0, 2)


@pytest.mark.release("0.8.2.2")
def test_unreadable_offsets_are_named_beside_the_others(
    broker_clusters: BrokerClusters, cli: RunCommand, unique_topic: NewName
) -> None:
    """A group whose name has a blank that isn't printable, with two offsets that are none."""
    cluster, topic = broker_clusters.get("0.8.2.2"), unique_topic("odd")
    group = f"{topic}\u3000"
    cluster.create_topic(topic, 3)
    servers = ("-b", cluster.bootstrap_servers)
    both = (*servers, "--zookeeper", cluster.zookeeper_connect)
    session = KazooClient(cluster.zookeeper_connect)
    session.start()
    try:
        for number, data in enumerate((b"0", b"", b"junk")):
            session.create(f"/consumers/{group}/offsets/{topic}/{number}", data, makepath=True)
        for options in (both, servers):  # read in ZooKeeper, and by the brokers
            done = cli("group", "lag", group, *options, "--format", "json")
            assert [(row["committed"], row["error"] is None) for row in done.json] == [
                (0, True),
                (None, False),
                (None, False),
            ]
            assert done.code == 1
        done = cli("group", "export", group, *servers)
        assert (done.code, [one["partition"] for one in done.json]) == (1, [0])
        for number in (1, 2):
            assert f"not exported: group {group!r}, {topic}/{number}: the brokers" in done.err
        done = cli("group", "export", group, *both)
        assert (done.code, [one["partition"] for one in done.json]) == (1, [0])
        assert f"offsets/{topic}/2' holds b'junk'; expected an offset" in done.err
        found = cli("doctor", *both, "--format", "tsv").lines
        assert any(line.startswith("unreadable") and f"{topic}/1" in line for line in found)
        done = cli("group", "reset", group, "--to-current", *both)
        assert (done.code, "holds b''; expected an offset" in done.err) == (1, True)
        done = cli("group", "reset", group, "--to-earliest", "--execute", *both)
        assert (done.code, "2 texts of a node without an offset saved" in done.err) == (0, True)
        assert "to go back (2 partitions had an unreadable one, and keep the new one): " in done.err
        assert f"\\u3000/offsets/{topic}/2' held 'junk', which is no offset" in done.err
        assert f" set $'/consumers/{topic}\\xe3\\x80\\x80/offsets/{topic}/1' ''\n" in done.err
        assert session.get(f"/consumers/{group}/offsets/{topic}/2")[0] == b"0"
        done = cli("group", "delete", group, "--yes", *both)
        assert (done.code, session.exists(f"/consumers/{group}")) == (0, None)
        command = done.err.splitlines()[-1].partition("to go back: aiokafka08 ")[2]
        assert cli(*shlex.split(command)).code == 0
        assert session.get(f"/consumers/{group}/offsets/{topic}/0")[0] == b"0"
    finally:
        session.stop()
        session.close()


@pytest.mark.release("0.8.2.2")
def test_refused_consumers_node_hides_no_group_in_kafka(
    broker_clusters: BrokerClusters, cli: RunCommand, unique_topic: NewName
) -> None:
    cluster, topic, group = broker_clusters.get("0.8.2.2"), unique_topic("acl"), unique_topic("g")
    cluster.create_topic(topic, 1)
    both = ("-b", cluster.bootstrap_servers, "--zookeeper", cluster.zookeeper_connect)
    text = f"{group},{topic},0,0\n".encode()
    assert cli("group", "import", "--store", "kafka", "--execute", *both, stdin=text).code == 0
    with zookeeper(cluster) as session:
        session.ensure_path("/consumers")
        acls, _ = session.get_acls("/consumers")
        session.set_acls("/consumers", [make_acl("world", "anyone", admin=True, create=True)])
        try:
            calls = {
                call: cli("group", *call, *both)
                for call in (("list",), ("lag", "--all"), ("export", "--all"))
            }
        finally:
            session.set_acls("/consumers", acls)
    for call, done in calls.items():
        assert (done.code, group in done.out.decode()) == (1, True), (call, done)
        assert done.err.count("the ACL of the node /consumers refuses this client") == 1


@pytest.mark.release("0.8.2.2")
def test_deletion_counts_outcomes_and_names_the_acl(
    broker_clusters: BrokerClusters, cli: RunCommand, unique_topic: NewName
) -> None:
    cluster, topic = broker_clusters.get("0.8.2.2"), unique_topic("acl")
    idle, kept = unique_topic("idle"), unique_topic("kept")
    cluster.create_topic(topic, 1)
    both = ("-b", cluster.bootstrap_servers, "--zookeeper", cluster.zookeeper_connect)
    for group, store in ((idle, "kafka"), (kept, "zookeeper")):
        text = f"{group},{topic},0,0\n".encode()
        assert cli("group", "import", "--store", store, "--execute", *both, stdin=text).code == 0
    exported = cli("group", "export", idle, "nobody", *both)
    assert (exported.code, [one["group"] for one in exported.json]) == (1, [idle])
    assert "not exported: 'nobody': no committed offsets" in exported.err
    node = f"/consumers/{kept}/offsets/{topic}"
    with zookeeper(cluster) as session:
        session.set_acls(node, [make_acl("world", "anyone", read=True, admin=True)])
        try:
            done = cli("group", "delete", idle, kept, "--yes", *both, "--format", "json")
        finally:
            session.set_acls(node, OPEN_ACL_UNSAFE)
    assert (done.code, [(row["group"], row["outcome"]) for row in done.json]) == (
        1,
        [(idle, "expiring"), (kept, "failed")],
    )
    assert f"the ACL of the node {node} refuses this client. Change the ACL" in done.err
    assert "1 group expiring, 1 not deleted, on cluster" in done.err
    command = done.err.splitlines()[-1].partition("to go back: aiokafka08 ")[2]
    assert cli(*shlex.split(command)).code == 0


@pytest.mark.release("0.8.2.2")
def test_group_without_a_name_is_imported_shown_and_deleted(
    broker_clusters: BrokerClusters, cli: RunCommand, unique_topic: NewName
) -> None:
    cluster, topic = broker_clusters.get("0.8.2.2"), unique_topic("noname")
    cluster.create_topic(topic, 1)
    both = ("-b", cluster.bootstrap_servers, "--zookeeper", cluster.zookeeper_connect)
    text = f",{topic},0,0\n".encode()
    assert cli("group", "import", "--store", "kafka", "--execute", *both, stdin=text).code == 0
    for call in ("describe", "lag", "export"):
        assert cli("group", call, "", *both).code == 0
    done = cli("group", "delete", "", "--yes", *both, "--format", "json")
    assert done.json == [{"group": "", "store": "kafka", "outcome": "expiring", "error": None}]
