"""The partitions that a rebalance moves from one member to another.

Invariant: each partition has one net move, from its first owner to its present one, or none.
"""

from __future__ import annotations

from collections import defaultdict

from aiokafka08.structs import TopicPartition


class PartitionMovements:
    """The net moves of one rebalance."""

    def __init__(self) -> None:
        self._moves: dict[TopicPartition, tuple[str, str]] = {}

    def move_partition(self, partition: TopicPartition, old_member: str, new_member: str) -> None:
        """Record a move."""
        first_owner, _ = self._moves.pop(partition, (old_member, old_member))
        # A partition that returns to its first owner hasn't moved.
        if first_owner != new_member:
            self._moves[partition] = (first_owner, new_member)

    def exchanges(self) -> list[tuple[TopicPartition, str, TopicPartition, str]]:
        """Return pairs of partitions of one topic, each with its first owner."""
        moved: dict[tuple[str, str, str], list[TopicPartition]] = defaultdict(list)
        for partition, (old, new) in self._moves.items():
            moved[partition.topic, old, new].append(partition)
        # The first owner of each partition is the present owner of the other one. Two such members
        # could as well keep their partitions.
        return [
            (tp_a, old, tp_b, new)
            for (topic, old, new), partitions in moved.items()
            if old < new
            for tp_a, tp_b in zip(partitions, moved.get((topic, new, old), ()), strict=False)
        ]
