"""What a consumer can be asked and told about partitions: positions, commits, the log's bounds.

The part of `AIOKafkaConsumer` that gives no messages; a base class only so that each file keeps to
one subject. Every method that waits checks that the consumer runs, and ends at `stop()`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping

from aiokafka08.concurrency.stop_scope import StopScope
from aiokafka08.consumer.commits import LAST_OFFSET, Offsets, checked
from aiokafka08.consumer.config import ConsumerConfig
from aiokafka08.consumer.cursor import Cursor, StartPosition
from aiokafka08.consumer.engine import ConsumerEngine
from aiokafka08.errors import Action, IllegalStateError, KafkaTimeoutError, action_for
from aiokafka08.net.cluster import INTERNAL_TOPICS, check_partitions
from aiokafka08.net.list_offsets import list_offsets
from aiokafka08.net.offsets_for_times import offsets_for_times
from aiokafka08.net.router import Router
from aiokafka08.offset_store import OffsetStore
from aiokafka08.protocol.api import EARLIEST, LATEST
from aiokafka08.structs import OffsetAndTimestamp, TopicPartition


class PartitionCalls:
    """The calls about partitions; `AIOKafkaConsumer` sets the attributes."""

    _router: Router
    _config: ConsumerConfig
    _store: OffsetStore
    _assignment: ConsumerEngine
    _calls: StopScope

    # --- positions --------------------------------------------------------------------------------

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next message of a partition.

        Raises:
            IllegalStateError: it isn't assigned.
            NoOffsetForPartitionError: nothing is committed, and auto_offset_reset is "none".
            KafkaTimeoutError: it wasn't found out within `request_timeout_ms`; says why, if it is
                for want of a partition or a leader (aiokafka waits for ever).
        """
        self._assignment.check()
        cursor = self._assignment.cursor(partition)
        if cursor.position is None and not await self._wait_positions([partition]):
            why = self._router.metadata.snapshot.no_leader_reason(partition)
            raise KafkaTimeoutError(
                f"no position of {partition} within "
                f"{self._router.config.request_timeout_s * 1000:.0f} ms"
                + (f": {why}" if why else "")
            )
        position = self._assignment.cursor(partition).position
        assert position is not None
        return position

    async def _wait_positions(self, partitions: Collection[TopicPartition]) -> bool:
        """Until all have positions; False after `request_timeout_ms`."""
        deadline = asyncio.get_running_loop().time() + self._router.config.request_timeout_s
        while True:
            self._assignment.check()
            missing = [
                cursor for cursor in self._assignment.chosen(partitions) if cursor.position is None
            ]
            for cursor in missing:
                try:
                    cursor.tell_error()
                finally:
                    self._assignment.changed(cursor)
            if not missing:
                return True
            if not await self._assignment.feed.bell.wait(deadline):
                return False

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read on at `offset`; what was fetched of the partition is dropped.

        Raises:
            IllegalStateError: the partition isn't assigned.
            ValueError: the offset isn't an integer from 0 to 2⁶³-1.
        """
        if type(offset) is not int or not 0 <= offset <= LAST_OFFSET:
            raise ValueError(f"offset {offset!r}: allowed are integers from 0 to 2**63 - 1")
        self._assignment.seek(self._assignment.cursor(partition), offset)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> bool:
        """Read on at the first messages that are kept; of all assigned partitions by default.

        Returns:
            False where the offsets weren't found out within `request_timeout_ms`; the search
            goes on.

        Raises:
            IllegalStateError: a partition isn't assigned.
            TypeError: one isn't a `TopicPartition`.
        """
        return await self._restart(partitions, StartPosition.EARLIEST)

    async def seek_to_end(self, *partitions: TopicPartition) -> bool:
        """Read on behind the last messages; otherwise as `seek_to_beginning`."""
        return await self._restart(partitions, StartPosition.LATEST)

    async def _restart(self, partitions: Collection[TopicPartition], start: StartPosition) -> bool:
        self._assignment.check()
        cursors = self._assignment.chosen(partitions)
        if not cursors:
            raise IllegalStateError("no partitions are assigned")
        for cursor in cursors:
            self._assignment.restart(cursor, start)
        return await self._wait_positions([cursor.topic_partition for cursor in cursors])

    async def seek_to_committed(
        self, *partitions: TopicPartition
    ) -> dict[TopicPartition, int | None]:
        """Read on at the committed offsets, where there are any; returns them.

        Raises as `committed`, and:
            IllegalStateError: a partition isn't assigned.
        """
        self._assignment.check()
        self._store.check()
        chosen = {one.topic_partition: one for one in self._assignment.chosen(partitions)}
        offsets = await self._calls.run(self._fetch_committed(chosen))
        for tp, offset in offsets.items():
            # Not what was given back meanwhile: others may have committed since, if it came again.
            if offset is not None and self._assignment.cursors.get(tp) is chosen[tp]:
                self.seek(tp, offset)
        return offsets

    def highwater(self, partition: TopicPartition) -> int | None:
        """The high watermark: the offset of the next message to be written; None: not known yet."""
        cursor = self._assignment.cursor(partition)
        return None if cursor.high_watermark < 0 else cursor.high_watermark

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """None: the protocol has no such offset (brokers from 0.11 on have)."""
        self._assignment.cursor(partition)
        return None

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """When `highwater` was learned, in milliseconds since the epoch; None: not yet."""
        return self._assignment.cursor(partition).polled_at_ms

    def pause(self, *partitions: TopicPartition) -> None:
        """Give no messages of these partitions; what was fetched of them is kept."""
        self._each(partitions, self._assignment.pause)

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        return {tp for tp, cursor in self._assignment.cursors.items() if cursor.paused}

    def resume(self, *partitions: TopicPartition) -> None:
        """Go on with paused partitions."""
        self._each(partitions, self._assignment.resume)

    def _each(self, partitions: Collection[TopicPartition], act: Callable[[Cursor], None]) -> None:
        if partitions:
            for cursor in self._assignment.chosen(partitions):
                act(cursor)

    # --- committed offsets ------------------------------------------------------------------------

    async def commit(self, offsets: Offsets | None = None) -> None:
        """Commit these offsets (that of the next message to read, or a pair of it and a text), or
        the positions of all partitions.

        Raises:
            CommitFailedError: the group has rebalanced without this member.
            IllegalOperation: there is no `group_id`.
            IllegalStateError: a partition isn't assigned.
            OffsetMetadataTooLargeError: the text has over 4096 characters (1024 below 0.8.2).
            ValueError, TypeError: the offsets aren't as allowed.
            KafkaTimeoutError: not within `request_timeout_ms`; names the partitions, and why.
            KafkaError: the broker refused; names the partitions.
        """
        self._assignment.check()
        self._store.check()
        if offsets is None:
            if not self._assignment.cursors:
                raise IllegalStateError("no partitions are assigned")
            commits = self._assignment.commits.positions(self._assignment.cursors)
        else:
            commits = checked(offsets)
            for tp in commits:
                self._assignment.cursor(tp)
        await self._calls.run(self._assignment.commits.commit(commits))

    async def committed(self, partition: TopicPartition) -> int | None:
        """The committed offset of a partition, whoever committed it; None where nothing is.

        Raises:
            IllegalOperation: there is no `group_id`.
            TypeError: it isn't a `TopicPartition`.
            KafkaTimeoutError: not found out within `request_timeout_ms`.
        """
        self._assignment.check()
        self._store.check()
        return (await self._calls.run(self._fetch_committed([partition])))[partition]

    async def _fetch_committed(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        for tp in partitions:
            if not isinstance(tp, TopicPartition):
                raise TypeError(f"{tp!r} must be a TopicPartition")
        committed = await self._store.fetch(partitions)
        found = {tp: committed.get(tp) for tp in partitions}
        return {tp: None if one is None else one.offset for tp, one in found.items()}

    # --- what the cluster has ---------------------------------------------------------------------

    async def topics(self) -> set[str]:
        """The names of all topics, without the brokers' own unless they are included."""
        self._assignment.check()
        answer = await self._calls.run(self._router.metadata.fetch_all())
        return {
            state.topic
            for state in answer.topics
            if action_for(state.error_code) is not Action.FINAL
            and not (
                self._config.exclude_internal_topics
                and (state.is_internal or state.topic in INTERNAL_TOPICS)
            )
        }

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """The partitions of a topic, if its metadata has been asked for; else None."""
        return set(self._router.metadata.snapshot.partitions(topic)) or None

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The offset of the first message kept, per partition; positions don't change.

        Raises:
            KafkaTimeoutError: not found out within `request_timeout_ms`.
            UnknownTopicOrPartitionError: there is no such partition.
            TypeError, ValueError: not a list of partitions, or a number that none has.
        """
        return await self._bounds(partitions, EARLIEST)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset of the next message to come, per partition; raises as `beginning_offsets`."""
        return await self._bounds(partitions, LATEST)

    async def _bounds(
        self, partitions: Iterable[TopicPartition], which: int
    ) -> dict[TopicPartition, int]:
        self._assignment.check()
        asked = dict.fromkeys(check_partitions(partitions), which)
        found = await self._calls.run(list_offsets(self._router, asked))
        return {tp: offsets[0] for tp, offsets in found.items() if offsets}

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Where to begin to read so as to miss no message from a time on, per partition.

        Brokers from 0.10.1 on say, as with aiokafka, which is the first message whose timestamp is
        at or after the given one (ListOffsets 1, KIP-79). Older ones (0.8, 0.9, 0.10.0), and those
        that store the topic in format 0, know times of whole *segments* only: a segment is written
        to for `log.roll.hours` or `log.segment.bytes`, a week or 1 GiB by default. Of them the
        offset given here is the start of the first segment that was written to at or after the time
        (less a second, for coarse file times): never later than the first such message, often
        earlier. In format 0 the ones before the time can't be told and skipped. The time is that of
        the file on the partition's leader: the last append, or the copying where a replica was
        built anew (then the answer is too early). Producers whose clocks run ahead of the broker's
        may stamp messages later than their segment's time. Newer brokers go by files too, and by
        segments here, where messages have no timestamps or are of before the broker's upgrade.

        Args:
            timestamps: milliseconds since the epoch.

        Returns:
            `OffsetAndTimestamp`, its timestamp None where a segment begins there; None where there
            is no message that late.

        Raises:
            TypeError, ValueError: a time or a partition that can't be.
            KafkaTimeoutError, UnknownTopicOrPartitionError: as `beginning_offsets`.
        """
        times = {
            tp: _time_ms(tp, at)
            for tp, at in zip(check_partitions(timestamps), timestamps.values(), strict=True)
        }
        self._assignment.check()
        return await self._calls.run(offsets_for_times(self._router, times))


def _time_ms(tp: TopicPartition, at: object) -> int:
    if not isinstance(at, int | float):
        raise TypeError(f"the time {at!r} for {tp} isn't a number of milliseconds since the epoch")
    if not 0 <= at < 2**63:
        raise ValueError(f"the time {at} for {tp} is negative or too late")
    return int(at)
