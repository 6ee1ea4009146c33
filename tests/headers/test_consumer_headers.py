"""headers="embedded" of the consumer: all ways to read, and damaged envelopes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aiokafka08 import AIOKafkaProducer, TopicPartition
from aiokafka08._core.concurrency.loop_yield import LoopSlice
from aiokafka08.embedded_headers import embed, extract
from aiokafka08.errors import EmbeddedHeadersError
from aiokafka08.testing import EmbeddedCluster
from tests.support.clients import OpenConsumer
from tests.support.waiting import until

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
HEADERS = (("a", b"b"), ("empty", b""))
ENVELOPE = b'\xff\x01\x01a\x00\x00\x00\x03"b"'
DAMAGED = b"\xff\x01\x01a\x00\x00\x00\x09"

VALUES = [
    embed(b"payload", HEADERS),
    b"plain",
    embed(b"\xff\x00", None),
    None,
    b"",
    embed(b"", [("a", b"b")]),
    embed(b"\xff\x01", [("a", b"b")]),
    ENVELOPE.replace(b'\x03"b"', b"\x0242") + b"v",
]
READ = [
    (b"payload", HEADERS),
    (b"plain", ()),
    (b"\xff\x00", ()),
    (None, ()),
    (b"", ()),
    (b"", (("a", b"b"),)),
    (b"\xff\x01", (("a", b"b"),)),
    (b"v", (("a", b"42"),)),
]


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(topics={"t": 2}) as running:
        yield running


@asynccontextmanager
async def consumer_of(cluster: EmbeddedCluster, **options: Any) -> AsyncIterator[OpenConsumer]:
    """Yield a consumer that has fetched everything."""
    consumer = OpenConsumer(
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        **{"headers": "embedded", **options},
    )
    consumer.assign([TP, OTHER])
    async with consumer:
        sizes = [len(cluster.log(tp.topic, tp.partition)) for tp in (TP, OTHER)]
        await until(lambda: consumer.metrics()["lag"] == sum(sizes))
        yield consumer


def pairs(records: Any) -> list[tuple[Any, Any]]:
    return [(record.value, tuple(record.headers)) for record in records]


def rows(batch: Any) -> list[tuple[Any, Any]]:
    return [
        (row["value"], tuple((one["key"], one["value"]) for one in row["headers"] or ()))
        for row in batch.to_pylist()
    ]


async def test_records_have_payload_and_headers(cluster: EmbeddedCluster) -> None:
    cluster.append("t", 0, VALUES)
    async with consumer_of(cluster) as consumer:
        records = (await consumer.getmany(timeout_ms=1000))[TP]
        assert pairs(records) == READ
        assert [record.serialized_value_size for record in records] == [7, 5, 2, -1, 0, 0, 2, 1]
        await consumer.seek_to_beginning()
        assert pairs([await consumer.getone() for _ in READ]) == READ


@pytest.mark.parametrize("mode", ["refuse", "drop"])
async def test_other_modes_return_values_as_they_are(cluster: EmbeddedCluster, mode: str) -> None:
    cluster.append("t", 0, [*VALUES, DAMAGED])
    async with consumer_of(cluster, headers=mode) as consumer:
        records = (await consumer.getmany(timeout_ms=1000))[TP]
        assert pairs(records) == [(value, ()) for value in [*VALUES, DAMAGED]]
        await consumer.seek_to_beginning()
        batch = await consumer.getmany_arrow(timeout_ms=1000)
        assert batch["value"].to_pylist() == [*VALUES, DAMAGED]
        assert "headers" not in batch.schema.names


async def test_deserializer_gets_the_payload_each_time(cluster: EmbeddedCluster) -> None:
    """A deserializer that has failed gets the same payload again, not a part of it."""
    cluster.append("t", 0, VALUES)
    given: list[Any] = []

    def deserialize(value: Any) -> Any:
        given.append(value)
        if value == b"\xff\x00" and given.count(value) <= 2:
            raise ValueError("twice")
        return value

    async with consumer_of(cluster, value_deserializer=deserialize) as consumer:
        assert pairs([await consumer.getone() for _ in range(2)]) == READ[:2]
        with pytest.raises(ValueError, match="twice"):
            await consumer.getone()
        assert pairs([await consumer.getone() for _ in READ[2:]]) == READ[2:]
    assert given.count(b"\xff\x00") == 3


async def test_arrow_batch_has_the_column_headers(cluster: EmbeddedCluster) -> None:
    cluster.append("t", 0, VALUES)
    async with consumer_of(cluster) as consumer:
        batch = await consumer.getmany_arrow(timeout_ms=1000)
        batch.validate(full=True)
        assert rows(batch) == READ
        assert [row is None for row in batch["headers"].to_pylist()] == [
            not headers for _, headers in READ
        ]
        assert (await consumer.getmany_arrow()).schema == batch.schema  # an empty batch, too


async def test_arrow_batch_after_getone_has_the_same_rows(cluster: EmbeddedCluster) -> None:
    """The rest of a slice that getone() has decoded becomes rows."""
    cluster.append("t", 0, VALUES)
    async with consumer_of(cluster) as consumer:
        assert pairs([await consumer.getone()]) == READ[:1]
        assert rows(await consumer.getmany_arrow(max_records=2)) == READ[1:3]
        assert rows(await consumer.getmany_arrow()) == READ[3:]


async def test_records_before_a_damaged_envelope_come_first(cluster: EmbeddedCluster) -> None:
    cluster.append("t", 0, [b"0", ENVELOPE, DAMAGED, b"3"])
    async with consumer_of(cluster) as consumer:
        assert len((await consumer.getmany(timeout_ms=1000))[TP]) == 2
        for _ in range(2):  # each time until a seek()
            with pytest.raises(EmbeddedHeadersError, match=r"partition 0, offset 2: .*9 bytes, 0 "):
                await consumer.getone()
        with pytest.raises(EmbeddedHeadersError, match=r"seek\(\) to 3 to skip") as caught:
            await consumer.getmany(timeout_ms=1000)
        assert (caught.value.partition, caught.value.offset) == (TP, 2)
        with pytest.raises(EmbeddedHeadersError, match="offset 2"):
            await consumer.getmany_arrow(timeout_ms=1000)
        assert await consumer.position(TP) == 2
        assert caught.value.next_offset is not None
        consumer.seek(TP, caught.value.next_offset)
        assert (await consumer.getone()).value == b"3"


async def test_arrow_rows_around_a_damaged_envelope_all_come(cluster: EmbeddedCluster) -> None:
    cluster.append("t", 0, [b"0", ENVELOPE + b"1", DAMAGED, b"3"])
    cluster.append("t", 1, [b"4", ENVELOPE + b"5"])
    read: list[bytes] = []
    errors: list[tuple[Any, Any]] = []
    async with consumer_of(cluster) as consumer:
        while len(read) < 5:
            try:
                batch = await consumer.getmany_arrow(timeout_ms=1000)
            except EmbeddedHeadersError as error:
                errors.append((error.partition, error.offset))
                consumer.seek(TP, 3)
            else:
                read += batch["value"].to_pylist()
        assert await consumer.getmany() == {}
    assert sorted(read) == [b"0", b"1", b"3", b"4", b"5"]
    assert errors == [(TP, 2)]


async def test_damaged_envelope_stops_only_its_partition(cluster: EmbeddedCluster) -> None:
    """getmany_arrow returns the rows of other partitions, as getmany does."""
    cluster.append("t", 0, [DAMAGED, b"never"])
    cluster.append("t", 1, [ENVELOPE + b"1", b"2"])
    async with consumer_of(cluster) as consumer:
        # In one batch with the damaged row, whichever partition comes first:
        batch = await consumer.getmany_arrow(TP, OTHER, timeout_ms=1000)
        batch.validate(full=True)
        assert rows(batch) == [(b"1", (("a", b"b"),)), (b"2", ())]
        assert (await consumer.position(TP), await consumer.position(OTHER)) == (0, 2)
        await until(lambda: consumer.metrics()["lag"] == 2)
        cluster.append("t", 1, [b"3"])
        read: list[bytes] = []
        errors: set[tuple[Any, Any]] = set()
        while not read:
            try:
                read = (await consumer.getmany_arrow(timeout_ms=1000))["value"].to_pylist()
            except EmbeddedHeadersError as error:
                errors.add((error.partition, error.offset))
        assert read == [b"3"]
        assert errors <= {(TP, 0)}
        consumer.seek(TP, 1)
        assert (await consumer.getone(TP)).value == b"never"


MANUAL: dict[str, Any] = {"group_id": "g", "enable_auto_commit": False}


def reading_parts() -> tuple[list[bytes], dict[str, Any]]:
    """Return the list of envelopes that a consumer has read, and the options that make it yield to
    the event loop after each."""
    read: list[bytes] = []

    def note_extract(value: bytes) -> Any:
        read.append(value)
        return extract(value)

    class Slice(LoopSlice):
        def is_over(self) -> bool:
            return bool(read)

    return read, {"parts": {"new_slice": Slice}, "decoding": {"extract": note_extract}}


MANY = tuple((f"h{number}", b"v") for number in range(250))


@pytest.mark.parametrize("how", ["getone", "getmany", "getmany_arrow", "mixed"])
async def test_messages_with_many_headers_are_read_in_steps(
    cluster: EmbeddedCluster, how: str
) -> None:
    """No step between two checks of the slice reads many headers: it would hold the event loop."""
    values = [f"{number}".encode() for number in range(100)]
    cluster.append("t", 0, [*(embed(value, MANY) for value in values), DAMAGED])
    steps = [0]

    def count_extract(value: bytes) -> Any:
        steps[-1] += value[1]
        return extract(value)

    def next_step() -> bool:
        steps.append(0)
        return True

    class Slice(LoopSlice):
        def is_over(self) -> bool:
            return next_step()

    read: list[tuple[Any, Any]] = []
    parts, decoding = {"new_slice": Slice}, {"extract": count_extract}
    async with consumer_of(cluster, parts=parts, decoding=decoding) as consumer:
        while len(read) < 100:
            if how == "getone" or (how == "mixed" and not read):
                read += pairs([await consumer.getone()])
            elif how == "getmany":
                batches = await consumer.getmany(timeout_ms=1000, max_records=70)
                read += pairs(batches[TP])
            else:
                next_step()
                read += rows(await consumer.getmany_arrow(timeout_ms=1000))
        with pytest.raises(EmbeddedHeadersError, match="offset 100: "):
            await consumer.getone()
    assert read == [(value, MANY) for value in values]
    assert max(steps) <= (1250 if how != "getmany_arrow" else 512)


@pytest.mark.parametrize("event", ["cancel", "seek", "unassign"])
async def test_arrow_call_interrupted_between_steps_loses_nothing(
    cluster: EmbeddedCluster, event: str
) -> None:
    """The call yields while it reads headers. A seek() then stands, and nothing is skipped."""
    cluster.append("t", 0, [*(embed(b"%d" % number, MANY) for number in range(10)), DAMAGED])
    read, options = reading_parts()
    async with consumer_of(cluster, **options) as consumer:
        await until(lambda: consumer.metrics()["buffered_bytes"] > 0, "messages are buffered")
        call = asyncio.create_task(consumer.getmany_arrow(timeout_ms=5000))
        await until(lambda: bool(read), "the call reads headers")
        assert not call.done()
        if event == "cancel":
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        else:
            if event == "seek":
                consumer.seek(TP, 5)
            else:
                consumer.assign([OTHER])
            assert (await call)["value"].to_pylist() == [b"%d" % number for number in range(10)]
        if event == "unassign":
            assert consumer.assignment() == {OTHER}
            return
        first = 0 if event == "cancel" else 5
        assert (await consumer.getone(TP)).value == b"%d" % first


async def test_commit_between_steps_leaves_out_what_is_not_returned(
    cluster: EmbeddedCluster,
) -> None:
    """Neither a commit nor a cancelled call behind a change of the fetch loses messages."""
    cluster.append("t", 0, [embed(b"%d" % number, MANY) for number in range(10)])
    read, options = reading_parts()
    async with consumer_of(cluster, **options, **MANUAL) as consumer:
        assert (await consumer.getone(TP)).value == b"0"
        read.clear()
        call = asyncio.create_task(consumer.getmany_arrow(TP, timeout_ms=5000))
        await until(lambda: bool(read), "the call reads headers")
        await consumer.commit()
        assert await consumer.committed(TP) == 1
        assert (await call)["value"].to_pylist() == [b"%d" % number for number in range(1, 10)]
        await consumer.commit()
        assert await consumer.committed(TP) == 10

        cluster.append("t", 0, [embed(b"%d" % number, MANY) for number in range(10, 20)])
        await until(lambda: consumer.metrics()["buffered_bytes"] > 0, "messages are buffered")
        read.clear()
        call = asyncio.create_task(consumer.getmany_arrow(TP, timeout_ms=5000))
        await until(lambda: bool(read), "the call reads headers")
        cursor = consumer.engine.cursor(TP)
        assert cursor.position == 20
        cursor.seek(20)  # as the fetcher does to take memory back
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (await consumer.getone(TP)).value == b"10"


async def test_commit_leaves_out_what_each_of_two_calls_has_taken(
    cluster: EmbeddedCluster,
) -> None:
    """Also when the later call has returned its messages, and the first one hasn't."""
    cluster.append("t", 0, [embed(b"%d" % number, MANY) for number in range(10)])
    first_reads, first_may_end = asyncio.Event(), asyncio.Event()

    class Slice(LoopSlice):
        async def run_steps(self, steps: Any) -> Any:
            if not first_reads.is_set():
                first_reads.set()
                await first_may_end.wait()
            return await super().run_steps(steps)

    async with consumer_of(cluster, parts={"new_slice": Slice}, **MANUAL) as consumer:
        await until(lambda: consumer.metrics()["buffered_bytes"] > 0, "messages are buffered")
        first = asyncio.create_task(consumer.getmany_arrow(timeout_ms=5000, max_records=4))
        await first_reads.wait()
        second = await consumer.getmany_arrow(timeout_ms=5000, max_records=4)
        assert second["offset"].to_pylist() == [4, 5, 6, 7]
        await consumer.commit()
        assert await consumer.committed(TP) == 0
        first_may_end.set()
        assert (await first)["offset"].to_pylist() == [0, 1, 2, 3]
        await consumer.commit()
        assert await consumer.committed(TP) == 8


