"""Parse times and durations of the command line. Pure: callers pass the present time.

Invariant: no text has two meanings. A time is ISO 8601 (local if it has no offset from UTC), `now`,
a duration before now (`-1h30m`), or milliseconds since the epoch (any text of digits only).
Durations are numbers with units (`1h30m`) or ISO 8601 without months and years (`P7D`).
"""

from __future__ import annotations

import datetime
import re
from typing import Final

from aiokafka08.errors import IllegalArgumentError

_UNIT_MS: Final = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
# 285,000 years: more is a mistake, and doesn't fit into the integers of later calculations.
_MAX_DURATION_MS: Final = 2**53
_SIMPLE: Final = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|[smhdw]))+")
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|[smhdw])")
_ISO: Final = re.compile(
    r"P(?!$)(?:([0-9]+)W)?(?:([0-9]+)D)?"
    r"(?:T(?!$)(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+(?:\.[0-9]+)?)S)?)?"
)

TIME_FORMS: Final = "a time such as 2026-11-22T10:30:00Z, -1h, or milliseconds since the epoch"
DURATION_FORMS: Final = "a duration such as 90s, 1h30m, 2d or P7D"


def parse_time(option: str, text: str, now_ms: int) -> int:
    """Return a time in milliseconds since the epoch.

    Args:
        option: the option's name, for errors.
        text: the time.
        now_ms: the present time.

    Raises:
        IllegalArgumentError: it isn't a time, or is before 1970.
    """
    milliseconds = _time_ms(text.strip(), now_ms)
    if milliseconds is None or milliseconds < 0:
        raise IllegalArgumentError(f"{option}={text!r}: expected {TIME_FORMS}")
    return milliseconds


def is_time(text: str) -> bool:
    """Return True if `text` has one of the forms of a time."""
    return _time_ms(text.strip(), 2**62) is not None


def parse_duration(option: str, text: str) -> int:
    """Return a duration in milliseconds, with the sign of a leading `-` or `+`.

    Raises:
        IllegalArgumentError: it isn't a duration.
    """
    stripped = text.strip()
    milliseconds = _duration_ms(stripped.lstrip("+-"))
    if milliseconds is None or len(stripped) - len(stripped.lstrip("+-")) > 1:
        raise IllegalArgumentError(f"{option}={text!r}: expected {DURATION_FORMS}")
    return -milliseconds if stripped.startswith("-") else milliseconds


def _time_ms(text: str, now_ms: int) -> int | None:
    if text == "now":
        return now_ms
    # More digits are a mistake, such as nanoseconds.
    if re.fullmatch("[0-9]{1,15}", text):
        return int(text)
    if text.startswith("-"):
        ago_ms = _duration_ms(text[1:])
        return None if ago_ms is None else now_ms - ago_ms
    try:
        time = datetime.datetime.fromisoformat(text)
        return round(time.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        return None


def _duration_ms(text: str) -> int | None:
    if _SIMPLE.fullmatch(text):
        parts = _PART.findall(text)
    else:
        match = _ISO.fullmatch(text)
        if match is None:
            return None
        parts = list(zip(match.groups(), ("w", "d", "h", "m", "s"), strict=True))
    milliseconds = sum(float(amount) * _UNIT_MS[unit] for amount, unit in parts if amount)
    return round(milliseconds) if milliseconds <= _MAX_DURATION_MS else None


def show_time(timestamp_ms: int) -> str:
    """Return a time as ISO 8601 in UTC, with milliseconds."""
    try:
        shown = datetime.datetime.fromtimestamp(timestamp_ms / 1000, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"  # the calendar has no such time
    return shown.isoformat(timespec="milliseconds").replace("+00:00", "Z")
