"""Carry groups back: translate their offsets at the target to the source, and commit them there.

Invariants, for a cut-over that has to be undone:
- A group with members on either side isn't changed.
- Without `rewind` no offset of the source goes back. A group that has read messages that only the
  target has ("beyond") gets no offset, except with `beyond_copy`.
- No message that the group hasn't read at the target is skipped at the source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from aiokafka08.admin import AIOKafkaAdminClient
from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.bridge.groups.carry_over import (
    FileOffsets,
    GroupTransfer,
    copied_partitions,
    source_members,
    source_offsets,
    stores_of,
    unmatched_groups,
)
from aiokafka08.bridge.groups.group_plan import UNREAD, CopiedPartition, SourceOffset, decide
from aiokafka08.bridge.source.source_clients import source_admin
from aiokafka08.bridge.target.target_release import refuse_old_target
from aiokafka08.bridge.target.when_available import when_available
from aiokafka08.errors import IllegalArgumentError
from aiokafka08.structs import OffsetAndMetadata, TopicPartition

# The decision about an offset:
# - move: it is committed at the source.
# - same: the source has it already.
# - behind: the source is further, and only `rewind` would move it back.
# - beyond: the group has read messages that only the target has; only `beyond_copy` moves it.
# - unknown: nothing was copied, so it can't be translated.
# - refused: the group has members, or its offset at the source can't be read.
RollbackOutcome = Literal["move", "same", "behind", "beyond", "unknown", "refused"]

_NOTHING: Final = SourceOffset(-1, "", "")


@dataclass(frozen=True, slots=True)
class RollbackMove:
    """The decision about a group's offset at the target."""

    group: str
    source: TopicPartition
    target_offset: int
    # The committed offset at the source; None if there is none, or it can't be read.
    before: int | None
    # The new offset at the source; None if the target's can't be translated.
    source_offset: int | None
    outcome: RollbackOutcome
    reason: str = ""


def plan_rollback(
    group: str,
    offsets: Mapping[TopicPartition, SourceOffset],
    partitions: Mapping[TopicPartition, CopiedPartition],
    at_target: Mapping[TopicPartition, int],
    members: Sequence[str],
    *,
    rewind: bool = False,
    beyond_copy: bool = False,
) -> list[RollbackMove]:
    """Return the decision about each offset that a group has committed at the target. Pure.

    Args:
        group: the group.
        offsets: its committed offsets at the source.
        partitions: the copied partitions of the source.
        at_target: its committed offsets at the target.
        members: its members, on both sides.
        rewind: True moves an offset back, too (default False).
        beyond_copy: True commits the end of the copy for a group that has read beyond it, too
            (default False).
    """
    moves = []
    for tp in sorted(partitions):
        part = partitions[tp]
        if (at := at_target.get(part.copy)) is None:
            continue
        known = offsets.get(tp, _NOTHING)
        # The unreadable part of a store may have the partition's offset.
        if (unread := offsets.get(UNREAD)) is not None and unread.store != known.store:
            known = unread
        before = None if known.offset < 0 else known.offset
        source_offset = part.known.to_source(at, part.position)
        if part.is_empty:  # every message of the target came after the cut-over
            source_offset = part.source.end
        outcome: RollbackOutcome
        if known.error:
            outcome, reason = "refused", known.error
        elif source_offset is None:
            outcome, reason = "unknown", "the bridge has no runs of offsets for it"
        else:
            outcome, reason = decide(
                "source", source_offset, before, source_offset == before, members, rewind
            )
        end = part.known.end_target
        if end is None:
            is_beyond, which = part.is_empty and at > (part.target_start or 0), "is empty"
        else:  # the marker of the last transaction is after the last message copied
            is_beyond, which = at > end + 1, f"ends at {end}"
        if is_beyond:
            reason = "; ".join(filter(None, [reason, f"read beyond the copy, which {which}"]))
            if outcome in ("move", "same") and not beyond_copy:
                outcome = "beyond"
        moves.append(RollbackMove(group, tp, at, before, source_offset, outcome, reason))
    return moves


class Rollback(NamedTuple):
    """The decisions, and the text about patterns of `groups.include` that match no group."""

    moves: list[RollbackMove]
    unmatched: str | None


async def roll_back(
    config: BridgeConfig,
    file_offsets: FileOffsets | None = None,
    *,
    execute: bool = True,
    rewind: bool = False,
    beyond_copy: bool = False,
) -> Rollback:
    """Translate the groups' offsets at the target, and commit them at the source.

    A group's offsets are committed to each store of the source in which it has offsets.

    Args:
        config: the file of the bridge.
        file_offsets: the offsets of the groups' file, which is never written (default None).
        execute: False changes nothing (default True).
        rewind: True moves offsets back, too (default False).
        beyond_copy: True also moves groups that have read beyond the copy, to its end (default
            False).

    Raises:
        IllegalArgumentError: the groups are in a file, which isn't written, and `execute` is True.
        KafkaError: a cluster doesn't respond, or refuses.
    """
    if config.groups.store == "file" and execute:
        raise IllegalArgumentError(
            f'{config.path}: groups.store="file": this file isn\'t written. --dry-run shows the '
            "offsets for it"
        )
    file_offsets = file_offsets or {}
    await refuse_old_target(config)
    transfer = GroupTransfer(config, file_offsets)
    try:
        async with source_admin(config) as admin:
            unmatched = await unmatched_groups(config, admin, file_offsets)
            offsets = await source_offsets(config, admin, file_offsets)
            partitions = await copied_partitions(config, admin, transfer.target)
            members, _ = await source_members(config, admin, sorted(offsets))
            theirs = await when_available(lambda: transfer.groups.members(sorted(offsets)))
            copies = [part.copy for part in partitions.values() if part.target_start is not None]
            moves: list[RollbackMove] = []
            for group in sorted(offsets):
                at_target = await transfer.committed(group, copies)
                both = [*members.get(group, ()), *theirs[group]]
                moves += plan_rollback(
                    group,
                    offsets[group],
                    partitions,
                    at_target,
                    both,
                    rewind=rewind,
                    beyond_copy=beyond_copy,
                )
            if execute:
                await _commit(config, admin, moves)
            return Rollback(moves, unmatched)
    finally:
        await transfer.close()


async def _commit(
    config: BridgeConfig, admin: AIOKafkaAdminClient, moves: Sequence[RollbackMove]
) -> None:
    stores = stores_of(config)
    groups = {move.group for move in moves if move.outcome == "move"}
    stored = [
        group
        for group in await admin.list_stored_groups()
        if group.group in groups and group.store in stores
    ]
    for group in await admin.list_stored_offsets(stored):
        if group.error is not None:
            raise group.error
        wanted = {
            move.source: OffsetAndMetadata(move.source_offset, "")
            for move in moves
            if move.group == group.group
            and move.outcome == "move"
            and move.source_offset is not None
            and (group.offsets or group.errors)
        }
        if wanted:
            await admin.reset_consumer_group_offsets(
                group.group, wanted, offsets_storage=group.store
            )
