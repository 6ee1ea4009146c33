"""Carry groups over: read their offsets at the source, translate them, commit them at the target.

`group_plan` decides about each offset.

Invariant: the positions of the bridge are read before its offset runs (`offset_runs`), so that the
runs reach up to each position.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import Final

from aiokafka08 import environment
from aiokafka08._wording import counted, partition_name, some_of
from aiokafka08.admin import AIOKafkaAdminClient
from aiokafka08.admin.group_lag import (
    LogBounds,
    StoredGroup,
    partitions_by_topic,
    uncommitted,
)
from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.bridge.copy.copy_positions import read_stored_runs
from aiokafka08.bridge.copy.read_progress import other_copies_text, positions_elsewhere
from aiokafka08.bridge.copy.run_formats import (
    Checkpoint,
    OffsetSync,
    checkpoints_topic,
    encode_checkpoint,
    encode_sync,
    offset_syncs_topic,
)
from aiokafka08.bridge.copy.status import CopyStatus
from aiokafka08.bridge.errors import TargetUnavailableError
from aiokafka08.bridge.groups.group_plan import (
    UNREAD,
    CopiedPartition,
    GroupMove,
    SourceOffset,
    merge_stores,
    plan_group,
    refuse_changed,
)
from aiokafka08.bridge.groups.target_groups import TargetGroups
from aiokafka08.bridge.source.addresses import in_keys
from aiokafka08.bridge.source.range_records import RangeRecords
from aiokafka08.bridge.source.source_clients import copied_topics, source_admin, source_router
from aiokafka08.bridge.target.target_cluster import Target
from aiokafka08.bridge.target.target_release import refuse_old_target
from aiokafka08.bridge.target.when_available import when_available
from aiokafka08.bridge.topic_map import unmatched
from aiokafka08.bridge.wording import nothing_matches
from aiokafka08.errors import IllegalStateError, KafkaConfigurationError, KafkaError
from aiokafka08.structs import TopicPartition

_log: Final = logging.getLogger("aiokafka08.bridge")

# The keys of this module's errors in `CopyStatus.errors`.
_GROUPS: Final = "groups"
_UNREADABLE: Final = "unreadable offsets"

# The offsets of each group, with their metadata, from a file (for Storm and custom stores).
FileOffsets = Mapping[str, Mapping[TopicPartition, tuple[int, str]]]


@dataclass(frozen=True, slots=True)
class CopiedCluster:
    """Both clusters at one time: the copied partitions, and the offsets of groups at the source."""

    partitions: Mapping[TopicPartition, CopiedPartition]
    offsets: Mapping[str, Mapping[TopicPartition, SourceOffset]]

    def uncommitted_text(self) -> str:
        """Return the partitions with messages for which a group has committed nothing, or "".

        Topics in which the group has committed no offset at all are left out.
        """
        by_topic = partitions_by_topic(
            tp for tp, part in self.partitions.items() if part.source.start != part.source.end
        )
        names = [
            f"{partition_name(tp)} ({group})"
            for group, offsets in sorted(self.offsets.items())
            for tp in uncommitted(offsets, by_topic)
        ]
        if not names:
            return ""
        return (
            f"no offset is committed for {some_of(names)}: there these groups begin at their "
            "auto.offset.reset at the target"
        )

    def left_out_text(self) -> str:
        """Return which offsets are left out since the bridge doesn't copy their topics, or ""."""
        copied = {tp.topic for tp in self.partitions}
        # The text first names the groups that are left out as a whole, then the others.
        nothing: dict[str, str] = {}
        part: dict[str, str] = {}
        for group, offsets in sorted(self.offsets.items()):
            names = Counter(
                f"{partition_name(tp)} (no such partition)" if tp.topic in copied else tp.topic
                for tp in offsets
                if tp not in self.partitions and tp != UNREAD
            )
            if names:
                has_others = len(offsets) > names.total()
                (part if has_others else nothing)[group] = some_of(
                    [f"{name} ({n} offsets)" if n > 1 else name for name, n in names.items()]
                )
        texts: list[str] = []
        if len(nothing) == 1:
            [(group, topics)] = nothing.items()
            texts.append(
                f"nothing of group {group!r} is carried over: the bridge doesn't copy {topics}"
            )
        elif nothing:
            texts.append(
                f"nothing of {len(nothing)} groups is carried over: the bridge doesn't copy their "
                f"topics: {_by_group(nothing)}"
            )
        if part:
            verb = "leaves" if len(part) == 1 else "leave"
            texts.append(
                f"{counted(len(part), 'group')} {verb} offsets behind, in topics that the bridge "
                f"doesn't copy: {_by_group(part)}"
            )
        return ". ".join(texts)


