"""`gateway`: let old clients use a cluster of today.

The package `gateway` does the work; this module has the command and the pages.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from aiokafka08._tools.cli.declare import (
    DeclaredGroup,
    Example,
    Function,
    command,
    format_option,
    log_to_stderr,
)
from aiokafka08._tools.cli.main import DONE, FAILED, fail
from aiokafka08._tools.cli.notes import note
from aiokafka08._tools.cli.signals import Terminated
from aiokafka08._tools.gateway.option_table import OPTIONS, Option, flag
from aiokafka08.errors import IllegalArgumentError, KafkaConfigurationError, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess
    from types import ModuleType

    from aiokafka08._core.metrics.endpoint import MetricsEndpoint
    from aiokafka08._core.zookeeper.cluster_writer import NodeChange
    from aiokafka08._tools.findings import CodedFinding
    from aiokafka08._tools.gateway.config import GatewaySettings, GivenOptions
    from aiokafka08._tools.gateway.gateways import Gateways
    from aiokafka08._tools.gateway.options import GatewayOptions, OptionNames
    from aiokafka08._tools.gateway.port_table import PortTable
    from aiokafka08._tools.gateway.workers import Workers
    from aiokafka08._tools.gateway.zookeeper_mirror import ZookeeperMirror

CHECK_FIELDS: Final = {
    "code": "the code of the finding ('The gateway' in the documentation lists them)",
    "severity": "critical, warning or note; notes don't count as findings",
    "where": "the port, the broker, the topics, or the setting",
    "why": "what was found, and why it matters",
    "action": "what to do",
}

CLIENT_FIELDS: Final = {
    "client_id": "the client's name for itself",
    "address": "its IP address",
    "principal": "its user of SASL, or the subject of its certificate",
    "listener": "the name of the listener that it uses, if that has one",
    "software": "the name and version of its library, if it has sent them",
    "needs_gateway": "yes if a request of it was translated, or would be refused by Kafka 4",
    "first_seen": "the time of its first request",
    "last_seen": "the time of its last request",
    "messages": "how many its translated requests have stored and fetched",
    "errors": "how many partitions and groups got an error code in these",
    "translated": "its translated requests, as API, version and number",
    "stranded": "those that have passed with --observe, and that Kafka 4 would refuse",
    "passed": "those that the target took as they were",
    "refused": "those that were refused, or a part of which was",
}

CHANGE_FIELDS: Final = {
    "change": "create, set or delete",
    "node": "its path, below the chroot",
    "before": "what it holds",
    "after": "what it is to hold",
}

_FETCH_TIMEOUT_S: Final = 30.0
_SECURITY: Final = ("security_", "sasl_")
"""Prefixes of the client arguments that the gateway takes from properties."""


def gateway_settings(function: Function) -> Function:
    """Add the options of `OPTIONS`; pass the values of all, by their keys, as `given`."""

    @functools.wraps(function)
    def with_given(*arguments: Any, **values: Any) -> Any:
        given = {option.key: values.pop(option.name) for option in OPTIONS}
        return function(*arguments, given=given, **values)

    made: Function = with_given
    for option in reversed(OPTIONS):
        made = click.option(
            flag(option.key),
            option.name,
            multiple=option.kind is list,
            is_flag=option.kind is bool,
            type=_type(option),
            metavar=option.metavar or None,
            help=option.help,
        )(made)
    return made


def _type(option: Option) -> click.ParamType[Any] | type | None:
    if isinstance(option.kind, tuple):
        return click.Choice(option.kind)
    if isinstance(option.kind, range):
        return click.IntRange(option.kind[0], option.kind[-1])
    return None if option.kind is bool else str


_file_argument: Final = click.argument("file", type=click.Path(path_type=Path), required=False)


@click.group(
    "gateway",
    cls=DeclaredGroup,
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
@gateway_settings
@click.pass_context
def gateway(context: click.Context, given: Mapping[str, Any]) -> int:
    """Let clients of old Kafka releases use a cluster of today.

    Preview: it isn't for production yet. Kafka 4 closes the connection when it gets a request of a
    client of its first years. The gateway translates these requests, and passes all others.
    Clients connect to it in place of the brokers. It listens on this machine only, unless
    clients authenticate, or --allow or --open says otherwise. Without a command it is `gateway run`
    with these options.
    """
    if context.invoked_subcommand is None:
        return _run(None, given)
    for key, value in given.items():
        if value not in (None, False, ()):
            raise IllegalArgumentError(
                f"{flag(key)}: expected behind the command, as in 'aiokafka08 gateway "
                f"{context.invoked_subcommand} {flag(key)} …'"
            )
    return DONE


@command(
    "run",
    group=gateway,
    fields=CHANGE_FIELDS,
    examples=[
        Example(
            "With the options of a file",
            "aiokafka08 gateway run gateway.toml",
            until_interrupted=True,
        ),
        Example(
            "What it would write into ZooKeeper",
            "aiokafka08 gateway run gateway.toml --zookeeper zk1:2181/kafka --once",
        ),
    ],
)
@_file_argument
@gateway_settings
@click.option(
    "--once",
    is_flag=True,
    help="Print what the gateway would write into --zookeeper now, and end. Read-only.",
)
@format_option
def run_(file: Path | None, given: Mapping[str, Any], once: bool, format: str | None) -> int:
    """Run a gateway until SIGTERM or Ctrl-C.

    FILE has the options as TOML; those of the command line override it. Before it listens it looks
    at the target and the ports, as 'gateway check' does, but not at topics, settings, peers and
    ZooKeeper.
    """
    return _write_once(file, given, format) if once else _run(file, given)


@command(
    "restore",
    group=gateway,
    fields=CHANGE_FIELDS,
    examples=[
        Example(
            "Before old brokers start again",
            "aiokafka08 gateway restore gateway.toml --zookeeper zk1:2181/kafka",
        ),
    ],
)
@_file_argument
@gateway_settings
@format_option
def restore_(file: Path | None, given: Mapping[str, Any], format: str | None) -> int:
    """Put back what brokers had written into ZooKeeper, and print it.

    Stop the gateways that write there first. Topics that the gateways have created are removed,
    and all others are as the brokers have left them. Groups and their offsets stay as they are.
    """
    from aiokafka08._tools.cli.connection import run

    settings = _settings(file, given)
    _require_zookeeper(settings)
    log_to_stderr("error")
    return _write_changes(run(_restored(settings)), format)


@command(
    "check",
    group=gateway,
    fields=CHECK_FIELDS,
    examples=[
        Example("Before the first start", "aiokafka08 gateway check gateway.toml"),
    ],
)
@_file_argument
@gateway_settings
@format_option
def check_(file: Path | None, given: Mapping[str, Any], format: str | None) -> int:
    """Find what would keep a gateway from working. Read-only.

    It looks at the target: its release, brokers, topics, settings and what it allows; at peers and
    ZooKeeper; and whether the gateway's ports are free, and the file of --state is usable. The
    exit code is 0 if there are no findings, 1 if there are some or the target can't be reached.
    """
    from aiokafka08._tools.cli.connection import run
    from aiokafka08._tools.cli.findings import write_findings

    settings = _settings(file, given)
    log_to_stderr("error")
    return write_findings(run(_findings(settings, is_quick=False)), CHECK_FIELDS, format)


@command(
    "clients",
    group=gateway,
    fields=CLIENT_FIELDS,
    examples=[
        Example("Who still needs the gateway", "aiokafka08 gateway clients http://127.0.0.1:9094"),
    ],
)
@click.argument("url")
@format_option
def clients_(url: str, format: str | None) -> int:
    """List the clients of a running gateway, those that need it first.

    URL is where --metrics serves, such as http://127.0.0.1:9094. The list begins when the gateway
    does.
    """
    from aiokafka08._tools.cli.output import write_rows
    from aiokafka08._tools.monitoring.gateway_clients import SERVED, fetch_clients
    from aiokafka08._tools.monitoring.served_pages import endpoint_url

    clients = fetch_clients(endpoint_url(url, SERVED), _FETCH_TIMEOUT_S)
    rows = [{field: one.get(field) for field in CLIENT_FIELDS} for one in clients]
    write_rows(rows, CLIENT_FIELDS, format)
    return DONE


# --- ZooKeeper ------------------------------------------------------------------------------------


def _write_once(file: Path | None, given: Mapping[str, Any], format: str | None) -> int:
    from aiokafka08._tools.cli.connection import run

    settings = _settings(file, given)
    _require_zookeeper(settings)
    log_to_stderr("error")
    return _write_changes(run(_planned(settings)), format)


def _require_zookeeper(settings: GatewaySettings) -> None:
    if settings.options.zookeeper is None:
        name = settings.options.names.name_in_error("zookeeper")
        raise IllegalArgumentError(f"{name}: missing; expected a ZooKeeper such as zk1:2181/kafka")


async def _planned(settings: GatewaySettings) -> list[NodeChange]:
    """Return what the gateway would write into ZooKeeper."""
    from aiokafka08 import environment
    from aiokafka08._tools.gateway.options import listener_port
    from aiokafka08._tools.gateway.peers import peer_brokers
    from aiokafka08._tools.gateway.zookeeper_mirror import (
        ask_metadata,
        new_writer,
        written_cluster,
    )

    options = settings.options
    metadata = await ask_metadata(options)
    indices = _port_table(settings).with_new(one["NodeId"] for one in metadata["Brokers"])
    state = written_cluster(
        options,
        metadata,
        lambda node, *_: (options.advertise, listener_port(options, indices[node])),
        lambda: peer_brokers(options, indices),
    )
    with contextlib.closing(new_writer(options)) as writer:
        plan = await environment.run_in_thread(lambda: writer.plan(state))
    if plan.owner is not None:
        note(f"gateway {plan.owner} writes there; this one would wait until it has gone")
    if plan.left:
        note(f"topics that the target doesn't have stay: {', '.join(plan.left)}")
    return plan.changes


async def _restored(settings: GatewaySettings) -> list[NodeChange]:
    """Put back what brokers had written; return the changes."""
    from aiokafka08 import environment
    from aiokafka08._tools.gateway.zookeeper_mirror import new_writer

    with contextlib.closing(new_writer(settings.options)) as writer:
        changes = await environment.run_in_thread(writer.plan_restore)
        await environment.run_in_thread(lambda: writer.apply(changes))
    return changes


def _write_changes(changes: Sequence[NodeChange], format: str | None) -> int:
    from aiokafka08._tools.cli.output import write_rows

    def text(data: bytes | None) -> str | None:
        return None if data is None else data.decode(errors="replace")

    rows = [
        {
            "change": "create" if one.before is None else "delete" if one.after is None else "set",
            "node": one.path,
            "before": text(one.before),
            "after": text(one.after),
        }
        for one in changes
    ]
    write_rows(rows, CHANGE_FIELDS, format)
    return DONE


# --- running --------------------------------------------------------------------------------------


def _run(file: Path | None, given: Mapping[str, Any]) -> int:
    from aiokafka08._tools.cli.connection import run

    settings = _settings(file, given)
    _require_crc32c()
    _log(settings)
    try:
        return run(_serve(settings))
    except (KeyboardInterrupt, Terminated):
        note("stopped")
    return DONE


def run_worker(number: int, given: GivenOptions, pipe: Connection) -> None:
    """Run a worker, in its process, until it is ended.

    Args:
        number: the number of the worker.
        given: the options.
        pipe: the worker's end of the pipe of `Workers`.
    """
    from aiokafka08._tools.cli.connection import run
    from aiokafka08._tools.cli.main import error_text
    from aiokafka08._tools.cli.terminal import prepare_streams
    from aiokafka08._tools.gateway.config import check_given

    prepare_streams()
    with click.Context(gateway).scope():
        try:
            settings = _connected(check_given(given))
            _log(settings, f"worker {number}: ")
            run(_work(settings, pipe))
        except (KeyboardInterrupt, Terminated):
            pass
        except (KafkaError, OSError) as error:
            raise SystemExit(fail(f"worker {number}: {error_text(error)}", FAILED)) from None


async def _work(settings: GatewaySettings, pipe: Connection) -> None:
    from aiokafka08._core.garbage import short_holds
    from aiokafka08._tools.gateway.gateways import Gateways
    from aiokafka08._tools.gateway.measurements import NO_MEASUREMENTS
    from aiokafka08._tools.gateway.workers import WorkerTable, work

    table = WorkerTable(pipe)
    is_measured = settings.metrics is not None
    metrics = _prometheus().PrometheusMetrics() if is_measured else NO_MEASUREMENTS
    with short_holds():
        await work(Gateways(settings.listeners, table, metrics, shares_ports=True), table)


def _log(settings: GatewaySettings, sender: str = "") -> None:
    log_to_stderr(settings.log_level, {"aiokafka08.gateway.kazoo": "critical"}, sender=sender)


def _settings(file: Path | None, given: Mapping[str, Any]) -> GatewaySettings:
    """Return the settings of the file and the command line, completed by `_connected`."""
    from aiokafka08._tools.gateway.config import read_settings

    return _connected(read_settings(file, given))


def _connected(given: GatewaySettings) -> GatewaySettings:
    """Add the connection settings of the targets, from properties files and the environment."""
    import os
    from dataclasses import replace

    from aiokafka08._core.config_file import require_private
    from aiokafka08._core.net.config import address_text
    from aiokafka08._core.net.tls import ssl_context
    from aiokafka08._core.properties import is_secret
    from aiokafka08._tools.cli import settings
    from aiokafka08._tools.cli.configuration import file_sources
    from aiokafka08._tools.gateway.target_connection import target_network

    listeners = []
    for one in given.listeners:
        config = one.target_config
        servers = ",".join(map(address_text, one.network.bootstrap))
        of_file = file_sources(str(config), None) if config is not None else []
        if config is not None and any(
            is_secret(key) for source in of_file for key in source.values
        ):
            require_private(config, "a password")
        found = settings.settings(
            [
                *of_file,
                settings.environment_source(os.environ),
                settings.flag_source(servers, None, (), None),
            ]
        )
        security = {
            name: value for name, value in found.network.items() if name.startswith(_SECURITY)
        }
        key = (found.tls.keyfile or found.tls.certfile) if found.tls is not None else None
        for file in filter(None, (key, security.get("sasl_kerberos_keytab"))):
            require_private(Path(file), "a key")
        network = target_network(servers, **security, ssl_context=ssl_context(found.tls))
        listeners.append(replace(one, network=network))
    return replace(given, listeners=tuple(listeners))


def _require_crc32c() -> None:
    from aiokafka08.protocol.record_batch import crc32c

    try:
        crc32c(b"")
    except ModuleNotFoundError as error:
        raise KafkaConfigurationError(f"gateway: {error}") from None


async def _findings(settings: GatewaySettings, *, is_quick: bool) -> list[CodedFinding]:
    """Return the findings for all listeners, in order."""
    from aiokafka08._tools.findings import in_order
    from aiokafka08._tools.gateway.check import state_unusable

    table = _port_table(settings)
    found: dict[CodedFinding, None] = {}  # each once: listeners share most findings
    # `gateway run` holds the lock by now, so only `gateway check` tries it.
    if not is_quick and (why := table.why_unusable()) is not None:
        found[state_unusable(why, settings.options.names)] = None
    for one in settings.listeners:
        metrics = settings.metrics if one is settings.listeners[0] else None
        found |= dict.fromkeys(await _listener_findings(one, table, metrics, is_quick=is_quick))
    return in_order(found)


async def _listener_findings(
    options: GatewayOptions, table: PortTable, metrics: str | None, *, is_quick: bool
) -> list[CodedFinding]:
    from dataclasses import replace

    from aiokafka08._core.server.listening import why_unavailable
    from aiokafka08._tools.cli.notes import in_options
    from aiokafka08._tools.gateway.check import about_ports, judge, unreachable
    from aiokafka08._tools.gateway.options import listener_port
    from aiokafka08._tools.gateway.target_sample import ask_peers, sample_target
    from aiokafka08._tools.gateway.zookeeper_mirror import why_unusable
    from aiokafka08.errors import KafkaConnectionError

    names = options.names

    def ports(indices: Mapping[int, int]) -> dict[tuple[str, int], str | None]:
        found = [(options.listen[0], listener_port(options, one)) for one in indices.values()]
        if options.peers:
            found.append(options.listen)
        if metrics is not None:
            found.append(_metrics_address(metrics, names))
        return {address: why_unavailable(*address) for address in found}

    try:
        sample = await sample_target(options.network, is_quick=is_quick)
    except KafkaConnectionError as error:
        finding = unreachable(error, names)
        tried = ports(table.indices or table.with_new([0]))  # one broker has the first port
        return [replace(finding, why=in_options(finding.why)), *about_ports(tried, names)]
    sample.unreachable = {node: in_options(why) for node, why in sample.unreachable.items()}
    indices = table.with_new(sample.brokers)
    sample.ports = ports({node: indices[node] for node in sample.brokers})
    sample.keeps_ports = table.is_kept
    if not is_quick:
        sample.peers, sample.zookeeper = await ask_peers(options), await why_unusable(options)
    return list(judge(sample, options, names))


def _metrics_address(metrics: str, names: OptionNames) -> tuple[str, int]:
    from aiokafka08._tools.cli.commands.exporter import parse_listen

    host, port = parse_listen(metrics, names.name_in_error("metrics"))
    return host or "127.0.0.1", port


def _port_table(settings: GatewaySettings) -> PortTable:
    """Return the table, in which no broker gets the port of the metrics or of another listener."""
    from aiokafka08._tools.gateway.options import HIGHEST_PORT, listener_port
    from aiokafka08._tools.gateway.port_table import PortTable

    def meet(one: tuple[str, int], other: tuple[str, int]) -> bool:
        return one[0] == other[0] or bool({"0.0.0.0", "::"} & {one[0], other[0]})

    room, taken = HIGHEST_PORT, set()
    names = settings.options.names
    for one in settings.listeners:
        # With peers the first port isn't a broker's.
        first = one.listen[1] + bool(one.peers)
        for other in settings.listeners:
            if other is not one and meet(one.listen, other.listen):
                # A listener's ports end below the first port of the next higher listener.
                gap = other.listen[1] - first
                room = min(room, gap) if other.listen[1] >= one.listen[1] else room
        if settings.metrics is not None:
            metrics = _metrics_address(settings.metrics, names)
            if meet(metrics, one.listen):
                taken.add(metrics[1] - first)
                if metrics[1] == one.listen[1]:
                    text = "a listener has this port; choose another one"
                    raise names.wrong("metrics", settings.metrics, text)
    first_ports = {one.name: listener_port(one, 0) for one in settings.listeners}
    return PortTable(settings.state, taken, room, first_ports)


async def _serve(settings: GatewaySettings) -> int:
    """Listen until the task is cancelled; return an exit code if a finding is critical."""
    import asyncio
    import logging

    from aiokafka08._core.garbage import short_holds
    from aiokafka08._tools.findings import Severity
    from aiokafka08._tools.gateway.zookeeper_mirror import ZookeeperMirror

    logger = logging.getLogger("aiokafka08.gateway")
    table = _port_table(settings)
    with table.lock():
        found = [f for f in await _findings(settings, is_quick=True) if f.code.severity != "note"]
        for finding in found:
            text = f"{finding.where}: {finding.why}. {finding.action}"
            if finding.code.severity is Severity.CRITICAL:
                fail(text, FAILED)
            else:
                logger.warning("%s", text)
        if any(finding.code.severity is Severity.CRITICAL for finding in found):
            return FAILED
        gateways, metrics_text = _new_gateways(settings, table)
        endpoint = None if metrics_text is None else _endpoint(gateways, metrics_text, settings)
        mirror = None
        if settings.options.zookeeper is not None:
            mirror = ZookeeperMirror(settings.options, gateways.address_of, gateways.peers)
        try:
            await gateways.start()
            note(_listening_text(settings, gateways))
            if mirror is not None:
                mirror.start()
            with short_holds():
                await asyncio.Event().wait()
        finally:
            await _stop(gateways, mirror)
            if endpoint is not None:
                await asyncio.to_thread(endpoint.close)
    return DONE


async def _stop(gateways: Gateways | Workers, mirror: ZookeeperMirror | None) -> None:
    """Stop both at the same time; log an error of one, and still stop the other.

    A silent ZooKeeper is given up after `STOP_S`; its session then expires later.
    """
    import asyncio
    import logging

    from aiokafka08._tools.gateway.gateway import STOP_S

    stops = [gateways.stop()]
    if mirror is not None:
        stops.append(asyncio.wait_for(mirror.stop(), STOP_S))
    for error in await asyncio.gather(*stops, return_exceptions=True):
        if isinstance(error, TimeoutError):
            text = "ZooKeeper hasn't answered within %g s: its nodes stay until the session ends"
            logging.getLogger("aiokafka08.gateway").warning(text, STOP_S)
        elif error is not None:
            logging.getLogger("aiokafka08.gateway").error("it hasn't stopped", exc_info=error)


def _new_gateways(
    settings: GatewaySettings, table: PortTable
) -> tuple[Gateways | Workers, Callable[[], bytes] | None]:
    """Return the gateways, in this process or in workers, and the function for their metrics' text.

    The function is None without metrics.
    """
    import multiprocessing

    from aiokafka08._tools.gateway.gateways import Gateways
    from aiokafka08._tools.gateway.measurements import NO_MEASUREMENTS
    from aiokafka08._tools.gateway.workers import Workers

    prometheus = None if settings.metrics is None else _prometheus()
    if settings.workers == 1:
        metrics = None if prometheus is None else prometheus.PrometheusMetrics()
        gateways = Gateways(settings.listeners, table, metrics or NO_MEASUREMENTS)
        return gateways, None if metrics is None else metrics.text
    context = multiprocessing.get_context("spawn")

    def new_process(number: int, pipe: Connection) -> BaseProcess:
        arguments = number, settings.given, pipe
        return context.Process(target=run_worker, args=arguments, daemon=True)

    workers = Workers(settings.workers, new_process, settings.options, table)
    if prometheus is None:
        return workers, None
    return workers, lambda: prometheus.PrometheusMetrics(workers.measured()).text()


def _listening_text(settings: GatewaySettings, gateways: Gateways | Workers) -> str:
    texts = []
    for one in settings.listeners:
        name, port = one.name, one.listen[1]
        ports = [f"{port} for node {node}" for node, port in gateways.ports[name].items()]
        if one.peers:
            ports.insert(0, f"{port} for clients of other gateways")
        of_listener = f"listener {name} " if name else ""
        texts.append(f"{of_listener}listening on port {', '.join(ports)}")
    return f"gateway: {'; '.join(texts)}"


def _prometheus() -> ModuleType:
    """Return the module `metrics` of the gateway."""
    try:
        from aiokafka08._tools.gateway import metrics
    except ModuleNotFoundError as error:
        if error.name != "prometheus_client":
            raise
        raise KafkaConfigurationError(
            "gateway: prometheus-client isn't installed. Install it with: "
            "pip install 'aiokafka08[cli]'"
        ) from None
    return metrics


def _endpoint(
    gateways: Gateways | Workers, metrics_text: Callable[[], bytes], settings: GatewaySettings
) -> MetricsEndpoint:
    """Serve the pages; they are made in threads."""
    import json
    from http import HTTPStatus

    from aiokafka08._core.metrics.endpoint import MetricsEndpoint, Page
    from aiokafka08._core.metrics.text_format import CONTENT_TYPE, write_text
    from aiokafka08._tools.gateway.gateway import ENTRY, state_families
    from aiokafka08._tools.gateway.target_connection import CLIENT_ID

    def metrics() -> Page:
        families = [*gateways.clients.families(), *state_families(gateways.states())]
        return Page(CONTENT_TYPE, write_text(families) + metrics_text())

    def health() -> Page:
        """Return the page that says whether clients can connect to at least one broker."""
        text = "text/plain; charset=utf-8"
        if any(one.is_open and one.node != ENTRY for one in gateways.states()):
            return Page(text, b"ok\n")
        unavailable = HTTPStatus.SERVICE_UNAVAILABLE
        return Page(text, b"no broker can be reached\n", status=unavailable)

    def clients() -> Page:
        return Page("application/json", json.dumps(gateways.clients.rows(), indent=1).encode())

    assert settings.metrics is not None
    host, port = _metrics_address(settings.metrics, settings.options.names)
    try:
        endpoint = MetricsEndpoint(
            host, port, metrics, health, client_id=CLIENT_ID, others={"/clients": clients}
        )
    except OSError as error:
        text = f"{error.strerror}: choose another {settings.options.names.name('metrics')}"
        raise OSError(error.errno, text, f"{host}:{port}") from None
    note(f"metrics at {endpoint.url}")
    return endpoint
