"""The pure twin of the message set: build, survey and read message formats 0 and 1.

Imported only by `message_set`, whose docstring says what these three mean together. What a message
looks like on the wire:

    offset int64 | size int32 | crc uint32 | magic int8 | attributes int8
    | timestamp int64 (magic 1 only) | key length int32 | key | value length int32 | value

Attributes: bits 0-2 codec, bit 3 timestamp type. A message with a codec is a wrapper: its value is
a compressed message set, its offset that of the last message inside.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import NamedTuple
from zlib import crc32

from aiokafka08.errors import CorruptRecordException
from aiokafka08.protocol._columns_py import Columns, Rows
from aiokafka08.protocol.compression import Codec, compress, decompress
from aiokafka08.protocol.types import Buffer
from aiokafka08.structs import ConsumerRecord, TopicPartition

ENTRY_HEADER_BYTES = 12
"""Offset and size, before each message."""
_BODY_AT = 16
"""What the CRC covers begins here, behind offset, size and CRC."""
_unpack_offset_size = struct.Struct(">qi").unpack_from
# Both headers reach up to the value length as it stands behind an empty or null key: those of the
# smallest message.
_unpack_header_0 = struct.Struct(">qiIbbii").unpack_from
_unpack_header_1 = struct.Struct(">qiIbbqii").unpack_from
_unpack_int32 = struct.Struct(">i").unpack_from
_unpack_timestamp = struct.Struct(">q").unpack_from
_pack_int32 = struct.Struct(">i").pack
_pack_head = struct.Struct(">qiI").pack  # offset, size, crc
_pack_body_0 = struct.Struct(">bbi").pack  # magic, attributes, key length
_pack_body_1 = struct.Struct(">bbqi").pack  # magic, attributes, timestamp, key length
_pack_keyless_0 = struct.Struct(">bbii").pack  # the same and the value length
_pack_keyless_1 = struct.Struct(">bbqii").pack

MIN_MESSAGE_BYTES = (14, 22)
"""The least value of a message's size field, by magic: key and value empty."""
_MIN_ENTRY_BYTES = ENTRY_HEADER_BYTES + MIN_MESSAGE_BYTES[0]

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
"""Attribute bit: the timestamp is the broker's."""

_NO_END = 2**63
"""Above any offset."""
_COLUMN_PART = 1000
"""Rows that are made at a time on their way into columns."""

MAX_NESTING = 2
"""Wrappers in wrappers: 0.9.0.1 stores one such level as it came (docs/brokers.md 6.7)."""


def _encode(
    magic: int, attributes: int, timestamp_ms: int, key: Buffer | None, value: Buffer | None
) -> bytes:
    """A message from its magic byte on: all that the CRC covers."""
    if key is None and value is not None:
        if magic == 0:
            return _pack_keyless_0(0, attributes, -1, len(value)) + value
        return _pack_keyless_1(1, attributes, timestamp_ms, -1, len(value)) + value
    key_size = -1 if key is None else len(key)
    if magic == 0:
        head = _pack_body_0(0, attributes, key_size)
    else:
        head = _pack_body_1(1, attributes, timestamp_ms, key_size)
    value_size = _pack_int32(-1 if value is None else len(value))
    return b"".join((head, key or b"", value_size, value or b""))


