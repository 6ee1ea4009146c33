"""Write the gateway's description of messages, from the definitions in the jar of kafka-clients.

    python -m tests.tools.message_layouts [--check]

The jar has a JSON file for each request and response. Of those that clients send and get,
`layouts.json` of the gateway has which versions are flexible, and the fields, some with a role. The
definitions themselves aren't shipped.

A role says what a field means to the gateway. Most follow from the definitions: a host with a port
and the id of a broker is the address of a node, and `entityType` names topics and groups.

Invariant: a definition in a form that this program doesn't know ends it, so no field is left out
silently.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aiokafka08._tools.gateway import layouts
from tests.brokers.jars import jar_folder

RELEASE = "4.1.0"
TARGET = Path(layouts.__file__).with_name("layouts.json")

BETWEEN_BROKERS = {
    "WriteTxnMarkers",
    "InitializeShareGroupState",
    "ReadShareGroupState",
    "WriteShareGroupState",
    "DeleteShareGroupState",
    "ReadShareGroupStateSummary",
}
"""What brokers send to each other on listeners of clients, which answer other clients; the others
are on those of controllers only, or were removed: they have no layout."""

_ENTITIES = {"topicName": "topic", "groupId": "group", "transactionalId": "transactional id"}
_PARTITIONS = {
    "int32": {"Partition", "PartitionIndex", "PartitionId", "Index"},
    "[]int32": {"Partitions", "PartitionIndexes"},
}
"""By type: the names of fields with numbers of partitions."""
_ROLES = {
    ("Produce", "Acks"): "acks",
    ("Produce", "TopicId"): "topic id",
    ("Fetch", "ReplicaId"): "replica",
    ("Fetch", "TopicId"): "topic id",
    ("ListOffsets", "ReplicaId"): "replica",
    ("OffsetForLeaderEpoch", "ReplicaId"): "replica",
    ("OffsetCommit", "TopicId"): "topic id",
    ("OffsetFetch", "TopicId"): "topic id",
    ("Metadata", "TopicId"): "topic id",
    ("DeleteTopics", "TopicId"): "topic id",
    ("ShareFetch", "TopicId"): "topic id",
    ("ShareAcknowledge", "TopicId"): "topic id",
    ("FindCoordinator", "Key"): "coordinator key",
    ("FindCoordinator", "KeyType"): "coordinator type",
    ("FindCoordinator", "CoordinatorKeys"): "coordinator key",
    ("ApiVersions", "ClientSoftwareName"): "software name",
    ("ApiVersions", "ClientSoftwareVersion"): "software version",
}
_REMOVED: dict[tuple[str, str], list[Any]] = {
    ("ListOffsetsRequest", "Partitions"): ["MaxNumOffsets", "int32", "0", "", -1],
    ("ListOffsetsResponse", "Partitions"): ["OldStyleOffsets", "[]int64", "0", "", -1],
    ("OffsetCommitRequest", "Partitions"): ["CommitTimestamp", "int64", "1", "", -1],
}
"""By message and struct: a field of old versions that the definitions no longer have."""
_REMOVED_AT = {"MaxNumOffsets": 3, "OldStyleOffsets": 2, "CommitTimestamp": 3}
"""Where it stood in the definitions of 3.9.1."""

_FIELD_KEYS = {
    "about", "default", "entityType", "fields", "flexibleVersions", "ignorable", "mapKey", "name",
    "nullableVersions", "tag", "taggedVersions", "type", "versions", "zeroCopy",
}  # fmt: skip

Definition = dict[str, Any]
Field = list[Any]


def definitions(jar: Path) -> dict[str, Definition]:
    """Return the definitions in a jar, by name."""
    found = {}
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if name.startswith("common/message/") and name.endswith(".json"):
                text = re.sub(r"(^|\s)//.*$", "", archive.read(name).decode(), flags=re.MULTILINE)
                definition = json.loads(text)
                found[definition["name"]] = definition
    return found


def described(release: str = RELEASE) -> Definition:
    """Return the description of all APIs of a release."""
    found = definitions(jar_folder(release) / f"kafka-clients-{release}.jar")
    apis = {}
    for request in found.values():
        if request["type"] == "request":
            response = found[request["name"].removesuffix("Request") + "Response"]
            assert response["apiKey"] == request["apiKey"], request["name"]
            apis[request["apiKey"]] = _api(request, response)
    return {"release": release, "apis": {str(key): apis[key] for key in sorted(apis)}}


def _api(request: Definition, response: Definition) -> Definition:
    name = request["name"].removesuffix("Request")
    valid = request["validVersions"]
    if valid == "none" or "broker" not in request.get("listeners", ()):
        return {"name": name, "between_brokers": True}
    first, last = _range(valid)
    flexible = request.get("flexibleVersions", "none")
    assert flexible == response.get("flexibleVersions", "none"), name
    api: Definition = {
        "name": name,
        "versions": [first, last],
        "flexible": None if flexible == "none" else _range(flexible)[0],
    }
    if name in BETWEEN_BROKERS:
        api["between_brokers"] = True
    for side, message in (("request", request), ("response", response)):
        structs = {one["name"]: one for one in message.get("commonStructs", ())}
        if fields := [_field(name, one, structs, []) for one in message["fields"]]:
            api[side] = fields
            _add_removed(message["name"], fields)
    return api


def _add_removed(message: str, fields: list[Field]) -> None:
    for field in fields:
        inner = field[5] if len(field) > 5 else []
        if (removed := _REMOVED.get((message, field[0]))) is not None:
            inner.insert(_REMOVED_AT[removed[0]], removed)
        _add_removed(message, inner)


def _field(api: str, field: Definition, structs: dict[str, Definition], outer: list[Any]) -> Field:
    """Return name, type, versions, role, tag and fields.

    A type is such as "[]string?2+": an array of texts, which may be null from version 2 on.
    """
    unknown = field.keys() - _FIELD_KEYS
    assert not unknown, f"{api}.{field['name']}: unknown keys {unknown}"
    kind, array = field["type"].removeprefix("[]"), field["type"].startswith("[]")
    inner = field.get("fields")
    if inner is None and kind in structs:
        inner = structs[kind]["fields"]
    assert "flexibleVersions" not in field, f"{api}.{field['name']}: its own flexible versions"
    if inner is None:
        assert kind in layouts.PRIMITIVES, f"{api}.{field['name']}: unknown type {kind}"
    else:
        kind = "struct"
    nullable = field.get("nullableVersions", "none")
    if nullable != "none":
        kind += f"?{nullable}"
    tag = field.get("tag", -1)
    if tag >= 0:
        assert field["taggedVersions"] == field["versions"], f"{api}.{field['name']}: partly tagged"
    made = [
        field["name"],
        ("[]" if array else "") + kind,
        field["versions"],
        _role(api, field, outer),
        tag,
    ]
    if inner is not None:
        around = [*outer, inner]
        made.append([_field(api, one, structs, around) for one in inner])
    return made


def _role(api: str, field: Definition, outer: list[Any]) -> str:
    name, entity = field["name"], field.get("entityType")
    if outer and name in ("Host", "Port") and _is_address(outer):
        return str(name.lower())
    if api == "FindCoordinator" and name in ("Host", "Port"):  # versions 0 to 3
        return str(name.lower())
    if entity == "brokerId" and name in ("NodeId", "BrokerId") and api != "UnregisterBroker":
        return "node"
    if name in _PARTITIONS.get(field["type"], ()):
        return "partition"
    if name in ("ErrorCode", "PartitionErrorCode"):
        return "code"
    return _ROLES.get((api, name)) or _ENTITIES.get(entity or "", "")


def _is_address(outer: list[Any]) -> bool:
    """Return whether a host and a port among these fields are the address of a broker."""
    names = {one["name"] for one in outer[-1]}
    has_node = any(one.get("entityType") == "brokerId" for fields in outer for one in fields)
    return {"Host", "Port"} <= names and has_node


def _range(text: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    if text.endswith("+"):
        return int(text[:-1]), 0x7FFF
    return int(first), int(last if dash else first)


def written(description: Definition) -> str:
    """Return the description as JSON, with a line for each side of an API."""

    def lines() -> Iterator[str]:
        yield f'{{"release": {json.dumps(description["release"])}, "apis": {{'
        apis = list(description["apis"].items())
        for number, (key, api) in enumerate(apis, 1):
            comma = "," if number < len(apis) else ""
            yield f' "{key}": {json.dumps(api)}{comma}'
        yield "}}"

    return "\n".join(lines()) + "\n"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Write layouts.json of the gateway.")
    parser.add_argument("--check", action="store_true", help="only compare it")
    options = parser.parse_args(arguments)
    text = written(described())
    if options.check:
        return int(text != TARGET.read_text())
    TARGET.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
