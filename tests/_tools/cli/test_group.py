"""`group` on the embedded cluster; what needs a ZooKeeper is in test_group_on_brokers."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from aiokafka08 import AIOKafkaConsumer, TopicPartition
from aiokafka08._core.net.config import OffsetsStorage
from aiokafka08._core.zookeeper.group_nodes import GroupNodes
from aiokafka08._tools.cli.declare import DeclaredCommand
from aiokafka08.errors import GroupAuthorizationFailedError, KafkaConnectionError
from aiokafka08.protocol.requests.committed_offsets import OffsetCommitRequest, OffsetFetchRequest
from aiokafka08.protocol.requests.groups import DescribeGroupsRequest, GroupCoordinatorRequest
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.testing import LINES, Answer, EmbeddedCluster
from tests._tools.cli.conftest import RunCommand
from tests._tools.cli.document import commands

T0, T1, V0 = (TopicPartition(*tp) for tp in (("orders", 0), ("orders", 1), ("visits", 0)))


@pytest.fixture(params=[line for line in LINES if line not in ("0.8.0", "0.8.1")])
def cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(2, request.param, {"orders": 2, "visits": 1}) as running:
        running.append("orders", 0, [b"v"] * 10)
        running.append("orders", 1, [b"v"] * 5)
        yield running


@pytest.fixture
def modern() -> Iterator[EmbeddedCluster]:
    """One cluster for what doesn't depend on the line."""
    with EmbeddedCluster(1, "0.10", {"orders": 2, "visits": 1}) as running:
        running.append("orders", 0, [b"v"] * 10)
        running.append("orders", 1, [b"v"] * 5)
        yield running


def commit(
    cluster: EmbeddedCluster,
    group: str,
    offsets: Mapping[TopicPartition, int | tuple[int, str]],
    storage: OffsetsStorage = "kafka",
) -> None:
    async def work() -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=cluster.bootstrap_servers,
            group_id=group,
            offsets_storage=storage,
            enable_auto_commit=False,
        )
        consumer.assign(list(offsets))
        async with consumer:
            await consumer.commit(dict(offsets))

    asyncio.run(work())


def committed(
    cluster: EmbeddedCluster, group: str, topic: str, partition: int, store: Any = "kafka"
) -> int | None:
    found = cluster.committed(group, topic, partition, store)
    return None if found is None else found.offset


def row(group: str, store: str, tp: TopicPartition, committed: int, end: int) -> dict[str, Any]:
    return {
        "group": group,
        "store": store,
        "topic": tp.topic,
        "partition": tp.partition,
        "committed": committed,
        "end": end,
        "lag": end - committed,
        "member": None,
        "error": None,
    }


def test_groups_are_listed_described_and_measured(
    cluster: EmbeddedCluster, cli: RunCommand
) -> None:
    server = ("-b", cluster.bootstrap_servers, "--format", "json")
    empty = cli("group", "list", *server)
    assert (empty.code, empty.out) == (0, b"[]\n")
    is_0_8 = cluster.version == "0.8.2"
    assert ("groups in ZooKeeper weren't looked for: brokers of 0.8" in empty.err) == is_0_8
    assert ("Give --zookeeper host:2181/chroot" in empty.err) == bool(empty.err) == is_0_8
    commit(cluster, "billing", {T0: 4, T1: 5})
    commit(cluster, "billing", {T0: 2}, "zookeeper")
    commit(cluster, "other", {V0: 0})
    assert cli("group", "list", *server).json == [
        {"group": "billing", "store": "kafka", "protocol_type": ""},
        {"group": "other", "store": "kafka", "protocol_type": ""},
    ]
    rows = [
        row("billing", "kafka", T0, 4, 10),
        row("billing", "zookeeper", T0, 2, 10),
        row("billing", "kafka", T1, 5, 5),
    ]
    assert cli("group", "lag", "billing", *server).json == rows
    assert cli("group", "lag", "--all", "--topic", "visits", *server).json == [
        row("other", "kafka", V0, 0, 0)
    ]
    described = cli("group", "describe", "billing", *server).json
    assert [(one["store"], one["state"], one["offsets"]) for one in described] == [
        # On 0.8 only ZooKeeper knows members.
        ("kafka", None if cluster.version == "0.8.2" else "Empty", 2),
        ("zookeeper", None, 1),
    ]
    assert {one["member"] for one in described} == {None}


