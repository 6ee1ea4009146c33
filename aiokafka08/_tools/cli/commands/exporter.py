"""`exporter`: serve a cluster's metrics to Prometheus, with the samples of `monitoring`."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from aiokafka08._tools.cli.declare import Example, command, connection_options
from aiokafka08._tools.cli.main import INTERRUPTED
from aiokafka08._tools.cli.notes import in_options, note
from aiokafka08._tools.cli.settings import Settings
from aiokafka08.errors import IllegalArgumentError, KafkaConfigurationError

if TYPE_CHECKING:
    from aiokafka08._core.metrics.endpoint import Page
    from aiokafka08._tools.monitoring.refresher import Refresher

F = TypeVar("F", bound=Callable[..., Any])

# The port of kafka_exporter.
DEFAULT_PORT: Final = 9308

# The most time for a response, so that a broker that hangs is soon seen in the metrics.
REQUEST_TIMEOUT_S: Final = 10.0

# How long a thread may run on while another one waits; ten times less than Python's default.
SWITCH_S: Final = 0.0005


def _filters(name: str, noun: str) -> Callable[[F], F]:
    """Return a decorator that adds kafka_exporter's options to choose topics or groups."""

    def add(function: F) -> F:
        for option in (
            click.option(
                f"--{name}-exclude",
                default="",
                metavar="REGEX",
                help=f"Leave out {noun} in whose name this matches (default: none).",
            ),
            click.option(
                f"--{name}-filter",
                default=".*",
                metavar="REGEX",
                help=f"Only {noun} in whose name this matches (default: all).",
            ),
        ):
            function = option(function)
        return function

    return add


@command(
    "exporter",
    examples=[
        Example(
            "Serve the metrics at port 9308",
            "aiokafka08 exporter -b kafka1:9092",
            code=INTERRUPTED,
            until_interrupted=True,
        ),
        Example(
            "With groups in ZooKeeper, and without internal topics",
            "aiokafka08 exporter -b kafka1:9092 --zookeeper zk1:2181 --topic-exclude '^__'",
            code=INTERRUPTED,
            until_interrupted=True,
        ),
    ],
)
@click.option(
    "--listen",
    default=f":{DEFAULT_PORT}",
    metavar="[HOST]:PORT",
    help=f"Where to listen (default: all of IPv4, port {DEFAULT_PORT}).",
)
@click.option(
    "--interval",
    type=click.FloatRange(min=1),
    default=15.0,
    metavar="SECONDS",
    help="Time from one refresh to the next (default: 15).",
)
@_filters("topic", "topics")
@_filters("group", "groups")
@click.option("--once", is_flag=True, help="Print the metrics of one refresh, and end.")
@functools.partial(connection_options, warns="aiokafka08.monitoring")
def exporter(
    settings: Settings,
    listen: str,
    interval: float,
    topic_filter: str,
    topic_exclude: str,
    group_filter: str,
    group_exclude: str,
    once: bool,
) -> int | None:
    """Serve metrics to Prometheus.

    They are about brokers, partitions and groups. Names and labels are those of kafka_exporter;
    'Monitoring' in the documentation lists them. Samples are taken in the background, and a
    scrape of /metrics gets the last one. A broker that is down gives kafka_up 0. Groups in
    ZooKeeper need --zookeeper. /healthz tells whether the refreshes go on.
    """
    from aiokafka08._tools.cli.connection import run
    from aiokafka08._tools.monitoring.name_filter import NameFilter

    _require_prometheus_client()
    host, port = parse_listen(listen)
    made = functools.partial(
        _refresher,
        settings,
        interval_s=interval,
        topics=NameFilter("topic", topic_filter, topic_exclude),
        groups=NameFilter("group", group_filter, group_exclude),
    )
    if once:
        return run(_print_once(made()))
    run(_serve(made(), host, port, settings.client_id))
    return None


def _require_prometheus_client() -> None:
    try:
        import aiokafka08.prometheus  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "prometheus_client":
            raise
        raise KafkaConfigurationError(
            "exporter: prometheus-client isn't installed. Install it with: "
            "pip install 'aiokafka08[cli]'"
        ) from None


