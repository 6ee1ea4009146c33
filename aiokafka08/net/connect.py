"""From an address to a socket: names resolved anew each time, all their addresses tried, errors in
words.

Law: whatever an address is, the error is a Kafka one and says why. Brokers may advertise anything,
and one that is switched off is silent, not refusing.
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import os
import re
import socket
import ssl
from collections.abc import Callable, Collection, Coroutine
from typing import Any, TypeVar

from aiokafka08.errors import KafkaConnectionError
from aiokafka08.net.config import Address, NetConfig, address_text
from aiokafka08.net.staggered_race import AllAttemptsFailedError, stagger_delay, staggered_race

T = TypeVar("T")

CONNECT_ERRORS = (OSError, UnicodeError, OverflowError)
"""What connecting may raise; the last two for names and ports that can't be."""


async def connect_to_any_ip(
    address: Address,
    config: NetConfig,
    connect: Callable[[str], Coroutine[Any, Any, T]],
    discard: Callable[[T], object],
) -> T:
    """What `connect` makes of the first IP address that works, of those the host stands for.

    A name may stand for several brokers, or for IPv6 and IPv4, and each of them may be dead.

    Raises:
        KafkaConnectionError: no address can be connected to.
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
    reasons = dict.fromkeys(_why_unreachable(config, error) for error in errors)
    raise KafkaConnectionError(f"{address_text(address)}: {', '.join(reasons)}")


async def resolve(host: str, port: int) -> list[str]:
    """The IP addresses of a host name, as it is told at this moment."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        loop = asyncio.get_running_loop()
        infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return list(dict.fromkeys(str(address[0]) for *_, address in infos))
    return [host]


def _why_unreachable(config: NetConfig, error: Exception) -> str:
    reason = describe(error)
    if isinstance(error, ssl.SSLError):
        return f"the TLS handshake failed: {reason}"
    if (
        config.ssl_context is not None
        and isinstance(error, ConnectionError)
        and not isinstance(error, ConnectionRefusedError)
    ):
        return f"the TLS handshake failed: {reason}; is it a TLS listener?"
    return reason


def unreachable(address: Address, config: NetConfig, error: Exception) -> KafkaConnectionError:
    """The error for a socket that broke."""
    return KafkaConnectionError(f"{address_text(address)}: {_why_unreachable(config, error)}")


def unreached(address: Address, config: NetConfig, limit_s: float) -> str:
    """The text for an address that can't be connected to in time."""
    tls = "" if config.ssl_context is None else ", or doesn't finish the TLS handshake,"
    return f"{address_text(address)} can't be reached{tls} within {limit_s * 1000:.0f} ms"


def describe(error: BaseException) -> str:
    """A socket error in words; asyncio's own texts repeat the address, and keep the reason back."""
    numbers = re.findall(r"\[Errno (\d+)\]", str(error))
    reasons = dict.fromkeys(os.strerror(int(number)) for number in numbers)
    if reasons:
        return ", ".join(reasons)
    strerror: str | None = getattr(error, "strerror", None)
    return strerror or str(error) or type(error).__name__
