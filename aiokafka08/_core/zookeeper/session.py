"""Open and close kazoo sessions, and translate kazoo's exceptions into this library's errors.

Invariants: no session is used before `cluster_check` has compared its ZooKeeper with the brokers.
Exception: the sessions of `open_session`, in which a gateway writes the nodes that clients compare.
Only `_core.zookeeper` and the simulation import kazoo, and at run time only inside functions,
because kazoo is an optional extra. Without it the first use raises KafkaConfigurationError.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import re
import select
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from aiokafka08 import environment
from aiokafka08._core.zookeeper.cluster_check import ClusterZookeeper
from aiokafka08._core.zookeeper.nodes import refused
from aiokafka08._core.zookeeper.results import result_of
from aiokafka08._core.zookeeper.security import OPEN, ZookeeperSecurity
from aiokafka08.errors import (
    AuthenticationFailedError,
    CertificateError,
    IllegalArgumentError,
    KafkaConfigurationError,
    KafkaConnectionError,
    KafkaError,
    KafkaUnavailableError,
)

if TYPE_CHECKING:
    from kazoo.client import KazooClient

OPEN_TIMEOUT_S: Final = 10.0
"""How long a temporary session may take to open, before an error names the address."""

# How long to try to open a temporary session while all servers refuse connections: long enough for
# a server's restart, but short, because a wrong port stays wrong. kazoo has no option for this, and
# would try until the timeout.
_REFUSED_S: Final = 2.0

# After all servers have refused, later attempts within this time fail at the first refusal, because
# a command opens several sessions in a row
_REFUSED_LATELY_S: Final = 10.0

# The timeout of a connection that only finds out why no session could be opened
_PROBE_S: Final = 1.0

# What the server refuses in names, by org.apache.zookeeper.common.PathUtils of the first releases.
# Later releases also refuse the characters next to these ranges. All blanks are allowed.
_NOT_IN_NAMES: Final = re.compile(
    "[/\0-\x1e\x80-\x9e\ud800-\uf8fe\ufff1-\ufffe\U00010000-\U0010ffff]"
)


class MissingChrootError(KafkaUnavailableError):
    """The servers respond, and have no node with the chroot's path."""


def require_kazoo() -> None:
    """Raise KafkaConfigurationError if kazoo isn't installed."""
    try:
        import kazoo.client  # noqa: F401
    except ImportError:
        raise KafkaConfigurationError(
            "zookeeper_connect: kazoo isn't installed. "
            "Install the extra: pip install 'aiokafka08[zookeeper]'"
        ) from None


def how_to_install() -> str:
    """Return " (pip install …)" for an error that asks for ZooKeeper; "" if installed."""
    if importlib.util.find_spec("kazoo") is not None:
        return ""
    return " (pip install 'aiokafka08[zookeeper]')"


class ZookeeperSession:
    """A session that lasts from `open` to `close`; both run kazoo's blocking calls in threads.

    Args:
        zookeeper: the address, and the check that it is the brokers' ZooKeeper.
        logger: name of the logger for kazoo's own records.
        on_state: called in a kazoo thread with "CONNECTED", "SUSPENDED" or "LOST" at each change of
            the connection's state.
    """

    def __init__(
        self,
        zookeeper: ClusterZookeeper,
        logger: str,
        on_state: Callable[[str], object] | None = None,
    ) -> None:
        self._zookeeper = zookeeper
        self._logger = logger
        self._on_state = on_state
        self._verified: int | None = None  # id of the session that `verify` has accepted
        self._opening: asyncio.Future[KazooClient] | None = None

    async def open(self, timeout_s: float) -> KazooClient:
        """Open the session and return its kazoo client, which reconnects until `close`.

        `timeout_s`: seconds to wait for the session. The session timeout has the same value.

        Raises:
            KafkaConfigurationError: kazoo isn't installed.
            KafkaConnectionError: no server can be reached in time.
            KafkaTimeoutError: the session is lost while it is opened.
            KafkaUnavailableError: the chroot doesn't exist, or ZooKeeper refuses.
            ZookeeperMismatchError: it is the ZooKeeper of other brokers.
        """
        client = await self._zookeeper.run(lambda: self._open(timeout_s), timeout_s)
        if (on_state := self._on_state) is not None:
            client.add_listener(lambda state: on_state(str(state)))
        return client

    def _open(self, timeout_s: float) -> Awaitable[KazooClient]:
        # The future is kept, so that `close` ends a session whose opening was cancelled.
        self._opening = asyncio.ensure_future(
            environment.run_in_thread(_open, self._zookeeper, timeout_s, self._logger, self.verify)
        )
        return asyncio.shield(self._opening)

    def verify(self, client: KazooClient, timeout_s: float) -> None:
        """Compare ZooKeeper with the brokers, unless that was done in this session. Blocks.

        Call it before each change, in the thread that makes it: kazoo opens a new session after a
        lost one, perhaps at a server of another cluster.

        Raises:
            ZookeeperMismatchError: it is the ZooKeeper of other brokers.
            KafkaUnavailableError: it names no live broker any more.
            KafkaTimeoutError: it doesn't respond in time.
        """
        if self._verified is not None and client.state == "SUSPENDED":
            return  # kazoo fails the requests that wait, if the session turns out to be lost
        current = client.client_id
        if current is not None and current[0] == self._verified:
            return
        self._zookeeper.verify(client, timeout_s)
        self._verified = None if current is None else current[0]

    async def client(self) -> KazooClient | None:
        return None if self._opening is None else await asyncio.shield(self._opening)

    async def close(self) -> bool:
        """Close the session; return False if there was none; safe to call twice."""
        opening, self._opening = self._opening, None
        if opening is None:
            return False
        try:
            client = await opening
        except KafkaError:
            return False  # `open` has raised it
        await environment.run_in_thread(close_session, client)
        return True


