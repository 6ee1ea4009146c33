"""Brokers that fail, refuse, move and lie: positions stay, others go on, nobody loops busily."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka08.errors import (
    KafkaTimeoutError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    UnknownError,
    UnknownTopicOrPartitionError,
)
from aiokafka08.protocol.api import FetchRequest, ListOffsetsRequest
from aiokafka08.telemetry import Event, OffsetReset, PartitionFailed
from aiokafka08.testing import (
    Answer,
    Close,
    EmbeddedCluster,
    Hang,
    Omit,
    Truncate,
    WrongCorrelationId,
)
from aiokafka08.testing.faults import Effect
from tests.consumer.conftest import MakeConsumer, take, tp, values
from tests.waiting import until


def has(partition: int, request: FetchRequest) -> bool:
    return any(one.partition == partition for topic in request.topics for one in topic.partitions)


async def test_an_error_of_one_partition_concerns_it_alone(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    """Partitions 0 and 2 have the same leader; 0 always fails, 2 goes on at full speed."""
    cluster.append("t", 0, values(0, 1))
    consumer = make_consumer(retry_backoff_ms=100)
    consumer.assign([tp(0)])
    fault = cluster.fault(
        FetchRequest, then=Answer(-1), times=None, where=lambda request: has(0, request)
    )
    await consumer.start()
    await until(lambda: fault.hits >= 2)
    consumer.assign([tp(0), tp(2)])
    hits = fault.hits
    got = []
    for number in range(30):
        cluster.append("t", 2, values(number, number + 1))
        got.append((await asyncio.wait_for(consumer.getone(), 5)).offset)
    assert got == list(range(30))
    assert fault.hits - hits <= 12, "the partition in error was asked for too often"
    fault.cancel()
    assert (await asyncio.wait_for(consumer.getone(tp(0)), 10)).offset == 0


@pytest.mark.parametrize("code", [3, 5, 6, -1, 99])
async def test_errors_back_off_and_are_not_a_busy_loop(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, code: int
) -> None:
    cluster.append("t", 0, values(0, 3))
    consumer = make_consumer(retry_backoff_ms=20)
    consumer.assign([tp(0)])
    fault = cluster.fault(FetchRequest, then=Answer(code), times=5)
    await consumer.start()
    loop = asyncio.get_running_loop()
    await until(lambda: fault.hits >= 1)
    began = loop.time()
    await until(lambda: fault.hits == 5)
    # 20, 40, 80 and 160 ms, each 20 % shorter at most.
    assert loop.time() - began >= 0.3 * 0.8
    assert [r.offset for r in await take(consumer, 3)] == [0, 1, 2]
    assert consumer.metrics()["fetch_errors"] == 5


async def test_an_idle_consumer_asks_once_per_wait(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    consumer = make_consumer(fetch_max_wait_ms=100)
    consumer.assign([tp(0), tp(2)])
    await consumer.start()
    await until(lambda: len(cluster.requests(FetchRequest)) >= 2)
    before = len(cluster.requests(FetchRequest))
    await asyncio.sleep(1.0)
    assert len(cluster.requests(FetchRequest)) - before <= 11


async def test_a_user_who_takes_nothing_doesn_t_make_the_others_poll_busily(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    cluster.append("t", 0, [bytes(60_000)] * 10)
    consumer = make_consumer(fetch_max_wait_ms=500, max_partition_fetch_bytes=100_000)
    consumer.assign([tp(0), tp(2)])
    await consumer.start()
    await until(lambda: consumer.metrics()["buffered_bytes"] > 100_000)
    before = len(cluster.requests(FetchRequest))
    await asyncio.sleep(2.0)
    # Polls of 2, 4, 8, … 500 ms for the other partition.
    assert len(cluster.requests(FetchRequest)) - before <= 17
    assert len(await take(consumer, 10)) == 10


async def test_the_leader_moves(cluster: EmbeddedCluster, make_consumer: MakeConsumer) -> None:
    consumer = make_consumer("t")
    await consumer.start()
    got: list[int] = []
    for number in range(12):
        if number % 3 == 2:
            cluster.move_leader("t", 0)
        cluster.append("t", 0, values(number, number + 1))
        got.append((await asyncio.wait_for(consumer.getone(tp(0)), 10)).offset)
    assert got == list(range(12))


async def test_a_broker_dies_and_another_one_leads(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    for partition in range(4):
        cluster.append("t", partition, values(0, 10))
    consumer = make_consumer("t")
    await consumer.start()
    assert len(await take(consumer, 40)) == 40
    cluster.kill(0)
    for partition in range(4):
        cluster.append("t", partition, values(10, 12))
    got = await take(consumer, 8)
    assert sorted((r.partition, r.offset) for r in got) == [
        (partition, offset) for partition in range(4) for offset in (10, 11)
    ]
    cluster.restart(0)
    cluster.move_leader("t", 0, to=0)
    cluster.append("t", 0, values(12, 13))
    assert [r.offset for r in await take(consumer, 1)] == [12]


async def test_a_partition_without_a_leader_waits_for_one(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    consumer = make_consumer("t")
    await consumer.start()
    await until(consumer.ready)
    cluster.kill(0, then="leaderless")
    cluster.append("t", 1, values(0, 3))
    assert [r.partition for r in await take(consumer, 3)] == [1, 1, 1]
    await until(lambda: not consumer.ready())
    cluster.elect()
    cluster.append("t", 0, values(0, 3))
    assert [r.partition for r in await take(consumer, 3)] == [0, 0, 0]
    await until(consumer.ready)


@pytest.mark.parametrize(
    "effect",
    [Close(), Close(after_bytes=3), Close(after_bytes=30, reset=True), Truncate(5), Omit(),
     WrongCorrelationId()],
    ids=repr,
)  # fmt: skip
async def test_broken_answers_cost_no_message(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, effect: Effect
) -> None:
    cluster.append("t", 0, values(0, 50))
    cluster.append("t", 1, values(0, 50))
    consumer = make_consumer("t")
    for nth in (1, 2, 4):
        cluster.fault(FetchRequest, then=effect, nth=nth)
    await consumer.start()
    got = await take(consumer, 100)
    for partition in (0, 1):
        assert [r.offset for r in got if r.partition == partition] == list(range(50))
    assert len(cluster.requests(FetchRequest)) < 30


async def test_a_silent_broker_holds_up_only_its_own_partitions(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    consumer = make_consumer("t", request_timeout_ms=500)
    await consumer.start()
    await until(consumer.ready)
    cluster.fault(FetchRequest, then=Hang(), node=0)
    cluster.append("t", 0, values(0, 1))  # ends the poll under way; the next one hangs
    assert (await asyncio.wait_for(consumer.getone(tp(0)), 10)).offset == 0
    cluster.append("t", 0, values(1, 2))
    for number in range(5):
        cluster.append("t", 1, values(number, number + 1))
        assert (await asyncio.wait_for(consumer.getone(tp(1)), 5)).offset == number
    assert (await asyncio.wait_for(consumer.getone(tp(0)), 10)).offset == 1
    assert consumer.metrics()["fetch_request_failures"] >= 1


async def test_a_silent_broker_is_left_as_soon_as_another_one_leads(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long before `request_timeout_ms` is over: by default that is 40 s."""
    monkeypatch.setattr("aiokafka08.net.watchdog.OVERDUE_S", 0.1)
    consumer = make_consumer()
    consumer.assign([tp(0)])
    await consumer.start()
    await until(consumer.ready)
    fault = cluster.fault(FetchRequest, then=Hang(), node=0)
    await until(lambda: fault.hits)
    await until(lambda: not consumer.ready())
    cluster.move_leader("t", 0)
    cluster.append("t", 0, values(0, 1))
    assert (await asyncio.wait_for(consumer.getone(), 5)).offset == 0
    await until(consumer.ready)


