"""`CopyStarts`: where a session begins to copy each partition.

A partition without a position at the target begins at the start of its log, or with
`copy.start = "latest"` at its end. A topic that was created again begins at offset 0.

Invariant: "latest" counts only for partitions that the bridge's first session finds with a leader.
A partition that is found later begins at the start of its log, because messages may have come
before it was found.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from aiokafka08._wording import partition_text
from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.bridge.copy.copy_positions import (
    FoundPosition,
    StoredRuns,
    copied_elsewhere,
    find_positions,
    lost_position,
)
from aiokafka08.bridge.copy.tail import find_by_tail
from aiokafka08.bridge.sink.sink import BridgeRun
from aiokafka08.bridge.source.source_reader import PartitionLostError, SourceReader
from aiokafka08.bridge.source.topic_identity import TopicIdentities
from aiokafka08.bridge.target.target_cluster import Target
from aiokafka08.structs import TopicPartition

_log: Final = logging.getLogger("aiokafka08.bridge")


FindByTail = Callable[[SourceReader, Target, TopicPartition, TopicPartition], Awaitable[int | None]]


class CopyStart(NamedTuple):
    """The offset at which a partition of the source begins; `commit`: commit it before the copy."""

    offset: int
    commit: bool


class LeftOut(NamedTuple):
    """Why a partition isn't copied in this session, and its position, 0 if it isn't known."""

    position: int
    reason: str


@dataclass(slots=True)
class FoundStarts:
    """The result of `CopyStarts.find`, by partition of the source."""

    positions: dict[TopicPartition, CopyStart] = field(default_factory=dict)
    left_out: dict[TopicPartition, LeftOut] = field(default_factory=dict)
    # Without a position, and without a known end of the log.
    leaderless: list[TopicPartition] = field(default_factory=list)
    # Those in `positions` that have no position at the target: nothing was copied.
    begins: set[TopicPartition] = field(default_factory=set)


class CopyStarts:
    """Finds where partitions begin.

    Args:
        config: the file of the bridge.
        source: the source cluster.
        target: the connection to the target.
        identities: names the recreated topics to copy from the beginning, and those not to copy.
        run: what the sessions of this process share.
        find_by_tail: finds the offset of the source after the last records of a copy.
    """

    def __init__(
        self,
        config: BridgeConfig,
        source: SourceReader,
        target: Target,
        identities: TopicIdentities,
        run: BridgeRun,
        *,
        find_by_tail: FindByTail = find_by_tail,
    ) -> None:
        self._find_by_tail = find_by_tail
        self._config, self._source, self._target = config, source, target
        self._identities, self._run = identities, run

    async def find(
        self,
        pairs: Mapping[TopicPartition, TopicPartition],
        stored: StoredRuns,
        *,
        has_run: bool,
        wait_s: float,
    ) -> FoundStarts:
        """Return where partitions begin.

        Args:
            pairs: partition of the source → partition of the target.
            stored: the records of the offsets topic.
            has_run: whether the bridge has been started before.
            wait_s: how long to wait for the leaders of partitions without a position.

        Raises:
            KafkaError: one of the clusters doesn't respond.
        """
        # The partitions that must not begin behind messages of their copies (`find_positions`). The
        # first session has none, because the start has checked that the copies are empty. A copy of
        # a topic that is found later wasn't checked, and may have messages.
        judged = pairs.keys() - self._run.begun if has_run or self._run.has_begun else ()
        positions = await find_positions(self._config, self._target, pairs, stored, judged)
        begun_anew = positions.keys() & self._identities.begun_anew
        positions |= {tp: FoundPosition(0, "anew") for tp in begun_anew}
        starts = FoundStarts()
        for tp in pairs:
            if (reason := self._identities.reason(tp)) is not None:
                starts.left_out[tp] = LeftOut(positions.pop(tp).offset or 0, reason)
        # The bridge has also begun if another process has committed some of the first positions.
        has_begun = self._run.has_begun or any(
            position.origin != "none" for position in positions.values()
        )
        unknown = [tp for tp, position in positions.items() if position.offset is None]
        bounds = await self._source.reachable_bounds(unknown, wait_s)
        for tp, position in positions.items():
            if position.offset is not None:
                starts.positions[tp] = self._known(tp, position.offset, position)
            elif position.origin == "elsewhere":
                reason = copied_elsewhere(self._config, tp, pairs[tp])
                starts.left_out[tp] = LeftOut(0, reason)
            elif tp not in bounds:
                starts.leaderless.append(tp)
            elif position.origin == "lost":
                offset = await self._by_tail(tp, pairs[tp])
                if offset is None:
                    starts.left_out[tp] = LeftOut(0, lost_position(self._config, tp))
                else:
                    starts.positions[tp] = self._known(tp, offset, FoundPosition(offset, "tail"))
            else:
                offset = self._first(tp, bounds[tp], has_begun=has_begun, has_run=has_run)
                # Without a committed position, a later session would begin elsewhere.
                is_latest = self._config.copy.start == "latest"
                starts.positions[tp] = CopyStart(offset, is_latest or offset > 0)
                starts.begins.add(tp)
        return starts

    def _known(self, tp: TopicPartition, offset: int, position: FoundPosition) -> CopyStart:
        if position.origin in ("offsets topic", "tail"):
            _log.warning(
                "%s: %s: the committed position has expired; going on at "
                "offset %d, by the %s", self._config.client_id, partition_text(tp), offset,
                "offsets topic" if position.origin != "tail" else "last records of the target",
            )  # fmt: skip
        # For `needs_commit` see `find`. A position of the group is committed already; one that
        # begins anew replaces the position of the deleted topic.
        needs_commit = offset > 0 or self._config.copy.start == "latest"
        commit = position.origin == "anew" or (position.origin != "group" and needs_commit)
        return CopyStart(offset, commit)

    async def _by_tail(self, tp: TopicPartition, copy: TopicPartition) -> int | None:
        try:
            return await self._find_by_tail(self._source, self._target, tp, copy)
        except PartitionLostError as lost:
            _log.warning("%s: search by the tail: %s", self._config.client_id, lost.text)
            return None

    def _first(
        self, tp: TopicPartition, log: tuple[int, int], *, has_begun: bool, has_run: bool
    ) -> int:
        """Return where a partition without a position begins."""
        first, end = log
        if self._config.copy.start == "earliest":
            return first
        if tp in self._run.first_ends:  # a session of this process couldn't commit it
            return self._run.first_ends[tp]
        if has_begun:
            _log.warning(
                "%s: %s: the bridge has no position of it, and begins at its "
                'earliest offset, %d: copy.start = "latest" counts only for what its first session '
                "finds", self._config.client_id, partition_text(tp), first,
            )  # fmt: skip
            return first
        if has_run:
            _log.warning(
                "%s: %s: the bridge was started before, but has no position of "
                'any partition; it begins at the latest offset, %d (copy.start = "latest")',
                self._config.client_id, partition_text(tp), end,
            )  # fmt: skip
        self._run.first_ends[tp] = end
        return end
