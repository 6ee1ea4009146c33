"""What a broker is asked next, and how memory is split: pure, time is an argument."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from aiokafka08.consumer.cursor import Cursor, FetchResult, PartitionFetch
from aiokafka08.consumer.fetch_memory import FLOOR_BYTES, FetchMemory
from aiokafka08.consumer.fetch_plan import ALONE_WAIT_S, SHORT_WAIT_S, FetchPlan, FetchQueue
from aiokafka08.consumer.record_buffer import CHUNK_OVERHEAD_BYTES, Decoding
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


def source(shares: FetchMemory, of: list[Cursor], now: float = 0.0) -> FetchQueue:
    new = FetchQueue(1, shares, 0.5)
    for cursor in of:
        new.add(cursor, now)
    return new


def plan(of: FetchQueue, now: float = 0.0) -> FetchPlan:
    of.due(now)
    found = of.plan(now, 0.5)
    assert found is not None
    return found


def asked(of: FetchPlan) -> list[int]:
    return [ask.cursor.topic_partition.partition for ask in of.asks]


def give(
    ask: PartitionFetch, message_set: bytes = b"", *, code: int = 0, now: float = 0.0
) -> FetchResult:
    return ask.cursor.answered(
        ask,
        FetchedPartition(0, code, 1 << 40, message_set),
        limit_bytes=50 * MIB,
        waited=None,
        hides_large=True,
        now=now,
        now_ms=0,
    )


def filling(ask: PartitionFetch) -> bytes:
    return encode_entry(ask.offset, None, bytes(ask.max_bytes - 26))


# --- shares -------------------------------------------------------------------------------------


def test_shares_of_few_many_and_very_many_partitions() -> None:
    shares = FetchMemory(50 * MIB, MIB)
    found = {}
    for count in (1, 25, 26, 1000, 1600, 1601, 100_000):
        shares.split(count)
        found[count] = (shares.share_bytes, shares.room_bytes > 0)
        both = 2 if shares.room_bytes else 1
        assert count * shares.share_bytes * both <= max(50 * MIB, count * FLOOR_BYTES)
    assert found[1] == found[25] == (MIB, True)
    assert found[1000] == (50 * MIB // 2000, True)
    assert found[1600] == (FLOOR_BYTES, True)
    assert found[1601] == found[100_000] == (FLOOR_BYTES, False)


def test_max_partition_fetch_bytes_may_be_less_than_the_floor_but_shows_a_header() -> None:
    shares = FetchMemory(50 * MIB, 4096)
    assert shares.share_bytes == 4096
    assert FetchMemory(50 * MIB, 1).share_bytes >= 26
    assert FetchMemory(1, 1).limit_bytes >= 26


def test_lent_bytes_are_bounded_for_all_together_and_go_in_turn() -> None:
    shares = FetchMemory(4 * MIB, MIB)
    one, two, three, four = cursors(4)
    for cursor in (one, two, three):
        cursor.reach.size_bytes = 3 * MIB
    four.reach.size_bytes = MIB + 1
    assert shares.borrow(one)
    assert one.extra_bytes == 2 * MIB
    assert shares.borrow(two)
    assert not shares.borrow(three)
    assert not shares.borrow(four)
    assert list(shares.queue) == [three, four]
    assert shares.next_in_queue() is None
    shares.give_back(one)
    assert shares.next_in_queue() is three
    assert not shares.borrow(one)  # not before those who wait
    assert shares.borrow(three)
    shares.give_back(two)
    shares.leave(four)
    assert shares.next_in_queue() is one
    one.reach.size_bytes = 0
    assert shares.borrow(one)
    assert not shares.queue


def test_the_largest_message_can_always_be_fetched_by_somebody() -> None:
    shares = FetchMemory(4 * MIB, MIB)
    (one,) = cursors(1)
    one.reach.size_bytes = shares.limit_bytes
    assert shares.borrow(one)


def test_what_a_paused_partition_has_borrowed_is_found() -> None:
    shares = FetchMemory(4 * MIB, MIB)
    one, two = cursors(2)
    for cursor in (one, two):
        cursor.reach.size_bytes = 4 * MIB
    assert shares.borrow(one)
    ask = one.request(shares.share_bytes)
    one.paused = True
    assert not shares.borrow(two)
    assert shares.idle_borrowers(None) == []  # still under way
    assert give(ask, encode_entry(0, None, bytes(3 * MIB))) is FetchResult.DATA
    assert shares.idle_borrowers(None) == [one]
    one.paused = False
    assert shares.idle_borrowers(None) == []
    assert shares.idle_borrowers({two}) == [one]  # the call that waits wants another one


# --- plans --------------------------------------------------------------------------------------


def test_a_request_has_everything_that_is_ready_and_once() -> None:
    shares = FetchMemory(50 * MIB, MIB)
    of = source(shares, cursors(3))
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
    shares = FetchMemory(50 * MIB, MIB)
    of = source(shares, cursors(2))
    first = plan(of)
    assert give(first.asks[0], code=6, now=1.0) is FetchResult.REFRESH
    give(first.asks[1], now=1.0)
    for ask in first.asks:
        of.offer(ask.cursor, 1.0)
    due = of.due(1.0)
    assert due is not None
    assert 1.08 <= due <= 1.12
    assert asked(plan(of, 1.0)) == [1]
    assert of.plan(1.05, 0.5) is None
    assert asked(plan(of, due)) == [0]


def test_a_full_partition_is_left_out_and_makes_the_wait_short() -> None:
    shares = FetchMemory(50 * MIB, MIB)
    shares.split(2)
    of = source(shares, cursors(2))
    for _ in range(2):  # a share buffered, a share on its way
        both = plan(of, 1.0)
        assert sorted(asked(both)) == [0, 1]
        for ask in both.asks:
            partition = ask.cursor.topic_partition.partition
            give(ask, b"" if partition else filling(ask), now=1.0)
            of.offer(ask.cursor, 1.0)
    # 0 is full now. Its buffer may be taken in the next moment; for who takes nothing for long, the
    # polls of the others become as long as ever.
    waits = []
    for now in (1.0, 1.03, 1.2, 9.0):
        found = plan(of, now)
        assert asked(found) == [1]
        waits.append(round(found.wait_s, 3))
        give(found.asks[0], now=now)
        of.offer(found.asks[0].cursor, now)
    assert waits == [SHORT_WAIT_S, 0.03, 0.2, 0.5]


def test_a_paused_partition_holds_nobody_up() -> None:
    shares = FetchMemory(50 * MIB, MIB)
    of = source(shares, made := cursors(2))
    made[0].paused = True
    of.offer(made[0], 0.0)
    found = plan(of)
    assert asked(found) == [1]
    assert found.wait_s == 0.5
    made[0].paused = False
    of.offer(made[0], 0.0)
    assert asked(plan(of)) == [0]


def test_who_has_to_be_asked_alone_is() -> None:
    shares = FetchMemory(50 * MIB, MIB)
    of = source(shares, made := cursors(3))
    made[1].reach.alone = True
    first = plan(of)
    assert (asked(first), first.alone) == ([1], True)
    assert first.wait_s >= ALONE_WAIT_S
    assert first.asks[0].alone
    assert asked(plan(of)) == [0, 2]


def test_who_has_to_be_asked_alone_but_waits_for_memory_holds_nobody_up() -> None:
    shares = FetchMemory(MIB, 64 * KIB)
    of = source(shares, made := cursors(3))
    for one in made[:2]:
        one.reach.size_bytes = 900 * KIB
    assert shares.borrow(made[0])  # of another broker
    of.remove(made[0])
    made[1].reach.alone = True
    assert asked(plan(of)) == [2]


def test_a_removed_partition_isn_t_asked_for() -> None:
    of = source(FetchMemory(50 * MIB, MIB), made := cursors(3))
    of.remove(made[0])
    assert asked(plan(of)) == [1, 2]
    of.offer(made[0], 0.0)
    assert of.plan(0.0, 0.5) is None


def test_a_huge_request_is_split_and_the_rest_comes_next_at_once() -> None:
    shares = FetchMemory(1 << 30, 50 * MIB)
    shares.split(5)
    of = source(shares, cursors(5))
    first = plan(of)
    assert asked(first) == [0, 1]
    assert first.wait_s == 0.0
    assert asked(plan(of)) == [2, 3]
    assert asked(plan(of)) == [4]


@given(st.integers(1, 1000), st.integers(0, 2**32), st.sampled_from([MIB, 4 * MIB]))
def test_memory_stays_within_the_law_whoever_takes_what(count: int, seed: int, total: int) -> None:
    """Brokers always answer with all that was asked for; the user takes some, or nothing."""
    choose = random.Random(seed)
    shares = FetchMemory(total, MIB)
    shares.split(count)
    of = source(shares, made := cursors(count))
    law = max(total, count * FLOOR_BYTES)
    for now in range(6):
        of.due(now)
        found = of.plan(now, 0.5)
        asks = [] if found is None else found.asks
        asked_bytes = sum(ask.max_bytes for ask in asks)
        buffered = sum(cursor.buffer.buffered_bytes for cursor in made)
        sets = sum(1 for cursor in made if cursor.buffer.pending)
        assert asked_bytes + buffered <= law + 2 * sets * CHUNK_OVERHEAD_BYTES
        for ask in asks:
            give(ask, filling(ask))
        for cursor in made:
            if choose.random() < 0.3:
                cursor.buffer.decode(10)
                cursor.buffer.take(None)
            of.offer(cursor, now)
