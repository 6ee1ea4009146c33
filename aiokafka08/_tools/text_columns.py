"""The width of texts in columns of a terminal, and texts that fit into a number of them. Pure.

Invariant: a width is in columns, never a number of characters: Chinese and Japanese characters take
two columns, combining characters none.
"""

from __future__ import annotations

import re


def text_width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    # Only for other texts, since the import takes time.
    from rich.cells import cell_len

    return cell_len(text)


def cut(text: str, width: int) -> str:
    """Return as much of the beginning of a text as fits in this many columns."""
    if text_width(text) <= width:
        return text
    columns = 0
    for index, character in enumerate(text):
        columns += text_width(character)
        if columns > width:
            return text[:index]
    return text


def wrap(text: str, width: int, first: str = "", others: str = "") -> list[str]:
    """Return the lines of a text, none longer than `width` columns unless one word is.

    Args:
        text: the text; a line break counts as a space.
        width: columns of a line.
        first: the beginning of the first line (default "").
        others: the beginning of the other lines (default "").
    """
    lines: list[str] = []
    line, columns = first, text_width(first)
    has_word = False
    for spaces, word in re.findall(r"(\s*)(\S+)", text):
        # Several spaces stay as they are where no line ends.
        gap = " " * len(spaces) if has_word else ""
        if has_word and columns + len(gap) + text_width(word) > width:
            lines.append(line)
            line, columns, gap = others, text_width(others), ""
        line += gap + word
        columns += len(gap) + text_width(word)
        has_word = True
    return [*lines, line] if has_word else []
