"""Value types for groups, their commits and their lag, and the computation of lag rows. Pure.

Invariant: a row says in which store its offset is. The stores don't see each other's commits, so a
group that is in both has a row per store for the same partition.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from aiokafka08._core.net.config import check_one_of
from aiokafka08._core.net.coordinator_lookup import check_any_group_id
from aiokafka08._wording import shorten
from aiokafka08.admin.arguments import check_items
from aiokafka08.admin.group_description import GroupDescription
from aiokafka08.errors import IllegalArgumentError, KafkaError
from aiokafka08.structs import OffsetAndMetadata, TopicPartition

GroupStore = Literal["kafka", "zookeeper"]
"""A place that keeps groups and their offsets."""


class StoredGroup(NamedTuple):
    """A group in one store.

    `protocol_type` is "consumer" for groups of consumers; it is "" for groups that have committed
    offsets, but never had a member.
    """

    group: str
    store: GroupStore
    protocol_type: str


def check_stored_group(group: object) -> StoredGroup:
    """Return `group` if it is a `StoredGroup`; else raise IllegalArgumentError."""
    if isinstance(group, StoredGroup):
        check_any_group_id(group.group)
        check_one_of("store", group.store, ["kafka", "zookeeper"])
        return group
    # A name isn't enough, because a group may be in both stores.
    name = shorten(group) if isinstance(group, str) else '"billing"'
    raise IllegalArgumentError(
        f"group={shorten(group)}: expected a StoredGroup, which names the store too, such "
        f'as StoredGroup({name}, "kafka", ""); possible_groups() and list_stored_groups() return '
        "them"
    )


def check_stored_groups(groups: object) -> list[StoredGroup]:
    """Return the groups, each checked; raise TypeError if they aren't in a list."""
    if isinstance(groups, StoredGroup):  # it is a tuple
        raise TypeError(f"groups={groups!r}: expected a list of groups")
    return [
        check_stored_group(group)
        for group in check_items("groups", groups, object, "a list of StoredGroup")
    ]


class StoredGroupDescription(NamedTuple):
    """A group as one store describes it; `description` is None if `error` prevented an answer.

    The states are named as brokers name them. A group in ZooKeeper is "Stable" with members,
    "Empty" without, and "Dead" if it has no node. A group in Kafka that is idle is "Empty" from
    0.10 on; before, it is "Dead" to its coordinator, whatever it has committed. `errors` are about
    nodes in ZooKeeper that can't be read: the registration of a member, whose subscription is then
    empty, or the owner of a partition.
    """

    group: str
    store: GroupStore
    description: GroupDescription | None
    error: KafkaError | None = None
    errors: Sequence[KafkaError] = ()


class StoredGroupListing(NamedTuple):
    """The groups of one store. With `errors`, some may be missing: parts of it weren't read.

    `left_out`: why the store wasn't looked at, although it may have groups; None if it was, or if
    it can't have any.
    """

    groups: Sequence[StoredGroup]
    errors: Sequence[KafkaError] = ()
    left_out: str | None = None


@dataclass(frozen=True, slots=True)
class StoredOffsets:
    """The commits of a group in one store; empty if it has none, or if reading failed (`error`).

    Offsets in ZooKeeper have no metadata. `error` is None if the offsets were read, even if
    the offsets of single partitions couldn't be.

    Attributes:
        errors: by partition, why its offset can't be read, for example because the ZooKeeper node
            holds something else. The group may have committed there.
        others: other nodes that couldn't be read, so partitions may be missing.
        texts: the whole contents of the nodes of ZooKeeper in `errors`, except those that couldn't
            be read at all.
    """

    group: str
    store: GroupStore
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    error: KafkaError | None = None
    errors: Mapping[TopicPartition, KafkaError] = field(default_factory=dict)
    others: Sequence[KafkaError] = ()
    texts: Mapping[TopicPartition, bytes] = field(default_factory=dict)

    def all_errors(self) -> list[KafkaError]:
        """Return the errors of all parts that couldn't be read."""
        first = [] if self.error is None else [self.error]
        return [*first, *self.errors.values(), *self.others]


class LogBounds(NamedTuple):
    """The first offset of a partition, and the offset of its next message.

    None if the partition has no leader now, or if the leader doesn't respond.
    """

    start: int | None
    end: int | None


class RefusedLogBounds(LogBounds):
    """The bounds of a partition whose leader in the metadata responds that it isn't the leader."""

    __slots__ = ()


class PartitionOwner(NamedTuple):
    """The member that reads a partition, and where the member is registered."""

    member: str
    store: GroupStore


