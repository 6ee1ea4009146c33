"""Show lines to the user, on stderr, where they disturb no data.

All that the command line prints on stderr comes through here, but for prompts and progress bars.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Final

from aiokafka08._tools.cli.terminal import printable, shows_escapes

_ERASE: Final = "\r\x1b[K"


class _StatusLine:
    """The last line of the terminal, if it is that of `show_status()`."""

    is_shown = False


def note(text: str, prefix: str = "aiokafka08: ") -> None:
    """Print a line on stderr; nothing happens if that is closed.

    Args:
        text: the line.
        prefix: what comes before it (default "aiokafka08: ").
    """
    with contextlib.suppress(OSError, ValueError, AttributeError):
        erase_status()
        sys.stderr.write(f"{prefix}{printable(text)}\n")
        sys.stderr.flush()


def show_status(text: str) -> None:
    """Show a line that the next status or note replaces; nothing happens without a terminal.

    Args:
        text: the line; cut to the width of the terminal.
    """
    if not shows_escapes(sys.stderr):
        return
    with contextlib.suppress(OSError, ValueError):
        width = os.get_terminal_size(sys.stderr.fileno()).columns
        sys.stderr.write(_ERASE + printable(text)[: max(width - 1, 0)])
        sys.stderr.flush()
        _StatusLine.is_shown = True


def erase_status() -> None:
    """Erase the line of `show_status()`, if there is one."""
    if _StatusLine.is_shown:
        _StatusLine.is_shown = False
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(_ERASE)
            sys.stderr.flush()
