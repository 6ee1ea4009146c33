"""The pure twins of `summarize_set` and `MessageSetReader`; see `message_format` for the layout.

The reference for the compiled twins (`_reader_c.pxi`, which takes `SetSummary` from here).

Invariants: whatever the bytes are, reading them returns messages or raises
`CorruptRecordException`. A fetched set may be cut off. If the set inside a wrapper is cut off, the
wrapper is corrupt, so no message in it is lost silently. Returned offsets never fall. A wrapper
that decompresses to more than `max_decompressed_bytes` is corrupt.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import repeat
from threading import Lock
from typing import Any, Final, NamedTuple
from zlib import crc32

from aiokafka08.errors import CorruptRecordException
from aiokafka08.protocol._columns_py import Columns, DecodedMessages
from aiokafka08.protocol.compression import Codec, decompress, decompress_unless_long
from aiokafka08.protocol.message_format import (
    BODY_AT,
    CODEC_MASK,
    ENTRY_HEADER_BYTES,
    LOG_APPEND_TIME,
    MAX_NESTING,
    MIN_MESSAGE_BYTES,
    corrupt,
)
from aiokafka08.protocol.types import Buffer
from aiokafka08.structs import ConsumerRecord, TopicPartition

_unpack_offset_size = struct.Struct(">qi").unpack_from
# The last field of both structs is the value length, if the key is empty or null. If the key is
# longer, the last field is meaningless, and the reader unpacks the value length after the key.
# Unpacking stays within the message, since even the smallest one has all these fields.
_unpack_header_0 = struct.Struct(">qiIbbii").unpack_from
_unpack_header_1 = struct.Struct(">qiIbbqii").unpack_from
_unpack_int32 = struct.Struct(">i").unpack_from

_MIN_ENTRY_BYTES: Final = ENTRY_HEADER_BYTES + MIN_MESSAGE_BYTES[0]
NO_END: Final = 2**64
"""Higher than any offset, and than the offset after the highest (2**63)."""
_LARGE_BYTES: Final = 4096
# The size of the largest set that a reader copies
_COPIED_BYTES: Final = 1024 * 1024
# How many messages are decoded at a time on their way into columns
_COLUMN_PART: Final = 1000


class SetSummary(NamedTuple):
    """What the headers of a fetched message set show."""

    next_offset: int | None  # the offset after the highest complete entry; None if there is none
    whole_bytes: int  # the length of the complete entries
    # The size of the cut-off entry after them, if its header is there and isn't the filler of
    # modern brokers (offset -1, docs/brokers.md 7.8); else None
    tail_size: int | None
    rises: bool = True  # whether the offset of each complete entry is >= 0 and above those before


def summarize_set(message_set: Buffer) -> SetSummary:
    """Walk the headers of a fetched message set, up to a cut-off tail or a corrupt size field."""
    pos, end, highest = 0, len(message_set), -1
    tail_size, rises = None, True
    while end - pos >= ENTRY_HEADER_BYTES:
        offset, size = _unpack_offset_size(message_set, pos)
        stop = pos + ENTRY_HEADER_BYTES + size
        if stop > end:
            tail_size = None if offset < 0 else ENTRY_HEADER_BYTES + size
            break
        if size < MIN_MESSAGE_BYTES[0]:
            break
        if offset > highest:  # offsets rise; if they don't, the next fetch must not go back
            highest = offset
        else:
            rises = False
        pos = stop
    return SetSummary(None if highest < 0 else highest + 1, pos, tail_size, rises)


class InnerSet(NamedTuple):
    """What the headers of the set inside a wrapper show."""

    whole_bytes: int  # the length of the whole messages, from the first one on
    first: int  # the offset field of the first whole message; 0 without one
    last: int  # that of the last whole message; 0 without one
    rises: bool  # whether each offset field is higher than the one before


def walk_inner_set(plain: bytes) -> InnerSet:
    """Walk the headers of the set inside a wrapper, as far as its messages are whole."""
    pos, end = 0, len(plain)
    first = last = 0
    rises = True
    while end - pos >= ENTRY_HEADER_BYTES:
        offset, size = _unpack_offset_size(plain, pos)
        stop = pos + ENTRY_HEADER_BYTES + size
        if stop > end or size < MIN_MESSAGE_BYTES[0]:
            break
        if not pos:
            first = offset
        elif offset <= last:
            rises = False
        last = offset
        pos = stop
    return InnerSet(pos, first, last, rises)


def describe_rest(plain: bytes, whole_bytes: int) -> str:
    """Say why the set inside a wrapper isn't whole."""
    if not plain:
        return "it is a wrapper without messages"
    header = plain[whole_bytes : whole_bytes + ENTRY_HEADER_BYTES]
    if len(header) == ENTRY_HEADER_BYTES:
        size = _unpack_offset_size(header)[1]
        if size < MIN_MESSAGE_BYTES[0]:
            return f"a size field inside it says {size}"
    return "the last message inside it is cut off"


