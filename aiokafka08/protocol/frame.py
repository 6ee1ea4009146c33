"""Cut a byte stream into size-prefixed frames, however it is chunked.

`FrameReader` owns the receive buffers. It copies small frames out of one reused buffer. A large
frame gets a buffer of its own, which the socket fills directly.

Invariants: memory is spent on bytes that have arrived, not on a size that the peer has announced.
A size is checked against the limit first. The buffer of a large frame then grows in `_STEPS` as it
fills, unless the peer has sent a frame of about that size before. Memory is reused only when no
view of it is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from aiokafka08.errors import KafkaProtocolError
from aiokafka08.protocol.pages import allocate_pages
from aiokafka08.protocol.types import Buffer

DEFAULT_MAX_FRAME_BYTES: Final = 256 * 1024 * 1024
"""Larger than any response that the client's default limits allow."""

SCRATCH_BYTES: Final = 64 * 1024
"""The size of the buffer that small frames arrive in; each reader has one."""

# The sizes of a large frame's buffer before it has the size of the frame. The buffer is replaced by
# the next size when it is full. That copies the bytes, so the steps are a little above the usual
# sizes of fetch responses.
_STEPS: Final = (160 * 1024, 1280 * 1024, 10240 * 1024)

# A frame of up to this many times the size of the largest one so far gets its whole buffer at once.
# A consumer that catches up doubles the size of each fetch, and the steps would copy each response.
_TRUST: Final = 4

# One buffer is read by the frame's owner while the other one receives the next frame
_KEPT_BUFFERS: Final = 2

# The size of the largest buffer kept. A fetch response of three partitions fits, with the default
# `max_partition_fetch_bytes` of 1 MiB.
_KEPT_BYTES: Final = 4 * 1024 * 1024


