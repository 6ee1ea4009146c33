"""The options that producer, consumer and admin share: parsed and checked once, here.

Invariant: a wrong option raises an error when the client is created. The text names the option and
what is expected. It also shows the value, except that of a SASL option that may be a secret.
"""

from __future__ import annotations

import functools
import inspect
import math
import numbers
import operator
import re
import ssl
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, SupportsIndex, TypeVar

from aiokafka08 import environment
from aiokafka08._core.net.backoff import Backoff
from aiokafka08._core.net.limits import NET_LIMITS, NetLimits
from aiokafka08._core.net.versions import BrokerVersion
from aiokafka08._wording import shorten
from aiokafka08.errors import (
    AUTHORIZATION_ERRORS,
    IllegalArgumentError,
    KafkaConfigurationError,
    KafkaError,
)
from aiokafka08.protocol.frame import DEFAULT_MAX_FRAME_BYTES

if TYPE_CHECKING:
    from aiokafka08._core.sasl.mechanism import Mechanism

E = TypeVar("E", bound=KafkaError)

DEFAULT_PORT: Final = 9092
RETRY_BACKOFF_MAX_MS: Final = 1000
"""The longest pause before a retry, unless `retry_backoff_ms` is longer."""

MAX_INT64: Final = 2**63 - 1
"""The largest number that a field of the protocol holds."""

NETWORK_DEFAULTS: Final[Mapping[str, Any]] = {
    "request_timeout_ms": 40000,
    "start_timeout_ms": None,
    "retry_backoff_ms": 100,
    "metadata_max_age_ms": 300000,
    "connections_max_idle_ms": 540000,
    "api_version": None,
    "security_protocol": "PLAINTEXT",
    "ssl_context": None,
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": None,
    "sasl_plain_password": None,
    "sasl_kerberos_service_name": "kafka",
    "sasl_kerberos_domain_name": None,
    "sasl_oauth_token_provider": None,
    "sasl_kerberos_keytab": None,
    "sasl_kerberos_principal": None,
}
"""A copy of the defaults in the clients' signatures, for programs that use a router but no client.
tests/test_options.py compares both; `net_config` has no defaults of its own."""

_NOT_IN_HOST: Final = r"[\x00-\x20\x7f\s/\\;@?#\[\]\"'<>|]"

Address = tuple[str, int]
BootstrapServers = str | Iterable[str | Address]
ApiVersion = str | tuple[int, ...] | None
SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL", "PLAINTEXTSASL"]
SECURITY_PROTOCOLS: Final = typing.get_args(SecurityProtocol)
"""PLAINTEXTSASL is HDP's name of SASL_PLAINTEXT."""
OffsetsStorage = Literal["kafka", "zookeeper", "dual"]
ZookeeperCheck = Literal["refuse", "warn"]


def address_text(address: Address) -> str:
    """Return an address in its usual notation: host:port, [::1]:9092."""
    host, port = advertised_address(*address)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def advertised_address(host: str, port: int) -> Address:
    """Return the address that a broker advertises, without the brackets of IPv6."""
    # `advertised.host.name` and `advertised.listeners` may be "[::1]", which Java's clients accept.
    if host.startswith("[") and host.endswith("]") and ":" in host:
        host = host[1:-1]
    return host, port


@dataclass(frozen=True, slots=True)
class NetConfig:
    """The checked options of the network layer, with times in seconds."""

    bootstrap: tuple[Address, ...]
    client_id: str
    request_timeout_s: float
    start_timeout_s: float
    retry_backoff_s: float
    retry_backoff_max_s: float
    metadata_max_age_s: float
    connections_max_idle_s: float
    pinned_version: BrokerVersion | None
    ssl_context: ssl.SSLContext | None
    sasl: Mechanism | None
    max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES
    limits: NetLimits = NET_LIMITS

    def backoff(self, at_least_s: float = 0.0) -> Backoff:
        """Return new retry delays as configured, but none below `at_least_s` before the jitter."""
        return Backoff(
            max(self.retry_backoff_s, at_least_s), max(self.retry_backoff_max_s, at_least_s)
        )

    def named(self, error: E) -> E:
        """Return the error; add the principal, if known, to an authorization error."""
        if isinstance(error, AUTHORIZATION_ERRORS) and self.sasl is not None:
            principal = self.sasl.principal
            note = f" (principal {principal!r})"
            if principal is not None and note not in error.text:
                others = (arg for arg in error.args if not isinstance(arg, str))
                error.args = (f"{error.text or error.description}{note}", *others)
        return error


