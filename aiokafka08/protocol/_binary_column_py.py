"""The pure twin of `BinaryColumn`: a binary column in Arrow's layout, read as a sequence of bytes.

The reference for the compiled twin (`_binary_column_c.pxi`); other modules use it by way of
`message_set`.

Invariant: `__init__` checks offsets and lengths, so no later access reads outside of the buffers.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import overload

from aiokafka08.protocol.types import Buffer


class BinaryColumn(Sequence[bytes | None]):
    """`count` byte strings or nulls in the buffers of an Arrow array.

    The buffers are referenced, not copied, and must not change.

    Args:
        first: index in the buffers of the first row of this sequence (`offset` of an Arrow slice).
        count: the number of rows in this sequence.
        validity: a bit per row of the buffers: 1 for a value, 0 for null. The first row has the
            lowest bit of the first byte. None if no row is null.
        offsets: where each row begins in `data`, then where the last one ends; native int32.
        data: the bytes of all rows; None if there are none.
        wide: True if the offsets are int64 (Arrow's large types).

    Raises:
        ValueError: the buffers hold fewer than `first + count` rows, or the offsets decrease or
            point outside of `data`.
    """

    __slots__ = ("_bits", "_count", "_data", "_first", "_offsets")

    def __init__(
        self,
        first: int,
        count: int,
        validity: Buffer | None,
        offsets: Buffer | None,
        data: Buffer | None,
        wide: bool = False,
    ) -> None:
        if first < 0 or count < 0:
            raise ValueError(f"first={first}, count={count}: expected integers >= 0")
        self._first = first
        self._count = count
        width = 8 if wide else 4
        bits = None if validity is None else memoryview(validity).cast("B")
        starts = memoryview(b"" if offsets is None else offsets).cast("B")
        self._data = memoryview(b"" if data is None else data).cast("B")
        rows = len(starts) // width - 1
        if count and (first + count > rows or (bits is not None and first + count > 8 * len(bits))):
            raise ValueError(f"buffers of a column: expected at least {first + count} rows")
        self._bits = bits
        self._offsets = starts[: (rows + 1) * width].cast("q" if wide else "i")
        if count:
            used = self._offsets[first : first + count + 1]
            if used[0] < 0 or used[-1] > len(self._data) or any(a > b for a, b in pairwise(used)):
                raise ValueError("buffers of a column: offsets decrease or exceed the data")

    @staticmethod
    def split(data: bytes, delimiter: bytes, skip_empty: bool = False) -> BinaryColumn:
        """Return the parts of `data` between delimiters, as `data.split(delimiter)` does.

        Args:
            data: less than 2 GiB.
            delimiter: one byte.
            skip_empty: leave out empty parts (default False).

        Raises:
            ValueError: the delimiter isn't one byte, or the data is too long.
        """
        check_split(len(data), delimiter)
        parts = data.split(delimiter)
        if skip_empty:
            parts = [part for part in parts if part]
        offsets = array("i", accumulate(map(len, parts), initial=0))
        return BinaryColumn(0, len(parts), None, memoryview(offsets), b"".join(parts))

    def longest(self) -> int:
        """Return the size of the longest row; 0 if there is none, or all are null."""
        return max((len(row) for row in self if row is not None), default=0)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> bytes | None: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes | None]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes | None] | None:
        if isinstance(index, slice):
            return [self[row] for row in range(*index.indices(self._count))]
        if not -self._count <= index < self._count:
            raise IndexError(f"row {index}: there are {self._count} rows")
        row = self._first + index % self._count
        if self._bits is not None and not self._bits[row >> 3] >> (row & 7) & 1:
            return None
        return bytes(self._data[self._offsets[row] : self._offsets[row + 1]])


def check_split(size: int, delimiter: bytes) -> None:
    """Raise ValueError for arguments that `BinaryColumn.split` doesn't allow."""
    if len(delimiter) != 1 or size >= 2**31:
        raise ValueError(
            f"split {size} bytes at {delimiter!r}: expected one byte as the delimiter, and less "
            "than 2 GiB"
        )
