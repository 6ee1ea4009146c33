"""Plan a batch query on the Spark driver, and read the ranges of each task into Arrow batches.

Invariant: a task reads its own ranges and nothing else, each partition in the order of its offsets,
and needs only the options, the ranges and their leaders, all small and picklable. Whatever the
number and size of its ranges, it holds at most:

- fetched message sets of `TASK_FETCH_BYTES`, of three responses of
  `kafka.max.partition.fetch.bytes` each, or of one message, whichever is largest;
- the uncompressed content of one message set;
- one Arrow batch.
"""

from __future__ import annotations

import heapq
import logging
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import datasource as spark_filters
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from aiokafka08._core.arrow import record_batch, scalar, schema
from aiokafka08._core.arrow_headers import extract_rows, headers_type
from aiokafka08._core.concurrency.loop_yield import finish_steps
from aiokafka08._core.concurrency.merge import merge
from aiokafka08._core.net.cluster import PartitionLeaders
from aiokafka08._core.net.list_offsets import list_offsets
from aiokafka08._core.net.router import Router
from aiokafka08._core.ranges.range_fetches import RangeFetches
from aiokafka08._core.ranges.range_reader import DEFAULT_FETCH_BYTES, MAX_IN_FLIGHT, RawSet
from aiokafka08.errors import (
    CorruptRecordException,
    EmbeddedHeadersError,
    KafkaError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
)
from aiokafka08.protocol.message_set import Columns
from aiokafka08.protocol.requests.list_offsets import EARLIEST, LATEST
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
)
from aiokafka08.spark.reasons import drop_frames, reason_first
from aiokafka08.spark.task_plan import divide_into_tasks
from aiokafka08.structs import TopicPartition

_log: Final = logging.getLogger("aiokafka08.spark")

# Size of keys and values at which an Arrow batch ends. It is checked after each message (in pure
# Python: after up to a thousand), so a batch may exceed it.
MAX_BATCH_BYTES: Final = 8 * 1024 * 1024
MAX_BATCH_ROWS: Final = 65536
# The most bytes that a task with several partitions requests by all its Fetch requests in flight.
# Messages that are larger than expected may exceed it.
TASK_FETCH_BYTES: Final = 8 * 1024 * 1024
# The assumed size of a message, to compute how many bytes to request for a small range.
_EXPECTED_MESSAGE_BYTES: Final = 1024
# The fewest bytes that are requested for a partition.
_MIN_FETCH_BYTES: Final = 32 * 1024
# Maximum number of intervals into which a filter on offsets splits a partition.
MAX_INTERVALS: Final = 64
# Offsets this close are read as one range, since one request fetches them together.
_MIN_GAP: Final = 500

# The columns of `arrow.schema`; in Spark's source each of them is nullable.
BATCH_SCHEMA: Final = pa.schema([field.with_nullable(True) for field in schema()])
BATCH_SCHEMA_WITH_HEADERS: Final = BATCH_SCHEMA.append(pa.field("headers", headers_type()))


_NO_LEADERS: Final = PartitionLeaders()


class ReadTask(InputPartition):
    """One Spark task: its ranges (`value`), and their leaders, as far as they are known."""

    def __init__(
        self, ranges: Iterable[OffsetRange], leaders: PartitionLeaders = _NO_LEADERS
    ) -> None:
        super().__init__(tuple(ranges))
        self.leaders = leaders


def plan_tasks(
    options: ReadOptions,
    plan: QueryPlan,
    leaders: PartitionLeaders,
    parallelism: int | None = None,
    filters: Iterable[ColumnFilter] = (),
) -> list[InputPartition]:
    """Return the tasks of a plan.

    Args:
        options: the checked options.
        plan: the ranges, and the losses.
        leaders: the known leaders of the ranges' partitions.
        parallelism: how many tasks Spark runs at the same time; None: as many as this machine has
            CPUs.
        filters: the filters that limit the ranges.

    Raises:
        OffsetOutOfRangeError: the plan has losses, and `failOnDataLoss` is true.
    """
    if plan.losses:
        message = describe_losses(plan.losses, options.fail_on_data_loss)
        if options.fail_on_data_loss:
            raise OffsetOutOfRangeError(message)
        _log.warning("%s: %s", options.client.client_id, message)
    tasks = divide_into_tasks(
        apply_filters(plan.ranges, list(filters)),
        leaders.by_partition,
        parallelism=parallelism or os.cpu_count() or 1,
        min_partitions=options.min_partitions,
        max_records=options.max_records_per_partition,
    )
    return [ReadTask(ranges, leaders.select(map(_partition_of, ranges))) for ranges in tasks]


