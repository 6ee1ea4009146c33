"""Two sequences of messages: equal or not, and what the first difference is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate, repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka08.bridge.verify.sequence_check import (
    CheckProgress,
    Difference,
    Portion,
    SequenceCheck,
    message_crc,
)
from tests.protocol.strategies import examples

MESSAGES = [101, 102, 103, 104, 105, 106, 107, 108]
sequences = st.lists(st.integers(0, 3), max_size=12)
stamped = st.lists(st.tuples(st.integers(0, 1), st.integers(-1, 2)), max_size=8)
sizes = st.lists(st.integers(1, 4), min_size=1, max_size=4)


def portion_of(
    offsets: Iterable[int], crcs: Iterable[int], timestamps: Iterable[int] = repeat(1)
) -> Portion:
    portion = Portion()
    for offset, crc, timestamp in zip(offsets, crcs, timestamps, strict=False):
        portion.offsets.append(offset)
        portion.crcs.append(crc)
        portion.timestamps.append(timestamp)
    return portion


def check(
    source: Sequence[int],
    target: Sequence[int],
    portions: Sequence[int] = (1, 2, 5),
    timestamps: tuple[Sequence[int], Sequence[int]] | None = None,
) -> CheckProgress:
    """Compare, in portions; each side begins at another offset, and the target has holes."""
    comparison = SequenceCheck(CheckProgress(10, 20), timestamps=timestamps is not None)
    ours, theirs = timestamps or ([1] * len(source), [2] * len(target))
    at = {"source": 0, "target": 0}
    number = 0
    while not comparison.is_complete:
        assert comparison.wants_source or comparison.wants_target
        size = portions[number % len(portions)]
        number += 1
        if comparison.wants_source:
            some = slice(at["source"], min(at["source"] + size, len(source)))
            places = range(10 + some.start, 10 + some.stop)
            comparison.add_source(portion_of(places, source[some], ours[some]))
            at["source"] = some.stop
        if comparison.wants_target:
            some = slice(at["target"], min(at["target"] + size + 1, len(target)))
            places = range(20 + 2 * some.start, 20 + 2 * some.stop, 2)
            comparison.add_target(portion_of(places, target[some], theirs[some]))
            at["target"] = some.stop
    return comparison.progress


@examples(200)
@given(sequences, sequences, sizes)
def test_equal_means_the_same_sequence(
    source: list[int], target: list[int], portions: list[int]
) -> None:
    result = check(source, target, portions)
    assert (result.difference is None) == (source == target)
    assert (result.source_count, result.target_count) == (len(source), len(target))
    if result.difference is not None:
        pairs = enumerate(zip(source, target, strict=False))
        shorter = min(len(source), len(target))
        at = next((number for number, (one, other) in pairs if one != other), shorter)
        assert result.difference.source_offset == 10 + at


@examples(200)
@given(stamped, stamped, st.booleans(), sizes)
def test_only_timestamps_above_0_are_compared(
    source: list[tuple[int, int]],
    target: list[tuple[int, int]],
    is_same: bool,
    portions: list[int],
) -> None:
    """The source's decide; with the same messages often all are equal."""
    if is_same:
        target = [
            (crc, stamp if stamp > 0 else other)
            for (crc, stamp), (_, other) in zip(source, target * 8 or source, strict=False)
        ]
    (ours, our_stamps), (theirs, their_stamps) = (
        ([crc for crc, _ in side], [stamp for _, stamp in side]) for side in (source, target)
    )
    progress = check(ours, theirs, portions, (our_stamps, their_stamps))
    equal = 0
    for (crc, stamp), (other_crc, other) in zip(source, target, strict=False):
        if crc != other_crc or (stamp > 0 and stamp != other):
            break
        equal += 1
    assert (progress.difference is None) == (equal == len(source) == len(target))
    assert (progress.source_count, progress.target_count) == (len(source), len(target))
    if progress.difference is not None:
        assert progress.difference.equal_count == equal
        assert progress.difference.source_offset == 10 + equal
    pairs = (10, 20), (9 + equal, 18 + 2 * equal)
    assert (progress.first_pair, progress.last_pair) == (pairs if equal else (None, None))


@pytest.mark.parametrize("known", [(3, 4), None])
def test_first_pair_of_a_resumed_check_is_the_earlier_one(known: tuple[int, int] | None) -> None:
    """It isn't known if the progress hasn't kept it."""
    before = CheckProgress(10, 20, 5, 5, first_pair=known, last_pair=known)
    comparison = SequenceCheck(before, timestamps=False)
    assert comparison.progress == before
    comparison.add_source(portion_of([30], [1]))
    comparison.add_target(portion_of([31], [1]))
    progress = comparison.progress
    assert (progress.first_pair, progress.last_pair) == (known, (30, 31))


