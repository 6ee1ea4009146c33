"""The wrappers of the consumer's methods: each reports a call as a span.

The span of a method that returns messages has the kind CONSUMER and the name `poll`; that of
`commit` has the kind CLIENT.

Invariant: a wrapper doesn't await after the original has returned messages, since a cancellation
there would lose them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import trace

from aiokafka08._core.arrow import count_rows_by_partition
from aiokafka08._core.arrow_headers import read_headers
from aiokafka08.consumer import AIOKafkaConsumer
from aiokafka08.errors import ConsumerStoppedError
from aiokafka08.opentelemetry.context import created_contexts, creation_context
from aiokafka08.opentelemetry.recorder import MessagingOperation, MessagingRecorder
from aiokafka08.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka08._core.arrow import RecordBatch

# The number of rows whose headers are converted at a time. A span links to few messages, so not
# all headers are needed
_PER_STEP: Final = 64


class CallErrors:
    """A context manager that reports the error of a call, but not the end of the consumer."""

    def __init__(self, operation: MessagingOperation, topics: Collection[str] = ()) -> None:
        self._operation = operation
        self._topics = topics

    def __enter__(self) -> None: ...

    def __exit__(self, exc_type: object, error: BaseException | None, tb: object) -> None:
        # Only the end of the consumer raises ConsumerStoppedError.
        if isinstance(error, Exception) and not isinstance(error, ConsumerStoppedError):
            self._operation.start_span(self._topics)
            self._operation.end({}, cause=error)


def wrap_getone(recorder: MessagingRecorder, original: Any) -> Any:
    async def getone(self: AIOKafkaConsumer[Any, Any], *partitions: TopicPartition) -> Any:
        operation = MessagingOperation(recorder, self, "poll")
        with CallErrors(operation):
            record = await original(self, *partitions)
        operation.note_place(record.topic, record.partition, record.offset)
        if record.serialized_value_size < 0:
            operation.attributes["messaging.kafka.message.tombstone"] = True
        created = creation_context(record.headers)
        # The message's context is the parent only if the caller has no span of its own.
        ambient = trace.get_current_span().get_span_context().is_valid
        operation.start_span(
            [record.topic],
            [] if created is None else [created],
            parent=None if ambient else created,
        )
        operation.end({record.topic: 1})
        return record

    return getone


def wrap_getmany(recorder: MessagingRecorder, original: Any) -> Any:
    return _wrap_batch(recorder, original, _count_records, _record_headers)


def wrap_getmany_arrow(recorder: MessagingRecorder, original: Any) -> Any:
    return _wrap_batch(recorder, original, count_rows_by_partition, _row_headers)


def _wrap_batch(
    recorder: MessagingRecorder,
    original: Any,
    count: Callable[[Any], Counter[TopicPartition]],
    headers_of: Callable[[Any], Iterable[Any]],
) -> Any:
    """Return the wrapper of a method that returns messages of several partitions.

    `count` counts the messages of a result by partition; `headers_of` iterates over their headers.
    """

    async def poll(
        self: AIOKafkaConsumer[Any, Any],
        *partitions: TopicPartition,
        timeout_ms: int = 0,
        max_records: int | None = None,
    ) -> Any:
        operation = MessagingOperation(recorder, self, "poll")
        with CallErrors(operation):
            result = await original(
                self, *partitions, timeout_ms=timeout_ms, max_records=max_records
            )
        by_partition = count(result)
        by_topic: Counter[str] = Counter()
        for tp, messages in by_partition.items():
            by_topic[tp.topic] += messages
        # An empty poll has a duration, but no span.
        if by_partition:
            if len(by_partition) == 1:
                operation.note_place(*next(iter(by_partition)))
            operation.attributes["messaging.batch.message_count"] = by_topic.total()
            operation.start_span(by_topic.keys(), created_contexts(headers_of(result)))
        operation.end(by_topic)
        return result

    return poll


def _count_records(result: dict[TopicPartition, list[Any]]) -> Counter[TopicPartition]:
    return Counter({tp: len(records) for tp, records in result.items()})


def _record_headers(result: dict[TopicPartition, list[Any]]) -> Iterator[Any]:
    return (record.headers for records in result.values() for record in records)


def _row_headers(batch: RecordBatch) -> Iterator[Any]:
    if "headers" in batch.schema.names and batch.column("headers").null_count < batch.num_rows:
        for start in range(0, batch.num_rows, _PER_STEP):
            yield from read_headers(batch, start, min(start + _PER_STEP, batch.num_rows))


def wrap_commit(recorder: MessagingRecorder, original: Any) -> Any:
    async def commit(self: AIOKafkaConsumer[Any, Any], offsets: Any = None) -> None:
        operation = MessagingOperation(recorder, self, "commit")
        committed = self.assignment() if offsets is None else offsets
        partitions = (
            [tp for tp in committed if isinstance(tp, TopicPartition)]
            if isinstance(committed, Collection)
            else []
        )
        topics = {tp.topic for tp in partitions}
        if len(partitions) == 1:
            number = str(partitions[0].partition)
            operation.attributes["messaging.destination.partition.id"] = number
        with CallErrors(operation, topics):
            await original(self, offsets)
        operation.start_span(topics)
        operation.end({})

    return commit
