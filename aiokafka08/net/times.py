"""Offsets by time: of the first message where brokers know it, else at the grain of segments.

Brokers from 0.10.1 on find the first message of a time or later by its own timestamp (KIP-79).
Older ones, and those that store a topic in format 0, know when the *files* of segments were last
written: they name those of a time or before (docs/brokers.md 8.1). So the first segment that was
written later is where the first message of that time or later can be at the earliest: its start is
the answer. Law: never later than the true answer.
"""

from __future__ import annotations

from collections.abc import Mapping

from aiokafka08.net.offsets import first_messages, list_offsets
from aiokafka08.net.router import Router
from aiokafka08.protocol.api import LATEST
from aiokafka08.structs import OffsetAndTimestamp, TopicPartition

FILE_TIME_GRAIN_MS = 1000
"""File times may be whole seconds, rounded down (JDK-8177809: Java before 10)."""

_ALL_SEGMENTS = 0x7FFFFFFF


async def offsets_for_times(
    router: Router, timestamps_ms: Mapping[TopicPartition, int]
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """Where to begin so as to miss no message of its time or later; None: there is none.

    The timestamp is that of the message, None where a segment begins there.
    """
    found = await first_messages(router, timestamps_ms)
    older = {tp: at for tp, at in timestamps_ms.items() if tp not in found}
    return found | await segments_for_times(router, older) if older else found


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
