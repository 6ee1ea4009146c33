"""The pure twin of `Blobs`: a binary column in Arrow's layout, read as a sequence.

Imported only by `message_set`. The compiled builder appends from the compiled twin without a
Python object per message; here each is made when it is looked at. Law: what the buffers say is
checked once, when one is made. `Columns` is the way in the other direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import overload

from aiokafka08.protocol.types import Buffer


class Blobs(Sequence[bytes | None]):
    """`count` byte strings, some of them null, as they stand in the buffers of an Arrow array.

    The buffers are held, not copied, and must not change.

    Args:
        first: the row of the buffers that comes first here (Arrow's `offset` of a slice).
        count: how many rows.
        validity: a bit per row, the lowest of a byte first, set where there is a value; None where
            each row has one.
        offsets: where each row begins in `data`, and where the last one ends; native int32.
        data: the bytes of all rows; None where there are none.
        wide: offsets are int64 instead (Arrow's large types).

    Raises:
        ValueError: the buffers don't hold so many rows, or offsets fall or lead out of `data`.
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
            raise ValueError(f"first={first}, count={count}: allowed are integers from 0 on")
        self._first = first
        self._count = count
        width = 8 if wide else 4
        bits = None if validity is None else memoryview(validity).cast("B")
        starts = memoryview(b"" if offsets is None else offsets).cast("B")
        self._data = memoryview(b"" if data is None else data).cast("B")
        rows = len(starts) // width - 1
        if count and (first + count > rows or (bits is not None and first + count > 8 * len(bits))):
            raise ValueError(f"the buffers hold fewer than {first + count} rows")
        self._bits = bits
        self._offsets = starts[: (rows + 1) * width].cast("q" if wide else "i")
        if count:
            used = self._offsets[first : first + count + 1]
            if used[0] < 0 or used[-1] > len(self._data) or any(a > b for a, b in pairwise(used)):
                raise ValueError("offsets fall, or lead out of the data")

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> bytes | None: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes | None]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes | None] | None:
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(self._count))]
        if not -self._count <= index < self._count:
            raise IndexError(f"{index}: there are {self._count} rows")
        row = self._first + index % self._count
        if self._bits is not None and not self._bits[row >> 3] >> (row & 7) & 1:
            return None
        return bytes(self._data[self._offsets[row] : self._offsets[row + 1]])
