"""OffsetCommit (8) and OffsetFetch (9): store and read the positions of a group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from aiokafka08.protocol.api import ApiKey, Request, Response, Topic
from aiokafka08.protocol.types import Int16, Int32, Int64, NullableString, NullSince, Since, String


@dataclass(slots=True)
class CommitPartition:
    partition: Int32
    offset: Int64
    timestamp: Annotated[Int64, Since(1, last=1, absent=-1)]
    metadata: NullableString


@dataclass(slots=True)
class PartitionError:
    partition: Int32
    error_code: Int16


@dataclass(slots=True)
class OffsetCommitResponse(Response):
    topics: list[Topic[PartitionError]]


@dataclass(slots=True)
class OffsetCommitRequest(Request[OffsetCommitResponse]):
    """Offsets to commit.

    Version 0 commits to ZooKeeper, 1 and 2 commit to `__consumer_offsets`; these are two separate
    stores. The commit of a client that isn't a member of the group has generation -1 and member "".
    """

    api = ApiKey.OFFSET_COMMIT
    versions = range(3)
    response = OffsetCommitResponse

    group: NullableString
    generation: Annotated[Int32, Since(1, absent=-1)]
    member: Annotated[String, Since(1, absent="")]
    retention_time_ms: Annotated[Int64, Since(2, absent=-1)]
    topics: list[Topic[CommitPartition]]


@dataclass(slots=True)
class CommittedPartition:
    partition: Int32
    offset: Int64
    metadata: NullableString
    error_code: Int16


@dataclass(slots=True)
class OffsetFetchResponse(Response):
    """`error_code` is the error of the whole group, such as NotCoordinatorForGroup."""

    topics: list[Topic[CommittedPartition]]
    error_code: Annotated[Int16, Since(2, absent=0)] = 0


@dataclass(slots=True)
class OffsetFetchRequest(Request[OffsetFetchResponse]):
    """Version 0 reads from ZooKeeper, 1 and 2 from `__consumer_offsets`.

    To request all committed offsets of a group, set `topics` to None in version 2, or to [] in
    version 1 for brokers 0.9 to 0.10.1 (docs/brokers.md 8.8).
    """

    api = ApiKey.OFFSET_FETCH
    versions = range(3)
    response = OffsetFetchResponse

    group: NullableString
    topics: Annotated[list[Topic[Int32]] | None, NullSince(2)]
