"""Build samples and settings for the tests of the doctor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aiokafka08._tools.cli.connection import admin_client, range_router
from aiokafka08._tools.cli.settings import flag_source, settings
from aiokafka08._tools.doctor.examination import Examination
from aiokafka08._tools.doctor.finding import Finding
from aiokafka08._tools.doctor.gathering import look
from aiokafka08._tools.monitoring.cluster_sample import (
    BrokerSample,
    ClusterSample,
    GroupSample,
    PartitionSample,
    TopicSample,
)
from aiokafka08.admin.group_lag import GroupStore
from aiokafka08.structs import TopicPartition


async def look_at(
    bootstrap_servers: str,
    zookeeper_connect: str | None = None,
    timeout_s: float | None = None,
    **options: Any,
) -> Examination:
    """Return what there is to see of a cluster, with the command line's clients.

    Args:
        options: those of `look`.
    """
    given = settings([flag_source(bootstrap_servers, zookeeper_connect, (), timeout_s)])
    has_zookeeper = zookeeper_connect is not None
    async with admin_client(given) as admin, range_router(given) as router:
        return await look(admin, router, has_zookeeper=has_zookeeper, **options)


def cluster(
    *partitions: PartitionSample,
    config: Mapping[str, str] | None = None,
    topic: str = "t",
    brokers: Iterable[int] = (0, 1, 2),
    groups: Iterable[GroupSample] = (),
    moving: Mapping[int, tuple[int, ...]] | None = None,
) -> ClusterSample:
    """Return a cluster with one topic; with ZooKeeper if its settings are given."""
    return ClusterSample(
        {node_id: BrokerSample(node_id, f"kafka{node_id}:9092") for node_id in brokers},
        {topic: TopicSample(dict(enumerate(partitions)), config, moving=moving or {})},
        tuple(groups),
        has_zookeeper=config is not None,
    )


def partition(
    replicas: Iterable[int] = (0, 1, 2),
    isr: Iterable[int] = (0, 1, 2),
    *,
    leader: int | None = 0,
    assigned: Iterable[int] | None = None,
    stored_isr: Iterable[int] | None = None,
    lacks_replica: bool = False,
) -> PartitionSample:
    """Return a partition as Metadata, and perhaps ZooKeeper, describes it."""
    return PartitionSample(
        leader,
        tuple(replicas),
        tuple(isr),
        lacks_replica,
        None if assigned is None else tuple(assigned),
        None if stored_isr is None else tuple(stored_isr),
    )


def log(start: int | None, end: int | None) -> PartitionSample:
    """Return a healthy partition with these offsets."""
    return PartitionSample(0, (0,), (0,), start=start, end=end)


def group(
    committed: int,
    members: Iterable[str] | None = (),
    *,
    name: str = "g",
    store: GroupStore = "kafka",
) -> GroupSample:
    """Return a group that has committed an offset of partition 0 of the topic `t`."""
    found = None if members is None else tuple(members)
    return GroupSample(name, store, found, {TopicPartition("t", 0): committed})


def told(findings: Iterable[Finding]) -> list[tuple[str, str]]:
    """Return code and place of each finding."""
    return [(one.code.value, one.where) for one in findings]
