"""The abilities of a terminal, or of another reader of text: its characters, size and colours.

Invariants: all text, but not the bytes of messages, is written through this module, or, as click
does, through the streams that `prepare_streams()` has prepared. A character that a stream can't
encode never raises an error; it is replaced by ASCII. A control character of a foreign name never
reaches a terminal; it is shown as an escape.
"""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Callable
from typing import Final, TextIO

# The error handler of text streams: `_SUBSTITUTES`, otherwise an escape.
REPLACE: Final = "aiokafka08.replace"

# ASCII for the characters that this package prints itself.
_SUBSTITUTES: Final = {
    "≈": "~",
    "→": "->",
    "…": "...",
    "─": "-",
    "·": "-",
    "–": "-",
    "—": "-",
    "×": "x",
}

# Takes a style, one of the keys of `_STYLES`, and a text; returns the text with the style.
Paint = Callable[[str, str], str]

_STYLES: Final = {"heading": "1", "dim": "2", "good": "32", "warning": "33", "bad": "31"}


def prepare_streams() -> None:
    """Let stdout and stderr replace characters that they can't encode, until the process ends."""
    for stream in (sys.stdout, sys.stderr):
        if (reconfigure := getattr(stream, "reconfigure", None)) is not None:
            reconfigure(errors=REPLACE)


def _replace(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    characters = error.object[error.start : error.end]
    return "".join(map(_in_ascii, characters)), error.end


def _in_ascii(character: str) -> str:
    return _SUBSTITUTES.get(character) or character.encode("ascii", "backslashreplace").decode()


codecs.register_error(REPLACE, _replace)


def is_terminal(stream: TextIO | None) -> bool:
    """Return True if a stream is open and a terminal."""
    return stream is not None and stream.isatty()


def encodable(text: str, stream: TextIO | None) -> str:
    """Return the text with replacements for characters that the stream can't encode."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, REPLACE).decode(encoding)


def printable(text: str) -> str:
    """Return the text with escapes in place of control characters, but for newlines and tabs.

    Other characters that show nothing, or change the direction of a line, become escapes too.
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character in "\n\t" else _escape(character)
        for character in text
    )


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def width() -> int:
    """Return the number of columns of the terminal; the value of `COLUMNS` if it is set."""
    import shutil

    return max(shutil.get_terminal_size().columns, 1)


def height() -> int:
    """Return the number of lines of the terminal; the value of `LINES` if it is set."""
    import shutil

    return max(shutil.get_terminal_size().lines, 1)


def shows_escapes(stream: TextIO | None) -> bool:
    """Return True if a stream is a terminal with escape sequences: TERM isn't missing or dumb."""
    return is_terminal(stream) and os.environ.get("TERM", "") not in ("", "dumb", "unknown")


def painter(stream: TextIO | None) -> Paint:
    """Return a function that gives a text a style, if the stream shows colours.

    A terminal shows them, unless NO_COLOR is set, CLICOLOR is 0, or TERM is missing or dumb.
    """
    is_wanted = not os.environ.get("NO_COLOR") and os.environ.get("CLICOLOR") != "0"
    return _paint if is_wanted and shows_escapes(stream) else plain


def plain(style: str, text: str) -> str:
    """Return the text without a style."""
    return text


def _paint(style: str, text: str) -> str:
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m"
