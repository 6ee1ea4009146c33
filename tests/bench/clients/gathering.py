"""`send()` per message with results awaited later, for this package and aiokafka alike."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from tests.bench.cases import GATHERED, PARTITIONS


async def send_all(producer: Any, topic: str, values: list[bytes]) -> None:
    """Send each value; await `GATHERED` results while as many more are in flight."""
    deliveries: list[Awaitable[object]] = []
    for start in range(0, len(values), GATHERED):
        before = deliveries
        deliveries = [
            await producer.send(topic, value, partition=index % PARTITIONS)
            for index, value in enumerate(values[start : start + GATHERED], start)
        ]
        for delivery in before:
            await delivery
    for delivery in deliveries:
        await delivery
