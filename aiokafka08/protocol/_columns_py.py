"""The pure-Python twin of `Columns`: decoded messages as buffers in Arrow's columnar layout.

It is the reference for the compiled twin (`_columns_c.pxi`, which takes constants and errors from
here). Other modules use it by way of `message_set`.

Invariant: each buffer is in native byte order and in the layout of Arrow's format (validity bits
from the lowest on; for n messages n + 1 int32 value offsets), so Arrow needs no copy of it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate, repeat
from typing import Final, NamedTuple, cast

from aiokafka08.protocol.types import Buffer
from aiokafka08.structs import ConsumerRecord

DEFAULT_MAX_COLUMN_BYTES: Final = 64 * 1024 * 1024
MAX_COLUMN_BYTES: Final = 2**30
"""The highest `max_bytes`: half of the 2 GiB that Arrow's int32 offsets address, since the last
messages appended may go beyond `max_bytes`."""
_MAX_VALUE_OFFSET: Final = 2**31 - 1  # Arrow's offset of a value in its buffer
MAX_TIMESTAMP_MS: Final = (2**63 - 1) // 1000
"""The highest timestamp that fits into an int64 in microseconds."""


class DecodedMessages:
    """Decoded messages as one list per field; a size of -1 means null.

    The lists hold only numbers, bytes and None, so the garbage collector has no object per message
    to track. While the reader appends messages, the lists of sizes are incomplete, and so are those
    of keys and timestamps if the last messages have none; `fill_up` makes all lists equally long.
    """

    __slots__ = (
        "checksums",
        "key_sizes",
        "keys",
        "offsets",
        "timestamp_types",
        "timestamps",
        "value_sizes",
        "values",
    )

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.timestamps: list[int | None] = []
        self.timestamp_types: list[int | None] = []
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.checksums: list[int | None] = []
        self.key_sizes: list[int] = []
        self.value_sizes: list[int] = []

    def __len__(self) -> int:
        return len(self.offsets)

    def fill_up(self) -> None:
        """Make all lists as long as that of the offsets."""
        self.fill_timestamps()
        self.fill_keys()
        self.key_sizes += _sizes(self.keys[len(self.key_sizes) :])
        self.value_sizes += _sizes(self.values[len(self.value_sizes) :])

    def fill_timestamps(self) -> None:
        """Append None for the last messages, which have no timestamps."""
        missing = [None] * (len(self) - len(self.timestamps))
        self.timestamps += missing
        self.timestamp_types += missing

    def fill_keys(self) -> None:
        """Append None for the last messages, which have no keys."""
        self.keys += [None] * (len(self) - len(self.keys))


def _sizes(blobs: Sequence[bytes | None]) -> Iterable[int]:
    nulls = blobs.count(None)
    if not nulls:
        return map(len, cast("Sequence[bytes]", blobs))
    if nulls == len(blobs):
        return repeat(-1, nulls)
    return [-1 if blob is None else len(blob) for blob in blobs]


class Column(NamedTuple):
    """One column: of Arrow's binary type if it has `offsets`, else of fixed width."""

    # A bit per message, 1 for a value, 0 for null; None if there are no nulls
    validity: Buffer | None
    offsets: Buffer | None  # int32: where each value begins in `data`, then where the last one ends
    data: Buffer
    null_count: int


class ColumnMemory:
    """Memory of earlier `Columns`, which the next ones reuse once nothing refers to their buffers.

    malloc returns large buffers to the kernel, so new ones cost a page fault for every 4 KiB. The
    owner passes one `ColumnMemory` to each `Columns` that it makes. Only the compiled twin reuses
    memory: up to three buffers of 16 MiB. The columns of the pure-Python twin are always copies.
    """

    __slots__ = ()


