"""Words in texts that users read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

NAMES: Final = 5
"""How many names a text has at most."""


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as "1 group" or "2 groups".

    Args:
        number: how many.
        noun: in the singular; the plural has an "s".
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def some_of(names: Sequence[str], most: int = NAMES) -> str:
    """Return names with commas, and how many more there are.

    Args:
        names: in the order in which they are shown.
        most: how many are shown (default 5).
    """
    more = f", and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def equal_text(number: int) -> str:
    """Return how many messages are equal on both sides."""
    return f"{counted(number, 'message')} {'is' if number == 1 else 'are'} equal"


def committed_text(moved: int, same: int, side: str) -> str:
    """Return how many offsets of groups were committed.

    Args:
        moved: how many were.
        same: how many were there before.
        side: the cluster: "target" or "source".
    """
    text = f"{counted(moved, 'offset')} committed at the {side}"
    if same:
        text += f" ({same} {'was' if same == 1 else 'were'} there already)"
    return text
