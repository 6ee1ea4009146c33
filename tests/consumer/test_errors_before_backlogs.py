"""The error of one partition beside the backlog of another: when it is raised, and how often."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest

from aiokafka08.consumer.collector import KNOWN_ERROR_WAIT_S
from aiokafka08.embedded_headers import embed
from aiokafka08.errors import (
    BrokerResponseError,
    CorruptRecordException,
    EmbeddedHeadersError,
    KafkaError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
)
from aiokafka08.protocol.message_set import encode_entry
from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.telemetry import Event, PartitionFailed
from aiokafka08.testing import Answer, EmbeddedCluster
from tests.conformance.contract.wire.requests import bad_crc
from tests.consumer.conftest import Consumer, MakeConsumer, tp, values
from tests.support.waiting import until

pytestmark = pytest.mark.twins

BACKLOG = 3000
BACKLOG_BYTES = sum(len(encode_entry(0, None, value)) for value in values(0, BACKLOG))
CALLS = ["getone", "getmany", "max_records", "async for"]


def not_bad(value: bytes) -> bytes:
    """Fail for one value."""
    if value == b"bad":
        raise ValueError("no such value")
    return value


async def call_once(consumer: Consumer, call: str) -> list[tuple[int, int]]:
    """Return partition and offset of what one call returns."""
    if call in ("getmany_arrow", "rows"):
        limit = 100 if call == "getmany_arrow" else 1
        batch = await consumer.getmany_arrow(timeout_ms=1000, max_records=limit)
        rows = zip(batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True)
        return list(rows)
    if call == "getone":
        records = [await asyncio.wait_for(consumer.getone(), 5)]
    elif call == "async for":
        records = [await asyncio.wait_for(anext(aiter(consumer)), 5)]
    else:
        max_records = 100 if call == "max_records" else None
        got = await consumer.getmany(timeout_ms=1000, max_records=max_records)
        records = list(chain.from_iterable(got.values()))
    return [(one.partition, one.offset) for one in records]


async def drain(
    consumer: Consumer, call: str, count: int, *, is_known: bool = False
) -> tuple[list[tuple[int, int]], list[tuple[int, Exception]]]:
    """Return this many messages, and the errors in between with the number of messages before.

    A known error is left out where it may come again: after a call that waited for messages.
    """
    loop = asyncio.get_running_loop()
    got: list[tuple[int, int]] = []
    errors: list[tuple[int, Exception]] = []
    async with asyncio.timeout(20):
        while len(got) < count:
            began = loop.time()
            try:
                got += await call_once(consumer, call)
            except (KafkaError, ValueError) as error:
                if not (is_known or errors) or loop.time() - began < KNOWN_ERROR_WAIT_S:
                    errors.append((len(got), error))
    return got, errors


async def call_until_raised(call: Callable[[], Any]) -> None:
    """Make this call until it raises."""
    async with asyncio.timeout(10):
        while True:
            await call()
            await asyncio.sleep(0.002)  # fewer messages are read than fetches take


async def until_polled(consumer: Consumer, last_ms: int | None) -> None:
    """Wait for a fetch of partition 1 without an error, after the one at `last_ms`."""
    await until(lambda: consumer.last_poll_timestamp(tp(1)) != last_ms)


async def until_buffered(consumer: Consumer, byte_count: int) -> None:
    await until(lambda: consumer.metrics()["bytes_fetched"] >= byte_count)


@pytest.mark.parametrize("call", [*CALLS, "getmany_arrow"])
async def test_damage_is_raised_before_the_backlog_of_others(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, call: str
) -> None:
    """The others' messages come with the calls after it, and the error isn't raised again."""
    cluster.append("t", 0, values(0, BACKLOG))
    bad = bad_crc(encode_entry(0, None, b"bad"))
    cluster.append_raw("t", 1, bad)
    cluster.append("t", 1, [b"good"])
    consumer = make_consumer()
    consumer.assign([tp(0), tp(1)])
    await consumer.start()
    await until_buffered(consumer, BACKLOG_BYTES + len(bad))
    got: list[tuple[int, int]] = []
    while not consumer.metrics()["fetch_errors"]:  # found once
        got += await call_once(consumer, call)
    fetched = consumer.metrics()["bytes_fetched"]
    await until(lambda: consumer.metrics()["bytes_fetched"] > fetched)
    with pytest.raises(CorruptRecordException) as caught:
        await call_once(consumer, call)
    assert (caught.value.partition, caught.value.offset) == (tp(1), 0)
    rest, errors = await drain(consumer, call, BACKLOG - len(got), is_known=True)
    assert errors == []
    got += rest
    assert got == [(0, offset) for offset in range(BACKLOG)]
    with pytest.raises(CorruptRecordException):  # nothing else is left, and it has failed again
        await call_once(consumer, call)
    consumer.seek(tp(1), 1)
    assert await call_once(consumer, call) == [(1, 1)]


@pytest.mark.parametrize("call", CALLS)
async def test_deserializer_error_is_raised_before_the_backlog(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, call: str
) -> None:
    cluster.append("t", 0, values(0, BACKLOG))
    cluster.append("t", 1, [b"0", b"bad", b"2"])
    events: list[Event] = []
    consumer = make_consumer(value_deserializer=not_bad, on_event=events.append)
    consumer.assign([tp(0), tp(1)])
    await consumer.start()
    await until_buffered(consumer, BACKLOG_BYTES + 26)
    got, errors = await drain(consumer, call, BACKLOG + 1)
    if call == "getmany":  # has returned all messages at once
        with pytest.raises(ValueError, match="no such"):
            await call_once(consumer, call)
    else:
        [(before, error)] = errors
        assert isinstance(error, ValueError)
        assert 1 <= before - got.index((1, 0)) <= 100
    assert [offset for partition, offset in got if not partition] == list(range(BACKLOG))
    [event] = [one for one in events if isinstance(one, PartitionFailed)]
    assert event.partition == tp(1)
    assert "no such value" in event.reason
    assert "offset 1" in event.reason
    assert str(event).startswith("topic 't', partition 1: reading failed: ValueError: no such")
    assert await consumer.position(tp(1)) == 1
    for _ in range(2):
        with pytest.raises(ValueError, match="no such"):
            await call_once(consumer, call)
    consumer.seek(tp(1), 2)
    assert await call_once(consumer, call) == [(1, 2)]


async def test_deserializer_that_recovers_needs_no_seek(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    """The partition is tried at its turn, while another one has messages."""
    cluster.append("t", 0, values(0, BACKLOG))
    cluster.append("t", 1, [b"bad"])
    is_down = True

    def deserialize(value: bytes) -> bytes:
        if value == b"bad" and is_down:
            raise ValueError("no registry")
        return value

    consumer = make_consumer(value_deserializer=deserialize)
    consumer.assign([tp(0), tp(1)])
    await consumer.start()
    await until_buffered(consumer, BACKLOG_BYTES + 26)
    if await consumer.getmany(tp(0), max_records=100):  # the other one is next
        with pytest.raises(ValueError, match="no registry"):
            await consumer.getmany(max_records=100)
    for _ in range(3):
        assert list(await consumer.getmany(max_records=100)) == [tp(0)]
    is_down = False
    got = [list(await consumer.getmany(max_records=100)) for _ in range(2)]
    assert tp(1) in chain.from_iterable(got)


@pytest.mark.parametrize("call", [*CALLS, "getmany_arrow"])
async def test_offset_out_of_range_is_raised_before_the_backlog(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, call: str
) -> None:
    """Also in the middle of the slice of another partition that `getone` and iterations step."""
    cluster.append("t", 0, values(0, BACKLOG))
    events: list[Event] = []
    consumer = make_consumer(auto_offset_reset="none", on_event=events.append)
    consumer.assign([tp(0), tp(1)])
    consumer.seek(tp(0), 0)
    cluster.append("t", 1, values(0, 5))
    cluster.delete_before("t", 1, 5)
    consumer.seek(tp(1), 5)
    await consumer.start()
    await until_buffered(consumer, BACKLOG_BYTES)
    limit = call if call in ("getone", "async for", "getmany_arrow") else "max_records"
    seen = await call_once(consumer, limit)
    consumer.seek(tp(1), 2)
    await until(lambda: any("is out of range" in str(event) for event in events))
    with pytest.raises(OffsetOutOfRangeError) as caught:
        await call_once(consumer, call)
    assert caught.value.args[0] == {tp(1): 2}
    got, errors = await drain(consumer, call, BACKLOG - len(seen), is_known=True)
    assert errors == []
    assert seen + got == [(0, offset) for offset in range(BACKLOG)]
    with pytest.raises(OffsetOutOfRangeError):
        await call_once(consumer, call)
    consumer.seek(tp(1), 5)
    cluster.append("t", 1, [b"x"])
    assert await call_once(consumer, call) == [(1, 5)]


@pytest.mark.parametrize("call", ["getmany_arrow", "rows"])
async def test_envelope_error_is_raised_before_the_backlog_in_arrow(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, call: str
) -> None:
    """A damaged envelope of headers is found after the columns were taken.

    A call that takes one row takes just the damaged one, again and again.
    """
    cluster.append("t", 0, values(0, BACKLOG))
    cluster.append("t", 1, [embed(b"0", [("a", b"b")]), b"\xff\x05", b"2"])
    consumer = make_consumer(headers="embedded")
    consumer.assign([tp(0), tp(1)])
    await consumer.start()
    await until_buffered(consumer, BACKLOG_BYTES + 26)
    got, errors = await drain(consumer, call, BACKLOG + 1)
    [(before, error)] = errors
    assert isinstance(error, EmbeddedHeadersError)
    assert before <= got.index((1, 0)) + 101
    assert sorted(got) == [(0, offset) for offset in range(BACKLOG)] + [(1, 0)]
    assert await consumer.position(tp(1)) == 1


@pytest.mark.parametrize("named", [False, True])
async def test_call_of_failing_partitions_only_raises_again(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, named: bool
) -> None:
    """No call waits for ever for a partition whose error was raised."""
    cluster.append_raw("t", 1, bad_crc(encode_entry(0, None, b"bad")))
    cluster.append("t", 0, values(0, 1))
    consumer = make_consumer()
    consumer.assign([tp(0), tp(1)] if named else [tp(1)])
    await consumer.start()
    calls: list[Callable[[], Any]] = [
        lambda: consumer.getone(*([tp(1)] if named else [])),
        lambda: consumer.getmany(*([tp(1)] if named else []), timeout_ms=100),
        lambda: consumer.getmany_arrow(*([tp(1)] if named else []), timeout_ms=100),
    ]
    for call in calls * 2:
        with pytest.raises(BrokerResponseError):
            await call_until_raised(call)
    if named:
        assert (await asyncio.wait_for(consumer.getone(tp(0)), 5)).partition == 0


async def test_error_that_comes_again_after_recovery_is_raised_beside_a_backlog(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    cluster.append("t", 0, values(0, BACKLOG))
    cluster.fault(FetchRequest, then=Answer(29, only=[("t", 1)]), times=None)
    consumer = make_consumer(fetch_max_bytes=4096)
    consumer.assign([tp(0), tp(1)])
    await consumer.start()
    for _ in range(2):
        polled = consumer.last_poll_timestamp(tp(1))
        with pytest.raises(TopicAuthorizationFailedError):
            await call_until_raised(lambda: consumer.getmany(timeout_ms=1000, max_records=1))
        cluster.clear_faults()
        await until_polled(consumer, polled)
        cluster.fault(FetchRequest, then=Answer(29, only=[("t", 1)]), times=None)
    assert await consumer.getmany(timeout_ms=0, max_records=1)


@pytest.mark.parametrize("call", ["getone", "getmany", "getmany_arrow", "async for"])
async def test_known_error_is_raised_again_only_after_a_wait_for_others(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, call: str
) -> None:
    """A caller that goes on after an error doesn't spin, and gets others' messages at once."""
    if call == "getmany_arrow":
        cluster.append_raw("t", 1, bad_crc(encode_entry(0, None, b"bad")))
        consumer = make_consumer()
    else:
        cluster.append("t", 1, [b"bad"])
        consumer = make_consumer(value_deserializer=not_bad)
    consumer.assign([tp(0), tp(1)])
    await consumer.start()
    loop = asyncio.get_running_loop()
    raised: list[float] = []
    for _ in range(3):
        with pytest.raises((CorruptRecordException, ValueError)):
            await call_once(consumer, call)
        raised.append(loop.time())
    assert raised[1] - raised[0] >= 0.15
    assert raised[2] - raised[1] >= 0.15
    waiting = asyncio.create_task(call_once(consumer, call))
    await asyncio.sleep(0)
    cluster.append("t", 0, [b"good"])
    assert await waiting == [(0, 0)]
