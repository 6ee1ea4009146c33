"""Decide about a group's offset at the target. Pure.

Invariants:
- An offset is translated only if the bridge has copied all messages before it.
- Without `rewind` no committed offset of the target goes back.
- A group with members at the target isn't changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from aiokafka08._wording import partition_name
from aiokafka08.admin.group_lag import LogBounds
from aiokafka08.bridge.copy.offset_runs import OffsetMap
from aiokafka08.structs import TopicPartition

# The decision about an offset:
# - move: it is committed at the target.
# - same: the target has it already.
# - behind: the target's offset is larger, and only `rewind` would move it back.
# - waiting: the bridge hasn't copied as far as the group has read.
# - missing: the group would lose messages that the bridge never copied.
# - refused: the group has members at the target, or has committed there meanwhile.
# - unreadable: the offset at the source, or a part of the group there, can't be read.
GroupOutcome = Literal["move", "same", "behind", "waiting", "missing", "refused", "unreadable"]


# A key among a group's partitions. It stands for the parts of the group that can't be read; these
# may hold further offsets.
UNREAD: Final = TopicPartition("", -1)


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """A committed offset of a group at the source, and the store that has it."""

    offset: int
    metadata: str
    store: str
    # Why the offset can't be read; it is -1 then.
    error: str = ""


@dataclass(frozen=True, slots=True)
class CopiedPartition:
    """A partition of the source, and the state of its copy."""

    copy: TopicPartition
    known: OffsetMap
    # The bridge's position in the source; None if nothing is copied yet.
    position: int | None
    source: LogBounds
    # The first offset of the target's log; None if the partition doesn't exist there.
    target_start: int | None

    def to_target(self, offset: int) -> int | None:
        """Translate an offset of a group; None unless all messages before it are copied."""
        if len(self.known):
            return self.known.to_target(offset, self.position)
        # Nothing was copied, so the target has only messages of its own producers, and the group
        # has read none of them. If the source's log is empty, or the group has read up to where the
        # copy begins, its next message is the first one in the target's log.
        return self.target_start if self.is_empty or offset == self.position else None

    @property
    def is_empty(self) -> bool:
        """Whether the source's log has no messages, and none was copied."""
        has_none = self.source.start is not None and self.source.start == self.source.end
        return has_none and not len(self.known)

    def is_same_message(self, offset: int, other: int) -> bool:
        """Return whether both offsets lead to the same message, apart from transaction markers."""
        if offset == other:
            return True
        source = self.known.to_source(offset, self.position)
        return source is not None and source == self.known.to_source(other, self.position)

    def lacks_copies_from(self, offset: int) -> bool:
        """Return whether the source's log has offsets from this one to the first copied one.

        Without the bounds of the log, assume that it has. It may have no messages there: see
        `carry_over.without_head_holes`.
        """
        first = self.known.first_source
        if first is None or offset >= first:
            return False
        return self.source.start is None or self.source.start < first

    @property
    def lag(self) -> int | None:
        """How many offsets of the source aren't copied yet; None without the bounds of the log."""
        if self.source.start is None or self.source.end is None:
            return None
        return self.source.end - max(self.source.start, self.position or 0)


@dataclass(frozen=True, slots=True)
class GroupMove:
    """The decision about a group's offset of one partition; an offset that isn't there is None."""

    group: str
    source: TopicPartition
    copy: TopicPartition
    store: str
    source_offset: int | None
    metadata: str
    before: int | None
    target_offset: int | None
    outcome: GroupOutcome
    reason: str = ""
    # The group has members at the target, and has committed the translated offset there or a later
    # one, so nothing is left to commit.
    has_gone_on: bool = False

    @property
    def name(self) -> str:
        """The group and the partition, such as "billing, orders/0"; for `UNREAD` the group."""
        if self.source == UNREAD:
            return self.group
        return f"{self.group}, {partition_name(self.source)}"


