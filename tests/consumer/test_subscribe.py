"""subscribe(), assign() and unsubscribe() on a running consumer: topics, patterns, listeners."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection
from typing import Any, NamedTuple, cast

import pytest

from aiokafka08.abc import ConsumerRebalanceListener
from aiokafka08.errors import (
    IllegalStateError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.structs import TopicPartition
from aiokafka08.telemetry import Event, Rebalanced, TopicMissing
from aiokafka08.testing import EmbeddedCluster
from aiokafka08.testing.simulation import simulate
from tests.consumer.conftest import Consumer, MakeConsumer, take, tp, values
from tests.support.waiting import until


async def test_start_returns_with_the_assignment(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    consumer = make_consumer("t")
    assert consumer.subscription() == {"t"}
    assert consumer.assignment() == set()
    await consumer.start()
    assert consumer.assignment() == {tp(partition) for partition in range(4)}
    assert consumer.partitions_for_topic("t") == {0, 1, 2, 3}
    assert consumer.partitions_for_topic("other") is None


async def test_subscribed_topic_is_auto_created(make_consumer: MakeConsumer) -> None:
    consumer = make_consumer("new-one")
    await consumer.start()
    assert consumer.assignment() == {tp(0, "new-one")}


async def test_topic_is_not_created_if_the_user_forbids_it(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    consumer = make_consumer("t", allow_auto_create_topics=False, metadata_max_age_ms=100)
    await consumer.start()
    cluster.delete_topic("t")
    await until(lambda: not consumer.assignment(), "the deleted topic is given up")
    absent = make_consumer("new-one", allow_auto_create_topics=False, request_timeout_ms=500)
    with pytest.raises(
        UnknownTopicOrPartitionError, match="'new-one' doesn't exist, or this principal"
    ):
        await absent.start()
    assert not any(one.topics for one in cluster.requests(MetadataRequest))


async def test_missing_topic_fails_the_start() -> None:
    async with EmbeddedCluster(auto_create=False) as empty:
        consumer: Consumer = Consumer(
            "absent", bootstrap_servers=empty.bootstrap_servers, request_timeout_ms=500
        )
        with pytest.raises(UnknownTopicOrPartitionError, match="absent"):
            await consumer.start()
        assert empty.connections() == 0


async def test_pattern_follows_new_and_deleted_topics(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    consumer = make_consumer(metadata_max_age_ms=100)
    consumer.subscribe(pattern="t|log")
    await consumer.start()
    assert consumer.subscription() == {"t"}
    cluster.create_topic("log-1", partitions=2)
    cluster.create_topic("other")
    cluster.append("log-1", 1, values(0, 3))
    assert {(r.topic, r.partition) for r in await take(consumer, 3)} == {("log-1", 1)}
    assert consumer.subscription() == {"t", "log-1"}
    assert len(consumer.assignment()) == 6
    cluster.delete_topic("log-1")
    await until(lambda: consumer.subscription() == {"t"})
    await until(lambda: len(consumer.assignment()) == 4)


async def test_new_subscription_takes_effect_while_running(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    events: list[Event] = []
    cluster.create_topic("u", partitions=2)
    cluster.append("t", 0, values(0, 5))
    cluster.append("u", 1, values(0, 5))
    consumer = make_consumer("t", on_event=events.append)
    await consumer.start()
    assert len(await take(consumer, 5)) == 5
    consumer.subscribe(["t", "u"])
    assert {r.topic for r in await take(consumer, 5)} == {"u"}
    assert await consumer.position(tp(0)) == 5  # what stays keeps its position
    consumer.subscribe(["u"])
    await until(lambda: consumer.assignment() == {tp(0, "u"), tp(1, "u")})
    cluster.append("t", 0, values(5, 6))
    cluster.append("u", 0, values(0, 1))
    assert [r.topic for r in await take(consumer, 1)] == ["u"]
    rebalances = [event for event in events if isinstance(event, Rebalanced)]
    assert [len(event.assigned) for event in rebalances] == [4, 2, 0]
    assert [len(event.revoked) for event in rebalances] == [0, 0, 4]


async def test_topic_created_after_subscribe_is_read(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    async with EmbeddedCluster(auto_create=False, topics={"t": 1}) as strict:
        consumer = make_consumer("t", bootstrap_servers=strict.bootstrap_servers)
        await consumer.start()
        consumer.subscribe(["t", "later"])
        waiting = asyncio.create_task(consumer.getone())
        await until(lambda: consumer.subscription() == {"t", "later"})
        strict.create_topic("later")
        strict.append("later", 0, [b"first"])
        assert (await asyncio.wait_for(waiting, 10)).value == b"first"
        await consumer.stop()


def test_missing_topic_is_looked_for_with_backoff() -> None:
    with simulate(1, brokers=1, topics={"t": 1}, auto_create=False) as world:

        async def scenario() -> int:
            servers = world.cluster.bootstrap_servers
            async with Consumer("t", bootstrap_servers=servers) as consumer:
                consumer.subscribe(["t", "later"])
                await asyncio.sleep(20)
                return len(world.cluster.requests(MetadataRequest))

        assert 10 < world.run(scenario) < 40  # the longest back-off is 1 s


# --- a topic that doesn't exist -------------------------------------------------------------------


class Reported(NamedTuple):
    """The missing topics that a consumer reported, with the seconds since it was to read them."""

    events: list[tuple[float, TopicMissing]]
    requests: list[MetadataRequest]


def read_missing(
    version: str,
    *topics: str,
    way: str,
    create_after_s: float = math.inf,
    member: bool = False,
    **options: Any,
) -> Reported:
    """Read topics for 30 s in one of the ways, on brokers that create each topic that is named."""
    auto_create = options.get("allow_auto_create_topics") is False
    with simulate(
        1, brokers=1, version=version, topics={"orders": 1, "t": 1}, auto_create=auto_create
    ) as world:

        async def scenario() -> Reported:
            loop, reported = asyncio.get_running_loop(), []

            def on_event(event: Event) -> None:
                if isinstance(event, TopicMissing):
                    reported.append((loop.time() - began, event))

            consumer: Consumer = Consumer(
                bootstrap_servers=world.cluster.bootstrap_servers,
                group_id="g" if member else None,
                zookeeper_connect=world.zookeeper_connect if member else None,
                on_event=on_event,
                **options,
            )
            began = loop.time()
            if way == "start":
                consumer.subscribe(topics)
                with pytest.raises(UnknownTopicOrPartitionError):
                    await consumer.start()
                return Reported(reported, world.cluster.requests(MetadataRequest))
            async with consumer:
                began = loop.time()
                if way == "assign":
                    consumer.assign([tp(0, topic) for topic in topics])
                else:
                    consumer.subscribe(topics)
                if create_after_s < math.inf:
                    await asyncio.sleep(create_after_s)
                    for topic in topics:
                        world.cluster.create_topic(topic)
                await consumer.getmany(timeout_ms=30_000)
                assert consumer.metrics()["missing_topics"] == len(reported)
                return Reported(reported, world.cluster.requests(MetadataRequest))

        return world.run(scenario)


@pytest.mark.parametrize(
    ("version", "member"), [("0.8.2", False), ("0.8.2", True), ("0.9", False), ("0.9", True)]
)
@pytest.mark.parametrize("way", ["start", "subscribe", "assign"])
def test_missing_topic_is_reported_once_within_seconds(
    version: str, member: bool, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    events, _ = read_missing(version, "ordrs", way=way, member=member)
    [(seconds, event)] = events
    assert 1 <= seconds < 2.5
    assert (event.topic, event.similar) == ("ordrs", ("orders",))
    warnings = [one for one in caplog.records if str(event) in one.getMessage()]
    assert [(one.levelname, one.name) for one in warnings] == [("WARNING", "aiokafka08.consumer")]
    assert str(event) == (
        "topic 'ordrs' doesn't exist, or this principal may not describe it; waiting for it. "
        "Similar topics: orders"
    )


@pytest.mark.parametrize("way", ["start", "subscribe", "assign"])
def test_each_missing_topic_is_reported(way: str) -> None:
    events, _ = read_missing("0.9", "ordrs", "t", "zzz", way=way)
    assert sorted((event.topic, event.similar) for _, event in events) == [
        ("ordrs", ("orders",)),
        ("zzz", ()),
    ]
    assert all(seconds < 2.5 for seconds, _ in events)


@pytest.mark.parametrize("way", ["start", "subscribe", "assign"])
def test_missing_topic_is_reported_without_creating_it(way: str) -> None:
    events, requests = read_missing("0.9", "ordrs", way=way, allow_auto_create_topics=False)
    assert [event.topic for _, event in events] == ["ordrs"]
    assert not any(request.topics for request in requests)


@pytest.mark.parametrize("way", ["subscribe", "assign"])
def test_topic_that_comes_within_a_second_is_not_reported(way: str) -> None:
    assert not read_missing("0.9", "later", way=way, create_after_s=0.5).events


def test_topic_that_comes_later_is_reported_no_more() -> None:
    events, _ = read_missing("0.9", "later", way="subscribe", create_after_s=10)
    assert len(events) == 1


async def test_assign_and_subscribe_exclude_each_other(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    for partition in range(2):
        cluster.append("t", partition, values(0, 5))
    consumer = make_consumer()
    await consumer.start()
    assert await consumer.getmany(timeout_ms=20) == {}
    consumer.assign([tp(0)])
    assert consumer.assignment() == {tp(0)}
    assert consumer.subscription() == {"t"}
    assert len(await take(consumer, 5)) == 5
    with pytest.raises(IllegalStateError):
        consumer.subscribe(["t"])
    consumer.assign([tp(0), tp(1)])
    assert [r.partition for r in await take(consumer, 5)] == [1] * 5
    consumer.unsubscribe()
    assert not consumer.assignment()
    assert not consumer.subscription()
    cluster.append("t", 0, values(5, 6))
    assert await consumer.getmany(timeout_ms=20) == {}
    consumer.subscribe(["t"])
    assert len(await take(consumer, 11)) == 11
    consumer.unsubscribe()
    assert await consumer.getmany(timeout_ms=20) == {}
    with pytest.raises(IllegalStateError):
        await consumer.seek_to_beginning()


async def test_subscribe_with_wrong_arguments_raises(make_consumer: MakeConsumer) -> None:
    consumer = make_consumer()
    for wrong in [{}, {"topics": ["t"], "pattern": "t"}, {"topics": "t"}, {"topics": 3}]:
        with pytest.raises(TypeError):
            consumer.subscribe(**cast(Any, wrong))
    with pytest.raises(TypeError, match="listener"):
        consumer.subscribe(["t"], listener=cast(Any, object()))
    with pytest.raises(ValueError, match="pattern"):
        consumer.subscribe(pattern="(")


async def test_group_on_0_8_raises_with_both_alternatives(make_consumer: MakeConsumer) -> None:
    consumer = make_consumer("t", group_id="g")
    with pytest.raises(UnsupportedVersionError, match=r"assign\(\).*zookeeper_connect="):
        await consumer.start()


# --- listeners ----------------------------------------------------------------------------------


class Listener(ConsumerRebalanceListener):
    def __init__(self, consumer: Consumer, log: list[Any]) -> None:
        self.consumer = consumer
        self.log = log

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self.log.append(("revoked", len(revoked)))

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self.log.append(("assigned", len(assigned)))
        assert self.consumer.assignment() == assigned
        for partition in assigned:
            await self.consumer.position(partition)
            self.consumer.seek(partition, 3)


class PlainListener(ConsumerRebalanceListener):
    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        raise RuntimeError("a listener's own affair")

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        raise RuntimeError("a listener's own affair")


async def test_listener_may_seek_before_the_first_message(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    for partition in range(4):
        cluster.append("t", partition, values(0, 5))
    cluster.create_topic("u")
    log: list[Any] = []
    consumer = make_consumer()
    consumer.subscribe(["t"], listener=Listener(consumer, log))
    await consumer.start()
    assert log == [("assigned", 4)]
    assert {r.offset for r in await take(consumer, 8)} == {3, 4}
    consumer.subscribe(["u"], listener=Listener(consumer, log))
    await until(lambda: len(log) == 3)
    assert log[1:] == [("revoked", 4), ("assigned", 1)]


async def test_exception_of_a_listener_is_logged(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.append("t", 0, values(0, 1))
    consumer = make_consumer()
    consumer.subscribe(["t"], listener=PlainListener())
    await consumer.start()
    assert len(await take(consumer, 1)) == 1
    assert "a listener's own affair" in caplog.text
