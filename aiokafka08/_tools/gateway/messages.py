"""Read and write whole requests and responses, in any version that `layouts` describes.

A struct is a dict by Kafka's names of its fields, an array a list. Where `layouts` alone would do
(most requests), nothing is read into values: this is for what the gateway changes, answers itself,
or asks the target.

Invariant: what `read_message` returns is written by `write_message` as the same bytes, tagged
fields that aren't known included.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from aiokafka08._tools.gateway.layouts import (
    PRIMITIVES,
    Api,
    encode_varint,
    has_version,
    read_varint,
)
from aiokafka08.errors import KafkaProtocolError
from aiokafka08.protocol.types import Buffer

Values = dict[str, Any]
Side = Literal["request", "response"]

MAX_ITEMS: Final = 1_000_000
"""How many items the arrays of a message may have: in memory an item takes much more than in the
frame."""

_INTEGERS: Final = frozenset({"bool", "int8", "int16", "uint16", "int32", "uint32", "int64"})
_UNKNOWN: Final = "tagged fields that aren't known"
_VIEW_BYTES: Final = 4096  # a larger value isn't copied


@dataclass(frozen=True, slots=True)
class Field:
    """A field in one version; `struct` is the type of its items, if these are structs."""

    name: str
    kind: str
    is_array: bool
    role: str
    struct: Struct | None

    @property
    def is_optional(self) -> bool:
        """Whether a struct may be null."""
        return self.kind == "struct?"


@dataclass(frozen=True, slots=True)
class Struct:
    """The fields of a struct in one version; `tagged` are those with a tag, by it."""

    fields: tuple[Field, ...]
    tagged: Mapping[int, Field]
    is_flexible: bool

    def field_of(self, role: str) -> str | None:
        """Return the name of the field that has a role, and isn't an array."""
        for field in self.fields:
            if field.role == role and not field.is_array:
                return field.name
        return None

    def has(self, role: str) -> bool:
        """Return whether a field of it, or of a struct inside it, has a role."""
        return any(
            field.role == role or (field.struct is not None and field.struct.has(role))
            for field in (*self.fields, *self.tagged.values())
        )


@functools.lru_cache(1000)
def struct_of(api: Api, side: Side, version: int) -> Struct:
    """Return the fields of a request or a response in one version."""
    fields = api.request_fields if side == "request" else api.response_fields
    return _struct(fields, version, version >= api.flexible)


def _struct(fields: Any, version: int, is_flexible: bool) -> Struct:
    plain: list[Field] = []
    tagged: dict[int, Field] = {}
    for name, kind, versions, role, tag, *inner in fields:
        if has_version(versions, version):
            struct = _struct(inner[0], version, is_flexible) if inner else None
            item = kind.removeprefix("[]")
            field = Field(name, item, item != kind, role, struct)
            if tag >= 0:
                tagged[tag] = field
            else:
                plain.append(field)
    return Struct(tuple(plain), tagged, is_flexible)


def read_message(
    api: Api, side: Side, version: int, data: Buffer, pos: int, max_items: int = MAX_ITEMS
) -> Values:
    """Return the values of a message whose body begins at `pos`.

    Raises:
        KafkaProtocolError: the bytes haven't its layout, or its arrays too many items.
    """
    try:
        return _Reader(memoryview(data), pos, max_items).struct(struct_of(api, side, version))
    except KafkaProtocolError as error:
        raise KafkaProtocolError(f"{api.name} {side} version {version}: {error.text}") from None


def write_message(api: Api, side: Side, version: int, values: Values) -> list[Buffer]:
    """Return the bytes of a message; fields that are missing have their `zero`."""
    writer = _Writer()
    writer.struct(struct_of(api, side, version), values)
    return writer.buffers()


def zero(field: Field) -> Any:
    """Return a value that means nothing: -1, no text, no items, null for texts of errors."""
    if field.is_array:
        return []
    if field.struct is not None:
        return None if field.is_optional else {}
    match field.kind:
        case "string":
            return None if field.name.endswith("Message") else ""
        case "bytes" | "records":
            return b""
        case "uuid" | "float64":
            return bytes(PRIMITIVES[field.kind])
        case "bool":
            return 0
    if field.name.endswith("AuthorizedOperations"):
        return -(1 << 31)  # the response doesn't have them
    return 0 if field.name in ("ThrottleTimeMs", "ErrorCode") else -1


