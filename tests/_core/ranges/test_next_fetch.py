"""Fetch sizes, growth and holes: single steps, and whole logs drawn at random."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka08._core.ranges.next_fetch import (
    EARLY_RESPONSES,
    EMPTY_WAITS,
    FetchFinding,
    FetchStep,
    NextFetch,
)
from aiokafka08.protocol.compression import Codec, compress
from aiokafka08.protocol.message_set import encode_entry, summarize_set
from tests.consumer.log_model import FILLER, Batch, ModelLog

pytestmark = pytest.mark.twins

LIMIT = 1 << 20
WILD = 1 << 40
BASE = 1 << 10


def message(offset: int, value_bytes: int = 10) -> bytes:
    return encode_entry(offset, None, bytes(value_bytes))


def respond(
    next_fetch: NextFetch,
    message_set: bytes,
    high_watermark: int = 100,
    *,
    requested: int = BASE,
    waited: bool | None = None,
) -> FetchFinding:
    return next_fetch.apply_response(
        message_set, high_watermark, requested_bytes=requested, limit_bytes=LIMIT, waited=waited
    )


def test_messages_move_the_offset_after_the_highest() -> None:
    next_fetch = NextFetch(5)
    assert respond(next_fetch, message(5) + message(6) + message(9)).step is FetchStep.DATA
    assert next_fetch.offset == 10
    # 3.9.1 sends a batch twice, the second copy cut off (docs/brokers.md 7.12).
    assert (
        respond(next_fetch, message(10) + message(11) + message(10) + message(11)[:20]).step
        is FetchStep.DATA
    )
    assert next_fetch.offset == 12


def at(*offsets: int) -> bytes:
    return b"".join(message(offset) for offset in offsets)


@pytest.mark.parametrize(
    ("offsets", "used", "next_offset"),
    [
        ((5, 6, 15, 8, 9), (5, 6), 7),  # 15 in place of 7
        ((5, 7, 15, 9), (5, 7), 8),  # behind a hole
        ((5, 6, 3, 8), (5, 6), 7),  # 3 in place of 7
        ((5, 6, 6, 8), (5,), 6),
        ((5, 6, -4, 8), (5, 6), 7),
        ((15, 5, 6), (5, 6), 7),
        ((15, 5, 6, 99, 8), (5, 6), 7),
        ((15, 3, 99, 5, 6), (5, 6), 7),
        ((15, 3, 4, 5, 6), (3, 4, 5, 6), 7),
    ],
    ids=str,
)
def test_messages_around_a_falling_offset_are_used(
    offsets: tuple[int, ...], used: tuple[int, ...], next_offset: int
) -> None:
    next_fetch = NextFetch(5)
    data = b"".join(message(offset, index) for index, offset in enumerate(offsets))
    finding = respond(next_fetch, data)
    assert finding.step is FetchStep.DATA
    assert finding.message_set is not None
    first = offsets.index(used[0])
    expected = [message(offset, index) for index, offset in enumerate(offsets)]
    assert bytes(finding.message_set) == b"".join(expected[first : first + len(used)])
    assert next_fetch.offset == next_offset


@pytest.mark.parametrize(
    ("offsets", "later"),
    [((15, 8, 9), 8), ((15, 3, 9), 9), ((-5,), None), ((3, 2), None)],
    ids=str,
)
def test_falling_offset_at_the_fetch_offset_is_corrupt(
    offsets: tuple[int, ...], later: int | None
) -> None:
    next_fetch = NextFetch(5)
    for _ in range(3):
        assert respond(next_fetch, at(*offsets)).step is FetchStep.RETRY
        assert respond(next_fetch, at(*offsets)) == FetchFinding(
            FetchStep.CORRUPT, next_offset=later
        )
        assert next_fetch.offset == 5


@pytest.mark.parametrize("offsets", [(15, 8, 9), (8, 9)], ids=str)
def test_message_that_a_falling_offset_hides_is_corrupt(offsets: tuple[int, ...]) -> None:
    """A broker that is asked for 7 finds 8, or the one whose offset is 15 by mistake."""
    next_fetch = NextFetch(5)
    respond(next_fetch, at(5, 6, 15, 8, 9))
    findings = [respond(next_fetch, at(*offsets)) for _ in range(2)]
    assert findings[-1] == FetchFinding(FetchStep.CORRUPT, next_offset=8)
    assert next_fetch.offset == 7
    assert respond(next_fetch, at(7, 8)).step is FetchStep.DATA  # it was damaged on its way


def numbered(*offsets: int) -> list[bytes]:
    """Return a message for each offset, all different."""
    return [encode_entry(offset, None, b"%d" % number) for number, offset in enumerate(offsets)]


@pytest.mark.parametrize(
    ("offsets", "used"), [((0, 0), 1), ((0, 1, 0), 2), ((0, 1, -3), 2), ((0, 0, 0), 1)], ids=str
)
def test_falling_offset_at_the_end_of_the_log_is_corrupt(
    offsets: tuple[int, ...], used: int
) -> None:
    next_fetch = NextFetch(0)
    data = numbered(*offsets)
    finding = respond(next_fetch, b"".join(data), used)
    assert finding == FetchFinding(FetchStep.DATA, message_set=b"".join(data[:used]))
    assert next_fetch.lacks_dropped
    assert next_fetch.meets_damage
    for _ in range(2):
        assert respond(next_fetch, b"", used) == FetchFinding(FetchStep.CORRUPT, next_offset=used)
    next_fetch.reset_search()  # another leader has the same log
    new = encode_entry(used, None, b"new")
    findings = [respond(next_fetch, new, used + 1) for _ in range(2)]
    damage = FetchFinding(FetchStep.CORRUPT, next_offset=used)
    assert findings == [FetchFinding(FetchStep.RETRY), damage]
    assert next_fetch.offset == used
    assert respond(NextFetch(used), new, used + 1).step is FetchStep.DATA  # after a seek()


def test_log_of_another_leader_may_be_cut_before_the_damage() -> None:
    """What was dropped isn't there; but a gap in its place is still damage."""
    next_fetch = NextFetch(1)
    respond(next_fetch, at(1, 99, 3), 4)
    assert next_fetch.offset == 2
    next_fetch.reset_search()
    for _ in range(3):
        assert respond(next_fetch, b"", 2).step is FetchStep.END
    findings = [respond(next_fetch, at(3), 4) for _ in range(2)]
    damage = FetchFinding(FetchStep.CORRUPT, next_offset=3)
    assert findings == [FetchFinding(FetchStep.RETRY), damage]
    assert respond(next_fetch, at(2), 3).step is FetchStep.DATA
    assert respond(next_fetch, at(4), 5).step is FetchStep.DATA


