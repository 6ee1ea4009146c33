"""The attributes that OpenTelemetry, Datadog and FastStream read of producers and consumers."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from tests.conformance.contract.aiokafka.libraries import Comparison, Library, outcome
from tests.support.names import unique_name

pytestmark = pytest.mark.real


@pytest.mark.parametrize("form", ["text", "list"])
async def test_clients_have_addresses_and_client_id(compare: Comparison, form: str) -> None:
    async def observe(library: Library) -> list[object]:
        server = library.bootstrap_servers
        servers: Any = server if form == "text" else [server]
        options: dict[str, Any] = {"client_id": "mine", "bootstrap_servers": servers}
        producer = library.kafka.AIOKafkaProducer(**options)
        consumer = library.kafka.AIOKafkaConsumer(**options)
        before = [
            (client._bootstrap_servers, client._client_id, hasattr(client, "_my_cluster_id"))
            for client in (producer.client, consumer._client)
        ]
        await library.run(producer)
        await library.run(consumer)
        for client in (producer.client, consumer._client):
            client._my_cluster_id = "abc"  # as Datadog does
        after = [producer.client._my_cluster_id, consumer._client._my_cluster_id]
        return [*[(one[0] == servers, *one[1:]) for one in before], *after]

    expected = [(True, "mine", False), (True, "mine", False), "abc", "abc"]
    assert await compare(observe) == expected


async def test_wait_on_metadata_returns_the_partitions(compare: Comparison) -> None:
    async def observe(library: Library) -> list[object]:
        producer = await library.producer()
        consumer = await library.consumer()
        topics = [await library.create_topic(partitions=4), unique_name("missing")]
        clients = (producer.client, consumer._client)
        return [await client._wait_on_metadata(topic) for client in clients for topic in topics]

    created = {0, 1, 2}  # brokers create a missing topic with three partitions
    assert await compare(observe) == [{0, 1, 2, 3}, created] * 2


async def test_partition_is_the_one_that_send_chooses(compare: Comparison) -> None:
    def last(key: bytes | None, partitions: list[int], available: list[int]) -> int:
        return partitions[-1]

    async def observe(library: Library) -> list[object]:
        topic = await library.create_topic(partitions=7)
        found: list[object] = []
        for options in ({}, {"partitioner": last}):
            producer = await library.producer(key_serializer=str.encode, **options)
            await producer.client._wait_on_metadata(topic)
            for key in ("a", "b", "c"):
                data = producer._key_serializer(key)
                chosen = producer._partition(topic, None, key, b"v", data, b"v")
                sent = await producer.send_and_wait(topic, b"v", key)
                assert chosen == sent.partition
                found.append(chosen)
            found.append(producer._partition(topic, 5, None, b"v", None, b"v"))
            found.append(producer._value_serializer)
        return found

    *_, given, serializer = await compare(observe)
    assert (given, serializer) == (5, None)


async def test_closed_is_true_after_the_stop(compare: Comparison) -> None:
    async def observe(library: Library) -> list[object]:
        found = []
        for client in (library.new_producer(), library.new_consumer()):
            found.append(client._closed)
            await library.run(client)
            found.append(client._closed)
            await client.stop()
            found.append(client._closed)
        return found

    assert await compare(observe) == [False, False, True] * 2


async def test_listener_can_read_member_and_topics(compare: Comparison) -> None:
    """FastStream logs them in `on_partitions_assigned`."""

    async def observe(library: Library) -> list[object]:
        topic, group = await library.create_topic(), unique_name("g")
        consumer = library.new_consumer(group_id=group, client_id="mine")
        found: list[object] = []

        base: Any = library.kafka.ConsumerRebalanceListener

        class Logging(base):
            def on_partitions_revoked(self, revoked: Collection[Any]) -> None:
                found.append(consumer._coordinator.member_id)

            def on_partitions_assigned(self, assigned: Collection[Any]) -> None:
                found.append(consumer._coordinator.member_id.startswith("mine-"))
                found.append(consumer._subscription.topics == {topic})

        consumer.subscribe([topic], listener=Logging())
        await library.run(consumer)
        alone = await library.consumer()
        return [*found, consumer._group_id == group, alone._group_id]

    assert await compare(observe) == ["", True, True, True, None]


async def test_partition_of_unknown_topic_raises(compare: Comparison) -> None:
    """OpenTelemetry catches any exception here."""

    async def observe(library: Library) -> bool:
        producer = await library.producer()

        async def ask() -> int:
            number: int = producer._partition(unique_name(), None, None, b"v", None, b"v")
            return number

        return await outcome(ask()) != "returned"

    assert await compare(observe)
