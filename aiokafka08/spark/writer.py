"""Writing: Arrow batches of a task to the producer, and the report of what was acknowledged.

Columns are those of Spark's own sink: `value` (needed), `key`, `topic`, `partition`, `timestamp`,
`headers`; others are ignored. Law: a task succeeds only when each of its rows is acknowledged, and
fails with the broker's reason; a task that is repeated writes its rows again (at least once). The
rows of a partition keep the order in which the task has them, those that name it apart from those
for which the partitioner chose it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from aiokafka08.errors import IllegalArgumentError, KafkaError, UnsupportedVersionError
from aiokafka08.producer import AIOKafkaProducer
from aiokafka08.producer.deliveries import Deliveries
from aiokafka08.producer.partitioner import PARTITIONERS
from aiokafka08.spark.brokers import ssl_context
from aiokafka08.spark.offsets import text
from aiokafka08.spark.options import WriteOptions
from aiokafka08.structs import TopicPartition

_logger = logging.getLogger("aiokafka08.spark")

_COLUMNS: dict[str, tuple[type[DataType], ...]] = {
    "value": (StringType, BinaryType),
    "key": (StringType, BinaryType),
    "topic": (StringType,),
    "partition": (IntegerType,),
    "timestamp": (TimestampType,),
}
_HEADERS = "array<struct<key:string,value:binary>>"

_UNDER_WAY = 4
"""Arrow batches that may be buffered or sent and not acknowledged yet."""


@dataclass
class Written(WriterCommitMessage):
    """What a task wrote: acknowledged rows by topic and partition."""

    rows: dict[TopicPartition, int] = field(default_factory=dict)

    def add(self, rows: dict[TopicPartition, int]) -> None:
        """Count more."""
        for tp, count in rows.items():
            self.rows[tp] = self.rows.get(tp, 0) + count


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """Check what is to be written.

    Raises:
        IllegalArgumentError: a column is missing or of a wrong type; says what is allowed.
    """
    types = {one.name: one.dataType for one in schema.fields}
    if "value" not in types:
        raise IllegalArgumentError(
            f"there is no column 'value' (string or binary) among {', '.join(types) or 'none'}"
        )
    if "topic" not in types and options.topic is None:
        raise IllegalArgumentError(
            "set the option 'topic', or give a column 'topic': neither is there"
        )
    for name, allowed in _COLUMNS.items():
        if name in types and not isinstance(types[name], allowed):
            names = " or ".join(one().simpleString() for one in allowed)
            raise IllegalArgumentError(
                f"the column {name!r} is of type {types[name].simpleString()}; allowed is {names}"
            )
    if "headers" in types and types["headers"].simpleString() != _HEADERS:
        raise IllegalArgumentError(
            f"the column 'headers' is of type {types['headers'].simpleString()}; allowed is "
            f"{_HEADERS}, and message formats 0 and 1 have none: each must be empty"
        )


def check_partitioner(options: WriteOptions) -> None:
    """Check the option `partitioner` before a task does.

    Raises:
        IllegalArgumentError: no partitioner has this name.
    """
    if options.partitioner is not None and options.partitioner not in PARTITIONERS:
        raise IllegalArgumentError(
            f"partitioner={options.partitioner!r}: allowed are {', '.join(PARTITIONERS)}"
        )


class Kafka08Writer(DataSourceArrowWriter):
    """A batch query's sink."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of one task."""
        return write_task(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks are done: tell what was written."""
        tell("wrote", messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A task failed: what the others wrote stays written."""
        tell("failed; what stays written is", messages)


class Kafka08StreamWriter(DataSourceStreamArrowWriter):
    """A streaming query's sink."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of one task."""
        return write_task(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """All tasks are done: tell what was written."""
        tell(f"batch {batchId} wrote", messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """A task failed: what the others wrote stays written."""
        tell(f"batch {batchId} failed; what stays written is", messages)


def tell(what: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Log rows per partition."""
    total = Written()
    for message in messages:
        if isinstance(message, Written):
            total.add(message.rows)
    _logger.info("%s %d rows: %s", what, sum(total.rows.values()), text(total.rows))


# --- in a task ------------------------------------------------------------------------------------


def write_task(options: WriteOptions, batches: Iterator[pa.RecordBatch]) -> Written:
    """Write the rows of one task; returns when each is acknowledged.

    Raises:
        IllegalArgumentError: a row that can't be written; names it.
        UnsupportedVersionError: timestamps for brokers before 0.10.
        KafkaError: the broker's reason, with topic and partition.
    """
    for note in options.notes:
        _logger.warning("%s", note)
    with asyncio.Runner() as runner:
        return runner.run(_write(options, batches))


async def _write(options: WriteOptions, batches: Iterator[pa.RecordBatch]) -> Written:
    written = Written()
    under_way: deque[list[Deliveries]] = deque()
    settings: dict[str, Any] = {"acks": "all", **options.client.network, **options.client.own}
    if options.partitioner is not None:
        settings["partitioner"] = options.partitioner
    # Rows come while others are sent: Spark's iterator blocks, so it has a thread.
    batch = await asyncio.to_thread(next, batches, None)
    if batch is None:
        return written
    async with AIOKafkaProducer(
        **settings, ssl_context=ssl_context(options.client.tls)
    ) as producer:
        while batch is not None:
            under_way.append(await _send(producer, options, batch))
            if len(under_way) >= _UNDER_WAY:
                await _acknowledged(under_way.popleft(), written)
            batch = await asyncio.to_thread(next, batches, None)
        while under_way:
            await _acknowledged(under_way.popleft(), written)
    return written


async def _acknowledged(sent: list[Deliveries], written: Written) -> None:
    for deliveries in sent:
        try:
            await deliveries
        except KafkaError as error:
            where = json.dumps([f"{tp.topic}/{tp.partition}" for tp in deliveries.counts()])
            error.args = (f"rows for {where} were not written: {error.text}",)
            raise
        written.add(deliveries.counts())


async def _send(
    producer: AIOKafkaProducer, options: WriteOptions, batch: pa.RecordBatch
) -> list[Deliveries]:
    """Buffer a batch's rows: one call per topic, or per partition where rows name theirs."""
    _check_rows(options, batch)
    sent = []
    for topic, rows in _by(batch, "topic") if options.topic is None else [(options.topic, batch)]:
        if topic is None:
            raise IllegalArgumentError(
                "a row has no topic; fill the column, or set the option 'topic' for all rows"
            )
        for partition, part in _by(rows, "partition"):
            keys = _column(part, "key")
            try:
                deliveries = await producer.send_many(
                    topic,
                    _column(part, "value") or (),
                    keys,
                    partition=partition,
                    timestamps_ms=_timestamps(options, part),
                )
            except UnsupportedVersionError as error:
                error.args = (
                    f"the column 'timestamp': {error.text}; set the option timestamps=drop to "
                    "write the rows without",
                )
                raise
            sent.append(deliveries)
    return sent


def _check_rows(options: WriteOptions, batch: pa.RecordBatch) -> None:
    names = batch.schema.names
    if "headers" in names:
        lengths = pc.list_value_length(batch.column("headers"))
        if (pc.max(lengths).as_py() or 0) > 0:
            raise IllegalArgumentError(
                "a row has headers, which message formats 0 and 1 don't have; leave the column out"
            )


def _by(batch: pa.RecordBatch, name: str) -> Iterator[tuple[Any, pa.RecordBatch]]:
    """The rows by what stands in a column, in their order; all of them where there is none."""
    if name not in batch.schema.names:
        yield None, batch
        return
    column = batch.column(name)
    different = pc.unique(column).to_pylist()
    if len(different) == 1:
        yield different[0], batch
        return
    for value in different:
        chosen = pc.is_null(column) if value is None else pc.equal(column, value)
        yield value, batch.filter(chosen)


def _column(batch: pa.RecordBatch, name: str) -> list[bytes | None] | None:
    """A column as bytes; None where there is no such column, or nothing in it."""
    if name not in batch.schema.names:
        return None
    column = batch.column(name)
    if name == "key" and column.null_count == len(column):
        return None
    found: list[bytes | None] = column.cast(pa.binary()).to_pylist()
    return found


def _timestamps(options: WriteOptions, batch: pa.RecordBatch) -> list[int] | None:
    """In milliseconds, of now where a row has none; None where all are of now."""
    if options.drop_timestamps or "timestamp" not in batch.schema.names:
        return None
    column = batch.column("timestamp")
    if column.null_count == len(column):
        return None
    milliseconds: list[int] = pc.fill_null(
        pc.divide(column.cast(pa.int64()), 1000), int(time.time() * 1000)
    ).to_pylist()
    return milliseconds
