"""Decide where the next fetch of one partition begins and how many bytes it requests. Pure.

A response may bring no whole message at or after the fetch offset, although the high watermark is
above it. What it does bring shows the reason (docs/brokers.md 7.1, 7.8, 7.11, 11.3). No CRC covers
an offset, so offsets are checked: they rise and stay below the watermark (7.12, 7.14).

Invariant: the search ends. Each response grows the size (up to the limit), raises the offset, uses
up one of a fixed number of retries, or ends in an error. An offset is passed over only after a
response has shown that no message is there.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import Final, NamedTuple

from aiokafka08._core.net.versions import BrokerLine, BrokerVersion
from aiokafka08._wording import partition_name, partition_text
from aiokafka08.errors import (
    BrokerResponseError,
    CorruptRecordException,
    RecordTooLargeError,
    UnsupportedCompressionTypeError,
    UnsupportedVersionError,
    broker_error,
    topic_code,
)
from aiokafka08.protocol.message_set import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    MIN_MESSAGE_BYTES,
    MessageSetReader,
    SetSummary,
    corrupt,
    summarize_set,
)
from aiokafka08.protocol.types import Buffer
from aiokafka08.structs import LAST_OFFSET, TopicPartition

EMPTY_WAITS: Final = 3
"""How many responses without any message, each after the whole wait, show that the log is empty up
to the watermark. One isn't enough, since the broker may just have been slow. The requests contain
this partition only."""

EARLY_RESPONSES: Final = 2
"""How many responses in a row without any message, before the wait is over, show that the broker
hides a large message. One isn't enough, since the high watermark may have moved meanwhile."""

FAILED_READ_TRIES: Final = 8
"""How often a broker may fail to read what its log has (error -1), until that counts as damage.
With the usual back-off they take 4 s: a broker may lack file descriptors, or have a slow disk."""

READ_TRIES: Final = 3
"""How often a search for the next readable offset tries each offset."""

_OFFSET_SIZE: Final = struct.Struct(">qi")

# After damage, the entries behind it are dropped and fetched again; this many of them are compared
# with the entries that come then
_COMPARED: Final = 2

# Why brokers refuse a fetch of one partition for good, and what to set
_REFUSALS: Final = {  # docs/brokers.md 7.17
    UnsupportedVersionError.errno: (
        "the topic refuses to convert its messages for a protocol this old "
        "(message.downconversion.enable=false). Set that to true on the topic"
    ),
    UnsupportedCompressionTypeError.errno: (
        "the topic's messages are compressed with zstd (by its compression.type, or by a "
        "producer), which brokers don't convert for a protocol this old. Set compression.type of "
        "the topic to gzip, snappy or lz4. What is stored already needs a modern client, or a "
        "seek() past it"
    ),
}


class FetchStep(enum.Enum):
    """What a response means for the partition."""

    DATA = "whole messages came; `offset` is after them"
    END = "the log ends at the offset"
    RETRY = "nothing usable: fetch again at once"
    RETRY_ALONE = "nothing usable: fetch again, with no other partition in the request"
    TOO_LARGE = "the next message is larger than the limit"
    CORRUPT = "the bytes at the offset are no message"


class FetchFinding(NamedTuple):
    step: FetchStep
    # TOO_LARGE: the size that the message states, if the response shows it
    message_bytes: int | None = None
    message_set: Buffer | None = None  # DATA: the part of the response to use; usually all of it
    # CORRUPT: the offset of the next message, if it is known. It is the fetch offset if the damage
    # is before that.
    next_offset: int | None = None


# Offset and checksum of an entry
_Identity = tuple[int, bytes]


class _Entry(NamedTuple):
    begin: int
    stop: int
    offset: int
    checksum: bytes  # its size and CRC

    @property
    def identity(self) -> _Identity:
        """Offset, size and CRC, which differ from those of other entries of the log."""
        return self.offset, self.checksum


_END: Final = FetchFinding(FetchStep.END)
_RETRY: Final = FetchFinding(FetchStep.RETRY)


