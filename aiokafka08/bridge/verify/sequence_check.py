"""Compare two sequences of messages by their checksums, as they are read, in bounded memory. Pure.

Invariant: two sequences are equal if and only if they have the same checksums in the same order. If
timestamps are compared, those must be equal too, except where the source's is 0 or below, which a
copy doesn't keep. After the first difference the messages of the sides are only counted.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

_LENGTHS: Final = struct.Struct(">ii")
# A side reads on until more than this many of its messages wait to be compared. The messages after
# a difference tell its kind.
_AHEAD: Final = 2


def message_crc(key: bytes | None, value: bytes | None) -> int:
    """Return the CRC-32 of a message's key and value; None is null."""
    # The lengths distinguish null from an empty value, and a byte of the key from one of the value.
    lengths = _LENGTHS.pack(-1 if key is None else len(key), -1 if value is None else len(value))
    return zlib.crc32(value or b"", zlib.crc32(key or b"", zlib.crc32(lengths)))


class Portion:
    """Some messages of one side, in the order of their offsets.

    Attributes:
        offsets: Their offsets.
        crcs: Their checksums.
        timestamps: Their timestamps in milliseconds; 0 or below for none.
    """

    def __init__(self) -> None:
        self.offsets, self.crcs, self.timestamps = array("q"), array("I"), array("q")

    def __len__(self) -> int:
        return len(self.offsets)

    def add(
        self, offset: int, key: bytes | None, value: bytes | None, timestamp: int | None
    ) -> None:
        """Add a message after the others; None is a null key or value, or no timestamp."""
        self.offsets.append(offset)
        self.crcs.append(message_crc(key, value))
        self.timestamps.append(timestamp or 0)


class Difference(NamedTuple):
    """The first difference: on each side the offset of the differing message, or the end."""

    # "changed", "lost" (not in the target), "extra" (in the target only), "twice" (in the target
    # again) or "swapped".
    kind: str
    source_offset: int
    target_offset: int
    # How many messages before it are the same.
    equal_count: int


@dataclass(frozen=True, slots=True)
class CheckProgress:
    """How far two sequences were compared, to continue later."""

    # The offsets of the next messages.
    source_next: int
    target_next: int
    source_count: int = 0
    target_count: int = 0
    # The rolling CRC-32 of all checksums that were equal.
    crc: int = 0
    difference: Difference | None = None
    # The checksum and timestamp of the source's last message before the first difference.
    last_crc: int | None = None
    last_timestamp: int = 0
    # The offsets, at the source and at the target, of the first and the last equal message.
    first_pair: tuple[int, int] | None = None
    last_pair: tuple[int, int] | None = None
    # How many equal messages have the source offset of `last_pair`. Messages in nested wrappers may
    # share an offset (docs/brokers.md 6.7), so more of them may follow.
    last_shared: int = 0

    def source_start(self, first: int) -> tuple[int, int]:
        """Return the offset to read the source from, and how many messages there to leave out.

        `first` is the first offset that the source still has.
        """
        if self.last_pair is not None and self.last_shared and self.last_pair[0] >= first:
            return self.last_pair[0], self.last_shared
        return self.source_next, 0

    def before_difference(self) -> CheckProgress:
        """Return the progress at the first difference, from which both sides are read again."""
        if (difference := self.difference) is None:
            return self
        return replace(
            self,
            source_next=difference.source_offset,
            target_next=difference.target_offset,
            source_count=difference.equal_count,
            target_count=difference.equal_count,
            difference=None,
        )


class _Side(Portion):
    """The messages of one side that weren't compared yet."""

    def __init__(self, next_offset: int, count: int) -> None:
        super().__init__()
        self.next, self.count = next_offset, count
        self.is_complete = False

    @property
    def is_wanted(self) -> bool:
        return not self.is_complete and len(self) <= _AHEAD

    @property
    def next_offset(self) -> int:
        return self.offsets[0] if self else self.next

    def extend(self, portion: Portion) -> None:
        self.offsets.extend(portion.offsets)
        self.crcs.extend(portion.crcs)
        self.timestamps.extend(portion.timestamps)
        self.is_complete = not portion

    def drop(self, number: int) -> None:
        if number:
            self.next = self.offsets[number - 1] + 1
            self.count += number
            del self.offsets[:number], self.crcs[:number], self.timestamps[:number]


