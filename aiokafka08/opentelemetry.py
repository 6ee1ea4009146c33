"""OpenTelemetry: spans and metrics of producers and consumers, by its messaging conventions.

    from aiokafka08.opentelemetry import instrument

    instrument()      # after the SDK is set up; `uninstrument()` ends it

`instrument()` replaces the methods of `AIOKafkaProducer` and `AIOKafkaConsumer` that send and
return messages. Each wrapper calls the original, and reports the call as one span and as metrics.
`send_and_wait()` and `async for` call the replaced `send` and `getone`. docs/frameworks.md has the
table of names. Only the extra `otel` is needed (opentelemetry-api): without an SDK nothing is
recorded.

A producer with `headers="embedded"` puts the context of its span into the messages, unless they
have one already; with another option nothing is put in. Consumers read it from
`ConsumerRecord.headers`.

Invariants: importing this module changes nothing. After `uninstrument()` the methods are the
original function objects. No other module imports opentelemetry. Spans have neither keys nor values
of messages.
"""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from aiokafka08 import __version__, environment
from aiokafka08.consumer import AIOKafkaConsumer
from aiokafka08.embedded_headers import MAX_HEADERS, Headers
from aiokafka08.errors import ConsumerStoppedError, IllegalStateError
from aiokafka08.producer import AIOKafkaProducer, BatchBuilder, Deliveries
from aiokafka08.structs import ConsumerRecord, TopicPartition

try:
    from opentelemetry import metrics, propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "aiokafka08.opentelemetry needs opentelemetry-api. "
        "Install the extra: pip install 'aiokafka08[otel]'",
        name=error.name,
    ) from None

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from aiokafka08.arrow import RecordBatch

Attributes = dict[str, str | int | bool]

OPT_IN_VARIABLE: Final = "OTEL_SEMCONV_STABILITY_OPT_IN"
"""The environment variable that `instrument()` reads: "messaging/dup" in it adds the old names."""

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.43.0"
"""The conventions that have the names below."""

DURATION: Final = "messaging.client.operation.duration"
SENT: Final = "messaging.client.sent.messages"
CONSUMED: Final = "messaging.client.consumed.messages"

OLD_METRICS: Final = {
    (DURATION, "send"): "messaging.publish.duration",
    (DURATION, "poll"): "messaging.receive.duration",
    (SENT, "send"): "messaging.publish.messages",
    (CONSUMED, "poll"): "messaging.receive.messages",
}
"""What version 1.24 of the conventions calls a metric of an operation."""

OLD_ATTRIBUTES: Final = {
    "messaging.operation.type": "messaging.operation",
    "messaging.client.id": "messaging.client_id",
    "messaging.consumer.group.name": "messaging.kafka.consumer.group",
    "messaging.destination.partition.id": "messaging.kafka.destination.partition",
    "messaging.kafka.offset": "messaging.kafka.message.offset",
}
"""What version 1.24 of the conventions calls an attribute; the other names are the same."""

_BOUNDARIES_S: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
_TYPES: Final = {"send": "send", "poll": "receive"}
_MAX_LINKS: Final = 128
"""How many links a span has at most; the SDK drops more than these."""


def instrument(
    *, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
) -> None:
    """Report all producers and consumers, until `uninstrument()`. A second call does nothing.

    Args:
        tracer_provider: makes the tracer; None for the global one (default None).
        meter_provider: makes the meter; None for the global one (default None).
    """
    if _replaced:
        return
    opt_in = os.environ.get(OPT_IN_VARIABLE, "")
    recorder = MessagingRecorder(
        trace.get_tracer("aiokafka08", __version__, tracer_provider, SCHEMA_URL),
        metrics.get_meter("aiokafka08", __version__, meter_provider, SCHEMA_URL),
        with_old_names="messaging/dup" in map(str.strip, opt_in.split(",")),
    )
    for cls, name, wrap in _WRAPPERS:
        original = vars(cls)[name]
        ours = functools.wraps(original)(wrap(recorder, original))
        _replaced[cls, name] = original, ours
        setattr(cls, name, ours)


