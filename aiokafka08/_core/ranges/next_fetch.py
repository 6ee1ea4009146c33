"""Decide where the next fetch of one partition begins and how many bytes it requests.

Pure, and the only place of this algorithm: `cursor` (the consumer) and `range_reader` (bounded
reads) each own a `NextFetch` per partition and pass every fetch response to `apply_response`.

A response may bring no whole message at or after the fetch offset, although the high watermark is
above it. What it does bring shows the reason (observed on real brokers, docs/brokers.md 7.1, 7.8,
7.11, 11.3):

- A partial message with its header. Grow the fetch size, at least to the size that the header
  states; above the limit the message is too large.
- Only messages from before the offset, or only a filler: an entry with offset -1 and a size that
  exceeds the rest, with which brokers from 0.11 on end a set. If messages came and they take the
  whole fetch size, more may follow: double the size, up to the limit. Otherwise the offset is empty
  (a transaction marker, or removed by compaction): continue at the next offset, one at a time.
- Nothing at all. Fetch once more, since the watermark may have moved between the read and the
  response. Brokers below 0.10 show a part of any message, so a second such response of the same
  leader shows that the log is empty up to the watermark of the first one. A newer broker may hide a
  message that doesn't fit: grow to the limit, then fetch the partition alone, and see how long the
  broker waits. Two responses in a row at once mean that a message is there that doesn't fit: too
  large. Several responses, each after the whole wait, mean that the log is empty up to the
  watermark.

No CRC covers an offset, so offsets are checked against the response's high watermark. One at or
above it is damaged, or was written while the broker read the log (docs/brokers.md 7.14). The
messages before it are used, and the rest is fetched again. If it comes before all usable messages,
they are used only if the first one is at the fetch offset: then nothing is missing. Otherwise fetch
once more; if the next response is like this too, the bytes are corrupt.

Offsets rise, unless an entry repeats an earlier one (docs/brokers.md 7.12). Where one falls, it is
damaged, or the one before. The messages before both are used. The next response has to begin at the
offset after these, or a message is missing there, since a broker finds none by a damaged offset:
the bytes are corrupt.

Invariant: the search ends. Each response grows the size (up to the limit), raises the offset, uses
up one of a fixed number of retries, or ends in an error. An offset is passed over only after a
response has shown that no message is there.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from aiokafka08._core.net.versions import BrokerLine, BrokerVersion
from aiokafka08.errors import (
    BrokerResponseError,
    CorruptRecordException,
    RecordTooLargeError,
    UnsupportedCompressionTypeError,
    UnsupportedVersionError,
    broker_error,
)
from aiokafka08.protocol.message_set import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    MIN_MESSAGE_BYTES,
    MessageSetReader,
    SetSummary,
    corrupt,
    summarize_set,
)
from aiokafka08.protocol.types import Buffer
from aiokafka08.structs import LAST_OFFSET, TopicPartition

EMPTY_WAITS: Final = 3
"""How many responses without any message, each after the whole wait, show that the log is empty up
to the watermark. One isn't enough, since the broker may just have been slow. The requests contain
this partition only."""

EARLY_RESPONSES: Final = 2
"""How many responses in a row without any message, before the wait is over, show that the broker
hides a large message. One isn't enough, since the high watermark may have moved meanwhile."""

FAILED_READ_TRIES: Final = 8
"""How often a broker may fail to read what its log has (error -1), until that counts as damage.
With the usual back-off these are 4 s: a broker may be short of files, or have a slow disk."""

READ_TRIES: Final = 3
"""How often a search for the next offset that can be read tries each of them."""

_OFFSET_SIZE: Final = struct.Struct(">qi")

_REFUSALS: Final = {  # docs/brokers.md 7.17
    UnsupportedVersionError.errno: (
        "the topic refuses to convert its messages for a protocol this old "
        "(message.downconversion.enable=false). Set that to true on the topic"
    ),
    UnsupportedCompressionTypeError.errno: (
        "the topic's messages are compressed with zstd (by its compression.type, or by a "
        "producer), which brokers don't convert for a protocol this old. Set compression.type of "
        "the topic to gzip, snappy or lz4. What is stored already needs a modern client, or a "
        "seek() past it"
    ),
}
"""Why brokers refuse a fetch of one partition for good, and what to set."""


class FetchStep(enum.Enum):
    """What a response means for the partition."""

    DATA = "whole messages came; `offset` is after them"
    END = "the log ends at the offset"
    RETRY = "nothing usable: fetch again at once"
    RETRY_ALONE = "nothing usable: fetch again, with no other partition in the request"
    TOO_LARGE = "the next message is larger than the limit"
    CORRUPT = "the bytes at the offset are no message"


