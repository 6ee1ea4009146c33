"""Map the options `kafka.*` of Spark's Kafka source to the settings of this client. Pure.

Invariant: no property is dropped silently. Each is mapped, or reported as one without effect, or
refused with the reason, or refused as an unknown option. An option that Spark's own source refuses
is refused here too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from aiokafka08._core.names import similar_names
from aiokafka08._core.properties import (
    NETWORK,
    PRODUCE,
    TLS,
    TLS_UNSUPPORTED,
    PropertyTable,
    TlsOptions,
    hide_value,
    is_tls,
    isolation,
    parse_boolean,
    parse_positive,
    show_option,
    tls_options,
)
from aiokafka08._core.sasl.java_properties import (
    SASL,
    SASL_WITHOUT_EFFECT,
    is_sasl,
    sasl_options,
)
from aiokafka08._wording import newer_protocol
from aiokafka08.errors import IllegalArgumentError

PREFIX: Final = "kafka."


@dataclass(frozen=True, slots=True)
class ClientProperties:
    """The `kafka.*` options as keyword arguments of this client."""

    # Arguments of `_core.net.config.net_config`, without TLS.
    network: Mapping[str, Any]
    # In a writer: arguments of the producer. In a reader: values by the setting's name in `FETCH`,
    # such as `max_bytes`.
    settings: Mapping[str, Any]
    tls: TlsOptions | None
    # A log line for each given property without effect, with the reason.
    ignored: tuple[str, ...]

    @property
    def client_id(self) -> str:
        """The client id, with which log lines begin."""
        return str(self.network.get("client_id", "aiokafka08-spark"))


FETCH: Final[PropertyTable] = {
    "max.partition.fetch.bytes": ("max_bytes", parse_positive),
    "fetch.max.bytes": ("limit_bytes", parse_positive),
    "check.crcs": ("check_crcs", parse_boolean),
    "isolation.level": ("isolation_level", isolation),
}

_GROUP: Final = "Spark assigns the partitions, no consumer group is joined"
_POLL: Final = "a task prefetches its range and doesn't poll"
_SOCKET: Final = "the event loop owns the sockets"
_TICKETS: Final = "this client renews tickets by itself"
_PEM_ONLY: Final = "of TLS only PEM files and the check of the host name can be set"
_METRICS: Final = "the metrics of Java's client and their reporters need Java"
WITHOUT_EFFECT: Final[Mapping[str, str]] = {
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

_DESERIALIZER: Final = "keys and values are read as bytes. Convert them with DataFrame operations"
_SERIALIZER: Final = (
    "keys and values are written as bytes or text. Convert them with DataFrame operations"
)
_INTERCEPTORS: Final = (
    "interceptors may change messages, and Java classes can't be called from Python"
)
REFUSED_READING: Final[Mapping[str, str]] = {
    "auto.offset.reset": (
        "Spark's checkpoint decides where a query continues, and an added partition starts at its "
        "first message. Set the option startingOffsets to earliest or latest"
    ),
    "key.deserializer": _DESERIALIZER,
    "value.deserializer": _DESERIALIZER,
    "enable.auto.commit": "Spark's checkpoint keeps the offsets",
    "interceptor.classes": _INTERCEPTORS,
}
REFUSED_WRITING: Final[Mapping[str, str]] = {
    "key.serializer": _SERIALIZER,
    "value.serializer": _SERIALIZER,
    "interceptor.classes": _INTERCEPTORS,
    "transactional.id": f"transactions need {newer_protocol()}",
}

READING: Final = tuple(sorted({*NETWORK, *FETCH, *WITHOUT_EFFECT, *TLS, *SASL}))
WRITING: Final = tuple(sorted({*NETWORK, *PRODUCE, *WITHOUT_EFFECT, *TLS, *SASL}))


def reader_properties(properties: Mapping[str, str]) -> ClientProperties:
    """Check and map the `kafka.*` options of a reader; names come without the prefix.

    Raises:
        IllegalArgumentError: an unknown or refused name, or a wrong value.
        UnsupportedVersionError: the protocol of 0.8 doesn't support the value of an option.
    """
    return _map(properties, FETCH, REFUSED_READING, READING)


def writer_properties(properties: Mapping[str, str]) -> ClientProperties:
    """Check and map the `kafka.*` options of a writer. Raises as `reader_properties`."""
    return _map(properties, PRODUCE, REFUSED_WRITING, WRITING)


_SERVERS: Final = ("kafka.bootstrap.servers",)
# The options that may be meant by a name, in lower case, which other tools or the other direction
# (reading or writing) use
_OTHER_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "topic": ("subscribe",),
    "topics": ("subscribe", "topic"),
    "subscribe": ("topic",),
    "pattern": ("subscribePattern",),
    "topicpattern": ("subscribePattern",),
    "broker": _SERVERS,
    "brokers": _SERVERS,
    "bootstrap": _SERVERS,
    "servers": _SERVERS,
    "offset": ("startingOffsets",),
    "offsets": ("startingOffsets", "endingOffsets"),
    "auto.offset.reset": ("startingOffsets",),
}


def unknown_option(option: str, known: Iterable[str]) -> IllegalArgumentError:
    """Return the error for an unknown option, with at most three known names that may be meant.

    The prefix `kafka.` doesn't count, so that an option without it finds its property.
    """
    # Imported here, because it imports asyncio, which only this error needs.
    from aiokafka08._core.concurrency.loop_yield import finish_steps

    by_end = {name.removeprefix(PREFIX): name for name in known}
    end = option.removeprefix(PREFIX)
    near = [one for one in _OTHER_NAMES.get(option.lower(), ()) if one in by_end.values()]
    if not near:
        ends = [end] if end in by_end else finish_steps(similar_names(end, by_end))
        near = [by_end[one] for one in ends]
    expected = (
        f". Did you mean {' or '.join(map(repr, near))}?"
        if near
        else "; expected one of those in 'Spark and Kafka 0.8' in the documentation"
    )
    # The value isn't shown: the option may be a secret whose name is misspelt.
    return IllegalArgumentError(f"{hide_value(option)}: unknown option{expected}")


def _map(
    properties: Mapping[str, str],
    table: PropertyTable,
    refused: Mapping[str, str],
    known: tuple[str, ...],
) -> ClientProperties:
    """Map the properties of `NETWORK`, and those of `table`: `FETCH` or `PRODUCE`."""
    network: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    ignored: list[str] = []
    for name, text in properties.items():
        option = f"{PREFIX}{name}"
        if name in refused:
            raise IllegalArgumentError(
                f"{show_option(option, text)} is not supported: {refused[name]}"
            )
        if name in NETWORK:
            argument, parse = NETWORK[name]
            network[argument] = parse(option, text)
        elif name in table:
            argument, parse = table[name]
            settings[argument] = parse(option, text)
        elif name in WITHOUT_EFFECT:
            ignored.append(f"{show_option(option, text)} has no effect: {WITHOUT_EFFECT[name]}")
        elif name in (*TLS, *TLS_UNSUPPORTED) and not is_tls(properties):
            ignored.append(
                f"{show_option(option, text)} has no effect: kafka.security.protocol is PLAINTEXT"
            )
        elif name in TLS_UNSUPPORTED:
            raise IllegalArgumentError(
                f"{show_option(option, text)} is not supported: {_PEM_ONLY}. Leave it out, or set "
                f"one of {', '.join(map(PREFIX.__add__, TLS))}"
            )
        elif name in SASL and not is_sasl(properties):
            ignored.append(
                f"{hide_value(option)} has no effect: kafka.security.protocol doesn't ask for SASL"
            )
        elif name in SASL_WITHOUT_EFFECT:
            ignored.append(f"{show_option(option, text)} has no effect: {_TICKETS}")
        elif name not in (*TLS, *SASL):
            raise unknown_option(option, map(PREFIX.__add__, known))
    if "bootstrap_servers" not in network:
        raise IllegalArgumentError(
            "the option 'kafka.bootstrap.servers' is missing; expected 'host:port,host:port'"
        )
    tls = tls_options(properties, PREFIX) if is_tls(properties) else None
    network |= sasl_options(properties, PREFIX)
    return ClientProperties(network, settings, tls, tuple(ignored))