async def test_an_error_that_is_final_is_told_and_then_tried_again(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    cluster.append("t", 0, values(0, 1))
    consumer = make_consumer()
    consumer.assign([tp(0)])
    cluster.fault(FetchRequest, then=Answer(29), times=2)
    await consumer.start()
    for _ in range(2):
        with pytest.raises(TopicAuthorizationFailedError, match="t/0"):
            await consumer.getone()
    assert (await consumer.getone()).offset == 0


async def test_what_stays_unknown_is_told_in_the_end(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiokafka08.consumer.cursor.MAX_TRIES", 6)
    consumer = make_consumer(retry_backoff_ms=1)
    consumer.assign([tp(0)])
    fault = cluster.fault(FetchRequest, then=Answer(-1), times=None)
    await consumer.start()
    with pytest.raises(UnknownError):
        async with asyncio.timeout(30):
            await consumer.getmany(timeout_ms=30_000)
    assert fault.hits >= 6


# --- offsets out of range -----------------------------------------------------------------------


@pytest.mark.parametrize(("reset", "first"), [("earliest", 5), ("latest", 10)])
async def test_messages_that_were_deleted_reset_the_position(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, reset: str, first: int
) -> None:
    events: list[Event] = []
    cluster.append("t", 0, values(0, 10))
    cluster.delete_before("t", 0, 5)
    consumer = make_consumer(auto_offset_reset=reset, on_event=events.append)
    consumer.assign([tp(0)])
    await consumer.start()
    consumer.seek(tp(0), 2)
    await until(lambda: any(isinstance(event, OffsetReset) for event in events))
    assert OffsetReset(tp(0), 2, first) in events
    cluster.append("t", 0, values(10, 11))
    assert (await consumer.getone()).offset == first
    assert consumer.metrics()["offset_resets"] == 1


async def test_without_a_reset_policy_the_range_is_told_until_somebody_seeks(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    cluster.append("t", 0, values(0, 10))
    cluster.delete_before("t", 0, 5)
    consumer = make_consumer(auto_offset_reset="none")
    consumer.assign([tp(0)])
    await consumer.start()
    with pytest.raises(NoOffsetForPartitionError, match="seek") as unknown:
        await consumer.getone()
    assert unknown.value.args[0] == tp(0)  # for programs, as aiokafka's
    with pytest.raises(NoOffsetForPartitionError):
        await consumer.position(tp(0))
    consumer.seek(tp(0), 2)
    for _ in range(2):
        told = r"\[Error 1\] OffsetOutOfRangeError: topic 't', partition 0: offset 2 .*5 to 10"
        with pytest.raises(OffsetOutOfRangeError, match=told) as gone:
            await consumer.getone()
        assert gone.value.args[0] == {tp(0): 2}
        assert await consumer.position(tp(0)) == 2
    consumer.seek(tp(0), 7)
    assert (await consumer.getone()).offset == 7


async def test_a_refusal_alone_doesn_t_move_the_position(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    """KAFKA-2477: error 1 in a race with an append, though the offset is fine."""
    cluster.append("t", 0, values(0, 10))
    consumer = make_consumer("t", auto_offset_reset="latest")
    await consumer.start()
    consumer.seek(tp(0), 3)
    fault = cluster.fault(
        FetchRequest, then=Answer(1), times=3, where=lambda request: has(0, request)
    )
    assert (await asyncio.wait_for(consumer.getone(), 10)).offset == 3
    assert fault.hits == 3
    assert consumer.metrics()["offset_resets"] == 0


async def test_a_log_that_ends_earlier_for_a_moment_doesn_t_move_the_position(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    """A new leader may know of less at first (docs/brokers.md 7.10)."""
    cluster.append("t", 0, values(0, 10))
    consumer = make_consumer(auto_offset_reset="earliest", retry_backoff_ms=100)
    consumer.assign([tp(0)])
    await consumer.start()
    assert len(await take(consumer, 10)) == 10
    cluster.truncate("t", 0, 8)
    asked = len(cluster.requests(ListOffsetsRequest))
    await until(lambda: len(cluster.requests(ListOffsetsRequest)) >= asked + 2)
    cluster.append("t", 0, values(8, 12))
    assert [r.offset for r in await take(consumer, 2)] == [10, 11]


async def test_what_was_seen_of_another_offset_doesn_t_count(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    """A seek beyond the end, refused twice, and undone; much later a new leader knows of less."""
    cluster.append("t", 0, values(0, 10))
    consumer = make_consumer(auto_offset_reset="earliest", retry_backoff_ms=100)
    consumer.assign([tp(0)])
    consumer.seek(tp(0), 100)
    await consumer.start()
    asked = len(cluster.requests(ListOffsetsRequest))
    await until(lambda: len(cluster.requests(ListOffsetsRequest)) >= asked + 4)
    consumer.seek(tp(0), 0)
    assert len(await take(consumer, 10)) == 10
    cluster.truncate("t", 0, 8)
    asked = len(cluster.requests(ListOffsetsRequest))
    await until(lambda: len(cluster.requests(ListOffsetsRequest)) >= asked + 2)
    cluster.append("t", 0, values(8, 12))
    assert [r.offset for r in await take(consumer, 2)] == [10, 11]


async def test_a_log_that_stays_shorter_resets_after_a_while(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    cluster.append("t", 0, values(0, 10))
    consumer = make_consumer(auto_offset_reset="latest", retry_backoff_ms=20)
    consumer.assign([tp(0)])
    await consumer.start()
    await consumer.seek_to_beginning()
    assert len(await take(consumer, 10)) == 10
    cluster.truncate("t", 0, 4)
    await until(lambda: consumer.metrics()["offset_resets"] == 1)
    assert await consumer.position(tp(0)) == 4


async def test_what_was_fetched_before_a_refusal_is_handed_out_first(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    cluster.append("t", 0, values(0, 10))
    consumer = make_consumer(auto_offset_reset="earliest")
    consumer.assign([tp(0)])
    await consumer.start()
    await until(lambda: consumer.metrics()["asked_bytes"] > 0 and consumer.highwater(tp(0)) == 10)
    cluster.append("t", 0, values(10, 20))
    await until(lambda: consumer.highwater(tp(0)) == 20)
    cluster.delete_before("t", 0, 20)
    cluster.append("t", 0, values(20, 21))
    cluster.delete_before("t", 0, 21)
    cluster.append("t", 0, values(21, 22))
    got = [r.offset for r in await take(consumer, 22 - 1)]
    assert got[:20] == list(range(20))


async def test_a_silent_broker_is_asked_for_positions_again_before_the_time_is_over(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    """Else a leader that hangs would cost its partitions the whole `request_timeout_ms`."""
    cluster.append("t", 0, values(0, 3))
    consumer = make_consumer(request_timeout_ms=8000)
    consumer.assign([tp(0)])
    fault = cluster.fault(
        ListOffsetsRequest, then=Hang(), node=0, where=lambda asked: bool(asked.topics)
    )
    await consumer.start()
    await until(lambda: fault.hits)
    cluster.move_leader("t", 0)
    assert await consumer.seek_to_end()
    assert await consumer.position(tp(0)) == 3


async def test_positions_wait_for_brokers_that_fail(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    events: list[Event] = []
    cluster.append("t", 0, values(0, 3))
    cluster.append("t", 1, values(0, 3))

    def not_a_probe(request: ListOffsetsRequest) -> bool:
        return bool(request.topics)

    fault = cluster.fault(ListOffsetsRequest, then=Answer(6), node=0, times=3, where=not_a_probe)
    cluster.fault(ListOffsetsRequest, then=Close(), node=1, where=not_a_probe)
    consumer = make_consumer("t", on_event=events.append)
    await consumer.start()
    assert len(await take(consumer, 6)) == 6
    assert fault.hits == 3
    failed = {e.partition.partition for e in events if isinstance(e, PartitionFailed)}
    assert failed >= {0, 1, 2, 3}


async def test_an_assignment_after_the_start_is_no_failure(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    events: list[Event] = []
    cluster.append("t", 0, values(0, 1))
    consumer = make_consumer(on_event=events.append)
    await consumer.start()
    consumer.assign([tp(0)])  # its metadata is still to be asked for
    assert (await consumer.getone()).offset == 0
    assert [event for event in events if isinstance(event, PartitionFailed)] == []


async def test_a_partition_that_isn_t_there_is_told_with_those_that_are(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    events: list[Event] = []
    consumer = make_consumer(on_event=events.append, retry_backoff_ms=10)
    consumer.assign([tp(77)])
    await consumer.start()
    await until(lambda: any(isinstance(event, PartitionFailed) for event in events))
    reasons = {event.reason for event in events if isinstance(event, PartitionFailed)}
    assert reasons == {"topic 't' has no partition 77; it has [0, 1, 2, 3]"}


async def test_a_partition_that_isn_t_there_holds_up_no_other(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    cluster.append("t", 0, values(0, 3))
    consumer = make_consumer(request_timeout_ms=600)
    consumer.assign([tp(0), tp(77)])
    await consumer.start()
    assert len(await take(consumer, 3)) == 3
    why = r"no position of .*within 600 ms: topic 't' has no partition 77; it has \[0, 1, 2, 3\]"
    with pytest.raises(KafkaTimeoutError, match=why):
        await consumer.position(tp(77))
    assert not await consumer.seek_to_end(tp(77))
    with pytest.raises(UnknownTopicOrPartitionError, match="no partition 77"):
        await consumer.end_offsets([tp(77)])
    assert not consumer.ready()