@dataclass(slots=True)
class ZookeeperServers:
    """A ZooKeeper that isn't compared with brokers; see `ClusterZookeeper` for the attributes."""

    connect: str
    security: ZookeeperSecurity = OPEN
    refused_at: float | None = None

    @property
    def shown(self) -> str:
        """See `ClusterZookeeper`."""
        return self.connect


def open_session(servers: ZookeeperServers, timeout_s: float, logger: str) -> KazooClient:
    """Open a session without comparing ZooKeeper with brokers; `close_session` ends it. Blocks.

    Errors are those of `ZookeeperSession.open`. Kazoo opens a new session after a lost one; a
    request that gets no response for `timeout_s` seconds raises KafkaTimeoutError.
    """
    return _open(servers, timeout_s, logger, lambda *_: None, waits_s=timeout_s)


@contextmanager
def temporary_session(
    zookeeper: ClusterZookeeper, timeout_s: float, logger: str
) -> Iterator[KazooClient]:
    """Open a session for one block and close it at the end, so that nothing is left to expire.

    Blocks. Raises as `ZookeeperSession.open`, but waits at most `OPEN_TIMEOUT_S`, and much shorter
    if all servers refuse the connection. kazoo's exceptions in the block are translated as in
    `translate_errors`. A blocking request of the block that gets no response for `timeout_s`
    seconds raises KafkaTimeoutError.
    """
    client = _open(
        zookeeper,
        min(timeout_s, OPEN_TIMEOUT_S),
        logger,
        zookeeper.verify,
        waits_s=timeout_s,
    )
    try:
        with translate_errors(zookeeper.shown):
            yield client
    finally:
        close_session(client)


@contextmanager
def translate_errors(connect: str) -> Iterator[None]:
    """Raise kazoo's exceptions as this library's errors.

    Raises:
        KafkaConnectionError: ZooKeeper can't be reached, or doesn't respond in time.
        AuthenticationFailedError: ZooKeeper refuses the client's identity.
        GroupAuthorizationFailedError, ClusterAuthorizationFailedError: the ACL of a node refuses
            the client.
        KafkaUnavailableError: ZooKeeper refuses for another reason.
    """
    from kazoo.exceptions import AuthFailedError, KazooException, NoAuthError
    from kazoo.handlers.threading import KazooTimeoutError

    try:
        yield
    except KazooTimeoutError as error:
        raise KafkaConnectionError(f"ZooKeeper {connect} can't be reached: {error}") from None
    except NoAuthError as error:
        raise refused(connect, str(error)) from None
    except AuthFailedError:
        raise _authentication_failed(connect) from None
    except KazooException as error:
        raise KafkaUnavailableError(
            f"ZooKeeper {connect}: {type(error).__name__} {error}".rstrip()
        ) from error


def _authentication_failed(connect: str) -> AuthenticationFailedError:
    return AuthenticationFailedError(
        f"ZooKeeper {connect}: it refuses this client's identity. Check user and password "
        "(zookeeper_options; for commands zookeeper.username and zookeeper.password), and the JAAS "
        "file of the server"
    )


