"""Frames are yielded complete, once and in order with any chunking; sizes are checked first."""

from __future__ import annotations

import ctypes
import random
import subprocess
import sys
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka08.errors import KafkaProtocolError
from aiokafka08.protocol import frame as frame_module
from aiokafka08.protocol.frame import FrameReader, held_bytes
from tests.protocol.decoding import feed, pending_bytes
from tests.protocol.strategies import examples
from tests.support.memory import resident_bytes
from tests.support.paths import ROOT

pytestmark = pytest.mark.fast

SCRATCH = 64 * 1024
FIRST = 160 * 1024
"""The room of a large frame of which nothing has arrived; it grows eightfold, twice."""


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


def address(view: memoryview) -> int:
    """Return where the first byte of a view is in memory."""
    return ctypes.addressof(ctypes.c_char.from_buffer(view))


def read_all(reader: FrameReader, stream: bytes, cuts: list[int]) -> list[bytes]:
    """Return the frames of a stream that arrives in pieces which end at `cuts`."""
    frames = []
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        frames += [bytes(frame) for frame in feed(reader, stream[start:stop])]
    return frames


@examples(100)
@given(data=st.data())
def test_any_chunking_gives_the_same_frames(data: st.DataObject) -> None:
    sizes = st.sampled_from(
        [0, 1, 3, 4, 5, 100, SCRATCH - 5, SCRATCH - 4, SCRATCH - 3, 150_000, FIRST, FIRST + 1]
    )
    bodies = [
        random.Random(index).randbytes(size)
        for index, size in enumerate(data.draw(st.lists(sizes, max_size=6)))
    ]
    stream = framed(*bodies)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    reader = FrameReader()
    assert read_all(reader, stream, cuts) == bodies
    assert pending_bytes(reader) == 0


def test_frames_fed_byte_by_byte_are_complete() -> None:
    bodies = [b"", b"a", b"four", bytes(1000)]
    stream = framed(*bodies)
    assert read_all(FrameReader(), stream, list(range(1, len(stream)))) == bodies


@pytest.mark.parametrize("size", [10, SCRATCH - 4, SCRATCH - 3, FIRST + 1, 8 * FIRST + 1])
def test_caller_may_fill_the_whole_buffer(size: int) -> None:
    """As asyncio's transports do: any number of bytes up to the buffer's length."""
    bodies = [random.Random(size).randbytes(size), b"behind"]
    stream = memoryview(framed(*bodies))
    reader = FrameReader()
    frames = []
    while stream:
        room = reader.get_buffer()
        assert len(room) > 0
        count = min(len(room), len(stream), 30_000)
        room[:count] = stream[:count]
        stream = stream[count:]
        frames += [bytes(frame) for frame in reader.received(count)]
    assert frames == bodies


def test_frame_is_unchanged_by_later_frames() -> None:
    bodies = [random.Random(size).randbytes(size) for size in (10, 200_000, 20, 300_000)]
    reader = FrameReader()
    frames = [frame for body in bodies for frame in feed(reader, framed(body))]
    assert [bytes(frame) for frame in frames] == bodies


def test_large_frame_is_not_copied() -> None:
    reader = FrameReader()
    assert not list(feed(reader, framed(bytes(150_000))[:SCRATCH]))
    room = reader.get_buffer()
    assert len(room) == 150_000 - (SCRATCH - 4)
    (frame,) = reader.received(len(room))
    assert address(frame) + SCRATCH - 4 == address(room)


@pytest.mark.parametrize("size", [200_000, 3_000_000, 100 * 1024 * 1024])
def test_room_grows_as_bytes_arrive(size: int) -> None:
    reader = FrameReader()
    list(feed(reader, size.to_bytes(4, "big") + bytes(10)))
    assert len(reader.get_buffer()) <= FIRST
    for arrived, room in ((FIRST, 8 * FIRST), (8 * FIRST, 64 * FIRST), (64 * FIRST, size)):
        if arrived >= size:
            break
        list(feed(reader, bytes(arrived - pending_bytes(reader))))
        assert pending_bytes(reader) == arrived
        assert len(reader.get_buffer()) == min(size, room) - arrived


def test_frame_a_little_larger_than_the_last_step_isnt_copied_for_it() -> None:
    """The copy would take most of the time that the rest of the frame needs to arrive."""
    reader, size = FrameReader(), 16 * 1024 * 1024
    list(feed(reader, size.to_bytes(4, "big") + bytes(8 * FIRST)))
    assert len(reader.get_buffer()) == size - 8 * FIRST


