"""Read and write requests and responses, in any version that `layouts` describes.

A struct becomes a dict with Kafka's field names as keys, and an array becomes a list. A message can
be read in part: fields that aren't wanted stay bytes.

Invariant: writing the values that were read gives the same bytes, including unknown tagged fields.
Each length is checked against the end of the frame before it is used, so reading takes time in
proportion to the frame. The number of array items that become values is limited.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from aiokafka08._tools.gateway import layouts
from aiokafka08._tools.gateway.headers import API_VERSIONS, CORRELATION_BYTES, RequestHead
from aiokafka08._tools.gateway.layouts import PRIMITIVES, Api, TakesLongError
from aiokafka08.errors import KafkaProtocolError
from aiokafka08.protocol import flexible
from aiokafka08.protocol.types import Buffer

Values = dict[str, Any]
Side = Literal["request", "response"]
Wanted = frozenset[str]
"""The names and roles of fields."""
Found = Iterator[tuple[str, Any]]
"""The roles and values of fields."""

MAX_ITEMS: Final = 1_000_000
"""How many items the arrays of a message may have: in memory an item takes much more than in the
frame."""

ALL: Final[Wanted] = frozenset()
"""The value of `wanted` for all fields."""

_QUICK_ITEMS: Final = 200
_UNKNOWN: Final = "tagged fields that aren't known"
_ITEM: Final = "an item that is no struct"
_REST: Final = "what is behind the fields that are wanted"
_VIEW_BYTES: Final = 4096  # a larger value isn't copied


@dataclass(frozen=True, slots=True)
class Field:
    """A field in one version.

    Attributes:
        name: its name.
        kind: its type, or that of its items.
        is_nullable: whether it may be null.
        item: the layout of an item as a struct; None if the field isn't an array.
        role: as in `layouts`.
        struct: the type, if that is a struct.
        zero: the value that means "nothing", such as -1 or an empty text; see `_zero`.
    """

    name: str
    kind: str
    is_nullable: bool
    item: Struct | None
    role: str
    struct: Struct | None
    zero: Any

    @property
    def is_array(self) -> bool:
        """Whether it has items."""
        return self.item is not None

    def items(self, values: Values) -> Sequence[Any]:
        """Return the field's items in its struct's values; a single value is one item."""
        value = values.get(self.name)
        return value or () if self.is_array else () if value is None else (value,)


class _Part(NamedTuple):
    """Neighbouring fields that are read at once.

    Attributes:
        name: the name of `field`, or the first of `names`.
        names: the names of the fields of fixed size, which come first.
        zeros: see `Field`.
        head: the fields of fixed size, and the length of `field` if that isn't a varint.
        field: the last field, if it isn't of fixed size.
        has_length: whether `head` ends with the length of `field`, which is below 0 for null.
        has_varint: whether the length of `field` is a varint after `head`.
        is_wanted: whether the fields become values.
    """

    name: str
    names: tuple[str, ...]
    zeros: tuple[Any, ...]
    head: struct.Struct
    field: Field | None
    has_length: bool
    has_varint: bool
    is_wanted: bool


@dataclass(frozen=True, slots=True)
class Struct:
    """The fields of a struct in one version.

    Attributes:
        fields: the wanted fields without a tag.
        parts: the fields without a tag, in parts; with `has_rest`, only up to the last wanted one.
        tagged: the wanted fields with a tag, by tag, each as a struct of its own.
        has_tags: whether tagged fields are at the end.
        is_skipped: whether none is wanted.
        has_rest: whether all that follows the parts, up to the end of the frame, stays bytes.
    """

    fields: tuple[Field, ...]
    parts: tuple[_Part, ...]
    tagged: Mapping[int, Struct]
    has_tags: bool = False
    is_skipped: bool = False
    has_rest: bool = False

    @property
    def single_fields(self) -> Iterator[Field]:
        """The fields without a tag that are wanted, and aren't arrays."""
        return (field for field in self.fields if not field.is_array)

    @property
    def all_fields(self) -> tuple[Field, ...]:
        """The fields that are wanted, those with a tag too."""
        return *self.fields, *(one.fields[0] for one in self.tagged.values())

    def field_of(self, role: str) -> str | None:
        """Return the name of the field that has a role and isn't an array; None: there is none."""
        return next((one.name for one in self.single_fields if one.role == role), None)

    def has(self, role: str) -> bool:
        """Return whether a field of it, or of a struct inside it, has a role."""
        fields = self.all_fields
        return any(one.role == role or (one.struct and one.struct.has(role)) for one in fields)

    def find(self, values: Values, roles: Collection[str]) -> Found:
        """Yield the roles and values of all fields with one of these roles, except null values."""
        for field in self.all_fields:
            for item in field.items(values):
                if item is not None and field.struct is not None:
                    yield from field.struct.find(item, roles)
                elif item is not None and field.role in roles:
                    yield field.role, item