def test_damage_counts_again_after_another_leader_had_none() -> None:
    next_fetch = NextFetch(1)
    respond(next_fetch, at(1, 99, 3), 4)
    next_fetch.reset_search()
    assert respond(next_fetch, at(2, 99, 4), 5).step is FetchStep.DATA
    assert respond(next_fetch, b"", 3) == FetchFinding(FetchStep.CORRUPT, next_offset=3)


@pytest.mark.parametrize(
    ("offsets", "used", "behind"),
    [((5, 6, 6, 7), 1, 6), ((5, 6, 3, 7), 2, 7), ((5, 9, -7, 6, 7), 1, 6)],
    ids=str,
)
def test_falling_offset_between_messages_is_corrupt(
    offsets: tuple[int, ...], used: int, behind: int
) -> None:
    """Although no offset is missing: the broker goes on behind it."""
    data = numbered(*offsets)
    next_fetch = NextFetch(5)
    finding = respond(next_fetch, b"".join(data))
    assert finding == FetchFinding(FetchStep.DATA, message_set=b"".join(data[:used]))
    assert next_fetch.offset == behind
    found: list[FetchFinding] = []
    while not found or found[-1].step is not FetchStep.CORRUPT:
        there = next(at for at, one in enumerate(offsets) if one >= next_fetch.offset)
        found.append(respond(next_fetch, b"".join(data[there:])))
    assert found[-1].next_offset is not None
    assert found[-1].next_offset >= next_fetch.offset


