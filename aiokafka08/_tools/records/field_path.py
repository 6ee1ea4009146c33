"""The path of a field in JSON values, such as `order.items[0].id`: `parse_path` and `find`. Pure.

Masks hide what a path names, and filters compare it.

Invariant: a mask hides all that a filter with the same path can find. A name is looked up in an
object, and in each element of an array.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

Step = str | int | None
"""A name, the number of an element, or None for each element."""

_STEP: Final = re.compile(r'(?:^|\.)([^.\[\]]+)|\[(?:([0-9]{1,9})|(\*)|"([^"]*)")\]')


def parse_path(text: str) -> tuple[Step, ...] | None:
    """Return the steps of a path; None if it isn't one.

    Steps are names (`order.id`, or `["order.id"]` with a dot in the name), elements of arrays
    (`items[0]`), and each element (`items[*]`, or no step at all). `$` may stand for the value.
    """
    steps: list[Step] = []
    at = int(text == "$" or text.startswith(("$.", "$[")))
    if not text:
        return None
    while at < len(text):
        if (found := _STEP.match(text, at)) is None:
            return None
        name, number, each, quoted = found.groups()
        is_name = number is None and each is None
        steps.append((quoted if name is None else name) if is_name else number and int(number))
        at = found.end()
    return tuple(steps)


def find(data: Any, path: Sequence[Step]) -> Iterator[Any]:
    """Yield what a path names in parsed JSON: of an array itself, and each of its elements.

    Raises:
        RecursionError: arrays are nested too deeply.
    """
    if not path:
        yield data
    step = path[0] if path else None
    if isinstance(data, list):
        if isinstance(step, int):
            for one in data[step : step + 1]:
                yield from find(one, path[1:])
        else:
            rest = path[1:] if step is None else path
            for one in data:
                yield from find(one, rest)
    elif isinstance(data, dict) and isinstance(step, str) and step in data:
        yield from find(data[step], path[1:])
