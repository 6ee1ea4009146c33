"""Validation and conversion of produced message sets, also of arbitrary bytes."""

from __future__ import annotations

import contextlib
import random
from zlib import crc32

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from aiokafka08.protocol.compression import Codec, compress
from aiokafka08.protocol.message_set import encode_entry
from aiokafka08.testing.broker_lines import LINES
from aiokafka08.testing.format_1 import down_convert
from aiokafka08.testing.message_sets import (
    LogConfig,
    MessageSetRejected,
    ValidatedSet,
    messages_in,
    walk_entries,
)
from aiokafka08.testing.validation import validate_set
from tests.conformance.contract.wire.requests import plain, wrapper
from tests.protocol.entries import entries

SEEDS = [
    plain(b"a", (b"k", b"v"), b"", None),
    plain(b"a", b"b", magic=1),
    wrapper(Codec.GZIP, plain(b"a", b"b")),
    wrapper(Codec.SNAPPY, plain(b"a", (b"k", None))),
    wrapper(Codec.LZ4, plain(b"a", b"b")),
    wrapper(Codec.GZIP, plain(b"a", b"b", magic=1), magic=1),
    wrapper(Codec.GZIP, wrapper(Codec.SNAPPY, plain(b"a"))),
    plain(b"a") + wrapper(Codec.GZIP, plain(b"b")) + plain(b"c"),
]


def config(line: str, **settings: object) -> LogConfig:
    return LogConfig(LINES[line], 1000, 2000, **settings)  # type: ignore[arg-type]


def messages(validated: ValidatedSet) -> list[tuple[int, bytes]]:
    return [
        (at, bytes(one))
        for offset, message in walk_entries(validated.data)
        for at, one in messages_in(offset, message)
    ]


@pytest.mark.parametrize("line", list(LINES))
@given(
    seed=st.sampled_from(SEEDS),
    cut=st.integers(0, 300),
    flips=st.lists(st.tuples(st.integers(0, 300), st.integers(1, 255)), max_size=3),
    fix_crc=st.booleans(),
)
def test_any_bytes_are_stored_or_rejected(
    line: str, seed: bytes, cut: int, flips: list[tuple[int, int]], fix_crc: bool
) -> None:
    data = bytearray(seed[: len(seed) - cut] if cut < len(seed) else seed)
    for at, xor in flips:
        if at < len(data):
            data[at] ^= xor
    if fix_crc and len(data) >= 16:
        size = int.from_bytes(data[8:12], "big")
        data[12:16] = crc32(data[16 : 12 + size]).to_bytes(4, "big")
    code = 0
    try:
        validated = validate_set(data, 100, config(line), 5)
    except MessageSetRejected as refused:
        code = refused.code
    if code:
        event(f"code {code}")
        assert code in (-1, 2, 10, 18, 32)
        return
    if not validated.messages:
        assert not validated.data
        return
    assert validated.next_offset == 100 + validated.messages
    for _, message in walk_entries(validated.data):
        assert int.from_bytes(message[:4], "big") == crc32(message[4:])
    found = [offset for offset, _ in walk_entries(validated.data)]
    assert found == sorted(found)
    assert found[-1] == validated.next_offset - 1
    # A key or value that is longer than its message is stored, but can't be converted.
    with contextlib.suppress(MessageSetRejected):
        down_convert(validated.data)


@pytest.mark.parametrize("line", list(LINES))
def test_plain_set_changes_only_its_offsets(line: str) -> None:
    magic = LINES[line].message_format
    message_set = plain(b"a", (b"k", b"v"), None, magic=magic)
    validated = validate_set(message_set, 7, config(line), 5)
    assert bytes(validated.data) == plain(b"a", (b"k", b"v"), None, magic=magic, first=7)
    assert validated[1:5] == (7, 10, 3, -1)


def test_format_0_converts_to_format_1_and_back() -> None:
    old = plain(b"a", (b"k", None), first=3)
    validated = validate_set(old, 3, config("0.10"), 5)
    found = list(entries(validated.data))
    assert [(one.magic, one.timestamp_ms, one.crc_ok) for one in found] == [(1, -1, True)] * 2
    assert bytes(down_convert(validated.data)) == old


def test_log_append_time_stamps_messages() -> None:
    settings = config("0.10", log_append_time=True)
    validated = validate_set(plain(b"a", magic=1), 0, settings, 4242)
    [entry] = entries(validated.data)
    assert (entry.timestamp_ms, entry.attributes, entry.crc_ok) == (4242, 8, True)
    assert validated.append_time_ms == 4242
    validated = validate_set(wrapper(Codec.GZIP, plain(b"a", magic=1), magic=1), 0, settings, 4242)
    [entry] = entries(validated.data)
    assert (entry.timestamp_ms, entry.attributes) == (4242, 8 | Codec.GZIP)


def test_slice_without_whole_message_is_not_converted() -> None:
    data = plain(b"abc", magic=1)[:20]
    assert down_convert(data) == data


def test_down_conversion_keeps_holes_in_wrappers() -> None:
    inner = encode_entry(0, None, b"a", magic=1) + encode_entry(5, None, b"b", magic=1)
    value = compress(Codec.GZIP, inner, magic=1)
    stored = encode_entry(25, None, value, magic=1, attributes=Codec.GZIP)
    [(offset, message)] = walk_entries(down_convert(stored))
    assert [at for at, _ in messages_in(offset, message)] == [20, 25]


def test_deep_nesting_is_rejected_without_stack_overflow() -> None:
    nest = plain(b"a")
    for _ in range(5000):
        nest = wrapper(Codec.SNAPPY, nest)
        if len(nest) > 900_000:
            break
    with pytest.raises(MessageSetRejected):
        validate_set(nest, 0, LogConfig(LINES["0.8.2"], 1 << 20, 1 << 30), 0)


def test_size_limit() -> None:
    noise = random.Random(3).randbytes
    assert validate_set(plain(noise(974)), 0, config("0.8.2"), 0).messages == 1
    with pytest.raises(MessageSetRejected) as refused:
        validate_set(plain(noise(975)), 0, config("0.8.2"), 0)
    assert refused.value.code == 10
    with pytest.raises(MessageSetRejected) as refused:
        validate_set(plain(*[noise(900)] * 3), 0, config("0.8.2"), 0)
    assert refused.value.code == 18
