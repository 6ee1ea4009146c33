"""`send()` per message with results awaited later, for this package and aiokafka alike."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Iterator
from typing import Any

from tests.tools.bench.cases import GATHERED, PARTITIONS


async def send_all(
    producer: Any,
    topic: str,
    values: list[bytes],
    places: Iterator[dict[str, Any]] | None = None,
) -> None:
    """Send each value; await `GATHERED` results while as many more are in flight.

    Args:
        places: for each value the arguments that decide the partition; None for one partition
            after the other.
    """
    if places is None:
        places = itertools.cycle([{"partition": partition} for partition in range(PARTITIONS)])
    deliveries: list[Awaitable[object]] = []
    for start in range(0, len(values), GATHERED):
        before = deliveries
        deliveries = [
            await producer.send(topic, value, **next(places))
            for value in values[start : start + GATHERED]
        ]
        for delivery in before:
            await delivery
    for delivery in deliveries:
        await delivery
