"""Junk in any node of a tree like that of a cluster: it is named, and all other nodes are read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aiokafka08._core.zookeeper.group_nodes import owner_of
from aiokafka08._core.zookeeper.nodes import shown_path
from aiokafka08._tools.doctor.examination import Examination, examine
from aiokafka08._tools.monitoring.sampler import ClusterSampler
from aiokafka08.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka08.testing.simulation import World, simulate

pytestmark = pytest.mark.fast

GROUPS = ("g", "no\u00a0break", "\u3000wide", "zero\u200bwidth")
TREE: dict[str, Any] = {
    "/config/topics/t": {"version": 1, "config": {"retention.ms": "1000"}},
    "/controller": {"version": 1, "brokerid": 0},
    "/admin/reassign_partitions": {
        "version": 1,
        "partitions": [{"topic": "t", "partition": 0, "replicas": [1]}],
    },
    "/admin/delete_topics/u": None,
}
for name in GROUPS:
    registration = {"version": 1, "subscription": {"t": 1}, "pattern": "static"}
    TREE |= {
        f"/consumers/{name}/ids/go-1-2": registration,
        f"/consumers/{name}/ids/scala": registration,
        f"/consumers/{name}/owners/t/0": "go-1-2",
        f"/consumers/{name}/owners/t/1": "scala-0",
        f"/consumers/{name}/offsets/t/0": 0,
        f"/consumers/{name}/offsets/t/1": 0,
    }
JUNK = (b"", b"junk \xff", b"null", b'{"version":1}', b"[" * 10_000)
PLACES = (
    "/config/topics/t",
    "/brokers/topics/t",
    "/brokers/topics/t/partitions/1/state",
    "/brokers/ids/1",
    "/controller",
    "/admin/reassign_partitions",
    *(f"/consumers/{GROUPS[2]}/{end}" for end in ("ids/scala", "owners/t/1", "offsets/t/1")),
)


def write(world: World, path: str, data: bytes) -> None:
    """Write a node behind the backs of the simulated controller's watches."""
    tree, parts = world.zookeeper.tree, path.split("/")[1:]
    for end in range(1, len(parts) + 1):
        node = "/" + "/".join(parts[:end])
        if tree.find(node) is None:
            tree.create(node, b"", 0)
    tree.set(path, data, 0)


@pytest.mark.parametrize("place", PLACES)
def test_junk_in_a_node_is_named_and_hides_nothing(place: str) -> None:
    # In a topic's settings an empty node means none; an empty owner or registration is junk.
    junk = [data for data in JUNK if data or place != "/config/topics/t"]

    async def scenario() -> None:
        for path, value in TREE.items():
            text = value if isinstance(value, str) else json.dumps(value)
            write(world, path, text.encode())
        async with AIOKafkaAdminClient(
            bootstrap_servers=world.cluster.bootstrap_servers,
            zookeeper_connect=world.zookeeper_connect,
        ) as admin:
            sampler = ClusterSampler(admin, has_zookeeper=True)
            sound, sound_lags = await sampler.sample(), await admin.read_group_lags()
            assert sound.errors == ()
            assert sound_lags.errors == []
            assert {(row.group, row.partition, row.member) for row in sound_lags.rows} == {
                (name, number, member)
                for name in GROUPS
                for number, member in ((0, "go-1-2"), (1, "scala"))
            }
            made = await admin.create_topics([NewTopic("u", 1, 1)])
            grown = await admin.create_partitions({"u": NewPartitions(2)})
            for _, code, reason in (*made.topic_errors, *grown.topic_errors):
                assert code
                assert "marked for deletion" in str(reason)
            codes = {one.code.value for one in examine(Examination(sound, sound))}
            assert {"marked-for-deletion", "pending-reassignment"} <= codes
            for data in junk:
                write(world, place, data)
                sample, lags = await sampler.sample(), await admin.read_group_lags()
                error = next(text for text in sample.errors if shown_path(place) in text)
                assert f"holds {data[:100]!r}" in error
                assert "; expected " in error
                found = examine(Examination(sample, sample))
                assert error in [one.why for one in found if one.code.value == "unreadable"]
                assert len(lags.rows) == len(sound_lags.rows)
                lost = set(sound_lags.rows) - set(lags.rows)
                assert {(row.group, row.partition) for row in lost} <= {(GROUPS[2], 1)}
                if "/offsets/" in place:
                    [row] = [row for row in lags.rows if row.error is not None]
                    assert (row.group, row.partition, row.committed) == (GROUPS[2], 1, None)
                    assert shown_path(place) in (row.error or "")
                assert {group.group for group in sample.groups} == set(GROUPS)
                assert sample.topics.keys() == sound.topics.keys()
                assert sample.topics["u"] == sound.topics["u"]

    with simulate(1, brokers=2, version="0.8.2", topics={"t": 2, "u": 1}) as world:
        world.run(scenario)


@pytest.mark.parametrize("name", ["x", "-1", "01", "1" * 10])
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
        assert f"{place} isn't named after a partition" in error.text

    with simulate(1, version="0.8.2", topics={"t": 2}) as world:
        world.run(scenario)


@pytest.mark.parametrize(
    ("owner", "member"),
    [
        (b"go-1-2", "go-1-2"),
        (b"scala-0", "scala"),
        (b"scala-x-12", "scala-x"),
        (b"go-1", None),
        (b"", None),
        (b"\xff", None),
    ],
)
def test_owner_is_a_members_id_or_the_name_of_its_thread(owner: bytes, member: str | None) -> None:
    assert owner_of(owner, ["go-1-2", "scala", "scala-x"]) == member
