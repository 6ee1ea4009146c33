"""Show a line to the user, on stderr, where it disturbs no data."""

from __future__ import annotations

import contextlib
import sys


def note(text: str, prefix: str = "aiokafka08: ") -> None:
    """Print a line on stderr; nothing happens if that is closed.

    Args:
        text: the line.
        prefix: what comes before it (default "aiokafka08: ").
    """
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"{prefix}{text}\n")
        sys.stderr.flush()
