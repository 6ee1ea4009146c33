"""`bench`: measure how fast this machine and the cluster move messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from aiokafka08._tools.cli.completing import topic_names
from aiokafka08._tools.cli.declare import (
    CommandGroup,
    Example,
    command,
    connection_options,
    format_option,
)
from aiokafka08._tools.cli.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])

_COUNTS: Final = {
    "bench": "what was measured",
    "messages": "how many messages",
    "bytes": "bytes of their keys and values",
}
THROUGHPUT_FIELDS: Final = {
    **_COUNTS,
    "seconds": "the time that it took",
    "messages_per_s": "messages per second",
    "mb_per_s": "megabytes (10^6) per second",
}
LATENCY_FIELDS: Final = {
    **_COUNTS,
    "p50_ms": "median, in milliseconds",
    "p90_ms": "nine of ten took less",
    "p99_ms": "all but one of 100 took less",
    "max_ms": "the longest",
}


def _message_options(messages: int, *, min_size: int) -> Callable[[F], F]:
    """Return a decorator that adds `--messages`, with this default, and `--size`."""
    how_many = click.option(
        "-c",
        "--messages",
        type=click.IntRange(min=1),
        metavar="N",
        default=messages,
        help=f"How many (default: {messages}).",
    )
    how_large = click.option(
        "--size",
        type=click.IntRange(min=min_size),
        metavar="N",
        default=100,
        help="Bytes of a message (default: 100).",
    )
    return lambda function: how_many(how_large(function))


@click.group("bench", cls=CommandGroup)
def bench() -> None:
    """Measure producing, consuming and latency."""


@command(
    "produce",
    group=bench,
    fields=THROUGHPUT_FIELDS,
    examples=[
        Example("A million messages", "aiokafka08 bench produce test -b kafka1:9092 -c 1000000")
    ],
)
@click.argument("topic", shell_complete=topic_names)
@_message_options(1_000_000, min_size=0)
@click.option(
    "-z",
    "--compression",
    type=click.Choice(("none", "gzip", "snappy", "lz4")),
    help="The codec (default: none, or compression.type).",
)
@click.option("--rate", metavar="BYTES", help="Send no more per second, such as 20MB/s.")
@connection_options
@format_option
def produce(
    settings: Settings,
    topic: str,
    messages: int,
    size: int,
    compression: str | None,
    rate: str | None,
    format: str | None,
) -> None:
    """Send random messages to TOPIC."""
    from aiokafka08._core.concurrency.rate import parse_rate
    from aiokafka08._tools.cli.connection import run
    from aiokafka08._tools.cli.moving.benchmark import measure_produce
    from aiokafka08._tools.cli.notes import note
    from aiokafka08._tools.cli.output import write_rows

    row = run(
        measure_produce(
            settings,
            topic,
            messages=messages,
            size=size,
            bytes_per_s=None if rate is None else parse_rate(rate),
            compression=compression,
        )
    )
    write_rows([row], THROUGHPUT_FIELDS, format)
    were = "message was" if messages == 1 else "messages were"
    note(f"{messages:,} {were} sent to topic {topic!r}, {settings.cluster}")


@command(
    "consume",
    group=bench,
    fields=THROUGHPUT_FIELDS,
    examples=[Example("A whole topic", "aiokafka08 bench consume test -b kafka1:9092")],
)
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True, shell_complete=topic_names)
@click.option(
    "-c", "--messages", type=click.IntRange(min=1), metavar="N", help="Stop after N messages."
)
@connection_options
@format_option
def consume(
    settings: Settings, topics: tuple[str, ...], messages: int | None, format: str | None
) -> None:
    """Read topics from their beginning to their present end, and drop what is read."""
    from aiokafka08._tools.cli.connection import run
    from aiokafka08._tools.cli.moving.benchmark import measure_consume
    from aiokafka08._tools.cli.output import write_rows

    row = run(measure_consume(settings, topics, messages=messages))
    write_rows([row], THROUGHPUT_FIELDS, format)


@command(
    "latency",
    group=bench,
    fields=LATENCY_FIELDS,
    examples=[
        Example("One message at a time", "aiokafka08 bench latency test -b kafka1:9092 -c 1000")
    ],
)
@click.argument("topic", shell_complete=topic_names)
@_message_options(1000, min_size=24)
@click.option(
    "-p",
    "--partition",
    type=click.IntRange(min=0),
    metavar="N",
    default=0,
    help="Where to (default: 0).",
)
@connection_options
@format_option
def latency(
    settings: Settings, topic: str, messages: int, size: int, partition: int, format: str | None
) -> None:
    """Send messages to TOPIC one after the other, and read each of them."""
    from aiokafka08._tools.cli.connection import run
    from aiokafka08._tools.cli.moving.benchmark import measure_latency
    from aiokafka08._tools.cli.notes import note
    from aiokafka08._tools.cli.output import write_rows

    rows = run(measure_latency(settings, topic, messages=messages, size=size, partition=partition))
    write_rows(rows, LATENCY_FIELDS, format)
    were = "message was" if messages == 1 else "messages were"
    note(f"{messages:,} {were} sent to topic {topic!r}, {settings.cluster}")