class LongWrapper:
    """A wrapper that takes long to open. A reader waits until `open()` was called, in any thread.

    Args:
        codec: the codec of its value.
        value: its value.
        limit: the highest size of the plain data.
        walk: computes from the plain data what `result()` returns beside it.
    """

    __slots__ = ("_codec", "_error", "_limit", "_lock", "_opened", "_value", "_walk")

    def __init__(
        self,
        codec: Codec,
        value: Buffer,
        limit: int,
        walk: Callable[[bytes], InnerSet | None] = lambda plain: None,
    ) -> None:
        self._codec = codec
        self._value: Buffer | None = value
        self._limit = limit
        self._walk = walk
        self._opened: tuple[bytes, InnerSet | None] | None = None
        self._error: ValueError | None = None
        self._lock = Lock()

    @property
    def is_open(self) -> bool:
        """Whether `open()` has ended."""
        return self._value is None

    def open(self) -> None:
        """Decompress the value. Further calls have no effect; concurrent ones wait."""
        with self._lock:
            if self._value is None:
                return
            try:
                plain = decompress(self._codec, self._value, self._limit)
                self._opened = plain, self._walk(plain)
            except ValueError as error:
                self._error = error
            self._value = None

    def result(self) -> tuple[bytes, InnerSet | None]:
        """Return the plain data, and what `walk` returned for it.

        Raises:
            ValueError: as `decompress`.
        """
        if self._error is not None:
            raise self._error
        assert self._opened is not None
        return self._opened


class _Decompression:
    """Count what one call decompresses. A reader and the readers of its wrappers share one count.

    Attributes:
        decompressed_bytes: the bytes that the current call has decompressed.
        paused: True if the current call ended because of `pause_after_bytes`.
    """

    __slots__ = ("decompressed_bytes", "long_wrapper", "pause_after_bytes", "paused")

    def __init__(self, pause_after_bytes: int) -> None:
        # A call that has decompressed this many bytes opens no further wrapper
        self.pause_after_bytes = pause_after_bytes
        self.long_wrapper: LongWrapper | None = None  # the wrapper at which the reader waits
        self.begin_call()

    def begin_call(self) -> None:
        self.decompressed_bytes = 0
        self.paused = False


