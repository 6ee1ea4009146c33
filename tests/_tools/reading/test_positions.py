"""Where a read begins and ends: `--from` and `--to`."""

from __future__ import annotations

import pytest

from aiokafka08._tools.reading.positions import (
    BEGINNING,
    END,
    STORED,
    OffsetSpan,
    Position,
    PositionKind,
    describe_segments,
    parse_bounds,
    resolve,
)
from aiokafka08.errors import IllegalArgumentError, OffsetOutOfRangeError
from aiokafka08.structs import OffsetAndTimestamp, TopicPartition

TP = TopicPartition("orders", 3)
OTHER = TopicPartition("orders", 4)
LOG = OffsetSpan(10, 20)
NOW_MS = 1_700_000_000_000
OFFSET, TIME = PositionKind.OFFSET, PositionKind.TIME


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("beginning", BEGINNING),
        ("Earliest", BEGINNING),
        ("end", END),
        ("stored", STORED),
        ("7", Position(OFFSET, 7)),
        ("-7", Position(PositionKind.FROM_END, 7)),
        ("+7", Position(PositionKind.FROM_BEGINNING, 7)),
        ("@1600000000000", Position(TIME, 1_600_000_000_000)),
        ("-1h", Position(TIME, NOW_MS - 3_600_000)),
        ("@-1h", Position(TIME, NOW_MS - 3_600_000)),
        ("-1d2h30m", Position(TIME, NOW_MS - 95_400_000)),
        ("-PT90S", Position(TIME, NOW_MS - 90_000)),
        ("2023-11-14T22:13:20Z", Position(TIME, NOW_MS)),
        ("2023-11-15T00:13:20.5+02:00", Position(TIME, NOW_MS + 500)),
        ("@2023-11-14T22:13:20Z", Position(TIME, NOW_MS)),
        ("now", Position(TIME, NOW_MS)),
    ],
)
def test_positions_are_parsed(text: str, position: Position) -> None:
    start, end = parse_bounds([text], [], now_ms=NOW_MS)
    assert (start.of(0), end.of(0)) == (position, None)


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("3:7", Position(OFFSET, 3), Position(OFFSET, 7)),
        ("3:", Position(OFFSET, 3), None),
        (":end", None, END),
        ("-5:end", Position(PositionKind.FROM_END, 5), END),
    ],
)
def test_a_colon_sets_both_bounds(text: str, start: Position, end: Position) -> None:
    bounds = parse_bounds([text], [], now_ms=NOW_MS)
    assert (bounds[0].of(0), bounds[1].of(0)) == (start, end)


def test_partitions_have_positions_of_their_own() -> None:
    start, end = parse_bounds(["5", "2=beginning", "4=1:3"], ["2=9"], now_ms=NOW_MS)
    assert [start.of(partition) for partition in (0, 2, 4)] == [
        Position(OFFSET, 5),
        BEGINNING,
        Position(OFFSET, 1),
    ]
    assert [end.of(partition) for partition in (0, 2, 4)] == [
        None,
        Position(OFFSET, 9),
        Position(OFFSET, 3),
    ]
    assert start.has(OFFSET)
    assert not start.has(TIME)


@pytest.mark.parametrize(
    ("starts", "ends"),
    [
        (["soon"], []),
        ([""], []),
        ([":"], []),
        (["1.5"], []),
        (["-1x"], []),
        (["@"], []),
        (["x=5"], []),
        ([], ["stored"]),
        ([], ["1:2"]),
        (["5", "6"], []),
        (["1=5", "1=6"], []),
        (["1:2"], ["3"]),
        (["1900-01-01"], []),
        (["10:5"], []),
        (["2=10"], ["5"]),
        (["-5:-10"], []),
        (["+2:+1"], []),
        (["-1h"], ["-2h"]),
    ],
)
def test_wrong_positions_are_refused(starts: list[str], ends: list[str]) -> None:
    with pytest.raises(IllegalArgumentError, match=r"--(from|to)=.*expected"):
        parse_bounds(starts, ends, now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("position", "offset"),
    [
        (BEGINNING, 10),
        (STORED, 10),
        (END, 20),
        (Position(OFFSET, 10), 10),
        (Position(OFFSET, 20), 20),
        (Position(PositionKind.FROM_END, 3), 17),
        (Position(PositionKind.FROM_END, 300), 10),
        (Position(PositionKind.FROM_BEGINNING, 3), 13),
        (Position(PositionKind.FROM_BEGINNING, 300), 20),
        (Position(TIME, 1), 20),
    ],
)
def test_positions_become_offsets(position: Position, offset: int) -> None:
    assert resolve(position, TP, LOG) == offset


@pytest.mark.parametrize("number", [9, 21, 1_700_000_000_000])
def test_offset_outside_of_the_log_is_named(number: int) -> None:
    with pytest.raises(OffsetOutOfRangeError) as raised:
        resolve(Position(OFFSET, number), TP, LOG)
    text = (
        f"topic 'orders', partition 3: offset {number} is out of range; the log goes from 10 to 20"
    )
    if number > 21:
        text += ". For a time in milliseconds write @1700000000000"
    assert raised.value.text == text


def test_an_end_may_lie_after_the_log() -> None:
    assert resolve(Position(OFFSET, 99), TP, LOG, is_end=True) == 99


def test_time_becomes_the_offset_that_was_found() -> None:
    found = OffsetAndTimestamp(15, 5)
    assert resolve(Position(TIME, 1), TP, LOG, found=found) == 15
    assert resolve(Position(TIME, 1), TP, LOG, found=OffsetAndTimestamp(25, 5)) == 20


def test_note_of_segments_has_each_time_once() -> None:
    positions = {TP: Position(TIME, NOW_MS), OTHER: Position(TIME, NOW_MS)}
    assert describe_segments({TP: 15, OTHER: 3}, positions) == [
        "2023-11-14T22:13:20.000Z ≈ by segment (the brokers have no index by time): orders/3 at "
        "15, orders/4 at 3"
    ]
