"""The options `kafka.*`: names and values of the Java clients, as those of this client.

Pure. Law: a property is mapped, or has no effect here and that is told, or is refused with its
reason; one that nobody knows is an error. What Spark's own source refuses is refused here too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from aiokafka08.errors import IllegalArgumentError, UnsupportedVersionError

Convert = Callable[[str, str], Any]
"""The option's full name and its text, to a value of this client."""


@dataclass(frozen=True, slots=True)
class TLS:
    """What an SSL context is made of, where it is used: a context doesn't travel to executors."""

    cafile: str | None = None
    certfile: str | None = None
    password: str | None = field(default=None, repr=False)
    check_hostname: bool = True


@dataclass(frozen=True, slots=True)
class Properties:
    """`kafka.*` options, as keyword arguments of this client."""

    network: Mapping[str, Any]
    """Those of `net.config.net_config`, TLS left out."""
    own: Mapping[str, Any]
    """Those of the side: the producer's keyword arguments, or the reader's (`FETCH`)."""
    tls: TLS | None
    without_effect: tuple[str, ...]
    """What was given and does nothing here, with the reason."""


def integer(option: str, text: str, least: int = 0, most: int = 2**63 - 1) -> int:
    """An option's integer.

    Raises:
        IllegalArgumentError: it isn't one, or not within the bounds.
    """
    stripped = text.strip()
    if re.fullmatch(r"[+-]?[0-9]{1,19}", stripped) and least <= int(stripped) <= most:
        return int(stripped)
    bounds = f"from {least} on" if most >= 2**63 - 1 else f"from {least} to {most}"
    raise IllegalArgumentError(f"{option}={text!r}: allowed are integers {bounds}")


def boolean(option: str, text: str) -> bool:
    """An option's true or false, in any case.

    Raises:
        IllegalArgumentError: it is neither.
    """
    found: bool = choice(option, text, {"true": True, "false": False})
    return found


def choice(option: str, text: str, allowed: Mapping[str, Any]) -> Any:
    """What an option's word stands for; case doesn't matter.

    Raises:
        IllegalArgumentError: it isn't among the words that are allowed.
    """
    try:
        return allowed[text.strip().lower()]
    except KeyError:
        names = ", ".join(allowed)
        raise IllegalArgumentError(f"{option}={text!r}: allowed are {names}") from None


def _text(option: str, text: str) -> str:
    if not text.strip():
        raise IllegalArgumentError(f"{option}={text!r}: it is empty")
    return text.strip()


def _positive(option: str, text: str) -> int:
    return integer(option, text, 1, 2**31 - 1)


def _from_zero(option: str, text: str) -> int:
    return integer(option, text, 0, 2**31 - 1)


def _idle(option: str, text: str) -> int | None:
    given = integer(option, text, -1)
    return None if given == -1 else max(given, 1)


def _acks(option: str, text: str) -> int | str:
    if text.strip().lower() in ("all", "-1"):
        return "all"
    return integer(option, text, 0, 0x7FFF)


def _codec(option: str, text: str) -> str | None:
    if text.strip().lower() == "zstd":
        raise UnsupportedVersionError(
            f"{option}={text!r} needs message format 2 (brokers from 2.1 on), which this client "
            "doesn't speak; use snappy, gzip or lz4"
        )
    codecs = {"none": None, "gzip": "gzip", "snappy": "snappy", "lz4": "lz4"}
    codec: str | None = choice(option, text, codecs)
    return codec


def _isolation(option: str, text: str) -> str:
    if text.strip().lower() == "read_committed":
        raise UnsupportedVersionError(
            f"{option}={text!r} needs Fetch 4 and message format 2 (brokers from 0.11 on), which "
            "this client doesn't speak"
        )
    isolation: str = choice(option, text, {"read_uncommitted": "read_uncommitted"})
    return isolation


def _partitioner_class(option: str, text: str) -> str:
    name = text.strip().rpartition(".")[2]
    known = {
        "DefaultPartitioner": "murmur2",
        "BuiltInPartitioner": "murmur2",
        "UniformStickyPartitioner": "sticky",
        "RoundRobinPartitioner": "round_robin",
    }
    if name in known:
        return known[name]
    raise IllegalArgumentError(
        f"{option}={text!r}: Java classes can't be called from here; known are "
        f"{', '.join(known)}, and the option 'partitioner' has more"
    )


