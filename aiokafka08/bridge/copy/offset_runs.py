"""Translate offsets between a source partition and its copy, exactly. Pure.

An `OffsetRun` is a range of messages without a break in either log; an `OffsetMap` is all runs of
one partition, and a `RunLog` stores them.

Invariants:
- For each source offset up to the bridge's position, `to_target` returns the target offset of the
  first message at or after it: a reader that continues there loses no message and reads none twice.
  `to_source` is its inverse.
- `RunLog` loses no run: it only joins small records into large ones (pages).
"""

# A bridge writes the messages of a transaction one after the other, so in each target partition
# they are one contiguous range of offsets, and one marker of the transaction follows. Source
# offsets are contiguous too, except for holes of compaction and of transactions, and for messages
# that share an offset (docs/brokers.md 6.7). Each message that shares an offset is a run of its
# own, but the first of them may be the end of a longer run, and the last the beginning of one.

from __future__ import annotations

import bisect
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from aiokafka08.structs import LAST_OFFSET

# A transaction's runs are stored as one record. When these records have this many runs in all,
# pages replace them: records of up to `RECORD_RUNS` runs.
PAGE_RUNS: Final = 128
# The most runs of a record: at 24 bytes each far below the default of `max.message.bytes`.
RECORD_RUNS: Final = 4096
# The most bytes of a record: its runs, its key and the batch around it.
RECORD_BYTES: Final = 24 * RECORD_RUNS + 1024
# The most runs for messages that share an offset. It is below `RECORD_RUNS`, so that no two records
# begin at the same offset. Further messages with the offset have no run: in the target, they lie
# between the last of these runs and the next one.
SHARED_RUNS: Final = 1024


class OffsetRun(NamedTuple):
    """`length` messages, from `source` on in the source and from `target` on in the target."""

    source: int
    target: int
    length: int


class RunRecord(NamedTuple):
    """A record of the offsets topic: runs, the first one at `source`; None removes the record."""

    source: int
    runs: tuple[OffsetRun, ...] | None


def check_runs(source: int, runs: Sequence[OffsetRun]) -> None:
    """Verify the runs of a stored record whose key has the offset `source`.

    Raises:
        ValueError: no bridge can have written them.
    """
    if not runs:
        raise ValueError("no runs: expected at least one")
    if runs[0].source != source:
        raise ValueError(f"{runs[0]}: expected source={source}, as in the key")
    for run in runs:
        first, target, length = run
        if first < 0 or target < 0 or length < 1 or max(first, target) + length > LAST_OFFSET:
            raise ValueError(f"{run}: expected offsets >= 0 and a length >= 1, both in 64 bits")


def runs_of(sources: Iterable[int], target: int) -> list[OffsetRun]:
    """Return the runs of messages that were written one after the other.

    Args:
        sources: their source offsets, ascending; messages that share an offset repeat it.
        target: the acknowledged target offset of the first.
    """
    runs: list[OffsetRun] = []
    first = previous = None
    for offset in sources:
        if first is None or previous is None:
            first = offset
        elif offset != previous + 1:
            if offset < previous:
                raise ValueError(
                    f"source offset {offset} after {previous}: expected no smaller one"
                )
            runs.append(OffsetRun(first, target, previous + 1 - first))
            target += previous + 1 - first
            first = offset
        previous = offset
    if first is not None and previous is not None:
        runs.append(OffsetRun(first, target, previous + 1 - first))
    return runs


def runs_of_transaction(runs: Iterable[OffsetRun]) -> list[OffsetRun]:
    """Return the runs of the parts of one transaction, joined, as they are stored.

    Args:
        runs: in the order in which they were written.
    """
    joined = OffsetMap()
    for run in runs:
        source, target, length = run
        # The run's first message shares its offset with the message before. It gets no run if the
        # offset has `SHARED_RUNS` runs already, or if a message of another producer is between the
        # two in the target: `OffsetMap` would take that run for a later copy of the same offset.
        if source + 1 == joined.end_source and (
            target != joined.end_target or joined.shared_runs >= SHARED_RUNS
        ):
            source, target, length = source + 1, target + 1, length - 1
        if length:
            joined.add(OffsetRun(source, target, length))
    return list(joined)


