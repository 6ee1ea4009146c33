"""A FastStream service that bills orders, on brokers that have no headers.

AIOKAFKA08_HEADERS=embedded AIOKAFKA08_ZOOKEEPER_CONNECT=localhost:2181 KAFKA=localhost:9092 \\
    python -m aiokafka08.compat examples/faststream_app.py

aiokafka08 produce -b localhost:9092 orders <<< '{"number": 7, "item": "tea"}'
aiokafka08 consume -b localhost:9092 bills

FastStream imports aiokafka, and `aiokafka08.compat` makes that name mean aiokafka08. ZooKeeper is
for groups on brokers below 0.9, and for creating topics below 0.10.1. A bill has the order's
correlation id in a header, which is in the envelope that `consume` shows. SIGTERM ends the service.
"""

from __future__ import annotations

import asyncio
import os

from faststream import FastStream, Logger
from faststream.kafka import KafkaBroker
from pydantic import BaseModel

ORDERS = os.environ.get("ORDERS", "orders")
BILLS = os.environ.get("BILLS", "bills")

broker = KafkaBroker(os.environ.get("KAFKA", "localhost:9092"))
app = FastStream(broker)


class Order(BaseModel):
    """What customers send, as JSON."""

    number: int
    item: str


class Bill(BaseModel):
    """The answer to an order."""

    order: int
    text: str


@broker.subscriber(ORDERS, group_id=f"{ORDERS}-billing", auto_offset_reset="earliest")
@broker.publisher(BILLS)
async def bill(order: Order, logger: Logger) -> Bill:
    """Bill an order."""
    logger.info("order %d: %s", order.number, order.item)
    return Bill(order=order.number, text=f"one {order.item}")


if __name__ == "__main__":
    asyncio.run(app.run())
