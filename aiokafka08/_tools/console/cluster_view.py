"""`ClusterView`: the rows of the console's pages, made of a sample. Pure.

`watch` makes a view of each sample, in a thread; `pages` shows it. The rows of lag are those of
`aiokafka08 group lag` (`admin.group_lag`), so that both have the same numbers; `lag_table` keeps
them.

Invariant: a number that isn't known is None, never a guess, and a total that lacks a part is None
or names how many parts it lacks.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import (
    Callable,
    Collection,
    Generator,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar

from aiokafka08._core.concurrency.loop_yield import STEP_ITEMS, finish_steps
from aiokafka08._core.net.cluster import INTERNAL_TOPICS
from aiokafka08._tools.console.lag_table import KnownLags, LagRow, LagTable, deleted_of, is_least
from aiokafka08._tools.doctor.brokers import releases_of
from aiokafka08._tools.doctor.examination import Examination, examine
from aiokafka08._tools.doctor.finding import Finding, FindingCode
from aiokafka08._tools.monitoring.cluster_history import ClusterHistory
from aiokafka08._tools.monitoring.cluster_sample import (
    BrokerSample,
    ClusterSample,
    GroupSample,
    TopicSample,
)
from aiokafka08._tools.monitoring.point_history import PointHistory
from aiokafka08.admin.group_description import assigned_partitions, member_row
from aiokafka08.admin.group_lag import PartitionOwner, StoredOffsets, lag_rows
from aiokafka08.structs import OffsetAndMetadata, TopicPartition

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")

_Roles = tuple[int | None, tuple[int, ...], tuple[int, ...], tuple[int, ...]]

_TOPIC_POINTS: Final = 120, 0
_GROUP_POINTS: Final = 360, 1440
_POINTS: Final = 600_000
"""How many points all topics have, all groups, and all groups by topic. If there are many, each has
fewer, but `_LEAST_POINTS` at least."""
_LEAST_POINTS: Final = 20
_KEPT_S: Final = 3600.0
"""How long to keep a group or history that a sample with gaps (`ClusterSample.errors`) lacks.

It may have been deleted, or a request for it may have failed.
"""

GroupKey = tuple[str, str]
"""The name and the store of a group."""
TimedSample = tuple[float, ClusterSample]
"""A sample, and when it was taken, by the clock of the `ClusterHistory`."""


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic.

    `messages` is the number of offsets in its logs; after compaction they have fewer messages.
    `under_replicated` is None if an ISR may be stale (`PartitionSample.perhaps_in_sync`).
    `rate_lacks` is the number of partitions that `messages_per_s` lacks. If it isn't 0, the true
    rate may be higher.
    """

    topic: str
    partitions: int
    replicas: int
    leaderless: int
    under_replicated: int | None
    messages: int | None
    groups: int
    config: Mapping[str, str] | None
    internal: bool
    marked_for_deletion: bool
    messages_per_s: float | None
    rate_lacks: int


