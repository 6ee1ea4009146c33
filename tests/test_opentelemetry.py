"""Spans and metrics of `aiokafka08.opentelemetry`, recorded by the real SDK."""

from __future__ import annotations

import importlib
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka08 import opentelemetry as ours
from aiokafka08._core.arrow_headers import headers_type
from aiokafka08.embedded_headers import embed
from aiokafka08.errors import (
    EmbeddedHeadersError,
    IllegalArgumentError,
    IllegalStateError,
    MessageSizeTooLargeError,
    OffsetMetadataTooLargeError,
)
from aiokafka08.opentelemetry import context
from aiokafka08.producer import BatchBuilder
from aiokafka08.protocol.requests.committed_offsets import OffsetCommitRequest
from aiokafka08.protocol.requests.produce import ProduceRequest
from aiokafka08.testing import Answer, EmbeddedCluster
from tests.support.paths import ROOT
from tests.support.waiting import until

METHODS = {
    (cls, name): vars(cls)[name]
    for cls, names in {
        AIOKafkaProducer: [
            *("send", "send_and_wait", "send_many", "send_arrow", "send_batch", "create_batch")
        ],
        BatchBuilder: ["append"],
        AIOKafkaConsumer: [
            *("getone", "getmany", "getmany_arrow", "commit", "__aiter__", "__anext__")
        ],
    }.items()
    for name in names
}
"""The methods, before any test switches the instrumentor on."""

PAGE = (ROOT / "docs" / "frameworks.md").read_text()


class Recorded:
    """The spans and metrics of one test; `start()` switches the instrumentor on."""

    def __init__(self) -> None:
        self._spans = InMemorySpanExporter()
        self._metrics = InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self._meters = MeterProvider([self._metrics])

    def start(self) -> None:
        ours.instrument(tracer_provider=self.tracers, meter_provider=self._meters)

    def close(self) -> None:
        self.tracers.shutdown()
        self._meters.shutdown()

    def spans(self, name: str) -> list[ReadableSpan]:
        return [one for one in self._spans.get_finished_spans() if one.name == name]

    async def span(self, name: str) -> ReadableSpan:
        """Wait for the only span of this name: a send's ends after the message is acknowledged."""
        await until(lambda: bool(self.spans(name)), f"the span {name!r} has ended")
        [span] = self.spans(name)
        return span

    def points(self, name: str) -> list[Any]:
        data = self._metrics.get_metrics_data()
        return [
            point
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    one = Recorded()
    one.start()
    yield one
    ours.uninstrument()
    one.close()


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(version="0.10", topics={"t": 1, "u": 1}) as one:
        yield one


def producer(cluster: EmbeddedCluster, **options: Any) -> AIOKafkaProducer:
    options = {"headers": "embedded", **options}
    return AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, client_id="sender", **options
    )


def consumer(
    cluster: EmbeddedCluster, *topics: str, **options: Any
) -> AIOKafkaConsumer[bytes, bytes]:
    return AIOKafkaConsumer(
        *(topics or ("t",)),
        bootstrap_servers=cluster.bootstrap_servers,
        client_id="reader",
        auto_offset_reset="earliest",
        **{"headers": "embedded", **options},
    )


