"""An embedded cluster with data that moves, for `aiokafka08 console --demo`.

`demo_cluster` runs it. It has what an operator looks for: topics of different rates, a group that
keeps up, one that falls behind and one without members, and a message that isn't JSON.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from aiokafka08.consumer import AIOKafkaConsumer
from aiokafka08.producer import AIOKafkaProducer
from aiokafka08.testing import EmbeddedCluster

_TOPICS: Final = {"orders": 6, "payments": 3, "clicks": 12, "audit.log": 1, "prices": 3}
_PER_S: Final = {"orders": 40, "payments": 12, "clicks": 90, "prices": 5}
_GROUPS: Final = {"billing": ("orders", 400), "reports": ("clicks", 60), "ledger": ("payments", 50)}
"""The groups with members: the topic that each reads, and how many messages a second at most."""
_TICK_S: Final = 0.25
_GOODS: Final = ("tea", "coffee", "sugar", "milk", "café crème")


@asynccontextmanager
async def demo_cluster() -> AsyncIterator[str]:
    """Yield the addresses of a cluster, whose topics and groups move until the block ends."""
    async with EmbeddedCluster(brokers=3, version="0.10", topics=_TOPICS) as cluster:
        servers = cluster.bootstrap_servers
        cluster.append("audit.log", 0, [b"\x00\x00\x00\x00\x07not JSON", b'{"user": "ann"}'])
        async with AsyncExitStack() as exits:
            producer = await exits.enter_async_context(
                AIOKafkaProducer(bootstrap_servers=servers, linger_ms=20)
            )
            await _leave_group(servers, producer)
            tasks = [asyncio.create_task(_produce(producer))]
            for group, (topic, per_s) in _GROUPS.items():
                consumer = await exits.enter_async_context(
                    AIOKafkaConsumer(
                        topic,
                        bootstrap_servers=servers,
                        group_id=group,
                        client_id=f"{group}-1",
                        auto_offset_reset="earliest",
                        enable_auto_commit=False,
                    )
                )
                tasks.append(asyncio.create_task(_consume(consumer, per_s)))
            try:
                yield servers
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)


async def _leave_group(servers: str, producer: AIOKafkaProducer) -> None:
    """Commit something in a group that then has no member any more."""
    for number in range(40):
        await producer.send_and_wait("prices", _order(number), key=b"tea")
    async with AIOKafkaConsumer(
        "prices",
        bootstrap_servers=servers,
        group_id="nightly-export",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        await consumer.getmany(timeout_ms=1000, max_records=10)
        await consumer.commit()


async def _produce(producer: AIOKafkaProducer) -> None:
    number, ticks = 0, 0
    while True:
        ticks += 1
        wave = 1 + 0.5 * math.sin(ticks * _TICK_S / 20)
        for topic, per_s in _PER_S.items():
            for _ in range(round(per_s * _TICK_S * wave * random.uniform(0.7, 1.3))):
                number += 1
                await producer.send(topic, _order(number), key=f"customer-{number % 97}".encode())
        await asyncio.sleep(_TICK_S)


def _order(number: int) -> bytes:
    order = {
        "id": number,
        "item": random.choice(_GOODS),
        "price": round(random.uniform(1, 30), 2),
        "address": {"city": random.choice(("Bremen", "Köln", "Wien")), "zip": "28195"},
        "tags": ["new", "web"] if number % 3 else [],
    }
    return json.dumps(order, ensure_ascii=False).encode()


async def _consume(consumer: AIOKafkaConsumer[bytes, bytes], per_s: int) -> None:
    while True:
        await consumer.getmany(timeout_ms=200, max_records=max(round(per_s * 0.5), 1))
        await consumer.commit()
        await asyncio.sleep(0.5)
