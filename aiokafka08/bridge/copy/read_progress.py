"""`read_progress`: the progress of a copy as the clusters show it.

Invariant: it changes nothing, and fences no running bridge.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from aiokafka08._wording import counted, partition_name, some_of
from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.bridge.errors import TargetUnavailableError
from aiokafka08.bridge.source.source_reader import SourceReader
from aiokafka08.bridge.target.target_cluster import Target
from aiokafka08.bridge.target.target_release import refuse_old_target
from aiokafka08.structs import TopicPartition


class PartitionProgress(NamedTuple):
    """A partition of the source, and its copy."""

    topic: str
    partition: int
    target: str
    # None if nothing is copied yet, or the target doesn't return positions.
    position: int | None
    # None without a leader, like `lag`.
    end: int | None
    lag: int | None


async def read_progress(
    config: BridgeConfig, on_unknown: Callable[[TargetUnavailableError], object] | None = None
) -> list[PartitionProgress]:
    """Return the committed position and the end of each partition that is copied.

    Args:
        config: the file of the bridge.
        on_unknown: called if the target responds, but returns no positions; these and the lags are
            None then (default None: the error is raised).

    Raises:
        KafkaError: one of the clusters doesn't respond.
    """
    is_known = True
    await refuse_old_target(config)
    target, source = Target(config), SourceReader(config)
    try:
        await source.start()
        counts = await source.partition_counts()
        names = config.topics.pairs(counts)
        pairs = {
            TopicPartition(topic, number): TopicPartition(name, number)
            for topic, name in names.items()
            for number in range(counts[topic])
        }
        target_counts = await target.partition_counts()
        known = [tp for tp in pairs.values() if tp.partition < target_counts.get(tp.topic, 0)]
        try:
            committed = await target.committed(config.position_group, known)
        except TargetUnavailableError as error:
            if on_unknown is None:
                raise
            on_unknown(error)
            committed, is_known = {}, False
        bounds = await source.reachable_bounds(pairs) if pairs else {}
    finally:
        await source.stop()
        await target.close()
    progress: list[PartitionProgress] = []
    for tp, copy in pairs.items():
        position, first, end, lag = committed.get(copy), 0, None, None
        if tp in bounds:
            first, end = bounds[tp]
        if end is not None and is_known:
            lag = max(end - (first if position is None else position), 0)
        progress.append(PartitionProgress(*tp, copy.topic, position, end, lag))
    return progress


def uncopied_topics(progress: Sequence[PartitionProgress]) -> list[str]:
    """Return the topics of the source that have no position in any partition, sorted."""
    copied = {one.topic for one in progress if one.position is not None}
    return sorted({one.topic for one in progress} - copied)


async def other_copies(config: BridgeConfig, progress: Sequence[PartitionProgress]) -> list[str]:
    """Return the other topics of the target in which the bridge has positions, sorted.

    It searches only if a topic of the source has no position at all.

    Args:
        config: the file of the bridge.
        progress: the result of `read_progress`; the positions are known.

    Raises:
        TargetError: the target doesn't respond.
    """
    if not uncopied_topics(progress):
        return []
    target = Target(config)
    try:
        return await positions_elsewhere(config, target, {one.target for one in progress})
    finally:
        await target.close()


async def positions_elsewhere(
    config: BridgeConfig, target: Target, names: Collection[str]
) -> list[str]:
    """Return the topics of the target, except `names`, in which the bridge has positions, sorted.

    Raises:
        TargetError: the target doesn't respond.
    """
    counts = await target.partition_counts()
    places = [
        TopicPartition(name, number)
        for name in counts.keys() - set(names)
        for number in range(counts[name])
    ]
    return sorted({tp.topic for tp in await target.committed(config.position_group, places)})


def other_copies_text(config: BridgeConfig, topics: Sequence[str], others: Sequence[str]) -> str:
    """Return a text: nothing is copied of these topics, but the bridge has other copies. Pure."""
    return (
        f"nothing is copied of {some_of(topics)}, but bridge {config.name!r} has positions in "
        f"other topics of the target: {some_of(others)}. Give the same rules of topics.rename and "
        "--rename as to its 'bridge run'"
    )


def standstill_text(
    before: Sequence[PartitionProgress], after: Sequence[PartitionProgress], seconds: float
) -> str:
    """Return which partitions are behind and stand still, or "" if there are none. Pure.

    Args:
        before: an earlier result of `read_progress`.
        after: the latest result.
        seconds: the time between both.
    """
    at = {(one.topic, one.partition): one.position for one in before}
    moved = {one for one in after if one.position != at.get((one.topic, one.partition))}
    still = [one for one in after if one.lag and one not in moved]
    if not still:
        return ""
    names = some_of([f"{partition_name(one)} ({one.lag} behind)" for one in still])
    # Only the running bridge knows whether such a partition is stopped or slow.
    is_behind = "is behind and hasn't" if len(still) == 1 else "are behind and haven't"
    named = "name the partitions that are stopped, with the reason"
    return (
        f"{counted(len(still), 'partition')} {is_behind} advanced for {seconds:g} s: {names}. "
        + (
            f"Others have, so 'bridge run' is up: this may pass. Its log and its /healthz {named}"
            if moved
            else f"Is 'bridge run' up? If it is, its log and its /healthz {named}"
        )
    )
