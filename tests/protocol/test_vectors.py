"""Frames captured from real brokers: decoded, compared, encoded again, cut and joined."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from aiokafka08.errors import KafkaProtocolError
from aiokafka08.protocol import api
from aiokafka08.protocol.compression import Codec, decompress
from aiokafka08.protocol.connection import ClientConnection
from aiokafka08.protocol.frame import DEFAULT_MAX_FRAME_BYTES, FrameReader
from aiokafka08.protocol.message_set import DEFAULT_MAX_DECOMPRESSED_BYTES, MessageSetReader
from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.protocol.requests.groups import HeartbeatRequest
from aiokafka08.protocol.requests.metadata import Broker, MetadataRequest, MetadataResponse
from aiokafka08.protocol.requests.produce import ProduceRequest
from aiokafka08.structs import TopicPartition
from tests.protocol.decoding import decode_request, feed, pending_bytes, receive
from tests.protocol.entries import entries
from tests.protocol.golden import (
    FETCHES,
    PRODUCES,
    VECTORS,
    Vector,
    every_fetch,
    every_produce,
    every_vector,
    message_sets,
    request_fields,
    response_fields,
)
from tests.protocol.twins import each_twin, twin

pytestmark = each_twin


def test_all_vectors_are_here() -> None:
    assert len(VECTORS) == 65
    assert len(FETCHES) == 13
    assert len(PRODUCES) == 15


# --- requests -----------------------------------------------------------------------------------


@every_vector
def test_captured_request_decodes_to_its_content(vector: Vector) -> None:
    envelope = decode_request(vector.request_body)
    assert envelope.header.api_key == vector.request_class.api
    assert envelope.header.api_version == vector.version
    assert envelope.body is not None
    assert {
        "correlation_id": envelope.header.correlation_id,
        "client_id": envelope.header.client_id,
        **request_fields(envelope.body, vector.version),
    } == vector.request


@every_vector
def test_captured_request_is_encoded_byte_for_byte(vector: Vector) -> None:
    buffers = api.encode_request(
        vector.decoded_request(),
        vector.version,
        vector.request["correlation_id"],
        vector.request["client_id"],
    )
    assert b"".join(buffers) == vector.request_frame


# --- responses ----------------------------------------------------------------------------------


def message_set_fields(message_set: bytes, fetch_offset: int) -> dict[str, Any]:
    """Return a fetched message set in the JSON shape of the vectors."""
    reader: MessageSetReader = twin.MessageSetReader(
        TopicPartition("vec", 0),
        message_set,
        fetch_offset,
        max_decompressed_bytes=DEFAULT_MAX_DECOMPRESSED_BYTES,
    )
    return {
        "message_set_bytes": len(message_set),
        "messages": message_fields(message_set),
        "truncated_tail_bytes": len(message_set) - twin.summarize_set(message_set).whole_bytes,
        "deliver": [
            [record.offset, in_hex(record.key), in_hex(record.value)]
            for record in reader.read(1000)
            if record.timestamp_type is None  # the vectors have none for format 1
        ],
    }


def message_fields(message_set: bytes) -> list[dict[str, Any]]:
    messages = []
    for entry in entries(message_set):
        fields: dict[str, Any] = {
            "offset": entry.offset,
            "crc": entry.crc,
            "crc_ok": entry.crc_ok,
            "magic": entry.magic,
            "attributes": entry.attributes,
            "key": in_hex(entry.key),
            "value": in_hex(entry.value),
        }
        if entry.timestamp_ms is not None:
            fields["timestamp"] = entry.timestamp_ms
        if entry.codec:
            assert entry.value is not None
            fields["inner"] = message_fields(decompress(Codec(entry.codec), entry.value, 2**20))
        messages.append(fields)
    return messages


def in_hex(field: bytes | None) -> str | None:
    return None if field is None else field.hex()


@every_vector
def test_captured_response_decodes_to_its_content(vector: Vector) -> None:
    fields = {
        "correlation_id": api.decode_correlation_id(vector.response_body),
        **response_fields(vector.decoded_response(), vector.layout),
    }
    if vector.request_class is FetchRequest:
        fetch_offsets = {
            (topic, partition): fetch_offset
            for topic, partitions in vector.request["topics"]
            for partition, fetch_offset, _ in partitions
        }
        for topic in fields["topics"]:
            for partition in topic["partitions"]:
                message_set = bytes(partition.pop("message_set"))
                fetch_offset = fetch_offsets[topic["topic"], partition["partition"]]
                partition |= message_set_fields(message_set, fetch_offset)
    assert fields == vector.expected


@every_vector
def test_captured_response_is_encoded_byte_for_byte(vector: Vector) -> None:
    buffers = api.encode_response(
        vector.decoded_response(), vector.layout, vector.expected["correlation_id"]
    )
    assert b"".join(buffers) == vector.response_frame


@pytest.mark.parametrize(
    "vector",
    [vector for vector in VECTORS if vector.layout != vector.version],
    ids=lambda vector: vector.name,
)
def test_response_in_an_older_layout_raises(vector: Vector) -> None:
    with pytest.raises(KafkaProtocolError):
        api.decode_response(vector.request_class, vector.version, vector.response_body)


# --- the stream: whole, byte by byte, in pieces, with a neighbour ---------------------------------


def chunkings(stream: bytes) -> Iterator[list[bytes]]:
    """Yield the stream whole, byte by byte, and in a few seeded random chunkings."""
    yield [stream]
    yield [stream[index : index + 1] for index in range(len(stream))]
    for seed in range(5):
        cuts = sorted(random.Random(seed).choices(range(len(stream) + 1), k=2 + 3 * seed))
        yield [
            stream[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True)
        ]


def client_with_requests(vector: Vector) -> tuple[ClientConnection, bytes]:
    """Return a client with the vector's request in flight, under its id, and the frame."""
    client = ClientConnection(vector.request["client_id"])
    nothing = ProduceRequest(0, 0, [])  # assigns an id, but isn't in flight
    for _ in range(vector.request["correlation_id"] - 1):
        client.send(nothing, 0)
    correlation_id, buffers = client.send(vector.decoded_request(), vector.layout)
    assert correlation_id == vector.request["correlation_id"]
    return client, b"".join(buffers)


