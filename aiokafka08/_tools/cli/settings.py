"""Merge flags, environment variables, a profile and configuration files into `Settings`. Pure.

Each setting is a property with the name that it has in Java's clients: `-b` is `bootstrap.servers`,
the variable `AIOKAFKA08_LINGER_MS` is `linger.ms`. Flags take precedence over the environment, then
the profile, then the configuration file.

Invariants: an unknown property is an error that names similar ones. An error names the source of
the property. No secret is in an error, a note or a `repr()`, and none is accepted from the command
line, which other users of the machine can see.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from aiokafka08._core.properties import (
    CONSUME,
    NETWORK,
    PRODUCE,
    TLS,
    TLS_UNSUPPORTED,
    PropertyTable,
    TlsOptions,
    choice,
    hide_value,
    is_secret,
    is_tls,
    nonempty,
    parse_boolean,
    parse_positive,
    show_option,
    tls_options,
)
from aiokafka08._core.sasl.java_properties import (
    ARGUMENTS,
    SASL,
    SASL_WITHOUT_EFFECT,
    is_known,
    is_sasl,
    sasl_options,
)
from aiokafka08._core.zookeeper.security import PROPERTIES as ZOOKEEPER_SECURITY
from aiokafka08._core.zookeeper.security import options_of_properties
from aiokafka08._tools.cli import property_names
from aiokafka08.errors import IllegalArgumentError, KafkaError, UnsupportedVersionError

ENVIRONMENT_PREFIX: Final = "AIOKAFKA08_"
# Variables with this prefix that aren't properties.
_OTHER_VARIABLES: Final = frozenset(
    {"CACHE", "CONFIG", "HEADERS", "IMPL", "LOG_LEVEL", "NO_REAL_BROKERS", "PROFILE"}
)

_CLIENT_ID: Final = "aiokafka08-cli"
_START_TIMEOUT_MS: Final = 5_000
_REQUEST_TIMEOUT_MS: Final = 30_000


class Source(NamedTuple):
    """Properties from one place."""

    # The place, for errors: "-X", a path.
    origin: str
    values: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of the cluster and of the clients."""

    # Arguments of every client: `bootstrap_servers`, `client_id`, timeouts, …
    network: Mapping[str, Any]
    # Arguments of the producer alone, such as `acks`.
    producer: Mapping[str, Any]
    # Arguments of the consumer alone, such as `group_id` and `offsets_storage`.
    consumer: Mapping[str, Any]
    zookeeper_connect: str | None
    tls: TlsOptions | None
    # A sentence for each given property without effect, with the reason.
    notes: tuple[str, ...]
    # "refuse" or "warn", as the clients' option.
    zookeeper_check: str | None = None
    # The clients' option for a secured ZooKeeper.
    zookeeper_options: Mapping[str, Any] | None = field(default=None, repr=False)
    # A note if brokers are from the command line, and a ZooKeeper of another source is ignored.
    unused_zookeeper: str | None = None
    # The source of the addresses, such as a file and its profile; None: the command line.
    origin: str | None = None
    # The options that name the cluster, as given, for a command that repeats this one.
    flags: tuple[str, ...] = ()

    @property
    def cluster(self) -> str:
        """The cluster as notes and errors name it: its addresses and their source."""
        zookeeper = (
            "" if self.zookeeper_connect is None else f", ZooKeeper {self.zookeeper_connect}"
        )
        origin = "" if self.origin is None else f" ({self.origin})"
        return f"cluster {self.bootstrap_servers}{zookeeper}{origin}"

    @property
    def bootstrap_servers(self) -> str:
        """The addresses, as given."""
        return str(self.network["bootstrap_servers"])

    @property
    def client_id(self) -> str:
        """The client id, with which log lines begin."""
        return str(self.network["client_id"])

    @property
    def headers(self) -> str:
        """What to do with headers: "refuse" (by default), "drop" or "embedded"."""
        return str(self.producer.get("headers", "refuse"))

    @property
    def timeout_s(self) -> float:
        """How long to wait for a response, in seconds."""
        return float(self.network["request_timeout_ms"]) / 1000


def _storage(option: str, text: str) -> str:
    storage: str = choice(option, text, {name: name for name in ("zookeeper", "kafka", "dual")})
    return storage


def _zookeeper_check(option: str, text: str) -> str:
    check: str = choice(option, text, {name: name for name in ("refuse", "warn")})
    return check


