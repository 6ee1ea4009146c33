"""`produce`: send messages from stdin or files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from aiokafka08._tools.cli.completing import topic_names
from aiokafka08._tools.cli.declare import Example, command, connection_options
from aiokafka08._tools.cli.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from aiokafka08._tools.cli.moving.producing import ProduceCounts


@command(
    "produce",
    examples=[
        Example(
            "Each line of stdin is a message", "echo tea | aiokafka08 produce orders -b kafka1:9092"
        ),
        Example(
            "Keys before a colon, an empty value is null",
            "printf 'k1:tea\\nk2:\\n' | aiokafka08 produce orders -b kafka1:9092 -K : -Z",
        ),
        Example(
            "Copy a topic of two partitions",
            "aiokafka08 topic create orders-copy --partitions 2 -b kafka1:9092 --zookeeper "
            "zk1:2181 && aiokafka08 consume orders -b kafka1:9092 --exit --format jsonl | "
            "aiokafka08 produce orders-copy -b kafka1:9092 --format jsonl --keep-partition",
        ),
    ],
)
@click.argument("topic", shell_complete=topic_names)
@click.argument(
    "files",
    metavar="[FILE]...",
    nargs=-1,
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
)
@click.option(
    "--format",
    type=click.Choice(("raw", "jsonl", "hex", "base64", "files")),
    default="raw",
    help="raw: bytes between delimiters; hex, base64: the same, encoded; jsonl: as consume writes; "
    "files: each FILE, or all of stdin, is a message (default: raw).",
)
@click.option(
    "-D", "--delimiter", default="\\n", metavar="TEXT", help="Between messages (default: \\n)."
)
@click.option("-K", "--key-delimiter", metavar="TEXT", help="Between key and value.")
@click.option("-Z", "--null", is_flag=True, help="Empty keys and values are null.")
@click.option("-k", "--key", metavar="TEXT", help="The key of messages that have none.")
@click.option(
    "-p",
    "--partition",
    type=click.IntRange(min=0),
    metavar="N",
    help="The partition of all messages.",
)
@click.option("--keep-partition", is_flag=True, help="jsonl: use the field partition.")
@click.option("--keep-timestamp", is_flag=True, help="jsonl: use the field timestamp.")
@click.option(
    "-z",
    "--compression",
    type=click.Choice(("none", "gzip", "snappy", "lz4")),
    help="The codec (default: none, or compression.type).",
)
@click.option(
    "-c", "--count", type=click.IntRange(min=1), metavar="N", help="Stop after N messages."
)
@click.option("-T", "--tee", is_flag=True, help="Write the values to stdout, too.")
@click.option(
    "-H",
    "--header",
    "headers",
    metavar="NAME=VALUE",
    multiple=True,
    help="A header of each message, with -X headers=embedded; may be repeated.",
)
@click.option("--rate", metavar="BYTES", help="Send no more per second, such as 20MB/s.")
@connection_options
def produce(
    settings: Settings,
    topic: str,
    files: tuple[str, ...],
    format: str,
    delimiter: str,
    key_delimiter: str | None,
    null: bool,
    key: str | None,
    partition: int | None,
    keep_partition: bool,
    keep_timestamp: bool,
    compression: str | None,
    count: int | None,
    tee: bool,
    headers: tuple[str, ...],
    rate: str | None,
) -> None:
    """Send messages from stdin or files.

    Each is sent as soon as it is complete. Delimiters may have several bytes, and the escapes
    \\n \\r \\t \\xNN. A message counts as sent when all in-sync replicas have it (-X acks=1: the
    leader; -X acks=0: when it is written to the connection). At the end, and after Ctrl-C, stderr
    says how many messages were acknowledged, and where, and if the brokers created the topic. If a
    broker closes a connection with acks=0, a note says how many messages may be lost, and the exit
    code is 0.

    A message that isn't acknowledged (with acks=0: written) within -X delivery.timeout.ms (default:
    120000; --timeout doesn't change it) ends the command with exit code 1.

    Message sets without compression have 16 KiB, or more on a slow link; -X batch.size=BYTES sets
    another size. Consumers read larger sets more slowly.
    """
    from aiokafka08._core.concurrency.rate import parse_rate
    from aiokafka08._tools.cli.connection import run
    from aiokafka08._tools.cli.moving.producing import ProduceJob, max_message_bytes
    from aiokafka08._tools.cli.moving.producing import produce as send
    from aiokafka08._tools.cli.notes import note
    from aiokafka08._tools.records.delimiters import unescape
    from aiokafka08._tools.records.formats import InputOptions
    from aiokafka08._tools.records.formats import key_delimiter as parse_key_delimiter
    from aiokafka08._tools.records.headers import parse_header
    from aiokafka08.errors import IllegalArgumentError

    if partition is not None and keep_partition:
        raise IllegalArgumentError("--partition with --keep-partition: expected one of them")
    job = ProduceJob(
        topic=topic,
        partition=partition,
        key=None if key is None else key.encode(errors="surrogateescape"),
        count=count,
        bytes_per_s=None if rate is None else parse_rate(rate),
        compression=compression,
        headers=[parse_header(header) for header in headers],
    )
    options = InputOptions(
        format=format,
        delimiter=unescape("--delimiter", delimiter),
        key_delimiter=parse_key_delimiter(key_delimiter),
        null=null,
        keep_partition=keep_partition,
        keep_timestamp=keep_timestamp,
        max_bytes=max_message_bytes(settings),
    )
    sending = send(settings, job, files, options, tee=tee, note=note)
    counts = run(_with_similar(settings, topic, sending), end_with_stdout=tee)
    number = counts.acknowledged
    were = "message was" if number == 1 else "messages were"
    note(f"{number} {were} {counts.done}: topic {topic!r}, {settings.cluster}")


async def _with_similar(
    settings: Settings, topic: str, sending: Coroutine[Any, Any, ProduceCounts]
) -> ProduceCounts:
    """Await the messages' delivery; add similar names to an error about the topic."""
    from aiokafka08._tools.cli.connection import admin_client
    from aiokafka08._tools.similar_names import similar_topics
    from aiokafka08.errors import UnknownTopicOrPartitionError

    try:
        return await sending
    except UnknownTopicOrPartitionError as error:
        async with admin_client(settings) as admin:
            error.args = (f"{error.text}{await similar_topics(admin, [topic])}",)
        raise
