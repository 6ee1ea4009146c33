"""Warnings that repeat are counted."""

from __future__ import annotations

import logging

import pytest

from aiokafka08._core import limited_log
from aiokafka08._core.limited_log import (
    MAX_CHARACTERS,
    Later,
    LimitedLog,
    later_in_loop,
    later_in_thread,
)
from tests.support.waiting import until

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("later", [later_in_loop, later_in_thread])
async def test_first_is_logged_at_once_and_the_rest_is_counted(
    later: Later, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limited_log, "PERIOD_S", 0.05)
    log = LimitedLog(logging.getLogger("test"), later)
    for number in range(1000):
        log.report("loop", f"refused {number}")
    log.report("once", "closed")
    assert caplog.messages == ["refused 0", "closed"]
    await until(lambda: len(caplog.messages) == 3, "the period has ended")
    assert caplog.messages[2] == "refused 0 (999 more times within 0.05 s)"
    log.report("loop", "refused again")  # it goes on, so it is counted for a further period
    await until(lambda: len(caplog.messages) == 4, "the next period has ended")
    assert caplog.messages[3] == "refused 0 (1 more times within 0.05 s)"
    log.close()
    log.report("loop", "refused anew")
    log.close()
    assert caplog.messages[4:] == ["refused anew"]


async def test_different_warnings_are_limited_too(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limited_log, "MAX_KEYS", 10)
    log = LimitedLog(logging.getLogger("test"), later_in_loop)
    for number in range(100):
        log.report(number, f"client {number}")
    log.close()
    assert caplog.messages[:10] == [f"client {number}" for number in range(10)]
    assert caplog.messages[10:] == [
        "more than 10 different warnings in 60 s",
        "more than 10 different warnings in 60 s (89 more times within 60 s)",
    ]


async def test_many_warnings_of_one_kind_hide_no_others(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limited_log, "MAX_KEYS", 10)
    log = LimitedLog(logging.getLogger("test"), later_in_loop)
    for number in range(100):
        log.report(number, f"client {number}", "refused")
    for number in range(10):
        log.report(number, f"broker {number}", "lost")
    log.close()
    assert caplog.messages[11:21] == [f"broker {number}" for number in range(10)]


async def test_text_is_one_line_of_limited_length(caplog: pytest.LogCaptureFixture) -> None:
    log = LimitedLog(logging.getLogger("tests.limited_log"), later_in_loop)
    log.report(1, "a\nWARNING forged\r\x1b[2J\u2028\ud800é")
    log.report(2, "x" * 100_000)
    log.close()
    forged, long = (record.getMessage() for record in caplog.records)
    assert forged == r"a\nWARNING forged\r\x1b[2J\u2028\ud800é"
    assert long == "x" * (MAX_CHARACTERS - 1) + "…"