def uninstrument() -> None:
    """Put the original methods back. Does nothing without `instrument()`.

    Calls that are under way, and messages that aren't acknowledged yet, are still reported.

    Raises:
        IllegalStateError: another program has wrapped a method after `instrument()`; undo that
            first.
    """
    for (cls, name), (_, ours) in _replaced.items():
        if vars(cls)[name] is not ours:
            raise IllegalStateError(
                f"{cls.__name__}.{name} was wrapped again after instrument(): undo that first"
            )
    for (cls, name), (original, _) in _replaced.items():
        setattr(cls, name, original)
    _replaced.clear()


def message_context(record: ConsumerRecord[Any, Any]) -> Context:
    """Return the context that the producer put into a message; an empty one if there is none.

    For a span of the work on the message: `tracer.start_as_current_span("…", context=…)`.
    """
    return propagate.extract(_carrier(record.headers), Context())


class MessagingRecorder:
    """The instruments, and what they record.

    Args:
        tracer: makes the spans.
        meter: makes the metrics.
        with_old_names: whether to record under the names of version 1.24, too.
    """

    def __init__(self, tracer: trace.Tracer, meter: metrics.Meter, *, with_old_names: bool) -> None:
        self.tracer = tracer
        self.with_old_names = with_old_names
        new = [(DURATION, "send"), (DURATION, "poll"), (SENT, "send"), (CONSUMED, "poll")]
        self._new = {key: _instrument(meter, key[0]) for key in new}
        self._old: dict[tuple[str, str], Callable[[float, Attributes], None]] = {}
        if with_old_names:
            self._old = {key: _instrument(meter, old) for key, old in OLD_METRICS.items()}

    def record(self, metric: str, operation: str, amount: float, attributes: Attributes) -> None:
        """Record a value of a metric."""
        self._new[metric, operation](amount, attributes)
        if self._old:
            self._old[metric, operation](amount, _old(attributes))

    def all_names(self, attributes: Attributes) -> Attributes:
        """Return the attributes of a span, with the old names if these are wanted."""
        return attributes | _old(attributes) if self.with_old_names else attributes


