"""Check that hostile bytes decode or raise the documented error, quickly and in little memory."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from aiokafka08.errors import CorruptRecordException, KafkaProtocolError
from aiokafka08.protocol import api
from aiokafka08.protocol.record_batch import (
    BatchHeader,
    Stop,
    open_wrapper,
    parts_of,
    plain_records,
)
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


def endure_batches(data: bytes, seen: Endured) -> None:
    """Read a set of any formats, convert its batches down, and its messages up."""
    stop = 0
    try:
        for part in parts_of(data):
            assert stop == part.start < part.stop <= len(data), "parts follow each other"
            stop = part.stop
            if isinstance(part, BatchHeader):
                _endure_batch(data, part, seen)
            else:
                _endure_run(data[part.start : part.stop], seen)
    except CorruptRecordException:
        seen.corrupt += 1


def _endure_batch(data: bytes, header: BatchHeader, seen: Endured) -> None:
    """Read a batch whose CRC may be wrong; convert it, and read what that gives."""
    records, plain, fault = list[Any](), None, None
    try:
        plain = plain_records(
            data, header, max_decompressed_bytes=DECOMPRESSED_LIMIT, check_crc=False
        )
        for record in twin.read_records(header, plain):
            records.append(record)
    except CorruptRecordException as error:
        fault = error
        seen.corrupt += 1
    seen.records += len(records)
    assert fault or len(records) == header.record_count
    assert not fault or fault.offset == header.base_offset
    assert not fault or fault.next_offset == header.next_offset
    offsets = [record[0] for record in records]
    assert all(one < two for one, two in pairwise(offsets)), "offsets must rise"
    assert all(header.base_offset <= offset < header.next_offset for offset in offsets)
    for magic in (0, 1) if plain is not None else ():
        converted, other = None, None
        try:
            converted = twin.convert_records(header, plain, magic)
        except CorruptRecordException as error:
            other = error
        assert str(other) == str(fault)
        if converted is not None:
            messages = reader(converted.data, limit=DECOMPRESSED_LIMIT).read(len(records) + 1)
            found = [(one.offset, one.key, one.value) for one in messages]
            assert found == [(one[0], one[2], one[3]) for one in records]


def _endure_run(data: bytes, seen: Endured) -> None:
    """Make batches of the messages, wrappers included, up to the first damage."""
    for limit in (1 << 30, 200):
        builder = twin.RecordBatchBuilder()
        pos, why = 0, Stop.FULL
        try:
            while why is not Stop.END:
                pos, why = builder.extend_from_messages(data, pos, limit)
                if why is Stop.WRAPPER:
                    opened = open_wrapper(data, pos, max_decompressed_bytes=DECOMPRESSED_LIMIT)
                    builder.extend_from_messages(opened.messages)
                    pos = opened.stop
                elif why is Stop.FULL:
                    _check_built(builder, seen)
                    builder = twin.RecordBatchBuilder()
        except CorruptRecordException:
            seen.corrupt += 1
        _check_built(builder, seen)


def _check_built(builder: Any, seen: Endured) -> None:
    data = builder.build()
    for header in parts_of(data):
        assert isinstance(header, BatchHeader)
        plain = plain_records(data, header, max_decompressed_bytes=DECOMPRESSED_LIMIT)
        records = list(twin.read_records(header, plain))
        assert len(records) == len(builder) == header.last_offset_delta + 1
        assert max(record[1] for record in records) == header.max_timestamp_ms
        seen.records += len(records)


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