def ids(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def links(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


# --- on and off -----------------------------------------------------------------------------------


def check_originals() -> None:
    for (cls, name), original in METHODS.items():
        assert vars(cls)[name] is original


def test_switched_off_the_methods_are_the_original_objects() -> None:
    check_originals()
    one = Recorded()
    one.start()
    replaced = {key for key, original in METHODS.items() if vars(key[0])[key[1]] is not original}
    assert {name for _, name in METHODS.keys() - replaced} == {
        "send_and_wait",
        "__aiter__",
        "__anext__",
    }
    wrapper = vars(AIOKafkaProducer)["send"]
    one.start()  # the second call does nothing
    assert vars(AIOKafkaProducer)["send"] is wrapper
    ours.uninstrument()
    check_originals()
    ours.uninstrument()
    check_originals()
    one.close()


def test_uninstrument_refuses_to_remove_a_later_wrapper(monkeypatch: pytest.MonkeyPatch) -> None:
    ours.instrument()
    with monkeypatch.context() as patch:
        patch.setattr(AIOKafkaConsumer, "getone", lambda *_: None)
        with pytest.raises(IllegalStateError, match=r"AIOKafkaConsumer\.getone was wrapped again"):
            ours.uninstrument()
    ours.uninstrument()
    check_originals()


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "aiokafka08.opentelemetry")
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'aiokafka08\[otel\]'"):
        importlib.import_module("aiokafka08.opentelemetry")


async def test_clients_work_without_an_sdk(cluster: EmbeddedCluster) -> None:
    """Nothing is recorded, and no context is put into the messages."""
    ours.instrument()
    try:
        async with producer(cluster) as sender, consumer(cluster) as reader:
            await sender.send_and_wait("t", b"1")
            await (await sender.send_many("t", [b"2"]))
            assert [(await reader.getone()).headers for _ in range(2)] == [(), ()]
    finally:
        ours.uninstrument()


# --- one message ----------------------------------------------------------------------------------


async def test_one_trace_from_producer_to_consumer(
    cluster: EmbeddedCluster, recorded: Recorded
) -> None:
    async with (
        producer(cluster) as sender,
        consumer(cluster, group_id="g", enable_auto_commit=False) as reader,
    ):
        await sender.send_and_wait("t", b"1", headers=[("own", b"x")])
        record = await anext(aiter(reader))
    sent, polled = await recorded.span("send t"), await recorded.span("poll t")
    assert record.value == b"1"
    assert [name for name, _ in record.headers] == ["own", "traceparent"]
    assert (sent.kind, polled.kind) == (trace.SpanKind.PRODUCER, trace.SpanKind.CONSUMER)
    assert sent.parent is None
    assert polled.parent is not None
    assert ids(polled)[0] == ids(sent)[0]
    assert polled.parent.span_id == ids(sent)[1]
    assert links(polled) == [ids(sent)]
    host, port = cluster.bootstrap_servers.split(":")
    both = {
        "messaging.system": "kafka",
        "messaging.destination.name": "t",
        "messaging.destination.partition.id": "0",
        "messaging.kafka.offset": 0,
        "server.address": host,
        "server.port": int(port),
    }
    assert attributes(sent) == {
        **both,
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.client.id": "sender",
    }
    assert attributes(polled) == {
        **both,
        "messaging.operation.name": "poll",
        "messaging.operation.type": "receive",
        "messaging.client.id": "reader",
        "messaging.consumer.group.name": "g",
    }
    found = trace.get_current_span(ours.message_context(record)).get_span_context()
    assert (found.trace_id, found.span_id) == ids(sent)


async def test_poll_within_a_span_is_its_child_with_a_link(
    cluster: EmbeddedCluster, recorded: Recorded
) -> None:
    tracer = recorded.tracers.get_tracer("test")
    async with producer(cluster) as sender, consumer(cluster) as reader:
        await sender.send_and_wait("t", b"1")
        with tracer.start_as_current_span("work") as work:
            await reader.getone()
    polled = await recorded.span("poll t")
    assert polled.parent == work.get_span_context()
    assert links(polled) == [ids(await recorded.span("send t"))]


async def test_context_of_the_caller_is_kept(cluster: EmbeddedCluster, recorded: Recorded) -> None:
    """A message that already has a context, such as a forwarded one, keeps it."""
    given = ("traceparent", b"00-0000000000000000000000000000000a-000000000000000b-01")
    async with producer(cluster) as sender, consumer(cluster) as reader:
        await sender.send_and_wait("t", b"1", headers=[given])
        await (await sender.send_many("u", [b"2", b"3"], headers=[[given], []]))
        assert (await reader.getone()).headers == (given,)
    async with consumer(cluster, "u") as reader:
        headers = [(await reader.getone()).headers for _ in range(2)]
    assert headers[0] == (given,)
    assert [name for name, _ in headers[1]] == ["traceparent"]
    assert links(await recorded.span("send t")) == [(10, 11)]
    assert links(await recorded.span("send u")) == [(10, 11)]
    assert links(await recorded.span("poll t")) == [(10, 11)]


@pytest.mark.parametrize("mode", ["refuse", "drop"])
async def test_nothing_is_put_in_without_embedded_headers(
    cluster: EmbeddedCluster, recorded: Recorded, mode: str
) -> None:
    async with producer(cluster, headers=mode) as sender, consumer(cluster) as reader:
        await sender.send_and_wait("t", b"1")
        await (await sender.send_many("t", [b"2"]))
        assert sender.metrics()["headers_dropped"] == 0
        assert [(await reader.getone()).value for _ in range(2)] == [b"1", b"2"]
    assert [log.value for log in cluster.log("t", 0)] == [b"1", b"2"]
    sent, polled = recorded.spans("send t"), recorded.spans("poll t")
    assert len({ids(span)[0] for span in (*sent, *polled)}) == 4
    assert not any(links(span) for span in polled)


async def test_tombstone_gets_no_context(cluster: EmbeddedCluster, recorded: Recorded) -> None:
    """An envelope would undo the deletion, and headers without one are dropped and counted."""
    async with producer(cluster) as sender, consumer(cluster) as reader:
        await sender.send_and_wait("t", None, b"k")
        await (await sender.send_many("u", [None, b"1"], [b"k", b"k"]))
        assert sender.metrics()["headers_dropped"] == 0
        assert (await reader.getone()).value is None
    assert cluster.log("u", 0)[0].value is None
    for name in ("send t", "poll t"):
        span = await recorded.span(name)
        assert attributes(span)["messaging.kafka.message.tombstone"] is True


async def test_full_envelope_leaves_no_room_for_the_context(
    cluster: EmbeddedCluster, recorded: Recorded
) -> None:
    headers = [(str(number), b"x") for number in range(255)]
    async with producer(cluster) as sender, consumer(cluster) as reader:
        await sender.send_and_wait("t", b"1", headers=headers)
        assert (await reader.getone()).headers == tuple(headers)


# --- batches --------------------------------------------------------------------------------------


async def test_batch_spans_link_to_each_senders_span(
    cluster: EmbeddedCluster, recorded: Recorded
) -> None:
    async with producer(cluster) as sender:
        await sender.send_and_wait("t", b"0")
        await (await sender.send_many("t", iter([b"1", b"2", b"3"])))
    async with consumer(cluster) as reader:
        found = await reader.getmany(timeout_ms=10_000)
        assert await reader.getmany() == {}
    records = found[TopicPartition("t", 0)]
    assert [record.value for record in records] == [b"0", b"1", b"2", b"3"]
    one, many = recorded.spans("send t")
    assert attributes(many)["messaging.batch.message_count"] == 3
    assert attributes(many)["messaging.destination.partition.id"] == "0"
    polled = await recorded.span("poll t")  # the empty poll has none
    assert polled.parent is None
    assert attributes(polled)["messaging.batch.message_count"] == 4
    assert links(polled) == [ids(one), ids(many)]


async def test_batch_of_two_topics_names_none(cluster: EmbeddedCluster, recorded: Recorded) -> None:
    async with producer(cluster) as sender:
        await sender.send_and_wait("t", bytes(1000))
        await sender.send_and_wait("u", bytes(1000))
    async with consumer(cluster, "t", "u") as reader:
        await until(lambda: reader.metrics()["buffered_bytes"] > 2000, "both are buffered")
        assert len(await reader.getmany()) == 2
    polled = await recorded.span("poll")
    assert len(polled.links) == 2
    assert "messaging.destination.name" not in attributes(polled)
    assert sorted(
        (point.attributes["messaging.destination.name"], point.value)
        for point in recorded.points("messaging.client.consumed.messages")
    ) == [("t", 1), ("u", 1)]


async def test_arrow_and_prepared_batches_have_spans(
    cluster: EmbeddedCluster, recorded: Recorded
) -> None:
    async with producer(cluster) as sender:
        rows = pa.RecordBatch.from_pydict({"value": [b"1", b"2"]})
        await (await sender.send_arrow("t", rows))
        batch = sender.create_batch()
        for value in (b"3", b"4", b"5"):
            batch.append(key=None, value=value, timestamp=None)
        await (await sender.send_batch(batch, "t", partition=0))
    async with consumer(cluster) as reader:
        assert (await reader.getmany_arrow(timeout_ms=10_000)).num_rows == 5
    arrow, prepared = recorded.spans("send t")
    [created] = recorded.spans("create")
    assert attributes(created) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "create",
        "messaging.operation.type": "create",
        "messaging.client.id": "sender",
    }
    assert links(arrow) == []
    assert links(prepared) == [ids(created)]
    assert links(await recorded.span("poll t")) == [ids(arrow), ids(created)]
    assert attributes(arrow)["messaging.batch.message_count"] == 2
    assert attributes(prepared)["messaging.batch.message_count"] == 3
    assert attributes(prepared)["messaging.kafka.offset"] == 2
    assert attributes(await recorded.span("poll t"))["messaging.batch.message_count"] == 5
    [sent] = recorded.points("messaging.client.sent.messages")
    assert sent.value == 5


