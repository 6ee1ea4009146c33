"""Reading: a batch query's plan, and the task that reads one range into Arrow batches.

Law: the driver decides with what `planning` says, a task reads its range and nothing else; it needs
the options and the range, both small and picklable. A task holds at most three requests' answers
(`kafka.max.partition.fetch.bytes` each, or one larger message), what one compressed message set
unpacks to, and one Arrow batch of `MAX_BATCH_BYTES`, whatever the size of its range.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import datasource as spark_filters
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from aiokafka08.arrow import record_batch
from aiokafka08.consumer.range import RawSet
from aiokafka08.errors import (
    CorruptRecordException,
    KafkaError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
)
from aiokafka08.net.list_offsets import list_offsets
from aiokafka08.net.router import Router
from aiokafka08.protocol.api import EARLIEST, LATEST
from aiokafka08.protocol.message_set import Columns
from aiokafka08.spark.driver import Brokers, Driver, reader_of, sets_of
from aiokafka08.spark.offsets import Offsets
from aiokafka08.spark.options import Bound, ByOffset, ByTime, Place, ReadOptions
from aiokafka08.spark.planning import (
    OffsetRange,
    QueryPlan,
    Resolved,
    Wanted,
    check_named,
    deleted_text,
    loss_text,
    narrow,
    plan_query,
    resolve,
    split,
    within,
)
from aiokafka08.structs import TopicPartition

_logger = logging.getLogger("aiokafka08.spark")

MAX_BATCH_BYTES = 8 * 1024 * 1024
"""Keys and values in one Arrow batch; some messages of the same fetched set more at most."""
MAX_BATCH_ROWS = 65536
MAX_INTERVALS = 64
"""Into so many pieces a filter on offsets cuts a partition at most; each is a task."""
_NEAR = 500
"""Offsets that are nearer are read by one task: one request brings them."""

_HEADERS = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
_SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
    ]
)
_SCHEMA_WITH_HEADERS = _SCHEMA.append(pa.field("headers", _HEADERS))


class ReadTask(InputPartition):
    """One range, for one Spark task."""

    def __init__(self, offset_range: OffsetRange) -> None:
        super().__init__(offset_range)


def tasks(
    options: ReadOptions, plan: QueryPlan, filters: Iterable[Wanted] = ()
) -> list[InputPartition]:
    """The tasks of a plan.

    Raises:
        OffsetOutOfRangeError: something can't be read any more, and `failOnDataLoss` is true.
    """
    if plan.losses:
        told = loss_text(plan.losses, options.fail_on_data_loss)
        if options.fail_on_data_loss:
            raise OffsetOutOfRangeError(told)
        _logger.warning("%s", told)
    ranges = split(
        narrow(plan.ranges, list(filters)),
        min_partitions=options.min_partitions,
        max_records=options.max_records_per_partition,
    )
    return [ReadTask(one) for one in ranges]


def resolve_bound(
    driver: Driver,
    bound: Bound,
    partitions: tuple[TopicPartition, ...],
    earliest: Offsets,
    latest: Offsets,
    *,
    start: bool,
) -> Resolved:
    """Where a query begins or ends, in offsets. Raises as `check_named` and `Driver.by_time`."""
    if isinstance(bound, Place):
        return dict(earliest if bound is Place.EARLIEST else latest)
    check_named(bound, partitions)
    if isinstance(bound, ByOffset):
        return resolve(bound.offsets, earliest, latest)
    return driver.by_time(bound, partitions, latest, start=start)


class Kafka08Reader(DataSourceReader):
    """A batch query: planned on the driver, read by tasks."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._filters: list[Wanted] = []

    def partitions(self) -> list[InputPartition]:
        """Ask the cluster, and plan."""
        options = self._options
        for note in options.notes:
            _logger.warning("%s", note)
        driver = Driver(options)
        try:
            chosen = driver.partitions()
            earliest = driver.earliest(chosen)
            latest = driver.latest(chosen, {})
            start = resolve_bound(driver, options.start, chosen, earliest, latest, start=True)
            end = resolve_bound(driver, options.end, chosen, earliest, latest, start=False)
            if isinstance(options.start, ByTime) or isinstance(options.end, ByTime):
                # Two times that no message lies between: nothing, not an error.
                end = {tp: max(one, min(start[tp], latest[tp])) for tp, one in end.items()}
        finally:
            driver.close()
        return tasks(options, plan_query(start, end, earliest, latest), self._filters)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one task."""
        return read_task(self._options, partition)


class Kafka08PushdownReader(Kafka08Reader):
    """A batch query whose filters bound what is read; Spark applies them to each row again."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take note of those on topic, partition and offset."""
        found = (wanted(one) for one in filters)
        self._filters = [one for one in found if one is not None]
        return filters


def wanted(one: Filter) -> Wanted | None:
    """What a filter asks for, where it bounds what is read."""
    column = ".".join(getattr(one, "attribute", ()))
    if isinstance(one, spark_filters.EqualTo | spark_filters.EqualNullSafe):
        return _points(column, [one.value])
    if isinstance(one, spark_filters.In):
        return _points(column, one.value)
    if column not in ("partition", "offset") or not _is_integer(getattr(one, "value", None)):
        return None
    if isinstance(one, spark_filters.GreaterThan):
        return Wanted(column, ((one.value + 1, None),))
    if isinstance(one, spark_filters.GreaterThanOrEqual):
        return Wanted(column, ((one.value, None),))
    if isinstance(one, spark_filters.LessThan):
        return Wanted(column, ((None, one.value - 1),))
    if isinstance(one, spark_filters.LessThanOrEqual):
        return Wanted(column, ((None, one.value),))
    return None


