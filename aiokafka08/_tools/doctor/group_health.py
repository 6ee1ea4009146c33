"""Rules about groups: lag without members, retention that overtakes a group, damage at its offset.
Pure.

Invariant: a group in both stores counts once, in each partition by the higher committed offset, as
in `group lag`. It is in use if one of the stores shows members or new commits.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from aiokafka08._core.net.versions import BrokerLine
from aiokafka08._tools.doctor.compaction import is_compacted, own_policy
from aiokafka08._tools.doctor.finding import Finding, FindingCode
from aiokafka08._tools.doctor.places import duration, place
from aiokafka08._tools.monitoring.cluster_history import PartitionHistory
from aiokafka08._tools.monitoring.cluster_sample import (
    ClusterSample,
    GroupSample,
    PartitionSample,
)
from aiokafka08._wording import counted, some_of
from aiokafka08.structs import TopicPartition

# A group that retention overtakes within this time is a finding.
HORIZON_S: Final = 24 * 3600.0

# The next readable offset for each offset that damage hides.
NextReadable = Mapping[int, int]


class _Group:
    """A group in all its stores.

    Attributes:
        name: Its name.
        committed: The highest committed offset by partition.
    """

    def __init__(self, name: str, samples: Sequence[GroupSample]) -> None:
        self.name = name
        self._samples = samples
        # Most groups are in one store. A copy of what a group in all partitions of a large cluster
        # has committed would be large.
        self.committed: Mapping[TopicPartition, int] = samples[0].committed
        for sample in samples[1:]:
            merged = dict(self.committed)
            for tp, offset in sample.committed.items():
                merged[tp] = max(merged.get(tp, offset), offset)
            self.committed = merged

    @property
    def are_members_known(self) -> bool:
        """Whether a store knows its members.

        On 0.8.2 only ZooKeeper does, wherever the offsets are.
        """
        return any(sample.members is not None for sample in self._samples)

    def stores(self, partitions: Collection[TopicPartition]) -> list[str]:
        """Return the stores that have the highest offset of one of the partitions."""
        return sorted(
            sample.store
            for sample in self._samples
            if any(sample.committed.get(tp) == self.committed[tp] for tp in partitions)
        )


def _groups(cluster: ClusterSample) -> list[_Group]:
    samples: dict[str, list[GroupSample]] = {}
    for sample in cluster.groups:
        samples.setdefault(sample.group, []).append(sample)
    return [_Group(name, of_group) for name, of_group in samples.items()]


def idle_lag(first: ClusterSample, last: ClusterSample) -> Iterator[Finding]:
    """Find groups that have lag, but no members, and don't commit."""
    used = _in_use(first, last)
    for group in _groups(last):
        if group.name in used or not group.are_members_known:
            continue
        lag = lost = 0
        behind: set[TopicPartition] = set()
        for tp, offset, start, end in _positions(last, group):
            if end > offset:
                lag += end - offset
                lost += max(start - offset, 0)
                behind.add(tp)
        if not behind:
            continue
        topics = {tp.topic for tp in behind}
        why = f"no members, and {lag:,} offsets behind in {some_of(sorted(topics))}. "
        if lost:
            why += f"{lost:,} of them are deleted already. "
        if first is last:
            why += "(A consumer that uses assign() is no member; --watch shows if it commits.) "
        yield Finding(
            FindingCode.IDLE_GROUP_LAG,
            _where(group, behind),
            why + _losses(last, topics),
            "Start its consumers; or delete the group if it isn't used any more (aiokafka08 group "
            "delete). Brokers show a group that was just deleted for up to 10 minutes",
        )