async def test_contexts_of_rows_and_prepared_messages_are_kept(
    cluster: EmbeddedCluster, recorded: Recorded
) -> None:
    """Null values get no context: they can't have headers."""
    given = ("traceparent", b"00-0000000000000000000000000000000a-000000000000000b-01")
    headers: list[list[tuple[str, bytes]] | None] = [[given], None, [("own", b"x")], []]
    rows = pa.RecordBatch.from_pydict(
        {
            "value": [b"1", None, b"3", b"4"],
            "headers": pa.array(
                [
                    None if row is None else [{"key": key, "value": value} for key, value in row]
                    for row in headers
                ],
                headers_type(),
            ),
        }
    )
    async with producer(cluster) as sender:
        await (await sender.send_arrow("t", rows))
        batch = sender.create_batch()
        for value, one in ((b"5", [given]), (None, None), (b"7", [])):
            batch.append(key=b"k", value=value, timestamp=None, headers=one)
        await (await sender.send_batch(batch, "t", partition=0))
        assert sender.metrics()["headers_dropped"] == 0
    arrow, prepared = recorded.spans("send t")
    [created] = recorded.spans("create")
    async with consumer(cluster) as reader:
        found = [await reader.getone() for _ in range(7)]
    contexts = [
        trace.get_current_span(ours.message_context(one)).get_span_context() for one in found
    ]
    a, b, c = (10, 11), ids(arrow), ids(created)
    none = (0, 0)
    assert [(one.trace_id, one.span_id) for one in contexts] == [a, none, b, b, a, none, c]
    assert [name for name, _ in found[2].headers] == ["own", "traceparent"]
    assert links(arrow) == [a]
    assert links(prepared) == [c, a]


