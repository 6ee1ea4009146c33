"""Two sequences of messages: equal or not, and what the first difference is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka08.bridge.sequence_check import CheckProgress, Difference, SequenceCheck, message_crc
from tests.protocol.strategies import examples

MESSAGES = [101, 102, 103, 104, 105, 106, 107, 108]
sequences = st.lists(st.integers(0, 3), max_size=12)


def check(
    source: Sequence[int], target: Sequence[int], portions: Sequence[int] = (1, 2, 5)
) -> CheckProgress:
    """Compare, in portions; each side begins at another offset, and the target has holes."""
    comparison = SequenceCheck(CheckProgress(10, 20))
    at = {"source": 0, "target": 0}
    number = 0
    while not comparison.is_complete:
        size = portions[number % len(portions)]
        number += 1
        if comparison.wants_source:
            some = range(at["source"], min(at["source"] + size, len(source)))
            comparison.add_source([10 + one for one in some], [source[one] for one in some])
            at["source"] += len(some)
        if comparison.wants_target:
            some = range(at["target"], min(at["target"] + size + 1, len(target)))
            comparison.add_target([20 + 2 * one for one in some], [target[one] for one in some])
            at["target"] += len(some)
    return comparison.progress


@examples(200)
@given(sequences, sequences, st.lists(st.integers(1, 4), min_size=1, max_size=4))
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


@examples(100)
@given(sequences, st.integers(0, 12))
def test_rolling_crc_continues_after_a_resume(messages: list[int], split: int) -> None:
    first, rest = messages[:split], messages[split:]
    half = check(first, first)
    comparison = SequenceCheck(half)
    for portion in (rest, []) if rest else ([],):
        comparison.add_source(range(len(portion)), portion)
        comparison.add_target(range(len(portion)), portion)
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
@given(*(st.none() | st.binary(max_size=3) for _ in range(4)), st.none() | st.integers(-1, 2))
def test_checksum_tells_messages_apart(
    key: bytes | None,
    value: bytes | None,
    other_key: bytes | None,
    other_value: bytes | None,
    timestamp: int | None,
) -> None:
    same = (key, value) == (other_key, other_value)
    assert (message_crc(key, value) == message_crc(other_key, other_value)) == same
    assert (message_crc(key, value, timestamp) == message_crc(key, value)) == (timestamp is None)
