"""Rules about unclean elections, min.insync.replicas and retention.ms. Pure.

Invariant: no rule assumes a broker's default for unclean elections or min.insync.replicas. If a
topic doesn't set one of them, `unknown_settings` reports it as unknown.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from aiokafka08._core.net.cluster import INTERNAL_TOPICS
from aiokafka08._core.net.versions import BrokerLine
from aiokafka08._tools.doctor.compaction import own_policy
from aiokafka08._tools.doctor.finding import Finding, FindingCode
from aiokafka08._tools.doctor.places import grouped, node_list, topic_list
from aiokafka08._tools.doctor.replication import missing_brokers
from aiokafka08._tools.monitoring.cluster_sample import ClusterSample, TopicSample
from aiokafka08.structs import TopicPartition

UNCLEAN: Final = "unclean.leader.election.enable"
MIN_ISR: Final = "min.insync.replicas"
RETENTION: Final = "retention.ms"

# Only a topic's own settings can be read, from ZooKeeper: brokers below 0.11 have no request for
# their defaults, and this client doesn't send DescribeConfigs.
_UNKNOWN: Final = {
    UNCLEAN: "Look into the brokers' server.properties. Kafka's default is true below 0.11; 0.8.0 "
    "and 0.8.1 have no such setting, and always elect",
    MIN_ISR: "Look into the brokers' server.properties; or set it for each topic that matters: "
    "0.8.2 ignores that of the broker, 0.8.0 and 0.8.1 have no such setting",
}


def unclean_election(cluster: ClusterSample) -> Iterator[Finding]:
    """Find topics whose own setting allows unclean elections."""
    for name, topic in sorted(cluster.topics.items()):
        if _setting(topic, UNCLEAN) == "true":
            yield Finding(
                FindingCode.UNCLEAN_ELECTION,
                f"topic {name!r}",
                f"{UNCLEAN}=true: if all in-sync replicas fail, a replica that lacks acknowledged "
                "messages becomes the leader, and they are lost",
                f"Set {UNCLEAN}=false for the topic, unless losing messages is better than waiting "
                "for a broker",
            )


def min_isr(cluster: ClusterSample) -> Iterator[Finding]:
    """Find topics whose own min.insync.replicas doesn't fit their replicas or their ISR."""
    for name, topic in sorted(cluster.topics.items()):
        text = _setting(topic, MIN_ISR)
        if not text.isdecimal():
            continue
        least = int(text)
        known = {
            TopicPartition(name, number): partition
            for number, partition in sorted(topic.partitions.items())
            if partition.all_replicas
        }
        # Skip partitions that are being moved, since they have both old and new replicas.
        factors = {
            tp: len(partition.all_replicas)
            for tp, partition in known.items()
            if tp.partition not in topic.moving
        }
        is_mixed = len(set(factors.values())) > 1
        advice = _advice(factors.values()) if is_mixed else None
        unfit = (
            (tp, (one[0], one[1], advice or one[2]))
            for tp, factor in factors.items()
            if (one := _unfit(least, factor))
        )
        for where, (code, why, action) in grouped(unfit):
            yield Finding(code, where if is_mixed else f"topic {name!r}", why, action)
        # Skip partitions with fewer replicas than `least`, which `_unfit` reports.
        below = (
            (
                tp,
                (
                    len(partition.in_sync),
                    missing_brokers(cluster, set(partition.all_replicas) - set(partition.in_sync)),
                ),
            )
            for tp, partition in known.items()
            if partition.leader is not None
            and len(partition.in_sync) + len(partition.perhaps_in_sync)
            < least
            <= len(partition.all_replicas)
        )
        for where, (in_sync, missing) in grouped(below):
            yield Finding(
                FindingCode.UNDER_MIN_ISR,
                where,
                f"{in_sync} in sync, {MIN_ISR}={least}: writes with acks=all fail with "
                "NotEnoughReplicas",
                "Start the missing brokers",
                missing,
            )