class MessagingOperation:
    """One call of a client: what is known of it, its span, and its begin.

    Args:
        recorder: the instruments.
        client: the producer or consumer.
        name: "send" or "poll".
    """

    __slots__ = (
        "_began_s",
        "_client",
        "_common",
        "_name",
        "_recorder",
        "_span",
        "_started_at",
        "attributes",
    )

    def __init__(
        self, recorder: MessagingRecorder, client: AIOKafkaProducer | AIOKafkaConsumer, name: str
    ) -> None:
        self._recorder = recorder
        self._client = client
        self._name = name
        self._common: Attributes = {
            "messaging.system": "kafka",
            "messaging.operation.name": name,
            "messaging.operation.type": _TYPES[name],
        }
        if isinstance(client, AIOKafkaConsumer) and client._group_id is not None:
            self._common["messaging.consumer.group.name"] = client._group_id
        self.attributes: Attributes = {}
        self._span: trace.Span = trace.INVALID_SPAN
        self._started_at = int(environment.wall_time() * 1e9)
        self._began_s = environment.monotonic()

    def start_span(
        self,
        topics: Collection[str],
        links: Collection[SpanContext] = (),
        *,
        parent: SpanContext | None = None,
    ) -> trace.Span:
        """Make the span, as a child of the current one, or of `parent`."""
        [topic] = topics if len(topics) == 1 else [""]
        if topic:
            self._common["messaging.destination.name"] = topic
        context = None
        if parent is not None:
            context = trace.set_span_in_context(trace.NonRecordingSpan(parent))
        config = self._client._router.config
        self._span = self._recorder.tracer.start_span(
            f"{self._name} {topic}".strip(),
            context,
            SpanKind.PRODUCER if self._name == "send" else SpanKind.CONSUMER,
            self._recorder.all_names(
                {**self._common, "messaging.client.id": config.client_id, **self.attributes}
            ),
            [Link(one) for one in links],
            self._started_at,
        )
        return self._span

    def end(
        self,
        counts: Mapping[str, int],
        errors: Mapping[str, int] | None = None,
        cause: BaseException | None = None,
    ) -> None:
        """End the span, and record the metrics.

        Args:
            counts: how many messages of each topic were sent or received.
            errors: how many of them failed, by the name of the error; None for none (default None).
            cause: the error that the call or a message ended with; None if none (default None).
        """
        duration_s = environment.monotonic() - self._began_s
        common = dict(self._common)
        if cause is not None:
            common["error.type"] = type(cause).__qualname__
            self._span.set_attribute("error.type", common["error.type"])
            self._span.record_exception(cause)
            self._span.set_status(Status(StatusCode.ERROR, str(cause)))
        self._span.end()
        self._recorder.record(DURATION, self._name, duration_s, common)
        common.pop("error.type", None)
        metric = SENT if self._name == "send" else CONSUMED
        for topic, count in counts.items():
            common["messaging.destination.name"] = topic
            failed = errors or {}
            for error, amount in failed.items():
                self._recorder.record(metric, self._name, amount, common | {"error.type": error})
            if delivered := count - sum(failed.values()):
                self._recorder.record(metric, self._name, delivered, common)

    def note_place(self, topic: str, partition: int, offset: int = -1) -> None:
        """Set the partition, its leader's address, and the offset; -1 for none (default -1)."""
        place: Attributes = {"messaging.destination.partition.id": str(partition)}
        if offset >= 0:
            place["messaging.kafka.offset"] = offset
        cluster = self._client._router.metadata.snapshot
        leader = cluster.leader(TopicPartition(topic, partition))
        if leader is not None:
            broker = cluster.brokers[leader]
            place |= {"server.address": broker.host, "server.port": broker.port}
        self.attributes |= place
        if self._span.is_recording():
            self._span.set_attributes(self._recorder.all_names(place))

    def end_message(self, topic: str, count: int, future: Any) -> None:
        """End a `send()` or `send_batch()`, whose future is done."""
        if future.cancelled():  # the message is sent all the same, with an unknown outcome
            self.end({topic: count})
            return
        error = future.exception()
        if error is not None:
            self.end({topic: count}, {type(error).__qualname__: count}, error)
            return
        stored = future.result()
        if stored is not None:  # None: acks=0
            self.note_place(topic, stored.partition, stored.offset)
        self.end({topic: count})

    def end_deliveries(self, topic: str, deliveries: Deliveries) -> None:
        """End a `send_many()` or `send_arrow()`, whose messages are acknowledged or failed."""
        partitions = deliveries.counts()
        if len(partitions) == 1:
            self.note_place(topic, next(iter(partitions)).partition)
        errors = deliveries.errors()
        names = Counter(type(error).__qualname__ for error in errors.values())
        self.end({topic: len(deliveries)}, names, next(iter(errors.values()), None))


# --- wrappers of the producer's methods -----------------------------------------------------------


def _wrap_send(recorder: MessagingRecorder, original: Any) -> Any:
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
        own = _creation_context(headers)
        span = operation.start_span([str(topic)], [] if own is None else [own])
        if own is None and value is not None and self._headers.mode == "embedded":
            headers = _with_context(headers, _context_headers(span))
        try:
            future = await original(self, topic, value, key, partition, timestamp_ms, headers)
        except BaseException as error:
            operation.end({}, cause=error)
            raise
        future.add_done_callback(functools.partial(operation.end_message, topic, 1))
        return future

    return send


def _wrap_send_batch(recorder: MessagingRecorder, original: Any) -> Any:
    async def send_batch(self: AIOKafkaProducer, batch: Any, topic: str, *, partition: int) -> Any:
        operation = MessagingOperation(recorder, self, "send")
        span = operation.start_span([str(topic)])
        count = batch.record_count() if isinstance(batch, BatchBuilder) else 0
        span.set_attribute("messaging.batch.message_count", count)
        try:
            future = await original(self, batch, topic, partition=partition)
        except BaseException as error:
            operation.end({}, cause=error)
            raise
        future.add_done_callback(functools.partial(operation.end_message, topic, count))
        return future

    return send_batch