def _by_group(topics: Mapping[str, str]) -> str:
    return some_of([f"{group!r}: {names}" for group, names in topics.items()], separator="; ")


class GroupTransfer:
    """Carries the groups of a bridge to the target; `close()` ends the connection.

    Args:
        config: the file of the bridge.
        file_offsets: the offsets of the groups' file, for `store = "file"` (default None).

    Raises:
        KafkaConfigurationError: confluent-kafka isn't installed, or the store needs ZooKeeper, and
            the file doesn't name it.
    """

    def __init__(self, config: BridgeConfig, file_offsets: FileOffsets | None = None) -> None:
        store = config.groups.store
        if store in ("zookeeper", "both") and config.source.zookeeper is None:
            raise KafkaConfigurationError(
                f"{config.path}: groups.store={store!r} needs ZooKeeper; expected "
                'source.zookeeper = "host:2181/chroot"'
            )
        self._config = config
        self._file_offsets = file_offsets or {}
        self.target = Target(config)
        self.groups = TargetGroups(self.target, config)

    async def close(self) -> None:
        """End the connection to the target."""
        await self.target.close()

    async def plan(self, *, rewind: bool | None = None) -> list[GroupMove]:
        """Return the decision about each offset of each group; change nothing.

        Args:
            rewind: whether offsets may go back; None as the file says (default None).

        Raises:
            KafkaError: a cluster doesn't respond, or a group can't be read.
        """
        moves, _ = await self.look(rewind=rewind)
        return moves

    async def unmatched(self) -> str | None:
        """Return which patterns of `groups.include` match no group of the source; None if all
        match.

        Raises:
            KafkaError: the source doesn't respond.
        """
        async with source_admin(self._config) as admin:
            return await unmatched_groups(self._config, admin, self._file_offsets)

    async def carry_over(
        self, *, rewind: bool | None = None
    ) -> tuple[list[GroupMove], CopiedCluster]:
        """Commit what can be moved, and write MirrorMaker 2's topics.

        Args:
            rewind: whether offsets may go back; None as the file says (default None).

        Returns:
            The moves, and the state of both clusters by which they were decided.

        Raises:
            KafkaError: a cluster doesn't respond, or a group can't be read or committed.
        """
        plan, cluster = await self.look(rewind=rewind)
        moves: list[GroupMove] = []
        failed: list[KafkaError] = []
        for group, of_group in groupby(plan, attrgetter("group")):
            try:
                moves += await self._commit(group, list(of_group))
            except KafkaError as error:
                failed.append(error)  # the other groups don't wait for this one
        alias = self._config.source.alias
        # MirrorMaker 2's topics get a checkpoint per translated offset, and per partition the
        # offset sync of the last message copied. They are written after the commits, without a
        # transaction, since readers of these topics read uncommitted records too.
        checkpoints = [
            encode_checkpoint(
                Checkpoint(
                    move.group, *move.copy, move.source_offset, move.target_offset, move.metadata
                )
            )
            for move in moves
            if move.source_offset is not None
            and move.target_offset is not None
            and move.outcome != "missing"
        ]
        syncs = [
            encode_sync(OffsetSync(*tp, last, copy))
            for tp, part in cluster.partitions.items()
            if part.known.end_source is not None
            and (copy := part.known.copy_of(last := part.known.end_source - 1)) is not None
        ]
        await when_available(lambda: self.groups.write(checkpoints_topic(alias), checkpoints))
        await when_available(lambda: self.groups.write(offset_syncs_topic(alias), syncs))
        if failed:
            raise failed[0]
        return moves, cluster

    async def _commit(self, group: str, moves: Sequence[GroupMove]) -> Sequence[GroupMove]:
        """Commit a group's offsets that are to be moved; return the moves, refused ones marked."""
        copies = [move.copy for move in moves if move.outcome == "move"]
        if not copies:
            return moves
        # A consumer may have joined, committed and left since the decision.
        moves = refuse_changed(moves, await self.committed(group, copies))
        wanted = {
            move.copy: (move.target_offset, move.metadata)
            for move in moves
            if move.outcome == "move" and move.target_offset is not None
        }
        if wanted:
            await when_available(lambda: self.groups.commit(group, wanted))
        return moves

    async def look(self, *, rewind: bool | None = None) -> tuple[list[GroupMove], CopiedCluster]:
        """Return what `plan` returns, and the state of both clusters that decided the moves."""
        may_rewind = self._config.groups.rewind if rewind is None else rewind
        async with source_admin(self._config) as admin:
            # Read the groups first, so that a position of the bridge that is read later can only be
            # larger.
            offsets = await source_offsets(self._config, admin, self._file_offsets)
            partitions = await copied_partitions(self._config, admin, self.target)
        await self._refuse_other_copies(partitions)
        partitions = await without_head_holes(self._config, partitions, offsets.values())
        cluster = CopiedCluster(partitions, offsets)
        copies = [part.copy for part in partitions.values() if part.target_start is not None]
        members = await when_available(lambda: self.groups.members(sorted(offsets)))
        moves: list[GroupMove] = []
        for group in sorted(offsets):
            before = await self.committed(group, copies)
            moves += plan_group(
                group, offsets[group], partitions, before, members[group], rewind=may_rewind
            )
        return moves, cluster

    async def _refuse_other_copies(
        self, partitions: Mapping[TopicPartition, CopiedPartition]
    ) -> None:
        """Refuse topics that the bridge has copied to other topics than the rules name now.

        The offset runs are keyed by the source's topic, so they would translate to offsets in the
        earlier copies.
        """
        copied = {tp.topic for tp, part in partitions.items() if part.position is not None}
        known = {tp.topic for tp, part in partitions.items() if len(part.known)}
        if not (topics := sorted(known - copied)):
            return
        names = {part.copy.topic for part in partitions.values()}
        others = await when_available(lambda: positions_elsewhere(self._config, self.target, names))
        if others:
            raise IllegalStateError(other_copies_text(self._config, topics, others))

    async def committed(
        self, group: str, copies: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the offsets that a group has committed at the target.

        Raises:
            TargetError: the target doesn't respond.
        """
        return await when_available(lambda: self.target.committed(group, copies))


async def _transfer_when_available(
    config: BridgeConfig, file_offsets: FileOffsets, on_away: Callable[[KafkaError], object]
) -> GroupTransfer:
    """Connect to the target; retry every `groups.interval_s` seconds until it responds.

    Args:
        config: the file of the bridge.
        file_offsets: the offsets of the groups' file.
        on_away: called with the reason, each time the target doesn't respond.

    Raises:
        KafkaConfigurationError: see `GroupTransfer`.
        UnsupportedVersionError: the target is below 0.11.
    """
    while True:
        try:
            await refuse_old_target(config)
            return GroupTransfer(config, file_offsets)
        except TargetUnavailableError as error:
            on_away(error)
        await asyncio.sleep(config.groups.interval_s)


async def carry_over_continuously(
    config: BridgeConfig,
    file_offsets: FileOffsets,
    status: CopyStatus,
) -> None:
    """Carry the groups over every `groups.interval_s` seconds, until cancelled.

    A cluster that is away, and offsets that can't be read, are logged and tried again.

    Args:
        config: the file of the bridge.
        file_offsets: the offsets of the groups' file.
        status: gets how many groups were translated, and when; or the error.

    Raises:
        KafkaConfigurationError: see `_transfer_when_available`.
        UnsupportedVersionError: the same.
    """

    def failed(error: KafkaError) -> None:
        repeated = status.note_error(_GROUPS, error.text or repr(error))
        _log.warning("%s: groups not carried over: %s", config.client_id, repeated)

    def note_unreadable(moves: Sequence[GroupMove]) -> None:
        if not moves:
            status.note_success(_UNREADABLE)
            return
        text = some_of([f"{move.name}: {move.reason}" for move in moves], separator=". ")
        repeated = status.note_error(_UNREADABLE, text)
        _log.warning("%s: offsets not carried over: %s", config.client_id, repeated)

    transfer = await _transfer_when_available(config, file_offsets, failed)
    left_out = ""
    # A group may come later, so the patterns are checked until each has matched. Those that match
    # no group are logged once.
    unmatched: str | None = ""
    try:
        while True:
            try:
                if unmatched is not None:
                    before, unmatched = unmatched, await transfer.unmatched()
                    if unmatched and not before:
                        _log.warning("%s: groups not carried over: %s", config.client_id, unmatched)
                moves, cluster = await transfer.carry_over()
            except KafkaError as error:
                failed(error)
            else:
                # Log the offsets that are left out when they are found, and again if they change.
                before, left_out = left_out, cluster.left_out_text()
                if left_out and left_out != before:
                    _log.warning("%s: %s", config.client_id, left_out)
                status.note_success(_GROUPS)
                unreadable = [move for move in moves if move.outcome == "unreadable"]
                done = {move.group for move in moves if move.outcome in ("move", "same")}
                # A group with an offset that can't be read isn't counted as translated.
                done -= {move.group for move in unreadable}
                status.translated_groups, status.translated_at = len(done), time.time()
                note_unreadable(unreadable)
            await asyncio.sleep(config.groups.interval_s)
    finally:
        await transfer.close()


async def source_offsets(
    config: BridgeConfig, admin: AIOKafkaAdminClient, file_offsets: FileOffsets
) -> dict[str, dict[TopicPartition, SourceOffset]]:
    """Return the offsets that the bridge's groups have committed at the source, or their errors.

    Groups without offsets and errors are left out.

    Args:
        config: the file of the bridge.
        admin: a started client of the source.
        file_offsets: the offsets of the groups' file.

    Raises:
        KafkaError: a group can't be read.
    """
    if config.groups.store == "file":
        return {
            group: merge_stores([("file", offsets)])
            for group, offsets in file_offsets.items()
            if config.groups.includes(group)
        }
    stores = stores_of(config)
    groups = await admin.list_stored_groups()
    wanted = [
        group for group in groups if group.store in stores and config.groups.includes(group.group)
    ]
    by_group: dict[str, list[tuple[str, Mapping[TopicPartition, tuple[int, str]]]]] = {}
    errors: dict[str, list[tuple[str, Mapping[TopicPartition, str]]]] = {}
    for stored in await admin.list_stored_offsets(wanted):
        if stored.error is not None:
            raise stored.error
        # Unreadable parts of a group in ZooKeeper don't hide its other offsets: see
        # `SourceOffset.error`.
        texts = {tp: in_keys(error.text) for tp, error in stored.errors.items()}
        if stored.others:
            texts[UNREAD] = some_of([in_keys(one.text) for one in stored.others], separator=". ")
        if texts:
            errors.setdefault(stored.group, []).append((stored.store, texts))
        if stored.offsets:
            values = {
                tp: (offset.offset, offset.metadata or "") for tp, offset in stored.offsets.items()
            }
            by_group.setdefault(stored.group, []).append((stored.store, values))
    return {
        group: merge_stores(by_group.get(group, ()), errors.get(group, ()))
        for group in dict.fromkeys([*by_group, *errors])
    }


async def unmatched_groups(
    config: BridgeConfig, admin: AIOKafkaAdminClient, file_offsets: FileOffsets
) -> str | None:
    """Return which patterns of `groups.include` match no group, and the known groups, or None.

    Raises:
        KafkaError: a store can't be read.
    """
    names = set(file_offsets)
    if config.groups.store != "file":
        stores = stores_of(config)
        names = {group.group for group in await admin.list_stored_groups() if group.store in stores}
    patterns = unmatched(config.groups.include, names)
    return nothing_matches("group", patterns, names) if patterns else None


def stores_of(config: BridgeConfig) -> list[str]:
    """Return the source's stores to read groups from; not for `groups.store = "file"`."""
    store = config.groups.store
    return ["kafka", "zookeeper"] if store in ("auto", "both") else [store]


async def source_members(
    config: BridgeConfig, admin: AIOKafkaAdminClient, groups: Sequence[str]
) -> tuple[dict[str, list[str]], list[str]]:
    """Return the members at the source by group, and the errors of members that can't be read.

    Raises:
        KafkaError: a coordinator or ZooKeeper doesn't respond.
    """
    stored: list[StoredGroup] = [
        group for group in await admin.list_stored_groups() if group.group in groups
    ]
    members: dict[str, list[str]] = {}
    unreadable: list[str] = []
    for group in await admin.describe_stored_groups(stored):
        unreadable += [error.text for error in group.errors]
        if group.error is not None:
            raise group.error
        if group.description is not None and group.description.members:
            names = [member.member_id for member in group.description.members]
            members.setdefault(group.group, []).extend(names)
    return members, unreadable


async def copied_partitions(
    config: BridgeConfig, admin: AIOKafkaAdminClient, target: Target
) -> dict[TopicPartition, CopiedPartition]:
    """Return the copy's state of each partition of the bridge's topics.

    Raises:
        KafkaError: a cluster doesn't respond.
    """
    names, tps = await copied_topics(config, admin)
    counts = await when_available(target.partition_counts)
    copies = {tp: TopicPartition(names[tp.topic], tp.partition) for tp in tps}
    existing = [copy for copy in copies.values() if copy.partition < counts.get(copy.topic, 0)]
    target_logs = await when_available(lambda: target.log_bounds(existing))
    positions = await when_available(lambda: target.committed(config.position_group, existing))
    # A committed transaction becomes visible in one partition after the other, so the runs of a
    # position may show later than the position.
    await when_available(lambda: target.wait_decided(config.offsets_topic))
    runs = await when_available(lambda: read_stored_runs(config, target))
    logs = await admin.list_log_bounds(tps)
    return {
        tp: CopiedPartition(
            copy,
            await environment.run_in_thread(runs.offset_map, tp),
            positions.get(copy),
            logs.get(tp, LogBounds(None, None)),
            target_logs[copy][0] if copy in target_logs else None,
        )
        for tp, copy in copies.items()
    }


async def without_head_holes(
    config: BridgeConfig,
    partitions: Mapping[TopicPartition, CopiedPartition],
    offsets: Iterable[Mapping[TopicPartition, SourceOffset]],
) -> dict[TopicPartition, CopiedPartition]:
    """Return the partitions; where groups miss nothing before the first copy, start the log there.

    Args:
        config: the file of the bridge.
        partitions: the partitions of the source.
        offsets: the offsets that each group has committed at the source.

    Raises:
        KafkaError: the source doesn't respond.
    """
    # A compacted log may have no messages between a group's offset and the first copy; then the
    # group misses none. Only partitions where a group's offset is before the first copy are read,
    # each from the smallest such offset on.
    gaps: dict[TopicPartition, tuple[int, int]] = {}
    for tp, at in sorted(
        (tp, offset.offset)
        for of_group in offsets
        for tp, offset in of_group.items()
        if not offset.error
    ):
        part = partitions.get(tp)
        # Without a leader the partition can't be read, so its groups stay before the first copy.
        if part is None or (log_start := part.source.start) is None:
            continue
        if part.lacks_copies_from(at):
            gaps.setdefault(tp, (max(at, log_start), part.known.first_source or 0))
    result = dict(partitions)
    if gaps:
        async with source_router(config) as router:
            records = RangeRecords(router)
            try:
                for tp, (start, first) in gaps.items():
                    if not await records.has_any(tp, start, first):
                        log = result[tp].source._replace(start=first)
                        result[tp] = replace(result[tp], source=log)
            finally:
                await records.close()
    return result
