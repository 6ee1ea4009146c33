"""What any release of kafka-python from 1.4.7 to 2.2 gets from the brokers: see the package.

It uses only what all these releases have. A member of the group polls in a thread, because a poll
waits until all members have joined.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.structs import OffsetAndMetadata

PATIENCE_S = 60.0
TIME_MS = 1_600_000_000_000


def step(name: str, value: object) -> None:
    print(json.dumps([name, value]), flush=True)


def tried(name: str, act: Callable[[], object]) -> None:
    """Do a step that may fail; the name of the error is its result then."""
    try:
        value = act()
    except Exception as error:
        value = type(error).__name__
    step(name, value)


def codes(response: Any) -> object:
    for name in ("topic_errors", "topic_error_codes", "topics"):
        with contextlib.suppress(AttributeError):
            return sorted(list(one)[:2] for one in getattr(response, name))
    raise TypeError(f"{response!r} has no topics")


def offset(value: int) -> Any:
    more = (-1,) if "leader_epoch" in OffsetAndMetadata._fields else ()
    return OffsetAndMetadata(value, "note", *more)


def read(consumer: Any, count: int) -> list[Any]:
    found: list[Any] = []
    end = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < end:
        for records in consumer.poll(timeout_ms=500).values():
            found += [
                [one.partition, one.offset, (one.key or b"").decode(), one.value.decode(),
                 one.timestamp]
                for one in records
            ]  # fmt: skip
    return sorted(found)


def by_partition(offsets: Any) -> object:
    return sorted((tp.partition, value) for tp, value in offsets.items())


def times(consumer: Any, partitions: list[Any], time_ms: int) -> object:
    found = consumer.offsets_for_times(dict.fromkeys(partitions, time_ms))
    return sorted((tp.partition, one and [one.offset, one.timestamp]) for tp, one in found.items())


def produce(topic: str, options: dict[str, Any]) -> None:
    producer = KafkaProducer(acks="all", **options)
    step("api_version", list(producer.config["api_version"])[:3])
    step("partitions", sorted(producer.partitions_for(topic)))
    for number in range(30):
        producer.send(
            topic,
            b"value %d" % number,
            key=b"k%d" % number,
            partition=number % 3,
            timestamp_ms=TIME_MS + number * 1000,
        )
    producer.flush(PATIENCE_S)
    last = producer.send(topic, b"last", partition=1, timestamp_ms=TIME_MS + 10**8).get(PATIENCE_S)
    step("record", [last.partition, last.offset, last.timestamp])
    producer.close()
    zipped = KafkaProducer(acks=1, compression_type="gzip", **options)
    for number in range(20):
        zipped.send(topic, b"zipped %d" % number, partition=2, timestamp_ms=TIME_MS + 10**8)
    zipped.close()


def consume(partitions: list[Any], options: dict[str, Any]) -> None:
    options = {**options, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    consumer = KafkaConsumer(**options)
    consumer.assign(partitions)
    step("listed", partitions[0].topic in consumer.topics())
    step("beginning", by_partition(consumer.beginning_offsets(partitions)))
    step("end", by_partition(consumer.end_offsets(partitions)))
    tried("times", lambda: times(consumer, partitions, TIME_MS + 10_000))
    tried("times after all", lambda: times(consumer, partitions, TIME_MS + 10**9))
    step("read", read(consumer, 51))
    consumer.seek(partitions[0], 7)
    consumer.seek_to_end(partitions[1])
    consumer.seek(partitions[2], 10)
    step("positions", [consumer.position(one) for one in partitions])
    step("read on", read(consumer, 23))
    consumer.seek(partitions[0], 99)
    step("out of range", read(consumer, 10))
    consumer.close()
    small = KafkaConsumer(**options, fetch_max_bytes=200, max_partition_fetch_bytes=150)
    small.assign(partitions)
    step("small fetches", len(read(small, 51)))
    small.close()


def join(topic: str, group: str, partitions: list[Any], options: dict[str, Any]) -> None:
    options = {**options, "group_id": group, "auto_offset_reset": "earliest"}
    member = KafkaConsumer(topic, **options, enable_auto_commit=False)
    step("group read", read(member, 51))
    step("assigned", sorted(tp.partition for tp in member.assignment()))
    member.commit(dict(zip(partitions, map(offset, (5, 11, 30)), strict=True)))
    step("committed", [member.committed(one) for one in partitions])
    member.close()
    first = KafkaConsumer(topic, **options, auto_commit_interval_ms=100)
    step("read behind the commit", read(first, 5))
    theirs: set[int] = set()
    ended = threading.Event()

    def be_a_member() -> None:
        second = KafkaConsumer(topic, **options, enable_auto_commit=False)
        while not ended.is_set():
            second.poll(timeout_ms=200)
            now = {tp.partition for tp in second.assignment()}
            theirs.intersection_update(now)
            theirs.update(now)
        second.close()

    thread = threading.Thread(target=be_a_member)
    thread.start()
    ours: set[int] = set()
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end and not (ours and theirs and not ours & theirs):
        first.poll(timeout_ms=200)
        ours = {tp.partition for tp in first.assignment()}
    step("two members", sorted([sorted(ours), sorted(theirs)]))
    ended.set()
    thread.join()
    first.close()
    after = KafkaConsumer(group_id=group, enable_auto_commit=False, **{
        name: options[name] for name in ("bootstrap_servers", "api_version")
    })  # fmt: skip
    step("auto-committed", [after.committed(one) for one in partitions])
    after.close()


def main(servers: str, run: str, version: str) -> None:
    pinned = None if version == "auto" else tuple(map(int, version.split(".")))
    options: dict[str, Any] = {"bootstrap_servers": servers.split(","), "api_version": pinned}
    topic, group = f"t{run}", f"g{run}"
    partitions = [TopicPartition(topic, number) for number in range(3)]
    admin = KafkaAdminClient(**options)

    def create(*topics: tuple[str, int, int]) -> object:
        return codes(admin.create_topics([NewTopic(*one) for one in topics]))

    tried("create", lambda: create((topic, 3, 1), (f"{topic}x", 1, 1)))
    tried("create again", lambda: create((topic, 3, 1)))
    tried("create without partitions", lambda: create((f"{topic}y", 0, 1)))
    tried("create with nine replicas", lambda: create((f"{topic}y", 1, 9)))
    tried("delete", lambda: codes(admin.delete_topics([f"{topic}x"])))
    tried("delete what isn't there", lambda: codes(admin.delete_topics([f"{topic}y"])))
    produce(topic, options)
    consume(partitions, options)
    join(topic, group, partitions, options)
    tried("groups", lambda: group in [one[0] for one in admin.list_consumer_groups()])
    tried("described", lambda: [
        [one.state, one.protocol_type] for one in admin.describe_consumer_groups([group])
    ])  # fmt: skip
    tried("offsets", lambda: sorted(
        (tp.partition, one.offset, one.metadata)
        for tp, one in admin.list_consumer_group_offsets(group).items()
    ))  # fmt: skip
    producer = KafkaProducer(**options)
    made = producer.send(f"auto{run}", b"made").get(PATIENCE_S)
    step("auto-created", [made.offset, len(producer.partitions_for(f"auto{run}"))])
    producer.close()
    tried("delete all", lambda: codes(admin.delete_topics([topic, f"auto{run}"])))
    admin.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
