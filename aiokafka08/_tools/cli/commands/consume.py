"""`consume`: read records and write them to stdout."""

from __future__ import annotations

import time
from typing import Final

import click

from aiokafka08._tools.cli.completing import group_names, topic_names
from aiokafka08._tools.cli.declare import Example, command, connection_options
from aiokafka08._tools.cli.main import INTERRUPTED
from aiokafka08._tools.cli.settings import Settings

FIELDS: Final = {
    "topic": "the topic",
    "partition": "the partition's number",
    "offset": "the record's offset",
    "timestamp": "milliseconds since the epoch; null in message format 0 (below 0.10)",
    "timestamp_type": "its type: 0 CreateTime, 1 LogAppendTime; null without a timestamp",
    "key": 'a string, null, or {"base64": "..."} if it isn\'t UTF-8',
    "value": "as key",
    "headers": "pairs of name and value; only with -X headers=embedded",
}


@command(
    "consume",
    fields=FIELDS,
    examples=[
        Example(
            "The whole topic, then follow it",
            "aiokafka08 consume orders -b kafka1:9092",
            code=INTERRUPTED,
            until_interrupted=True,
        ),
        Example(
            "The last 10 records of partition 0, with their keys",
            "aiokafka08 consume orders -b kafka1:9092 -p 0 --from -10 --exit -K ' '",
        ),
        Example(
            "Find an order, and show where it is",
            "aiokafka08 consume orders -b kafka1:9092 --exit --grep 'order-0*17\\b' "
            "-f '%p/%o %k: %s\\n'",
        ),
        Example(
            "The records of the last hour, in a form of your own (%d is -1 below 0.10)",
            "aiokafka08 consume orders -b kafka1:9092 --from -1h --exit "
            "-f '%d{strftime[%F %T]} %p/%o %k: %s\\n'",
        ),
    ],
)
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True, shell_complete=topic_names)
@click.option(
    "-p",
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    metavar="N",
    multiple=True,
    help="Read this partition only; may be repeated (default: all).",
)
@click.option(
    "-o",
    "--from",
    "starts",
    metavar="POSITION",
    multiple=True,
    help="Where to begin: beginning, end, stored, an offset N, -N (before the end), +N (after the "
    "beginning), N:M, a time (2026-01-31T12:00Z, -1h, @ and milliseconds), or "
    "PARTITION=POSITION; may be repeated (default: beginning).",
)
@click.option(
    "--to",
    "ends",
    metavar="POSITION",
    multiple=True,
    help="Where to stop, before this position; as --from. A time needs a broker from 0.10.1 on.",
)
@click.option(
    "-e/ ",
    "--exit/--follow",
    "exit_at_end",
    default=False,
    help="Stop at the end that the topic has now, or wait for more (default: --follow).",
)
@click.option(
    "-c", "--count", type=click.IntRange(min=1), metavar="N", help="Stop after N records."
)
@click.option(
    "--grep",
    metavar="REGEX",
    help="Write only records whose value matches this.",
)
@click.option(
    "--key",
    metavar="KEY",
    help="Write only records with this key; a KEY that begins with ^ is a regular expression.",
)
@click.option(
    "--field",
    "fields",
    metavar="PATH=VALUE",
    multiple=True,
    help="Write only records whose value is JSON with this field, such as order.items[0].id=17; "
    "may be repeated.",
)
@click.option(
    "--header",
    "headers",
    metavar="NAME=VALUE",
    multiple=True,
    help="Write only records with this embedded header; may be repeated.",
)
@click.option(
    "-g",
    "--group",
    metavar="NAME",
    shell_complete=group_names,
    help="Read as a member of this group, from its offsets or --from, and commit. Below 0.9 "
    "with --zookeeper.",
)
@click.option(
    "--format",
    type=click.Choice(("raw", "jsonl", "hex", "base64", "files")),
    help="raw: the bytes of the values; hex, base64: the same, encoded; jsonl: an object a line; "
    "files: a file each (default: raw).",
)
@click.option(
    "-f",
    "--template",
    metavar="TEXT",
    help="Write each record as this text. %s or %v value, %k key, %t topic, %p partition, %o "
    "offset, %T timestamp in ms, %S and %K sizes, %R size in 4 bytes, %%; %v{base64}, %v{hex}, "
    "%v{unpack[...]}, %d{strftime[...]}, %o{big64}; %h headers, with -X headers=embedded.",
)
@click.option(
    "-D", "--delimiter", default="\\n", metavar="TEXT", help="After each value (default: \\n)."
)
@click.option(
    "-K", "--key-delimiter", metavar="TEXT", help="Write the key and TEXT before each value."
)
@click.option("-Z", "--null", is_flag=True, help="Write NULL for null.")
@click.option(
    "-s",
    "--deserialize",
    "serdes",
    metavar="[key=|value=]SERDES",
    multiple=True,
    help="Turn keys and values into text: a pack string of < > b B h H i I q Q c s $, or avro.",
)
@click.option("-r", "--registry", metavar="URL", help="The schema registry, for -s avro.")
@click.option("--directory", metavar="DIR", help="Where --format files writes.")
@click.option("--rate", metavar="BYTES", help="Read no more per second, such as 20MB/s.")
@connection_options
def consume(
    settings: Settings,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    starts: tuple[str, ...],
    ends: tuple[str, ...],
    exit_at_end: bool,
    count: int | None,
    grep: str | None,
    key: str | None,
    fields: tuple[str, ...],
    headers: tuple[str, ...],
    group: str | None,
    format: str | None,
    template: str | None,
    delimiter: str,
    key_delimiter: str | None,
    null: bool,
    serdes: tuple[str, ...],
    registry: str | None,
    directory: str | None,
    rate: str | None,
) -> None:
    """Write the records of topics to stdout.

    A TOPIC that begins with ^ is a regular expression. --follow goes on after an outage, which a
    line on stderr reports. Delimiters and templates have the escapes
    \\n \\r \\t \\xNN. The fields are those of --format jsonl. With
    -X headers=embedded headers are read out of the values ('Headers on old brokers' in the
    documentation).

    --grep and --key compare the bytes that were sent with the UTF-8 of the option. Null matches
    nothing; a REGEX that begins with (?i) ignores case. --field and --header compare texts, and
    numbers with the digits that were sent; a VALUE that begins with ^ is a regular expression, and
    without =VALUE any will do. A PATH names fields of objects (order.id), and elements of arrays
    (items[0]; without a number, any). All conditions have to be met. --count counts the written
    records; --group commits what the reader of stdout has taken.
    """
    from aiokafka08._core.concurrency.rate import parse_rate
    from aiokafka08._tools.cli.connection import run
    from aiokafka08._tools.cli.moving.consuming import ConsumeJob
    from aiokafka08._tools.cli.moving.consuming import consume as read
    from aiokafka08._tools.cli.moving.pipes import open_stdout
    from aiokafka08._tools.cli.notes import note, noted_end
    from aiokafka08._tools.reading.positions import PositionKind, parse_bounds
    from aiokafka08._tools.records.delimiters import unescape
    from aiokafka08._tools.records.formats import OutputOptions, parse_serdes, record_encoder
    from aiokafka08._tools.records.formats import key_delimiter as parse_key_delimiter
    from aiokafka08._tools.records.selection import RecordFilter
    from aiokafka08.errors import IllegalArgumentError

    start, end = parse_bounds(starts, ends, now_ms=int(time.time() * 1000))
    if group is None and start.has(PositionKind.STORED):
        raise IllegalArgumentError("--from=stored: expected --group too")
    if group is not None and partitions:
        raise IllegalArgumentError(
            "--partition with --group: the group assigns the partitions; expected one of them"
        )
    if template is not None and format not in (None, "raw"):
        raise IllegalArgumentError(f"--template with --format {format}: expected one of them")
    is_filtered = not (grep is None and key is None) or bool(fields or headers)
    job = ConsumeJob(
        topics=topics,
        partitions=partitions,
        start=start,
        end=end,
        exit_at_end=exit_at_end,
        count=count,
        only=RecordFilter(key, grep, fields, headers) if is_filtered else None,
        group=group,
        bytes_per_s=None if rate is None else parse_rate(rate),
    )
    options = OutputOptions(
        format=format or "raw",
        template=template,
        delimiter=unescape("--delimiter", delimiter),
        key_delimiter=parse_key_delimiter(key_delimiter),
        null=null,
        directory=directory,
        serdes=parse_serdes("--deserialize", serdes, registry),
        headers=settings.headers == "embedded",
    )
    encoder = record_encoder(options)
    output = open_stdout(enlarge=group is None)
    commits: list[int] = []
    reading = read(
        settings, job, lambda broker_of: encoder, output, note=note, on_commit=commits.append
    )
    if group is None:
        run(reading, end_with_stdout=True)
        return
    # Say that the group's offsets were committed: reading changes nothing else.
    moved = f"group {group!r} has committed what was written, {settings.cluster}"
    try:
        with noted_end(group, note, commits, "--count 1"):
            run(reading, end_with_stdout=True)
    except KeyboardInterrupt:
        is_taken = output.taken_bytes() == output.written_bytes
        note(moved if is_taken else f"{moved}, but for what wasn't read from stdout")
        raise
    note(moved)
