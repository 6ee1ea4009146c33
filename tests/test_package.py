"""The package as a whole: what importing it does and doesn't do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
EXTRAS = {"kazoo", "pyarrow", "pyspark", "uvloop"}


def test_importing_it_imports_no_extra() -> None:
    code = "import sys, aiokafka08; print(*{name.partition('.')[0] for name in sys.modules})"
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    imported = set(done.stdout.split())
    assert "aiokafka08" in imported
    assert not imported & EXTRAS
