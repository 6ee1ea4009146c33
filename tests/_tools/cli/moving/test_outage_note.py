"""When a reader that follows says that no broker responds."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import pytest

from aiokafka08._tools.cli.moving.consuming import _OutageNote
from aiokafka08.telemetry import MetadataFailed


async def noted(failures: Collection[float], records: Collection[float] = ()) -> list[str]:
    """Return the first sentences that are noted, if metadata fails and records come at times."""
    notes: list[str] = []
    outage = _OutageNote(notes.append)
    loop = asyncio.get_running_loop()
    with pytest.MonkeyPatch.context() as patched:
        for now in failures:
            patched.setattr(loop, "time", lambda now=now: now)
            if now in records:
                outage.records_arrived()
            outage.on_event(MetadataFailed("refused"))
    return [note.partition(".")[0] for note in notes]


async def test_outage_begins_anew_after_a_minute_without_failures() -> None:
    """Connections may outlast an outage, so that none is opened after it."""
    assert await noted((0.0, 300.0, 302.0, 304.0, 340.0, 900.0, 905.0)) == [
        "no broker has responded for 4 s",
        "no broker has responded for 5 s",
    ]


async def test_no_outage_is_noted_while_records_arrive() -> None:
    """Metadata may fail while the connection to a leader goes on to serve."""
    failures, records = (0.0, 2.0, 4.0, 6.0, 9.0, 10.0, 14.0), (0.0, 2.0, 4.0, 10.0, 14.0)
    assert await noted(failures, records) == ["no broker has responded for 5 s"]
