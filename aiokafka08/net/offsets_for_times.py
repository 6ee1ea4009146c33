"""Offsets by time: of the first message where brokers know it, else at the grain of segments.

Brokers from 0.10.1 on find the first message of a time or later by its own timestamp (KIP-79).
Older ones, and those that store a topic in format 0, know when the *files* of segments were last
written: they name those of a time or before (docs/brokers.md 8.1). So the first segment that was
written later is where the first message of that time or later can be at the earliest: its start is
the answer. Law: never later than the true answer.

"None" of the newer ones proves little: they look into one segment only, the first whose largest
timestamp is late enough, and where they don't know that (no timestamps, or segments of before an
upgrade) take the time of its file for it (docs/brokers.md 8.14). It is believed only where no file
was written so late but that of the last segment, and messages have timestamps there.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping

from aiokafka08.errors import KafkaError
from aiokafka08.net.list_offsets import (
    Answers,
    find_first_messages,
    list_offsets,
    request_from_leaders,
)
from aiokafka08.net.router import Router
from aiokafka08.protocol.api import (
    LATEST,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    by_topic,
)
from aiokafka08.structs import OffsetAndTimestamp, TopicPartition

FILE_TIME_GRAIN_MS = 1000
"""File times may be whole seconds, rounded down (JDK-8177809: Java before 10)."""

_ALL_SEGMENTS = 0x7FFFFFFF

_PEEK_BYTES = 65536
_HEAD = struct.Struct(">16xbxq")
"""Magic and timestamp of a message of format 1."""


async def offsets_for_times(
    router: Router, timestamps_ms: Mapping[TopicPartition, int]
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """Where to begin so as to miss no message of its time or later; None: there is none.

    The timestamp is that of the message, None where a segment begins there.
    """
    found = await find_first_messages(router, timestamps_ms)
    unsure = {tp: at for tp, at in timestamps_ms.items() if found.get(tp) is None}
    if not unsure:
        return found
    before = {tp: max(at - FILE_TIME_GRAIN_MS, 0) for tp, at in unsure.items()}
    older = await list_offsets(router, before)
    listed = await list_offsets(
        router, dict.fromkeys(unsure, LATEST), max_num_offsets=_ALL_SEGMENTS
    )
    segments = {tp: _begin(older[tp], listed[tp]) for tp in unsure}
    lasts = {
        tp: segment
        for tp, segment in segments.items()
        if tp in found and segment is not None and segment == _begin([], listed[tp][:2])
    }
    stamped = await _stamped(router, lasts)
    return found | {
        tp: None if segment is None or tp in stamped else OffsetAndTimestamp(segment, None)
        for tp, segment in segments.items()
    }


def _begin(older: list[int], listed: list[int]) -> int | None:
    """`older`: the start of the last segment that is too old, if any; `listed`: end and starts."""
    end = listed[0] if listed else 0
    last_too_old = older[0] if older else -1
    return min((start for start in listed if last_too_old < start < end), default=None)


async def _stamped(router: Router, offsets: Mapping[TopicPartition, int]) -> set[TopicPartition]:
    """Those of the partitions whose message there is seen to have a timestamp; a head is enough.

    Where it isn't seen, for whatever reason, the answer is early then, never late.
    """

    async def ask(leader: int, tps: Collection[TopicPartition], timeout_s: float) -> Answers[bool]:
        asked = ((tp.topic, FetchPartition(tp.partition, offsets[tp], _PEEK_BYTES)) for tp in tps)
        request = FetchRequest(-1, 0, 0, by_topic(asked))
        try:
            answer = await router.request(request, node_id=leader, timeout_s=timeout_s)
        except KafkaError as error:
            return dict.fromkeys(tps, error)
        seen = {
            TopicPartition(topic.topic, part.partition): _is_stamped(part)
            for topic in answer.topics
            for part in topic.partitions
        }
        return {tp: seen.get(tp, False) for tp in tps}

    answers = await request_from_leaders(router, offsets, ask, router.config.request_timeout_s)
    return {tp for tp, seen in answers.items() if seen is True}


def _is_stamped(part: FetchedPartition) -> bool:
    if part.error_code or len(part.message_set) < _HEAD.size:
        return False
    magic, timestamp = _HEAD.unpack_from(part.message_set)
    return bool(magic == 1 and timestamp >= 0)
