"""Show keys and values of messages as text, as JSON that can be folded, or as hexadecimal. Pure.

Invariants: the results are text, which the templates escape. Their length is bounded, for each key
or value and for a page (`PageText`, `json_part`). It is counted in the characters that are sent,
because escapes make a text longer than its bytes. Indented JSON keeps each digit: numbers aren't
parsed, so none changes.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from html import escape
from typing import Final, NamedTuple

from aiokafka08._core.names import visible
from aiokafka08._tools.records.json_lines import json_of_bytes

FORMS: Final = ("auto", "text", "json", "hex")
"""How a value can be shown; "auto" finds the first of JSON, text and hex that fits."""

SHORT: Final = 160
"""How many characters of a value the list of messages shows."""

PAGE_CHARS: Final = 2 * 1024 * 1024
"""How many characters of HTML the keys and values of a page have; further ones are cut to `SHORT`
bytes."""

_HEX_ROW: Final = 16
_MAX_JSON_DEPTH: Final = 40
_MAX_GROWTH: Final = 4
"""Indented JSON may be at most this many times as long as the limit."""
_TOKENS: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


@dataclass(frozen=True, slots=True)
class ShownBytes:
    """A key or value as it is shown.

    Attributes:
        form: "null", "text", "json" or "hex".
        short: its beginning, on one line.
        text: all of it up to the limit.
        size: the size in bytes; -1 for null.
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
        form: one of `FORMS`; any other value means "auto". Bytes that it doesn't fit are shown as
            text, or with "auto" as hex.
        limit: how many bytes to show.
    """
    if data is None:
        return ShownBytes("null", "null", "null", -1, 0)
    form, cut = form if form in FORMS else "auto", max(len(data) - limit, 0)
    if form != "hex":
        try:
            text = _whole_characters(data, limit).decode()
        except UnicodeDecodeError:
            if form == "auto":
                return _as_hex(data[:limit], len(data), cut)
            text = data[:limit].decode(errors="replace")
        if form != "text" and not cut:
            indented = indent_json(text, _MAX_GROWTH * limit)
            if indented is not None:
                return ShownBytes("json", _one_line(text), printable(indented), len(data), 0)
        return ShownBytes("text", _one_line(text), printable(text), len(data), cut)
    return _as_hex(data[:limit], len(data), cut)


class PageText:
    """Show the keys and values of one page, `PAGE_CHARS` characters in all."""

    def __init__(self) -> None:
        self._left = PAGE_CHARS

    def show(self, data: bytes | None, form: str, limit: int) -> ShownBytes:
        """Do what `show_bytes` does, but show less if the page would become too long."""
        limit = max(min(limit, self._left), SHORT)
        while True:
            shown = show_bytes(data, form, limit)
            size = len(escape(shown.text)) + len(escape(shown.short))
            if size <= self._left or limit == SHORT:
                self._left = max(self._left - size, 0)
                return shown
            if shown.form == "json":
                form = "text"  # without the indentation all of it may fit
            else:
                limit = max(limit // 2, SHORT)


class JsonPart(NamedTuple):
    """A key or value as JSON, and how many bytes are left out of it."""

    text: str
    cut: int


def json_part(data: bytes | None, limit: int, *, is_json: bool = False) -> JsonPart:
    """Return a key or value as `aiokafka08 consume --format jsonl` has it, but cut.

    Args:
        data: the bytes; None for null.
        limit: how many bytes it may have in the document.
        is_json: it is JSON already; if it has to be cut, it becomes a string (default False).
    """
    if data is None:
        return JsonPart("null", 0)
    if is_json and len(data) <= limit:
        return JsonPart(data.decode(), 0)
    part = _whole_characters(data, limit)
    while len((text := json_of_bytes(part)).encode()) > limit and len(part) > SHORT:
        part = _whole_characters(part, max(len(part) // 2, SHORT))
    return JsonPart(text, len(data) - len(part))


def _whole_characters(data: bytes, limit: int) -> bytes:
    """Return the bytes up to a limit, without the character that the limit divides in UTF-8."""
    part = data[:limit]
    if len(part) < len(data):
        try:
            part.decode()
        except UnicodeDecodeError as error:
            if error.start > limit - 4:
                return part[: error.start]
    return part


def printable(text: str) -> str:
    """Return a text with escapes for invisible characters, except tabs and newlines."""
    return "\n".join(
        "\t".join(visible(part) for part in line.split("\t")) for line in text.split("\n")
    )


def indent_json(text: str, limit: int) -> str | None:
    """Return an object or array with a line for each field; None for any other text.

    Also None for deeply nested JSON, whose indentation would take most of the page, and if the
    result would be longer than the limit.
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

    def begin_line() -> None:
        nonlocal limit
        lines.append("  " * depth)
        limit -= 2 * depth + 1

    for at, token in enumerate(tokens):
        if token in "{[":
            depth += 1
            if depth > _MAX_JSON_DEPTH:
                return None
            lines[-1] += token
            if tokens[at + 1] not in "}]":
                begin_line()
        elif token in "}]":
            depth -= 1
            if tokens[at - 1] not in "{[":
                begin_line()
            lines[-1] += token
        elif token == ",":
            lines[-1] += token
            begin_line()
        else:
            lines[-1] += ": " if token == ":" else token
        limit -= len(token)
        if limit < 0:
            return None
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