def net_config(
    *,
    bootstrap_servers: BootstrapServers,
    client_id: str | None,
    request_timeout_ms: int,
    retry_backoff_ms: int,
    metadata_max_age_ms: int,
    connections_max_idle_ms: int | None,
    api_version: ApiVersion,
    security_protocol: str,
    ssl_context: ssl.SSLContext | None,
    sasl_mechanism: str,
    sasl_plain_username: str | None,
    sasl_plain_password: str | None,
    sasl_kerberos_service_name: str,
    sasl_kerberos_domain_name: str | None,
    sasl_oauth_token_provider: object,
    sasl_kerberos_keytab: str | None,
    sasl_kerberos_principal: str | None,
    start_timeout_ms: int | None,
) -> NetConfig:
    """Check the shared options.

    Raises:
        IllegalArgumentError: a value is wrong, or the `ssl_context` for TLS is missing.
        KafkaConfigurationError: there is an `ssl_context` without TLS, or a SASL option without
            SASL, or an extra isn't installed.
    """
    if security_protocol not in SECURITY_PROTOCOLS:
        raise IllegalArgumentError(
            f"security_protocol={shorten(security_protocol)}: expected one of "
            f"{', '.join(SECURITY_PROTOCOLS)}"
        )
    is_tls = security_protocol in ("SSL", "SASL_SSL")
    if is_tls and ssl_context is None:
        raise IllegalArgumentError(
            f"security_protocol={security_protocol!r}: expected an ssl_context too. Create one "
            "with aiokafka08.helpers.create_ssl_context()"
        )
    if ssl_context is not None and not isinstance(ssl_context, ssl.SSLContext):
        raise IllegalArgumentError(
            f"ssl_context={ssl_context!r}: expected an ssl.SSLContext. Create one with "
            "aiokafka08.helpers.create_ssl_context()"
        )
    if not is_tls and ssl_context is not None:
        tls = "SSL" if security_protocol == "PLAINTEXT" else "SASL_SSL"
        raise KafkaConfigurationError(
            f"security_protocol={security_protocol!r}: expected {tls!r}, since an ssl_context is "
            f"given. Set security_protocol={tls!r}"
        )
    sasl: dict[str, Any] = {
        "sasl_mechanism": sasl_mechanism,
        "sasl_plain_username": sasl_plain_username,
        "sasl_plain_password": sasl_plain_password,
        "sasl_kerberos_service_name": sasl_kerberos_service_name,
        "sasl_kerberos_domain_name": sasl_kerberos_domain_name,
        "sasl_oauth_token_provider": sasl_oauth_token_provider,
        "sasl_kerberos_keytab": sasl_kerberos_keytab,
        "sasl_kerberos_principal": sasl_kerberos_principal,
    }
    mechanism = None
    if "SASL" in security_protocol:
        from aiokafka08._core.sasl.choose import make_mechanism  # few programs need the modules

        mechanism = make_mechanism(**sasl)
    else:
        for option, value in sasl.items():
            if value != NETWORK_DEFAULTS[option]:  # it may be a secret: the text leaves it out
                raise KafkaConfigurationError(
                    f"{option}: has no effect with security_protocol={security_protocol!r}. Set "
                    "security_protocol to 'SASL_PLAINTEXT' or 'SASL_SSL'"
                )
    request_timeout_s = check_positive("request_timeout_ms", request_timeout_ms) / 1000
    retry_backoff_ms = check_not_negative("retry_backoff_ms", retry_backoff_ms)
    return NetConfig(
        bootstrap=parse_bootstrap_servers(bootstrap_servers),
        client_id=_client_id(client_id),
        request_timeout_s=request_timeout_s,
        start_timeout_s=(
            request_timeout_s
            if start_timeout_ms is None
            else check_positive("start_timeout_ms", start_timeout_ms) / 1000
        ),
        retry_backoff_s=retry_backoff_ms / 1000,
        retry_backoff_max_s=max(retry_backoff_ms, RETRY_BACKOFF_MAX_MS) / 1000,
        metadata_max_age_s=check_positive("metadata_max_age_ms", metadata_max_age_ms) / 1000,
        connections_max_idle_s=(
            math.inf
            if connections_max_idle_ms is None
            else check_positive("connections_max_idle_ms", connections_max_idle_ms) / 1000
        ),
        pinned_version=BrokerVersion.pinned(api_version),
        ssl_context=ssl_context,
        sasl=mechanism,
    )


