"""Produce (0): store message sets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from aiokafka08.protocol.api import ApiKey, Request, Response, Topic
from aiokafka08.protocol.types import Bytes, Int16, Int32, Int64, Since


@dataclass(slots=True)
class ProducePartition:
    partition: Int32
    message_set: Bytes


@dataclass(slots=True)
class ProducedPartition:
    """The result for one partition.

    `offset` is the offset of the first message; -1 with error 0 means that nothing was stored.
    `timestamp` is the broker's time under LogAppendTime, else -1.
    """

    partition: Int32
    error_code: Int16
    offset: Int64
    timestamp: Annotated[Int64, Since(2, absent=-1)] = -1


@dataclass(slots=True)
class ProduceResponse(Response):
    topics: list[Topic[ProducedPartition]]
    throttle_time_ms: Annotated[Int32, Since(1, absent=0)] = 0


@dataclass(slots=True)
class ProduceRequest(Request[ProduceResponse]):
    """Message sets to store.

    `required_acks`: 0 for no response, 1 for the leader, -1 for the whole ISR, n > 1 for n replicas
    (0.8 only).
    """

    api = ApiKey.PRODUCE
    versions = range(3)
    response = ProduceResponse

    required_acks: Int16
    timeout_ms: Int32
    topics: list[Topic[ProducePartition]]

    @property
    def expects_response(self) -> bool:
        return self.required_acks != 0
