"""Files of committed offsets, for `group export`, `group import` and `group reset --from-file`.

Pure. Invariant: a file is read as a whole before any of its offsets is used. An error names the
line, or the item of the array. Two entries for the same group, store and partition are an error.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple

from aiokafka08._core.zookeeper.session import check_node_name
from aiokafka08._wording import partition_name, shorten
from aiokafka08.errors import IllegalArgumentError
from aiokafka08.structs import LAST_OFFSET

# The first character of a file shows its format.
# - `json` is an array of objects such as {"group": "billing", "store": "kafka", "topic": "orders",
#   "partition": 0, "offset": 7, "metadata": ""}; `jsonl` has one such object a line.
# - `zookeeper` has lines such as /consumers/billing/offsets/orders/0:7, which Kafka's
#   ExportZkOffsets writes and ImportZkOffsets reads.
# - `csv` has lines such as orders,0,7, or billing,orders,0,7 with the group, which
#   kafka-consumer-groups.sh writes with --export and reads with --from-file.
OffsetFileFormat = Literal["json", "jsonl", "zookeeper", "csv"]

_NODE: Final = re.compile(r"/consumers/([^/]+)/offsets/([^/]+)/([0-9]{1,10}):([0-9]{1,19})")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_PLAIN: Final = re.compile(r'\w[^",\r\n]*')
_NUMBER: Final = re.compile("[0-9]{1,19}")
_LARGEST_PARTITION: Final = 2**31 - 1


class GroupOffset(NamedTuple):
    """A committed offset of a group; `group` and `store` are None if the file lacks them."""

    group: str | None
    store: Literal["kafka", "zookeeper"] | None
    topic: str
    partition: int
    offset: int
    metadata: str


class NodeText(NamedTuple):
    """An item of a backup: the text of a node in ZooKeeper that held no offset."""

    group: str
    topic: str
    partition: int
    # Bytes that aren't UTF-8 are lone surrogates.
    text: str

    @property
    def path(self) -> str:
        """The path of the node."""
        return f"/consumers/{self.group}/offsets/{self.topic}/{self.partition}"


def format_backup(saved: Iterable[GroupOffset | NodeText]) -> bytes:
    """Return the content of a backup: a file of the format `json` that may have `NodeText`s."""
    items = [
        one._asdict()
        if isinstance(one, GroupOffset)
        else {"group": one.group, "store": "zookeeper", "topic": one.topic,
              "partition": one.partition, "offset": None, "text": one.text}
        for one in saved
    ]  # fmt: skip
    text = json.dumps(items, ensure_ascii=False, indent=2) + "\n"
    return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()


def format_offsets(offsets: Iterable[GroupOffset], format: OffsetFileFormat) -> str:
    """Return the text of a file.

    Raises:
        IllegalArgumentError: the format is `zookeeper`, and a group's name can't name a node.
    """
    offsets = list(offsets)
    if format == "zookeeper":
        for offset in offsets:
            check_node_name("group", str(offset.group))
        return "".join(
            f"/consumers/{offset.group}/offsets/{offset.topic}/{offset.partition}:{offset.offset}\n"
            for offset in offsets
        )
    if format == "csv":
        return "".join(
            f"{_quoted(str(offset.group))},{offset.topic},{offset.partition},{offset.offset}\n"
            for offset in offsets
        )
    items = [offset._asdict() for offset in offsets]
    if format == "json":
        return json.dumps(items, ensure_ascii=False, indent=2) + "\n"
    return "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in items)


def parse_offsets(text: str, origin: str, texts: list[NodeText] | None = None) -> list[GroupOffset]:
    """Return the offsets in a file, in its order.

    Args:
        text: the text of the file.
        origin: the file's name, for errors.
        texts: the list to which the `NodeText`s of a backup are added; None: they are an error
            (default None).

    Raises:
        IllegalArgumentError: the text has none of the formats, or no offsets; the error names the
            first wrong line or item.
    """
    first = text.lstrip()[:1]
    parse: Callable[[str, str], Iterator[tuple[str, GroupOffset | NodeText]]]
    if first == "[":
        parse = _parse_json
    elif first == "{":
        parse = _parse_json_lines
    elif first == "/":
        parse = _parse_nodes
    else:
        parse = _parse_csv
    offsets: dict[tuple[object, ...], GroupOffset] = {}
    for where, offset in parse(text, origin):
        if isinstance(offset, NodeText):
            if texts is None:
                raise IllegalArgumentError(f"{where}: offset=None; expected int")
            texts.append(offset)
            continue
        _check_numbers(where, offset)
        if offsets.setdefault(offset[:4], offset) is not offset:
            raise IllegalArgumentError(
                f"{where}: a second offset for {partition_name(offset)}"
                + ("" if offset.group is None else f" of group {offset.group!r}")
            )
    if not offsets and not texts:
        raise IllegalArgumentError(f"{origin}: no offsets; expected at least one")
    return list(offsets.values())


def offsets_of(group: str, offsets: Sequence[GroupOffset], origin: str) -> list[GroupOffset]:
    """Return the offsets of one group, including those without a group.

    Raises:
        IllegalArgumentError: there are none.
    """
    group_offsets = [
        offset._replace(group=group) for offset in offsets if offset.group in (None, group)
    ]
    if not group_offsets:
        name = "stdin" if origin == "-" else origin
        raise IllegalArgumentError(f"{name}: no offsets of group {group!r}")
    return group_offsets


def _parse_json(text: str, origin: str) -> Iterator[tuple[str, GroupOffset | NodeText]]:
    try:
        items = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise IllegalArgumentError(f"{origin}: not valid JSON: {error}") from None
    for number, item in enumerate(items, 1):
        where = f"{origin}, item {number}"
        yield where, _from_object(where, item)


def _parse_json_lines(text: str, origin: str) -> Iterator[tuple[str, GroupOffset | NodeText]]:
    for where, line in _lines(text, origin):
        try:
            item = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise IllegalArgumentError(f"{where}: not valid JSON: {error}") from None
        yield where, _from_object(where, item)


def _from_object(where: str, item: Any) -> GroupOffset | NodeText:
    if not isinstance(item, dict):
        raise IllegalArgumentError(f"{where}: {shorten(item)}; expected an object")
    is_text = "text" in item and item.get("offset") is None
    types: dict[str, tuple[type, ...]] = {
        "group": (str, type(None)),
        "store": (str, type(None)),
        "topic": (str,),
        "partition": (int,),
        **({"text": (str,)} if is_text else {"offset": (int,)}),
        "metadata": (str, type(None)),
    }
    for name, allowed in types.items():
        value = item.get(name)
        if not isinstance(value, allowed) or isinstance(value, bool):
            expected = " or ".join(
                "null" if kind is type(None) else kind.__name__ for kind in allowed
            )
            raise IllegalArgumentError(f"{where}: {name}={shorten(value)}; expected {expected}")
    store = item.get("store")
    if store not in ("kafka", "zookeeper", None):
        raise IllegalArgumentError(f"{where}: store={store!r}; expected 'kafka' or 'zookeeper'")
    if is_text:
        return NodeText(str(item.get("group")), item["topic"], item["partition"], item["text"])
    return GroupOffset(
        item.get("group"),
        store,
        item["topic"],
        item["partition"],
        item["offset"],
        item.get("metadata") or "",
    )


def _parse_nodes(text: str, origin: str) -> Iterator[tuple[str, GroupOffset]]:
    for where, line in _lines(text, origin):
        match = _NODE.fullmatch(line)
        if match is None:
            raise IllegalArgumentError(
                f"{where}: {shorten(line)}; expected /consumers/GROUP/offsets/TOPIC/PARTITION:"
                "OFFSET"
            )
        group, topic, partition, offset = match.groups()
        yield where, GroupOffset(group, "zookeeper", topic, int(partition), int(offset), "")


def _quoted(group: str) -> str:
    """Return a group's name for CSV; quoted if necessary, or if it may begin another format."""
    return group if _PLAIN.fullmatch(group) else '"' + group.replace('"', '""') + '"'


