"""The way of a fetched message set through the package, as docs/design.md describes it."""

from __future__ import annotations

import os
import subprocess
import sys

STEPS = [
    "consumer/fetch_request.py",
    "consumer/fetcher.py",
    "consumer/cursor.py",
    "_core/ranges/next_fetch.py",
    "consumer/record_buffer.py",
    "consumer/collector.py",
    "consumer/consumer.py",
]
APART = ("protocol/", "testing/", "_core/server/")
"""Above protocol/, at most seven; `fetch_request` gets the response from a future."""


def test_fetched_set_enters_seven_files() -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "tests.consumer.follow_set"],
        env={**os.environ, "AIOKAFKA08_IMPL": "python"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    files = printed.split()
    assert [file for file in files if not file.startswith(APART)] == STEPS