def _name_nodes(client: KazooClient) -> None:
    """Make the NoAuthError of a blocking call name the node; kazoo's own error doesn't."""
    from kazoo.exceptions import NoAuthError

    def naming(call: Callable[..., Any]) -> Callable[..., Any]:
        def named(path: str, *arguments: Any, **options: Any) -> Any:
            try:
                return call(path, *arguments, **options)
            except NoAuthError:
                raise NoAuthError(path) from None

        return named

    for name in ("get", "get_children", "exists", "create", "set", "delete"):
        setattr(client, name, naming(getattr(client, name)))


def _shows_no_secret(record: logging.LogRecord) -> bool:
    """Return whether a record of kazoo's has no request with credentials."""
    from kazoo.protocol.serialization import SASL, Auth

    # kazoo logs all requests.
    return not any(isinstance(one, Auth | SASL) for one in record.args or ())


def check_node_name(option: str, name: str) -> None:
    """Raise IllegalArgumentError if a name can't be the name of a node."""
    if not is_node_name(name):
        raise IllegalArgumentError(
            f"{option}={name!r} can't be a node of ZooKeeper: expected a name that contains no '/' "
            "and no control character, and isn't '.' or '..'"
        )


def is_node_name(name: str) -> bool:
    """Return whether a name can be the name of a node."""
    # A node that exists in an old ZooKeeper may have a name that is refused here.
    return bool(name) and name not in (".", "..") and not _NOT_IN_NAMES.search(name)


def _fast_handler() -> Any:
    """Return a handler for kazoo that halves the CPU time of many requests."""
    require_kazoo()
    from kazoo.handlers.threading import SequentialThreadingHandler

    handler = SequentialThreadingHandler()
    by_epoll = handler.select

    def fast_select(*arguments: Any) -> Any:
        try:
            return select.select(*arguments)
        except ValueError:
            return by_epoll(*arguments)

    # kazoo waits for its socket several times per request, and creates an epoll object each time.
    # `select()` costs a tenth of that, but knows only the first 1024 file descriptors.
    handler.select = fast_select
    return handler


def _limit_waits(handler: Any, timeout_s: float) -> None:
    """Let kazoo's blocking requests wait this long only: see `result_of`."""
    from kazoo.handlers.threading import AsyncResult

    class LimitedResult(AsyncResult):  # type: ignore[misc]  # kazoo has no types
        def get(self, block: bool = True, timeout: float | None = None) -> Any:
            if not block or timeout is not None:
                return super().get(block, timeout)
            return result_of(super(), environment.monotonic() + timeout_s)

    handler.async_result = lambda: LimitedResult(handler)


def _open(
    zookeeper: ClusterZookeeper | ZookeeperServers,
    timeout_s: float,
    logger: str,
    verify: Callable[[KazooClient, float], object],
    *,
    waits_s: float | None = None,
) -> KazooClient:
    require_kazoo()
    logging.getLogger(logger).addFilter(_shows_no_secret)
    from kazoo.client import KazooClient
    from kazoo.handlers.threading import KazooTimeoutError
    from kazoo.protocol.states import KeeperState

    connect, shown, security = zookeeper.connect, zookeeper.shown, zookeeper.security
    context = security.ssl_context()
    handler = None
    if environment.zookeeper_client is None:
        handler = _fast_handler()
        if waits_s is not None:
            _limit_waits(handler, waits_s)
    make_client = environment.zookeeper_client or KazooClient
    hosts, chroot = _split(connect)
    try:
        client = make_client(
            hosts=hosts,
            timeout=timeout_s,
            logger=logging.getLogger(logger),
            handler=handler,
            **security.client_arguments(),
        )
    except ValueError as error:  # an invalid host or port
        raise IllegalArgumentError(
            f"zookeeper_connect={connect!r}: {error}; expected 'host:port,host:port/chroot'"
        ) from None
    states: list[Any] = []
    if environment.zookeeper_client is None:
        client.add_listener(lambda _: states.append(client.client_state))
    try:
        with translate_errors(shown):
            _name_nodes(client)
            if context is not None:
                _check_tls(hosts, shown, context)
            try:
                if environment.zookeeper_client is None and waits_s is not None:
                    _start(client, hosts, timeout_s, zookeeper)
                else:
                    client.start(timeout=timeout_s)
            except KazooTimeoutError as error:
                if KeeperState.AUTH_FAILED in states:
                    raise _authentication_failed(shown) from None
                reason = str(error) if environment.zookeeper_client else _why_closed(hosts, error)
                raise KafkaConnectionError(
                    f"ZooKeeper {shown} can't be reached: {reason}"
                ) from None
            if chroot:
                request = client.exists_async(f"/{chroot}")
                if result_of(request, environment.monotonic() + timeout_s) is None:
                    raise MissingChrootError(
                        f"ZooKeeper {hosts} has no chroot /{chroot}. Check zookeeper_connect"
                    )
                client.chroot = f"/{chroot}"
            verify(client, timeout_s)
    except BaseException as error:
        close_session(client)
        if isinstance(error, KafkaError) and KeeperState.AUTH_FAILED in states:
            raise _authentication_failed(shown) from None
        raise
    return client