class NextFetch:
    """Offset and size of the next fetch of one partition; see the module.

    Attributes:
        meets_damage: whether the last messages that came were followed by bytes that are no
            message, or by damaged offsets. They begin at `offset`, and the broker may fail to
            read past them (docs/brokers.md 7.19).
    """

    __slots__ = (
        "_dropped",
        "_early_responses",
        "_empty_waits",
        "_is_other_log",
        "_lowest_watermark",
        "_was_damaged",
        "_was_empty",
        "alone",
        "meets_damage",
        "offset",
        "size_bytes",
    )

    def __init__(self, offset: int) -> None:
        self.offset = offset  # the next offset to fetch
        # The size to which the fetch has grown; 0: it hasn't, use the usual size
        self.size_bytes = 0
        # Whether the next request must contain this partition only
        self.alone = self.meets_damage = False
        self._was_damaged = False  # the fetch was already repeated because of damage
        # The first entries of the last response that were dropped, because a damaged offset is in
        # front of them or is their own
        self._dropped: list[_Identity] = []
        # Whether another broker has become the leader since the last messages that were used
        self._is_other_log = False
        self._was_empty = False  # the last response was empty, with the watermark above
        self._empty_waits = 0
        self._early_responses = 0  # how many in a row came before the wait was over
        self._lowest_watermark = 0  # the lowest one of the responses since the first empty one

    def __repr__(self) -> str:
        return f"<NextFetch {self.offset} size={self.size_bytes or 'base'} alone={self.alone}>"

    def apply_response(
        self,
        message_set: Buffer,
        high_watermark: int,
        *,
        requested_bytes: int,
        limit_bytes: int,
        waited: bool | None,
        hides_large: bool = True,
    ) -> FetchFinding:
        """Update offset and size from the response to a fetch at `offset`.

        Args:
            message_set: the bytes of the response.
            high_watermark: the high watermark in the response.
            requested_bytes: max_bytes of the request.
            limit_bytes: the largest size to grow to.
            waited: whether the broker responded only after the whole wait; None if the request may
                have contained other partitions (it wasn't sent with `alone`).
            hides_large: whether this broker may show nothing at all of a message that doesn't fit.
        """
        summary = summarize_set(message_set)
        if summary.next_offset is not None and summary.next_offset > self.offset:
            is_above = summary.next_offset > high_watermark >= 0
            if is_above or (not summary.rises and _falls(message_set)):
                return self._use_undamaged(message_set, high_watermark)
            if summary.next_offset > LAST_OFFSET:
                return FetchFinding(FetchStep.CORRUPT)
            return self._use(message_set, summary, [])
        if high_watermark <= self.offset:
            # The log ends here, but earlier responses had entries that can't be used: damage.
            if (self._dropped and not self._may_lack_dropped) or self.meets_damage:
                next_offset = self.offset if self._dropped else None
                return FetchFinding(FetchStep.CORRUPT, next_offset=next_offset)
            self.size_bytes = 0
            self._end_search()
            return _END
        rest_bytes = len(message_set) - summary.whole_bytes
        if summary.tail_size is not None:
            return self._grow_to_partial(summary, requested_bytes, limit_bytes)
        if _has_damaged_rest(message_set, summary):
            return FetchFinding(FetchStep.CORRUPT)
        if self._dropped or self.meets_damage or (not summary.rises and _falls(message_set)):
            return self._retry_damaged(None)
        if summary.whole_bytes or rest_bytes >= _OFFSET_SIZE.size:
            if summary.whole_bytes and len(message_set) >= requested_bytes < limit_bytes:
                # The response was cut at the requested size, which may still grow: more messages
                # may follow.
                self.size_bytes = min(2 * requested_bytes, limit_bytes)
            else:
                # Only messages from before the offset, or only a filler, with which brokers from
                # 0.11 on end a set: the offset is empty (a transaction marker, or removed by
                # compaction).
                self.offset += 1
            self._end_search()
            return _RETRY
        return self._search_empty(high_watermark, requested_bytes, limit_bytes, waited, hides_large)

    def _use_undamaged(self, message_set: Buffer, high_watermark: int) -> FetchFinding:
        """Use the first usable run of messages between damaged offsets; else fetch once more."""
        entries = list(_whole_entries(message_set))
        lowest = self._lowest_later(entries, high_watermark)
        begin = 0
        breaks = _breaks(message_set, entries, high_watermark)
        for number, stop in enumerate([*breaks, len(entries)]):
            is_above = stop < len(entries) and _is_above(entries[stop], high_watermark)
            end = begin
            # End the run at the first entry whose offset isn't below the lowest one after the
            # break, since either of the two may be damaged.
            while end < stop and entries[end].offset < lowest[stop]:
                end += 1
            last = len(message_set) if end == len(entries) else entries[end].begin
            usable = message_set[entries[begin].begin : last] if begin < end else b""
            summary = summarize_set(usable)
            if summary.next_offset is not None and summary.next_offset > self.offset:
                # Messages may be missing in front of a run that begins above the fetch offset. If
                # all damage comes after the run, that is an ordinary gap.
                may_have_gap = not number and (is_above or end < stop) and not self._dropped
                if may_have_gap or _first_offset(usable, self.offset) == self.offset:
                    before = [entry.identity for entry in entries[:begin]]
                    if self._dropped and self._dropped[0] in before:
                        return self._retry_damaged(self.offset)
                    return self._use(usable, summary, _dropped(entries[end:], high_watermark))
            begin = stop + is_above
        later = (entry for entry in entries if self.offset < entry.offset)
        readable = (entry for entry in later if not _is_above(entry, high_watermark))
        found = min(readable, key=lambda entry: entry.offset, default=None)
        if found is None:
            return self._retry_damaged(None)
        first = _first_offset(message_set[found.begin : found.stop], self.offset)
        return self._retry_damaged(first)

    def _lowest_later(self, entries: list[_Entry], high_watermark: int) -> list[int]:
        """Return, for each index, the lowest readable offset above `offset` from that entry on."""
        lowest = [LAST_OFFSET + 1]
        for entry in reversed(entries):
            counts = self.offset < entry.offset and not _is_above(entry, high_watermark)
            lowest.append(min(lowest[-1], entry.offset) if counts else lowest[-1])
        return lowest[::-1]

    def _use(self, usable: Buffer, summary: SetSummary, dropped: list[_Identity]) -> FetchFinding:
        """Use a part of a response, or all of it, unless entries dropped before are missing."""
        if self._dropped and not self._begins_with_dropped(usable):
            # A broker can't find an entry by a damaged offset, and may skip it. So the messages
            # used next must begin with the first dropped entry.
            return self._retry_damaged(_first_offset(usable, self.offset))
        assert summary.next_offset is not None
        self.offset = summary.next_offset
        self._shrink(summary.whole_bytes)
        self._end_search()
        self._is_other_log = False
        self._dropped = dropped
        self.meets_damage = bool(dropped) or _has_damaged_rest(usable, summary)
        return FetchFinding(FetchStep.DATA, message_set=usable)

    def _begins_with_dropped(self, usable: Buffer) -> bool:
        """Whether these messages were dropped before, perhaps with a damaged offset."""
        there = (entry for entry in _whole_entries(usable) if entry.offset >= self.offset)
        first, *second = _first_identities(there)
        dropped, *later = self._dropped
        if first == dropped:
            return True
        if self._may_lack_dropped and _first_offset(usable, self.offset) == self.offset:
            return True
        # The same entry with another offset: the broker has returned it undamaged this time.
        is_repaired = first[1] == dropped[1] and second == later
        return is_repaired and _first_offset(usable, self.offset) == self.offset

    @property
    def lacks_dropped(self) -> bool:
        """Whether the first dropped entry states an offset below the next one to fetch."""
        # A search for a later offset doesn't find that entry.
        return bool(self._dropped) and self._dropped[0][0] < self.offset

    @property
    def _may_lack_dropped(self) -> bool:
        """Whether another leader's log may lack the dropped entries.

        It may end before them, or go on without a gap. An entry that states an offset below the
        next one to fetch is an exception: even if the log has it, no fetch finds it.
        """
        return self._is_other_log and not self.lacks_dropped

    def _retry_damaged(self, next_offset: int | None) -> FetchFinding:
        """Fetch once more; if that is in vain too, the bytes are corrupt."""
        self._was_damaged = not self._was_damaged
        if self._was_damaged:
            return _RETRY
        return FetchFinding(FetchStep.CORRUPT, next_offset=next_offset)

    def _grow_to_partial(
        self, summary: SetSummary, requested_bytes: int, limit_bytes: int
    ) -> FetchFinding:
        """Grow to the size that a partial message states."""
        assert summary.tail_size is not None
        needed = summary.whole_bytes + summary.tail_size
        if needed > limit_bytes or requested_bytes >= limit_bytes:
            return FetchFinding(FetchStep.TOO_LARGE, summary.tail_size)
        self.size_bytes = min(max(2 * requested_bytes, needed), limit_bytes)
        return _RETRY

    def _search_empty(
        self,
        high_watermark: int,
        requested_bytes: int,
        limit_bytes: int,
        waited: bool | None,
        hides_large: bool,
    ) -> FetchFinding:
        """Find out why a response has nothing although the watermark is above the offset."""
        if not self._was_empty:
            # The watermark may have moved between the read and the response.
            self._was_empty = True
            self._lowest_watermark = high_watermark
            return _RETRY
        self._lowest_watermark = min(self._lowest_watermark, high_watermark)
        # A broker that hides nothing shows a part of any message, so the log is empty up to the
        # lowest watermark.
        if not hides_large:
            return self._pass_hole()
        if requested_bytes < limit_bytes:
            self.size_bytes = min(2 * requested_bytes, limit_bytes)
            return _RETRY
        if waited is None:
            # Fetched alone, the partition shows how long the broker waits.
            self.alone = True
            return FetchFinding(FetchStep.RETRY_ALONE)
        if not waited:
            self._early_responses += 1
            if self._early_responses < EARLY_RESPONSES:
                return FetchFinding(FetchStep.RETRY_ALONE)
            self._early_responses = 0
            self.alone = False
            # It responded at once twice in a row: a message is there that doesn't fit.
            return FetchFinding(FetchStep.TOO_LARGE)
        self._early_responses = 0
        self._empty_waits += 1
        if self._empty_waits < EMPTY_WAITS:
            return FetchFinding(FetchStep.RETRY_ALONE)
        return self._pass_hole()

    def _pass_hole(self) -> FetchFinding:
        """Continue at the lowest watermark since the first empty response."""
        self.offset = self._lowest_watermark
        self.size_bytes = 0
        self._end_search()
        return _RETRY

    def _shrink(self, used_bytes: int) -> None:
        """Halve the size when half of it would do."""
        if used_bytes * 2 <= self.size_bytes:
            # After a reset, the size would have to grow again for each message of a topic with
            # large messages.
            self.size_bytes //= 2

    def reset_search(self) -> None:
        """Forget what the last responses have shown: call this when another broker leads.

        The size is kept, and so are the dropped entries, since the new leader's log may have the
        same damage.
        """
        self._end_search()
        self._is_other_log = True

    def _end_search(self) -> None:
        self.alone = self.meets_damage = self._was_empty = self._was_damaged = False
        self._empty_waits = self._early_responses = 0


