"""The wrappers of the producer's methods: each reports a call as a span of kind PRODUCER.

Invariant: a message that has a context keeps it, and the span of the call links to it. If the
producer embeds headers, the other messages of a call, except null values, get the context of the
call's span. Messages of a prepared batch are encoded before `send_batch()` is called, so they get
the context of an earlier span, `create`.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Collection, Generator, Iterable
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from opentelemetry import trace
from opentelemetry.trace import SpanContext

from aiokafka08._core.arrow_headers import change_headers
from aiokafka08.embedded_headers import Headers
from aiokafka08.opentelemetry.context import (
    context_headers,
    creation_context,
    distinct,
    with_context,
)
from aiokafka08.opentelemetry.recorder import MessagingOperation, MessagingRecorder
from aiokafka08.producer import AIOKafkaProducer, BatchBuilder, Deliveries

if TYPE_CHECKING:
    from aiokafka08._core.arrow import RecordBatch

# The number of messages whose headers one step of `send_many()` changes
_PER_STEP: Final = 128


class ContextInjector:
    """Puts a span's context into messages that have none, and notes the other contexts."""

    def __init__(self, span: trace.Span, *, embeds: bool) -> None:
        self._ours = context_headers(span) if embeds else []
        self._contexts: list[SpanContext] = []

    @property
    def contexts(self) -> Collection[SpanContext]:
        """The distinct contexts that messages had."""
        return distinct(self._contexts)

    def change(self, has_value: bool, headers: Headers | None) -> Headers | None:
        """Return the headers to send."""
        own = creation_context(headers)
        if own is not None:
            self._contexts.append(own)
            return headers
        # A message with a null value can't have headers, so it gets no context.
        if not has_value or not self._ours:
            return headers
        changed: Headers | None = with_context(headers, self._ours)
        return changed

    def change_all(
        self, values: Collection[Any], all_headers: list[Headers | None] | None
    ) -> Generator[None, None, list[Headers | None] | None]:
        """Return the headers of messages, in steps."""
        if all_headers is None:
            if not self._ours:
                return None
            all_headers = [None] * len(values)
        if len(all_headers) != len(values):
            # The producer raises the error about the wrong length.
            return all_headers
        changed = []
        for index, (value, headers) in enumerate(zip(values, all_headers, strict=True)):
            if index % _PER_STEP == _PER_STEP - 1:
                yield
            changed.append(self.change(value is not None, headers))
        return changed


