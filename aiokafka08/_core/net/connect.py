"""Connect to a host name: resolve it anew, try all its addresses, and say why they failed.

An address that a broker advertises may be anything: a name that can't be resolved, an impossible
port, a machine that is switched off, a balancer without a broker behind it, a web server.

Invariant: whatever the address is, a failure is a `KafkaError` that states the reason.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import os
import re
import socket
import ssl
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from aiokafka08._core.net.config import Address, NetConfig, address_text
from aiokafka08._core.net.staggered_race import (
    AllAttemptsFailedError,
    stagger_delay,
    staggered_race,
)
from aiokafka08.errors import (
    CertificateError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
)

T = TypeVar("T")

_OUT_OF_RESOURCES: Final = frozenset(
    (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL)
)


class PendingStep(NamedTuple):
    """A step that an attempt to connect waits for. The error of a timeout names it."""

    text: str  # what hasn't happened yet
    # Whether the peer has accepted the connection and owes a response; it may not be a broker.
    # Otherwise the client waits for the SASL mechanism to make its next token, or for a KDC.
    is_for_peer: bool = False
    detail: object = None  # a value for the `args` of the error

    @classmethod
    def for_response(cls, name: str) -> PendingStep:
        return cls(f"accepts connections but doesn't respond to {name}", is_for_peer=True)

    @property
    def progress(self) -> str:
        """The text; if the client waits for the peer, a sentence with the peer as its subject."""
        return f"it {self.text}" if self.is_for_peer else self.text

    def timeout_error(self, prefix: str, suffix: str = "") -> KafkaTimeoutError:
        """Return the error of a timeout in this wait, with the detail in its `args`."""
        details = () if self.detail is None else (self.detail,)
        return KafkaTimeoutError(f"{prefix}{self.text}{suffix}", *details)


CONNECT_ERRORS: Final = (OSError, UnicodeError, OverflowError)
"""What connecting may raise; the last two for impossible names and ports."""

_CLIENT_CERTIFICATE: Final = (
    "whether it demands a client certificate (ssl_context.load_cert_chain; for commands "
    "ssl.certificate.location)"
)

# Nothing listens at the address: often `::1` beside a listener at 127.0.0.1
_UNREACHABLE: Final = (
    errno.ECONNREFUSED,
    errno.ENETUNREACH,
    errno.EHOSTUNREACH,
    errno.EADDRNOTAVAIL,
    errno.EAFNOSUPPORT,
)


async def ip_addresses(address: Address, config: NetConfig, limit_s: float) -> list[str]:
    """Return the current IP addresses of the host, at least one.

    Raises KafkaConnectionError if the name can't be resolved, KafkaTimeoutError after `limit_s`.
    """
    try:
        async with asyncio.timeout(limit_s) as limit:
            ips = await resolve(*address)
    except CONNECT_ERRORS as error:  # a builtin TimeoutError is an OSError
        if isinstance(error, TimeoutError) and limit.expired():
            raise KafkaTimeoutError(
                f"{address_text(address)}: the name wasn't resolved within {limit_s * 1000:.0f} ms"
            ) from None
        raise connection_error(address, config, error) from error
    if not ips:
        raise KafkaConnectionError(f"{address_text(address)}: the name has no address")
    return ips


async def connect_to_any_ip(
    address: Address,
    config: NetConfig,
    ips: list[str],
    connect: Callable[[str], Coroutine[Any, Any, T]],
    limit_s: float,
    discard: Callable[[T], object] = lambda result: None,
) -> T:
    """Call `connect` for each IP address of the host, and return the result that is ready first.

    If there are several addresses, `connect` should return only after a response.

    Args:
        connect: connects to an IP address, within `limit_s`.
        limit_s: sets the delay between two starts.
        discard: called with each further result, if several addresses work.

    Raises:
        KafkaError: no address works. If all addresses where something listens fail with the same
            class, such as `CertificateError`, it is of that class, else a `KafkaConnectionError`.
    """
    try:
        # A name may stand for several brokers, or for IPv6 and IPv4. Each address may be dead, or
        # accept connections without being a broker.
        return await staggered_race(
            {ip: functools.partial(connect, ip) for ip in ips},
            delay_s=stagger_delay(limit_s, len(ips)),
            expected=(*CONNECT_ERRORS, KafkaError),
            discard=discard,
        )
    except AllAttemptsFailedError as failed:
        errors: Mapping[str, Exception] = failed.errors
    raised = {ip: _kafka_error(address, config, error) for ip, error in errors.items()}
    listening = [ip for ip, error in errors.items() if not _is_unreachable(error)] or list(errors)
    classes = {type(raised[ip]) for ip in listening}
    error_class = classes.pop() if len(classes) == 1 else KafkaConnectionError
    cause = errors[listening[0]]
    details = joined_details(raised[ip] for ip in listening)
    raise error_class(_joined(address, raised), *details) from (
        cause.__cause__ if isinstance(cause, KafkaError) else cause
    )


def joined_details(errors: Iterable[KafkaError]) -> list[object]:
    """Return the `args` of errors without their texts, for one error about them all."""
    return list(
        dict.fromkeys(arg for error in errors for arg in error.args if not isinstance(arg, str))
    )


def _joined(address: Address, errors: Mapping[str, KafkaError]) -> str:
    """Return the reasons as one text, with the IP addresses if the reasons differ."""
    where = address_text(address)
    ips_by_reason: dict[str, list[str]] = {}
    for ip, error in errors.items():
        ips_by_reason.setdefault(error.text.removeprefix(f"{where}: "), []).append(ip)
    if len(ips_by_reason) == 1:
        return f"{where}: {next(iter(ips_by_reason))}"
    return f"{where}: " + "; ".join(
        f"{', '.join(ips)}: {reason}" for reason, ips in ips_by_reason.items()
    )


def _kafka_error(address: Address, config: NetConfig, error: Exception) -> KafkaError:
    if isinstance(error, KafkaError):
        return error
    if isinstance(error, ssl.SSLCertVerificationError):
        return CertificateError(f"{address_text(address)}: {_reason(config, error)}")
    return connection_error(address, config, error)


def _is_unreachable(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno in _UNREACHABLE


def certificate_host(address: Address, config: NetConfig) -> str | None:
    """Return the host name that the broker's certificate must have; None without TLS."""
    # Certificates never have the dot that ends an absolute name.
    return None if config.ssl_context is None else address[0].removesuffix(".")