def may_hide_large(version: BrokerVersion | None) -> bool:
    """Whether brokers of a version may show nothing of a message larger than the fetch size."""
    # Brokers from 0.11 on do. `BrokerLine` doesn't distinguish them from 0.10.
    return version is None or version.line >= BrokerLine.V0_10


def fetch_error(topic_partition: TopicPartition, offset: int, code: int) -> BrokerResponseError:
    """Return the error for the error code of a partition in a fetch response."""
    where = f"fetch of {partition_name(topic_partition)} at offset {offset}"
    error = broker_error(topic_code(code), where)
    refusal = _REFUSALS.get(code)
    return error if refusal is None else type(error)(f"{where}: {refusal}")


def too_large(
    topic_partition: TopicPartition, offset: int, message_bytes: int | None, limit_bytes: int
) -> RecordTooLargeError:
    size = (
        f"takes {message_bytes} bytes"
        if message_bytes is not None
        else "has a size that the broker doesn't show"  # docs/brokers.md 7.11
    )
    return RecordTooLargeError(
        f"{partition_text(topic_partition)}: the message (or compressed set) at offset "
        f"{offset} {size}; at most {limit_bytes} bytes are fetched at once. Raise "
        "fetch_max_bytes, or seek() past it",
        topic_partition,
        offset,
    )


