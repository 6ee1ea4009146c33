"""One partition: where the consumer is in it, and what its last answer means.

Pure: `now` is passed in; decisions are returned as a `FetchResult`, which `fetcher` carries out.
Holds the position and the buffered sets (`record_buffer`), the next fetch (`next_fetch`), pauses,
back-off and the error to raise. Invariant: at most one request for the partition counts. A seek, a
new start or a new leader makes the response in flight stale, and it is dropped. An error never
moves the position.
"""

from __future__ import annotations

import enum
import random
from dataclasses import dataclass

from aiokafka08.consumer.frames import ReceivedFrame
from aiokafka08.consumer.next_fetch import NextFetch, Step, not_a_message, too_large
from aiokafka08.consumer.record_buffer import Decoding, RecordBuffer
from aiokafka08.errors import (
    Action,
    CorruptRecordException,
    OffsetOutOfRangeError,
    action_for,
    broker_error,
)
from aiokafka08.net.backoff import Backoff
from aiokafka08.protocol.api import FetchedPartition
from aiokafka08.structs import TopicPartition

MAX_TRIES = 20
"""Consecutive answers of -1, or of a code that this client doesn't know, before it is told: with
the default back-off some 17 seconds. A new leader may give -1 for a moment (docs/brokers.md 7.10).
"""

_RANDOM = random.Random()


class StartPosition(enum.Enum):
    """How a cursor gets its position; `positions` finds it out."""

    STORED = "at the committed offset, else as auto_offset_reset says"
    EARLIEST = "at the first message kept"
    LATEST = "behind the last message"
    CHECK = "the broker refused the position: see whether it is outside the log"


class FetchResult(enum.Enum):
    """What the answer to a fetch means; `fetcher` acts on it."""

    LATE = "nobody waits for it any more"
    DATA = "messages are buffered"
    QUIET = "no messages; go on"
    RETRY = "try again after the back-off"
    REFRESH = "refresh the metadata, then try again"
    CHECK = "the position needs to be checked"
    ERROR = "the caller has to be told"


@dataclass(slots=True, eq=False)
class PartitionFetch:
    """A partition's part of a fetch request; `extra_bytes` are lent by `shares`."""

    cursor: Cursor
    offset: int
    max_bytes: int
    alone: bool
    extra_bytes: int = 0


