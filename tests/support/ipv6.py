"""`needs_ipv6`: skip a test on a machine without the loopback address of IPv6."""

from __future__ import annotations

import socket

import pytest


def has_ipv6() -> bool:
    """Return whether this machine has the address ::1."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as listener:
            listener.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(
    not has_ipv6(), reason="this machine has no IPv6: nothing can be bound to ::1"
)
