"""Read `__consumer_offsets` like any topic, to find groups and commits that no request lists.

Brokers of 0.8.2 list no groups, and those of 0.9 and 0.10.0 list only groups with members.

Invariant: the result has the last value of each key below the high watermarks that the leaders
reported after the call began. A partition that isn't read that far has an error in the result. A
partition whose log no longer has the position where the last read ended is read again from its
start. Nothing is created: without the topic the result is empty. From 0.11 on the result also has
the offsets of aborted transactions, which requests of 0.8 can't tell from committed ones.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from aiokafka08._core.concurrency.task_set import run_together
from aiokafka08._core.net.list_offsets import list_reachable_offsets
from aiokafka08._core.net.retry import is_final
from aiokafka08._core.net.router import Router
from aiokafka08._core.ranges.range_fetches import RangeFetches
from aiokafka08._core.ranges.range_reader import read_range
from aiokafka08._wording import shorten
from aiokafka08.errors import CorruptRecordException, KafkaError, KafkaProtocolError
from aiokafka08.protocol.message_set import DEFAULT_MAX_DECOMPRESSED_BYTES, MessageSetReader
from aiokafka08.protocol.offsets_topic import (
    GroupRecord,
    GroupRecordKey,
    OffsetRecord,
    OffsetRecordKey,
    decode_group_record,
    decode_offset_record,
    decode_record_key,
)
from aiokafka08.protocol.requests.list_offsets import EARLIEST, LATEST
from aiokafka08.structs import ConsumerRecord, TopicPartition

_log: Final = logging.getLogger("aiokafka08.admin")

OFFSETS_TOPIC: Final = "__consumer_offsets"

# How many partitions are read at a time
_AT_ONCE: Final = 4
_FETCH_BYTES: Final = 512 * 1024
# How many records are decoded at a time
_RECORDS: Final = 4096


@dataclass(frozen=True, slots=True)
class OffsetsTopic:
    """The contents of `__consumer_offsets`: the last value of each key."""

    # The committed offsets of each group that has any
    offsets: Mapping[str, Mapping[TopicPartition, OffsetRecord]]
    # The groups that brokers have coordinated (from 0.9 on), as they were after their last
    # rebalance. A group without members may still be listed.
    groups: Mapping[str, GroupRecord]
    # Partitions of `__consumer_offsets` that aren't in the result, or only in part, and why: the
    # partition can't be read (the result has what earlier calls have read), or it has a corrupt
    # message
    errors: Mapping[TopicPartition, KafkaError] = field(default_factory=dict)


_Record = tuple[OffsetRecordKey, OffsetRecord] | tuple[GroupRecordKey, GroupRecord]


@dataclass(slots=True)
class _ReadPartition:
    """The contents of one partition up to `position`: the last value of each key, decoded.

    `damage` is about the first corrupt message, which was skipped.
    """

    position: int
    records: dict[bytes, _Record] = field(default_factory=dict)
    damage: KafkaError | None = None

    def apply(self, records: Iterable[ConsumerRecord], client_id: str) -> None:
        """Apply some records; keep their decoded values, except those of unknown versions."""
        for key, value in {message.key: message.value for message in records}.items():
            if key is None:
                continue  # brokers write no such record
            record = None if value is None else _decode(key, value, client_id)
            if record is None:
                self.records.pop(key, None)
            else:
                self.records[key] = record

    def skip(self, corrupt: CorruptRecordException) -> bool:
        """Continue after a corrupt message; return False if the next offset isn't known."""
        if corrupt.next_offset is None or corrupt.next_offset < self.position:
            return False
        self.position = corrupt.next_offset
        self.damage = self.damage or KafkaProtocolError(
            f"the message at offset {corrupt.offset} is corrupt, and was left out"
        )
        return True


