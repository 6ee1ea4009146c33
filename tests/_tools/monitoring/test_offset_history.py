"""`OffsetHistory`: when a log reached an offset; and how little it keeps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka08._tools.monitoring.offset_history import PRECISION, OffsetHistory


def history(*samples: tuple[float, int]) -> OffsetHistory:
    made = OffsetHistory()
    for now, offset in samples:
        made.add(now, offset)
    return made


def test_empty_history_knows_nothing() -> None:
    made = OffsetHistory()
    assert (made.last, made.begin, made.time_of(0), made.rate(10, 60)) == (None, None, None, None)


def test_time_is_interpolated_between_samples() -> None:
    made = history((100, 1000), (110, 1010))
    assert [made.time_of(offset) for offset in (1000, 1004, 1009)] == [101, 105, 110]


def test_offset_before_the_first_sample_has_its_time() -> None:
    assert history((100, 1000), (110, 1010)).time_of(3) == 100


def test_offset_at_the_end_is_not_written_yet() -> None:
    assert history((100, 1000), (110, 1010)).time_of(1010) is None


def test_constant_offset_takes_two_samples() -> None:
    """And the time of the next message counts from the last moment when it wasn't there."""
    made = history(*((float(now), 5) for now in range(1000)), (1000.0, 6))
    assert len(made) == 3
    assert made.time_of(5) == 1000


def test_fallen_offset_drops_the_samples_above() -> None:
    made = history((0, 0), (10, 100), (20, 200), (30, 50), (40, 90))
    assert made.last == 90
    assert made.time_of(0) == pytest.approx(0.6)  # between the samples at 0 and 30 s
    assert 30 < (made.time_of(60) or 0) < 40


def test_rate_is_that_of_the_window() -> None:
    made = history((0, 0), (100, 1000), (200, 1100))
    assert made.rate(200, 100) == 1
    assert made.rate(200, 1000) == 5.5
    assert history((0, 0)).rate(10, 60) is None


def test_a_month_is_kept_in_few_samples() -> None:
    made = OffsetHistory()
    seconds = 30 * 24 * 3600
    for now in range(0, seconds, 15):
        made.add(float(now), now)
    assert len(made) < 1000
    for age in (60, 3600, 24 * 3600, seconds - 100):
        now = seconds - 15
        written = made.time_of(now - age)
        assert written == pytest.approx(now - age, abs=PRECISION * age + 15)


@given(st.lists(st.tuples(st.floats(0.1, 1000), st.integers(0, 500)), min_size=1, max_size=400))
def test_times_are_between_the_samples_around(steps: list[tuple[float, int]]) -> None:
    """Thinned or not: a message's time lies between the samples before and after it."""
    made, now, offset = OffsetHistory(), 0.0, 0
    seen: list[tuple[float, int]] = []
    for pause, grown in steps:
        now, offset = now + pause, offset + grown
        made.add(now, offset)
        seen.append((now, offset))
    for asked in range(seen[0][1], offset, max(offset // 20, 1)):
        before = max(at for at, end in seen if end <= asked)
        after = min(at for at, end in seen if end > asked)
        slack = PRECISION * (now - before) + 1e-6
        assert before - slack <= (made.time_of(asked) or 0) <= after + slack
