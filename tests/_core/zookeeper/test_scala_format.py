"""Registrations and partition nodes of ZooKeeper groups: encoding, decoding, garbage."""

from __future__ import annotations

import json

import pytest

from aiokafka08._core.zookeeper.scala_format import (
    decode_partitions,
    decode_registration,
    encode_registration,
    new_member_id,
)

SCALA = b'{"version":1,"subscription":{"t":2},"pattern":"static","timestamp":"1405951234000"}'


def test_registration_equals_what_scala_writes() -> None:
    assert encode_registration(["t"], 1405951234000) == SCALA.replace(b'"t":2', b'"t":1')
    assert json.loads(encode_registration(["b", "a"], 0))["subscription"] == {"a": 1, "b": 1}
    assert new_member_id("g").startswith("g_")
    assert new_member_id("g") != new_member_id("g")


def test_threads_are_numbered_by_registration() -> None:
    assert decode_registration("g_h-1-a", SCALA).threads([]) == {"t": ["g_h-1-a-0", "g_h-1-a-1"]}


def test_pattern_selects_among_existing_topics() -> None:
    topics = ["ta", "tb", "other", "__consumer_offsets"]
    white = decode_registration("m", b'{"subscription":{"t.*, x":1},"pattern":"white_list"}')
    black = decode_registration("m", b'{"subscription":{"t.*":1},"pattern":"black_list"}')
    assert set(white.threads(topics)) == {"ta", "tb"}
    assert set(black.threads(topics)) == {"other"}


@pytest.mark.parametrize("pattern", ["(", "a{99999999999}", "(" * 10_000], ids=lambda p: p[:20])
def test_pattern_python_cannot_compile_raises_value_error(pattern: str) -> None:
    broken = decode_registration(
        "m", json.dumps({"subscription": {pattern: 1}, "pattern": "white_list"}).encode()
    )
    with pytest.raises(ValueError, match="Python can compile") as failure:
        broken.threads(["ta"])
    assert len(str(failure.value)) < 1000


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{not json",
        b"[]",
        b"{}",
        b'{"subscription":{"t":0}}',
        b'{"subscription":{"t":"1"}}',
        b'{"subscription":{"t":60000,"u":60000}}',
        b'{"subscription":{"t":1},"pattern":7}',
        b"\xff\xfe",
        pytest.param(b"[" * 100_000, id="deep"),
    ],
)
def test_garbage_registration_raises_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_registration("m", data)


def test_partition_node_is_decoded_or_refused() -> None:
    assert decode_partitions(b'{"version":1,"partitions":{"10":[0],"2":[1]}}') == [2, 10]
    for garbage in (
        b"",
        b"[]",
        b'{"partitions":3}',
        b'{"partitions":{"a":1}}',
        b'{"partitions":{"-1":[]}}',
        b'{"partitions":{"2147483648":[]}}',
        b'{"partitions":[1e999]}',
        b"[" * 100_000,
    ):
        with pytest.raises(ValueError, match="names no partitions"):
            decode_partitions(garbage)
