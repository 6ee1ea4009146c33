"""Plan a batch query on the Spark driver, and read one range per task into Arrow batches.

`Kafka08Reader` is the reader of a batch query. `plan_tasks`, `resolve_bound` and `read_task` serve
micro-batches, too. The rules of planning are in `planning`, the requests of the driver in `driver`,
and the fetching of a range in `consumer.range`.

Invariant: a task reads its own range and nothing else, and needs only the options and the range,
both small and picklable. Whatever the size of its range, a task holds at most the responses of
three Fetch requests (each of `kafka.max.partition.fetch.bytes`, or of one message if that is
larger), the uncompressed content of one message set, and one Arrow batch of `MAX_BATCH_BYTES` and
one message more (in pure Python: up to a thousand messages more).

Spark calls the classes, through `source`; `stream` calls the functions.
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

from aiokafka08.arrow import record_batch, schema
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
from aiokafka08.spark.driver import (
    BlockingClient,
    DriverClient,
    fetch_message_sets,
    message_set_reader,
)
from aiokafka08.spark.offsets import PartitionOffsets
from aiokafka08.spark.options import LogEnd, OffsetBound, QueryBound, ReadOptions, TimestampBound
from aiokafka08.spark.planning import (
    ColumnFilter,
    OffsetRange,
    QueryPlan,
    ResolvedOffsets,
    apply_filters,
    check_bound_partitions,
    clip_to_log,
    describe_losses,
    describe_unread_range,
    plan_batch_query,
    resolve_log_ends,
    split_ranges,
)
from aiokafka08.structs import TopicPartition

_logger = logging.getLogger("aiokafka08.spark")

MAX_BATCH_BYTES = 8 * 1024 * 1024
"""Size of keys and values at which an Arrow batch ends. It is checked after each message (in pure
Python: after up to a thousand), so these may exceed it."""
MAX_BATCH_ROWS = 65536
MAX_INTERVALS = 64
"""Maximum number of intervals into which a filter on offsets splits a partition. Each interval is
at least one task."""
_MIN_GAP = 500
"""Offsets this close are read by one task, since one request fetches them together."""

_HEADERS = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
BATCH_SCHEMA = pa.schema([field.with_nullable(True) for field in schema()])
"""The columns of `arrow.schema`; in Spark's source each of them is nullable."""
BATCH_SCHEMA_WITH_HEADERS = BATCH_SCHEMA.append(pa.field("headers", _HEADERS))


class ReadTask(InputPartition):
    """The range of one Spark task."""

    def __init__(self, offset_range: OffsetRange) -> None:
        super().__init__(offset_range)


def plan_tasks(
    options: ReadOptions, plan: QueryPlan, filters: Iterable[ColumnFilter] = ()
) -> list[InputPartition]:
    """Return the tasks of a plan.

    Raises:
        OffsetOutOfRangeError: the plan has losses, and `failOnDataLoss` is true.
    """
    if plan.losses:
        message = describe_losses(plan.losses, options.fail_on_data_loss)
        if options.fail_on_data_loss:
            raise OffsetOutOfRangeError(message)
        _logger.warning("%s", message)
    ranges = split_ranges(
        apply_filters(plan.ranges, list(filters)),
        min_partitions=options.min_partitions,
        max_records=options.max_records_per_partition,
    )
    return [ReadTask(offset_range) for offset_range in ranges]


def resolve_bound(
    driver: DriverClient,
    bound: QueryBound,
    partitions: tuple[TopicPartition, ...],
    earliest: PartitionOffsets,
    latest: PartitionOffsets,
    *,
    start: bool,
) -> ResolvedOffsets:
    """Return the offsets of a bound.

    Raises as `check_bound_partitions` and `DriverClient.by_time`.
    """
    if isinstance(bound, LogEnd):
        return dict(earliest if bound is LogEnd.EARLIEST else latest)
    check_bound_partitions(bound, partitions)
    if isinstance(bound, OffsetBound):
        return resolve_log_ends(bound.offsets, earliest, latest)
    return driver.by_time(bound, partitions, latest, start=start)


