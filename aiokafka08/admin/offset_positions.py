"""Find the offsets of positions in logs: their beginning, their end, or a time."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Final, Literal

from aiokafka08._core.net.list_offsets import list_offsets
from aiokafka08._core.net.offsets_for_times import offsets_for_times
from aiokafka08._core.net.router import Router
from aiokafka08.errors import IllegalArgumentError
from aiokafka08.protocol.requests.list_offsets import EARLIEST, LATEST
from aiokafka08.structs import OffsetAndTimestamp, TopicPartition

OffsetPosition = Literal["earliest", "latest"] | datetime.datetime
"""A position in a log."""

_ENDS: Final = {"earliest": EARLIEST, "latest": LATEST}


def check_position(tp: object, position: object) -> OffsetPosition:
    """Return a position if it is valid; else raise IllegalArgumentError."""
    if isinstance(position, datetime.datetime):
        return position
    if position == "earliest":
        return "earliest"
    if position == "latest":
        return "latest"
    raise IllegalArgumentError(
        f"{tp}: position {position!r}; expected 'earliest', 'latest' or a datetime"
    )


def epoch_ms(time: datetime.datetime) -> int:
    """Return a time in milliseconds since the epoch, exactly; 0 for an earlier one."""
    epoch = datetime.datetime.fromtimestamp(0, datetime.UTC)
    return max((time.astimezone(datetime.UTC) - epoch) // datetime.timedelta(milliseconds=1), 0)


async def find_positions(
    router: Router, positions: Mapping[TopicPartition, OffsetPosition]
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """Return the offset of each position; raises as `list_offsets`."""
    ends: dict[TopicPartition, int] = {}
    times_ms: dict[TopicPartition, int] = {}
    for tp, position in positions.items():
        if isinstance(position, datetime.datetime):
            times_ms[tp] = epoch_ms(position)
        else:
            ends[tp] = _ENDS[position]
    listed = await list_offsets(router, ends)
    at_times = await offsets_for_times(router, times_ms) if times_ms else {}
    return at_times | {tp: OffsetAndTimestamp(offsets[0], None) for tp, offsets in listed.items()}
