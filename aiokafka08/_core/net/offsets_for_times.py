"""Find offsets by time: by message timestamps if the broker can search them, else by segments.

Brokers from 0.10.1 on search the message timestamps (KIP-79). Others know only when the file of
each segment was last written, and list the segments last written at or before a time
(docs/brokers.md 8.1). The result is then the start of the first segment after these.

Invariant: if the result is an offset, no message at or after the time has a lower offset, unless
its timestamp is later than the time of its segment's file.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Collection, Mapping
from typing import Final

from aiokafka08._core.net.list_offsets import (
    PartitionResults,
    find_first_messages,
    list_offsets,
    request_from_leaders,
)
from aiokafka08._core.net.quota import fetch_within_quota
from aiokafka08._core.net.retry import retry
from aiokafka08._core.net.router import Lane, Router
from aiokafka08.errors import KafkaError, KafkaTimeoutError
from aiokafka08.protocol.api import by_partition, by_topic
from aiokafka08.protocol.requests.fetch import FetchedPartition, FetchPartition, FetchRequest
from aiokafka08.protocol.requests.list_offsets import ALL_SEGMENTS, LATEST
from aiokafka08.structs import OffsetAndTimestamp, TopicPartition

FILE_TIME_GRAIN_MS: Final = 1000
"""Times of files may be whole seconds, rounded down (JDK-8177809: Java before 10)."""

_PEEK_BYTES: Final = 65536
# Magic and timestamp of a message of format 1
_HEAD: Final = struct.Struct(">16xbxq")


async def offsets_for_times(
    router: Router, timestamps_ms: Mapping[TopicPartition, int]
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """Find the offsets from which to read all messages at or after the given times.

    The value of a partition is None if there is no such message. Otherwise it is the offset of the
    first such message, with its timestamp; or the start of a segment, with None as the timestamp.
    """
    first_messages = await find_first_messages(router, timestamps_ms)
    unsure = {tp: at for tp, at in timestamps_ms.items() if first_messages.get(tp) is None}
    if not unsure:
        return first_messages
    # The times of files may be rounded down. So use a time one second earlier: no segment that the
    # broker lists for it can contain the message.
    before = {tp: max(at - FILE_TIME_GRAIN_MS, 0) for tp, at in unsure.items()}
    older = await list_offsets(router, before)
    listed = await list_offsets(router, dict.fromkeys(unsure, LATEST), max_num_offsets=ALL_SEGMENTS)
    segments = {tp: _start_offset(older[tp], listed[tp]) for tp in unsure}
    # "No message" may be wrong, because the broker searches a single segment, the first whose
    # largest timestamp isn't before the time. A segment in format 0, or from before an upgrade, has
    # no largest timestamp. The broker then uses the time of its file, may search the segment in
    # vain, and doesn't search the next one (docs/brokers.md 8.14). "No message" is right if only
    # the last segment is in question and its first message has a timestamp, because then the broker
    # could search it.
    lasts = {
        tp: segment
        for tp, segment in segments.items()
        if tp in first_messages
        and segment is not None
        and segment == _start_offset([], listed[tp][:2])
    }
    with_timestamps = await _partitions_with_timestamps(router, lasts)
    return first_messages | {
        tp: None if segment is None or tp in with_timestamps else OffsetAndTimestamp(segment, None)
        for tp, segment in segments.items()
    }


async def wait_for_partitions(router: Router, tps: Collection[TopicPartition]) -> None:
    """Wait until the metadata has these partitions: one may be new, or about to be created.

    Raises:
        KafkaTimeoutError: one doesn't exist within `request_timeout_ms`, as in aiokafka.
        InvalidTopicError: a topic name is invalid.
    """
    config, metadata = router.config, router.metadata

    def missing() -> list[TopicPartition]:
        return [tp for tp in tps if tp.partition not in metadata.snapshot.partitions(tp.topic)]

    async def attempt(limit_s: float) -> bool | KafkaError:
        for topic in dict.fromkeys(tp.topic for tp in missing()):
            await metadata.wait_for_topic(topic, timeout_s=limit_s)
        if missing():
            await metadata.refresh(limit_s)
        return not missing() or KafkaTimeoutError("the metadata lacks a partition")

    def timed_out(last: KafkaError | None) -> KafkaError:
        return KafkaTimeoutError(
            f"offsets_for_times: no partition {', '.join(map(str, missing()))} within "
            f"{config.request_timeout_s * 1000:.0f} ms"
        )

    if missing():
        deadline = asyncio.get_running_loop().time() + config.request_timeout_s
        await retry(attempt, deadline=deadline, backoff=config.backoff(), timed_out=timed_out)


def _start_offset(older: list[int], listed: list[int]) -> int | None:
    """Return the start of the first segment that was written at or after the time, if any.

    `older` has the start of the last segment written before the time, if there is one; `listed` the
    end of the log and the starts of its segments.
    """
    end = listed[0] if listed else 0
    last_older = older[0] if older else -1
    return min((start for start in listed if last_older < start < end), default=None)


async def _partitions_with_timestamps(
    router: Router, offsets: Mapping[TopicPartition, int]
) -> set[TopicPartition]:
    """Return the partitions whose message at the given offset has a timestamp."""

    async def send(
        leader: int, tps: Collection[TopicPartition], timeout_s: float
    ) -> PartitionResults[bool]:
        parts = ((tp.topic, FetchPartition(tp.partition, offsets[tp], _PEEK_BYTES)) for tp in tps)
        request = FetchRequest(-1, 0, 0, by_topic(parts))
        try:
            response = await fetch_within_quota(
                router, request, node_id=leader, lane=Lane.CONTROL, timeout_s=timeout_s
            )
        except KafkaError as error:
            # These partitions are left out of the result. For them the start of a segment is
            # returned, which may be too early, but never too late.
            return dict.fromkeys(tps, error)
        fetched = by_partition(response.topics)
        return {tp: tp in fetched and _has_timestamp(fetched[tp]) for tp in tps}

    results = await request_from_leaders(router, offsets, send, router.config.request_timeout_s)
    return {tp for tp, has_timestamp in results.items() if has_timestamp is True}


def _has_timestamp(part: FetchedPartition) -> bool:
    if part.error_code or len(part.message_set) < _HEAD.size:
        return False
    magic, timestamp = _HEAD.unpack_from(part.message_set)
    return bool(magic == 1 and timestamp >= 0)
