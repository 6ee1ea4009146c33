"""`jsonl`, which is read back byte by byte, and kcat's JSON envelope."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka08._tools.records.json_lines import (
    FIELDS,
    EnvelopeEncoder,
    JsonLinesDecoder,
    JsonLinesEncoder,
    envelope_field,
    field_of,
)
from aiokafka08._tools.records.types import InputMessages, RecordFormatError
from tests._tools.records.sample_records import record


def decoder(**options: Any) -> JsonLinesDecoder:
    chosen = {"keep_partition": False, "keep_timestamp": False, "max_bytes": 1000}
    return JsonLinesDecoder(**{**chosen, **options})


def line(**fields: Any) -> bytes:
    return json.dumps(fields).encode() + b"\n"


@given(st.lists(st.tuples(st.none() | st.binary(), st.none() | st.binary()), max_size=5))
def test_keys_and_values_survive_a_round_trip(
    pairs: list[tuple[bytes | None, bytes | None]],
) -> None:
    data = JsonLinesEncoder(headers=True).encode([record(value, key) for key, value in pairs])
    for text in data.splitlines():
        assert tuple(json.loads(text)) == FIELDS
    found = decoder().decode(data)
    assert list(found.values) == [value for _, value in pairs]
    if any(key is not None for key, _ in pairs):
        assert list(found.keys or ()) == [key for key, _ in pairs]
    else:
        assert found.keys is None


def test_fields_of_a_line_are_fixed() -> None:
    records = [
        record(b"tea", b"\xff", offset=7, timestamp=1234, timestamp_type=1),
        record(None, "ü\n".encode(), offset=8),
    ]
    assert JsonLinesEncoder().encode(records).decode() == (
        '{"topic": "orders", "partition": 3, "offset": 7, "timestamp": 1234, "timestamp_type": 1,'
        ' "key": {"base64": "/w=="}, "value": "tea"}\n'
        '{"topic": "orders", "partition": 3, "offset": 8, "timestamp": null,'
        ' "timestamp_type": null, "key": "ü\\n", "value": null}\n'
    )
    assert JsonLinesEncoder().encode([]) == b""


def test_deserialized_fields_are_strings_or_json() -> None:
    encoder = JsonLinesEncoder(field_of(lambda data: "5"), field_of(lambda data: "5", is_json=True))
    fields = json.loads(encoder.encode([record(b"x", b"x")]))
    assert (fields["key"], fields["value"]) == ("5", 5)
    fields = json.loads(encoder.encode([record(None, None)]))
    assert (fields["key"], fields["value"]) == (None, None)


def test_failed_deserializer_names_the_record() -> None:
    def fail(data: bytes) -> str:
        raise ValueError("too short")

    with pytest.raises(RecordFormatError) as raised:
        JsonLinesEncoder(value=field_of(fail)).encode([record(b"x", offset=9)])
    assert raised.value.text == "topic 'orders', partition 3, offset 9: too short"


def test_partition_and_timestamp_are_kept_by_flag() -> None:
    data = line(value="a", partition=4, timestamp=5) + line(value="b", partition=0, timestamp=None)
    kept = decoder(keep_partition=True, keep_timestamp=True).decode(data)
    assert (kept.partitions, kept.timestamps_ms) == ([4, 0], [5, None])
    dropped = decoder().decode(data)
    assert (dropped.partitions, dropped.timestamps_ms) == (None, None)


def test_blank_lines_and_a_last_line_without_an_end() -> None:
    reading = decoder()
    assert reading.decode(b'\n  \n{"value": "a"}\n{"value"').values == [b"a"]
    assert reading.decode(b': "b"}') == InputMessages([])
    assert reading.finish().values == [b"b"]


def test_byte_order_mark_before_the_first_line_is_skipped() -> None:
    assert decoder().decode(b'\xef\xbb\xbf{"value": "a"}\n').values == [b"a"]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"tea\n", "expected a JSON object"),
        (b"[]\n", "list; expected a JSON object"),
        (b'{"key": "a"}\n', "no field 'value'"),
        (b'{"value": 1}\n', "value 1; expected a string, null or"),
        (b'{"value": {"base64": "?"}}\n', "expected a string, null or"),
        (b'{"value": {"base64": 5}}\n', "expected a string, null or"),
        (b'{"value": "\\ud800"}\n', "expected a string, null or"),
        (b'{"value": "a", "payload": "b"}\n', "field 'payload'; expected one of topic, partition"),
        (b'{"value": "a", "partition": -1}\n', "partition -1; expected an integer >= 0"),
        (b'{"value": "a", "partition": true}\n', "partition True; expected an integer >= 0"),
        (b'{"value": "a", "partition": 1, "timestamp": "x"}\n', "timestamp 'x'; expected millis"),
        (b'{"value": "a", "value": "b"}\n', "field 'value' is given twice"),
        (b"\xff\n", "expected a JSON object"),
        (b"[" * 100_000 + b"\n", "expected a JSON object"),
    ],
)
def test_wrong_line_is_named(text: bytes, error: str) -> None:
    reading = decoder(keep_partition=True, keep_timestamp=True, max_bytes=100_000)
    found = reading.decode(line(value="a", partition=1) + text + line(value="b", partition=1))
    assert found.values == [b"a"]
    assert found.error is not None
    assert found.error.text.startswith("line 2 of the input: ")
    assert error in found.error.text
    assert len(found.error.text) < 500


def envelope() -> EnvelopeEncoder:
    key, value = envelope_field("key", None), envelope_field("payload", None)
    return EnvelopeEncoder(lambda topic, partition: 5, "\n", key, value)


def test_envelope_is_that_of_kcat() -> None:
    records = [
        record(b'"\\/\x01\x1f\x7f', None, offset=7, timestamp=1234),
        record("ü".encode(), b"", offset=8),
    ]
    assert envelope().encode(records).decode() == (
        '{"topic":"orders","partition":3,"offset":7,"tstype":"create","ts":1234,"broker":5,'
        '"key":null,"payload":"\\"\\\\/\\u0001\\u001F\x7f"}\n'
        '{"topic":"orders","partition":3,"offset":8,"broker":5,"key":"","payload":"ü"}\n'
    )


def test_envelope_is_json_whatever_the_bytes() -> None:
    fields = json.loads(envelope().encode([record(b"\xff\xfe\0bin")]))
    assert fields["payload"] == {"base64": "//4AYmlu"}


def test_envelope_has_the_reason_of_a_failure() -> None:
    def fail(data: bytes) -> str:
        raise ValueError("no schema")

    encoder = EnvelopeEncoder(
        lambda topic, partition: 5, "", envelope_field("key", None), envelope_field("payload", fail)
    )
    fields = json.loads(encoder.encode([record(b"x")]))
    assert (fields["payload"], fields["payload_error"]) == (None, "no schema")