class OffsetsTopicReader:
    """Read `__consumer_offsets`, and continue with each further call.

    No consumer may use the fetch lanes of the started `router`.
    """

    def __init__(self, router: Router) -> None:
        self._router = router
        self._partitions: dict[TopicPartition, _ReadPartition] = {}
        self._lock = asyncio.Lock()

    async def read(self) -> OffsetsTopic:
        """Return the present contents of the topic.

        Raises KafkaError if no broker responds, or no partition can be read in
        `request_timeout_ms`.
        """
        async with self._lock:
            response = await self._router.metadata.fetch_all()
            tps = [
                TopicPartition(OFFSETS_TOPIC, partition.partition)
                for topic in response.topics
                if topic.topic == OFFSETS_TOPIC
                for partition in topic.partitions
            ]
            starts, ends = await run_together(
                self._bounds(tps, EARLIEST), self._bounds(tps, LATEST)
            )
            unread: dict[TopicPartition, KafkaError] = {}
            read: dict[TopicPartition, _ReadPartition] = {}
            fetches, turns = RangeFetches(self._router), asyncio.Semaphore(_AT_ONCE)

            async def read_to(tp: TopicPartition, partition: _ReadPartition, end: int) -> None:
                try:
                    async with turns:
                        await self._read_to(tp, partition, end, fetches)
                except KafkaError as error:
                    unread[tp] = error

            async with asyncio.TaskGroup() as tasks:
                for tp in sorted(tps):
                    start, end = starts[tp], ends[tp]
                    read[tp] = self._partitions.get(tp) or _ReadPartition(0)
                    if isinstance(start, KafkaError):
                        unread[tp] = start
                    elif isinstance(end, KafkaError):
                        unread[tp] = end
                    else:
                        read[tp] = self._continued(tp, start, end)
                        tasks.create_task(read_to(tp, read[tp], end))
                self._partitions = read
            if unread and len(unread) == len(tps):
                raise next(iter(unread.values()))
            return _contents(read, unread)

    async def _bounds(
        self, tps: Collection[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, int | KafkaError]:
        """Return an offset of each partition, or why it has none by the end of the timeout."""
        config, loop = self._router.config, asyncio.get_running_loop()
        deadline, backoff = loop.time() + config.request_timeout_s, config.backoff()
        bounds: dict[TopicPartition, int | KafkaError] = {}
        missing = list(tps)
        while missing:
            listed = await list_reachable_offsets(self._router, missing, timestamp)
            bounds |= {
                tp: offsets if isinstance(offsets, KafkaError) else offsets[0]
                for tp, offsets in listed.items()
            }
            missing = [tp for tp in missing if _may_pass(bounds[tp])]
            if loop.time() >= deadline:
                break
            if missing:
                await asyncio.sleep(backoff.next())
        return bounds

    def _continued(self, tp: TopicPartition, start: int, end: int) -> _ReadPartition:
        known = self._partitions.get(tp)
        if known is not None and start <= known.position <= end:
            return known
        return _ReadPartition(start)

    async def _read_to(
        self, tp: TopicPartition, partition: _ReadPartition, end: int, fetches: RangeFetches
    ) -> None:
        """Read up to an offset, past corrupt messages; raises as `read_range` does."""
        while partition.position < end:
            try:
                await self._read_sound(tp, partition, end, fetches)
            except CorruptRecordException as error:
                if not partition.skip(error):
                    raise

    async def _read_sound(
        self, tp: TopicPartition, partition: _ReadPartition, end: int, fetches: RangeFetches
    ) -> None:
        """Read up to an offset, or to the first corrupt message."""
        sets = read_range(
            self._router, tp, partition.position, end, fetches=fetches, max_bytes=_FETCH_BYTES
        )
        async with aclosing(sets):
            async for raw in sets:
                reader = MessageSetReader(
                    tp,
                    raw.message_set,
                    raw.fetch_offset,
                    max_decompressed_bytes=DEFAULT_MAX_DECOMPRESSED_BYTES,
                    end_offset=end,
                )
                while records := reader.read(_RECORDS):
                    partition.apply(records, self._router.config.client_id)
                partition.position = raw.end_offset


def _may_pass(offset: int | KafkaError) -> bool:
    return isinstance(offset, KafkaError) and not is_final(offset)


def _contents(
    read: Mapping[TopicPartition, _ReadPartition], unread: Mapping[TopicPartition, KafkaError]
) -> OffsetsTopic:
    offsets: dict[str, dict[TopicPartition, OffsetRecord]] = {}
    groups: dict[str, GroupRecord] = {}
    for partition in read.values():
        for key, record in partition.records.values():
            if isinstance(record, GroupRecord):
                groups[key.group] = record
            elif isinstance(key, OffsetRecordKey):
                tp = TopicPartition(key.topic, key.partition)
                offsets.setdefault(key.group, {})[tp] = record
    damages = {
        tp: partition.damage for tp, partition in read.items() if partition.damage is not None
    }
    return OffsetsTopic(offsets, groups, {**damages, **unread})


def _decode(key_bytes: bytes, value_bytes: bytes, client_id: str) -> _Record | None:
    """Decode a record; None if its version is unknown, or (logged) it can't be decoded."""
    try:
        key = decode_record_key(key_bytes)
        if isinstance(key, OffsetRecordKey):
            offset = decode_offset_record(value_bytes)
            return None if offset is None else (key, offset)
        if isinstance(key, GroupRecordKey):
            group = decode_group_record(value_bytes)
            return None if group is None else (key, group)
    except KafkaProtocolError as error:
        _log.warning(
            "%s: record of %s with the key %s left out: %s",
            client_id,
            OFFSETS_TOPIC,
            shorten(key_bytes),
            error.text,
        )
    return None
