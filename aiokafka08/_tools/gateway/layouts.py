"""Where fields stand in requests and responses, in any version that Kafka 4.1 knows.

`layouts.json` describes the messages; `tests.tools.message_layouts` makes it from Kafka's own
definitions. `MessageLayout.find` walks a
frame by such a description and returns the places of the fields that have a role: addresses of
nodes, names of topics and groups.

Invariants: walking changes nothing, and ends with `KafkaProtocolError` if the bytes don't have the
layout. Each length is checked against the end of the frame before it is used, so walking takes time
in proportion to the frame.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final, NamedTuple

from aiokafka08.errors import KafkaProtocolError
from aiokafka08.protocol.types import Buffer

PRIMITIVES: Final[Mapping[str, int]] = {
    "bool": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8,
    "float64": 8, "uuid": 16, "string": 0, "bytes": 0, "records": 0,
}  # fmt: skip
"""The types of fields, and their sizes in bytes; 0: a length stands before the value."""

TAGGED_SIZE: Final = "size of a tagged field"
"""The role of the size of a tagged field in which there are fields with roles."""

NO_VERSION: Final = 0x7FFF
MAX_PLACES: Final = 100_000
"""How many places `MessageLayout.find` returns at most."""


class Place(NamedTuple):
    """Where a field stands in a frame.

    Attributes:
        role: what the field means, as in `layouts.json`, or `TAGGED_SIZE`.
        start: where it begins, its length included.
        value_start: where its value begins.
        end: where it ends. For `TAGGED_SIZE` that is the end of the tagged field.
    """

    role: str
    start: int
    value_start: int
    end: int


def read_varint(data: Buffer, pos: int) -> tuple[int, int]:
    """Return an unsigned varint of at most 5 bytes, and the position behind it.

    Raises:
        KafkaProtocolError: the data end in it, or it is longer.
    """
    value = 0
    for shift in range(0, 35, 7):
        if pos >= len(data):
            raise KafkaProtocolError(f"a varint ends at {pos}, with the data")
        byte = data[pos]
        value |= (byte & 0x7F) << shift
        pos += 1
        if byte < 0x80:
            return value, pos
    raise KafkaProtocolError(f"a varint before {pos} of more than 5 bytes")


def behind_tags(data: Buffer, pos: int) -> int:
    """Return the position behind tagged fields.

    Raises:
        KafkaProtocolError: the data end within them.
    """
    count, pos = read_varint(data, pos)
    for _ in range(count):
        _tag, pos = read_varint(data, pos)
        size, pos = read_varint(data, pos)
        if size > len(data) - pos:
            raise KafkaProtocolError(
                f"a tagged field of {size} bytes at {pos}; expected at most {len(data) - pos}"
            )
        pos += size
    return pos


def encode_varint(value: int) -> bytes:
    """Return a number >= 0 as an unsigned varint."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_Step = Callable[["_Walk", int], int]
"""Walks over a field: from its position to the next one."""


class _Walk:
    """The frame that is walked, and what was found."""

    __slots__ = ("data", "end", "places")

    def __init__(self, data: Buffer) -> None:
        self.data = data
        self.end = len(data)
        self.places: list[Place] = []

    def skip(self, pos: int, count: int) -> int:
        if count > self.end - pos:
            raise KafkaProtocolError(
                f"{count} bytes at {pos}; expected at most {self.end - pos}: the frame ends there"
            )
        return pos + count

    def number(self, pos: int, size: int) -> tuple[int, int]:
        stop = self.skip(pos, size)
        return int.from_bytes(self.data[pos:stop], "big", signed=True), stop

    def length(self, pos: int, size: int) -> tuple[int, int]:
        """Return a length, -1 for null, which is a varint if `size` is 0."""
        if size:
            length, pos = self.number(pos, size)
        else:
            length, pos = read_varint(self.data, pos)
            length -= 1
        if not -1 <= length <= self.end - pos:
            raise KafkaProtocolError(
                f"a length of {length} before {pos}; expected -1 to {self.end - pos}"
            )
        return length, pos


@dataclass(frozen=True, slots=True)
class MessageLayout:
    """The layout of one version of a request or a response.

    Attributes:
        name: for errors, such as "MetadataResponse version 9".
        is_flexible: whether the header ends with tagged fields (but for a response of ApiVersions).
    """

    name: str
    is_flexible: bool
    _steps: tuple[_Step, ...]

    @property
    def has_roles(self) -> bool:
        """Whether there are fields with one of the roles."""
        return bool(self._steps)

    def find(self, data: Buffer, pos: int) -> list[Place]:
        """Return the places of all fields with roles, in a frame whose body begins at `pos`.

        Places come in the order of their ends.

        Raises:
            KafkaProtocolError: the frame hasn't this layout.
        """
        walk = _Walk(data)
        try:
            for step in self._steps:
                pos = step(walk, pos)
        except KafkaProtocolError as error:
            raise KafkaProtocolError(f"{self.name}: {error.text}") from None
        return walk.places


@dataclass(frozen=True, slots=True)
class Api:
    """What is known of an API.

    Attributes:
        key: its number.
        name: its name in Kafka's protocol.
        versions: those that have a layout; empty if only brokers send it.
        flexible: the first flexible version.
        request_fields: the fields of the request, as in `layouts.json`.
        response_fields: those of the response.
    """

    key: int
    name: str
    versions: range
    flexible: int
    request_fields: Sequence[Any]
    response_fields: Sequence[Any]

    @property
    def is_between_brokers(self) -> bool:
        """Whether only brokers and controllers send it."""
        return not self.versions

    def request(self, version: int, roles: Collection[str]) -> MessageLayout:
        """Return the layout of a request, as far as there are fields of these roles."""
        return _layout(self, "Request", version, frozenset(roles))

    def response(self, version: int, roles: Collection[str]) -> MessageLayout:
        """Return the layout of a response, as far as there are fields of these roles."""
        return _layout(self, "Response", version, frozenset(roles))

    def __hash__(self) -> int:
        return self.key


