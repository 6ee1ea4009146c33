"""`QueryTable`: sort, filter and page rows as the query of a URL says. Pure.

    table = QueryTable(rows, {"topic": lambda row: row.topic}, query, "/topics")
    table.shown                  # the rows of this page
    table.sort_link("messages")  # the URL that sorts by another column

Invariant: the whole state is in the URL, so that it can be bookmarked. `page` and `rows` are
clipped to their limits, or ignored if they aren't numbers; an unknown `sort` is an error. Rows
whose value is unknown come last, in either direction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar
from urllib.parse import urlencode

from aiokafka08._wording import shorten
from aiokafka08.errors import IllegalArgumentError

R = TypeVar("R")

Columns = Mapping[str, Callable[[R], Any]]

PAGE_ROWS: Final = 50
_MAX_PAGE_ROWS: Final = 500


class QueryTable(Generic[R]):
    """The rows of one page of a table, and the links to its other states.

    Args:
        rows: all rows.
        columns: by name, the function that returns a row's value or None. The rows are sorted by
            the first column, unless the query names another.
        query: the query of the URL: `sort` (a name, with "-" before it for descending), `q` (what
            the first column contains), `page` and `rows`.
        path: the URL without its query.

    Raises:
        IllegalArgumentError: `sort` names none of the columns.
    """

    def __init__(
        self,
        rows: Sequence[R],
        columns: Columns[R],
        query: Mapping[str, str],
        path: str,
    ) -> None:
        self._query, self._path = dict(query), path
        first = next(iter(columns))
        sort = query.get("sort") or first
        if sort.removeprefix("-") not in columns:
            raise IllegalArgumentError(
                f"sort={shorten(sort)}: expected one of {', '.join(columns)}, or - and one of them"
            )
        self.sort, self.is_descending = sort.removeprefix("-"), sort.startswith("-")
        self.text = query.get("q", "")
        self.total = len(rows)
        if self.text:
            name, wanted = columns[first], self.text.casefold()
            rows = [row for row in rows if wanted in str(name(row)).casefold()]
        key = columns[self.sort]
        known = [row for row in rows if key(row) is not None]
        unknown = [row for row in rows if key(row) is None]
        known.sort(key=key, reverse=self.is_descending)
        self.matching: Sequence[R] = [*known, *unknown]
        self.page_rows = _number(query.get("rows"), PAGE_ROWS, _MAX_PAGE_ROWS)
        self.pages = max(-(-len(self.matching) // self.page_rows), 1)
        self.page = _number(query.get("page"), 1, self.pages)
        begin = (self.page - 1) * self.page_rows
        self.shown = self.matching[begin : begin + self.page_rows]
        self.begin = begin

    def link(self, **changes: object) -> str:
        """Return the URL of the same table with other values; None removes one."""
        query = {**self._query, **changes}
        return url_of(self._path, query)

    def sort_link(self, column: str, *, largest_first: bool = False) -> str:
        """Return the URL that sorts by a column, in reverse if the rows are already sorted by it.

        Args:
            column: its name.
            largest_first: sort the largest value first, as for numbers (default False).
        """
        turned = not self.is_descending if column == self.sort else largest_first
        return self.link(sort=f"-{column}" if turned else column, page=None)

    def direction(self, column: str) -> str:
        """Return the value of `aria-sort` for a column."""
        if column != self.sort:
            return "none"
        return "descending" if self.is_descending else "ascending"


def url_of(path: str, query: Mapping[str, object]) -> str:
    """Return a URL with those values of a query that aren't None or empty."""
    given = {name: str(value) for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


def number_of(text: str, end: int) -> int | None:
    """Return a number from 0 to `end` - 1; None if the text isn't one."""
    if not text.isascii() or not text.isdigit() or len(text) > len(str(end)):
        return None
    number = int(text)
    return number if number < end else None


def expect_number(name: str, given: Mapping[str, str], end: int = 2**31) -> int:
    """Return the number from 0 to `end` - 1 that a query or form has by this name.

    Raises:
        IllegalArgumentError: it has none.
    """
    text = given.get(name, "").strip()
    if (number := number_of(text, end)) is None:
        raise IllegalArgumentError(f"{name}={shorten(text)}: expected a number")
    return number


def _number(text: str | None, default: int, most: int) -> int:
    """Return a number from 1 to `most`."""
    number = number_of(text or "", 10**9)
    return min(default if number is None else max(number, 1), most)
