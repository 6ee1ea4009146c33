"""Times and durations as users write them."""

from __future__ import annotations

import datetime

import pytest

from aiokafka08._tools.times import is_time, parse_duration, parse_time
from aiokafka08.errors import IllegalArgumentError

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-22T10:30:00Z", 1_795_343_400_000),
        ("2026-11-22T10:30:00.250+01:00", 1_795_339_800_250),
        ("1469000000000", 1_469_000_000_000),
        ("0", 0),
        ("now", NOW_MS),
        ("-1h", NOW_MS - 3_600_000),
        ("-1h30m", NOW_MS - 5_400_000),
        ("-P1D", NOW_MS - 86_400_000),
        (" -1.5s ", NOW_MS - 1500),
    ],
)
def test_time_is_parsed(text: str, expected: int) -> None:
    assert parse_time("--at", text, NOW_MS) == expected
    assert is_time(text)


def test_time_without_offset_is_local() -> None:
    local = datetime.datetime(2026, 11, 22, 10, 30)
    assert parse_time("--at", "2026-11-22T10:30", NOW_MS) == local.timestamp() * 1000
    assert parse_time("--at", "2026-11-22", NOW_MS) == (
        datetime.datetime(2026, 11, 22).timestamp() * 1000
    )


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "-", "1h", "-1x", "2026-13-01", "-1", "1e3", "1960-01-01", "-99999w"]
    + [f"-{'9' * digits}{unit}" for digits in (30, 400, 5000) for unit in ("d", "ms")],
)
def test_wrong_time_is_an_error_by_name(text: str) -> None:
    with pytest.raises(IllegalArgumentError) as caught:
        parse_time("--at", text, NOW_MS)
    assert f"--at={text!r}: expected a time such as" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("500ms", 500),
        ("1m", 60_000),
        ("1h30m", 5_400_000),
        ("2d", 172_800_000),
        ("1w", 604_800_000),
        ("P7D", 604_800_000),
        ("PT1H30M", 5_400_000),
        ("P1DT0.5S", 86_400_500),
        ("-1h", -3_600_000),
        ("+1h", 3_600_000),
    ],
)
def test_duration_is_parsed(text: str, expected: int) -> None:
    assert parse_duration("--by", text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "1", "P", "PT", "P1DT", "1y", "--1h", "h", "1h-"]
    + [form.format("9" * digits) for digits in (30, 400, 5000) for form in ("{}w", "P{}D")],
)
def test_wrong_duration_is_an_error_by_name(text: str) -> None:
    with pytest.raises(IllegalArgumentError, match="expected a duration such as"):
        parse_duration("--by", text)