def not_a_message(
    topic_partition: TopicPartition, offset: int, next_offset: int | None
) -> CorruptRecordException:
    why = "its offset or size field is impossible"
    if next_offset == offset:
        why = "a message in front of it has an impossible offset field, and can't be fetched"
    return corrupt(topic_partition, offset, next_offset, why)


def unreadable(
    topic_partition: TopicPartition,
    offset: int,
    *,
    is_damaged: bool = False,
    next_offset: int | None = None,
) -> CorruptRecordException:
    """Return the error for an offset in the log at which the broker fails each time (error -1).

    `is_damaged`: damage was met there. `next_offset`: the next readable offset, if it is known.
    """
    why = (
        "it is damaged, and the broker fails to read it too (error -1)"
        if is_damaged
        else "the broker fails to read there (error -1; its log says why): the log may be damaged "
        "there, or in front of it"
    )
    return corrupt(topic_partition, offset, next_offset, why)


def _whole_entries(message_set: Buffer) -> Iterator[_Entry]:
    """Yield each whole entry; stop where `summarize_set` does."""
    pos = 0
    while len(message_set) - pos >= _OFFSET_SIZE.size:
        offset, size = _OFFSET_SIZE.unpack_from(message_set, pos)
        stop = pos + _OFFSET_SIZE.size + size
        if stop > len(message_set) or size < MIN_MESSAGE_BYTES[0]:
            return
        yield _Entry(pos, stop, offset, bytes(message_set[pos + 8 : pos + 16]))
        pos = stop


