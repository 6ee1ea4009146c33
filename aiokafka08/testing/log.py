"""`PartitionLog`: the log of one partition, in memory, as wire bytes in segments. Pure.

Invariants: a read returns stored bytes unchanged and cuts them at `max_bytes`, also within a
message. One read returns bytes of one segment, as real brokers do. `end_offset` decreases only by
`truncate`.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator
from itertools import takewhile
from typing import Final

from aiokafka08.protocol.message_set import LOG_APPEND_TIME, MIN_MESSAGE_BYTES
from aiokafka08.protocol.types import Buffer
from aiokafka08.testing.message_sets import (
    HEADER_BYTES,
    MessageSetRejected,
    ValidatedSet,
    encode_set,
    messages_in,
    timestamp_of,
    walk_entries,
)

# A block has whole sets with the last offset of each, so finding an offset scans at most one set.
_BLOCK_BYTES: Final = 1 << 20
_OFFSET_SIZE: Final = struct.Struct(">qi")
_unpack_offset_size, _pack_offset_size = _OFFSET_SIZE.unpack_from, _OFFSET_SIZE.pack


class DamagedLogError(Exception):
    """A search of the log fails at bytes that are no message."""


class _Block:
    """About 1 MiB of whole message sets."""

    __slots__ = ("data", "lasts", "starts")

    def __init__(self) -> None:
        self.data = bytearray()
        self.lasts: list[int] = []  # the last offset of each set
        self.starts: list[int] = []  # the position of each set in `data`

    @property
    def last_offset(self) -> int:
        return self.lasts[-1]

    def append(self, data: Buffer, last_offset: int) -> None:
        self.starts.append(len(self.data))
        self.lasts.append(last_offset)
        if not self.data and isinstance(data, bytearray):
            self.data = data  # no copy: the caller passes ownership
        else:
            self.data += data

    def sets(self) -> Iterator[tuple[int, bytes]]:
        """Iterate over the last offset and the bytes of each set."""
        data = bytes(self.data)
        ends = [*self.starts[1:], len(data)]
        for last_offset, start, end in zip(self.lasts, self.starts, ends, strict=True):
            yield last_offset, data[start:end]

    def position_of(self, offset: int) -> int:
        """Return the position of the first entry with an offset >= `offset`.

        Raises:
            DamagedLogError: the search meets a size field that is too small for a message.
        """
        at = bisect_left(self.lasts, offset)
        if at == len(self.lasts):
            return len(self.data)
        data, pos = self.data, self.starts[at]
        while len(data) - pos >= HEADER_BYTES:
            entry_offset, size = _unpack_offset_size(data, pos)
            if entry_offset >= offset:
                return pos
            if size < MIN_MESSAGE_BYTES[0]:
                raise DamagedLogError(f"Invalid message size: {size}")
            pos += HEADER_BYTES + size
        return len(data)


class _Segment:
    """Part of the log, from `base_offset` to the base of the next segment."""

    __slots__ = (
        "base_offset",
        "blocks",
        "created_ms",
        "first_ms",
        "latest_ms",
        "size_bytes",
        "written_ms",
    )

    def __init__(self, base_offset: int, now_ms: int) -> None:
        self.base_offset = base_offset
        self.blocks: list[_Block] = []
        self.size_bytes = 0
        self.written_ms = self.created_ms = now_ms
        # The largest timestamp of its first set; -1 without one.
        self.first_ms = -1
        # The largest timestamp of all sets; -1 without one.
        self.latest_ms = -1

    def append(self, data: Buffer, last_offset: int, now_ms: int, latest_ms: int = -1) -> None:
        if not self.size_bytes:
            self.first_ms = latest_ms
        if not self.blocks or len(self.blocks[-1].data) + len(data) > _BLOCK_BYTES:
            self.blocks.append(_Block())
        self.blocks[-1].append(data, last_offset)
        self.size_bytes += len(data)
        self.latest_ms = max(self.latest_ms, latest_ms)
        self.written_ms = now_ms

    @property
    def age_counts_from_ms(self) -> int:
        """The time from which on retention counts the segment's age (brokers.md 8.18)."""
        return self.written_ms if self.latest_ms < 0 else self.latest_ms

    def entries(self) -> Iterator[tuple[int, memoryview]]:
        for block in self.blocks:
            for _, data in block.sets():
                yield from _split(data)[0]

    def rewrite(
        self,
        edit: Callable[[int, memoryview], tuple[int, Buffer] | None],
        keeps: Callable[[int], bool] = lambda last_offset: True,
    ) -> None:
        """Replace each entry by the result of `edit(offset, message)`.

        The result is the entry's last offset and its bytes, or None to remove the entry. Bytes of a
        set that are no entry stay as they are if `keeps(last offset of the set)`.
        """
        blocks, first_ms = self.blocks, self.first_ms
        self.blocks, self.size_bytes = [], 0
        for block in blocks:
            for last_offset, data in block.sets():
                entries, rest = _split(data)
                for offset, message in entries:
                    if (edited := edit(offset, message)) is not None:
                        self.append(edited[1], edited[0], self.written_ms)
                if rest and keeps(last_offset):
                    self.append(rest, last_offset, self.written_ms)
        self.first_ms = first_ms


