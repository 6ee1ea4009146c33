"""Produce: acknowledgements, limits, formats, wrappers (docs/brokers.md 5 and 6)."""

from __future__ import annotations

import pytest

from aiokafka08.protocol.api import Topic
from aiokafka08.protocol.compression import Codec, compress, decompress
from aiokafka08.protocol.message_set import encode_entry
from aiokafka08.protocol.requests.produce import ProducePartition, ProduceRequest
from tests.conformance.contract.targets import on_lines
from tests.conformance.contract.wire.requests import (
    bad_crc,
    fetch,
    plain,
    produce,
    produce_request,
    wrapper,
)
from tests.conformance.contract.wire.target import Target, has_config
from tests.conformance.contract.wire.wire_client import WireClient
from tests.protocol.entries import entries
from tests.support.names import unique_name

LZ4_STANDARD_CHECKSUM = b"\x82"
OLD = ("0.8.0", "0.8.1")


def stored(wire: WireClient, topic: str, offset: int = 0) -> list[tuple[int, bytes | None]]:
    """Return what a consumer reads: messages in wrappers too, whatever their CRCs."""
    found = []
    for entry in fetch(wire, topic, offset).entries():
        if entry.codec:
            assert entry.value is not None
            inner = decompress(Codec(entry.codec), entry.value, 1 << 24)
            found += [(one.offset, one.value) for one in entries(inner)]
        else:
            found.append((entry.offset, entry.value))
    return found


def test_broker_assigns_offsets(wire: WireClient, topic: str) -> None:
    assert produce(wire, topic, plain(b"a", (b"k", None), first=77)) == (0, 0)
    assert produce(wire, topic, plain(b"c", first=-3), acks=-1) == (0, 2)
    assert stored(wire, topic) == [(0, b"a"), (1, None), (2, b"c")]


@pytest.mark.parametrize(
    ("message_set", "code"),
    [
        (bad_crc(plain(b"x")), 2),
        (plain(b"good") + bad_crc(plain(b"x")) + plain(b"good"), 2),
        (bytes(8) + (0).to_bytes(4, "big") + bytes(20), 2),
        (bytes(8) + (13).to_bytes(4, "big") + bytes(20), 2),
        (bytes(8) + (13).to_bytes(4, "big"), 2),
        (b"", 0),
        (plain(b"cut off")[:-1], 0),
        (plain(b"cut off")[:5], 0),
    ],
    ids=["crc", "one of three", "size 0", "size 13", "size 13 cut", "empty", "cut", "stray"],
)
def test_rejected_or_empty_set_stores_nothing(
    wire: WireClient, topic: str, message_set: bytes, code: int
) -> None:
    assert produce(wire, topic, message_set) == (code, -1)
    assert produce(wire, topic, plain(b"next")) == (0, 0)


@pytest.mark.parametrize("tail", [bytes(5), plain(b"cut off")[:-3]], ids=["stray", "cut"])
def test_cut_tail_is_dropped(wire: WireClient, topic: str, tail: bytes) -> None:
    assert produce(wire, topic, plain(b"a", b"b") + tail) == (0, 0)
    assert produce(wire, topic, plain(b"c")) == (0, 2)


def test_size_limit_applies_to_an_entry(target: Target, wire: WireClient, topic: str) -> None:
    most = 1000012 - 12 - 14
    grown = 8 if target.line.message_format else 0  # converted to format 1
    assert produce(wire, topic, plain(bytes(most - grown))) == (0, 0)
    assert produce(wire, topic, plain(bytes(most - grown + 1))) == (10, -1)
    assert produce(wire, topic, plain(bytes(600_000), bytes(600_000))) == (0, 1)


def test_size_limit_applies_to_compressed_size(wire: WireClient, topic: str) -> None:
    assert produce(wire, topic, wrapper(Codec.GZIP, plain(bytes(1_200_000)))) == (0, 0)
    assert stored(wire, topic) == [(0, bytes(1_200_000))]


def test_unknown_partition_fails_alone(wire: WireClient, topic: str) -> None:
    missing = unique_name("missing")
    request = ProduceRequest(
        1,
        1000,
        [
            Topic(
                topic,
                [ProducePartition(99, plain(b"x")), ProducePartition(1, plain(b"y"))],
            ),
            Topic(missing, [ProducePartition(0, plain(b"z"))]),
        ],
    )
    response = wire.request(request)
    codes = {
        (t.topic, p.partition): (p.error_code, p.offset)
        for t in response.topics
        for p in t.partitions
    }
    assert codes == {(topic, 99): (3, -1), (topic, 1): (0, 0), (missing, 0): (3, -1)}