PartitionOwners = Mapping[str, Mapping[TopicPartition, PartitionOwner]]
"""Per group the owners of its partitions."""


class PartitionLag(NamedTuple):
    """How far a group is behind on one partition.

    The fields are those of `aiokafka08 group lag --format json`.

    Attributes:
        group: the group.
        store: where its offset is. Without an offset: where the owner of the partition is, or if
            there is no owner, where the offsets of the topic's other partitions are.
        topic: the topic.
        partition: the partition.
        committed: the committed offset, of the next message to read. None if it can't be read (see
            `error`), or if nothing is committed. In the second case the partition has an owner, or
            the group has committed an offset of another partition of the topic.
        end: the offset of the partition's next message. None: there is no such partition (any
            more), or its leader doesn't say.
        lag: `end` - `committed`; None if one of them is None. It counts offsets, not messages:
            compaction and transactions leave gaps. It is negative if the log is shorter than the
            committed offset: messages were lost, or the topic was created again.
        member: the member that reads the partition; None if no member does, or none is known.
        error: why the committed offset can't be read; None if it can, or there is none.
    """

    group: str
    store: GroupStore
    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None
    member: str | None
    error: str | None = None


class GroupLags(NamedTuple):
    """Rows of lag, and what is missing in them.

    Attributes:
        rows: ordered.
        errors: why a group, its members or a store couldn't be read, wholly or in part. An
            unreadable offset of a single partition isn't here: its row has the error.
        left_out: as in `StoredGroupListing`.
    """

    rows: list[PartitionLag]
    errors: list[KafkaError]
    left_out: str | None = None


def uncommitted(
    committed: Collection[TopicPartition], by_topic: Mapping[str, Iterable[TopicPartition]]
) -> list[TopicPartition]:
    """Return the partitions in which a group has no commit, of the topics in which it has some."""
    # In such a partition the group begins as its `auto_offset_reset` says.
    topics = sorted({tp.topic for tp in committed})
    return [tp for topic in topics for tp in by_topic.get(topic, ()) if tp not in committed]


def partitions_by_topic(
    partitions: Iterable[TopicPartition],
) -> dict[str, list[TopicPartition]]:
    by_topic: dict[str, list[TopicPartition]] = {}
    for tp in partitions:
        by_topic.setdefault(tp.topic, []).append(tp)
    return by_topic


def lag_rows(
    stored: Iterable[StoredOffsets],
    ends: Mapping[TopicPartition, int | None],
    owners: PartitionOwners,
) -> list[PartitionLag]:
    """Return a row for each committed offset, readable or not, and each owned partition, ordered.

    A group that has committed something of a topic also has a row for each other partition in
    `ends` of that topic, unless `error` or `others` shows that its offsets are incomplete.

    Args:
        stored: the committed offsets. Fetch them before the ends, so that no lag is negative by
            chance.
        ends: the offset of each partition's next message; partitions may be missing.
        owners: the owners of partitions; groups may be missing.
    """
    rows = []
    with_offset: dict[str, dict[TopicPartition, GroupStore]] = {}
    unread: set[str] = set()
    by_topic = partitions_by_topic(ends)
    for of_group in stored:
        group, store = of_group.group, of_group.store
        if of_group.error is not None or of_group.others:
            unread.add(group)
        owned = owners.get(group, {})
        members = {tp: owner.member for tp, owner in owned.items()}
        for tp, (committed, _) in of_group.offsets.items():
            end = ends.get(tp)
            lag = None if end is None else end - committed
            rows.append(PartitionLag(group, store, *tp, committed, end, lag, members.get(tp)))
        for tp, error in of_group.errors.items():
            rows.append(
                PartitionLag(
                    group, store, *tp, None, ends.get(tp), None, members.get(tp), error.text
                )
            )
        for tp in (*of_group.offsets, *of_group.errors):
            with_offset.setdefault(group, {}).setdefault(tp, store)
    for group, owned in owners.items():
        for tp, owner in owned.items():
            if tp not in with_offset.get(group, {}):
                row = PartitionLag(group, owner.store, *tp, None, ends.get(tp), None, owner.member)
                rows.append(row)
    for group in unread:
        with_offset.pop(group, None)
    for group, stores in with_offset.items():
        store_of = {tp.topic: store for tp, store in stores.items()}
        for tp in uncommitted(stores, by_topic):
            if tp not in owners.get(group, {}):
                store = store_of[tp.topic]
                rows.append(PartitionLag(group, store, *tp, None, ends.get(tp), None, None))
    return sorted(rows, key=lambda row: (row.group, row.topic, row.partition, row.store))
