"""Render pages of docs/reference from signatures, docstrings and the package's tables."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, errors, telemetry
from aiokafka08._core.net.versions import LINE_APIS, BrokerLine
from aiokafka08.admin import AIOKafkaAdminClient
from aiokafka08.prometheus import CLIENT_METRICS, metric_name
from aiokafka08.protocol.api import ApiKey
from aiokafka08.protocol.requests.registry import APIS
from aiokafka08.testing import EmbeddedCluster
from tests.docs.advice import ERRORS, EVENTS, METRICS, UNSENT_ERRORS, UNUSED
from tests.docs.broker_lines import broker_lines_page
from tests.docs.spark_options import spark_page
from tests.docs.tables import MADE, table

CLIENTS: dict[str, type] = {
    "producer": AIOKafkaProducer,
    "consumer": AIOKafkaConsumer,
    "admin client": AIOKafkaAdminClient,
    "embedded cluster": EmbeddedCluster,
}

OBSERVED = {
    ApiKey.PRODUCE: "5, 6",
    ApiKey.FETCH: "7",
    ApiKey.LIST_OFFSETS: "8.1, 8.2, 8.14",
    ApiKey.METADATA: "4",
    ApiKey.OFFSET_COMMIT: "8.3 – 8.7",
    ApiKey.OFFSET_FETCH: "8.8",
    ApiKey.GROUP_COORDINATOR: "8.9, 8.12",
    ApiKey.JOIN_GROUP: "8.13",
    ApiKey.HEARTBEAT: "8.13",
    ApiKey.LEAVE_GROUP: "8.13",
    ApiKey.SYNC_GROUP: "8.13",
    ApiKey.DESCRIBE_GROUPS: "8.13",
    ApiKey.LIST_GROUPS: "8.15",
    ApiKey.DELETE_GROUPS: "8.16",
    ApiKey.API_VERSIONS: "2.2",
    ApiKey.SASL_HANDSHAKE: "14",
    ApiKey.SASL_AUTHENTICATE: "14",
}
"""The sections of docs/brokers.md on each request."""

OptionRow = tuple[str, str, str]
"""Names, default and meaning of options."""


def arguments(docstring: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each argument in a docstring's section "Args"."""
    section = re.search(r"^Args:\n(.*?)(?=^\S|\Z)", docstring, re.M | re.S)
    for entry in re.split(r"^ {4}(?=\w)", section[1] if section else "", flags=re.M)[1:]:
        names, _, text = entry.partition(":")
        for name in names.split(", "):
            yield name, text


def options_page() -> str:
    """Return the options of the clients and of the embedded cluster, in tables."""
    parts = [
        f"# Options\n\n{MADE}\n\nThe arguments of each class: first those that several have. "
        "Those that end with `_ms` are in milliseconds. Those of Spark are in "
        "[Spark](../spark.md#options), those of the command line in "
        "[The command line](../cli.md).\n"
    ]
    clients: dict[OptionRow, list[str]] = {}
    for name, cls in CLIENTS.items():
        for row in _option_rows(cls):
            clients.setdefault(row, []).append(name)
    shared = dict.fromkeys(tuple(names) for names in clients.values() if len(names) > 1)
    titles = {names: _joined(names).capitalize() for names in shared} | {
        (name,): f"{name.capitalize()}\n\n`{cls.__name__}`" for name, cls in CLIENTS.items()
    }
    for wanted, title in titles.items():
        rows = [row for row, names in clients.items() if tuple(names) == wanted]
        parts.append(f"\n## {title}\n\n" + table(("option", "default", "meaning"), rows))
    return "".join(parts)


