"""A program's code, as type checkers see it: `nox -s types` fails if a type or an error differs.

mypy --strict and basedpyright check this file; `assert_type` does nothing at run time. Both report
a `type: ignore` that hides nothing, so each of them says that a misspelt value of an option is an
error. At run time the options raise the same errors.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, assert_type

import pytest

from aiokafka08 import (
    AIOKafkaConsumer,
    AIOKafkaProducer,
    ConsumerRecord,
    Deliveries,
    DeliveryFuture,
    TopicPartition,
)
from aiokafka08.admin import (
    AIOKafkaAdminClient,
    ClusterDescription,
    GroupDescription,
    TopicDescription,
)
from aiokafka08.errors import IllegalArgumentError
from aiokafka08.structs import RecordMetadata
from aiokafka08.testing import EmbeddedCluster


@dataclass(frozen=True)
class Order:
    amount: int


def decode_order(raw: bytes) -> Order:
    return Order(int(raw))


def encode_order(order: Order) -> bytes:
    return str(order.amount).encode()


def decode_text(raw: bytes | None) -> str:
    return "" if raw is None else raw.decode()


def test_deserializers_give_consumers_their_types() -> None:
    plain = AIOKafkaConsumer("t")
    assert_type(plain, AIOKafkaConsumer[bytes, bytes])
    orders = AIOKafkaConsumer("t", value_deserializer=decode_order)
    assert_type(orders, AIOKafkaConsumer[bytes, Order])
    texts = AIOKafkaConsumer(key_deserializer=decode_text, value_deserializer=lambda b: b.decode())
    assert_type(texts, AIOKafkaConsumer[str, str])
    parsed = AIOKafkaConsumer("t", value_deserializer=json.loads)
    assert_type(parsed, AIOKafkaConsumer[bytes, Any])


def test_consumers_and_records_work_in_annotations() -> None:
    """A class without arguments means bytes; it can be subscripted at run time too."""

    class Service:
        consumer: AIOKafkaConsumer | None = None

        def __init__(self) -> None:
            self.consumer = AIOKafkaConsumer("t")
            self.orders: AIOKafkaConsumer[bytes, Order] = AIOKafkaConsumer[bytes, Order]("t")

    class Traced(AIOKafkaConsumer):
        pass

    def first(records: list[ConsumerRecord]) -> bytes | None:
        return records[0].value if records else None

    def size(consumer: AIOKafkaConsumer[Any, Any]) -> int:
        return len(consumer.assignment())

    assert size(Traced()) == size(Service().orders) == 0
    assert first([]) is None


async def read(orders: AIOKafkaConsumer[bytes, Order]) -> list[Order | None]:
    record = await orders.getone()
    assert_type(record, ConsumerRecord[bytes, Order])
    assert_type(record.key, bytes | None)
    assert_type(record.value, Order | None)
    values = [record.value]
    async for record in orders:
        assert_type(record, ConsumerRecord[bytes, Order])
        values.append(record.value)
        break
    records = await orders.getmany(timeout_ms=10_000)
    assert_type(records, dict[TopicPartition, list[ConsumerRecord[bytes, Order]]])
    return values + [one.value for listed in records.values() for one in listed]


async def send(producer: AIOKafkaProducer) -> None:
    assert_type(await producer.send_and_wait("t", Order(1)), RecordMetadata)
    future = await producer.send("t", Order(2))
    assert_type(future, DeliveryFuture)
    assert_type(await future, RecordMetadata)
    deliveries = await producer.send_many("t", [Order(3)])
    assert_type(deliveries, Deliveries)
    await deliveries


async def test_program_gets_values_of_the_types_it_is_told() -> None:
    async with EmbeddedCluster(topics={"t": 1}) as cluster:
        servers = cluster.bootstrap_servers
        async with AIOKafkaProducer(
            bootstrap_servers=servers, value_serializer=encode_order
        ) as producer:
            await send(producer)
        async with AIOKafkaConsumer(
            "t",
            bootstrap_servers=servers,
            auto_offset_reset="earliest",
            value_deserializer=decode_order,
        ) as orders:
            assert await read(orders) == [Order(1), Order(2), Order(3)]


async def test_descriptions_have_the_keys_of_their_types() -> None:
    async with (
        EmbeddedCluster(2, version="0.9", topics={"t": 1}) as cluster,
        AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin,
    ):
        [topic] = await admin.describe_topics(["t"])
        assert_type(topic, TopicDescription)
        assert set(topic) == set(TopicDescription.__annotations__)
        leader = topic["partitions"][0]["leader"]
        described = await admin.describe_cluster()
        assert_type(described, ClusterDescription)
        assert leader in [broker["node_id"] for broker in described["brokers"]]
        [groups] = await admin.describe_consumer_groups(["g"])
        assert_type(groups.groups, list[GroupDescription])
        assert groups.groups[0].state == "Dead"


def test_allowed_values_of_options_have_literal_types() -> None:
    AIOKafkaProducer(acks="all", compression_type="gzip", security_protocol="PLAINTEXT")
    AIOKafkaProducer(acks=-1, compression_type=None)
    AIOKafkaConsumer(auto_offset_reset="earliest", security_protocol="PLAINTEXT")
    AIOKafkaConsumer(auto_offset_reset="none", group_id="g", offsets_storage="kafka")
    AIOKafkaAdminClient(security_protocol="PLAINTEXT")


def test_misspelt_options_are_errors_for_type_checkers() -> None:
    with pytest.raises(IllegalArgumentError, match="acks"):
        AIOKafkaProducer(acks="al")  # type: ignore[arg-type]
    with pytest.raises(IllegalArgumentError, match="compression_type"):
        AIOKafkaProducer(compression_type="gz")  # type: ignore[arg-type]
    with pytest.raises(IllegalArgumentError, match="auto_offset_reset"):
        AIOKafkaConsumer(auto_offset_reset="smallest")  # type: ignore[arg-type]
    with pytest.raises(IllegalArgumentError, match="offsets_storage"):
        AIOKafkaConsumer(group_id="g", offsets_storage="kafk")  # type: ignore[arg-type]
    with pytest.raises(IllegalArgumentError, match="security_protocol"):
        AIOKafkaAdminClient(security_protocol="TLS")  # type: ignore[arg-type]
