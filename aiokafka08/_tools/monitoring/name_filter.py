"""`NameFilter`: which topics or groups are watched. Pure."""

from __future__ import annotations

import re

from aiokafka08._core.names import glob_hint
from aiokafka08.errors import IllegalArgumentError


class NameFilter:
    """Accept the names in which `include` matches somewhere and `exclude` doesn't.

    Args:
        option: the kind of name, for error texts: "topic" or "group".
        include: a regular expression (default ".*").
        exclude: a regular expression; "" excludes nothing (default "").

    Raises:
        IllegalArgumentError: one of them isn't a regular expression.
    """

    def __init__(self, option: str, include: str = ".*", exclude: str = "") -> None:
        self._include = _compiled(f"{option}-filter", include)
        self._exclude = _compiled(f"{option}-exclude", exclude) if exclude else None

    def __call__(self, name: str) -> bool:
        """Return whether the name is accepted."""
        if self._exclude is not None and self._exclude.search(name):
            return False
        return self._include.search(name) is not None


def _compiled(option: str, pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise IllegalArgumentError(
            f"{option}={pattern!r}: expected a regular expression; {error}{glob_hint(pattern)}"
        ) from None
