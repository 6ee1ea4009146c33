"""The stage that writes: all lines into the topic, by one producer."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from aiokafka08 import AIOKafkaProducer
from aiokafka08.producer.deliveries import Deliveries
from aiokafka08.producer.partitioner import DefaultPartitioner
from examples.demo.progress import Meter
from examples.demo.run import Run, Speed, on_loop


def ingest(run: Run) -> Sequence[Speed]:
    """Send the input with acks=all; ends when all of it is acknowledged."""
    with Meter(run.console, "ingest", run.input.messages, "messages") as meter:
        on_loop(_send(run, meter))
    return [Speed("ingest", run.input.messages, run.input.sent.size_bytes, meter.seconds)]


async def _send(run: Run, meter: Meter) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=run.bootstrap,
        acks="all",
        compression_type=run.codec,
        linger_ms=5,
        max_batch_size=256 * 1024,
        delivery_timeout_ms=30_000,
    )
    await producer.start()
    try:
        partitions = sorted(await producer.partitions_for(run.topic))
        partitioner = DefaultPartitioner()
        under_way: deque[Deliveries] = deque()
        for key, lines in run.input.parts():
            # All lines of a module have its key: the partitioner needs to be asked only once.
            deliveries = await producer.send_many(
                run.topic,
                lines,
                keys=[key] * len(lines),
                partition=partitioner(key, partitions, partitions),
            )  # waits while the buffer is full
            under_way.append(deliveries)
            while under_way and under_way[0].done():
                meter.advance(len(await under_way.popleft()))
        for deliveries in under_way:
            meter.advance(len(await deliveries))
    finally:
        await producer.stop(timeout=1)  # nothing is left, unless this was interrupted