class MessageSetReader:
    """Decode a fetched message set slice by slice, wrappers included.

    The reader skips messages below `fetch_offset` without decoding them (a fetch from inside a
    wrapper returns the whole wrapper), and messages that the set repeats (docs/brokers.md 7.12), so
    returned offsets never fall. It ignores the cut-off tail of the set; inside a wrapper a cut-off
    message is a corrupt one. The offsets inside a wrapper must begin above the entry before the
    wrapper, rise, and end at the wrapper's offset. Otherwise all messages in it get the wrapper's
    offset, as in nested wrappers. After a corrupt message each further call raises: the consumer
    has to seek past that message and make a new reader.

    Args:
        topic_partition: for the records and the error texts.
        message_set: the bytes of one partition in a fetch response.
        fetch_offset: the first offset to return.
        check_crcs: check the CRC of each message, inside wrappers too.
        max_decompressed_bytes: a wrapper that decompresses to more is a corrupt message.
        end_offset: the first message at or above this offset ends the set and isn't decoded.
        pause_after_bytes: a call that has decompressed this many bytes opens no further wrapper.
        leave_long: don't open wrappers that take long to open, but wait for the caller to open them
            (see `long_wrapper`).

    Attributes:
        decompressed_bytes: how many bytes the last call decompressed.
        paused: True if the last call ended before a wrapper because of `pause_after_bytes` or
            `leave_long`. Then the next call goes on there, even if the last one returned no
            messages.
        long_wrapper: the wrapper at which the reader waits; calls return no messages until its
            `open()` has ended. None: it doesn't wait.
        shared_offset: the offset of all messages of the wrapper in which the reader is, if they
            share one; else None.
    """

    __slots__ = (
        "_after_wrapper",
        "_check_crcs",
        "_data",
        "_decompression",
        "_end",
        "_end_offset",
        "_fetch_offset",
        "_inner",
        "_leave_long",
        "_limit",
        "_nesting",
        "_offset",
        "_pos",
        "_relative_to",
        "_start",
        "_timestamp",
        "_topic_partition",
        "_view",
        "error",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        message_set: Buffer,
        fetch_offset: int,
        *,
        check_crcs: bool = True,
        max_decompressed_bytes: int,
        end_offset: int | None = None,
        pause_after_bytes: int = NO_END,
        leave_long: bool = False,
    ) -> None:
        self._topic_partition = topic_partition
        # Slices of bytes are cheaper than slices of views, but the copy of a large set takes
        # memory, and holds the event loop for a millisecond per MiB.
        self._view = memoryview(message_set).cast("B")
        is_large = len(self._view) > _COPIED_BYTES and not isinstance(message_set, bytes)
        self._data: bytes | memoryview = self._view if is_large else bytes(message_set)
        if not is_large:
            self._view = memoryview(self._data)
        self._pos = 0
        self._end = len(self._data)
        self._start = self._fetch_offset = fetch_offset
        self._end_offset = NO_END if end_offset is None else end_offset
        self._check_crcs = check_crcs
        self._limit = max_decompressed_bytes
        self._leave_long = leave_long
        self._decompression = _Decompression(pause_after_bytes)
        self._inner: MessageSetReader | None = None
        # Set in the reader of the messages inside a wrapper:
        self._nesting = 0
        self._after_wrapper: int | None = None  # the offset after the wrapper
        self._relative_to = 0  # added to each offset (format 1)
        self._offset: int | None = None  # the wrapper's, if all messages share it
        self._timestamp: int | None = None  # the wrapper's, under LogAppendTime
        # Why the next message is corrupt; None if none was found yet
        self.error: CorruptRecordException | None = None

    @property
    def decompressed_bytes(self) -> int:
        """See the class."""
        return self._decompression.decompressed_bytes

    @property
    def paused(self) -> bool:
        """See the class."""
        return self._decompression.paused

    @property
    def shared_offset(self) -> int | None:
        """See the class."""
        reader: MessageSetReader | None = self
        while reader is not None and reader._offset is None:
            reader = reader._inner
        return None if reader is None else reader._offset

    @property
    def long_wrapper(self) -> LongWrapper | None:
        """See the class."""
        return self._decompression.long_wrapper

    def move_to(self, message_set: bytes) -> None:
        """Go on in this copy of the same bytes, so that the original memory can be released.

        A wrapper that isn't open refers to the original: the next call makes another one.
        """
        self._data = message_set
        self._view = memoryview(message_set)
        wrapper = self.long_wrapper
        if wrapper is not None and not wrapper.is_open:
            self._decompression.long_wrapper = None

    def read(self, max_records: int) -> list[ConsumerRecord[bytes, bytes]]:
        """Return the next messages, at most `max_records`.

        An empty list means that no messages are left, or that the call paused (see `paused`).

        Raises:
            CorruptRecordException: the next message is corrupt; all before it were returned.
        """
        self._decompression.begin_call()
        return self._records(self._read(max_records, stop_at_wrapper=False))

    def read_columns(self, columns: Columns, max_records: int) -> int:
        """Append up to `max_records` next messages to `columns`, until that is full.

        Return how many were appended. 0 means that no messages are left, that the call paused (see
        `paused`), or that `columns` was full before.

        Raises:
            CorruptRecordException: as `read`.
        """
        self._decompression.begin_call()
        left = max_records
        while left > 0 and not columns.is_full and not self.paused:
            # In small parts, since a part takes memory in addition to the columns. `is_full` is
            # checked before each part (in the compiled twin before each message).
            try:
                decoded = self._read(min(left, _COLUMN_PART), stop_at_wrapper=True)
            except CorruptRecordException:
                if left < max_records:
                    break
                raise
            if not decoded:
                break
            columns.extend_decoded(decoded)
            left -= len(decoded)
        return max_records - left

    def _records(self, decoded: DecodedMessages) -> list[ConsumerRecord[bytes, bytes]]:
        topic, partition = self._topic_partition
        return list(
            map(
                ConsumerRecord,
                repeat(topic),
                repeat(partition),
                decoded.offsets,
                decoded.timestamps,
                decoded.timestamp_types,
                decoded.keys,
                decoded.values,
                decoded.checksums,
                decoded.key_sizes,
                decoded.value_sizes,
            )
        )

    def _read(self, max_records: int, *, stop_at_wrapper: bool) -> DecodedMessages:
        """Do what `read` does, but return lists of fields instead of records.

        With `stop_at_wrapper` return before reading inside the next wrapper, once at least one
        message is decoded.
        """
        decoded = DecodedMessages()
        if self.error is None:
            try:
                self._read_into(decoded, max_records, stop_at_wrapper=stop_at_wrapper)
            except CorruptRecordException as error:
                self.error = error
        if self.error is not None and not decoded:
            # Without this each raise would add to the traceback that the exception keeps.
            raise self.error.with_traceback(None)
        return decoded

    def _read_into(
        self, decoded: DecodedMessages, max_records: int, *, stop_at_wrapper: bool
    ) -> None:
        while True:
            if self._inner is not None:
                self._inner._read_into(decoded, max_records, stop_at_wrapper=stop_at_wrapper)
                if (
                    len(decoded) >= max_records
                    or (stop_at_wrapper and decoded)
                    or self._decompression.paused
                ):
                    return
                self._fetch_offset = max(self._fetch_offset, self._inner._fetch_offset)
                self._inner = None
            self._read_entries(decoded, max_records)
            if (stop_at_wrapper and decoded) or self._inner is None:
                return

    def _read_entries(self, decoded: DecodedMessages, max_records: int) -> None:
        """Read until there are `max_records`, none is left, or a wrapper was opened as `_inner`."""
        columns = decoded.keys, decoded.values
        counts = [len(column) for column in columns]
        try:
            self._walk_entries(decoded, max_records)
        finally:
            if isinstance(self._data, memoryview):
                for column, count in zip(columns, counts, strict=True):
                    column[count:] = [
                        None if item is None else bytes(item) for item in column[count:]
                    ]
            decoded.fill_up()

    def _walk_entries(self, decoded: DecodedMessages, max_records: int) -> None:  # noqa: PLR0915
        """Do what `_read_entries` does, but leave lists short, as `DecodedMessages` describes."""
        data: Any = self._data  # if it is a view, `_read_entries` copies the slices
        view, end, next_pos = self._view, self._end, self._pos
        relative_to, fixed_offset, fixed_timestamp = (
            self._relative_to,
            self._offset,
            self._timestamp,
        )
        fetch_offset = self._fetch_offset
        # The CRC of the wrapper at which this reader waits was checked before.
        check_crcs = self._check_crcs and self.long_wrapper is None
        end_offset = self._end_offset
        offsets, keys, values, checksums = (
            decoded.offsets,
            decoded.keys,
            decoded.values,
            decoded.checksums,
        )
        timestamps, timestamp_types = decoded.timestamps, decoded.timestamp_types
        room = max_records - len(decoded)
        while room > 0:
            pos = next_pos
            if end - pos < _MIN_ENTRY_BYTES:
                self._check_tail(pos, fetch_offset)
                break
            offset, size, crc, magic, attributes, key_size, value_size = _unpack_header_0(data, pos)
            stop = next_pos = pos + ENTRY_HEADER_BYTES + size
            if stop > end or size < MIN_MESSAGE_BYTES[0]:
                self._check_tail(pos, fetch_offset)
                next_pos = end
                break
            offset = offset + relative_to if fixed_offset is None else fixed_offset
            if offset < fetch_offset:
                continue
            # A wrapper isn't skipped, because its offset is that of its last message, and the
            # messages before that one may be below the end offset.
            if offset >= end_offset and not attributes & CODEC_MASK:
                next_pos = end
                break
            # A slice of bytes is a copy, which for small messages is cheaper than a view.
            if check_crcs and (
                crc32((data if size < _LARGE_BYTES else view)[pos + BODY_AT : stop]) != crc
            ):
                raise self._corrupt(offset, offset + 1, "its CRC doesn't match")
            if magic == 0:
                timestamp = None
                value_at = pos + 26
            elif magic == 1 and size >= MIN_MESSAGE_BYTES[1]:
                timestamp, key_size, value_size = _unpack_header_1(data, pos)[5:]
                timestamp_type = (attributes & LOG_APPEND_TIME) >> 3
                if fixed_timestamp is not None:
                    timestamp, timestamp_type = fixed_timestamp, 1
                value_at = pos + 34
            else:
                raise self._corrupt(offset, offset + 1, f"magic {magic} with size {size}")
            if key_size == -1:
                key = None
            else:
                key_at = value_at - 4
                value_at += key_size
                if not 0 <= key_size <= stop - key_at - 4:
                    raise self._corrupt(offset, offset + 1, f"its key length is {key_size}")
                key = data[key_at : value_at - 4]
                value_size = _unpack_int32(data, value_at - 4)[0]
            if value_size == -1 and value_at == stop:
                value = None
            elif value_size != stop - value_at:
                raise self._corrupt(offset, offset + 1, f"its value length is {value_size}")
            elif not attributes & CODEC_MASK:
                value = data[value_at:stop]
            if attributes & CODEC_MASK:
                self._fetch_offset = fetch_offset
                self._pos = pos
                if self._decompression.decompressed_bytes >= self._decompression.pause_after_bytes:
                    self._decompression.paused = True
                    return
                compressed = None if value_size < 0 else view[value_at:stop]
                opened = self._decompress(offset, attributes, compressed)
                if opened is None:
                    self._decompression.paused = True
                    return
                self._pos = stop
                self._inner = self._inside(offset, magic, attributes, timestamp, *opened)
                if fixed_offset is None:
                    self._fetch_offset = offset + 1
                return
            if timestamp is not None:
                if len(timestamps) < len(offsets):
                    decoded.fill_timestamps()
                timestamps.append(timestamp)
                timestamp_types.append(timestamp_type)
            if key is not None:
                if len(keys) < len(offsets):
                    decoded.fill_keys()
                keys.append(key)
            offsets.append(offset)
            values.append(value)
            checksums.append(crc)
            room -= 1
            if fixed_offset is None:
                # 3.9.1 repeats a batch that follows a control batch (docs/brokers.md 7.12)
                fetch_offset = offset + 1
        self._pos = next_pos
        self._fetch_offset = fetch_offset

    def _check_tail(self, pos: int, fetch_offset: int) -> None:
        """Raise if what is left is more than the cut-off tail of a fetched set.

        The size field of a cut-off message extends beyond the end of the set. Inside a wrapper
        nothing is cut off. What follows the last message below the end offset doesn't matter.
        """
        if fetch_offset >= self._end_offset:
            return
        left = self._end - pos
        if left >= ENTRY_HEADER_BYTES:
            size = _unpack_offset_size(self._data, pos)[1]
            if size <= left - ENTRY_HEADER_BYTES:
                raise self._not_a_message(fetch_offset, f"its size field says {size}")
        if left and self._after_wrapper is not None:
            raise self._not_a_message(fetch_offset, "it is cut off within its wrapper")

    def _decompress(
        self, offset: int, attributes: int, value: memoryview | None
    ) -> tuple[bytes, InnerSet | None] | None:
        """Decompress a wrapper's value; None if that takes long, and isn't done yet."""
        if self._nesting == MAX_NESTING:
            raise self._corrupt(offset, offset + 1, "it is a wrapper in a wrapper in a wrapper")
        if value is None:
            raise self._corrupt(offset, offset + 1, "it is a wrapper without a value")
        codec = attributes & CODEC_MASK
        wrapper = self._decompression.long_wrapper
        try:
            if wrapper is not None:
                if not wrapper.is_open:
                    return None
                self._decompression.long_wrapper = None
                return wrapper.result()
            if self._leave_long:
                plain = decompress_unless_long(Codec(codec), value, self._limit)
            else:
                plain = decompress(Codec(codec), value, self._limit)
        except ValueError as error:  # unknown codec, corrupt, or over the limit
            raise self._corrupt(offset, offset + 1, f"codec {codec}: {error}") from None
        if plain is None:
            self._decompression.long_wrapper = LongWrapper(
                Codec(codec), value, self._limit, walk_inner_set
            )
            return None
        return plain, None

    def _inside(
        self,
        offset: int,
        magic: int,
        attributes: int,
        timestamp: int | None,
        plain: bytes,
        inside: InnerSet | None,
    ) -> MessageSetReader:
        """Return a reader of the messages inside a wrapper.

        Raises:
            CorruptRecordException: the set inside isn't whole. If the messages before the damage
                have offsets of their own that rise and are below the wrapper's, these show where
                the damage is. Then a reader of these messages is returned instead.
        """
        inside = walk_inner_set(plain) if inside is None else inside
        has_offsets = not self._nesting and magic == 0 and inside.rises and inside.last < offset
        is_whole = inside.whole_bytes == len(plain)
        if not inside.whole_bytes or not (is_whole or has_offsets):
            raise self._corrupt(offset, offset + 1, describe_rest(plain, inside.whole_bytes))
        inner = MessageSetReader(
            self._topic_partition,
            plain,
            self._fetch_offset,
            check_crcs=self._check_crcs,
            max_decompressed_bytes=self._limit,
            leave_long=self._leave_long,
        )
        self._decompression.decompressed_bytes += len(plain)
        inner._decompression = self._decompression
        inner._end_offset = self._end_offset
        inner._nesting = self._nesting + 1
        inner._after_wrapper = offset + 1
        if magic == 1 and attributes & LOG_APPEND_TIME:
            inner._timestamp = timestamp
        # Relative offsets (KIP-31): the wrapper's offset is that of the last message inside.
        relative_to = offset - inside.last if magic == 1 else 0
        # The offset of the first message must be above those of the set before the wrapper.
        lowest = self._fetch_offset if self._fetch_offset > self._start else 0
        if (
            # 0.9.0.1 gave the nested wrapper an offset and left the offsets inside it unchanged.
            self._nesting
            # Brokers store no sets that meet one of the conditions below. With the offsets of such
            # a set, the reader would skip messages below the fetch offset, or below the offset of
            # an earlier message.
            or not inside.rises
            or inside.first + relative_to < lowest
            or (inside.last + relative_to != offset and is_whole)
        ):
            inner._offset = offset
        else:
            inner._relative_to = relative_to
        return inner

    def _not_a_message(self, fetch_offset: int, why: str) -> CorruptRecordException:
        """Make the error for bytes that lead to no further message.

        It names the offset that the reader was to read next, since the offset field may be as
        damaged as the rest. Inside a wrapper `next_offset` is known: the one after the wrapper.
        """
        position = fetch_offset if self._offset is None else self._offset
        next_offset = (
            None if self._after_wrapper is None else max(self._after_wrapper, fetch_offset)
        )
        return self._corrupt(position, next_offset, why)

    def _corrupt(self, offset: int, next_offset: int | None, why: str) -> CorruptRecordException:
        return corrupt(self._topic_partition, offset, next_offset, why)