@dataclass(frozen=True, slots=True)
class MessageLayout:
    """A request or a response in one version, whole or in part.

    Attributes:
        name: what it is, for errors.
        struct: its body.
        has_tags: whether its header ends with tagged fields.
    """

    name: str
    struct: Struct
    has_tags: bool

    def body_at(self, frame: Buffer, header_end: int = CORRELATION_BYTES) -> int:
        """Return where the body begins; the header without its tagged fields ends at `header_end`.

        Raises:
            KafkaProtocolError: the tagged fields aren't whole.
        """
        return flexible.behind_tags(frame, header_end) if self.has_tags else header_end

    def read(
        self,
        frame: Buffer,
        header_end: int = CORRELATION_BYTES,
        max_items: int = MAX_ITEMS,
        *,
        is_quick: bool = False,
    ) -> Values:
        """Return the values in a frame.

        Raises:
            KafkaProtocolError: the bytes don't have this layout, or the arrays have too many items.
            TakesLongError: with `is_quick`: there are more than a few items, wanted or not.
        """
        body_at = self.body_at(frame, header_end)
        reader = _Reader(memoryview(frame), body_at, max_items, is_quick=is_quick)
        try:
            return reader.struct(self.struct)
        except (KafkaProtocolError, struct.error) as error:
            text = error.text if isinstance(error, KafkaProtocolError) else "it is cut off"
            raise KafkaProtocolError(f"{self.name}: {text}") from None

    def write(self, values: Values) -> list[Buffer]:
        """Return the bytes of its body; missing fields have their `zero`."""
        return _Writer().written(self.struct, values)

    def changed(self, frame: Buffer, values: Values) -> list[Buffer]:
        """Return the frame of a response with other values than it had."""
        return [frame[: self.body_at(frame)], *self.write(values)]


@functools.lru_cache(1000)
def message_of(api: Api, side: Side, version: int, wanted: Wanted = ALL) -> MessageLayout:
    """Return a request or a response in one version.

    Args:
        api: its API.
        side: which of both.
        version: the version.
        wanted: the names and roles of fields that become values; the others stay bytes.
    """
    fields = api.request_fields if side == "request" else api.response_fields
    is_flexible = version >= api.flexible
    body = _Builder(version, is_flexible).struct(fields, wanted, is_message=True)
    has_tags = is_flexible and (side == "request" or api.key != API_VERSIONS)
    return MessageLayout(f"{api.name}{side.capitalize()} version {version}", body, has_tags)


def read_request(api: Api, head: RequestHead, frame: Buffer, *, wanted: Wanted = ALL) -> Values:
    """Return the values of a request; see `MessageLayout.read`."""
    return message_of(api, "request", head.version, wanted).read(frame, head.body_at)


def find_in_request(api: Api, head: RequestHead, frame: Buffer, roles: Wanted) -> Found:
    """Return the roles and values of the fields with these roles, except null values."""
    values = read_request(api, head, frame, wanted=roles)
    return message_of(api, "request", head.version, roles).struct.find(values, roles)


def response_frame(api: Api, head: RequestHead, values: Values) -> list[Buffer]:
    """Return the frame of a response that the gateway itself makes."""
    message = message_of(api, "response", head.version)
    header = head.correlation_id.to_bytes(CORRELATION_BYTES, "big", signed=True)
    return [header + b"\0" * message.has_tags, *message.write(values)]


