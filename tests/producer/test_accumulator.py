"""`Accumulator`: when a batch is due, one batch of a partition in flight, and batch sizes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aiokafka08.errors import KafkaError
from aiokafka08.producer.accumulator import Accumulator
from aiokafka08.producer.batch import Batch, PartitionQueue
from aiokafka08.producer.batch_delivery import BatchDelivery
from aiokafka08.protocol.compression import Codec
from aiokafka08.protocol.message_set import message_size
from aiokafka08.structs import TopicPartition
from tests.protocol.entries import entries

MESSAGE = b"x" * 74  # 100 bytes in a message set of format 0
BATCH_BYTES = 1000  # ten of them
REQUEST_BYTES = 5000


def make(
    linger_s: float = 0.0,
    delivery_timeout_s: float = 120.0,
    wake_sender: Callable[[], object] = lambda: None,
    growth_bytes: Callable[[int | None, float], int] = lambda *_: REQUEST_BYTES,
) -> Accumulator:
    return Accumulator(
        batch_bytes=BATCH_BYTES,
        max_request_bytes=REQUEST_BYTES,
        linger_s=linger_s,
        delivery_timeout_s=delivery_timeout_s,
        codec=Codec.NONE,
        growth_bytes=growth_bytes,
        new_delivery=lambda topic_partition: BatchDelivery(topic_partition, None),
        wake_sender=wake_sender,
    )


def add_queue(
    accumulator: Accumulator, partition: int = 0, leader: int | None = 1
) -> PartitionQueue:
    queue = accumulator.new_queue(TopicPartition("t", partition))
    accumulator.set_leader(queue, leader, 0.0)
    return queue


def add(
    accumulator: Accumulator,
    queue: PartitionQueue,
    count: int = 1,
    now: float = 0.0,
    value: bytes = MESSAGE,
) -> list[Batch]:
    size = message_size(0, None, value)
    return [accumulator.append(queue, None, value, -1, size, now) for _ in range(count)]


def drain(accumulator: Accumulator, now: float = 0.0, node: int = 1) -> list[Batch]:
    accumulator.begin_pass(now)
    return accumulator.drain(node, REQUEST_BYTES, now)


def values(batch: Batch) -> list[bytes | None]:
    return [entry.value for entry in entries(batch.builder.build())]


# --- when a batch is due --------------------------------------------------------------------------


def test_without_linger_a_message_is_due_at_once() -> None:
    woken: list[str] = []
    accumulator = make(wake_sender=lambda: woken.append("sender"))
    queue = add_queue(accumulator)
    add(accumulator, queue)
    assert woken == ["sender"]
    assert accumulator.ready_nodes() == [1]
    (batch,) = drain(accumulator)
    assert (batch.count, values(batch)) == (1, [MESSAGE])
    assert accumulator.ready_nodes() == []


def test_sender_is_woken_once_between_two_passes() -> None:
    woken: list[str] = []
    accumulator = make(linger_s=1.0, wake_sender=lambda: woken.append("sender"))
    first, second = add_queue(accumulator), add_queue(accumulator, 1)
    add(accumulator, first)
    add(accumulator, second)
    accumulator.flush(0.0)
    assert woken == ["sender"]
    accumulator.begin_pass(2.0)
    accumulator.set_leader(second, 2, 2.0)  # no wake-up: this pass is still to see it
    assert accumulator.ready_nodes() == [1, 2]
    assert accumulator.end_pass() == pytest.approx(12.0)  # the open batches are old enough
    assert woken == ["sender"]
    add(accumulator, add_queue(accumulator, 2), now=2.0)
    assert woken == ["sender"] * 2


def test_end_pass_returns_the_end_of_linger() -> None:
    accumulator = make(linger_s=0.5)
    queue = add_queue(accumulator)
    add(accumulator, queue, now=10.0)
    assert drain(accumulator, 10.4) == []
    assert accumulator.end_pass() == 10.5
    add(accumulator, queue, now=10.4)  # doesn't restart the linger
    (batch,) = drain(accumulator, 10.5)
    assert batch.count == 2


def test_a_full_batch_does_not_linger() -> None:
    accumulator = make(linger_s=60.0)
    queue = add_queue(accumulator)
    add(accumulator, queue, 9)
    assert drain(accumulator) == []
    add(accumulator, queue)
    (batch,) = drain(accumulator)
    assert batch.count == 10


def test_flush_makes_only_buffered_batches_due() -> None:
    accumulator = make(linger_s=60.0)
    queues = [add_queue(accumulator, partition) for partition in range(2)]
    first = add(accumulator, queues[0])[0]
    assert accumulator.flush(1.0) == [first]
    add(accumulator, queues[1], now=1.0)
    assert drain(accumulator, 1.0) == [first]


def test_closing_the_open_batch_calls_on_new_batch() -> None:
    accumulator = make(linger_s=60.0)
    queue = add_queue(accumulator)
    closed: list[int] = []
    queue.on_new_batch = closed.append
    add(accumulator, queue)
    accumulator.close_batch(queue, 0.0)
    (batch,) = drain(accumulator)
    add(accumulator, queue)
    assert batch.count == 1
    assert closed == [0]


# --- order: one batch of a partition in flight ----------------------------------------------------


def test_next_batch_waits_for_the_one_in_flight() -> None:
    accumulator = make()
    queue = add_queue(accumulator)
    add(accumulator, queue)
    (first,) = drain(accumulator)
    (second,) = add(accumulator, queue)
    assert drain(accumulator) == []
    accumulator.finish(first, 1.0)
    assert drain(accumulator, 1.0) == [second]


def test_unmuted_partitions_have_one_batch_per_request() -> None:
    accumulator = make()
    queue = add_queue(accumulator)
    add(accumulator, queue, 20)
    first = accumulator.drain(1, REQUEST_BYTES, 0.0, mute=False)
    second = accumulator.drain(1, REQUEST_BYTES, 0.0, mute=False)
    assert [batch.count for batch in first + second] == [10, 10]
    assert len(first) == len(second) == 1  # docs/brokers.md 3.12: the last one wins


def test_a_batch_put_back_is_the_head_of_its_queue() -> None:
    accumulator = make()
    queue = add_queue(accumulator)
    add(accumulator, queue)
    (first,) = drain(accumulator)
    (second,) = add(accumulator, queue)
    accumulator.put_back(first, 1.0, 0.1)
    assert first.attempts == 1
    assert drain(accumulator, 1.05) == []
    assert accumulator.end_pass() == 1.1
    assert drain(accumulator, 1.1) == [first]
    accumulator.finish(first, 1.2)
    assert drain(accumulator, 1.2) == [second]


def test_a_new_leader_ends_the_backoff_of_a_retry() -> None:
    woken: list[str] = []
    accumulator = make(wake_sender=lambda: woken.append("sender"))
    queue = add_queue(accumulator)
    add(accumulator, queue)
    (batch,) = drain(accumulator)
    accumulator.put_back(batch, 1.0, 10.0)
    accumulator.end_pass()
    woken.clear()
    accumulator.set_leader(queue, 2, 1.5)
    assert woken == ["sender"]
    assert drain(accumulator, 1.5, node=1) == []
    assert drain(accumulator, 1.5, node=2) == [batch]


def test_a_batch_in_flight_stays_so_when_the_leader_moves() -> None:
    accumulator = make()
    queue = add_queue(accumulator)
    add(accumulator, queue)
    (first,) = drain(accumulator)
    (second,) = add(accumulator, queue)
    accumulator.set_leader(queue, 2, 1.0)
    assert accumulator.ready_nodes() == []
    accumulator.finish(first, 1.0)
    assert drain(accumulator, 1.0, node=2) == [second]


def test_leaderless_batches_wait_for_a_leader() -> None:
    accumulator = make()
    queue = add_queue(accumulator, leader=None)
    (batch,) = add(accumulator, queue)
    assert accumulator.ready_nodes() == []
    assert accumulator.has_ready(None)
    accumulator.set_leader(queue, 3, 1.0)
    assert not accumulator.has_ready(None)
    assert drain(accumulator, 1.0, node=3) == [batch]


def test_leader_moved_and_back_drains_the_batch_once() -> None:
    accumulator = make()
    queue = add_queue(accumulator)
    (batch,) = add(accumulator, queue)
    for leader in (2, 1, 2, 1):
        accumulator.set_leader(queue, leader, 0.0)
    assert drain(accumulator, node=2) == []
    assert drain(accumulator) == [batch]


def test_partitions_are_drained_in_the_order_they_got_ready() -> None:
    accumulator = make()
    queues = [add_queue(accumulator, partition) for partition in range(6)]
    for queue in queues:
        add(accumulator, queue, 10)
    first, second = drain(accumulator), drain(accumulator)
    assert [batch.queue for batch in first] == queues[:5]  # 5000 bytes
    assert [batch.queue for batch in second] == queues[5:]
    for batch in first:
        accumulator.finish(batch, 0.0)


# --- size -----------------------------------------------------------------------------------------


def test_batch_behind_a_buffered_one_grows_to_request_size() -> None:
    accumulator = make()
    queue = add_queue(accumulator)
    batches = add(accumulator, queue, 70)
    assert [batch.count for batch in dict.fromkeys(batches)] == [10, 50, 10]


def test_batch_behind_one_in_flight_grows_to_request_size() -> None:
    accumulator = make()
    queue = add_queue(accumulator)
    add(accumulator, queue)
    drain(accumulator)
    batches = add(accumulator, queue, 60)
    assert [batch.count for batch in dict.fromkeys(batches)] == [50, 10]


@pytest.mark.parametrize(
    ("growth", "limit"),
    [(0, BATCH_BYTES), (2 * BATCH_BYTES, 2 * BATCH_BYTES), (2 * REQUEST_BYTES, REQUEST_BYTES)],
)
def test_batch_behind_another_grows_as_far_as_its_leader_needs(growth: int, limit: int) -> None:
    asked: list[tuple[int | None, float]] = []

    def growth_bytes(leader: int | None, message_bytes: float) -> int:
        asked.append((leader, message_bytes))
        return growth

    accumulator = make(growth_bytes=growth_bytes)
    queue = add_queue(accumulator, leader=3)
    [first] = add(accumulator, queue)
    assert not asked
    accumulator.close_batch(queue, 0.0)
    queue.magic = 1  # the next message needs another batch
    second = accumulator.append(queue, None, MESSAGE, 0, 108, 0.0)
    assert asked == [(3, first.builder.size_bytes)]
    assert (first.limit_bytes, second.limit_bytes) == (BATCH_BYTES, limit)


def test_drain_takes_at_most_max_batches() -> None:
    accumulator = make()
    queues = [add_queue(accumulator, partition) for partition in range(5)]
    for queue in queues:
        add(accumulator, queue)
    accumulator.begin_pass(0.0)
    first = accumulator.drain(1, REQUEST_BYTES, 0.0, max_batches=2)
    assert [batch.queue for batch in first] == queues[:2]
    assert [batch.queue for batch in drain(accumulator)] == queues[2:]


def test_a_message_larger_than_a_batch_is_sent_alone() -> None:
    accumulator = make()
    queue = add_queue(accumulator)
    add(accumulator, queue)
    add(accumulator, queue, value=b"y" * 4000)
    add(accumulator, queue, value=b"z" * 4900)
    assert [batch.count for batch in queue.batches] == [1, 1, 1]


def test_drain_takes_at_least_one_batch() -> None:
    accumulator = make()
    queue = add_queue(accumulator)
    add(accumulator, queue, value=b"y" * 4000)
    assert len(accumulator.drain(1, 100, 0.0)) == 1


def test_a_batch_of_the_user_gets_no_other_messages() -> None:
    accumulator = make(linger_s=60.0)
    queue = add_queue(accumulator)
    add(accumulator, queue)
    builder = queue.batches[0].builder.__class__(0)
    builder.append(None, b"mine", -1)
    accumulator.add_batch(queue, builder, 0.0)
    add(accumulator, queue)
    assert [values(batch) for batch in queue.batches] == [[MESSAGE], [b"mine"], [MESSAGE]]
    assert queue.batches[0].count == 1  # closed, so due
    assert len(drain(accumulator)) == 1


# --- splits ---------------------------------------------------------------------------------------


def test_split_queues_the_halves_and_lowers_the_limit() -> None:
    accumulator = make()
    queue = add_queue(accumulator)
    add(accumulator, queue)
    (in_flight,) = drain(accumulator)
    for number in range(50):
        add(accumulator, queue, value=b"%04d" % number + MESSAGE[4:])
    add(accumulator, queue, value=b"last")
    accumulator.finish(in_flight, 0.0)
    (batch,) = drain(accumulator)
    first, second = accumulator.split(batch, 0.0)
    assert (first.count, second.count) == (25, 25)
    assert queue.limit_bytes == 2500
    seen: list[bytes | None] = []
    while batches := drain(accumulator):
        seen += values(batches[0])
        accumulator.finish(batches[0], 0.0)
    assert seen == [b"%04d" % number + MESSAGE[4:] for number in range(50)] + [b"last"]
    assert accumulator.unfinished == 0


def test_split_because_of_a_message_keeps_the_limit() -> None:
    accumulator = make()
    queue = add_queue(accumulator)
    for number in range(8):
        add(accumulator, queue, value=b"%04d" % number)
    (batch,) = drain(accumulator)
    before = queue.limit_bytes
    first, second = accumulator.split(batch, 0.0, too_large=False)
    assert (first.count, second.count) == (4, 4)
    assert queue.limit_bytes == before


def test_large_stored_batches_raise_a_lowered_limit() -> None:
    accumulator = make()
    queue = add_queue(accumulator)
    batches = add(accumulator, queue, 60)
    queue.limit_bytes = 4800
    for limit in (4875, 4951, 5000, 5000):
        accumulator.raise_limit(batches[-1])
        assert queue.limit_bytes == limit


def test_only_a_grown_batch_lowers_the_limit() -> None:
    accumulator = make()
    queue = add_queue(accumulator)
    first, *_, grown = add(accumulator, queue, 60)
    accumulator.lower_limit(first)
    assert queue.limit_bytes == REQUEST_BYTES
    accumulator.lower_limit(grown)
    accumulator.lower_limit(grown)  # of the same size: in flight at once
    assert queue.limit_bytes == grown.builder.size_bytes // 2


# --- expiry ---------------------------------------------------------------------------------------


def test_finished_batch_takes_no_more_messages() -> None:
    accumulator = make(linger_s=1.0)
    queue = add_queue(accumulator)
    *_, full, last = add(accumulator, queue, 11)
    accumulator.finish(full, 0.0)
    assert queue.open_batch is last  # for the fast path
    accumulator.finish(last, 0.0)
    assert queue.open_batch is None
    assert add(accumulator, queue) != [last]


def test_next_batch_is_due_after_a_buffered_one_expires() -> None:
    accumulator = make(delivery_timeout_s=10.0)
    queue = add_queue(accumulator, leader=None)
    (first,) = add(accumulator, queue)
    accumulator.close_batch(queue, 0.0)
    (second,) = add(accumulator, queue, now=1.5)
    assert accumulator.expire(9.9) == []
    assert accumulator.end_pass() == 10.0
    assert accumulator.expire(10.0) == [first]
    assert not first.is_expired
    accumulator.set_leader(queue, 1, 10.0)
    assert drain(accumulator, 10.0) == [second]


def test_batch_expired_in_flight_still_mutes_its_partition() -> None:
    accumulator = make(delivery_timeout_s=10.0)
    queue = add_queue(accumulator)
    add(accumulator, queue)
    (first,) = drain(accumulator)
    (second,) = add(accumulator, queue, now=5.0)
    assert accumulator.expire(10.0) == [first]
    assert first.is_expired
    assert drain(accumulator, 10.0) == []
    accumulator.finish(first, 11.0)
    assert drain(accumulator, 11.0) == [second]


def test_time_spent_waiting_for_memory_counts_to_the_deadline() -> None:
    accumulator = make(delivery_timeout_s=10.0)
    early, late = add_queue(accumulator, 0), add_queue(accumulator, 1)
    add(accumulator, early, now=8.0)
    accumulator.append(late, None, MESSAGE, -1, 100, 9.0, since=1.0)
    assert accumulator.expire(9.0) == []
    assert [batch.queue for batch in accumulator.expire(11.0)] == [late]
    assert accumulator.oldest_age_s(12.0) == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("linger_s", "open_s"), [(0.1, 0.4), (0.4, 0.4), (1.5, 1.5), (2.0, 2.0), (60.0, 2.0)]
)
def test_batch_waits_for_linger_but_at_most_half_its_timeout(
    linger_s: float, open_s: float
) -> None:
    accumulator = make(delivery_timeout_s=4.0, linger_s=linger_s)
    queue = add_queue(accumulator, leader=None)
    (batch,) = add(accumulator, queue)
    accumulator.expire(open_s - 0.001)
    assert queue.open_batch is batch
    accumulator.begin_pass(min(linger_s, open_s) - 0.001)
    assert not accumulator.has_ready(None)
    accumulator.expire(open_s + 0.001)
    accumulator.begin_pass(open_s + 0.001)
    assert accumulator.has_ready(None)
    assert queue.open_batch is None
    assert batch.deadline == pytest.approx(4.001)


@pytest.mark.parametrize("is_muted", [False, True], ids=["buffered", "behind one in flight"])
def test_an_open_batch_closes_at_a_tenth_of_the_timeout(is_muted: bool) -> None:
    accumulator = make(delivery_timeout_s=4.0, linger_s=0.4)
    queue = add_queue(accumulator)
    if is_muted:
        add(accumulator, queue)
        accumulator.flush(0.0)
        drain(accumulator)
    (old,) = add(accumulator, queue)
    accumulator.begin_pass(0.0)
    assert accumulator.end_pass() == pytest.approx(0.4)
    assert add(accumulator, queue, now=0.3) == [old]
    accumulator.expire(0.5)
    assert queue.open_batch is None
    (late,) = add(accumulator, queue, now=3.7)
    assert late is not old
    assert late.deadline == pytest.approx(7.7)
    assert old.deadline == pytest.approx(4.1)  # the timer was late by 0.1 s
    assert old.due_at < 0.0  # no other message can join it, so it doesn't linger


@pytest.mark.parametrize("closes", ["timer", "drain", "full"])
def test_a_late_event_loop_moves_the_deadline_of_a_batch(closes: str) -> None:
    """The timer that closes the batch can't run while a task holds the event loop and sends."""
    accumulator = make(delivery_timeout_s=4.0)
    queue = add_queue(accumulator)
    (batch,) = add(accumulator, queue)
    batch.builder.append(None, MESSAGE, -1)  # as the fast path does, without a clock, at 3.7
    if closes == "timer":
        assert accumulator.expire(4.5) == []
        assert batch.deadline == pytest.approx(4.5 + 3.6)
        return
    if closes == "drain":
        assert accumulator.drain(1, REQUEST_BYTES, 3.7) == [batch]
    else:
        add(accumulator, queue, now=3.7, value=b"y" * BATCH_BYTES)
    assert batch.deadline == pytest.approx(3.7 + 3.6)
    assert accumulator.expire(7.2) == []
    assert batch in accumulator.expire(7.4)