@pytest.mark.parametrize(
    ("timestamp", "again", "kind"), [(5, 5, "twice"), (5, 6, "extra"), (0, 6, "twice")]
)
@pytest.mark.parametrize("is_resumed", [False, True])
@pytest.mark.parametrize("is_last", [False, True])
def test_repeated_message_has_the_same_timestamp(
    timestamp: int, again: int, kind: str, is_resumed: bool, is_last: bool
) -> None:
    """Unless the source's has none: then the copy's is of no account."""
    comparison = SequenceCheck(CheckProgress(0, 0), timestamps=True)
    comparison.add_source(portion_of([0], [1], [timestamp]))
    comparison.add_target(portion_of([0], [1], [timestamp or 7]))
    if is_resumed:
        comparison = SequenceCheck(comparison.progress.before_difference(), timestamps=True)
    more = [] if is_last else [1]
    comparison.add_source(portion_of(more, [2], [8]))
    comparison.add_target(portion_of([1, *more], [1, 2], [again, 8]))
    comparison.add_source(Portion())
    comparison.add_target(Portion())
    assert comparison.progress.difference == Difference(kind, 1, 1, 1)


@examples(100)
@given(sequences, st.integers(0, 12))
def test_rolling_crc_continues_after_a_resume(messages: list[int], split: int) -> None:
    first, rest = messages[:split], messages[split:]
    half = check(first, first)
    comparison = SequenceCheck(half, timestamps=False)
    for portion in (rest, []) if rest else ([],):
        comparison.add_source(portion_of(range(len(portion)), portion))
        comparison.add_target(portion_of(range(len(portion)), portion))
    whole = check(messages, messages)
    assert comparison.progress.crc == whole.crc
    assert comparison.progress.source_count == whole.source_count == len(messages)


@pytest.mark.parametrize("at", [0, 1, 3, 7])
@pytest.mark.parametrize("kind", ["changed", "lost", "extra", "twice", "swapped"])
def test_planted_difference_is_named(kind: str, at: int) -> None:
    target, wanted = list(MESSAGES), at
    if kind == "changed":
        target[at] = 9
    elif kind == "lost":
        del target[at]
    elif kind == "extra":
        target.insert(at, 9)
    elif kind == "twice":
        target.insert(at, target[at])
        wanted = at + 1
    elif at == 7:
        return  # nothing to swap with
    else:
        target[at : at + 2] = reversed(target[at : at + 2])
    progress = check(MESSAGES, target)
    difference = progress.difference
    at_end = kind == "lost" and at == 7  # the target has no message there, but an end
    assert difference == Difference(kind, 10 + wanted, 20 + 2 * wanted - at_end, wanted)
    assert progress.before_difference() == replace(
        check(MESSAGES[:wanted], target[:wanted]),
        source_next=difference.source_offset,
        target_next=difference.target_offset,
    )


@examples(200)
@given(*(st.none() | st.binary(max_size=3) for _ in range(4)))
def test_checksum_tells_messages_apart(
    key: bytes | None,
    value: bytes | None,
    other_key: bytes | None,
    other_value: bytes | None,
) -> None:
    same = (key, value) == (other_key, other_value)
    assert (message_crc(key, value) == message_crc(other_key, other_value)) == same


@examples(200)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), max_size=12), st.data())
def test_resume_among_messages_that_share_an_offset_compares_each_once(
    messages: list[tuple[int, int]], data: st.DataObject
) -> None:
    """An interrupted comparison leaves out what it has compared, and no other message."""
    offsets = list(accumulate((step for step, _ in messages), initial=10))[1:]
    crcs = [crc for _, crc in messages]
    progress = CheckProgress(10, 20)
    done = 0
    while done < len(messages):
        comparison = SequenceCheck(progress, timestamps=False)
        start, leave_out = progress.source_start(10)
        left = [place for place, offset in enumerate(offsets) if offset >= start][leave_out:]
        assert left == list(range(done, len(messages)))
        count = data.draw(st.integers(1, len(left)))
        ahead = data.draw(st.integers(0, 2))  # read at the source, and not compared yet
        ours, theirs = left[: count + ahead], left[:count]
        comparison.add_source(portion_of((offsets[at] for at in ours), (crcs[at] for at in ours)))
        comparison.add_target(portion_of((20 + at for at in theirs), (crcs[at] for at in theirs)))
        progress = comparison.progress
        done += count
        assert (progress.difference, progress.source_count) == (None, done)
