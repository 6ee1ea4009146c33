"""One measurement: a process that does one job, within a deadline."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence

DEADLINE_S = 240
OPTIMISED = ("-XX:TieredStopAtLevel=4", "-Xmx2g")
"""For brokers: the harness starts them quick to start, and not to be quick."""


class FailedError(Exception):
    """A measurement that didn't come to its end; the text says why."""


def measure(command: Sequence[str], implementation: str = "c") -> dict[str, float]:
    """Run what prints a measurement as its last line; it is killed at the deadline.

    Args:
        implementation: the twin that this package works with.

    Raises:
        FailedError: it failed, or wasn't done in time.
    """
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
            env={**os.environ, "AIOKAFKA08_IMPL": implementation},
        )
    except subprocess.TimeoutExpired:
        raise FailedError(f"not done after {DEADLINE_S} s") from None
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        raise FailedError(f"exit code {done.returncode}: {done.stderr.strip()[-2000:]}")
    measured: dict[str, float] = json.loads(lines[-1])
    return measured
