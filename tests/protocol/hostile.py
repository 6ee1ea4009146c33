"""Check that hostile bytes decode or raise the documented error, quickly and in little memory."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aiokafka08.errors import CorruptRecordException, KafkaProtocolError
from aiokafka08.protocol import api
from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.protocol.requests.produce import ProduceRequest
from tests.protocol.accounting import Raised, account
from tests.protocol.decoding import decode_request
from tests.protocol.entries import entries
from tests.protocol.oracle import reader
from tests.protocol.twins import twin

DECOMPRESSED_LIMIT = 64 * 1024
MOST_ERRORS = 20
MOST_SECONDS = 2.0
"""The CPU time allowed for a case: far more than any needs, for busy machines."""

LENGTHS = (-(2**31), -12, -2, -1, 0, 1, 13, 0x7FFF, 0xFFFF, 2**31 - 1)
"""Hostile values for a length, a size or a count."""


class Endured:
    """Count values and errors, so that a test can show that it produced both."""

    def __init__(self) -> None:
        self.values = 0
        self.errors = 0
        self.records = 0
        self.corrupt = 0


def endure_response(
    request: type[api.Request[Any]], version: int, frame: bytes, seen: Endured
) -> None:
    """Decode a response, and the message sets in it."""
    try:
        response: Any = api.decode_response(request, version, memoryview(frame))
    except KafkaProtocolError:
        seen.errors += 1
        return
    seen.values += 1
    if request is FetchRequest:
        for topic in response.topics:
            for partition in topic.partitions:
                endure_message_set(bytes(partition.message_set), 5, seen)


def endure_request(frame: bytes, seen: Endured) -> None:
    try:
        envelope: Any = decode_request(memoryview(frame))
    except KafkaProtocolError:
        seen.errors += 1
        return
    seen.values += 1
    if isinstance(envelope.body, ProduceRequest):
        for topic in envelope.body.topics:
            for partition in topic.partitions:
                endure_message_set(bytes(partition.message_set), 0, seen)


def endure_message_set(message_set: bytes, fetch_offset: int, seen: Endured) -> None:
    """Read and summarize a set, with and without CRC checks, and read on after each damage."""
    summary = twin.summarize_set(message_set)
    assert 0 <= summary.whole_bytes <= len(message_set)
    assert summary.next_offset is None or 0 < summary.next_offset <= 2**63
    assert summary.tail_size is None or summary.tail_size >= len(message_set) - summary.whole_bytes
    try:
        for _ in entries(message_set):
            pass
    except CorruptRecordException:
        seen.corrupt += 1
    for check_crcs in (True, False):
        _read_after_damage(message_set, fetch_offset, check_crcs, seen)


def _read_after_damage(
    message_set: bytes, fetch_offset: int, check_crcs: bool, seen: Endured
) -> None:
    start, returned, raised = fetch_offset, list[Any](), list[Raised]()
    for _ in range(MOST_ERRORS):
        whole = reader(message_set, fetch_offset, check_crcs=check_crcs, limit=DECOMPRESSED_LIMIT)
        try:
            while records := whole.read(7):
                assert len(records) <= 7
                for record in records:
                    assert fetch_offset <= record.offset < 2**63, "offsets must not fall"
                    fetch_offset = record.offset
                returned += records
        except CorruptRecordException:
            seen.corrupt += 1
        if whole.error is None:
            break
        assert whole.error.offset is not None
        raised.append(Raised.at(whole.error.offset, whole.error.next_offset))
        if whole.error.next_offset is None:
            break
        assert whole.error.next_offset >= fetch_offset, "next_offset must be higher"
        fetch_offset = whole.error.next_offset
    seen.records += len(returned)
    if check_crcs and len(raised) < MOST_ERRORS:
        account(
            message_set,
            returned,
            raised,
            start,
            limit=DECOMPRESSED_LIMIT,
            follows_offsets=False,
        )


@contextmanager
def bounded(
    input_bytes: int, *, more_bytes: int = 0, most_s: float = MOST_SECONDS
) -> Iterator[None]:
    """Check that the body takes little CPU time and, if traced, memory in proportion to its input.

    The factor is 40: a topic without partitions has six bytes on the wire and makes objects.
    """
    traced = tracemalloc.is_tracing()
    if traced:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
    started = time.process_time()
    yield
    spent = time.process_time() - started
    assert spent < most_s, f"{spent:.1f} s for {input_bytes} bytes"
    if traced:
        peak = tracemalloc.get_traced_memory()[1] - before
        most_bytes = 40 * input_bytes + 256 * 1024 + more_bytes
        assert peak < most_bytes, f"{peak} bytes of memory for {input_bytes} bytes"


@contextmanager
def memory_traced() -> Iterator[None]:
    """Trace memory, so that `bounded` can measure it."""
    tracemalloc.start(1)
    try:
        yield
    finally:
        tracemalloc.stop()
