"""What brokers answer to OffsetCommit and OffsetFetch, partition by partition. Pure.

The many forms of "nothing is committed" become None here (docs/brokers.md 8.8), and a partition
that the answer leaves out becomes an error: 0.8.1 says so that it committed nothing (8.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aiokafka08.errors import (
    CommitFailedError,
    IllegalGenerationError,
    KafkaError,
    KafkaProtocolError,
    OffsetMetadataTooLargeError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
    broker_error,
)
from aiokafka08.net.versions import BrokerLine
from aiokafka08.offset_store import CommitIdentity
from aiokafka08.protocol.api import (
    CommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    by_topic,
)
from aiokafka08.structs import OffsetAndMetadata, TopicPartition

FENCED = (IllegalGenerationError, UnknownMemberIdError, RebalanceInProgressError)
"""The member's generation is over: 22, 25, 27."""

Commits = Mapping[TopicPartition, OffsetAndMetadata]
Committed = OffsetAndMetadata | None


def commit_request(group: str, offsets: Commits, stamp: CommitIdentity) -> OffsetCommitRequest:
    """The request that commits these; retention -1 is the broker's own setting."""
    asked = by_topic(
        (tp.topic, CommitPartition(tp.partition, offset, -1, metadata))  # -1: now, by its clock
        for tp, (offset, metadata) in offsets.items()
    )
    return OffsetCommitRequest(group, stamp.generation, stamp.member, -1, asked)


def fetch_request(group: str, partitions: Iterable[TopicPartition]) -> OffsetFetchRequest:
    """The request for what is committed of these."""
    return OffsetFetchRequest(group, by_topic(partitions))


def read_commits(
    answer: OffsetCommitResponse, asked: Iterable[TopicPartition]
) -> dict[TopicPartition, KafkaError | None]:
    """Per partition None where it is committed, else why not."""
    found: dict[TopicPartition, KafkaError | None] = {}
    for topic in answer.topics:
        for one in topic.partitions:
            error = broker_error(one.error_code) if one.error_code else None
            found[TopicPartition(topic.topic, one.partition)] = error
    return {tp: found[tp] if tp in found else _left_out() for tp in asked}


def read_fetched(
    answer: OffsetFetchResponse, asked: Iterable[TopicPartition]
) -> dict[TopicPartition, Committed | KafkaError]:
    """Per partition what is committed, None where nothing is, or why it can't be told."""
    found: dict[TopicPartition, Committed | KafkaError] = {}
    for topic in answer.topics:
        for one in topic.partitions:
            result: Committed | KafkaError
            if one.error_code not in (0, UnknownTopicOrPartitionError.errno):
                result = broker_error(one.error_code)
            elif one.offset < 0:  # -1; version 0 has taken other negative ones as well (8.4)
                result = None
            elif one.error_code:
                result = broker_error(one.error_code)
            else:
                result = OffsetAndMetadata(one.offset, one.metadata or "")
            found[TopicPartition(topic.topic, one.partition)] = result
    return {tp: found[tp] if tp in found else _left_out() for tp in asked}


def check_metadata(offsets: Commits, line: BrokerLine) -> None:
    """Check the length of what goes with the offsets, before it is sent: with code 12 the broker
    of 0.8.2 keeps the offset all the same (docs/brokers.md 8.7).

    Raises:
        OffsetMetadataTooLargeError: a text is longer than the line takes.
    """
    limit = 1024 if line <= BrokerLine.V0_8_1 else 4096
    for tp, (_, metadata) in offsets.items():
        length = len(metadata.encode("utf-16-le", "surrogatepass")) // 2  # as Java counts
        if length > limit:
            raise OffsetMetadataTooLargeError(
                f"the metadata committed with {tp.topic}/{tp.partition} has {length} characters; "
                f"brokers of the {line} line take {limit}"
            )


def failure(what: str, errors: Mapping[TopicPartition, KafkaError]) -> KafkaError:
    """One error for all partitions that failed for good; names each."""
    text = f"{what}: {by_reason(errors)}"
    for error in errors.values():
        if isinstance(error, FENCED):
            raised = CommitFailedError(
                f"{text}. The group has rebalanced without this member (it was longer away than "
                "session_timeout_ms, or is joining just now): its partitions may have been given "
                "to others, who begin at the offsets committed before"
            )
            raised.__cause__ = error
            return raised
    return renamed(next(iter(errors.values())), text)


def renamed(error: KafkaError, text: str) -> KafkaError:
    """The same error with another text."""
    errno = getattr(error, "errno", None)
    same = type(error)(text) if errno is None else type(error)(text, errno=errno)  # type: ignore[call-arg]
    same.__cause__ = error
    return same


def by_reason(errors: Mapping[TopicPartition, KafkaError]) -> str:
    """ "t/0, t/1: why; t/2: why else"."""
    reasons: dict[str, list[str]] = {}
    for tp, error in errors.items():
        reasons.setdefault(str(error), []).append(f"{tp.topic}/{tp.partition}")
    return "; ".join(f"{', '.join(tps)}: {reason}" for reason, tps in reasons.items())


def _left_out() -> KafkaError:
    return KafkaProtocolError("the broker left it out of its answer")
