"""ListOffsets (2): offsets by time, and where logs begin and end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from aiokafka08.protocol.api import ApiKey, Request, Response, Topic
from aiokafka08.protocol.types import Int16, Int32, Int64, NullSince, Since

LATEST: Final = -1
"""A `ListOffsetsPartition.timestamp` for the log end: the offset of the next message."""
EARLIEST: Final = -2
"""A `ListOffsetsPartition.timestamp` for the log start: the offset of the first message."""
ALL_SEGMENTS: Final = 0x7FFFFFFF
"""A `ListOffsetsPartition.max_num_offsets` for all segments of a log. With a lower limit the oldest
segments may be missing although fewer offsets than the limit are returned, because brokers apply
the limit first, and then drop the offsets above the high watermark."""


@dataclass(slots=True)
class ListOffsetsPartition:
    partition: Int32
    timestamp: Int64
    max_num_offsets: Annotated[Int32, Since(0, last=0, absent=1)] = 1


@dataclass(slots=True)
class ListedOffsets:
    """The offsets of one partition.

    Version 0 has `offsets`: the start offsets of segments, descending; for `LATEST` the log end
    comes first. Version 1 has `offset` and `timestamp` of the first message with this timestamp or
    a later one; both are -1 if there is none. For `LATEST` and `EARLIEST` `timestamp` is -1.
    """

    partition: Int32
    error_code: Int16
    # Only version 0 has this field, never null: NullSince(1) allows null from version 1 on.
    offsets: Annotated[list[Int64] | None, NullSince(1), Since(0, last=0, absent=None)] = None
    timestamp: Annotated[Int64, Since(1, absent=-1)] = -1
    offset: Annotated[Int64, Since(1, absent=-1)] = -1


@dataclass(slots=True)
class ListOffsetsResponse(Response):
    topics: list[Topic[ListedOffsets]]


@dataclass(slots=True)
class ListOffsetsRequest(Request[ListOffsetsResponse]):
    """Offsets by time: version 0 compares with the times of segment files, version 1 with the
    timestamps of messages (KIP-79, brokers from 0.10.1 on)."""

    api = ApiKey.LIST_OFFSETS
    versions = range(2)
    response = ListOffsetsResponse

    replica_id: Int32
    topics: list[Topic[ListOffsetsPartition]]