def test_partition_that_an_idle_group_never_committed_is_shown(
    cluster: EmbeddedCluster, cli: RunCommand
) -> None:
    commit(cluster, "billing", {T0: 4})
    done = cli("group", "lag", "--all", "-b", cluster.bootstrap_servers, "--format", "json")
    unknown = row("billing", "kafka", T1, 0, 5) | {"committed": None, "lag": None}
    assert done.json == [row("billing", "kafka", T0, 4, 10), unknown]
    text = "lag unknown: no offset is committed for orders/1 (billing). There the group begins as"
    assert (done.code, text in done.err) == (0, True)
    commit(cluster, "whole", {T0: 4, T1: 5})
    names = ("billing", "whole", "-b", cluster.bootstrap_servers, "--format", "json")
    done = cli("group", "describe", *names)
    assert [(one["offsets"], one["uncommitted"]) for one in done.json] == [(1, 1), (2, 0)]
    assert (done.code, text in done.err) == (0, True)


def test_negative_lag_is_explained(cluster: EmbeddedCluster, cli: RunCommand) -> None:
    commit(cluster, "billing", {T0: 4, T1: 5})
    cluster.truncate(T1.topic, T1.partition, 3)
    done = cli("group", "lag", "billing", "-b", cluster.bootstrap_servers, "--format", "json")
    assert [one["lag"] for one in done.json] == [6, -2]
    place = f"{T1.topic}/{T1.partition} (billing)"
    assert (done.code, f"negative lag: committed beyond the end of {place}." in done.err) == (
        0,
        True,
    )


def test_unreadable_store_does_not_hide_the_other(
    cluster: EmbeddedCluster, cli: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object) -> list[str]:
        raise KafkaConnectionError("it is down")

    monkeypatch.setattr(GroupNodes, "names", unreachable)
    server = ("-b", cluster.bootstrap_servers, "--zookeeper", "zk:2181", "--format", "json")
    done = cli("group", "list", *server)
    assert (done.code, done.out) == (1, b"")
    commit(cluster, "billing", {T0: 4})
    done = cli("group", "list", *server)
    assert (done.code, done.json[0]["group"]) == (1, "billing")
    assert done.err.endswith("groups may be missing: it is down\n")
    monkeypatch.setattr(GroupNodes, "describe", unreachable)
    monkeypatch.setattr(GroupNodes, "offsets", unreachable)
    done = cli("group", "lag", "--all", *server)
    assert (done.code, [row["group"] for row in done.json]) == (1, ["billing"])
    assert done.err == "aiokafka08: it is down\n"
    done = cli("group", "export", "--all", *server[:-2])
    assert (done.code, [one["group"] for one in done.json]) == (1, ["billing"])
    assert done.err == "aiokafka08: not exported: it is down\n"


def test_reading_groups_creates_nothing(cluster: EmbeddedCluster, cli: RunCommand) -> None:
    server = ("-b", cluster.bootstrap_servers)
    for arguments in (
        ["list"],
        ["describe", "nobody"],
        ["lag", "nobody"],
        ["lag", "--all"],
        ["export", "nobody"],
        ["reset", "nobody", "--to-latest", "--topic", "nope", "--store", "kafka"],
        ["reset", "nobody", "--to-latest", "--topic", "orders", "--store", "kafka"],
    ):
        cli("group", *arguments, *server)
    assert cli("topics", "-q", *server).lines == ["orders", "visits"]
    assert not any(one.topics for one in cluster.requests(MetadataRequest))
    assert not cluster.requests(GroupCoordinatorRequest)
    assert not cluster.requests(OffsetCommitRequest)


