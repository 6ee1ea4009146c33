"""The formats `raw`, `hex` and `base64`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka08._tools.records.raw import (
    CODINGS,
    RawDecoder,
    RawInput,
    RawLayout,
    raw_encoder,
    with_fixed_key,
)
from aiokafka08._tools.records.types import InputMessages, RecordFormatError
from tests._tools.records.sample_records import record

RECORDS = [
    record(b"tea", b"k1", offset=7),
    record(None, None, offset=8),
    record(b"", b"", offset=9),
]


@pytest.mark.parametrize(
    ("layout", "data"),
    [
        (RawLayout(), b"tea\n\n\n"),
        (RawLayout(delimiter=b""), b"tea"),
        (RawLayout(delimiter=b"::"), b"tea::::::"),
        (RawLayout(null_text=b"NULL"), b"tea\nNULL\n\n"),
        (RawLayout(null_text=b"NULL", empty_is_null=True), b"tea\nNULL\nNULL\n"),
        (RawLayout(key_delimiter=b"="), b"k1=tea\n=\n=\n"),
        (RawLayout(key_delimiter=b"=", null_text=b"NULL"), b"k1=tea\nNULL=NULL\n=\n"),
        (RawLayout(coding=CODINGS["hex"], key_delimiter=b" "), b"6b31 746561\n \n \n"),
        (RawLayout(coding=CODINGS["base64"]), b"dGVh\n\n\n"),
    ],
)
def test_layout_of_the_output(layout: RawLayout, data: bytes) -> None:
    assert raw_encoder(layout).encode(RECORDS) == data


def test_deserialized_values_are_text() -> None:
    encoder = raw_encoder(RawLayout(key_delimiter=b" "), value=lambda data: f"<{data.hex()}>")
    assert encoder.encode(RECORDS[:2]) == b"k1 <746561>\n \n"

    def fail(data: bytes) -> str:
        raise ValueError("too short")

    with pytest.raises(RecordFormatError) as raised:
        raw_encoder(RawLayout(), value=fail).encode(RECORDS)
    assert raised.value.text == "topic 'orders', partition 3, offset 7: value: too short"


def messages(layout: RawLayout, options: RawInput, data: bytes) -> InputMessages:
    decoder = RawDecoder(layout, options)
    first, last = decoder.decode(data), decoder.finish()
    keys = None if first.keys is None else [*first.keys, *(last.keys or ())]
    return InputMessages([*first.values, *last.values], keys)


@pytest.mark.parametrize(
    ("layout", "options", "data", "keys", "values"),
    [
        (RawLayout(), RawInput(), b"a\n\nb", None, [b"a", b"", b"b"]),
        (RawLayout(), RawInput(empty_to_null=True), b"a\n\nb", None, [b"a", None, b"b"]),
        (RawLayout(), RawInput(is_kcat=True), b"a\n\nb\n", None, [b"a", b"b"]),
        (
            RawLayout(delimiter=b":MyDilemma:", key_delimiter=b";KeyDel;"),
            RawInput(empty_to_null=True, is_kcat=True),
            b"Key1;KeyDel;Value1:MyDilemma::MyDilemma:;KeyDel;Value2:MyDilemma:Key3;KeyDel;"
            b":MyDilemma:Value4",
            [b"Key1", None, b"Key3", None],
            [b"Value1", b"Value2", None, b"Value4"],
        ),
        (
            RawLayout(key_delimiter=b"="),
            RawInput(),
            b"k=a=b\n=c\nd",
            [b"k", b"", None],
            [b"a=b", b"c", b"d"],
        ),
        (
            RawLayout(coding=CODINGS["hex"], key_delimiter=b" "),
            RawInput(),
            b"6B31 746561\n",
            [b"k1"],
            [b"tea"],
        ),
        (RawLayout(coding=CODINGS["base64"]), RawInput(), b"dGVh\n\n", None, [b"tea", b""]),
    ],
)
def test_input_is_cut_into_messages(
    layout: RawLayout,
    options: RawInput,
    data: bytes,
    keys: list[bytes | None] | None,
    values: list[bytes | None],
) -> None:
    found = messages(layout, options, data)
    assert (found.keys, found.values) == (keys, values)


@pytest.mark.parametrize(
    ("coding", "text"), [("hex", b"1"), ("hex", b"\xff"), ("base64", b"a"), ("base64", b"a b=")]
)
def test_wrong_coding_is_named(coding: str, text: bytes) -> None:
    decoder = RawDecoder(RawLayout(coding=CODINGS[coding]), RawInput())
    decoder.decode(b"\n")
    found = decoder.decode(b"\n" + text + b"\n\n")
    assert found.values == [b""]
    assert found.error is not None
    assert found.error.text.startswith("message 3 of the input: ")
    assert found.error.text.endswith(f"expected {coding}")


@given(
    st.lists(st.tuples(st.binary(), st.binary()), max_size=5), st.sampled_from(["hex", "base64"])
)
def test_coded_messages_survive_a_round_trip(pairs: list[tuple[bytes, bytes]], coding: str) -> None:
    layout = RawLayout(key_delimiter=b" ", coding=CODINGS[coding])
    data = raw_encoder(layout).encode([record(value, key) for key, value in pairs])
    found = messages(layout, RawInput(), data)
    assert (found.keys, found.values) == ([key for key, _ in pairs], [value for _, value in pairs])


def test_fixed_key_is_for_messages_without_one() -> None:
    assert with_fixed_key(InputMessages([b"a", b"b"]), b"k").keys == [b"k", b"k"]
    assert with_fixed_key(InputMessages([b"a", b"b"], [b"", None]), b"k").keys == [b"", b"k"]
