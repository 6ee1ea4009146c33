"""The options of the format `kafka08`: Spark's names, defaults, precedence and refusals.

Pure. Law: every option is known by name (case doesn't matter, as in Spark); an unknown one, or a
value that isn't allowed, is an error that names the option, the value and what is allowed. What
`kafka.*` options mean is told in `properties`, what offsets mean in `planning`.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from aiokafka08.errors import IllegalArgumentError
from aiokafka08.spark import properties
from aiokafka08.spark.offsets import (
    EARLIEST,
    LATEST,
    Offsets,
    parse_assign,
    parse_offsets,
    parse_timestamps,
)
from aiokafka08.spark.properties import Properties, boolean, choice, integer, no_such_option
from aiokafka08.structs import TopicPartition


class Place(enum.Enum):
    """An end of the log."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class ByOffset:
    """An offset per partition; -2 and -1 stand for earliest and latest."""

    option: str
    offsets: Offsets


@dataclass(frozen=True, slots=True)
class ByTime:
    """The first message of this time or later: for each partition, or for all (`at_ms`)."""

    option: str
    at_ms: int | None
    timestamps_ms: Mapping[TopicPartition, int] | None = None


Bound = Place | ByOffset | ByTime
"""Where a query begins or ends."""


class NoMatch(enum.Enum):
    """`startingOffsetsByTimestampStrategy`: what to do where no message is of that time or later.

    SEGMENT, which Spark's source doesn't have, also takes the grain of segments where messages have
    no timestamps (format 0).
    """

    ERROR = "error"
    LATEST = "latest"
    SEGMENT = "segment"


@dataclass(frozen=True, slots=True)
class Topics:
    """What is read: exactly one of the three is not None."""

    assign: tuple[TopicPartition, ...] | None = None
    subscribe: tuple[str, ...] | None = None
    pattern: str | None = None

    def __str__(self) -> str:
        if self.assign is not None:
            return "assign=" + ",".join(f"{topic}/{number}" for topic, number in self.assign)
        if self.subscribe is not None:
            return f"subscribe={','.join(self.subscribe)!r}"
        return f"subscribePattern={self.pattern!r}"


@dataclass(frozen=True, slots=True)
class TriggerLimits:
    """How much a micro-batch takes; offsets over all partitions, None: no limit."""

    min_offsets: int | None
    max_offsets: int | None
    max_delay_s: float


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Checked options of a reader."""

    topics: Topics
    start: Bound
    end: Bound
    no_match: NoMatch
    fail_on_data_loss: bool
    limits: TriggerLimits
    min_partitions: int | None
    max_records_per_partition: int | None
    fetch_offset_retries: int
    fetch_offset_interval_s: float
    poll_timeout_s: float
    include_headers: bool
    client: Properties
    notes: tuple[str, ...]
    """What was given and has no effect, to be logged."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Checked options of a writer."""

    topic: str | None
    drop_timestamps: bool
    partitioner: str | None
    client: Properties
    notes: tuple[str, ...]


_READ: Final = (
    "assign",
    "subscribe",
    "subscribePattern",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "failOnDataLoss",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "groupIdPrefix",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
    "includeHeaders",
)
_WRITE: Final = ("topic", "includeHeaders", "partitioner", "timestamps")
_SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname"})
"""Spark hands these on with the sink's options."""

