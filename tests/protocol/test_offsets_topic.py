"""Records of `__consumer_offsets`: each version there and back, unknown versions, hostile bytes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka08.errors import KafkaProtocolError
from aiokafka08.protocol.offsets_topic import (
    GroupMemberRecord,
    GroupRecord,
    GroupRecordKey,
    OffsetRecord,
    OffsetRecordKey,
    decode_group_record,
    decode_offset_record,
    decode_record_key,
    encode_record_key,
    encode_record_value,
)
from tests.protocol.strategies import examples, texts, values

pytestmark = pytest.mark.fast

DECODERS: list[Callable[[bytes], Any]] = [
    decode_record_key,
    decode_offset_record,
    decode_group_record,
]


@examples(25)
@given(texts, texts, st.integers(-(2**31), 2**31 - 1), st.sampled_from([0, 1]))
def test_offset_key_decodes_to_itself(group: str, topic: str, partition: int, version: int) -> None:
    key = OffsetRecordKey(group, topic, partition)
    assert decode_record_key(encode_record_key(key, version)) == key


def test_group_key_decodes_to_itself() -> None:
    assert decode_record_key(encode_record_key(GroupRecordKey("gé"), 2)) == GroupRecordKey("gé")


@pytest.mark.parametrize("version", range(4))
@examples(25)
@given(data=st.data())
def test_values_of_each_version_decode_to_themselves(version: int, data: st.DataObject) -> None:
    offset: OffsetRecord = data.draw(values(OffsetRecord, version))
    assert decode_offset_record(encode_record_value(offset, version)) == offset
    group: GroupRecord = data.draw(values(GroupRecord, version))
    assert decode_group_record(encode_record_value(group, version)) == group


# Records that brokers wrote: `tests/admin/test_offsets_topic_on_brokers.py` reads such ones live.
# fmt: off
WRITTEN = [
    ("0.8.2.2", decode_offset_record, "0000 000000000000002a 0001 6d 0000000000000005",
     OffsetRecord(42, -1, "m", 5)),
    ("0.9.0.1", decode_offset_record,
     "0001 000000000000002a 0000 0000000000000005 0000000000000009",
     OffsetRecord(42, -1, "", 5, 9)),
    ("3.9.1", decode_offset_record, "0003 000000000000002a ffffffff 0000 0000000000000005",
     OffsetRecord(42, -1, "", 5)),
    ("0.9.0.1", decode_group_record,
     "0000 0008 636f6e73756d6572 00000001 0005 72616e6765 0001 63 00000001"
     "0001 63 0001 69 0001 68 00007530 00000000 00000000",
     GroupRecord("consumer", 1, "range", "c", -1,
                 [GroupMemberRecord("c", None, "i", "h", -1, 30000, b"", b"")])),
]
# fmt: on


@pytest.mark.parametrize(("release", "decode", "written", "value"), WRITTEN)
def test_layouts_are_those_of_kafka(
    release: str, decode: Callable[[bytes], Any], written: str, value: Any
) -> None:
    assert decode(bytes.fromhex(written)) == value


def test_unknown_versions_are_none() -> None:
    assert decode_record_key(b"\0\3anything") is None
    assert decode_offset_record(b"\0\4anything") is None
    assert decode_group_record(b"\xff\xffanything") is None


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0", b"\0\2", b"\0\1" + b"\x7f\xff" * 30])
def test_cut_records_raise(decode: Callable[[bytes], Any], data: bytes) -> None:
    try:
        assert decode(data) is None
    except KafkaProtocolError:
        pass


def test_bytes_after_the_end_raise() -> None:
    key = encode_record_key(OffsetRecordKey("g", "t", 0), 1)
    with pytest.raises(KafkaProtocolError, match="1 bytes after its end"):
        decode_record_key(key + b"x")


def test_mutated_records_decode_or_raise() -> None:
    random_ = random.Random(16)
    member = GroupMemberRecord("m", "i", "c", "h", 60000, 30000, b"sub", b"ass")
    seeds = [
        encode_record_key(OffsetRecordKey("group", "topic", 3), 1),
        encode_record_value(OffsetRecord(7, 1, "text", 9), 3),
        encode_record_value(GroupRecord("consumer", 1, "range", "m", 5, [member] * 3), 3),
    ]
    decoded = raised = 0
    for _ in range(3000):
        data = bytearray(random_.choice(seeds))
        for _ in range(random_.randint(1, 3)):
            data[random_.randrange(len(data))] = random_.choice((0, 1, 0x7F, 0xFF))
        for decode in DECODERS:
            try:
                decode(bytes(data))
                decoded += 1
            except KafkaProtocolError:
                raised += 1
    assert decoded > 100
    assert raised > 100
