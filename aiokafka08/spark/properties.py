"""Map the options `kafka.*` of Spark's Kafka source to the settings of this client.

These options have the names and values of the Java clients. Pure: no pyspark, no network. This
module also parses single option values and words their errors, for `options` and `offsets`.

Invariant: each property in the tables below is mapped, or reported as one without effect, or
refused with the reason; any other property is an error. What Spark's own source refuses is refused
here too.

Called by `options`. `driver` and `writer` pass the settings on to the client.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from aiokafka08.errors import IllegalArgumentError, UnsupportedVersionError

ParseProperty = Callable[[str, str], Any]
"""Function from an option's full name and its text to a setting of this client."""


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """Paths and password for an SSL context, which is built where it is used.

    An SSL context can't be pickled, and so can't be sent to executors.
    """

    cafile: str | None = None
    certfile: str | None = None
    password: str | None = field(default=None, repr=False)
    check_hostname: bool = True


@dataclass(frozen=True, slots=True)
class ClientProperties:
    """The `kafka.*` options as keyword arguments of this client."""

    network: Mapping[str, Any]
    """Arguments of `net.config.net_config`, without TLS."""
    settings: Mapping[str, Any]
    """In a writer: arguments of the producer. In a reader: values by the setting's name in `FETCH`,
    such as `max_bytes`."""
    tls: TlsOptions | None
    ignored: tuple[str, ...]
    """A log line for each given property without effect, with the reason."""

    @property
    def client_id(self) -> str:
        """The client id, with which log lines begin."""
        return str(self.network.get("client_id", "aiokafka08-spark"))


# --- values and errors of single options ----------------------------------------------------------


def integer(option: str, text: str, least: int = 0, most: int = 2**63 - 1) -> int:
    """Parse an integer.

    Raises:
        IllegalArgumentError: `text` is no integer, or out of bounds.
    """
    stripped = text.strip()
    if re.fullmatch(r"[+-]?[0-9]{1,19}", stripped) and least <= int(stripped) <= most:
        return int(stripped)
    bounds = f">= {least}" if most >= 2**63 - 1 else f"from {least} to {most}"
    raise wrong_value(option, text, "", f"an integer {bounds}")


def boolean(option: str, text: str) -> bool:
    """Parse "true" or "false", in upper or lower case.

    Raises:
        IllegalArgumentError: `text` is neither.
    """
    parsed: bool = choice(option, text, {"true": True, "false": False})
    return parsed


def choice(option: str, text: str, values: Mapping[str, Any]) -> Any:
    """Return the value of a keyword, in any case.

    Raises:
        IllegalArgumentError: `text` is none of the keywords.
    """
    try:
        return values[text.strip().lower()]
    except KeyError:
        raise wrong_value(option, text, "", one_of(values)) from None


def one_of(names: Iterable[str]) -> str:
    """Return names for the part "expected …" of an error."""
    return f"one of {', '.join(names)}"


def wrong_value(option: str, text: str, detail: str, expected: str) -> IllegalArgumentError:
    """Return the error for an option's value; `detail` may be empty."""
    what = f"{detail}; expected {expected}" if detail else f"expected {expected}"
    return IllegalArgumentError(f"{show_option(option, text)}: {what}")


def unknown_option(option: str, text: str, known: str) -> IllegalArgumentError:
    """Return the error for an unknown option."""
    return IllegalArgumentError(f"{show_option(option, text)}: unknown option; expected {known}")


def show_option(option: str, text: str) -> str:
    """Return an option for an error or a log line: shortened, and without secrets."""
    is_secret = any(word in option.lower() for word in _SECRETS)
    return f"{option}=…" if is_secret else f"{option}={shorten(text)}"


def shorten(value: object) -> str:
    """Return the repr of a value, cut off after 200 characters."""
    shown = repr(value)
    return shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}…"


_MAX_SHOWN: Final = 200
_SECRETS: Final = ("password", "jaas", "secret", "token", "keystore.key")
"""The value of an option with one of these words in its name appears in no error and no log."""


