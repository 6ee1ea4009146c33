"""Find where a reset moves a group, for `aiokafka08 group reset` and the console.

`reset_target` reads a target as the options name it, `TargetMoves` finds the partitions, the admin
client makes the plan, and `commit_plan` commits its offsets.

Invariant: nothing but `commit_plan` changes anything.
"""

from __future__ import annotations

import contextlib
import datetime
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from aiokafka08._core.names import did_you_mean
from aiokafka08._tools.similar_names import similar_groups
from aiokafka08._tools.times import parse_duration, parse_time
from aiokafka08._wording import missing_topics_text
from aiokafka08.admin import (
    AIOKafkaAdminClient,
    PlannedOffset,
    ShiftBy,
    StoredGroup,
    StoredOffsets,
)
from aiokafka08.admin.offset_reset import PlanTarget
from aiokafka08.errors import (
    GroupIdNotFound,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from aiokafka08.structs import OffsetAndMetadata, TopicPartition


def reset_target(option: str, value: Any) -> PlanTarget:
    """Return the target that an option of `group reset` names.

    Args:
        option: "--shift-by" with a number, "--to-datetime" or "--by-duration" with a text; the
            value of any other one is the target itself.
        value: its value.

    Raises:
        IllegalArgumentError: the text isn't a time, or a duration.
    """
    now_ms = time.time_ns() // 1_000_000
    if option == "--shift-by":
        return ShiftBy(value)
    if option == "--to-datetime":
        return _at(parse_time(option, value, now_ms))
    if option == "--by-duration":
        return _at(max(now_ms - abs(parse_duration(option, value)), 0))
    target: PlanTarget = value
    return target


def _at(time_ms: int) -> datetime.datetime:
    epoch = datetime.datetime.fromtimestamp(0, datetime.UTC)
    return epoch + datetime.timedelta(milliseconds=time_ms)


class TargetMoves:
    """Find the partitions in which a reset moves one group, in each store where it has offsets.

    Args:
        group: the group.
        target: the position to reset to.
        topics: the partitions by topic; no partitions mean all of the topic. Without topics, the
            reset is of all partitions where the group has an offset.
        store: only in this store; None: in each.

    Attributes:
        uncommitted: the partitions that a plan without `topics` leaves out: those without an
            offset in any store, of topics where the group has an offset in another partition.
    """

    def __init__(
        self,
        group: str,
        target: PlanTarget,
        topics: Mapping[str, Collection[int]],
        store: str | None,
    ) -> None:
        self._group = group
        self._target = target
        self._topics = topics
        self._store = store
        self.uncommitted: set[TopicPartition] = set()

    async def find(
        self, admin: AIOKafkaAdminClient
    ) -> list[tuple[StoredGroup, dict[TopicPartition, PlanTarget]]]:
        """Return each stored group with the target of each partition.

        Raises:
            UnknownTopicOrPartitionError: a topic doesn't exist.
            GroupIdNotFound: no topic is named, and the group has no offsets in the store.
            GroupIdNotFound, IllegalStateError, UnsupportedVersionError: as `places_of_group`.
        """
        existing = await existing_partitions(admin)
        missing = "--store" if self._topics else "--store and --topic"
        places = await places_of_group(admin, self._group, self._store, missing)
        for place, committed in places:
            if not committed and not self._topics:
                raise await _no_offsets(admin, [place], f" in {place.store}", "--topic")
        moves = [(group, self._targets(existing, committed)) for group, committed in places]
        # A partition that has an offset in at least one store is moved in that store.
        self.uncommitted.difference_update(*(committed for _, committed in places))
        return moves

    async def find_in(
        self, admin: AIOKafkaAdminClient, place: StoredGroup
    ) -> dict[TopicPartition, PlanTarget]:
        """Return the targets in a store that is known to have the group; raises as `find`.

        Unlike `find`, it doesn't probe the brokers' exact release for a group in ZooKeeper, because
        a broker of 0.8.0 logs an error on that request.
        """
        existing = await existing_partitions(admin)
        [stored] = await admin.list_stored_offsets([place])
        committed = _partitions_of(stored)
        if not committed and not self._topics:
            raise await _no_offsets(admin, [place], f" in {place.store}", "a topic")
        return self._targets(existing, committed)

    def _targets(
        self, existing: Collection[TopicPartition], committed: Collection[TopicPartition]
    ) -> dict[TopicPartition, PlanTarget]:
        tps = self._named(existing) if self._topics else sorted(set(existing) & set(committed))
        if not self._topics:
            topics = {tp.topic for tp in tps}
            self.uncommitted |= {tp for tp in existing if tp.topic in topics} - set(committed)
        return dict.fromkeys(tps, self._target)

    def _named(self, existing: Collection[TopicPartition]) -> list[TopicPartition]:
        named: list[TopicPartition] = []
        for topic, partitions in self._topics.items():
            topic_partitions = sorted(tp for tp in existing if tp.topic == topic)
            if not topic_partitions:
                similar = did_you_mean(topic, sorted({tp.topic for tp in existing}))
                raise UnknownTopicOrPartitionError(f"{missing_topics_text([topic])}{similar}")
            named += [
                TopicPartition(topic, number) for number in sorted(partitions)
            ] or topic_partitions
        return named


async def existing_partitions(admin: AIOKafkaAdminClient) -> set[TopicPartition]:
    """Return all partitions of the cluster."""
    return {
        TopicPartition(topic["topic"], partition["partition"])
        for topic in await admin.describe_topics()
        for partition in topic["partitions"]
    }


async def places_of_group(
    admin: AIOKafkaAdminClient, group: str, store: str | None, missing: str = "--store"
) -> list[tuple[StoredGroup, Collection[TopicPartition]]]:
    """Return the group's partitions in the named store, or in each store where it has offsets.

    Args:
        admin: a started client.
        group: the group.
        store: the store; None: each one where the group has offsets.
        missing: what the error for a group without offsets tells the user to give (default
            "--store").

    Raises:
        UnsupportedVersionError: the brokers don't have the store.
        GroupIdNotFound: no store is named, and the group has no offsets.
        IllegalStateError: as GroupIdNotFound, but the group has live members.
    """
    possible = await admin.possible_groups([group])
    wanted = [place for place in possible if store in (None, place.store)]
    if not wanted:
        raise UnsupportedVersionError(
            f"--store {store}: group {group!r} can't be there; the brokers keep it in "
            f"{' or '.join(place.store for place in possible)}"
        )
    stored = await admin.list_stored_offsets(wanted)
    places: list[tuple[StoredGroup, Collection[TopicPartition]]] = []
    for place, offsets in zip(wanted, stored, strict=True):
        committed = _partitions_of(offsets)
        if store is not None or committed:
            places.append((place, committed))
    if not places:
        raise await _no_offsets(admin, wanted, "", missing)
    return places


async def _no_offsets(
    admin: AIOKafkaAdminClient, places: Sequence[StoredGroup], where: str, missing: str
) -> GroupIdNotFound:
    """Return the error for a group without offsets. It says how to commit the first offsets.

    Raises:
        IllegalStateError: the group has live members, which must be stopped first.
    """
    for place in places:
        # Without ZooKeeper the members may be unknown; then report only the missing offsets.
        with contextlib.suppress(UnsupportedVersionError):
            await admin.check_group_change(place)
    group = places[0].group
    return GroupIdNotFound(
        f"group {group!r} has no committed offsets{where}. To commit its first ones, give "
        f"{missing}{await similar_groups(admin, [group])}"
    )


def _partitions_of(stored: StoredOffsets) -> set[TopicPartition]:
    if stored.error is not None:
        raise stored.error
    return {*stored.offsets, *stored.errors}


def no_partition() -> GroupIdNotFound:
    """Return the error for a plan without partitions."""
    return GroupIdNotFound("the group's offsets are all of topics that don't exist any more")


async def commit_plan(
    admin: AIOKafkaAdminClient, group: StoredGroup, planned: Sequence[PlannedOffset]
) -> None:
    """Commit the offsets of a plan; raises as `reset_consumer_group_offsets`."""
    offsets = {
        TopicPartition(offset.topic, offset.partition): OffsetAndMetadata(
            offset.new, offset.metadata
        )
        for offset in planned
    }
    await admin.reset_consumer_group_offsets(group.group, offsets, offsets_storage=group.store)
