"""Offsets by time: of the first message where brokers know it, else at the grain of segments.

Brokers from 0.10.1 on find the first message of a time or later by its own timestamp (KIP-79).
Older ones, and those that store a topic in format 0, know when the *files* of segments were last
written: they name those of a time or before (docs/brokers.md 8.1). So the first segment that was
written later is where the first message of that time or later can be at the earliest: its start is
the answer. Law: never later than the true answer.

"None" of the newer ones isn't taken at its word: they look into one segment only, and one without
timestamps, of before an upgrade or of an old producer, counts by the time of its file and has none
(docs/brokers.md 8.14). So they too go by segments then, unless messages have timestamps there.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from aiokafka08.errors import KafkaError
from aiokafka08.net.offsets import first_messages, list_offsets
from aiokafka08.net.router import Router
from aiokafka08.protocol.api import LATEST, FetchPartition, FetchRequest, Topic
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
    found = await first_messages(router, timestamps_ms)
    unsure = {tp: at for tp, at in timestamps_ms.items() if found.get(tp) is None}
    segments = await segments_for_times(router, unsure) if unsure else {}
    for tp, segment in segments.items():
        if tp in found and segment is not None and await _is_stamped(router, tp, segment.offset):
            continue
        found[tp] = segment
    return found


async def _is_stamped(router: Router, tp: TopicPartition, offset: int) -> bool:
    """Whether the message there is seen to have a timestamp; it is enough to see its head."""
    asked = FetchPartition(tp.partition, offset, _PEEK_BYTES)
    request = FetchRequest(-1, 0, 0, [Topic(tp.topic, [asked])])
    try:
        answer = await router.request(request, node_id=router.metadata.snapshot.leader(tp))
    except KafkaError:
        return False  # then the answer may be early, never late
    seen = [part.message_set for topic in answer.topics for part in topic.partitions]
    if len(seen) != 1 or len(seen[0]) < _HEAD.size:
        return False
    magic, timestamp = _HEAD.unpack_from(seen[0])
    return bool(magic == 1 and timestamp >= 0)


async def segments_for_times(
    router: Router, timestamps_ms: Mapping[TopicPartition, int]
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """The start of the first segment that was written to at its time or later; None: none was."""
    before = {tp: max(at - FILE_TIME_GRAIN_MS, 0) for tp, at in timestamps_ms.items()}
    older = await list_offsets(router, before)
    listed = await list_offsets(
        router, dict.fromkeys(timestamps_ms, LATEST), max_num_offsets=_ALL_SEGMENTS
    )
    return {tp: _begin(older[tp], listed[tp]) for tp in timestamps_ms}


def _begin(older: list[int], listed: list[int]) -> OffsetAndTimestamp | None:
    """`older`: the start of the last segment that is too old, if any; `listed`: end and starts."""
    end = listed[0] if listed else 0
    last_too_old = older[0] if older else -1
    newer = [start for start in listed if last_too_old < start < end]
    return OffsetAndTimestamp(min(newer), None) if newer else None
