"""Serve a console with uvicorn, for the command `console`.

`ServeOptions` are the command's options; `access_of` refuses unsafe combinations of them.

Invariants: without TLS or an explicit `insecure`, the server listens only on loopback. It logs no
requests, since their URLs may have the token, and never prints a token from a file. No header of a
proxy changes the peer's address. A connection that brings no request is closed, so that idle
connections can't lock users out.
"""

from __future__ import annotations

import asyncio
import ipaddress
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from aiokafka08._core.garbage import rare_full_collections
from aiokafka08._core.net.config import address_text
from aiokafka08._tools.console.application import Console
from aiokafka08._tools.console.guard import Admission, IpNetwork
from aiokafka08.errors import IllegalArgumentError

_MIN_TOKEN: Final = 16
_MAX_CONNECTIONS: Final = 1000
_MAX_PER_ADDRESS: Final = 400
_REQUEST_S: Final = 10.0
"""A connection without a request for this long is closed, after twice as long at the latest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Where to listen, and who is admitted; the fields are the command's options."""

    host: str = "127.0.0.1"
    port: int = 8008
    host_names: Sequence[str] = ()
    token_file: Path | None = None
    auth_header: str | None = None
    trusted_proxies: Sequence[str] = ()
    tls_cert: Path | None = None
    tls_key: Path | None = None
    insecure: bool = False


def access_of(options: ServeOptions) -> Admission:
    """Return how visitors are admitted: by a token, unless a proxy names the users.

    Raises:
        IllegalArgumentError: the options aren't safe together, or one has no meaning.
        OSError: the file with the token can't be read.
    """
    if (options.tls_cert is None) != (options.tls_key is None):
        raise IllegalArgumentError("--tls-cert and --tls-key: expected both, or none")
    if not _is_loopback(options.host) and options.tls_cert is None and not options.insecure:
        raise IllegalArgumentError(
            f"--listen {address_text((options.host, options.port))}: others on the network could "
            "read the token and the messages. Give --tls-cert and --tls-key, or --insecure if "
            "something else protects the way to it"
        )
    hosts = {name.lower() for name in (options.host, *options.host_names)}
    if options.auth_header is None:
        if options.trusted_proxies:
            raise IllegalArgumentError("--trusted-proxy: expected --auth-header too")
        return Admission(token=_token(options.token_file), hosts=hosts)
    if options.token_file is not None:
        raise IllegalArgumentError("--auth-header with --token-file: expected one of them")
    if not options.trusted_proxies:
        raise IllegalArgumentError(
            f"--auth-header {options.auth_header}: anybody could send it. Give the address of the "
            "proxy as --trusted-proxy"
        )
    proxies = [_network(text) for text in options.trusted_proxies]
    return Admission(auth_header=options.auth_header, trusted_proxies=proxies, hosts=hosts)


async def serve(
    console: Console, options: ServeOptions, access: Admission, on_url: Callable[[str], object]
) -> None:
    """Listen until the task is cancelled.

    Args:
        console: the console.
        options: where to listen.
        access: the same as the console's.
        on_url: called with the URL as soon as it can be opened. The URL has the token, unless the
            token comes from a file.

    Raises:
        OSError: the port can't be listened on, or a file of TLS can't be read.
    """
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    address = (options.host, options.port)
    try:
        listener = socket.create_server(address, family=family, backlog=256)
    except OSError as error:
        raise OSError(
            error.errno, f"{error.strerror}: choose another --listen", address_text(address)
        ) from None
    config = uvicorn.Config(
        console,
        http=_ImpatientProtocol,
        access_log=False,
        log_config=None,
        # uvicorn would log malformed requests and slow clients; the pages log the errors.
        log_level="critical",
        proxy_headers=False,
        server_header=False,
        ws="none",
        lifespan="on",
        limit_concurrency=_MAX_CONNECTIONS,
        timeout_graceful_shutdown=2,
        ssl_certfile=options.tls_cert,
        ssl_keyfile=options.tls_key,
    )
    with listener:
        scheme = "http" if options.tls_cert is None else "https"
        shown = address_text((options.host, listener.getsockname()[1]))
        is_new = access.token is not None and options.token_file is None
        # Leave out a token from a file, since it stays valid, and a service's output is logged.
        query = f"?{urlencode({'token': access.token})}" if is_new else ""
        config.load()  # reads the certificate
        on_url(f"{scheme}://{shown}/{query}")
        server = _SignalFreeServer(config)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            # With many topics, full garbage collections would slow the longest pages down a lot.
            with rare_full_collections(time.monotonic):
                await asyncio.shield(serving)
        except asyncio.CancelledError:
            server.should_exit = True
            await serving
            raise


class _SignalFreeServer(uvicorn.Server):
    """A server that leaves signals to the command, which cancels the task."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave all signal handlers as they are."""
        yield


class _ImpatientProtocol(H11Protocol):
    """HTTP/1.1 that aborts idle connections, and closing ones whose client has stopped reading."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(  # type: ignore[override]
        self, transport: asyncio.Transport
    ) -> None:
        """Expect a request; abort at once if the client's address has too many connections."""
        super().connection_made(transport)
        address = self.client and self.client[0]
        peers = [getattr(one, "client", None) for one in self.connections]
        others = sum(peer is not None and peer[0] == address for peer in peers)
        if others > _MAX_PER_ADDRESS:
            transport.abort()
        else:
            self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Expect no request any more."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def _expect_request(self) -> None:
        self._timer = self.loop.call_later(
            _REQUEST_S, self._end_if_idle, self.cycle, self._is_idle()
        )

    def _is_idle(self) -> bool:
        """Return whether there is no request, or the last one has its response."""
        return bool(getattr(self.cycle, "response_complete", True))

    def _end_if_idle(self, last: object, was_idle: bool) -> None:
        is_same = self.cycle is last and was_idle and self._is_idle()
        if is_same or self.transport.is_closing():
            self.transport.abort()
        else:
            self._expect_request()


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _token(path: Path | None) -> str:
    if path is None:
        return secrets.token_urlsafe(32)
    token = path.read_text().strip()
    if len(token) < _MIN_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise IllegalArgumentError(
            f"--token-file {path}: expected one line of at least {_MIN_TOKEN} ASCII characters "
            "without spaces"
        )
    return token


def _network(text: str) -> IpNetwork:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise IllegalArgumentError(
            f"--trusted-proxy {text}: {error}; expected an address or a network, such as 10.0.0.5 "
            "or 10.0.0.0/24"
        ) from None
