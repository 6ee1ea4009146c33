"""Encode and decode Produce for one partition, the usual case of a producer that doesn't batch.

For anything but one topic with one partition, and for bytes or values that don't fit, the functions
return None, and `api` encodes or decodes by its declarations.

Invariant: the bytes and the values are those of `api.encode_request` and `api.decode_response`.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final

from aiokafka08.protocol.api import ApiKey, Topic
from aiokafka08.protocol.requests.produce import ProducedPartition, ProduceRequest, ProduceResponse
from aiokafka08.protocol.types import Buffer

# Size of the frame, api key, version, correlation id
_HEADER: Final = struct.Struct(">ihhi")

# Number of partitions, the partition, size of the message set
_PARTITION: Final = struct.Struct(">iii")

# By version: number of partitions, partition, error code, offset, timestamp, throttle time
_RESULTS: Final = tuple(map(struct.Struct, (">iihq", ">iihqi", ">iihqqi")))

_COUNT_AND_LENGTH: Final = struct.Struct(">ih")
# Where the topic's name begins: after correlation id, number of topics and length of the name
_RESULTS_AT: Final = 10


def encode_single_produce(
    request: ProduceRequest, version: int, correlation_id: int, client_id: str
) -> list[Buffer] | None:
    """Encode a request for one partition as `api.encode_request` does; None for any other."""
    topics = request.topics
    if len(topics) != 1 or len(topics[0].partitions) != 1 or version not in request.versions:
        return None
    (topic,) = topics
    (partition,) = topic.partitions
    message_set = partition.message_set
    try:
        middle = _middle(client_id, request.required_acks, request.timeout_ms, topic.topic)
        size = _HEADER.size - 4 + len(middle) + _PARTITION.size + len(message_set)
        return [
            _HEADER.pack(size, ApiKey.PRODUCE, version, correlation_id),
            middle,
            _PARTITION.pack(1, partition.partition, len(message_set)),
            message_set,
        ]
    except (struct.error, TypeError, AttributeError, UnicodeEncodeError):
        return None  # `api` raises the error


def decode_single_produce(version: int, frame: memoryview) -> ProduceResponse | None:
    """Decode a response for one partition as `api.decode_response` does; None for any other."""
    if len(frame) < _RESULTS_AT:
        return None
    count, length = _COUNT_AND_LENGTH.unpack_from(frame, 4)
    result = _RESULTS[version]
    end = _RESULTS_AT + length
    if count != 1 or length < 0 or len(frame) != end + result.size:
        return None
    fields = result.unpack_from(frame, end)
    if fields[0] != 1:
        return None
    try:
        topic = str(frame[_RESULTS_AT:end], "utf-8")
    except UnicodeDecodeError:
        return None
    timestamp = fields[4] if version > 1 else -1
    produced = ProducedPartition(fields[1], fields[2], fields[3], timestamp)
    return ProduceResponse([Topic(topic, [produced])], fields[-1] if version else 0)


@lru_cache(maxsize=256)
def _middle(client_id: str | None, required_acks: int, timeout_ms: int, topic: str) -> bytes:
    """Encode what lies between the correlation id and the number of partitions."""
    name = topic.encode()
    client = b"" if client_id is None else client_id.encode()
    client_length = -1 if client_id is None else len(client)
    return b"".join(
        (
            struct.pack(">h", client_length),
            client,
            struct.pack(">hiih", required_acks, timeout_ms, 1, len(name)),
            name,
        )
    )