async def resolve(host: str, port: int) -> list[str]:
    # Old brokers list a broker without a plain listener with an empty host (docs/brokers.md 4.14).
    if not host:
        raise OSError(
            "the brokers know no address of this broker for plain connections: it may be a newer "
            "one that listens for TLS or SASL only. Add a PLAINTEXT listener to it"
        )
    import ipaddress  # takes milliseconds, and constructing a client doesn't need it

    try:
        ipaddress.ip_address(host)
    except ValueError:
        loop = asyncio.get_running_loop()
        try:
            infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except RuntimeError as error:
            # The loop's default executor can't start a thread, or is shut down.
            raise OSError(f"can't resolve the name: {error}") from error
        return list(dict.fromkeys(str(address[0]) for *_, address in infos))
    return [host]


def _reason(config: NetConfig, error: Exception) -> str:
    reason = describe_error(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"the TLS handshake failed: {reason}. Check the CA certificates of ssl_context, and "
            "that the certificate names this host"
        )
    if isinstance(error, ssl.SSLError):
        return (
            f"the TLS handshake failed: {reason}. Check which TLS versions the listener supports, "
            f"and {_CLIENT_CERTIFICATE}"
        )
    if (
        config.ssl_context is not None
        and isinstance(error, ConnectionError)
        and not isinstance(error, ConnectionRefusedError)
    ):
        return (
            f"the TLS handshake failed: {reason}. Check that the port is a TLS listener, and "
            f"{_CLIENT_CERTIFICATE}"
        )
    return reason


def connection_error(address: Address, config: NetConfig, error: Exception) -> KafkaConnectionError:
    return KafkaConnectionError(f"{address_text(address)}: {_reason(config, error)}")


def is_own_shortage(error: KafkaError) -> bool:
    """Return whether a connection failed because this machine has no resources left for it."""
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in _OUT_OF_RESOURCES


def timeout_text(address: Address, config: NetConfig, limit_s: float) -> str:
    """Return the error text for an address that can't be connected to in time."""
    tls = "" if config.ssl_context is None else ", or no complete TLS handshake,"
    return f"{address_text(address)}: no connection{tls} within {limit_s * 1000:.0f} ms"


def describe_error(error: BaseException) -> str:
    """Return the reason of a socket error."""
    # asyncio's own texts have the error numbers and the addresses, but not the reasons.
    numbers = re.findall(r"\[Errno (\d+)\]", str(error))
    reasons = dict.fromkeys(os.strerror(int(number)) for number in numbers)
    if reasons:
        return ", ".join(reasons)
    strerror: str | None = getattr(error, "strerror", None)
    return strerror or str(error) or type(error).__name__
