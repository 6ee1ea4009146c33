"""Parse the properties of Kafka's Java clients, such as `linger.ms`, into arguments of this client.

The tables map the name of a property to an argument and to the function that parses its text.

Invariant: this module is pure. It opens no file, so that it can check TLS options on a machine that
doesn't have the files. No error shows a secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from aiokafka08._core.names import visible
from aiokafka08._wording import newer_protocol, shorten
from aiokafka08.errors import IllegalArgumentError, UnsupportedVersionError

ParseProperty = Callable[[str, str], Any]
"""Function from an option's full name and its text to a setting of this client."""

PropertyTable = Mapping[str, tuple[str, ParseProperty]]
"""Property → the argument of this client, and the function that parses the property's text."""


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """Paths and password for an SSL context, which is built where it is used."""

    # This class has no SSL context, since a context can't be pickled for executors.
    cafile: str | None = None
    certfile: str | None = None
    password: str | None = field(default=None, repr=False)
    check_hostname: bool = True
    keyfile: str | None = None  # None: the private key is in `certfile`
    verify: bool = True


# --- values and errors of single options ----------------------------------------------------------


def integer(option: str, text: str, least: int = 0, most: int = 2**63 - 1) -> int:
    """Parse an integer; IllegalArgumentError if the text isn't one, or is out of bounds."""
    stripped = text.strip()
    if re.fullmatch(r"[+-]?[0-9]{1,19}", stripped) and least <= int(stripped) <= most:
        return int(stripped)
    bounds = f">= {least}" if most >= 2**63 - 1 else f"from {least} to {most}"
    raise wrong_value(option, text, "", f"an integer {bounds}")


def parse_boolean(option: str, text: str) -> bool:
    """Parse "true" or "false" in any case, or raise IllegalArgumentError."""
    parsed: bool = choice(option, text, {"true": True, "false": False})
    return parsed


def choice(option: str, text: str, values: Mapping[str, Any]) -> Any:
    """Return the value of a keyword, in any case, or raise IllegalArgumentError."""
    given = text.strip().lower()
    for keyword, value in values.items():
        if keyword.lower() == given:
            return value
    raise wrong_value(option, text, "", expected_one_of(values))


def expected_one_of(names: Iterable[str]) -> str:
    """Return names for the part "expected …" of an error."""
    return f"one of {', '.join(names)}"


def wrong_value(option: str, text: str, detail: str, expected: str) -> IllegalArgumentError:
    """Return the error for an option's value; `detail` may be empty."""
    problem = f"{detail}; expected {expected}" if detail else f"expected {expected}"
    return IllegalArgumentError(f"{show_option(option, text)}: {problem}")


def show_option(option: str, text: str) -> str:
    """Return an option for an error or a log line: shortened, and without secrets."""
    return hide_value(option) if is_secret(option) else f"{visible(option)}={shorten(text)}"


def hide_value(option: str) -> str:
    """Return an option for an error or a log line, without its value."""
    return f"{visible(option)}=…"


def is_secret(option: str) -> bool:
    return any(word in option.lower() for word in _SECRETS)


# The value of an option with one of these words in its name appears in no error and no log
_SECRETS: Final = ("password", "passphrase", "jaas", "secret", "token", "keystore.key", "key.pem")


# --- parsers of properties ------------------------------------------------------------------------


def nonempty(option: str, text: str) -> str:
    """Return the text without surrounding whitespace; it must not be empty."""
    if not text.strip():
        raise wrong_value(option, text, "empty", "a non-empty text")
    return text.strip()


def parse_positive(option: str, text: str) -> int:
    return integer(option, text, 1, 2**31 - 1)


def parse_not_negative(option: str, text: str) -> int:
    return integer(option, text, 0, 2**31 - 1)


def idle_time(option: str, text: str) -> int | None:
    """Parse milliseconds; -1, which stands for "never", becomes None, and 0 becomes 1."""
    milliseconds = integer(option, text, -1)
    return None if milliseconds == -1 else max(milliseconds, 1)


def _acks(option: str, text: str) -> int | str:
    acks: int | str = choice(option, text, {"all": "all", "-1": "all", "0": 0, "1": 1})
    return acks


def _codec(option: str, text: str) -> str | None:
    if text.strip().lower() == "zstd":
        raise UnsupportedVersionError(
            f"{show_option(option, text)}: zstd needs {newer_protocol(release='2.1')}; expected "
            "none, gzip, snappy or lz4"
        )
    codecs = {"none": None, "gzip": "gzip", "snappy": "snappy", "lz4": "lz4"}
    codec: str | None = choice(option, text, codecs)
    return codec


def isolation(option: str, text: str) -> str:
    """Accept read_uncommitted only."""
    if text.strip().lower() == "read_committed":
        raise UnsupportedVersionError(
            f"{show_option(option, text)}: transactions need "
            f"{newer_protocol('Fetch 4 and message format 2')}; expected read_uncommitted"
        )
    isolation: str = choice(option, text, {"read_uncommitted": "read_uncommitted"})
    return isolation


