"""The command: the order of the stages, and how a run ends."""

from __future__ import annotations

import argparse
import contextlib
import functools
import logging
import platform
import secrets
import time
from collections.abc import Callable, Iterator, Sequence

from rich.console import Console

from aiokafka08.errors import KafkaError
from examples.demo.aggregate import aggregate
from examples.demo.cluster import embedded
from examples.demo.ingest import ingest
from examples.demo.input import Input, library, read_module, source_files
from examples.demo.operate import operate
from examples.demo.options import parse
from examples.demo.report import print_report
from examples.demo.run import DemoError, Killed, Run, Stage, on_loop
from examples.demo.topic import prepare
from examples.demo.verify import verify

STAGES: Sequence[Stage] = (ingest, verify, aggregate)
"""The stages in their order, over the same topic."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and return the exit code; an error is one line on stderr.

    Raises:
        KeyboardInterrupt: Ctrl-C; everything that the demo started has ended.
        SystemExit: the arguments are wrong.
    """
    options = parse(arguments)
    # What the client logs below it is retried, or raised: then the demo prints the exception.
    logging.getLogger("aiokafka08").setLevel(logging.ERROR)
    console = _console()
    try:
        _demo(options, console)
    except (DemoError, KafkaError, OSError) as error:
        _console(stderr=True).print(f"error: {error}")
        return 1
    return 0


def _demo(options: argparse.Namespace, console: Console) -> None:
    topic = options.topic or "demo"
    if options.bootstrap and not options.topic:
        topic = f"demo-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
    with _cluster(options, topic) as (bootstrap, kill_leader):
        partitions = on_loop(prepare(bootstrap, topic))
        where = options.bootstrap or f"an embedded Kafka {options.version}"
        console.print(
            f"topic {topic}, {partitions} partitions, on {bootstrap}"
            + ("" if options.bootstrap else f": {where} in a process of its own")
        )
        lines = _read_input(options.messages, console)
        codec = None if options.codec == "none" else options.codec
        run = Run(bootstrap, topic, codec, lines, console, options.no_spark, kill_leader)
        for stage in STAGES:
            run.speeds.extend(stage(run))
        print_report(run)
        from examples.demo.picture import draw  # importing matplotlib takes a second

        draw(run, where, options.output)
        console.print(f"picture: {options.output.resolve()}")
        group = operate(run)
    if options.bootstrap and not options.topic:
        console.print(f"topic {topic} stays on the brokers: see aiokafka08 topic delete")
    if options.bootstrap and group is not None:
        console.print(f"the offsets of group {group} stay there: see aiokafka08 group delete")


@contextlib.contextmanager
def _cluster(
    options: argparse.Namespace, topic: str
) -> Iterator[tuple[str, Callable[[], Killed] | None]]:
    """Yield the bootstrap servers, and what kills a leader if the cluster has another broker."""
    if options.bootstrap is not None:
        yield options.bootstrap, None
        return
    with embedded(options.brokers, options.version, {topic: options.partitions}) as cluster:
        kill = functools.partial(cluster.kill_leader, topic) if options.brokers > 1 else None
        yield cluster.bootstrap, kill


def _read_input(messages: int | None, console: Console) -> Input:
    folder = library()
    files = source_files(folder)
    try:
        found = Input([read_module(folder, path) for path in files], messages)
    except ValueError:
        raise DemoError(f"input failed: {folder} has no Python source") from None
    console.print(
        f"{found.lines:,} lines in {len(files):,} files of Python {platform.python_version()}'s "
        f"standard library"
    )
    if found.rounds > 1:
        console.print(
            f"for {found.messages:,} messages they are sent in {found.rounds} rounds, with the "
            "round in the key"
        )
    return found


def _console(*, stderr: bool = False) -> Console:
    """Return a console that breaks lines between words on a terminal, and elsewhere nowhere."""
    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    console.soft_wrap = not console.is_terminal
    return console