@pytest.mark.kafka_cluster(version="0.9", topics={"orders": 2})
def test_members_are_shown_and_protect_their_group(
    kafka_cluster: EmbeddedCluster, cli: RunCommand
) -> None:
    server = ("-b", kafka_cluster.bootstrap_servers, "--format", "json")
    kafka_cluster.append("orders", 0, [b"v"] * 3)

    async def with_a_member() -> list[Any]:
        consumer = AIOKafkaConsumer(
            "orders",
            bootstrap_servers=kafka_cluster.bootstrap_servers,
            group_id="live",
            enable_auto_commit=False,
        )
        async with consumer:
            await consumer.commit({T0: 1})
            return [
                await asyncio.to_thread(cli, "group", *arguments, *server)
                for arguments in (
                    ["list"],
                    ["describe", "live"],
                    ["lag", "live"],
                    ["reset", "live", "--to-earliest"],
                    ["reset", "live", "--to-earliest", "--execute"],
                    ["delete", "live", "--yes"],
                )
            ]

    listed, described, lag, plan, reset, deleted = asyncio.run(with_a_member())
    assert listed.json == [{"group": "live", "store": "kafka", "protocol_type": "consumer"}]
    [member] = described.json
    assert (member["state"], member["assignor"]) == ("Stable", "roundrobin")
    assert member["partitions"] == ["orders/0", "orders/1"]
    assert re.fullmatch(r"aiokafka08-consumer-\d+", member["client_id"])
    assert [(one["partition"], one["committed"], one["lag"]) for one in lag.json] == [
        (0, 1, 2),
        (1, None, None),
    ]
    assert {one["member"] for one in lag.json} == {member["member"]}
    for refused in (plan, reset, deleted):
        assert (refused.code, refused.out) == (1, b"")
        assert "group 'live' is live" in refused.err
        assert member["member"] in refused.err
        assert refused.err.count("\n") == 1
    assert committed(kafka_cluster, "live", "orders", 0) == 1


# --- reset ----------------------------------------------------------------------------------------


TARGETS: list[tuple[list[str], dict[int, int]]] = [
    (["--to-earliest"], {0: 2, 1: 0}),
    (["--to-latest"], {0: 10, 1: 5}),
    (["--to-offset", "3"], {0: 3, 1: 3}),
    (["--to-offset", "99"], {0: 10, 1: 5}),
    (["--to-current"], {0: 4, 1: 5}),
    (["--shift-by", "-1"], {0: 3, 1: 4}),
    (["--shift-by", "-99"], {0: 2, 1: 0}),
    (["--shift-by", "2"], {0: 6, 1: 5}),
    (["--to-datetime", "2100-01-01"], {0: 10, 1: 5}),
    (["--to-datetime", "0"], {0: 2, 1: 0}),
    (["--by-duration", "P7D"], {0: 2, 1: 0}),
]


def test_reset_shows_a_plan_and_carries_it_out(modern: EmbeddedCluster, cli: RunCommand) -> None:
    server = ("-b", modern.bootstrap_servers, "--format", "json")
    modern.delete_before("orders", 0, 2)
    for number, (target, expected) in enumerate(TARGETS):
        group = f"g{number}"
        commit(modern, group, {T0: 4, T1: 5})
        plan = cli("group", "reset", group, *target, *server)
        assert plan.code == 0
        assert [(one["store"], one["partition"], one["committed"]) for one in plan.json] == [
            ("kafka", 0, 4),
            ("kafka", 1, 5),
        ]
        assert {one["partition"]: one["new"] for one in plan.json} == expected, target
        assert plan.err.endswith("nothing was changed. Carry it out with --execute\n")
        outside = target[-1] in ("99", "-99", "2")
        assert ("is outside the log" in plan.err) == outside, target
        assert committed(modern, group, "orders", 0) == 4
        done = cli("group", "reset", group, *target, "--execute", *server)
        assert (done.code, done.json) == (0, plan.json)
        assert "nothing was changed" not in done.err
        for partition, offset in expected.items():
            assert committed(modern, group, "orders", partition) == offset


def test_reset_names_partitions_without_an_offset(modern: EmbeddedCluster, cli: RunCommand) -> None:
    server = ("-b", modern.bootstrap_servers)
    commit(modern, "g", {T0: 4})
    plan = cli("group", "reset", "g", "--to-earliest", *server)
    assert (
        "no offset is committed for orders/1: not moved. Give --topic orders to include all "
        "partitions\n"
    ) in plan.err
    whole = cli("group", "reset", "g", "--to-earliest", "--topic", "orders", *server)
    assert "no offset is committed" not in whole.err


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.9", ["≈, by segment", "≈, by segment"]),
        ("0.10", ["exact", "no message that late"]),
    ],
)
def test_reset_to_a_time_says_how_precise_it_is(
    version: str, expected: list[str], cli: RunCommand
) -> None:
    with EmbeddedCluster(version=version, topics={"orders": 2}) as cluster:
        at = ("-b", cluster.bootstrap_servers)
        for partition in range(2) if version == "0.9" else range(1):
            assert cli("produce", "orders", "-p", str(partition), *at, stdin=b"tea\n").code == 0
        commit(cluster, "g", {T0: 1, T1: 0})
        server = (*at, "--format", "json")
        plan = cli("group", "reset", "g", "--by-duration", "P1D", *server)
        assert [one["precision"] for one in plan.json] == expected
        assert "precision" not in cli("group", "reset", "g", "--to-latest", *server).json[0]