def unknown_members(
    first: ClusterSample, last: ClusterSample, *, asks_zookeeper: bool
) -> Iterator[Finding]:
    """Find groups with lag for which no store shows whether they have members."""
    used = _in_use(first, last)
    lags = {
        group.name: sum(max(end - offset, 0) for _, offset, _, end in _positions(last, group))
        for group in _groups(last)
        if group.name not in used and not group.are_members_known
    }
    names = [f"{name!r} ({lag:,} offset{'s' * (lag != 1)})" for name, lag in lags.items() if lag]
    if not names:
        return
    lines = [one.version.line for one in last.brokers.values() if one.version is not None]
    if asks_zookeeper or (lines and min(lines) >= BrokerLine.V0_9):
        action = "See the finding 'unreadable', which says why their members weren't read"
    else:
        action = (
            "Give --zookeeper host:2181/chroot: the members of groups on 0.8 are there only. "
            "Without it --watch shows which groups commit"
        )
    have = "it has" if len(names) == 1 else "they have"
    yield Finding(
        FindingCode.UNCHECKED,
        counted(len(names), "group"),
        f"behind, and whether {have} members isn't known: {some_of(sorted(names))}",
        action,
    )


def _losses(cluster: ClusterSample, topics: Collection[str]) -> str:
    """Return a text on what happens to unread messages, by the topics' own settings."""
    policies = {name: own_policy(cluster, name) for name in topics}
    deleted = {name for name, policy in policies.items() if policy != "compact"}
    compacted = {name for name, policy in policies.items() if "compact" in policy}
    # Without a policy of its own a topic has the brokers' default, which no request returns.
    unknown = any(not policies[name] for name in deleted)
    texts = []
    if deleted:
        where = f" of {some_of(sorted(deleted))}" if compacted else ""
        unless = " (unless the brokers' cleanup.policy is compact)" if unknown else ""
        texts.append(f"Retention deletes what it hasn't read{where}{unless}")
    if compacted:
        where = f" of {some_of(sorted(compacted))}" if compacted != set(topics) else ""
        texts.append(
            f"Compaction removes what it hasn't read{where} where a newer message has the same key"
        )
    return ". ".join(texts)


def overtaken(first: ClusterSample, last: ClusterSample) -> Iterator[Finding]:
    """Find groups in use whose next message is deleted already."""
    used = _in_use(first, last)
    for group in _groups(last):
        if group.name not in used:
            continue
        behind = (one for one in _positions(last, group) if one.offset < one.start)
        for tp, offset, start, _ in sorted(behind):
            yield Finding(
                FindingCode.GROUP_OVERTAKEN,
                _place(group, tp),
                f"committed {offset:,}, the log begins at {start:,}: {start - offset:,} "
                "offsets were deleted before the group read them",
                "Raise the topic's retention.ms and retention.bytes until the group keeps up. "
                "Its consumers continue by their auto.offset.reset: with latest they also skip "
                "what is still there",
            )


