"""Escapes of delimiters, and the splitting of a stream."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka08._tools.records.delimiters import DelimitedStream, unescape
from aiokafka08._tools.records.types import RecordFormatError
from aiokafka08.errors import IllegalArgumentError


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("", b""),
        (r"\n", b"\n"),
        (r"\t\n\r\0\\", b"\t\n\r\0\\"),
        (r"\x54!\x45\x53T", b"T!EST"),
        (r"\65\255", b"A\xff"),
        (r":MyDilemma:", b":MyDilemma:"),
        ("ü", "ü".encode()),
    ],
)
def test_escapes_become_bytes(text: str, data: bytes) -> None:
    assert unescape("-D", text) == data


@pytest.mark.parametrize("text", [r"\q", "\\", r"\x1", r"\999"])
def test_unknown_escape_is_refused(text: str) -> None:
    with pytest.raises(IllegalArgumentError, match=r"-D=.*expected"):
        unescape("-D", text)


@given(
    st.lists(st.binary(max_size=5).filter(lambda one: b":" not in one), max_size=8),
    st.sampled_from([b":", b"::", b":-:"]),
    st.integers(1, 7),
)
def test_messages_do_not_depend_on_blocks(
    messages: list[bytes], delimiter: bytes, size: int
) -> None:
    stream = DelimitedStream(delimiter, 100)
    data = b"".join(message + delimiter for message in messages)
    found = [one for at in range(0, len(data), size) for one in stream.feed(data[at : at + size])]
    assert found + stream.finish() == messages


@given(
    st.lists(st.binary(max_size=5).filter(lambda one: b":" not in one), max_size=8),
    st.integers(1, 7),
    st.booleans(),
)
def test_blobs_have_the_same_messages(messages: list[bytes], size: int, skip_empty: bool) -> None:
    stream = DelimitedStream(b":", 100)
    data = b"".join(message + b":" for message in messages)
    blocks = [data[at : at + size] for at in range(0, len(data), size)]
    found = [one for block in blocks for one in stream.feed_column(block, skip_empty=skip_empty)]
    expected = [message for message in messages if message or not skip_empty]
    assert found + stream.finish() == expected


def test_last_message_needs_no_delimiter() -> None:
    stream = DelimitedStream(b"\n", 100)
    assert stream.feed(b"a\n\nb") == [b"a", b""]
    assert stream.finish() == [b"b"]
    assert stream.finish() == []


def test_message_without_an_end_is_refused() -> None:
    stream = DelimitedStream(b"\n", 10)
    assert stream.feed(b"a\n" + b"b" * 12) == [b"a"]
    with pytest.raises(RecordFormatError, match=r"message 2 of the input: more than 10 bytes"):
        stream.feed(b"b")
    with pytest.raises(RecordFormatError, match=r"message 2 of the input: more than 10 bytes"):
        stream.finish()