def test_reset_prints_the_command_that_takes_it_back(
    modern: EmbeddedCluster, cli: RunCommand, tmp_path: Path
) -> None:
    """The file is private, and names that a file can't have are in it all the same."""
    commit(modern, "a/b é", {T0: 4})
    server = ("-b", modern.bootstrap_servers)
    move = ("group", "reset", "a/b é", "--to-earliest", "--topic", "orders:0,1", *server)
    cluster = f"cluster {modern.bootstrap_servers}"
    assert f"this is the plan for {cluster}; nothing was changed" in cli(*move).err
    assert not list(tmp_path.rglob("offsets-*"))
    done = cli(*move, "--execute")
    saved, result, back = done.err.splitlines()
    [path] = tmp_path.rglob("offsets-*")
    assert saved == f"aiokafka08: 1 present offset saved in {path}"
    assert path.stat().st_mode & 0o777 == 0o600
    assert result == f"aiokafka08: 2 offsets committed: group 'a/b é', {cluster}"
    why, _, command = back.partition(": aiokafka08 ")
    assert why == "aiokafka08: to go back (1 partition had no offset, and keeps the new one)"
    assert committed(modern, "a/b é", "orders", 0) == 0
    assert cli(*shlex.split(command)).code == 0
    assert committed(modern, "a/b é", "orders", 0) == 4
    assert len(list(tmp_path.rglob("offsets-*"))) == 2


