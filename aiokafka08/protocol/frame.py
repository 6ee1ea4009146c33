"""Cut a byte stream into size-prefixed frames, however it is chunked.

`FrameReader` owns the receive buffers. It copies small frames out of one reused buffer. A large
frame gets a buffer of its own: the bytes that came with its size are copied into it, and the socket
writes the rest there directly. Callers can pass on views of a frame.

Invariants: a frame's size is checked against the limit before memory is allocated for it. Memory
is reused only when no view of it is left.

`connection` (the client) and the embedded cluster (`testing`) read frames; `api` decodes them.
`consumer.fetcher` calls `held_bytes` to account for memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from aiokafka08.errors import KafkaProtocolError
from aiokafka08.protocol.types import Buffer

DEFAULT_MAX_FRAME_BYTES = 256 * 1024 * 1024
"""Larger than any response that the client's default limits allow."""

_SCRATCH_BYTES = 64 * 1024

_KEPT_BUFFERS = 2
"""One buffer is read by the frame's owner while the other one receives the next frame."""

_KEPT_BYTES = 4 * 1024 * 1024
"""The size of the largest buffer kept. A fetch response of three partitions fits, with the default
`max_partition_fetch_bytes` of 1 MiB."""


class _FrameBuffers:
    """Allocate the buffers of large frames; reuse the buffer of an earlier frame if possible.

    Allocating a buffer takes as long as filling it with the frame: the new memory is zeroed, and
    the first access to each of its pages is a page fault.
    """

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: list[bytearray] = []

    def allocate(self, size_bytes: int) -> memoryview:
        """Return a buffer of this size with arbitrary content."""
        for buffer in self._kept:
            # Not much larger: a view of any part of the frame keeps the whole buffer in memory.
            if size_bytes <= len(buffer) <= 2 * size_bytes and _has_no_views(buffer):
                return memoryview(buffer)[:size_bytes]
        buffer = bytearray(size_bytes)
        if size_bytes <= _KEPT_BYTES:
            self._kept = [*self._kept, buffer][-_KEPT_BUFFERS:]
        return memoryview(buffer)


def _has_no_views(buffer: bytearray) -> bool:
    """Return True if there is no view of the buffer: a view would forbid to resize it."""
    try:
        buffer.pop()
    except BufferError:
        return False
    buffer.append(0)
    return True


def held_bytes(data: Buffer) -> int:
    """Return how much memory this part of a frame keeps alive."""
    return memoryview(data.obj).nbytes if isinstance(data, memoryview) else len(data)


class FrameReader:
    """Cut a byte stream into frames; made for `asyncio.BufferedProtocol`.

    The caller writes n bytes into `get_buffer()`, then iterates over `received(n)`, which yields
    the frames, without their size prefix, that are complete now. The caller may keep a frame: its
    memory isn't reused while there is a view of it. The caller has to iterate to the end, since
    `received()` is a generator: it yields the frames before a damaged one, then raises.
    """

    __slots__ = ("_buffers", "_filled", "_frame", "_max_frame_bytes", "_peer", "_scratch")

    def __init__(
        self, max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES, peer: str = "the peer"
    ) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._peer = peer
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self._frame: memoryview | None = None  # a large frame that isn't complete yet
        self._buffers = _FrameBuffers()
        self._filled = 0  # bytes in `_frame`, or in `_scratch` if there is no `_frame`

    def get_buffer(self) -> memoryview:
        """Return the buffer for the next bytes; it is never empty."""
        return (self._scratch if self._frame is None else self._frame)[self._filled :]

    def received(self, count: int) -> Iterator[memoryview]:
        """Accept `count` bytes that were written into `get_buffer()`; yield the complete frames.

        Raises:
            KafkaProtocolError: a size is negative or over the limit. The reader is unusable then.
        """
        self._filled += count
        if self._frame is None:
            yield from self._cut()
        elif self._filled == len(self._frame):
            frame, self._frame, self._filled = self._frame, None, 0
            yield frame

    def _cut(self) -> Iterator[memoryview]:
        data, pos, end = self._scratch, 0, self._filled
        while end - pos >= 4:
            size = int.from_bytes(data[pos : pos + 4], "big", signed=True)
            if not 0 <= size <= self._max_frame_bytes:
                raise KafkaProtocolError(
                    f"{self._peer} announced a frame of {size} bytes; expected 0 to "
                    f"{self._max_frame_bytes}. It isn't a Kafka broker, or the stream is damaged"
                )
            start = pos + 4
            if start + size <= end:
                pos = start + size
                yield memoryview(bytes(data[start:pos]))
            elif 4 + size <= len(data):
                break  # it fits into the scratch buffer, once its start is moved to the front
            else:
                self._frame = self._buffers.allocate(size)
                self._filled = end - start
                self._frame[: self._filled] = data[start:end]
                return
        if pos:  # else the frame is in front already and isn't moved again
            rest = bytes(data[pos:end])
            data[: len(rest)] = rest
            self._filled = len(rest)