def _wrap_send_many(recorder: MessagingRecorder, original: Any) -> Any:
    async def send_many(
        self: AIOKafkaProducer,
        topic: str,
        values: Iterable[Any],
        keys: Iterable[Any] | None = None,
        partition: int | None = None,
        timestamps_ms: Iterable[int] | None = None,
        headers: Iterable[Headers | None] | None = None,
    ) -> Deliveries:
        operation = MessagingOperation(recorder, self, "send")
        given = None if headers is None else list(headers)
        own = [_creation_context(one) for one in given or ()]
        span = operation.start_span([str(topic)], _distinct(own))
        try:
            if self._headers.mode == "embedded":
                values = values if isinstance(values, Collection) else list(values)
                if given is None:
                    given, own = [None] * len(values), [None] * len(values)
                if len(given) == len(values):  # else the original raises
                    ours = _context_headers(span)
                    given = [
                        _with_context(one, ours) if context is None and value is not None else one
                        for value, one, context in zip(values, given, own, strict=True)
                    ]
            deliveries: Deliveries = await original(
                self, topic, values, keys, partition, timestamps_ms, given
            )
        except BaseException as error:
            operation.end({}, cause=error)
            raise
        span.set_attribute("messaging.batch.message_count", len(deliveries))
        deliveries.add_done_callback(functools.partial(operation.end_deliveries, topic))
        return deliveries

    return send_many


def _wrap_send_arrow(recorder: MessagingRecorder, original: Any) -> Any:
    async def send_arrow(self: AIOKafkaProducer, topic: str, batch: RecordBatch) -> Deliveries:
        operation = MessagingOperation(recorder, self, "send")
        span = operation.start_span([str(topic)])
        try:
            deliveries: Deliveries = await original(self, topic, batch)
        except BaseException as error:
            operation.end({}, cause=error)
            raise
        span.set_attribute("messaging.batch.message_count", len(deliveries))
        deliveries.add_done_callback(functools.partial(operation.end_deliveries, topic))
        return deliveries

    return send_arrow


# --- wrappers of the consumer's methods -----------------------------------------------------------


def _wrap_getone(recorder: MessagingRecorder, original: Any) -> Any:
    async def getone(self: AIOKafkaConsumer[Any, Any], *partitions: TopicPartition) -> Any:
        operation = MessagingOperation(recorder, self, "poll")
        with _PollErrors(operation):
            record = await original(self, *partitions)
        operation.note_place(record.topic, record.partition, record.offset)
        if record.serialized_value_size < 0:
            operation.attributes["messaging.kafka.message.tombstone"] = True
        created = _creation_context(record.headers)
        ambient = trace.get_current_span().get_span_context().is_valid
        operation.start_span(
            [record.topic],
            [] if created is None else [created],
            parent=None if ambient else created,
        )
        operation.end({record.topic: 1})
        return record

    return getone


def _wrap_getmany(recorder: MessagingRecorder, original: Any) -> Any:
    async def getmany(
        self: AIOKafkaConsumer[Any, Any],
        *partitions: TopicPartition,
        timeout_ms: int = 0,
        max_records: int | None = None,
    ) -> Any:
        operation = MessagingOperation(recorder, self, "poll")
        with _PollErrors(operation):
            found: dict[TopicPartition, list[Any]] = await original(
                self, *partitions, timeout_ms=timeout_ms, max_records=max_records
            )
        counts: Counter[str] = Counter()
        for tp, records in found.items():
            counts[tp.topic] += len(records)
        if len(found) == 1:
            operation.note_place(*next(iter(found)))
        _end_poll(
            operation,
            counts,
            _created(record.headers for records in found.values() for record in records),
        )
        return found

    return getmany


def _wrap_getmany_arrow(recorder: MessagingRecorder, original: Any) -> Any:
    async def getmany_arrow(
        self: AIOKafkaConsumer[Any, Any],
        *partitions: TopicPartition,
        timeout_ms: int = 0,
        max_records: int | None = None,
    ) -> Any:
        operation = MessagingOperation(recorder, self, "poll")
        with _PollErrors(operation):
            batch = await original(
                self, *partitions, timeout_ms=timeout_ms, max_records=max_records
            )
        topics = batch.column("topic").value_counts().to_pylist()
        _end_poll(operation, {one["values"]: one["counts"] for one in topics})
        return batch

    return getmany_arrow


def _end_poll(
    operation: MessagingOperation, counts: Mapping[str, int], links: Collection[SpanContext] = ()
) -> None:
    """End the poll of a batch; one that returns no message has a duration, but no span."""
    if counts:
        operation.attributes["messaging.batch.message_count"] = sum(counts.values())
        operation.start_span(counts.keys(), links)
    operation.end(counts)