class FetchFinding(NamedTuple):
    """A step with its details."""

    step: FetchStep
    message_bytes: int | None = None
    """TOO_LARGE: the size that the message states, if the response shows it."""
    message_set: Buffer | None = None
    """DATA: the part of the response to use; usually all of it."""
    next_offset: int | None = None
    """CORRUPT: the offset of the next message, if it is known."""


_END: Final = FetchFinding(FetchStep.END)
_RETRY: Final = FetchFinding(FetchStep.RETRY)


class NextFetch:
    """Offset and size of the next fetch of one partition; see the module.

    Attributes:
        offset: the next offset to fetch.
        size_bytes: the size to which the fetch has grown; 0: it hasn't, use the usual size.
        alone: whether the next request must contain this partition only.
        meets_damage: whether the last messages that came were followed by bytes that are no
            message. These stand at `offset`, and the broker may fail to read over them
            (docs/brokers.md 7.19).
    """

    __slots__ = (
        "_damaged_at",
        "_early_responses",
        "_empty_waits",
        "_lowest_watermark",
        "_was_damaged",
        "_was_empty",
        "alone",
        "meets_damage",
        "offset",
        "size_bytes",
    )

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.size_bytes = 0
        self.alone = self.meets_damage = False
        self._was_damaged = False  # no message of the last response could be used
        self._damaged_at = -1  # where an offset has fallen in the last response
        self._was_empty = False  # the last response was empty, with the watermark above
        self._empty_waits = 0
        self._early_responses = 0  # in a row
        self._lowest_watermark = 0  # of the responses since the first empty one

    def __repr__(self) -> str:
        return f"<NextFetch {self.offset} size={self.size_bytes or 'base'} alone={self.alone}>"

    def apply_response(
        self,
        message_set: Buffer,
        high_watermark: int,
        *,
        requested_bytes: int,
        limit_bytes: int,
        waited: bool | None,
        hides_large: bool = True,
    ) -> FetchFinding:
        """Update offset and size from the response to a fetch at `offset`.

        Args:
            message_set: the bytes of the response.
            high_watermark: that of the response.
            requested_bytes: max_bytes of the request.
            limit_bytes: the largest size to grow to.
            waited: whether the broker responded only after the whole wait; None if the request may
                have contained other partitions (it wasn't sent with `alone`).
            hides_large: whether this broker may show nothing at all of a message that doesn't fit.
        """
        summary = summarize_set(message_set)
        if summary.next_offset is not None and summary.next_offset > self.offset:
            if summary.next_offset > high_watermark >= 0:
                return self._use_below_watermark(message_set, high_watermark)
            if summary.next_offset > LAST_OFFSET:
                return FetchFinding(FetchStep.CORRUPT)
            if not summary.rises and (falls := _falls(message_set)):
                return self._use_around_falls(message_set, falls)
            if self._damaged_at == self.offset:
                first = _first_offset(message_set, self.offset)
                if first != self.offset:
                    return FetchFinding(FetchStep.CORRUPT, next_offset=first)
            self.offset = summary.next_offset
            self._shrink(summary.whole_bytes)
            self.reset_search()
            self.meets_damage = _has_damaged_rest(message_set, summary)
            return FetchFinding(FetchStep.DATA, message_set=message_set)
        if high_watermark <= self.offset:
            self.size_bytes = 0
            self.reset_search()
            return _END
        rest_bytes = len(message_set) - summary.whole_bytes
        if summary.tail_size is not None:
            return self._grow_to_partial(summary, requested_bytes, limit_bytes)
        if _has_damaged_rest(message_set, summary):
            return FetchFinding(FetchStep.CORRUPT)
        if not summary.rises and _falls(message_set):
            return self._retry_damaged(None)
        if summary.whole_bytes or rest_bytes >= _OFFSET_SIZE.size:
            if summary.whole_bytes and len(message_set) >= requested_bytes < limit_bytes:
                # The response was cut at the requested size, which may still grow: more messages
                # may follow.
                self.size_bytes = min(2 * requested_bytes, limit_bytes)
            else:
                self.offset += 1
            self.reset_search()
            return _RETRY
        return self._search_empty(high_watermark, requested_bytes, limit_bytes, waited, hides_large)

    def _use_below_watermark(self, message_set: Buffer, high_watermark: int) -> FetchFinding:
        """Use the messages before the first offset that is at or above the watermark."""
        start, stop, last, damaged = 0, 0, -1, False
        for pos, end, offset in _whole_entries(message_set):
            if offset < self.offset:
                continue
            if offset < high_watermark:
                if last < 0:
                    start = pos
                stop, last = end, max(last, offset)
            elif last < 0:
                damaged = True
            else:
                break
        usable = message_set[start:stop]
        first = _first_offset(usable, self.offset) if damaged else None
        # Nothing is usable, or messages may be missing where the damaged offset stands.
        if last < 0 or (damaged and first != self.offset):
            return self._retry_damaged(first)
        return self._use(usable, last + 1)

    def _use_around_falls(self, message_set: Buffer, falls: list[int]) -> FetchFinding:
        """Use the messages between two places where offsets fall.

        If the second one falls to an offset above the fetch offset, the messages end where they
        reach that one: a higher offset may be the damaged one. Messages may be missing, unless the
        first one is at the fetch offset.
        """
        entries = list(_whole_entries(message_set))
        offsets = {pos: offset for pos, _, offset in entries}
        for begin, fall in zip([0, *falls], [*falls, None], strict=True):
            end = len(message_set) if fall is None else fall
            if fall is not None and offsets[fall] > self.offset:
                end = next(pos for pos in offsets if pos >= begin and offsets[pos] >= offsets[fall])
            usable = message_set[begin:end]
            next_offset = summarize_set(usable).next_offset
            if next_offset is None or next_offset <= self.offset:
                continue
            may_have_gap = not begin and end != falls[0] and self._damaged_at != self.offset
            if may_have_gap or _first_offset(usable, self.offset) == self.offset:
                finding = self._use(usable, next_offset)
                self._damaged_at = -1 if fall is None else next_offset
                return finding
        later = (offset for offset in offsets.values() if offset > self.offset)
        return self._retry_damaged(min(later, default=None))

    def _use(self, usable: Buffer, next_offset: int) -> FetchFinding:
        """Use a part of a response."""
        self.offset = next_offset
        self._shrink(len(usable))
        self.reset_search()
        self.meets_damage = _has_damaged_rest(usable, summarize_set(usable))
        return FetchFinding(FetchStep.DATA, message_set=usable)

    def _retry_damaged(self, next_offset: int | None) -> FetchFinding:
        """Fetch once more; if that is in vain too, the bytes are corrupt."""
        self._was_damaged = not self._was_damaged
        if self._was_damaged:
            return _RETRY
        return FetchFinding(FetchStep.CORRUPT, next_offset=next_offset)

    def _grow_to_partial(
        self, summary: SetSummary, requested_bytes: int, limit_bytes: int
    ) -> FetchFinding:
        """Grow to the size that a partial message states."""
        assert summary.tail_size is not None
        needed = summary.whole_bytes + summary.tail_size
        if needed > limit_bytes or requested_bytes >= limit_bytes:
            return FetchFinding(FetchStep.TOO_LARGE, summary.tail_size)
        self.size_bytes = min(max(2 * requested_bytes, needed), limit_bytes)
        return _RETRY

    def _search_empty(
        self,
        high_watermark: int,
        requested_bytes: int,
        limit_bytes: int,
        waited: bool | None,
        hides_large: bool,
    ) -> FetchFinding:
        """Find out why a response has nothing although the watermark is above the offset."""
        if not self._was_empty:
            self._was_empty = True
            self._lowest_watermark = high_watermark
            return _RETRY
        self._lowest_watermark = min(self._lowest_watermark, high_watermark)
        if not hides_large:
            return self._pass_hole()
        if requested_bytes < limit_bytes:
            self.size_bytes = min(2 * requested_bytes, limit_bytes)
            return _RETRY
        if waited is None:
            self.alone = True
            return FetchFinding(FetchStep.RETRY_ALONE)
        if not waited:
            self._early_responses += 1
            if self._early_responses < EARLY_RESPONSES:
                return FetchFinding(FetchStep.RETRY_ALONE)
            self._early_responses = 0
            self.alone = False
            return FetchFinding(FetchStep.TOO_LARGE)
        self._early_responses = 0
        self._empty_waits += 1
        if self._empty_waits < EMPTY_WAITS:
            return FetchFinding(FetchStep.RETRY_ALONE)
        return self._pass_hole()

    def _pass_hole(self) -> FetchFinding:
        """Continue at the lowest watermark since the first empty response."""
        self.offset = self._lowest_watermark
        self.size_bytes = 0
        self.reset_search()
        return _RETRY

    def _shrink(self, used_bytes: int) -> None:
        """Halve the size when half of it would do. Halving, in place of a reset, saves a topic of
        large messages from growing anew for each message."""
        if used_bytes * 2 <= self.size_bytes:
            self.size_bytes //= 2

    def reset_search(self) -> None:
        """Forget what the last responses have shown: call this when another broker leads."""
        self.alone = self.meets_damage = self._was_empty = self._was_damaged = False
        self._damaged_at = -1
        self._empty_waits = self._early_responses = 0


