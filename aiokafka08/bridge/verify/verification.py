"""`verify`: read each partition and its copy once, and compare them message by message.

The source's messages are compared from the start of the log (or of the copy, if that is later) to
the bridge's position. The target's messages are compared from the first to the last, except copies
of messages that the source no longer has.

Invariant: a call reads each message once, and compares both sides up to the same position, even
while the bridge copies. So a message that is waiting to be copied isn't a difference, but a message
that another producer has written to the target is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from aiokafka08 import environment
from aiokafka08._wording import partition_text
from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.bridge.copy.copy_positions import read_stored_runs
from aiokafka08.bridge.copy.offset_runs import OffsetMap
from aiokafka08.bridge.errors import BridgeError
from aiokafka08.bridge.source.source_clients import copied_topics, source_admin, source_router
from aiokafka08.bridge.target.target_cluster import Target
from aiokafka08.bridge.target.target_release import refuse_old_target
from aiokafka08.bridge.target.when_available import when_available
from aiokafka08.bridge.verify.checked_source import SourceChecksums
from aiokafka08.bridge.verify.checked_target import TargetChecksums
from aiokafka08.bridge.verify.sequence_check import (
    CheckProgress,
    Difference,
    Portion,
    SequenceCheck,
)
from aiokafka08.errors import KafkaUnavailableError
from aiokafka08.structs import TopicPartition

# How many partitions are compared at a time.
_AT_ONCE: Final = 4


class PartitionBounds(NamedTuple):
    """The ranges of a partition's offsets that are compared; the ends are exclusive."""

    source_first: int
    source_end: int
    target_first: int
    target_end: int
    # How many offsets the source has after the bridge's position; they aren't compared.
    waiting: int
    # How many offsets the source has before the first message copied; not compared either.
    before: int


class OffsetPair(NamedTuple):
    """The two offsets of a message that is equal on both sides, and the one that its run gives."""

    source_offset: int
    target_offset: int
    # The target offset that the stored runs (`OffsetRun`) give; None if no run has the message.
    stored_target: int | None

    @property
    def is_wrong(self) -> bool:
        """True if the runs give another target offset."""
        return self.stored_target not in (None, self.target_offset)


@dataclass(frozen=True, slots=True)
class PartitionVerdict:
    """The outcome for a partition of the source; a call with `resume` continues at `progress`."""

    topic: str
    partition: int
    target_topic: str
    progress: CheckProgress
    # As in `PartitionBounds`.
    waiting: int = 0
    is_complete: bool = False
    # False if the source has messages, and none was copied yet; then the partition isn't equal.
    has_begun: bool = True
    # The first difference is a message at the target that the bridge hasn't written.
    is_of_another: bool = False
    before: int = 0
    # The first and the last equal message before the first difference; None until both sides were
    # compared to the end. They serve to check the stored runs, which translate groups' offsets.
    first_map: OffsetPair | None = None
    last_map: OffsetPair | None = None

    @property
    def difference(self) -> Difference | None:
        """The first message that isn't the same; None if there is none."""
        return self.progress.difference

    @property
    def wrong_map(self) -> OffsetPair | None:
        """The message for which the stored runs give another offset; None if there is none."""
        # If there is a difference, the pairs prove nothing. When one of several identical messages
        # is lost, the others are paired with the wrong copies; and if a message was copied twice,
        # the runs give the later copy.
        if self.difference is None:
            for pair in (self.first_map, self.last_map):
                if pair is not None and pair.is_wrong:
                    return pair
        return None

    @property
    def first_difference(self) -> int | None:
        """The source offset of the first message that differs, or has a wrong map; or None."""
        difference = self.difference or self.wrong_map
        return None if difference is None else difference.source_offset

    @property
    def is_equal(self) -> bool:
        """True if both sides were compared to the end, and are the same, with the right maps."""
        return self.is_complete and self.first_difference is None


def bounds(
    source: tuple[int, int], target: tuple[int, int], position: int | None, known: OffsetMap
) -> PartitionBounds:
    """Return the ranges of a partition's offsets to compare.

    Args:
        source: the first offset of the source's log, and its end.
        target: the same for the target.
        position: the bridge's position in the source; None without one.
        known: the runs of offsets that the bridge has copied; empty without a bridge.
    """
    source_first, source_end = source
    target_first, target_end = target
    end = source_end if position is None else max(source_first, min(position, source_end))
    waiting = source_end - end
    # The bridge may have copied more since the target's end was read. The runs were read after the
    # position, and say where the copies of the messages before the position end.
    if position is not None:
        target_end = max(target_end, known.to_target(position, position) or 0)
    if known.first_source is not None and source_first > known.first_source:
        # Retention has deleted messages at the source that the target still has.
        at = known.to_target(source_first, position)
        target_first = max(target_first, target_end if at is None else at)
    before = 0
    if known.first_source is not None and known.first_source > source_first:
        # The copy began after the log's start.
        before = min(known.first_source, end) - source_first
    return PartitionBounds(
        source_first + before, end, target_first, max(target_first, target_end), waiting, before
    )