def wrap_send(recorder: MessagingRecorder, original: Any) -> Any:
    async def send(
        self: AIOKafkaProducer,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> Any:
        operation = MessagingOperation(recorder, self, "send")
        if value is None:
            operation.attributes["messaging.kafka.message.tombstone"] = True
        own = creation_context(headers)
        span = operation.start_span([str(topic)], [] if own is None else [own])
        # A message that has a context keeps it; the span links to it.
        if own is None and value is not None and self._headers.mode == "embedded":
            headers = with_context(headers, context_headers(span))
        try:
            future = await original(self, topic, value, key, partition, timestamp_ms, headers)
        except BaseException as error:
            operation.end({}, cause=error)
            raise
        future.add_done_callback(functools.partial(operation.end_message, topic, 1))
        return future

    return send


def wrap_send_many(recorder: MessagingRecorder, original: Any) -> Any:
    async def send_many(
        self: AIOKafkaProducer,
        topic: str,
        values: Iterable[Any],
        keys: Iterable[Any] | None = None,
        partition: int | None = None,
        timestamps_ms: Iterable[int] | None = None,
        headers: Iterable[Headers | None] | None = None,
    ) -> Deliveries:
        async def send(injector: ContextInjector) -> Deliveries:
            sent, all_headers = values, headers
            if self._engine is not None:
                sent = values if isinstance(values, Collection) else list(values)
                headers_list = None if headers is None else list(headers)
                steps = injector.change_all(sent, headers_list)
                all_headers = await self._engine.loop_yield.run_steps(steps)
            deliveries: Deliveries = await original(
                self, topic, sent, keys, partition, timestamps_ms, all_headers
            )
            return deliveries

        return await _send_all(recorder, self, topic, send)

    return send_many


def wrap_send_arrow(recorder: MessagingRecorder, original: Any) -> Any:
    async def send_arrow(self: AIOKafkaProducer, topic: str, batch: RecordBatch) -> Deliveries:
        async def send(injector: ContextInjector) -> Deliveries:
            sent = batch
            columns = getattr(getattr(batch, "schema", None), "names", ())
            # If the batch has no such column, or is no batch, the original raises the error.
            if self._engine is not None and self._headers.mode == "embedded" and "value" in columns:
                steps = change_headers(batch, injector.change)
                sent = await self._engine.loop_yield.run_steps(steps)
            deliveries: Deliveries = await original(self, topic, sent)
            return deliveries

        return await _send_all(recorder, self, topic, send)

    return send_arrow


async def _send_all(
    recorder: MessagingRecorder,
    producer: AIOKafkaProducer,
    topic: str,
    send: Callable[[ContextInjector], Awaitable[Deliveries]],
) -> Deliveries:
    operation = MessagingOperation(recorder, producer, "send")
    span = operation.start_span([str(topic)])
    injector = ContextInjector(span, embeds=producer._headers.mode == "embedded")
    try:
        deliveries = await send(injector)
    except BaseException as error:
        operation.end({}, cause=error)
        raise
    for context in injector.contexts:
        span.add_link(context)
    span.set_attribute("messaging.batch.message_count", len(deliveries))
    deliveries.add_done_callback(functools.partial(operation.end_deliveries, topic))
    return deliveries


# --- batches that the caller fills ----------------------------------------------------------------

# The producer of each prepared batch that has no message yet
_owners: WeakKeyDictionary[BatchBuilder, AIOKafkaProducer] = WeakKeyDictionary()

# Per prepared batch: the injector for its span `create`, and the span's context
_injectors: WeakKeyDictionary[BatchBuilder, tuple[ContextInjector, SpanContext]] = (
    WeakKeyDictionary()
)


def wrap_create_batch(recorder: MessagingRecorder, original: Any) -> Any:
    def create_batch(self: AIOKafkaProducer) -> BatchBuilder:
        batch: BatchBuilder = original(self)
        if self._headers.mode == "embedded":
            _owners[batch] = self
        return batch

    return create_batch


def wrap_append(recorder: MessagingRecorder, original: Any) -> Any:
    def append(
        self: BatchBuilder,
        *,
        timestamp: int | None,
        key: Any,
        value: Any,
        headers: Headers | None = (),
    ) -> Any:
        producer = _owners.pop(self, None)
        if producer is not None:
            # The span begins at the first message, since the messages are encoded before
            # `send_batch()` begins its own span.
            operation = MessagingOperation(recorder, producer, "create")
            span = operation.start_span(())
            _injectors[self] = ContextInjector(span, embeds=True), span.get_span_context()
            span.end()
        if self in _injectors:
            headers = _injectors[self][0].change(value is not None, headers)
        return original(self, timestamp=timestamp, key=key, value=value, headers=headers)

    return append


def wrap_send_batch(recorder: MessagingRecorder, original: Any) -> Any:
    async def send_batch(self: AIOKafkaProducer, batch: Any, topic: str, *, partition: int) -> Any:
        operation = MessagingOperation(recorder, self, "send")
        links: list[SpanContext] = []
        count = 0
        if isinstance(batch, BatchBuilder):
            count = batch.record_count()
            if batch in _injectors:
                injector, created = _injectors[batch]
                links = [*([created] if created.is_valid else []), *injector.contexts]
        span = operation.start_span([str(topic)], links)
        span.set_attribute("messaging.batch.message_count", count)
        try:
            future = await original(self, batch, topic, partition=partition)
        except BaseException as error:
            operation.end({}, cause=error)
            raise
        future.add_done_callback(functools.partial(operation.end_message, topic, count))
        return future

    return send_batch