def test_repeats_at_the_end_of_the_log_are_no_damage() -> None:
    next_fetch = NextFetch(5)
    data = numbered(5, 6)
    assert respond(next_fetch, b"".join(data + data), 7).step is FetchStep.DATA
    assert not next_fetch.meets_damage
    assert respond(next_fetch, b"", 7).step is FetchStep.END


def test_falling_offset_below_the_watermark_is_not_hidden_by_one_above() -> None:
    """The messages that were written while the broker read are no reason to look away."""
    data = numbered(5, 5, 9)
    next_fetch = NextFetch(5)
    assert respond(next_fetch, b"".join(data), 6) == FetchFinding(
        FetchStep.DATA, message_set=data[0]
    )
    assert respond(next_fetch, b"", 6) == FetchFinding(FetchStep.CORRUPT, next_offset=6)


def test_offset_above_the_watermark_in_front_of_the_next_is_corrupt() -> None:
    """Nothing is missing behind it, but it was seen, and isn't returned."""
    first, wild, *others = numbered(5, WILD, 6, 7)
    next_fetch = NextFetch(5)
    respond(next_fetch, b"".join([first, wild, *others]), 8)
    assert next_fetch.offset == 6
    findings = [respond(next_fetch, b"".join([wild, *others]), 8) for _ in range(2)]
    assert findings[-1] == FetchFinding(FetchStep.CORRUPT, next_offset=6)


def test_messages_written_while_the_broker_read_are_no_damage() -> None:
    next_fetch = NextFetch(5)
    assert respond(next_fetch, at(5, 6, 7), 6).step is FetchStep.DATA
    assert not next_fetch.meets_damage
    assert respond(next_fetch, b"", 6).step is FetchStep.END


def test_damaged_size_at_the_end_of_the_log_is_corrupt() -> None:
    next_fetch = NextFetch(5)
    assert respond(next_fetch, at(5) + bytes(40), 6).step is FetchStep.DATA
    assert respond(next_fetch, b"", 6) == FetchFinding(FetchStep.CORRUPT)


def test_seek_behind_a_falling_offset_reads_on() -> None:
    next_fetch = NextFetch(8)
    for end in (10, 13):
        finding = respond(next_fetch, at(15, *range(8, end)))
        assert finding.message_set is not None
        assert bytes(finding.message_set) == at(*range(8, end))
        assert next_fetch.offset == end


def test_empty_response_at_the_watermark_is_the_end() -> None:
    next_fetch = NextFetch(5)
    for _ in range(10):
        assert respond(next_fetch, b"", 5).step is FetchStep.END
    assert (next_fetch.offset, next_fetch.size_bytes) == (5, 0)


def test_partial_message_sets_the_next_size() -> None:
    next_fetch = NextFetch(5)
    assert respond(next_fetch, message(5, 100_000)[:BASE]).step is FetchStep.RETRY
    assert next_fetch.size_bytes == len(message(5, 100_000))
    assert next_fetch.offset == 5


def test_partial_message_at_least_doubles_the_size() -> None:
    next_fetch = NextFetch(5)
    assert respond(next_fetch, message(5, BASE)[:BASE]).step is FetchStep.RETRY
    assert next_fetch.size_bytes == 2 * BASE


def test_partial_message_after_old_ones_adds_their_size() -> None:
    next_fetch = NextFetch(5)
    old = message(4, 500)
    assert respond(next_fetch, (old + message(9, 5000))[:BASE]).step is FetchStep.RETRY
    assert next_fetch.size_bytes == len(old + message(9, 5000))


def test_message_above_the_limit_is_too_large() -> None:
    next_fetch = NextFetch(5)
    large = message(5, LIMIT)
    assert respond(next_fetch, large[:BASE]) == FetchFinding(FetchStep.TOO_LARGE, len(large))
    assert next_fetch.offset == 5