def name_other_producer(verdict: PartitionVerdict, known: OffsetMap) -> PartitionVerdict:
    """Return the verdict; its difference is "extra" if another producer wrote the target's message.

    `known` has the runs of the transactions that wrote the messages.
    """
    difference, first = verdict.difference, known.first_target
    if (
        difference is None
        or verdict.progress.target_count == difference.equal_count  # the target has ended there
        or first is None
        or difference.target_offset < first
        or known.has_copy_at(difference.target_offset)
    ):
        return verdict
    progress = replace(verdict.progress, difference=difference._replace(kind="extra"))
    return replace(verdict, progress=progress, is_of_another=True)


def check_maps(verdict: PartitionVerdict, known: OffsetMap) -> PartitionVerdict:
    """Return the verdict with the stored target offsets of its first and last equal message."""
    progress = verdict.progress
    first, last = (
        None if pair is None else OffsetPair(*pair, known.copy_of(*pair))
        for pair in (progress.first_pair, progress.last_pair)
    )
    return replace(verdict, first_map=first, last_map=last)


async def verify(
    config: BridgeConfig,
    *,
    resume: Mapping[TopicPartition, PartitionVerdict] | None = None,
    timestamps: bool = False,
    on_progress: Callable[[PartitionVerdict], object] = lambda verdict: None,
) -> list[PartitionVerdict]:
    """Compare all topics of a bridge with their copies.

    Args:
        config: the file of the bridge.
        resume: the verdicts of an earlier verification; their partitions continue there, or at
            their first difference, which may be gone (default None).
        timestamps: True compares the timestamps, too, except those of messages that have none at
            the source, or one at or below 0, which the copy doesn't keep (default False).
        on_progress: called with a partition's verdict so far, often (default: does nothing).

    Returns:
        A verdict per partition, ordered.

    Raises:
        BridgeError: a pattern of `topics.include` matches no topic, or no topic is left.
        KafkaError: a cluster doesn't respond, or a log can't be read.
    """
    await refuse_old_target(config)
    target = Target(config)
    try:
        async with source_admin(config) as admin:
            if (mismatch := config.topics.mismatch(await admin.list_topics())) is not None:
                raise BridgeError(mismatch)
            names, tps = await copied_topics(config, admin)
            counts = await when_available(target.partition_counts)
            copies = {tp: TopicPartition(names[tp.topic], tp.partition) for tp in tps}
            existing = [
                copy for copy in copies.values() if copy.partition < counts.get(copy.topic, 0)
            ]
            # The target's logs are read first, and then the position. So all copies before the ends
            # of these logs are of messages before the position.
            target_logs = await when_available(lambda: target.log_bounds(existing))
            positions = await when_available(
                lambda: target.committed(config.position_group, existing)
            )
            # The runs are read last. The bridge may have copied more between the first two reads;
            # the runs say where the copies before the position end. `bounds` takes the larger end.
            await when_available(lambda: target.wait_decided(config.offsets_topic))
            runs = await when_available(lambda: read_stored_runs(config, target))
            source_logs = await admin.list_log_bounds(tps)
        plan: dict[TopicPartition, PartitionBounds] = {}
        verdicts: list[PartitionVerdict] = []
        for tp, copy in copies.items():
            log = source_logs.get(tp)
            if log is None or log.start is None or log.end is None:
                raise KafkaUnavailableError(
                    f"{partition_text(tp)}: the source has no leader for "
                    "it, so its messages can't be read"
                )
            target_log = target_logs.get(copy, (0, 0))
            if copy not in positions and target_log[1] == 0 and log.start < log.end:
                first, waiting = CheckProgress(log.start, 0), log.end - log.start
                verdict = PartitionVerdict(*tp, copy.topic, first, waiting, has_begun=False)
                verdicts.append(verdict)
                on_progress(verdict)
                continue
            known = await environment.run_in_thread(runs.offset_map, tp)
            plan[tp] = bounds((log.start, log.end), target_log, positions.get(copy), known)
        await _keep_within_logs(target, plan, copies, target_logs)
        ends = {copies[tp]: partition_bounds.target_end for tp, partition_bounds in plan.items()}
        # A transaction's commit may reach the partition that has the position before it reaches
        # the partitions that have the records.
        await when_available(lambda: target.wait_stable(ends))
        compared = await _Verification(config, target, timestamps, on_progress).run(
            plan, copies, resume or {}
        )
        for verdict in compared:
            tp = TopicPartition(verdict.topic, verdict.partition)
            known = await environment.run_in_thread(runs.offset_map, tp)
            verdict = check_maps(verdict, known)
            if verdict.difference is not None:
                verdict = name_other_producer(verdict, known)
            on_progress(verdict)
            verdicts.append(verdict)
        return sorted(verdicts, key=lambda verdict: (verdict.topic, verdict.partition))
    finally:
        await target.close()