def _no_idempotence(option: str, text: str) -> bool:
    if boolean(option, text):
        raise UnsupportedVersionError(
            f"{option}={text!r} needs message format 2 (brokers from 0.11 on), which this client "
            "doesn't speak: a retried batch may be stored twice"
        )
    return False


def _security_protocol(option: str, text: str) -> str:
    if text.strip().upper().startswith("SASL"):
        raise _no_sasl(option, text)
    protocol: str = choice(option, text, {"plaintext": "PLAINTEXT", "ssl": "SSL"})
    return protocol


def no_such_option(option: str, text: str, allowed: str) -> IllegalArgumentError:
    """The error for an option that nobody knows; what may be a secret isn't shown."""
    return IllegalArgumentError(f"{_given(option, text)}: no such option; there are {allowed}")


def _given(option: str, text: str) -> str:
    secret = any(word in option.lower() for word in _SECRETS)
    return f"{option}=…" if secret else f"{option}={text!r}"


_SECRETS: Final = ("password", "jaas", "secret", "token", "keystore.key")
"""Options with these words in their names stay out of errors, and so out of logs."""


def _no_sasl(option: str, text: str) -> UnsupportedVersionError:
    return UnsupportedVersionError(
        f"{_given(option, text)}: SASL needs SaslHandshake (brokers from 0.10 on), which this "
        "client doesn't speak; use PLAINTEXT or SSL"
    )


NETWORK: Final[Mapping[str, tuple[str, Convert]]] = {
    "bootstrap.servers": ("bootstrap_servers", _text),
    "client.id": ("client_id", _text),
    "request.timeout.ms": ("request_timeout_ms", _positive),
    "retry.backoff.ms": ("retry_backoff_ms", _from_zero),
    "metadata.max.age.ms": ("metadata_max_age_ms", _positive),
    "connections.max.idle.ms": ("connections_max_idle_ms", _idle),
    "security.protocol": ("security_protocol", _security_protocol),
}

FETCH: Final[Mapping[str, tuple[str, Convert]]] = {
    "max.partition.fetch.bytes": ("max_bytes", _positive),
    "fetch.max.bytes": ("limit_bytes", _positive),
    "check.crcs": ("check_crcs", boolean),
    "isolation.level": ("isolation_level", _isolation),
}

PRODUCE: Final[Mapping[str, tuple[str, Convert]]] = {
    "acks": ("acks", _acks),
    "compression.type": ("compression_type", _codec),
    "linger.ms": ("linger_ms", _from_zero),
    "batch.size": ("max_batch_size", _positive),
    "buffer.memory": ("buffer_memory", _positive),
    "max.request.size": ("max_request_size", _positive),
    "max.in.flight.requests.per.connection": ("max_in_flight_requests_per_connection", _positive),
    "delivery.timeout.ms": ("delivery_timeout_ms", _positive),
    "partitioner.class": ("partitioner", _partitioner_class),
    "enable.idempotence": ("enable_idempotence", _no_idempotence),
}

_GROUP = "no consumer group is joined: Spark assigns the partitions"
_POLL = "ranges are read several requests ahead, there is no poll"
_SOCKET = "the sockets are the event loop's"
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
    "default.api.timeout.ms": "request.timeout.ms and fetchOffset.* bound the calls",
    "exclude.internal.topics": "a subscribePattern never takes internal topics",
    "allow.auto.create.topics": "reading never creates a topic",
    "client.dns.lookup": "all addresses of a name are tried",
    "retries": "delivery.timeout.ms bounds the retries",
    "max.block.ms": "delivery.timeout.ms bounds waiting for memory, too",
    "reconnect.backoff.ms": "retry.backoff.ms is used",
    "reconnect.backoff.max.ms": "retry.backoff.ms is used",
}