@pytest.mark.parametrize("hidden", [message(5, 1000)[:11], b""])
def test_empty_response_is_retried_and_then_grows(hidden: bytes) -> None:
    """The watermark may have moved between read and response: no reason to grow yet."""
    next_fetch = NextFetch(5)
    assert respond(next_fetch, hidden).step is FetchStep.RETRY
    assert next_fetch.size_bytes == 0
    requested = BASE
    while requested < LIMIT:
        assert respond(next_fetch, hidden, requested=requested).step is FetchStep.RETRY
        assert next_fetch.size_bytes == min(2 * requested, LIMIT)
        requested = next_fetch.size_bytes
    assert not next_fetch.alone
    assert respond(next_fetch, hidden, requested=requested).step is FetchStep.RETRY_ALONE
    assert next_fetch.alone
    for expected in [FetchStep.RETRY_ALONE] * (EARLY_RESPONSES - 1) + [FetchStep.TOO_LARGE]:
        finding = respond(next_fetch, hidden, requested=requested, waited=False)
        assert finding == FetchFinding(expected, None)
    assert next_fetch.offset == 5


def test_one_early_response_is_no_proof_of_a_large_message() -> None:
    next_fetch = _at_the_limit()
    for _ in range(2):
        assert respond(next_fetch, b"", requested=LIMIT, waited=False).step is FetchStep.RETRY_ALONE
        assert respond(next_fetch, b"", requested=LIMIT, waited=True).step is FetchStep.RETRY_ALONE
    assert respond(next_fetch, message(7), requested=LIMIT, waited=False).step is FetchStep.DATA
    assert next_fetch.offset == 8


@pytest.mark.parametrize("second", [9, 7])
def test_old_broker_proves_a_hole_without_waits(second: int) -> None:
    """It shows a part of any message: what was below the watermark before isn't there."""
    next_fetch = NextFetch(5)
    for high_watermark in (8, second):
        finding = next_fetch.apply_response(
            b"",
            high_watermark,
            requested_bytes=BASE,
            limit_bytes=LIMIT,
            waited=None,
            hides_large=False,
        )
        assert finding.step is FetchStep.RETRY
        assert not next_fetch.alone
    assert (next_fetch.offset, next_fetch.size_bytes) == (min(second, 8), 0)


def _at_the_limit() -> NextFetch:
    next_fetch = NextFetch(5)
    respond(next_fetch, b"")
    assert respond(next_fetch, b"", requested=LIMIT).step is FetchStep.RETRY_ALONE
    return next_fetch


def test_empty_end_is_passed_after_several_waits() -> None:
    next_fetch = _at_the_limit()
    for _ in range(EMPTY_WAITS - 1):
        assert respond(next_fetch, b"", requested=LIMIT, waited=True).step is FetchStep.RETRY_ALONE
        assert next_fetch.offset == 5
    assert respond(next_fetch, b"", requested=LIMIT, waited=True).step is FetchStep.RETRY
    assert next_fetch.offset == 100
    assert not next_fetch.alone


def test_empty_end_is_passed_up_to_the_lowest_watermark() -> None:
    next_fetch = _at_the_limit()
    for high_watermark in (40, 30, 50):
        respond(next_fetch, b"", high_watermark, requested=LIMIT, waited=True)
    assert next_fetch.offset == 30


def test_one_slow_response_does_not_hide_a_large_message() -> None:
    next_fetch = _at_the_limit()
    assert respond(next_fetch, b"", requested=LIMIT, waited=True).step is FetchStep.RETRY_ALONE
    assert respond(next_fetch, b"", requested=LIMIT, waited=False).step is FetchStep.RETRY_ALONE
    assert respond(next_fetch, b"", requested=LIMIT, waited=False).step is FetchStep.TOO_LARGE
    assert next_fetch.offset == 5


def test_filler_passes_one_offset() -> None:
    next_fetch = NextFetch(5)
    for offset in range(6, 20):
        assert respond(next_fetch, FILLER, 20).step is FetchStep.RETRY
        assert next_fetch.offset == offset
    assert next_fetch.size_bytes == 0


@pytest.mark.parametrize(("size", "step"), [(9, FetchStep.RETRY), (8, FetchStep.CORRUPT)])
def test_filler_has_a_size_that_exceeds_the_rest(size: int, step: FetchStep) -> None:
    rest = struct.pack(">qi", -1, size) + bytes(8)
    assert respond(NextFetch(5), message(3, 10) + rest).step is step


