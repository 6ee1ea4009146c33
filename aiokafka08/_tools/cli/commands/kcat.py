"""`kcat`: accept kcat's flags, so that scripts for kcat run on brokers that kcat can't read."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from aiokafka08._tools.cli.declare import DeclaredCommand, Example, command, log_to_stderr

if TYPE_CHECKING:
    from aiokafka08._tools.cli.kcat.options import KcatOptions
    from aiokafka08._tools.cli.settings import Settings
    from aiokafka08.structs import TopicPartition

_HELP: Final = """\
Modes: -P produce, -C consume, -G GROUP TOPIC... consume in a group, -L list metadata,
-Q offsets by time (-t TOPIC:PARTITION:MS). Without one: -P if stdin isn't a terminal, else -C.
All:     -b BROKERS  -t TOPIC  -p PARTITION  -X NAME=VALUE|list|dump  -F FILE  -m SECONDS  -q  -v
         -D DELIMITER  -K KEY_DELIMITER  -c COUNT
         (-D and -K have no effect beside -f, nor has -K beside -J, as in kcat; a note says so)
Produce: -k KEY  -z CODEC  -l FILE (a message a line)  FILE... (a message each)  -T  -Z
         -H NAME=VALUE (with -X headers=embedded; may be repeated)
Consume: -o beginning|end|stored|N|-N|s@MS|e@MS  -e  -f TEMPLATE  -J  -s SERDES  -r URL  -Z
Headers: -X headers=embedded has them inside values: -H writes, %h and -J show them.
Without effect: -u (output is never held back), -E, -O. Refused: -M.
"""


class KcatCommand(DeclaredCommand):
    """A command that gets its arguments as they are, since kcat's flags aren't click's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take all arguments, except a leading `--help`."""
        if args[:1] == ["--help"]:
            return super().parse_args(ctx, args)
        ctx.params["arguments"] = tuple(args)
        return []


