"""The options, and what can be checked before anything is installed, started or read.

This file needs only the standard library: `nox -s demo` runs it before it installs.

    python -m examples.demo.options --output demo.png --bootstrap localhost:9092
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

VERSIONS = ("0.8.0", "0.8.1", "0.8.2", "0.9", "0.10")
EMBEDDED = {"brokers": 3, "partitions": 4, "version": "0.8.2"}
"""Options of the embedded cluster and their defaults."""
DEFAULT_PORT = 9092
CONNECT_S = 5.0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.demo",
        description="Send the source of Python's standard library through Kafka line by line, kill "
        "a leader in the middle, read all back, verify it, aggregate it in Spark (if there is a "
        "Java), print the results and the speed of each stage, and draw them.",
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
    add(
        "--no-spark",
        action="store_true",
        help="leave Spark out; `nox -s demo` doesn't install it then",
    )
    cluster = parser.add_argument_group("the embedded cluster").add_argument
    cluster(
        "--brokers",
        type=_count,
        metavar="N",
        help=f"default: {EMBEDDED['brokers']}; a leader is killed if there is more than one",
    )
    cluster("--partitions", type=_count, metavar="N", help=f"default: {EMBEDDED['partitions']}")
    cluster("--version", choices=VERSIONS, help=f"default: {EMBEDDED['version']}")
    real = parser.add_argument_group("a real cluster instead").add_argument
    real("--bootstrap", metavar="HOST:PORT[,…]", help="some of its brokers; none is killed")
    real(
        "--topic",
        metavar="NAME",
        help="an empty topic; default: a new one, which is kept",
    )
    return parser


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the checked options.

    Raises:
        SystemExit: an argument is wrong, the picture can't be written, or no bootstrap address
            accepts connections; the reason is on stderr, or is the exception's.
    """
    options = parser().parse_args(arguments)
    real = options.bootstrap is not None
    for name, default in EMBEDDED.items():
        if getattr(options, name) is None:
            setattr(options, name, default)
        elif real:
            parser().error(f"--{name}: only for the embedded cluster, not with --bootstrap")
    if options.topic and not real:
        parser().error("--topic: needs --bootstrap; the embedded cluster has a topic of its own")
    _check_output(options.output)
    if real:
        _check_bootstrap(options.bootstrap)
    return options


def _check_output(path: Path) -> None:
    if path.suffix.lower() != ".png":
        raise SystemExit(f"error: --output {path}: expected a name that ends in .png")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SystemExit(f"error: --output {path}: {error}") from None
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise SystemExit(f"error: --output {path}: not writable")


def _check_bootstrap(servers: str) -> None:
    """Check that one of the addresses accepts connections."""
    reasons = []
    for server in servers.split(","):
        host, _, port = server.strip().rpartition(":")
        if not host:
            host, port = server.strip(), str(DEFAULT_PORT)
        if not port.isdecimal() or not 0 < int(port) < 65536:
            parser().error(f"--bootstrap {servers}: {server!r}: expected HOST:PORT")
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
        except OSError as error:
            reasons.append(f"{host}:{port}: {error.strerror or error}")
        else:
            return
    raise SystemExit(f"error: --bootstrap: no broker accepts connections: {'; '.join(reasons)}")


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected an integer >= 1")
    return int(text)


if __name__ == "__main__":
    parse(sys.argv[1:])
