"""The state of one partition: stale responses, refusals, back-off, errors. No event loop."""

from __future__ import annotations

import pytest

from aiokafka08._core.ranges.next_fetch import FAILED_READ_TRIES
from aiokafka08.consumer.cursor import (
    MAX_GROWTH,
    Cursor,
    FetchResult,
    PartitionFetch,
    ResponseContext,
    ResponseTime,
    StartPosition,
)
from aiokafka08.consumer.limits import CONSUMER_LIMITS
from aiokafka08.consumer.record_buffer import Decoding
from aiokafka08.errors import (
    BrokerResponseError,
    CorruptRecordException,
    RecordTooLargeError,
    TopicAuthorizationFailedError,
    UnknownError,
)
from aiokafka08.protocol.compression import Codec
from aiokafka08.protocol.message_set import encode_entry
from aiokafka08.protocol.requests.fetch import FetchedPartition
from aiokafka08.structs import TopicPartition
from tests.conformance.contract.wire.requests import bad_crc

TP = TopicPartition("t", 3)
SHARE = 1 << 10
LIMIT = 1 << 14


def make(offset: int = 5) -> Cursor:
    cursor = Cursor(TP, Decoding(), (0.1, 1.0))
    cursor.seek(offset)
    return cursor


def data(*offsets: int) -> bytes:
    return b"".join(encode_entry(offset, None, b"v") for offset in offsets)


def respond(
    cursor: Cursor,
    fetch: PartitionFetch,
    message_set: bytes = b"",
    *,
    code: int = 0,
    high_watermark: int = 100,
    now: float = 50.0,
    time: ResponseTime = ResponseTime(0.0, 0.0),  # noqa: B008 - it is immutable
    hides_large: bool = True,
) -> FetchResult:
    return cursor.apply_response(
        fetch,
        FetchedPartition(3, code, -1 if code else high_watermark, message_set),
        ResponseContext(LIMIT, None, hides_large, now, 1234, response_time=time),
    )


def can_fetch(cursor: Cursor, room_bytes: int) -> bool:
    return cursor.wants_fetch and cursor.has_room(SHARE, room_bytes)


def whole(fetch: PartitionFetch) -> bytes:
    """Return a message that takes all bytes that were requested."""
    return encode_entry(fetch.offset, None, bytes(fetch.max_bytes - 26))


def test_new_cursor_fetches_only_with_a_position() -> None:
    cursor = Cursor(TP, Decoding(), (0.1, 1.0))
    assert (cursor.start, cursor.position, cursor.lag) == (StartPosition.STORED, None, None)
    assert not can_fetch(cursor, SHARE)
    cursor.seek(7)
    assert (cursor.position, cursor.lag) == (7, None)
    assert can_fetch(cursor, SHARE)


def test_response_is_buffered_and_next_fetch_follows_it() -> None:
    cursor = make()
    fetch = cursor.begin_fetch(SHARE)
    assert (fetch.offset, fetch.max_bytes, fetch.alone) == (5, SHARE, False)
    assert not can_fetch(cursor, SHARE)
    assert respond(cursor, fetch, data(5, 6, 9)) is FetchResult.DATA
    assert (cursor.position, cursor.high_watermark, cursor.polled_at_ms) == (5, 100, 1234)
    assert cursor.lag == 95
    assert cursor.begin_fetch(SHARE).offset == 10


@pytest.mark.parametrize("change", ["seek", "restart", "moved", "again"])
def test_stale_response_is_dropped(change: str) -> None:
    cursor = make()
    fetch = cursor.begin_fetch(SHARE)
    if change == "seek":
        cursor.seek(50)
    elif change == "restart":
        cursor.restart(StartPosition.EARLIEST)
    elif change == "moved":
        cursor.change_leader()
    else:
        cursor.abandon_fetch(fetch)
        cursor.begin_fetch(SHARE)
    position = cursor.position
    assert respond(cursor, fetch, data(5, 6)) is FetchResult.STALE
    assert respond(cursor, fetch, code=1) is FetchResult.STALE
    assert not cursor.abandon_fetch(fetch)
    assert (cursor.position, cursor.buffer.pending, cursor.not_before) == (position, False, 0.0)