def _headers(option: str, text: str) -> str:
    mode: str = choice(option, text, {name: name for name in ("refuse", "drop", "embedded")})
    return mode


def _partitioner(option: str, text: str) -> Any:
    if text == "consistent_random":
        from aiokafka08._tools.cli.kcat.partitioner import ConsistentRandomPartitioner

        return ConsistentRandomPartitioner
    if text in ("consistent", "fnv1a", "fnv1a_random"):
        raise UnsupportedVersionError(
            f"{show_option(option, text)}: this partitioner of librdkafka isn't available; "
            "expected consistent_random, murmur2, scala-0.8.2, round_robin, sticky or random"
        )
    return {"murmur2_random": "murmur2"}.get(text, text)  # the producer checks the name


_OF_NETWORK: Final[PropertyTable] = {
    **NETWORK,
    "start.timeout.ms": ("start_timeout_ms", parse_positive),
}
_OF_PRODUCER: Final[PropertyTable] = {
    **PRODUCE,
    "partitioner": ("partitioner", _partitioner),
    "headers": ("headers", _headers),
}
_STORAGE: Final = "offsets.storage"
_OF_CONSUMER: Final[PropertyTable] = {**CONSUME, _STORAGE: ("offsets_storage", _storage)}
_DUAL_COMMIT: Final = "dual.commit.enabled"
_ZOOKEEPER: Final = "zookeeper.connect"
_ZOOKEEPER_CHECK: Final = "zookeeper.check"
_COMMAND_LINE: Final = "command line"
ENVIRONMENT: Final = "environment"
_ALL_TLS: Final = (*TLS, *property_names.TLS)
_TLS_FILES: Final = tuple(name for name in _ALL_TLS if name.endswith(".location"))
_ALL_TLS_UNSUPPORTED: Final = (*TLS_UNSUPPORTED, *property_names.TLS_UNSUPPORTED)

# The properties that have an effect, by their Java names.
SETTABLE: Final = (
    *_OF_NETWORK,
    _ZOOKEEPER,
    _ZOOKEEPER_CHECK,
    *_OF_PRODUCER,
    *_OF_CONSUMER,
    _DUAL_COMMIT,
    *_ALL_TLS,
    *SASL,
    *ZOOKEEPER_SECURITY,
)


def flag_source(
    bootstrap: str | None,
    zookeeper: str | None,
    properties: Sequence[str],
    timeout_s: float | None,
) -> Source:
    """Return the properties of the command line.

    Raises:
        IllegalArgumentError: an `-X` isn't NAME=VALUE, or is a secret; or the timeout isn't a time.
    """
    values: dict[str, str] = {}
    for text in properties:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name:
            raise IllegalArgumentError(f"-X {text}: expected NAME=VALUE")
        if is_secret(name):
            variable = ENVIRONMENT_PREFIX + name.upper().replace(".", "_")
            raise IllegalArgumentError(
                f"-X {name}=…: other users see secrets on the command line. Put it into a file "
                f"(-F), or into the environment variable {variable}"
            )
        values[name] = value.strip()
    if bootstrap is not None:
        values["bootstrap.servers"] = bootstrap
    if zookeeper is not None:
        values[_ZOOKEEPER] = zookeeper
    if timeout_s is not None:
        if not 0 < timeout_s < 2**31 / 1000:
            raise IllegalArgumentError(f"--timeout={timeout_s}: expected seconds from 0.001 on")
        milliseconds = str(max(round(timeout_s * 1000), 1))
        values["start.timeout.ms"] = values["request.timeout.ms"] = milliseconds
    return Source(_COMMAND_LINE, values)


def environment_source(environment: Mapping[str, str]) -> Source:
    """Return the properties of the environment: `AIOKAFKA08_CLIENT_ID` is `client.id`."""
    names = {name: name.removeprefix(ENVIRONMENT_PREFIX) for name in environment}
    return Source(
        ENVIRONMENT,
        {
            short.lower().replace("_", "."): environment[name]
            for name, short in names.items()
            if name != short and short not in _OTHER_VARIABLES
        },
    )


class _Property(NamedTuple):
    name: str
    text: str
    origin: str


