"""Account for each byte of a fetched message set, independently of the package's readers.

The rule: each byte is returned in a record, is a part of the cut-off tail of the outermost set, or
is covered by an error that was raised. Bytes of messages below the first requested offset count as
returned before; so does an entry that the set repeats (docs/brokers.md 7.12).
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple
from zlib import crc32

from aiokafka08.protocol.compression import Codec, decompress
from aiokafka08.protocol.message_format import MAX_NESTING

_OFFSET_SIZE = struct.Struct(">qi")
_NO_END = 2**64


class Raised(NamedTuple):
    """An error that a reader has raised: it covers the offsets from `offset` to before `stop`."""

    offset: int
    stop: int

    @classmethod
    def at(cls, offset: int, next_offset: int | None) -> Raised:
        """Return what an error covers that names these offsets."""
        return cls(offset, _NO_END if next_offset is None else next_offset)


class Message(NamedTuple):
    """A message as a reader has to return it; or bytes that it can't return (`damage`).

    Attributes:
        own_offset: the offset that the message itself shows: a reader that begins behind the entry
            before goes by that.
        covered_by: an error that covers this offset covers the message too: that of the wrapper, if
            the set inside isn't whole.
        is_misplaced: whether offsets before or behind it contradict its own. Then an error behind
            the last message that was returned before it covers it.
    """

    offset: int
    own_offset: int
    covered_by: int
    is_misplaced: bool = False
    key: bytes | None = None
    value: bytes | None = None
    damage: str = ""


class _Entry(NamedTuple):
    pos: int
    stop: int
    offset: int


def whole_entries(data: bytes) -> Iterator[_Entry]:
    """Yield the entries up to a cut-off one or an impossible size field."""
    pos = 0
    while len(data) - pos >= _OFFSET_SIZE.size:
        offset, size = _OFFSET_SIZE.unpack_from(data, pos)
        stop = pos + _OFFSET_SIZE.size + size
        if size < 14 or stop > len(data):
            return
        yield _Entry(pos, stop, offset)
        pos = stop


def ends_in_damage(data: bytes) -> bool:
    """Whether an impossible size field, and not a cut-off message, follows the whole entries."""
    rest = data[max((entry.stop for entry in whole_entries(data)), default=0) :]
    if len(rest) < _OFFSET_SIZE.size:
        return False
    return bool(_OFFSET_SIZE.unpack_from(rest)[1] <= len(rest) - _OFFSET_SIZE.size)


def falls(data: bytes) -> bool:
    """Whether the offset of an entry isn't above those before, or is negative."""
    highest = -1
    for entry in whole_entries(data):
        if entry.offset <= highest:
            return True
        highest = entry.offset
    return False


def messages_of(
    data: bytes, start: int, limit: int, *, follows_offsets: bool = True
) -> Iterator[Message]:
    """Yield the messages of the whole entries, in order, and what can't be returned."""
    seen = set[bytes]()
    lowest = 0
    misplaced = _misplaced(data)
    for entry in whole_entries(data):
        if data[entry.pos : entry.stop] in seen or (not follows_offsets and entry.offset < lowest):
            continue
        seen.add(data[entry.pos : entry.stop])
        for message in _messages_at(data, entry, entry.offset, (lowest, limit), 0):
            # One whose offset falls is missed at the offset after the entry before.
            yield message._replace(
                covered_by=message.covered_by if entry.offset >= lowest else lowest,
                is_misplaced=entry.pos in misplaced,
            )
        if entry.offset >= start:
            lowest = max(lowest, entry.offset + 1)


def _misplaced(data: bytes) -> set[int]:
    """Return where the entries are whose offset isn't above all before, or not below all behind."""
    entries = list(whole_entries(data))
    misplaced = set[int]()
    highest, lowest = -1, _NO_END
    for entry in entries:
        if entry.offset <= highest:
            misplaced.add(entry.pos)
        highest = max(highest, entry.offset)
    for entry in reversed(entries):
        if entry.offset >= lowest:
            misplaced.add(entry.pos)
        if entry.offset >= 0:
            lowest = min(lowest, entry.offset)
    return misplaced