def test_fetch_needs_room_in_the_buffer() -> None:
    cursor = make()
    respond(cursor, cursor.begin_fetch(SHARE), data(5))
    buffered = cursor.buffer.buffered_bytes
    assert can_fetch(cursor, buffered)
    assert not can_fetch(cursor, buffered - 1)
    assert not can_fetch(cursor, 0)


def test_fetch_above_the_share_needs_an_empty_buffer() -> None:
    cursor = make()
    respond(cursor, cursor.begin_fetch(SHARE), data(5))
    large = encode_entry(6, None, bytes(5000))
    assert respond(cursor, cursor.begin_fetch(SHARE), large[:SHARE]) is FetchResult.EMPTY
    assert cursor.fetch_bytes(SHARE) == len(large)
    assert not can_fetch(cursor, 1 << 20)
    cursor.buffer.decode(10)
    assert can_fetch(cursor, 0)


def test_paused_cursor_keeps_its_buffer_without_fetching() -> None:
    cursor = make()
    fetch = cursor.begin_fetch(SHARE)
    cursor.paused = True
    assert respond(cursor, fetch, data(5)) is FetchResult.DATA
    assert cursor.buffer.pending
    assert not can_fetch(cursor, 1 << 20)


def test_hole_needs_proof_from_one_leader() -> None:
    cursor = make()
    respond(cursor, cursor.begin_fetch(SHARE), hides_large=False)
    cursor.change_leader()
    respond(cursor, cursor.begin_fetch(SHARE), hides_large=False)
    assert cursor.position == 5
    respond(cursor, cursor.begin_fetch(SHARE), hides_large=False)
    assert cursor.position == 100


def test_position_passes_a_hole_with_an_empty_buffer() -> None:
    cursor = make()
    filler = b"\xff" * 8 + (61).to_bytes(4, "big")
    assert respond(cursor, cursor.begin_fetch(SHARE), filler) is FetchResult.EMPTY
    assert cursor.position == 6
    respond(cursor, cursor.begin_fetch(SHARE), data(6))
    respond(cursor, cursor.begin_fetch(SHARE), filler)
    assert cursor.position == 6
    assert cursor.next_fetch.offset == 8


@pytest.mark.parametrize("code", [3, 5, 6])
def test_stale_leader_refreshes_metadata_and_backs_off(code: int) -> None:
    cursor = make()
    assert respond(cursor, cursor.begin_fetch(SHARE), code=code) is FetchResult.REFRESH
    assert cursor.position == 5
    assert 50.08 <= cursor.not_before <= 50.12
    cursor.change_leader()  # the refresh has named another leader
    assert cursor.not_before == 0.0


def test_back_off_doubles_and_ends_with_a_good_response() -> None:
    cursor = make()
    delays = []
    for _ in range(6):
        respond(cursor, cursor.begin_fetch(SHARE), code=-1)
        delays.append(cursor.not_before - 50.0)
    for delay, expected in zip(delays, [0.1, 0.2, 0.4, 0.8, 1.0, 1.0], strict=True):
        assert expected * 0.79 <= delay <= expected * 1.21
    respond(cursor, cursor.begin_fetch(SHARE), data(5))
    assert cursor.not_before == 0.0
    respond(cursor, cursor.begin_fetch(SHARE), code=-1)
    assert cursor.not_before - 50.0 < 0.13


@pytest.mark.parametrize("code", [-1, 7, 99])
def test_other_codes_raise_after_max_tries(code: int) -> None:
    cursor = make()
    for _ in range(CONSUMER_LIMITS.max_tries - 1):
        assert respond(cursor, cursor.begin_fetch(SHARE), code=code) is FetchResult.RETRY
    assert respond(cursor, cursor.begin_fetch(SHARE), code=code) is FetchResult.ERROR
    assert not can_fetch(cursor, SHARE)
    with pytest.raises(BrokerResponseError, match=r"t/3|'t', partition 3") as caught:
        cursor.raise_error()
    assert caught.value.errno == (CorruptRecordException.errno if code == -1 else code)
    cursor.raise_error()  # once
    assert can_fetch(cursor, SHARE)
    assert cursor.not_before > 50.0
    assert cursor.position == 5