class LagTotal(NamedTuple):
    """The sum of the known lags of a group's partitions, and the longest wait in seconds.

    `unknown` counts the partitions whose lag isn't known, without those known to be empty.
    """

    lag: int | None
    unknown: int
    lag_s: float | None
    lag_s_is_least: bool


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group in one store, with the fields of `LagTotal`.

    `state` and `members` are None if the store can't tell. `read_at` is when the row was read, in
    seconds since the epoch, if the sample lacks the group because of a gap; else None.
    """

    group: str
    store: str
    state: str | None
    members: int | None
    topics: Sequence[str]
    partitions: int
    beyond_end: int
    lag: int | None
    unknown: int
    lag_s: float | None
    lag_s_is_least: bool
    read_at: float | None = None


class _Rate(NamedTuple):
    """Messages per second; the true rate may be higher if `lacks`, a number of partitions, isn't 0.

    `is_cut` says that a partition of the sample before is missing. `per_s` is None then.
    """

    per_s: float | None
    lacks: int
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The rows and numbers that the pages show of one sample.

    Attributes:
        sample: the sample itself.
        taken_at: when it was taken, in seconds since the epoch.
        topics: the rows of the topics, by name.
        groups: the rows of the groups, by name and store.
        lags: the `LagRow`s of each group.
        roles: how many partitions have the same leader, replicas, ISR, and replicas that only a
            possibly stale ISR lacks.
        findings: the findings of the doctor's rules that need only samples.
        messages_per_s: produced messages of all topics but internal ones; None after one sample,
            and if a partition is missing that the sample before had.
        rate_lacks: the number of partitions that `messages_per_s` lacks. If it isn't 0, the true
            rate may be higher.
        has_order: whether Metadata lists the preferred leader first, and doesn't sort the replicas
            by id.
    """

    sample: ClusterSample
    taken_at: float
    topics: Mapping[str, TopicRow]
    groups: Mapping[GroupKey, GroupRow]
    lags: Mapping[GroupKey, LagTable]
    roles: Mapping[_Roles, int]
    findings: Sequence[Finding]
    messages_per_s: float | None
    rate_lacks: int
    has_order: bool

    def partitions(self, topic: str) -> list[dict[str, Any]]:
        """Return the rows of the partitions of a topic that exists."""
        return [
            {
                "partition": number,
                "leader": one.leader,
                "replicas": one.all_replicas,
                "in_sync": one.in_sync,
                "under_replicated": one.is_under_replicated,
                "preferred": (one.has_preferred_leader if self.has_order or one.assigned else None),
                "first": one.start,
                "end": one.end,
                "messages": one.messages,
            }
            for number, one in sorted(self.sample.topics[topic].partitions.items())
        ]

    def brokers(self, named: Iterable[BrokerSample]) -> list[dict[str, Any]]:
        """Return the rows of these brokers, by node id; `error` is None for a broker that responds.

        `out_of_sync` is None if an ISR that lacks the broker may be stale.
        """
        leaders: Counter[int | None] = Counter()
        replicas: Counter[int] = Counter()
        missing: Counter[int] = Counter()
        unknown: set[int] = set()
        for (leader, assigned, in_sync, perhaps), count in self.roles.items():
            leaders[leader] += count
            for node in assigned:
                replicas[node] += count
            for node in set(assigned).difference(in_sync, perhaps):
                missing[node] += count
            unknown.update(perhaps)
        controller = self.sample.controller
        # The lines of 0.8 aren't told apart: that would take requests to each broker.
        releases = {
            node_id: "0.8.x" if release == "0.8" else release
            for node_id, release in releases_of(self.sample).items()
        }
        return [
            {
                "node": node,
                "address": one.address,
                "release": releases.get(node) if one.error is None else None,
                "controller": None if controller is None else node == controller,
                "leaders": leaders[node],
                "replicas": replicas[node],
                "out_of_sync": None if node in unknown else missing[node],
                "error": one.error,
            }
            for node, one in sorted((one.node_id, one) for one in named)
        ]

    def members(self, key: GroupKey) -> list[dict[str, Any]]:
        """Return the rows of a group's members; in ZooKeeper these have no client id and host."""
        return [
            member_row(member)
            for group in self.sample.groups
            if (group.group, group.store) == key and group.description is not None
            for member in group.description.members
        ]

    def groups_of(self, topic: str) -> list[LagRow]:
        """Return the rows of all groups on a topic."""
        return [row for key in sorted(self.lags) for row in self.lags[key].of_topic(topic)]


class LagSum(NamedTuple):
    """The partitions whose lags the newest point of a group's history sums up.

    Attributes:
        known: the partitions.
        since: the time of the first of the points that sum up exactly these partitions.
        at: the time of the newest point.
    """

    known: KnownLags
    since: float
    at: float