class _PollErrors:
    """A context manager that reports the error of a poll, but not the end of the consumer."""

    def __init__(self, operation: MessagingOperation) -> None:
        self._operation = operation

    def __enter__(self) -> None: ...

    def __exit__(self, exc_type: object, error: BaseException | None, tb: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, ConsumerStoppedError):
            self._operation.start_span(())
            self._operation.end({}, cause=error)


# --- inside ---------------------------------------------------------------------------------------


def _instrument(meter: metrics.Meter, name: str) -> Callable[[float, Attributes], None]:
    """Return the function that records a value of a new metric."""
    if name.endswith("duration"):
        return meter.create_histogram(
            name,
            "s",
            "Duration of operations of producers and consumers",
            explicit_bucket_boundaries_advisory=_BOUNDARIES_S,
        ).record
    return meter.create_counter(name, "{message}", "Messages sent or received").add


def _old(attributes: Attributes) -> Attributes:
    """Return the attributes under the names of version 1.24; others than these stay."""
    old: Attributes = {}
    for name, value in attributes.items():
        if name == "messaging.operation.type" and value == "send":
            value = "publish"
        elif name == "messaging.destination.partition.id":
            value = int(value)
        if name != "messaging.operation.name":
            old[OLD_ATTRIBUTES.get(name, name)] = value
    return old


def _carrier(headers: Iterable[Any]) -> dict[str, str]:
    """Return the headers as propagators read them; those that aren't pairs are left out."""
    return {
        header[0]: header[1].decode(errors="replace")
        for header in headers
        if isinstance(header, tuple | list)
        and len(header) == 2
        and isinstance(header[0], str)
        and isinstance(header[1], bytes)
    }


def _creation_context(headers: Any) -> SpanContext | None:
    """Return the context of the span that created a message, if its headers have one."""
    if not headers or not isinstance(headers, tuple | list):
        return None
    found = propagate.extract(_carrier(headers), Context())
    context = trace.get_current_span(found).get_span_context()
    return context if context.is_valid else None


def _context_headers(span: trace.Span) -> list[tuple[str, bytes]]:
    """Return the headers with the span's context; none if nothing is recorded."""
    carrier: dict[str, str] = {}
    if span.get_span_context().is_valid:
        propagate.inject(carrier, trace.set_span_in_context(span))
    return [(name, text.encode()) for name, text in carrier.items()]


def _with_context(headers: Any, ours: list[tuple[str, bytes]]) -> Any:
    """Return a message's headers and ours; only the message's if an envelope hasn't the room."""
    if headers is None:
        return ours
    if not isinstance(headers, tuple | list) or len(headers) + len(ours) > MAX_HEADERS:
        return headers
    return [*headers, *ours]


def _created(all_headers: Iterable[Sequence[tuple[str, bytes]]]) -> Collection[SpanContext]:
    """Return the distinct contexts in the headers of received messages, the first ones only."""
    contexts: dict[tuple[int, int], SpanContext] = {}
    last: Sequence[tuple[str, bytes]] = ()
    for headers in all_headers:
        if headers == last:  # as those of messages of one `send_many()`
            continue
        last = headers
        context = _creation_context(headers)
        if context is not None:
            contexts[context.trace_id, context.span_id] = context
            if len(contexts) == _MAX_LINKS:
                break
    return contexts.values()


def _distinct(contexts: Iterable[SpanContext | None]) -> Collection[SpanContext]:
    """Return each context once, in order."""
    found = (one for one in contexts if one is not None)
    return {(one.trace_id, one.span_id): one for one in found}.values()


_Wrapper = Callable[[MessagingRecorder, Any], Any]

_WRAPPERS: Final[Sequence[tuple[type, str, _Wrapper]]] = (
    (AIOKafkaProducer, "send", _wrap_send),
    (AIOKafkaProducer, "send_many", _wrap_send_many),
    (AIOKafkaProducer, "send_arrow", _wrap_send_arrow),
    (AIOKafkaProducer, "send_batch", _wrap_send_batch),
    (AIOKafkaConsumer, "getone", _wrap_getone),
    (AIOKafkaConsumer, "getmany", _wrap_getmany),
    (AIOKafkaConsumer, "getmany_arrow", _wrap_getmany_arrow),
)

_replaced: dict[tuple[type, str], tuple[Any, Any]] = {}
"""The replaced methods: the original and the wrapper."""
