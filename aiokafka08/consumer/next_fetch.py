"""How far and how wide the next fetch of a partition reaches: fetch size, growth, holes.

Pure, and the only place of this algorithm: `cursor` and `range` share it. A fetch may bring nothing
whole though the high watermark is above its offset. The reasons, told apart by what came (observed
on real brokers, docs/brokers.md 7.1, 7.8, 7.11, 11.3):

- a partial message with its header: grow to the size that it states; above the limit: too large;
- a filler and nothing else, or only messages from before the offset: this one offset is empty (a
  transaction marker, or compacted away): go on at the next offset, without skipping any other;
- nothing at all: once more (the watermark may have moved in between), then grow to the limit (only
  brokers from 0.11 on hide what doesn't fit; the older ones show a part), then ask alone. An answer
  at once means that something is there that doesn't fit: too large. Several answers, each only
  after the wait: the log's end is empty up to the watermark.

An offset isn't covered by any CRC. One at or above the answer's high watermark is damaged, or was
stored while the broker read (7.14): what is before it is taken, and it is asked for again. Where it
still stands above the watermark then, it is corrupt.

Law: it ends, since each step grows the size, raises the offset, or is counted; and an offset is
passed over only when an answer has shown that no message is there.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from typing import NamedTuple

from aiokafka08.errors import CorruptRecordException, RecordTooLargeError
from aiokafka08.net.versions import BrokerLine, BrokerVersion
from aiokafka08.protocol.message_set import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    MIN_MESSAGE_BYTES,
    MessageSetReader,
    Survey,
    corrupt,
    survey,
)
from aiokafka08.protocol.types import Buffer
from aiokafka08.structs import TopicPartition

QUIET_ANSWERS = 3
"""How often a fetch alone must wait in vain before the rest of the log counts as empty."""

_LAST_OFFSET = 2**63 - 1

_OFFSET_SIZE = struct.Struct(">qi")


class Step(enum.Enum):
    """What an answer means for the partition."""

    DATA = "whole messages came; `offset` is behind them"
    END = "nothing is there yet"
    AGAIN = "nothing usable: ask again at once"
    ALONE = "nothing usable: ask again, for this partition alone"
    TOO_LARGE = "the next message is larger than the limit"
    CORRUPT = "the bytes at the offset are no message"


class Finding(NamedTuple):
    """A step, and what goes with it."""

    step: Step
    message_bytes: int | None = None
    """The size that a too large message states, if it can be seen."""
    message_set: Buffer | None = None
    """The part of the data that can be believed, mostly all of it."""
    next_offset: int | None = None
    """Where the messages go on behind a corrupt one, if it can be told."""


_END, _AGAIN = Finding(Step.END), Finding(Step.AGAIN)


class NextFetch:
    """Where the next fetch of a partition begins, and how many bytes it asks for.

    Attributes:
        offset: the next offset to fetch.
        size_bytes: what the fetch size has grown to; 0: it hasn't.
        alone: ask for this partition in a request of its own, and tell how long that waited.
    """

    __slots__ = ("_ceiling", "_doubted", "_quiet", "_suspected", "alone", "offset", "size_bytes")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.size_bytes = 0
        self.alone = False
        self._doubted = False
        self._suspected = False
        self._quiet = 0
        self._ceiling = 0

    def __repr__(self) -> str:
        return f"<NextFetch {self.offset} size={self.size_bytes or 'base'} alone={self.alone}>"

    def answered(
        self,
        message_set: Buffer,
        high_watermark: int,
        *,
        asked_bytes: int,
        limit_bytes: int,
        waited: bool | None,
        hides_large: bool = True,
    ) -> Finding:
        """Take in the answer to a fetch at `offset`.

        Args:
            message_set: what came.
            high_watermark: the answer's.
            asked_bytes: the max_bytes of the request.
            limit_bytes: how far the size may grow.
            waited: whether the broker used the whole wait; None where the request wasn't alone.
            hides_large: whether this broker may show nothing at all of a message that doesn't fit.
        """
        found = survey(message_set)
        if found.next_offset is not None and found.next_offset > self.offset:
            if found.next_offset > high_watermark >= 0:
                return self._above(message_set, high_watermark)
            if found.next_offset > _LAST_OFFSET:
                return Finding(Step.CORRUPT)
            self.offset = found.next_offset
            self._shrink(found.whole_bytes)
            self._calm()
            return Finding(Step.DATA, message_set=message_set)
        if high_watermark <= self.offset:
            self.size_bytes = 0
            self._calm()
            return _END
        rest = len(message_set) - found.whole_bytes
        if found.tail_size is not None:
            return self._partial(found, asked_bytes, limit_bytes)
        if rest >= _OFFSET_SIZE.size and not _is_filler(message_set, found.whole_bytes):
            return Finding(Step.CORRUPT)
        if found.whole_bytes or rest >= _OFFSET_SIZE.size:
            if found.whole_bytes and len(message_set) >= asked_bytes < limit_bytes:
                self.size_bytes = min(2 * asked_bytes, limit_bytes)  # more may stand behind it
            else:
                self.offset += 1
            self._calm()
            return _AGAIN
        if not hides_large:
            asked_bytes = limit_bytes  # more bytes would show no more: nothing is there
        return self._nothing(high_watermark, asked_bytes, limit_bytes, waited)

    def _above(self, message_set: Buffer, high_watermark: int) -> Finding:
        """Some offsets are at or above the watermark: take what is before the first of them."""
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
        believed = message_set[start:stop]
        first = _first_offset(believed, self.offset) if damaged else None
        if last < 0 or (damaged and first != self.offset):
            self._doubted = not self._doubted
            return _AGAIN if self._doubted else Finding(Step.CORRUPT, next_offset=first)
        self.offset = last + 1
        self._shrink(stop)
        self._calm()
        return Finding(Step.DATA, message_set=believed)

    def _partial(self, found: Survey, asked_bytes: int, limit_bytes: int) -> Finding:
        assert found.tail_size is not None
        needed = found.whole_bytes + found.tail_size
        if needed > limit_bytes or asked_bytes >= limit_bytes:
            return Finding(Step.TOO_LARGE, found.tail_size)
        self.size_bytes = min(max(2 * asked_bytes, needed), limit_bytes)
        return _AGAIN

    def _nothing(
        self, high_watermark: int, asked_bytes: int, limit_bytes: int, waited: bool | None
    ) -> Finding:
        if not self._suspected:
            self._suspected = True
            return _AGAIN
        if asked_bytes < limit_bytes:
            self.size_bytes = min(2 * asked_bytes, limit_bytes)
            return _AGAIN
        if waited is None:
            self.alone = True
            return Finding(Step.ALONE)
        if not waited:
            self.alone = False
            return Finding(Step.TOO_LARGE)
        # A broker that was slow once doesn't count as one that has waited: several must agree.
        self._ceiling = min(self._ceiling, high_watermark) if self._quiet else high_watermark
        self._quiet += 1
        if self._quiet < QUIET_ANSWERS:
            return Finding(Step.ALONE)
        self.offset = self._ceiling
        self.size_bytes = 0
        self._calm()
        return _AGAIN

    def _shrink(self, used_bytes: int) -> None:
        """Back to the base in halves: a topic of large messages isn't felt out each time."""
        if used_bytes * 2 <= self.size_bytes:
            self.size_bytes //= 2

    def _calm(self) -> None:
        self.alone = self._suspected = self._doubted = False
        self._quiet = 0