_DESERIALIZER = (
    "keys and values come as bytes; turn them into something else with DataFrame operations"
)
_SERIALIZER = "keys and values are written as bytes or text; make them with DataFrame operations"
_REFUSED_READING: Final[Mapping[str, str]] = {
    "auto.offset.reset": (
        "set the option startingOffsets to earliest or latest: Spark keeps the offsets, so that "
        "nothing is missed when partitions are added"
    ),
    "key.deserializer": _DESERIALIZER,
    "value.deserializer": _DESERIALIZER,
    "enable.auto.commit": "offsets are kept in Spark's checkpoint",
    "interceptor.classes": "interceptors may change messages, and Java classes can't be called",
}
_REFUSED_WRITING: Final[Mapping[str, str]] = {
    "key.serializer": _SERIALIZER,
    "value.serializer": _SERIALIZER,
    "interceptor.classes": "interceptors may change messages, and Java classes can't be called",
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

READING: Final = tuple(sorted({*NETWORK, *FETCH, *_WITHOUT_EFFECT, *_TLS}))
WRITING: Final = tuple(sorted({*NETWORK, *PRODUCE, *_WITHOUT_EFFECT, *_TLS}))


def reading(given: Mapping[str, str]) -> Properties:
    """The `kafka.*` options of a reader; names without the prefix.

    Raises:
        IllegalArgumentError: an unknown or refused name, or a value that isn't allowed.
        UnsupportedVersionError: what the protocol of 0.8 can't do.
    """
    return _map(given, FETCH, _REFUSED_READING, READING)


def writing(given: Mapping[str, str]) -> Properties:
    """The `kafka.*` options of a writer; names without the prefix. Raises as `reading`."""
    return _map(given, PRODUCE, _REFUSED_WRITING, WRITING)


def _map(
    given: Mapping[str, str],
    side: Mapping[str, tuple[str, Convert]],
    refused: Mapping[str, str],
    allowed: tuple[str, ...],
) -> Properties:
    network: dict[str, Any] = {}
    own: dict[str, Any] = {}
    without_effect: list[str] = []
    for name, text in given.items():
        option = f"kafka.{name}"
        if name in refused:
            raise IllegalArgumentError(f"{option}={text!r} is not supported: {refused[name]}")
        if name.startswith("sasl."):
            raise _no_sasl(option, text)
        if name in NETWORK:
            ours, convert = NETWORK[name]
            network[ours] = convert(option, text)
        elif name in side:
            ours, convert = side[name]
            own[ours] = convert(option, text)
        elif name in _WITHOUT_EFFECT:
            without_effect.append(f"{option}={text!r} has no effect: {_WITHOUT_EFFECT[name]}")
        elif name not in _TLS:
            raise no_such_option(option, text, ", ".join(f"kafka.{one}" for one in allowed))
    if "bootstrap_servers" not in network:
        raise IllegalArgumentError(
            "the option 'kafka.bootstrap.servers' must be given: 'host:port,host:port'"
        )
    return Properties(network, own, _tls(given, network), tuple(without_effect))


def _tls(given: Mapping[str, str], network: Mapping[str, Any]) -> TLS | None:
    names = [name for name in _TLS if name in given]
    if network.get("security_protocol") != "SSL":
        if names:
            raise IllegalArgumentError(
                f"kafka.{names[0]} is given, but kafka.security.protocol isn't SSL"
            )
        return None
    for kind in ("truststore", "keystore"):
        location, type_ = given.get(f"ssl.{kind}.location"), given.get(f"ssl.{kind}.type", "JKS")
        if location is not None and type_.strip().upper() != "PEM":
            raise IllegalArgumentError(
                f"kafka.ssl.{kind}.location={location!r} with kafka.ssl.{kind}.type={type_!r}: "
                f"only PEM files can be read; convert it (keytool -exportcert -rfc, or openssl "
                f"pkcs12) and set kafka.ssl.{kind}.type=PEM"
            )
    algorithm = given.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
    if algorithm not in ("https", ""):
        raise IllegalArgumentError(
            f"kafka.ssl.endpoint.identification.algorithm={algorithm!r}: allowed are https and ''"
        )
    return TLS(
        given.get("ssl.truststore.location"),
        given.get("ssl.keystore.location"),
        given.get("ssl.key.password"),
        algorithm == "https",
    )
