"""`python -m aiokafka08.testing`: run an embedded cluster as a process of its own.

Invariant: without `--allow-remote` the cluster listens on loopback only, because it has no
authentication.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ipaddress
import logging
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from aiokafka08._core.garbage import short_holds
from aiokafka08.testing.broker_lines import LINES
from aiokafka08.testing.cluster import EmbeddedCluster
from aiokafka08.testing.runtime import DEFAULT_MAX_BUFFERED_BYTES
from aiokafka08.testing.state import WEEK_MS

_log: Final = logging.getLogger("aiokafka08.testing")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m aiokafka08.testing",
        description="Run a Kafka cluster of 0.8 - 0.10 in memory, for tests and first steps.",
    )
    add = parser.add_argument
    add("--brokers", type=int, default=1, help="number of brokers (default: %(default)s)")
    add(
        "--version",
        choices=list(LINES),
        default="0.8.2",
        help="broker line; groups need 0.9 or 0.10 (default: %(default)s)",
    )
    add("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    add(
        "--port",
        type=int,
        default=9092,
        help="port of the first broker; 0: any free ones (default: %(default)s)",
    )
    add("--advertised-host", help="host that Metadata names to clients (default: --host)")
    add(
        "--advertised-port",
        type=int,
        metavar="PORT",
        help="port of the first broker in Metadata; the next ones follow (default: --port)",
    )
    add("--allow-remote", action="store_true", help="accept a --host that is not loopback")
    add(
        "--topic",
        action="append",
        default=[],
        metavar="NAME[:PARTITIONS]",
        help="create a topic at the start; may be repeated",
    )
    add("--no-auto-create", action="store_true", help="don't create the topics that clients name")
    add(
        "--default-partitions",
        type=int,
        default=1,
        metavar="N",
        help="partitions of auto-created topics (default: %(default)s)",
    )
    add(
        "--segment-bytes",
        type=int,
        default=128 << 20,
        metavar="N",
        help="size of a log segment (default: %(default)s)",
    )
    add(
        "--retention-bytes",
        type=int,
        default=1 << 30,
        metavar="N",
        help="bytes that a partition keeps; -1: all (default: %(default)s)",
    )
    add(
        "--retention-ms",
        type=int,
        default=WEEK_MS,
        metavar="MS",
        help="how long a partition keeps messages; -1: for ever (default: %(default)s)",
    )
    add(
        "--max-buffered-bytes",
        type=int,
        default=DEFAULT_MAX_BUFFERED_BYTES,
        metavar="N",
        help="memory for requests and responses of all connections together; beyond it, those that"
        " hold the most are closed (default: %(default)s)",
    )
    add("--quiet", action="store_true", help="don't log connections")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cluster until a signal comes; return the exit code."""
    options = parser().parse_args(arguments)
    try:
        return run(**vars(options))
    except UsageError as error:
        parser().error(str(error))
    except (OSError, ValueError) as error:
        _log.error("%s", error)
        return 1


class UsageError(ValueError):
    """Options contradict each other, or one can't be parsed."""


def run(
    *,
    brokers: int,
    version: str,
    host: str,
    port: int,
    advertised_host: str | None,
    advertised_port: int | None,
    allow_remote: bool,
    topic: Sequence[str],
    no_auto_create: bool,
    default_partitions: int,
    segment_bytes: int,
    retention_bytes: int,
    retention_ms: int,
    max_buffered_bytes: int,
    quiet: bool,
) -> int:
    """Run a cluster with these options until a signal comes; return the exit code.

    The options are those of `parser()`; the command line of `aiokafka08` has the same.

    Raises:
        UsageError: the options can't be used.
        OSError: a broker can't listen at its address.
        ValueError: the cluster refuses an option.
    """
    if not (allow_remote or _is_loopback(host)):
        raise UsageError(
            f"--host {host}: expected a loopback address, since there is no "
            "authentication. Use --allow-remote to listen there all the same"
        )
    if host in ("0.0.0.0", "::") and not advertised_host:
        raise UsageError(
            f"--host {host}: clients can't connect to this address. Set --advertised-host"
        )
    topics = {}
    for value in topic:
        name, _, partitions = value.partition(":")
        if partitions and not (partitions.isdecimal() and int(partitions)):
            raise UsageError(f"--topic {value}: expected NAME or NAME:PARTITIONS, such as orders:4")
        topics[name] = int(partitions or default_partitions)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    if quiet:
        logging.getLogger("aiokafka08.testing.server").setLevel(logging.WARNING)
    try:
        cluster = EmbeddedCluster(
            brokers,
            version,
            topics,
            auto_create=not no_auto_create,
            default_partitions=default_partitions,
            segment_bytes=segment_bytes,
            retention_bytes=None if retention_bytes < 0 else retention_bytes,
            retention_ms=None if retention_ms < 0 else retention_ms,
            max_buffered_bytes=max_buffered_bytes,
            host=host,
            port=port,
            advertised_host=advertised_host,
            advertised_port=advertised_port,
        )
        _runner()(_serve(cluster))
    except KeyboardInterrupt:
        return 130
    return 0


def _runner() -> Callable[[Coroutine[Any, Any, None]], None]:
    try:
        from uvloop import run  # faster than asyncio's loop
    except ImportError:  # also if a mere folder has the name uvloop
        return asyncio.run
    return run


async def _serve(cluster: EmbeddedCluster) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C raises instead
            loop.add_signal_handler(number, ended.set)
    async with cluster:
        _log.info("Kafka %s in memory on %s", cluster.version, cluster.bootstrap_servers)
        if cluster.version.startswith("0.8"):
            _log.info("for groups: --version 0.10")
        with short_holds():
            await ended.wait()
        _log.info("stopping")


def _is_loopback(host: str) -> bool:
    try:
        addresses = socket.getaddrinfo(host, None)
    except OSError:
        return False
    return all(ipaddress.ip_address(address[4][0]).is_loopback for address in addresses)


if __name__ == "__main__":
    sys.exit(main())