class _Reader:
    """Reads from a frame."""

    def __init__(self, data: memoryview, pos: int, max_items: int, *, is_quick: bool) -> None:
        self._data = data
        self._pos = pos
        self._max_items = max_items
        self._items = _QUICK_ITEMS if is_quick else max_items
        self._is_quick = is_quick

    def struct(self, struct_: Struct) -> Values:
        """Return the values of a struct.

        Raises:
            struct.error: the frame is too short. Other methods raise it too.
        """
        values: Values = {}
        for part in struct_.parts:
            name, names, _, head, field, has_length, has_varint, is_wanted = part
            start = self._pos
            if not is_wanted:
                self._skip(part)
                values[name] = self._data[start : self._pos]
                continue
            numbers = head.unpack_from(self._data, start)
            self._pos = start + head.size
            if names:
                values.update(zip(names, numbers, strict=False))
            if field is not None:
                length = numbers[-1] if has_length else self._varint() - 1 if has_varint else 0
                values[name] = self._field(field, length)
        if struct_.has_rest:
            values[_REST] = self._data[self._pos :]
        elif struct_.has_tags:
            self._tagged(struct_, values)
        return values

    def _skip(self, part: _Part) -> None:
        """Skip a part that isn't wanted."""
        _, _, _, head, field, has_length, has_varint, _ = part
        start = self._pos
        self._pos = start + head.size
        if field is None:
            self._check_length(0)
            return
        length = self._varint() - 1 if has_varint else 0
        if has_length:
            length = head.unpack_from(self._data, start)[-1]
        if field.struct is None or field.is_array:
            self._check_length(length)
        if field.item is not None:
            self._take_items(max(length, 0) * self._is_quick)
            for _ in range(length):
                self._skip_struct(field.item)
        elif field.struct is None:
            self._pos += max(length, 0)
        elif length >= 0:
            self._skip_struct(field.struct)

    def _skip_struct(self, struct_: Struct) -> None:
        for part in struct_.parts:
            self._skip(part)
        if struct_.has_tags:
            self._pos = flexible.behind_tags(self._data, self._pos)

    def _tagged(self, struct_: Struct, values: Values) -> None:
        count = self._varint()
        self._take_items(count)
        for _ in range(count):
            tag, size = self._varint(), self._varint()
            end = self._pos + size
            if size > len(self._data) - self._pos:
                raise KafkaProtocolError(f"a tagged field of {size} bytes at {self._pos}")
            if (known := struct_.tagged.get(tag)) is None:
                values.setdefault(_UNKNOWN, {})[tag] = self._data[self._pos : end]
                self._pos = end
                continue
            values |= self.struct(known)
            if self._pos != end:
                at = f"tagged field {tag} ends at {self._pos}"
                raise KafkaProtocolError(f"{at}; expected {end}, by its size")

    def _field(self, field: Field, length: int) -> Any:
        """Return the value of a field behind its length, which is -1 if it is null."""
        if field.struct is not None and not field.is_array:
            return None if field.is_nullable and length < 0 else self.struct(field.struct)
        self._check_length(length)
        if length < 0:
            if not field.is_nullable:
                raise KafkaProtocolError(f"null instead of {field.name}")
            return None
        if field.item is not None:
            self._take_items(length)
            items = [self.struct(field.item) for _ in range(length)]
            return items if field.struct is not None else [one[_ITEM] for one in items]
        start = self._pos
        self._pos = start + length
        value = self._data[start : self._pos]
        return str(value, "utf-8", "surrogateescape") if field.kind == "string" else value

    def _take_items(self, count: int) -> None:
        self._items -= count
        if self._items < 0:
            if self._is_quick:
                raise TakesLongError
            raise KafkaProtocolError(f"more than {self._max_items} items")

    def _check_length(self, length: int) -> None:
        left = len(self._data) - self._pos
        if not -1 <= length <= left:
            at = f"a length of {length} before {self._pos}"
            raise KafkaProtocolError(f"{at}; expected -1 to {left}")

    def _varint(self) -> int:
        value, self._pos = flexible.read_varint(self._data, self._pos)
        return value


class _Writer:
    """Writes small values together, and large ones as they are."""

    def __init__(self) -> None:
        self._done: list[Buffer] = []
        self._last = bytearray()

    def written(self, struct_: Struct, values: Values) -> list[Buffer]:
        """Return the bytes of a struct; call it once."""
        self.struct(struct_, values)
        return [*self._done, self._last]

    def struct(self, struct_: Struct, values: Values) -> None:
        for name, names, zeros, head, field, has_length, has_varint, is_wanted in struct_.parts:
            if not is_wanted and name in values:
                self._bytes(values[name])
                continue
            numbers = [*map(values.get, names, zeros)]
            if field is None:
                self._last += head.pack(*numbers)
                continue
            value = values.get(name, field.zero)
            has_size = field.struct is None or field.item is not None
            if field.kind == "string" and isinstance(value, str):
                value = value.encode("utf-8", "surrogateescape")
            length = -1 if value is None else len(value) if has_size else 1
            self._last += head.pack(*numbers, length) if has_length else head.pack(*numbers)
            if has_varint:
                self._last += flexible.encode_varint(length + 1)
            if value is not None:
                self._field(field, value)
        if struct_.has_rest:
            self._bytes(values[_REST])
        elif struct_.has_tags:
            self._tagged(struct_, values)

    def _tagged(self, struct_: Struct, values: Values) -> None:
        tags = {tag: [value] for tag, value in values.get(_UNKNOWN, {}).items()}
        for tag, known in struct_.tagged.items():
            if known.fields[0].name in values:
                tags[tag] = _Writer().written(known, values)
        self._last += flexible.encode_varint(len(tags))
        for tag in sorted(tags):
            size = flexible.encode_varint(sum(map(len, tags[tag])))
            self._last += flexible.encode_varint(tag) + size
            for buffer in tags[tag]:
                self._bytes(buffer)

    def _field(self, field: Field, value: Any) -> None:
        """Write a value behind its length."""
        if field.item is not None:
            for item in value:
                self.struct(field.item, item if field.struct is not None else {_ITEM: item})
        elif field.struct is not None:
            self.struct(field.struct, value)
        else:
            self._bytes(value)

    def _bytes(self, value: Buffer) -> None:
        if len(value) < _VIEW_BYTES:
            self._last += value
        else:
            self._done += (self._last, value)
            self._last = bytearray()


