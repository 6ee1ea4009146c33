"""The way of `send()` with results that are awaited later: this package's and aiokafka's alike."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from tests.bench.cases import GATHERED, PARTITIONS


async def send_all(producer: Any, topic: str, values: list[bytes]) -> None:
    """Send each; the results of so many are awaited when as many more are under way."""
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