async def _keep_within_logs(
    target: Target,
    plan: dict[TopicPartition, PartitionBounds],
    copies: Mapping[TopicPartition, TopicPartition],
    logs: Mapping[TopicPartition, tuple[int, int]],
) -> None:
    """Cut the bounds in `plan` that wrong runs have put beyond the end of the target's log.

    Otherwise the comparison would wait for messages that never come. `logs` are the bounds of the
    target's logs from before the runs were read.
    """
    behind = [
        tp
        for tp, partition_bounds in plan.items()
        if partition_bounds.target_end > logs.get(copies[tp], (0, 0))[1]
    ]
    wanted = [copies[tp] for tp in behind]
    if behind:
        # These ends include open transactions, since their commit markers may not be written yet.
        ends = await when_available(lambda: target.log_ends(wanted))
        for tp in behind:
            partition_bounds, end = plan[tp], ends[copies[tp]]
            plan[tp] = partition_bounds._replace(
                target_first=min(partition_bounds.target_first, end),
                target_end=min(partition_bounds.target_end, end),
            )


class _Verification:
    def __init__(
        self,
        config: BridgeConfig,
        target: Target,
        timestamps: bool,
        on_progress: Callable[[PartitionVerdict], object],
    ) -> None:
        self._config, self._target = config, target
        self._timestamps, self._on_progress = timestamps, on_progress

    async def run(
        self,
        plan: Mapping[TopicPartition, PartitionBounds],
        copies: Mapping[TopicPartition, TopicPartition],
        resume: Mapping[TopicPartition, PartitionVerdict],
    ) -> list[PartitionVerdict]:
        verdicts: dict[TopicPartition, PartitionVerdict] = {}
        async with source_router(self._config) as router:
            source = SourceChecksums(router)
            waiting = sorted(plan)

            async def work() -> None:
                reader = TargetChecksums(self._target, self._config)
                try:
                    while waiting:
                        tp = waiting.pop(0)
                        verdicts[tp] = await self._compare(
                            tp, copies[tp], plan[tp], resume.get(tp), source, reader
                        )
                finally:
                    await reader.close()

            try:
                async with asyncio.TaskGroup() as tasks:
                    for _ in range(min(_AT_ONCE, len(plan))):
                        tasks.create_task(work())
            finally:
                await source.close()
        return list(verdicts.values())

    async def _compare(
        self,
        tp: TopicPartition,
        copy: TopicPartition,
        partition_bounds: PartitionBounds,
        before: PartitionVerdict | None,
        source: SourceChecksums,
        target: TargetChecksums,
    ) -> PartitionVerdict:
        progress = CheckProgress(partition_bounds.source_first, partition_bounds.target_first)
        if before is not None and before.target_topic == copy.topic:
            progress = before.progress.before_difference()
        check = SequenceCheck(progress, timestamps=self._timestamps)
        verdict = PartitionVerdict(
            *tp,
            copy.topic,
            progress,
            waiting=partition_bounds.waiting,
            before=partition_bounds.before,
        )
        # Messages that share the last equal offset are read again, and those already counted are
        # left out.
        start, leave_out = progress.source_start(partition_bounds.source_first)
        ours = source.read(tp, start, partition_bounds.source_end, leave_out)
        theirs = target.read(copy, progress.target_next, partition_bounds.target_end)
        async with aclosing(ours), aclosing(theirs):
            while not check.is_complete:
                async with asyncio.TaskGroup() as tasks:
                    if check.wants_source:
                        tasks.create_task(_feed(ours, check.add_source))
                    if check.wants_target:
                        tasks.create_task(_feed(theirs, check.add_target))
                verdict = replace(verdict, progress=check.progress)
                self._on_progress(verdict)
        verdict = replace(verdict, is_complete=True)
        self._on_progress(verdict)
        return verdict


async def _feed(portions: AsyncIterator[Portion], add: Callable[[Portion], None]) -> None:
    """Pass on the next portion; an empty one at the end."""
    try:
        portion = await anext(portions)
    except StopAsyncIteration:
        portion = Portion()
    add(portion)
