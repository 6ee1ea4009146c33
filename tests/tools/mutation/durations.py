"""Write how long each passed test took, by `-p tests.tools.mutation.durations`."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

_seconds: Counter[str] = Counter()
_failed: set[str] = set()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] += report.duration  # type: ignore[assignment]
    if not report.passed:
        _failed.add(report.nodeid)


def pytest_sessionfinish(exitstatus: int) -> None:
    if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        passed = {test: _seconds[test] for test in _seconds if test not in _failed}
        Path("durations.json").write_text(json.dumps(passed))