def plan_group(
    group: str,
    offsets: Mapping[TopicPartition, SourceOffset],
    partitions: Mapping[TopicPartition, CopiedPartition],
    before: Mapping[TopicPartition, int],
    members: Sequence[str],
    *,
    rewind: bool = False,
) -> list[GroupMove]:
    """Return the decision about each offset of a group, without partitions that aren't copied.

    They are ordered by partition.

    Args:
        group: the group.
        offsets: its committed offsets at the source.
        partitions: the copied partitions of the source.
        before: its committed offsets at the target, by the partitions there.
        members: its members at the target.
        rewind: True moves an offset back, too (default False).
    """
    moves = []
    for tp in sorted(offsets):
        offset, part = offsets[tp], partitions.get(tp)
        if offset.error:
            if part is not None or tp == UNREAD:
                moves.append(_unreadable(group, tp, part, offset, before))
            continue
        if part is None:
            continue
        at = before.get(part.copy)
        target = part.to_target(offset.offset)
        outcome: GroupOutcome
        has_gone_on = False
        if target is None:
            outcome, reason = "waiting", f"the bridge is at {part.position or 0}"
            if part.target_start is None:
                reason = f"{partition_name(part.copy)} isn't at the target yet"
        elif part.lacks_copies_from(offset.offset):
            outcome = "missing"
            reason = f"messages {offset.offset} to {part.known.first_source} were never copied"
        else:
            is_same = at is not None and part.is_same_message(at, target)
            outcome, reason = decide("target", target, at, is_same, members, rewind)
            has_gone_on = bool(members) and at is not None and (is_same or at > target)
        move = GroupMove(
            group,
            tp,
            part.copy,
            offset.store,
            offset.offset,
            offset.metadata,
            at,
            target,
            outcome,
            reason,
            has_gone_on,
        )
        moves.append(move)
    return moves


def _unreadable(
    group: str,
    tp: TopicPartition,
    part: CopiedPartition | None,
    offset: SourceOffset,
    before: Mapping[TopicPartition, int],
) -> GroupMove:
    copy = UNREAD if part is None else part.copy
    return GroupMove(
        group,
        tp,
        copy,
        offset.store,
        None,
        "",
        before.get(copy),
        None,
        "unreadable",
        offset.error,
    )


def decide(
    side: str, wanted: int, at: int | None, is_same: bool, members: Sequence[str], rewind: bool
) -> tuple[Literal["move", "same", "behind", "refused"], str]:
    """Return the decision about a translated offset, and why it isn't moved.

    Args:
        side: the cluster where it is committed: "target" or "source".
        wanted: the offset there.
        at: the group's committed offset there; None: there is none.
        is_same: whether both lead to the same message.
        members: the members that keep it from being committed.
        rewind: whether an offset may go back.
    """
    if members:
        return "refused", f"members: {', '.join(members)}"
    if is_same:
        return "same", ""
    if at is not None and at > wanted and not rewind:
        return "behind", f"the {side} is at {at}"
    return "move", ""


def refuse_changed(
    moves: Sequence[GroupMove], now: Mapping[TopicPartition, int]
) -> list[GroupMove]:
    """Return the moves of a group; refuse those whose offset at the target has changed.

    `now`: the committed offsets at the target by now, as `before` of `plan_group`.
    """
    return [
        replace(
            move,
            outcome="refused",
            reason=f"the group has committed {now.get(move.copy)} meanwhile",
        )
        if move.outcome == "move" and now.get(move.copy) != move.before
        else move
        for move in moves
    ]


def merge_stores(
    stores: Sequence[tuple[str, Mapping[TopicPartition, tuple[int, str]]]],
    errors: Sequence[tuple[str, Mapping[TopicPartition, str]]] = (),
) -> dict[TopicPartition, SourceOffset]:
    """Return one offset per partition: the largest.

    Args:
        stores: the name of each store, and its offsets and metadata; of equal offsets the first
            store counts.
        errors: the name of each store, and why an offset can't be read (default ()).
    """
    merged: dict[TopicPartition, SourceOffset] = {}
    # A group that commits to both stores may lag in one.
    for store, offsets in stores:
        for tp, (offset, metadata) in offsets.items():
            if tp not in merged or offset > merged[tp].offset:
                merged[tp] = SourceOffset(offset, metadata, store)
    # An offset that can't be read may be the largest, so the other store's doesn't count.
    for store, of_store in errors:
        for tp, error in of_store.items():
            merged[tp] = SourceOffset(-1, "", store, error)
    return merged
