"""The state of one assigned partition: position, next fetch, back-off, and the error to raise.
Pure.

Invariant: a response is applied only if its fetch is still `in_flight`, and only once. `seek()`,
`restart()` and `change_leader()` supersede the fetch in flight: its response is dropped, but its
bytes count (`superseded_bytes`) until it has come. So each fetch that was begun must end in one
call of `apply_response` or `abandon_fetch`. An error never moves the position.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, NamedTuple

from aiokafka08._core.net.backoff import Backoff
from aiokafka08._core.ranges.next_fetch import (
    FAILED_READ_TRIES,
    FetchStep,
    NextFetch,
    fetch_error,
    not_a_message,
    too_large,
    unreadable,
)
from aiokafka08._wording import partition_name
from aiokafka08.consumer.limits import CONSUMER_LIMITS
from aiokafka08.consumer.record_buffer import Decoding, ReceivedFrame, RecordBuffer
from aiokafka08.errors import (
    Action,
    CorruptRecordException,
    OffsetOutOfRangeError,
    UnknownError,
    action_for,
)
from aiokafka08.protocol.requests.fetch import FetchedPartition
from aiokafka08.structs import TopicPartition

MAX_GROWTH: Final = 16
"""The most shares (`fetch_memory`) that one fetch requests. Usually the memory allows fewer."""

SLOW_RESPONSE_S: Final = 0.004
"""If a broker begins to respond earlier than this, larger fetches gain too little."""

_NO_OFFSETS: Final[frozenset[int]] = frozenset()  # shared: a set costs memory in each cursor


class StartPosition(enum.Enum):
    """How `start_offsets` is to find the position of a cursor."""

    STORED = "the committed offset; if there is none, what auto_offset_reset says"
    EARLIEST = "the first message kept"
    LATEST = "after the last message"
    UNCOMMITTED_LATEST = "after the last message, because no offset is committed; reported"
    REFUSED = "the broker refused the position: verify it against the bounds of the log"


class FetchResult(enum.Enum):
    """The reaction to a partition's response; `fetcher` carries it out."""

    STALE = "the fetch doesn't count any more; ignore the response"
    DATA = "messages were buffered"
    EMPTY = "no messages; fetch again"
    RETRY = "fetch again after the back-off"
    DAMAGED = "the first message is damaged or too large; fetch it again after the back-off"
    REFRESH = "refresh the metadata, fetch again after the back-off"
    OFFSET_REFUSED = "the broker refused the offset; it must be verified"
    ERROR = "the cursor has an error to raise"


class ResponseTime(NamedTuple):
    """The time that a response took, in seconds: until its first byte, and from there on."""

    wait_s: float
    transfer_s: float

    @property
    def is_wait_bound(self) -> bool:
        """Whether twice the bytes would take much less than twice the time."""
        return self.wait_s >= max(self.transfer_s, SLOW_RESPONSE_S)

    @property
    def is_transfer_bound(self) -> bool:
        """Whether half of the bytes would take about half of the time."""
        return self.transfer_s > 4 * max(self.wait_s, SLOW_RESPONSE_S)


@dataclass(slots=True)
class ResponseContext:
    """What all partitions of one fetch response have in common."""

    limit_bytes: int  # the limit for the size of a message; a larger one is an error
    # Whether the broker responded only after the whole wait; None if the request may have contained
    # other partitions (it wasn't sent with `alone`). Shows whether the broker hides a large message
    # (`next_fetch`).
    waited: bool | None
    hides_large: bool  # see `NextFetch.apply_response`
    now: float  # loop time
    now_ms: int  # milliseconds since the epoch
    frame: ReceivedFrame | None = None  # the frame that the message sets are views into
    # How long the broker and the network took
    response_time: ResponseTime = ResponseTime(0.0, 0.0)  # noqa: RUF009 - it is immutable