class OffsetMap:
    """All known runs of one partition, in the order of target offsets.

    Args:
        runs: in the order in which they were written. The order matters only if the target's log
            has lost its end.
    """

    def __init__(self, runs: Iterable[OffsetRun] = ()) -> None:
        self._sources = array("q")
        self._targets = array("q")
        self._lengths = array("q")
        # Arrays, not tuples, because a million tuples take much memory, and the garbage collector
        # visits them.
        written = array("q"), array("q"), array("q")
        end, is_ordered = 0, True
        for run in runs:
            for numbers, number in zip(written, run, strict=True):
                numbers.append(number)
            is_ordered = is_ordered and run.target >= end
            end = run.target + run.length
        known_runs = map(OffsetRun, *written)
        # A target offset that was given twice means that the log had lost its end (an unclean
        # election).
        end = 0
        for run in known_runs if is_ordered else _standing(list(known_runs)):
            # A page repeats runs if the single records that it replaces are still there.
            known = max(0, end - run.target)
            if known < run.length:
                self.add(OffsetRun(run.source + known, run.target + known, run.length - known))
                end = run.target + run.length

    def __len__(self) -> int:
        return len(self._sources)

    def __iter__(self) -> Iterator[OffsetRun]:
        return map(OffsetRun, self._sources, self._targets, self._lengths)

    def __repr__(self) -> str:
        return f"<OffsetMap {len(self)} runs, source {self.first_source} to {self.end_source}>"

    @property
    def first_source(self) -> int | None:
        """The first source offset that was copied; None without runs."""
        return self._sources[0] if self._sources else None

    @property
    def end_source(self) -> int | None:
        """The offset after the last message copied; None without runs."""
        return self._sources[-1] + self._lengths[-1] if self._sources else None

    @property
    def first_target(self) -> int | None:
        """The target offset of the first message copied; None without runs."""
        return self._targets[0] if self._targets else None

    @property
    def end_target(self) -> int | None:
        """The target offset after the last message copied; None without runs."""
        return self._targets[-1] + self._lengths[-1] if self._targets else None

    def add(self, run: OffsetRun) -> None:
        """Add the run after all others; join it to the last one if nothing is between.

        Raises:
            ValueError: the run is empty, negative, or not after the others in the target.
        """
        source, target, length = run
        if source < 0 or target < 0 or length < 1:
            raise ValueError(f"{run}: expected offsets >= 0 and a length >= 1")
        end = self.end_target
        if end is not None and target < end:
            raise ValueError(f"{run}: expected a target offset >= {end}")
        if source + 1 == self.end_source and target == end:
            # The run's first message shares its source offset with the message before it.
            self._append(run)
            return
        # The bridge has copied these source offsets before (a target without transactions, or a
        # seek back): the later copy counts, and the earlier runs end where it begins.
        while self._sources and self._sources[-1] >= source:
            self._drop_last()
        if self._sources:
            room = source - self._sources[-1]
            if self._lengths[-1] > room:
                self._lengths[-1] = room
            if self._lengths[-1] == room == target - self._targets[-1]:
                self._lengths[-1] += length
                return
        self._append(run)

    def _append(self, run: OffsetRun) -> None:
        for numbers, number in zip((self._sources, self._targets, self._lengths), run, strict=True):
            numbers.append(number)

    def _drop_last(self) -> None:
        self._sources.pop()
        self._targets.pop()
        self._lengths.pop()

    def to_target(self, offset: int, position: int | None = None) -> int | None:
        """Return the target offset at which a group at `offset` in the source continues.

        An offset before the first run gives the first message copied. The caller judges whether
        messages are missing there (`first_source`).

        Args:
            offset: the offset of the next message in the source.
            position: the bridge's position, the source offset up to which everything is copied. By
                default (None) the end of the last run.

        Returns:
            The target offset, or None if the bridge hasn't copied as far as `offset`.
        """
        if not self._sources:
            return None
        at = self._run_of(offset)
        if at < 0:
            return self._targets[0]
        into = offset - self._sources[at]
        if into < self._lengths[at]:
            return self._targets[at] + into
        if at + 1 < len(self._sources):  # a hole in the source: the next message copied
            return self._targets[at + 1]
        end = self._sources[at] + self._lengths[at]
        if offset > max(end, position if position is not None else end):
            return None
        return self._targets[at] + self._lengths[at]

    def copy_of(self, offset: int, target: int | None = None) -> int | None:
        """Return the target offset of a source message; None if no run has the message.

        Of messages that share the offset, return the one at `target` if there is one, else the
        first.
        """
        at = self._run_of(offset)
        if at < 0 or offset >= self._sources[at] + self._lengths[at]:
            return None
        copy = self._targets[at] + offset - self._sources[at]
        if target is not None and target > copy and self.to_source(target) == offset:
            return target
        return copy

    def _run_of(self, offset: int) -> int:
        """Return the index of the first run that has a source offset, else of the run before it."""
        at = bisect.bisect_left(self._sources, offset)
        if at < len(self) and self._sources[at] == offset:
            shares = at and self._sources[at - 1] + self._lengths[at - 1] > offset
            return at - 1 if shares else at
        return at - 1

    def _shared_runs_to(self, at: int) -> int:
        """Return how many runs, up to the run at index `at`, have that run's last source offset."""
        last = self._sources[at] + self._lengths[at] - 1
        return at + 1 - self._run_of(last) if self._lengths[at] == 1 else 1

    @property
    def shared_runs(self) -> int:
        """How many runs have the source offset of the last message copied."""
        return self._shared_runs_to(len(self) - 1) if self._sources else 0

    def has_copy_at(self, offset: int) -> bool:
        """Return whether a target offset has a message that was copied."""
        at = bisect.bisect_right(self._targets, offset) - 1
        return at >= 0 and offset < self._targets[at] + self._lengths[at]

    def to_source(self, offset: int, position: int | None = None) -> int | None:
        """Return the source offset at which a group at `offset` in the target continues.

        Args:
            offset: the offset of the next message in the target.
            position: the bridge's position, which is the result for an offset after the last run.
                By default (None) the end of the last run.

        Returns:
            The source offset, or None without runs.
        """
        if not self._sources:
            return None
        at = bisect.bisect_right(self._targets, offset) - 1
        if at < 0:
            return self._sources[0]
        into = offset - self._targets[at]
        if into < self._lengths[at]:
            return self._sources[at] + into
        if self._shared_runs_to(at) >= SHARED_RUNS:
            # More messages may share the offset than have a run: the reader continues with all of
            # them.
            return self._sources[at]
        if at + 1 < len(self._sources):
            return self._sources[at + 1]
        end = self._sources[at] + self._lengths[at]
        return max(end, position if position is not None else end)


