"""The pure twin of `Columns`: messages as the plain buffers of Arrow's columnar layout.

Imported only by `message_set` and the pure reader. Law: everything is native in byte order and as
Arrow's format wants it (validity by bits, the lowest first; int32 offsets, one more than messages),
so that whoever has Arrow wraps the buffers and copies nothing. Arrow itself is `aiokafka08.arrow`'s
business.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import accumulate
from typing import Final, NamedTuple

from aiokafka08.protocol.types import Buffer
from aiokafka08.structs import ConsumerRecord

DEFAULT_MAX_COLUMN_BYTES: Final = 64 * 1024 * 1024
MAX_OFFSET: Final = 2**31 - 1
"""What an int32 offset reaches."""
MAX_TIMESTAMP_MS: Final = (2**63 - 1) // 1000
"""Later ones don't fit into microseconds."""


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

    Attributes:
        size_bytes: bytes of keys and values.
    """

    __slots__ = ("_max_bytes", "_records", "size_bytes")

    def __init__(self, max_bytes: int = DEFAULT_MAX_COLUMN_BYTES) -> None:
        self._max_bytes = max_bytes
        self._records: list[ConsumerRecord[bytes, bytes]] = []
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._records)

    @property
    def is_full(self) -> bool:
        """Whether it takes no more messages."""
        return self.size_bytes >= self._max_bytes

    def extend(self, records: Iterable[ConsumerRecord[bytes, bytes]]) -> None:
        """Append messages that are decoded already, full or not.

        Raises:
            OverflowError: keys or values get longer than `MAX_OFFSET`.
        """
        records = list(records)
        size = sum(
            max(record.serialized_key_size, 0) + max(record.serialized_value_size, 0)
            for record in records
        )
        if self.size_bytes + size > MAX_OFFSET:
            raise OverflowError(f"more than {MAX_OFFSET} bytes in one column")
        self._records += records
        self.size_bytes += size

    def column_key(self) -> Column:
        """Binary."""
        return _binary([record.key for record in self._records])

    def column_value(self) -> Column:
        """Binary."""
        return _binary([record.value for record in self._records])

    def column_offset(self) -> Column:
        """int64."""
        return _fixed("q", [record.offset for record in self._records])

    def column_timestamp(self) -> Column:
        """int64, microseconds since the epoch.

        Null where the message has none (format 0, or negative), or one beyond `MAX_TIMESTAMP_MS`.
        """
        return _fixed(
            "q",
            [
                record.timestamp * 1000
                if record.timestamp is not None and 0 <= record.timestamp <= MAX_TIMESTAMP_MS
                else None
                for record in self._records
            ],
        )

    def column_timestamp_type(self) -> Column:
        """int32: 0 for CreateTime, 1 for LogAppendTime; null in format 0."""
        return _fixed("i", [record.timestamp_type for record in self._records])


def _binary(values: list[bytes | None]) -> Column:
    sizes = (0 if value is None else len(value) for value in values)
    offsets = array("i", accumulate(sizes, initial=0))
    validity, nulls = _validity(values)
    return Column(validity, memoryview(offsets), b"".join(value or b"" for value in values), nulls)


def _fixed(typecode: str, values: list[int] | list[int | None]) -> Column:
    validity, nulls = _validity(values)
    numbers = array(typecode, [0 if value is None else value for value in values])
    return Column(validity, None, memoryview(numbers), nulls)


def _validity(
    values: list[bytes | None] | list[int] | list[int | None],
) -> tuple[bytes | None, int]:
    nulls = values.count(None)  # type: ignore[arg-type]
    if not nulls:
        return None, 0
    bits = bytearray((len(values) + 7) // 8)
    for index, value in enumerate(values):
        if value is not None:
            bits[index >> 3] |= 1 << (index & 7)
    return bytes(bits), nulls
