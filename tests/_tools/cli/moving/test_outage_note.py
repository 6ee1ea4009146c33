"""When a reader that follows says that no broker responds."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka08._tools.cli.moving.consuming import _OutageNote
from aiokafka08.telemetry import MetadataFailed


async def test_outage_begins_anew_after_a_minute_without_failures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Connections may outlast an outage, so that none is opened after it."""
    noted: list[str] = []
    outage = _OutageNote(noted.append)
    loop = asyncio.get_running_loop()
    with monkeypatch.context() as patched:
        for now in (0.0, 300.0, 302.0, 304.0, 340.0, 900.0, 905.0):
            patched.setattr(loop, "time", lambda now=now: now)
            outage.on_event(MetadataFailed("refused"))
    assert [note.partition(".")[0] for note in noted] == [
        "no broker has responded for 4 s",
        "no broker has responded for 5 s",
    ]


async def test_no_outage_is_noted_while_records_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metadata may fail while the connection to a leader goes on to serve."""
    noted: list[str] = []
    outage = _OutageNote(noted.append)
    loop = asyncio.get_running_loop()
    with monkeypatch.context() as patched:
        for now in (0.0, 2.0, 4.0, 6.0, 9.0, 10.0, 14.0):
            patched.setattr(loop, "time", lambda now=now: now)
            if not 6 <= now <= 9:
                outage.records_arrived()
            outage.on_event(MetadataFailed("refused"))
    assert [note.partition(".")[0] for note in noted] == ["no broker has responded for 5 s"]
