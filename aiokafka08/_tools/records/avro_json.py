"""`AvroSchema`: turn Avro's binary encoding into JSON, by a parsed schema. Pure.

The JSON is that of the Avro specification, as kcat writes it: a value of a union is
`{"type": value}`, bytes are text. Logical types have no effect: a date is a number of days.

Schemas and values may be hostile. fastavro's reader, in C, overflows the stack at a value that is
nested deeply, and its JSON writer fails on recursive schemas, so neither is used.

Invariants: depth and length of the result, memory and time are bounded for any schema and bytes.
The result is valid JSON. The text of an error contains no part of the bytes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Any, Final

from aiokafka08._tools.records.types import T

MAX_CHARS: Final = 64 * 1024 * 1024
"""The maximum length of one value's JSON; a few bytes may stand for long names of the schema."""

_MAX_DEPTH: Final = 100
_VARINT_BYTES: Final = 10


class TooLongError(ValueError):
    """The JSON of a value is longer than the limit."""


class AvroSchema:
    """Turns values of one schema into JSON.

    Args:
        parsed: the result of `fastavro.parse_schema`.

    Raises:
        ValueError: the schema is nested too deeply, or has a type that isn't known.
    """

    def __init__(self, parsed: Any) -> None:
        try:
            self._write = _writer(parsed, {})
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"the schema isn't valid: {type(error).__name__}") from None

    def to_json(self, data: bytes, max_chars: int = MAX_CHARS) -> str:
        """Return the JSON of a value; bytes after it are ignored.

        Args:
            data: the value.
            max_chars: how long the JSON may be (default `MAX_CHARS`).

        Raises:
            TooLongError: the JSON is too long.
            ValueError: the bytes don't fit the schema, or are nested too deeply.
        """
        cursor = _Cursor(data, max_chars)
        try:
            self._write(cursor)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        return "".join(cursor.parts)


def _misfit(why: str) -> ValueError:
    return ValueError(f"the bytes don't fit their schema: {why}")


class _Cursor:
    """The bytes from a position on, and the parts of JSON that are written."""

    __slots__ = ("_at", "_data", "_depth", "_left", "parts")

    def __init__(self, data: bytes, max_chars: int) -> None:
        self._data, self._at, self._left, self._depth = data, 0, max_chars, 0
        self.parts: list[str] = []

    def write(self, text: str) -> None:
        self._left -= len(text)
        if self._left < 0:
            raise TooLongError("its JSON is too long")
        self.parts.append(text)

    def take(self, size: int) -> bytes:
        at, end = self._at, self._at + size
        if not at <= end <= len(self._data):
            raise _misfit("they end too early, or a length is wrong")
        self._at = end
        return self._data[at:end]

    def take_integer(self) -> int:
        number = 0
        for index, byte in enumerate(self._data[self._at : self._at + _VARINT_BYTES]):
            number |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                self._at += index + 1
                return (number >> 1) ^ -(number & 1)
        raise _misfit("they end too early, or an integer is too long")

    def write_items(self, brackets: str, write_item: Callable[[_Cursor], None]) -> None:
        """Write the items of an array or map, which come in blocks; the last block is empty."""
        self.open(brackets[0])
        separator = ""
        while count := self.take_integer():
            if count < 0:
                self.take_integer()  # the size of the block
            for _ in range(abs(count)):
                self.write(separator)
                write_item(self)
                separator = ", "
        self.close(brackets[1])

    def open(self, bracket: str) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ValueError(f"it is nested more than {_MAX_DEPTH} times")
        self.write(bracket)

    def close(self, bracket: str) -> None:
        self._depth -= 1
        self.write(bracket)


# Reads a value, and writes its JSON.
_Writer = Callable[[_Cursor], None]


