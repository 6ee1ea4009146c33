"""The way to ZooKeeper: sessions of kazoo, and what their errors mean.

Blocking: callers run it in threads. What is kept in which node is told where it is used (`admin`,
`offset_store`). kazoo is an extra: without it the first use says what to install.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aiokafka08.errors import (
    IllegalArgumentError,
    KafkaConfigurationError,
    KafkaConnectionError,
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
