"""Check before the measurements that the topic exists, has leaders, and is empty."""

from __future__ import annotations

from aiokafka08 import AIOKafkaConsumer
from aiokafka08.errors import UnknownTopicOrPartitionError
from examples.demo.run import DemoError

PATIENCE_MS = 15_000
"""Includes the creation of the topic, which takes a second on real brokers."""


async def prepare(bootstrap: str, topic: str, *, patience_ms: int = PATIENCE_MS) -> int:
    """Let the brokers create a missing topic, and return its number of partitions.

    Raises:
        DemoError: the brokers don't create the topic, or it has messages.
        KafkaError: no broker was found, or a broker returned an error.
    """
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, request_timeout_ms=patience_ms)
    try:
        async with consumer:
            partitions = list(consumer.assignment())
            begins = await consumer.beginning_offsets(partitions)
            ends = await consumer.end_offsets(partitions)
    except UnknownTopicOrPartitionError as error:
        raise DemoError(
            f"the brokers at {bootstrap} don't create topic {topic!r} ({error.text}). If "
            "auto.create.topics.enable is off, create a topic and name it with --topic"
        ) from None
    messages = sum(ends[tp] - begins[tp] for tp in partitions)
    if messages:
        raise DemoError(
            f"topic {topic!r} has {messages:,} messages; expected an empty topic, since the demo "
            "counts all messages in it"
        )
    return len(partitions)
