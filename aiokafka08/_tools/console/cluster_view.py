"""`ClusterView`: the rows of the console's pages, made of a sample. Pure.

`watch` makes one of each sample, in a thread; `pages` shows it. Its rows of lag are those of
`aiokafka08 group lag` (`admin.group_lag`), so that both have the same numbers.

Invariant: a number that isn't known is None, never a guess, and a total that lacks a part is None
or names how many parts it lacks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from aiokafka08._core.net.cluster import INTERNAL_TOPICS
from aiokafka08._tools.console.point_history import PointHistory
from aiokafka08._tools.doctor.brokers import releases_of
from aiokafka08._tools.doctor.examination import Examination, examine
from aiokafka08._tools.doctor.finding import Finding, FindingCode
from aiokafka08._tools.monitoring.cluster_history import ClusterHistory
from aiokafka08._tools.monitoring.cluster_sample import (
    BrokerSample,
    ClusterSample,
    GroupSample,
    PartitionSample,
    TopicSample,
)
from aiokafka08.admin.group_description import assigned_partitions
from aiokafka08.admin.group_lag import GroupStore, PartitionOwner, StoredOffsets, lag_rows
from aiokafka08.structs import OffsetAndMetadata, TopicPartition

_TOPIC_POINTS: Final = 120
_GROUP_POINTS: Final = 360
_DAY_MINUTES: Final = 1440
_KEPT_S: Final = 3600.0
"""For how long what a sample with gaps lacks is kept: it may be gone, or not read."""


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """A broker; `error` says why it doesn't respond, None if it does."""

    node: int
    address: str
    release: str | None
    controller: bool | None
    leaders: int
    replicas: int
    out_of_sync: int
    error: str | None


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic. `messages` is the number of offsets in its logs: compaction leaves gaps in them.

    `messages_per_s` is at least so much if `rate_lacks` isn't 0: the number of partitions that it
    lacks.
    """

    topic: str
    partitions: int
    replicas: int
    leaderless: int
    under_replicated: int
    messages: int | None
    messages_per_s: float | None
    rate_lacks: int
    groups: int
    config: Mapping[str, str] | None
    internal: bool
    marked_for_deletion: bool


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """A partition of a topic."""

    partition: int
    leader: int | None
    replicas: Sequence[int]
    in_sync: Sequence[int]
    under_replicated: bool
    preferred: bool
    first: int | None
    end: int | None
    messages: int | None


@dataclass(frozen=True, slots=True)
class LagRow:
    """How far a group is behind on one partition, as a row of `aiokafka08 group lag`.

    `lag_s` says how long the next message has been waiting; with `lag_s_is_least` at least so long.
    `deleted` is how many offsets retention took before the group read them.
    """

    group: str
    store: str
    topic: str
    partition: int
    committed: int | None
    first: int | None
    end: int | None
    lag: int | None
    lag_s: float | None
    lag_s_is_least: bool
    deleted: int
    member: str | None


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A member of a group; client id and host are empty for groups in ZooKeeper."""

    member: str
    client_id: str
    host: str
    partitions: Sequence[str]


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group in one store.

    `lag` is the sum of what is still to read where it is known; `unknown` counts the partitions
    where it isn't, though they have messages. `state` and `members` are None if the store can't
    tell. `read_at` is when the row was read, in seconds since the epoch, if the sample lacks the
    group because of a gap; None if the sample has it.
    """

    group: str
    store: str
    state: str | None
    members: int | None
    topics: Sequence[str]
    partitions: int
    lag: int | None
    unknown: int
    beyond_end: int
    lag_s: float | None
    lag_s_is_least: bool
    read_at: float | None = None


GroupKey = tuple[str, str]
"""The name and the store of a group."""


class LagSum(NamedTuple):
    """Which partitions the newest point of a group's lag is the sum of.

    Attributes:
        partitions: they.
        since: the time of the first point of just these.
        at: the time of the newest point.
    """

    partitions: frozenset[TopicPartition]
    since: float
    at: float


@dataclass(slots=True)
class Histories:
    """Values over time, of what the last view names, and for an hour of what a gap may hide."""

    produced: PointHistory = field(
        default_factory=lambda: PointHistory(_GROUP_POINTS, _DAY_MINUTES)
    )
    topics: dict[str, PointHistory] = field(default_factory=dict)
    groups: dict[GroupKey, PointHistory] = field(default_factory=dict)
    group_topics: dict[tuple[str, str, str], PointHistory] = field(default_factory=dict)
    sums: dict[GroupKey, LagSum] = field(default_factory=dict)

    def lag_per_s(self, key: GroupKey, now: float, window_s: float) -> float | None:
        """Return how fast a group's lag grows; None unless points of the same partitions say so."""
        last = self.sums.get(key)
        if last is None or last.at != now:
            return None
        return self.groups[key].slope(now, min(window_s, now - last.since))


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What the pages show of one sample.

    Attributes:
        sample: the sample itself.
        taken_at: when it was taken, in seconds since the epoch.
        topics, groups: by name, and by name and store.
        lags: the rows of each group.
        summed: the partitions whose lag is known, of each group that the sample has.
        findings: those of the doctor's rules that a sample is enough for.
        messages_per_s: produced messages of all topics but internal ones; None after one sample,
            and if a partition is missing that the sample before had.
        rate_lacks: the number of partitions that it lacks: it is at least so much.
    """

    sample: ClusterSample
    taken_at: float
    topics: Mapping[str, TopicRow]
    groups: Mapping[GroupKey, GroupRow]
    lags: Mapping[GroupKey, Sequence[LagRow]]
    summed: Mapping[GroupKey, frozenset[TopicPartition]]
    findings: Sequence[Finding]
    messages_per_s: float | None
    rate_lacks: int

    def partitions(self, topic: str) -> list[PartitionRow]:
        """Return the partitions of a topic that exists."""
        numbered = sorted(self.sample.topics[topic].partitions.items())
        return [_partition_row(number, one) for number, one in numbered]

    def brokers(self, named: Iterable[BrokerSample]) -> list[BrokerRow]:
        """Return a row for each of these brokers, by node id."""
        leaders: Counter[int | None] = Counter()
        replicas: Counter[int] = Counter()
        missing: Counter[int] = Counter()
        for _, partition in self.sample.partitions():
            leaders[partition.leader] += 1
            replicas.update(partition.all_replicas)
            missing.update(set(partition.all_replicas) - set(partition.in_sync))
        controller = self.sample.controller
        releases = releases_of(self.sample)
        return [
            BrokerRow(
                one.node_id,
                one.address,
                releases.get(one.node_id) if one.error is None else None,
                None if controller is None else one.node_id == controller,
                leaders[one.node_id],
                replicas[one.node_id],
                missing[one.node_id],
                one.error,
            )
            for one in sorted(named, key=lambda one: one.node_id)
        ]

    def members(self, key: GroupKey) -> list[MemberRow]:
        """Return the members of a group that the view has."""
        for group in self.sample.groups:
            if (group.group, group.store) == key and group.description is not None:
                return [
                    MemberRow(
                        member.member_id,
                        member.client_id,
                        member.client_host,
                        [
                            f"{tp.topic}/{tp.partition}"
                            for tp in sorted(assigned_partitions(member.member_assignment))
                        ],
                    )
                    for member in group.description.members
                ]
        return []

    def groups_of(self, topic: str) -> list[LagRow]:
        """Return the rows of all groups on a topic."""
        return [row for key in sorted(self.lags) for row in self.lags[key] if row.topic == topic]


def view_of(
    sample: ClusterSample,
    before: tuple[float, ClusterSample] | None,
    watched: tuple[float, ClusterSample] | None,
    history: ClusterHistory,
    now: float,
    wall_s: float,
    *,
    has_zookeeper: bool,
    last: ClusterView | None = None,
) -> ClusterView:
    """Return the view of a sample.

    Args:
        sample: the sample.
        before: the sample before it, with its time; None: there is none.
        watched: an earlier sample, with which the doctor's rules compare; None: there is none.
        history: of the cluster; it has the sample already.
        now: when the sample was taken, by the history's clock.
        wall_s: the same in seconds since the epoch.
        has_zookeeper: whether ZooKeeper's address is known.
        last: the view of the sample before; of it come the groups that a gap hides.
    """
    rates = _rates(sample, before, now)
    lags = _lags(sample, history, now)
    summed = {
        key: frozenset(
            TopicPartition(row.topic, row.partition) for row in rows if row.lag is not None
        )
        for key, rows in lags.items()
    }
    groups = {
        (one.group, one.store): _group_row(one, lags[one.group, one.store]) for one in sample.groups
    }
    if sample.errors and last is not None:
        for key, old in last.groups.items():
            read_at = last.taken_at if old.read_at is None else old.read_at
            if key not in groups and wall_s - read_at < _KEPT_S:
                groups[key], lags[key] = replace(old, read_at=read_at), last.lags[key]
    readers: dict[str, set[str]] = defaultdict(set)
    for (group, _), rows in lags.items():
        for row in rows:
            if row.committed is not None or row.member is not None:
                readers[row.topic].add(group)
    first_at, first = watched or (now, sample)
    seen = Examination(first, sample, now - first_at, has_zookeeper, releases_of(sample))
    findings = [
        # Without a second sample this would be about an option of the command.
        one
        for one in examine(seen)
        if seen.is_watched or one.code is not FindingCode.UNCHECKED
    ]
    produced = _total_rate(sample, before, rates)
    return ClusterView(
        sample,
        wall_s,
        {
            name: _topic_row(name, topic, rates[name], len(readers[name]))
            for name, topic in sorted(sample.topics.items())
        },
        dict(sorted(groups.items())),
        lags,
        summed,
        findings,
        produced.per_s,
        produced.lacks,
    )


def add_to_histories(histories: Histories, view: ClusterView) -> None:
    """Add the values of a view, and forget what is gone.

    A sum that lacks a partition which the point before has is no point: it would look as if the
    group had caught up, or nothing were written.
    """
    at = view.taken_at
    if view.messages_per_s is not None:
        histories.produced.add(at, view.messages_per_s)

    def may_be_hidden(points: PointHistory) -> bool:
        return bool(view.sample.errors) and at - (points.last_at or 0.0) < _KEPT_S

    topics = {
        name: points
        for name, points in histories.topics.items()
        if name in view.topics or may_be_hidden(points)
    }
    for name, topic in view.topics.items():
        points = topics[name] = topics.get(name) or PointHistory(_TOPIC_POINTS)
        if topic.messages_per_s is not None:
            points.add(at, topic.messages_per_s)
    histories.topics = topics
    by_group: dict[GroupKey, PointHistory] = {}
    named = {(*key, topic) for key, group in view.groups.items() for topic in group.topics}
    by_topic = {
        one: points
        for one, points in histories.group_topics.items()
        if one in named or (one[:2] in view.groups and may_be_hidden(points))
    }
    totals = {key: last for key, last in histories.sums.items() if key in view.groups}
    for key, group in view.groups.items():
        points = histories.groups.get(key) or PointHistory(_GROUP_POINTS, _DAY_MINUTES)
        by_group[key] = points
        if group.read_at is not None:
            continue
        last = totals.get(key)
        unread = set() if last is None else _unread(view, key, last)
        if group.lag is not None and not unread:
            points.add(at, group.lag)
            is_same = last is not None and last.partitions == view.summed[key]
            totals[key] = LagSum(view.summed[key], last.since if last and is_same else at, at)
        sums: dict[str, int] = {}
        for row in view.lags[key]:
            if row.lag is not None:
                sums[row.topic] = sums.get(row.topic, 0) + max(row.lag, 0)
        for name in sums.keys() - {tp.topic for tp in unread}:
            one = (*key, name)
            if one not in by_topic:
                by_topic[one] = PointHistory(_GROUP_POINTS, _DAY_MINUTES)
            by_topic[one].add(at, sums[name])
    histories.groups, histories.group_topics, histories.sums = by_group, by_topic, totals


def _unread(view: ClusterView, key: GroupKey, last: LagSum) -> set[TopicPartition]:
    """Return the partitions of a group's last point that aren't known now, but may be there."""
    missing = last.partitions - view.summed[key]
    if not missing or view.taken_at - last.at >= _KEPT_S:
        return set()
    if view.sample.errors:
        return set(missing)
    committed = {
        TopicPartition(row.topic, row.partition)
        for row in view.lags[key]
        if row.committed is not None
    }
    return {tp for tp in missing & committed if view.sample.partition(tp) is not None}


class _Rate(NamedTuple):
    """Messages per second; at least so many, if it `lacks` partitions.

    `is_cut` says that a partition is missing which the sample before had; then it isn't known.
    """

    per_s: float | None
    lacks: int
    is_cut: bool = False


def _rates(
    sample: ClusterSample, before: tuple[float, ClusterSample] | None, now: float
) -> dict[str, _Rate]:
    """Return how many messages a second were written to each topic since the sample before."""
    if before is None or before[0] >= now:
        return {name: _Rate(None, len(one.partitions)) for name, one in sample.topics.items()}
    then, earlier = before
    return {
        name: _rate(topic, earlier.topics.get(name), now - then)
        for name, topic in sample.topics.items()
    }


def _rate(topic: TopicSample, old: TopicSample | None, seconds: float) -> _Rate:
    if old is None:
        return _Rate(None, len(topic.partitions))
    grown = []
    is_cut = False
    for number, was in old.partitions.items():
        if was.end is None:
            continue
        partition = topic.partitions.get(number)
        if partition is None or partition.end is None:
            is_cut = True
        else:
            grown.append(max(partition.end - was.end, 0))
    is_known = bool(grown) and not is_cut
    lacks = len(topic.partitions) - len(grown)
    return _Rate(sum(grown) / seconds if is_known else None, lacks, is_cut)


def _total_rate(
    sample: ClusterSample,
    before: tuple[float, ClusterSample] | None,
    rates: Mapping[str, _Rate],
) -> _Rate:
    """Return the rate of all topics but internal ones."""
    counted = [rate for name, rate in rates.items() if name not in INTERNAL_TOPICS]
    lacks = sum(rate.lacks for rate in counted)
    is_cut = any(rate.is_cut for rate in counted)
    if before is not None and sample.errors:
        is_cut |= bool(before[1].topics.keys() - sample.topics.keys())
    known = [rate.per_s for rate in counted if rate.per_s is not None]
    return _Rate(sum(known) if known and not is_cut else None, lacks, is_cut)


def _topic_row(name: str, topic: TopicSample, rate: _Rate, groups: int) -> TopicRow:
    partitions = topic.partitions.values()
    counts = [_messages(one) for one in partitions]
    known = [count for count in counts if count is not None]
    return TopicRow(
        name,
        len(partitions),
        max((len(one.all_replicas) for one in partitions), default=0),
        sum(one.leader is None for one in partitions),
        sum(one.is_under_replicated for one in partitions),
        sum(known) if len(known) == len(counts) else None,
        rate.per_s,
        rate.lacks,
        groups,
        topic.config,
        name in INTERNAL_TOPICS,
        topic.is_marked,
    )


def _partition_row(number: int, one: PartitionSample) -> PartitionRow:
    return PartitionRow(
        number,
        one.leader,
        one.all_replicas,
        one.in_sync,
        one.is_under_replicated,
        one.has_preferred_leader,
        one.start,
        one.end,
        _messages(one),
    )


def _messages(partition: PartitionSample) -> int | None:
    if partition.start is None or partition.end is None:
        return None
    return partition.end - partition.start


def _lags(
    sample: ClusterSample, history: ClusterHistory, now: float
) -> dict[GroupKey, Sequence[LagRow]]:
    by_name: dict[str, list[GroupSample]] = defaultdict(list)
    for group in sample.groups:
        by_name[group.group].append(group)
    lags: dict[GroupKey, list[LagRow]] = {(one.group, one.store): [] for one in sample.groups}
    begin = history.begin()
    for name, stores in by_name.items():
        owners = _owners(stores)
        stored = [
            StoredOffsets(
                name,
                _store(one),
                {tp: OffsetAndMetadata(at, "") for tp, at in one.committed.items()},
            )
            for one in stores
        ]
        topics = {tp.topic for one in stores for tp in one.committed}
        ends = {
            TopicPartition(topic, number): partition.end
            for topic in topics
            if topic in sample.topics
            for number, partition in sample.topics[topic].partitions.items()
        }
        ends |= {
            tp: None if (found := sample.partition(tp)) is None else found.end for tp in owners
        }
        for row in lag_rows(stored, ends, {name: owners}):
            tp = TopicPartition(row.topic, row.partition)
            partition = sample.partition(tp)
            first = None if partition is None else partition.start
            lag_s = None
            if row.committed is not None and row.lag is not None:
                lag_s = history.lag_s(now, tp, row.committed)
            lags[name, row.store].append(
                LagRow(
                    name,
                    row.store,
                    row.topic,
                    row.partition,
                    row.committed,
                    first,
                    row.end,
                    row.lag,
                    lag_s,
                    bool(lag_s) and begin is not None and (lag_s or 0.0) >= now - begin,
                    0 if first is None or row.committed is None else max(first - row.committed, 0),
                    row.member,
                )
            )
    return dict(lags)


def _store(group: GroupSample) -> GroupStore:
    return "kafka" if group.store == "kafka" else "zookeeper"


def _owners(stores: Iterable[GroupSample]) -> dict[TopicPartition, PartitionOwner]:
    owners: dict[TopicPartition, PartitionOwner] = {}
    for group in stores:
        if group.description is None:
            continue
        for member in group.description.members:
            owner = PartitionOwner(member.member_id, _store(group))
            for tp in assigned_partitions(member.member_assignment):
                owners.setdefault(tp, owner)
    return owners


class LagTotal(NamedTuple):
    """The sum of rows of lag, as the fields of `GroupRow`."""

    lag: int | None
    unknown: int
    lag_s: float | None
    lag_s_is_least: bool


def total_of(rows: Iterable[LagRow]) -> LagTotal:
    """Return the sum of what is still to read, and how long the slowest partition waits."""
    rows = list(rows)
    known = [row for row in rows if row.lag is not None]
    unknown = sum(row.lag is None and row.end != 0 for row in rows)
    waiting = [row for row in known if row.lag_s is not None]
    slowest = max(waiting, key=lambda row: row.lag_s or 0.0, default=None)
    return LagTotal(
        sum(max(row.lag or 0, 0) for row in known) if known or not unknown else None,
        unknown,
        None if slowest is None else slowest.lag_s,
        slowest is not None and slowest.lag_s_is_least,
    )


def _group_row(group: GroupSample, rows: Sequence[LagRow]) -> GroupRow:
    total = total_of(rows)
    state = None if group.members is None else "Empty"
    if group.description is not None:
        # To the coordinators of 0.9 a group without members is dead, whatever it has committed.
        is_dead = group.description.state == "Dead"
        state = "Empty" if is_dead else group.description.state
    return GroupRow(
        group.group,
        group.store,
        state,
        None if group.members is None else len(group.members),
        sorted({row.topic for row in rows}),
        len(rows),
        total.lag,
        total.unknown,
        sum((row.lag or 0) < 0 for row in rows),
        total.lag_s,
        total.lag_s_is_least,
    )
