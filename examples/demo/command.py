"""The command line: the options, the order of the stages, and how a run ends."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import platform
import secrets
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from aiokafka08.errors import KafkaError
from aiokafka08.testing import LINES
from examples.demo.aggregate import aggregate
from examples.demo.cluster import embedded
from examples.demo.ingest import ingest
from examples.demo.input import Input, library, read_module, source_files
from examples.demo.picture import draw
from examples.demo.progress import Meter
from examples.demo.report import print_report
from examples.demo.run import DemoError, Run, Speed, Stage, on_loop
from examples.demo.topic import prepare
from examples.demo.verify import verify

STAGES: Sequence[Stage] = (ingest, verify, aggregate)
"""The stages in their order, over the same topic."""

EMBEDDED = {"brokers": 1, "partitions": 4, "version": "0.8.2"}
"""Options of the embedded cluster and their defaults."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.demo",
        description="Send the source of Python's standard library through Kafka line by line, "
        "read it back, verify it, aggregate it in Spark (if there is a Java), and print the "
        "results and the speed of each stage.",
    )
    add = parser.add_argument
    add("--messages", type=_count, metavar="N", help="default: every line, and at least 500,000")
    add(
        "--codec",
        choices=["none", "gzip", "snappy", "lz4"],
        default="snappy",
        help="default: %(default)s",
    )
    add(
        "--output",
        type=Path,
        default=Path("build/demo.png"),
        metavar="PNG",
        help="default: %(default)s",
    )
    cluster = parser.add_argument_group("the embedded cluster").add_argument
    cluster("--brokers", type=_count, metavar="N", help=f"default: {EMBEDDED['brokers']}")
    cluster("--partitions", type=_count, metavar="N", help=f"default: {EMBEDDED['partitions']}")
    cluster("--version", choices=list(LINES), help=f"default: {EMBEDDED['version']}")
    real = parser.add_argument_group("a real cluster instead").add_argument
    real("--bootstrap", metavar="HOST:PORT[,…]", help="some of its brokers")
    real(
        "--topic",
        metavar="NAME",
        help="an empty topic; default: a new one, which is kept",
    )
    return parser


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and return the exit code; an error is one line on stderr.

    Raises:
        KeyboardInterrupt: Ctrl-C; everything that the demo started has ended.
        SystemExit: the arguments are wrong.
    """
    options = _options(arguments)
    # The client logs what it raises; the demo prints the exception only.
    logging.getLogger("aiokafka08").setLevel(logging.CRITICAL)
    console = _console()
    try:
        _prepare_output(options.output)
        _demo(options, console)
    except (DemoError, KafkaError, OSError) as error:
        _console(stderr=True).print(f"error: {error}")
        return 1
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    options = parser().parse_args(arguments)
    real = options.bootstrap is not None
    for name, default in EMBEDDED.items():
        if getattr(options, name) is None:
            setattr(options, name, default)
        elif real:
            parser().error(f"--{name}: only for the embedded cluster, not with --bootstrap")
    if options.topic and not real:
        parser().error("--topic: needs --bootstrap; the embedded cluster has a topic of its own")
    return options


def _demo(options: argparse.Namespace, console: Console) -> None:
    lines, reading = _read_input(options.messages, console)
    topic = options.topic or f"demo-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
    with _cluster(options, topic) as bootstrap:
        partitions = on_loop(prepare(bootstrap, topic))
        kind = (
            ""
            if options.bootstrap
            else f", embedded Kafka {options.version} in a process of its own"
        )
        console.print(f"topic {topic}, {partitions} partitions, on {bootstrap}{kind}")
        codec = None if options.codec == "none" else options.codec
        run = Run(bootstrap, topic, codec, lines, console, speeds=[reading])
        for stage in STAGES:
            run.speeds.extend(stage(run))
    print_report(run)
    where = options.bootstrap or f"an embedded Kafka {options.version}"
    draw(run, where, options.output)
    console.print(f"picture: {options.output.resolve()}")
    if options.bootstrap and not options.topic:
        console.print(f"topic {topic} stays on the brokers")


def _cluster(options: argparse.Namespace, topic: str) -> contextlib.AbstractContextManager[str]:
    if options.bootstrap is not None:
        return contextlib.nullcontext(options.bootstrap)
    return embedded(options.brokers, options.version, {topic: options.partitions})


def _read_input(messages: int | None, console: Console) -> tuple[Input, Speed]:
    folder = library()
    files = source_files(folder)
    with Meter(console, "read the library", len(files), "files") as meter:
        modules = []
        for path in files:
            modules.append(read_module(folder, path))
            meter.advance(1)
        try:
            found = Input(modules, messages)
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
    return found, Speed("read the library", found.lines, found.size_bytes, meter.seconds)


def _prepare_output(path: Path) -> None:
    """Check before the work that the picture can be written."""
    if path.suffix.lower() != ".png":
        raise DemoError(f"--output {path}: expected a name that ends in .png")
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise DemoError(f"--output {path}: not writable")


def _console(*, stderr: bool = False) -> Console:
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=True)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected an integer >= 1")
    return int(text)