def test_old_messages_alone_pass_one_offset() -> None:
    next_fetch = NextFetch(5)
    assert respond(next_fetch, message(3) + message(4)).step is FetchStep.RETRY
    assert next_fetch.offset == 6


def test_old_messages_filling_the_response_grow_the_size() -> None:
    next_fetch = NextFetch(5)
    old = message(4, BASE - 26)
    assert len(old) == BASE
    assert respond(next_fetch, old).step is FetchStep.RETRY
    assert (next_fetch.offset, next_fetch.size_bytes) == (5, 2 * BASE)


@pytest.mark.parametrize("size", [0, 13, -1])
def test_impossible_size_is_corrupt(size: int) -> None:
    broken = (5).to_bytes(8, "big") + size.to_bytes(4, "big", signed=True) + bytes(30)
    next_fetch = NextFetch(5)
    assert respond(next_fetch, broken).step is FetchStep.CORRUPT
    assert next_fetch.offset == 5
    # Behind whole messages it is found by the next fetch.
    assert respond(next_fetch, message(5) + broken).step is FetchStep.DATA
    assert next_fetch.offset == 6


def wrapper(*offsets: int, at: int | None = None) -> bytes:
    inside = compress(Codec.GZIP, b"".join(message(offset) for offset in offsets))
    return encode_entry(offsets[-1] if at is None else at, None, inside, attributes=Codec.GZIP)


@pytest.mark.parametrize(
    ("behind", "next_offset"),
    [
        (message(8) + message(9), 8),
        (wrapper(8, 9), 8),
        (message(WILD) + message(9), 9),
        (message(9)[:20], None),
        (wrapper(8, 9)[:-1] + b"?", 9),  # its own matter, when it is read
        (b"", None),
    ],
)
@pytest.mark.parametrize("wild", [message(WILD), wrapper(7, at=WILD)])
def test_offset_above_the_watermark_is_retried_then_corrupt(
    wild: bytes, behind: bytes, next_offset: int | None
) -> None:
    next_fetch = NextFetch(5)
    before = message(5) + message(6)
    assert respond(next_fetch, before + wild + behind, 10) == FetchFinding(
        FetchStep.DATA, message_set=before
    )
    assert next_fetch.offset == 7
    for _ in range(2):  # each time it is reached
        assert respond(next_fetch, wild + behind, 10).step is FetchStep.RETRY
        assert respond(next_fetch, wild + behind, 10) == FetchFinding(
            FetchStep.CORRUPT, next_offset=next_offset
        )
    assert (next_fetch.offset, next_fetch.size_bytes) == (7, 0)


@pytest.mark.parametrize("behind", [message(8) + message(9), wrapper(8, 9), wrapper(7, 8, 9)])
def test_seek_past_an_impossible_offset_continues(behind: bytes) -> None:
    """The first entry with an offset of at least 8 is the damaged one again."""
    next_fetch = NextFetch(8)
    assert respond(next_fetch, message(WILD) + behind, 10) == FetchFinding(
        FetchStep.DATA, message_set=behind
    )
    assert next_fetch.offset == 10


def test_messages_above_the_watermark_are_left_for_later() -> None:
    """Brokers from 2.4 on return the watermark from before the read (docs/brokers.md 7.14)."""
    next_fetch = NextFetch(5)
    there, new = message(5) + message(6), message(7) + message(8)
    assert respond(next_fetch, there + new, 7) == FetchFinding(FetchStep.DATA, message_set=there)
    assert respond(next_fetch, new, 7).step is FetchStep.RETRY
    assert respond(next_fetch, new + message(9), 9) == FetchFinding(FetchStep.DATA, message_set=new)
    assert respond(next_fetch, message(9), 9).step is FetchStep.RETRY  # retried anew
    assert respond(next_fetch, message(9), 10).step is FetchStep.DATA
    assert next_fetch.offset == 10


