"""Where a read begins and ends: parse `--from` and `--to`, and turn them into offsets. Pure.

Invariant: an offset that a log doesn't have is an error that names the log's bounds, never a silent
start elsewhere. Counts (`-N`, `+N`) and times stop at the ends of the log instead.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from aiokafka08._tools.times import is_time, parse_time, show_time
from aiokafka08._wording import partition_name, partition_text, some_of
from aiokafka08.errors import IllegalArgumentError, OffsetOutOfRangeError
from aiokafka08.structs import OffsetAndTimestamp, TopicPartition

_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_SIMPLE: Final = r"[+-]?[0-9]{1,18}|beginning|start|earliest|end|latest|"
_RANGE: Final = re.compile(f"({_SIMPLE}):({_SIMPLE})")
_FOR_PARTITION: Final = re.compile(r"([0-9]{1,9})=(.*)")
# An offset this large is more likely a time in milliseconds (this number is in March 1973).
_LIKELY_TIME: Final = 10**11

EXPECTED_POSITION: Final = (
    "beginning, end, stored, an offset N, -N (before the end), +N (after the beginning), N:M, or a "
    "time: 2026-01-31T12:00Z, -1h, @ and milliseconds since the epoch. PARTITION=… is for one "
    "partition"
)


class PositionKind(enum.Enum):
    """The meaning of the number of a `Position`."""

    BEGINNING = "beginning"
    END = "end"
    STORED = "stored"
    OFFSET = "offset"
    FROM_BEGINNING = "+"
    FROM_END = "-"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Position:
    """One end of a range, as the user wrote it."""

    kind: PositionKind
    # The offset, the count, or milliseconds since the epoch.
    number: int = 0


BEGINNING: Final = Position(PositionKind.BEGINNING)
END: Final = Position(PositionKind.END)
STORED: Final = Position(PositionKind.STORED)

_WORDS: Final = {
    "": None,
    "beginning": BEGINNING,
    "start": BEGINNING,
    "earliest": BEGINNING,
    "end": END,
    "latest": END,
    "stored": STORED,
}


@dataclass(frozen=True, slots=True)
class Bounds:
    """One end of the range of each partition."""

    default: Position | None = None
    by_partition: Mapping[int, Position] = field(default_factory=dict)

    def of(self, partition: int) -> Position | None:
        """Return the position for a partition, None if none is given."""
        return self.by_partition.get(partition, self.default)

    def has(self, kind: PositionKind) -> bool:
        """Return True if any partition has a position of this kind."""
        positions = (self.default, *self.by_partition.values())
        return any(position is not None and position.kind is kind for position in positions)


class OffsetSpan(NamedTuple):
    """The offsets of a log: of its first message, and after its last one."""

    first: int
    end: int


def parse_bounds(
    starts: Iterable[str], ends: Iterable[str], *, now_ms: int
) -> tuple[Bounds, Bounds]:
    """Parse the values of `--from` and `--to`.

    Args:
        starts: the values of `--from`; `N:M` and `:M` set the end, too.
        ends: the values of `--to`.
        now_ms: the current time, for times before now.

    Raises:
        IllegalArgumentError: a value has no meaning, two set the same bound, or a range ends before
            it begins.
    """
    start, end = _Collected("--from"), _Collected("--to")
    for text in starts:
        partition, position = _split_partition(text)
        both = _RANGE.fullmatch(position)
        if both is None:
            start.add(text, partition, _parse("--from", text, position, now_ms))
        elif both[1] or both[2]:
            for bound, part in ((start, both[1]), (end, both[2])):
                if part:
                    bound.add(text, partition, _parse("--from", text, part, now_ms))
        else:
            raise _wrong("--from", text)
    for text in ends:
        partition, position = _split_partition(text)
        parsed = _parse("--to", text, position, now_ms)
        if parsed.kind is PositionKind.STORED:
            raise _wrong("--to", text)
        end.add(text, partition, parsed)
    bounds = start.bounds(), end.bounds()
    _check_order(*bounds)
    return bounds


def _check_order(start: Bounds, end: Bounds) -> None:
    for partition in (None, *start.by_partition, *end.by_partition):
        first = start.default if partition is None else start.of(partition)
        last = end.default if partition is None else end.of(partition)
        # Only positions of the same kind can be compared without the log.
        if first is None or last is None or first.kind is not last.kind:
            continue
        is_reversed = first.number > last.number
        if first.kind is PositionKind.FROM_END:
            is_reversed = first.number < last.number
        if is_reversed:
            where = "" if partition is None else f", partition {partition}"
            raise IllegalArgumentError(
                f"--from={first.number}, --to={last.number}{where}: expected a range that ends "
                "after it begins"
            )


class _Collected:
    """The values of one option, at most one for each partition."""

    def __init__(self, option: str) -> None:
        self._option = option
        self._positions: dict[int | None, Position] = {}

    def add(self, text: str, partition: int | None, position: Position) -> None:
        if partition in self._positions:
            where = "all partitions" if partition is None else f"partition {partition}"
            raise IllegalArgumentError(
                f"{self._option}={text!r}: given twice for {where}; expected once"
            )
        self._positions[partition] = position

    def bounds(self) -> Bounds:
        named = {key: value for key, value in self._positions.items() if key is not None}
        return Bounds(self._positions.get(None), named)


def _split_partition(text: str) -> tuple[int | None, str]:
    named = _FOR_PARTITION.fullmatch(text)
    return (None, text) if named is None else (int(named[1]), named[2])


def _parse(option: str, text: str, part: str, now_ms: int) -> Position:
    word = _WORDS.get(part.lower())
    if word is not None:
        return word
    if _NUMBER.fullmatch(part):
        return Position(PositionKind.OFFSET, int(part))
    if part[:1] in ("+", "-") and _NUMBER.fullmatch(part[1:]):
        kind = PositionKind.FROM_BEGINNING if part[0] == "+" else PositionKind.FROM_END
        return Position(kind, int(part[1:]))
    at = part.removeprefix("@")
    if not is_time(at):
        raise _wrong(option, text)
    return Position(PositionKind.TIME, parse_time(option, at, now_ms))


def _wrong(option: str, text: str) -> IllegalArgumentError:
    return IllegalArgumentError(f"{option}={text!r}: expected {EXPECTED_POSITION}")


# --- offsets --------------------------------------------------------------------------------------


def resolve(
    position: Position,
    tp: TopicPartition,
    log: OffsetSpan,
    *,
    found: OffsetAndTimestamp | None = None,
    is_end: bool = False,
) -> int:
    """Return the offset of a position.

    Args:
        position: the position.
        tp: the partition, for the error.
        log: the bounds of its log.
        found: the result of `offsets_for_times`, for a time; None: no message of that time or
            later.
        is_end: the position is where a read ends, so an offset may lie outside the log.

    Raises:
        OffsetOutOfRangeError: the log doesn't have the offset.
    """
    number = position.number
    match position.kind:
        # `STORED`: where a group begins that has no stored position. If it has one, the group
        # begins there.
        case PositionKind.BEGINNING | PositionKind.STORED:
            return log.first
        case PositionKind.END:
            return log.end
        case PositionKind.FROM_BEGINNING:
            return min(log.first + number, log.end)
        case PositionKind.FROM_END:
            return max(log.end - number, log.first)
        case PositionKind.TIME:
            return log.end if found is None else min(found.offset, log.end)
    if not is_end and not log.first <= number <= log.end:
        hint = f". For a time in milliseconds write @{number}" if number >= _LIKELY_TIME else ""
        raise OffsetOutOfRangeError(
            f"{partition_text(tp)}: offset {number} is out of range; the "
            f"log goes from {log.first} to {log.end}{hint}"
        )
    return number


def describe_segments(
    offsets: Mapping[TopicPartition, int], positions: Mapping[TopicPartition, Position]
) -> list[str]:
    """Return a note for each time that brokers resolve only to the starts of segments.

    Args:
        offsets: the start of the segment in each partition.
        positions: the time of each partition.
    """
    found: dict[int, list[str]] = {}
    for tp, offset in offsets.items():
        found.setdefault(positions[tp].number, []).append(f"{partition_name(tp)} at {offset}")
    return [
        f"{show_time(time_ms)} ≈ by segment (the brokers have no index by time): {some_of(places)}"
        for time_ms, places in found.items()
    ]


def refuse_segment(tp: TopicPartition, position: Position) -> IllegalArgumentError:
    """Return the error for an end time that the broker resolves only to the start of a segment."""
    # The segment may hold older messages, too, so an end at its beginning would leave them out.
    return IllegalArgumentError(
        f"{partition_text(tp)}: the broker has no index by time, so it "
        f"doesn't know where to stop at {show_time(position.number)}; expected another end: stop "
        "at an offset, or at the end of the log"
    )


def in_positions(text: str) -> str:
    """Reword a consumer's error: name the position to begin at, and not `seek()`."""
    text = re.sub(r"\bseek\(\) to (\d+) skips it", r"to begin at offset \1 skips it", text)
    text = text.replace("a seek() past it", "to begin behind it")
    return text.replace("seek() past it", "begin behind it").replace("seek() to ", "begin at ")
