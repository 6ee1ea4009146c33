"""Rules about groups: lag without members, retention that overtakes a group, damage before it.

Pure. A group is in use if it has members, or if it has committed other offsets between the samples:
a consumer that uses `assign()` isn't a member. A group in both stores is in use if it is in one;
and its members may be known of one only, as on 0.8.2, where offsets in Kafka are those of members
in ZooKeeper.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from aiokafka08._tools.doctor.compaction import is_compacted, own_policy
from aiokafka08._tools.doctor.finding import DoctorFinding, FindingCode
from aiokafka08._tools.doctor.places import duration, name_list, place
from aiokafka08._tools.monitoring.cluster_history import ClusterHistory
from aiokafka08._tools.monitoring.cluster_sample import ClusterSample, GroupSample, PartitionSample
from aiokafka08.structs import TopicPartition

HORIZON_S: Final = 24 * 3600.0
"""A group that retention overtakes within this time is a finding."""

NextReadable = Mapping[int, int]
"""Per offset that damage hides the next one that can be read."""


def idle_lag(first: ClusterSample, last: ClusterSample) -> Iterator[DoctorFinding]:
    """Find groups that have lag, but no members, and don't commit."""
    used = _in_use(first, last)
    known = {group.group for group in last.groups if group.members is not None}
    for group in last.groups:
        if group.group in used or group.group not in known:
            continue
        lag = lost = 0
        topics: set[str] = set()
        for tp, offset, start, end in _positions(last, group):
            if end > offset:
                lag += end - offset
                lost += max(start - offset, 0)
                topics.add(tp.topic)
        if not lag:
            continue
        why = f"no members, and {lag:,} offsets behind in {name_list(topics)}. "
        if lost:
            why += f"{lost:,} of them are deleted already. "
        if first is last:
            why += "(A consumer that uses assign() is no member; --watch shows if it commits.) "
        yield DoctorFinding(
            FindingCode.IDLE_GROUP_LAG,
            _where(group),
            why + _losses(last, topics),
            "Start its consumers; or delete the group if it isn't used any more (aiokafka08 group "
            "delete)",
        )


def _losses(cluster: ClusterSample, topics: Collection[str]) -> str:
    """Return what becomes of unread messages of topics, by their own settings.

    Without such a setting a topic has the brokers' default, which is unknown; Kafka's is retention.
    """
    policies = {name: own_policy(cluster, name) for name in topics}
    deleted = {name for name, policy in policies.items() if policy != "compact"}
    compacted = {name for name, policy in policies.items() if "compact" in policy}
    unknown = any(not policies[name] for name in deleted)
    texts = []
    if deleted:
        where = f" of {name_list(deleted)}" if compacted else ""
        unless = " (unless the brokers' cleanup.policy is compact)" if unknown else ""
        texts.append(f"Retention deletes what it hasn't read{where}{unless}")
    if compacted:
        where = f" of {name_list(compacted)}" if compacted != set(topics) else ""
        texts.append(
            f"Compaction removes what it hasn't read{where} where a newer message has the same key"
        )
    return ". ".join(texts)


def overtaken(first: ClusterSample, last: ClusterSample) -> Iterator[DoctorFinding]:
    """Find groups in use whose next message is deleted already."""
    used = _in_use(first, last)
    for group in last.groups:
        for tp, offset, start, _ in _positions(last, group):
            if group.group in used and offset < start:
                yield DoctorFinding(
                    FindingCode.GROUP_OVERTAKEN,
                    _where(group, tp),
                    f"committed {offset:,}, the log begins at {start:,}: {start - offset:,} "
                    "offsets were deleted before the group read them",
                    "Raise the topic's retention.ms and retention.bytes until the group keeps up. "
                    "Its consumers continue by their auto.offset.reset: with latest they also skip "
                    "what is still there",
                )


def near_retention(
    first: ClusterSample, last: ClusterSample, elapsed_s: float
) -> Iterator[DoctorFinding]:
    """Find groups that retention overtakes within `HORIZON_S`.

    Args:
        first, last: the cluster at the beginning and the end of the watch.
        elapsed_s: the seconds in between.
    """
    history = ClusterHistory()
    history.add(0.0, first)
    history.add(elapsed_s, last)
    before = {(group.group, group.store): group.committed for group in first.groups}
    for group in last.groups:
        was = before.get((group.group, group.store), {})
        for tp, offset, start, _ in _positions(last, group):
            sampled, now = first.partition(tp), last.partition(tp)
            if tp not in was or sampled is None or now is None or is_compacted(last, tp.topic):
                continue
            standing_s = history.headroom_s(elapsed_s, tp, offset)
            left_s = seconds_left((was[tp], offset), (sampled, now), standing_s)
            if left_s is None or left_s > HORIZON_S:
                continue
            when = f"in about {duration(left_s)}" if left_s else "with its next deletion"
            yield DoctorFinding(
                FindingCode.RETENTION_NEAR,
                _where(group, tp),
                f"retention overtakes it {when}: {offset - start:,} offsets are left between the "
                "first one in the log and the committed one, and the group is slower than the "
                "writers",
                "Speed the group up, or raise the topic's retention.ms and retention.bytes now",
            )


