"""Which partitions go into the next request. Pure: time is an argument."""

from __future__ import annotations

from aiokafka08.consumer.cursor import FetchResult
from aiokafka08.consumer.fetch_memory import FetchMemory
from aiokafka08.consumer.fetch_plan import ALONE_WAIT_S, MAX_EXPECTED_BYTES, SHORT_WAIT_S
from aiokafka08.protocol.message_set import encode_entry
from tests.consumer.fetching import (
    KIB,
    MIB,
    filling,
    make_cursors,
    make_plan,
    make_queue,
    partitions_of,
    respond,
)


def test_plan_has_every_ready_partition_once() -> None:
    memory = FetchMemory(50 * MIB, MIB)
    queue = make_queue(memory, make_cursors(3))
    first = make_plan(queue)
    assert partitions_of(first) == [0, 1, 2]
    assert (first.wait_s, first.alone) == (0.5, False)
    assert queue.plan(0.0, 0.5) is None


def test_plan_for_an_old_line_waits_shorter() -> None:
    queue = make_queue(FetchMemory(50 * MIB, MIB), make_cursors(1))
    found = queue.plan(0.0, 0.1)
    assert found is not None
    assert found.wait_s == 0.1


def test_partition_that_backs_off_is_left_out() -> None:
    memory = FetchMemory(50 * MIB, MIB)
    queue = make_queue(memory, make_cursors(2))
    first = make_plan(queue)
    assert respond(first.fetches[0], code=6, now=1.0) is FetchResult.REFRESH
    respond(first.fetches[1], now=1.0)
    for fetch in first.fetches:
        queue.update(fetch.cursor, 1.0)
    due = queue.end_backoffs(1.0)
    assert due is not None
    assert 1.08 <= due <= 1.12
    assert partitions_of(make_plan(queue, 1.0)) == [1]
    assert queue.plan(1.05, 0.5) is None
    assert partitions_of(make_plan(queue, due)) == [0]


def test_full_partition_is_left_out_and_shortens_the_wait() -> None:
    memory = FetchMemory(50 * MIB, MIB)
    memory.divide(2)
    queue = make_queue(memory, make_cursors(2))
    for _ in range(2):  # a share buffered, a share on its way
        both = make_plan(queue, 1.0)
        assert sorted(partitions_of(both)) == [0, 1]
        for fetch in both.fetches:
            partition = fetch.cursor.topic_partition.partition
            respond(fetch, b"" if partition else filling(fetch), now=1.0)
            queue.update(fetch.cursor, 1.0)
    # 0 is full now. The user may read its buffer in the next moment, so the polls of the others are
    # short. If the user reads nothing for long, they become as long as ever.
    waits = []
    for now in (1.0, 1.03, 1.2, 9.0):
        found = make_plan(queue, now)
        assert partitions_of(found) == [1]
        waits.append(round(found.wait_s, 3))
        respond(found.fetches[0], now=now)
        queue.update(found.fetches[0].cursor, now)
    assert waits == [SHORT_WAIT_S, 0.03, 0.2, 0.5]


def test_paused_partition_delays_no_other() -> None:
    memory = FetchMemory(50 * MIB, MIB)
    queue = make_queue(memory, made := make_cursors(2))
    made[0].paused = True
    queue.update(made[0], 0.0)
    found = make_plan(queue)
    assert partitions_of(found) == [1]
    assert found.wait_s == 0.5
    made[0].paused = False
    queue.update(made[0], 0.0)
    assert partitions_of(make_plan(queue)) == [0]


def test_partition_to_fetch_alone_is_planned_alone() -> None:
    memory = FetchMemory(50 * MIB, MIB)
    queue = make_queue(memory, made := make_cursors(3))
    made[1].next_fetch.alone = True
    first = make_plan(queue)
    assert (partitions_of(first), first.alone) == ([1], True)
    assert first.wait_s >= ALONE_WAIT_S
    assert first.fetches[0].alone
    assert partitions_of(make_plan(queue)) == [0, 2]


def test_partition_alone_that_waits_for_memory_delays_no_other() -> None:
    memory = FetchMemory(MIB, 64 * KIB)
    queue = make_queue(memory, made := make_cursors(3))
    for one in made[:2]:
        one.next_fetch.size_bytes = 900 * KIB
    assert memory.borrow(made[0])  # of another broker
    queue.remove(made[0])
    made[1].next_fetch.alone = True
    assert partitions_of(make_plan(queue)) == [2]


def test_removed_partition_is_not_planned() -> None:
    queue = make_queue(FetchMemory(50 * MIB, MIB), made := make_cursors(3))
    queue.remove(made[0])
    assert partitions_of(make_plan(queue)) == [1, 2]
    queue.update(made[0], 0.0)
    assert queue.plan(0.0, 0.5) is None


def test_large_request_is_split_without_a_wait() -> None:
    memory = FetchMemory(50 * MIB, 4 * MIB)
    memory.divide(5)
    queue = make_queue(memory, make_cursors(5))
    first = make_plan(queue)
    assert partitions_of(first) == [0, 1]
    assert first.wait_s == 0.0
    assert partitions_of(make_plan(queue)) == [2, 3]
    assert partitions_of(make_plan(queue)) == [4]