# --- parsers of properties ------------------------------------------------------------------------


def _nonempty(option: str, text: str) -> str:
    if not text.strip():
        raise wrong_value(option, text, "empty", "a non-empty text")
    return text.strip()


def _positive(option: str, text: str) -> int:
    return integer(option, text, 1, 2**31 - 1)


def _not_negative(option: str, text: str) -> int:
    return integer(option, text, 0, 2**31 - 1)


def _idle_time(option: str, text: str) -> int | None:
    milliseconds = integer(option, text, -1)
    return None if milliseconds == -1 else max(milliseconds, 1)


def _acks(option: str, text: str) -> int | str:
    acks: int | str = choice(option, text, {"all": "all", "-1": "all", "0": 0, "1": 1})
    return acks


def _codec(option: str, text: str) -> str | None:
    if text.strip().lower() == "zstd":
        raise UnsupportedVersionError(
            f"{show_option(option, text)}: zstd needs message format 2 (brokers from 2.1 on), "
            "which this client doesn't speak; expected none, gzip, snappy or lz4"
        )
    codecs = {"none": None, "gzip": "gzip", "snappy": "snappy", "lz4": "lz4"}
    codec: str | None = choice(option, text, codecs)
    return codec


def _isolation(option: str, text: str) -> str:
    if text.strip().lower() == "read_committed":
        raise UnsupportedVersionError(
            f"{show_option(option, text)}: transactions need Fetch 4 and message format 2 (brokers "
            "from 0.11 on), which this client doesn't speak; expected read_uncommitted"
        )
    isolation: str = choice(option, text, {"read_uncommitted": "read_uncommitted"})
    return isolation


def _partitioner_class(option: str, text: str) -> str:
    name = text.strip().rpartition(".")[2]
    partitioners = {
        "DefaultPartitioner": "murmur2",
        "BuiltInPartitioner": "murmur2",
        "UniformStickyPartitioner": "sticky",
        "RoundRobinPartitioner": "round_robin",
    }
    if name in partitioners:
        return partitioners[name]
    raise IllegalArgumentError(
        f"{show_option(option, text)}: Java classes can't be called from Python; expected "
        f"{one_of(partitioners)}. The option 'partitioner' offers more"
    )


def _no_idempotence(option: str, text: str) -> bool:
    if boolean(option, text):
        raise UnsupportedVersionError(
            f"{show_option(option, text)}: idempotence needs message format 2 (brokers from 0.11 "
            "on), which this client doesn't speak; expected false. A retried batch may be stored "
            "twice"
        )
    return False


def _security_protocol(option: str, text: str) -> str:
    if text.strip().upper().startswith("SASL"):
        raise _no_sasl(option, text)
    protocol: str = choice(option, text, {"plaintext": "PLAINTEXT", "ssl": "SSL"})
    return protocol


def _no_sasl(option: str, text: str) -> UnsupportedVersionError:
    return UnsupportedVersionError(
        f"{show_option(option, text)}: SASL needs SaslHandshake (brokers from 0.10 on), which this "
        "client doesn't speak; expected kafka.security.protocol PLAINTEXT or SSL"
    )


# --- tables of properties -------------------------------------------------------------------------

NETWORK: Final[Mapping[str, tuple[str, ParseProperty]]] = {
    "bootstrap.servers": ("bootstrap_servers", _nonempty),
    "client.id": ("client_id", _nonempty),
    "request.timeout.ms": ("request_timeout_ms", _positive),
    "retry.backoff.ms": ("retry_backoff_ms", _not_negative),
    "metadata.max.age.ms": ("metadata_max_age_ms", _positive),
    "connections.max.idle.ms": ("connections_max_idle_ms", _idle_time),
    "security.protocol": ("security_protocol", _security_protocol),
}

FETCH: Final[Mapping[str, tuple[str, ParseProperty]]] = {
    "max.partition.fetch.bytes": ("max_bytes", _positive),
    "fetch.max.bytes": ("limit_bytes", _positive),
    "check.crcs": ("check_crcs", boolean),
    "isolation.level": ("isolation_level", _isolation),
}