def may_hide_large(version: BrokerVersion | None) -> bool:
    """Whether such a broker may show nothing of a message that doesn't fit: those from 0.11 on do,
    which can't be told from 0.10 by what they speak (None: not known yet)."""
    return version is None or version.line >= BrokerLine.V0_10


def too_large(
    topic_partition: TopicPartition, offset: int, message_bytes: int | None, limit_bytes: int
) -> RecordTooLargeError:
    """The error for `Step.TOO_LARGE`."""
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
    """The error for `Step.CORRUPT`."""
    return corrupt(topic_partition, offset, next_offset, "its offset or size field is impossible")


def _whole_entries(message_set: Buffer) -> Iterator[tuple[int, int, int]]:
    """Where each whole entry begins and ends, and its offset; stops as `survey` does."""
    pos = 0
    while len(message_set) - pos >= _OFFSET_SIZE.size:
        offset, size = _OFFSET_SIZE.unpack_from(message_set, pos)
        end = pos + _OFFSET_SIZE.size + size
        if end > len(message_set) or size < MIN_MESSAGE_BYTES[0]:
            return
        yield pos, end, offset
        pos = end


def _first_offset(message_set: Buffer, fetch_offset: int) -> int | None:
    """The first offset that is wanted, also where it stands in a wrapper."""
    reader = MessageSetReader(
        TopicPartition("", 0),
        message_set,
        fetch_offset,
        max_decompressed_bytes=DEFAULT_MAX_DECOMPRESSED_BYTES,
    )
    try:
        return next((record.offset for record in reader.read(1)), None)
    except CorruptRecordException as error:
        return error.offset  # told when it is read


def _is_filler(message_set: Buffer, at: int) -> bool:
    """Modern brokers end a set with offset -1 and a size that exceeds the rest."""
    offset, size = _OFFSET_SIZE.unpack_from(message_set, at)
    return bool(offset < 0 and size > len(message_set) - at - _OFFSET_SIZE.size)
