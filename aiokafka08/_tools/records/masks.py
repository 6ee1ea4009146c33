"""`Masks`: hide keys, values, or fields of values of records. Pure.

Invariant: a value that can't be parsed is hidden as a whole, and numbers that aren't hidden keep
all their digits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, Final

from aiokafka08._tools.records.field_path import Step, parse_path
from aiokafka08._tools.records.types import BytesRecord
from aiokafka08.errors import IllegalArgumentError

_HIDDEN: Final = "(hidden)"
_NUMBER: Final = "\ue000"
"""Prefix of the strings that hold numbers of parsed JSON, so that numbers keep their digits."""


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

    def of(self, topic: str) -> Callable[[BytesRecord], BytesRecord] | None:
        """Return the function that hides parts of a topic's messages; None if nothing is hidden."""
        names = {
            name for pattern, names in self._masks if fnmatchcase(topic, pattern) for name in names
        }
        if not names:
            return None
        paths = [parse_path(name) or () for name in sorted(names - {"key", "value"})]

        def hide(record: BytesRecord) -> BytesRecord:
            key, value = record.key, record.value
            if key is not None and "key" in names:
                key = _HIDDEN.encode()
            if value is not None and "value" in names:
                value = _HIDDEN.encode()
            elif value is not None and paths:
                value = _without(value, paths)
            return replace(record, key=key, value=value)

        return hide


def _without(value: bytes, paths: Iterable[Sequence[Step]]) -> bytes:
    try:
        text = value.decode()
        data = json.loads(text, parse_int=_NUMBER.__add__, parse_float=_NUMBER.__add__)
        if isinstance(data, dict | list) and not re.search(r"\ue000|\\ue000", text, re.IGNORECASE):
            for path in paths:
                data = _hidden(data, path)
            text = json.dumps(data, ensure_ascii=False)
            return re.sub(f'"{_NUMBER}([^"]*)"', r"\1", text).encode()
    except (ValueError, RecursionError):
        pass
    return _HIDDEN.encode()


def _hidden(data: Any, path: Sequence[Step]) -> Any:
    step, rest = (path[0], path[1:]) if path else (None, ())
    if path and isinstance(data, list):
        if isinstance(step, int):
            return [_hidden(one, rest) if at == step else one for at, one in enumerate(data)]
        return [_hidden(one, rest if step is None else path) for one in data]
    if isinstance(step, str) and isinstance(data, dict):
        return data | {name: _hidden(data[name], rest) for name in (step,) if name in data}
    return _HIDDEN
