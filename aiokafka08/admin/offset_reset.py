"""Compute the offsets that a reset of a group commits, from what the caller named.

`admin.groups` calls `check_target` for each target, then `find_offsets`, and commits the result.

Invariant: each offset lies within the log of its partition, as the leaders report it at the time of
the call; otherwise nothing is returned.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Mapping
from typing import Literal

from aiokafka08.admin.offset_positions import epoch_ms
from aiokafka08.errors import IllegalArgumentError
from aiokafka08.net.list_offsets import list_offsets
from aiokafka08.net.offsets_for_times import offsets_for_times
from aiokafka08.net.router import Router
from aiokafka08.protocol.api import EARLIEST, LATEST
from aiokafka08.structs import TopicPartition

ResetTarget = int | Literal["earliest", "latest"] | datetime.datetime
"""Where a group's offset is moved to: an offset, an end of the log, or a time."""


def check_target(tp: object, target: object) -> ResetTarget:
    """Return the target of a partition if it is valid.

    Raises:
        IllegalArgumentError: it is something else than a `ResetTarget`, or a negative offset.
    """
    if isinstance(target, datetime.datetime) or (type(target) is int and target >= 0):
        return target
    if target == "earliest":
        return "earliest"
    if target == "latest":
        return "latest"
    raise IllegalArgumentError(
        f"{tp}: offset {target!r}; expected an integer >= 0, 'earliest', 'latest' or a datetime"
    )


async def find_offsets(
    router: Router, targets: Mapping[TopicPartition, ResetTarget]
) -> dict[TopicPartition, int]:
    """Return the offset that each target means now.

    Raises:
        IllegalArgumentError: an offset is outside the log; names each such partition.
        KafkaError: the leaders didn't report the offsets.
    """
    first, end = await asyncio.gather(
        list_offsets(router, dict.fromkeys(targets, EARLIEST)),
        list_offsets(router, dict.fromkeys(targets, LATEST)),
    )
    times_ms = {
        tp: epoch_ms(target)
        for tp, target in targets.items()
        if isinstance(target, datetime.datetime)
    }
    at_times = await offsets_for_times(router, times_ms) if times_ms else {}
    offsets: dict[TopicPartition, int] = {}
    outside = []
    for tp, target in targets.items():
        if target == "earliest":
            offsets[tp] = first[tp][0]
        elif isinstance(target, int):
            offsets[tp] = target
            if not first[tp][0] <= target <= end[tp][0]:
                outside.append(
                    f"{tp.topic}/{tp.partition}: {target}, expected {first[tp][0]} to {end[tp][0]}"
                )
        else:
            found = at_times.get(tp)
            offsets[tp] = end[tp][0] if found is None else found.offset
    if outside:
        raise IllegalArgumentError(f"offsets outside the log: {'; '.join(outside)}")
    return offsets