def _is_above(entry: _Entry, high_watermark: int) -> bool:
    """Whether the offset isn't below the watermark, or can't be any message's."""
    return entry.offset >= high_watermark >= 0 or entry.offset >= LAST_OFFSET


def _breaks(message_set: Buffer, entries: Iterable[_Entry], high_watermark: int) -> list[int]:
    """Return the indices of offsets at or above the watermark, or not above the one before."""
    breaks: list[int] = []
    seen: dict[int, bytes] = {}
    highest = -1
    for number, entry in enumerate(entries):
        data = bytes(message_set[entry.begin : entry.stop])
        # An entry that repeats an earlier one doesn't count (docs/brokers.md 7.12).
        if seen.get(entry.offset) == data:
            highest = max(highest, entry.offset)
            continue
        seen[entry.offset] = data
        if _is_above(entry, high_watermark):
            breaks.append(number)
            continue
        if entry.offset <= highest:
            breaks.append(number)
        highest = entry.offset
    return breaks


def _falls(message_set: Buffer) -> bool:
    """Whether an offset isn't above the one before, and the entry repeats no earlier one."""
    return bool(_breaks(message_set, _whole_entries(message_set), -1))


def _first_identities(entries: Iterable[_Entry]) -> list[_Identity]:
    return list(islice(dict.fromkeys(entry.identity for entry in entries), _COMPARED))


def _dropped(entries: Sequence[_Entry], high_watermark: int) -> list[_Identity]:
    """Return identities of entries to be dropped; [] if all may be newer than the watermark."""
    offsets = [entry.offset for entry in entries]
    rises = all(one < two for one, two in pairwise(offsets))
    if rises and all(_is_above(entry, high_watermark) for entry in entries):
        return []
    return _first_identities(entries)


def _first_offset(message_set: Buffer, fetch_offset: int) -> int | None:
    """Return the first offset from `fetch_offset` on, also inside a compressed set; or None."""
    reader = MessageSetReader(
        TopicPartition("", 0),
        message_set,
        fetch_offset,
        max_decompressed_bytes=DEFAULT_MAX_DECOMPRESSED_BYTES,
    )
    try:
        return next((record.offset for record in reader.read(1)), None)
    except CorruptRecordException as error:
        return error.offset  # raised again when the record is read


def _has_damaged_rest(message_set: Buffer, summary: SetSummary) -> bool:
    """Whether the rest is neither a cut-off message nor a filler."""
    at = summary.whole_bytes
    return (
        summary.tail_size is None
        and len(message_set) - at >= _OFFSET_SIZE.size
        and not _is_filler(message_set, at)
    )


def _is_filler(message_set: Buffer, at: int) -> bool:
    """Whether this is the filler at the end of a set (0.11 on): offset < 0, size beyond the end."""
    offset, size = _OFFSET_SIZE.unpack_from(message_set, at)
    return bool(offset < 0 and size > len(message_set) - at - _OFFSET_SIZE.size)
