"""Size-prefixed frames out of any chunking, with a limit.

Owns the receive buffers: small frames are copied out of one reused buffer, a large one gets a
buffer of its own that the socket fills directly, so its bytes are never copied and may be handed
on as views. Law: a size is checked against the limit before anything is allocated for it, and
memory is used again only when nobody has a view of it any more. What is in a frame is none of its
business (`api`), nor whose turn it is (`connection`).
"""

from __future__ import annotations

from collections.abc import Iterator

from aiokafka08.errors import KafkaProtocolError
from aiokafka08.protocol.types import Buffer

DEFAULT_MAX_FRAME_BYTES = 256 * 1024 * 1024
"""Larger than any answer that the default limits of the client can ask for."""

_SCRATCH_BYTES = 64 * 1024

_KEPT_ROOMS = 2
"""One frame is read by its owner while the next one comes in."""

_KEPT_BYTES = 4 * 1024 * 1024
"""The largest room that is kept: three partitions of 1 MiB, the default of a fetch, fit in."""


class _Rooms:
    """The memory that large frames go to: what an earlier one has left, or else new.

    New memory costs as much as to fill it: it is zeroed, and each page of it is a page fault.
    """

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: list[bytearray] = []

    def take(self, size_bytes: int) -> memoryview:
        """Room for a frame; all of it is to be overwritten."""
        for room in self._kept:
            # Not much larger: it is held as a whole for as long as any part of the frame is.
            if size_bytes <= len(room) <= 2 * size_bytes and _is_left(room):
                return memoryview(room)[:size_bytes]
        room = bytearray(size_bytes)
        if size_bytes <= _KEPT_BYTES:
            self._kept = [*self._kept, room][-_KEPT_ROOMS:]
        return memoryview(room)


def _is_left(room: bytearray) -> bool:
    """Whether nobody has a view of it: as long as there is one, it can't be resized."""
    try:
        room.pop()
    except BufferError:
        return False
    room.append(0)
    return True


def held_bytes(data: Buffer) -> int:
    """How much memory is held as long as somebody has this part of a frame."""
    return memoryview(data.obj).nbytes if isinstance(data, memoryview) else len(data)


class FrameReader:
    """Cuts a byte stream into frames; made for `asyncio.BufferedProtocol`.

    The driver asks `get_buffer()` where the next bytes should go, writes n bytes there and walks
    `received(n)`, which yields the frames (without size prefix) that are complete now. A frame is
    the caller's to keep: its memory isn't reused while there is a view of it. `feed()` does both
    for bytes that are at hand. Both are generators, so that the frames before a damaged one still
    come out: walk them to their end.
    """

    __slots__ = ("_filled", "_frame", "_max_frame_bytes", "_peer", "_rooms", "_scratch")

    def __init__(
        self, max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES, peer: str = "the peer"
    ) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._peer = peer
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self._frame: memoryview | None = None  # a large frame in the making
        self._rooms = _Rooms()
        self._filled = 0  # bytes in `_frame` if there is one, else in `_scratch`

    @property
    def pending_bytes(self) -> int:
        """Bytes of an incomplete frame that have arrived."""
        return self._filled

    def get_buffer(self) -> memoryview:
        """Where to put the next bytes; never empty."""
        return (self._scratch if self._frame is None else self._frame)[self._filled :]

    def received(self, count: int) -> Iterator[memoryview]:
        """Take `count` bytes that were put into `get_buffer()`; yields the complete frames.

        Raises:
            KafkaProtocolError: a size is negative or over the limit. The reader is of no use then.
        """
        self._filled += count
        if self._frame is None:
            yield from self._cut()
        elif self._filled == len(self._frame):
            frame, self._frame, self._filled = self._frame, None, 0
            yield frame

    def feed(self, data: Buffer) -> Iterator[memoryview]:
        """`get_buffer` and `received` for bytes that are already in memory."""
        rest = memoryview(data)
        while rest:
            room = self.get_buffer()
            count = min(len(room), len(rest))
            room[:count] = rest[:count]
            rest = rest[count:]
            yield from self.received(count)

    def _cut(self) -> Iterator[memoryview]:
        data, pos, end = self._scratch, 0, self._filled
        while end - pos >= 4:
            size = int.from_bytes(data[pos : pos + 4], "big", signed=True)
            if not 0 <= size <= self._max_frame_bytes:
                raise KafkaProtocolError(
                    f"{self._peer} announced a frame of {size} bytes, "
                    f"0 to {self._max_frame_bytes} are allowed: it isn't a Kafka broker, or the "
                    "stream is damaged"
                )
            start = pos + 4
            if start + size <= end:
                pos = start + size
                yield memoryview(bytes(data[start:pos]))
            elif 4 + size <= len(data):
                break  # fits into the scratch buffer, once that is moved to the front
            else:
                self._frame = self._rooms.take(size)
                self._filled = end - start
                self._frame[: self._filled] = data[start:end]
                return
        if pos:  # else it stands in front already: a frame that drips in isn't moved each time
            rest = bytes(data[pos:end])
            data[: len(rest)] = rest
            self._filled = len(rest)
