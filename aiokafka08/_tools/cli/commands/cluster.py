"""`cluster`: run the embedded cluster, as `python -m aiokafka08.testing` does."""

from __future__ import annotations

from typing import Any, Final

import click

from aiokafka08._tools.cli.declare import Example, command
from aiokafka08._tools.cli.main import FAILED, fail

VERSIONS: Final = ("0.8.0", "0.8.1", "0.8.2", "0.9", "0.10")


@command(
    "cluster",
    examples=[
        Example(
            "Three brokers of 0.8.1 with a topic of four partitions",
            "aiokafka08 cluster --brokers 3 --version 0.8.1 --topic orders:4",
            until_interrupted=True,
        )
    ],
)
@click.option("--brokers", type=int, default=1, help="Number of brokers (default: 1).")
@click.option(
    "--version",
    type=click.Choice(VERSIONS),
    default="0.8.2",
    help="Release line of the brokers; groups need 0.9 or 0.10 (default: 0.8.2).",
)
@click.option(
    "--port",
    type=int,
    default=9092,
    help="Port of the first broker; 0: any free ones (default: 9092).",
)
@click.option("--host", default="127.0.0.1", help="Address to listen on (default: 127.0.0.1).")
@click.option(
    "--advertised-host", help="Host in the brokers' addresses for clients (default: --host)."
)
@click.option(
    "--advertised-port",
    type=int,
    help="Port in the first broker's address for clients; the others follow (default: --port).",
)
@click.option("--allow-remote", is_flag=True, help="Accept a --host that is not loopback.")
@click.option(
    "--topic",
    multiple=True,
    metavar="NAME[:PARTITIONS]",
    help="Create a topic at the start; may be repeated.",
)
@click.option("--no-auto-create", is_flag=True, help="Don't create the topics that clients name.")
@click.option(
    "--default-partitions",
    type=int,
    default=1,
    metavar="N",
    help="Partitions of auto-created topics (default: 1).",
)
@click.option(
    "--segment-bytes",
    type=int,
    default=128 << 20,
    metavar="N",
    help="Size of a log segment (default: 134217728).",
)
@click.option(
    "--retention-bytes",
    type=int,
    default=1 << 30,
    metavar="N",
    help="Bytes that a partition keeps; -1: all (default: 1073741824).",
)
@click.option(
    "--retention-ms",
    type=int,
    default=604_800_000,
    metavar="MS",
    help="How long a partition keeps messages; -1: for ever (default: 604800000).",
)
@click.option(
    "--max-buffered-bytes",
    type=int,
    default=512 << 20,
    metavar="N",
    help="Memory for requests and responses of all connections together; beyond it, those that hold"
    " the most are closed (default: 536870912).",
)
@click.option("--quiet", is_flag=True, help="Don't log connections.")
def cluster(**options: Any) -> int:
    """Run a Kafka cluster in memory.

    It behaves as one of 0.8 - 0.10, until Ctrl-C. For tests and first steps: what it holds is gone
    afterwards. Without authentication, it listens on loopback only.
    """
    from aiokafka08.testing.__main__ import UsageError, run

    try:
        return run(**options)
    except UsageError as error:
        raise click.UsageError(str(error)) from None
    except ValueError as error:
        return fail(str(error), FAILED)