@functools.cache
def apis() -> Mapping[int, Api]:
    """Return all APIs by their keys."""
    text = resources.files(__package__).joinpath("layouts.json").read_text()
    found = {}
    for number, entry in json.loads(text)["apis"].items():
        first, last = entry.get("versions", (0, -1))
        found[int(number)] = Api(
            int(number),
            entry["name"],
            range(first, last + 1),
            NO_VERSION if entry.get("flexible") is None else entry["flexible"],
            entry.get("request", ()),
            entry.get("response", ()),
        )
    return found


# --- from the description to steps ----------------------------------------------------------------


@functools.lru_cache(1000)
def _layout(api: Api, side: str, version: int, roles: frozenset[str]) -> MessageLayout:
    if version not in api.versions:
        raise KafkaProtocolError(f"{api.name} version {version}: no layout is known")
    fields = api.request_fields if side == "Request" else api.response_fields
    is_flexible = version >= api.flexible
    steps = _steps(fields, version, is_flexible, roles, whole=False)
    return MessageLayout(f"{api.name}{side} version {version}", is_flexible, steps)


def _steps(
    fields: Sequence[Any], version: int, is_flexible: bool, roles: frozenset[str], *, whole: bool
) -> tuple[_Step, ...]:
    """Return the steps over the fields of a struct; unless `whole`, up to the last with a role."""
    present = [field for field in fields if has_version(field[2], version)]
    plain = [field for field in present if field[4] < 0]
    tagged = [field for field in present if field[4] >= 0 and _is_wanted(field, roles)]
    if not whole and not tagged:
        while plain and not _is_wanted(plain[-1], roles):
            plain.pop()
        is_end_wanted = False
    else:
        is_end_wanted = is_flexible
    steps = [_field_step(field, version, is_flexible, roles) for field in plain]
    if is_end_wanted:
        steps.append(
            _tags({field[4]: _field_step(field, version, True, roles) for field in tagged})
        )
    return tuple(steps)


def _is_wanted(field: Sequence[Any], roles: frozenset[str]) -> bool:
    return field[3] in roles or any(_is_wanted(one, roles) for one in field[5:6] and field[5])


def has_version(versions: str, version: int) -> bool:
    """Return whether a version is in a text such as "3+" or "0-2"."""
    if versions.endswith("+"):
        return version >= int(versions[:-1])
    first, _, last = versions.partition("-")
    return int(first) <= version <= int(last or first)


def _field_step(
    field: Sequence[Any], version: int, is_flexible: bool, roles: frozenset[str]
) -> _Step:
    kind: str = field[1]
    role: str = field[3] if field[3] in roles else ""
    item = kind.removeprefix("[]")
    if item in PRIMITIVES:
        size = PRIMITIVES[item]
        if size and item != kind and not role:
            return _fixed_items(size, is_flexible)
        step = _fixed(size, role) if size else _sized(item, is_flexible, role)
    else:
        step = _struct(_steps(field[5], version, is_flexible, roles, whole=True))
        if item == "struct?":
            step = _optional(step)
    return _items(step, is_flexible) if item != kind else step


def _fixed(size: int, role: str) -> _Step:
    def step(walk: _Walk, pos: int) -> int:
        stop = walk.skip(pos, size)
        if role:
            walk.places.append(Place(role, pos, pos, stop))
        return stop

    return step


def _sized(kind: str, is_flexible: bool, role: str) -> _Step:
    size = 0 if is_flexible else 2 if kind == "string" else 4

    def step(walk: _Walk, pos: int) -> int:
        length, start = walk.length(pos, size)
        stop = start + max(length, 0)
        if role:
            walk.places.append(Place(role, pos, start, stop))
        return stop

    return step


def _fixed_items(item_size: int, is_flexible: bool) -> _Step:
    size = 0 if is_flexible else 4

    def step(walk: _Walk, pos: int) -> int:
        count, pos = walk.length(pos, size)
        return walk.skip(pos, item_size * max(count, 0))

    return step


def _items(item: _Step, is_flexible: bool) -> _Step:
    size = 0 if is_flexible else 4

    def step(walk: _Walk, pos: int) -> int:
        count, pos = walk.length(pos, size)
        for _ in range(count):
            pos = item(walk, pos)
            if len(walk.places) > MAX_PLACES:
                raise KafkaProtocolError(f"more than {MAX_PLACES} fields to look at before {pos}")
        return pos

    return step


def _struct(steps: tuple[_Step, ...]) -> _Step:
    def step(walk: _Walk, pos: int) -> int:
        for one in steps:
            pos = one(walk, pos)
        return pos

    return step


def _optional(struct: _Step) -> _Step:
    def step(walk: _Walk, pos: int) -> int:
        present, pos = walk.number(pos, 1)
        return pos if present < 0 else struct(walk, pos)

    return step


def _tags(wanted: Mapping[int, _Step]) -> _Step:
    def step(walk: _Walk, pos: int) -> int:
        count, pos = read_varint(walk.data, pos)
        for _ in range(count):
            tag, pos = read_varint(walk.data, pos)
            size_at = pos
            size, pos = read_varint(walk.data, pos)
            stop = walk.skip(pos, size)
            if (inner := wanted.get(tag)) is not None:
                if (reached := inner(walk, pos)) != stop:
                    raise KafkaProtocolError(
                        f"tagged field {tag} ends at {reached}; expected {stop}, by its size"
                    )
                walk.places.append(Place(TAGGED_SIZE, size_at, pos, stop))
            pos = stop
        return pos

    return step
