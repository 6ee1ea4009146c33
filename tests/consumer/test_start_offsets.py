"""Where a partition begins: resets, refused offsets, brokers that fail, missing partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from aiokafka08.errors import (
    KafkaTimeoutError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from aiokafka08.protocol.requests.committed_offsets import OffsetFetchRequest
from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.protocol.requests.list_offsets import ListOffsetsRequest
from aiokafka08.telemetry import Event, OffsetReset, PartitionFailed, StartedAtEnd
from aiokafka08.testing import (
    Answer,
    Close,
    Delay,
    EmbeddedCluster,
    Hang,
)
from tests.consumer.conftest import MakeConsumer, has_partition, take, tp, values
from tests.support.waiting import until


@pytest.mark.parametrize(("reset", "first"), [("earliest", 5), ("latest", 10)])
async def test_deleted_messages_reset_the_position(
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


async def test_start_at_the_end_for_want_of_a_commit_is_reported(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, caplog: pytest.LogCaptureFixture
) -> None:
    """So that the log answers why a message is missing; an empty log has lost none."""
    caplog.set_level("INFO", "aiokafka08")
    events: list[Event] = []
    cluster.append("t", 0, values(0, 10))
    cluster.append("t", 2, values(0, 5))
    consumer = make_consumer("t", auto_offset_reset="latest", on_event=events.append)
    await consumer.start()
    [event] = [event for event in events if isinstance(event, StartedAtEnd)]
    assert sorted(event.positions) == [(tp(0), 10), (tp(2), 5)]  # both on node 0
    assert consumer.metrics()["starts_at_end"] == 2
    assert "no committed offset, auto_offset_reset 'latest' starts at the end" in caplog.text
    assert "t/0 at 10" in caplog.text


async def test_chosen_start_at_the_end_is_not_reported(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    """Neither a seek to the end, nor a committed offset there."""
    cluster.append("t", 0, values(0, 10))
    consumer = make_consumer(group_id="g", auto_offset_reset="latest", enable_auto_commit=False)
    consumer.assign([tp(1)])
    await consumer.start()
    consumer.assign([tp(0)])
    await consumer.seek_to_end(tp(0))
    assert await consumer.position(tp(0)) == 10
    await consumer.commit()
    again = make_consumer(group_id="g", auto_offset_reset="latest")
    again.assign([tp(0)])
    await again.start()
    assert await again.position(tp(0)) == 10
    assert consumer.metrics()["starts_at_end"] == again.metrics()["starts_at_end"] == 0


async def test_out_of_range_without_reset_raises_until_seek(
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
        text = r"\[Error 1\] OffsetOutOfRangeError: topic 't', partition 0: offset 2 .*5 to 10"
        with pytest.raises(OffsetOutOfRangeError, match=text) as gone:
            await consumer.getone()
        assert gone.value.args[0] == {tp(0): 2}
        assert await consumer.position(tp(0)) == 2
    consumer.seek(tp(0), 7)
    assert (await consumer.getone()).offset == 7


async def test_refusal_alone_does_not_move_the_position(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    """KAFKA-2477: error 1 in a race with an append, though the offset is fine."""
    cluster.append("t", 0, values(0, 10))
    consumer = make_consumer("t", auto_offset_reset="latest")
    await consumer.start()
    consumer.seek(tp(0), 3)
    fault = cluster.fault(
        FetchRequest, then=Answer(1), times=3, where=lambda request: has_partition(0, request)
    )
    assert (await asyncio.wait_for(consumer.getone(), 10)).offset == 3
    assert fault.hits == 3
    assert consumer.metrics()["offset_resets"] == 0


async def test_log_that_is_shorter_for_a_moment_keeps_the_position(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    """The log of a new leader may end earlier at first (docs/brokers.md 7.10)."""
    cluster.append("t", 0, values(0, 10))
    consumer = make_consumer(auto_offset_reset="earliest", retry_backoff_ms=100)
    consumer.assign([tp(0)])
    await consumer.start()
    assert len(await take(consumer, 10)) == 10
    cluster.truncate("t", 0, 8)
    requests = len(cluster.requests(ListOffsetsRequest))
    await until(lambda: len(cluster.requests(ListOffsetsRequest)) >= requests + 2)
    cluster.append("t", 0, values(8, 12))
    assert [r.offset for r in await take(consumer, 2)] == [10, 11]


async def test_sightings_of_another_offset_do_not_count(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    """A seek beyond the end is refused twice and undone; later the log of a new leader is short."""
    cluster.append("t", 0, values(0, 10))
    consumer = make_consumer(auto_offset_reset="earliest", retry_backoff_ms=100)
    consumer.assign([tp(0)])
    consumer.seek(tp(0), 100)
    await consumer.start()
    requests = len(cluster.requests(ListOffsetsRequest))
    await until(lambda: len(cluster.requests(ListOffsetsRequest)) >= requests + 4)
    consumer.seek(tp(0), 0)
    assert len(await take(consumer, 10)) == 10
    cluster.truncate("t", 0, 8)
    requests = len(cluster.requests(ListOffsetsRequest))
    await until(lambda: len(cluster.requests(ListOffsetsRequest)) >= requests + 2)
    cluster.append("t", 0, values(8, 12))
    assert [r.offset for r in await take(consumer, 2)] == [10, 11]


async def test_log_that_stays_shorter_resets_the_position(
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


async def test_messages_before_a_refused_offset_are_returned_first(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    """Then the offset is verified, also if the call that returned the last one decoded none."""
    cluster.append("t", 0, values(0, 10))
    consumer = make_consumer(auto_offset_reset="earliest")
    consumer.assign([tp(0)])
    refusal = cluster.fault(FetchRequest, then=Answer(1), where=fetches_at(10))
    await consumer.start()
    await until(lambda: refusal.hits and not consumer.metrics()["requested_bytes"], "the refusal")
    cluster.append("t", 0, values(10, 12))
    cluster.delete_before("t", 0, 11)
    assert (await consumer.getone()).offset == 0  # decodes the others too
    await consumer.end_offsets([tp(0)])  # meanwhile the call's report has been handled
    assert [r.offset for r in await take(consumer, 9)] == [*range(1, 10)]
    await until(lambda: consumer.metrics()["offset_resets"], "the reset")
    assert [r.offset for r in await take(consumer, 1)] == [11]


def fetches_at(offset: int) -> Callable[[FetchRequest], bool]:
    """Match requests that fetch a partition from this offset on."""
    return lambda request: any(
        one.fetch_offset == offset for topic in request.topics for one in topic.partitions
    )


async def test_position_request_to_a_silent_broker_is_retried(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    """Otherwise a hanging leader would take the whole `request_timeout_ms`."""
    cluster.append("t", 0, values(0, 3))
    consumer = make_consumer(request_timeout_ms=8000)
    consumer.assign([tp(0)])
    fault = cluster.fault(
        ListOffsetsRequest, then=Hang(), node=0, where=lambda request: bool(request.topics)
    )
    await consumer.start()
    await until(lambda: fault.hits)
    cluster.move_leader("t", 0)
    assert await consumer.seek_to_end()
    assert await consumer.position(tp(0)) == 3


async def test_positions_wait_for_failing_brokers(
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


async def test_assign_after_start_emits_no_failure(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    events: list[Event] = []
    cluster.append("t", 0, values(0, 1))
    consumer = make_consumer(on_event=events.append)
    await consumer.start()
    consumer.assign([tp(0)])  # its metadata isn't requested yet
    assert (await consumer.getone()).offset == 0
    assert [event for event in events if isinstance(event, PartitionFailed)] == []


async def test_missing_partition_error_names_existing_ones(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    events: list[Event] = []
    consumer = make_consumer(on_event=events.append, retry_backoff_ms=10)
    consumer.assign([tp(77)])
    await consumer.start()
    await until(lambda: any(isinstance(event, PartitionFailed) for event in events))
    reasons = {event.reason for event in events if isinstance(event, PartitionFailed)}
    assert reasons == {"topic 't' has no partition 77; it has 0 to 3"}


@pytest.mark.parametrize("cause", ["leader", "store"])
async def test_position_error_names_the_last_failure(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, cause: str
) -> None:
    """The partition has a leader, which isn't the cause."""
    if cause == "leader":
        cluster.fault(
            ListOffsetsRequest, then=Answer(6), times=None, where=lambda one: bool(one.topics)
        )
        consumer = make_consumer(request_timeout_ms=600)
    else:
        cluster.fault(OffsetFetchRequest, then=Answer(14), times=None)
        consumer = make_consumer(request_timeout_ms=600, group_id="g")
    consumer.assign([tp(0)])
    await consumer.start()
    what = {"leader": "NotLeaderForPartition", "store": "GroupLoadInProgress"}[cause]
    for _ in range(2 if cause == "store" else 1):  # the store retries in its own time
        with pytest.raises(KafkaTimeoutError, match="no position found within 600 ms") as caught:
            await consumer.position(tp(0))
    assert what in str(caught.value)
    assert "isn't among the known brokers" not in str(caught.value)