def _check_tls(hosts: str, shown: str, context: ssl.SSLContext) -> None:
    """Check that a server accepts TLS, and that its certificate is trusted, or raise."""
    # kazoo would retry until its timeout, leak a socket each time, and report only the timeout.
    failures: list[OSError] = []
    for host, port in _servers(hosts):
        try:
            with socket.create_connection((host, port), _PROBE_S) as connection:
                context.wrap_socket(connection, server_hostname=host).close()
        # A port without TLS reads the ClientHello as a size and closes; unread bytes cause a reset.
        except (ssl.SSLError, ConnectionResetError, BrokenPipeError) as failure:
            failures.append(failure)
        except OSError:
            continue  # kazoo tries it, too
        else:
            return
    if failures:
        are_untrusted = all(isinstance(one, ssl.SSLCertVerificationError) for one in failures)
        reasons = dict.fromkeys(
            getattr(one, "verify_message", None) or getattr(one, "reason", None) or str(one)
            for one in failures
        )
        raise (CertificateError if are_untrusted else KafkaConnectionError)(
            f"ZooKeeper {shown} can't be reached: the TLS handshake failed: {'; '.join(reasons)}. "
            "Check ca, certfile and check_hostname in zookeeper_options, and that the port is one "
            "for TLS"
        )


def _start(
    client: KazooClient,
    hosts: str,
    timeout_s: float,
    zookeeper: ClusterZookeeper | ZookeeperServers,
) -> None:
    """Start a client; raise KazooTimeoutError early if all servers refuse the connection."""
    from kazoo.handlers.threading import KazooTimeoutError

    def is_refused() -> bool:
        return all(_refuses(address) for address in _servers(hosts))

    refused_at = zookeeper.refused_at
    was_refused = (
        refused_at is not None and environment.monotonic() - refused_at < _REFUSED_LATELY_S
    )
    if was_refused and is_refused():
        raise KazooTimeoutError("connection refused")
    started = client.start_async()
    if started.wait(min(_REFUSED_S, timeout_s)):
        return
    if is_refused():
        zookeeper.refused_at = environment.monotonic()
        raise KazooTimeoutError("connection refused")
    if not started.wait(max(timeout_s - _REFUSED_S, 0.0)):
        raise KazooTimeoutError("Connection time-out")


def _refuses(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, _PROBE_S).close()
    except ConnectionRefusedError:
        return True
    except OSError:  # such as a server that is silent
        return False
    return False


def _servers(hosts: str) -> list[tuple[str, int]]:
    from kazoo.hosts import collect_hosts

    servers, _ = collect_hosts(hosts)
    return list(servers)


def _why_closed(hosts: str, error: Exception) -> str:
    """Return why no session was opened, since kazoo reports only its timeout."""
    reasons = []
    for address in _servers(hosts):
        try:
            socket.create_connection(address, _PROBE_S).close()
        except OSError as failure:
            reasons.append(failure.strerror or str(failure))
        else:
            reasons.append(f"{error}; it accepts connections, but doesn't respond as ZooKeeper")
    return "; ".join(dict.fromkeys(reasons))


def _split(connect: str) -> tuple[str, str]:
    """Return the servers of an address, and its chroot without the slash."""
    hosts, _, chroot = connect.partition("/")
    if "," in chroot:
        parts = [part.partition("/") for part in connect.split(",")]
        servers = ",".join(server for server, _, _ in parts)
        chroots = dict.fromkeys(path for _, _, path in parts if path)
        advice = f", such as '{servers}/{next(iter(chroots))}'" if len(chroots) == 1 else ""
        raise IllegalArgumentError(
            f"zookeeper_connect={connect!r}: expected the chroot once, behind the last server"
            f"{advice}"
        )
    return hosts, chroot


def close_session(client: KazooClient) -> None:
    """End the session; ZooKeeper deletes its ephemeral nodes."""
    client.stop()
    client.close()
