"""Build OffsetCommit and OffsetFetch requests, and interpret the responses for each partition.
Pure.

Invariant: the many forms of "no offset is committed" become None (docs/brokers.md 8.8). A partition
that is missing from a response becomes an error: 0.8.1 responds with no partitions to a commit in a
version that it doesn't know, and commits nothing (8.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from aiokafka08._core.net.versions import BrokerLine
from aiokafka08._core.offset_store import CommitIdentity
from aiokafka08._wording import partition_name, some_of
from aiokafka08.errors import (
    CommitFailedError,
    IllegalGenerationError,
    KafkaError,
    OffsetMetadataTooLargeError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
    broker_error,
    group_code,
)
from aiokafka08.protocol.api import by_partition, by_topic, left_out
from aiokafka08.protocol.requests.committed_offsets import (
    CommitPartition,
    CommittedPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    PartitionError,
)
from aiokafka08.structs import OffsetAndMetadata, TopicPartition

FENCED: Final = (IllegalGenerationError, UnknownMemberIdError, RebalanceInProgressError)
"""The errors of a commit whose generation has ended."""

OffsetsToCommit = Mapping[TopicPartition, OffsetAndMetadata]
CommittedOffset = OffsetAndMetadata | None
FetchedOffsets = Mapping[TopicPartition, CommittedOffset | KafkaError]
"""What `OffsetStore.fetch_each` returns."""


def commit_request(
    group: str, offsets: OffsetsToCommit, identity: CommitIdentity, timestamp_ms: int = -1
) -> OffsetCommitRequest:
    """Return the request that commits these offsets."""
    topics = by_topic(
        (tp.topic, CommitPartition(tp.partition, offset, timestamp_ms, metadata))
        for tp, (offset, metadata) in offsets.items()
    )
    # The retention -1 is the broker's own setting. The timestamp is the time of the commit in
    # version 1 only; -1 means the broker's clock.
    return OffsetCommitRequest(group, identity.generation, identity.member, -1, topics)


def fetch_request(group: str, partitions: Iterable[TopicPartition]) -> OffsetFetchRequest:
    return OffsetFetchRequest(group, by_topic(partitions))


def fetch_all_request(group: str, version: int) -> OffsetFetchRequest:
    return OffsetFetchRequest(group, None if version >= 2 else [])


def read_commit_response(
    response: OffsetCommitResponse, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, KafkaError | None]:
    """Return for each partition None if it is committed, otherwise its error."""
    committed = by_partition(response.topics)
    return {tp: _commit_error(committed.get(tp)) for tp in partitions}


def _commit_error(committed: PartitionError | None) -> KafkaError | None:
    if committed is None:
        return left_out("the partition")
    return broker_error(group_code(committed.error_code)) if committed.error_code else None


def read_fetch_response(
    response: OffsetFetchResponse, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, CommittedOffset | KafkaError]:
    """Return for each partition what is committed, None if nothing is, or its error."""
    if response.error_code:
        return dict.fromkeys(partitions, broker_error(group_code(response.error_code)))
    fetched = by_partition(response.topics)
    return {
        tp: _fetch_result(fetched[tp]) if tp in fetched else left_out("the partition")
        for tp in partitions
    }


def read_fetch_all_response(
    response: OffsetFetchResponse,
) -> dict[TopicPartition, OffsetAndMetadata] | KafkaError:
    """Return all offsets that a group has committed, or the error."""
    if response.error_code:
        return broker_error(group_code(response.error_code))
    committed: dict[TopicPartition, OffsetAndMetadata] = {}
    for tp, fetched in by_partition(response.topics).items():
        result = _fetch_result(fetched)
        if isinstance(result, KafkaError):
            return result
        if result is not None:
            committed[TopicPartition(*tp)] = result
    return committed


def _fetch_result(fetched: CommittedPartition) -> CommittedOffset | KafkaError:
    if fetched.error_code not in (0, UnknownTopicOrPartitionError.errno):
        return broker_error(group_code(fetched.error_code))
    if fetched.offset < 0:
        return None  # -1 means no offset; version 0 also stores other negative ones (8.4)
    if fetched.error_code:
        return broker_error(group_code(fetched.error_code))
    return OffsetAndMetadata(fetched.offset, fetched.metadata or "")


def check_metadata(offsets: OffsetsToCommit, line: BrokerLine) -> None:
    """Raise OffsetMetadataTooLargeError if a partition's metadata is too long."""
    # Checked before the request, because a broker of 0.8.2 responds with an error to metadata that
    # is too long, but commits the new offset nevertheless (docs/brokers.md 8.7).
    limit = 1024 if line <= BrokerLine.V0_8_1 else 4096
    for tp, (_, metadata) in offsets.items():
        length = len(metadata.encode("utf-16-le", "surrogatepass")) // 2  # as Java counts
        if length > limit:
            raise OffsetMetadataTooLargeError(
                f"metadata committed with {partition_name(tp)}: {length} characters; expected "
                f"at most {limit} for brokers of the {line} line"
            )


def combined_error(what_failed: str, errors: Mapping[TopicPartition, KafkaError]) -> KafkaError:
    """Return one error that names each partition with its reason.

    It is a `CommitFailedError` if a partition was fenced; otherwise it has the type of the first
    error.
    """
    for error in errors.values():
        if isinstance(error, FENCED):
            reasons = group_by_reason(errors, CommitFailedError)
            fenced = CommitFailedError(
                f"{what_failed}: {reasons}. The group has rebalanced without this member, which "
                "was away for longer than session_timeout_ms or is joining just now. Other members "
                "may own its partitions now and start at the offsets committed before"
            )
            fenced.__cause__ = error
            return fenced
    first = next(iter(errors.values()))
    return with_text(first, f"{what_failed}: {group_by_reason(errors, type(first))}")


def all_or_raise(
    what_failed: str, fetched: FetchedOffsets
) -> dict[TopicPartition, CommittedOffset]:
    """Return the offsets; raise `combined_error` if a partition has an error in its place."""
    committed: dict[TopicPartition, CommittedOffset] = {}
    errors: dict[TopicPartition, KafkaError] = {}
    for tp, offset in fetched.items():
        if isinstance(offset, KafkaError):
            errors[tp] = offset
        else:
            committed[tp] = offset
    if errors:
        raise combined_error(what_failed, errors)
    return committed


def with_text(error: KafkaError, text: str) -> KafkaError:
    """Return an error of the same type with another text, and the original as its cause."""
    errno = getattr(error, "errno", None)
    copy = type(error)(text) if errno is None else type(error)(text, errno=errno)  # type: ignore[call-arg]
    copy.__cause__ = error
    return copy


def group_by_reason(errors: Mapping[TopicPartition, KafkaError], outer: type[KafkaError]) -> str:
    """Return a text like "t/0, t/1: reason; t/2: other reason" for the class `outer`."""
    reasons: dict[str, list[str]] = {}
    for tp, error in errors.items():
        reasons.setdefault(error.nested_text(outer), []).append(partition_name(tp))
    return "; ".join(f"{some_of(tps)}: {reason}" for reason, tps in reasons.items())
