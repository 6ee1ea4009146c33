"""Share a topic's work with other workers. Start as many as you like; stop or kill any of them.

python examples/group_worker.py --bootstrap localhost:9092 --topic greetings --group workers \\
    [--zookeeper localhost:2181]

Brokers from 0.9 on coordinate the group. Brokers of 0.8 need --zookeeper; then consumers written in
Scala or Java may be members of the same group. A worker commits offsets after the work is done. If
it dies, another worker repeats the uncommitted work: processing is at least once. SIGTERM ends a
worker after its current bundle.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
from collections.abc import Collection

from aiokafka08 import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka08.errors import CommitFailedError
from aiokafka08.structs import ConsumerRecord

log = logging.getLogger("worker")


class Shares(ConsumerRebalanceListener):
    """Logs the partitions of this worker. The consumer awaits it: flush work in progress here."""

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Called before the partitions go to other members."""
        log.info("revoked %s", sorted(tp.partition for tp in revoked))

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Called before the first message of these partitions."""
        log.info("assigned %s", sorted(tp.partition for tp in assigned))


async def handle(record: ConsumerRecord[bytes, bytes]) -> None:
    """Do the work for one message."""
    print(f"{record.partition}/{record.offset} {record.value!r}", flush=True)


async def commit(consumer: AIOKafkaConsumer, done: dict[TopicPartition, int]) -> None:
    """Commit the work done, for partitions that are still assigned to this worker."""
    done = {tp: offset for tp, offset in done.items() if tp in consumer.assignment()}
    if done:
        try:
            await consumer.commit(done)
        except CommitFailedError as error:  # another worker owns the partitions by now
            log.warning("%s", error)


async def work(bootstrap: str, topic: str, group: str, zookeeper: str | None) -> None:
    """Process bundles of messages until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        client_id=f"{group}-{os.getpid()}",  # tells the workers apart, in brokers' lists and logs
        group_id=group,
        zookeeper_connect=zookeeper,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    consumer.subscribe([topic], listener=Shares())
    async with consumer:
        while not stop.is_set():
            bundle = await consumer.getmany(timeout_ms=200, max_records=100)
            for records in bundle.values():
                for record in records:
                    await handle(record)
            await commit(consumer, {tp: records[-1].offset + 1 for tp, records in bundle.items()})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A worker of a group.")
    parser.add_argument("--bootstrap", default="localhost:9092")
    parser.add_argument("--topic", default="greetings")
    parser.add_argument("--group", default="workers")
    parser.add_argument("--zookeeper", help="host:port/chroot, for brokers of 0.8")
    options = parser.parse_args()
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(process)d %(levelname)s %(message)s"
    )
    asyncio.run(work(options.bootstrap, options.topic, options.group, options.zookeeper))
