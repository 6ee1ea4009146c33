"""Which requests and responses there are, in any version that Kafka 4.1 knows.

`layouts.json` describes their fields, some with a role: addresses of nodes, names of topics and
groups. `tests.tools.message_layouts` makes it from Kafka's own definitions, and `messages` reads
and writes by it. This module also reads and writes varints, the lengths and tags in flexible
versions.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

from aiokafka08.errors import KafkaProtocolError
from aiokafka08.protocol.types import Buffer

PRIMITIVES: Final[Mapping[str, str]] = {
    "bool": "b", "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I",
    "int64": "q", "float64": "8s", "uuid": "16s", "string": "", "bytes": "", "records": "",
}  # fmt: skip
"""The types of fields, and how `struct` reads them; "": a length stands before the value."""

_VARINT_BYTES: Final = 5
_MAX_TAGS: Final = 100  # no message has more than a few, and to skip them takes time
NO_VERSION: Final = 0x7FFF


class TakesLongError(Exception):
    """Something takes too long for the event loop; nothing has changed."""


def read_varint(data: Buffer, pos: int) -> tuple[int, int]:
    """Return an unsigned varint of at most 5 bytes, and the position after it.

    Raises:
        KafkaProtocolError: the data end within the varint, or it is longer.
    """
    if pos < len(data) and data[pos] < 0x80:
        return data[pos], pos + 1
    value = 0
    for count, byte in enumerate(bytes(data[pos : pos + _VARINT_BYTES])):
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return value, pos + count + 1
    if len(data) - pos < _VARINT_BYTES:
        raise KafkaProtocolError(f"a varint ends at {len(data)}, with the data")
    raise KafkaProtocolError(f"a varint before {pos + 5} of more than 5 bytes")


def behind_tags(data: Buffer, pos: int) -> int:
    """Return the position after tagged fields.

    Raises:
        KafkaProtocolError: the data end within them.
    """
    count, pos = read_varint(data, pos)
    if count > _MAX_TAGS:
        raise KafkaProtocolError(f"{count} tagged fields; expected at most {_MAX_TAGS}")
    for _ in range(count):
        _tag, pos = read_varint(data, pos)
        size, pos = read_varint(data, pos)
        if size > len(data) - pos:
            text = f"a tagged field of {size} bytes at {pos}"
            raise KafkaProtocolError(f"{text}; expected at most {len(data) - pos}")
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


@dataclass(frozen=True, slots=True)
class Api:
    """The number, name, versions and layouts of an API.

    Attributes:
        key: its number.
        name: its name in Kafka's protocol.
        versions: the versions that have a layout.
        flexible: the first flexible version.
        request_fields: the fields of the request, as in `layouts.json`.
        response_fields: the fields of the response.
        is_between_brokers: whether only brokers and controllers send it.
    """

    key: int
    name: str
    versions: range
    flexible: int
    request_fields: Sequence[Any]
    response_fields: Sequence[Any]
    is_between_brokers: bool

    def __hash__(self) -> int:
        return self.key


def has_version(versions: str, version: int) -> bool:
    """Return whether a version is in a text such as "3+" or "0-2"."""
    if versions.endswith("+"):
        return version >= int(versions[:-1])
    first, _, last = versions.partition("-")
    return int(first) <= version <= int(last or first)


@functools.cache
def apis() -> Mapping[int, Api]:
    """Return all APIs by their keys."""
    text = resources.files(__package__).joinpath("layouts.json").read_text()
    found = {}
    for number, entry in json.loads(text)["apis"].items():
        key, (first, last) = int(number), entry.get("versions", (0, -1))
        flexible = NO_VERSION if entry.get("flexible") is None else entry["flexible"]
        fields = entry.get("request", ()), entry.get("response", ())
        of_brokers = entry.get("between_brokers", False)
        found[key] = Api(key, entry["name"], range(first, last + 1), flexible, *fields, of_brokers)
    return found