@every_vector
def test_client_gets_the_response_with_any_chunking(vector: Vector) -> None:
    expected = vector.request["correlation_id"], vector.decoded_response()
    neighbour = MetadataResponse([Broker(1, "behind", 9092)], -1, [])
    for behind in (False, True):
        for chunks in chunkings(
            vector.response_frame
            + behind
            * b"".join(api.encode_response(neighbour, 0, vector.request["correlation_id"] + 1))
        ):
            client, sent = client_with_requests(vector)
            if vector.layout == vector.version:
                assert sent == vector.request_frame
            client.send(MetadataRequest([]), 0)
            matched = [one for chunk in chunks for one in receive(client, chunk)]
            assert matched[0] == expected
            assert matched[1:] == [(expected[0] + 1, neighbour)] * behind
            assert client.in_flight == (not behind)
            assert pending_bytes(client.frames) == 0


@every_vector
def test_server_gets_the_request_with_any_chunking(vector: Vector) -> None:
    neighbour = b"".join(api.encode_request(HeartbeatRequest("g", 1, "m"), 0, 7, "behind"))
    expected = [decode_request(vector.request_body), decode_request(neighbour[4:])]
    for behind in (False, True):
        for chunks in chunkings(vector.request_frame + behind * neighbour):
            frames = FrameReader(DEFAULT_MAX_FRAME_BYTES, "the client")
            got = [decode_request(frame) for chunk in chunks for frame in feed(frames, chunk)]
            assert got == expected[: 1 + behind]


# --- the message sets of Produce, built again ---------------------------------------------------


@every_produce
def test_captured_produced_set_is_rebuilt(vector: Vector) -> None:
    for message_set in message_sets(vector):
        wrappers = [entry for entry in entries(message_set) if entry.codec]
        if not wrappers:
            messages = list(entries(message_set))
            builder: Any = twin.MessageSetBuilder(0)
        else:
            (wrapper,) = wrappers
            assert wrapper.value is not None
            codec = Codec(wrapper.codec)
            messages = list(entries(decompress(codec, wrapper.value, 2**20)))
            builder = twin.MessageSetBuilder(0, codec)
        for message in messages:
            builder.append(message.key, message.value, -1)
        built = bytes(builder.build())
        if "bad-crc" in vector.name:
            assert built[:12] + built[16:] == message_set[:12] + message_set[16:]
        elif not wrappers:
            assert built == message_set
        else:
            # Compressors differ; the messages inside must not.
            (again,) = entries(built)
            assert again.value is not None
            assert (again.codec, again.key, again.crc_ok) == (codec, None, True)
            assert again.offset == len(messages) - 1
            assert list(entries(decompress(codec, again.value, 2**20))) == messages


@every_fetch
def test_fetched_set_read_in_slices_has_the_same_records(vector: Vector) -> None:
    for message_set in message_sets(vector):

        def reader(data: bytes) -> MessageSetReader:
            return twin.MessageSetReader(
                TopicPartition("vec", 0), data, 0, max_decompressed_bytes=2**20
            )

        whole = reader(message_set).read(1000)
        for size in (1, 2, 7):
            sliced, records = reader(message_set), []
            while slice_ := sliced.read(size):
                assert len(slice_) <= size
                records += slice_
            assert records == whole