def _partition_of(offset_range: OffsetRange) -> TopicPartition:
    return TopicPartition(offset_range.topic, offset_range.partition)


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

    Raises the errors of `check_bound_partitions` and `DriverClient.by_time`.
    """
    if isinstance(bound, LogEnd):
        return dict(earliest if bound is LogEnd.EARLIEST else latest)
    check_bound_partitions(bound, partitions)
    if isinstance(bound, OffsetBound):
        return resolve_log_ends(bound.offsets, earliest, latest)
    return driver.by_time(bound, partitions, latest, start=start)


class Kafka08Reader(DataSourceReader):
    """The reader of a batch query: `partitions` runs on the driver, `read` in the tasks."""

    def __init__(self, options: ReadOptions, parallelism: int | None = None) -> None:
        self._options = options
        self._parallelism = parallelism
        self._filters: list[ColumnFilter] = []

    @reason_first
    def partitions(self) -> list[InputPartition]:
        """Fetch the offsets from the cluster and return the tasks."""
        options = self._options
        for note in options.notes:
            _log.warning("%s: %s", options.client.client_id, note)
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
            leaders = driver.leaders()
        finally:
            driver.close()
        plan = plan_batch_query(start, end, earliest, latest)
        return plan_tasks(options, plan, leaders, self._parallelism, self._filters)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the messages of one task."""
        return read_task(self._options, partition)


class Kafka08PushdownReader(Kafka08Reader):
    """A reader whose filters limit the ranges. Spark applies the filters to each row again."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Keep the filters on topic, partition and offset; return all, for Spark to apply."""
        converted = (to_column_filter(spark_filter) for spark_filter in filters)
        self._filters = [column_filter for column_filter in converted if column_filter is not None]
        return filters


# --- filters --------------------------------------------------------------------------------------


def to_column_filter(spark_filter: Filter) -> ColumnFilter | None:
    """Return the values that a Spark filter accepts, or None if it doesn't limit the ranges."""
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


