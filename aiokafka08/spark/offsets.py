"""Offsets as Spark writes them: JSON of topic, partition and offset, in options and checkpoints.

Pure. Law: what `dump` writes is what Spark's own source writes, so that a checkpoint can be read by
either; what isn't such JSON is refused by name. What offsets mean is `planning`'s business.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from aiokafka08.errors import IllegalArgumentError
from aiokafka08.structs import TopicPartition

LATEST = -1
EARLIEST = -2

Offsets = Mapping[TopicPartition, int]
OffsetDict = dict[str, dict[str, int]]
"""topic → partition → offset, as JSON has it."""

T = TypeVar("T")

_PARTITION = re.compile("0|[1-9][0-9]{0,9}")
_MAX_INT32, _MAX_INT64 = 2**31 - 1, 2**63 - 1


def parse_assign(text: str) -> tuple[TopicPartition, ...]:
    """The partitions of the option `assign`: {"topicA":[0,1],"topicB":[2,4]}.

    Raises:
        IllegalArgumentError: it isn't that.
    """
    wanted = 'wanted is JSON like {"topicA":[0,1],"topicB":[2,4]}'
    found = []
    for topic, partitions in _object("assign", text, text, wanted).items():
        if not isinstance(partitions, list):
            raise _wrong("assign", text, wanted, f"topic {topic!r} has {partitions!r}, not a list")
        for partition in partitions:
            if not _is_int(partition, 0, _MAX_INT32):
                raise _wrong("assign", text, wanted, f"{partition!r} is no partition")
            found.append(TopicPartition(topic, partition))
    if not found:
        raise _wrong("assign", text, wanted, "it names no partition")
    return tuple(sorted(set(found)))


def parse_offsets(option: str, text: str) -> dict[TopicPartition, int]:
    """Offsets of an option: {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}.

    Raises:
        IllegalArgumentError: it isn't that.
    """
    return _parse(
        option,
        text,
        'wanted is JSON like {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}, with -1 for latest '
        "and -2 for earliest",
        EARLIEST,
    )


def parse_timestamps(option: str, text: str) -> dict[TopicPartition, int]:
    """Times of an option, in milliseconds since the epoch: {"topicA":{"0":1000,"1":1000}}.

    Raises:
        IllegalArgumentError: it isn't that.
    """
    wanted = 'wanted is JSON like {"topicA":{"0":1000,"1":1000}}, in milliseconds since the epoch'
    return _parse(option, text, wanted, 0)


def load(offsets: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Offsets from what a checkpoint holds.

    Raises:
        IllegalArgumentError: it isn't the offsets of this source, or Spark's own.
    """
    text = json.dumps(offsets)[:200]
    wanted = 'wanted is JSON like {"topicA":{"0":23,"1":42}}: is it the checkpoint of this source?'
    return _items("the checkpoint's offset", text, offsets, wanted, 0)


def dump(offsets: Offsets) -> OffsetDict:
    """Offsets for a checkpoint, sorted."""
    nested: OffsetDict = {}
    for topic, partition in sorted(offsets):
        nested.setdefault(topic, {})[str(partition)] = offsets[TopicPartition(topic, partition)]
    return nested


def text(offsets: Offsets) -> str:
    """Offsets as they are written in JSON; for messages and logs."""
    return json.dumps(dump(offsets), separators=(",", ":"))


def _parse(option: str, given: str, wanted: str, least: int) -> dict[TopicPartition, int]:
    return _items(option, given, _object(option, given, given, wanted), wanted, least)


def _items(
    option: str, given: str, found: object, wanted: str, least: int
) -> dict[TopicPartition, int]:
    items: dict[TopicPartition, int] = {}
    if not isinstance(found, Mapping):
        raise _wrong(option, given, wanted, "it is no JSON object")
    for topic, partitions in found.items():
        if not isinstance(partitions, Mapping):
            raise _wrong(option, given, wanted, f"topic {topic!r} has {partitions!r}")
        for partition, value in partitions.items():
            number = int(partition) if _PARTITION.fullmatch(partition) else -1
            if not _is_int(number, 0, _MAX_INT32):
                raise _wrong(option, given, wanted, f"{partition!r} is no partition")
            if not _is_int(value, least, _MAX_INT64):
                why = f"topic {topic!r}, partition {number} has {value!r}"
                raise _wrong(option, given, wanted, f"{why}, not an integer from {least} on")
            items[TopicPartition(topic, number)] = value
    return items


def _object(option: str, given: str, value: str, wanted: str) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, T]]) -> dict[str, T]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ValueError("a name stands in it twice")
        return found

    check: Callable[[list[tuple[str, Any]]], dict[str, Any]] = unique
    try:
        found = json.loads(value, object_pairs_hook=check)
    except (ValueError, RecursionError) as error:
        raise _wrong(option, given, wanted, f"it can't be read as JSON: {error}") from None
    if not isinstance(found, dict):
        raise _wrong(option, given, wanted, "it is no JSON object")
    return found


def _is_int(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _wrong(option: str, given: str, wanted: str, why: str) -> IllegalArgumentError:
    return IllegalArgumentError(f"{option}={given!r}: {why}; {wanted}")