async def test_missing_partition_delays_no_other(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    cluster.append("t", 0, values(0, 3))
    consumer = make_consumer(request_timeout_ms=600)
    consumer.assign([tp(0), tp(77)])
    await consumer.start()
    assert len(await take(consumer, 3)) == 3
    why = r"no position found within 600 ms: topic 't' has no partition 77; it has 0 to 3"
    with pytest.raises(KafkaTimeoutError, match=why):
        await consumer.position(tp(77))
    assert not await consumer.seek_to_end(tp(77))
    with pytest.raises(UnknownTopicOrPartitionError, match="no partition 77"):
        await consumer.end_offsets([tp(77)])
    assert not consumer.ready()


async def test_second_seek_to_end_is_answered_by_its_own_request(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    """The response to the first one comes later than the second call, and is stale."""
    consumer = make_consumer()
    consumer.assign([tp(0)])
    await consumer.start()
    assert await consumer.position(tp(0)) == 0
    cluster.fault(ListOffsetsRequest, then=Delay(0.5))
    first = cluster.next_request(ListOffsetsRequest)
    seeking = asyncio.create_task(consumer.seek_to_end(tp(0)))
    await asyncio.wrap_future(first)
    cluster.append("t", 0, values(0, 3))
    await consumer.seek_to_end(tp(0))
    await seeking
    assert await consumer.position(tp(0)) == 3


async def test_refused_committed_offset_delays_no_other_partition(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    """As with an ACL of a topic, or of one node in ZooKeeper."""
    cluster.fault(OffsetFetchRequest, then=Answer(29, only=[("t", 0)]), times=None)
    for partition in (0, 1):
        cluster.append("t", partition, values(0, 1))
    consumer = make_consumer(group_id="g", auto_offset_reset="earliest", enable_auto_commit=False)
    consumer.assign([tp(0), tp(1)])
    await consumer.start()
    with pytest.raises(
        TopicAuthorizationFailedError,
        match="topic 't', partition 0: its committed offset isn't known",
    ):
        await consumer.getone(tp(0))
    async with asyncio.timeout(10):
        assert (await consumer.getone(tp(1))).partition == 1
