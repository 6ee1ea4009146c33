"""Operations on transports that asyncio doesn't have: writes without a copy, FIN, RST.

Stateless; for transports of asyncio, of uvloop and of simulated networks.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import struct
from typing import Final

from aiokafka08.protocol.types import Buffer

_LARGE_BYTES: Final = 32 << 10  # from here on a copy costs more than a system call
_POLLRDHUP: Final[int] = getattr(select, "POLLRDHUP", 0)  # Linux has it


def write_all(transport: asyncio.Transport, buffers: list[Buffer]) -> None:
    """Write the buffers, the large ones without a copy."""
    # Not writelines: in Python 3.11 it copies everything, and in 3.12.0 - 3.12.8, 3.13.0 and
    # 3.13.1 it never calls pause_writing (gh-127655) and fails with an empty buffer.
    small: list[Buffer] = []
    for buffer in buffers:
        if len(buffer) < _LARGE_BYTES:
            small.append(buffer)
            continue
        # The client may have gone. Asyncio logs a warning at the fifth write to a closed transport.
        if transport.is_closing():
            return
        transport.write(b"".join(small))
        small.clear()
        transport.write(buffer)
    if small:
        transport.write(b"".join(small))


def close(transport: asyncio.Transport) -> None:
    """Close the transport once what is written is sent; safe to call twice."""
    # After a second `close()` a TLS transport can't be aborted, and most of its methods fail.
    if not transport.is_closing():
        transport.close()


class InspectableTransport(asyncio.Transport):
    """A transport without a socket, of a simulated network."""

    def is_half_closed(self) -> bool:
        """Return whether the peer's FIN has come, even if data before it is unread."""
        raise NotImplementedError

    def reset(self) -> None:
        """Close the connection by RST."""
        raise NotImplementedError


def is_half_closed(transport: asyncio.Transport) -> bool:
    """Return whether the peer's FIN has come; asyncio reports it only after all data before it."""
    if isinstance(transport, InspectableTransport):
        return transport.is_half_closed()
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), _POLLRDHUP)
    return bool(poll.poll(0))


def reset(transport: asyncio.Transport) -> None:
    """Close the connection by RST."""
    if isinstance(transport, InspectableTransport):
        transport.reset()
        return
    descriptor = os.dup(transport.get_extra_info("socket").fileno())
    # uvloop's socket object has no setsockopt.
    with socket.socket(fileno=descriptor) as duplicate:
        duplicate.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