@dataclass(slots=True)
class Histories:
    """Values over time, by topic and by group.

    If a view lacks a topic or group, and its sample has gaps, the history is kept for an hour.

    Invariant: a sum isn't added if it lacks a partition that the last point has and that may still
    exist, unless that point is an hour old. It would look as if the group had caught up, or nothing
    were written.
    """

    produced: PointHistory = field(default_factory=lambda: PointHistory(*_GROUP_POINTS))
    topics: Mapping[str, PointHistory] = field(default_factory=dict)
    groups: Mapping[GroupKey, PointHistory] = field(default_factory=dict)
    group_topics: Mapping[GroupKey, Mapping[str, PointHistory]] = field(default_factory=dict)
    sums: Mapping[GroupKey, LagSum] = field(default_factory=dict)
    # How many points a history of `topics`, `groups` and `group_topics` keeps.
    _sizes: tuple[tuple[int, int], ...] = (_TOPIC_POINTS, _GROUP_POINTS, _GROUP_POINTS)

    def lag_per_s(self, key: GroupKey, now: float, window_s: float) -> float | None:
        """Return how fast a group's lag grows; None without points of the same partitions."""
        last = self.sums.get(key)
        if last is None or last.at != now:
            return None
        return self.groups[key].slope(now, min(window_s, now - last.since))

    def add(self, view: ClusterView) -> None:
        """Add the values of a view, and drop the histories of deleted topics and groups."""
        finish_steps(self.add_in_steps(view))

    def add_in_steps(self, view: ClusterView) -> Generator[None, None, None]:
        """Do the same as `add`, as a generator that yields now and then.

        Until its end, there is a history of each topic and group of the view before.
        """
        at = view.taken_at
        oldest = at - _KEPT_S if view.sample.errors else at
        sizes = (
            _share(_TOPIC_POINTS, len(view.topics)),
            _share(_GROUP_POINTS, len(view.groups)),
            _share(_GROUP_POINTS, sum(len(row.topics) for row in view.groups.values())),
        )
        topics = _kept(self.topics, view.topics, oldest, *sizes[0])
        groups = _kept(self.groups, view.groups, oldest, *sizes[1])
        group_topics: dict[GroupKey, Mapping[str, PointHistory]] = {}
        sums: dict[GroupKey, LagSum] = {}
        yield
        for key in self.group_topics.keys() | view.groups.keys():
            named = view.groups[key].topics if key in view.groups else ()
            group_topics[key] = _kept(self.group_topics.get(key, {}), named, oldest, *sizes[2])
            yield
        if sizes != self._sizes:
            kept_sizes: list[tuple[Mapping[Any, PointHistory], tuple[int, int]]]
            kept_sizes = [(topics, sizes[0]), (groups, sizes[1])]
            kept_sizes += [(kept, sizes[2]) for kept in group_topics.values()]
            for kept, size in kept_sizes:
                for number, history in enumerate(kept.values(), 1):
                    history.limit(*size)
                    if number % STEP_ITEMS == 0:
                        yield
                yield
            self._sizes = sizes
        for number, (name, topic) in enumerate(view.topics.items(), 1):
            if topic.messages_per_s is not None:
                topics[name].add(at, topic.messages_per_s)
            if number % STEP_ITEMS == 0:
                yield
        for key, row in view.groups.items():
            last, table = self.sums.get(key), view.lags[key]
            if last is not None:
                sums[key] = last
            if row.read_at is not None:
                continue
            missing = set() if last is None else last.known.without(table.known)
            unread = _unread(view, key, missing) if last and at - last.at < _KEPT_S else set()
            if row.lag is not None and not unread:
                groups[key].add(at, row.lag)
                is_same = not missing and not (last and table.known.without(last.known))
                sums[key] = LagSum(table.known, last.since if last and is_same else at, at)
            unread_topics = {tp.topic for tp in unread}
            for number, (name, lag) in enumerate(table.lag_by_topic(), 1):
                if name not in unread_topics:
                    group_topics[key][name].add(at, lag)
                if number % STEP_ITEMS == 0:
                    yield
            yield
        if view.messages_per_s is not None:
            self.produced.add(at, view.messages_per_s)
        self.topics, self.groups, self.sums = topics, groups, sums
        self.group_topics = {key: one for key, one in group_topics.items() if one}


