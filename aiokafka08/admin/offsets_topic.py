"""Read `__consumer_offsets` as any topic, to find groups and commits that no request lists.

Brokers of 0.8.2 list no groups, and those of 0.9 and 0.10.0 list only groups with members: an idle
group is found only here. `OffsetsTopicReader` reads the topic through the leaders of its partitions
and keeps the last value of each key; a later `read()` continues where the last one ended. The admin
client owns one; `protocol.offsets_topic` decodes keys and values.

Invariant: what `read()` returns has, of each key, the last value below the high watermarks that the
leaders reported after the call began. A partition whose log no longer has the position where the
last read ended is read again from its start. Nothing is created: without the topic the result is
empty.

On brokers from 0.11 on the topic also holds the offsets of transactions that were aborted, which
requests of 0.8 can't tell from committed ones.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, field

from aiokafka08.consumer.range import read_range
from aiokafka08.consumer.range_fetches import RangeFetches
from aiokafka08.errors import KafkaProtocolError
from aiokafka08.net.list_offsets import list_offsets
from aiokafka08.net.router import Router
from aiokafka08.protocol.api import EARLIEST, LATEST
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
from aiokafka08.structs import TopicPartition

_log = logging.getLogger("aiokafka08.admin")

OFFSETS_TOPIC = "__consumer_offsets"

_AT_ONCE = 4
"""How many partitions are read at a time."""
_FETCH_BYTES = 512 * 1024
_RECORDS = 4096
"""How many records are decoded at a time."""


@dataclass(frozen=True, slots=True)
class OffsetsTopic:
    """The contents of `__consumer_offsets`: the last value of each key.

    Attributes:
        offsets: the committed offsets of each group that has any.
        groups: the groups that brokers have coordinated (from 0.9 on), as of their last rebalance.
            A group without members may still be listed.
    """

    offsets: Mapping[str, Mapping[TopicPartition, OffsetRecord]]
    groups: Mapping[str, GroupRecord]


_Record = tuple[OffsetRecordKey, OffsetRecord] | tuple[GroupRecordKey, GroupRecord]


@dataclass(slots=True)
class _ReadPartition:
    """What was read of one partition, up to `position`: the last value of each key.

    `changed` has the keys that were read since `decode()`, `records` what was decoded.
    """

    position: int
    values: dict[bytes, bytes] = field(default_factory=dict)
    changed: set[bytes] = field(default_factory=set)
    records: dict[bytes, _Record] = field(default_factory=dict)

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        if key is None:
            return  # brokers write no such record
        if value is None:
            self.values.pop(key, None)
        else:
            self.values[key] = value
        self.changed.add(key)

    def decode(self, client_id: str) -> None:
        """Decode the changes: a call that reads little costs little."""
        for key in self.changed:
            value = self.values.get(key)
            record = None if value is None else _decode(key, value, client_id)
            if record is None:
                self.records.pop(key, None)
            else:
                self.records[key] = record
        self.changed = set()


class OffsetsTopicReader:
    """Read `__consumer_offsets`, and continue with each further call.

    Args:
        router: a started router whose fetch lanes no consumer uses.
    """

    def __init__(self, router: Router) -> None:
        self._router = router
        self._partitions: dict[TopicPartition, _ReadPartition] = {}
        self._lock = asyncio.Lock()

    async def read(self) -> OffsetsTopic:
        """Return the present contents of the topic.

        Raises:
            KafkaTimeoutError: a partition of the topic has no leader, or its leader doesn't
                respond, for `request_timeout_ms`.
            KafkaError: as `consumer.range.read_range`.
        """
        async with self._lock:
            response = await self._router.metadata.fetch_all()
            tps = [
                TopicPartition(OFFSETS_TOPIC, one.partition)
                for topic in response.topics
                if topic.topic == OFFSETS_TOPIC
                for one in topic.partitions
            ]
            starts, ends = await asyncio.gather(
                list_offsets(self._router, dict.fromkeys(tps, EARLIEST)),
                list_offsets(self._router, dict.fromkeys(tps, LATEST)),
            )
            self._partitions = {
                tp: self._continued(tp, starts[tp][0], ends[tp][0]) for tp in sorted(tps)
            }
            fetches, turns = RangeFetches(self._router), asyncio.Semaphore(_AT_ONCE)
            try:
                async with asyncio.TaskGroup() as tasks:
                    for tp, one in self._partitions.items():
                        tasks.create_task(self._read_to(tp, one, ends[tp][0], fetches, turns))
            except ExceptionGroup as errors:
                raise errors.exceptions[0] from None
            offsets: dict[str, dict[TopicPartition, OffsetRecord]] = {}
            groups: dict[str, GroupRecord] = {}
            for one in self._partitions.values():
                one.decode(self._router.config.client_id)
                for key, record in one.records.values():
                    if isinstance(record, GroupRecord):
                        groups[key.group] = record
                    elif isinstance(key, OffsetRecordKey):
                        tp = TopicPartition(key.topic, key.partition)
                        offsets.setdefault(key.group, {})[tp] = record
        return OffsetsTopic(offsets, groups)

    def _continued(self, tp: TopicPartition, start: int, end: int) -> _ReadPartition:
        known = self._partitions.get(tp)
        if known is not None and start <= known.position <= end:
            return known
        return _ReadPartition(start)

    async def _read_to(
        self,
        tp: TopicPartition,
        partition: _ReadPartition,
        end: int,
        fetches: RangeFetches,
        turns: asyncio.Semaphore,
    ) -> None:
        if partition.position >= end:
            return
        async with turns:
            sets = read_range(
                self._router,
                tp,
                partition.position,
                end,
                fetches=fetches,
                max_bytes=_FETCH_BYTES,
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
                        for record in records:
                            partition.apply(record.key, record.value)
                    partition.position = raw.end_offset


def _decode(key_bytes: bytes, value_bytes: bytes, client_id: str) -> _Record | None:
    """Decode a record; None if this client doesn't know its version, or it can't be decoded.

    The latter is logged.
    """
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
            "%s: record of %s with the key %r left out: %s",
            client_id,
            OFFSETS_TOPIC,
            key_bytes[:200],
            error.text,
        )
    return None
