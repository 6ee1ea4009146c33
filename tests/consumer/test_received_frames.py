"""Received frames are kept for the sets in them, within a limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka08.consumer.record_buffer import (
    Decoding,
    FetchedSet,
    FrameStore,
    ReceivedFrame,
    RecordBuffer,
)
from aiokafka08.protocol.message_set import encode_entry
from aiokafka08.structs import TopicPartition

pytestmark = pytest.mark.twins


def set_from(begin: int) -> bytes:
    return b"".join(encode_entry(offset, None, b"v") for offset in range(begin, begin + 10))


SET = set_from(0)


class Response:
    """A frame with a set for each of the buffers."""

    def __init__(self, frames: FrameStore, buffers: list[RecordBuffer]) -> None:
        self.memory = bytearray(b"".join(set_from(one.end) for one in buffers))
        frame = frames.new_frame(len(self.memory))
        with memoryview(self.memory) as whole:
            for index, one in enumerate(buffers):
                part = whole[index * len(SET) : (index + 1) * len(SET)]
                one.add_set(part, one.end, one.end + 10, frame)

    @property
    def is_kept(self) -> bool:
        """Whether a view of the memory exists."""
        try:
            self.memory.append(0)
        except BufferError:
            return True
        del self.memory[-1]
        return False


def buffers(count: int) -> list[RecordBuffer]:
    return [RecordBuffer(TopicPartition("t", number), Decoding()) for number in range(count)]


def frames(limit_bytes: int) -> FrameStore:
    made = FrameStore()
    made.limit_bytes = limit_bytes
    return made


def offsets(one: RecordBuffer, slice_records: int = 1000) -> list[int]:
    while one.decode(slice_records):
        pass
    return [record.offset for record in one.pop_records(None)]


def test_frame_is_kept_until_its_sets_are_read() -> None:
    kept, [first, second] = frames(len(SET)), buffers(2)
    response = Response(kept, [first, second])
    assert offsets(first) == list(range(10))
    assert response.is_kept
    assert kept.unused_bytes == len(SET)
    assert offsets(second) == list(range(10))
    assert not response.is_kept
    assert kept.unused_bytes == 0


def test_unread_sets_are_copied_out_of_the_oldest_frame() -> None:
    kept, [busy, idle] = frames(2 * len(SET)), buffers(2)
    responses = [Response(kept, [busy, idle]) for _ in range(3)]
    offsets(busy)
    assert [response.is_kept for response in responses] == [False, True, True]
    assert kept.unused_bytes == 2 * len(SET)
    assert len(offsets(idle)) == 30
    assert not any(response.is_kept for response in responses)
    assert kept.unused_bytes == 0


def test_partly_read_set_is_copied_out_and_read_on() -> None:
    kept, [busy, slow] = frames(0), buffers(2)
    response = Response(kept, [busy, slow])
    slow.decode(3)
    offsets(busy)
    assert not response.is_kept
    assert offsets(slow) == list(range(10))
    assert kept.unused_bytes == 0


def test_reset_releases_the_frame() -> None:
    kept, [first, second] = frames(1000), buffers(2)
    response = Response(kept, [first, second])
    first.reset(0)
    assert response.is_kept
    second.reset(0)
    assert not response.is_kept
    assert kept.unused_bytes == 0


def test_frame_without_sets_is_not_kept() -> None:
    kept = frames(0)
    kept.new_frame(1000)
    kept.trim()
    assert kept.unused_bytes == 0


@given(
    st.integers(0, 5),
    st.lists(st.tuples(st.sampled_from(["come", "read", "reset"]), st.sets(st.integers(0, 3)))),
)
def test_unused_bytes_stay_within_the_limit(
    limit_sets: int, steps: list[tuple[str, set[int]]]
) -> None:
    kept, all_of_them = frames(limit_sets * len(SET)), buffers(4)
    responses: list[Response] = []
    for what, chosen in steps:
        some = [all_of_them[number] for number in sorted(chosen)]
        if what == "come":
            responses.append(Response(kept, some))
        for one in some:
            if what == "read":
                offsets(one, 4)
            elif what == "reset":
                one.reset(one.end)
        held = sum(len(response.memory) for response in responses if response.is_kept)
        assert kept.unused_bytes <= min(held, kept.limit_bytes)
    for one in all_of_them:
        one.reset(0)
    assert kept.unused_bytes == 0
    assert not any(response.is_kept for response in responses)


def test_copied_out_set_is_released_once() -> None:
    kept, part = frames(0), FetchedSet(b"", 0, 0, 0, None)
    frame: ReceivedFrame = kept.new_frame(10)
    frame.add_set(part, 10)
    frame.copy_sets_out()
    frame.release_set(part)
    assert kept.unused_bytes == 0
