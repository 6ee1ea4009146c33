"""A plugin of pytest that writes how long each test took: `-p tests.mutation.durations`."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

_seconds: Counter[str] = Counter()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] += report.duration  # type: ignore[assignment]


def pytest_sessionfinish(exitstatus: int) -> None:
    if exitstatus == pytest.ExitCode.OK:
        Path("durations.json").write_text(json.dumps(_seconds))
