"""The assignment arithmetic of the Scala consumer (0.8): which thread reads which partition. Pure.

Groups in ZooKeeper have no leader: each member computes the assignment on its own from the same
`GroupSnapshot`, here and in Scala, and then claims its partitions.

Invariant: for one snapshot, this module and the Scala consumer compute the same assignment. Source:
kafka.consumer.PartitionAssignor of 0.8.2.2; 0.8.0 and 0.8.1 have only range.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from aiokafka08._core.zookeeper.scala_format import java_hash
from aiokafka08._core.zookeeper.scala_registry import GroupSnapshot
from aiokafka08.errors import IllegalArgumentError, KafkaConfigurationError
from aiokafka08.structs import TopicPartition

RANGE: Final = "range"
ROUNDROBIN: Final = "roundrobin"


def scala_strategy(strategies: Sequence[object]) -> str:
    """Check and return the first of the strategies; Scala's default if there is none."""
    name = getattr(strategies[0], "name", strategies[0]) if strategies else RANGE
    if name not in (RANGE, ROUNDROBIN):
        raise IllegalArgumentError(
            f"partition_assignment_strategy={list(strategies)!r}: expected range or roundrobin for "
            "a group in ZooKeeper, the same for all members"
        )
    return str(name)


def assign_to_member(
    strategy: str, snapshot: GroupSnapshot, topics: Iterable[str], member: str
) -> dict[TopicPartition, str]:
    """Return the partitions of one member, each with the thread that owns it.

    Raises KafkaConfigurationError if roundrobin meets members with different subscriptions.
    """
    known = sorted(topic for topic in topics if snapshot.partitions.get(topic))
    assign = _roundrobin if strategy == ROUNDROBIN else _range
    # A member has one or more threads, named "<member>-<number>".
    own = re.compile(re.escape(member) + r"-[0-9]+")
    assignment = assign(snapshot, known)
    return {tp: thread for tp, thread in assignment.items() if own.fullmatch(thread)}


def _range(snapshot: GroupSnapshot, topics: Iterable[str]) -> dict[TopicPartition, str]:
    assignment = {}
    for topic in topics:
        # Sorted as strings, as in Scala.
        threads = sorted(snapshot.threads.get(topic, ()))
        numbers = sorted(snapshot.partitions[topic])
        if not threads:
            continue
        each, more = divmod(len(numbers), len(threads))
        start = 0
        for index, thread in enumerate(threads):
            end = start + each + (index < more)
            assignment.update(
                {TopicPartition(topic, number): thread for number in numbers[start:end]}
            )
            start = end
    return assignment


def _roundrobin(snapshot: GroupSnapshot, topics: Collection[str]) -> dict[TopicPartition, str]:
    if len({frozenset(threads) for threads in snapshot.threads.values()}) > 1:
        raise KafkaConfigurationError(
            "roundrobin in a ZooKeeper group: the members' subscriptions differ; expected the same "
            "topics and the same number of threads in all members. Otherwise use range"
        )
    # Two partitions may have the same hash (topics "Aa" and "BB"). The Scala consumer sorts these
    # in the reverse order of the topics in its registration. We assume that all members register
    # their topics sorted, as `encode_registration` does: hence the reverse order here.
    partitions = [
        TopicPartition(topic, number)
        for topic in sorted(topics, reverse=True)
        for number in snapshot.partitions[topic]
    ]
    partitions.sort(key=lambda tp: java_hash(f"[{tp.topic},{tp.partition}]"))
    threads = sorted(next(iter(snapshot.threads.values()), ()))
    if not threads:
        return {}
    return {tp: threads[index % len(threads)] for index, tp in enumerate(partitions)}