class SequenceCheck:
    """The comparison of a partition with its copy.

    Args:
        progress: where to begin.
        timestamps: whether timestamps are compared.
    """

    def __init__(self, progress: CheckProgress, *, timestamps: bool) -> None:
        self._source = _Side(progress.source_next, progress.source_count)
        self._target = _Side(progress.target_next, progress.target_count)
        self._noted, self._timestamps = progress, timestamps

    @property
    def progress(self) -> CheckProgress:
        """The comparison so far, without messages that wait for the other side."""
        return replace(
            self._noted,
            source_next=self._source.next,
            target_next=self._target.next,
            source_count=self._source.count,
            target_count=self._target.count,
        )

    @property
    def wants_source(self) -> bool:
        """True if the next messages of the source are to be added."""
        return self._source.is_wanted

    @property
    def wants_target(self) -> bool:
        """True if the next messages of the target are to be added."""
        return self._target.is_wanted

    @property
    def is_complete(self) -> bool:
        """True if both sides have ended."""
        return self._source.is_complete and self._target.is_complete

    def add_source(self, portion: Portion) -> None:
        """Add messages of the source; an empty portion ends it."""
        self._source.extend(portion)
        self._compare()

    def add_target(self, portion: Portion) -> None:
        """Add messages of the target; an empty portion ends it."""
        self._target.extend(portion)
        self._compare()

    def _compare(self) -> None:
        source, target = self._source, self._target
        if self._noted.difference is None:
            if equal := self._equal_count():
                self._count_equal(equal)
            if not (source or target) or source.is_wanted or target.is_wanted:
                return
            at = source.next_offset, target.next_offset
            difference = Difference(self._kind(), *at, source.count)
            self._noted = replace(self._noted, difference=difference)
        # After a difference nothing is compared any more: the sides are only counted.
        source.drop(len(source))
        target.drop(len(target))

    def _equal_count(self) -> int:
        """Return how many messages are the same from the next one on."""
        source, target = self._source, self._target
        common = min(len(source), len(target))
        if source.crcs[:common] == target.crcs[:common] and (
            not self._timestamps or source.timestamps[:common] == target.timestamps[:common]
        ):
            return common
        return next((at for at in range(common) if not self._is_same(at, at)), common)

    def _is_same(self, ours: int, theirs: int) -> bool:
        """Return whether two waiting messages are the same, by their indexes."""
        source = self._source
        return self._has_target(theirs, source.crcs[ours], source.timestamps[ours])

    def _has_target(self, place: int, crc: int, timestamp: int) -> bool:
        """Return whether the target's message at an index has this checksum and this timestamp."""
        target = self._target
        return target.crcs[place] == crc and (
            not self._timestamps or timestamp <= 0 or target.timestamps[place] == timestamp
        )

    def _count_equal(self, number: int) -> None:
        """Count messages that are the same, and note the fields that a resume needs."""
        source, target, noted = self._source, self._target, self._noted
        first = noted.first_pair if source.count else (source.offsets[0], target.offsets[0])
        last = number - 1
        offset = source.offsets[last]
        shared = number - bisect_left(source.offsets, offset, 0, number)
        if shared == number and noted.last_pair is not None and noted.last_pair[0] == offset:
            shared += noted.last_shared
        self._noted = replace(
            noted,
            crc=zlib.crc32(source.crcs[:number].tobytes(), noted.crc),
            last_crc=source.crcs[last],
            last_timestamp=source.timestamps[last],
            first_pair=first,
            last_pair=(offset, target.offsets[last]),
            last_shared=shared,
        )
        source.drop(number)
        target.drop(number)

    def _kind(self) -> str:
        ours, theirs = len(self._source), len(self._target)
        if not theirs:
            return "lost"
        if not ours:
            return self._added_kind()
        is_ours_next = ours > 1 and self._is_same(1, 0)
        is_theirs_next = theirs > 1 and self._is_same(0, 1)
        if is_ours_next and is_theirs_next:
            return "swapped"
        if is_ours_next:
            return "lost"
        return self._added_kind() if is_theirs_next else "changed"

    def _added_kind(self) -> str:
        """Return the kind of a message of the target that the source doesn't have there."""
        last_crc, last_timestamp = self._noted.last_crc, self._noted.last_timestamp
        if last_crc is not None and self._has_target(0, last_crc, last_timestamp):
            return "twice"
        return "extra"