def offset_reset(option: str, text: str) -> str:
    """Parse Java's, librdkafka's or Scala's word into "earliest", "latest" or "none"."""
    words = {
        "earliest": ("earliest", "smallest", "beginning"),
        "latest": ("latest", "largest", "end"),
        "none": ("none", "error"),
    }
    reset: str = choice(option, text, {word: name for name in words for word in words[name]})
    return reset


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
        f"{expected_one_of(partitioners)}. The option 'partitioner' offers more"
    )


def _no_idempotence(option: str, text: str) -> bool:
    if parse_boolean(option, text):
        raise UnsupportedVersionError(
            f"{show_option(option, text)}: idempotence needs {newer_protocol()}; expected false. A "
            "retried batch may be stored twice"
        )
    return False


def _security_protocol(option: str, text: str) -> str:
    names = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL", "PLAINTEXTSASL")
    protocol: str = choice(option, text, {name: name for name in names})
    return protocol


# --- tables of properties
NETWORK: Final[PropertyTable] = {
    "bootstrap.servers": ("bootstrap_servers", nonempty),
    "client.id": ("client_id", nonempty),
    "request.timeout.ms": ("request_timeout_ms", parse_positive),
    "retry.backoff.ms": ("retry_backoff_ms", parse_not_negative),
    "metadata.max.age.ms": ("metadata_max_age_ms", parse_positive),
    "connections.max.idle.ms": ("connections_max_idle_ms", idle_time),
    "security.protocol": ("security_protocol", _security_protocol),
}

PRODUCE: Final[PropertyTable] = {
    "acks": ("acks", _acks),
    "compression.type": ("compression_type", _codec),
    "linger.ms": ("linger_ms", parse_not_negative),
    "batch.size": ("max_batch_size", parse_positive),
    "buffer.memory": ("buffer_memory", parse_positive),
    "max.request.size": ("max_request_size", parse_positive),
    "max.in.flight.requests.per.connection": (
        "max_in_flight_requests_per_connection",
        parse_positive,
    ),
    "delivery.timeout.ms": ("delivery_timeout_ms", parse_positive),
    "partitioner.class": ("partitioner", _partitioner_class),
    "enable.idempotence": ("enable_idempotence", _no_idempotence),
}

CONSUME: Final[PropertyTable] = {
    "group.id": ("group_id", nonempty),
    "auto.offset.reset": ("auto_offset_reset", offset_reset),
    "enable.auto.commit": ("enable_auto_commit", parse_boolean),
    "auto.commit.interval.ms": ("auto_commit_interval_ms", parse_not_negative),
    "session.timeout.ms": ("session_timeout_ms", parse_positive),
    "heartbeat.interval.ms": ("heartbeat_interval_ms", parse_positive),
    "max.poll.interval.ms": ("max_poll_interval_ms", parse_positive),
    "max.partition.fetch.bytes": ("max_partition_fetch_bytes", parse_positive),
    "fetch.max.bytes": ("fetch_max_bytes", parse_positive),
    "fetch.min.bytes": ("fetch_min_bytes", parse_not_negative),
    "fetch.max.wait.ms": ("fetch_max_wait_ms", parse_not_negative),
    "check.crcs": ("check_crcs", parse_boolean),
    "isolation.level": ("isolation_level", isolation),
}

TLS: Final = (
    "ssl.truststore.location",
    "ssl.truststore.type",
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
)

TLS_UNSUPPORTED: Final = (
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
"""TLS properties of Java's client that this client doesn't support; refused if `is_tls`."""


def is_tls(properties: Mapping[str, str]) -> bool:
    """Return True if `security.protocol` is SSL or SASL_SSL."""
    return properties.get("security.protocol", "").strip().upper() in ("SSL", "SASL_SSL")


def tls_options(properties: Mapping[str, str], prefix: str = "") -> TlsOptions:
    """Return the TLS options from properties with Java's names, or librdkafka's for PEM files.

    `prefix` precedes a property's name in errors. Raises IllegalArgumentError if a store's type
    isn't PEM, or an option has a wrong value.
    """
    for kind in ("truststore", "keystore"):
        location, type_ = (
            properties.get(f"ssl.{kind}.location"),
            properties.get(f"ssl.{kind}.type", "JKS"),
        )
        if location is not None and type_.strip().upper() != "PEM":
            raise IllegalArgumentError(
                f"{prefix}ssl.{kind}.location={shorten(location)} with {prefix}ssl.{kind}.type="
                f"{shorten(type_)}: only PEM files can be read; expected type PEM. Convert the "
                f"file (keytool -exportcert -rfc, or openssl pkcs12) and set "
                f"{prefix}ssl.{kind}.type=PEM"
            )
    name = "ssl.endpoint.identification.algorithm"
    algorithm = properties.get(name, "https").strip().lower()
    if algorithm not in ("https", "none", ""):
        raise wrong_value(f"{prefix}{name}", algorithm, "", "https, or '' for no check")
    name = "enable.ssl.certificate.verification"
    return TlsOptions(
        cafile=properties.get("ssl.ca.location", properties.get("ssl.truststore.location")),
        certfile=properties.get(
            "ssl.certificate.location", properties.get("ssl.keystore.location")
        ),
        keyfile=properties.get("ssl.key.location"),
        password=properties.get("ssl.key.password"),
        check_hostname=algorithm == "https",
        verify=parse_boolean(f"{prefix}{name}", properties.get(name, "true")),
    )
