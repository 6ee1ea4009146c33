"""How much memory this process takes. Linux only."""

from __future__ import annotations

import resource
from pathlib import Path


def resident_bytes() -> int:
    """Return the resident size of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()
