"""The stage that writes: one producer sends all lines to the topic."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from aiokafka08 import AIOKafkaProducer
from aiokafka08.partitioner import DefaultPartitioner
from aiokafka08.producer.deliveries import Deliveries
from examples.demo.progress import Meter
from examples.demo.run import Run, Speed, on_loop


def ingest(run: Run) -> Sequence[Speed]:
    """Send the input with acks=all and wait for all acknowledgements."""
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
        in_flight: deque[Deliveries] = deque()
        for key, lines in run.input.parts():
            # All lines of a module have the same key, so one partition.
            deliveries = await producer.send_many(
                run.topic,
                lines,
                keys=[key] * len(lines),
                partition=partitioner(key, partitions, partitions),
            )  # waits while the buffer is full
            in_flight.append(deliveries)
            while in_flight and in_flight[0].done():
                meter.advance(len(await in_flight.popleft()))
        for deliveries in in_flight:
            meter.advance(len(await deliveries))
    finally:
        await producer.stop(timeout=1)  # nothing is buffered, unless this was interrupted
