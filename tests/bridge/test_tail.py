"""The place of the target's last records in the source, found without a position."""

from __future__ import annotations

import pytest

from aiokafka08.bridge.copy.tail import TailRecord, TailSearch


def search(tail: bytes, log: bytes) -> TailSearch:
    made = TailSearch([TailRecord(None, bytes([one])) for one in tail])
    for offset, one in enumerate(log):
        made.feed(offset, TailRecord(None, bytes([one])))
    return made


@pytest.mark.parametrize(
    ("tail", "log", "position"),
    [
        (b"bc", b"abcd", 3),
        (b"abc", b"abc", 3),
        (b"b", b"ab", 2),
        (b"ab", b"abab", None),  # there twice
        (b"aa", b"aaa", None),
        (b"bd", b"abcd", None),
        (b"abcd", b"bcd", None),  # the source has lost the first one
        (b"ab", b"", None),
    ],
)
def test_tail_is_found_if_it_is_there_once(tail: bytes, log: bytes, position: int | None) -> None:
    assert search(tail, log).position == position


def test_key_counts_as_well_as_value() -> None:
    made = TailSearch([TailRecord(b"k", b"v")])
    made.feed(0, TailRecord(None, b"v"))
    made.feed(1, TailRecord(b"k", b"v"))
    made.feed(2, TailRecord(b"k", None))
    assert made.position == 2


def test_position_is_not_behind_messages_that_share_the_last_offset() -> None:
    made = TailSearch([TailRecord(None, b"a"), TailRecord(None, b"b")])
    for offset, value in [(4, b"a"), (5, b"b"), (5, b"c"), (6, b"d")]:
        made.feed(offset, TailRecord(None, value))
    assert made.position == 5