def test_way_back_names_the_brokers_of_the_environment(
    modern: EmbeddedCluster, cli: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command may run in another shell."""
    commit(modern, "g", {T0: 4, T1: 5})
    monkeypatch.setenv("AIOKAFKA08_BOOTSTRAP_SERVERS", modern.bootstrap_servers)
    done = cli("group", "reset", "g", "--to-earliest", "--execute")
    assert done.err.endswith(f" --execute -b {modern.bootstrap_servers}\n")


def test_reset_changes_nothing_if_the_offsets_cant_be_saved(
    modern: EmbeddedCluster, cli: RunCommand, tmp_path: Path
) -> None:
    commit(modern, "g", {T0: 4})
    move = ("group", "reset", "g", "--to-earliest", "-b", modern.bootstrap_servers)
    taken = tmp_path / "taken"
    taken.write_text("kept")
    for path, text in ((taken, "exists; expected a new one"), (tmp_path / "no" / "x", "No such")):
        done = cli(*move, "--execute", "--backup", str(path))
        assert (done.code, text in done.err, "Nothing was changed" in done.err) == (2, True, True)
    assert (cli(*move, "--backup", str(tmp_path / "x")).code, taken.read_text()) == (2, "kept")
    assert committed(modern, "g", "orders", 0) == 4
    assert cli(*move, "--execute", "--backup", str(tmp_path / "x")).code == 0
    assert json.loads((tmp_path / "x").read_text())[0]["offset"] == 4


def test_reset_moves_named_partitions(modern: EmbeddedCluster, cli: RunCommand) -> None:
    server = ("-b", modern.bootstrap_servers, "--format", "json", "--execute")
    commit(modern, "g", {T0: 4, T1: 5, V0: 0})
    done = cli("group", "reset", "g", "--to-earliest", "--topic", "orders:0", *server)
    assert [(one["store"], one["partition"], one["new"]) for one in done.json] == [("kafka", 0, 0)]
    assert committed(modern, "g", "orders", 0) == 0
    assert committed(modern, "g", "orders", 1) == 5
    done = cli("group", "reset", "g", "--to-latest", "--topic", "visits", "--topic", "orders:1,0",
               "--store", "kafka", *server)  # fmt: skip
    assert [(one["topic"], one["partition"], one["new"]) for one in done.json] == [
        ("orders", 0, 10),
        ("orders", 1, 5),
        ("visits", 0, 0),
    ]


def test_offsets_in_zookeeper_are_changed_with_zookeeper_only(
    cluster: EmbeddedCluster, cli: RunCommand
) -> None:
    """Brokers don't know members that are Scala consumers. A plan is refused, too."""
    server = ("-b", cluster.bootstrap_servers)
    commit(cluster, "g", {T0: 3}, "zookeeper")
    commit(cluster, "g", {T0: 4})
    exported = cli("group", "export", "g", "--store", "zookeeper", *server).out
    reset = ("group", "reset", "g", "--to-latest")
    calls = (reset, (*reset, "--store", "zookeeper"), ("group", "import"))
    for arguments in (*calls, *((*call, "--execute") for call in calls)):
        refused = cli(*arguments, *server, stdin=exported)
        assert (refused.code, refused.out, refused.err.count("\n")) == (1, b"", 1)
        assert "ZooKeeper" in refused.err
        assert "--zookeeper host:2181" in refused.err
        assert committed(cluster, "g", "orders", 0, "zookeeper") == 3
        assert committed(cluster, "g", "orders", 0) == 4


def test_first_offsets_of_a_group_need_their_store(
    modern: EmbeddedCluster, cli: RunCommand
) -> None:
    server = ("-b", modern.bootstrap_servers)
    reset = ("group", "reset", "new", "--to-earliest", "--topic", "orders", "--execute")
    refused = cli(*reset, *server)
    assert (refused.code, "To commit its first ones, give --store" in refused.err) == (1, True)
    assert "--topic" not in refused.err
    named = cli("group", "import", *server, stdin=b"new,orders,0,2\n")
    assert (named.code, "first ones, give --store" in named.err) == (1, True)
    assert cli(*reset, "--store", "kafka", *server).code == 0
    assert committed(modern, "new", "orders", 1) == 0
    shift = cli("group", "reset", "new", "--shift-by", "1", "--topic", "visits", *server)
    assert (shift.code, "visits/0 can't be shifted: nothing" in shift.err) == (2, True)


@pytest.mark.parametrize("is_live", [False, True])
def test_reset_of_a_group_without_offsets_says_what_is_missing(
    modern: EmbeddedCluster, cli: RunCommand, is_live: bool
) -> None:
    server = ("-b", modern.bootstrap_servers)
    reset = ("group", "reset", "idle", "--to-earliest", *server)
    calls = [reset, (*reset, "--store", "kafka"), (*reset, "--store", "kafka", "--execute")]

    async def work() -> list[Any]:
        consumer = AIOKafkaConsumer(
            "orders",
            bootstrap_servers=modern.bootstrap_servers,
            group_id="idle",
            enable_auto_commit=False,
        )
        async with consumer:
            return [await asyncio.to_thread(cli, *arguments) for arguments in calls]

    refused = asyncio.run(work()) if is_live else [cli(*arguments) for arguments in calls]
    expected = ["give --store and --topic", "in kafka. To commit its first ones, give --topic"]
    for done, text in zip(refused, [expected[0], expected[1], expected[1]], strict=True):
        assert (done.code, done.out, done.err.count("\n")) == (1, b"", 1)
        assert ("group 'idle' is live" if is_live else text) in done.err
    assert committed(modern, "idle", "orders", 0) is None


# --- export and import ----------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["json", "jsonl", "csv", "zookeeper"])
def test_exported_offsets_are_imported(
    modern: EmbeddedCluster, cli: RunCommand, tmp_path: Path, form: str
) -> None:
    server = ("-b", modern.bootstrap_servers)
    store = ("--store", "kafka") if form == "zookeeper" else ()  # these files name the other one
    commit(modern, "g", {T0: 4, T1: 5})
    exported = cli("group", "export", "g", "--as", form, *server)
    assert (exported.code, exported.err) == (0, "")
    path = tmp_path / "offsets"
    path.write_bytes(exported.out)
    commit(modern, "g", {T0: 0, T1: 0})
    planned = cli("group", "import", str(path), *store, *server, "--format", "json")
    assert [(one["committed"], one["new"]) for one in planned.json] == [(0, 4), (0, 5)]
    assert committed(modern, "g", "orders", 0) == 0
    done = cli("group", "import", "--execute", *store, *server, stdin=exported.out)
    assert done.code == 0
    assert committed(modern, "g", "orders", 0) == 4
    commit(modern, "g", {T0: 0, T1: 0})
    reset = ("group", "reset", "g", "--from-file", str(path), "--execute")
    assert cli(*reset, *store, *server).code == 0
    assert committed(modern, "g", "orders", 1) == 5


def test_import_outside_the_log_is_refused_unless_asked(
    modern: EmbeddedCluster, cli: RunCommand
) -> None:
    """The offsets may be of another cluster, where the same number is another message."""
    modern.delete_before("orders", 0, 2)
    commit(modern, "g", {T0: 4, T1: 5})
    text = b"g,orders,0,1\ng,orders,1,3\n"
    arguments = ("group", "import", "-b", modern.bootstrap_servers)
    for execute in ((), ("--execute",)):
        refused = cli(*arguments, *execute, stdin=text)
        assert (refused.code, refused.out, refused.err.count("\n")) == (1, b"", 1)
        assert "orders/0 of group 'g': offset 1, expected 2 to 10" in refused.err
        assert "--to-nearest" in refused.err
        assert committed(modern, "g", "orders", 1) == 5
    done = cli(*arguments, "--to-nearest", "--execute", stdin=text)
    assert done.code == 0
    assert "offset 1 is outside the log, 2 is the nearest one inside" in done.err
    assert committed(modern, "g", "orders", 0) == 2
    assert committed(modern, "g", "orders", 1) == 3


def test_import_keeps_the_text_and_may_change_the_store(
    modern: EmbeddedCluster, cli: RunCommand
) -> None:
    server = ("-b", modern.bootstrap_servers)
    commit(modern, "g", {T0: (4, "größe")})
    exported = cli("group", "export", "--all", *server)
    assert json.loads(exported.out) == [
        {
            "group": "g",
            "store": "kafka",
            "topic": "orders",
            "partition": 0,
            "offset": 4,
            "metadata": "größe",
        }
    ]
    commit(modern, "g", {T0: 3}, "zookeeper")
    moved = ("group", "import", "--store", "kafka", "--execute", *server)
    from_zookeeper = cli("group", "export", "g", "--store", "zookeeper", *server).out
    assert cli(*moved, stdin=from_zookeeper).code == 0
    assert committed(modern, "g", "orders", 0) == 3
    assert cli("group", "import", "--execute", *server, stdin=exported.out).code == 0
    [kafka, _] = cli("group", "export", "g", "--as", "jsonl", *server).lines
    assert json.loads(kafka)["metadata"] == "größe"
    both = cli("group", "export", "g", "--as", "csv", *server)
    assert (both.code, "choose one with --store" in both.err) == (2, True)
    ambiguous = cli(*moved, stdin=cli("group", "export", "g", *server).out)
    assert (ambiguous.code, "two offsets for orders/0" in ambiguous.err) == (2, True)


# --- wrong calls ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["lag"], 2, "name groups, or give --all"),
        (["lag", "g", "--all"], 2, "name groups, or give --all"),
        (["lag", "nobody"], 1, "group 'nobody' has no members and no committed offsets"),
        (["lag", "nobody", "none"], 1, "groups 'nobody', 'none' have no members"),
        (["lag", "g", "--topic", "nope"], 1, "no committed offsets, and no members, of 'nope'"),
        (["lag", ""], 1, "group '' has no members and no committed offsets"),
        (["describe"], 2, "missing argument"),
        (["describe", "nobody"], 1, "group 'nobody' has no members"),
        (["export"], 2, "name groups, or give --all"),
        (["export", "nobody"], 1, "'nobody': no committed offsets"),
        (["reset", "g"], 2, "no target; expected one of --to-earliest"),
        (["reset", "g", "--to-earliest", "--to-latest"], 2, "--to-earliest and --to-latest"),
        (["reset", "g", "--to-offset", "-1"], 2, "--to-offset"),
        (["reset", "g", "--to-datetime", "soon"], 2, "--to-datetime='soon': expected a time"),
        (["reset", "g", "--by-duration", "soon"], 2, "--by-duration='soon': expected a dura"),
        (["reset", "g", "--to-latest", "--topic", "t:x"], 2, "expected TOPIC, or TOPIC:PART"),
        (["reset", "g", "--to-latest", "--topic", "nope"], 1, "topic 'nope' doesn't exist"),
        (["reset", "g", "--to-latest", "--topic", "orders:7"], 1, "has no partition 7; it has"),
        (["reset", "nobody", "--to-latest"], 1, "'nobody' has no committed offsets"),
        (["reset", "g", "--from-file", "/nowhere"], 1, "/nowhere: No such file"),
        (["reset", "g", "--from-file", "f", "--topic", "t"], 2, "leave --topic out"),
        (["import", "/nowhere"], 1, "/nowhere: No such file"),
        (["import"], 2, "stdin: no offsets; expected at least one"),
        (["delete", "g"], 2, "needs --yes"),
        (["delete", "nobody", "--yes"], 1, "group 'nobody' has no members"),
        (["delete", "g", "--store", "zookeeper", "--yes"], 1, "--zookeeper host:2181"),
    ],
    ids=lambda it: " ".join(it) if isinstance(it, list) else "",
)
def test_wrong_calls_are_one_line(
    modern: EmbeddedCluster, cli: RunCommand, arguments: list[str], code: int, text: str
) -> None:
    commit(modern, "g", {T0: 1})
    done = cli("group", *arguments, "-b", modern.bootstrap_servers)
    assert (done.code, done.out) == (code, b"")
    assert text in done.err
    assert done.err.count("\n") == 1
    assert committed(modern, "g", "orders", 0) == 1


