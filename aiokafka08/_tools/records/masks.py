"""`Masks`: hide keys, values, or fields of values of records. Pure.

Invariant: a value that can't be parsed is hidden as a whole, and numbers that aren't hidden keep
all their digits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, Final

from aiokafka08._tools.records.field_path import Step, parse_path
from aiokafka08._tools.records.types import BytesRecord
from aiokafka08.errors import IllegalArgumentError

HIDDEN: Final = b"(hidden)"
_NUMBER: Final = "\ue000"
"""Prefix of the strings that hold numbers of parsed JSON, so that numbers keep their digits."""

_Paths = Set[Sequence[Step]]


class Masks:
    """What `--mask TOPIC=FIELD` hides.

    Args:
        texts: each names a topic, or a pattern with "*", and fields of its messages: "key",
            "value", or the path of a field of JSON values, such as "card.number" (`field_path`).
        option: what an error calls them (default "mask").

    Raises:
        IllegalArgumentError: a text has no meaning.
    """

    def __init__(self, texts: Iterable[str] = (), option: str = "mask") -> None:
        self._masks: list[tuple[str, list[str]]] = []
        for text in texts:
            topic, _, fields = text.partition("=")
            names = fields.split(",")
            if not topic or None in map(parse_path, names):
                raise IllegalArgumentError(
                    f"{option}={text!r}: expected TOPIC=FIELD,…, such as orders=key,card.number or "
                    "*=value"
                )
            self._masks.append((topic, names))

    def of(
        self, topic: str, *, has_unions: bool = False
    ) -> Callable[[BytesRecord], BytesRecord] | None:
        """Return the function that hides parts of a topic's messages; None if nothing is hidden.

        Args:
            topic: the topic's name.
            has_unions: the values are in Avro's JSON encoding, which puts a value of a union into
                an object whose only key is the type's name. A path may contain this name or omit it
                (default False).
        """
        names = {
            name for pattern, names in self._masks if fnmatchcase(topic, pattern) for name in names
        }
        if not names:
            return None
        paths = frozenset(parse_path(name) or () for name in names - {"key", "value"})

        def hide(record: BytesRecord) -> BytesRecord:
            key, value = record.key, record.value
            if key is not None and "key" in names:
                key = HIDDEN
            if value is not None and "value" in names:
                value = HIDDEN
            elif value is not None and paths:
                value = _without(value, paths, has_unions)
            return replace(record, key=key, value=value)

        return hide


def _without(value: bytes, paths: _Paths, has_unions: bool) -> bytes:
    try:
        text = value.decode()
        data = json.loads(text, parse_int=_NUMBER.__add__, parse_float=_NUMBER.__add__)
        if isinstance(data, dict | list) and not re.search(r"\ue000|\\ue000", text, re.IGNORECASE):
            text = json.dumps(_hidden(data, paths, has_unions), ensure_ascii=False)
            return re.sub(f'"{_NUMBER}([^"]*)"', r"\1", text).encode()
    except (ValueError, RecursionError):
        pass
    return HIDDEN


def _hidden(data: Any, paths: _Paths, has_unions: bool) -> Any:
    """Return parsed JSON in which what `paths` name is hidden.

    A value is hidden as a whole if a path ends there, or goes on although the value has no parts.
    """
    if not paths:
        return data
    if isinstance(data, list) and () not in paths:
        each = {
            path if isinstance(path[0], str) else path[1:]
            for path in paths
            if not isinstance(path[0], int)
        }
        return [
            _hidden(one, each | {path[1:] for path in paths if path[0] == at}, has_unions)
            for at, one in enumerate(data)
        ]
    if isinstance(data, dict) and all(path and isinstance(path[0], str) for path in paths):
        kept = paths if has_unions and len(data) == 1 else frozenset[Sequence[Step]]()
        return {
            name: _hidden(one, kept | {path[1:] for path in paths if path[0] == name}, has_unions)
            for name, one in data.items()
        }
    return HIDDEN.decode()
