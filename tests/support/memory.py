"""How much memory this process takes. Linux only."""

from __future__ import annotations

import mmap
import sys
from pathlib import Path

import pytest

reads_proc = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
"""Marks tests that call `resident_bytes`, or read /proc themselves."""


def resident_bytes() -> int:
    """Return the resident size of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * mmap.PAGESIZE
