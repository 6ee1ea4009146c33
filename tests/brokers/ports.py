"""Find free TCP ports on 127.0.0.1 for brokers and proxies.

A killed broker must find its port free when it is started again. Therefore the ports are below the
range that the kernel uses for outgoing connections, a process returns no port twice while others
are left, and parallel workers of a test run use different ports.

Finding and binding a port are two steps. The caller that binds it must handle a clash, and request
another port.
"""

from __future__ import annotations

import os
import random
import socket

from tests.brokers.errors import HarnessError

_FIRST_ROW, _FIRST, _LAST = 10200, 15000, 32000
_SHARES = 8
_ROW = 8
_WORKER = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
# Not the global generator: a test that seeds it would make two runs choose the same ports.
_random = random.SystemRandom()
_left: list[int] = []
_rows_left: list[int] = []


def free_port() -> int:
    """Return a port on which no process listens now."""
    for _ in range(_LAST - _FIRST):
        if not _left:
            _left.extend(range(_FIRST + int(_WORKER) % _SHARES, _LAST, _SHARES))
            _random.shuffle(_left)
        port = _left.pop()
        if _is_free(port):
            return port
    raise HarnessError(f"no free port on 127.0.0.1 between {_FIRST} and {_LAST}")


def free_ports() -> int:
    """Return the first one of 8 such ports in a row.

    A gateway listens for the brokers of its target on the ports behind its own.
    """
    for _ in range(_FIRST - _FIRST_ROW):
        if not _rows_left:
            share = _FIRST_ROW + int(_WORKER) % _SHARES * _ROW
            _rows_left.extend(range(share, _FIRST, _SHARES * _ROW))
            _random.shuffle(_rows_left)
        first = _rows_left.pop()
        if all(map(_is_free, range(first, first + _ROW))):
            return first
    raise HarnessError(f"no {_ROW} free ports on 127.0.0.1 between {_FIRST_ROW} and {_FIRST}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # Like Java: a port is free if its old connections are in TIME_WAIT.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def accepts(port: int) -> bool:
    """Return True if a process listens on this port of 127.0.0.1."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False
