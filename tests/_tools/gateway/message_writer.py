"""Write any message by Kafka's own definition of it, apart from the gateway's layouts.

Random values have one property: a host is a string, a port a number, and the address of a node can
be replaced before writing. So what the gateway makes of the bytes can be compared with the bytes of
the changed values.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from aiokafka08.protocol.flexible import encode_varint

Definition = dict[str, Any]
Values = dict[str, Any]
_SIZES = {
    "bool": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8,
    "float64": 8, "uuid": 16,
}  # fmt: skip


def is_in(versions: str, version: int) -> bool:
    """Return whether a range such as "3+", "1-2", "4" or "none" has a version."""
    if versions == "none":
        return False
    first, dash, last = versions.partition("-")
    if versions.endswith("+"):
        return version >= int(versions[:-1])
    return int(first) <= version <= int(last if dash else first)


class MessageWriter:
    """One version of a message."""

    def __init__(self, definition: Definition, version: int) -> None:
        self._fields = definition["fields"]
        self._structs = {one["name"]: one["fields"] for one in definition.get("commonStructs", ())}
        self._version = version
        self.is_flexible = is_in(definition.get("flexibleVersions", "none"), version)

    def random_values(self, chance: random.Random) -> Values:
        return self._values(self._fields, chance)

    def write(self, values: Values) -> bytes:
        return self._struct(self._fields, values)

    def strings(self, values: Values, entities: set[str]) -> list[bytes]:
        """Return the strings of fields that have one of these entity types, but null."""
        return list(self._strings(self._fields, values, entities))

    def _strings(
        self, fields: list[Definition], values: Values, entities: set[str]
    ) -> Iterator[bytes]:
        for field in fields:
            if field["name"] not in values:
                continue
            found = values[field["name"]]
            for one in found if isinstance(found, list) else [found]:
                if (inner := self._inner(field)) is not None:
                    yield from self._strings(inner, one or {}, entities)
                elif field.get("entityType") in entities and one is not None:
                    yield one

    def changed(self, values: Values, change: Callable[[Values, list[Values]], Values]) -> Values:
        """Return the values with each struct changed, which gets those around it too."""
        return self._changed(values, change, [])

    def _changed(self, value: Any, change: Any, around: list[Values]) -> Any:
        if isinstance(value, list):
            return [self._changed(one, change, around) for one in value]
        if isinstance(value, dict):
            inner = {
                name: self._changed(one, change, [*around, value]) for name, one in value.items()
            }
            return change(inner, around)
        return value

    def _inner(self, field: Definition) -> list[Definition] | None:
        inner = field.get("fields") or self._structs.get(field["type"].removeprefix("[]"))
        return None if inner is None else list(inner)

    def _values(self, fields: list[Definition], chance: random.Random) -> Values:
        return {
            field["name"]: self._value(field, chance)
            for field in fields
            if is_in(field["versions"], self._version)
        }

    def _value(self, field: Definition, chance: random.Random) -> Any:
        kind = field["type"]
        can_be_null = is_in(field.get("nullableVersions", "none"), self._version)
        if can_be_null and chance.random() < 0.3:
            return None
        if kind.startswith("[]"):
            count = chance.choice((0, 1, 2, 3, 130)) if chance.random() < 0.3 else 2
            count = min(count, 3) if self._inner(field) else count
            return [self._one(field, chance) for _ in range(count)]
        return self._one(field, chance)

    def _one(self, field: Definition, chance: random.Random) -> Any:
        kind = field["type"].removeprefix("[]")
        if (inner := self._inner(field)) is not None:
            return self._values(inner, chance)
        if kind in ("string", "bytes", "records"):
            size = chance.choice((0, 1, 9, 126, 127, 128, 300))
            return bytes(chance.choices(b"abcdefghij", k=size))
        if field["name"] == "Port":
            return chance.randrange(1, 0x10000)
        if field["name"] in ("NodeId", "BrokerId"):
            return chance.randrange(1000)
        return int.from_bytes(chance.randbytes(_SIZES[kind]), "big") >> 1

    def _struct(self, fields: list[Definition], values: Values) -> bytes:
        present = [field for field in fields if is_in(field["versions"], self._version)]
        out, tagged = b"", []
        for field in present:
            if is_in(field.get("taggedVersions", "none"), self._version):
                tagged.append((field["tag"], self._field(field, values[field["name"]])))
            else:
                out += self._field(field, values[field["name"]])
        if self.is_flexible:
            tagged.append((9999, b"unknown"))  # what a newer release might add
            out += encode_varint(len(tagged))
            for tag, data in sorted(tagged):
                out += encode_varint(tag) + encode_varint(len(data)) + data
        return out

    def _field(self, field: Definition, value: Any) -> bytes:
        if field["type"].startswith("[]"):
            if value is None:
                return self._length(-1, 4)
            return self._length(len(value), 4) + b"".join(self._item(field, one) for one in value)
        return self._item(field, value)

    def _item(self, field: Definition, value: Any) -> bytes:
        kind = field["type"].removeprefix("[]")
        if (inner := self._inner(field)) is not None:
            can_be_null = "nullableVersions" in field and not field["type"].startswith("[]")
            if value is None:
                return b"\xff"
            return (b"\x01" if can_be_null else b"") + self._struct(inner, value)
        if kind in ("string", "bytes", "records"):
            size = 2 if kind == "string" else 4
            if value is None:
                return self._length(-1, size)
            return self._length(len(value), size) + bytes(value)
        return int(value).to_bytes(_SIZES[kind], "big")

    def _length(self, length: int, size: int) -> bytes:
        if self.is_flexible:
            return encode_varint(length + 1)
        return length.to_bytes(size, "big", signed=True)
