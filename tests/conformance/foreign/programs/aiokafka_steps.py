"""What aiokafka 0.7 and 0.8 get from the brokers: see the package."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

PATIENCE_S = 60.0
TIME_MS = 1_600_000_000_000


def step(name: str, value: object) -> None:
    print(json.dumps([name, value]), flush=True)


async def read(consumer: Any, count: int) -> list[Any]:
    found: list[Any] = []
    end = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < end:
        for records in (await consumer.getmany(timeout_ms=500)).values():
            found += [
                [one.partition, one.offset, (one.key or b"").decode(), one.value.decode(),
                 one.timestamp]
                for one in records
            ]  # fmt: skip
    return sorted(found)


def by_partition(offsets: Any) -> object:
    return sorted((tp.partition, value) for tp, value in offsets.items())


async def produce(topic: str, options: dict[str, Any]) -> None:
    producer = AIOKafkaProducer(acks="all", **options)
    await producer.start()
    step("partitions", sorted(await producer.partitions_for(topic)))
    for number in range(30):
        await producer.send(
            topic,
            b"value %d" % number,
            key=b"k%d" % number,
            partition=number % 3,
            timestamp_ms=TIME_MS + number * 1000,
        )
    await producer.flush()
    last = await producer.send_and_wait(topic, b"last", partition=1, timestamp_ms=TIME_MS + 10**8)
    step("record", [last.partition, last.offset, last.timestamp])
    await producer.stop()
    zipped = AIOKafkaProducer(acks=1, compression_type="gzip", **options)
    await zipped.start()
    for number in range(20):
        await zipped.send(topic, b"zipped %d" % number, partition=2, timestamp_ms=TIME_MS + 10**8)
    await zipped.stop()


async def consume(partitions: list[Any], options: dict[str, Any]) -> None:
    options = {**options, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    consumer = AIOKafkaConsumer(**options)
    await consumer.start()
    consumer.assign(partitions)
    step("listed", partitions[0].topic in await consumer.topics())
    step("beginning", by_partition(await consumer.beginning_offsets(partitions)))
    step("end", by_partition(await consumer.end_offsets(partitions)))
    for at in (TIME_MS + 10_000, TIME_MS + 10**9):
        found = await consumer.offsets_for_times(dict.fromkeys(partitions, at))
        step("times", sorted(
            (tp.partition, one and [one.offset, one.timestamp]) for tp, one in found.items()
        ))  # fmt: skip
    step("read", await read(consumer, 51))
    consumer.seek(partitions[0], 7)
    await consumer.seek_to_end(partitions[1])
    consumer.seek(partitions[2], 10)
    step("positions", [await consumer.position(one) for one in partitions])
    step("read on", await read(consumer, 23))
    consumer.seek(partitions[0], 99)
    step("out of range", await read(consumer, 10))
    await consumer.stop()
    small = AIOKafkaConsumer(**options, fetch_max_bytes=200, max_partition_fetch_bytes=150)
    await small.start()
    small.assign(partitions)
    step("small fetches", len(await read(small, 51)))
    await small.stop()


async def join(topic: str, group: str, partitions: list[Any], options: dict[str, Any]) -> None:
    grouped = {**options, "group_id": group, "auto_offset_reset": "earliest"}
    member = AIOKafkaConsumer(topic, **grouped, enable_auto_commit=False)
    await member.start()
    step("group read", await read(member, 51))
    step("assigned", sorted(tp.partition for tp in member.assignment()))
    await member.commit({partitions[0]: (5, "note"), partitions[1]: 11, partitions[2]: 30})
    step("committed", [await member.committed(one) for one in partitions])
    await member.stop()
    first = AIOKafkaConsumer(topic, **grouped, auto_commit_interval_ms=100)
    await first.start()
    step("read behind the commit", await read(first, 5))
    second = AIOKafkaConsumer(topic, **grouped, enable_auto_commit=False)
    await second.start()
    shares: list[set[int]] = [set(), set()]
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end and not (all(shares) and not shares[0] & shares[1]):
        for consumer in (first, second):
            await consumer.getmany(timeout_ms=200)
        shares = [{tp.partition for tp in one.assignment()} for one in (first, second)]
    step("two members", sorted(map(sorted, shares)))
    await first.stop()
    await second.stop()
    after = AIOKafkaConsumer(group_id=group, enable_auto_commit=False, **options)
    await after.start()
    step("auto-committed", [await after.committed(one) for one in partitions])
    await after.stop()


async def main(servers: str, run: str, version: str) -> None:
    options: dict[str, Any] = {"bootstrap_servers": servers, "api_version": version}
    topic = f"t{run}"
    partitions = [TopicPartition(topic, number) for number in range(3)]
    await produce(topic, options)
    await consume(partitions, options)
    await join(topic, f"g{run}", partitions, options)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
