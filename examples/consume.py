"""Print a topic from its beginning to the end that it has at the start (or for ever).

python examples/consume.py --bootstrap localhost:9092 --topic greetings [--follow]
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from aiokafka08 import AIOKafkaConsumer
from aiokafka08.errors import KafkaError


async def consume(bootstrap: str, topic: str, follow: bool) -> None:
    """Read all partitions of a topic, without a group."""
    async with AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        ends = await consumer.end_offsets(list(consumer.assignment()))
        missing = {partition for partition, end in ends.items() if end > 0}
        while follow or missing:
            for partition, records in (await consumer.getmany(timeout_ms=1000)).items():
                for record in records:
                    print(f"{record.partition}/{record.offset} {record.key!r} {record.value!r}")
                if await consumer.position(partition) >= ends[partition]:
                    missing.discard(partition)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Print a topic.")
    parser.add_argument("--bootstrap", default="localhost:9092")
    parser.add_argument("--topic", default="greetings")
    parser.add_argument("--follow", action="store_true", help="wait for new messages at the end")
    options = parser.parse_args()
    try:
        asyncio.run(consume(options.bootstrap, options.topic, options.follow))
    except KeyboardInterrupt:
        pass
    except KafkaError as error:
        sys.exit(f"error: {error}")