def _points(column: str, values: Iterable[Any]) -> Wanted | None:
    given = [value for value in values if value is not None]  # equal to nothing
    if column == "topic" and all(isinstance(value, str) for value in given):
        return Wanted(column, values=frozenset(given))
    if column in ("partition", "offset") and all(map(_is_integer, given)):
        points = sorted(set(given))
        if column == "offset":
            return Wanted(column, _intervals(points))
        return Wanted(column, tuple((value, value) for value in points))
    return None


def _intervals(offsets: list[int]) -> tuple[tuple[int, int], ...]:
    """Few intervals with all of the offsets (ascending): cut where the gaps are widest."""
    gaps = {
        index: offsets[index] - offsets[index - 1]
        for index in range(1, len(offsets))
        if offsets[index] - offsets[index - 1] > _NEAR
    }
    widest = heapq.nlargest(MAX_INTERVALS - 1, gaps, key=gaps.__getitem__)
    cuts = sorted({0, *widest, len(offsets)})
    return tuple((offsets[a], offsets[b - 1]) for a, b in pairwise(cuts))


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


# --- in a task ------------------------------------------------------------------------------------


def read_task(options: ReadOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The messages of a task's range, as Arrow batches of bounded size.

    Raises:
        OffsetOutOfRangeError: part of the range is gone meanwhile, and `failOnDataLoss` is true.
        CorruptRecordException: a message is corrupt; names topic, partition and offset.
        KafkaError: others of `read_range`.
    """
    if not isinstance(partition, ReadTask):
        return  # what Spark makes of no partitions
    part: OffsetRange = partition.value
    with Brokers(options.client) as brokers:
        batches = _batches(brokers.router, options, part)
        try:
            while (batch := brokers.run(_next(batches))) is not None:
                yield batch
        except (CorruptRecordException, RecordTooLargeError) as error:
            error.args = (f"{error.text} (in Spark: {_WAY_OUT[type(error)]})",)
            raise
        finally:
            brokers.run(batches.aclose())


_WAY_OUT: dict[type[KafkaError], str] = {
    CorruptRecordException: (
        "startingOffsets and endingOffsets go around it; with kafka.check.crcs=false a message is "
        "read of which only the CRC is wrong"
    ),
    RecordTooLargeError: "the option kafka.fetch.max.bytes",
}
"""What the client's words are here."""


async def _next(batches: AsyncGenerator[pa.RecordBatch, None]) -> pa.RecordBatch | None:
    return await anext(batches, None)


async def _batches(
    router: Router, options: ReadOptions, part: OffsetRange
) -> AsyncGenerator[pa.RecordBatch, None]:
    tp = TopicPartition(part.topic, part.partition)
    columns = Columns(MAX_BATCH_BYTES)
    async with aclosing(_sets(router, options, part)) as sets:
        async for raw in sets:
            reader = reader_of(options, tp, raw)
            while reader.read_columns(columns, MAX_BATCH_ROWS - len(columns)):
                if columns.is_full or len(columns) >= MAX_BATCH_ROWS:
                    yield _batch(tp, columns, options.include_headers)
                    columns = Columns(MAX_BATCH_BYTES)
    if len(columns):
        yield _batch(tp, columns, options.include_headers)


async def _sets(
    router: Router, options: ReadOptions, part: OffsetRange
) -> AsyncGenerator[RawSet, None]:
    """The message sets of a range; what is gone since it was planned is skipped or an error."""
    tp = TopicPartition(part.topic, part.partition)
    at, end = part.start, part.end
    while at < end:
        try:
            async with aclosing(sets_of(router, options, tp, at, end)) as sets:
                async for raw in sets:
                    at = raw.end_offset
                    yield raw
            return
        except (OffsetOutOfRangeError, UnknownTopicOrPartitionError) as error:
            losses: list[str] = []
            if isinstance(error, UnknownTopicOrPartitionError):
                losses += deleted_text(tp, at, end)
                left = []
            else:
                begin = (await list_offsets(router, {tp: EARLIEST}))[tp][0]
                last = (await list_offsets(router, {tp: LATEST}))[tp][0]
                left = within(tp, at, end, {tp: begin}, {tp: last}, losses)
            if not losses:
                raise
            told = loss_text(losses, options.fail_on_data_loss)
            if options.fail_on_data_loss:
                raise OffsetOutOfRangeError(told) from error
            _logger.warning("%s", told)
            at, end = (left[0].start, left[0].end) if left else (end, end)


def _batch(tp: TopicPartition, columns: Columns, headers: bool) -> pa.RecordBatch:
    """As Spark's source has it: of type -1 where a message has no timestamp; headers are null."""
    batch = record_batch([(tp, len(columns))], columns)
    arrays = batch.columns
    arrays[6] = pc.fill_null(arrays[6], -1)
    if headers:
        arrays.append(pa.nulls(len(columns), _HEADERS))
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA_WITH_HEADERS if headers else _SCHEMA)
