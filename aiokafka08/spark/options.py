"""Check the options of the format `kafka08`; names, defaults and precedence are those of Spark.

Pure: no pyspark, no network.

Invariant: the case of an option's name doesn't matter. An unknown option, or a wrong value, raises
an error that has the option, its value (unless that may be secret) and what is expected. The
checked options are picklable and travel to the tasks.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from aiokafka08._core.properties import (
    choice,
    hide_value,
    integer,
    parse_boolean,
    show_option,
    wrong_value,
)
from aiokafka08._wording import partition_text, some_of
from aiokafka08.embedded_headers import HeadersMode, headers_mode
from aiokafka08.errors import IllegalArgumentError
from aiokafka08.spark.java_pattern import compile_java_pattern
from aiokafka08.spark.offsets import (
    EARLIEST,
    LATEST,
    PartitionOffsets,
    parse_assign,
    parse_offsets,
    parse_timestamps,
)
from aiokafka08.spark.properties import (
    PREFIX,
    READING,
    WRITING,
    ClientProperties,
    reader_properties,
    unknown_option,
    writer_properties,
)
from aiokafka08.structs import TopicPartition


class LogEnd(enum.Enum):
    """The beginning or the end of the log, as a bound of a query."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class OffsetBound:
    """An offset per partition; -2 stands for earliest, -1 for latest."""

    option: str
    offsets: PartitionOffsets


@dataclass(frozen=True, slots=True)
class TimestampBound:
    """A timestamp for all partitions (`at_ms`), or one per partition (`timestamps_ms`).

    The bound is the first message at or after the timestamp.
    """

    option: str
    at_ms: int | None
    timestamps_ms: Mapping[TopicPartition, int] | None = None


# Where a query starts or ends.
QueryBound = LogEnd | OffsetBound | TimestampBound


class NoMatchStrategy(enum.Enum):
    """`startingOffsetsByTimestampStrategy`: what to do without a message at or after the timestamp.

    SEGMENT, which Spark's own source doesn't have, is for messages without timestamps (message
    format 0): start at the first log segment that was written to at that time or later.
    """

    ERROR = "error"
    LATEST = "latest"
    SEGMENT = "segment"


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """The topics or partitions to read: exactly one of the three is not None."""

    assign: tuple[TopicPartition, ...] | None = None
    subscribe: tuple[str, ...] | None = None
    pattern: str | None = None

    def __str__(self) -> str:
        if self.assign is not None:
            if not self.assign:
                return "assign={}"
            return "assign=" + ",".join(f"{topic}/{number}" for topic, number in self.assign)
        if self.subscribe is not None:
            return f"subscribe={','.join(self.subscribe)!r}"
        return f"subscribePattern={self.pattern!r}"


@dataclass(frozen=True, slots=True)
class TriggerLimits:
    """Limits of a micro-batch, in offsets over all partitions; None means no limit."""

    min_offsets: int | None
    max_offsets: int | None
    max_delay_s: float


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Checked options of a reader."""

    topics: TopicSelection
    start: QueryBound
    end: QueryBound
    no_match_strategy: NoMatchStrategy
    fail_on_data_loss: bool
    limits: TriggerLimits
    min_partitions: int | None
    max_records_per_partition: int | None
    fetch_offset_retries: int
    fetch_offset_interval_s: float
    poll_timeout_s: float
    include_headers: bool
    embedded_headers: bool
    client: ClientProperties
    # A log line for each given option without effect.
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Checked options of a writer."""

    topic: str | None
    drop_timestamps: bool
    partitioner: str | None
    headers: HeadersMode
    client: ClientProperties
    # A log line for each given option without effect.
    notes: tuple[str, ...]


# The options of a reader with their defaults; None: absent. The default of `startingOffsets` is
# "latest" in streams, "earliest" in batches.
READ_OPTIONS: Final[Mapping[str, str | None]] = {
    "assign": None,
    "subscribe": None,
    "subscribePattern": None,
    "startingOffsets": None,
    "startingTimestamp": None,
    "startingOffsetsByTimestamp": None,
    "startingOffsetsByTimestampStrategy": "error",
    "endingOffsets": "latest",
    "endingTimestamp": None,
    "endingOffsetsByTimestamp": None,
    "failOnDataLoss": "true",
    "maxOffsetsPerTrigger": None,
    "minOffsetsPerTrigger": None,
    "maxTriggerDelay": "15m",
    "minPartitions": None,
    "maxRecordsPerPartition": None,
    "groupIdPrefix": None,
    "fetchOffset.numRetries": "3",
    "fetchOffset.retryIntervalMs": "1000",
    "kafkaConsumer.pollTimeoutMs": "120000",
    "includeHeaders": "false",
    "headers": None,
}

