"""Read records: bounded ranges by the range reader, ranges without an end by a consumer.

Invariant: the records of a partition come in the order of their offsets, each record of the
range once. At most `BUDGET_BYTES` of fetched sets are in memory, or one message that is larger.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Final

from aiokafka08 import AIOKafkaConsumer
from aiokafka08._core.concurrency.merge import merge
from aiokafka08._core.concurrency.offload import Offload
from aiokafka08._core.net.router import Router
from aiokafka08._core.ranges.range_fetches import RangeFetches
from aiokafka08._core.ranges.range_reader import MAX_IN_FLIGHT, RawSet, read_range
from aiokafka08._tools.reading.read_plan import PartitionRange
from aiokafka08._tools.records.types import BytesRecord
from aiokafka08._wording import partition_text
from aiokafka08.errors import OffsetOutOfRangeError, UnknownTopicOrPartitionError
from aiokafka08.protocol.message_set import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    ColumnMemory,
    Columns,
    MessageSetReader,
)
from aiokafka08.structs import TopicPartition

BUDGET_BYTES: Final = 24 * 1024 * 1024
# Fetches are large, because a broker searches a set once per fetch, and searching a set of 1 MB
# costs it more than sending the set (docs/brokers.md 7.15).
_MAX_FETCH_BYTES: Final = 4 * 1024 * 1024
_MIN_FETCH_BYTES: Final = 32 * 1024
_SLICE_RECORDS: Final = 8192
_COLUMNS_RECORDS: Final = 65536
_COLUMNS_BYTES: Final = 2 * 1024 * 1024
_POLL_MS: Final = 200
# How long the metadata has to lack a topic until it counts as deleted, because a broker that has
# just started may not know all topics.
_MISSING_S: Final = 5.0

# Records of one partition at a time; an empty sequence means that its range has been read.
RecordBatchSource = AsyncGenerator[tuple[TopicPartition, Sequence[BytesRecord] | Columns], None]


async def read_bounded(
    router: Router,
    ranges: Sequence[PartitionRange],
    *,
    as_columns: bool = False,
    fetch_bytes: int | None = None,
    limit_bytes: int = 52428800,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    unpacking: asyncio.Lock | None = None,
) -> RecordBatchSource:
    """Yield the records of ranges that lie within their logs.

    Args:
        router: a started router whose fetch lanes are free.
        ranges: each with a `stop`.
        as_columns: yield `Columns`, which cost less, in place of records (default False).
        fetch_bytes: the usual size of a fetch; by default 4 MiB, or less for more than two ranges.
        limit_bytes: the size of the largest message that can be read (default 52428800).
        max_decompressed_bytes: a compressed message with more is an error (default 128 MiB).
        unpacking: the lock that is held while a large compressed message is open. Reads that share
            it open one at a time. By default each read has its own.

    Raises:
        KafkaError: as `read_range`.
    """
    unpacking = unpacking or asyncio.Lock()
    fetches, memory, offload = RangeFetches(router), ColumnMemory(), Offload()
    if fetch_bytes is None:
        share = BUDGET_BYTES // (MAX_IN_FLIGHT * max(len(ranges), 1))
        fetch_bytes = max(_MIN_FETCH_BYTES, min(_MAX_FETCH_BYTES, share))

    async def sets_of(
        range_: PartitionRange,
    ) -> AsyncGenerator[tuple[PartitionRange, RawSet | None], None]:
        assert range_.stop is not None
        sets = read_range(
            router,
            range_.tp,
            range_.start,
            range_.stop,
            fetches=fetches,
            max_bytes=fetch_bytes,
            limit_bytes=limit_bytes,
            missing_s=_MISSING_S,
        )
        async with aclosing(sets):
            async for raw in sets:
                yield range_, raw
        yield range_, None

    sources = ((fetch_bytes * MAX_IN_FLIGHT, sets_of(range_)) for range_ in ranges)
    async with aclosing(merge(sources, BUDGET_BYTES)) as merged:
        try:
            async for range_, raw in merged:
                if raw is None:
                    yield range_.tp, []
                    continue
                reader = raw.reader(range_.tp, max_decompressed_bytes=max_decompressed_bytes)
                is_at_wrapper = True
                # A large compressed message is opened in a thread, and then read up to the next
                # one.
                while is_at_wrapper:
                    async with AsyncExitStack() as exits:
                        if (wrapper := reader.long_wrapper) is not None:
                            await exits.enter_async_context(unpacking)
                            await offload.run(wrapper.open)
                        batches = _columns(reader, memory) if as_columns else _records(reader)
                        for batch in batches:
                            yield range_.tp, batch
                        wrapper = reader.long_wrapper
                        is_at_wrapper = wrapper is not None and not wrapper.is_open
        finally:
            await offload.stop()


def _records(reader: MessageSetReader) -> Iterator[list[BytesRecord]]:
    while records := reader.read(_SLICE_RECORDS):
        yield records


def _columns(reader: MessageSetReader, memory: ColumnMemory) -> Iterator[Columns]:
    while True:
        columns = Columns(_COLUMNS_BYTES, memory)
        if not reader.read_columns(columns, _COLUMNS_RECORDS):
            return
        yield columns
        del columns  # so that its memory is free for the next ones


async def follow(
    consumer: AIOKafkaConsumer[bytes, bytes], ranges: Sequence[PartitionRange]
) -> RecordBatchSource:
    """Yield the records of ranges as they are written, until each range has reached its stop.

    Args:
        consumer: a started consumer without a group and without an assignment.
        ranges: some of them without a `stop`, or with one that the log hasn't reached.

    Raises:
        UnknownTopicOrPartitionError: a topic was deleted.
        OffsetOutOfRangeError: the log lost offsets before they were read.
        KafkaError: as `getmany`.
    """
    stops = {range_.tp: range_.stop for range_ in ranges}
    consumer.assign(list(stops))
    for range_ in ranges:
        consumer.seek(range_.tp, range_.start)
    open_tps = set(stops)
    missing = MissingTopics(tp.topic for tp in stops)
    while open_tps:
        missing.check(consumer)
        try:
            fetched = await consumer.getmany(timeout_ms=_POLL_MS)
        except OffsetOutOfRangeError as error:
            ((tp, offset),) = error.args[0].items()
            raise OffsetOutOfRangeError(
                f"{partition_text(tp)}: the log has lost offset {offset} "
                "before it was read, by retention or because a leader failed. 'aiokafka08 offsets' "
                "shows what it has; go on with --from"
            ) from error
        for tp, records in fetched.items():
            if tp in open_tps:
                yield tp, records_before(records, stops[tp])
        for tp in list(open_tps):
            # The position passes offsets without messages, too.
            stop = stops[tp]
            if stop is not None and await consumer.position(tp) >= stop:
                open_tps.remove(tp)
                consumer.pause(tp)
                yield tp, []


class MissingTopics:
    """Detects that a topic was deleted during the read; the consumer itself would wait for ever."""

    def __init__(self, topics: Iterable[str]) -> None:
        self._since: dict[str, float | None] = dict.fromkeys(topics)

    def check(self, consumer: AIOKafkaConsumer[bytes, bytes]) -> None:
        """Raise UnknownTopicOrPartitionError if a topic has been missing for `_MISSING_S`."""
        now = asyncio.get_running_loop().time()
        for topic, since in self._since.items():
            if consumer.partitions_for_topic(topic) is not None:
                self._since[topic] = None
            elif since is None:
                self._since[topic] = now
            elif now - since >= _MISSING_S:
                raise UnknownTopicOrPartitionError(
                    f"topic {topic!r}: deleted while it was read; brokers don't list it any more"
                )


def records_before(records: Sequence[BytesRecord], stop: int | None) -> Sequence[BytesRecord]:
    """Return the records before an offset; all if it is None."""
    if stop is None or not records or records[-1].offset < stop:
        return records
    return [record for record in records if record.offset < stop]
