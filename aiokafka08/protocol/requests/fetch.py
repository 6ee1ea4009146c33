"""Fetch (1): read message sets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Final

from aiokafka08.protocol.api import ApiKey, Request, Response, Topic
from aiokafka08.protocol.types import FetchedBytes, Int16, Int32, Int64, Since

NO_LIMIT: Final = 0x7FFFFFFF
"""The `max_bytes` of a fetch whose response has no limit, as before version 3."""


@dataclass(slots=True)
class FetchPartition:
    partition: Int32
    fetch_offset: Int64
    max_bytes: Int32


@dataclass(slots=True)
class FetchedPartition:
    partition: Int32
    error_code: Int16
    high_watermark: Int64
    message_set: FetchedBytes


@dataclass(slots=True)
class FetchResponse(Response):
    throttle_time_ms: Annotated[Int32, Since(1, absent=0)]
    topics: list[Topic[FetchedPartition]]

    @property
    def withheld_s(self) -> float:
        """Seconds for which a broker withholds all data, because the client exceeds its quota.

        Brokers from 2.0 on then respond without any partition, and read no further request of the
        connection in that time (KIP-219). Older ones respond with the data, after that time.
        """
        return 0.0 if self.topics else self.throttle_time_ms / 1000


@dataclass(slots=True)
class FetchRequest(Request[FetchResponse]):
    """A long poll: the broker responds once it has `min_bytes`, or after `max_wait_ms`.

    From version 3 on (brokers from 0.10.1 on) `max_bytes` limits the response. The broker fills it
    in the order of the request. The first message comes even if it exceeds all limits.

    `replica_id` is -1 for clients; the broker treats a fetch with an id ≥ 0 as the fetch of a
    follower, which can move the high watermark.
    """

    api = ApiKey.FETCH
    versions = range(4)
    response = FetchResponse

    replica_id: Int32
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Annotated[Int32, Since(3, absent=NO_LIMIT)] = field(default=NO_LIMIT, kw_only=True)
    topics: list[Topic[FetchPartition]]