class PartitionLog:
    """The messages of a partition.

    Args:
        segment_bytes: the size limit of a segment. A set that would exceed it begins a new segment.
        retention_bytes: delete the oldest segment as long as the remaining segments have at least
            this many bytes. The log then has at most one segment more than that. None keeps
            everything.
        retention_ms: `retain` deletes the oldest segment if its largest timestamp, or without
            timestamps its last append, is longer ago than this. None keeps everything.
        segments_overflow: if True, a set may exceed the limit: it begins a new segment only if the
            last segment is already larger than `segment_bytes`.
        segment_ms: how far a set's timestamps may be after those of the segment's first set; beyond
            that, the set begins a new segment. If the first set has no timestamps, the time since
            the segment's creation counts. None: no limit (brokers.md 8.17).
    """

    __slots__ = (
        "_segment_ms",
        "_segments",
        "end_offset",
        "retention_bytes",
        "retention_ms",
        "segment_bytes",
        "segments_overflow",
        "start_offset",
    )

    def __init__(
        self,
        segment_bytes: int,
        retention_bytes: int | None,
        now_ms: int,
        *,
        retention_ms: int | None = None,
        segments_overflow: bool = False,
        segment_ms: int | None = None,
    ) -> None:
        self.segments_overflow = segments_overflow
        self._segment_ms = segment_ms
        self.segment_bytes = segment_bytes
        self.retention_bytes = retention_bytes
        self.retention_ms = retention_ms
        # The lowest offset that can be fetched. In an empty log it equals `end_offset`.
        self.start_offset = 0
        # The offset of the next message.
        self.end_offset = 0
        self._segments = [_Segment(0, now_ms)]

    @property
    def size_bytes(self) -> int:
        """The size of all segments together."""
        return sum(segment.size_bytes for segment in self._segments)

    def append(self, validated: ValidatedSet, now_ms: int) -> None:
        """Append a set that was validated for `end_offset`."""
        if validated.messages:
            latest_ms = validated.max_timestamp_ms
            self.append_raw(validated.data, validated.next_offset, now_ms, latest_ms)

    def append_raw(self, data: Buffer, next_offset: int, now_ms: int, latest_ms: int = -1) -> None:
        """Append bytes unchanged: whole entries with offsets from `end_offset` on.

        `latest_ms` is the largest timestamp of the messages.
        """
        segment = self._segments[-1]
        added = 0 if self.segments_overflow else len(data)
        if segment.size_bytes and (
            segment.size_bytes + added > self.segment_bytes
            or self._spans_too_long(segment, now_ms, latest_ms)
        ):
            segment = _Segment(self.end_offset, now_ms)
            self._segments.append(segment)
        segment.append(data, next_offset - 1, now_ms, latest_ms)
        self.end_offset = next_offset
        if len(self._segments) > 1:
            self._delete_first(min(self._count_beyond_size(), len(self._segments) - 1), now_ms)

    def _spans_too_long(self, segment: _Segment, now_ms: int, latest_ms: int) -> bool:
        if self._segment_ms is None:
            return False
        if segment.first_ms < 0:
            return now_ms - segment.created_ms > self._segment_ms
        return latest_ms - segment.first_ms > self._segment_ms

    def read(self, offset: int, max_bytes: int, below: int) -> bytes:
        """Return at most `max_bytes` bytes, from the entry with `offset` on.

        Entries at or above offset `below` and entries of later segments aren't returned. The last
        entry may be cut.
        """
        return b"".join(
            [
                memoryview(data)[start:stop]
                for data, start, stop in self.ranges(offset, max_bytes, below)
            ]
        )

    def ranges(self, offset: int, max_bytes: int, below: int) -> list[tuple[bytearray, int, int]]:
        """Return the bytes of `read`, as ranges of about 1 MiB in buffers.

        A caller must not keep views of the buffers, because a buffer with a view can't grow.
        """
        ranges: list[tuple[bytearray, int, int]] = []
        if offset >= below or max_bytes <= 0:
            return ranges
        for segment in self._segments_from(offset):
            for block in segment.blocks:
                if block.last_offset < offset:
                    continue
                start = 0 if ranges else block.position_of(offset)
                stop = end = len(block.data)
                if block.last_offset >= below:
                    stop = block.position_of(below)
                stop = min(stop, start + max_bytes)
                if stop > start:
                    # Later changes of the log don't change these bytes, so the ranges can be copied
                    # one by one.
                    ranges.append((block.data, start, stop))
                    max_bytes -= stop - start
                if not max_bytes or stop < end:
                    return ranges
            if ranges:
                return ranges
        return ranges

    def readable_bytes(self, offset: int, max_bytes: int | None, below: int) -> int:
        """Return how many bytes `read` would return; with None, without the limit."""
        limit = self.size_bytes if max_bytes is None else max_bytes
        return sum(stop - start for _, start, stop in self.ranges(offset, limit, below))

    def first_bytes(self, offset: int, below: int) -> int:
        """Return the size of the entry with `offset`, its header included; 0 without one."""
        ranges = self.ranges(offset, HEADER_BYTES, below)
        if not ranges:
            return 0
        data, start, _ = ranges[0]
        return (
            HEADER_BYTES + _unpack_offset_size(data, start)[1]
            if len(data) - start >= HEADER_BYTES
            else 0
        )

    def is_behind_last_segment(self, offset: int, below: int) -> bool:
        """Return whether `offset` is less than `below`, and in an earlier segment than `below`."""
        if offset >= below:
            return False
        segment = next(self._segments_from(offset))
        return segment is not next(self._segments_from(below))

    def entries(self) -> Iterator[tuple[int, memoryview]]:
        """Iterate over the offset and message of each entry, as stored."""
        for segment in self._segments:
            yield from segment.entries()

    def list_offsets(
        self, timestamp: int, max_num_offsets: int, below: int, now_ms: int
    ) -> list[int]:
        """Return the start offsets of segments, highest first.

        The first is that of the newest segment last written at or before `timestamp`; all older
        segments follow. With -1, or a time in the future, the end of the log comes first. With -2
        the result is the start of the log (brokers.md 8.1, 8.2).

        Raises:
            ValueError: `max_num_offsets` is negative.
        """
        if max_num_offsets < 0:
            raise ValueError(f"max_num_offsets={max_num_offsets}: expected an integer >= 0")
        segments = self._segments
        table = [(segment.base_offset, segment.written_ms) for segment in segments]
        if segments[-1].size_bytes:
            table.append((self.end_offset, now_ms))
        if timestamp == -1:
            count = len(table)
        elif timestamp == -2:
            count = 1
        else:
            count = len(table)
            while count and table[count - 1][1] > timestamp:
                count -= 1
        offsets = [offset for offset, _ in reversed(table[:count])][:max_num_offsets]
        if offsets and offsets[0] > below:
            offsets = [below, *(offset for offset in offsets if offset < below)]
        return offsets

    def first_since(self, timestamp_ms: int, below: int) -> tuple[int, int] | None:
        """Return offset and timestamp of the first message at or after `timestamp_ms`.

        Only the first segment with such a timestamp is searched (brokers.md 8.14).

        Raises:
            MessageSetRejected, ValueError: a wrapper on the way can't be decompressed.
        """
        for segment in self._segments:
            entries = [(at, entry, timestamp_of(entry)) for at, entry in segment.entries()]
            times = [time for _, _, time in entries if time >= 0]
            if max(times, default=segment.written_ms) >= timestamp_ms:
                break
        else:
            return None
        for at, entry, time in entries:
            if time < timestamp_ms:
                continue
            stamped = time if entry[5] & LOG_APPEND_TIME else None
            for offset, message in messages_in(at, entry):
                found_ms = timestamp_of(message) if stamped is None else stamped
                if found_ms < timestamp_ms:
                    continue
                if self.start_offset <= offset < below:
                    return offset, found_ms
        return None

    def roll(self, now_ms: int) -> None:
        """Begin a new segment unless the last one is empty."""
        if self._segments[-1].size_bytes:
            self._segments.append(_Segment(self.end_offset, now_ms))

    def retain(self, now_ms: int) -> None:
        """Delete the segments that are too old, then those beyond `retention_bytes`.

        If all messages are due, a new segment begins, and the log is empty (brokers.md 8.18).
        """
        if (limit_ms := self.retention_ms) is not None:
            old = takewhile(
                lambda segment: now_ms - segment.age_counts_from_ms > limit_ms, self._segments
            )
            self._delete_first(sum(1 for _ in old), now_ms)
        self._delete_first(self._count_beyond_size(), now_ms)

    def delete_before(self, offset: int) -> None:
        """Delete all messages below `offset`, as if a segment started there."""
        offset = min(offset, self.end_offset)
        if offset <= self.start_offset:
            return
        self.start_offset = offset
        while len(self._segments) > 1 and self._segments[1].base_offset <= offset:
            del self._segments[0]
        self._segments[0].base_offset = offset
        # A wrapper is kept if its last message is; clients drop its messages below `offset`.
        self._segments[0].rewrite(
            lambda at, message: (at, _entry(at, message)) if at >= offset else None,
            lambda last_offset: last_offset >= offset,
        )

    def truncate(self, offset: int) -> None:
        """Delete all messages from `offset` on."""
        # A real replica does so when it begins to follow a new leader.
        if offset >= self.end_offset:
            return
        self.end_offset = offset
        while len(self._segments) > 1 and self._segments[-1].base_offset >= offset:
            del self._segments[-1]
        last = self._segments[-1]
        last.rewrite(
            lambda at, message: (at, _entry(at, message)) if at < offset else None,
            lambda last_offset: last_offset < offset,
        )
        if self.start_offset > offset:
            self.start_offset = last.base_offset = offset

    def remove(self, offsets: Collection[int]) -> None:
        """Remove messages and leave holes, as compaction does; wrappers are compressed anew."""

        def edit(offset: int, message: memoryview) -> tuple[int, Buffer] | None:
            messages = messages_in(offset, message)
            left = [(at, inner) for at, inner in messages if at not in offsets]
            if len(left) == len(messages):
                return offset, _entry(offset, message)
            return (left[-1][0], encode_set(left, message[5] & 0x07, message[4])) if left else None

        for segment in self._segments:
            segment.rewrite(edit)

    def _segments_from(self, offset: int) -> Iterator[_Segment]:
        """Iterate over the segment of `offset` and those after it."""
        at = bisect_left(self._segments, offset + 1, key=_base_offset)
        for index in range(max(at - 1, 0), len(self._segments)):
            yield self._segments[index]

    def _count_beyond_size(self) -> int:
        """Return how many of the first segments `retention_bytes` doesn't keep."""
        if self.retention_bytes is None:
            return 0
        over = self.size_bytes - self.retention_bytes
        for count, segment in enumerate(self._segments):
            over -= segment.size_bytes
            if over < 0:
                return count
        return len(self._segments)

    def _delete_first(self, count: int, now_ms: int) -> None:
        """Delete the first segments. The last one is deleted only if it has messages."""
        if count == len(self._segments):
            self.roll(now_ms)
            count = len(self._segments) - 1
        if count:
            del self._segments[:count]
            self.start_offset = max(self.start_offset, self._segments[0].base_offset)


def _split(data: bytes) -> tuple[list[tuple[int, memoryview]], bytes]:
    """Return the entries of a set, and the bytes after them that are no entry."""
    entries = []
    length = 0
    try:
        for offset, message in walk_entries(data):
            entries.append((offset, message))
            length += HEADER_BYTES + len(message)
    except MessageSetRejected:  # the rest is damaged
        pass
    return entries, data[length:]


def _base_offset(segment: _Segment) -> int:
    return segment.base_offset


def _entry(offset: int, message: memoryview) -> bytes:
    return _pack_offset_size(offset, len(message)) + bytes(message)