def _messages_at(
    data: bytes, entry: _Entry, offset: int, bounds: tuple[int, int], nesting: int
) -> Iterator[Message]:
    lowest, limit = bounds
    fields = _fields(data[entry.pos + 12 : entry.stop])
    if isinstance(fields, str):
        yield Message(offset, offset, offset, damage=fields)
        return
    magic, codec, key, value = fields
    if not codec:
        yield Message(offset, offset, offset, key=key, value=value)
        return
    if value is None or nesting == MAX_NESTING:
        yield Message(offset, offset, offset, damage="a wrapper that can't be opened")
        return
    try:
        plain = decompress(Codec(codec), value, limit)
    except ValueError as error:
        yield Message(offset, offset, offset, damage=str(error))
        return
    inner = list(whole_entries(plain))
    is_whole = bool(inner) and inner[-1].stop == len(plain)
    own = [one.offset for one in inner]
    if magic == 1 and own:
        own = [offset - own[-1] + one for one in own]
    rises = all(one < two for one, two in pairwise(own))
    fits = not nesting and rises and all(lowest <= one <= offset for one in own)
    fits = fits and (not is_whole or own[-1] == offset)
    for one, at in zip(inner, own, strict=True):
        for message in _messages_at(plain, one, at if fits else offset, bounds, nesting + 1):
            yield message._replace(
                own_offset=at, covered_by=message.covered_by if is_whole else offset
            )
    if not is_whole:
        yield Message(offset, offset, offset, damage="a set in a wrapper that isn't whole")


def _fields(message: bytes) -> tuple[int, int, bytes | None, bytes | None] | str:
    """Return magic, codec, key and value of a message, or what is wrong with it."""
    [crc] = struct.unpack_from(">I", message)
    magic, attributes = message[4], message[5]
    if crc32(message[4:]) != crc:
        return "its CRC"
    if magic > 1:
        return "its magic"
    rest = message[6 + 8 * magic :]
    fields = []
    for _ in range(2):
        if len(rest) < 4:
            return "its lengths"
        [size] = struct.unpack_from(">i", rest)
        if size < -1 or size > len(rest) - 4:
            return "its lengths"
        fields.append(None if size < 0 else rest[4 : 4 + size])
        rest = rest[4 + max(size, 0) :]
    if rest:
        return "bytes behind its value"
    return magic, attributes & 7, fields[0], fields[1]


def account(
    data: bytes,
    records: Sequence[Any],
    raised: Sequence[Raised],
    start: int,
    *,
    limit: int,
    follows_offsets: bool = True,
) -> None:
    """Raise AssertionError unless each byte is accounted for.

    Args:
        data: the fetched set, or all of a log.
        records: what was returned, in order.
        raised: the errors, after each of which reading went on at `stop`.
        start: the first requested offset.
        limit: the highest size of a decompressed set.
        follows_offsets: False if the reader skips entries whose offsets fall, as one does that
            another part gives the bytes up to there only.
    """
    left = Counter((one.offset, one.key, one.value) for one in records)
    known = set[tuple[int, bytes | None, bytes | None]]()
    is_damaged, has_falls = ends_in_damage(data), falls(data)
    assert not is_damaged or any(one.stop == _NO_END for one in raised), "the rest isn't raised"
    messages = list(messages_of(data, start, limit, follows_offsets=follows_offsets))
    is_damaged |= any(message.damage for message in messages)
    behind = start
    for message in messages:
        found = message.offset, message.key, message.value
        if not message.damage and left[found]:
            left[found] -= 1
            known.add(found)
            behind = message.offset + 1
            continue
        known |= {found, (message.own_offset, message.key, message.value)}
        assert (
            message.offset < start
            or any(
                one.offset <= at < one.stop
                for one in raised
                for at in (message.offset, message.covered_by)
            )
            or (message.is_misplaced and any(one.offset == behind for one in raised))
            # In front of the message with the first offset: a search for that passes over it.
            or (
                message.is_misplaced
                and behind == start
                and any(one.offset == start for one in records)
            )
            # What is damaged is fetched again, from behind the entry before.
            or ((is_damaged or has_falls) and message.own_offset < message.offset)
        ), f"lost: {message}"
    # After an error those of one offset may be returned again.
    again = {one for one in +left if one not in known} if is_damaged or has_falls else +left
    assert not again, f"not in the set: {again}"
    if not is_damaged and not has_falls:
        assert not raised, f"raised for a whole set: {raised}"
