"""`SimulatedTransport`: one end of a simulated connection, with the behaviour of asyncio's sockets.

Invariant: as with sockets, one read gives a protocol all data that has arrived (up to 256 KiB, or
its buffer's size). `eof_received` follows all data, and `connection_lost` is called in a later
iteration of the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextvars import Context
from typing import Any, Final

from aiokafka08._core.server.transports import InspectableTransport
from aiokafka08.testing.simulation.wire import Mark, Wire

_READ_BYTES: Final = 256 << 10
_HIGH_WATER_BYTES: Final = 64 << 10


class SimulatedTransport(InspectableTransport):
    """See the module.

    Args:
        inbound: the wire from the peer.
        outbound: the wire to the peer.
        context: the context of the party that has this end; the protocol is called in it.
        extra: the results of `get_extra_info`.
        ended: called just before the protocol's `connection_lost`.
    """

    def __init__(
        self,
        inbound: Wire,
        outbound: Wire,
        context: Context,
        extra: dict[str, Any],
        ended: Callable[[SimulatedTransport], None],
    ) -> None:
        super().__init__(extra)
        self._loop = inbound.links.loop
        self._inbound = inbound
        self._outbound = outbound
        self._context = context
        self._ended = ended
        self._protocol: Any = None
        # Data that waits here until the protocol reads counts against the sender's window.
        self._inbox = bytearray()
        self._end: Mark | None = None  # the FIN or RST that has arrived after the inbox
        self._reading = self._feeding = self._eof_received = False
        self._outbox = bytearray()
        self._high, self._low = _HIGH_WATER_BYTES, _HIGH_WATER_BYTES // 4
        self._protocol_paused = False
        self._eof_written = self._closing = self._lost = False
        inbound.arrived = self._arrived
        outbound.on_room = self._on_room

    def __repr__(self) -> str:
        state = "closing" if self._closing else "open"
        return f"<SimulatedTransport {self._outbound.source} → {self._outbound.target} {state}>"

    @property
    def parties(self) -> tuple[str, str]:
        """The party that has this end, and its peer."""
        return self._outbound.source, self._outbound.target

    def start(self, protocol: asyncio.BaseProtocol) -> None:
        """Begin to call a protocol."""
        self._protocol = protocol
        self._reading = not self._closing
        protocol.connection_made(self)
        self._schedule_feed()

    # --- what arrives -----------------------------------------------------------------------------

    def _arrived(self, item: bytes | Mark) -> None:
        if isinstance(item, bytes):
            if self._lost:
                self._outbound.send(Mark.RESET)  # nothing reads it any more
            else:
                self._inbox += item
        elif self._end is not Mark.RESET:
            self._end = item
        if self._end is Mark.RESET:
            self._outbound.drop()
            if self._outbox:  # fail, as a socket that waits to be writable does
                error = BrokenPipeError(32, "Broken pipe")
                self._loop.call_soon(self._fail, error, context=self._context)
        self._schedule_feed()

    def _schedule_feed(self) -> None:
        if self._reading and not self._feeding and (self._inbox or self._end is not None):
            self._feeding = True
            self._loop.call_soon(self._feed, context=self._context)

    def _feed(self) -> None:
        self._feeding = False
        if not self._reading:
            return
        if self._inbox:
            self._read()
            self._schedule_feed()
        elif self._end is Mark.RESET:
            self._fail(ConnectionResetError(104, "Connection reset by peer"))
        elif not self._eof_received:
            self._eof_received, self._reading = True, False
            if not self._protocol.eof_received():
                self.close()

    def _read(self) -> None:
        protocol = self._protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            buffer = memoryview(protocol.get_buffer(-1))
            count = min(len(buffer), len(self._inbox))
            buffer[:count] = memoryview(self._inbox)[:count]
            buffer.release()
            self._consume(count)
            protocol.buffer_updated(count)
        else:
            data = bytes(self._inbox[:_READ_BYTES])
            self._consume(len(data))
            protocol.data_received(data)

    def _consume(self, count: int) -> None:
        del self._inbox[:count]
        self._inbound.window_bytes += count
        self._inbound.on_room()

    def is_half_closed(self) -> bool:
        """See `InspectableTransport`."""
        return self._end is Mark.FIN

    # --- sending ----------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """See asyncio."""
        if self._eof_written:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._closing:
            return
        if self._end is Mark.RESET:
            self._fail(BrokenPipeError(32, "Broken pipe"))
            return
        self._outbox += data
        self._flush()
        if len(self._outbox) > self._high and not self._protocol_paused:
            self._protocol_paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """See asyncio."""
        self.write(b"".join(list_of_data))

    def _on_room(self) -> None:
        if self._outbox:
            self._loop.call_soon(self._flush, context=self._context)

    def _flush(self) -> None:
        if self._lost:
            return
        count = min(len(self._outbox), self._outbound.window_bytes)
        if count > 0:
            self._outbound.send(bytes(self._outbox[:count]))
            del self._outbox[:count]
        if self._protocol_paused and len(self._outbox) <= self._low:
            self._protocol_paused = False
            self._protocol.resume_writing()
        if not self._outbox:
            if self._closing:
                self._lose(None)
            elif self._eof_written:
                self._outbound.send(Mark.FIN)

    def can_write_eof(self) -> bool:
        """See asyncio."""
        return True

    def write_eof(self) -> None:
        """See asyncio."""
        if self._eof_written or self._closing:
            return
        self._eof_written = True
        if not self._outbox:
            self._outbound.send(Mark.FIN)

    # --- the end ----------------------------------------------------------------------------------

    def close(self) -> None:
        """See asyncio."""
        if self._closing:
            return
        self._closing, self._reading = True, False
        if not self._outbox:
            self._lose(None)

    def abort(self) -> None:
        """See asyncio."""
        self._closing, self._reading = True, False
        self._lose(None)

    def reset(self) -> None:
        """See `InspectableTransport`."""
        if not self._lost:
            self._outbound.send(Mark.RESET)
            self._eof_written = True
        self.abort()

    def abort_by_reset(self) -> None:
        """Let RST come from the network, as from a firewall."""
        self._inbound.drop()
        self._arrived(Mark.RESET)

    def vanish(self) -> None:
        """Lose all bytes that are sent from now on, in both directions; neither end notices."""
        self._inbound.drop()
        self._outbound.drop()

    def _fail(self, error: OSError) -> None:
        self._closing, self._reading = True, False
        self._lose(error)

    def _lose(self, error: OSError | None) -> None:
        if self._lost:
            return
        self._lost = True
        self._outbox.clear()
        if error is None and (not self._eof_written or self._inbox):
            # As on Linux, closing sends RST if the process hasn't read all data.
            self._outbound.send(Mark.RESET if self._inbox else Mark.FIN)
        self._inbox.clear()
        if self._protocol is None:
            self._ended(self)
        else:
            self._loop.call_soon(self._call_lost, error, context=self._context)

    def _call_lost(self, error: OSError | None) -> None:
        self._ended(self)
        protocol, self._protocol = self._protocol, None  # as asyncio does, to leave no cycle
        protocol.connection_lost(error)

    # --- asyncio's small methods ------------------------------------------------------------------

    def is_closing(self) -> bool:
        """See asyncio."""
        return self._closing

    def is_reading(self) -> bool:
        """See asyncio."""
        return self._reading

    def pause_reading(self) -> None:
        """See asyncio."""
        self._reading = False

    def resume_reading(self) -> None:
        """See asyncio."""
        if self._closing or self._reading:
            return
        self._reading = True
        self._schedule_feed()

    def get_write_buffer_size(self) -> int:
        """See asyncio."""
        return len(self._outbox)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """See asyncio."""
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """See asyncio."""
        if high is None:
            high = _HIGH_WATER_BYTES if low is None else 4 * low
        self._high, self._low = high, high // 4 if low is None else low

    def get_protocol(self) -> asyncio.BaseProtocol:
        """See asyncio."""
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """See asyncio."""
        self._protocol = protocol
