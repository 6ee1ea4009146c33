"""Show keys and values of messages as text, as JSON that can be folded, or as hexadecimal. Pure.

Invariant: nothing but text comes out, of bounded length, which the templates escape. JSON is
indented as it was sent, digit by digit: a number never changes because it was parsed.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final

from aiokafka08._core.names import visible

FORMS: Final = ("auto", "text", "json", "hex")
"""How a value can be shown; "auto" finds the first of JSON, text and hex that fits."""

SHORT: Final = 160
"""How many characters of a value the list of messages shows."""

_HEX_ROW: Final = 16
_MAX_JSON_DEPTH: Final = 40
_TOKENS: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


@dataclass(frozen=True, slots=True)
class ShownBytes:
    """A key or value as it is shown.

    Attributes:
        form: "null", "text", "json" or "hex".
        short: its beginning, on one line.
        text: all of it up to the limit.
        size: in bytes; -1 for null.
        cut: how many bytes are left out of `text`.
    """

    form: str
    short: str
    text: str
    size: int
    cut: int

    @property
    def is_long(self) -> bool:
        """Whether `text` says more than `short`."""
        return self.form != "null" and self.text != self.short


def show_bytes(data: bytes | None, form: str, limit: int) -> ShownBytes:
    """Return a key or value in a form.

    Args:
        data: the bytes; None for null.
        form: one of `FORMS`; bytes that it doesn't fit are shown as text, or as hex.
        limit: how many bytes to show.
    """
    if data is None:
        return ShownBytes("null", "null", "null", -1, 0)
    cut = max(len(data) - limit, 0)
    if form != "hex":
        try:
            text = data[:limit].decode()
        except UnicodeDecodeError as error:
            # The limit may have divided the last character.
            is_divided = cut and error.start > limit - 4
            text = data[: error.start].decode() if is_divided else ""
            if not is_divided and form in ("text", "json"):
                text = data[:limit].decode(errors="replace")
            elif not is_divided:
                return _as_hex(data[:limit], len(data), cut)
        if form != "text" and not cut and (indented := indent_json(text)) is not None:
            return ShownBytes("json", _one_line(text), printable(indented), len(data), 0)
        return ShownBytes("text", _one_line(text), printable(text), len(data), cut)
    return _as_hex(data[:limit], len(data), cut)


def printable(text: str) -> str:
    """Return a text with escapes for what can't be seen, but for tabs and newlines."""
    return "\n".join(
        "\t".join(visible(part) for part in line.split("\t")) for line in text.split("\n")
    )


def indent_json(text: str) -> str | None:
    """Return an object or array with a line for each field; None if it isn't one.

    It is also None if it is nested so deeply that the indentation would take most of the page.
    """
    stripped = text.strip()
    if stripped[:1] not in ("{", "["):
        return None
    try:
        json.loads(stripped)
    except (ValueError, RecursionError):
        return None
    lines: list[str] = [""]
    depth, tokens = 0, _TOKENS.findall(stripped)
    for at, token in enumerate(tokens):
        if token in "{[":
            depth += 1
            if depth > _MAX_JSON_DEPTH:
                return None
            lines[-1] += token
            if tokens[at + 1] not in "}]":
                lines.append("  " * depth)
        elif token in "}]":
            depth -= 1
            if tokens[at - 1] not in "{[":
                lines.append("  " * depth)
            lines[-1] += token
        elif token == ",":
            lines[-1] += token
            lines.append("  " * depth)
        else:
            lines[-1] += ": " if token == ":" else token
    return "\n".join(lines)


def _one_line(text: str) -> str:
    short = " ".join(text[: 4 * SHORT].split())
    is_whole = len(text) <= 4 * SHORT and len(short) <= SHORT
    return visible(short if is_whole else f"{short[:SHORT]}…")


def _as_hex(data: bytes, size: int, cut: int) -> ShownBytes:
    rows = []
    for at in range(0, len(data), _HEX_ROW):
        row = data[at : at + _HEX_ROW]
        seen = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        rows.append(f"{at:08x}  {row.hex(' '):<{3 * _HEX_ROW}} {seen}")
    short = data[: SHORT // 4].hex(" ")
    return ShownBytes("hex", short, "\n".join(rows), size, cut)
