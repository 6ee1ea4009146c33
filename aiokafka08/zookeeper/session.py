"""The way to ZooKeeper: sessions of kazoo, and what their errors mean.

Blocking but for `KeptSession`: callers run it in threads. What is kept in which node is told where
it is used (`admin`, `offset_store`, `consumer.membership`). kazoo is an extra: without it the first
use says what to install.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aiokafka08.errors import (
    IllegalArgumentError,
    KafkaConfigurationError,
    KafkaConnectionError,
    KafkaError,
    KafkaUnavailableError,
)

if TYPE_CHECKING:
    from kazoo.client import KazooClient


def require_kazoo() -> None:
    """Check that the extra is there.

    Raises:
        KafkaConfigurationError: it isn't.
    """
    try:
        import kazoo.client  # noqa: F401
    except ImportError:
        raise KafkaConfigurationError(
            "zookeeper_connect needs the extra: pip install 'aiokafka08[zookeeper]'"
        ) from None


def open_session(connect: str, timeout_s: float, logger: str) -> KazooClient:
    """A session that kazoo keeps up until `close_session`.

    Args:
        connect: "host:port,host:port/chroot".
        timeout_s: seconds to wait for the session, and its own timeout.
        logger: the name of the logger that kazoo writes to.

    Raises:
        KafkaConfigurationError: kazoo isn't installed.
        KafkaConnectionError: no server can be reached in time.
        KafkaUnavailableError: there is no such chroot, or ZooKeeper refuses.
    """
    require_kazoo()
    from kazoo.client import KazooClient

    hosts, _, chroot = connect.partition("/")
    session = KazooClient(hosts=hosts, timeout=timeout_s, logger=logging.getLogger(logger))
    try:
        with telling(connect):
            session.start(timeout=timeout_s)
            if chroot:
                if session.exists(f"/{chroot}") is None:
                    raise KafkaUnavailableError(f"ZooKeeper {hosts} has no chroot /{chroot}")
                session.chroot = f"/{chroot}"
    except BaseException:
        close_session(session)
        raise
    return session


def close_session(session: KazooClient) -> None:
    """End a session; its ephemeral nodes go with it."""
    session.stop()
    session.close()


class KeptSession:
    """A session from a client's start to its stop, opened and closed in threads.

    Args:
        connect: "host:port,host:port/chroot".
        logger: name of the logger for kazoo's own records.
    """

    def __init__(self, connect: str, logger: str) -> None:
        self._connect = connect
        self._logger = logger
        self._opening: asyncio.Future[KazooClient] | None = None

    async def open(self, timeout_s: float) -> KazooClient:
        """Open it; arguments and errors as `open_session`."""
        # Kept, so that `close` ends a session whose opening was cancelled.
        self._opening = asyncio.ensure_future(
            asyncio.to_thread(open_session, self._connect, timeout_s, self._logger)
        )
        return await asyncio.shield(self._opening)

    async def get(self) -> KazooClient | None:
        """The session; None where it was never opened, or is closed."""
        return None if self._opening is None else await asyncio.shield(self._opening)

    async def close(self) -> bool:
        """Close it; safe to call twice. False: there was none."""
        opening, self._opening = self._opening, None
        if opening is None:
            return False
        try:
            session = await opening
        except KafkaError:
            return False  # told by `open`
        await asyncio.to_thread(close_session, session)
        return True


@contextmanager
def session_for_a_call(connect: str, timeout_s: float, logger: str) -> Iterator[KazooClient]:
    """A session that ends with the block, so that nothing is left to expire; arguments and errors
    as `open_session`, and what kazoo raises in the block as `telling` has it."""
    session = open_session(connect, timeout_s, logger)
    try:
        with telling(connect):
            yield session
    finally:
        close_session(session)


@contextmanager
def telling(connect: str) -> Iterator[None]:
    """Turns what kazoo raises into errors of this package.

    Raises:
        KafkaConnectionError: ZooKeeper can't be reached, or doesn't answer in time.
        KafkaUnavailableError: ZooKeeper refuses.
    """
    from kazoo.exceptions import KazooException
    from kazoo.handlers.threading import KazooTimeoutError

    try:
        yield
    except KazooTimeoutError as error:
        raise KafkaConnectionError(f"ZooKeeper {connect} can't be reached: {error}") from None
    except KazooException as error:
        raise KafkaUnavailableError(
            f"ZooKeeper {connect}: {type(error).__name__} {error}"
        ) from error


def check_node_name(option: str, name: str) -> None:
    """Check that a name can be that of a node.

    Raises:
        IllegalArgumentError: it is empty, a dot or two, or has a slash or a control character.
    """
    if not name or name in (".", "..") or "/" in name or not name.isprintable():
        raise IllegalArgumentError(
            f"{option}={name!r} can't be a node of ZooKeeper: allowed is a name without '/' and "
            "control characters, and not '.' or '..'"
        )