def test_known_groups_are_printed_beside_unknown_ones(
    modern: EmbeddedCluster, cli: RunCommand
) -> None:
    commit(modern, "g", {T0: 1, T1: 1})
    done = cli("group", "lag", "g", "--topic", "nope", "--topic", "orders", "-b",
               modern.bootstrap_servers)  # fmt: skip
    assert (done.code, len(done.lines), "of 'nope'" in done.err) == (1, 3, True)
    for name in ("lag", "describe"):
        done = cli("group", name, "g", "nobody", "-b", modern.bootstrap_servers)
        assert (done.code, {line[0] for line in map(str.split, done.lines[1:])}) == (1, {"g"})
        assert done.err.startswith("aiokafka08: group 'nobody' has no members")
    done = cli("group", "export", "g", "nobody", "no", "-b", modern.bootstrap_servers)
    assert (done.code, {one["group"] for one in done.json}) == (1, {"g"})
    assert done.err == "aiokafka08: not exported: 'nobody', 'no': no committed offsets\n"


def test_described_groups_are_printed_beside_refused_ones(
    modern: EmbeddedCluster, cli: RunCommand
) -> None:
    for name in ("a", "b", "c"):
        commit(modern, name, {T0: 1, T1: 1})
    modern.fault(
        DescribeGroupsRequest,
        then=Answer(GroupAuthorizationFailedError.errno),
        times=None,
        where=lambda request: request.groups[0] in ("b", "d"),
    )
    server = ("-b", modern.bootstrap_servers, "--format", "json")
    for names in (("b", "d"), ("a", "b", "c", "d")):
        done = cli("group", "describe", *names, *server)
        rows = done.json if done.out else []
        assert (done.code, [row["group"] for row in rows]) == (1, [*"ac"][: len(names) - 2])
        assert [f"group {name!r}" in done.err for name in "bd"] == [True, True]
        assert done.err.count("\n") == 2