class Kafka08Reader(DataSourceReader):
    """The reader of a batch query: `partitions` runs on the driver, `read` in the tasks."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._filters: list[ColumnFilter] = []

    def partitions(self) -> list[InputPartition]:
        """Fetch the offsets from the cluster and return the tasks."""
        options = self._options
        for note in options.notes:
            _logger.warning("%s", note)
        driver = DriverClient(options)
        try:
            partitions = driver.partitions()
            earliest = driver.earliest(partitions)
            latest = driver.latest(partitions, {})
            start = resolve_bound(driver, options.start, partitions, earliest, latest, start=True)
            end = resolve_bound(driver, options.end, partitions, earliest, latest, start=False)
            if isinstance(options.start, TimestampBound) or isinstance(options.end, TimestampBound):
                # Two timestamps without a message in between give an empty range, not an error.
                end = {tp: max(offset, min(start[tp], latest[tp])) for tp, offset in end.items()}
        finally:
            driver.close()
        return plan_tasks(options, plan_batch_query(start, end, earliest, latest), self._filters)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the messages of one task."""
        return read_task(self._options, partition)


class Kafka08PushdownReader(Kafka08Reader):
    """A reader whose filters limit what is read. Spark applies them to each row again."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Keep the filters on topic, partition and offset; return all, for Spark to apply."""
        converted = (to_column_filter(one) for one in filters)
        self._filters = [one for one in converted if one is not None]
        return filters


# --- filters --------------------------------------------------------------------------------------


def to_column_filter(spark_filter: Filter) -> ColumnFilter | None:
    """Return what a Spark filter accepts, or None if it doesn't limit what is read."""
    column = ".".join(getattr(spark_filter, "attribute", ()))
    if isinstance(spark_filter, spark_filters.EqualTo | spark_filters.EqualNullSafe):
        return _accept_values(column, [spark_filter.value])
    if isinstance(spark_filter, spark_filters.In):
        return _accept_values(column, spark_filter.value)
    value: Any = getattr(spark_filter, "value", None)
    if column not in ("partition", "offset") or not _is_integer(value):
        return None
    if isinstance(spark_filter, spark_filters.GreaterThan):
        return ColumnFilter(column, ((value + 1, None),))
    if isinstance(spark_filter, spark_filters.GreaterThanOrEqual):
        return ColumnFilter(column, ((value, None),))
    if isinstance(spark_filter, spark_filters.LessThan):
        return ColumnFilter(column, ((None, value - 1),))
    if isinstance(spark_filter, spark_filters.LessThanOrEqual):
        return ColumnFilter(column, ((None, value),))
    return None


def _accept_values(column: str, values: Iterable[Any]) -> ColumnFilter | None:
    comparable = [value for value in values if value is not None]  # null equals nothing
    if column == "topic" and all(isinstance(value, str) for value in comparable):
        return ColumnFilter(column, values=frozenset(comparable))
    if column in ("partition", "offset") and all(map(_is_integer, comparable)):
        numbers = sorted(set(comparable))
        if column == "offset":
            return ColumnFilter(column, _cover(numbers))
        return ColumnFilter(column, tuple((number, number) for number in numbers))
    return None


def _cover(offsets: list[int]) -> tuple[tuple[int, int], ...]:
    """Return at most `MAX_INTERVALS` intervals that cover ascending offsets, cut at wide gaps."""
    gaps = {
        index: offsets[index] - offsets[index - 1]
        for index in range(1, len(offsets))
        if offsets[index] - offsets[index - 1] > _MIN_GAP
    }
    widest = heapq.nlargest(MAX_INTERVALS - 1, gaps, key=gaps.__getitem__)
    cuts = sorted({0, *widest, len(offsets)})
    return tuple((offsets[a], offsets[b - 1]) for a, b in pairwise(cuts))


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


# --- in a task ------------------------------------------------------------------------------------


