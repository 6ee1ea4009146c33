"""`WorkerHistory` makes what workers print a history in which the checker finds what is wrong."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from aiokafka08.testing.history import Message, Recorder, check
from tests.consumer.membership.group_harness import WorkerHistory

VALUES = "abc"

Reading = tuple[str, int]
"""What the worker has printed since the last `read()`, and the committed offset."""

ALL_READ: Reading = "2026-11-29 09:00:00,000 7 INFO assigned [0]\n0/0 b'a'\n0/1 b'b'\n0/2 b'c'\n", 3


@pytest.mark.parametrize(
    ("readings", "names"),
    [
        ([ALL_READ], set()),
        ([("assigned [0]\n0/0 b'a'\n", 1), ("revoked [0]\nassigned [0]\n0/1 b'b'\n", 2)], set()),
        ([("assigned [0]\n0/0 b'a'\n0/2 b'c'\n", 1)], {"poll-skip", "group-skip"}),
        ([("assigned [0]\n0/1 b'b'\n0/0 b'a'\n", 0)], {"nonmonotonic-poll"}),
        ([("assigned [0]\n0/0 b'a'\nrevoked [0]\n0/1 b'b'\n", 0)], {"poll-after-revocation"}),
        ([("assigned [0]\n0/0 b'a'\n0/1 b'", 2)], {"commit-ahead"}),
        ([ALL_READ, ("", 2)], {"commit-behind"}),
        ([ALL_READ, ("revoked [0]\nassigned [0]\n0/2 b'c'\n", 3)], {"commit-ignored"}),
    ],
)
def test_worker_history_shows_anomalies(readings: list[Reading], names: set[str]) -> None:
    recorder = Recorder()
    worker: Any = SimpleNamespace(text="")
    history = WorkerHistory(recorder, "t", [worker])
    for printed, offset in readings:
        worker.text += printed
        assert history.read(lambda offset=offset: [offset]) == [offset]  # type: ignore[misc]
    log = [Message("t/0", value, offset) for offset, value in enumerate(VALUES)]
    recorder.note("observer", "log", partitions=("t/0",), polled=tuple(log))
    assert {anomaly.name for anomaly in check(recorder.operations)} == names
