"""A FastStream service as a user of aiokafka writes it; test_faststream.py runs it by `compat`.

    python -m aiokafka08.compat faststream_service.py <servers> <prefix of topics> <group or "">

It prints what its subscribers got, as JSON. Without a group it has only those that need none.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from faststream import AckPolicy, FastStream
from faststream.kafka import KafkaBroker, KafkaMessage, TestKafkaBroker
from pydantic import BaseModel

SERVERS, PREFIX, GROUP = sys.argv[1:]
PARALLEL = 3

broker = KafkaBroker(SERVERS)
app = FastStream(broker)
seen: list[list[Any]] = []
all_seen = asyncio.Event()
expected = 5 if not GROUP else 7 + PARALLEL
rejected: list[str] = []
running: list[int] = []
together = asyncio.Event()


class Order(BaseModel):
    """What the service publishes and gets."""

    number: int
    item: str = "book"


def note(*row: Any) -> None:
    """Record what a subscriber got."""
    seen.append(list(row))
    if len(seen) == expected:
        all_seen.set()


@broker.subscriber(f"{PREFIX}orders", group_id=GROUP or None, auto_offset_reset="earliest")
@broker.publisher(f"{PREFIX}answers")
async def on_order(order: Order, message: KafkaMessage) -> dict[str, int]:
    """Answer an order."""
    headers = message.headers.get("own")
    note("order", order.number, message.content_type, message.correlation_id, headers)
    return {"answer": order.number}


@broker.subscriber(f"{PREFIX}answers", auto_offset_reset="earliest")
async def on_answer(body: dict[str, int], message: KafkaMessage) -> None:
    """Get an answer."""
    note("answer", body, message.content_type, message.correlation_id)


@broker.subscriber(f"{PREFIX}batch", batch=True, auto_offset_reset="earliest")
async def on_batch(bodies: list[int]) -> None:
    """Get a batch."""
    for body in bodies:
        note("batch", body)


if GROUP:

    @broker.subscriber(
        f"{PREFIX}manual",
        group_id=f"{GROUP}-manual",
        auto_offset_reset="earliest",
        ack_policy=AckPolicy.MANUAL,
    )
    async def on_manual(body: str, message: KafkaMessage) -> None:
        """Reject a message once, then accept it."""
        note("manual", body)
        if rejected:
            await message.ack()
        else:
            rejected.append(body)
            await message.nack()

    @broker.subscriber(
        f"{PREFIX}parallel",
        group_id=f"{GROUP}-parallel",
        auto_offset_reset="earliest",
        max_workers=PARALLEL,
        ack_policy=AckPolicy.ACK_FIRST,
    )
    async def on_parallel(body: int) -> None:
        """Wait until all workers have a message."""
        running.append(body)
        if len(running) == PARALLEL:
            together.set()
        await together.wait()
        note("parallel", body)


async def main() -> None:
    """Test the service without Kafka, then run it."""
    async with TestKafkaBroker(broker):
        await broker.publish(Order(number=7), f"{PREFIX}orders")
        assert on_order.mock is not None
        on_order.mock.assert_called_once_with({"number": 7, "item": "book"})
    seen.clear()
    await app.start()
    await broker.publish(
        Order(number=1), f"{PREFIX}orders", key=b"k", correlation_id="id-1", headers={"own": "ä"}
    )
    await broker.publish_batch(1, 2, 3, topic=f"{PREFIX}batch")
    if GROUP:
        await broker.publish("hello", f"{PREFIX}manual")
        for number in range(PARALLEL):
            await broker.publish(number, f"{PREFIX}parallel")
    async with asyncio.timeout(60):
        await all_seen.wait()
    await app.stop()
    print(json.dumps(sorted(seen, key=str)))


if __name__ == "__main__":
    asyncio.run(main())