def read_task(options: ReadOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a task's range as Arrow batches of limited size.

    Raises:
        OffsetOutOfRangeError: part of the range was lost after planning, and `failOnDataLoss` is
            true.
        CorruptRecordException: a message is corrupt; the error has its offset.
        KafkaError: other errors of `read_range`.
    """
    if not isinstance(partition, ReadTask):
        return  # Spark passes a task of its own if `partitions` returned none
    offset_range: OffsetRange = partition.value
    with BlockingClient(options.client) as client:
        batches = _read_batches(client.router, options, offset_range)
        try:
            while (batch := client.run(_next_batch(batches))) is not None:
                yield batch
        except (CorruptRecordException, RecordTooLargeError) as error:
            error.args = (f"{error.text}. In Spark: {_HINTS[type(error)]}",)
            raise
        finally:
            client.run(batches.aclose())


_HINTS: dict[type[KafkaError], str] = {
    CorruptRecordException: (
        "skip the message with startingOffsets and endingOffsets. If only its CRC is wrong, "
        "kafka.check.crcs=false reads it"
    ),
    RecordTooLargeError: "raise the option kafka.fetch.max.bytes",
}
"""What to do about an error of each class, in terms of Spark's options."""


async def _next_batch(batches: AsyncGenerator[pa.RecordBatch, None]) -> pa.RecordBatch | None:
    return await anext(batches, None)


async def _read_batches(
    router: Router, options: ReadOptions, offset_range: OffsetRange
) -> AsyncGenerator[pa.RecordBatch, None]:
    tp = TopicPartition(offset_range.topic, offset_range.partition)
    fields = BATCH_SCHEMA_WITH_HEADERS if options.include_headers else BATCH_SCHEMA
    columns = Columns(MAX_BATCH_BYTES)
    async with aclosing(_read_message_sets(router, options, offset_range)) as message_sets:
        async for raw in message_sets:
            reader = message_set_reader(options, tp, raw)
            while reader.read_columns(columns, MAX_BATCH_ROWS - len(columns)):
                if columns.is_full or len(columns) >= MAX_BATCH_ROWS:
                    yield _to_spark_batch(tp, columns, fields)
                    columns = Columns(MAX_BATCH_BYTES)
    if len(columns):
        yield _to_spark_batch(tp, columns, fields)


async def _read_message_sets(
    router: Router, options: ReadOptions, offset_range: OffsetRange
) -> AsyncGenerator[RawSet, None]:
    """Yield the message sets of a range; what was lost after planning is skipped, or an error."""
    tp = TopicPartition(offset_range.topic, offset_range.partition)
    position, end = offset_range.start, offset_range.end
    while position < end:
        try:
            async with aclosing(
                fetch_message_sets(router, options, tp, position, end)
            ) as message_sets:
                async for raw in message_sets:
                    position = raw.end_offset
                    yield raw
            return
        except (OffsetOutOfRangeError, UnknownTopicOrPartitionError) as error:
            losses: list[str] = []
            if isinstance(error, UnknownTopicOrPartitionError):
                losses += describe_unread_range(tp, position, end)
                remaining = []
            else:
                earliest = (await list_offsets(router, {tp: EARLIEST}))[tp][0]
                latest = (await list_offsets(router, {tp: LATEST}))[tp][0]
                remaining = clip_to_log(tp, position, end, {tp: earliest}, {tp: latest}, losses)
            if not losses:
                raise
            message = describe_losses(losses, options.fail_on_data_loss)
            if options.fail_on_data_loss:
                raise OffsetOutOfRangeError(message) from error
            _logger.warning("%s", message)
            position, end = (remaining[0].start, remaining[0].end) if remaining else (end, end)


def _to_spark_batch(tp: TopicPartition, columns: Columns, fields: pa.Schema) -> pa.RecordBatch:
    """Return messages as Spark's own source has them.

    `timestampType` is -1 for a message without a timestamp; `headers` are null.
    """
    batch = record_batch([(tp, len(columns))], columns)
    arrays = {name: batch.column(name) for name in batch.schema.names}
    arrays["timestampType"] = pc.fill_null(arrays["timestampType"], -1)
    if "headers" in fields.names:
        arrays["headers"] = pa.nulls(len(columns), _HEADERS)
    return pa.RecordBatch.from_arrays([arrays[name] for name in fields.names], schema=fields)
