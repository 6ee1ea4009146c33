"""`RefusalSearch`: find the record that the target refuses, from one attempt to the next. Pure.

A broker refuses a whole batch, and librdkafka doesn't say which of its records was meant. So the
transaction is aborted and repeated: first with a callback for each record, which shows the batch;
then with the records of this batch in pieces of a 64th, each sent before the next one is queued;
and so on until a piece is one record. For a batch of 10,000 records that makes five attempts.

Invariant: a record is named only if it was refused alone.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from aiokafka08.structs import TopicPartition

_PIECES: Final = 64
_SKIPPED: Final = "OUT_OF_ORDER_SEQUENCE_NUMBER"
"""What librdkafka says of what it sent behind a refused batch, and of the next attempt."""


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
    """What the target has refused of the records of one producer."""

    def __init__(self) -> None:
        self._noted: list[RefusedOffset] = []
        self._alone: RefusedOffset | None = None
        self._suspects: _Suspects | None = None
        self._last: RefusedOffset | None = None
        """What the last attempt was aborted for; None for another reason, or behind a commit."""
        self._named: TopicPartition | None = None
        """The partition that `explain` has named, until a commit without suspects."""

    def note(self, refused: RefusedOffset, *, alone: bool = False) -> None:
        """Take down that a record was refused.

        Args:
            refused: the record.
            alone: True if no other record can be meant (default False).
        """
        if alone:
            self._alone = self._alone or refused
        elif not self._noted or self._noted[0].source == refused.source:
            self._noted.append(refused)  # another partition's is found later

    def pieces(self, tp: TopicPartition, offsets: Sequence[int]) -> list[slice]:
        """Return in which pieces to send records; nothing if it doesn't matter.

        Args:
            tp: the partition of the source.
            offsets: of the records, rising.
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
        """Return why an attempt was aborted, and whether that only follows from what is known.

        The reason of librdkafka may be a consequence: it says "skipped sequence numbers" of what
        was sent behind a refused batch, and of the attempt after that.

        Args:
            reason: what librdkafka says, from the name of the error on.
        """
        noted = self._alone or next(iter(self._noted), None)
        is_skipped = reason.startswith(_SKIPPED)
        cause = noted or (self._last if is_skipped else None)
        self._last = noted
        if cause is None:
            self._named = None
            return reason, False
        refused = f"the target refuses records of {cause.source.topic}/{cause.source.partition}"
        text = f"{refused} ({cause.reason})"
        is_effect = is_skipped or reason.startswith(cause.reason.partition(":")[0])
        is_known = is_effect and self._named == cause.source
        self._named = cause.source
        if noted is None or not is_effect:
            text = f"{reason}; {text}"
        return text, is_known

    def end_attempt(self, *, every: bool) -> RefusedOffset | None:
        """Return the record that the aborted transaction was refused for, if it is known by now.

        Args:
            every: whether each record had a callback, so that `note` was told of all.
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
        """Return whether there are suspects behind what was committed.

        Args:
            positions: of a commit, by partition of the source.
        """
        known = self._suspects
        if known is not None and positions.get(known.source, 0) > known.last:
            self._suspects = None  # the target takes them now
        self._last = None
        if self._suspects is None:
            self._named = None
        return self._suspects is not None
