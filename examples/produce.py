"""Send numbered messages and print partition and offset of each.

python examples/produce.py --bootstrap localhost:9092 --topic greetings --count 10
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from aiokafka08 import AIOKafkaProducer
from aiokafka08.errors import KafkaError


async def produce(bootstrap: str, topic: str, count: int) -> None:
    """Send `count` messages; acks="all" waits for every replica in sync."""
    async with AIOKafkaProducer(
        bootstrap_servers=bootstrap, acks="all", compression_type="snappy", linger_ms=5
    ) as producer:
        # send() returns when the message is in its batch. The results are awaited later, so that
        # many messages share a request.
        deliveries = [
            await producer.send(topic, f"hello {number}".encode(), key=str(number).encode())
            for number in range(count)
        ]
        for delivery in deliveries:
            sent = await delivery
            print(f"{sent.topic} partition {sent.partition} offset {sent.offset}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Send numbered messages.")
    parser.add_argument("--bootstrap", default="localhost:9092")
    parser.add_argument("--topic", default="greetings")
    parser.add_argument("--count", type=int, default=10)
    options = parser.parse_args()
    try:
        asyncio.run(produce(options.bootstrap, options.topic, options.count))
    except KafkaError as error:
        sys.exit(f"error: {error}")
