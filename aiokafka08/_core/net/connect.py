"""Connect to a host name: resolve it anew, try all its addresses, and say why they failed.

`transport` uses it for the connections that carry requests, `probe` for its throw-away connections.
An address that a broker advertises may be anything: a name that can't be resolved, an impossible
port, the address of a machine that is switched off.

Invariant: whatever the address is, a failure is a `KafkaConnectionError` that states the reason.
"""

from __future__ import annotations

import asyncio
import functools
import os
import re
import socket
import ssl
from collections.abc import Callable, Collection, Coroutine
from typing import Any, Final, TypeVar

from aiokafka08._core.net.config import Address, NetConfig, address_text
from aiokafka08._core.net.staggered_race import (
    AllAttemptsFailedError,
    stagger_delay,
    staggered_race,
)
from aiokafka08.errors import CertificateError, KafkaConnectionError

T = TypeVar("T")

CONNECT_ERRORS: Final = (OSError, UnicodeError, OverflowError)
"""What connecting may raise; the last two for impossible names and ports."""

_CLIENT_CERTIFICATE: Final = (
    "whether it demands a client certificate (ssl_context.load_cert_chain; for commands "
    "ssl.certificate.location)"
)


async def connect_to_any_ip(
    address: Address,
    config: NetConfig,
    connect: Callable[[str], Coroutine[Any, Any, T]],
    discard: Callable[[T], object],
) -> T:
    """Call `connect` for each IP address of the host, and return the result that is ready first.

    The calls start one after another (see `staggered_race`). A name may stand for several brokers,
    or for IPv6 and IPv4, and each of these addresses may be dead.

    Args:
        address: host and port.
        config: sets the delay between two starts, and whether the error texts mention TLS. The
            caller limits the time of the whole call.
        connect: connects to an IP address.
        discard: called with each further result, if several addresses work.

    Raises:
        CertificateError: each address has a certificate that isn't trusted.
        KafkaConnectionError: no address works; `__cause__` is the error of one.
    """
    errors: Collection[Exception]
    try:
        ips = await resolve(*address)
        if not ips:
            raise OSError("the name has no address")
        attempts = {ip: functools.partial(connect, ip) for ip in ips}
        return await staggered_race(
            attempts,
            delay_s=stagger_delay(config.request_timeout_s, len(ips)),
            expected=CONNECT_ERRORS,
            discard=discard,
        )
    except AllAttemptsFailedError as failed:
        errors = failed.errors.values()
    except CONNECT_ERRORS as error:
        errors = [error]
    reasons = dict.fromkeys(_reason(config, error) for error in errors)
    text = f"{address_text(address)}: {', '.join(reasons)}"
    if all(isinstance(error, ssl.SSLCertVerificationError) for error in errors):
        raise CertificateError(text)
    # The cause: of an address where something listens, if there is one.
    cause = min(errors, key=lambda error: isinstance(error, ConnectionRefusedError))
    raise KafkaConnectionError(text) from cause


async def resolve(host: str, port: int) -> list[str]:
    """Return the current IP addresses of a host name."""
    if not host:  # which getaddrinfo() takes for this machine (docs/brokers.md 4.14)
        raise OSError(
            "the brokers know no address of this broker for plain connections: it may be a newer "
            "one that listens for TLS only. Add a PLAINTEXT listener to it"
        )
    import ipaddress  # takes milliseconds, and a program may only construct its client

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
    """Return the Kafka error for a socket error."""
    return KafkaConnectionError(f"{address_text(address)}: {_reason(config, error)}")


def timeout_text(address: Address, config: NetConfig, limit_s: float) -> str:
    """Return the error text for an address that can't be connected to in time."""
    tls = "" if config.ssl_context is None else ", or no complete TLS handshake,"
    return f"{address_text(address)}: no connection{tls} within {limit_s * 1000:.0f} ms"


def describe_error(error: BaseException) -> str:
    """Return the reason of a socket error.

    asyncio's own texts contain the error numbers and the addresses, but not the reasons.
    """
    numbers = re.findall(r"\[Errno (\d+)\]", str(error))
    reasons = dict.fromkeys(os.strerror(int(number)) for number in numbers)
    if reasons:
        return ", ".join(reasons)
    strerror: str | None = getattr(error, "strerror", None)
    return strerror or str(error) or type(error).__name__
