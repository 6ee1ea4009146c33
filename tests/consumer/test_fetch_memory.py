"""How the memory is shared and borrowed. Pure: time is an argument."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka08.consumer.cursor import MAX_GROWTH, Cursor, FetchResult
from aiokafka08.consumer.fetch_memory import MIN_SHARE_BYTES, FetchMemory
from aiokafka08.consumer.fetch_plan import FetchPlan
from aiokafka08.consumer.record_buffer import SET_OVERHEAD_BYTES
from aiokafka08.protocol.message_set import encode_entry
from tests.consumer.fetching import (
    MIB,
    filling,
    make_cursors,
    make_plan,
    make_queue,
    respond,
)

pytestmark = pytest.mark.twins


def can_fetch(cursor: Cursor, memory: FetchMemory) -> bool:
    share_bytes = memory.share_of(cursor)
    return cursor.wants_fetch and cursor.has_room(share_bytes, memory.room_of(share_bytes))


def test_shares_of_few_and_many_partitions() -> None:
    memory = FetchMemory(50 * MIB, MIB)
    found = {}
    for count in (1, 25, 26, 1000, 1600, 1601, 100_000):
        memory.divide(count)
        found[count] = (memory.share_bytes, memory.room_of(memory.share_bytes) > 0)
        both = 2 if memory.room_of(memory.share_bytes) else 1
        assert count * memory.share_bytes * both <= max(50 * MIB, count * MIN_SHARE_BYTES)
    assert found[1] == found[25] == (MIB, True)
    assert found[1000] == (50 * MIB // 2000, True)
    assert found[1600] == (MIN_SHARE_BYTES, True)
    assert found[1601] == found[100_000] == (MIN_SHARE_BYTES, False)


def test_share_may_be_small_but_shows_a_header() -> None:
    memory = FetchMemory(50 * MIB, 4096)
    assert memory.share_bytes == 4096
    assert FetchMemory(50 * MIB, 1).share_bytes >= 26
    assert FetchMemory(1, 1).limit_bytes >= 26


def test_borrowed_bytes_are_bounded_and_granted_in_order() -> None:
    memory = FetchMemory(4 * MIB, MIB)
    one, two, three, four = make_cursors(4)
    for cursor in (one, two, three):
        cursor.next_fetch.size_bytes = 3 * MIB
    four.next_fetch.size_bytes = MIB + 1
    assert memory.borrow(one)
    assert one.borrowed_bytes == 2 * MIB
    assert memory.borrow(two)
    assert not memory.borrow(three)
    assert not memory.borrow(four)
    assert list(memory.waiters) == [three, four]
    assert memory.next_waiter() is None
    memory.release(one)
    assert memory.next_waiter() is three
    assert not memory.borrow(one)  # not before the waiters
    assert memory.borrow(three)
    memory.release(two)
    memory.stop_waiting(four)
    assert memory.next_waiter() is one
    one.next_fetch.size_bytes = 0
    assert memory.borrow(one)
    assert not memory.waiters


def test_single_partition_can_borrow_for_the_largest_message() -> None:
    memory = FetchMemory(4 * MIB, MIB)
    (one,) = make_cursors(1)
    one.next_fetch.size_bytes = memory.limit_bytes
    assert memory.borrow(one)


def test_partition_at_its_end_borrows_nothing() -> None:
    """Its fetch is a long poll, which would keep the bytes from the others."""
    memory = FetchMemory(4 * MIB, MIB)
    (cursor,) = make_cursors(1)
    cursor.high_watermark = 0
    cursor.next_fetch.size_bytes = 2 * MIB
    assert memory.borrow(cursor)
    assert (cursor.borrowed_bytes, cursor.next_fetch.size_bytes) == (0, 0)


def test_failing_broker_neither_borrows_nor_waits() -> None:
    memory = FetchMemory(4 * MIB, MIB)
    memory.divide(3)
    holder, first, second = make_cursors(3)
    for cursor in (holder, first, second):
        cursor.next_fetch.size_bytes = memory.limit_bytes
    assert memory.borrow(holder)
    queue = make_queue(memory, [first])
    assert queue.plan(0.0, 0.5) is None
    assert not memory.borrow(second)
    assert list(memory.waiters) == [first, second]
    assert queue.fail(0.0)
    assert list(memory.waiters) == [second]
    (fetch,) = make_plan(queue).fetches
    assert (fetch.cursor, fetch.max_bytes) == (first, memory.share_bytes)
    assert not queue.fail(0.0)


def test_paused_borrower_is_idle() -> None:
    memory = FetchMemory(4 * MIB, MIB)
    one, two = make_cursors(2)
    for cursor in (one, two):
        cursor.next_fetch.size_bytes = 4 * MIB
    assert memory.borrow(one)
    fetch = one.begin_fetch(memory.share_bytes)
    one.paused = True
    assert not memory.borrow(two)
    assert memory.idle_borrowers(None) == []  # still in flight
    assert respond(fetch, encode_entry(0, None, bytes(3 * MIB))) is FetchResult.DATA
    assert memory.idle_borrowers(None) == [one]
    one.paused = False
    assert memory.idle_borrowers(None) == []
    assert memory.idle_borrowers({two}) == [one]  # the waiting call wants another one


@given(st.integers(1, 1000), st.integers(0, 2**32), st.sampled_from([MIB, 4 * MIB]))
def test_memory_stays_within_its_bound(count: int, seed: int, total: int) -> None:
    """Responses always have all requested bytes; the user takes some messages, or none.

    Some partitions are moved while a long poll is in flight, and fetched beside it.
    """
    choose = random.Random(seed)
    memory = FetchMemory(total, MIB)
    memory.divide(count)
    queue = make_queue(memory, made := make_cursors(count))
    bound = max(total, count * MIN_SHARE_BYTES) + max(total, MIB)

    def check() -> None:
        asked = sum(cursor.requested_bytes for cursor in made)
        buffered = sum(cursor.buffer.buffered_bytes for cursor in made)
        borrowed = sum(cursor.borrowed_bytes for cursor in made)
        sets = sum(1 for cursor in made if cursor.buffer.pending)
        overhead = 2 * sets * SET_OVERHEAD_BYTES
        assert asked + buffered <= max(total, count * MIN_SHARE_BYTES) + borrowed + overhead
        assert asked + buffered <= bound + overhead
        assert buffered <= memory.buffered_limit_bytes(made) <= bound + 2 * count * 512

    def answer(plan: FetchPlan | None, now: float) -> None:
        for fetch in [] if plan is None else plan.fetches:
            respond(fetch, filling(fetch))
            queue.update(fetch.cursor, now)

    for now in range(6):
        queue.end_backoffs(now)
        poll = queue.plan(now, 0.5)
        check()
        for _ in range(choose.randrange(3)):
            for cursor in choose.sample(made, choose.randint(0, min(count, 50))):
                cursor.seek(choose.randrange(100))
                queue.update(cursor, now)
            urgent = queue.plan_urgent(now)
            check()
            if choose.random() < 0.5:
                for cursor in choose.sample(made, min(count, 5)):
                    cursor.seek(choose.randrange(100))
                    queue.update(cursor, now)
            answer(urgent, now)
            queue.end_urgent()
            check()
        answer(poll, now)
        check()
        for cursor in made:
            cursor.growth = choose.choice([1, 1, 2, MAX_GROWTH])
            if choose.random() < 0.3:
                cursor.buffer.decode(10)
                cursor.buffer.pop_records(None)
            if not cursor.requested_bytes and not cursor.buffer.buffered_bytes:
                memory.release(cursor)
            queue.update(cursor, now)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(0, 2**32))
def test_limit_holds_while_the_assignment_changes(counts: list[int], seed: int) -> None:
    """New partitions get smaller parts, while older buffers are still full."""
    choose = random.Random(seed)
    memory = FetchMemory(MIB, MIB // 2)
    made: list[Cursor] = []
    queue = make_queue(memory, made)
    for now, count in enumerate(counts):
        for cursor in made[count:]:
            queue.remove(cursor)
            cursor.change_leader()
            memory.remove(cursor)
        del made[count:]
        for cursor in make_cursors(count)[len(made) :]:
            made.append(cursor)
            queue.add(cursor, now)
        memory.divide(count)
        for step in range(3):
            queue.end_backoffs(now)
            plan = queue.plan(now + step / 4, 0.5)
            for fetch in [] if plan is None else plan.fetches:
                respond(fetch, filling(fetch))
                queue.update(fetch.cursor, now)
        buffered = sum(cursor.buffer.buffered_bytes for cursor in made)
        assert buffered <= memory.buffered_limit_bytes(made)
        for cursor in choose.sample(made, choose.randint(0, count)):
            cursor.drop_buffer()
            queue.update(cursor, now)


def test_limit_is_the_memory_once_new_parts_are_in_use() -> None:
    memory = FetchMemory(MIB, MIB)
    queue = make_queue(memory, made := make_cursors(1))
    memory.divide(1)
    assert memory.buffered_limit_bytes(made) == 2 * MIB + 2 * SET_OVERHEAD_BYTES
    assert queue.plan(0.0, 0.5) is not None
    more = [*made, *make_cursors(3)]
    memory.divide(4)
    assert memory.buffered_limit_bytes(more) == (2 + 0.75) * MIB + 8 * SET_OVERHEAD_BYTES
    assert memory.buffered_limit_bytes(more[1:]) == (1 + 0.75) * MIB + 6 * SET_OVERHEAD_BYTES


def test_grown_share_ends_at_half_of_the_memory() -> None:
    memory = FetchMemory(50 * MIB, MIB)
    (one,) = make_cursors(1)
    for count, largest in ((1, 16 * MIB), (3, 50 * MIB // 6), (100, 50 * MIB // 200)):
        memory.divide(count)
        one.growth = MAX_GROWTH
        assert memory.share_of(one) == largest
        assert memory.borrow(one)
        assert not one.borrowed_bytes


def test_superseded_fetch_counts_until_its_response() -> None:
    memory = FetchMemory(4 * MIB, MIB)
    memory.divide(2)
    (one,) = make_cursors(1)
    assert memory.borrow(one)
    old = one.begin_fetch(memory.share_bytes)
    one.seek(7)
    assert one.requested_bytes == MIB
    assert can_fetch(one, memory)
    assert memory.borrow(one)
    new = one.begin_fetch(memory.share_bytes)
    assert respond(new, filling(new)) is FetchResult.DATA
    assert one.requested_bytes == MIB
    assert not can_fetch(one, memory)  # a share is still to come
    assert respond(old, filling(old)) is FetchResult.STALE
    assert one.requested_bytes == 0
    assert can_fetch(one, memory)


def test_superseded_large_fetch_leaves_no_room_for_another() -> None:
    memory = FetchMemory(4 * MIB, MIB)
    (one,) = make_cursors(1)
    one.next_fetch.size_bytes = 4 * MIB
    assert memory.borrow(one)
    old = one.begin_fetch(memory.share_bytes)
    one.seek(7)
    one.next_fetch.size_bytes = 4 * MIB
    assert not memory.borrow(one)
    assert memory.next_waiter() is None
    one.abandon_fetch(old)
    assert memory.next_waiter() is one
    assert memory.borrow(one)


def test_busy_partition_returns_what_it_borrowed_for_a_seek() -> None:
    """Its memory is never free of fetches and sets at the same time."""
    memory = FetchMemory(4 * MIB, MIB)
    (one,) = make_cursors(1)
    one.next_fetch.size_bytes = 3 * MIB
    assert memory.borrow(one)
    old = one.begin_fetch(memory.share_of(one))
    one.seek(7)
    assert memory.borrow(one)
    new = one.begin_fetch(memory.share_of(one))
    assert one.borrowed_bytes
    assert respond(old, filling(old)) is FetchResult.STALE
    assert respond(new, encode_entry(7, None, b"v")) is FetchResult.DATA
    assert can_fetch(one, memory)
    assert memory.borrow(one)
    assert not one.borrowed_bytes


def test_fetch_of_a_removed_partition_counts_as_borrowed() -> None:
    memory = FetchMemory(4 * MIB, MIB)
    removed, other = make_cursors(2)
    removed.next_fetch.size_bytes = 3 * MIB
    assert memory.borrow(removed)
    fetch = removed.begin_fetch(memory.share_of(removed))
    removed.seek(0)
    memory.remove(removed)
    assert memory.removed_bytes == 3 * MIB
    other.next_fetch.size_bytes = 3 * MIB
    assert not memory.borrow(other)
    assert memory.next_waiter() is None
    removed.abandon_fetch(fetch)
    memory.remove(removed)
    assert memory.removed_bytes == 0
    assert memory.next_waiter() is other
    assert memory.borrow(other)


def test_no_fetch_begins_while_memory_is_overdrawn() -> None:
    """The pool was lent out when a partition with a fetch in flight was removed."""
    memory = FetchMemory(4 * MIB, MIB)
    memory.divide(2)
    removed, holder, other = make_cursors(3)
    fetch = removed.begin_fetch(memory.share_of(removed))
    holder.next_fetch.size_bytes = 5 * MIB - 1
    assert memory.borrow(holder)
    queue = make_queue(memory, [other])
    removed.seek(0)
    memory.remove(removed)
    assert memory.is_overdrawn
    assert queue.plan(0.0, 0.5) is queue.plan_urgent(0.0) is None
    removed.abandon_fetch(fetch)
    memory.remove(removed)
    assert queue.plan(0.0, 0.5) is not None
