"""ListOffsets 0, OffsetCommit 0 and 1, and OffsetFetch 0 by the versions behind them.

- ListOffsets 0 passes if the target takes it, as Kafka up to 3.9 does. It compares times of segment
  files and lists their offsets; version 1 compares timestamps of messages. The beginning and the
  end of a log are the same in both. For any other time the client gets the offset of the first
  message of this time or later, and an empty list if there is none. Of several offsets that a
  client may request there is only the first.
- Offsets of versions 0, which old brokers keep in ZooKeeper, are in the group like all others; they
  can be committed and fetched at any broker (`coordinators`).
- OffsetFetch 0 says with an error that nothing is committed, version 1 with the offset -1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from aiokafka08._tools.gateway.coordinators import Coordinators, GroupRequest, ask_coordinator
from aiokafka08._tools.gateway.error_codes import old_code
from aiokafka08._tools.gateway.headers import API_VERSIONS, CORRELATION_BYTES, RequestHead
from aiokafka08._tools.gateway.translation import (
    Budget,
    Translation,
    read_body,
    refuse_replica,
    request_end,
    write_request,
    write_response,
)
from aiokafka08.errors import UnknownTopicOrPartitionError
from aiokafka08.protocol.api import Topic
from aiokafka08.protocol.requests.api_versions import ApiVersionsRequest, ApiVersionsResponse
from aiokafka08.protocol.requests.committed_offsets import (
    CommitPartition,
    CommittedPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    PartitionError,
)
from aiokafka08.protocol.requests.list_offsets import (
    ListedOffsets,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from aiokafka08.protocol.types import Buffer

_NOTHING_COMMITTED: Final = -1


class ListedVersions:
    """Whether the target takes ListOffsets 0 itself; None: it wasn't asked."""

    def __init__(self) -> None:
        self.has_0: bool | None = None


def translate_list_offsets(
    head: RequestHead, frame: memoryview, target: ListedVersions
) -> Translation:
    """Translate ListOffsets 0 to version 1, unless the target takes it.

    Args:
        head: the header of the request.
        frame: its frame.
        target: what is known of the target's versions.

    Raises:
        KafkaProtocolError: the request isn't whole, or that of a replica. So do the functions
            below, and the responses, if they aren't whole.
    """
    request: ListOffsetsRequest = read_body(ListOffsetsRequest, head.version, frame, head.body_at)
    refuse_replica(request.replica_id)
    if target.has_0 is not None:
        return _list_offsets(head, frame, request, target)

    def respond(answer: memoryview, budget: Budget) -> Translation:
        response: ApiVersionsResponse = read_body(ApiVersionsResponse, 0, answer, CORRELATION_BYTES)
        target.has_0 = any(
            one.api_key == head.key and one.min_version <= 0 <= one.max_version
            for one in response.api_versions
        )
        return _list_offsets(head, frame, request, target)

    asked = write_request(API_VERSIONS, 0, request_end(head, frame), ApiVersionsRequest())
    return Translation(asked, respond, is_exclusive=True)


def _list_offsets(
    head: RequestHead, frame: memoryview, request: ListOffsetsRequest, target: ListedVersions
) -> Translation:
    if target.has_0:
        return Translation([frame], lambda answer, budget: [answer])
    wanted = {
        (topic.topic, one.partition): one.max_num_offsets
        for topic in request.topics
        for one in topic.partitions
    }
    asked = ListOffsetsRequest(
        request.replica_id,
        [
            Topic(
                topic.topic,
                [ListOffsetsPartition(one.partition, one.timestamp) for one in topic.partitions],
            )
            for topic in request.topics
        ],
    )

    def listed(topic: str, one: ListedOffsets) -> ListedOffsets:
        code = old_code(head.key, head.version, one.error_code)
        is_there = not code and one.offset >= 0 and wanted.get((topic, one.partition), 0) > 0
        return ListedOffsets(one.partition, code, [one.offset] if is_there else [])

    def respond(answer: memoryview, budget: Budget) -> list[Buffer]:
        response: ListOffsetsResponse = read_body(ListOffsetsResponse, 1, answer, CORRELATION_BYTES)
        topics = [
            Topic(topic.topic, [listed(topic.topic, one) for one in topic.partitions])
            for topic in response.topics
        ]
        return write_response(head, ListOffsetsResponse(topics))

    frame_1 = write_request(head.key, 1, request_end(head, frame), asked)
    return Translation(frame_1, respond)


def translate_offset_commit(
    head: RequestHead, frame: memoryview, coordinators: Coordinators
) -> Translation:
    """Translate OffsetCommit 0 and 1 to version 2, which has no time of a commit."""
    request: OffsetCommitRequest = read_body(OffsetCommitRequest, head.version, frame, head.body_at)
    asked = OffsetCommitRequest(
        request.group,
        request.generation,
        request.member,
        -1,
        [
            Topic(
                topic.topic,
                [
                    CommitPartition(one.partition, one.offset, -1, one.metadata)
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )

    def read(answer: memoryview) -> list[Topic[PartitionError]]:
        response: OffsetCommitResponse = read_body(
            OffsetCommitResponse, 2, answer, CORRELATION_BYTES
        )
        return response.topics

    def write(topics: list[Topic[PartitionError]]) -> list[Buffer]:
        for topic in topics:
            for one in topic.partitions:
                one.error_code = old_code(head.key, head.version, one.error_code)
        return write_response(head, OffsetCommitResponse(topics))

    header_end = request_end(head, frame)
    made = write_request(head.key, 2, header_end, asked)
    if head.version:
        return Translation(made, lambda answer, budget: write(read(answer)))

    def failed(code: int) -> list[Buffer]:
        return write(
            [
                Topic(one.topic, [PartitionError(part.partition, code) for part in one.partitions])
                for one in asked.topics
            ]
        )

    return ask_coordinator(
        GroupRequest(
            request.group or "",
            header_end,
            made,
            lambda answer: error_codes(read(answer)),
            lambda answer: write(read(answer)),
            failed,
        ),
        coordinators,
    )


def translate_offset_fetch(
    head: RequestHead, frame: memoryview, coordinators: Coordinators
) -> Translation:
    """Translate OffsetFetch 0 to version 1."""
    request: OffsetFetchRequest = read_body(OffsetFetchRequest, head.version, frame, head.body_at)

    def read(answer: memoryview) -> list[Topic[CommittedPartition]]:
        response: OffsetFetchResponse = read_body(OffsetFetchResponse, 1, answer, CORRELATION_BYTES)
        return response.topics

    def write(topics: list[Topic[CommittedPartition]]) -> list[Buffer]:
        for topic in topics:
            for one in topic.partitions:
                one.error_code = old_code(head.key, head.version, one.error_code)
                if not one.error_code and one.offset == _NOTHING_COMMITTED:
                    one.error_code = UnknownTopicOrPartitionError.errno
        return write_response(head, OffsetFetchResponse(topics))

    def failed(code: int) -> list[Buffer]:
        return write(
            [
                Topic(
                    one.topic, [CommittedPartition(part, -1, "", code) for part in one.partitions]
                )
                for one in request.topics or ()
            ]
        )

    header_end = request_end(head, frame)
    return ask_coordinator(
        GroupRequest(
            request.group or "",
            header_end,
            write_request(head.key, 1, header_end, request),
            lambda answer: error_codes(read(answer)),
            lambda answer: write(read(answer)),
            failed,
        ),
        coordinators,
    )


def error_codes(topics: Sequence[Topic[Any]]) -> frozenset[int]:
    """Return the error codes of all partitions."""
    return frozenset(one.error_code for topic in topics for one in topic.partitions)