def test_failed_reads_below_the_watermark_of_the_leader_are_few() -> None:
    """A new leader's watermark may be lower: its failures have to be as many as without one."""
    cursor = make()
    respond(cursor, cursor.begin_fetch(SHARE), data(5))
    cursor.seek(0)
    for _ in range(FAILED_READ_TRIES - 1):
        assert respond(cursor, cursor.begin_fetch(SHARE), code=-1) is FetchResult.RETRY
    assert respond(cursor, cursor.begin_fetch(SHARE), code=-1) is FetchResult.ERROR
    with pytest.raises(CorruptRecordException, match="offset 0: the broker fails to read there"):
        cursor.raise_error()
    cursor.change_leader()
    for _ in range(FAILED_READ_TRIES):
        assert respond(cursor, cursor.begin_fetch(SHARE), code=-1) is FetchResult.RETRY


def test_damage_of_the_former_leader_does_not_explain_an_error_of_the_new_one() -> None:
    """A new leader may return -1 for a moment (docs/brokers.md 7.10)."""
    cursor = make()
    no_message = bytes(40)
    respond(cursor, cursor.begin_fetch(SHARE), data(5) + no_message)
    assert cursor.next_fetch.meets_damage
    cursor.change_leader()
    assert respond(cursor, cursor.begin_fetch(SHARE), code=-1) is FetchResult.RETRY
    assert cursor.error is None


def test_error_is_new_again_after_a_fetch_at_the_end_of_the_log() -> None:
    cursor = make()
    respond(cursor, cursor.begin_fetch(SHARE), code=29)
    with pytest.raises(TopicAuthorizationFailedError):
        cursor.raise_error()
    respond(cursor, cursor.begin_fetch(SHARE), code=29)
    assert not cursor.has_new_error
    respond(cursor, cursor.begin_fetch(SHARE), high_watermark=5)
    respond(cursor, cursor.begin_fetch(SHARE), code=29)
    assert cursor.has_new_error


def test_final_code_raises_at_once() -> None:
    cursor = make()
    assert respond(cursor, cursor.begin_fetch(SHARE), code=29) is FetchResult.ERROR
    with pytest.raises(TopicAuthorizationFailedError):
        cursor.raise_error()


def test_error_that_was_raised_before_keeps_back_no_fetch() -> None:
    """It is new again elsewhere, after a seek, or if it is another one."""
    cursor = make()
    fetch = cursor.begin_fetch(SHARE)
    assert respond(cursor, fetch, code=29) is FetchResult.ERROR
    assert (cursor.fails_next, cursor.wants_fetch) == (True, False)
    with pytest.raises(TopicAuthorizationFailedError):
        cursor.raise_error()
    pauses = []
    for _ in range(3):
        assert respond(cursor, cursor.begin_fetch(SHARE), code=29) is FetchResult.ERROR
        assert (cursor.fails_next, cursor.wants_fetch) == (False, True)
        assert cursor.has_output  # for a call that has nothing else
        pauses.append(cursor.not_before - 50.0)
    assert pauses == sorted(pauses)
    assert respond(cursor, cursor.begin_fetch(SHARE), code=2) is FetchResult.ERROR
    assert (cursor.fails_next, cursor.wants_fetch) == (True, False)
    with pytest.raises(CorruptRecordException):
        cursor.raise_error()
    assert respond(cursor, cursor.begin_fetch(SHARE), data(5)) is FetchResult.DATA
    assert cursor.error is None
    cursor.seek(5)
    assert respond(cursor, cursor.begin_fetch(SHARE), code=2) is FetchResult.ERROR
    assert cursor.fails_next