# --- from the description to structs --------------------------------------------------------------

_ZEROS: Final[Mapping[str, Any]] = {
    "bytes": b"", "records": b"", "uuid": bytes(16), "float64": bytes(8),
    "bool": 0, "uint16": 0, "uint32": 0,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Builder:
    """Makes the structs of one version."""

    version: int
    is_flexible: bool

    def struct(self, given: Sequence[Any], wanted: Wanted, *, is_message: bool = False) -> Struct:
        """Return a struct, or a message, which may have a rest that isn't looked at."""
        fields: list[Field] = []
        parts: list[_Part] = []
        tagged: dict[int, Struct] = {}
        for one in given:
            name, _, versions, role, tag = one[:5]
            if not layouts.has_version(versions, self.version):
                continue
            field = self._field(one, ALL if name in wanted else wanted)
            is_wanted = not wanted or not wanted.isdisjoint((name, role))
            is_wanted |= field.struct is not None and not field.struct.is_skipped
            if tag < 0:
                self._add_part(parts, field, is_wanted)
            if is_wanted and tag < 0:
                fields.append(field)
            elif is_wanted:
                tagged[tag] = self._only(field)
        has_rest = is_message and bool(wanted) and not tagged
        while has_rest and parts and not parts[-1].is_wanted:
            parts.pop()
        is_skipped = bool(wanted) and not (fields or tagged)
        return Struct(tuple(fields), tuple(parts), tagged, self.is_flexible, is_skipped, has_rest)

    def _field(self, described: Sequence[Any], wanted: Wanted) -> Field:
        name, text, _, role, _, *inner = described
        kind, _, nullable = text.removeprefix("[]").partition("?")
        is_nullable = bool(nullable) and layouts.has_version(nullable, self.version)
        struct_ = self.struct(inner[0], wanted) if inner else None
        zero = _zero(name, kind, is_nullable)
        if not text.startswith("[]"):
            return Field(name, kind, is_nullable, None, role, struct_, zero)
        item = struct_ or self._only(Field(_ITEM, kind, False, None, "", None, zero))
        return Field(name, kind, is_nullable, item, role, struct_, [])

    def _only(self, field: Field) -> Struct:
        """Return a struct of one field, without tagged fields."""
        parts: list[_Part] = []
        self._add_part(parts, field, is_wanted=True)
        return Struct((field,), tuple(parts), {})

    def _add_part(self, parts: list[_Part], field: Field, is_wanted: bool) -> None:
        """Add a field: to the last part, if that has no `field` and the same `is_wanted`."""
        before = _Part(field.name, (), (), struct.Struct(">"), None, False, False, is_wanted)
        if parts and parts[-1].field is None and parts[-1].is_wanted == is_wanted:
            before = parts.pop()
        letter = "" if field.is_array else PRIMITIVES.get(field.kind, "")
        if letter:
            names, zeros = (*before.names, field.name), (*before.zeros, field.zero)
            part = before._replace(names=names, zeros=zeros)
        else:
            has_size = field.is_array or field.struct is None
            has_varint = has_size and self.is_flexible
            if has_size:
                letter = "h" if field.kind == "string" and not field.is_array else "i"
            elif field.is_nullable:
                letter = "b"
            letter = "" if has_varint else letter
            part = before._replace(name=field.name, field=field, has_varint=has_varint)
            part = part._replace(has_length=bool(letter))
        parts.append(part._replace(head=struct.Struct(before.head.format + letter)))


def _zero(name: str, kind: str, is_nullable: bool) -> Any:
    if kind == "struct":
        return None if is_nullable else {}
    if kind == "string":
        return None if is_nullable and name.endswith(("Message", "Rack")) else ""
    if kind in _ZEROS:
        return _ZEROS[kind]
    if name.endswith("AuthorizedOperations"):
        return -(1 << 31)  # the response doesn't have them
    return 0 if name in ("ThrottleTimeMs", "ErrorCode") else -1