def test_without_watermark_only_the_last_offset_is_corrupt() -> None:
    next_fetch = NextFetch(5)
    assert respond(next_fetch, message(2**63 - 1), -1).step is FetchStep.CORRUPT
    assert respond(next_fetch, message(2**63 - 2), -1).step is FetchStep.DATA
    assert next_fetch.offset == 2**63 - 1


def test_unused_size_shrinks_in_halves() -> None:
    next_fetch = NextFetch(5)
    respond(next_fetch, message(5, 100_000)[:BASE])
    large = next_fetch.size_bytes
    respond(next_fetch, message(5, 100_000), requested=large)
    assert next_fetch.size_bytes == large  # the next one may be as large
    sizes = []
    for offset in range(6, 10):
        respond(next_fetch, message(offset), requested=next_fetch.size_bytes)
        sizes.append(next_fetch.size_bytes)
    assert sizes == [large // 2, large // 4, large // 8, large // 16]


@pytest.mark.parametrize(("more", "shrinks"), [(0, True), (1, False)])
def test_size_shrinks_if_half_of_it_would_do(more: int, shrinks: bool) -> None:
    next_fetch = NextFetch(5)
    respond(next_fetch, message(5, 100_000)[:BASE])
    large = next_fetch.size_bytes
    overhead = large - 100_000
    respond(next_fetch, message(5, large // 2 - overhead + more), requested=large)
    assert next_fetch.size_bytes == (large // 2 if shrinks else large)


# --- whole logs ---------------------------------------------------------------------------------


@st.composite
def logs(draw: st.DrawFn) -> ModelLog:
    modern = draw(st.booleans())
    batches: list[Batch] = []
    offset = draw(st.integers(0, 5))
    for _ in range(draw(st.integers(0, 12))):
        if draw(st.integers(0, 3)) == 0:
            offset += draw(st.integers(1, 9))  # compacted away
        last = offset + draw(st.integers(0, 4))
        has_record = not modern or draw(st.booleans())
        size = draw(st.sampled_from([0, 1, 30, 200, 300, 3000, 20_000]))
        batches.append(Batch(offset, last, size, has_record))
        offset = last + 1
    return ModelLog(batches, offset + draw(st.integers(0, 6)), modern)


@given(logs(), st.integers(0, 20), st.sampled_from([64, 256, 4096]), st.sampled_from([256, 8192]))
def test_random_logs_are_read_to_the_end_without_gaps(
    log: ModelLog, start: int, base: int, limit: int
) -> None:
    start, limit = min(start, log.end), max(base, limit)
    next_fetch, seen = NextFetch(start), []
    # Each offset may cost a growth to the limit, and the responses that decide.
    most = limit.bit_length() + EMPTY_WAITS + EARLY_RESPONSES + 4
    for _ in range((log.end - start + 1) * most):
        offset = next_fetch.offset
        requested = max(base, next_fetch.size_bytes)
        assert requested <= limit
        fetched = log.fetch(offset, requested)
        finding = next_fetch.apply_response(
            fetched.message_set,
            fetched.high_watermark,
            requested_bytes=requested,
            limit_bytes=limit,
            waited=fetched.waited if next_fetch.alone else None,
            hides_large=log.modern,
        )
        assert next_fetch.offset >= offset
        if finding.step is FetchStep.TOO_LARGE:
            stuck = next(b for b in log.batches if b.last >= offset and b.has_record)
            assert len(stuck.entry) > limit
            assert finding.message_bytes in (None, len(stuck.entry))
            next_fetch = NextFetch(stuck.last + 1)  # as a user does to skip it
            seen.append(stuck.last)
        elif finding.step is FetchStep.DATA:
            at, data = offset, fetched.message_set
            end = summarize_set(data).whole_bytes
            pos = 0
            while pos < end:
                one = int.from_bytes(data[pos : pos + 8], "big", signed=True)
                if one >= at:
                    seen.append(one)
                    at = one + 1
                pos += 12 + int.from_bytes(data[pos + 8 : pos + 12], "big")
        elif finding.step is FetchStep.END:
            assert next_fetch.offset == log.end
            break
    else:
        raise AssertionError(f"no end: {next_fetch} in {log}")
    assert seen == [b.last for b in log.batches if b.has_record and b.last >= start]
