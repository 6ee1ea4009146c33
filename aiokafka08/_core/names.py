"""How errors show names and patterns that are wrong. Pure.

    >>> did_you_mean("ordrs", ["orders", "visits"])
    ". Did you mean 'orders'?"

Callers append the results to an error's text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_MOST_COMPARED: Final = 20_000
"""Comparing so many names takes half a second."""
_MOST_NAMED: Final = 3
_LIKE_A_GLOB: Final = re.compile(r"(?<![.\])}\\])(?<!\\.)\*")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question that names similar ones, or "" if there are none.

    Args:
        name: what was given.
        known: the names that exist; the first 20,000 are compared.
    """
    from difflib import get_close_matches

    by_folded: dict[str, str] = {}
    for other, _ in zip(known, range(_MOST_COMPARED), strict=False):
        by_folded.setdefault(other.casefold(), other)
    folded = name.casefold()
    similar = [by_folded[one] for one in get_close_matches(folded, by_folded, n=_MOST_NAMED)]
    texts = [repr(one) for one in similar if one != name]
    return f". Did you mean {' or '.join(texts)}?" if texts else ""


def visible(text: str) -> str:
    """Return a text in which characters that can't be seen are escapes, as in `repr()`."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def glob_hint(pattern: str) -> str:
    """Return a sentence for an error if a regular expression looks like a pattern of a shell.

    Returns "" for others.
    """
    if _LIKE_A_GLOB.search(pattern) is None:
        return ""
    meant = _LIKE_A_GLOB.sub(".*", pattern)
    return f". In a regular expression any text is '.*': did you mean {meant!r}?"
