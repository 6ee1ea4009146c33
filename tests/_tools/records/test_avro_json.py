"""Avro as JSON: the same as fastavro's, and bounded whatever schema and bytes are."""

from __future__ import annotations

import io
import json
import random
from typing import Any

import pytest

from aiokafka08._tools.records.avro_json import AvroSchema

fastavro = pytest.importorskip("fastavro", reason="fastavro is in the extra avro")

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "what", "type": {"type": "string", "avro.java.string": "String"}},
        {"name": "count", "type": ["null", "int"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "kinds", "type": {"type": "array", "items": ["null", "Kind", "double"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 3}},
        {"name": "tags", "type": {"type": "map", "values": ["bytes", "Hash", "boolean"]}},
        {"name": "ratio", "type": "float"},
    ],
}
NODE: dict[str, Any] = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "next", "type": ["null", "Node"]}],
}


def schema_of(schema: Any) -> AvroSchema:
    return AvroSchema(fastavro.parse_schema(schema))


@pytest.mark.parametrize("seed", range(50))
def test_json_is_that_of_fastavro(seed: int) -> None:
    draw = random.Random(seed)
    parsed = fastavro.parse_schema(ORDER)
    order = {
        "what": draw.choice(["", "tea", 'café "☕"\n', "x" * 100]),
        "count": draw.choice([None, 0, -1, 2**31 - 1]),
        "at": draw.randint(0, 2**40),
        "kind": draw.choice("AB"),
        "kinds": draw.choices([None, "A", 1.5, -2e300], k=draw.randrange(5)),
        "hash": draw.randbytes(3),
        "tags": {f"k{n}": draw.choice([b"\xff\0", True, b"abc"]) for n in range(draw.randrange(4))},
        "ratio": draw.choice([0.25, -1.0]),
    }
    data, text = io.BytesIO(), io.StringIO()
    fastavro.schemaless_writer(data, parsed, order)
    data.seek(0)
    read = fastavro.schemaless_reader(data, parsed, None, return_record_name=True)
    fastavro.json_writer(text, parsed, [read])
    assert json.loads(AvroSchema(parsed).to_json(data.getvalue())) == json.loads(text.getvalue())


def test_value_of_a_recursive_schema_is_shown() -> None:
    assert json.loads(schema_of(NODE).to_json(b"\2\2\0")) == {
        "next": {"Node": {"next": {"Node": {"next": None}}}}
    }


def test_record_without_fields_is_an_object() -> None:
    assert schema_of(["null", {"type": "record", "name": "E", "fields": []}]).to_json(b"\2") == (
        '{"E": {}}'
    )


def test_blocks_may_have_their_size() -> None:
    array = schema_of({"type": "array", "items": "int"})
    assert array.to_json(b"\x03\x04\x02\x04\x02\x06\x00") == "[1, 2, 3]"


def test_numbers_that_json_lacks_are_texts() -> None:
    assert schema_of("float").to_json(b"\0\0\xc0\x7f") == '"NaN"'
    assert schema_of("double").to_json(b"\0\0\0\0\0\0\xf0\xff") == '"-Infinity"'


@pytest.mark.parametrize(
    ("schema", "data", "text"),
    [
        (NODE, b"\2" * 1_000_000, "nested more than"),
        ({**NODE, "fields": [{"name": "next", "type": "Node"}]}, b"", "nested more than"),
        ({"type": "array", "items": "null"}, b"\xfe" + b"\xff" * 8 + b"\1", "too long"),
        ({"type": "array", "items": NODE | {"fields": []}}, b"\xff" * 9 + b"\1\0", "too long"),
        ({"type": "enum", "name": "E", "symbols": ["A" * 2000]}, b"\0", "too long"),
        ("string", b"\x08tea", "a length is wrong"),
        ("bytes", b"\x01", "a length is wrong"),
        ("bytes", b"\xff" * 9 + b"\1", "a length is wrong"),
        ("long", b"\xff" * 20, "an integer is too long"),
        ("long", b"", "end too early"),
        ("string", b"\x02\xff", "isn't UTF-8"),
        (["null", "int"], b"\4", "no branch"),
        (["null", "int"], b"\1", "no branch"),
        ({"type": "fixed", "name": "F", "size": -1}, b"tea", "a length is wrong"),
    ],
)
def test_hostile_values_are_errors(schema: Any, data: bytes, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        schema_of(schema).to_json(data, 1000)


@pytest.mark.parametrize("seed", range(20))
def test_any_bytes_are_json_or_an_error(seed: int) -> None:
    draw, order = random.Random(seed), schema_of(ORDER)
    for _ in range(200):
        try:
            text = order.to_json(draw.randbytes(draw.randrange(60)))
        except ValueError:
            continue
        json.loads(text)


def test_schemas_of_wrong_forms_are_errors() -> None:
    deep: Any = "int"
    for _ in range(5000):
        deep = {"type": "array", "items": deep}
    wrong: Any
    for wrong in (deep, "nothing", {"type": "array"}, {}, {"type": "fixed", "name": "F"}):
        with pytest.raises(ValueError, match="the schema isn't valid"):
            AvroSchema(wrong)
