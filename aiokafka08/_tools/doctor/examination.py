"""Apply all rules to the samples of a cluster. Pure.

Invariant: with one sample the rules that need two (`is_watched`) are left out, and the finding
`UNCHECKED` says so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from aiokafka08._tools.doctor.brokers import mixed_lines, unreachable
from aiokafka08._tools.doctor.compaction import KeyScan, dead_cleaner
from aiokafka08._tools.doctor.finding import Finding, FindingCode
from aiokafka08._tools.doctor.group_health import (
    NextReadable,
    beyond_end,
    hidden_by_damage,
    idle_lag,
    near_retention,
    overtaken,
    unknown_members,
)
from aiokafka08._tools.doctor.message_sets import SearchCost, formats, large_sets
from aiokafka08._tools.doctor.replication import (
    leaderless,
    long_names,
    marked_for_deletion,
    not_leading,
    pending_reassignment,
    stale_isr,
    under_replicated,
    unknown_isr,
)
from aiokafka08._tools.doctor.settings import (
    MIN_ISR,
    UNCLEAN,
    min_isr,
    retention_deletes_all,
    unclean_election,
    unknown_settings,
)
from aiokafka08._tools.findings import in_order
from aiokafka08._tools.monitoring.cluster_sample import ClusterSample
from aiokafka08.structs import TopicPartition

_LET: Final = "With the brokers' kafka-acls.sh, allow the client's principal"

KeyScans = Mapping[TopicPartition, KeyScan]

_LOOK_AGAIN: Final = (
    "Look again in a moment. If it stays so, check the address, and see the log of the broker or "
    "of ZooKeeper"
)


@dataclass(frozen=True, slots=True)
class Examination:
    """All data for the rules.

    Attributes:
        first, last: The cluster at the beginning and at the end of the watch. Without a watch they
            are the same object.
        elapsed_s: The seconds in between.
        asks_zookeeper: Whether ZooKeeper's address was given.
        releases: The brokers' releases by node id; unknown ones are left out.
        formats: Per topic the message formats that were sampled.
        searches: Per partition the measured cost of the broker's search.
        damaged: Committed offsets that damage hides, each with the next readable offset.
        scans: The keys at the beginning of compacted logs, at both times.
        refused_topics: Topics whose messages the client's principal may not read.
    """

    first: ClusterSample
    last: ClusterSample
    elapsed_s: float = 0.0
    asks_zookeeper: bool = True
    releases: Mapping[int, str] = field(default_factory=dict)
    formats: Mapping[str, Collection[int]] = field(default_factory=dict)
    searches: Mapping[TopicPartition, SearchCost] = field(default_factory=dict)
    damaged: Mapping[TopicPartition, NextReadable] = field(default_factory=dict)
    scans: tuple[KeyScans, KeyScans] = field(default_factory=lambda: ({}, {}))
    refused_topics: Collection[str] = ()

    @property
    def is_watched(self) -> bool:
        """Whether there are two samples."""
        return self.first is not self.last


def examine(seen: Examination) -> list[Finding]:
    """Return all findings, the most urgent first."""
    return in_order(_findings(seen))


def _findings(seen: Examination) -> Iterator[Finding]:
    first, last = seen.first, seen.last
    yield from leaderless(last)
    yield from not_leading(first, last)
    yield from long_names(last)
    yield from under_replicated(last)
    yield from stale_isr(first, last, seen.releases)
    yield from marked_for_deletion(last)
    yield from pending_reassignment(last)
    yield from unreachable(last)
    yield from mixed_lines(seen.releases)
    yield from unclean_election(last)
    yield from min_isr(last)
    yield from retention_deletes_all(last, seen.releases)
    yield from unknown_settings(last)
    yield from idle_lag(first, last)
    yield from overtaken(first, last)
    yield from hidden_by_damage(seen.damaged, first)
    yield from formats(seen.formats, last, seen.releases)
    yield from large_sets(seen.searches)
    explained = first.explained | last.explained  # errors that other findings state too
    remedies = {**first.remedies, **last.remedies}
    rights = {**first.rights, **last.rights}
    for error in dict.fromkeys((*first.errors, *last.errors)):
        if error in explained:
            continue
        remedy = remedies.get(error)
        why = error if remedy is None else error.removesuffix(f". {remedy}")
        if (right := rights.get(error)) is None:
            yield Finding(FindingCode.UNREADABLE, "cluster", why, remedy or _LOOK_AGAIN)
        else:
            yield Finding(FindingCode.NO_PERMISSION, "client", why, remedy or f"{_LET} {right}")
    for topic in sorted(seen.refused_topics):
        yield Finding(
            FindingCode.NO_PERMISSION,
            "client",
            f"its principal may not read topic {topic!r}: whether its messages are damaged, of "
            "other formats or in large sets is unknown",
            f"{_LET} Read on topic {topic!r}",
        )
    if seen.is_watched:
        yield from beyond_end(first, last)
        yield from near_retention(first, last, seen.elapsed_s)
        yield from dead_cleaner(first, last, seen.scans, seen.elapsed_s)
    yield from unknown_members(first, last, asks_zookeeper=seen.asks_zookeeper)
    yield from unknown_isr(last, asks_zookeeper=seen.asks_zookeeper)
    yield from _unchecked(seen)


def _unchecked(seen: Examination) -> Iterator[Finding]:
    missing: dict[str, str] = {}
    if not seen.is_watched:
        missing["--watch 60s"] = (
            "without a second sample: how near retention is to groups, whether offsets are after "
            "the end of a log, whether the log cleaner works, from brokers 0.9 on stale ISRs"
        )
    if not seen.asks_zookeeper:
        missing["--zookeeper host:2181/chroot"] = (
            "without ZooKeeper: the true replication factor, stale ISRs, the topics' own settings "
            f"(such as {UNCLEAN} and {MIN_ISR}), groups in ZooKeeper"
        )
    if not seen.last.topics:
        missing["the client's principal Describe on topics and groups"] = (
            "what an authorizer hides: brokers show no topic, so there is none, or the client may "
            "describe none"
        )
    if missing:
        action = f"Give {' and '.join(missing)}"
        yield Finding(FindingCode.UNCHECKED, "cluster", "; ".join(missing.values()), action)