def test_bytes_to_copy_are_those_that_the_next_buffer_copies() -> None:
    reader, size = FrameReader(), 100 * 1024 * 1024
    list(feed(reader, size.to_bytes(4, "big") + bytes(FIRST - 1)))
    assert reader.bytes_to_copy == 0
    list(feed(reader, b"x"))
    assert reader.bytes_to_copy == FIRST
    reader.get_buffer()
    assert reader.bytes_to_copy == 0


@pytest.mark.parametrize("size", [700_000, 5_000_000, 20 * 1024 * 1024])
def test_frame_gets_its_whole_room_after_one_of_a_quarter_of_its_size(size: int) -> None:
    reader = FrameReader()
    list(feed(reader, framed(bytes(size // 4 - 1))))
    list(feed(reader, size.to_bytes(4, "big") + bytes(SCRATCH - 4)))
    assert len(reader.get_buffer()) == FIRST - pending_bytes(reader)
    reader = FrameReader()
    list(feed(reader, framed(bytes(size // 4))))
    list(feed(reader, size.to_bytes(4, "big") + bytes(SCRATCH - 4)))
    assert len(reader.get_buffer()) == size - pending_bytes(reader)


def test_trusted_frame_counts_by_what_has_arrived() -> None:
    reader = FrameReader()
    list(feed(reader, framed(bytes(1 << 20))))
    reader.drop_kept()
    list(feed(reader, (4 << 20).to_bytes(4, "big") + b"x"))
    assert reader.memory_bytes < 2 * SCRATCH


def test_announced_sizes_cost_little_memory() -> None:
    before = resident_bytes()
    readers = [FrameReader() for _ in range(1000)]
    for reader in readers:
        list(feed(reader, (100 << 20).to_bytes(4, "big") + bytes(10)))
    assert resident_bytes() - before < 1000 * SCRATCH // 2


def test_memory_counts_what_has_arrived_and_what_is_kept() -> None:
    reader = FrameReader()
    assert reader.memory_bytes == SCRATCH
    list(feed(reader, (100 << 20).to_bytes(4, "big") + bytes(10)))
    assert reader.memory_bytes == SCRATCH + 10
    reader = FrameReader()
    one_frame(reader, bytes(300_000))
    assert reader.memory_bytes == SCRATCH + 300_000
    assert reader.drop_kept() == 300_000
    assert reader.memory_bytes == SCRATCH


def one_frame(reader: FrameReader, body: bytes) -> memoryview:
    (frame,) = feed(reader, framed(body))
    return frame


def test_large_frame_reuses_a_buffer_without_views() -> None:
    reader = FrameReader()
    room = address(one_frame(reader, bytes(200_000)))
    for size in (200_000, 100_000, 199_999, 200_000):
        body = random.Random(size).randbytes(size)
        frame = one_frame(reader, body)
        assert address(frame) == room
        assert frame == body
        del frame


def test_frame_never_gets_a_much_larger_buffer() -> None:
    reader, held = FrameReader(), []
    for _ in range(20):
        one_frame(reader, bytes(4_000_000))
        held.append(one_frame(reader, bytes(70_000)))
    assert sum(map(held_bytes, held)) <= 2 * 20 * 70_000
    assert held_bytes(one_frame(reader, b"small")) == 5
    assert held_bytes(b"bytes") == 5


def test_buffer_with_a_view_is_not_reused() -> None:
    reader = FrameReader()
    held = one_frame(reader, b"1" * 200_000)
    room = address(one_frame(reader, b"2" * 200_000))
    assert room != address(held)
    assert address(one_frame(reader, b"3" * 200_000)) == room
    assert held == b"1" * 200_000


def test_view_of_any_part_keeps_a_frames_buffer() -> None:
    reader = FrameReader()
    part = one_frame(reader, b"1" * 200_000)[10:20][1:3]
    for digit in (b"2", b"3", b"4"):
        one_frame(reader, digit * 200_000)
    assert bytes(part) == b"11"


@examples(50)
@given(data=st.data())
def test_kept_frames_never_change(data: st.DataObject) -> None:
    sizes = st.sampled_from([10, SCRATCH - 3, 100_000, 100_001, 150_000])
    reader = FrameReader()
    kept: list[tuple[memoryview, bytes]] = []
    for index, size in enumerate(data.draw(st.lists(sizes, max_size=8))):
        body = random.Random(index).randbytes(size)
        kept.append((one_frame(reader, body), body))
        if data.draw(st.booleans()):
            del kept[data.draw(st.integers(0, len(kept) - 1))]
        for frame, was in kept:
            assert frame == was


def test_buffers_of_very_large_frames_are_not_kept() -> None:
    reader = FrameReader()
    tracemalloc.start()
    for _ in range(3):
        one_frame(reader, bytes(5 * 1024 * 1024))
    assert tracemalloc.get_traced_memory()[0] < 64 * 1024
    tracemalloc.stop()


def test_at_most_two_buffers_are_kept() -> None:
    reader = FrameReader()
    tracemalloc.start()
    frames = [one_frame(reader, bytes(1024 * 1024)) for _ in range(5)]
    del frames
    assert tracemalloc.get_traced_memory()[0] < 2 * 1024 * 1024 + 64 * 1024
    tracemalloc.stop()


def test_incomplete_frame_is_pending_until_complete() -> None:
    reader = FrameReader()
    assert pending_bytes(reader) == 0
    list(feed(reader, b"\0\0"))
    assert pending_bytes(reader) == 2
    list(feed(reader, b"\0\4abc"))
    assert pending_bytes(reader) == 7
    list(feed(reader, b"d"))
    assert pending_bytes(reader) == 0


@pytest.mark.parametrize("size", [-1, -12, -(2**31), 1001, 0x48545450, 2**31 - 1])
def test_size_out_of_bounds_raises_with_peer_and_limit(size: int) -> None:
    reader = FrameReader(1000, "kafka2:9092")
    with pytest.raises(
        KafkaProtocolError,
        match=f"kafka2:9092 announced a frame of {size} bytes; expected 0 to 1000",
    ):
        list(feed(reader, size.to_bytes(4, "big", signed=True)))


def test_frame_of_the_largest_size_is_accepted() -> None:
    (frame,) = feed(FrameReader(1000), framed(bytes(1000)))
    assert len(frame) == 1000


def test_frames_before_a_damaged_one_are_yielded() -> None:
    frames = feed(FrameReader(), framed(b"one", b"two") + b"\xff\xff\xff\xff" + framed(b"three"))
    assert bytes(next(frames)) == b"one"
    assert bytes(next(frames)) == b"two"
    with pytest.raises(KafkaProtocolError):
        next(frames)


def test_oversized_size_field_allocates_nothing() -> None:
    reader = FrameReader(100 * 1024 * 1024)
    tracemalloc.start()
    with pytest.raises(KafkaProtocolError):
        list(feed(reader, (2**31 - 1).to_bytes(4, "big")))
    assert tracemalloc.get_traced_memory()[1] < 64 * 1024
    tracemalloc.stop()


COLLECTED = """
import gc, sys
from types import SimpleNamespace
from aiokafka08.protocol.frame import FrameReader

gc.disable()
seen = []
sys.unraisablehook = seen.append
body = bytes(200_000)
reader = FrameReader()
frame = len(body).to_bytes(4, "big") + body
while frame:
    room = reader.get_buffer()
    size = min(len(room), len(frame))
    room[:size] = frame[:size]
    frame = frame[size:]
    room.release()
    frames = list(reader.received(size))
owner = SimpleNamespace(reader=reader, frames=frames)  # the collector clears older objects first
owner.itself = owner
del owner, reader, frames, room
gc.collect()
sys.exit(f"{seen[0].exc_value!r}" if seen else 0)
"""


def test_collecting_a_reader_with_views_reports_nothing() -> None:
    """3.13 reported it without the option too; 3.12 crashed."""
    subprocess.run([sys.executable, "-X", "dev", "-c", COLLECTED], check=True, cwd=ROOT)


@pytest.mark.parametrize(("error", "has_views"), [(SystemError, False), (AttributeError, True)])
def test_system_that_cannot_resize_maps_has_frames(
    error: type[Exception], has_views: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """macOS: without a view up to Python 3.14 SystemError; later there is no method."""

    class Pages:
        def resize(self, size_bytes: int) -> None:
            raise error

    buffer = frame_module._FrameBuffer(10)
    monkeypatch.setattr(buffer, "_pages", Pages())
    assert buffer.has_views() is has_views


@pytest.mark.parametrize("chunk", [1000, 70_000, 200_000, 3_000_000])
def test_bytes_that_have_to_arrive_at_once_do(chunk: int) -> None:
    """As TLS demands it: whatever is left in the reader's own buffers."""
    frames = [bytes([n]) * size for n, size in enumerate((10, 100_000, 3, 1_500_000, 0, 65_530, 5))]
    stream = b"".join(len(one).to_bytes(4, "big") + one for one in frames)
    reader = FrameReader()
    found: list[bytes] = []
    for at in range(0, len(stream), chunk):
        part = stream[at : at + chunk]
        buffer = reader.get_buffer(len(part))
        assert len(buffer) >= len(part)
        buffer[: len(part)] = part
        found += map(bytes, reader.received(len(part)))
    assert found == frames