def retention_deletes_all(cluster: ClusterSample, releases: Mapping[int, str]) -> Iterator[Finding]:
    """Find topics to be kept for ever whose messages the brokers delete (brokers.md 8.18)."""
    deleting = {node_id for node_id, release in releases.items() if _deletes_at_negative(release)}
    for name, topic in sorted(cluster.topics.items()):
        text = _setting(topic, RETENTION)
        policy = own_policy(cluster, name)
        if not re.fullmatch(r"-\d+", text) or policy == "compact":
            continue
        unless = "" if policy else " (unless the brokers' cleanup.policy is compact)"
        hosts = {node for partition in topic.partitions.values() for node in partition.all_replicas}
        if affected := hosts & deleting:
            yield Finding(
                FindingCode.RETENTION_DELETES_ALL,
                f"topic {name!r}",
                f"{RETENTION}={text} means for ever only from 0.9 on. On {node_list(affected)} (of "
                "0.8.1 or 0.8.2) every message is too old: each check (5 minutes) deletes all"
                + unless,
                f"Set {RETENTION} of the topic to a large number, such as 3153600000000, a hundred "
                "years",
            )


def _deletes_at_negative(release: str) -> bool:
    """Return whether brokers of a release may delete all messages at a negative retention.ms."""
    return release.startswith("0.8") and release != str(BrokerLine.V0_8_0)


def _unfit(least: int, factor: int) -> tuple[FindingCode, str, str] | None:
    if least > factor:
        return (
            FindingCode.MIN_ISR_TOO_HIGH,
            f"{MIN_ISR}={least} with replication factor {factor}: writes with acks=all always fail",
            f"Set {MIN_ISR}={max(factor - 1, 1)} for the topic, or add replicas "
            "(kafka-reassign-partitions.sh)",
        )
    if factor > 1 and least == factor:
        return (
            FindingCode.MIN_ISR_ALL_REPLICAS,
            f"{MIN_ISR}={least} with replication factor {factor}: one stopped broker stops all "
            "writes with acks=all, also in a rolling restart",
            f"Set {MIN_ISR}={factor - 1} for the topic",
        )
    if factor > 1 and least <= 1:
        return (
            FindingCode.MIN_ISR_TOO_LOW,
            f"{MIN_ISR}={least}: once its followers are out of sync, the leader alone acknowledges "
            "acks=all writes, and they are lost if it fails",
            f"Set {MIN_ISR}={max(factor - 1, 2)} for the topic",
        )
    return None


def _advice(factors: Collection[int]) -> str:
    """Return the action for a topic whose partitions differ in their number of replicas."""
    value = max(min(factors) - 1, 1)
    if not any(_unfit(value, factor) for factor in factors):
        return f"Set {MIN_ISR}={value} for the topic"
    return (
        "Give all partitions of the topic the same number of replicas "
        f"(kafka-reassign-partitions.sh): {MIN_ISR} is one for all of them"
    )


def unknown_settings(cluster: ClusterSample) -> Iterator[Finding]:
    """Name the topics that don't set a setting; the brokers' own value can't be read."""
    # Without ZooKeeper no topic's setting is known: one note of `examination` says so.
    if not cluster.has_zookeeper:
        return
    for setting, action in _UNKNOWN.items():
        unset = [
            name
            for name, topic in cluster.topics.items()
            if name not in INTERNAL_TOPICS and not _setting(topic, setting)
        ]
        if unset:
            yield Finding(
                FindingCode.UNKNOWN_SETTINGS,
                topic_list(unset),
                f"{setting}: unknown. It isn't set for the topic in ZooKeeper, and this client has "
                "no request for a broker's own setting",
                action,
            )


def _setting(topic: TopicSample, name: str) -> str:
    """Return the topic's own setting in lower case; "" if it has none, or it isn't known."""
    return (topic.config or {}).get(name, "").lower()
