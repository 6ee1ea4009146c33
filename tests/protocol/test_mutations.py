"""Captured frames with bits flipped, lengths replaced, and pieces cut, repeated and swapped.

The cases are the same in each run; `--full` adds seeds. CRCs would hide most mutations of message
sets, so these are also mutated with right CRCs, and inside a wrapper with a right CRC.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import pytest

from aiokafka08.errors import CorruptRecordException
from aiokafka08.protocol.compression import Codec, decompress
from tests.protocol.batch_oracle import BATCHES
from tests.protocol.entries import entries
from tests.protocol.golden import FETCHES, PRODUCES, VECTORS, message_sets
from tests.protocol.hostile import (
    DECOMPRESSED_LIMIT,
    Endured,
    bounded,
    endure_batches,
    endure_message_set,
    endure_request,
    endure_response,
    memory_traced,
)
from tests.protocol.mutations import mutated, signed, signed_batches
from tests.protocol.oracle import wrapper
from tests.protocol.twins import each_twin

pytestmark = each_twin

ROUNDS = 40
"""How often each subject is mutated in a run."""


class Subject(NamedTuple):
    """Bytes to mutate, and the function that decodes them."""

    name: str
    data: bytes
    endure: Callable[[bytes, Endured], None]


def subjects() -> Iterator[Subject]:
    for vector in VECTORS:
        yield Subject(vector.name + " request", vector.request_body, endure_request)
        yield Subject(
            vector.name + " response",
            vector.response_body,
            partial(endure_response, vector.request_class, vector.layout),
        )
    for number, data in enumerate(BATCHES):
        yield Subject(f"batches {number}", data, endure_batches)
        yield Subject(f"batches {number}, signed", data, endure_signed_batches)
    for vector in FETCHES + PRODUCES:
        for message_set in message_sets(vector):
            yield Subject(vector.name + " set, up", message_set, endure_batches)
            yield Subject(vector.name + " set", message_set, endure_set)
            yield Subject(vector.name + " set, signed", message_set, endure_signed)
            for entry in entries(message_set):
                if entry.codec and entry.value is not None:
                    codec = Codec(entry.codec)
                    inside = decompress(codec, entry.value, DECOMPRESSED_LIMIT)
                    for magic in (0, 1):
                        yield Subject(
                            f"{vector.name} inside {codec.name} {magic}",
                            inside,
                            partial(endure_inside, codec, magic),
                        )


def endure_set(message_set: bytes, seen: Endured) -> None:
    endure_message_set(message_set, 5, seen)


def endure_signed(message_set: bytes, seen: Endured) -> None:
    endure_message_set(signed(message_set), 0, seen)


def endure_signed_batches(data: bytes, seen: Endured) -> None:
    endure_batches(signed_batches(data), seen)


def endure_inside(codec: Codec, magic: int, message_set: bytes, seen: Endured) -> None:
    endure_message_set(wrapper(20, signed(message_set), codec, magic=magic), 0, seen)


SUBJECTS = list(subjects())
DATA = [subject.data for subject in SUBJECTS]


def run(seed: int) -> Endured:
    seen = Endured()
    for subject in SUBJECTS:
        for index in range(ROUNDS):
            data = mutated(random.Random(f"{seed} {subject.name} {index}"), subject.data, DATA)
            try:
                # For message sets: an lz4 scratch buffer, the output as pieces and joined.
                with bounded(len(data), more_bytes=8 * DECOMPRESSED_LIMIT + (4 << 20)):
                    subject.endure(data, seen)
            except BaseException as error:
                error.add_note(f"seed {seed}, {subject.name}, index {index}: {data.hex()}")
                raise
    return seen


def test_mutated_frames_decode_or_raise_documented_errors() -> None:
    with memory_traced():
        seen = run(0)
    # The run has decoded values and raised errors, many of each.
    assert seen.values + seen.errors == 2 * ROUNDS * len(VECTORS)
    assert min(seen.values, seen.errors) > 500
    assert min(seen.records, seen.corrupt) > 1000


@pytest.mark.full
@pytest.mark.parametrize("seed", range(1, 101))
def test_more_mutated_frames_decode_or_raise(seed: int) -> None:
    run(seed)


def test_signing_makes_each_crc_right() -> None:
    for subject in SUBJECTS:
        if subject.endure is endure_signed:
            for index in range(ROUNDS):
                data = signed(mutated(random.Random(index), subject.data, DATA))
                try:
                    assert all(entry.crc_ok for entry in entries(data))
                except CorruptRecordException:
                    pass