async def test_cancelled_call_leaves_what_an_earlier_one_has_taken(
    cluster: EmbeddedCluster,
) -> None:
    """Of two calls on a partition the later one is cancelled, then the earlier one."""
    cluster.append("t", 0, [embed(b"%d" % number, MANY) for number in range(10)])
    waiting: list[asyncio.Event] = []

    class Slice(LoopSlice):
        async def run_steps(self, steps: Any) -> Any:
            if len(waiting) < 2:
                waiting.append(asyncio.Event())
                await waiting[-1].wait()
            return await super().run_steps(steps)

    async with consumer_of(cluster, parts={"new_slice": Slice}, **MANUAL) as consumer:
        await until(lambda: consumer.metrics()["buffered_bytes"] > 0, "messages are buffered")
        calls: list[asyncio.Task[Any]] = []
        while len(calls) < 2:
            call = consumer.getmany_arrow(timeout_ms=5000, max_records=4)
            calls.append(asyncio.create_task(call))
            await until(lambda: len(waiting) == len(calls), "the call has taken messages")
        for call in reversed(calls):
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await consumer.commit()
            assert await consumer.committed(TP) == 0
        assert (await consumer.getmany_arrow(timeout_ms=5000))["offset"].to_pylist()[0] == 0


async def test_getmany_with_many_headers_returns_its_limit(
    cluster: EmbeddedCluster,
) -> None:
    cluster.append("t", 0, [embed(b"v", MANY)] * 100)
    async with consumer_of(cluster) as consumer:
        assert len((await consumer.getmany(timeout_ms=1000, max_records=70))[TP]) == 70
        assert len((await consumer.getmany(timeout_ms=1000))[TP]) == 30