PRODUCE: Final[Mapping[str, tuple[str, ParseProperty]]] = {
    "acks": ("acks", _acks),
    "compression.type": ("compression_type", _codec),
    "linger.ms": ("linger_ms", _not_negative),
    "batch.size": ("max_batch_size", _positive),
    "buffer.memory": ("buffer_memory", _positive),
    "max.request.size": ("max_request_size", _positive),
    "max.in.flight.requests.per.connection": ("max_in_flight_requests_per_connection", _positive),
    "delivery.timeout.ms": ("delivery_timeout_ms", _positive),
    "partitioner.class": ("partitioner", _partitioner_class),
    "enable.idempotence": ("enable_idempotence", _no_idempotence),
}

_GROUP = "Spark assigns the partitions, no consumer group is joined"
_POLL = "a task prefetches its range and doesn't poll"
_SOCKET = "the event loop owns the sockets"
_METRICS = "the metrics of Java's client and their reporters need Java"
_WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    "group.id": _GROUP,
    "group.instance.id": _GROUP,
    "session.timeout.ms": _GROUP,
    "heartbeat.interval.ms": _GROUP,
    "partition.assignment.strategy": _GROUP,
    "auto.commit.interval.ms": _GROUP,
    "max.poll.interval.ms": _POLL,
    "max.poll.records": _POLL,
    "fetch.min.bytes": _POLL,
    "fetch.max.wait.ms": _POLL,
    "receive.buffer.bytes": _SOCKET,
    "send.buffer.bytes": _SOCKET,
    "metric.reporters": _METRICS,
    "metrics.num.samples": _METRICS,
    "metrics.recording.level": _METRICS,
    "metrics.sample.window.ms": _METRICS,
    "auto.include.jmx.reporter": _METRICS,
    "enable.metrics.push": _METRICS,
    "client.rack": "brokers before 2.4 have no fetch from followers; the leader is read",
    "default.api.timeout.ms": "request.timeout.ms and fetchOffset.* limit the calls",
    "exclude.internal.topics": "a subscribePattern never matches internal topics",
    "allow.auto.create.topics": "reading never creates a topic",
    "client.dns.lookup": "all addresses of a host name are tried",
    "socket.connection.setup.timeout.ms": "request.timeout.ms limits the wait for a connection",
    "socket.connection.setup.timeout.max.ms": "request.timeout.ms limits the wait for a connection",
    "retries": "delivery.timeout.ms limits the retries",
    "max.block.ms": "delivery.timeout.ms limits the wait for memory, too",
    "reconnect.backoff.ms": "retry.backoff.ms is used instead",
    "reconnect.backoff.max.ms": "retry.backoff.ms is used instead",
    "retry.backoff.max.ms": "retry.backoff.ms is used instead",
}

_DESERIALIZER = "keys and values are read as bytes. Convert them with DataFrame operations"
_SERIALIZER = "keys and values are written as bytes or text. Convert them with DataFrame operations"
_INTERCEPTORS = "interceptors may change messages, and Java classes can't be called from Python"
_REFUSED_READING: Final[Mapping[str, str]] = {
    "auto.offset.reset": (
        "Spark's checkpoint decides where a query continues, and an added partition starts at its "
        "first message. Set the option startingOffsets to earliest or latest"
    ),
    "key.deserializer": _DESERIALIZER,
    "value.deserializer": _DESERIALIZER,
    "enable.auto.commit": "Spark's checkpoint keeps the offsets",
    "interceptor.classes": _INTERCEPTORS,
}
_REFUSED_WRITING: Final[Mapping[str, str]] = {
    "key.serializer": _SERIALIZER,
    "value.serializer": _SERIALIZER,
    "interceptor.classes": _INTERCEPTORS,
    "transactional.id": "transactions need brokers from 0.11 on and message format 2",
}

_TLS: Final = (
    "ssl.truststore.location",
    "ssl.truststore.type",
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
)