def test_all_errors_of_an_export_are_printed(modern: EmbeddedCluster, cli: RunCommand) -> None:
    for name in ("a", "b", "c"):
        commit(modern, name, {T0: 1})
    modern.fault(
        OffsetFetchRequest,
        then=Answer(GroupAuthorizationFailedError.errno),
        times=None,
        where=lambda request: request.group != "a",
    )
    for names in (("b", "c"), ("a", "b", "c")):
        done = cli("group", "export", *names, "-b", modern.bootstrap_servers, "--store", "kafka")
        assert (done.code, [f"group {name!r}" in done.err for name in "bc"]) == (1, [True, True])
        assert ([one["group"] for one in done.json] if done.out else []) == [*"a"][: len(names) - 2]


def test_files_that_are_no_offsets_change_nothing(modern: EmbeddedCluster, cli: RunCommand) -> None:
    server = ("-b", modern.bootstrap_servers, "--execute")
    commit(modern, "g", {T0: 1})
    for stdin, code, text in (
        (b"\xff\xfe", 2, "stdin: not UTF-8"),
        (b"orders,0,1\n", 2, "names no group; name it with --group"),
        (b"g,orders,0,2\ng,nope,0,2\n", 1, "topic 'nope' doesn't exist"),
        (b"g,orders,0,2\nnobody,orders,0,2\n", 1, "'nobody' has no committed offsets"),
        (b"g,orders,0,x\n", 2, "stdin, line 1: 'g,orders,0,x'; expected TOPIC"),
    ):
        done = cli("group", "import", *server, stdin=stdin)
        assert (done.code, done.out, done.err.count("\n")) == (code, b"", 1)
        assert text in done.err
        assert committed(modern, "g", "orders", 0) == 1
    other = cli("group", "reset", "g", "--from-file", "-", *server, stdin=b"other,orders,0,2\n")
    assert (other.code, "stdin: no offsets of group 'g'" in other.err) == (2, True)
    named = cli("group", "import", "--group", "g", *server, stdin=b"orders,0,3\n")
    assert (named.code, committed(modern, "g", "orders", 0)) == (0, 3)