def seconds_left(
    committed: tuple[int, int],
    partition: tuple[PartitionSample, PartitionSample],
    standing_s: float | None,
) -> float | None:
    """Return the seconds until retention overtakes a group that goes on at its present speed.

    0 means with the next deletion, if it is as large as the one between the samples. None means not
    foreseeable: retention hasn't deleted anything yet, the group keeps up, or it is already in the
    newer half of the log.

    Args:
        committed: the committed offset in the first and in the last sample.
        partition: the partition in these samples.
        standing_s: the seconds if the group stood still, see `PartitionHistory.headroom_s`.
    """
    first, last = partition
    if first.start is None or last.start is None or first.end is None or last.end is None:
        return None
    headroom = committed[1] - last.start
    if not last.start or headroom < 0 or headroom > last.end - committed[1]:
        return None
    if headroom < last.start - first.start:
        return 0.0
    written = last.end - first.end
    gained = written - (committed[1] - committed[0])
    return None if standing_s is None or gained <= 0 else standing_s * written / gained


def beyond_end(first: ClusterSample, last: ClusterSample) -> Iterator[DoctorFinding]:
    """Find groups whose committed offset is after the end of the log, in both samples."""
    before = {(group.group, group.store, tp) for group, tp, _, _ in _beyond(first)}
    for group, tp, offset, end in _beyond(last):
        if (group.group, group.store, tp) in before:
            yield DoctorFinding(
                FindingCode.OFFSET_BEYOND_END,
                _where(group, tp),
                f"committed {offset:,}, the log ends at {end:,}: the topic was created anew, or an "
                "unclean election cut the log. The group misses what is written up to there, or "
                "starts over by its auto.offset.reset",
                "Decide where the group continues (aiokafka08 group reset)",
            )


def hidden_by_damage(
    damaged: Mapping[TopicPartition, NextReadable], cluster: ClusterSample
) -> Iterator[DoctorFinding]:
    """Find groups whose next message is hidden by damage in the log."""
    for group in cluster.groups:
        for tp, offset in sorted(group.committed.items()):
            readable = damaged.get(tp, {}).get(offset)
            if readable is not None:
                yield DoctorFinding(
                    FindingCode.DAMAGED_LOG,
                    _where(group, tp),
                    f"committed {offset:,}: the log is damaged there, and can be read again from "
                    f"{readable:,} on",
                    "Look at the disk of the leader. If a follower has the messages, let it lead; "
                    f"else continue behind the damage (aiokafka08 group reset "
                    f"{shlex.quote(group.group)} "
                    f"--to-offset {readable} --topic {tp.topic}:{tp.partition})",
                )


def _beyond(cluster: ClusterSample) -> Iterator[tuple[GroupSample, TopicPartition, int, int]]:
    for group in cluster.groups:
        for tp, offset, _, end in _positions(cluster, group):
            if offset > end:
                yield group, tp, offset, end


def _positions(
    cluster: ClusterSample, group: GroupSample
) -> Iterator[tuple[TopicPartition, int, int, int]]:
    """Yield partition, committed offset, start and end of the log, where all three are known."""
    for tp, offset in sorted(group.committed.items()):
        partition = cluster.partition(tp)
        if (
            partition is not None
            and partition.start is not None
            and partition.end is not None
            and offset >= 0
        ):
            yield tp, offset, partition.start, partition.end


def _in_use(first: ClusterSample, last: ClusterSample) -> set[str]:
    """Return the names of the groups that have members, or that have committed in between."""
    before = {(group.group, group.store): group.committed for group in first.groups}
    return {
        group.group
        for group in last.groups
        if group.members
        or before.get((group.group, group.store), group.committed) != group.committed
    }


def _where(group: GroupSample, tp: TopicPartition | None = None) -> str:
    name = f"group {group.group!r} ({group.store})"
    return name if tp is None else f"{name}, {place(tp.topic, [tp.partition])}"
