"""Checks of arguments that several calls of the admin client have. Pure.

Invariant: a wrong type is a TypeError that names the argument, its value and what is expected.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, TypeVar

from aiokafka08._core.net.config import as_integer
from aiokafka08._wording import shorten
from aiokafka08.errors import IllegalArgumentError

T = TypeVar("T")

_HIGHEST_NODE: Final = 2**31 - 1


def check_mapping(name: str, value: object, expected: str) -> Mapping[Any, Any]:
    """Return `value` if it is a mapping; `expected` is for the TypeError."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{name}={shorten(value)}: expected {expected}")
    return value


def check_items(name: str, value: object, kind: type[T], expected: str) -> list[T]:
    """Return the items of a list-like value if all are of a class, or raise TypeError."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise TypeError(f"{name}={shorten(value)}: expected {expected}")
    items = list(value)
    for item in items:
        if not isinstance(item, kind):
            raise TypeError(f"{name}: {shorten(item)} in the list; expected {expected}")
    return items


def check_node_ids(name: str, value: object) -> Collection[int]:
    """Return the ids of brokers; TypeError if it isn't a list; see `check_node_id`."""
    return [
        check_node_id(name, item) for item in check_items(name, value, object, "a list of node ids")
    ]


def check_node_id(name: str, value: object) -> int:
    """Return the id of a broker; IllegalArgumentError unless it is from 0 to 2**31 - 1."""
    number = as_integer(value)
    if number is None or not 0 <= number <= _HIGHEST_NODE:
        raise IllegalArgumentError(
            f"{name}={shorten(value)}: expected a node id, an integer from 0 to {_HIGHEST_NODE}"
        )
    return number
