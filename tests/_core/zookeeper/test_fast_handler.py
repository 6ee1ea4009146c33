"""kazoo's wait for its socket, which `temporary_session` replaces by a cheaper one."""

from __future__ import annotations

import fcntl
import os
import resource
import socket

from aiokafka08._core.zookeeper.session import _fast_handler


def test_descriptor_is_waited_for() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        handler = _fast_handler()
        assert handler.select([ours], [], [], 0)[0] == []
        theirs.send(b"x")
        assert handler.select([ours], [], [], 10)[0] == [ours]


def test_descriptor_above_1024_is_waited_for() -> None:
    """`select.select` doesn't know it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        high = fcntl.fcntl(ours, fcntl.F_DUPFD, 1100)
        try:
            theirs.send(b"x")
            assert _fast_handler().select([high], [], [], 10)[0] == [high]
        finally:
            os.close(high)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
