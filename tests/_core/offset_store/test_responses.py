"""Responses about offsets, in all the forms that brokers were seen to send."""

from __future__ import annotations

import pytest

from aiokafka08._core.net.versions import BrokerLine
from aiokafka08._core.offset_store.responses import (
    check_metadata,
    combined_error,
    read_commit_response,
    read_fetch_response,
)
from aiokafka08.errors import (
    CommitFailedError,
    GroupAuthorizationFailedError,
    GroupLoadInProgressError,
    IllegalGenerationError,
    KafkaError,
    KafkaProtocolError,
    OffsetMetadataTooLargeError,
    UnknownTopicOrPartitionError,
)
from aiokafka08.protocol.api import Topic
from aiokafka08.protocol.requests.committed_offsets import (
    CommittedPartition,
    OffsetCommitResponse,
    OffsetFetchResponse,
    PartitionError,
)
from aiokafka08.structs import OffsetAndMetadata, TopicPartition
from tests._core.offset_store.conftest import tp


@pytest.mark.parametrize(
    ("offset", "metadata", "code", "expected"),
    [
        (5, "why", 0, OffsetAndMetadata(5, "why")),
        (0, "", 0, OffsetAndMetadata(0, "")),
        (5, None, 0, OffsetAndMetadata(5, "")),  # null metadata, 0.8.2 and 0.9
        (-1, "", 3, None),  # version 0, nothing committed; version 1 of 0.8.2, unknown partition
        (-1, "", 0, None),  # version 1, nothing committed
        (-5, "", 0, None),  # version 0 takes negative offsets
        (-1, "", 14, GroupLoadInProgressError),
        (5, "", 3, UnknownTopicOrPartitionError),
        (-1, "", 30, GroupAuthorizationFailedError),
    ],
)
def test_fetch_response_by_offset_and_code(
    offset: int, metadata: str | None, code: int, expected: object
) -> None:
    response = OffsetFetchResponse([Topic("t", [CommittedPartition(0, offset, metadata, code)])])
    found = read_fetch_response(response, [tp(0)])[tp(0)]
    if isinstance(expected, type):
        assert type(found) is expected
    else:
        assert found == expected


def test_left_out_partition_is_an_error() -> None:
    fetched = OffsetFetchResponse([Topic("t", [CommittedPartition(7, 1, "", 0)])])
    committed = OffsetCommitResponse([Topic("u", [PartitionError(0, 0)])])
    empty = OffsetCommitResponse([])  # 0.8.1 to version 1
    for found in (
        read_fetch_response(fetched, [tp(0)]),
        read_commit_response(committed, [tp(0)]),
        read_commit_response(empty, [tp(0)]),
    ):
        assert list(found) == [tp(0)]
        assert type(found[tp(0)]) is KafkaProtocolError


@pytest.mark.parametrize(
    ("line", "limit"),
    [
        (BrokerLine.V0_8_0, 1024),
        (BrokerLine.V0_8_1, 1024),
        (BrokerLine.V0_8_2, 4096),
        (BrokerLine.V0_10, 4096),
    ],
)
def test_metadata_length_is_counted_as_in_java(line: BrokerLine, limit: int) -> None:
    for text in ("x" * limit, "é" * limit, "\N{GRINNING FACE}" * (limit // 2)):
        check_metadata({tp(0): OffsetAndMetadata(1, text)}, line)
        with pytest.raises(OffsetMetadataTooLargeError, match=f"t/1: .* at most {limit} "):
            check_metadata({tp(1): OffsetAndMetadata(1, text + "y")}, line)


def test_combined_error_names_partitions_and_reasons() -> None:
    refused = GroupAuthorizationFailedError("no", errno=30)
    both = combined_error("not committed", {tp(0): refused, tp(2): refused})
    assert type(both) is GroupAuthorizationFailedError
    assert str(both) == "[Error 30] GroupAuthorizationFailedError: not committed: t/0, t/2: no"
    errors: dict[TopicPartition, KafkaError] = {tp(0): refused, tp(1): IllegalGenerationError("x")}
    fenced = combined_error("not committed", errors)
    assert type(fenced) is CommitFailedError
    assert isinstance(fenced.__cause__, IllegalGenerationError)
    assert "t/0: " in str(fenced)
    assert "t/1: " in str(fenced)