def test_messages_that_waited_long_share_batches_of_their_own() -> None:
    accumulator = make(delivery_timeout_s=10.0)
    queue = add_queue(accumulator)
    (fresh,) = add(accumulator, queue, now=8.9)
    waited = [
        accumulator.append(queue, None, MESSAGE, -1, 100, 9.0, since=since)
        for since in (2.0, 2.5, 3.0, 3.5)
    ]
    assert queue.open_batch is None  # the fast path must not add to them
    (newest,) = add(accumulator, queue, now=9.0)
    assert list(queue.batches) == [fresh, waited[0], waited[3], newest]
    assert [batch.count for batch in queue.batches] == [1, 3, 1, 1]
    assert [batch.deadline for batch in queue.batches] == pytest.approx([18.9, 12.0, 13.5, 19.0])


def test_a_retried_batch_gets_no_other_messages() -> None:
    accumulator = make()
    queue = add_queue(accumulator)
    add(accumulator, queue)
    (batch,) = drain(accumulator)
    accumulator.put_back(batch, 0.0, 0.0)
    add(accumulator, queue)
    assert [one.count for one in queue.batches] == [1, 1]


def test_messages_join_no_batch_of_another_format() -> None:
    accumulator = make(delivery_timeout_s=10.0)
    queue = add_queue(accumulator)
    for queue.magic in (0, 1):
        accumulator.append(queue, None, MESSAGE, -1, 100, 9.0, since=2.0)
    assert [batch.builder.magic for batch in queue.batches] == [0, 1]


