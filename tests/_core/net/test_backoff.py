"""`Backoff`: delays double up to a limit, vary, and start again after a reset."""

from __future__ import annotations

import random

import pytest

from aiokafka08._core.net.backoff import Backoff


class _NoJitter(random.Random):
    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


def test_delays_double_up_to_the_longest_one() -> None:
    backoff = Backoff(0.1, 1.0, _NoJitter())
    assert [backoff.next() for _ in range(6)] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


def test_a_thousand_attempts_do_not_overflow() -> None:
    backoff = Backoff(0.1, 1.0, _NoJitter())
    delays = [backoff.next() for _ in range(2000)]
    assert delays[-1] == pytest.approx(1.0)


def test_reset_returns_to_the_first_delay() -> None:
    backoff = Backoff(0.1, 1.0, _NoJitter())
    for _ in range(5):
        backoff.next()
    backoff.reset()
    assert backoff.next() == pytest.approx(0.1)


def test_jitter_is_at_most_a_fifth() -> None:
    backoff = Backoff(1.0, 1.0, random.Random(8))
    delays = [backoff.next() for _ in range(1000)]
    assert 0.8 <= min(delays) < 0.85
    assert 1.15 < max(delays) <= 1.2


def test_clients_that_fail_together_retry_at_different_times() -> None:
    delays = {Backoff(0.1, 1.0).next() for _ in range(100)}
    assert len(delays) > 90