_TLS_OF_JAVA: Final = (
    "ssl.cipher.suites",
    "ssl.enabled.protocols",
    "ssl.engine.factory.class",
    "ssl.keymanager.algorithm",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.password",
    "ssl.protocol",
    "ssl.provider",
    "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
    "ssl.truststore.certificates",
    "ssl.truststore.password",
)
"""TLS properties of Java's client that this one doesn't have: accepted without TLS only."""

READING: Final = tuple(sorted({*NETWORK, *FETCH, *_WITHOUT_EFFECT, *_TLS}))
WRITING: Final = tuple(sorted({*NETWORK, *PRODUCE, *_WITHOUT_EFFECT, *_TLS}))


def reader_properties(given: Mapping[str, str]) -> ClientProperties:
    """Check and map the `kafka.*` options of a reader; names come without the prefix.

    Raises:
        IllegalArgumentError: an unknown or refused name, or a wrong value.
        UnsupportedVersionError: the protocol of 0.8 doesn't support the value of an option.
    """
    return _map(given, FETCH, _REFUSED_READING, READING)


def writer_properties(given: Mapping[str, str]) -> ClientProperties:
    """Check and map the `kafka.*` options of a writer. Raises as `reader_properties`."""
    return _map(given, PRODUCE, _REFUSED_WRITING, WRITING)


def _map(
    given: Mapping[str, str],
    table: Mapping[str, tuple[str, ParseProperty]],
    refused: Mapping[str, str],
    known: tuple[str, ...],
) -> ClientProperties:
    """Map the properties of `NETWORK`, and those of `table`: `FETCH` or `PRODUCE`."""
    network: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    ignored: list[str] = []
    for name, text in given.items():
        option = f"kafka.{name}"
        if name in refused:
            raise IllegalArgumentError(
                f"{show_option(option, text)} is not supported: {refused[name]}"
            )
        if name.startswith("sasl."):
            raise _no_sasl(option, text)
        if name in NETWORK:
            argument, parse = NETWORK[name]
            network[argument] = parse(option, text)
        elif name in table:
            argument, parse = table[name]
            settings[argument] = parse(option, text)
        elif name in _WITHOUT_EFFECT:
            ignored.append(f"{show_option(option, text)} has no effect: {_WITHOUT_EFFECT[name]}")
        elif name in (*_TLS, *_TLS_OF_JAVA) and not _is_tls(given):
            ignored.append(
                f"{show_option(option, text)} has no effect: kafka.security.protocol is PLAINTEXT"
            )
        elif name not in _TLS:
            raise unknown_option(option, text, one_of(f"kafka.{one}" for one in known))
    if "bootstrap_servers" not in network:
        raise IllegalArgumentError(
            "the option 'kafka.bootstrap.servers' is missing; expected 'host:port,host:port'"
        )
    tls = _tls_options(given) if _is_tls(given) else None
    return ClientProperties(network, settings, tls, tuple(ignored))


def _is_tls(given: Mapping[str, str]) -> bool:
    return given.get("security.protocol", "").strip().upper() == "SSL"


def _tls_options(given: Mapping[str, str]) -> TlsOptions:
    for kind in ("truststore", "keystore"):
        location, type_ = given.get(f"ssl.{kind}.location"), given.get(f"ssl.{kind}.type", "JKS")
        if location is not None and type_.strip().upper() != "PEM":
            raise IllegalArgumentError(
                f"kafka.ssl.{kind}.location={shorten(location)} with kafka.ssl.{kind}.type="
                f"{shorten(type_)}: only PEM files can be read; expected type PEM. Convert the "
                f"file (keytool -exportcert -rfc, or openssl pkcs12) and set "
                f"kafka.ssl.{kind}.type=PEM"
            )
    name = "ssl.endpoint.identification.algorithm"
    algorithm = given.get(name, "https").strip().lower()
    if algorithm not in ("https", ""):
        raise wrong_value(f"kafka.{name}", algorithm, "", "https, or '' for no check")
    return TlsOptions(
        given.get("ssl.truststore.location"),
        given.get("ssl.keystore.location"),
        given.get("ssl.key.password"),
        algorithm == "https",
    )
