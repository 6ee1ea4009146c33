"""Operations on transports that asyncio doesn't have: counted writes without a copy, FIN, RST.

They work on transports of asyncio, of uvloop and of simulated networks.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import struct
from collections import deque
from typing import Final

from aiokafka08.protocol.types import Buffer

_LARGE_BYTES: Final = 32 << 10  # from here on a copy costs more than a system call
_PART_BYTES: Final = 64 << 10
"""How much a TLS transport gets at a time: what the transport below takes before it pauses."""
_TLS_BYTES: Final = 256 << 10
"""The buffer for received bytes that each TLS transport of asyncio and uvloop has."""
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


class PacedOutput:
    """Write to a transport; the transport's protocol has to call `pause` and `resume`.

    A TLS transport gets the data in parts. It would pass a large write to the transport below at
    once, where the data isn't counted and doesn't make the protocol pause.

    Attributes:
        is_tls: whether the transport uses TLS.
        is_paused: whether the peer doesn't read.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.is_tls = transport.get_extra_info("sslcontext") is not None
        self._waiting: deque[memoryview] = deque()
        self._waiting_bytes = 0
        # The sizes of the writes that may be unsent. The transport keeps all buffers of a write
        # until the whole write is sent.
        self._written: deque[int] = deque()
        self._written_bytes = 0
        self._closes = False
        self.is_paused = False

    @property
    def unsent_bytes(self) -> int:
        """How much memory the unsent bytes take: a write counts whole until its end is sent."""
        if not self._written:
            return 0
        # With TLS this misses about two parts, which the transport below has.
        unsent_bytes = self._waiting_bytes + self._transport.get_write_buffer_size()
        while self._written and self._written_bytes - self._written[0] >= unsent_bytes:
            self._written_bytes -= self._written.popleft()
        return self._written_bytes

    @property
    def memory_bytes(self) -> int:
        """How much memory the transport takes."""
        return self.unsent_bytes + (_TLS_BYTES if self.is_tls else 0)

    @property
    def is_closing(self) -> bool:
        """Whether `close` was called, or the transport is closed."""
        return self._closes or self._transport.is_closing()

    def write_all(self, buffers: list[Buffer]) -> None:
        """Write the buffers, in order."""
        self._written.append(sum(map(len, buffers)))
        self._written_bytes += self._written[-1]
        if self.is_tls:
            # Not before the first write: the buffer may still hold the last bytes of the handshake,
            # so the limit would pause the protocol.
            self._transport.set_write_buffer_limits(high=1, low=0)
            self._waiting.append(memoryview(b"".join(buffers)))
            self._waiting_bytes += len(self._waiting[-1])
            self._go_on()
        else:
            write_all(self._transport, buffers)

    def close(self) -> None:
        """Close the transport after the written data is sent; safe to call twice."""
        self._closes = True
        self._go_on()

    def pause(self) -> None:
        """See `pause_writing` of asyncio's protocols."""
        self.is_paused = True

    def resume(self) -> None:
        """See `resume_writing` of asyncio's protocols."""
        self.is_paused = False
        self._go_on()

    def _go_on(self) -> None:
        while self._waiting and not self.is_paused and not self._transport.is_closing():
            first = self._waiting.popleft()
            self._transport.write(first[:_PART_BYTES])
            if first[_PART_BYTES:]:
                self._waiting.appendleft(first[_PART_BYTES:])
            self._waiting_bytes -= len(first[:_PART_BYTES])
            if self._waiting and is_half_closed(self._transport):
                self._drop_waiting()  # TLS would accept the data, and log each part that isn't sent
        if self._transport.is_closing():
            self._drop_waiting()
        elif self._closes and not self._waiting:
            # Once only: a TLS transport that is closed twice can't be aborted or inspected any
            # more.
            self._transport.close()

    def drop(self) -> None:
        """Free and forget the unsent bytes, once the transport is aborted or lost."""
        self._drop_waiting()
        self._written.clear()
        self._written_bytes = 0

    def _drop_waiting(self) -> None:
        self._waiting.clear()
        self._waiting_bytes = 0


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