def test_partitions_at_their_end_share_one_long_poll() -> None:
    """A request is split by what it may bring, not by how many idle partitions it has."""
    memory = FetchMemory(50 * MIB, MIB)
    cursors = make_cursors(1000)
    memory.divide(len(cursors))
    queue = make_queue(memory, cursors)
    seen = []
    while (plan := queue.plan(0.0, 0.5)) is not None:  # nothing is known yet
        assert sum(fetch.max_bytes for fetch in plan.fetches) <= MAX_EXPECTED_BYTES
        seen += partitions_of(plan)
        for fetch in plan.fetches:
            respond(fetch, high_watermark=0)
    assert seen == list(range(1000))
    for cursor in cursors:
        queue.update(cursor, 0.0)
    poll = make_plan(queue)
    assert (len(poll.fetches), poll.wait_s) == (1000, 0.5)
    for number, fetch in enumerate(poll.fetches):
        respond(fetch, high_watermark=0 if number < 500 else 1000)
        queue.update(fetch.cursor, 0.0)
    counts = []
    while (plan := queue.plan(0.0, 0.5)) is not None:
        behind = [fetch for fetch in plan.fetches if fetch.cursor.high_watermark]
        assert sum(fetch.max_bytes for fetch in behind) <= MAX_EXPECTED_BYTES
        counts.append((len(plan.fetches) - len(behind), plan.wait_s))
    assert counts[0] == (500, 0.0)
    assert counts[-1] == (0, 0.5)


def test_urgent_plan_has_only_urgent_partitions() -> None:
    queue = make_queue(FetchMemory(50 * MIB, MIB), made := make_cursors(3))
    assert partitions_of(make_plan(queue)) == [0, 1, 2]
    assert not queue.has_urgent
    assert queue.plan_urgent(0.0) is None
    made[1].seek(7)
    queue.update(made[1], 0.0)
    urgent = queue.plan_urgent(0.0)
    assert urgent is not None
    assert (partitions_of(urgent), urgent.wait_s, urgent.fetches[0].offset) == ([1], 0.0, 7)
    assert queue.plan_urgent(0.0) is None  # it is in flight


def test_partition_that_waited_for_memory_is_urgent() -> None:
    memory = FetchMemory(4 * MIB, MIB)
    memory.divide(2)
    queue = make_queue(memory, made := make_cursors(2))
    for cursor in made:
        cursor.next_fetch.size_bytes = memory.limit_bytes
        cursor.urgent = False
    found = make_plan(queue)
    assert partitions_of(found) == [0]
    assert queue.queued
    respond(found.fetches[0])
    memory.release(made[0])
    assert queue.update(made[1], 0.0)
    assert queue.has_urgent
    urgent = queue.plan_urgent(0.0)
    assert urgent is not None
    assert partitions_of(urgent) == [1]


def test_back_off_is_queued_once() -> None:
    queue = make_queue(FetchMemory(50 * MIB, MIB), made := make_cursors(1))
    made[0].back_off(0.0)
    assert [queue.update(made[0], 0.0) for _ in range(3)] == [True, False, False]
    until_s = queue.end_backoffs(0.0)
    assert until_s == made[0].not_before
    assert queue.end_backoffs(until_s) is None
    assert partitions_of(make_plan(queue, until_s)) == [0]


def test_partition_is_urgent_until_it_has_caught_up() -> None:
    queue = make_queue(FetchMemory(50 * MIB, MIB), made := make_cursors(1))
    make_plan(queue)
    made[0].seek(7)
    queue.update(made[0], 0.0)
    for high_watermark, is_urgent in ((9, True), (9, False)):
        urgent = queue.plan_urgent(0.0)
        assert urgent is not None
        (fetch,) = urgent.fetches
        respond(fetch, encode_entry(fetch.offset, None, b"v"), high_watermark=high_watermark)
        made[0].buffer.decode(1)
        made[0].buffer.pop_records(1)
        queue.update(made[0], 0.0)
        assert queue.has_urgent is is_urgent
    assert partitions_of(make_plan(queue)) == [0]


def test_long_poll_is_short_while_an_urgent_fetch_is_out() -> None:
    """The partition is to join the next long poll soon; if it doesn't come, the waits grow."""
    queue = make_queue(FetchMemory(50 * MIB, MIB), made := make_cursors(2))
    first = make_plan(queue)
    made[1].seek(7)
    queue.update(made[1], 1.0)
    assert queue.plan_urgent(1.0) is not None
    waits = []
    for now in (1.0, 1.1, 9.0):
        respond(first.fetches[0], now=now)
        queue.update(made[0], now)
        first = make_plan(queue, now)
        assert partitions_of(first) == [0]
        waits.append(round(first.wait_s, 3))
    assert waits == [SHORT_WAIT_S, 0.1, 0.5]
    queue.end_urgent()
    respond(first.fetches[0], now=1.0)
    queue.update(made[0], 1.0)
    assert make_plan(queue, 1.0).wait_s == 0.5


def test_partition_to_fetch_alone_is_never_urgent() -> None:
    queue = make_queue(FetchMemory(50 * MIB, MIB), made := make_cursors(2))
    make_plan(queue)
    made[0].seek(7)
    made[0].next_fetch.alone = True
    queue.update(made[0], 0.0)
    assert not queue.has_urgent
    assert queue.plan_urgent(0.0) is None
