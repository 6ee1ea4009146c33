"""Writing: Arrow batches of a task to the producer, and the report of what was acknowledged.

Columns are those of Spark's own sink: `value` (needed), `key`, `topic`, `partition`, `timestamp`,
`headers`; others are ignored. Law: a task succeeds only when each of its rows is acknowledged, and
fails with the broker's reason; a task that is repeated writes its rows again (at least once). The
rows of a partition keep the order in which the task has them. No Python object is made per row.
"""

from __future__ import annotations

import asyncio
import json
import logging
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

from aiokafka08.errors import (
    IllegalArgumentError,
    KafkaError,
    MessageSizeTooLargeError,
    UnsupportedVersionError,
)
from aiokafka08.producer import AIOKafkaProducer
from aiokafka08.producer.deliveries import Deliveries
from aiokafka08.producer.partitioner import PARTITIONERS
from aiokafka08.spark.driver import ssl_context
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

_WITHOUT_TIMESTAMP = ("value", "key", "partition")

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
        rows = 0
        while batch is not None:
            under_way.append(await _send(producer, options, batch, rows))
            rows += batch.num_rows
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
    producer: AIOKafkaProducer, options: WriteOptions, batch: pa.RecordBatch, before: int
) -> list[Deliveries]:
    """Buffer a batch's rows, before which the task had so many: one call per topic."""
    _check_rows(options, batch)
    names = [name for name in _sent(options) if name in batch.schema.names]
    sent = []
    for topic, rows in _by_topic(batch) if options.topic is None else [(options.topic, batch)]:
        try:
            sent.append(await producer.send_arrow(topic, rows.select(names)))
        except UnsupportedVersionError as error:
            error.args = (
                f"the column 'timestamp': {error.text}; set the option timestamps=drop to "
                "write the rows without",
            )
            raise
        except MessageSizeTooLargeError as error:
            error.args = (
                f"topic {topic!r}: {error.text} (counted from 0 among this topic's rows in the "
                f"Arrow batch that begins with row {before} of the task; in Spark: the options "
                "kafka.max.request.size and kafka.buffer.memory)",
            )
            raise
    return sent


def _sent(options: WriteOptions) -> Sequence[str]:
    return _WITHOUT_TIMESTAMP if options.drop_timestamps else (*_WITHOUT_TIMESTAMP, "timestamp")


def _check_rows(options: WriteOptions, batch: pa.RecordBatch) -> None:
    names = batch.schema.names
    if "headers" in names:
        lengths = pc.list_value_length(batch.column("headers"))
        if (pc.max(lengths).as_py() or 0) > 0:
            raise IllegalArgumentError(
                "a row has headers, which message formats 0 and 1 don't have; leave the column out"
            )


def _by_topic(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows by their topic, in their order."""
    column = batch.column("topic")
    if column.null_count:
        raise IllegalArgumentError(
            "a row has no topic; fill the column, or set the option 'topic' for all rows"
        )
    topics = column.unique().to_pylist()
    for topic in topics:
        yield topic, batch if len(topics) == 1 else batch.filter(pc.equal(column, topic))
