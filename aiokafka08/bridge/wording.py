"""Phrases in texts that users read: counts, durations, sizes and lists of names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from aiokafka08._core.names import did_you_mean, glob_hint
from aiokafka08._wording import counted, some_of

# The guarantee of a copy, for logs and pages.
GUARANTEE: Final = "exactly once: records, exact offsets and positions are in one transaction"
# How many names a text lists at most, for the user to choose from.
_FOUND_NAMES: Final = 30


def duration_text(seconds: float) -> str:
    """Return a duration, such as "0.4 s", "45 s", "12 min 5 s" or "3 h 20 min"."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def size_text(size: float) -> str:
    """Return a number of bytes, such as "512 B", "1.5 MB" or "2.0 GB"; a MB is 10^6 bytes."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def nothing_matches(noun: str, patterns: Sequence[str], names: Iterable[str]) -> str:
    """Return the patterns of `[topics]` or `[groups]` that match nothing, with similar names.

    Args:
        noun: "topic" or "group".
        patterns: at least one.
        names: all topics or groups of the source.
    """
    known = sorted(names)
    hints = [glob_hint(pattern) or did_you_mean(pattern, known) for pattern in patterns]
    shown = some_of(known, _FOUND_NAMES)
    return (
        f"{noun}s.include: {', '.join(map(repr, patterns))} matches no {noun} of the source. A "
        f"pattern must match the whole name. The {noun}s found: {shown}"
        f"{''.join(hints).replace('?. ', '? ')}"
    )


def equal_text(number: int) -> str:
    """Return how many messages are equal on both sides."""
    return f"{counted(number, 'message')} {'is' if number == 1 else 'are'} equal"


def committed_text(moved: int, same: int, side: str) -> str:
    """Return how many offsets of groups were committed, and how many (`same`) were there before.

    `side` is "target" or "source".
    """
    text = f"{counted(moved, 'offset')} committed at the {side}"
    if same:
        text += f" ({same} {'was' if same == 1 else 'were'} there already)"
    return text