@command(
    "kcat",
    cls=KcatCommand,
    examples=[
        Example("Produce", "echo tea | aiokafka08 kcat -P -b kafka1:9092 -t orders"),
        Example("Consume, as JSON", "aiokafka08 kcat -C -b kafka1:9092 -t orders -e -J"),
    ],
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def kcat(arguments: tuple[str, ...]) -> int:
    """Run with kcat's one-letter flags.

    kcat -h lists them. kcat's configuration is read too: -F, the variable KCAT_CONFIG,
    ~/.config/kcat.conf. Exit codes are those of aiokafka08.

    As in kcat 1.7.1, -D and -K have no effect beside -f, nor has -K beside -J; here a note on
    stderr says so. -r without -s avro is an error. -X dump prints the settings by librdkafka's
    names.
    """
    from aiokafka08._tools.cli.connection import run
    from aiokafka08._tools.cli.kcat.options import parse_kcat
    from aiokafka08._tools.cli.notes import noted_end
    from aiokafka08._tools.cli.output import write_text
    from aiokafka08._tools.cli.settings import SETTABLE

    options = parse_kcat(arguments)
    log_to_stderr("error" if options.verbosity < 3 else "debug")
    if options.show in ("help", "version"):
        import aiokafka08

        text = _HELP if options.show == "help" else f"aiokafka08 {aiokafka08.__version__}\n"
        write_text(text, flush=True)
        return 0
    if options.show == "list":
        write_text("".join(f"{name}\n" for name in sorted(SETTABLE)), flush=True)
        return 0
    settings = kcat_settings(options)
    if options.show == "dump":
        write_text(_dump(settings), flush=True)
        return 0
    mode = options.mode
    if not mode:
        mode = "C" if sys.stdin is not None and sys.stdin.isatty() else "P"
        kind = "Consumer" if mode == "C" else "Producer"
        _say(options, f"Auto-selecting {kind} mode (use -P or -C to override)")
    commits: list[int] = []
    consume = partial(_consume, commits=commits)
    works: dict[str, Callable[[Settings, KcatOptions], Coroutine[Any, Any, None]]] = {
        "P": _produce,
        "C": consume,
        "G": consume,
        "L": _list,
        "Q": _query,
    }
    with noted_end(options.group, partial(_say, options), commits, "-c 1"):
        run(works[mode](settings, options), end_with_stdout=mode != "P" or options.tee)
    return 0


def kcat_settings(options: KcatOptions) -> Settings:
    """Merge the flags with the environment and kcat's configuration file.

    Raises:
        IllegalArgumentError: a property or the file is wrong.
    """
    from aiokafka08._tools.cli.configuration import file_sources
    from aiokafka08._tools.cli.settings import Source, environment_source, flag_source, settings

    path = options.config
    if path is None:
        default = Path.home() / ".config" / "kcat.conf"
        path = os.environ.get("KCAT_CONFIG") or (str(default) if default.is_file() else None)
    files = [] if path in (None, "-", "none") else file_sources(path, None)
    flags = flag_source(options.brokers, None, options.properties, None)
    start = {"start.timeout.ms": str(round(options.timeout_s * 1000))}
    return settings(
        [
            Source("default of kcat -m", start),
            *files,
            environment_source(os.environ),
            flags,
        ]
    )


def _say(options: KcatOptions, text: str) -> None:
    """Print a line for the user as kcat does, unless -q is given."""
    from aiokafka08._tools.cli.notes import note

    if options.verbosity:
        note(text, prefix="% ")


def _dump(settings: Settings) -> str:
    """Return the settings by librdkafka's names, as kcat prints its own; without secrets."""
    from aiokafka08._tools.cli.settings import property_values

    values = property_values(settings)
    return "".join(f"{name} = {value}\n" for name, value in sorted(values.items()))


async def _produce(settings: Settings, options: KcatOptions) -> None:
    from dataclasses import replace

    from aiokafka08._tools.cli.kcat.partitioner import ConsistentRandomPartitioner
    from aiokafka08._tools.cli.moving.producing import ProduceJob, max_message_bytes, produce
    from aiokafka08._tools.cli.notes import note
    from aiokafka08._tools.records.formats import InputOptions
    from aiokafka08._tools.records.headers import parse_header

    assert options.topic is not None
    job = ProduceJob(
        topic=options.topic,
        partition=options.partition,
        key=options.key,
        count=options.count,
        compression=options.compression,
        headers=[parse_header(header) for header in options.headers],
    )
    is_delimited = options.one_file or not options.names
    reading = InputOptions(
        format="raw" if is_delimited else "files",
        delimiter=options.delimiter,
        key_delimiter=options.key_delimiter,
        null=options.null,
        is_kcat=True,
        max_bytes=max_message_bytes(settings),
    )
    if options.key is not None or options.key_delimiter is not None:
        own = {"partitioner": ConsistentRandomPartitioner, **settings.producer}
        settings = replace(settings, producer=own)
    await produce(settings, job, options.names, reading, tee=options.tee, note=note)


async def _consume(settings: Settings, options: KcatOptions, commits: list[int]) -> None:
    import time

    from aiokafka08._tools.cli.moving.consuming import ConsumeJob, consume
    from aiokafka08._tools.cli.moving.pipes import open_stdout
    from aiokafka08._tools.cli.notes import note
    from aiokafka08._tools.reading.positions import parse_bounds
    from aiokafka08._tools.records.formats import kcat_encoder

    start, end = parse_bounds(
        [options.start] if options.start is not None else [],
        [options.stop] if options.stop is not None else [],
        now_ms=int(time.time() * 1000),
    )
    topics = options.names or [options.topic or ""]
    job = ConsumeJob(
        topics=topics,
        partitions=() if options.partition is None else (options.partition,),
        start=start,
        end=end,
        exit_at_end=options.exit_at_end,
        count=options.count,
        group=options.group,
        reset=settings.consumer.get("auto_offset_reset", "latest"),
        text_options="-J",
        zookeeper_option="-X zookeeper.connect=host:2181/chroot",
        start_options=lambda tp, offset: f"-C -t {tp.topic} -p {tp.partition} -o {offset}",
    )
    if options.ignored:
        beside = "-J" if options.json else "-f"
        _say(options, f"No effect beside {beside}: {' and '.join(options.ignored)}")

    def at_end(tp: TopicPartition, offset: int) -> None:
        _say(options, f"Reached end of topic {tp.topic} [{tp.partition}] at offset {offset}")

    await consume(
        settings,
        job,
        kcat_encoder(
            json=options.json,
            template=options.template,
            delimiter=options.delimiter,
            key_delimiter=options.key_delimiter,
            null=options.null,
            serdes=options.serdes,
            registry=options.registry,
        ),
        open_stdout(enlarge=options.group is None),
        note=note,
        on_end=at_end,
        on_commit=commits.append,
    )


async def _list(settings: Settings, options: KcatOptions) -> None:
    from aiokafka08._tools.cli.connection import range_router
    from aiokafka08._tools.cli.kcat.listing import kcat_json, kcat_text
    from aiokafka08._tools.cli.output import write_text
    from aiokafka08._tools.reading.read_plan import select_topics

    async with range_router(settings) as router:
        snapshot = await router.metadata.refresh()
    topics = sorted(snapshot.topics)
    if options.topic is not None:
        topics = select_topics([options.topic], snapshot)
    show = kcat_json if options.json else kcat_text
    write_text(show(snapshot, topics, options.topic, settings.bootstrap_servers), flush=True)


async def _query(settings: Settings, options: KcatOptions) -> None:
    """Print the offset of each time, or -1, as kcat does, if all messages are older."""
    from aiokafka08._tools.cli.connection import range_router
    from aiokafka08._tools.cli.notes import note
    from aiokafka08._tools.cli.output import write_text
    from aiokafka08._tools.reading.read_plan import offsets_at, select_partitions, select_topics

    async with range_router(settings) as router:
        snapshot = await router.metadata.refresh()
        times = {}
        for topic, partition, timestamp_ms in options.queries:
            select_topics([topic], snapshot)
            (tp,) = select_partitions([topic], [partition], snapshot)
            times[tp] = timestamp_ms
        offsets = await offsets_at(router, times, note=note)
    if options.json:
        import json

        listed: dict[str, dict[str, object]] = {}
        for tp, offset in offsets.items():
            entry = listed.setdefault(tp.topic, {"topic": tp.topic})
            entry[str(tp.partition)] = {"partition": tp.partition, "offset": offset}
        text = json.dumps(listed, separators=(",", ":"))
    else:
        text = "".join(f"{tp.topic} [{tp.partition}] offset {at}\n" for tp, at in offsets.items())
    write_text(text, flush=True)
