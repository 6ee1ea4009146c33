"""What a broker is asked next, and how memory is split: pure, time is an argument."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from aiokafka08.consumer.cursor import Cursor, FetchResult, PartitionFetch
from aiokafka08.consumer.fetch_memory import MIN_SHARE_BYTES, FetchMemory
from aiokafka08.consumer.fetch_plan import ALONE_WAIT_S, SHORT_WAIT_S, FetchPlan, FetchQueue
from aiokafka08.consumer.record_buffer import SET_OVERHEAD_BYTES, Decoding
from aiokafka08.protocol.api import FetchedPartition
from aiokafka08.protocol.message_set import encode_entry
from aiokafka08.structs import TopicPartition

KIB = 1 << 10
MIB = 1 << 20


def cursors(count: int) -> list[Cursor]:
    made = []
    for partition in range(count):
        cursor = Cursor(TopicPartition("t", partition), Decoding(), (0.1, 1.0))
        cursor.seek(0)
        made.append(cursor)
    return made


def source(memory: FetchMemory, of: list[Cursor], now: float = 0.0) -> FetchQueue:
    new = FetchQueue(1, memory, 0.5)
    for cursor in of:
        new.add(cursor, now)
    return new


def plan(of: FetchQueue, now: float = 0.0) -> FetchPlan:
    of.end_backoffs(now)
    found = of.plan(now, 0.5)
    assert found is not None
    return found


def asked(of: FetchPlan) -> list[int]:
    return [fetch.cursor.topic_partition.partition for fetch in of.fetches]


def respond(
    fetch: PartitionFetch, message_set: bytes = b"", *, code: int = 0, now: float = 0.0
) -> FetchResult:
    return fetch.cursor.apply_response(
        fetch,
        FetchedPartition(0, code, 1 << 40, message_set),
        limit_bytes=50 * MIB,
        waited=None,
        hides_large=True,
        now=now,
        now_ms=0,
    )


def filling(fetch: PartitionFetch) -> bytes:
    return encode_entry(fetch.offset, None, bytes(fetch.max_bytes - 26))


# --- memory -------------------------------------------------------------------------------------


def test_shares_of_few_many_and_very_many_partitions() -> None:
    memory = FetchMemory(50 * MIB, MIB)
    found = {}
    for count in (1, 25, 26, 1000, 1600, 1601, 100_000):
        memory.divide(count)
        found[count] = (memory.share_bytes, memory.room_bytes > 0)
        both = 2 if memory.room_bytes else 1
        assert count * memory.share_bytes * both <= max(50 * MIB, count * MIN_SHARE_BYTES)
    assert found[1] == found[25] == (MIB, True)
    assert found[1000] == (50 * MIB // 2000, True)
    assert found[1600] == (MIN_SHARE_BYTES, True)
    assert found[1601] == found[100_000] == (MIN_SHARE_BYTES, False)


def test_max_partition_fetch_bytes_may_be_less_than_the_floor_but_shows_a_header() -> None:
    memory = FetchMemory(50 * MIB, 4096)
    assert memory.share_bytes == 4096
    assert FetchMemory(50 * MIB, 1).share_bytes >= 26
    assert FetchMemory(1, 1).limit_bytes >= 26


def test_lent_bytes_are_bounded_for_all_together_and_go_in_turn() -> None:
    memory = FetchMemory(4 * MIB, MIB)
    one, two, three, four = cursors(4)
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
    assert not memory.borrow(one)  # not before those who wait
    assert memory.borrow(three)
    memory.release(two)
    memory.stop_waiting(four)
    assert memory.next_waiter() is one
    one.next_fetch.size_bytes = 0
    assert memory.borrow(one)
    assert not memory.waiters


def test_the_largest_message_can_always_be_fetched_by_somebody() -> None:
    memory = FetchMemory(4 * MIB, MIB)
    (one,) = cursors(1)
    one.next_fetch.size_bytes = memory.limit_bytes
    assert memory.borrow(one)


def test_what_a_paused_partition_has_borrowed_is_found() -> None:
    memory = FetchMemory(4 * MIB, MIB)
    one, two = cursors(2)
    for cursor in (one, two):
        cursor.next_fetch.size_bytes = 4 * MIB
    assert memory.borrow(one)
    fetch = one.begin_fetch(memory.share_bytes)
    one.paused = True
    assert not memory.borrow(two)
    assert memory.idle_borrowers(None) == []  # still under way
    assert respond(fetch, encode_entry(0, None, bytes(3 * MIB))) is FetchResult.DATA
    assert memory.idle_borrowers(None) == [one]
    one.paused = False
    assert memory.idle_borrowers(None) == []
    assert memory.idle_borrowers({two}) == [one]  # the call that waits wants another one


# --- plans --------------------------------------------------------------------------------------


def test_a_request_has_everything_that_is_ready_and_once() -> None:
    memory = FetchMemory(50 * MIB, MIB)
    of = source(memory, cursors(3))
    first = plan(of)
    assert asked(first) == [0, 1, 2]
    assert (first.wait_s, first.alone) == (0.5, False)
    assert of.plan(0.0, 0.5) is None


def test_an_old_line_waits_shorter() -> None:
    of = source(FetchMemory(50 * MIB, MIB), cursors(1))
    found = of.plan(0.0, 0.1)
    assert found is not None
    assert found.wait_s == 0.1


def test_who_backs_off_is_left_out_until_then() -> None:
    memory = FetchMemory(50 * MIB, MIB)
    of = source(memory, cursors(2))
    first = plan(of)
    assert respond(first.fetches[0], code=6, now=1.0) is FetchResult.REFRESH
    respond(first.fetches[1], now=1.0)
    for fetch in first.fetches:
        of.update(fetch.cursor, 1.0)
    due = of.end_backoffs(1.0)
    assert due is not None
    assert 1.08 <= due <= 1.12
    assert asked(plan(of, 1.0)) == [1]
    assert of.plan(1.05, 0.5) is None
    assert asked(plan(of, due)) == [0]


def test_a_full_partition_is_left_out_and_makes_the_wait_short() -> None:
    memory = FetchMemory(50 * MIB, MIB)
    memory.divide(2)
    of = source(memory, cursors(2))
    for _ in range(2):  # a share buffered, a share on its way
        both = plan(of, 1.0)
        assert sorted(asked(both)) == [0, 1]
        for fetch in both.fetches:
            partition = fetch.cursor.topic_partition.partition
            respond(fetch, b"" if partition else filling(fetch), now=1.0)
            of.update(fetch.cursor, 1.0)
    # 0 is full now. Its buffer may be taken in the next moment; for who takes nothing for long, the
    # polls of the others become as long as ever.
    waits = []
    for now in (1.0, 1.03, 1.2, 9.0):
        found = plan(of, now)
        assert asked(found) == [1]
        waits.append(round(found.wait_s, 3))
        respond(found.fetches[0], now=now)
        of.update(found.fetches[0].cursor, now)
    assert waits == [SHORT_WAIT_S, 0.03, 0.2, 0.5]


def test_a_paused_partition_holds_nobody_up() -> None:
    memory = FetchMemory(50 * MIB, MIB)
    of = source(memory, made := cursors(2))
    made[0].paused = True
    of.update(made[0], 0.0)
    found = plan(of)
    assert asked(found) == [1]
    assert found.wait_s == 0.5
    made[0].paused = False
    of.update(made[0], 0.0)
    assert asked(plan(of)) == [0]


def test_who_has_to_be_asked_alone_is() -> None:
    memory = FetchMemory(50 * MIB, MIB)
    of = source(memory, made := cursors(3))
    made[1].next_fetch.alone = True
    first = plan(of)
    assert (asked(first), first.alone) == ([1], True)
    assert first.wait_s >= ALONE_WAIT_S
    assert first.fetches[0].alone
    assert asked(plan(of)) == [0, 2]


def test_who_has_to_be_asked_alone_but_waits_for_memory_holds_nobody_up() -> None:
    memory = FetchMemory(MIB, 64 * KIB)
    of = source(memory, made := cursors(3))
    for one in made[:2]:
        one.next_fetch.size_bytes = 900 * KIB
    assert memory.borrow(made[0])  # of another broker
    of.remove(made[0])
    made[1].next_fetch.alone = True
    assert asked(plan(of)) == [2]


def test_a_removed_partition_isn_t_asked_for() -> None:
    of = source(FetchMemory(50 * MIB, MIB), made := cursors(3))
    of.remove(made[0])
    assert asked(plan(of)) == [1, 2]
    of.update(made[0], 0.0)
    assert of.plan(0.0, 0.5) is None


def test_a_huge_request_is_split_and_the_rest_comes_next_at_once() -> None:
    memory = FetchMemory(1 << 30, 50 * MIB)
    memory.divide(5)
    of = source(memory, cursors(5))
    first = plan(of)
    assert asked(first) == [0, 1]
    assert first.wait_s == 0.0
    assert asked(plan(of)) == [2, 3]
    assert asked(plan(of)) == [4]


@given(st.integers(1, 1000), st.integers(0, 2**32), st.sampled_from([MIB, 4 * MIB]))
def test_memory_stays_within_the_law_whoever_takes_what(count: int, seed: int, total: int) -> None:
    """Brokers always answer with all that was asked for; the user takes some, or nothing."""
    choose = random.Random(seed)
    memory = FetchMemory(total, MIB)
    memory.divide(count)
    of = source(memory, made := cursors(count))
    law = max(total, count * MIN_SHARE_BYTES)
    for now in range(6):
        of.end_backoffs(now)
        found = of.plan(now, 0.5)
        fetches = [] if found is None else found.fetches
        asked_bytes = sum(fetch.max_bytes for fetch in fetches)
        buffered = sum(cursor.buffer.buffered_bytes for cursor in made)
        sets = sum(1 for cursor in made if cursor.buffer.pending)
        assert asked_bytes + buffered <= law + 2 * sets * SET_OVERHEAD_BYTES
        for fetch in fetches:
            respond(fetch, filling(fetch))
        for cursor in made:
            if choose.random() < 0.3:
                cursor.buffer.decode(10)
                cursor.buffer.pop_records(None)
            of.update(cursor, now)
