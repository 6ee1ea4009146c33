"""Write the rows of Spark's tasks to Kafka, and log the acknowledged ones.

The columns are those of Spark's own Kafka sink: `value` (required), `key`, `topic`, `partition`,
`timestamp` and `headers`; others are ignored.

Invariant: a task succeeds only after each of its rows was acknowledged as `kafka.acks` asks (all
unless set; 0 asks for no acknowledgement), and otherwise raises the reason. A repeated task writes
its rows again (at least once). Rows of one partition keep the order that they have in the task.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final

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

from aiokafka08._core.properties import expected_one_of, wrong_value
from aiokafka08.errors import (
    IllegalArgumentError,
    KafkaError,
    MessageSizeTooLargeError,
    NoBrokersAvailable,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from aiokafka08.partitioner import PARTITIONERS
from aiokafka08.producer import AIOKafkaProducer
from aiokafka08.producer.deliveries import Deliveries
from aiokafka08.spark.driver import (
    executor_ssl_context,
    name_start_options,
    similar_topics,
    start_timeout_ms,
    task_network,
)
from aiokafka08.spark.offsets import to_json
from aiokafka08.spark.options import WriteOptions
from aiokafka08.spark.reasons import reason_first
from aiokafka08.structs import TopicPartition

_log: Final = logging.getLogger("aiokafka08.spark")

_COLUMNS: Final[dict[str, tuple[type[DataType], ...]]] = {
    "value": (StringType, BinaryType),
    "key": (StringType, BinaryType),
    "topic": (StringType,),
    "partition": (IntegerType,),
    "timestamp": (TimestampType,),
}
_HEADERS: Final = "array<struct<key:string,value:binary>>"

_COLUMNS_WITHOUT_TIMESTAMP: Final = ("value", "key", "partition", "headers")

# Arrow batches that may be buffered or in flight at the same time.
_MAX_UNACKNOWLEDGED: Final = 4


@dataclass(slots=True)
class TaskCommitMessage(WriterCommitMessage):
    """The acknowledged rows of a task, counted by partition."""

    rows: dict[TopicPartition, int] = field(default_factory=dict)

    def add(self, rows: dict[TopicPartition, int]) -> None:
        """Add counts."""
        for tp, count in rows.items():
            self.rows[tp] = self.rows.get(tp, 0) + count


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """Check the columns to be written.

    Raises:
        IllegalArgumentError: a column is missing, or has a wrong type.
    """
    types = {field.name: field.dataType for field in schema.fields}
    if "value" not in types:
        raise IllegalArgumentError(
            f"schema: no column 'value', columns: {', '.join(types) or 'none'}; expected a "
            "column 'value' of type string or binary"
        )
    if "topic" not in types and options.topic is None:
        raise IllegalArgumentError(
            "topic of the rows: neither the option 'topic' nor a column 'topic' is given; expected "
            "one of them"
        )
    for name, allowed in _COLUMNS.items():
        if name in types and not isinstance(types[name], allowed):
            names = " or ".join(type_().simpleString() for type_ in allowed)
            raise IllegalArgumentError(
                f"column {name!r}: type {types[name].simpleString()}; expected {names}"
            )
    if "headers" in types and types["headers"].simpleString() != _HEADERS:
        raise IllegalArgumentError(
            f"column 'headers': type {types['headers'].simpleString()}; expected {_HEADERS}"
        )


def check_partitioner(options: WriteOptions) -> None:
    """Check the option `partitioner` on the driver, before the tasks create producers.

    Raises:
        IllegalArgumentError: no partitioner has this name.
    """
    if options.partitioner is not None and options.partitioner not in PARTITIONERS:
        raise wrong_value("partitioner", options.partitioner, "", expected_one_of(PARTITIONERS))


class Kafka08Writer(DataSourceArrowWriter):
    """The writer of a batch query."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    @reason_first
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        """Write the rows of one task."""
        return write_task(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log the rows that all tasks wrote."""
        log_written_rows(self._options.client.client_id, "wrote", messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log the rows that were written before a task failed. They stay written."""
        log_written_rows(self._options.client.client_id, "failed after writing", messages)


class Kafka08StreamWriter(DataSourceStreamArrowWriter):
    """The writer of a streaming query."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    @reason_first
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        """Write the rows of one task."""
        return write_task(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Log the rows that all tasks wrote."""
        log_written_rows(self._options.client.client_id, f"batch {batchId} wrote", messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Log the rows that were written before a task failed. They stay written."""
        log_written_rows(
            self._options.client.client_id, f"batch {batchId} failed after writing", messages
        )


def log_written_rows(
    client_id: str, action: str, messages: Sequence[WriterCommitMessage | None]
) -> None:
    """Log the rows of all tasks, counted by partition."""
    total = TaskCommitMessage()
    for message in messages:
        if isinstance(message, TaskCommitMessage):
            total.add(message.rows)
    count, rows = sum(total.rows.values()), to_json(total.rows)
    _log.info("%s: %s %d rows: %s", client_id, action, count, rows)


# --- in a task ------------------------------------------------------------------------------------


def write_task(options: WriteOptions, batches: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
    """Write the rows of one task, and return once each of them is acknowledged.

    Raises:
        IllegalArgumentError: a row can't be written.
        UnsupportedVersionError: a row has a timestamp, and the broker is older than 0.10.
        KafkaError: the broker's reason, with topic and partition.
    """
    for note in options.notes:
        _log.warning("%s: %s", options.client.client_id, note)
    with asyncio.Runner() as runner:
        return runner.run(_write(options, batches))


async def _write(options: WriteOptions, batches: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
    written = TaskCommitMessage()
    unacknowledged: deque[list[Deliveries]] = deque()
    settings: dict[str, Any] = {
        "start_timeout_ms": start_timeout_ms(options.client.network),
        "acks": "all",
        "client_id": options.client.client_id,
        **task_network(options.client.network),
        **options.client.settings,
        "headers": options.headers,
    }
    if options.partitioner is not None:
        settings["partitioner"] = options.partitioner
    # Spark's iterator blocks, so it runs in a thread, and the producer can send meanwhile.
    batch = await asyncio.to_thread(next, batches, None)
    if batch is None:
        return written
    async with AsyncExitStack() as stack:
        try:
            producer = await stack.enter_async_context(
                AIOKafkaProducer(**settings, ssl_context=executor_ssl_context(options.client.tls))
            )
        except NoBrokersAvailable as error:
            name_start_options(error, options.client)
            raise
        rows = 0
        while batch is not None:
            unacknowledged.append(await _send(producer, options, batch, rows))
            rows += batch.num_rows
            if len(unacknowledged) >= _MAX_UNACKNOWLEDGED:
                await _wait_acknowledged(unacknowledged.popleft(), written)
            batch = await asyncio.to_thread(next, batches, None)
        while unacknowledged:
            await _wait_acknowledged(unacknowledged.popleft(), written)
    return written


async def _wait_acknowledged(sent: list[Deliveries], written: TaskCommitMessage) -> None:
    """Wait for the rows of one Arrow batch, and add them to `written`."""
    for deliveries in sent:
        try:
            await deliveries
        except KafkaError as error:
            where = json.dumps([f"{tp.topic}/{tp.partition}" for tp in deliveries.counts()])
            error.args = (f"rows for {where} were not written: {error.text}",)
            raise
        written.add(deliveries.counts())


async def _send(
    producer: AIOKafkaProducer, options: WriteOptions, batch: pa.RecordBatch, first_row: int
) -> list[Deliveries]:
    """Buffer the rows of a batch, topic by topic; `first_row` is the number of its first row."""
    names = [name for name in _sent_columns(options) if name in batch.schema.names]
    sent = []
    for topic, rows in _by_topic(batch) if options.topic is None else [(options.topic, batch)]:
        try:
            # The batch goes to the producer without a Python object per row.
            sent.append(await producer.send_arrow(topic, rows.select(names)))
        except UnknownTopicOrPartitionError as error:
            error.args = (f"{error.text}{await similar_topics(options.client, topic)}",)
            raise
        except UnsupportedVersionError as error:
            if not error.text.startswith("column 'headers'"):
                error.args = (
                    f"column 'timestamp': {error.text}. In Spark: set the option "
                    "timestamps=drop to write the rows without it",
                )
            raise
        except MessageSizeTooLargeError as error:
            error.args = (
                f"topic {topic!r}: {error.text}. Rows are counted from 0, among the rows of "
                f"this topic in one Arrow batch. That batch begins with row {first_row} of the "
                "task. In Spark: raise the options kafka.max.request.size and kafka.buffer.memory",
            )
            raise
    return sent


def _sent_columns(options: WriteOptions) -> Sequence[str]:
    if options.drop_timestamps:
        return _COLUMNS_WITHOUT_TIMESTAMP
    return (*_COLUMNS_WITHOUT_TIMESTAMP, "timestamp")


def _by_topic(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of each topic, in their order."""
    column = batch.column("topic")
    if column.null_count:
        raise IllegalArgumentError(
            "column 'topic': a row has no topic; expected a topic in each row. Fill the column, or "
            "set the option 'topic' for all rows"
        )
    topics = column.unique()
    for topic in topics:  # scalars of Arrow
        rows = batch if len(topics) == 1 else batch.filter(pc.equal(column, topic))
        yield topic.as_py(), rows