def numbered_client_id(prefix: str, client_id: str | None) -> str | None:
    """Return the client id; without one, the prefix and a number that is new in this process."""
    return f"{prefix}-{environment.new_number()}" if client_id in (None, "") else client_id


def _client_id(client_id: object) -> str:
    if client_id is None or client_id == "":
        return "aiokafka08"  # 0.9.0.0 crashed on an empty one (KAFKA-3088)
    try:
        if isinstance(client_id, str) and len(client_id.encode()) <= 0x7FFF:
            return client_id
    except UnicodeEncodeError:
        pass
    raise IllegalArgumentError(
        f"client_id={shorten(client_id)}: expected a string of at most 32767 bytes in UTF-8"
    )


def parse_bootstrap_servers(servers: BootstrapServers) -> tuple[Address, ...]:
    """Return the addresses in "host:port,host", ["host:port", …] or [("host", port), …].

    A string in a list may have several addresses too. An IPv6 address with a port needs brackets.

    Raises:
        IllegalArgumentError: there is no address, or one can't be parsed.
    """
    items: Iterable[object] = [servers] if isinstance(servers, str) else servers
    if isinstance(servers, bytes | bytearray | memoryview) or not isinstance(servers, Iterable):
        raise IllegalArgumentError(
            f"bootstrap_servers={servers!r}: expected a string 'host:port,host:port' or a list"
        )
    parts: list[object] = []
    for item in items:
        parts += item.split(",") if isinstance(item, str) else [item]
    addresses = tuple(
        dict.fromkeys(
            _parse_address(part)
            for part in parts
            if not isinstance(part, str) or part.strip()  # "kafka1,,kafka2,"
        )
    )
    if not addresses:
        raise IllegalArgumentError(f"bootstrap_servers={servers!r}: expected at least one address")
    return addresses


def _parse_address(part: object) -> Address:
    match part:
        case str():
            return _parse_text(part.strip())
        case [str(host), port]:
            return _host(part, host), _port(part, port)
    raise IllegalArgumentError(
        f"bootstrap_servers: {part!r} in the list; expected 'host:port' or a pair (host, port)"
    )


def _parse_text(text: str) -> Address:
    if "://" in text:
        raise IllegalArgumentError(f"bootstrap_servers: {text!r} is a URL; expected 'host:port'")
    if text.startswith("["):  # [::1]:9092
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")) or (host and ":" not in host):
            raise IllegalArgumentError(
                f"bootstrap_servers: {text!r} can't be parsed; expected '[host]:port'"
            )
        port = rest[1:]
        colon = rest[:1]
    elif text.count(":") > 1:  # a bare IPv6 address
        host, colon, port = text, "", ""
    else:
        host, colon, port = text.partition(":")
    return _host(text, host), _port(text, port if colon else DEFAULT_PORT)


