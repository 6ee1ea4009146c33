"""`gateway`: let old clients use a cluster of today.

The package `gateway` does it; this module reads the options and waits for the end.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from aiokafka08._tools.cli.declare import LOG_LEVELS, Example, command, log_to_stderr
from aiokafka08._tools.cli.main import DONE
from aiokafka08._tools.cli.notes import note
from aiokafka08._tools.cli.signals import Terminated
from aiokafka08.errors import KafkaConfigurationError

if TYPE_CHECKING:
    from aiokafka08._core.metrics.endpoint import MetricsEndpoint
    from aiokafka08._tools.gateway.gateway import Gateway


@command(
    "gateway",
    examples=[
        Example(
            "For clients on this machine",
            "aiokafka08 gateway --to kafka4-1:9092",
            until_interrupted=True,
        ),
        Example(
            "For the clients of a network, on ports that stay the same",
            "aiokafka08 gateway --listen 10.0.0.5:9092 --to kafka4-1:9092,kafka4-2:9092 "
            "--allow 10.0.0.0/24 --state listeners.json",
            until_interrupted=True,
        ),
    ],
)
@click.option(
    "--to",
    "targets",
    required=True,
    metavar="HOST:PORT,...",
    help="Brokers of the target, of Kafka 2.1 to 4.x; the gateway finds the others.",
)
@click.option(
    "--listen",
    default="127.0.0.1:9092",
    metavar="ADDRESS:PORT",
    help="Where to listen for the first broker; the others have the ports behind it (default: "
    "127.0.0.1:9092).",
)
@click.option(
    "--advertise",
    metavar="HOST",
    help="The host that clients get as that of all brokers (default: the address of --listen).",
)
@click.option(
    "--allow",
    multiple=True,
    metavar="NETWORK",
    help="Serve clients of this network, such as 10.0.0.0/24; may be repeated.",
)
@click.option(
    "--open", "is_open", is_flag=True, help="Serve clients from everywhere; not with --allow."
)
@click.option(
    "--state",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Keep there which broker has which port, so that a restart doesn't change it (default: "
    "the ports follow the brokers' ids at each start).",
)
@click.option(
    "--isolation",
    type=click.Choice(("read_uncommitted", "read_committed")),
    default="read_uncommitted",
    help="With read_committed old clients get no records of aborted and open transactions "
    "(default: all, as from Kafka up to 3.9).",
)
@click.option(
    "--metrics",
    metavar="[HOST]:PORT",
    help="Serve /metrics, /clients and /healthz there, on 127.0.0.1 without HOST (default: not at "
    "all).",
)
@click.option(
    "--log-level",
    type=click.Choice(LOG_LEVELS),
    default="info",
    help="What to log on stderr (default: info).",
)
def gateway(
    targets: str,
    listen: str,
    advertise: str | None,
    allow: tuple[str, ...],
    is_open: bool,
    state: Path | None,
    isolation: str,
    metrics: str | None,
    log_level: str,
) -> int:
    """Let clients of old Kafka releases use a cluster of today.

    Preview: it isn't for production yet. It runs until SIGTERM or Ctrl-C. Kafka 4 closes the
    connection when it gets a request of a client of its first years. The gateway translates these
    requests, and passes all others. Clients connect to it in place of the brokers. It has no TLS
    and no passwords, so it listens on this machine only unless --allow or --open says otherwise.
    """
    from dataclasses import replace

    from aiokafka08._tools.cli.connection import run
    from aiokafka08._tools.gateway.gateway import Gateway
    from aiokafka08._tools.gateway.options import gateway_options
    from aiokafka08._tools.gateway.port_table import PortTable

    _require_crc32c()
    log_to_stderr(log_level)
    options = gateway_options(targets, listen, advertise=advertise, allowed=allow, is_open=is_open)
    options = replace(options, is_read_committed=isolation == "read_committed")
    try:
        run(_serve(Gateway(options, PortTable(state)), metrics))
    except (KeyboardInterrupt, Terminated):
        note("stopped")
    return DONE


def _require_crc32c() -> None:
    from aiokafka08.protocol.record_batch import crc32c

    try:
        crc32c(b"")
    except ModuleNotFoundError as error:
        raise KafkaConfigurationError(f"gateway: {error}") from None


async def _serve(gateway: Gateway, metrics: str | None) -> None:
    """Listen until the task is cancelled."""
    import asyncio

    from aiokafka08._tools.cli.commands.exporter import parse_listen

    endpoint = None
    if metrics is not None:
        host, port = parse_listen(metrics, "--metrics")
        endpoint = _endpoint(gateway, host or "127.0.0.1", port)
    try:
        await gateway.start()
        ports = ", ".join(f"{port} for node {node}" for node, port in gateway.ports.items())
        note(f"gateway: listening on port {ports}")
        await asyncio.Event().wait()
    finally:
        await gateway.stop()
        if endpoint is not None:
            await asyncio.to_thread(endpoint.close)


def _endpoint(gateway: Gateway, host: str, port: int) -> MetricsEndpoint:
    """Serve the pages; they are made in threads."""
    import json

    from aiokafka08._core.metrics.endpoint import MetricsEndpoint, Page
    from aiokafka08._core.metrics.text_format import CONTENT_TYPE, write_text
    from aiokafka08._tools.gateway.gateway import CLIENT_ID

    try:
        endpoint = MetricsEndpoint(
            host,
            port,
            lambda: Page(CONTENT_TYPE, write_text(gateway.families())),
            lambda: Page("text/plain; charset=utf-8", b"ok\n"),
            client_id=CLIENT_ID,
            others={
                "/clients": lambda: Page(
                    "application/json", json.dumps(gateway.clients.rows(), indent=1).encode()
                )
            },
        )
    except OSError as error:
        raise OSError(
            error.errno, f"{error.strerror}: choose another --metrics", f"{host}:{port}"
        ) from None
    note(f"metrics at {endpoint.url}")
    return endpoint
