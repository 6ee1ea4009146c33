"""Run one measurement: a process that does one job within a deadline.

`peers` and `growth` call `measure()`; the last line that the process prints is the result.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

DEADLINE_S = 240
OPTIMISED = ("-XX:TieredStopAtLevel=4", "-Xmx2g")
"""Java options for the brokers: the tests' own options make a broker start fast, not run fast."""


class FailedError(Exception):
    """A measurement that failed or passed its deadline; the text gives the reason."""


def measure(
    command: Sequence[str], implementation: str = "c", folder: Path | None = None
) -> dict[str, float]:
    """Run a command and return the measurement that it prints as its last line.

    Args:
        implementation: the twin that this package uses: "c" or "python".
        folder: the working directory; None for the current one.

    Raises:
        FailedError: the command failed, or was killed at the deadline.
    """
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
            cwd=folder,
            env={**os.environ, "AIOKAFKA08_IMPL": implementation},
        )
    except subprocess.TimeoutExpired:
        raise FailedError(f"not done after {DEADLINE_S} s") from None
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        raise FailedError(f"exit code {done.returncode}: {done.stderr.strip()[-2000:]}")
    measured: dict[str, float] = json.loads(lines[-1])
    return measured
