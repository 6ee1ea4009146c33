"""Convert offsets between Spark's JSON and `TopicPartition` keys, for options and checkpoints.
Pure.

Invariant: `to_checkpoint` writes the JSON of Spark's own Kafka source, so that either source can
resume from the checkpoint. An option or a checkpoint of another form raises an error that names the
option, or says "checkpoint".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from aiokafka08._core.properties import wrong_value
from aiokafka08._wording import shorten
from aiokafka08.structs import TopicPartition

LATEST: Final = -1
EARLIEST: Final = -2

PartitionOffsets = Mapping[TopicPartition, int]
# topic → partition → offset, as in JSON.
OffsetDict = dict[str, dict[str, int]]

T = TypeVar("T")

_PARTITION: Final = re.compile("0|[1-9][0-9]{0,9}")
_MAX_INT32: Final = 2**31 - 1
_MAX_INT64: Final = 2**63 - 1


def parse_assign(text: str) -> tuple[TopicPartition, ...]:
    """Return the partitions of the option `assign`: {"topicA":[0,1],"topicB":[2,4]}.

    There may be none, as in {"topicA":[]}: Spark's own source then reads nothing, too.

    Raises:
        IllegalArgumentError: `text` has another form.
    """
    expected = 'JSON like {"topicA":[0,1],"topicB":[2,4]}'
    assigned = []
    for topic, partitions in _parse_object("assign", text, expected).items():
        if not isinstance(partitions, list):
            detail = f"topic {topic!r} has {shorten(partitions)}, not a list"
            raise wrong_value("assign", text, detail, expected)
        for partition in partitions:
            if not _is_int(partition, 0, _MAX_INT32):
                raise wrong_value("assign", text, f"{shorten(partition)} is no partition", expected)
            assigned.append(TopicPartition(topic, partition))
    return tuple(sorted(set(assigned)))


def parse_offsets(option: str, text: str) -> dict[TopicPartition, int]:
    """Return the offsets of an option: {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}.

    Raises:
        IllegalArgumentError: `text` has another form.
    """
    expected = (
        'JSON like {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}, with -1 for latest and -2 for '
        "earliest"
    )
    return _parse_numbers(option, text, expected, EARLIEST)


def parse_timestamps(option: str, text: str) -> dict[TopicPartition, int]:
    """Return the timestamps of an option, in milliseconds: {"topicA":{"0":1000,"1":1000}}.

    Raises:
        IllegalArgumentError: `text` has another form.
    """
    expected = 'JSON like {"topicA":{"0":1000,"1":1000}}, in milliseconds since the epoch'
    return _parse_numbers(option, text, expected, 0)


def from_checkpoint(offsets: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Return the offsets that a checkpoint holds.

    Raises:
        IllegalArgumentError: neither this source nor Spark's own Kafka source wrote them.
    """
    expected = 'JSON like {"topicA":{"0":23,"1":42}}. Is it the checkpoint of this source?'
    return _numbers_by_partition("checkpoint", json.dumps(offsets), offsets, expected, 0)


def to_checkpoint(offsets: PartitionOffsets) -> OffsetDict:
    """Return offsets for a checkpoint, sorted by topic and partition."""
    nested: OffsetDict = {}
    for topic, partition in sorted(offsets):
        nested.setdefault(topic, {})[str(partition)] = offsets[TopicPartition(topic, partition)]
    return nested


def to_json(offsets: PartitionOffsets) -> str:
    """Return offsets as JSON, for log lines."""
    return json.dumps(to_checkpoint(offsets), separators=(",", ":"))


def _parse_numbers(option: str, text: str, expected: str, least: int) -> dict[TopicPartition, int]:
    return _numbers_by_partition(
        option, text, _parse_object(option, text, expected), expected, least
    )


def _numbers_by_partition(
    option: str, text: str, parsed: object, expected: str, least: int
) -> dict[TopicPartition, int]:
    """Return the numbers of a parsed JSON object; errors show `text`."""
    numbers: dict[TopicPartition, int] = {}
    if not isinstance(parsed, Mapping):
        raise wrong_value(option, text, "not a JSON object", expected)
    for topic, partitions in parsed.items():
        if not isinstance(partitions, Mapping):
            raise wrong_value(option, text, f"topic {topic!r} has {shorten(partitions)}", expected)
        for key, value in partitions.items():
            partition = int(key) if _PARTITION.fullmatch(key) else -1
            if not _is_int(partition, 0, _MAX_INT32):
                raise wrong_value(option, text, f"{shorten(key)} is no partition", expected)
            if not _is_int(value, least, _MAX_INT64):
                detail = f"topic {topic!r}, partition {partition} has {shorten(value)}"
                raise wrong_value(option, text, f"{detail}, not an integer >= {least}", expected)
            numbers[TopicPartition(topic, partition)] = value
    return numbers


def _parse_object(option: str, text: str, expected: str) -> dict[str, Any]:
    """Parse a JSON object in which no name occurs twice."""

    def unique(pairs: list[tuple[str, T]]) -> dict[str, T]:
        parsed = dict(pairs)
        if len(parsed) < len(pairs):
            raise ValueError("a name occurs twice")
        return parsed

    check: Callable[[list[tuple[str, Any]]], dict[str, Any]] = unique
    try:
        parsed = json.loads(text, object_pairs_hook=check)
    except (ValueError, RecursionError) as error:
        raise wrong_value(option, text, f"invalid JSON: {error}", expected) from None
    if not isinstance(parsed, dict):
        raise wrong_value(option, text, "not a JSON object", expected)
    return parsed


def _is_int(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
