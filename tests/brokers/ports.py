"""Free TCP ports on 127.0.0.1 for brokers and proxies.

Ports come from below the range that the kernel gives to outgoing connections: a broker that was
killed must find its port free again, and a client's outgoing connection could sit on it otherwise.
For the same reason no process gives one out twice while there are others, and those of one test run
that work side by side have ports of their own. Finding and binding are two steps, so whoever binds
must be ready for a clash and ask again.
"""

from __future__ import annotations

import os
import random
import socket

from tests.brokers.errors import HarnessError

_FIRST, _LAST = 15000, 32000
_SHARES = 8
_WORKER = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
# Not the global generator: a test that seeds that one must not make two runs clash.
_random = random.SystemRandom()
_left: list[int] = []


def free_port() -> int:
    """A port nobody listens on at this moment."""
    for _ in range(_LAST - _FIRST):
        if not _left:
            _left.extend(range(_FIRST + int(_WORKER) % _SHARES, _LAST, _SHARES))
            _random.shuffle(_left)
        port = _left.pop()
        with socket.socket() as probe:
            # As Java does: a port whose old connections are in TIME_WAIT is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise HarnessError(f"no free port on 127.0.0.1 between {_FIRST} and {_LAST}")


def accepts(port: int) -> bool:
    """Whether somebody listens on this port of 127.0.0.1."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False
