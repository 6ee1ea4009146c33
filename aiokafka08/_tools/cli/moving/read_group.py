"""Read as a member of a consumer group, and commit the records that were written out.

Invariant: a commit covers records that the output's reader has taken, and no others, so a member or
a reader that dies loses nothing. Only the commit at the member's regular end covers all written
records.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Final

from aiokafka08 import AIOKafkaConsumer
from aiokafka08._tools.cli.moving.pipes import Output
from aiokafka08._tools.reading.read_plan import PartitionRange
from aiokafka08._tools.reading.read_records import (
    MissingTopics,
    RecordBatchSource,
    records_before,
)
from aiokafka08.abc import ConsumerRebalanceListener
from aiokafka08.errors import CommitFailedError, IllegalStateError
from aiokafka08.structs import TopicPartition

COMMIT_S: Final = 5.0
_POLL_MS: Final = 200


class GroupReader(ConsumerRebalanceListener):
    """A member of a group that reads until each of its partitions has reached its stop.

    Args:
        consumer: a started consumer with a group, and without a subscription.
        topics: existing topics.
        ranges: the stop of each partition; and its start, if `seek` is true.
        output: the output of the records.
        seek: begin at the start of the ranges, whatever the group has committed.
        on_commit: called after each commit with the number of records that it covers.
    """

    def __init__(
        self,
        consumer: AIOKafkaConsumer[bytes, bytes],
        topics: Iterable[str],
        ranges: Iterable[PartitionRange],
        output: Output,
        *,
        seek: bool,
        on_commit: Callable[[int], object],
    ) -> None:
        self._consumer = consumer
        self._topics = list(topics)
        self._ranges = {range_.tp: range_ for range_ in ranges}
        self._to_seek = set(self._ranges) if seek else set[TopicPartition]()
        self._assigned: set[TopicPartition] | None = None
        self._output = output
        self._taken: dict[TopicPartition, int] = {}
        self._taken_count = 0
        self._on_commit = on_commit
        # Per entry: the total number of bytes written by then, the number of records since the
        # previous entry, and the offsets to commit once the output's reader has taken these bytes.
        self._waiting: deque[tuple[int, int, dict[TopicPartition, int]]] = deque()
        self._read_to: dict[TopicPartition, int] = {}
        self._commit_at = asyncio.get_running_loop().time() + COMMIT_S

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """See `ConsumerRebalanceListener`."""
        self._assigned = None
        await self.commit()

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """See `ConsumerRebalanceListener`."""
        # Before a partition came back, another member may have read on and committed, so an older
        # offset must not be committed now.
        self._taken.clear()
        self._taken_count = 0
        self._waiting.clear()
        for tp in self._to_seek & set(assigned):
            self._consumer.seek(tp, self._ranges[tp].start)
        self._to_seek -= set(assigned)
        self._assigned = set(assigned)

    async def read(self) -> RecordBatchSource:
        """Yield the records of the assigned partitions.

        Raises:
            UnknownTopicOrPartitionError: a topic was deleted.
            KafkaError: as `getmany`.
        """
        consumer = self._consumer
        consumer.subscribe(self._topics, listener=self)
        ended: set[TopicPartition] = set()
        missing = MissingTopics(self._topics)
        while True:
            missing.check(consumer)
            for tp, records in (await consumer.getmany(timeout_ms=_POLL_MS)).items():
                if self._assigned is not None and tp in self._assigned:
                    self._read_to[tp] = await consumer.position(tp)
                    yield tp, records_before(records, self._stop(tp))
            loop = asyncio.get_running_loop()
            if loop.time() >= self._commit_at:
                await self.commit()
            if self._assigned is None:
                continue
            newly_ended = await self._find_ended(self._assigned - ended)
            for tp in newly_ended:
                yield tp, []
            ended |= newly_ended
            if self._is_done(ended):
                return

    def written(self, tp: TopicPartition, offset: int, count: int) -> None:
        """Note that the output has `count` more records of a partition, all before `offset`."""
        # Several records may have the same offset (docs/brokers.md 6.7). While more of them may
        # come, the consumer's position is lower than `offset`.
        written = self._output.written_bytes
        before, offsets = 0, dict[TopicPartition, int]()
        if self._waiting and self._waiting[-1][0] >= written:
            _, before, offsets = self._waiting.pop()
        offsets[tp] = min(offset, self._read_to[tp])
        self._waiting.append((written, before + count, offsets))
        self._take(self._output.taken_bytes())

    async def commit(self, *, all_written: bool = False) -> None:
        """Commit the offsets of taken records in partitions that are still assigned.

        Args:
            all_written: True counts records that wait for the output's reader, too (default False).

        Raises:
            KafkaError: the commit failed.
        """
        self._commit_at = asyncio.get_running_loop().time() + COMMIT_S
        output = self._output
        self._take(output.written_bytes if all_written else output.taken_bytes())
        assigned = self._consumer.assignment()
        offsets = {tp: offset for tp, offset in self._taken.items() if tp in assigned}
        count, self._taken, self._taken_count = self._taken_count, {}, 0
        if offsets:
            with suppress(CommitFailedError):  # another member has the partitions now
                await self._consumer.commit(offsets)
                self._on_commit(count)

    def _take(self, taken_bytes: int) -> None:
        """Note as taken the records in the first `taken_bytes` bytes of the output."""
        while self._waiting and self._waiting[0][0] <= taken_bytes:
            _, count, offsets = self._waiting.popleft()
            self._taken.update(offsets)
            self._taken_count += count

    def _is_done(self, ended: set[TopicPartition]) -> bool:
        return self._assigned is not None and self._assigned <= ended

    def _stop(self, tp: TopicPartition) -> int | None:
        range_ = self._ranges.get(tp)
        return None if range_ is None else range_.stop

    async def _find_ended(self, tps: Collection[TopicPartition]) -> set[TopicPartition]:
        ended = set()
        for tp in tps:
            stop = self._stop(tp)
            with suppress(IllegalStateError):  # revoked meanwhile
                if stop is not None and await self._consumer.position(tp) >= stop:
                    ended.add(tp)
        return ended
