"""Write numbers and times for people. Pure.

Invariant: wherever a number is shortened, the page's `title` has it exactly, so nothing is lost.
"""

from __future__ import annotations

import datetime
from typing import Final

_UNITS: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k"))
"""From which size on a number has a unit; the unit k only if there are more than four digits."""


def number_text(value: float | None) -> str:
    """Return "1.25 M", "9,500", "0.25" or "–": few digits, which fit into a narrow column."""
    if value is None:
        return "–"
    for size, unit in _UNITS:
        if 0.9995 * size <= abs(value) < 1e15:
            return f"{value / (1e3 if unit == 'k' else size):.3g} {unit}"
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2g}" if abs(value) < 10 else f"{value:.1f}"


def exact_text(value: float | None) -> str:
    """Return all digits, with separators."""
    if value is None:
        return "unknown"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}".rstrip("0").rstrip(".")


def local_text(seconds: float, *, with_date: bool = True) -> str:
    """Return a time in the server's time zone; the number if it is no date."""
    try:
        at = datetime.datetime.fromtimestamp(seconds)
    except (ValueError, OverflowError, OSError):
        return f"{seconds:g} s"
    text = at.isoformat(" ", timespec="milliseconds")
    return text if with_date else text[11:19]
