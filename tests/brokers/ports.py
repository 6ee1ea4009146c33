"""Free TCP ports on 127.0.0.1 for brokers and proxies.

Ports come from below the range that the kernel gives to outgoing connections: a broker that was
killed must find its port free again, and a client's outgoing connection could sit on it otherwise.
Finding and binding are two steps, so whoever binds must be ready for a clash and ask again.
"""

from __future__ import annotations

import random
import socket

from tests.brokers.errors import HarnessError

_FIRST, _LAST = 15000, 32000
# Not the global generator: a test that seeds that one must not make two runs clash.
_random = random.SystemRandom()


def free_port() -> int:
    """A port nobody listens on at this moment."""
    for _ in range(200):
        port = _random.randint(_FIRST, _LAST)
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