def near_retention(
    first: ClusterSample, last: ClusterSample, elapsed_s: float
) -> Iterator[Finding]:
    """Find groups that retention overtakes within `HORIZON_S`.

    `elapsed_s` are the seconds between the two samples.
    """
    before = {group.name: group.committed for group in _groups(first)}
    for group in _groups(last):
        was = before.get(group.name, {})
        # Where the log begins at 0, retention hasn't deleted anything yet.
        begun = (one for one in _positions(last, group) if one.start)
        for tp, offset, start, _ in sorted(begun):
            sampled, now = first.partition(tp), last.partition(tp)
            if tp not in was or sampled is None or now is None or is_compacted(last, tp.topic):
                continue
            history = PartitionHistory()
            for at, one in ((0.0, sampled), (elapsed_s, now)):
                if one.start is not None and one.end is not None:
                    history.add(at, one.start, one.end)
            standing_s = history.headroom_s(elapsed_s, offset)
            left_s = seconds_left((was[tp], offset), (sampled, now), standing_s)
            if left_s is None or left_s > HORIZON_S:
                continue
            when = f"in about {duration(left_s)}" if left_s else "with its next deletion"
            yield Finding(
                FindingCode.RETENTION_NEAR,
                _place(group, tp),
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
    """Return the seconds until retention overtakes a group that continues at its present speed.

    None if it isn't foreseeable.

    Args:
        committed: the committed offset in the first and in the last sample.
        partition: the partition in these samples.
        standing_s: the seconds if the group stood still, see `PartitionHistory.headroom_s`.
    """
    first, last = partition
    if first.start is None or last.start is None or first.end is None or last.end is None:
        return None
    headroom = committed[1] - last.start
    # Retention hasn't deleted anything yet, or it has overtaken the group already, or the group is
    # in the newer half of the log.
    if not last.start or headroom < 0 or headroom > last.end - committed[1]:
        return None
    # The next deletion may be as large as the one between the samples.
    if headroom < last.start - first.start:
        return 0.0
    written = last.end - first.end
    gained = written - (committed[1] - committed[0])
    return None if standing_s is None or gained <= 0 else standing_s * written / gained


def beyond_end(first: ClusterSample, last: ClusterSample) -> Iterator[Finding]:
    """Find groups whose committed offset is after the end of the log, in both samples."""
    before = {(group.name, tp) for group, tp, _, _ in _beyond(first)}
    for group, tp, offset, end in _beyond(last):
        # A sample's parts are from different moments, so one sample alone may show an offset after
        # the end.
        if (group.name, tp) in before:
            yield Finding(
                FindingCode.OFFSET_BEYOND_END,
                _place(group, tp),
                f"committed {offset:,}, the log ends at {end:,}: the topic was created anew, or an "
                "unclean election cut the log. The group misses what is written up to there, or "
                "starts over by its auto.offset.reset",
                "Decide where the group continues (aiokafka08 group reset)",
            )


def hidden_by_damage(
    damaged: Mapping[TopicPartition, NextReadable], cluster: ClusterSample
) -> Iterator[Finding]:
    """Find groups whose next message is hidden by damage in the log."""
    for group in _groups(cluster):
        for tp in sorted(damaged.keys() & group.committed.keys()):
            offset = group.committed[tp]
            readable = damaged[tp].get(offset)
            if readable is not None:
                yield Finding(
                    FindingCode.DAMAGED_LOG,
                    _place(group, tp),
                    f"committed {offset:,}: the log is damaged there, and can be read again from "
                    f"{readable:,} on",
                    "Look at the disk of the leader. If a follower has the messages, let it lead; "
                    f"else continue behind the damage (aiokafka08 group reset "
                    f"{shlex.quote(group.name)} "
                    f"--to-offset {readable} --topic {tp.topic}:{tp.partition})",
                )


def _beyond(cluster: ClusterSample) -> Iterator[tuple[_Group, TopicPartition, int, int]]:
    for group in _groups(cluster):
        beyond = (one for one in _positions(cluster, group) if one.offset > one.end)
        for tp, offset, _, end in sorted(beyond):
            yield group, tp, offset, end


class _CommittedPosition(NamedTuple):
    """A committed offset, and the start and the end of the log."""

    tp: TopicPartition
    offset: int
    start: int
    end: int


def _positions(cluster: ClusterSample, group: _Group) -> Iterator[_CommittedPosition]:
    """Yield the positions of which all is known, in any order."""
    for tp, offset in group.committed.items():
        partition = cluster.partition(tp)
        if (
            partition is not None
            and partition.start is not None
            and partition.end is not None
            and offset >= 0
        ):
            yield _CommittedPosition(tp, offset, partition.start, partition.end)


def _in_use(first: ClusterSample, last: ClusterSample) -> set[str]:
    """Return the names of the groups that have members, or have committed between the samples."""
    # A consumer that uses `assign()` isn't a member.
    before = {(group.group, group.store): group.committed for group in first.groups}
    return {
        group.group
        for group in last.groups
        if group.members
        or before.get((group.group, group.store), group.committed) != group.committed
    }


def _where(group: _Group, partitions: Collection[TopicPartition]) -> str:
    """Return the group, and the stores that have its offsets of these partitions."""
    return f"group {group.name!r} ({', '.join(group.stores(partitions))})"


def _place(group: _Group, tp: TopicPartition) -> str:
    return f"{_where(group, [tp])}, {place(tp.topic, [tp.partition])}"