def test_corrupt_code_of_a_broker_names_the_offset() -> None:
    cursor = make()
    assert respond(cursor, cursor.begin_fetch(SHARE), code=2) is FetchResult.ERROR
    with pytest.raises(CorruptRecordException) as caught:
        cursor.raise_error()
    assert (caught.value.partition, caught.value.offset) == (TP, 5)


def test_bytes_that_are_no_message_raise_from_second_fetch_on() -> None:
    cursor = make()
    broken = (5).to_bytes(8, "big") + bytes(40)
    assert respond(cursor, cursor.begin_fetch(SHARE), broken) is FetchResult.DAMAGED
    assert not cursor.has_output
    for _ in range(2):
        assert respond(cursor, cursor.begin_fetch(SHARE), broken) is FetchResult.ERROR
        with pytest.raises(CorruptRecordException, match="offset 5") as caught:
            cursor.raise_error()
        assert (caught.value.partition, caught.value.offset) == (TP, 5)
    cursor.seek(6)
    assert can_fetch(cursor, SHARE)
    cursor.seek(5)
    assert respond(cursor, cursor.begin_fetch(SHARE), broken) is FetchResult.DAMAGED


def test_damage_that_decoding_finds_drops_the_buffer() -> None:
    """It is an error if the next fetch of the same offset is damaged too."""
    cursor = make()
    for wanted in (FetchResult.DAMAGED, FetchResult.ERROR, FetchResult.ERROR):
        fetch = cursor.begin_fetch(SHARE)
        assert fetch.offset == 5
        assert respond(cursor, fetch, bad_crc(data(5))) is FetchResult.DATA
        assert cursor.begin_fetch(SHARE).offset == 6  # it is superseded
        with pytest.raises(CorruptRecordException) as caught:
            cursor.buffer.decode(10)
        assert cursor.drop_damaged(caught.value, 50.0) is wanted
        assert caught.value.__traceback__ is None, "it would keep the frame"
        assert (cursor.position, cursor.buffer.buffered_bytes) == (5, 0)
        assert cursor.not_before > 50.0
        expected = caught.value if wanted is FetchResult.ERROR else None
        assert cursor.error is expected
        cursor.error = None
    assert respond(cursor, cursor.begin_fetch(SHARE), data(5)) is FetchResult.DATA
    assert cursor.buffer.decode(10)


def test_damage_behind_a_damaged_message_hides_no_error() -> None:
    """The fetch ahead finds its own damage each time before the buffer is decoded."""
    cursor = make()
    broken = (6).to_bytes(8, "big") + bytes(40)
    results = []
    for _ in range(2):
        respond(cursor, cursor.begin_fetch(SHARE), bad_crc(data(5)))
        results.append(respond(cursor, cursor.begin_fetch(SHARE), broken))
        with pytest.raises(CorruptRecordException) as caught:
            cursor.buffer.decode(10)
        results.append(cursor.drop_damaged(caught.value, 50.0))
    assert results == [FetchResult.DAMAGED] * 2 + [FetchResult.ERROR] * 2
    with pytest.raises(CorruptRecordException, match="offset 5"):
        cursor.raise_error()


def test_dropped_buffer_is_no_reason_to_fetch_damage_once_more() -> None:
    """Memory is taken back from partitions that nobody reads."""
    cursor = make()
    for wanted in (FetchResult.DAMAGED, FetchResult.ERROR):
        respond(cursor, cursor.begin_fetch(SHARE), bad_crc(data(5)))
        cursor.drop_buffer()
        respond(cursor, cursor.begin_fetch(SHARE), bad_crc(data(5)))
        with pytest.raises(CorruptRecordException) as caught:
            cursor.buffer.decode(10)
        assert cursor.drop_damaged(caught.value, 50.0) is wanted


def test_error_of_damage_refers_to_no_fetched_bytes() -> None:
    """Not by its traceback, nor by that of the error of the codec."""
    cursor = make()
    unreadable = encode_entry(5, None, bytes(100), attributes=Codec.GZIP)
    for _ in range(2):
        respond(cursor, cursor.begin_fetch(SHARE), unreadable)
        with pytest.raises(CorruptRecordException) as caught:
            cursor.buffer.decode(10)
        cursor.drop_damaged(caught.value, 50.0)
    assert cursor.error is not None
    assert cursor.error.__traceback__ is None
    assert cursor.error.__context__ is None


