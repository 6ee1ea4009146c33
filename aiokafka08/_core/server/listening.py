"""`listen()`: accept the connections to one port, on a socket or in a simulated network.

Invariant: after `close()` and `wait_closed()` no socket is left without a protocol.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

if TYPE_CHECKING:
    import ssl

# The logger's name is older than this module. It stays, since users may have configured it.
_log: Final = logging.getLogger("aiokafka08.testing.listening")

# How many connections to accept in one iteration of the event loop. Each takes time in the next
# ones too: the gateway, which connects to a broker for it, needs about 0.3 ms in all.
_ACCEPTS: Final = 4
# How many connections may wait to be accepted. Beyond it, clients try again after a second.
_BACKLOG: Final = 1024
_ACCEPT_PAUSE_S: Final = 1.0
_HANDSHAKE_S: Final = 10.0
"""How long a client may take for the TLS handshake, and for the TLS shutdown."""
MAX_HANDSHAKES: Final = 256
"""How many TLS handshakes a port may have in progress, at about 0.3 MB each. Beyond this number the
oldest one is aborted."""
_OUT_OF_RESOURCES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

ProtocolFactory = Callable[[], asyncio.BaseProtocol]


class Listening(Protocol):
    """A port that accepts connections."""

    port: int

    @property
    def is_closed(self) -> bool:
        """Whether `close()` was called, and each accepted socket has its protocol or is closed."""

    def close(self) -> None:
        """Accept no more connections; existing ones stay. Safe to call twice."""

    async def wait_closed(self) -> None:
        """Wait until each accepted socket has its protocol or is closed."""


@runtime_checkable
class NetworkLoop(Protocol):
    """An event loop with a network of its own."""

    def listen(self, factory: ProtocolFactory, host: str, port: int, name: str) -> Listening:
        """See `listen()`."""


@dataclass(frozen=True, slots=True)
class ServerTls:
    """The TLS of a port.

    Args:
        context: the server's certificate, and what it requires of clients.
        refused: called with the address of a client whose handshake has failed, and why.
        is_allowed: called with the address of a client; False closes the connection before the
            handshake.
    """

    context: ssl.SSLContext
    refused: Callable[[str, OSError], None]
    is_allowed: Callable[[str], bool] = lambda host: True


def listen(
    factory: ProtocolFactory,
    host: str,
    port: int,
    name: str,
    tls: ServerTls | None = None,
    *,
    is_shared: bool = False,
) -> Listening:
    """Listen on a port of an IP address.

    Args:
        factory: makes the protocol of each connection.
        host: the IP address to listen on.
        port: the port; 0: any free one.
        name: the name of the server, for log lines and errors.
        tls: the TLS of the connections (default None: none); simulated networks have none.
        is_shared: whether other processes of this user may listen there too (default: no). The
            system spreads connections over them. Simulated networks ignore it.

    Raises:
        OSError: the port is not available; the text names the server and the address.
    """
    loop = asyncio.get_running_loop()
    try:
        # A simulated network accepts connections itself.
        if isinstance(loop, NetworkLoop):
            return loop.listen(factory, host, port, name)
        return SocketListening(factory, host, port, name, tls, is_shared=is_shared)
    except OSError as error:
        raise OSError(
            error.errno, f"{name} can't listen on {host}:{port}: {error.strerror}"
        ) from error


def keep_port(host: str, port: int) -> socket.socket | None:
    """Bind the port of a server that pauses, without listening, until the caller closes the socket.

    Returns:
        The socket; None if the event loop has a network of its own, or if another program was
        faster.
    """
    # The kernel refuses connections to a bound port, and doesn't choose it as a free one.
    if isinstance(asyncio.get_running_loop(), NetworkLoop):
        return None
    kept = _new_socket(host)
    try:
        kept.bind((host, port))
        # If this socket kept the option, Linux would let another socket that has it listen on the
        # port, and most servers set it.
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    except OSError:
        kept.close()
        return None
    return kept


def _new_socket(host: str) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return made


class SocketListening:
    """A listening socket; see `listen()`."""

    # This isn't an asyncio server. In Python 3.11 such a server loses an accepted socket if the
    # server is closed before it has created the socket's transport.

    def __init__(
        self,
        factory: ProtocolFactory,
        host: str,
        port: int,
        name: str,
        tls: ServerTls | None,
        *,
        is_shared: bool,
    ) -> None:
        self._factory = factory
        self._tls = tls
        self._name = name
        self._paused: asyncio.TimerHandle | None = None
        self._accepting: dict[asyncio.Task[Any], None] = {}
        self._socket = _new_socket(host)
        try:
            if is_shared:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            self._socket.bind((host, port))
            self._socket.listen(_BACKLOG)
            self._socket.setblocking(False)
        except BaseException:
            self._socket.close()
            raise
        self.port: int = self._socket.getsockname()[1]
        self._listen()

    def _listen(self) -> None:
        self._paused = None
        asyncio.get_running_loop().add_reader(self._socket.fileno(), self._accept)

    def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(_ACCEPTS):
            try:
                accepted, address = self._socket.accept()
            except OSError as error:
                if error.errno in _OUT_OF_RESOURCES:
                    # The socket stays readable, so without a pause the loop would spin.
                    _log.warning(
                        "%s: can't accept connections: %s. Trying again in %.0f s",
                        self._name,
                        error.strerror,
                        _ACCEPT_PAUSE_S,
                    )
                    loop.remove_reader(self._socket.fileno())
                    self._paused = loop.call_later(_ACCEPT_PAUSE_S, self._listen)
                return  # no client waits any more, or this one has gone
            accepted.setblocking(False)
            if self._tls is not None and not self._tls.is_allowed(str(address[0])):
                accepted.close()
                continue
            too_many = len(self._accepting) - MAX_HANDSHAKES
            if self._tls is not None and too_many >= 0:
                next(itertools.islice(self._accepting, too_many, None)).cancel()
            task = loop.create_task(self._connect(accepted, str(address[0])))
            self._accepting[task] = None
            task.add_done_callback(self._accepting.pop)

    async def _connect(self, accepted: socket.socket, host: str) -> None:
        """Give an accepted socket its transport and protocol."""
        loop, tls = asyncio.get_running_loop(), self._tls
        if tls is None:
            await loop.connect_accepted_socket(self._factory, accepted)
            return
        try:
            await loop.connect_accepted_socket(
                self._factory,
                accepted,
                ssl=tls.context,
                ssl_handshake_timeout=_HANDSHAKE_S,
                ssl_shutdown_timeout=_HANDSHAKE_S,
            )
        except OSError as error:
            tls.refused(host, error)
        except asyncio.CancelledError:
            tls.refused(host, TimeoutError("given up for other handshakes, or for the end"))
            raise

    @property
    def is_closed(self) -> bool:
        """See `Listening.is_closed`."""
        return self._socket.fileno() < 0 and not self._accepting

    def close(self) -> None:
        """See `Listening.close`."""
        if self._paused is not None:
            self._paused.cancel()
        if self._socket.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()

    async def wait_closed(self) -> None:
        """See `Listening.wait_closed`; handshakes of TLS are given up."""
        if self._tls is not None:
            # A client that stalls in its handshake would delay the end by up to `_HANDSHAKE_S`.
            await asyncio.sleep(0)  # each task has begun, and owns its socket
            for task in self._accepting:
                task.cancel()
        while self._accepting:
            await asyncio.wait(self._accepting)
        if self._tls is not None:
            await asyncio.sleep(0)  # the transports of cancelled handshakes close meanwhile


def why_unavailable(host: str, port: int) -> str | None:
    """Return why this machine can't listen at a port; None if it can."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        return os.strerror(error.errno) if error.errno else str(error)
    return None
