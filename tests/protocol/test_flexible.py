"""The varints of flexible versions, and tagged fields to skip."""

from __future__ import annotations

import pytest

from aiokafka08.errors import KafkaProtocolError
from aiokafka08.protocol.flexible import behind_tags, encode_varint, read_varint

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**31, 2**35 - 1])
def test_varint_is_read_as_it_was_written(value: int) -> None:
    data = encode_varint(value)
    assert read_varint(b"x" + data + b"y", 1) == (value, 1 + len(data))
    with pytest.raises(KafkaProtocolError, match="with the data"):
        read_varint(data[:-1], 0)


def test_varint_of_more_than_5_bytes_is_refused() -> None:
    with pytest.raises(KafkaProtocolError, match="more than 5 bytes"):
        read_varint(b"\xff" * 6, 0)


def test_tagged_fields_are_skipped_within_limits() -> None:
    assert behind_tags(b"\2\0\1a\7\0rest", 0) == 6
    with pytest.raises(KafkaProtocolError, match="a tagged field of 9 bytes"):
        behind_tags(b"\1\0\tab", 0)
    with pytest.raises(KafkaProtocolError, match="101 tagged fields; expected at most 100"):
        behind_tags(b"\x65" + b"\0\0" * 101, 0)
