"""Compare two sequences of messages by their checksums, as they are read, in bounded memory.

`message_crc` is the CRC-32 of a message's key and value (and timestamp, if wanted), with their
lengths, so that a null isn't an empty value and no byte can move from one to the other.
`SequenceCheck` takes the checksums of both sides, in any portions.

Invariant: two sequences are equal if and only if they have the same checksums in the same order.
After the first difference the sides are only counted.

Pure. `verify` reads the messages.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

_LENGTHS = struct.Struct(">iiq")
_AHEAD = 2
"""How many messages behind a difference show what it is."""


def message_crc(key: bytes | None, value: bytes | None, timestamp: int | None = None) -> int:
    """Return the checksum of a message.

    Args:
        key: the key; None is null.
        value: the value; None is null.
        timestamp: in milliseconds; None leaves timestamps out (default None).
    """
    lengths = _LENGTHS.pack(
        -1 if key is None else len(key),
        -1 if value is None else len(value),
        -(2**63) if timestamp is None else timestamp,
    )
    return zlib.crc32(value or b"", zlib.crc32(key or b"", zlib.crc32(lengths)))


class Difference(NamedTuple):
    """The first message that isn't the same.

    `kind` is "changed", "lost" (not in the target), "extra" (in the target only), "twice" (in the
    target again) or "swapped". An offset is that of the message, or of the end of its side.
    `equal_count` is how many messages in front of it are the same.
    """

    kind: str
    source_offset: int
    target_offset: int
    equal_count: int


@dataclass(frozen=True, slots=True)
class CheckProgress:
    """How far two sequences were compared, to continue later.

    `source_next` and `target_next` are the offsets of the next messages; `crc` is the rolling
    CRC-32 of all checksums that were equal, `last_crc` the last of these.
    """

    source_next: int
    target_next: int
    source_count: int = 0
    target_count: int = 0
    crc: int = 0
    difference: Difference | None = None
    last_crc: int | None = None

    def before_difference(self) -> CheckProgress:
        """Return the progress at the first difference, from which both sides are read again."""
        if (found := self.difference) is None:
            return self
        at, count = (found.source_offset, found.target_offset), found.equal_count
        return CheckProgress(*at, count, count, self.crc, None, self.last_crc)


class _Side:
    """The messages of one side that weren't compared yet."""

    def __init__(self, next_offset: int, count: int) -> None:
        self.offsets, self.crcs = array("q"), array("I")
        self.next, self.count = next_offset, count
        self.is_complete = False

    def drop(self, number: int) -> None:
        if number:
            self.next = self.offsets[number - 1] + 1
            self.count += number
            del self.offsets[:number], self.crcs[:number]

    def offset_at(self, number: int) -> int:
        return self.offsets[number] if number < len(self.offsets) else self.next


class SequenceCheck:
    """The comparison of a partition with its copy."""

    def __init__(self, progress: CheckProgress) -> None:
        self._source = _Side(progress.source_next, progress.source_count)
        self._target = _Side(progress.target_next, progress.target_count)
        self._crc, self._difference = progress.crc, progress.difference
        self._last_crc = progress.last_crc

    @property
    def progress(self) -> CheckProgress:
        """What was compared so far; what is waiting for the other side isn't counted."""
        return CheckProgress(
            self._source.next,
            self._target.next,
            self._source.count,
            self._target.count,
            self._crc,
            self._difference,
            self._last_crc,
        )

    @property
    def wants_source(self) -> bool:
        """True if no messages of the source are waiting."""
        return not self._source.is_complete and len(self._source.crcs) <= _AHEAD

    @property
    def wants_target(self) -> bool:
        """True if no messages of the target are waiting."""
        return not self._target.is_complete and len(self._target.crcs) <= _AHEAD

    @property
    def is_complete(self) -> bool:
        """True if both sides have ended."""
        return self._source.is_complete and self._target.is_complete

    def add_source(self, offsets: Iterable[int], crcs: Iterable[int]) -> None:
        """Add messages of the source; none: it has ended."""
        self._add(self._source, offsets, crcs)

    def add_target(self, offsets: Iterable[int], crcs: Iterable[int]) -> None:
        """Add messages of the target; none: it has ended."""
        self._add(self._target, offsets, crcs)

    def _add(self, side: _Side, offsets: Iterable[int], crcs: Iterable[int]) -> None:
        before = len(side.crcs)
        side.offsets.extend(offsets)
        side.crcs.extend(crcs)
        side.is_complete = len(side.crcs) == before
        self._compare()

    def _compare(self) -> None:
        source, target = self._source, self._target
        if self._difference is None:
            common = min(len(source.crcs), len(target.crcs))
            equal = common
            if source.crcs[:common] != target.crcs[:common]:
                pairs = zip(source.crcs, target.crcs, strict=False)
                equal = next(at for at, (one, other) in enumerate(pairs) if one != other)
            if equal:
                same = source.crcs[:equal]
                self._crc, self._last_crc = zlib.crc32(same.tobytes(), self._crc), same[-1]
                source.drop(equal)
                target.drop(equal)
            if not (source.crcs or target.crcs) or not self._is_decided():
                return
            at = source.offset_at(0), target.offset_at(0)
            self._difference = Difference(self._kind(), *at, source.count)
        source.drop(len(source.crcs))
        target.drop(len(target.crcs))

    def _is_decided(self) -> bool:
        return all(
            side.is_complete or len(side.crcs) > _AHEAD for side in (self._source, self._target)
        )

    def _kind(self) -> str:
        ours, theirs = list(self._source.crcs[:_AHEAD]), list(self._target.crcs[:_AHEAD])
        if not ours:
            return "twice" if theirs[0] == self._last_crc else "extra"
        if not theirs:
            return "lost"
        if ours == theirs[::-1] and len(ours) > 1:
            return "swapped"
        if ours[1:] == theirs[:1] and ours[1:]:
            return "lost"
        if theirs[1:] == ours[:1] and theirs[1:]:
            return "twice" if theirs[0] == self._last_crc else "extra"
        return "changed"