# The options of a writer with their defaults; None: absent.
WRITE_OPTIONS: Final[Mapping[str, str | None]] = {
    "topic": None,
    "includeHeaders": "false",
    "headers": None,
    "partitioner": None,
    "timestamps": "keep",
}

# Options of the query that Spark passes on: `path` comes from `load(path)` and `save(path)`.
_SPARK_OPTIONS: Final = frozenset({"checkpointlocation", "queryname", "path"})

_TIME_UNITS_MS: Final = {
    "us": 0.001,
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


def read_options(spark_options: Mapping[str, str], *, streaming: bool | None) -> ReadOptions:
    """Check the options of a reader.

    Args:
        spark_options: the options as Spark passes them; names in any case.
        streaming: True for a micro-batch query, which has other defaults and no end. None if the
            kind of query isn't known; then only what is wrong in both kinds raises an error.

    Raises:
        IllegalArgumentError: an unknown option, or a wrong value.
        UnsupportedVersionError: the protocol of 0.8 doesn't support the value of an option.
    """
    _check_not_empty(spark_options)
    options, kafka = _split_names(spark_options, READ_OPTIONS, READING)
    client = reader_properties(kafka)
    topics = _topics(options)
    for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
        if streaming and name in options:
            raise IllegalArgumentError(
                f"{show_option(name, options[name])} is not supported in streaming queries: they "
                "have no end. Leave the option out"
            )
    text = partial(_text, options, READ_OPTIONS)
    default = LogEnd.LATEST if streaming else LogEnd.EARLIEST
    start = _bound(options, "starting", default)
    end = _bound(options, "ending", LogEnd(READ_OPTIONS["endingOffsets"]))
    if streaming is False:
        _check_batch_bounds(start, end)
    notes = list(client.ignored)
    limits = _trigger_limits(options)
    if not streaming:
        notes += [
            f"{show_option(name, options[name])} has no effect in batch queries"
            for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
            if name in options
        ]
    if "groupIdPrefix" in options:
        shown = show_option("groupIdPrefix", options["groupIdPrefix"])
        notes.append(f"{shown} has no effect: no consumer group is joined")
    return ReadOptions(
        topics=topics,
        start=start,
        end=end,
        no_match_strategy=choice(
            "startingOffsetsByTimestampStrategy",
            text("startingOffsetsByTimestampStrategy"),
            {strategy.value: strategy for strategy in NoMatchStrategy},
        ),
        fail_on_data_loss=parse_boolean("failOnDataLoss", text("failOnDataLoss")),
        limits=limits,
        min_partitions=_optional_integer(options, "minPartitions", 2**31 - 1),
        max_records_per_partition=_optional_integer(options, "maxRecordsPerPartition"),
        fetch_offset_retries=integer(
            "fetchOffset.numRetries", text("fetchOffset.numRetries"), 0, 2**31 - 1
        ),
        fetch_offset_interval_s=integer(
            "fetchOffset.retryIntervalMs", text("fetchOffset.retryIntervalMs")
        )
        / 1000,
        poll_timeout_s=integer(
            "kafkaConsumer.pollTimeoutMs", text("kafkaConsumer.pollTimeoutMs"), 1
        )
        / 1000,
        include_headers=parse_boolean("includeHeaders", text("includeHeaders")),
        embedded_headers=headers_mode(options.get("headers")) == "embedded",
        client=client,
        notes=tuple(notes),
    )


def write_options(spark_options: Mapping[str, str]) -> WriteOptions:
    """Check the options of a writer. Raises as `read_options`."""
    _check_not_empty(spark_options)
    options, kafka = _split_names(spark_options, WRITE_OPTIONS, WRITING)
    client = writer_properties(kafka)
    topic = options.get("topic")
    if topic is not None and not topic.strip():
        raise wrong_value("topic", topic, "empty", "the name of a topic")
    partitioner = options.get("partitioner")
    if partitioner is not None and "partitioner" in client.settings:
        raise IllegalArgumentError(
            f"{show_option('partitioner', partitioner)}: kafka.partitioner.class is given, too; "
            "expected one of them"
        )
    if options.get("includeHeaders") is not None:
        parse_boolean("includeHeaders", options["includeHeaders"])
    return WriteOptions(
        topic=None if topic is None else topic.strip(),
        drop_timestamps=choice(
            "timestamps",
            _text(options, WRITE_OPTIONS, "timestamps"),
            {"keep": False, "drop": True},
        ),
        partitioner=partitioner,
        headers=headers_mode(options.get("headers")),
        client=client,
        notes=client.ignored,
    )


def is_create_table(spark_options: Mapping[str, str]) -> bool:
    """Return True if Spark asks for the columns of a table that it creates.

    Raises:
        IllegalArgumentError: a table is being created with an option of this format.
    """
    # Spark then passes the properties of the table, `provider` among them.
    if "provider" not in {name.lower() for name in spark_options}:
        return False
    # A query of the table gets only the options of its WITH clause (Spark 4.2, 4.3), so a table
    # with options is refused.
    own = {name.lower() for name in (*READ_OPTIONS, *WRITE_OPTIONS)}
    for name in spark_options:
        if name.lower() in own or name.lower().startswith("kafka."):
            raise IllegalArgumentError(
                f"CREATE TABLE with {hide_value(name)}: Spark doesn't pass the options of "
                f"a table to a Python data source; expected a table without options. {_SQL_WAYS}"
            )
    return True


_SQL_WAYS: Final = (
    "Give them in each statement: FROM table WITH ('kafka.bootstrap.servers'='host:port', "
    "'subscribe'='topic'), INSERT INTO table WITH (…) …; or use a view: CREATE TEMPORARY VIEW name "
    "USING kafka08 OPTIONS (…)"
)


# --- single options -------------------------------------------------------------------------------


def _check_not_empty(spark_options: Mapping[str, str]) -> None:
    """Raise for a query without options, such as the query of a table without WITH."""
    if not spark_options:
        raise IllegalArgumentError(
            "no options: expected at least kafka.bootstrap.servers. In SQL, a query doesn't get "
            f"the options of CREATE TABLE. {_SQL_WAYS}"
        )


def _split_names(
    spark_options: Mapping[str, str], names: Iterable[str], properties: Iterable[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the options with their proper names, and those of `kafka.*` without the prefix."""
    known = {name.lower(): name for name in names}
    options: dict[str, str] = {}
    kafka: dict[str, str] = {}
    for given_name, value in spark_options.items():
        name = given_name.lower()
        if name.startswith(PREFIX):
            kafka[name.removeprefix(PREFIX)] = value
        elif name in known:
            options[known[name]] = value
        elif name not in _SPARK_OPTIONS:
            raise unknown_option(given_name, (*names, *map(PREFIX.__add__, properties)))
    return options, kafka


def _text(options: Mapping[str, str], defaults: Mapping[str, str | None], name: str) -> str:
    """Return the text of an option that has a default."""
    text = options.get(name, defaults[name])
    assert text is not None, name
    return text


def _topics(options: Mapping[str, str]) -> TopicSelection:
    names = ("assign", "subscribe", "subscribePattern")
    chosen = [name for name in names if name in options]
    if len(chosen) != 1:
        shown = ", ".join(show_option(name, options[name]) for name in chosen) or "none of them"
        raise IllegalArgumentError(
            f"topics to read: {shown}; expected exactly one of the options {', '.join(names)}"
        )
    [name] = chosen
    text = options[name]
    if name == "assign":
        return TopicSelection(assign=parse_assign(text))
    if name == "subscribe":
        topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
        if not topics:
            raise wrong_value(name, text, "no topic is named", "topics like 'topicA,topicB'")
        return TopicSelection(subscribe=topics)
    pattern = text.strip()
    if not pattern:
        raise wrong_value(name, text, "empty", "a regular expression")
    compile_java_pattern(pattern)
    return TopicSelection(pattern=pattern)


def _bound(options: Mapping[str, str], prefix: str, default: LogEnd) -> QueryBound:
    """Return the bound with the highest precedence: one timestamp, timestamps, offsets."""
    name = f"{prefix}Timestamp"
    if name in options:
        return TimestampBound(name, integer(name, options[name]))
    name = f"{prefix}OffsetsByTimestamp"
    if name in options:
        return TimestampBound(name, None, parse_timestamps(name, options[name]))
    name = f"{prefix}Offsets"
    if name not in options:
        return default
    text = options[name].strip()
    for log_end in LogEnd:
        if text.lower() == log_end.value:
            return log_end
    if not text.startswith("{"):
        keywords = "earliest, latest" if prefix == "starting" else "latest"
        raise wrong_value(
            name, text, "", f'{keywords}, or JSON like {{"topicA":{{"0":23,"1":-1}}}}'
        )
    return OffsetBound(name, parse_offsets(name, text))


def _check_batch_bounds(start: QueryBound, end: QueryBound) -> None:
    """Refuse a batch query that starts at the latest offset, or ends at the earliest."""
    for name, bound, wrong, number, rule in (
        (
            "startingOffsets",
            start,
            LogEnd.LATEST,
            LATEST,
            "a batch query can't start at the latest offset; expected an earlier one",
        ),
        (
            "endingOffsets",
            end,
            LogEnd.EARLIEST,
            EARLIEST,
            "a batch query can't end at the earliest offset; expected a later one",
        ),
    ):
        if bound is wrong:
            raise IllegalArgumentError(f"{name}={wrong.value!r}: {rule}")
        if isinstance(bound, OffsetBound):
            for tp, offset in bound.offsets.items():
                if offset == number:
                    where = partition_text(tp)
                    raise IllegalArgumentError(f"{bound.option}: {where} has {offset}: {rule}")
    if isinstance(start, OffsetBound) and isinstance(end, OffsetBound):
        _check_order(start.option, start.offsets, end.option, end.offsets)
    if isinstance(start, TimestampBound) and isinstance(end, TimestampBound):
        _check_timestamps(start, end)


def _check_timestamps(start: TimestampBound, end: TimestampBound) -> None:
    """Refuse an end before the start; `at_ms` holds for each partition that the other bound has."""
    if start.at_ms is not None and end.at_ms is not None:
        if end.at_ms < start.at_ms:
            raise IllegalArgumentError(
                f"{start.option}={start.at_ms}, {end.option}={end.at_ms}: the query ends before it "
                "starts; expected an end >= the start"
            )
        return
    named = start.timestamps_ms if start.timestamps_ms is not None else end.timestamps_ms
    assert named is not None  # one of them has no `at_ms`
    starts, ends = (
        bound.timestamps_ms
        if bound.timestamps_ms is not None
        else dict.fromkeys(named, bound.at_ms or 0)
        for bound in (start, end)
    )
    _check_order(start.option, starts, end.option, ends)


def _check_order(
    start_name: str, starts: PartitionOffsets, end_name: str, ends: PartitionOffsets
) -> None:
    if starts.keys() != ends.keys():
        differing = some_of(sorted(starts.keys() ^ ends.keys()))
        raise IllegalArgumentError(
            f"{start_name}, {end_name}: only one of them names {differing}; expected the same "
            "partitions in both"
        )
    for tp, start in starts.items():
        if 0 <= ends[tp] < start:
            raise IllegalArgumentError(
                f"{start_name}, {end_name}: {partition_text(tp)} starts at "
                f"{start} and ends at {ends[tp]}; expected an end >= the start"
            )


def _trigger_limits(options: Mapping[str, str]) -> TriggerLimits:
    least = _optional_integer(options, "minOffsetsPerTrigger")
    most = _optional_integer(options, "maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise IllegalArgumentError(
            f"minOffsetsPerTrigger={least}: above maxOffsetsPerTrigger={most}; expected "
            f"an integer <= {most}"
        )
    text = _text(options, READ_OPTIONS, "maxTriggerDelay")
    match = re.fullmatch(r"([0-9]{1,15})\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in {"", *_TIME_UNITS_MS}:
        raise wrong_value(
            "maxTriggerDelay",
            text,
            "",
            f"a number and a unit ({', '.join(_TIME_UNITS_MS)}) like '15m', or milliseconds",
        )
    delay_ms = int(match[1]) * _TIME_UNITS_MS[match[2] or "ms"]
    return TriggerLimits(least, most, delay_ms / 1000)


def _optional_integer(options: Mapping[str, str], name: str, most: int = 2**63 - 1) -> int | None:
    return integer(name, options[name], 1, most) if name in options else None
