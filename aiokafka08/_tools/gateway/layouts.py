"""The layouts of all requests and responses, in any version that Kafka 4.1 knows.

`layouts.json` describes their fields, some with a role: addresses of nodes, names of topics and
groups. `tests.tools.message_layouts` makes it from Kafka's own definitions, and `messages` reads
and writes frames by it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

PRIMITIVES: Final[Mapping[str, str]] = {
    "bool": "b", "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I",
    "int64": "q", "float64": "8s", "uuid": "16s", "string": "", "bytes": "", "records": "",
}  # fmt: skip
"""The types of fields and their `struct` formats; "" for a type with a length prefix."""

NO_VERSION: Final = 0x7FFF


class TakesLongError(Exception):
    """Some work would block the event loop for too long; it has changed nothing."""


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
