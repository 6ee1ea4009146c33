"""`offsets`: show where a topic's logs begin and end, and from which offset to read since a time.

Invariant: no topic is created; see `metadata`.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final

import click

from aiokafka08._tools.cli.completing import topic_names
from aiokafka08._tools.cli.declare import Example, command, connection_options, format_option
from aiokafka08._tools.cli.settings import Settings
from aiokafka08._wording import number_span

if TYPE_CHECKING:
    from aiokafka08.structs import OffsetAndTimestamp, TopicPartition

EXACT: Final = "exact"
BY_SEGMENT: Final = "≈, by segment"
NO_MESSAGE: Final = "no message that late"

OFFSET_FIELDS: Final = {
    "topic": "the topic",
    "partition": "the partition's number",
    "first": "the offset of the first message in the log; null if there is no leader",
    "last": "the offset after the last message, where the next one goes; null without a leader",
}
AT_FIELDS: Final = {
    "at": "with --at: the offset from which to read all messages of that time or later",
    "timestamp": "with --at: the timestamp of the message at this offset, in ms; null if unknown",
    "precision": (
        f'with --at: "{EXACT}"; "{BY_SEGMENT}" where the broker knows only when each segment was '
        f'written (below 0.10.1); "{NO_MESSAGE}" (the offset is the end)'
    ),
}


@command(
    "offsets",
    fields={**OFFSET_FIELDS, **AT_FIELDS},
    examples=[
        Example(
            "Where to read from since an hour ago",
            "aiokafka08 offsets orders -b kafka1:9092 --at -1h",
        ),
    ],
)
@click.argument("topic", shell_complete=topic_names)
@click.option(
    "-p", "--partition", "partitions", type=int, multiple=True, help="Only this; may be repeated."
)
@click.option("--at", metavar="TIME", help="Find the messages since then: ISO 8601, -1h, ms.")
@connection_options
@format_option
def offsets(
    settings: Settings, topic: str, partitions: tuple[int, ...], at: str | None, format: str | None
) -> int:
    """Show where the logs of a TOPIC begin and end.

    With --at, it also shows from which offset to read the messages since a time.
    """
    from aiokafka08._tools.cli.connection import run
    from aiokafka08._tools.cli.notes import note
    from aiokafka08._tools.cli.output import write_rows
    from aiokafka08._tools.times import parse_time

    at_ms = None if at is None else parse_time("--at", at, time.time_ns() // 1_000_000)
    rows = run(_offsets(settings, topic, partitions, at_ms))
    write_rows(rows, OFFSET_FIELDS if at is None else {**OFFSET_FIELDS, **AT_FIELDS}, format)
    leaderless = [row["partition"] for row in rows if row["last"] is None]
    if leaderless:
        note(f"topic {topic!r}: no leader for partitions {', '.join(map(str, leaderless))}")
    return 1 if leaderless else 0


async def _offsets(
    settings: Settings, topic: str, partitions: Collection[int], at_ms: int | None
) -> list[dict[str, Any]]:
    from aiokafka08._tools.cli.commands.metadata import describe_topics
    from aiokafka08._tools.cli.connection import admin_client
    from aiokafka08.errors import UnknownTopicOrPartitionError
    from aiokafka08.structs import TopicPartition

    async with admin_client(settings, uses_zookeeper=False) as admin:
        [described] = await describe_topics(admin, [topic])
        leaders = {part["partition"]: part["leader"] for part in described["partitions"]}
        missing = sorted(set(partitions) - leaders.keys())
        if missing:
            raise UnknownTopicOrPartitionError(
                f"topic {topic!r} has no partition {missing[0]}; it has "
                f"{number_span(sorted(leaders))}"
            )
        wanted = sorted(set(partitions) or leaders)
        led = [TopicPartition(topic, number) for number in wanted if leaders[number] >= 0]
        first = await admin.list_offsets(dict.fromkeys(led, "earliest"))
        last = await admin.list_offsets(dict.fromkeys(led, "latest"))
        results: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        if at_ms is not None:
            at = datetime.datetime.fromtimestamp(0, datetime.UTC)
            at += datetime.timedelta(milliseconds=at_ms)
            results = await admin.list_offsets(dict.fromkeys(led, at))
    rows = []
    for number in wanted:
        tp = TopicPartition(topic, number)
        row: dict[str, Any] = {"topic": topic, "partition": number, "first": None, "last": None}
        begin, end = first.get(tp), last.get(tp)
        if begin is not None and end is not None:
            row |= {"first": begin.offset, "last": end.offset}
            if at_ms is not None:
                row |= _at_row(results.get(tp), end.offset)
        rows.append(row)
    return rows


def _at_row(result: OffsetAndTimestamp | None, end: int) -> dict[str, Any]:
    if result is None:
        return {"at": end, "precision": NO_MESSAGE}
    at, timestamp = result
    return {"at": at, "timestamp": timestamp, "precision": precision(result)}


def precision(result: OffsetAndTimestamp | None) -> str:
    """Return how precise the offset found for a time is; None: no message is that late."""
    if result is None:
        return NO_MESSAGE
    return BY_SEGMENT if result.timestamp is None else EXACT