def settings(sources: Sequence[Source]) -> Settings:
    """Merge and check properties.

    Args:
        sources: from the one with the lowest priority to the one with the highest.

    Raises:
        IllegalArgumentError: a property is unknown or refused, or has a wrong value; or there is no
            `bootstrap.servers`.
        UnsupportedVersionError: the protocol of 0.8 or this client doesn't support the value of a
            property.
    """
    merged: dict[str, _Property] = {}
    for source in sources:
        for name, text in source.values.items():
            merged[_canonical(name)] = _Property(name, text, source.origin)
    unused_zookeeper = _drop_other_zookeeper(merged)
    texts = {name: property_.text for name, property_ in merged.items()}
    arguments: dict[str, dict[str, Any]] = {"network": {}, "producer": {}, "consumer": {}}
    notes: list[str] = []
    for name, property_ in merged.items():
        try:
            _add(name, property_, texts, arguments, notes)
        except KafkaError as error:
            raise type(error)(f"{error.text} ({property_.origin})") from None
    dual, consumer = texts.get(_DUAL_COMMIT, "false"), arguments["consumer"]
    if consumer.get("offsets_storage") == "kafka" and parse_boolean(_DUAL_COMMIT, dual):
        consumer["offsets_storage"] = "dual"
    network = {
        "client_id": _CLIENT_ID,
        "request_timeout_ms": _REQUEST_TIMEOUT_MS,
        **arguments["network"],
        **sasl_options(texts),
    }
    network.setdefault("start_timeout_ms", min(_START_TIMEOUT_MS, network["request_timeout_ms"]))
    if "bootstrap_servers" not in network:
        raise IllegalArgumentError(
            "no address of a broker: expected -b HOST:PORT, the environment variable "
            "AIOKAFKA08_BOOTSTRAP_SERVERS, or bootstrap.servers in a profile or configuration file"
        )
    zookeeper, check = merged.get(_ZOOKEEPER), merged.get(_ZOOKEEPER_CHECK)
    origin = merged["bootstrap.servers"].origin
    return Settings(
        network=network,
        producer=arguments["producer"],
        consumer=arguments["consumer"],
        zookeeper_connect=None if zookeeper is None else nonempty(_ZOOKEEPER, zookeeper.text),
        tls=tls_options(texts) if is_tls(texts) else None,
        notes=tuple(notes),
        zookeeper_check=None if check is None else _zookeeper_check(check.name, check.text),
        zookeeper_options=None if zookeeper is None else options_of_properties(texts),
        unused_zookeeper=unused_zookeeper,
        origin=None if origin == _COMMAND_LINE else origin,
    )


def _drop_other_zookeeper(merged: dict[str, _Property]) -> str | None:
    """Remove a ZooKeeper of another source than the command line's brokers; return a note on it."""
    # It could belong to another cluster, whose groups and topics a command would then change.
    brokers, zookeeper = merged.get("bootstrap.servers"), merged.get(_ZOOKEEPER)
    if brokers is None or zookeeper is None:
        return None
    if brokers.origin != _COMMAND_LINE or zookeeper.origin == _COMMAND_LINE:
        return None
    del merged[_ZOOKEEPER]
    return (
        f"{show_option(zookeeper.name, zookeeper.text)} ({zookeeper.origin}) isn't used beside "
        "brokers on the command line, which may be of another cluster. If it is theirs, give "
        f"--zookeeper {zookeeper.text} too"
    )


def property_values(settings: Settings) -> dict[str, str]:
    """Return the settings in force as properties, by librdkafka's names, without secrets."""
    names = {java: other for other, java in property_names.OF_LIBRDKAFKA.items()}
    values: dict[str, str] = {}
    for table, arguments in (
        (_OF_NETWORK, settings.network),
        (_OF_PRODUCER, settings.producer),
        (_OF_CONSUMER, settings.consumer),
    ):
        for java, (argument, _) in table.items():
            if argument in arguments and java != "partitioner.class":
                values[names.get(java, java)] = _shown(arguments[argument])
    if settings.zookeeper_connect is not None:
        values[_ZOOKEEPER] = settings.zookeeper_connect
    if settings.zookeeper_check is not None:
        values[_ZOOKEEPER_CHECK] = settings.zookeeper_check
    return values


