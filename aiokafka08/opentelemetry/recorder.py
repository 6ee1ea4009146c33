"""The spans and metrics of calls: each `MessagingOperation` is a call, with its span.

Invariant: spans have neither keys nor values of messages, and metrics have no partitions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from opentelemetry import metrics, trace
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode

from aiokafka08 import environment
from aiokafka08.consumer import AIOKafkaConsumer
from aiokafka08.opentelemetry.names import (
    CONSUMED,
    DURATION,
    OLD_METRICS,
    SENT,
    TYPES,
    Attributes,
    old_names,
)
from aiokafka08.producer import AIOKafkaProducer, Deliveries
from aiokafka08.structs import TopicPartition

_BOUNDARIES_S: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
_KINDS: Final = {
    "send": SpanKind.PRODUCER,
    "create": SpanKind.PRODUCER,
    "poll": SpanKind.CONSUMER,
    "commit": SpanKind.CLIENT,
}


class MessagingRecorder:
    """The instruments; `with_old_names`: record also under the names of conventions 1.24."""

    def __init__(self, tracer: trace.Tracer, meter: metrics.Meter, *, with_old_names: bool) -> None:
        self.tracer = tracer
        self.with_old_names = with_old_names
        self._new = {name: _instrument(meter, name) for name in (DURATION, SENT, CONSUMED)}
        self._old: dict[tuple[str, str], Callable[[float, Attributes], None]] = {}
        if with_old_names:
            self._old = {key: _instrument(meter, old) for key, old in OLD_METRICS.items()}

    def record(self, metric: str, operation: str, amount: float, attributes: Attributes) -> None:
        self._new[metric](amount, attributes)
        record_old = self._old.get((metric, operation))
        if record_old is not None:
            record_old(amount, old_names(attributes))

    def all_names(self, attributes: Attributes) -> Attributes:
        """Return the attributes of a span, with the old names if these are wanted."""
        return attributes | old_names(attributes) if self.with_old_names else attributes


class MessagingOperation:
    """One call of a client: its span, and the time at which it began.

    `name` is "send", "poll", "commit" or "create".
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
            "messaging.operation.type": TYPES[name],
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
            _KINDS[self._name],
            self._recorder.all_names(
                {**self._common, "messaging.client.id": config.client_id, **self.attributes}
            ),
            [Link(span_context) for span_context in links],
            # When the call began. The span is made later, when the topics are known.
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
        # Each `record()` gets a dict of its own, because version 1.30 of the SDK keeps it.
        outcome = dict(self._common)
        if cause is not None:
            outcome["error.type"] = type(cause).__qualname__
            self._span.set_attribute("error.type", outcome["error.type"])
            self._span.record_exception(cause)
            self._span.set_status(Status(StatusCode.ERROR, str(cause)))
        self._span.end()
        self._recorder.record(DURATION, self._name, duration_s, outcome)
        metric = SENT if self._name == "send" else CONSUMED
        for topic, count in counts.items():
            common = {**self._common, "messaging.destination.name": topic}
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
        # The span may begin later, with `attributes`.
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


def _instrument(meter: metrics.Meter, name: str) -> Callable[[float, Attributes], None]:
    if name.endswith("duration"):
        return meter.create_histogram(
            name,
            "s",
            "Duration of operations of producers and consumers",
            explicit_bucket_boundaries_advisory=_BOUNDARIES_S,
        ).record
    return meter.create_counter(name, "{message}", "Messages sent or received").add