@dataclass(slots=True, eq=False)
class PartitionFetch:
    """One partition's part of a fetch request."""

    cursor: Cursor
    offset: int
    max_bytes: int
    alone: bool
    # Whether the log was known to have messages at the offset, so that the broker didn't wait for
    # any
    behind: bool


@dataclass(slots=True, eq=False)
class TakenRecords:
    """Messages that a call has taken and not returned yet."""

    position: int  # the position before them


class Cursor:
    """One assigned partition; see the module."""

    __slots__ = (
        "_backoff",
        "_damaged_offsets",
        "_max_tries",
        "_raised",
        "_readable_to",
        "_tries",
        "borrowed_bytes",
        "buffer",
        "error",
        "growth",
        "high_watermark",
        "in_flight",
        "next_fetch",
        "not_before",
        "part_bytes",
        "paused",
        "polled_at_ms",
        "revoked",
        "start",
        "superseded_bytes",
        "topic_partition",
        "unreturned",
        "urgent",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        decoding: Decoding,
        backoff: tuple[float, float],
        max_tries: int = CONSUMER_LIMITS.max_tries,
    ) -> None:
        self.topic_partition = topic_partition
        # The fetched sets and decoded records
        self.buffer = RecordBuffer(topic_partition, decoding)
        # Where the next fetch begins and how large it is; a seek replaces the object
        self.next_fetch = NextFetch(0)
        # How to find the position; None once it is known
        self.start: StartPosition | None = StartPosition.STORED
        self.paused = False  # the user has paused the partition; what is buffered stays
        # Messages that calls have taken and not returned yet; empty after the position was moved
        self.unreturned: tuple[TakenRecords, ...] = ()
        # The partition is being revoked; its messages aren't returned any more
        self.revoked = False
        # Raised by the next call if it is new (`is_new`), else by the next call without messages
        self.error: Exception | None = None
        self.high_watermark = -1  # the one in the last response; -1: not known yet
        # When that response came, in milliseconds since the epoch; None: none has come
        self.polled_at_ms: int | None = None
        self.not_before = 0.0  # loop time at which the back-off ends
        self.in_flight: PartitionFetch | None = None  # the fetch that counts, or None
        # Bytes that the superseded fetches may still bring
        self.superseded_bytes = 0
        self.growth = 1  # how many shares of the memory a fetch requests (`fetch_memory`)
        # Whether to fetch the partition now, beside a long poll that is in flight without it,
        # because the log may have messages for it. Set when the partition is assigned, resumed or
        # moved by `seek()`, and after an error, a change of leader or a wait for memory. Cleared
        # once it has caught up with the log, or joined a long poll.
        self.urgent = False
        # Bytes that `fetch_memory` has granted beyond the partition's share, for a larger message
        self.borrowed_bytes = 0
        # The partition's part of the memory when its last fetch began (`fetch_memory`)
        self.part_bytes = 0
        self._damaged_offsets = _NO_OFFSETS  # offsets at which a fetch was damaged
        # The type of the last raised error, and `_place` at that time. `_place` also counts the
        # returned messages, because a message may have the offset of the damage after it, and then
        # its return doesn't move the position.
        self._raised: tuple[type[Exception], int, int] | None = None
        self._backoff = Backoff(*backoff)
        self._tries = 0
        self._max_tries = max_tries
        self._readable_to = 0  # the high watermark of the last response of this leader

    def __repr__(self) -> str:
        return (
            f"<Cursor {partition_name(self.topic_partition)} position={self.position} "
            f"fetch={self.next_fetch.offset} "
            f"buffered={self.buffer.buffered_bytes}{' paused' if self.paused else ''}>"
        )

    @property
    def position(self) -> int | None:
        """The offset of the next record to return; None if it isn't known yet."""
        if self.start not in (None, StartPosition.REFUSED):
            return None
        return self.buffer.position

    @property
    def lag(self) -> int | None:
        """How many offsets the position is behind the high watermark; None if not known yet."""
        if self.position is None or self.high_watermark < 0:
            return None
        return max(self.high_watermark - self.position, 0)

    @property
    def is_at_end(self) -> bool:
        return self.next_fetch.offset == self.high_watermark

    @property
    def has_output(self) -> bool:
        return self.buffer.pending or self.error is not None

    @property
    def fails_next(self) -> bool:
        """Whether a new error surely or probably comes next, with no message before it."""
        buffer = self.buffer
        if self.error is None and not self._damaged_offsets and not buffer.fails_next:
            return False  # as nearly always
        if not buffer.pending:
            return self.has_new_error
        if buffer.has_records:
            return False
        if buffer.is_damaged:
            return True  # it is fetched again; if that is damaged too, it is an error
        if not buffer.fails_next and buffer.position not in self._damaged_offsets:
            return False
        return self._raised is None or self._raised[1:] != self._place

    @property
    def has_new_error(self) -> bool:
        """Whether `error` is one that no call has raised yet."""
        return self.error is not None and self.is_new(self.error)

    @property
    def requested_bytes(self) -> int:
        """Bytes that responses may still bring, including responses that will be dropped."""
        in_flight = 0 if self.in_flight is None else self.in_flight.max_bytes
        return in_flight + self.superseded_bytes

    # --- position ---------------------------------------------------------------------------------

    def seek(self, offset: int) -> None:
        """Continue at `offset` without the buffer, the error and the back-off."""
        self.rewind(offset)
        self.next_fetch = NextFetch(offset)
        self._damaged_offsets = _NO_OFFSETS
        # An error that comes again is new.
        self._raised = None
        self._reset_backoff()

    def restart(self, start: StartPosition) -> None:
        """Give up the position; `start` tells how to find the next one."""
        self.seek(0)
        self.start = start

    def drop_buffer(self) -> None:
        """Free the buffer, and end iterators over it. The position stays."""
        start, position = self.start, self.position
        self.rewind(position or 0)
        if position is None:
            self.start = start

    def rewind(self, offset: int) -> None:
        """Continue at `offset`, as `seek` does, but keep what is known about errors there."""
        self.start = None
        if self.next_fetch.offset != offset:
            self.next_fetch = NextFetch(offset)
        self.buffer.reset(offset)
        self._supersede_fetch()
        self.error = None

    def put_back(self, offset: int) -> None:
        """Continue at `offset`, as if no call had taken the messages from there on."""
        self.rewind(offset)
        if self._raised is not None and self._raised[1] == offset:
            self._raised = self._raised[0], *self._place

    def resume(self) -> None:
        self.paused = False
        self.urgent = True

    def confirm_position(self) -> None:
        # The refused offset is inside the log.
        self.start = None

    # --- fetching ---------------------------------------------------------------------------------

    @property
    def wants_fetch(self) -> bool:
        """Whether to fetch more, apart from memory and back-off."""
        return (
            self.start is None
            and self.in_flight is None
            # As `has_new_error`, but inlined, because this runs several times a fetch.
            and (self.error is None or not self.is_new(self.error))
            and not self.paused
            and not self.revoked
        )

    def fetch_bytes(self, share_bytes: int) -> int:
        """Return the size of the next fetch: the share, or more for a large message."""
        return max(self.next_fetch.size_bytes, share_bytes)

    def has_room(self, share_bytes: int, room_bytes: int) -> bool:
        """Return whether the buffer has room for the next fetch: `room_bytes` or less is in it."""
        # A superseded fetch may still bring a share, and a fetch larger than the share also borrows
        # memory. In both cases the buffer must be empty.
        if self.superseded_bytes or self.next_fetch.size_bytes > share_bytes:
            return not self.buffer.buffered_bytes
        return self.buffer.buffered_bytes <= room_bytes

    def begin_fetch(self, share_bytes: int) -> PartitionFetch:
        """Return the next fetch; from now on only the response to it counts."""
        next_fetch = self.next_fetch
        self.in_flight = PartitionFetch(
            self,
            next_fetch.offset,
            self.fetch_bytes(share_bytes),
            next_fetch.alone,
            next_fetch.offset < self.high_watermark,
        )
        return self.in_flight

    def abandon_fetch(self, fetch: PartitionFetch) -> bool:
        """Record that no response comes to `fetch`; return whether it still counted."""
        if self.in_flight is not fetch:
            self.superseded_bytes -= fetch.max_bytes
            return False
        self.in_flight = None
        return True

    def apply_response(
        self,
        fetch: PartitionFetch,
        fetched: FetchedPartition,
        context: ResponseContext,
    ) -> FetchResult:
        """Apply the response to `fetch`: buffer its messages, or keep its error."""
        if not self.abandon_fetch(fetch):
            return FetchResult.STALE
        if fetched.error_code:
            return self._apply_error_code(fetched.error_code, context.now)
        self.high_watermark = self._readable_to = fetched.high_watermark
        self.polled_at_ms = context.now_ms
        offset, limit_bytes = fetch.offset, context.limit_bytes
        finding = self.next_fetch.apply_response(
            fetched.message_set,
            fetched.high_watermark,
            requested_bytes=fetch.max_bytes,
            limit_bytes=limit_bytes,
            waited=context.waited,
            hides_large=context.hides_large,
        )
        self.urgent = self.urgent and self.next_fetch.offset < fetched.high_watermark
        if finding.step not in (FetchStep.TOO_LARGE, FetchStep.CORRUPT):
            if self.error is None:  # else decoding may find it again
                self._reset_backoff()
            self.error = None
        if finding.step is FetchStep.END and not self.buffer.pending:
            self._raised = None  # the partition has recovered: an error from now on is new
        if finding.step is FetchStep.DATA:
            assert finding.message_set is not None
            self._adapt_growth(fetch, len(fetched.message_set), context.response_time)
            self.buffer.add_set(finding.message_set, offset, self.next_fetch.offset, context.frame)
            return FetchResult.DATA
        if finding.step is FetchStep.TOO_LARGE:
            error = too_large(self.topic_partition, offset, finding.message_bytes, limit_bytes)
            if finding.message_bytes is None:
                return self.fail(error, context.now)
            return self._fail_if_again(error, offset, context.now)
        if finding.step is FetchStep.CORRUPT:
            damage = not_a_message(self.topic_partition, offset, finding.next_offset)
            if finding.next_offset == offset:  # damage before the offset isn't fetched again
                return self.fail(damage, context.now)
            return self._fail_if_again(damage, offset, context.now)
        if self.next_fetch.offset != offset:
            self.buffer.skip_to(self.next_fetch.offset)
        return FetchResult.EMPTY

    def back_off(self, now: float) -> None:
        """Don't fetch for a while; the delay grows until a fetch succeeds."""
        self.not_before = now + self._backoff.next()
        self.urgent = True

    def change_leader(self) -> None:
        """Supersede the fetch in flight, and drop the back-off and a search of `next_fetch`."""
        # All of these concerned the former leader.
        self._supersede_fetch()
        self.next_fetch.reset_search()
        self.not_before = 0.0
        self._readable_to = 0

    def fail(self, error: Exception, now: float) -> FetchResult:
        """Keep `error` for a call; fetch again after the back-off and the call."""
        self.error = error
        self.back_off(now)
        return FetchResult.ERROR

    def drop_damaged(self, error: CorruptRecordException, now: float) -> FetchResult:
        """Drop the buffer, whose next message is damaged; fetch it again, or fail."""
        self.drop_buffer()
        # Tracebacks refer to the set, and so to the frame in which it came.
        error.__traceback__ = error.__context__ = None
        position = self.buffer.position
        if error.next_offset is not None and error.next_offset <= position:
            # Damage at the end of a wrapper whose messages were all returned: a fetch at the
            # position doesn't bring the wrapper again.
            return self.fail(error, now)
        return self._fail_if_again(error, position, now)

    def is_new(self, error: Exception) -> bool:
        """Return whether the last error that a call raised had another type or place."""
        return self._raised != (type(error), *self._place)

    def note_raised(self, error: Exception) -> None:
        """Record that a call raises `error` now, which isn't new from now on."""
        self._raised = type(error), *self._place

    @property
    def _place(self) -> tuple[int, int]:
        """The position, and how many messages the partition has returned so far."""
        return self.buffer.position, self.buffer.returned_count

    def raise_error(self) -> None:
        """Raise the error, if there is one, and clear it."""
        error, self.error = self.error, None
        if error is not None:
            self.note_raised(error)
            raise error

    def _fail_if_again(self, error: Exception, offset: int, now: float) -> FetchResult:
        """As `fail`, if an earlier fetch of `offset` was damaged too. Else fetch it again."""
        # The bytes may have been damaged on the way.
        if offset in self._damaged_offsets:
            return self.fail(error, now)
        position = self.buffer.position
        later = (damaged for damaged in self._damaged_offsets if damaged >= position)
        self._damaged_offsets = frozenset((offset, *later))
        self.back_off(now)
        return FetchResult.DAMAGED

    def _adapt_growth(
        self, fetch: PartitionFetch, received_bytes: int, response_time: ResponseTime
    ) -> None:
        """Request more per fetch if the user waits for a broker that needs long per request."""
        # On a slow network a larger response would only come later.
        if received_bytes * 2 <= fetch.max_bytes or response_time.is_transfer_bound:
            self.growth = max(self.growth // 2, 1)
        elif (
            received_bytes >= fetch.max_bytes
            # A long poll at the end of the log waits for the next messages, so it says nothing
            # about the broker.
            and fetch.behind
            and response_time.is_wait_bound
            and not self.buffer.buffered_bytes
        ):
            # A broker's search in a log of large plain sets costs the same for any size
            # (docs/brokers.md 7.15), as does a long round trip.
            self.growth = min(2 * self.growth, MAX_GROWTH)

    def _supersede_fetch(self) -> None:
        if self.in_flight is not None:
            self.superseded_bytes += self.in_flight.max_bytes
            self.in_flight = None
        self.urgent = True

    def _reset_backoff(self) -> None:
        if self._tries or self.not_before:
            self._tries = 0
            self.not_before = 0.0
            self._backoff.reset()

    def _apply_error_code(self, code: int, now: float) -> FetchResult:
        offset = self.next_fetch.offset
        error = fetch_error(self.topic_partition, offset, code)
        action = action_for(code)
        self._tries += 1
        if isinstance(error, OffsetOutOfRangeError):
            self.start = StartPosition.REFUSED
            self.back_off(now)
            return FetchResult.OFFSET_REFUSED
        if action is Action.REFRESH:
            self.back_off(now)
            return FetchResult.REFRESH
        is_damaged = self.next_fetch.meets_damage or offset in self._damaged_offsets
        if code != UnknownError.errno:
            max_tries = 1 if action is Action.FINAL else self._max_tries
        elif is_damaged:
            max_tries = 1
        elif offset < self._readable_to:
            max_tries = min(FAILED_READ_TRIES, self._max_tries)
        else:  # a new leader may return UnknownError for a moment (docs/brokers.md 7.10)
            max_tries = self._max_tries
        if self._tries >= max_tries:
            self._tries = 0
            if code == UnknownError.errno:
                error = unreadable(self.topic_partition, offset, is_damaged=is_damaged)
            elif isinstance(error, CorruptRecordException):
                error.partition, error.offset = self.topic_partition, offset
            return self.fail(error, now)
        self.back_off(now)
        return FetchResult.RETRY