@pytest.mark.parametrize("same_entry", [True, False])
def test_duplicate_partition_stores_last_set(
    wire: WireClient, topic: str, same_entry: bool
) -> None:
    first = ProducePartition(0, plain(b"lost"))
    second = ProducePartition(0, plain(b"kept"))
    topics = (
        [Topic(topic, [first, second])]
        if same_entry
        else [Topic(topic, [first]), Topic(topic, [second])]
    )
    response = wire.request(ProduceRequest(1, 1000, topics))
    assert [(t.topic, len(t.partitions)) for t in response.topics] == [(topic, 1)]
    assert stored(wire, topic) == [(0, b"kept")]


@pytest.mark.parametrize("set_", ["unknown partition", "corrupt", "too large"])
def test_acks_0_with_error_closes(wire: WireClient, topic: str, set_: str) -> None:
    partition, message_set = {
        "unknown partition": (99, plain(b"x")),
        "corrupt": (0, bad_crc(plain(b"x"))),
        "too large": (0, plain(bytes(1_000_100))),
    }[set_]
    wire.send(produce_request(topic, message_set, partition, acks=0))
    assert wire.is_closed()


def test_acks_0_gets_no_response(wire: WireClient, topic: str) -> None:
    wire.send(produce_request(topic, plain(b"a"), acks=0))
    assert stored(wire, topic) == [(0, b"a")]


def test_acks_above_one(target: Target, wire: WireClient, topic: str) -> None:
    if target.line.acks_above_one:
        code = 7 if target.line.single_replicas_wait else 0
        assert produce(wire, topic, plain(b"a"), acks=5, timeout_ms=50) == (code, 0)
        assert produce(wire, topic, plain(b"b"), acks=-2) == (0, 1)
        assert stored(wire, topic) == [(0, b"a"), (1, b"b")]
    else:
        assert produce(wire, topic, plain(b"a"), acks=2) == (21, -1)
        assert stored(wire, topic) == []


def test_timeout_zero(wire: WireClient, topic: str) -> None:
    assert produce(wire, topic, plain(b"a"), acks=-1, timeout_ms=0) == (0, 0)


def test_magic_is_ignored_before_0_10(target: Target, wire: WireClient, topic: str) -> None:
    strange = encode_entry(0, b"k", b"v", magic=1, timestamp_ms=5)
    assert produce(wire, topic, strange) == (0, 0)
    [entry] = fetch(wire, topic, 0).entries()
    if target.line.message_format:
        assert (entry.magic, entry.value, entry.crc_ok) == (0, b"v", True)
    else:
        assert (entry.magic, entry.value, entry.timestamp_ms) == (1, b"v", 5)


def test_magic_5(target: Target, wire: WireClient, topic: str) -> None:
    strange = encode_entry(0, None, b"v", magic=5)
    assert produce(wire, topic, strange) == ((-1, -1) if target.line.message_format else (0, 0))


def test_unused_attribute_bits(target: Target, wire: WireClient, topic: str) -> None:
    assert produce(wire, topic, encode_entry(0, None, b"v", attributes=0x08)) == (0, 0)
    [entry] = fetch(wire, topic, 0).entries()
    assert entry.attributes == (0 if target.line.message_format else 0x08)


def test_unknown_codec_4(target: Target, wire: WireClient, topic: str) -> None:
    strange = encode_entry(0, None, b"v", attributes=4)
    if target.line.name in OLD:
        assert produce(wire, topic, strange) == (0, 0)
        [entry] = fetch(wire, topic, 0).entries()
        assert (entry.attributes, entry.value) == (4, b"v")
    else:
        assert produce(wire, topic, strange) == (-1, -1)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_wrapper_is_rewritten_with_offsets(
    target: Target, wire: WireClient, topic: str, codec: Codec
) -> None:
    produce(wire, topic, plain(b"before"))
    inner = plain((b"k", b"1"), b"2", (b"k", None), first=40)
    response = produce(wire, topic, wrapper(codec, inner))
    if codec is Codec.LZ4 and target.line.name in OLD:
        assert response == (-1, -1)
        return
    assert response == (0, 1)
    [entry] = fetch(wire, topic, 2).entries()
    assert (entry.offset, entry.codec, entry.key, entry.magic) == (3, codec, None, 0)
    assert entry.crc_ok
    assert entry.value is not None
    assert stored(wire, topic, 2) == [(1, b"1"), (2, b"2"), (3, None)]