def _parse_csv(text: str, origin: str) -> Iterator[tuple[str, GroupOffset]]:
    rows = csv.reader(io.StringIO(text, newline=""))
    try:
        for fields in rows:
            where = f"{origin}, line {rows.line_num}"
            if any(map(str.strip, fields)):
                yield where, _from_fields(where, fields)
    except csv.Error as error:
        raise IllegalArgumentError(f"{origin}, line {rows.line_num}: not CSV: {error}") from None


def _from_fields(where: str, fields: list[str]) -> GroupOffset:
    """Return the offset in a line of CSV; only the group keeps blanks around it."""
    topic, *numbers = map(str.strip, fields[-3:])
    if len(fields) not in (3, 4) or not all(map(_NUMBER.fullmatch, numbers)):
        raise IllegalArgumentError(
            f"{where}: {shorten(','.join(fields))}; expected TOPIC,PARTITION,OFFSET or "
            "GROUP,TOPIC,PARTITION,OFFSET"
        )
    group = fields[0] if len(fields) == 4 else None
    return GroupOffset(group, None, topic, int(numbers[0]), int(numbers[1]), "")


def _lines(text: str, origin: str) -> Iterator[tuple[str, str]]:
    # Not `splitlines`, which also splits at characters that metadata may have.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield f"{origin}, line {number}", line.strip()


def _check_numbers(where: str, offset: GroupOffset) -> None:
    if not 0 <= offset.partition <= _LARGEST_PARTITION:
        raise IllegalArgumentError(f"{where}: partition {offset.partition}; expected 0 or more")
    if not 0 <= offset.offset <= LAST_OFFSET:
        raise IllegalArgumentError(f"{where}: offset {offset.offset}; expected 0 or more")