def _joined(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _option_rows(cls: type) -> Iterator[OptionRow]:
    """Yield the row of each option; options that have the same text are in one."""
    parameters = inspect.signature(cls).parameters
    found = [
        (option, _default(parameters[option]), " ".join(_without_default(text).split()))
        for option, text in arguments(inspect.getdoc(cls) or "")
    ]
    for (default, text), some in groupby(found, key=itemgetter(1, 2)):
        yield ", ".join(f"`{option}`" for option, *_ in some), default, text


def _default(parameter: inspect.Parameter) -> str:
    value = parameter.default
    if value is parameter.empty:
        return "required" if parameter.kind is not parameter.VAR_POSITIONAL else ""
    if value is None or isinstance(value, bool | int | float | str | tuple):
        return f"`{value!r}`".replace("'", '"')
    name = getattr(value, "__name__", None) or f"{type(value).__name__}()"
    return f"`{name}`"


def _without_default(text: str) -> str:
    return re.sub(r"\s*\(default\s[^()]*(?:\([^()]*\))?[^()]*\)", "", text)


def error_classes() -> list[type[BaseException]]:
    """Return the exceptions of `aiokafka08.errors`, in the order of the module."""
    found = [
        one
        for name, one in vars(errors).items()
        if inspect.isclass(one)
        and issubclass(one, Exception)
        and one.__module__ == errors.__name__
        and one.__name__ == name  # not an alias
    ]
    return [one for one in found if one not in {errors.KafkaError, errors.UnsentRequestError}]


def errors_page() -> str:
    """Return all errors: what they mean, what the client does, what to do."""
    own: list[Sequence[str]] = []
    unused: list[str] = []
    codes: list[Sequence[str]] = []
    unsent: list[int] = []
    for one in error_classes():
        name = f"`{one.__name__}`"
        if issubclass(one, errors.BrokerResponseError):
            code = "other" if one is errors.BrokerResponseError else str(one.errno)
            advice = (ERRORS | UNSENT_ERRORS).get(one.__name__)
            if advice is None:
                unsent.append(one.errno)
            else:
                action = "" if one.action is errors.Action.FINAL else one.action.value
                row = (code, name, f"`{one.message}`", one.description, action, advice)
                codes.append(row)
        else:
            if (advice := ERRORS[one.__name__]) == UNUSED:
                unused.append(name)
            else:
                meaning = (inspect.getdoc(one) or "").split("\n\n")[0]
                retries = "yes" if getattr(one, "retriable", False) else "no"
                own.append((name, meaning, retries, advice))
    codes.sort(key=lambda row: (not row[0].lstrip("-").isdigit(), _number(row[0])))
    return (
        f"""# Errors

{MADE}

All are in `aiokafka08.errors`. Those about Kafka are subclasses of `KafkaError`; `retriable`:
another attempt may succeed. `str()` of an error has the class, what failed, the value or place, and
what to do.

The producer retries until `delivery_timeout_ms`, the consumer as long as it runs. They raise an
error after that. If the client does nothing about a code, they raise its error at once.

## Raised by the client

"""
        + table(("class", "meaning", "retriable", "what to do"), own)
        + "\nNever raised, but there for `except` clauses: "
        + ", ".join(unused)
        + ".\n"
        + """
## Codes in brokers' responses

"""
        + table(
            ("code", "class", "Kafka's name", "meaning", "what the client does", "what to do"),
            codes,
        )
        + "\nNever raised by producer and consumer, but there for `except` clauses and `for_code`: "
        + f"the classes of the codes {_ranges(sorted(unsent))}.\n"
    )


def _ranges(numbers: Sequence[int]) -> str:
    """Return ascending numbers as text, with ranges: "33 – 34, 41"."""
    runs = [
        [number for _, number in some]
        for _, some in groupby(enumerate(numbers), lambda one: one[1] - one[0])
    ]
    return ", ".join(f"{run[0]} – {run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


def _number(code: str) -> int:
    return int(code) if code.lstrip("-").isdigit() else 0


def event_classes() -> list[type[telemetry.Event]]:
    """Return the classes of events, in the order of the module."""
    return [
        one
        for one in vars(telemetry).values()
        if inspect.isclass(one) and issubclass(one, telemetry.Event) and one is not telemetry.Event
    ]


def events_page() -> str:
    """Return all events: fields, clients, counter, log level, when they are normal."""
    rows = []
    clients = metric_names()
    for one in event_classes():
        normal, alert = EVENTS[one.__name__]
        meaning = (inspect.getdoc(one) or "").replace("\n\n", " ")
        own = ", ".join(f"`{field}`" for field in _fields(one))
        level = {20: "info", 30: "warning", 40: "error", 10: "debug"}[one.level]
        counter = COUNTERS.get(one.name, one.name)
        unit = "" if one.unit == "events" else f", in {one.unit}"
        of = [client for client, names in clients.items() if counter in names]
        rows.append(
            (
                f"`{one.__name__}`",
                meaning,
                own,
                "both" if len(of) == len(clients) else of[0],
                f"`{counter}`{unit}",
                level,
                normal,
                alert,
            )
        )
    return f"""# Events

{MADE}

Each event is logged, counted in `metrics()` of its client (producer, consumer, or both), and
passed to the hook `on_event`. The classes are in `aiokafka08.telemetry`; `str()` of an event is a
sentence.

""" + table(
        ("event", "meaning", "fields", "client", "counter", "log level", "normal", "alert on"), rows
    )


COUNTERS = {"batches_retried": "retries"}
"""By the name of an event: its counter in `metrics()`, where that has another name."""


def _fields(cls: type[telemetry.Event]) -> list[str]:
    return [
        name
        for name in inspect.get_annotations(cls)
        if name not in {"name", "unit", "level", "logger", "client_id"}
    ]


def metric_names() -> dict[str, list[str]]:
    """Return the names in `metrics()` of producer and consumer, by kind of client."""

    async def read() -> dict[str, list[str]]:
        return {
            "producer": list(dict.fromkeys(map(metric_name, AIOKafkaProducer().metrics()))),
            "consumer": list(dict.fromkeys(map(metric_name, AIOKafkaConsumer().metrics()))),
        }

    return asyncio.run(read())


def metrics_page() -> str:
    """Return what `metrics()` of producer and consumer have."""
    parts = [
        f"# Metrics\n\n{MADE}\n\n`metrics()` of each client returns numbers by name. "
        "`aiokafka08.prometheus.collector` shows them to Prometheus as `aiokafka08_producer_…` and "
        "`aiokafka08_consumer_…`; counters end with `_total` there. "
        "[Monitoring](../monitoring.md) shows how, with alerts, and what the exporter shows of a "
        "cluster. Counters begin with 0 at the start; [each event](events.md) has one, too. A "
        "histogram `x` has the values `x_count`, `x_sum` and, for each upper bound, how many are "
        "up to it: `x_bucket{0.25}`.\n"
    ]
    for client, names in metric_names().items():
        rows = [
            (f"`{name}`", *CLIENT_METRICS[name], *METRICS[name])
            for name in names
            if name in METRICS
        ]
        header = ("name", "kind", "unit", "meaning", "normal", "alert on")
        parts.append(f"\n## {client.capitalize()}\n\n{table(header, rows)}")
    return "".join(parts)


def protocol_page() -> str:
    """Return the requests that the client speaks, and their versions on each broker line."""
    lines = [line for line in BrokerLine if line is not BrokerLine.V0_8]  # one of the next three
    rows = [
        (
            f"`{request.__name__.removesuffix('Request')}`",
            str(int(api)),
            *(_versions(LINE_APIS[line].get(ApiKey(api))) for line in lines),
            OBSERVED[ApiKey(api)],
        )
        for api, request in APIS.items()
        if any(ApiKey(api) in LINE_APIS[line] for line in lines)
    ]
    names = [*map(str, lines[:-1]), f"{lines[-1]} – 3.9"]
    return (
        f"# The protocol\n\n{MADE}\n\nThe requests of "
        "[Kafka's protocol](https://kafka.apache.org/protocol) that this package speaks. The "
        "client detects the line of each broker and sends only versions of its column; — : the "
        "line doesn't have the request. A broker from 0.10 on that lacks a version of that column "
        "gets a lower one. Messages are of format 0, or 1 from 0.10 on. The gateway's codec of "
        "format 2 is private (`aiokafka08.protocol.record_batch`). How real brokers respond is in "
        "the named sections of [What real brokers do](../brokers.md).\n\n"
        + table(("request", "key", *names, "sections"), rows)
    )


def _versions(known: range | None) -> str:
    if not known:
        return "—"
    return f"{known[0]}" if len(known) == 1 else f"{known[0]} – {known[-1]}"


PAGES: dict[str, Callable[[], str]] = {
    "reference/broker_lines.md": broker_lines_page,
    "reference/options.md": options_page,
    "reference/errors.md": errors_page,
    "reference/events.md": events_page,
    "reference/metrics.md": metrics_page,
    "reference/protocol.md": protocol_page,
    "spark.md": spark_page,
}
"""By the path of a page in docs: what renders it."""
