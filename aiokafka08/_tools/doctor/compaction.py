"""The rule about a dead log cleaner. Pure.

Invariant: only the first segment of a log proves that the cleaner doesn't work, so a cleaner that
died after it had compacted the first segment isn't found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from aiokafka08._tools.doctor.finding import Finding, FindingCode
from aiokafka08._tools.doctor.places import duration, grouped
from aiokafka08._tools.monitoring.cluster_sample import ClusterSample
from aiokafka08.structs import TopicPartition

# Topics that are compacted whatever ZooKeeper says.
COMPACTED_TOPICS: Final = frozenset({"__consumer_offsets"})


@dataclass(frozen=True, slots=True)
class KeyScan:
    """The scan of the beginning of a compacted log, below its last segment.

    Attributes:
        start: The first offset that was read.
        stop: The offset after the last one.
        repeated: How many of these messages have a key that comes again among them.
    """

    start: int
    stop: int
    repeated: int


def is_compacted(cluster: ClusterSample, topic: str) -> bool:
    """Return whether the topic is compacted, as far as it is known."""
    return "compact" in own_policy(cluster, topic)


def own_policy(cluster: ClusterSample, topic: str) -> str:
    """Return the topic's own cleanup.policy in lower case; "" if it has none, or it isn't known."""
    if topic in COMPACTED_TOPICS:
        return "compact"
    sample = cluster.topics.get(topic)
    config = {} if sample is None else sample.config or {}
    return config.get("cleanup.policy", "").lower().strip()


def dead_cleaner(
    first: ClusterSample,
    last: ClusterSample,
    scans: tuple[Mapping[TopicPartition, KeyScan], Mapping[TopicPartition, KeyScan]],
    elapsed_s: float,
) -> Iterator[Finding]:
    """Find compacted partitions that have grown, and were not compacted.

    Args:
        first, last: the cluster at the beginning and the end of the watch.
        scans: the scans of these times.
        elapsed_s: the seconds in between.
    """
    partitions = []
    for tp, scan in sorted(scans[1].items()):
        earlier, later = first.partition(tp), last.partition(tp)
        if earlier is None or later is None or earlier.end is None or later.end is None:
            continue
        # A cleaner compacts all segments but the last one, and a log that was never cleaned is due
        # as soon as it has a second segment. So a first segment that keeps repeated keys while the
        # topic grows shows a dead cleaner. Whether later segments are due depends on sizes that no
        # request returns. A cleaner is off by default below 0.9, and may end by an error: on 0.8.2
        # because of a large compressed set (docs/brokers.md 5.15). A dead cleaner also delays
        # groups: before a broker serves them, it reads all of `__consumer_offsets`.
        if scan.repeated and scan == scans[0].get(tp) and later.end > earlier.end:
            partitions.append((tp, ()))
    for where, _ in grouped(partitions):
        yield Finding(
            FindingCode.DEAD_CLEANER,
            where,
            f"compacted, but it has grown for {duration(elapsed_s)}, and its "
            "oldest segment still has several messages of the same key: the log cleaner is off, or "
            "has died. The topic grows without end, and a restart of the broker takes longer",
            "See log-cleaner.log of the partition's leader for its last error, and whether "
            "log.cleaner.enable=true (false by default below 0.9). A restart of the broker starts "
            "the cleaner again",
        )