def test_import_names_all_groups_that_it_has_written(
    modern: EmbeddedCluster, cli: RunCommand
) -> None:
    server = ("-b", modern.bootstrap_servers)
    for group in ("a", "b"):
        commit(modern, group, {T0: 4})
    exported = cli("group", "export", "a", "b", *server).out
    done = cli("group", "import", "--execute", *server, stdin=exported)
    text = f"2 offsets committed: groups 'a', 'b', cluster {modern.bootstrap_servers}"
    assert (done.code, text in done.err) == (0, True)


@pytest.mark.kafka_cluster(version="0.10", topics={"orders": 1})
def test_rows_of_import_have_the_fields_that_its_help_names(
    kafka_cluster: EmbeddedCluster, cli: RunCommand
) -> None:
    [fields] = [
        command.fields
        for _, name, command in commands()
        if name == "group import" and isinstance(command, DeclaredCommand)
    ]
    kafka_cluster.append("orders", 0, [b"v"] * 5)
    commit(kafka_cluster, "g", {T0: 4})
    server = ("-b", kafka_cluster.bootstrap_servers)
    exported = cli("group", "export", "g", *server).out
    [planned] = cli("group", "import", *server, "--format", "json", stdin=exported).json
    assert planned.keys() == fields.keys()


@pytest.mark.kafka_cluster(version="0.9", topics={"orders": 1})
def test_deletion_says_that_zookeeper_is_left_out(
    kafka_cluster: EmbeddedCluster, cli: RunCommand
) -> None:
    for store in ("kafka", "zookeeper"):
        commit(kafka_cluster, "g", {T0: 1}, store)
    commit(kafka_cluster, "h", {T0: 1})
    server = ("--yes", "--format", "json", "-b", kafka_cluster.bootstrap_servers)
    told = cli("group", "delete", "g", *server)
    outcome = {"group": "g", "store": "kafka", "outcome": "expiring", "error": None}
    assert told.json == [outcome]
    assert (told.code, "offsets in ZooKeeper were not looked for" in told.err) == (0, True)
    result = f"aiokafka08: 1 group expiring, on cluster {kafka_cluster.bootstrap_servers}"
    _, told_result, _ = cli("group", "delete", "h", "--store", "kafka", *server).err.splitlines()
    assert told_result == result


@pytest.mark.kafka_cluster(version="0.8.0", topics={"orders": 1})
def test_0_8_0_needs_zookeeper(
    kafka_cluster: EmbeddedCluster, cli: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How to install kazoo is said only where it isn't."""
    for arguments in (["list"], ["lag", "g"], ["describe", "g"], ["delete", "g", "--yes"]):
        done = cli("group", *arguments, "-b", kafka_cluster.bootstrap_servers)
        assert (done.code, done.out, "zookeeper" in done.err) == (1, b"", True)
        assert "pip install" not in done.err
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "kazoo", None)
            done = cli("group", *arguments, "-b", kafka_cluster.bootstrap_servers)
        assert "(pip install 'aiokafka08[cli,zookeeper]')" in done.err
