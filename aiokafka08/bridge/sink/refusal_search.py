"""`RefusalSearch`: find the record that the target refuses, over several attempts. Pure.

Invariant: a record is named only if it was refused alone.
"""

# A broker refuses a whole batch, and librdkafka doesn't say which of its records was meant. So the
# transaction is aborted and repeated: first with a callback for each record, which shows the batch;
# then with the records of this batch in pieces, each sent before the next one is queued; and so on
# until a piece is one record.

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from aiokafka08._wording import partition_name
from aiokafka08.structs import TopicPartition

_PIECES: Final = 64
# librdkafka's error for records that were sent after a refused batch, or in the next attempt
_SKIPPED: Final = "OUT_OF_ORDER_SEQUENCE_NUMBER"


class RefusedOffset(NamedTuple):
    """A record that the target refuses, by its place at the source, and why."""

    source: TopicPartition
    offset: int
    reason: str


class _Suspects(NamedTuple):
    """One of these records is refused; `piece` is how many of them are sent at once."""

    source: TopicPartition
    first: int
    last: int
    piece: int


class RefusalSearch:
    """The search for refused records in the transactions of one producer."""

    def __init__(self) -> None:
        self._noted: list[RefusedOffset] = []
        self._alone: RefusedOffset | None = None
        self._suspects: _Suspects | None = None
        # The refusal that the last attempt was aborted for; None after another reason, or after a
        # commit.
        self._last: RefusedOffset | None = None
        # The partition that `explain` named last; None after another reason, or after a commit that
        # leaves no suspects.
        self._named: TopicPartition | None = None

    def note(self, refused: RefusedOffset, *, alone: bool = False) -> None:
        """Note that a record was refused; `alone` is True if no other record can be meant."""
        if alone:
            self._alone = self._alone or refused
        elif not self._noted or self._noted[0].source == refused.source:
            # A refusal in another partition is found by a later attempt.
            self._noted.append(refused)

    def pieces(self, tp: TopicPartition, offsets: Sequence[int]) -> list[slice]:
        """Return the slices of records to send one after another; [] to send all records at once.

        Args:
            tp: the partition of the source.
            offsets: the records' offsets, rising.
        """
        if self._suspects is None or self._suspects.source != tp:
            return []
        start = bisect_left(offsets, self._suspects.first)
        end = bisect_right(offsets, self._suspects.last)
        if start == end:
            return []
        cuts = sorted({0, *range(start, end, self._suspects.piece), end, len(offsets)})
        return [slice(a, b) for a, b in pairwise(cuts)]

    def explain(self, reason: str) -> tuple[str, bool]:
        """Return why an attempt was aborted, and whether that only follows from a known refusal.

        Args:
            reason: librdkafka's text, from the name of the error on.
        """
        noted = self._alone or next(iter(self._noted), None)
        # librdkafka may report only a consequence of the refusal: "skipped sequence numbers", for
        # records that were sent after a refused batch or in the next attempt.
        is_skipped = reason.startswith(_SKIPPED)
        cause = noted or (self._last if is_skipped else None)
        self._last = noted
        if cause is None:
            self._named = None
            return reason, False
        refused = f"the target refuses records of {partition_name(cause.source)}"
        text = f"{refused} ({cause.reason})"
        is_effect = is_skipped or reason.startswith(cause.reason.partition(":")[0])
        is_known = is_effect and self._named == cause.source
        self._named = cause.source
        if noted is None or not is_effect:
            text = f"{reason}; {text}"
        return text, is_known

    def end_attempt(self, *, every: bool) -> RefusedOffset | None:
        """Return the record whose refusal aborted the transaction; None if it isn't known yet.

        `every` says whether each record had a callback, so that `note` has got all refusals.
        """
        noted, alone = sorted(self._noted, key=lambda refused: refused.offset), self._alone
        self._noted, self._alone = [], None
        if alone is None and every and len(noted) == 1:
            alone = noted[0]
        if alone is not None:
            self._suspects = None
        elif every and noted:
            piece = max(1, len(noted) // _PIECES)
            self._suspects = _Suspects(noted[0].source, noted[0].offset, noted[-1].offset, piece)
        return alone

    def is_on(self, positions: Mapping[TopicPartition, int]) -> bool:
        """Note a commit up to these positions; return whether suspects are still left."""
        known = self._suspects
        if known is not None and positions.get(known.source, 0) > known.last:
            self._suspects = None  # the target takes them now
        self._last = None
        if self._suspects is None:
            self._named = None
        return self._suspects is not None