async def test_rows_with_wrong_headers_raise_the_producers_error(
    cluster: EmbeddedCluster, recorded: Recorded
) -> None:
    one = pa.array([[None]], headers_type())
    rows = pa.RecordBatch.from_arrays([pa.array([b"1"]), one], ["value", "headers"])
    async with producer(cluster) as sender:
        with pytest.raises(TypeError, match="expected pairs"):
            await sender.send_arrow("t", rows)
        for wrong in (rows.select(["headers"]), None):
            with pytest.raises((TypeError, IllegalArgumentError)):
                await sender.send_arrow("t", wrong)
    assert len(recorded.spans("send t")) == 3


async def test_links_come_from_the_first_messages_that_differ(
    cluster: EmbeddedCluster, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking for contexts is bounded: it may hold the event loop for a short time only."""
    values = [embed(b"v", [("n", b"%d" % number)]) for number in range(1000)]
    read = mock.Mock(side_effect=context.creation_context)
    monkeypatch.setattr(context, "creation_context", read)
    for poll in ("getmany", "getmany_arrow"):
        cluster.append("t", 0, values)
        async with consumer(cluster) as reader:
            await until(lambda: reader.metrics()["lag"] >= 1000, "the messages are known")
            await until(lambda: reader.metrics()["buffered_bytes"] > 9000, "they are buffered")
            await getattr(reader, poll)(timeout_ms=10_000)
    assert 256 <= read.call_count <= 512


# --- commits --------------------------------------------------------------------------------------


async def test_commit_has_a_span(cluster: EmbeddedCluster, recorded: Recorded) -> None:
    async with consumer(cluster, group_id="g", enable_auto_commit=False) as reader:
        await reader.commit()
        await reader.commit({TopicPartition("t", 0): 0})
        cluster.fault(OffsetCommitRequest, then=Answer(OffsetMetadataTooLargeError.errno))
        with pytest.raises(OffsetMetadataTooLargeError):
            await reader.commit({TopicPartition("t", 0): 0})
        with pytest.raises(ValueError, match="offsets=1"):
            await reader.commit(1)  # type: ignore[arg-type]
    spans = recorded.spans("commit t")
    assert {span.kind for span in spans} == {trace.SpanKind.CLIENT}
    assert attributes(spans[0]) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "commit",
        "messaging.operation.type": "settle",
        "messaging.destination.name": "t",
        "messaging.destination.partition.id": "0",
        "messaging.client.id": "reader",
        "messaging.consumer.group.name": "g",
    }
    errors = [attributes(span).get("error.type") for span in (*spans, *recorded.spans("commit"))]
    assert errors == [None, None, "OffsetMetadataTooLargeError", "ValueError"]
    counts = [
        point.count
        for point in recorded.points("messaging.client.operation.duration")
        if point.attributes["messaging.operation.name"] == "commit"
    ]
    assert sum(counts) == 4


# --- errors ---------------------------------------------------------------------------------------


async def test_error_of_the_call_ends_the_span(
    cluster: EmbeddedCluster, recorded: Recorded
) -> None:
    """Such a message wasn't sent, so it isn't counted."""
    async with producer(cluster, max_request_size=1000) as sender:
        for send in (sender.send("t", bytes(2000)), sender.send_many("t", [bytes(2000)])):
            with pytest.raises(MessageSizeTooLargeError):
                await send
        with pytest.raises(ZeroDivisionError):
            await sender.send_many("t", (bytes(1 // number) for number in (1, 0)))
        with pytest.raises(TypeError, match="expected pairs"):
            await sender.send("t", b"1", headers=["x"])  # type: ignore[list-item]
    spans = recorded.spans("send t")
    assert [attributes(span)["error.type"] for span in spans] == [
        "MessageSizeTooLargeError",
        "MessageSizeTooLargeError",
        "ZeroDivisionError",
        "TypeError",
    ]
    assert {span.status.status_code for span in spans} == {trace.StatusCode.ERROR}
    assert recorded.points("messaging.client.sent.messages") == []


async def test_failed_messages_have_the_error(cluster: EmbeddedCluster, recorded: Recorded) -> None:
    cluster.fault(ProduceRequest, then=Answer(MessageSizeTooLargeError.errno), times=2)
    async with producer(cluster) as sender:
        with pytest.raises(MessageSizeTooLargeError):
            await sender.send_and_wait("t", b"1")
        deliveries = await sender.send_many("u", [b"2"])
        with pytest.raises(MessageSizeTooLargeError):
            await deliveries
        (await sender.send("t", b"3")).cancel()
    for name in ("send t", "send u"):
        span = recorded.spans(name)[0]
        assert attributes(span)["error.type"] == "MessageSizeTooLargeError"
        assert span.status.status_code is trace.StatusCode.ERROR
    counts = {
        (point.attributes["messaging.destination.name"], point.attributes.get("error.type")): (
            point.value
        )
        for point in recorded.points("messaging.client.sent.messages")
    }
    assert counts == {
        ("t", "MessageSizeTooLargeError"): 1,
        ("u", "MessageSizeTooLargeError"): 1,
        ("t", None): 1,  # its future was cancelled, so its outcome is unknown
    }


async def test_error_of_a_poll_has_a_span_but_the_stop_none(
    cluster: EmbeddedCluster, recorded: Recorded
) -> None:
    async with producer(cluster, headers="refuse") as sender, consumer(cluster) as reader:
        await sender.send_and_wait("t", b"\xff\x01")
        for poll in (reader.getone, lambda: reader.getmany(timeout_ms=10_000)):
            with pytest.raises(EmbeddedHeadersError):
                await poll()
    with pytest.raises(StopAsyncIteration):
        await anext(reader)
    assert [attributes(span)["error.type"] for span in recorded.spans("poll")] == [
        "EmbeddedHeadersError",
        "EmbeddedHeadersError",
    ]


# --- metrics and names ----------------------------------------------------------------------------


async def test_metrics_have_the_names_of_the_conventions(
    cluster: EmbeddedCluster, recorded: Recorded
) -> None:
    async with producer(cluster) as sender:
        await sender.send_and_wait("t", b"0")
        await (await sender.send_many("t", [b"1", b"2"]))
        await until(
            lambda: [one.value for one in recorded.points("messaging.client.sent.messages")] == [3],
            "three messages are counted",
        )
    async with consumer(cluster) as reader:
        await reader.getone()
        await reader.getmany(timeout_ms=10_000)
    [sent] = recorded.points("messaging.client.sent.messages")
    assert dict(sent.attributes) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "t",
    }
    [consumed] = recorded.points("messaging.client.consumed.messages")
    assert consumed.value == 3
    durations = recorded.points("messaging.client.operation.duration")
    assert {(point.attributes["messaging.operation.name"], point.count) for point in durations} == {
        ("send", 2),
        ("poll", 2),
    }
    assert durations[0].explicit_bounds[0] == 0.005


@pytest.mark.parametrize(
    ("opt_in", "has_old"),
    [(None, False), ("messaging", False), ("http, messaging/dup,messaging", True)],
)
async def test_opt_in_adds_the_names_of_1_24(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch, opt_in: str | None, has_old: bool
) -> None:
    monkeypatch.delenv("OTEL_SEMCONV_STABILITY_OPT_IN", raising=False)
    if opt_in is not None:
        monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", opt_in)
    recorded = Recorded()
    recorded.start()
    try:
        async with producer(cluster) as sender, consumer(cluster, group_id="g") as reader:
            await sender.send_and_wait("t", b"1")
            await reader.getone()
        sent, polled = await recorded.span("send t"), await recorded.span("poll t")
    finally:
        ours.uninstrument()
        recorded.close()
    old = {
        "messaging.operation": "receive",
        "messaging.client_id": "reader",
        "messaging.kafka.consumer.group": "g",
        "messaging.kafka.destination.partition": 0,
        "messaging.kafka.message.offset": 0,
    }
    found = attributes(polled)
    assert found["messaging.client.id"] == "reader"
    assert {name: found[name] for name in old if name in found} == (old if has_old else {})
    assert attributes(sent).get("messaging.operation") == ("publish" if has_old else None)
    for name in ours.OLD_METRICS.values():
        assert bool(recorded.points(name)) is has_old
    assert recorded.points("messaging.client.sent.messages")


def test_page_lists_each_name() -> None:
    _, _, section = PAGE.partition("| name | what it is")
    table = section.partition("\n\n")[0]
    for name in (
        *(ours.DURATION, ours.SENT, ours.CONSUMED, *ours.OLD_METRICS.values()),
        *(*ours.OLD_ATTRIBUTES, *ours.OLD_ATTRIBUTES.values()),
        *("messaging.system", "messaging.operation.name", "messaging.destination.name"),
        *("messaging.batch.message_count", "messaging.kafka.message.tombstone"),
        *("server.address", "server.port", "error.type"),
    ):
        assert f"`{name}`" in table, name