class MessageSetBuilder:
    """Messages appended in wire format, until `build()` gives the message set.

    All of them stand in one buffer: a producer's memory is that of the wire format.

    Args:
        magic: the message format, 0 or 1. Format 0 drops the timestamps.
        codec: with any but NONE the set is built as one wrapper.
    """

    __slots__ = ("_buffer", "_count", "codec", "magic", "max_timestamp_ms", "size_bytes")

    def __init__(self, magic: int, codec: Codec = Codec.NONE) -> None:
        self.magic = magic
        self.codec = codec
        self.size_bytes = 0
        """Size of the set before compression."""
        self.max_timestamp_ms = -1
        """The newest timestamp appended; -1 in format 0."""
        self._buffer = bytearray()  # the set before compression, offsets counted from 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, key: Buffer | None, value: Buffer | None, timestamp_ms: int) -> None:
        """Append one message; `timestamp_ms` is ignored by format 0."""
        buffer, count = self._buffer, self._count
        body = _encode(self.magic, 0, timestamp_ms, key, value)
        buffer += _pack_head(count, len(body) + 4, crc32(body))
        buffer += body
        self._count = count + 1
        self.size_bytes = len(buffer)
        if timestamp_ms > self.max_timestamp_ms and self.magic:
            self.max_timestamp_ms = timestamp_ms

    def extend(
        self,
        keys: Sequence[Buffer | None] | None,
        values: Sequence[Buffer | None],
        timestamps_ms: Sequence[int] | int,
        start: int,
        limit_bytes: int,
    ) -> int:
        """Append messages from index `start` on while `size_bytes` stays within `limit_bytes`.

        The first message goes into an empty builder whatever its size. Returns the index after
        the last message appended.
        """
        magic, buffer, count = self.magic, self._buffer, self._count
        newest = self.max_timestamp_ms
        timestamp = timestamps_ms if isinstance(timestamps_ms, int) else -1
        each = None if isinstance(timestamps_ms, int) else timestamps_ms
        limit_bytes -= _BODY_AT
        try:
            for index in range(start, len(values)):
                if each is not None:
                    timestamp = each[index]
                key = None if keys is None else keys[index]
                body = _encode(magic, 0, timestamp, key, values[index])
                if len(buffer) + len(body) > limit_bytes and count:
                    return index
                buffer += _pack_head(count, len(body) + 4, crc32(body))
                buffer += body
                count += 1
                if timestamp > newest:
                    newest = timestamp
        finally:
            self._count, self.size_bytes = count, len(buffer)
            self.max_timestamp_ms = newest if magic else -1
        return len(values)

    def build(self) -> Buffer:
        """The message set, offsets counted from 0 (brokers assign the real ones).

        Empty where nothing was appended, also with a codec: brokers answer a wrapper around
        nothing as if something had been stored (docs/brokers.md 6.8).
        """
        if self.codec is Codec.NONE or not self._count:
            return bytes(self._buffer)
        value = compress(self.codec, self._buffer, magic=self.magic)
        body = _encode(self.magic, self.codec, self.max_timestamp_ms, None, value)
        return _pack_head(self._count - 1, len(body) + 4, crc32(body)) + body

    def split(self) -> tuple[MessageSetBuilder, MessageSetBuilder]:
        """Two builders with the first and the second half of the messages; needs two or more."""
        bodies = list(self._bodies())
        middle = len(bodies) // 2
        return self._part(bodies[:middle], self.magic), self._part(bodies[middle:], self.magic)

    def as_format_0(self) -> MessageSetBuilder:
        """The same messages in format 0, without timestamps."""
        bodies = self._bodies()
        if self.magic:
            bodies = (b"\x00" + body[1:2] + body[10:] for body in bodies)
        return self._part(bodies, 0)

    def _bodies(self) -> Iterator[bytes]:
        """Each message from its magic byte on."""
        data = bytes(self._buffer)
        pos = 0
        while pos < len(data):
            stop = pos + ENTRY_HEADER_BYTES + _unpack_int32(data, pos + 8)[0]
            yield data[pos + _BODY_AT : stop]
            pos = stop

    def _part(self, bodies: Iterable[bytes], magic: int) -> MessageSetBuilder:
        part = MessageSetBuilder(magic, self.codec)
        for count, body in enumerate(bodies):
            part._buffer += _pack_head(count, len(body) + 4, crc32(body))
            part._buffer += body
            part._count = count + 1
            if magic:
                timestamp = _unpack_timestamp(body, 2)[0]
                part.max_timestamp_ms = max(part.max_timestamp_ms, timestamp)
        part.size_bytes = len(part._buffer)
        return part


def message_size(magic: int, key: Buffer | None, value: Buffer | None) -> int:
    """Bytes that one message takes in a message set, its offset and size fields included."""
    size = 26 if magic == 0 else 34
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    return size


class Survey(NamedTuple):
    """What a fetched message set holds, seen from its headers alone."""

    next_offset: int | None
    """The offset after the highest whole entry; None where no entry is whole."""
    whole_bytes: int
    """Length of the whole entries."""
    tail_size: int | None
    """Bytes that the cut-off entry behind them needs, where its header is visible and is not the
    filler of modern brokers (offset -1, docs/brokers.md 7.8)."""


