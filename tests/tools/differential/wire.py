"""Encode requests and decode responses by `schemas`; wrong values are welcome.

Values of a request: a struct is a tuple, an array a list, null is None. `Counted` is an array with
a false count, `Repeat` a long text. A text that begins with "$" is a symbol: the caller's `names`
say what it stands for ("$t0" for a topic, "$m0" for the member of a group).

Values of a response: a struct is a dict, an array a list.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.tools.differential.schemas import APIS, Fields, Type
from tests.tools.differential.sets import MessageSet, Repeat

_NUMBERS = {
    name: struct.Struct(">" + code)
    for name, code in zip(("i8", "i16", "i32", "i64"), "bhiq", strict=True)
}


class Counted(NamedTuple):
    """An array that announces a number of items, whatever it has."""

    announced: int
    items: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Request:
    """One request, perhaps a wrong one."""

    api: str | int
    """The API's name, or the number of one that doesn't exist."""
    version: int
    body: tuple[Any, ...] = ()
    client_id: str | None = "c"
    layout: int | None = None
    """The version whose layout the body has; None: `version`, or the highest one below it."""
    cut: int = 0
    """How many bytes are missing at the end. The frame's size counts what is left."""
    extra: bytes = b""
    """Bytes after the end of the body."""
    joins: str = ""
    """JoinGroup: the symbol that stands for the member id of the response from then on."""

    def __repr__(self) -> str:
        parts = [repr(self.api), repr(self.version), repr(self.body)]
        defaults = {"client_id": "c", "layout": None, "cut": 0, "extra": b"", "joins": ""}
        for name, default in defaults.items():
            if (value := getattr(self, name)) != default:
                parts.append(f"{name}={value!r}")
        return f"Request({', '.join(parts)})"

    @property
    def expects_response(self) -> bool:
        """False for Produce with acks=0."""
        return not (self.api == "Produce" and self.body[0] == 0)

    def frame(self, correlation_id: int, names: Mapping[str, str]) -> bytes:
        """Return the frame with its size."""
        fields: Fields = ()
        if isinstance(self.api, int):
            key = self.api
        else:
            api = APIS[self.api]
            layout = self.version if self.layout is None else self.layout
            key, fields = api.key, api.requests[max(0, min(layout, len(api.requests) - 1))]
        out = [struct.pack(">hhi", key, self.version, correlation_id), _text(self.client_id, names)]
        if fields:
            _encode_struct(fields, self.body, names, out)
        data = b"".join(out)
        if self.cut:
            data = data[: -self.cut]
        data += self.extra
        return struct.pack(">i", len(data)) + data


def _encode_struct(
    fields: Fields, values: tuple[Any, ...], names: Mapping[str, str], out: list[bytes]
) -> None:
    for (_, type_), value in zip(fields, values, strict=True):
        _encode(type_, value, names, out)


def _encode(type_: Type, value: Any, names: Mapping[str, str], out: list[bytes]) -> None:
    if isinstance(type_, list):
        items: Any = () if value is None else value
        count = -1 if value is None else len(items)
        if isinstance(value, Counted):
            count, items = value.announced, value.items
        out.append(struct.pack(">i", count))
        for item in items:
            _encode(type_[0], item, names, out)
    elif isinstance(type_, tuple):
        _encode_struct(type_, value, names, out)
    elif type_ in _NUMBERS:
        out.append(_NUMBERS[type_].pack(value))
    elif type_ == "string":
        out.append(_text(value, names))
    else:
        data = value.encode() if isinstance(value, MessageSet) else value
        out.append(struct.pack(">i", -1 if data is None else len(data)) + (data or b""))


def _text(value: str | Repeat | None, names: Mapping[str, str]) -> bytes:
    if value is None:
        return b"\xff\xff"
    data = bytes(value) if isinstance(value, Repeat) else names.get(value, value).encode()
    return struct.pack(">h", len(data)) + data


class Malformed(ValueError):
    """A response doesn't have the layout."""


def decode(fields: Fields, data: bytes) -> dict[str, Any]:
    """Decode a response's body.

    Raises:
        Malformed: the body is cut, or longer than the layout says.
    """
    try:
        value, pos = _decode(fields, data, 0)
    except (struct.error, UnicodeDecodeError) as error:
        raise Malformed(str(error)) from None
    if pos != len(data):
        raise Malformed(f"{len(data) - pos} bytes behind the end")
    return value


def _decode(type_: Type, data: bytes, pos: int) -> tuple[Any, int]:
    if isinstance(type_, list):
        (count,) = struct.unpack_from(">i", data, pos)
        pos += 4
        if count < 0:
            return None, pos
        items = []
        for _ in range(count):
            item, pos = _decode(type_[0], data, pos)
            items.append(item)
        return items, pos
    if isinstance(type_, tuple):
        value = {}
        for name, field in type_:
            value[name], pos = _decode(field, data, pos)
        return value, pos
    if type_ in _NUMBERS:
        number = _NUMBERS[type_]
        return number.unpack_from(data, pos)[0], pos + number.size
    size_format = ">h" if type_ == "string" else ">i"
    (size,) = struct.unpack_from(size_format, data, pos)
    pos += struct.calcsize(size_format)
    if size < 0:
        return None, pos
    if size > len(data) - pos:
        raise Malformed(f"a field of {size} bytes; {len(data) - pos} are left")
    part = data[pos : pos + size]
    return (part.decode() if type_ == "string" else part), pos + size


def decode_any(api: str, data: bytes) -> tuple[int, dict[str, Any]]:
    """Decode a body under the first layout that uses all of its bytes; return it with its version.

    Raises:
        Malformed: no version of the API has this layout.
    """
    for version, fields in enumerate(APIS[api].responses):
        try:
            return version, decode(fields, data)
        except Malformed:
            continue
    raise Malformed(f"{api}: no version has this layout")


def map_fields(
    type_: Type, value: Any, change: Callable[[str, Type, Any], Any], name: str = ""
) -> Any:
    """Return a decoded value with `change(name, type, value)` in place of each primitive."""
    if value is None:
        return None
    if isinstance(type_, list):
        return [map_fields(type_[0], item, change, name) for item in value]
    if isinstance(type_, tuple):
        return {key: map_fields(field, value[key], change, key) for key, field in type_}
    return change(name, type_, value)
