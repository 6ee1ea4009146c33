"""The recorder on the embedded cluster: what it writes down; right runs pass the checks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from aiokafka08 import (
    AIOKafkaConsumer,
    AIOKafkaProducer,
    ConsumerRebalanceListener,
    TopicPartition,
)
from aiokafka08.errors import KafkaError, KafkaTimeoutError, NoBrokersAvailable
from aiokafka08.protocol.requests.produce import ProduceRequest
from aiokafka08.testing import Answer, Close, EmbeddedCluster
from aiokafka08.testing.history import Message, Operation, Recorder, check, report
from tests.support.waiting import until

T0 = TopicPartition("orders", 0)
QUICK: dict[str, Any] = {"request_timeout_ms": 2000, "retry_backoff_ms": 10}


def made(recorder: Recorder, cluster: EmbeddedCluster, process: str, **options: Any) -> Any:
    producer = AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers,
        on_event=recorder.on_event(process),
        **QUICK,
        **options,
    )
    return recorder.producer(process, producer, deadline_s=122.0)


def reader(recorder: Recorder, cluster: EmbeddedCluster, process: str, **options: Any) -> Any:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        **QUICK,
        **options,
    )
    return recorder.consumer(process, consumer, deadline_s=4.0)


def assert_right(recorder: Recorder) -> None:
    found = check(recorder.operations, late_s=10.0)
    assert not found, report(found)


def calls(recorder: Recorder, process: str) -> list[str]:
    return [one.call for one in recorder.operations if one.process == process]


def find(recorder: Recorder, call: str) -> Operation:
    [found] = [one for one in recorder.operations if one.call == call]
    return found


async def test_each_sending_call_is_recorded_with_offsets() -> None:
    import pyarrow as pa

    recorder = Recorder()
    async with EmbeddedCluster(topics={"orders": 1}) as cluster:
        async with made(recorder, cluster, "p") as producer:
            await (await producer.send("orders", b"a", partition=0))
            await producer.send_and_wait("orders", b"b", key=b"k")
            await (await producer.send_many("orders", [b"c", b"d"]))
            rows = pa.RecordBatch.from_pydict({"value": [b"e", b"f"]})
            await (await producer.send_arrow("orders", rows))
            batch = producer.create_batch()
            assert batch.append(key=None, value=b"g", timestamp=None) is not None
            batch.append(key=None, value=b"h", timestamp=None)
            await (await producer.send_batch(batch, "orders", partition=0))
            await producer.flush()
        recorder.note_log(T0, cluster.log("orders", 0))
        async with reader(recorder, cluster, "c") as consumer:
            consumer.assign([T0])
            polled: list[bytes] = []
            while len(polled) < 8:
                found = await consumer.getmany(timeout_ms=500, max_records=3)
                polled += [one.value for records in found.values() for one in records]
            assert b"".join(polled) == b"abcdefgh"
        recorder.note_left()
    sent = [message for one in recorder.operations for message in one.sent]
    assert sent == [Message("orders/0", value, place) for place, value in enumerate("abcdefgh")]
    assert calls(recorder, "p") == [
        *("start", "send", "send", "send_many", "send_arrow", "send_batch", "flush", "stop"),
        *("ready", "metrics", "left"),
    ]
    assert_right(recorder)


async def test_each_polling_call_is_recorded() -> None:
    recorder = Recorder()
    async with EmbeddedCluster(topics={"orders": 1}) as cluster:
        cluster.append("orders", 0, [b"%d" % number for number in range(6)])
        async with reader(recorder, cluster, "c") as consumer:
            consumer.assign([T0])
            await consumer.getone()
            async for _ in consumer:
                break
            await consumer.getmany(timeout_ms=500, max_records=1)
            batch = await consumer.getmany_arrow(timeout_ms=500, max_records=1)
            assert batch.num_rows == 1
            assert await consumer.position(T0) == 4
            consumer.seek(T0, 5)
            await consumer.getone()
            await consumer.seek_to_beginning()
            await consumer.getone()
            assert consumer.metrics()["messages_consumed"] == 6
    polled = [message for one in recorder.operations for message in one.polled]
    assert polled == [Message("orders/0", str(n), n) for n in (0, 1, 2, 3, 5, 0)]
    assert_right(recorder)


async def test_memory_of_a_consumer_is_judged_with_its_limit() -> None:
    recorder = Recorder()
    async with EmbeddedCluster(topics={"orders": 1}) as cluster:
        cluster.append("orders", 0, [bytes(1000) + b"%d" % number for number in range(9)])
        async with reader(recorder, cluster, "c", max_partition_fetch_bytes=2000) as consumer:
            consumer.assign([T0])
            await until(lambda: consumer.metrics()["buffered_bytes"] > 2000, "a full buffer")
            await consumer.getone()
    assert_right(recorder)
    last = [one for one in recorder.operations if one.call == "metrics"][-2]
    limit = float(last.facts["buffered_limit_bytes"])
    assert float(last.facts["buffered_bytes"]) <= limit
    more = {**last.facts, "buffered_bytes": limit + 1}
    wrong = [replace(one, facts=more) if one is last else one for one in recorder.operations]
    assert "memory-exceeded" in {one.name for one in check(wrong)}


async def test_bytes_left_by_a_stopped_consumer_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder()
    async with EmbeddedCluster(topics={"orders": 1}) as cluster:
        cluster.append("orders", 0, [b"tea"] * 9)
        async with reader(recorder, cluster, "c") as consumer:
            consumer.assign([T0])
            await consumer.getone()
            cluster.append("orders", 0, [b"milk"])
            await until(lambda: consumer.metrics()["buffered_bytes"], "a message in the buffer")
            assert_right(recorder)

            async def keep() -> None:
                pass

            monkeypatch.setattr(consumer._engine, "_drop_buffers", keep)
    [left] = [one for one in check(recorder.operations) if one.name == "left-behind"]
    assert left.facts.keys() == {"buffered_bytes"}


async def test_ready_is_judged_by_connections_and_expectations() -> None:
    recorder = Recorder()
    async with (
        EmbeddedCluster(topics={"orders": 1}) as cluster,
        made(recorder, cluster, "p") as producer,
    ):
        recorder.expect_ready("p", True)
        await producer.send_and_wait("orders", b"a")
        assert producer.ready()
        recorder.expect_ready("p", None)
        cluster.kill(0)
        await until(lambda: not producer.ready(), "the connections are closed")
        recorder.expect_ready("p", False)
        producer.metrics()
    found = [one.facts for one in recorder.operations if "ready" in one.facts]
    assert [one.get("expected") for one in (found[0], found[1], found[-1])] == [True, None, False]
    assert float(found[0]["connections"]) > 0 == found[-1]["connections"]
    assert_right(recorder)
    wrong = [
        replace(one, facts={**one.facts, "ready": True}) if "ready" in one.facts else one
        for one in recorder.operations
    ]
    assert {"wrong-ready"} == {one.name for one in check(wrong, late_s=10.0)}


async def test_calls_have_the_deadlines_that_a_consumer_promises() -> None:
    recorder = Recorder()
    async with EmbeddedCluster(topics={"orders": 1}) as cluster:
        cluster.append("orders", 0, [b"a", b"b"])
        for name, deadline_s in (("c", None), ("d", 7.0)):
            plain = AIOKafkaConsumer(
                bootstrap_servers=cluster.bootstrap_servers,
                auto_offset_reset="earliest",
                group_id=name,
                enable_auto_commit=False,
                start_timeout_ms=3000,
                **QUICK,
            )
            consumer = recorder.consumer(name, plain, deadline_s)
            consumer.assign([T0])
            async with consumer:
                await consumer.getone()
                await consumer.__anext__()
                await consumer.position(T0)
                await consumer.commit()
                await consumer.committed(T0)
    told = {(one.process, one.call): one.deadline_s for one in recorder.operations}
    for call in ("position", "commit", "committed"):
        assert (told["c", call], told["d", call]) == (2.0, 7.0)
    assert (told["c", "start"], told["d", "start"]) == (6.0, 7.0)
    assert (told["c", "stop"], told["d", "stop"]) == (None, 7.0)
    assert {told[name, call] for name in "cd" for call in ("getone", "anext")} == {None}
    assert_right(recorder)


async def test_start_that_waits_for_a_group_has_no_deadline() -> None:
    recorder = Recorder()
    servers: dict[str, Any] = {"bootstrap_servers": "localhost:1", "start_timeout_ms": 1}
    consumer = recorder.consumer("c", AIOKafkaConsumer(**servers, group_id="g"))
    consumer.subscribe(["orders"])
    producer = recorder.producer("p", AIOKafkaProducer(**servers))
    for client in (consumer, producer):
        with pytest.raises(NoBrokersAvailable):
            await client.start()
    starts = [one for one in recorder.operations if one.call == "start"]
    assert [(one.status, one.deadline_s) for one in starts] == [("fail", None), ("fail", 0.002)]


async def test_rebalances_and_commits_of_a_group_are_recorded() -> None:
    recorder = Recorder()
    seen: list[str] = []

    class Listener(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
            seen.append("revoked")

        async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
            seen.append("assigned")

    async with EmbeddedCluster(version="0.9", topics={"orders": 2}) as cluster:
        for partition in range(2):
            cluster.append("orders", partition, [b"%d-%d" % (partition, n) for n in range(3)])
        options = {"group_id": "g", "enable_auto_commit": False}
        async with reader(recorder, cluster, "c", **options) as first:
            first.subscribe(["orders"], listener=Listener())
            await first.getone()
            await first.commit()
            async with reader(recorder, cluster, "d", **options) as second:
                second.subscribe(["orders"])
                await second.getone()
                await second.commit()
                [mine] = second.assignment()
                assert await second.committed(mine) is not None
    owners = [one for one in recorder.operations if one.call == "assigned"]
    assert {one.process for one in owners} == {"c", "d"}
    assert all(one.generation is not None and one.group == "g" for one in owners)
    assert {"revoked", "assigned"} == set(seen)
    both = [one for one in owners if one.generation == owners[-1].generation]
    assert sorted(name for one in both for name in one.partitions) == ["orders/0", "orders/1"]
    commit = next(one for one in recorder.operations if one.call == "commit")
    assert list(commit.offsets.values()) == [1]
    assert {*commit.partitions, *commit.offsets} == {"orders/0", "orders/1"}
    assert_right(recorder)


async def test_retry_that_may_store_twice_explains_a_duplicate() -> None:
    recorder = Recorder()
    async with EmbeddedCluster(topics={"orders": 1}) as cluster:
        cluster.fault(ProduceRequest, then=Close(after_bytes=0), times=1)
        async with made(recorder, cluster, "p") as producer:
            await producer.send_and_wait("orders", b"a")
        recorder.note_log(T0, cluster.log("orders", 0))
        assert len(cluster.log("orders", 0)) == 2
    assert find(recorder, "retried").facts == {"messages": 1, "may_be_stored": True}
    assert_right(recorder)
    unreported = [one for one in recorder.operations if one.call != "retried"]
    assert [one.name for one in check(unreported)] == ["duplicate"]


async def test_leader_that_moves_during_the_wait_explains_a_duplicate() -> None:
    """The old leader has appended the message, and returns NotLeaderForPartition for it."""
    recorder = Recorder()
    async with EmbeddedCluster(brokers=3) as cluster:
        cluster.create_topic("orders", 1, 3)
        async with made(recorder, cluster, "p", acks="all") as producer:
            await producer.send_and_wait("orders", b"a")
            silent, follower = (n for n in range(3) if n != cluster.leader("orders", 0))
            cluster.kill(silent, then="unnoticed")  # it stays in the ISR, so the broker waits
            sending = asyncio.create_task(producer.send_and_wait("orders", b"b"))
            await until(lambda: len(cluster.log("orders", 0)) == 2, "the message is appended")
            cluster.move_leader("orders", 0, follower)
            cluster.notice(silent)
            await sending
        recorder.note_log(T0, cluster.log("orders", 0))
        assert [one.value for one in cluster.log("orders", 0)] == [b"a", b"b", b"b"]
    retries = [one.facts for one in recorder.operations if one.call == "retried"]
    assert {"messages": 1, "may_be_stored": True} in retries
    assert_right(recorder)


async def test_errors_of_send_and_of_its_future_are_told_apart() -> None:
    recorder = Recorder()
    async with EmbeddedCluster(topics={"orders": 1}, auto_create=False) as cluster:
        async with made(recorder, cluster, "p", max_request_size=1000) as producer:
            with pytest.raises(KafkaError):
                await producer.send("orders", b"x" * 2000)
            cluster.kill(0)
            future = await producer.send("orders", b"a", partition=0)
            await producer.stop(timeout=0)
            with pytest.raises(KafkaTimeoutError):
                await future
        statuses = [(one.status, bool(one.accepted)) for one in recorder.operations if one.sent]
        assert statuses == [("fail", False), ("unknown", True)]


async def test_messages_of_send_many_end_each_for_itself() -> None:
    recorder = Recorder()
    async with (
        EmbeddedCluster(topics={"orders": 1}) as cluster,
        made(recorder, cluster, "p", max_batch_size=100) as producer,
    ):
        await producer.partitions_for("orders")
        # The first batch is stored; the others find that the topic forbids their size.
        cluster.fault(ProduceRequest, then=Answer(10), nth=2, times=100)
        deliveries = await producer.send_many("orders", [b"%050d" % n for n in range(6)],
                                              partition=0)  # fmt: skip
        with pytest.raises(KafkaError):
            await deliveries
    ended = [(one.status, len(one.sent)) for one in recorder.operations if one.sent]
    assert [status for status, _ in ended].count("ok") == 1
    assert {count for status, count in ended if status == "unknown"} == {1}
    assert sum(count for _, count in ended) == 6


async def test_open_operations_come_last() -> None:
    recorder = Recorder()
    async with EmbeddedCluster(topics={"orders": 1}) as cluster:
        async with reader(recorder, cluster, "c") as consumer:
            consumer.assign([T0])
            task = asyncio.create_task(consumer.getone())
            await asyncio.sleep(0)
            assert [one.status for one in recorder.operations][-1] == "open"
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert find(recorder, "getone").status == "fail"


async def test_logs_are_read_by_a_consumer() -> None:
    recorder = Recorder()
    async with EmbeddedCluster(topics={"orders": 2}) as cluster:
        cluster.append("orders", 1, [b"a", b"b"])
        async with AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
            await recorder.read_logs(consumer, [T0, TopicPartition("orders", 1)])
    log = find(recorder, "log")
    assert log.partitions == ("orders/0", "orders/1")
    assert log.polled == (Message("orders/1", "a", 0), Message("orders/1", "b", 1))


def dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


async def test_client_with_serializers_needs_identify() -> None:
    recorder = Recorder()
    servers: dict[str, Any] = {"bootstrap_servers": "localhost:1"}
    with pytest.raises(ValueError, match=r"producer 'p' has serializers.*give Recorder\(identify="):
        recorder.producer("p", AIOKafkaProducer(**servers, value_serializer=dumped))
    with pytest.raises(ValueError, match=r"consumer 'c' has deserializers"):
        recorder.consumer("c", AIOKafkaConsumer(**servers, value_deserializer=json.loads))
    with pytest.raises(ValueError, match=r"consumer of the logs has deserializers"):
        await recorder.read_logs(AIOKafkaConsumer(**servers, key_deserializer=json.loads), [])


async def test_identify_names_values_before_and_after_serializers() -> None:
    recorder = Recorder(
        identify=lambda _, value: json.loads(value)["n"] if isinstance(value, bytes) else value["n"]
    )
    async with EmbeddedCluster(topics={"orders": 1}) as cluster:
        servers: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers}
        producer = recorder.producer("p", AIOKafkaProducer(**servers, value_serializer=dumped))
        consumer = recorder.consumer(
            "c",
            AIOKafkaConsumer(
                **servers, value_deserializer=json.loads, auto_offset_reset="earliest"
            ),
        )
        consumer.assign([T0])
        async with producer, consumer:
            await producer.send_and_wait("orders", {"n": 1})
            await consumer.getone()
        recorder.note_log(T0, cluster.log("orders", 0))
    assert check(recorder.operations) == []


async def test_embedded_headers_are_no_part_of_the_value() -> None:
    """Neither in the log, nor for a consumer that returns the envelope, nor for its reader."""
    recorder = Recorder()
    async with EmbeddedCluster(topics={"orders": 1}) as cluster:
        servers: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers}
        producer = recorder.producer("p", AIOKafkaProducer(**servers, headers="embedded"))
        async with producer:
            for value in (b"tea", b"\xffmilk"):
                await producer.send_and_wait("orders", value, headers=[("a", b"1")])
        readers: dict[str, dict[str, Any]] = {"c": {}, "d": {"headers": "embedded"}}
        for name, more in readers.items():
            reader = AIOKafkaConsumer(**servers, auto_offset_reset="earliest", **more)
            consumer = recorder.consumer(name, reader)
            consumer.assign([T0])
            async with consumer:
                await consumer.getone()
                await consumer.getone()
            async with AIOKafkaConsumer(**servers, **more) as plain:
                await recorder.read_logs(plain, [T0])
        recorder.note_log(T0, cluster.log("orders", 0))
    assert check(recorder.operations) == []


def test_times_increase_while_the_clock_stands_still() -> None:
    recorder = Recorder(clock=lambda: 5.0)
    for _ in range(3):
        recorder.note("p", "observed")
    times = [time for one in recorder.operations for time in (one.invoked, one.ended)]
    assert times == sorted(set(times))  # type: ignore[type-var]
    assert replace(recorder.operations[0], ended=None).order == 5.0


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (None, b"tea", "tea"),
        (b"k", None, "k"),
        (None, 7, 7),
        (None, b"\xff", "\\xff"),
        (None, rb"\xff", r"\\xff"),
        (None, r"\xff", r"\\xff"),
        (None, {"a": 1}, "{'a': 1}"),
    ],
)
def test_message_is_identified_by_its_text(key: Any, value: Any, expected: str | int) -> None:
    assert Recorder().identify(key, value) == expected


def test_long_values_are_cut_and_told_apart() -> None:
    first, second = (Recorder().identify(None, b"x" * 100 + end) for end in (b"1", b"2"))
    assert first != second
    assert len(str(first)) < 40