def _writer(schema: Any, named: dict[str, _Writer]) -> _Writer:
    """Return the function for a schema; `named` has the functions of the named types so far."""
    if isinstance(schema, list):
        return _union(schema, named)
    if isinstance(schema, str):
        return _PRIMITIVES[schema] if schema in _PRIMITIVES else named[schema]
    kind = schema["type"]
    if kind in ("record", "error"):
        return _record(schema, named)
    if kind == "array":
        write_item = _writer(schema["items"], named)
        return lambda cursor: cursor.write_items("[]", write_item)
    if kind == "map":
        write_value = _writer(schema["values"], named)

        def write_entry(cursor: _Cursor) -> None:
            _string(cursor)
            cursor.write(": ")
            write_value(cursor)

        return lambda cursor: cursor.write_items("{}", write_entry)
    if kind == "enum":
        symbols = [encode_basestring_ascii(symbol) for symbol in schema["symbols"]]
        named[schema["name"]] = write = lambda cursor: cursor.write(_choice(symbols, cursor))
        return write
    if kind == "fixed":
        size = int(schema["size"])
        named[schema["name"]] = write = lambda cursor: cursor.write(_latin1(cursor.take(size)))
        return write
    return _writer(kind, named)


def _record(schema: Any, named: dict[str, _Writer]) -> _Writer:
    fields: list[tuple[str, _Writer]] = []

    def write(cursor: _Cursor) -> None:
        cursor.open("{")
        for name, write_value in fields:
            cursor.write(name)
            write_value(cursor)
        cursor.close("}")

    named[schema["name"]] = write  # before its fields, which may be of this type
    separator = ""
    for field in schema["fields"]:
        name = f"{separator}{encode_basestring_ascii(field['name'])}: "
        fields.append((name, _writer(field["type"], named)))
        separator = ", "
    return write


def _union(branches: Any, named: dict[str, _Writer]) -> _Writer:
    choices: list[tuple[str | None, _Writer]] = []
    for branch in branches:
        is_object = isinstance(branch, dict)
        label = branch.get("name", branch["type"]) if is_object else branch
        name = None if label == "null" else f"{encode_basestring_ascii(label)}: "
        choices.append((name, _writer(branch, named)))

    def write(cursor: _Cursor) -> None:
        name, write_value = _choice(choices, cursor)
        if name is None:
            cursor.write("null")
            return
        cursor.open("{")
        cursor.write(name)
        write_value(cursor)
        cursor.close("}")

    return write


def _choice(choices: Sequence[T], cursor: _Cursor) -> T:
    index = cursor.take_integer()
    if not 0 <= index < len(choices):
        raise _misfit("a number names no branch of a union, or symbol of an enum")
    return choices[index]


def _string(cursor: _Cursor) -> None:
    try:
        text = cursor.take(cursor.take_integer()).decode()
    except UnicodeDecodeError:
        raise _misfit("a text isn't UTF-8") from None
    cursor.write(encode_basestring(text))


def _latin1(data: bytes) -> str:
    return encode_basestring_ascii(data.decode("latin-1"))


def _floating(size: struct.Struct) -> _Writer:
    def write(cursor: _Cursor) -> None:
        [number] = size.unpack(cursor.take(size.size))
        # JSON has no numbers for these; Java writes them as texts, too.
        cursor.write(repr(number) if math.isfinite(number) else f'"{_NOT_FINITE[repr(number)]}"')

    return write


def _boolean(cursor: _Cursor) -> None:
    cursor.write("true" if cursor.take(1) != b"\0" else "false")


_NOT_FINITE: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_PRIMITIVES: Final[dict[str, _Writer]] = {
    "null": lambda cursor: cursor.write("null"),
    "boolean": _boolean,
    "int": lambda cursor: cursor.write(str(cursor.take_integer())),
    "long": lambda cursor: cursor.write(str(cursor.take_integer())),
    "float": _floating(struct.Struct("<f")),
    "double": _floating(struct.Struct("<d")),
    "bytes": lambda cursor: cursor.write(_latin1(cursor.take(cursor.take_integer()))),
    "string": _string,
}