def may_hide_large(version: BrokerVersion | None) -> bool:
    """Whether such a broker may show nothing of a message that doesn't fit the fetch size.

    Brokers from 0.11 on do. `BrokerLine` doesn't distinguish them from 0.10, so the result is True
    for 0.10 too. It is also True for an unknown version (None).
    """
    return version is None or version.line >= BrokerLine.V0_10


def fetch_error(topic_partition: TopicPartition, offset: int, code: int) -> BrokerResponseError:
    """Return the error for the error code of a partition in a fetch response."""
    where = f"fetch of {topic_partition.topic}/{topic_partition.partition} at offset {offset}"
    error = broker_error(code, where)
    refusal = _REFUSALS.get(code)
    return error if refusal is None else type(error)(f"{where}: {refusal}")


def too_large(
    topic_partition: TopicPartition, offset: int, message_bytes: int | None, limit_bytes: int
) -> RecordTooLargeError:
    """Return the error for `FetchStep.TOO_LARGE`."""
    topic, partition = topic_partition
    size = (
        f"takes {message_bytes} bytes"
        if message_bytes is not None
        else "has a size that the broker doesn't show"  # docs/brokers.md 7.11
    )
    return RecordTooLargeError(
        f"topic {topic!r}, partition {partition}: the message (or compressed set) at offset "
        f"{offset} {size}; at most {limit_bytes} bytes are fetched at once. Raise "
        "fetch_max_bytes, or seek() past it",
        topic_partition,
        offset,
    )