def _host(where: object, host: str) -> str:
    if not host:
        raise IllegalArgumentError(
            f"bootstrap_servers: {where!r} has no host; expected 'host:port'"
        )
    if ":" in host:
        import ipaddress  # takes milliseconds, and few addresses are of IPv6

        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise IllegalArgumentError(
                f"bootstrap_servers: {where!r} has more than one colon, but isn't an IPv6 address; "
                "expected 'host:port' or '[IPv6 address]:port'. Separate addresses by "
                "commas"
            ) from None
        return host
    if match := re.search(_NOT_IN_HOST, host):
        raise IllegalArgumentError(
            f"bootstrap_servers: {where!r} has {match[0]!r} in the host name; expected "
            "'host:port'. Separate addresses by commas"
        )
    try:
        host.encode("idna")
    except UnicodeError as error:  # an empty label, or one that is too long
        raise IllegalArgumentError(
            f"bootstrap_servers: {where!r} has an invalid host name: {error}"
        ) from None
    return host


def _port(where: object, port: object) -> int:
    number = as_integer(port) or 0
    if isinstance(port, str) and len(port) <= 5 and port.isascii() and port.isdigit():
        number = int(port)
    if not 1 <= number <= 65535:
        raise IllegalArgumentError(
            f"bootstrap_servers: {where!r} has the port {port!r}; expected 1 to 65535"
        )
    return number


def as_integer(value: object) -> int | None:
    """Return an integer of any type, such as numpy's, as an int; None for others and bools."""
    if type(value) is int:
        return value
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        return None
    try:
        return operator.index(value)
    except TypeError:  # an array of several numbers has `__index__`, too
        return None


def as_number(value: object) -> float | None:
    """Return a real number of any type as an int or a float; None for others and bools."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        return value
    number = as_integer(value)
    if number is not None or not isinstance(value, numbers.Real):
        return number
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf  # type: ignore[operator]


def check_positive(option: str, value: object) -> int:
    """Return `value` if it is an integer from 1 to 2**63 - 1; raises as `at_least`."""
    return at_least(option, value, 1)


def check_not_negative(option: str, value: object) -> int:
    """Return `value` if it is an integer from 0 to 2**63 - 1; raises as `at_least`."""
    return at_least(option, value, 0)


def at_least(option: str, value: object, least: int) -> int:
    """Return `value` if it is an integer from `least` to 2**63 - 1.

    Raises:
        IllegalArgumentError: it isn't.
    """
    number = as_number(value)
    if number is None or number % 1 != 0 or number < least:
        raise IllegalArgumentError(f"{option}={shorten(value)}: expected an integer >= {least}")
    if number > MAX_INT64:
        raise IllegalArgumentError(
            f"{option}={shorten(value)}: expected an integer from {least} to 2**63 - 1"
        )
    return int(number)


def check_boolean(option: str, value: object) -> bool:
    """Return `value` as a bool if it equals True or False; else raise IllegalArgumentError."""
    # So 1, 0 and 0.0 are accepted. Other values aren't: `bool("no")` would be True.
    if value not in (False, True):
        raise IllegalArgumentError(f"{option}={value!r}: expected True or False")
    return bool(value)


def callable_or_none(option: str, value: object) -> None:
    """Check that `value` is None, or a callable that isn't async."""
    if value is not None and not callable(value):
        raise IllegalArgumentError(f"{option}={value!r}: expected a callable or None")
    not_async(option, value)


def not_async(option: str, value: object) -> None:
    """Raise IllegalArgumentError if `is_coroutine_function(value)`."""
    if is_coroutine_function(value):
        raise IllegalArgumentError(
            f"{option}={value!r}: expected a function that returns its result at once, not an "
            "async one, which nothing would await"
        )


def is_coroutine_function(value: object) -> bool:
    """Return whether `value` is an async function, a partial of one, or has an async `__call__`."""
    while isinstance(value, functools.partial):
        value = value.func
    # An object may have a coroutine function as its `__call__`.
    call = getattr(type(value), "__call__", None)  # noqa: B004 - the method itself is needed
    return inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(call)


def check_one_of(option: str, value: object, allowed: Sequence[object]) -> None:
    """Raise IllegalArgumentError if `value` isn't one of `allowed`."""
    if value not in allowed:
        raise IllegalArgumentError(
            f"{option}={value!r}: expected one of {', '.join(map(repr, allowed))}"
        )
