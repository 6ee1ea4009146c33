"""`--rate`."""

from __future__ import annotations

import pytest

from aiokafka08._core.concurrency.rate import RateLimit, parse_rate
from aiokafka08.errors import IllegalArgumentError


@pytest.mark.parametrize(
    ("text", "rate"),
    [("20MB/s", 20e6), ("500kB/s", 5e5), ("1.5MiB/s", 1572864), ("1000", 1000), ("2G", 2e9)],
)
def test_rates_are_parsed(text: str, rate: float) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["", "fast", "0MB/s", "-1", "5XB/s", "5MB/h"])
def test_wrong_rate_is_refused(text: str) -> None:
    with pytest.raises(IllegalArgumentError, match=r"--rate=.*expected bytes per second > 0"):
        parse_rate(text)


def test_delays_add_up_to_the_rate() -> None:
    limit = RateLimit(100, now=0)
    assert limit.block_bytes == 10
    assert limit.delay_s(50, now=0) == pytest.approx(0.5)
    assert limit.delay_s(50, now=0.4) == pytest.approx(0.6)


def test_idle_time_is_not_saved_up() -> None:
    limit = RateLimit(100, now=0)
    limit.delay_s(10, now=0)
    assert limit.delay_s(50, now=100) == pytest.approx(0.5)
