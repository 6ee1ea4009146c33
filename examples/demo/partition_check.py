"""Compare what is read from a partition with what was acknowledged in it. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import pairwise

Message = tuple[bytes | None, bytes | None]
"""Key and value."""


class PartitionCheck:
    """The messages sent to one partition, in the order of sending, with their offsets.

    Invariant: of what is read, the message at an acknowledged offset must be the one that was
    acknowledged there, and these offsets must ascend in the order of sending. At any other offset
    only a copy of a sent message may be: the producer sent it again, as the response to the first
    attempt was lost.

    Attributes:
        repeated: the copies.
    """

    def __init__(self, topic: str, partition: int) -> None:
        self.repeated: list[Message] = []
        self._where = f"topic {topic!r}, partition {partition}"
        self._offsets = array("q")
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._reordered = 0
        self._lost: list[int] = []
        self._next = 0
        self._differences: list[str] = []

    def add(self, key: bytes, values: Sequence[bytes], offsets: Sequence[int]) -> None:
        """Add the next messages that were sent, with the offsets of their acknowledgements."""
        last = self._offsets[-1:]
        before = [*last, *offsets]
        self._reordered += sum(after <= earlier for earlier, after in pairwise(before))
        self._offsets.extend(offsets)
        self._keys += [key] * len(values)
        self._values += values

    def read(
        self,
        offsets: Sequence[int],
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
    ) -> None:
        """Compare the next messages of the partition."""
        expected = slice(self._next, self._next + len(offsets))
        if (
            offsets == self._offsets[expected].tolist()
            and values == self._values[expected]
            and keys == self._keys[expected]
        ):
            self._next = expected.stop
            return
        for offset, key, value in zip(offsets, keys, values, strict=True):
            self._read_one(offset, key, value)

    def end(self) -> list[str]:
        """Return the differences, once the partition was read to its end."""
        self._lost += self._offsets[self._next :]
        self._next = len(self._offsets)
        texts = list(self._differences)
        if self._lost:
            texts.append(f"{self._where}: {len(self._lost):,} lost, the first at {self._lost[0]}")
        if self._reordered:
            texts.append(f"{self._where}: {self._reordered:,} reordered")
        not_sent = set(self.repeated)
        if not_sent:
            not_sent.difference_update(zip(self._keys, self._values, strict=True))
        if not_sent:
            texts.append(f"{self._where}: {len(not_sent):,} read that were not sent")
        return texts

    def _read_one(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        while self._next < len(self._offsets) and self._offsets[self._next] < offset:
            self._lost.append(self._offsets[self._next])
            self._next += 1
        if self._next == len(self._offsets) or self._offsets[self._next] > offset:
            self.repeated.append((key, value))
            return
        sent = self._keys[self._next], self._values[self._next]
        if (key, value) != sent:
            self._differences.append(
                f"{self._where}, offset {offset}: read {_shown(key, value)}, sent {_shown(*sent)}"
            )
        self._next += 1


def _shown(key: bytes | None, value: bytes | None) -> str:
    shortened = value if value is None or len(value) <= 40 else value[:40] + b"..."
    return f"key {key!r} value {shortened!r}"