class _FrameBuffer:
    """A buffer of fixed size, whose memory becomes resident when it is written.

    It isn't an `io.BytesIO`: CPython 3.12 crashes if the garbage collector finds a view of that.
    """

    __slots__ = ("_pages", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self._pages = allocate_pages(size_bytes)
        self.size_bytes = size_bytes

    def view(self) -> memoryview:
        """Return a view of the whole buffer."""
        return memoryview(self._pages)

    def has_views(self) -> bool:
        """Return True if there is a view of the buffer: then `mmap` refuses to resize it."""
        try:
            self._pages.resize(self.size_bytes)
        except BufferError:
            return True
        except SystemError:  # macOS up to 3.14 can't resize, and checks for views first
            return False
        except AttributeError:  # macOS from 3.15 on: views aren't known, nothing is reused
            return True
        return False


class _FrameBuffers:
    """Allocate the buffers of large frames; reuse the buffer of an earlier frame if possible.

    Allocating a buffer takes as long as filling it with the frame: the first access to each of its
    pages is a page fault.
    """

    __slots__ = ("_filling", "_kept", "_largest_bytes")

    def __init__(self) -> None:
        self._kept: list[_FrameBuffer] = []
        self._filling: _FrameBuffer | None = None  # a new buffer, to be kept once it is full
        self._largest_bytes = 0  # the size of the largest frame that was complete

    @property
    def kept_bytes(self) -> int:
        """The size of all buffers that are kept."""
        return sum(buffer.size_bytes for buffer in self._kept)

    def drop(self) -> int:
        """Keep no buffers; return the size of those that were kept."""
        dropped_bytes, self._kept = self.kept_bytes, []
        return dropped_bytes

    def allocate(self, size_bytes: int, arrived_bytes: int) -> memoryview:
        """Return a buffer for a frame, with arbitrary content.

        It is smaller than the frame if few of the frame's bytes have arrived, and the frame is
        much larger than those before.
        """
        self._filling = None
        for buffer in self._kept:
            # Not much larger, because a view of any part of the frame keeps the whole buffer in
            # memory.
            if size_bytes <= buffer.size_bytes <= 2 * size_bytes and not buffer.has_views():
                return buffer.view()[:size_bytes]
        step = size_bytes
        if size_bytes > _TRUST * self._largest_bytes:
            # A frame of less than twice the last step isn't worth its copy, which takes longest.
            steps = _STEPS if size_bytes > 2 * _STEPS[-1] else _STEPS[:-1]
            step = next((step for step in steps if step > arrived_bytes), size_bytes)
        if step < size_bytes or size_bytes > _KEPT_BYTES:
            return memoryview(allocate_pages(min(step, size_bytes)))
        self._filling = _FrameBuffer(size_bytes)
        return self._filling.view()

    def note_complete(self, size_bytes: int) -> None:
        """Note the size of a large frame that is complete, and keep its buffer if it is new."""
        self._largest_bytes = max(self._largest_bytes, size_bytes)
        if self._filling is not None:
            self._kept = [*self._kept, self._filling][-_KEPT_BUFFERS:]
            self._filling = None


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

    __slots__ = (
        "_apart",
        "_buffers",
        "_filled",
        "_frame",
        "_peer",
        "_scratch",
        "_size",
        "max_frame_bytes",
    )

    def __init__(
        self, max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES, peer: str = "the peer"
    ) -> None:
        self.max_frame_bytes = max_frame_bytes  # may be changed
        self._peer = peer
        self._scratch = memoryview(allocate_pages(SCRATCH_BYTES))
        self._frame: memoryview | None = None  # the buffer of a large frame that isn't complete yet
        self._size = 0  # the size of that frame; its buffer may still be smaller
        self._buffers = _FrameBuffers()
        self._filled = 0  # bytes in `_frame`, or in `_scratch` if there is no `_frame`
        self._apart: memoryview | None = None  # where the next bytes arrive, if in neither of them

    @property
    def is_in_large_frame(self) -> bool:
        """Whether the next bytes belong to a large frame that isn't complete."""
        return self._frame is not None

    @property
    def is_in_frame(self) -> bool:
        """Whether the next bytes belong to a frame that has begun, or to its size."""
        return self._filled > 0 or self._frame is not None

    @property
    def bytes_to_copy(self) -> int:
        """How many bytes the next `get_buffer()` copies, to a larger buffer of the same frame."""
        return self._filled if self._frame is not None and self._filled == len(self._frame) else 0

    @property
    def memory_bytes(self) -> int:
        """How much memory the reader itself holds, without the frames that callers keep.

        Of an incomplete frame, only the bytes that have arrived count, beside kept buffers.
        """
        held_bytes = len(self._scratch) + self._filled + len(self._apart or b"")
        return held_bytes + self._buffers.kept_bytes

    def drop_kept(self) -> int:
        """Free the buffers that are kept for the next frames; return how many bytes they have."""
        return self._buffers.drop()

    def close(self) -> None:
        """Free all memory; the reader is unusable afterwards."""
        self._scratch, self._frame, self._apart, self._filled = memoryview(b""), None, None, 0
        self._buffers.drop()

    def get_buffer(self, least_bytes: int = 0) -> memoryview:
        """Return the buffer for the next bytes, of this size at least; it is never empty."""
        if self._frame is not None and self._filled == len(self._frame):
            self._begin(self._frame)  # here, so that the caller can choose when
        buffer = (self._scratch if self._frame is None else self._frame)[self._filled :]
        if len(buffer) >= least_bytes:
            return buffer
        self._apart = memoryview(bytearray(least_bytes))
        return self._apart

    def received(self, count: int) -> Iterator[memoryview]:
        """Accept `count` bytes that were written into `get_buffer()`; yield the complete frames.

        Raises:
            KafkaProtocolError: a size is negative or over the limit. The reader is unusable then.
        """
        if self._apart is not None:
            yield from self._copied(count)
            return
        self._filled += count
        if self._frame is None:
            yield from self._cut()
        elif self._filled == self._size:
            frame, self._frame, self._filled = self._frame, None, 0
            self._buffers.note_complete(self._size)
            yield frame

    def _copied(self, count: int) -> Iterator[memoryview]:
        """Accept bytes that have arrived in a buffer of their own."""
        assert self._apart is not None
        left, self._apart = self._apart[:count], None
        while left:
            buffer = self.get_buffer()[: len(left)]
            buffer[:] = left[: len(buffer)]
            left = left[len(buffer) :]
            yield from self.received(len(buffer))

    def _begin(self, arrived: memoryview) -> None:
        """Get a buffer, or a larger one, for a frame of which these bytes have arrived."""
        self._frame = self._buffers.allocate(self._size, len(arrived))
        self._filled = len(arrived)
        self._frame[: self._filled] = arrived

    def _cut(self) -> Iterator[memoryview]:
        data, pos, end = self._scratch, 0, self._filled
        while end - pos >= 4:
            size = int.from_bytes(data[pos : pos + 4], "big", signed=True)
            if not 0 <= size <= self.max_frame_bytes:
                raise KafkaProtocolError(
                    f"{self._peer} announced a frame of {size} bytes; expected 0 to "
                    f"{self.max_frame_bytes}. It isn't a Kafka broker, or the stream is damaged"
                )
            start = pos + 4
            if start + size <= end:
                pos = start + size
                yield memoryview(bytes(data[start:pos]))
            elif 4 + size <= len(data):
                break  # it fits into the scratch buffer, once its start is moved to the front
            else:
                self._size = size
                self._begin(data[start:end])
                return
        if pos:  # else the frame is in front already and isn't moved again
            partial_frame = bytes(data[pos:end])
            data[: len(partial_frame)] = partial_frame
            self._filled = len(partial_frame)
