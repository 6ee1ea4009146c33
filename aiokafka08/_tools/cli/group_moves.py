"""Plan moves of committed offsets, and carry them out, for `group reset` and `group import`.

Invariant: without `execute` nothing is changed. With it, nothing is changed either if a group of
the moves has live members, or a part of the plan isn't possible. Such plans are refused without
`execute`, too; only an offset that can't be saved is found with `execute` alone. If a commit fails
nevertheless, the rows show the commits before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from aiokafka08._tools.cli.connection import admin_client
from aiokafka08._tools.cli.group_backup import Saved, offsets_to_save
from aiokafka08._tools.cli.group_files import GroupOffset
from aiokafka08._tools.cli.settings import Settings
from aiokafka08._tools.group_reset import (
    TargetMoves,
    commit_plan,
    existing_partitions,
    no_partition,
    places_of_group,
)
from aiokafka08._wording import partition_name, some_of
from aiokafka08.errors import IllegalArgumentError, OffsetOutOfRangeError
from aiokafka08.structs import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from aiokafka08._tools.cli.output import Row
    from aiokafka08.admin import AIOKafkaAdminClient, PlannedOffset, StoredGroup
    from aiokafka08.admin.offset_reset import PlanTarget


class FileMoves:
    """Move each group to its offsets in a file.

    Args:
        offsets: the offsets of the file.
        store: the store to commit to; None: the store in the file, else each store in which the
            group has offsets.
        skip_missing: True omits the offsets of partitions that don't exist (default False).

    Attributes:
        skipped: the omitted offsets.
    """

    def __init__(
        self, offsets: Sequence[GroupOffset], store: str | None, *, skip_missing: bool = False
    ) -> None:
        self.skipped: list[GroupOffset] = []
        self._offsets = offsets
        self._store = store
        self._skip_missing = skip_missing

    async def find(
        self, admin: AIOKafkaAdminClient
    ) -> list[tuple[StoredGroup, dict[TopicPartition, PlanTarget]]]:
        """Return each stored group with the new offset of each partition."""
        existing = await existing_partitions(admin) if self._skip_missing else set()
        moves: dict[StoredGroup, dict[TopicPartition, PlanTarget]] = {}
        places: dict[tuple[str, str | None], list[StoredGroup]] = {}
        for offset in self._offsets:
            tp = TopicPartition(offset.topic, offset.partition)
            if self._skip_missing and tp not in existing:
                self.skipped.append(offset)
                continue
            key = str(offset.group), self._store or offset.store
            if key not in places:
                places[key] = [group for group, _ in await places_of_group(admin, *key)]
            for group in places[key]:
                targets = moves.setdefault(group, {})
                if tp in targets:
                    raise IllegalArgumentError(
                        f"two offsets for {partition_name(tp)} of group {group.group!r} in "
                        f"{group.store}: the file has both stores, and --store names one"
                    )
                targets[tp] = OffsetAndMetadata(offset.offset, offset.metadata)
        return list(moves.items())


async def plan_and_move(
    settings: Settings,
    moves: TargetMoves | FileMoves,
    execute: bool,
    rows: list[Row],
    *,
    to_nearest: bool = True,
    has_time: bool = False,
    save: Callable[[Sequence[Saved]], object] = lambda offsets: None,
) -> list[tuple[StoredGroup, list[PlannedOffset]]]:
    """Return the plan, and add its rows. With `execute`, add a group's rows after its commit.

    Args:
        settings: the cluster.
        moves: finds the new offset of each partition.
        execute: False changes nothing.
        rows: gets the rows.
        to_nearest: True moves an offset outside the log to the nearest one inside (default True).
        has_time: True if the moves go to a time, so that the rows have a precision (default False).
        save: called before the first commit, with the present offsets of the plan's partitions
            (default: nothing).

    Raises:
        IllegalStateError: an offset that is about to change can't be saved.
        OffsetOutOfRangeError: an offset is outside the log, and `to_nearest` is False.
    """
    from aiokafka08._tools.cli.commands.offsets import precision

    async with admin_client(settings) as admin:
        plan = []
        for group, targets in await moves.find(admin):
            if targets:
                plan.append((group, await admin.plan_group_reset(group, targets)))
        if not plan:
            raise no_partition()
        if not to_nearest:
            await _refuse_outside(admin, plan)
        for group, _ in plan:
            await admin.check_group_change(group)
        if execute:
            save(await _committed(admin, plan))
        for group, planned in plan:
            if execute:
                await commit_plan(admin, group, planned)
            rows += [
                {
                    "group": group.group,
                    "store": group.store,
                    "topic": offset.topic,
                    "partition": offset.partition,
                    "committed": offset.current,
                    "new": offset.new,
                    "error": offset.error,
                    **({"precision": precision(offset.found)} if has_time else {}),
                }
                for offset in planned
            ]
    return plan


async def _committed(
    admin: AIOKafkaAdminClient, plan: Sequence[tuple[StoredGroup, Sequence[PlannedOffset]]]
) -> list[Saved]:
    """Return the present offsets of the plan's partitions."""
    saved: list[Saved] = []
    stored = await admin.list_stored_offsets([group for group, _ in plan])
    for (_, planned), found in zip(plan, stored, strict=True):
        tps = {TopicPartition(offset.topic, offset.partition) for offset in planned}
        saved += offsets_to_save(found, tps)
    return saved


async def _refuse_outside(
    admin: AIOKafkaAdminClient, plan: Sequence[tuple[StoredGroup, Sequence[PlannedOffset]]]
) -> None:
    outside = [
        (group, offset)
        for group, planned in plan
        for offset in planned
        if offset.new != offset.wanted
    ]
    if not outside:
        return
    logs = await admin.list_log_bounds(
        {TopicPartition(offset.topic, offset.partition) for _, offset in outside}
    )
    texts = []
    for group, offset in outside:
        log = logs[TopicPartition(offset.topic, offset.partition)]
        texts.append(
            f"{partition_name(offset)} of group {group.group!r}: offset {offset.wanted}, "
            + (
                "the log's bounds aren't known, its leader is away"
                if log.start is None or log.end is None
                else f"expected {log.start} to {log.end}"
            )
        )
    raise OffsetOutOfRangeError(
        f"nothing is committed, offsets are outside the log: {some_of(texts)}. Are they of this "
        "cluster? --to-nearest takes the nearest offset inside"
    )