def test_message_above_the_limit_raises_with_details() -> None:
    cursor = make()
    large = encode_entry(5, None, bytes(LIMIT))
    for wanted in (FetchResult.DAMAGED, FetchResult.ERROR):  # its size may be damaged on the way
        assert respond(cursor, cursor.begin_fetch(SHARE), large[:SHARE]) is wanted
    with pytest.raises(RecordTooLargeError) as caught:
        cursor.raise_error()
    for part in ("'t'", "partition 3", "offset 5", str(len(large)), str(LIMIT), "fetch_max_bytes"):
        assert part in str(caught.value)


def test_refused_offset_keeps_buffer_and_is_verified() -> None:
    cursor = make()
    respond(cursor, cursor.begin_fetch(SHARE), data(5, 6))
    assert respond(cursor, cursor.begin_fetch(SHARE), code=1) is FetchResult.OFFSET_REFUSED
    assert (cursor.start, cursor.position) == (StartPosition.REFUSED, 5)
    assert cursor.buffer.pending
    assert not can_fetch(cursor, 1 << 20)
    cursor.confirm_position()
    assert cursor.begin_fetch(SHARE).offset == 7


def test_seek_clears_error_and_back_off() -> None:
    cursor = make()
    respond(cursor, cursor.begin_fetch(SHARE), code=29)
    cursor.seek(9)
    assert (cursor.error, cursor.not_before, cursor.start) == (None, 0.0, None)
    cursor.raise_error()


def test_failed_cursor_raises_any_exception_once() -> None:
    cursor = make()
    assert cursor.fail(UnknownError("x"), 50.0) is FetchResult.ERROR
    assert cursor.has_output
    with pytest.raises(UnknownError):
        cursor.raise_error()
    assert not cursor.has_output


@pytest.mark.parametrize(
    ("time", "growth"),
    [
        (ResponseTime(0.016, 0.002), 2),
        (ResponseTime(0.002, 0.001), 1),  # nothing to gain
        (ResponseTime(0.016, 0.1), 1),  # a slow network
    ],
)
def test_full_response_of_a_waiting_broker_grows(time: ResponseTime, growth: int) -> None:
    cursor = make()
    cursor.high_watermark = 100
    fetch = cursor.begin_fetch(SHARE)
    assert respond(cursor, fetch, whole(fetch), time=time) is FetchResult.DATA
    assert cursor.growth == growth


def test_burst_that_ends_a_long_poll_does_not_grow_the_fetch() -> None:
    """The broker waited for messages; it wasn't slow."""
    cursor = make()
    respond(cursor, cursor.begin_fetch(SHARE), high_watermark=5)
    assert cursor.is_at_end
    fetch = cursor.begin_fetch(SHARE)
    slow = ResponseTime(0.4, 0.001)
    assert respond(cursor, fetch, whole(fetch), time=slow) is FetchResult.DATA
    assert cursor.growth == 1


def test_growth_needs_a_full_response_and_a_waiting_user() -> None:
    cursor = make()
    slow = ResponseTime(0.016, 0.001)
    respond(cursor, cursor.begin_fetch(SHARE), data(50), time=slow)
    assert cursor.growth == 1
    fetch = cursor.begin_fetch(SHARE)
    respond(cursor, fetch, whole(fetch), time=slow)
    assert cursor.growth == 1, "the user hasn't read what came before"


@pytest.mark.parametrize("is_full", [False, True])
def test_growth_ends_with_its_cause(is_full: bool) -> None:
    cursor = make()
    cursor.growth = MAX_GROWTH
    fetch = cursor.begin_fetch(SHARE)
    message_set = whole(fetch) if is_full else data(50)
    respond(cursor, fetch, message_set, time=ResponseTime(0.001, 0.1 if is_full else 0.001))
    assert cursor.growth == MAX_GROWTH // 2
