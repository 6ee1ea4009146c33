"""How texts show values. Pure.

Invariant: a text has a bounded length, whatever the values are.
"""

from __future__ import annotations

from typing import Final

_MAX_SHOWN: Final = 200


def shorten(value: object) -> str:
    """Return the repr of a value, cut off after 200 characters."""
    try:
        # The repr of a text isn't shorter than the text, so the rest of a large one isn't needed.
        shown = repr(value[: _MAX_SHOWN + 1] if isinstance(value, str | bytes) else value)
    except ValueError:  # an integer of more than 4,300 digits
        shown = f"<{type(value).__name__}>"
    return shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}…"