def read_task(
    options: ReadOptions, partition: InputPartition, *, max_rows: int = MAX_BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a task's ranges as Arrow batches of limited size.

    A batch may have rows of several partitions, and a partition's rows may be in several batches;
    the rows of each partition keep their order.

    Raises:
        OffsetOutOfRangeError: part of a range was lost after planning, and `failOnDataLoss` is
            true.
        CorruptRecordException: a message is corrupt; the error has its offset.
        KafkaError: other errors of `read_range`.
    """
    if not isinstance(partition, ReadTask):
        return  # Spark passes a partition of its own if `partitions` returned no task
    try:
        yield from _read_ranges(options, partition, max_rows)
    except KafkaError as error:
        raise error from drop_frames(error)


def _read_ranges(
    options: ReadOptions, partition: ReadTask, max_rows: int
) -> Iterator[pa.RecordBatch]:
    with BlockingClient(options.client, partition.leaders) as client:
        batches = _read_batches(client.router, options, partition.value, max_rows)
        try:
            while (batch := client.run(_next_batch(batches))) is not None:
                yield batch
        except (CorruptRecordException, RecordTooLargeError) as error:
            error.args = (f"{error.text}. In Spark: {_HINTS[type(error)]}",)
            raise
        finally:
            client.run(batches.aclose())


# The advice for each class of errors, in terms of Spark's options.
_HINTS: Final[dict[type[KafkaError], str]] = {
    EmbeddedHeadersError: (
        "skip the message with startingOffsets and endingOffsets, or read values as they are with "
        "headers=refuse"
    ),
    CorruptRecordException: (
        "skip the message with startingOffsets and endingOffsets. If only its CRC is wrong, "
        "kafka.check.crcs=false reads it"
    ),
    RecordTooLargeError: "raise the option kafka.fetch.max.bytes",
}


async def _next_batch(batches: AsyncGenerator[pa.RecordBatch, None]) -> pa.RecordBatch | None:
    return await anext(batches, None)


async def _read_batches(
    router: Router, options: ReadOptions, ranges: Sequence[OffsetRange], max_rows: int
) -> AsyncGenerator[pa.RecordBatch, None]:
    fields = BATCH_SCHEMA_WITH_HEADERS if options.include_headers else BATCH_SCHEMA
    columns, runs = Columns(MAX_BATCH_BYTES), list[tuple[TopicPartition, int]]()
    sources = _message_sets_by_partition(router, options, ranges)
    async with aclosing(merge(sources, TASK_FETCH_BYTES)) as message_sets:
        async for tp, raw in message_sets:
            reader = message_set_reader(options, tp, raw)
            while count := reader.read_columns(columns, max_rows - len(columns)):
                runs.append((tp, count))
                if columns.is_full or len(columns) >= max_rows:
                    yield _to_spark_batch(runs, columns, fields, options)
                    columns, runs = Columns(MAX_BATCH_BYTES), []
    if len(columns):
        yield _to_spark_batch(runs, columns, fields, options)


def _message_sets_by_partition(
    router: Router, options: ReadOptions, ranges: Sequence[OffsetRange]
) -> Iterator[tuple[int, AsyncGenerator[tuple[TopicPartition, RawSet], None]]]:
    """Yield for each partition a generator of its message sets, and the bytes that it may hold."""
    fetches = RangeFetches(router)
    by_partition: dict[TopicPartition, list[OffsetRange]] = {}
    for offset_range in ranges:
        by_partition.setdefault(_partition_of(offset_range), []).append(offset_range)
    usual = options.client.settings.get("max_bytes", DEFAULT_FETCH_BYTES)
    for tp, parts in by_partition.items():
        max_bytes, in_flight = usual, MAX_IN_FLIGHT
        # With several partitions, request fewer bytes for small ranges, so that more ranges fit
        # into the task's memory. The Fetch requests of all ranges leave together, and a range that
        # waits doesn't delay the others.
        if len(by_partition) > 1:
            expected = max(offset_range.size for offset_range in parts) * _EXPECTED_MESSAGE_BYTES
            max_bytes = min(max(expected, _MIN_FETCH_BYTES), usual)
            in_flight = min(-(-expected // max_bytes), MAX_IN_FLIGHT)
        sizes = {"max_bytes": max_bytes, "in_flight": in_flight}
        fetch = partial(fetch_message_sets, router, options, tp, fetches=fetches, **sizes)
        yield max_bytes * in_flight, _read_partition(router, options, tp, parts, fetch)


async def _read_partition(
    router: Router,
    options: ReadOptions,
    tp: TopicPartition,
    parts: Iterable[OffsetRange],
    fetch: Callable[[int, int], AsyncGenerator[RawSet, None]],
) -> AsyncGenerator[tuple[TopicPartition, RawSet], None]:
    """Yield the message sets of one partition's ranges; skip lost parts, or raise an error."""
    for offset_range in parts:
        position, end = offset_range.start, offset_range.end
        while position < end:
            try:
                async with aclosing(fetch(position, end)) as message_sets:
                    async for raw in message_sets:
                        position = raw.end_offset
                        yield tp, raw
                break
            except (OffsetOutOfRangeError, UnknownTopicOrPartitionError) as error:
                position, end = await _skip_lost(router, options, tp, position, end, error)


async def _skip_lost(
    router: Router,
    options: ReadOptions,
    tp: TopicPartition,
    position: int,
    end: int,
    error: OffsetOutOfRangeError | UnknownTopicOrPartitionError,
) -> tuple[int, int]:
    """Return the rest of a range after `error`, and log the lost part.

    Raises:
        OffsetOutOfRangeError: messages were lost, and `failOnDataLoss` is true.
        KafkaError: `error`, if nothing was lost.
    """
    losses: list[str] = []
    remaining: list[OffsetRange] = []
    if isinstance(error, UnknownTopicOrPartitionError):
        losses += describe_unread_range(tp, position, end)
    else:
        earliest = (await list_offsets(router, {tp: EARLIEST}))[tp][0]
        latest = (await list_offsets(router, {tp: LATEST}))[tp][0]
        remaining = clip_to_log(tp, position, end, {tp: earliest}, {tp: latest}, losses)
    if not losses:
        raise error
    message = describe_losses(losses, options.fail_on_data_loss)
    if options.fail_on_data_loss:
        raise OffsetOutOfRangeError(message) from error
    _log.warning("%s: %s", options.client.client_id, message)
    return (remaining[0].start, remaining[0].end) if remaining else (end, end)


def _to_spark_batch(
    runs: Sequence[tuple[TopicPartition, int]],
    columns: Columns,
    fields: pa.Schema,
    options: ReadOptions,
) -> pa.RecordBatch:
    """Return messages with the columns of Spark's own source.

    Raises:
        EmbeddedHeadersError: the envelope of a value's embedded headers is damaged.
    """
    batch = record_batch(runs, columns)
    if options.embedded_headers:
        batch, _, error = finish_steps(extract_rows(batch, [batch.num_rows]))
        if error is not None:
            raise error
    arrays = {name: batch.column(name) for name in batch.schema.names}
    # Spark's own source has -1 for a message without a timestamp, and null headers.
    none = scalar(-1).cast(pa.int32())
    arrays["timestampType"] = pc.fill_null(arrays["timestampType"], none)
    arrays.setdefault("headers", pa.nulls(len(columns), headers_type()))
    return pa.RecordBatch.from_arrays([arrays[name] for name in fields.names], schema=fields)