def not_a_message(
    topic_partition: TopicPartition, offset: int, next_offset: int | None
) -> CorruptRecordException:
    """Return the error for `FetchStep.CORRUPT`."""
    return corrupt(topic_partition, offset, next_offset, "its offset or size field is impossible")


def unreadable(
    topic_partition: TopicPartition,
    offset: int,
    *,
    is_damaged: bool = False,
    next_offset: int | None = None,
) -> CorruptRecordException:
    """Return the error for error -1 of a broker, again and again, at an offset that the log has.

    Args:
        topic_partition: the partition.
        offset: the offset.
        is_damaged: whether damage was met there (default False).
        next_offset: the next offset that the broker can read; None if it isn't known (default).
    """
    why = (
        "it is damaged, and the broker fails to read it too (error -1)"
        if is_damaged
        else "the broker fails to read there (error -1; its log says why): the log may be damaged "
        "there, or in front of it"
    )
    return corrupt(topic_partition, offset, next_offset, why)


def _whole_entries(message_set: Buffer) -> Iterator[tuple[int, int, int]]:
    """Yield start, end and offset of each whole entry; stop where `summarize_set` does."""
    pos = 0
    while len(message_set) - pos >= _OFFSET_SIZE.size:
        offset, size = _OFFSET_SIZE.unpack_from(message_set, pos)
        end = pos + _OFFSET_SIZE.size + size
        if end > len(message_set) or size < MIN_MESSAGE_BYTES[0]:
            return
        yield pos, end, offset
        pos = end


def _falls(message_set: Buffer) -> list[int]:
    """Return the positions of the whole entries whose offsets aren't above the one before.

    An entry that repeats an earlier one doesn't count.
    """
    falls: list[int] = []
    seen: dict[int, bytes] = {}
    highest = -1
    for pos, end, offset in _whole_entries(message_set):
        if offset > highest:
            highest = offset
        elif seen.get(offset) != message_set[pos:end]:
            falls.append(pos)
            highest = offset
        seen[offset] = bytes(message_set[pos:end])
    return falls


def _first_offset(message_set: Buffer, fetch_offset: int) -> int | None:
    """Return the first offset from `fetch_offset` on, also inside a compressed set."""
    reader = MessageSetReader(
        TopicPartition("", 0),
        message_set,
        fetch_offset,
        max_decompressed_bytes=DEFAULT_MAX_DECOMPRESSED_BYTES,
    )
    try:
        return next((record.offset for record in reader.read(1)), None)
    except CorruptRecordException as error:
        return error.offset  # raised again when the record is read


def _has_damaged_rest(message_set: Buffer, summary: SetSummary) -> bool:
    """Whether what follows the whole entries is neither a cut-off message nor a filler."""
    at = summary.whole_bytes
    return (
        summary.tail_size is None
        and len(message_set) - at >= _OFFSET_SIZE.size
        and not _is_filler(message_set, at)
    )


def _is_filler(message_set: Buffer, at: int) -> bool:
    """Whether the entry is a filler: offset -1 and a size that exceeds the rest (brokers from 0.11
    on end a set with it)."""
    offset, size = _OFFSET_SIZE.unpack_from(message_set, at)
    return bool(offset < 0 and size > len(message_set) - at - _OFFSET_SIZE.size)