def _standing(runs: list[OffsetRun]) -> list[OffsetRun]:
    """Cut the runs whose messages the target has lost; return all in the order of target offsets.

    Args:
        runs: in the order in which they were written.
    """
    while True:
        ordered = sorted(runs, key=lambda run: (run.target, -run.length))
        given_twice = _given_twice(ordered)
        if not given_twice:
            return ordered
        written = {run: number for number, run in enumerate(runs)}
        ends: dict[int, int] = {}
        # The later run shows where the log had ended: earlier runs have no messages after that.
        for pair in given_twice:
            later = max(pair, key=written.__getitem__)
            ends[written[later]] = later.target
        kept: list[OffsetRun] = []
        end = sys.maxsize
        for number in reversed(range(len(runs))):
            run = runs[number]
            if run.target < end:
                kept.append(run._replace(length=min(run.length, end - run.target)))
            end = min(end, ends.get(number, end))
        runs = kept[::-1]


def _given_twice(ordered: Iterable[OffsetRun]) -> list[tuple[OffsetRun, OffsetRun]]:
    """Return pairs of runs in which one target offset has different messages.

    Args:
        ordered: the runs by target offset; of equal offsets the longest run first.
    """
    pairs: list[tuple[OffsetRun, OffsetRun]] = []
    longest = OffsetRun(0, 0, 0)
    for run in ordered:
        behind = longest.target + longest.length - run.target
        if behind > 0 and run.source - run.target != longest.source - longest.target:
            pairs.append((longest, run))
        if run.length > behind:
            longest = run
    return pairs


class RunLog:
    """Choose the records of the offsets topic for one partition, so that it stays small.

    A `RunLog` is immutable: after a commit the caller continues with the one that `append`
    returned, after an abort with the old one.

    Attributes:
        end_target: The target offset after the last message; 0 if it isn't known.
    """

    def __init__(self, records: Iterable[RunRecord] = ()) -> None:
        """Continue where the records of the topic end, in the order of its log."""
        kept = [record for record in records if record.runs and len(record.runs) < PAGE_RUNS]
        self._open = {record.source: record.runs or () for record in kept}
        last = next(reversed(self._open.values()), ())
        self.end_target = last[-1].target + last[-1].length if last else 0

    def append(self, runs: Sequence[OffsetRun]) -> tuple[list[RunRecord], RunLog]:
        """Add the runs of one transaction.

        Returns:
            The records to write in this transaction, and the log after its commit.
        """
        if not runs:
            return [], self
        after = RunLog()
        added = RunRecord(runs[0].source, tuple(runs))
        after._open = {
            source: open_runs for source, open_runs in self._open.items() if source != added.source
        }
        after._open[added.source] = added.runs or ()
        after.end_target = runs[-1].target + runs[-1].length
        size = max(len(after._open), sum(map(len, after._open.values())))
        if size < PAGE_RUNS:
            return [added], after
        # Pages and the removals of the single records are in one transaction, so no run is missing
        # in between. A last page with fewer than `PAGE_RUNS` runs counts as a single record.
        folded = tuple(OffsetMap(run for each in after._open.values() for run in each))
        cuts = range(0, len(folded), RECORD_RUNS)
        pages = {folded[at].source: folded[at : at + RECORD_RUNS] for at in cuts}
        stale = [RunRecord(source, None) for source in self._open if source not in pages]
        after._open = {source: page for source, page in pages.items() if len(page) < PAGE_RUNS}
        return [*(RunRecord(source, page) for source, page in pages.items()), *stale], after