def _share(size: tuple[int, int], histories: int) -> tuple[int, int]:
    """Return how many points of either kind each of so many histories has, `size` at most."""
    share = max(_POINTS // max(histories, 1), _LEAST_POINTS)
    return min(size[0], share), min(size[1], max(share - size[0], 0))


def _kept(
    histories: Mapping[K, PointHistory], named: Collection[K], oldest: float, *size: int
) -> Mapping[K, PointHistory]:
    """Return a history for each key in `named`, and other histories with a point after `oldest`."""
    if len(histories) == len(named) and all(key in histories for key in named):
        return histories
    hidden = {key: one for key, one in histories.items() if (one.last_at or 0.0) > oldest}
    return hidden | {key: histories.get(key) or PointHistory(*size) for key in named}


def _unread(view: ClusterView, key: GroupKey, missing: set[TopicPartition]) -> set[TopicPartition]:
    """Return those of the last point's partitions without a lag now that may still exist."""
    if view.sample.errors:
        return missing
    is_read = view.lags[key].has_committed
    return {tp for tp in missing if is_read(tp) and view.sample.partition(tp) is not None}


def view_of(
    sample: ClusterSample,
    before: TimedSample | None,
    watched: TimedSample | None,
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
        before: the sample before it; None: there is none.
        watched: an earlier sample, with which the doctor's rules compare; None: there is none.
        history: the history of the cluster; it has the sample already.
        now: when the sample was taken, by the history's clock.
        wall_s: the same in seconds since the epoch.
        has_zookeeper: whether ZooKeeper's address is known.
        last: the view of the sample before. Groups that a gap hides are taken from it.
    """
    then, earlier = before or (now, ClusterSample({}, {}))
    rates = {
        name: _rate(topic, earlier.topics.get(name), now - then)
        for name, topic in sample.topics.items()
    }
    produced = [rate for name, rate in rates.items() if name not in INTERNAL_TOPICS]
    known = [rate.per_s for rate in produced if rate.per_s is not None]
    is_cut = any(rate.is_cut for rate in produced) or bool(
        sample.errors and earlier.topics.keys() - sample.topics.keys()
    )
    groups, lags = _groups(sample, history, now, {} if last is None else last.lags)
    if sample.errors and last is not None:
        for key, old in last.groups.items():
            read_at = last.taken_at if old.read_at is None else old.read_at
            if key not in groups and wall_s - read_at < _KEPT_S:
                groups[key], lags[key] = replace(old, read_at=read_at), last.lags[key]
    readers: Counter[str] = Counter()
    for rows in rows_by(groups.values(), attrgetter("group")).values():
        readers.update({topic for row in rows for topic in row.topics})
    roles = Counter(
        (one.leader, one.all_replicas, one.in_sync, one.perhaps_in_sync)
        for _, one in sample.partitions()
    )
    first_at, first = watched or (now, sample)
    seen = Examination(first, sample, now - first_at, has_zookeeper, releases_of(sample))
    return ClusterView(
        sample,
        wall_s,
        {
            name: _topic_row(name, topic, rates[name], readers[name])
            for name, topic in sorted(sample.topics.items())
        },
        dict(sorted(groups.items())),
        lags,
        roles,
        # After one sample UNCHECKED would ask for `--watch`, an option of the command `doctor`. The
        # console takes further samples by itself, so leave it out.
        [one for one in examine(seen) if seen.is_watched or one.code is not FindingCode.UNCHECKED],
        sum(known) if known and not is_cut else None,
        sum(rate.lacks for rate in produced),
        # Brokers of 0.10 list replicas by id (docs/brokers.md 4.13).
        any(list(one.replicas) != sorted(one.replicas) for _, one in sample.partitions()),
    )


def _rate(topic: TopicSample, old: TopicSample | None, seconds: float) -> _Rate:
    """Return how many messages a second were written to a topic since the sample before."""
    if old is None or seconds <= 0:
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


def _topic_row(name: str, topic: TopicSample, rate: _Rate, groups: int) -> TopicRow:
    partitions = topic.partitions.values()
    return TopicRow(
        name,
        len(partitions),
        max((len(one.all_replicas) for one in partitions), default=0),
        sum(one.leader is None for one in partitions),
        sum_if_known(one.is_under_replicated for one in partitions),
        sum_if_known(one.messages for one in partitions),
        groups,
        topic.config,
        name in INTERNAL_TOPICS,
        topic.is_marked,
        rate.per_s,
        rate.lacks,
    )


def _groups(
    sample: ClusterSample,
    history: ClusterHistory,
    now: float,
    before: Mapping[GroupKey, LagTable],
) -> tuple[dict[GroupKey, GroupRow], dict[GroupKey, LagTable]]:
    """Return the rows of the groups, and those of their lag; `before`: those of the last view."""
    made: dict[GroupKey, GroupRow] = {}
    lags: dict[GroupKey, LagTable] = {}
    shared = {table.known.tps: table.known.tps for table in before.values()}
    begin = history.begin()
    least_s = math.inf if begin is None else now - begin
    # One group at a time, since the data that its table is made from is larger than the table.
    for groups in rows_by(sample.groups, attrgetter("group")).values():
        by_store = rows_by(_lags_of(groups, sample, history, now, least_s), attrgetter("store"))
        for group in groups:
            key, rows = (group.group, group.store), by_store.get(group.store, [])
            made[key] = _group_row(group, rows)
            lags[key] = LagTable(*key, rows, least_s, shared)
    return made, lags


def _lags_of(
    groups: Iterable[GroupSample],
    sample: ClusterSample,
    history: ClusterHistory,
    now: float,
    least_s: float,
) -> Iterator[LagRow]:
    """Yield the rows of a group, in all its stores."""
    stored: list[StoredOffsets] = []
    owners: dict[str, dict[TopicPartition, PartitionOwner]] = defaultdict(dict)
    topics: set[str] = set()
    for group in groups:
        committed = {tp: OffsetAndMetadata(at, "") for tp, at in group.committed.items()}
        stored.append(StoredOffsets(group.group, group.store, committed))
        for member in () if group.description is None else group.description.members:
            owner = PartitionOwner(member.member_id, group.store)
            for tp in assigned_partitions(member.member_assignment):
                owners[group.group].setdefault(tp, owner)
        topics |= {tp.topic for tp in (*committed, *owners[group.group])}
    ends = {
        TopicPartition(topic, number): partition.end
        for topic in topics & sample.topics.keys()
        for number, partition in sample.topics[topic].partitions.items()
    }
    for row in lag_rows(stored, ends, owners):
        tp = TopicPartition(row.topic, row.partition)
        partition = sample.partition(tp)
        first = None if partition is None else partition.start
        lag_s = None
        if row.committed is not None and row.lag is not None:
            lag_s = history.lag_s(now, tp, row.committed)
        deleted = deleted_of(first, row.committed)
        yield LagRow(*row[:8], first, lag_s, is_least(lag_s, least_s), deleted)


def total_of(rows: Iterable[LagRow]) -> LagTotal:
    """Return the sum of rows."""
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


def sum_if_known(numbers: Iterable[int | None]) -> int | None:
    """Return the sum of numbers; None if one isn't known."""
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total


def rows_by(rows: Iterable[R], key: Callable[[R], K]) -> dict[K, list[R]]:
    """Return the rows grouped by the result of `key`."""
    by_key: dict[K, list[R]] = {}
    for row in rows:
        by_key.setdefault(key(row), []).append(row)
    return by_key


def _group_row(group: GroupSample, rows: Sequence[LagRow]) -> GroupRow:
    state = None if group.members is None else "Empty"
    # To the coordinators of 0.9 a group without members is dead, whatever it has committed.
    if group.description is not None and group.description.state != "Dead":
        state = group.description.state
    return GroupRow(
        group.group,
        group.store,
        state,
        None if group.members is None else len(group.members),
        sorted({row.topic for row in rows}),
        len(rows),
        sum((row.lag or 0) < 0 for row in rows),
        *total_of(rows),
    )