class _Reader:
    """Reads from a frame."""

    def __init__(self, data: memoryview, pos: int, max_items: int) -> None:
        self._data = data
        self._pos = pos
        self._items = max_items

    def struct(self, struct: Struct) -> Values:
        values = {field.name: self._field(field, struct.is_flexible) for field in struct.fields}
        if struct.is_flexible:
            count = self._varint()
            for _ in range(count):
                tag, size = self._varint(), self._varint()
                end = self._pos + size
                if (field := struct.tagged.get(tag)) is not None:
                    values[field.name] = self._field(field, True)
                    if self._pos != end:
                        raise KafkaProtocolError(f"tagged field {tag} ends at {self._pos}")
                else:
                    values.setdefault(_UNKNOWN, {})[tag] = self._bytes(size)
        return values

    def _field(self, field: Field, is_flexible: bool) -> Any:
        if not field.is_array:
            return self._item(field, is_flexible)
        count = self._length(4, is_flexible)
        if count < 0:
            return None
        self._items -= count
        if self._items < 0:
            raise KafkaProtocolError("more items than are read of one message")
        return [self._item(field, is_flexible) for _ in range(count)]

    def _item(self, field: Field, is_flexible: bool) -> Any:
        if field.struct is not None:
            if field.is_optional and self._number(1) < 0:
                return None
            return self.struct(field.struct)
        kind = field.kind
        if kind in _INTEGERS:
            return self._number(PRIMITIVES[kind], signed=kind[0] != "u")
        if size := PRIMITIVES[kind]:
            return bytes(self._bytes(size))
        length = self._length(2 if kind == "string" else 4, is_flexible)
        if length < 0:
            return None
        value = self._bytes(length)
        return str(value, "utf-8", "surrogateescape") if kind == "string" else value

    def _length(self, size: int, is_flexible: bool) -> int:
        """Return a length or a count, -1 for null."""
        length = self._varint() - 1 if is_flexible else self._number(size)
        if not -1 <= length <= len(self._data) - self._pos:
            raise KafkaProtocolError(
                f"a length of {length} before {self._pos}; expected -1 to "
                f"{len(self._data) - self._pos}"
            )
        return length

    def _number(self, size: int, *, signed: bool = True) -> int:
        return int.from_bytes(self._bytes(size), "big", signed=signed)

    def _varint(self) -> int:
        value, self._pos = read_varint(self._data, self._pos)
        return value

    def _bytes(self, size: int) -> memoryview:
        end = self._pos + size
        if end > len(self._data):
            raise KafkaProtocolError(
                f"{size} bytes at {self._pos}; expected at most {len(self._data) - self._pos}"
            )
        found = self._data[self._pos : end]
        self._pos = end
        return found


class _Writer:
    """Writes small values together, and large ones as they are."""

    def __init__(self) -> None:
        self._done: list[Buffer] = []
        self._last = bytearray()

    def buffers(self) -> list[Buffer]:
        return [*self._done, self._last]

    def struct(self, struct: Struct, values: Values) -> None:
        for field in struct.fields:
            self._field(field, values.get(field.name, zero(field)), struct.is_flexible)
        if struct.is_flexible:
            tags: dict[int, list[Buffer]] = {
                tag: [value] for tag, value in values.get(_UNKNOWN, {}).items()
            }
            for tag, field in struct.tagged.items():
                if field.name in values:
                    inner = _Writer()
                    inner._field(field, values[field.name], True)
                    tags[tag] = inner.buffers()
            self._last += encode_varint(len(tags))
            for tag in sorted(tags):
                size = sum(map(len, tags[tag]))
                self._last += encode_varint(tag) + encode_varint(size)
                for buffer in tags[tag]:
                    self._bytes(buffer)

    def _field(self, field: Field, value: Any, is_flexible: bool) -> None:
        if not field.is_array:
            self._item(field, value, is_flexible)
            return
        self._length(-1 if value is None else len(value), 4, is_flexible)
        for item in value or ():
            self._item(field, item, is_flexible)

    def _item(self, field: Field, value: Any, is_flexible: bool) -> None:
        if field.struct is not None:
            if field.is_optional:
                self._last += b"\xff" if value is None else b"\x01"
            if value is not None:
                self.struct(field.struct, value)
            return
        size = PRIMITIVES[field.kind]
        if field.kind in _INTEGERS:
            self._last += value.to_bytes(size, "big", signed=field.kind[0] != "u" or value < 0)
        elif size:
            self._last += value
        else:
            if isinstance(value, str):
                value = value.encode("utf-8", "surrogateescape")
            length = -1 if value is None else len(value)
            self._length(length, 2 if field.kind == "string" else 4, is_flexible)
            if value is not None:
                self._bytes(value)

    def _length(self, length: int, size: int, is_flexible: bool) -> None:
        if is_flexible:
            self._last += encode_varint(length + 1)
        else:
            self._last += length.to_bytes(size, "big", signed=True)

    def _bytes(self, value: Buffer) -> None:
        if len(value) < _VIEW_BYTES:
            self._last += value
        else:
            self._done += (self._last, value)
            self._last = bytearray()