def survey(message_set: Buffer) -> Survey:
    """Walk the headers of a fetched message set; stops at a corrupt size as at a cut-off tail."""
    pos, end, highest = 0, len(message_set), -1
    tail_size = None
    while end - pos >= ENTRY_HEADER_BYTES:
        offset, size = _unpack_offset_size(message_set, pos)
        stop = pos + ENTRY_HEADER_BYTES + size
        if stop > end:
            tail_size = None if offset < 0 else ENTRY_HEADER_BYTES + size
            break
        if size < MIN_MESSAGE_BYTES[0]:
            break
        if offset > highest:  # offsets rise, but a next fetch must not lead back if they don't
            highest = offset
        pos = stop
    return Survey(None if highest < 0 else highest + 1, pos, tail_size)


class _Turn:
    """What one call has opened, in the wrappers of wrappers too."""

    __slots__ = ("limit_bytes", "opened_bytes", "paused")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.begin()

    def begin(self) -> None:
        self.opened_bytes = 0
        self.paused = False


class MessageSetReader:
    """Decodes a fetched message set in slices, wrappers included.

    Messages below `fetch_offset` are dropped unread (a fetch inside a wrapper returns all of it),
    and so are those that come again (docs/brokers.md 7.12): offsets never fall. A cut-off tail is
    ignored. After a corrupt message `read` raises for ever: seek past it.

    Args:
        message_set: the bytes of one partition's fetch answer.
        fetch_offset: the first offset that is wanted.
        check_crcs: check each message's CRC, those inside wrappers too.
        max_decompressed_bytes: a wrapper that decompresses to more is refused.
        end_offset: the first message at or above it ends the set, unread.
        turn_bytes: a call opens no other wrapper when it has decompressed so many bytes.

    Attributes:
        error: what the next message is corrupt by.
        opened_bytes: how many bytes the last call has decompressed.
        paused: it ended because of `turn_bytes`: there is more, though perhaps nothing was read.
    """

    __slots__ = (
        "_behind",
        "_check_crcs",
        "_data",
        "_end",
        "_end_offset",
        "_fetch_offset",
        "_inner",
        "_limit",
        "_nesting",
        "_offset",
        "_pos",
        "_relative_to",
        "_timestamp",
        "_topic_partition",
        "_turn",
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
        turn_bytes: int = _NO_END,
    ) -> None:
        self._topic_partition = topic_partition
        self._data = bytes(message_set)  # slices of bytes are cheaper than those of views
        self._view = memoryview(self._data)
        self._pos = 0
        self._end = len(self._data)
        self._fetch_offset = fetch_offset
        self._end_offset = _NO_END if end_offset is None else end_offset
        self._check_crcs = check_crcs
        self._limit = max_decompressed_bytes
        self._turn = _Turn(turn_bytes)
        self._inner: MessageSetReader | None = None
        # Set on the reader of a wrapper's inside:
        self._nesting = 0
        self._behind: int | None = None  # the offset behind the wrapper
        self._relative_to = 0  # added to each offset (format 1)
        self._offset: int | None = None  # the one offset of all messages (nested in format 0)
        self._timestamp: int | None = None  # the wrapper's, under LogAppendTime
        self.error: CorruptRecordException | None = None

    @property
    def opened_bytes(self) -> int:
        """See the class."""
        return self._turn.opened_bytes

    @property
    def paused(self) -> bool:
        """See the class."""
        return self._turn.paused

    def move_to(self, message_set: bytes) -> None:
        """Go on in a copy of the same bytes: nothing is kept of what it was made with."""
        self._data = message_set
        self._view = memoryview(message_set)

    def read(self, max_records: int) -> list[ConsumerRecord[bytes, bytes]]:
        """Up to `max_records` next messages; an empty list means that there are no more (but see
        `paused`).

        Raises:
            CorruptRecordException: the next message is corrupt; those before it have come.
        """
        self._turn.begin()
        return self._records(self._read(max_records, part=False))

    def read_columns(self, columns: Columns, max_records: int) -> int:
        """Append up to `max_records` next messages to `columns`, while that isn't full.

        Returns how many; 0 means that there are no more (but see `paused`), or that `columns` is
        full.

        Raises:
            CorruptRecordException: as `read`.
        """
        self._turn.begin()
        left = max_records
        while left > 0 and not columns.is_full and not self.paused:
            # Part by part: what one holds is bounded by the set, or by `max_decompressed_bytes`.
            try:
                rows = self._read(min(left, _COLUMN_PART), part=True)
            except CorruptRecordException:
                if left < max_records:
                    break
                raise
            if not rows:
                break
            columns.extend_rows(rows)
            left -= len(rows)
        return max_records - left

    def _records(self, rows: Rows) -> list[ConsumerRecord[bytes, bytes]]:
        topic, partition = self._topic_partition
        return list(
            map(
                ConsumerRecord,
                repeat(topic),
                repeat(partition),
                rows.offsets,
                rows.timestamps,
                rows.timestamp_types,
                rows.keys,
                rows.values,
                rows.checksums,
                rows.key_sizes,
                rows.value_sizes,
            )
        )

    def _read(self, max_records: int, *, part: bool) -> Rows:
        """As `read`; with `part` perhaps fewer, before the next wrapper is opened."""
        rows = Rows()
        if self.error is None:
            try:
                self._read_into(rows, max_records, part=part)
            except CorruptRecordException as error:
                self.error = error
        if self.error is not None and not rows:
            # Each raise would add to the traceback that the exception holds on to.
            raise self.error.with_traceback(None)
        return rows

    def _read_into(self, rows: Rows, max_records: int, *, part: bool) -> None:
        while True:
            if self._inner is not None:
                self._inner._read_into(rows, max_records, part=part)
                if len(rows) >= max_records or (part and rows) or self._turn.paused:
                    return
                self._fetch_offset = max(self._fetch_offset, self._inner._fetch_offset)
                self._inner = None
            self._read_entries(rows, max_records)
            if (part and rows) or self._inner is None:
                return

    def _read_entries(self, rows: Rows, max_records: int) -> None:
        """Read until there are enough, nothing is left, or a wrapper was opened as `_inner`."""
        data, view, end, next_pos = self._data, self._view, self._end, self._pos
        relative_to, fixed_offset, fixed_timestamp = (
            self._relative_to,
            self._offset,
            self._timestamp,
        )
        fetch_offset, check_crcs = self._fetch_offset, self._check_crcs
        end_offset = self._end_offset
        offsets, keys, values, checksums = rows.offsets, rows.keys, rows.values, rows.checksums
        timestamps, timestamp_types = rows.timestamps, rows.timestamp_types
        key_sizes, value_sizes = rows.key_sizes, rows.value_sizes
        room = max_records - len(rows)
        while room > 0:
            pos = next_pos
            if end - pos < _MIN_ENTRY_BYTES:
                self._check_tail(pos, fetch_offset)
                break
            offset, size, crc, magic, attributes, key_size, value_size = _unpack_header_0(data, pos)
            stop = next_pos = pos + ENTRY_HEADER_BYTES + size
            if stop > end:
                next_pos = end
                break
            if size < MIN_MESSAGE_BYTES[0]:
                raise self._impossible_size(offset, size, fetch_offset)
            offset = offset + relative_to if fixed_offset is None else fixed_offset
            if offset < fetch_offset:
                continue
            if offset >= end_offset and not attributes & CODEC_MASK:
                next_pos = end  # a wrapper's offset is its last message's, which says less
                break
            if check_crcs and crc32(view[pos + _BODY_AT : stop]) != crc:
                raise self._corrupt(offset, offset + 1, "its CRC doesn't match")
            if magic == 0:
                timestamp = timestamp_type = None
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
            if value_size == stop - value_at:
                value = data[value_at:stop]
            elif value_size == -1 and value_at == stop:
                value = None
            else:
                raise self._corrupt(offset, offset + 1, f"its value length is {value_size}")
            if attributes & CODEC_MASK:
                self._fetch_offset = fetch_offset
                if self._turn.opened_bytes >= self._turn.limit_bytes:
                    self._turn.paused = True
                    self._pos = pos
                    return
                self._pos = stop
                self._inner = self._open(offset, magic, attributes, timestamp, value)
                self._fetch_offset = offset + 1
                return
            offsets.append(offset)
            timestamps.append(timestamp)
            timestamp_types.append(timestamp_type)
            keys.append(key)
            values.append(value)
            checksums.append(crc)
            key_sizes.append(key_size)
            value_sizes.append(value_size)
            room -= 1
            if fixed_offset is None:
                # 3.9.1 sends a batch twice that stands behind a control batch (brokers.md 7.12)
                fetch_offset = offset + 1
        self._pos = next_pos
        self._fetch_offset = fetch_offset

    def _check_tail(self, pos: int, wanted: int) -> None:
        """What is shorter than any message is cut off, or its size says that it isn't: corrupt."""
        if self._end - pos >= ENTRY_HEADER_BYTES:
            offset, size = _unpack_offset_size(self._data, pos)
            if pos + ENTRY_HEADER_BYTES + size <= self._end:
                raise self._impossible_size(offset, size, wanted)

    def _open(
        self, offset: int, magic: int, attributes: int, timestamp: int | None, value: bytes | None
    ) -> MessageSetReader:
        """The reader of a wrapper's inside."""
        if self._nesting == MAX_NESTING:
            raise self._corrupt(offset, offset + 1, "it is a wrapper in a wrapper in a wrapper")
        if value is None:
            raise self._corrupt(offset, offset + 1, "it is a wrapper without a value")
        codec = attributes & CODEC_MASK
        try:
            plain = decompress(Codec(codec), value, self._limit)
        except ValueError as error:  # unknown codec, corrupt, or over the limit
            raise self._corrupt(offset, offset + 1, f"codec {codec}: {error}") from None
        inner = MessageSetReader(
            self._topic_partition,
            plain,
            self._fetch_offset,
            check_crcs=self._check_crcs,
            max_decompressed_bytes=self._limit,
        )
        self._turn.opened_bytes += len(plain)
        inner._turn = self._turn
        inner._end_offset = self._end_offset
        inner._nesting = self._nesting + 1
        inner._behind = offset + 1
        if magic == 1 and attributes & LOG_APPEND_TIME:
            inner._timestamp = timestamp
        if self._nesting:
            # 0.9.0.1 gave the nested wrapper one offset and left those inside as they came.
            inner._offset = offset
        elif magic == 1:
            # Relative offsets (KIP-31): the wrapper's is that of the last message inside.
            inside = survey(plain)
            rest = plain[inside.whole_bytes : inside.whole_bytes + ENTRY_HEADER_BYTES]
            if len(rest) == ENTRY_HEADER_BYTES:
                size = _unpack_offset_size(rest)[1]
                if size < MIN_MESSAGE_BYTES[0]:  # the last can't be found, so no offset is known
                    raise self._corrupt(offset, offset + 1, f"the size of one inside is {size}")
            if inside.next_offset is not None:
                inner._relative_to = offset + 1 - inside.next_offset
        return inner

    def _impossible_size(self, offset: int, size: int, wanted: int) -> CorruptRecordException:
        """Where the next message begins can't be told; behind a wrapper the next one can."""
        offset = offset + self._relative_to if self._offset is None else self._offset
        next_offset = None if self._behind is None else max(self._behind, wanted)
        return self._corrupt(offset, next_offset, f"its size field says {size}")

    def _corrupt(self, offset: int, next_offset: int | None, why: str) -> CorruptRecordException:
        return corrupt(self._topic_partition, offset, next_offset, why)


def corrupt(
    topic_partition: TopicPartition, offset: int, next_offset: int | None, why: str
) -> CorruptRecordException:
    """The error for a corrupt message; `next_offset` is None where it can't be told."""
    topic, partition = topic_partition
    way_out = (
        f"seek() to {next_offset} skips it"
        if next_offset is not None
        else "seek() past it (the next offset can't be told from the damaged bytes)"
    )
    return CorruptRecordException(
        f"corrupt message in topic {topic!r}, partition {partition}, offset {offset}: "
        f"{why}; {way_out}",
        partition=topic_partition,
        offset=offset,
        next_offset=next_offset,
    )