async def test_arrow_batch_after_an_error_of_getone_loses_nothing(
    cluster: EmbeddedCluster,
) -> None:
    cluster.append("t", 0, [DAMAGED, b"1", ENVELOPE + b"2"])
    async with consumer_of(cluster) as consumer:
        with pytest.raises(EmbeddedHeadersError, match="offset 0"):
            await consumer.getone()
        with pytest.raises(EmbeddedHeadersError, match="offset 0"):
            await consumer.getmany_arrow()
        consumer.seek(TP, 1)
        batch = await consumer.getmany_arrow(timeout_ms=1000)
        assert batch["value"].to_pylist() == [b"1", b"2"]


async def test_arrow_batch_is_sent_with_its_headers(cluster: EmbeddedCluster) -> None:
    cluster.append("t", 0, VALUES)
    options: dict[str, Any] = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "headers": "embedded",
    }
    async with consumer_of(cluster) as consumer, AIOKafkaProducer(**options) as producer:
        consumer.pause(OTHER)
        batch = await consumer.getmany_arrow(timeout_ms=1000)
        batch = batch.drop_columns(["partition"])
        batch = batch.append_column("partition", [1] * batch.num_rows)
        await (await producer.send_arrow("t", batch))
        consumer.resume(OTHER)
        assert pairs([await consumer.getone(OTHER) for _ in READ]) == READ


async def test_default_mode_of_reads_comes_from_the_environment(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOKAFKA08_HEADERS", "embedded")
    cluster.append("t", 0, VALUES)
    async with consumer_of(cluster, headers=None) as consumer:
        assert pairs([await consumer.getone() for _ in READ]) == READ