def test_halves_of_a_split_keep_the_deadline() -> None:
    accumulator = make(delivery_timeout_s=10.0)
    queue = add_queue(accumulator)
    add(accumulator, queue, 10)
    (batch,) = drain(accumulator)
    first, second = accumulator.split(batch, 9.0)
    assert set(accumulator.expire(10.0)) == {first, second}
    assert accumulator.unfinished == 0


def test_delivery_of_a_split_batch_finds_each_half() -> None:
    accumulator = make()
    queue = add_queue(accumulator)
    add(accumulator, queue, 10)
    (batch,) = drain(accumulator)
    first, second = accumulator.split(batch, 0.0)
    first.delivery.acknowledge(100, -1, has_timestamps=False)
    second.delivery.fail(KafkaError("no"))
    assert batch.delivery.locate(4) == (first.delivery, 4)
    assert batch.delivery.locate(5) == (second.delivery, 0)
    assert first.delivery.metadata(4, -1).offset == 104


def test_repr_says_whether_a_batch_is_in_flight() -> None:
    accumulator = make()
    queue = add_queue(accumulator)
    [batch] = add(accumulator, queue)
    assert repr(batch) == "<Batch t/0 messages=1 attempts=0 buffered>"
    drain(accumulator)
    assert repr(batch) == "<Batch t/0 messages=1 attempts=0 in flight>"
