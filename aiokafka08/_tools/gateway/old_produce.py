"""Produce 0 to 2, with sets of messages, by version 3, with one record batch per partition.

A set becomes one batch, as in brokers up to 3.9: it keeps its codec, keys, values and timestamps,
and is stored as a whole or not at all. Those brokers refuse a set of several wrappers, of wrappers
beside plain messages, and of both formats; here it becomes one batch too. A cut-off message at the
end is left out, as they do.

A set that is damaged never reaches the target. Its partition is answered here, and the answer is
merged with the target's for the others; without acknowledgements (acks=0) the connection ends, as
brokers do it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aiokafka08._tools.gateway.error_codes import old_code
from aiokafka08._tools.gateway.headers import RequestHead
from aiokafka08._tools.gateway.translation import (
    CORRELATION_BYTES,
    Translation,
    read_body,
    write_request,
    write_response,
)
from aiokafka08.errors import CorruptRecordException, InvalidTimestampError, NoError
from aiokafka08.protocol.api import Topic, by_topic
from aiokafka08.protocol.message_format import LOG_APPEND_TIME
from aiokafka08.protocol.message_set import DEFAULT_MAX_DECOMPRESSED_BYTES
from aiokafka08.protocol.record_batch import BatchCodec, RecordBatchBuilder, Stop, open_wrapper
from aiokafka08.protocol.requests.produce import (
    ProducedPartition,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
)
from aiokafka08.protocol.types import Buffer, Int16, Int32, NullableString

TARGET_VERSION: Final = 3
_SAME_RESPONSE: Final = 2
"""The response of version 3 has the layout of this version."""


@dataclass(slots=True)
class _ProduceRequest3:
    transactional_id: NullableString
    required_acks: Int16
    timeout_ms: Int32
    topics: list[Topic[ProducePartition]]


class InvalidTimestampTypeError(Exception):
    """A message says that its timestamp is the broker's."""


def translate_produce(head: RequestHead, frame: memoryview) -> Translation:
    """Translate a request.

    Raises:
        KafkaProtocolError: the request isn't whole; so does the function for the response.
    """
    request: ProduceRequest = read_body(ProduceRequest, head.version, frame, head.body_at)
    asked: list[Topic[ProducePartition]] = []
    answered: dict[tuple[str, int], ProducedPartition] = {}
    left_bytes = DEFAULT_MAX_DECOMPRESSED_BYTES
    for topic in request.topics:
        parts = []
        for part in topic.partitions:
            try:
                batch, opened_bytes = batch_of(part.message_set, left_bytes)
            except (CorruptRecordException, InvalidTimestampTypeError) as error:
                is_damaged = isinstance(error, CorruptRecordException)
                code = (CorruptRecordException if is_damaged else InvalidTimestampError).errno
                code = old_code(head.key, head.version, code)
                answered[topic.topic, part.partition] = ProducedPartition(part.partition, code, -1)
                continue
            left_bytes -= opened_bytes
            if batch:
                parts.append(ProducePartition(part.partition, batch))
            else:
                nothing = ProducedPartition(part.partition, NoError.errno, -1)
                answered.setdefault((topic.topic, part.partition), nothing)
        if parts:
            asked.append(Topic(topic.topic, parts))

    def respond(answer: memoryview) -> list[Buffer]:
        response = ProduceResponse([])
        if answer:
            response = read_body(ProduceResponse, _SAME_RESPONSE, answer, CORRELATION_BYTES)
        # A partition that comes twice is in both: the client has to know of the error.
        failed = {key: one for key, one in answered.items() if one.error_code}
        stored = {
            (topic.topic, one.partition): one
            for topic in response.topics
            for one in topic.partitions
        }
        results = answered | stored | failed
        in_order = [
            (topic.topic, _old_result(head, results[topic.topic, part.partition]))
            for topic in request.topics
            for part in topic.partitions
            if (topic.topic, part.partition) in results
        ]
        throttle_ms = response.throttle_time_ms if head.version else 0
        return write_response(head, ProduceResponse(by_topic(in_order), throttle_ms))

    made = None
    if asked:
        upgraded = _ProduceRequest3(None, request.required_acks, request.timeout_ms, asked)
        made = write_request(head, frame, TARGET_VERSION, upgraded)
    damaged = [f"{topic}-{number}" for (topic, number), one in answered.items() if one.error_code]
    return Translation(
        made,
        respond,
        expects_response=request.expects_response,
        failure=(
            f"acks=0, and damaged messages for {', '.join(damaged[:3])}"
            if damaged and not request.expects_response
            else None
        ),
    )


def batch_of(message_set: Buffer, max_decompressed_bytes: int) -> tuple[bytes, int]:
    """Return the record batch of a set, and how many bytes its wrappers had when opened.

    The batch is b"" if the set has no whole message.

    Raises:
        CorruptRecordException: a message is damaged, or its wrappers hold more than the limit.
        InvalidTimestampTypeError: a message says that its timestamp is the broker's.
    """
    data = memoryview(message_set).cast("B")
    builder = RecordBatchBuilder()
    attributes = opened_bytes = 0
    pos, stop = builder.extend_from_messages(data)
    while stop is Stop.WRAPPER:
        wrapper = open_wrapper(
            data, pos, max_decompressed_bytes=max_decompressed_bytes - opened_bytes
        )
        opened_bytes += len(wrapper.messages)
        if wrapper.magic:
            attributes |= wrapper.attributes
        if not builder.codec:  # the first wrapper: all that is before it is compressed like it
            builder = RecordBatchBuilder(BatchCodec(wrapper.codec))
            builder.extend_from_messages(data)
        before = len(builder)
        inner_pos, inner_stop = builder.extend_from_messages(wrapper.messages)
        if inner_stop is not Stop.END or inner_pos < len(wrapper.messages):
            raise CorruptRecordException(
                f"corrupt wrapper, offset {wrapper.offset}: expected whole messages, no wrapper"
            )
        if len(builder) == before:
            raise CorruptRecordException(f"corrupt wrapper, offset {wrapper.offset}: it is empty")
        pos, stop = builder.extend_from_messages(data, wrapper.stop)
    if (attributes | builder.seen_attributes) & LOG_APPEND_TIME:
        raise InvalidTimestampTypeError
    return builder.build(), opened_bytes


def _old_result(head: RequestHead, result: ProducedPartition) -> ProducedPartition:
    return ProducedPartition(
        result.partition,
        old_code(head.key, head.version, result.error_code),
        result.offset,
        result.timestamp if head.version >= _SAME_RESPONSE else -1,
    )