def test_raw_snappy_is_stored_framed(wire: WireClient, topic: str) -> None:
    import snappy

    raw = snappy.compress(plain(b"raw"))
    assert produce(wire, topic, encode_entry(0, None, raw, attributes=Codec.SNAPPY)) == (0, 0)
    [entry] = fetch(wire, topic, 0).entries()
    assert entry.value is not None
    assert entry.value.startswith(b"\x82SNAPPY\0\0\0\0\1\0\0\0\1")
    assert stored(wire, topic) == [(0, b"raw")]


def test_lz4_header_checksum(target: Target, wire: WireClient, topic: str) -> None:
    legacy = compress(Codec.LZ4, plain(b"x"))
    standard = legacy[:6] + LZ4_STANDARD_CHECKSUM + legacy[7:]
    with_size = legacy[:4] + b"\x68\x40" + len(plain(b"x")).to_bytes(8, "little") + legacy[6:]

    def response(value: bytes) -> int:
        return produce(wire, topic, encode_entry(0, None, value, attributes=Codec.LZ4)).error_code

    if target.line.name in OLD:
        assert [response(legacy), response(standard)] == [-1, -1]
    elif target.line.legacy_lz4_only:
        assert [response(legacy), response(standard), response(with_size)] == [0, -1, -1]
    else:
        assert [response(legacy), response(standard)] == [0, 0]


def test_set_with_wrapper_becomes_one_wrapper(wire: WireClient, topic: str) -> None:
    message_set = (
        plain(b"a")
        + wrapper(Codec.GZIP, plain(b"b", b"c"))
        + wrapper(Codec.SNAPPY, plain(b"d"))
        + plain(b"e")
    )
    assert produce(wire, topic, message_set) == (0, 0)
    [entry] = fetch(wire, topic, 0).entries()
    assert (entry.offset, entry.codec) == (4, Codec.SNAPPY)
    assert stored(wire, topic) == [(i, bytes([97 + i])) for i in range(5)]


def test_wrappers_too_large_together(wire: WireClient, topic: str) -> None:
    import random

    noise = random.Random(8).randbytes
    first, second = (wrapper(Codec.GZIP, plain(noise(600_000))) for _ in range(2))
    assert produce(wire, topic, first) == (0, 0)
    assert produce(wire, topic, first + second) == (10, -1)


def test_nested_wrapper(target: Target, wire: WireClient, topic: str) -> None:
    nested = wrapper(Codec.GZIP, wrapper(Codec.GZIP, plain(b"a", b"b"), offset=1))
    response = produce(wire, topic, nested)
    if target.line.message_format:
        assert response == (2, -1)
        return
    assert response == (0, 0)
    after = produce(wire, topic, plain(b"after")).offset
    assert after == (1 if target.line.name == "0.9" else 2)
    [entry, *_] = fetch(wire, topic, 0).entries()
    assert entry.value is not None
    inside = list(entries(decompress(Codec.GZIP, entry.value, 1 << 20)))
    if target.line.name == "0.9":
        [kept] = inside
        assert (kept.offset, kept.codec) == (0, Codec.GZIP)
        assert kept.value is not None
        deepest = entries(decompress(Codec.GZIP, kept.value, 1 << 20))
        assert [one.offset for one in deepest] == [0, 1]
    else:
        assert [(one.offset, one.value) for one in inside] == [(0, b"a"), (1, b"b")]


def test_empty_wrapper(target: Target, wire: WireClient, topic: str) -> None:
    produce(wire, topic, plain(b"a"))
    response = produce(wire, topic, wrapper(Codec.GZIP, b""))
    assert response == ((-1, -1) if target.line.message_format else (0, 1))
    assert produce(wire, topic, plain(b"b")) == (0, 1)


@pytest.mark.parametrize("value", [None, b"garbage"])
def test_undecompressable_wrapper(wire: WireClient, topic: str, value: bytes | None) -> None:
    assert produce(wire, topic, encode_entry(0, None, value, attributes=1)) == (-1, -1)


def test_cut_tail_inside_wrapper_is_dropped(wire: WireClient, topic: str) -> None:
    inner = plain(b"a", b"b") + plain(b"cut off")[:-2]
    assert produce(wire, topic, wrapper(Codec.GZIP, inner)) == (0, 0)
    assert stored(wire, topic) == [(0, b"a"), (1, b"b")]