class Columns:
    """Messages of one or more sets, column by column; `MessageSetReader.read_columns` appends.

    Args:
        max_bytes: with this many bytes of keys and values, or more, it is full.
        memory: reuse this memory; None: allocate new memory.

    Raises:
        ValueError: `max_bytes` isn't from 1 to `MAX_COLUMN_BYTES`.
    """

    __slots__ = ("_decoded", "_is_read", "_max_bytes", "size_bytes")

    def __init__(
        self, max_bytes: int = DEFAULT_MAX_COLUMN_BYTES, memory: ColumnMemory | None = None
    ) -> None:
        check_max_bytes(max_bytes)
        self._max_bytes = max_bytes
        self._is_read = False
        self._decoded = DecodedMessages()
        self.size_bytes = 0  # bytes of keys and values

    def __len__(self) -> int:
        return len(self._decoded)

    @property
    def is_full(self) -> bool:
        """True if it takes no more messages: `max_bytes` is reached, or a column was read."""
        return self._is_read or self.size_bytes >= self._max_bytes

    @property
    def last_offset(self) -> int:
        """The offset of the last message; -1 if there is none."""
        return self._decoded.offsets[-1] if self._decoded else -1

    def extend(self, records: Iterable[ConsumerRecord[bytes, bytes]]) -> None:
        """Append decoded records, even if `max_bytes` is reached.

        Raises:
            OverflowError: all keys and values together have 2 GiB or more.
            ValueError: a column was read before.
        """
        decoded = DecodedMessages()
        for record in records:
            key, value = record.key, record.value
            decoded.offsets.append(record.offset)
            decoded.timestamps.append(record.timestamp)
            decoded.timestamp_types.append(record.timestamp_type)
            decoded.keys.append(key)
            decoded.values.append(value)
            decoded.key_sizes.append(-1 if key is None else len(key))
            decoded.value_sizes.append(-1 if value is None else len(value))
        self.extend_decoded(decoded)

    def extend_decoded(self, decoded: DecodedMessages) -> None:
        """Do what `extend` does, with the messages of the pure-Python reader."""
        if self._is_read:
            raise already_read()
        own, size = self._decoded, 0
        for sizes in (decoded.key_sizes, decoded.value_sizes):
            size += sum(sizes) + sizes.count(-1)
        if self.size_bytes + size > _MAX_VALUE_OFFSET:
            raise too_long()
        own.offsets += decoded.offsets
        own.timestamps += decoded.timestamps
        own.timestamp_types += decoded.timestamp_types
        own.keys += decoded.keys
        own.values += decoded.values
        own.key_sizes += decoded.key_sizes
        own.value_sizes += decoded.value_sizes
        self.size_bytes += size

    def delimited(self, end: bytes, null: bytes = b"", between: bytes | None = None) -> bytes:
        """Return the values one after the other, each followed by `end`.

        Args:
            end: written after each value.
            null: written for null (default b"").
            between: write the key and this before each value; None: no keys (default None).
        """
        values = self._decoded.values
        if None in values:
            values = [null if value is None else value for value in values]
        if between is None:
            return end.join([*values, b""]) if values else b""  # type: ignore[list-item]
        keys = [null if key is None else key for key in self._decoded.keys]
        parts: list[bytes | None] = []
        for key, value in zip(keys, values, strict=True):
            parts += (key, between, value, end)
        return b"".join(parts)  # type: ignore[arg-type]

    def column_key(self) -> Column:
        """Return the keys: binary."""
        self._is_read = True
        return _binary(self._decoded.keys, self._decoded.key_sizes)

    def column_value(self) -> Column:
        """Return the values: binary."""
        self._is_read = True
        return _binary(self._decoded.values, self._decoded.value_sizes)

    def column_offset(self) -> Column:
        """Return the offsets: int64."""
        self._is_read = True
        return _fixed("q", self._decoded.offsets)

    def column_timestamp(self) -> Column:
        """Return the timestamps: int64, microseconds since the epoch.

        Null if the message has no timestamp (format 0), or one < 0 or > `MAX_TIMESTAMP_MS`.
        """
        self._is_read = True
        times = self._decoded.timestamps
        if times.count(None) < len(times):  # else all are null
            times = [
                time * 1000 if time is not None and 0 <= time <= MAX_TIMESTAMP_MS else None
                for time in times
            ]
        return _fixed("q", times)

    def column_timestamp_type(self) -> Column:
        """Return the timestamp types, int32: 0 CreateTime, 1 LogAppendTime, null in format 0."""
        self._is_read = True
        return _fixed("i", self._decoded.timestamp_types)


def check_max_bytes(max_bytes: int) -> None:
    """Raise ValueError for a `max_bytes` that `Columns` doesn't allow."""
    if not 0 < max_bytes <= MAX_COLUMN_BYTES:
        raise ValueError(
            f"max_bytes={max_bytes!r}: expected an integer from 1 to {MAX_COLUMN_BYTES}"
        )


def already_read() -> ValueError:
    """Make the error for appending after a column was read."""
    return ValueError("append to Columns: a column was read before. Make new Columns")


def too_long() -> OverflowError:
    """Make the error for more bytes than int32 offsets can address."""
    return OverflowError(
        "append to Columns: all keys and values together have 2 GiB or more; expected less. "
        "Read fewer messages"
    )


def _binary(values: list[bytes | None], sizes: list[int]) -> Column:
    nulls = sizes.count(-1)
    if nulls == len(values):
        return Column(_validity(values, nulls), bytes(4 * (nulls + 1)), b"", nulls)
    if nulls:
        sizes = [0 if size < 0 else size for size in sizes]
    offsets = array("i", accumulate(sizes, initial=0))
    data = b"".join(filter(None, values))
    return Column(_validity(values, nulls), memoryview(offsets), data, nulls)


def _fixed(typecode: str, values: list[int] | list[int | None]) -> Column:
    nulls = values.count(None)  # type: ignore[arg-type]
    if nulls == len(values):
        numbers = array(typecode, bytes(array(typecode).itemsize * nulls))
    elif nulls:
        numbers = array(typecode, [0 if value is None else value for value in values])
    else:
        numbers = array(typecode, values)  # type: ignore[arg-type]
    return Column(_validity(values, nulls), None, memoryview(numbers), nulls)


def _validity(values: Sequence[object], nulls: int) -> bytes | None:
    if not nulls:
        return None
    bits = bytearray((len(values) + 7) // 8)
    if nulls < len(values):
        for index, value in enumerate(values):
            if value is not None:
                bits[index >> 3] |= 1 << (index & 7)
    return bytes(bits)
