"""The pure twin of `Columns`: messages as the plain buffers of Arrow's columnar layout.

Imported only by `message_set` and the pure reader. Law: everything is native in byte order and as
Arrow's format wants it (validity by bits, the lowest first; int32 offsets, one more than messages),
so that whoever has Arrow wraps the buffers and copies nothing. Arrow itself is `aiokafka08.arrow`'s
business.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from aiokafka08.protocol.types import Buffer
from aiokafka08.structs import ConsumerRecord

DEFAULT_MAX_COLUMN_BYTES: Final = 64 * 1024 * 1024
MAX_COLUMN_BYTES: Final = 2**30
"""What `max_bytes` may be at most: behind it one more message has to fit below an int32 offset."""
_MAX_OFFSET: Final = 2**31 - 1
MAX_TIMESTAMP_MS: Final = (2**63 - 1) // 1000
"""Later ones don't fit into microseconds."""


class Rows:
    """Messages field by field, as the pure reader has them; sizes are -1 for null.

    Lists of numbers and bytes: nothing that the garbage collector would walk.
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


class Column(NamedTuple):
    """One column: of Arrow's type binary where it has `offsets`, else of fixed width."""

    validity: Buffer | None
    """A bit per message, set where there is a value; None where each has one."""
    offsets: Buffer | None
    """int32: where each value begins in `data`, and where the last one ends."""
    data: Buffer
    null_count: int


class Columns:
    """Messages of one or more sets, column by column; `MessageSetReader.read_columns` appends.

    Args:
        max_bytes: with so many bytes of keys and values, or more, it takes no more messages.

    Raises:
        ValueError: `max_bytes` isn't from 1 to `MAX_COLUMN_BYTES`.

    Attributes:
        size_bytes: bytes of keys and values.
    """

    __slots__ = ("_given", "_max_bytes", "_rows", "size_bytes")

    def __init__(self, max_bytes: int = DEFAULT_MAX_COLUMN_BYTES) -> None:
        check_max_bytes(max_bytes)
        self._max_bytes = max_bytes
        self._given = False
        self._rows = Rows()
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def is_full(self) -> bool:
        """Whether it takes no more messages; so it is once a column was given out."""
        return self._given or self.size_bytes >= self._max_bytes

    @property
    def last_offset(self) -> int:
        """That of the last message; -1 where there is none."""
        return self._rows.offsets[-1] if self._rows else -1

    def extend(self, records: Iterable[ConsumerRecord[bytes, bytes]]) -> None:
        """Append messages that are decoded already, full or not.

        Raises:
            OverflowError: their keys and values have 2 GiB or more.
            ValueError: a column was given out before.
        """
        rows = Rows()
        for record in records:
            key, value = record.key, record.value
            rows.offsets.append(record.offset)
            rows.timestamps.append(record.timestamp)
            rows.timestamp_types.append(record.timestamp_type)
            rows.keys.append(key)
            rows.values.append(value)
            rows.key_sizes.append(-1 if key is None else len(key))
            rows.value_sizes.append(-1 if value is None else len(value))
        self.extend_rows(rows)

    def extend_rows(self, rows: Rows) -> None:
        """As `extend`, of messages as the pure reader has them."""
        if self._given:
            raise already_given()
        own, size = self._rows, 0
        for sizes in (rows.key_sizes, rows.value_sizes):
            size += sum(sizes) + sizes.count(-1)
        if self.size_bytes + size > _MAX_OFFSET:
            raise too_long()
        own.offsets += rows.offsets
        own.timestamps += rows.timestamps
        own.timestamp_types += rows.timestamp_types
        own.keys += rows.keys
        own.values += rows.values
        own.key_sizes += rows.key_sizes
        own.value_sizes += rows.value_sizes
        self.size_bytes += size

    def column_key(self) -> Column:
        """Binary."""
        self._given = True
        return _binary(self._rows.keys, self._rows.key_sizes)

    def column_value(self) -> Column:
        """Binary."""
        self._given = True
        return _binary(self._rows.values, self._rows.value_sizes)

    def column_offset(self) -> Column:
        """int64."""
        self._given = True
        return _fixed("q", self._rows.offsets)

    def column_timestamp(self) -> Column:
        """int64, microseconds since the epoch.

        Null where the message has none (format 0, or negative), or one beyond `MAX_TIMESTAMP_MS`.
        """
        self._given = True
        times = self._rows.timestamps
        if times.count(None) < len(times):  # else there are none
            times = [
                time * 1000 if time is not None and 0 <= time <= MAX_TIMESTAMP_MS else None
                for time in times
            ]
        return _fixed("q", times)

    def column_timestamp_type(self) -> Column:
        """int32: 0 for CreateTime, 1 for LogAppendTime; null in format 0."""
        self._given = True
        return _fixed("i", self._rows.timestamp_types)


def check_max_bytes(max_bytes: int) -> None:
    """Raises ValueError; see `Columns`."""
    if not 0 < max_bytes <= MAX_COLUMN_BYTES:
        raise ValueError(f"max_bytes={max_bytes!r}: allowed are 1 to {MAX_COLUMN_BYTES}")


def already_given() -> ValueError:
    """The error for appending where a column was given out."""
    return ValueError("its columns were given out already: make a new one")


def too_long() -> OverflowError:
    """The error for more bytes than int32 offsets reach."""
    return OverflowError("2 GiB or more of keys and values in one batch")


def _binary(values: list[bytes | None], sizes: list[int]) -> Column:
    nulls = sizes.count(-1)
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
