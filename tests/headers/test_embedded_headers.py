"""`embedded_headers` against vectors that Spring's EmbeddedHeaderUtils has made, and hostile bytes.

EmbeddedHeaderVectors.java has written the files; its comment has the command.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from aiokafka08.embedded_headers import Headers, embed, extract, headers_mode
from aiokafka08.errors import EmbeddedHeadersError, IllegalArgumentError

VERSIONS = ("1.3.4", "4.0.1")
Vector = dict[str, Any]


def vectors(kind: str) -> list[Any]:
    found = []
    for version in VERSIONS:
        text = (Path(__file__).parent / f"spring_{version}.json").read_text()
        found += [
            pytest.param(vector, id=f"{version} {vector['name']}")
            for vector in json.loads(text)[kind]
        ]
    return found


def expected_headers(read: Vector) -> dict[str, bytes]:
    """Return headers as this client reads what Spring has read: text, else the value as JSON."""
    parsed = {name: json.loads(text) for name, text in read["headers"].items()}
    return {
        name: (value if isinstance(value, str) else read["headers"][name]).encode()
        for name, value in parsed.items()
        if value is not None
    }


@pytest.mark.parametrize("vector", vectors("written"))
def test_written_vectors(vector: Vector) -> None:
    """The bytes are Spring's wherever Spring writes headers that it reads again."""
    payload = None if vector["payload"] is None else bytes.fromhex(vector["payload"])
    headers = [(name, text if text is None else text.encode()) for name, text in vector["headers"]]
    if payload is None:
        assert vector["error"] == "NullPointerException"
        assert embed(payload, headers) is None
        return
    if len(headers) > 255 or any(len(name) > 255 for name, _ in headers):
        with pytest.raises(IllegalArgumentError, match="at most 255"):
            embed(payload, headers)
        return
    made = embed(payload, headers)
    assert made is not None
    assert extract(made) == (
        payload,
        tuple((name, text) for name, text in headers if text is not None),
    )
    if "error" in vector:
        assert vector["name"] == "name not in ASCII"
        return
    envelope = bytes.fromhex(vector["envelope"])
    assert extract(envelope)[0] == payload
    assert dict(extract(envelope)[1]) == expected_headers(vector["read"])
    if (headers or payload[:1] == b"\xff") and vector["name"] not in (
        "number",
        "long",
        "double",
        "boolean",
        "list",
        "map",
        "bytes",
    ):
        assert made.lower() == envelope.lower()  # Jackson writes \u001F, Python \u001f


@pytest.mark.parametrize("vector", vectors("read"))
def test_read_vectors(vector: Vector) -> None:
    value = bytes.fromhex(vector["value"])
    if value[:1] != b"\xff":  # 1.3.4 takes these for its own older format
        assert extract(value) == (value, ())
    elif "error" in vector:
        with pytest.raises(EmbeddedHeadersError):
            extract(value)
    else:
        payload, headers = extract(value)
        assert payload == bytes.fromhex(vector["read"]["payload"])
        assert dict(headers) == expected_headers(vector["read"])


@pytest.mark.parametrize(
    ("value", "headers"),
    [
        (b"", None),
        (b"v", ()),
        (b"\xff", None),
        (b"\xff\x00", []),
        (b"\xff\x01\x01a\x00\x00\x00\x03", None),
        (b"\xff\xff\xff", [("a", b"")]),
        (b"", [("a", b""), ("a", b"\x00 \xc3\xa4")]),
    ],
)
def test_value_comes_back_unchanged(value: bytes, headers: Headers | None) -> None:
    made = embed(value, headers)
    assert made is not None
    assert extract(made) == (value, tuple(headers or ()))


@pytest.mark.parametrize(
    ("headers", "error", "match"),
    [
        ([("a", b"\xff")], IllegalArgumentError, "'a' isn't text in UTF-8.*base64"),
        ([("\ud800", b"x")], IllegalArgumentError, "isn't text in UTF-8"),
        ([("ä" * 128, b"x")], IllegalArgumentError, "takes 256 bytes"),
        ([("a", b"x")] * 256, IllegalArgumentError, "256 headers; expected at most 255"),
        ([("a", "x")], TypeError, "the value of 'a' is str; expected bytes"),
        ([(b"a", b"x")], TypeError, "expected pairs of a name"),
        ([("a",)], TypeError, "expected pairs of a name"),
        ("ab", TypeError, "expected pairs of a name"),
    ],
)
def test_impossible_headers_are_refused(headers: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        embed(b"v", headers)


@pytest.mark.parametrize(
    "json_text",
    [b"", b'"', b'"a" "b"', b"NaN", b"-Infinity", b'"\xff"', b'"\\ud800"', b"[" * 100000, b'"\n"'],
)
def test_malformed_json_raises_the_typed_error(json_text: bytes) -> None:
    value = b"\xff\x01\x01a" + len(json_text).to_bytes(4) + json_text
    with pytest.raises(EmbeddedHeadersError, match=r"header 1 of 1.*malformed"):
        extract(value)


def test_long_number_is_read_as_text() -> None:
    number = b"9" * 100000  # int() refuses more than 4300 digits
    value = b"\xff\x01\x01a" + len(number).to_bytes(4) + number
    assert extract(value) == (b"", (("a", number),))


def test_damaged_envelopes_raise_only_the_typed_error() -> None:
    random_ = random.Random(1)
    whole = embed(b"payload", [("a", b"1"), ("name", b"value"), ("none", None)])
    assert whole is not None
    for stop in range(1, len(whole) - len(b"payload")):
        with pytest.raises(EmbeddedHeadersError):
            extract(whole[:stop])
    for _ in range(3000):
        damaged = bytearray(whole)
        for _ in range(random_.randint(1, 3)):
            damaged[random_.randrange(1, len(damaged))] = random_.randrange(256)
        try:
            payload, headers = extract(bytes(damaged))
        except EmbeddedHeadersError:
            continue
        assert len(payload) + len(headers) < len(whole)


def test_mode_comes_from_option_then_environment() -> None:
    assert headers_mode(None, {}) == "refuse"
    assert headers_mode(None, {"AIOKAFKA08_HEADERS": ""}) == "refuse"
    assert headers_mode(None, {"AIOKAFKA08_HEADERS": "drop"}) == "drop"
    assert headers_mode("embedded", {"AIOKAFKA08_HEADERS": "drop"}) == "embedded"
    with pytest.raises(IllegalArgumentError, match="AIOKAFKA08_HEADERS='x': expected one of"):
        headers_mode(None, {"AIOKAFKA08_HEADERS": "x"})
    with pytest.raises(IllegalArgumentError, match="headers=1: expected one of"):
        headers_mode(1, {})
