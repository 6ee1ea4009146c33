"""Read and write requests and responses, in any version that `layouts` describes.

A struct is a dict by Kafka's names of its fields, an array a list. A message can be read in part:
fields that aren't wanted stay bytes.

Invariant: what is read is written as the same bytes, tagged fields that aren't known included. Each
length is checked against the end of the frame before it is used, so reading takes time in
proportion to the frame; how many items of arrays become values is limited.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from aiokafka08._tools.gateway.headers import RequestHead, request_body_at, response_body_at
from aiokafka08._tools.gateway.layouts import (
    PRIMITIVES,
    Api,
    behind_tags,
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

ALL: Final[frozenset[str]] = frozenset()
"""What is wanted, if that is all fields."""

_NUMBERS: Final[Mapping[str, struct.Struct]] = {
    kind: struct.Struct(">" + letter) for kind, letter in PRIMITIVES.items() if letter
}
_UNKNOWN: Final = "tagged fields that aren't known"
_REST: Final = "what is behind the fields that are wanted"
_VIEW_BYTES: Final = 4096  # a larger value isn't copied


@dataclass(frozen=True, slots=True)
class Field:
    """A field in one version.

    Attributes:
        name: its name.
        kind: its type, or that of its items.
        is_array: whether it has items.
        role: as in `layouts`.
        struct: the type, if that is a struct.
        zero: a value that means nothing: -1, no text, no items, null for texts of errors.
    """

    name: str
    kind: str
    is_array: bool
    role: str
    struct: Struct | None
    zero: Any

    @property
    def is_optional(self) -> bool:
        """Whether a struct may be null."""
        return self.kind == "struct?"

    def items(self, values: Values) -> Sequence[Any]:
        """Return the items of the field in the values of its struct; one if it is no array."""
        value = values.get(self.name)
        if self.is_array:
            return value or ()
        return () if value is None else (value,)


class _Part(NamedTuple):
    """Neighbouring numbers, which are read at once, or one other field; `numbers` is None then."""

    fields: list[Field]
    numbers: struct.Struct | None
    is_wanted: bool


@dataclass(frozen=True, slots=True)
class Struct:
    """The fields of a struct in one version.

    Attributes:
        fields: those without a tag that are wanted.
        parts: all that have no tag.
        tagged: those with a tag that are wanted, by it.
        is_flexible: whether tagged fields are at the end.
        is_skipped: whether none is wanted.
        has_rest: whether what is behind the parts stays bytes, up to the end of the frame.
    """

    fields: tuple[Field, ...]
    parts: tuple[_Part, ...]
    tagged: Mapping[int, Field]
    is_flexible: bool
    is_skipped: bool
    has_rest: bool

    @property
    def all_fields(self) -> tuple[Field, ...]:
        """The fields that are wanted, those with a tag too."""
        return *self.fields, *self.tagged.values()

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
            for field in self.all_fields
        )

    def find(self, values: Values, roles: Collection[str]) -> Iterator[tuple[str, Any]]:
        """Yield the roles and values of all fields with one of these roles, but null."""
        for field in self.all_fields:
            for item in field.items(values):
                if item is not None and field.struct is not None:
                    yield from field.struct.find(item, roles)
                elif item is not None and field.role in roles:
                    yield field.role, item


@functools.lru_cache(1000)
def struct_of(api: Api, side: Side, version: int, wanted: frozenset[str] = ALL) -> Struct:
    """Return a request or a response in one version.

    Args:
        api: its API.
        side: which of both.
        version: the version.
        wanted: the names and roles of fields that become values; the others stay bytes.
    """
    fields = api.request_fields if side == "request" else api.response_fields
    return _struct(fields, version, version >= api.flexible, wanted, is_message=True)


def read_message(
    api: Api,
    side: Side,
    version: int,
    data: Buffer,
    pos: int,
    max_items: int = MAX_ITEMS,
    wanted: frozenset[str] = ALL,
) -> Values:
    """Return the values of a message whose body begins at `pos`.

    Raises:
        KafkaProtocolError: the bytes haven't its layout, or its arrays too many items.
    """
    reader = _Reader(memoryview(data), pos, max_items)
    try:
        return reader.struct(struct_of(api, side, version, wanted))
    except KafkaProtocolError as error:
        raise KafkaProtocolError(
            f"{api.name}{side.capitalize()} version {version}: {error.text}"
        ) from None


def read_request(
    api: Api,
    head: RequestHead,
    frame: Buffer,
    max_items: int = MAX_ITEMS,
    wanted: frozenset[str] = ALL,
) -> Values:
    """Return the values of a request; see `read_message`."""
    body_at = request_body_at(head, api, frame)
    return read_message(api, "request", head.version, frame, body_at, max_items, wanted)


def read_response(
    api: Api,
    version: int,
    frame: Buffer,
    max_items: int = MAX_ITEMS,
    wanted: frozenset[str] = ALL,
) -> Values:
    """Return the values of a response; see `read_message`."""
    body_at = response_body_at(api, version, frame)
    return read_message(api, "response", version, frame, body_at, max_items, wanted)


def find_in_request(
    api: Api, head: RequestHead, frame: Buffer, roles: frozenset[str]
) -> Iterator[tuple[str, Any]]:
    """Return the roles and values of the fields with these roles, but null; see `read_message`."""
    values = read_request(api, head, frame, wanted=roles)
    return struct_of(api, "request", head.version, roles).find(values, roles)


def write_message(
    api: Api, side: Side, version: int, values: Values, wanted: frozenset[str] = ALL
) -> list[Buffer]:
    """Return the bytes of a message; missing fields have their `zero`."""
    writer = _Writer()
    writer.struct(struct_of(api, side, version, wanted), values)
    return writer.buffers()


class _Reader:
    """Reads from a frame."""

    def __init__(self, data: memoryview, pos: int, max_items: int) -> None:
        self._data = data
        self._pos = pos
        self._max_items = self._items = max_items

    def struct(self, struct: Struct) -> Values:
        values: Values = {}
        for fields, numbers, is_wanted in struct.parts:
            start, first = self._pos, fields[0]
            if numbers is None:
                values[first.name] = self._field(first, struct.is_flexible, keeps=is_wanted)
            elif self._behind(numbers.size) and is_wanted:
                found = numbers.unpack_from(self._data, start)
                values.update(zip([field.name for field in fields], found, strict=True))
            if not is_wanted:
                values[first.name] = self._data[start : self._pos]
        if struct.has_rest:
            values[_REST] = self._data[self._pos :]
        elif struct.is_flexible and not struct.is_skipped:
            self._tagged(struct, values)
        elif struct.is_flexible:
            self._pos = behind_tags(self._data, self._pos)
        return values

    def _tagged(self, struct: Struct, values: Values) -> None:
        count = self._varint()
        self._take_items(count)
        for _ in range(count):
            tag, size = self._varint(), self._varint()
            start, end = self._pos, self._behind(size)
            if (field := struct.tagged.get(tag)) is None:
                values.setdefault(_UNKNOWN, {})[tag] = self._data[start:end]
                continue
            self._pos = start
            values[field.name] = self._field(field, True)
            if self._pos != end:
                raise KafkaProtocolError(
                    f"tagged field {tag} ends at {self._pos}; expected {end}, by its size"
                )

    def _field(self, field: Field, is_flexible: bool, *, keeps: bool = True) -> Any:
        if not field.is_array:
            return self._item(field, is_flexible)
        count = self._length(4, is_flexible)
        if count < 0:
            return None
        if not keeps:
            for _ in range(count):
                self._item(field, is_flexible)
            return None
        self._take_items(count)
        return [self._item(field, is_flexible) for _ in range(count)]

    def _item(self, field: Field, is_flexible: bool) -> Any:
        if field.struct is not None:
            if field.is_optional and self._number("int8") < 0:
                return None
            return self.struct(field.struct)
        if field.kind in _NUMBERS:
            return self._number(field.kind)
        length = self._length(2 if field.kind == "string" else 4, is_flexible)
        if length < 0:
            return None
        start = self._pos
        value = self._data[start : self._behind(length)]
        return str(value, "utf-8", "surrogateescape") if field.kind == "string" else value

    def _length(self, size: int, is_flexible: bool) -> int:
        """Return a length or a count, -1 for null."""
        if is_flexible:
            length = self._varint() - 1
        else:
            start = self._pos
            length = int.from_bytes(self._data[start : self._behind(size)], "big", signed=True)
        if not -1 <= length <= len(self._data) - self._pos:
            raise KafkaProtocolError(
                f"a length of {length} before {self._pos}; expected -1 to "
                f"{len(self._data) - self._pos}"
            )
        return length

    def _number(self, kind: str) -> Any:
        start, number = self._pos, _NUMBERS[kind]
        self._behind(number.size)
        return number.unpack_from(self._data, start)[0]

    def _varint(self) -> int:
        value, self._pos = read_varint(self._data, self._pos)
        return value

    def _behind(self, size: int) -> int:
        """Go on behind so many bytes; return where that is."""
        if size > len(self._data) - self._pos:
            raise KafkaProtocolError(
                f"{size} bytes at {self._pos}; expected at most {len(self._data) - self._pos}: "
                "the frame ends there"
            )
        self._pos += size
        return self._pos

    def _take_items(self, count: int) -> None:
        self._items -= count
        if self._items < 0:
            raise KafkaProtocolError(f"more than {self._max_items} items")


class _Writer:
    """Writes small values together, and large ones as they are."""

    def __init__(self) -> None:
        self._done: list[Buffer] = []
        self._last = bytearray()

    def buffers(self) -> list[Buffer]:
        return [*self._done, self._last]

    def struct(self, struct: Struct, values: Values) -> None:
        for fields, numbers, is_wanted in struct.parts:
            found = [values.get(field.name, field.zero) for field in fields]
            if not is_wanted and fields[0].name in values:
                self._bytes(found[0])
            elif numbers is not None:
                self._last += numbers.pack(*found)
            else:
                self._field(fields[0], found[0], struct.is_flexible)
        if struct.has_rest:
            self._bytes(values[_REST])
        elif struct.is_flexible:
            self._tagged(struct, values)

    def _tagged(self, struct: Struct, values: Values) -> None:
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
            self._last += encode_varint(tag) + encode_varint(sum(map(len, tags[tag])))
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
        elif field.kind in _NUMBERS:
            self._last += _NUMBERS[field.kind].pack(value)
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


# --- from the description to structs --------------------------------------------------------------


def _struct(
    described: Sequence[Any],
    version: int,
    is_flexible: bool,
    wanted: frozenset[str],
    *,
    is_message: bool = False,
) -> Struct:
    fields: list[Field] = []
    parts: list[_Part] = []
    tagged: dict[int, Field] = {}
    for name, kind, versions, role, tag, *inner in described:
        if not has_version(versions, version):
            continue
        inner_wanted = ALL if name in wanted else wanted
        made = _struct(inner[0], version, is_flexible, inner_wanted) if inner else None
        item = kind.removeprefix("[]")
        is_array = item != kind
        field = Field(name, item, is_array, role, made, [] if is_array else _zero(name, item))
        is_named = not wanted or not wanted.isdisjoint((name, role))
        is_wanted = is_named or (made is not None and not made.is_skipped)
        if tag < 0:
            _add_part(parts, field, is_wanted)
        if is_wanted and tag < 0:
            fields.append(field)
        elif is_wanted:
            tagged[tag] = field
    has_rest = is_message and bool(wanted) and not tagged
    while has_rest and parts and not parts[-1].is_wanted:
        parts.pop()
    is_skipped = bool(wanted) and not (fields or tagged)
    return Struct(tuple(fields), tuple(parts), tagged, is_flexible, is_skipped, has_rest)


def _add_part(parts: list[_Part], field: Field, is_wanted: bool) -> None:
    """Add a field, to the last part if both are numbers."""
    number = None if field.is_array else _NUMBERS.get(field.kind)
    before = parts[-1] if parts else None
    if number and before and before.numbers and before.is_wanted == is_wanted:
        numbers = struct.Struct(before.numbers.format + number.format[1:])
        parts[-1] = _Part([*before.fields, field], numbers, is_wanted)
    else:
        parts.append(_Part([field], number, is_wanted))


def _zero(name: str, kind: str) -> Any:
    match kind:
        case "struct" | "struct?":
            return None if kind == "struct?" else {}
        case "string":
            return None if name.endswith("Message") else ""
        case "bytes" | "records":
            return b""
        case "uuid" | "float64":
            return bytes(_NUMBERS[kind].size)
        case "bool" | "uint16" | "uint32":
            return 0
    if name.endswith("AuthorizedOperations"):
        return -(1 << 31)  # the response doesn't have them
    return 0 if name in ("ThrottleTimeMs", "ErrorCode") else -1
