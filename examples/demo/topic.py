"""The topic: there, with leaders, and empty, before anything is measured."""

from __future__ import annotations

from aiokafka08 import AIOKafkaConsumer
from aiokafka08.errors import UnknownTopicOrPartitionError
from examples.demo.run import DemoError

PATIENCE_MS = 15_000
"""For the topic's creation too, which takes real brokers a second."""


async def prepare(bootstrap: str, topic: str, *, patience_ms: int = PATIENCE_MS) -> int:
    """Let the brokers create the topic if it isn't there; gives how many partitions it has.

    Raises:
        DemoError: it isn't created, or has messages.
        KafkaError: no broker was found there, or what it answers.
    """
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, request_timeout_ms=patience_ms)
    try:
        async with consumer:
            partitions = list(consumer.assignment())
            begins = await consumer.beginning_offsets(partitions)
            ends = await consumer.end_offsets(partitions)
    except UnknownTopicOrPartitionError as error:
        raise DemoError(
            f"the brokers at {bootstrap} don't create topic {topic!r} ({error.text}); where "
            "auto.create.topics.enable is off, create a topic and name it with --topic"
        ) from None
    messages = sum(ends[tp] - begins[tp] for tp in partitions)
    if messages:
        raise DemoError(
            f"topic {topic!r} has {messages:,} messages already; the demo counts all that it "
            "finds, so it needs an empty one"
        )
    return len(partitions)