class Cursor:
    """The state of one partition; see the module.

    Attributes:
        start: how its position is to be found; None while it has one.
        paused: the user doesn't want its messages now; what is buffered stays.
        revoked: it is being taken away: nothing more of it is handed out.
        error: what the next call has to be told.
        high_watermark: that of the last answer; -1: not known yet.
        polled_at_ms: when that answer came, milliseconds since the epoch.
        not_before: loop time until which it backs off.
        ask: the request that counts.
        extra_bytes: what `shares` has lent for a message larger than the partition's share.
    """

    __slots__ = (
        "_backoff",
        "_tries",
        "ask",
        "buffer",
        "error",
        "extra_bytes",
        "high_watermark",
        "not_before",
        "paused",
        "polled_at_ms",
        "reach",
        "revoked",
        "start",
        "topic_partition",
    )

    def __init__(
        self, topic_partition: TopicPartition, decoding: Decoding, backoff: tuple[float, float]
    ) -> None:
        self.topic_partition = topic_partition
        self.buffer = RecordBuffer(topic_partition, decoding)
        self.reach = NextFetch(0)
        self.start: StartPosition | None = StartPosition.STORED
        self.paused = False
        self.revoked = False
        self.error: Exception | None = None
        self.high_watermark = -1
        self.polled_at_ms: int | None = None
        self.not_before = 0.0
        self.ask: PartitionFetch | None = None
        self.extra_bytes = 0
        self._backoff = Backoff(*backoff, random=_RANDOM)
        self._tries = 0

    def __repr__(self) -> str:
        topic, partition = self.topic_partition
        return (
            f"<Cursor {topic}/{partition} position={self.position} fetch={self.reach.offset} "
            f"buffered={self.buffer.buffered_bytes}{' paused' if self.paused else ''}>"
        )

    @property
    def position(self) -> int | None:
        """The offset of the next message that the user gets; None where it isn't known yet."""
        return None if self.start not in (None, StartPosition.CHECK) else self.buffer.position

    @property
    def lag(self) -> int | None:
        """How many offsets the position is behind the high watermark; None: not known yet."""
        if self.position is None or self.high_watermark < 0:
            return None
        return max(self.high_watermark - self.position, 0)

    @property
    def has_something(self) -> bool:
        """Whether a call can be served: with messages or with an error."""
        return self.buffer.pending or self.error is not None

    # --- position ---------------------------------------------------------------------------------

    def seek(self, offset: int) -> None:
        """Go on at `offset`; drops what is buffered, what is under way and any error."""
        self.start = None
        self.reach = NextFetch(offset)
        self.buffer.reset(offset)
        self.ask = None
        self.error = None
        self._calm()

    def restart(self, start: StartPosition) -> None:
        """Give up the position; it is found anew."""
        self.seek(0)
        self.start = start

    def confirmed(self) -> None:
        """The position that was to be checked is inside the log: fetch there again."""
        self.start = None

    # --- fetching ---------------------------------------------------------------------------------

    def fetch_bytes(self, share_bytes: int) -> int:
        """How much the next fetch asks for where the partition's share is `share_bytes`."""
        return max(self.reach.size_bytes, share_bytes)

    def fetchable(self, room_bytes: int, share_bytes: int) -> bool:
        """Whether to fetch more: it has a position, and at most `room_bytes` are buffered.

        More than its share is asked for only when nothing is buffered.
        """
        if not self.wanted:
            return False
        if self.reach.size_bytes > share_bytes:
            return not self.buffer.buffered_bytes
        return self.buffer.buffered_bytes <= room_bytes

    @property
    def wanted(self) -> bool:
        """Whether more is wanted at all, memory aside."""
        return (
            self.start is None
            and self.ask is None
            and self.error is None
            and not self.paused
            and not self.revoked
        )

    def request(self, share_bytes: int) -> PartitionFetch:
        """The partition's part of the next request; from now on only its answer counts."""
        reach = self.reach
        self.ask = PartitionFetch(
            self, reach.offset, self.fetch_bytes(share_bytes), reach.alone, self.extra_bytes
        )
        return self.ask

    def give_up(self, ask: PartitionFetch) -> bool:
        """No answer came to `ask`; True if it counted."""
        if self.ask is not ask:
            return False
        self.ask = None
        return True

    def answered(
        self,
        ask: PartitionFetch,
        fetched: FetchedPartition,
        *,
        limit_bytes: int,
        waited: bool | None,
        hides_large: bool,
        now: float,
        now_ms: int,
        frame: ReceivedFrame | None = None,
    ) -> FetchResult:
        """Take in the answer to `ask`.

        Args:
            limit_bytes: up to which size a message is fetched.
            waited: whether the broker used the whole wait; None where the request wasn't alone.
            hides_large: see `NextFetch.answered`.
            now: loop time. `now_ms`: milliseconds since the epoch.
            frame: what the answer's message set is a view into.
        """
        if self.ask is not ask:
            return FetchResult.LATE
        self.ask = None
        if fetched.error_code:
            return self._refused(fetched.error_code, now)
        self.high_watermark = fetched.high_watermark
        self.polled_at_ms = now_ms
        self._calm()
        offset = ask.offset
        finding = self.reach.answered(
            fetched.message_set,
            fetched.high_watermark,
            asked_bytes=ask.max_bytes,
            limit_bytes=limit_bytes,
            waited=waited,
            hides_large=hides_large,
        )
        if finding.step is Step.DATA:
            assert finding.message_set is not None
            self.buffer.add(finding.message_set, offset, self.reach.offset, frame)
            return FetchResult.DATA
        if finding.step is Step.TOO_LARGE:
            error = too_large(self.topic_partition, offset, finding.message_bytes, limit_bytes)
            return self.fail(error, now)
        if finding.step is Step.CORRUPT:
            return self.fail(not_a_message(self.topic_partition, offset, finding.next_offset), now)
        if self.reach.offset != offset:
            self.buffer.extend_to(self.reach.offset)
        return FetchResult.QUIET

    def back_off(self, now: float) -> None:
        """Don't ask for a while; longer each time until something works."""
        self.not_before = now + self._backoff.next()

    def moved(self) -> None:
        """Another broker leads now: what is under way doesn't count, and no reason to wait."""
        self.ask = None
        self.not_before = 0.0

    def fail(self, error: Exception, now: float) -> FetchResult:
        """`error` is to be told; the fetch is tried again when it has been."""
        self.error = error
        self.back_off(now)
        return FetchResult.ERROR

    def tell_error(self) -> None:
        """Raise the error, if there is one; fetching goes on then."""
        error, self.error = self.error, None
        if error is not None:
            raise error

    # --- inside -----------------------------------------------------------------------------------

    def _calm(self) -> None:
        if self._tries or self.not_before:
            self._tries = 0
            self.not_before = 0.0
            self._backoff.reset()

    def _refused(self, code: int, now: float) -> FetchResult:
        topic, partition = self.topic_partition
        error = broker_error(code, f"fetch of {topic}/{partition} at offset {self.reach.offset}")
        action = action_for(code)
        self._tries += 1
        if isinstance(error, OffsetOutOfRangeError):
            self.start = StartPosition.CHECK
            self.back_off(now)
            return FetchResult.CHECK
        if action is Action.REFRESH:
            self.back_off(now)
            return FetchResult.REFRESH
        if action is Action.FINAL or self._tries >= MAX_TRIES:
            self._tries = 0
            if isinstance(error, CorruptRecordException):
                error.partition, error.offset = self.topic_partition, self.reach.offset
            return self.fail(error, now)
        self.back_off(now)
        return FetchResult.RETRY