_TIME_UNITS_MS: Final = {
    "us": 0.001,
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


def read_options(given: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Check the options of a reader.

    Args:
        given: the options as Spark hands them over; case of names doesn't matter.
        streaming: a micro-batch query, whose defaults and refusals differ from a batch query's.

    Raises:
        IllegalArgumentError: an unknown option, or a value that isn't allowed.
        UnsupportedVersionError: what the protocol of 0.8 can't do.
    """
    options, kafka = _sorted_out(given, _READ)
    client = properties.reading(kafka)
    topics = _topics(options)
    for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
        if streaming and name in options:
            raise IllegalArgumentError(
                f"{name}={options[name]!r} is not allowed in streaming queries: they have no end"
            )
    default = Place.LATEST if streaming else Place.EARLIEST
    start = _bound(options, "starting", default)
    end = _bound(options, "ending", Place.LATEST)
    if not streaming:
        _check_batch(start, end)
    notes = list(client.without_effect)
    limits = _limits(options)
    if not streaming:
        notes += [
            f"{name}={options[name]!r} has no effect in batch queries"
            for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
            if name in options
        ]
    if "groupIdPrefix" in options:
        prefix = options["groupIdPrefix"]
        notes.append(f"groupIdPrefix={prefix!r} has no effect: no consumer group is joined")
    return ReadOptions(
        topics=topics,
        start=start,
        end=end,
        no_match=choice(
            "startingOffsetsByTimestampStrategy",
            options.get("startingOffsetsByTimestampStrategy", "error"),
            {one.value: one for one in NoMatch},
        ),
        fail_on_data_loss=boolean("failOnDataLoss", options.get("failOnDataLoss", "true")),
        limits=limits,
        min_partitions=_optional(options, "minPartitions", 1, 2**31 - 1),
        max_records_per_partition=_optional(options, "maxRecordsPerPartition", 1),
        fetch_offset_retries=integer(
            "fetchOffset.numRetries", options.get("fetchOffset.numRetries", "3"), 0, 2**31 - 1
        ),
        fetch_offset_interval_s=integer(
            "fetchOffset.retryIntervalMs", options.get("fetchOffset.retryIntervalMs", "1000")
        )
        / 1000,
        poll_timeout_s=integer(
            "kafkaConsumer.pollTimeoutMs", options.get("kafkaConsumer.pollTimeoutMs", "120000"), 1
        )
        / 1000,
        include_headers=include_headers(given),
        client=client,
        notes=tuple(notes),
    )


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """Check the options of a writer. Raises as `read_options`."""
    options, kafka = _sorted_out(given, _WRITE)
    client = properties.writing(kafka)
    topic = options.get("topic")
    if topic is not None and not topic.strip():
        raise IllegalArgumentError(f"topic={topic!r}: it is empty")
    partitioner = options.get("partitioner")
    if partitioner is not None and "partitioner" in client.own:
        raise IllegalArgumentError("partitioner and kafka.partitioner.class are both given")
    if options.get("includeHeaders") is not None:
        boolean("includeHeaders", options["includeHeaders"])
    return WriteOptions(
        topic=None if topic is None else topic.strip(),
        drop_timestamps=choice(
            "timestamps", options.get("timestamps", "keep"), {"keep": False, "drop": True}
        ),
        partitioner=partitioner,
        client=client,
        notes=client.without_effect,
    )


def include_headers(given: Mapping[str, str]) -> bool:
    """Whether the schema has a column `headers`: what is needed before all else is checked.

    Raises:
        IllegalArgumentError: `includeHeaders` is neither true nor false.
    """
    lowered = {name.lower(): value for name, value in given.items()}
    return boolean("includeHeaders", lowered.get("includeheaders", "false"))


# --- inside ---------------------------------------------------------------------------------------


def _sorted_out(
    given: Mapping[str, str], names: tuple[str, ...]
) -> tuple[dict[str, str], dict[str, str]]:
    """The options by their proper names, and those behind `kafka.`."""
    known = {name.lower(): name for name in names}
    options: dict[str, str] = {}
    kafka: dict[str, str] = {}
    for given_name, value in given.items():
        name = given_name.lower()
        if name.startswith("kafka."):
            kafka[name.removeprefix("kafka.")] = value
        elif name in known:
            options[known[name]] = value
        elif name not in _SPARKS_OWN:
            allowed = f"{', '.join(names)}, and those of the client as kafka.*"
            raise no_such_option(given_name, value, allowed)
    return options, kafka


def _topics(options: Mapping[str, str]) -> Topics:
    names = ("assign", "subscribe", "subscribePattern")
    chosen = [name for name in names if name in options]
    if len(chosen) != 1:
        found = ", ".join(f"{name}={options[name]!r}" for name in chosen) or "none of them"
        raise IllegalArgumentError(
            f"exactly one of the options {', '.join(names)} must be given, not {found}"
        )
    [name] = chosen
    value = options[name]
    if name == "assign":
        return Topics(assign=parse_assign(value))
    if name == "subscribe":
        topics = tuple(dict.fromkeys(one.strip() for one in value.split(",") if one.strip()))
        if not topics:
            raise IllegalArgumentError(f"subscribe={value!r} names no topic; 'topicA,topicB' does")
        return Topics(subscribe=topics)
    pattern = value.strip()
    try:
        re.compile(pattern)
    except re.error as error:
        raise IllegalArgumentError(
            f"subscribePattern={value!r} is no regular expression: {error}"
        ) from None
    if not pattern:
        raise IllegalArgumentError(f"subscribePattern={value!r}: it is empty")
    return Topics(pattern=pattern)


def _bound(options: Mapping[str, str], which: str, default: Place) -> Bound:
    """By precedence: one time for all, times, offsets."""
    name = f"{which}Timestamp"
    if name in options:
        return ByTime(name, integer(name, options[name]))
    name = f"{which}OffsetsByTimestamp"
    if name in options:
        return ByTime(name, None, parse_timestamps(name, options[name]))
    name = f"{which}Offsets"
    if name not in options:
        return default
    value = options[name].strip()
    for place in Place:
        if value.lower() == place.value:
            return place
    if not value.startswith("{"):
        allowed = "earliest and latest" if which == "starting" else "latest"
        raise IllegalArgumentError(
            f'{name}={value!r}: allowed are {allowed}, and JSON like {{"topicA":{{"0":23,"1":-1}}}}'
        )
    return ByOffset(name, parse_offsets(name, value))


def _check_batch(start: Bound, end: Bound) -> None:
    """What a batch query can't do: begin at the latest offset, end at the earliest."""
    for name, bound, wrong, number, rule in (
        (
            "startingOffsets",
            start,
            Place.LATEST,
            LATEST,
            "a batch query can't begin at the latest offset",
        ),
        (
            "endingOffsets",
            end,
            Place.EARLIEST,
            EARLIEST,
            "a batch query can't end at the earliest offset",
        ),
    ):
        if bound is wrong:
            raise IllegalArgumentError(f"{name}={wrong.value!r}: {rule}")
        if isinstance(bound, ByOffset):
            for tp, offset in bound.offsets.items():
                if offset == number:
                    where = f"topic {tp.topic!r}, partition {tp.partition}"
                    raise IllegalArgumentError(f"{bound.option}: {where} has {offset}: {rule}")
    if isinstance(start, ByOffset) and isinstance(end, ByOffset):
        _check_order(start.option, start.offsets, end.option, end.offsets)
    if (
        isinstance(start, ByTime)
        and isinstance(end, ByTime)
        and start.timestamps_ms is not None
        and end.timestamps_ms is not None
    ):
        _check_order(start.option, start.timestamps_ms, end.option, end.timestamps_ms)


def _check_order(start_name: str, starts: Offsets, end_name: str, ends: Offsets) -> None:
    if starts.keys() != ends.keys():
        differing = ", ".join(f"{t}/{p}" for t, p in sorted(starts.keys() ^ ends.keys()))
        raise IllegalArgumentError(
            f"{start_name} and {end_name} must name the same partitions; only one has {differing}"
        )
    for tp, start in starts.items():
        if 0 <= ends[tp] < start:
            raise IllegalArgumentError(
                f"topic {tp.topic!r}, partition {tp.partition}: {start} of {start_name} is above "
                f"{ends[tp]} of {end_name}"
            )


def _limits(options: Mapping[str, str]) -> TriggerLimits:
    least = _optional(options, "minOffsetsPerTrigger", 1)
    most = _optional(options, "maxOffsetsPerTrigger", 1)
    if least is not None and most is not None and least > most:
        raise IllegalArgumentError(
            f"minOffsetsPerTrigger={least} is above maxOffsetsPerTrigger={most}"
        )
    delay = options.get("maxTriggerDelay", "15m")
    match = re.fullmatch(r"([0-9]{1,15})\s*([a-z]*)", delay.strip().lower())
    if match is None or match[2] not in {"", *_TIME_UNITS_MS}:
        raise IllegalArgumentError(
            f"maxTriggerDelay={delay!r}: allowed are a number and one of the units "
            f"{', '.join(_TIME_UNITS_MS)}, such as '15m'; without a unit it is ms"
        )
    delay_ms = int(match[1]) * _TIME_UNITS_MS[match[2] or "ms"]
    return TriggerLimits(least, most, delay_ms / 1000)


def _optional(
    options: Mapping[str, str], name: str, least: int, most: int = 2**63 - 1
) -> int | None:
    return integer(name, options[name], least, most) if name in options else None
