"""Suggest similar names, make names printable, and match them against patterns. Pure.

>>> did_you_mean("ordrs", ["orders", "visits"])
". Did you mean 'orders'?"
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from aiokafka08.errors import IllegalArgumentError

# Comparing this many names takes half a second
_MOST_COMPARED: Final = 20_000
_COMPARED_AT_ONCE: Final = 100
_MOST_NAMED: Final = 3
_LIKE_A_GLOB: Final = re.compile(r"(?<![.\])}\\])(?<!\\.)\*")


def similar_names(name: str, known: Iterable[str]) -> Generator[None, None, list[str]]:
    """Return at most three similar names, the most similar first, whatever their case.

    Works in steps (`finish_steps()`, `run_in_steps()`). `name` isn't similar to itself.
    """
    from difflib import get_close_matches

    by_folded: dict[str, str] = {}  # the names of a step, and the best of earlier steps
    folded = name.casefold()
    for number, other in enumerate(islice(known, _MOST_COMPARED), 1):
        if other != name:
            by_folded.setdefault(other.casefold(), other)
        if number % _COMPARED_AT_ONCE == 0:
            best = get_close_matches(folded, by_folded, n=_MOST_NAMED)
            by_folded = {one: by_folded[one] for one in best}
            yield
    return [by_folded[one] for one in get_close_matches(folded, by_folded, n=_MOST_NAMED)]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question that names the `similar_names()`, or "" if there are none."""
    # Imported here, because it imports asyncio. Modules that only show names don't need that.
    from aiokafka08._core.concurrency.loop_yield import finish_steps

    similar = " or ".join(map(repr, finish_steps(similar_names(name, known))))
    return f". Did you mean {similar}?" if similar else ""


def visible(text: str) -> str:
    """Return a text in which invisible characters are escapes, as in `repr()`."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def glob_hint(pattern: str) -> str:
    """Return a sentence for an error if a regular expression looks like a glob; else ""."""
    if _LIKE_A_GLOB.search(pattern) is None:
        return ""
    meant = _LIKE_A_GLOB.sub(".*", pattern)
    return f". In a regular expression any text is '.*': did you mean {meant!r}?"


@dataclass(frozen=True, slots=True)
class NamePatterns:
    """A choice of names: each matches a pattern of `include`, and none of `exclude`.

    Invariant: a regular expression must match the whole name, so a plain name selects itself.
    """

    include: tuple[re.Pattern[str], ...]
    exclude: tuple[re.Pattern[str], ...] = ()

    def includes(self, name: str) -> bool:
        if any(pattern.fullmatch(name) for pattern in self.exclude):
            return False
        return any(pattern.fullmatch(name) for pattern in self.include)


def compile_patterns(option: str, patterns: Sequence[str]) -> tuple[re.Pattern[str], ...]:
    """Compile patterns; IllegalArgumentError names the option."""
    return tuple(compile_pattern(option, pattern) for pattern in patterns)


def compile_pattern(option: str, pattern: str) -> re.Pattern[str]:
    """Compile a pattern; raises as `compile_patterns`."""
    try:
        return re.compile(pattern)
    except re.error as error:
        raise IllegalArgumentError(
            f"{option}={pattern!r}: {error}; expected a regular expression{glob_hint(pattern)}"
        ) from None