def test_wrong_crc_inside_wrapper_is_kept(target: Target, wire: WireClient, topic: str) -> None:
    inner = plain(b"good") + bad_crc(plain(b"poison"))
    assert produce(wire, topic, wrapper(Codec.GZIP, inner)) == (0, 0)
    [entry] = fetch(wire, topic, 0).entries()
    assert entry.crc_ok
    assert entry.value is not None
    inside = list(entries(decompress(Codec.GZIP, entry.value, 1 << 20)))
    if not target.line.message_format:  # 0.10 rewrites the messages
        assert [one.crc_ok for one in inside] == [True, False]


def test_produce_versions_and_layouts(target: Target, wire: WireClient, topic: str) -> None:
    highest = {"0.8.0": 0, "0.8.1": 0, "0.8.2": 0, "0.9": 1, "0.10": 2}[target.line.name]
    for version in range(3):
        request = produce_request(topic, plain(str(version).encode()))
        response = wire.request(request, version, min(version, highest))
        [done] = response.topics[0].partitions
        assert (done.error_code, done.offset) == (0, version)
        if min(version, highest) == 2:
            assert done.timestamp == -1


@on_lines(has_config("cleanup.policy"))
def test_message_without_key_in_compacted_topic(target: Target, wire: WireClient) -> None:
    topic = unique_name()
    target.create_topic(topic, config={"cleanup.policy": "compact"})
    code = 2 if target.line.compacted_needs_keys else 0
    assert produce(wire, topic, plain(b"x")).error_code == code
    assert produce(wire, topic, wrapper(Codec.GZIP, plain((b"k", b"v"), b"x"))).error_code == code
    assert produce(wire, topic, plain((b"k", b"v"))).error_code == 0


@on_lines(has_config("segment.bytes"))
def test_set_larger_than_segment(target: Target, wire: WireClient) -> None:
    topic = unique_name()
    target.create_topic(topic, config={"segment.bytes": "4096"})
    assert produce(wire, topic, plain(bytes(1000), bytes(1000))) == (0, 0)
    response = produce(wire, topic, plain(*[bytes(1000)] * 5))
    code = target.line.set_over_segment_code
    assert response == ((0, 2) if code is None else (code, -1))


@on_lines(has_config("compression.type"))
def test_topic_compression_type(target: Target, wire: WireClient) -> None:
    for name, codec in (("gzip", Codec.GZIP), ("snappy", Codec.SNAPPY), ("uncompressed", 0)):
        topic = unique_name()
        target.create_topic(topic, config={"compression.type": name})
        assert produce(wire, topic, wrapper(Codec.LZ4, plain(b"a", b"b"))) == (0, 0)
        assert produce(wire, topic, plain(b"c")) == (0, 2)
        assert {entry.codec for entry in fetch(wire, topic, 0).entries()} == {codec}
        assert stored(wire, topic) == [(0, b"a"), (1, b"b"), (2, b"c")]


@on_lines(has_config("message.timestamp.type"))
def test_log_append_time(target: Target, wire: WireClient) -> None:
    topic = unique_name()
    target.create_topic(topic, config={"message.timestamp.type": "LogAppendTime"})
    request = produce_request(topic, plain(b"a", b"b", magic=1))
    [done] = wire.request(request, 2).topics[0].partitions
    assert done.timestamp > 1_500_000_000_000
    found = fetch(wire, topic, 0, version=2).entries()
    assert [(one.timestamp_ms, one.attributes & 0x08) for one in found] == [(done.timestamp, 8)] * 2
    assert all(one.crc_ok for one in found)


@on_lines(lambda line: line.message_format == 1)
def test_format_1_wrapper_has_relative_offsets(
    target: Target, wire: WireClient, topic: str
) -> None:
    produce(wire, topic, plain(b"before", b"before", magic=1))
    inner = plain(b"a", b"b", b"c", magic=1)
    request = produce_request(topic, wrapper(Codec.GZIP, inner, magic=1, offset=2))
    [done] = wire.request(request, 2).topics[0].partitions
    assert (done.error_code, done.offset) == (0, 2)
    [entry] = fetch(wire, topic, 3, version=2).entries()
    assert (entry.offset, entry.magic, entry.timestamp_ms) == (4, 1, 1002)
    assert entry.value is not None
    inside = list(entries(decompress(Codec.GZIP, entry.value, 1 << 20)))
    assert [(one.offset, one.timestamp_ms) for one in inside] == [(0, 1000), (1, 1001), (2, 1002)]
    # Converted to format 0 the offsets inside are absolute.
    [entry] = fetch(wire, topic, 3).entries()
    assert (entry.offset, entry.magic, entry.crc_ok) == (4, 0, True)
    assert stored(wire, topic, 3) == [(2, b"a"), (3, b"b"), (4, b"c")]