def properties_by_argument() -> dict[str, str]:
    """Return for each argument of the clients the property that sets it, by Java's name."""
    tables = (_OF_NETWORK, _OF_PRODUCER, _OF_CONSUMER)
    return {
        **{argument: java for table in tables for java, (argument, _) in table.items()},
        "zookeeper_connect": _ZOOKEEPER,
        "zookeeper_check": _ZOOKEEPER_CHECK,
        "zookeeper_options": "zookeeper.username",
        "ssl_context": "ssl.ca.location",
        **{argument: java for java, argument in ARGUMENTS.items()},
        "sasl_mechanism": "sasl.mechanism",
    }


def _shown(value: object) -> str:
    """Return a parsed value as librdkafka writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, type):
        from aiokafka08._tools.cli.kcat.partitioner import ConsistentRandomPartitioner

        return "consistent_random" if value is ConsistentRandomPartitioner else value.__name__
    return "none" if value is None else str(value)


def _canonical(name: str) -> str:
    """Return Java's name of a property; librdkafka allows `topic.` before topic properties."""
    if name.startswith("topic.") and name not in property_names.WITHOUT_EFFECT:
        name = name.removeprefix("topic.")
    return property_names.ALIASES.get(name, name)


def _add(
    name: str,
    property_: _Property,
    texts: Mapping[str, str],
    arguments: Mapping[str, dict[str, Any]],
    notes: list[str],
) -> None:
    """Parse a property into `arguments`, or note that it has no effect."""
    shown = show_option(property_.name, property_.text)
    for kind, table in (
        ("network", _OF_NETWORK),
        ("producer", _OF_PRODUCER),
        ("consumer", _OF_CONSUMER),
    ):
        if name in table:
            argument, parse = table[name]
            arguments[kind][argument] = parse(property_.name, property_.text)
            return
    if name in (_ZOOKEEPER, _ZOOKEEPER_CHECK):
        return
    if name == _DUAL_COMMIT:
        is_dual = parse_boolean(property_.name, property_.text)
        storage = texts.get(_STORAGE, "").strip().lower()
        if storage == "dual" and not is_dual:
            raise IllegalArgumentError(
                f"{shown} with {_STORAGE}=dual: expected {_STORAGE}=kafka, or {_DUAL_COMMIT}=true"
            )
        if storage not in ("kafka", "dual") and is_dual:
            notes.append(f"{shown} has no effect: {_STORAGE} isn't kafka")
        return
    if name in ZOOKEEPER_SECURITY:
        if _ZOOKEEPER not in texts:
            notes.append(f"{hide_value(property_.name)} has no effect: there is no {_ZOOKEEPER}")
        return
    if name in property_names.REFUSED:
        raise IllegalArgumentError(f"{shown} is not supported: {property_names.REFUSED[name]}")
    if name in property_names.WITHOUT_EFFECT:
        notes.append(f"{shown} has no effect: {property_names.WITHOUT_EFFECT[name]}")
    elif is_known(name):
        if not is_sasl(texts):
            notes.append(
                f"{hide_value(property_.name)} has no effect: security.protocol doesn't ask for "
                "SASL"
            )
        elif name in SASL_WITHOUT_EFFECT:
            notes.append(f"{shown} has no effect: this client renews tickets by itself")
        elif name not in SASL:
            raise IllegalArgumentError(
                f"{hide_value(property_.name)} is not supported; expected one of {', '.join(SASL)}"
            )
    elif name in _ALL_TLS or name in _ALL_TLS_UNSUPPORTED:
        if name in _TLS_FILES and "security.protocol" not in texts:
            raise IllegalArgumentError(
                f"{shown} without security.protocol: expected security.protocol=SSL too, or "
                "PLAINTEXT for connections without TLS"
            )
        if not is_tls(texts):
            notes.append(f"{shown} has no effect: security.protocol isn't SSL")
        elif name not in _ALL_TLS:
            raise IllegalArgumentError(
                f"{shown} is not supported; expected one of {', '.join(sorted(_ALL_TLS))}"
            )
    else:
        raise IllegalArgumentError(
            f"{hide_value(property_.name)}: unknown property{_similar(name)}"
        )


def _similar(name: str) -> str:
    """Return the end of an error: similar names, or where to find the list of properties."""
    from difflib import get_close_matches

    known = {*SETTABLE, *property_names.ALIASES, *property_names.WITHOUT_EFFECT}
    similar = get_close_matches(name, sorted(known), n=3, cutoff=0.6)
    if similar:
        return f"; similar: {', '.join(similar)}"
    return "; 'The command line' in the documentation lists the properties"