def parse_listen(text: str, option: str = "--listen") -> tuple[str, int]:
    """Return host and port of an option; the host is "" for all addresses of IPv4.

    Raises:
        IllegalArgumentError: the text isn't [HOST]:PORT.
    """
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""  # an IPv6 address without brackets
    if not colon or not port.isascii() or not port.isdecimal() or int(port) > 0xFFFF:
        raise IllegalArgumentError(
            f"{option} {text}: expected [HOST]:PORT with a port from 0 to 65535, such as :9308 or "
            "127.0.0.1:9308; an IPv6 address goes in brackets"
        )
    return host, int(port)


def _refresher(
    settings: Settings,
    *,
    interval_s: float,
    topics: Callable[[str], bool],
    groups: Callable[[str], bool],
) -> Refresher:
    from aiokafka08._tools.cli.connection import admin_client
    from aiokafka08._tools.monitoring.refresher import Refresher
    from aiokafka08._tools.monitoring.sampler import ClusterSampler

    timeout_ms = round(min(settings.timeout_s, REQUEST_TIMEOUT_S) * 1000)
    return Refresher(
        lambda: admin_client(settings, request_timeout_ms=timeout_ms),
        lambda admin: ClusterSampler(
            admin,
            has_zookeeper=settings.zookeeper_connect is not None,
            topics=topics,
            groups=groups,
        ),
        client_id=settings.client_id,
        interval_s=interval_s,
    )


async def _print_once(refresher: Refresher) -> int:
    """Print the metrics of one refresh; return the exit code."""
    from aiokafka08._tools.cli.output import write_text

    await refresher.refresh_once()
    write_text(metrics_page(refresher).body.decode(), flush=True)
    status = refresher.status
    for problem in (status.error, *status.gaps, *status.hints):
        if problem is not None:
            note(in_options(problem))
    return 0 if status.is_up else 1


async def _serve(refresher: Refresher, host: str, port: int, client_id: str) -> None:
    """Listen, and refresh until the task is cancelled."""
    import asyncio
    import time

    from aiokafka08._core.garbage import rare_full_collections
    from aiokafka08._core.metrics.endpoint import MetricsEndpoint

    try:
        endpoint = MetricsEndpoint(
            host,
            port,
            functools.partial(metrics_page, refresher),
            functools.partial(health_page, refresher),
            client_id=client_id,
        )
    except OSError as error:
        raise OSError(
            error.errno, f"{error.strerror}: choose another --listen", f"{host}:{port}"
        ) from None
    try:
        note(f"metrics at {endpoint.url}")
        # The thread of a scrape competes with threads that decode and write; this lets it run soon.
        sys.setswitchinterval(SWITCH_S)
        with rare_full_collections(time.monotonic):
            await refresher.run()
    finally:
        await asyncio.to_thread(endpoint.close)


def metrics_page(refresher: Refresher) -> Page:
    """Return the page `/metrics`: the result of the last refresh, and its age."""
    import gzip

    import aiokafka08
    from aiokafka08._core.metrics.endpoint import Page
    from aiokafka08._core.metrics.text_format import CONTENT_TYPE, write_text
    from aiokafka08.prometheus import process_text

    status, now = refresher.status, refresher.now()
    ready = status.served(now)
    own = write_text(status.families(now, aiokafka08.__version__)) + process_text()
    if ready is None:
        return Page(CONTENT_TYPE, own)
    # A gzip file may have several members, so the refresh's part isn't compressed again.
    return Page(CONTENT_TYPE, ready.text + own, ready.compressed + gzip.compress(own, 1))


def health_page(refresher: Refresher) -> Page:
    """Return the page `/healthz`: whether refreshes still end, even if they fail."""
    from http import HTTPStatus

    from aiokafka08._core.metrics.endpoint import Page

    problem = refresher.status.problem(refresher.now())
    text = "text/plain; charset=utf-8"
    if problem is not None:
        return Page(text, f"{problem}\n".encode(), status=HTTPStatus.SERVICE_UNAVAILABLE)
    return Page(text, b"ok\n")
