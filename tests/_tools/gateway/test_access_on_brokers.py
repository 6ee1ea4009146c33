"""Limited clients of old and new releases, and `gateway check`, on a real 4.1.0."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from contextlib import closing
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import KafkaError, KafkaException, NewTopic

from aiokafka08._core.names import NamePatterns, compile_patterns
from aiokafka08._tools.gateway.access import Access
from aiokafka08._tools.gateway.check import CheckCode, judge
from aiokafka08._tools.gateway.options import FLAG_NAMES, gateway_options
from aiokafka08._tools.gateway.target_connection import target_network
from aiokafka08._tools.gateway.target_sample import sample_target
from aiokafka08.admin import AIOKafkaAdminClient
from tests._tools.gateway.gateways import HOST, first_port, running
from tests.brokers.cluster import RealCluster

with warnings.catch_warnings():  # of importlib.resources, in the import
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

pytestmark = [pytest.mark.real, pytest.mark.release("4.1.0"), pytest.mark.timeout(180)]


def only(name: str) -> NamePatterns:
    return NamePatterns(compile_patterns("include", [name]))


@pytest.fixture
def admin(modern_cluster: RealCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": modern_cluster.bootstrap_servers})


@pytest.fixture
def new_topic(admin: AdminClient, unique_topic: Callable[..., str]) -> Callable[..., str]:
    def create(**config: str) -> str:
        name = unique_topic("gateway")
        admin.create_topics([NewTopic(name, 1, config=config)])[name].result(30)
        return name

    return create


def code_of(future: Any) -> int:
    with pytest.raises(KafkaException) as failed:
        future.result(30)
    code: int = failed.value.args[0].code()
    return code


def use_as_today(servers: str, allowed: str, other: str) -> None:
    """Produce and consume with librdkafka of today."""
    errors: list[KafkaError | None] = []
    client = {"bootstrap.servers": servers, "message.timeout.ms": 10_000}
    producer = confluent_kafka.Producer(client)
    assert set(producer.list_topics(timeout=30).topics) == {allowed}
    for topic in (allowed, other):
        producer.produce(topic, b"value", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0
    assert [None if one is None else one.code() for one in errors] in (
        [None, KafkaError.TOPIC_AUTHORIZATION_FAILED],
        [KafkaError.TOPIC_AUTHORIZATION_FAILED, None],
    )
    settings = {"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe([allowed])
    try:
        message = consumer.poll(60)
        assert message is not None
        assert (message.error(), message.value()) == (None, b"value")
        consumer.commit(message=message, asynchronous=False)
    finally:
        consumer.close()
    admin = AdminClient({"bootstrap.servers": servers})
    created = admin.create_topics([NewTopic("never", 1)])["never"]
    assert code_of(created) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert code_of(admin.delete_topics([other])[other]) == KafkaError.TOPIC_AUTHORIZATION_FAILED


def use_as_of_old(servers: str, allowed: str, other: str) -> None:
    """Produce and consume with kafka-python as of 0.10.0."""
    client = {"bootstrap_servers": servers, "api_version": (0, 10)}
    with closing(kafka.KafkaProducer(**client, max_block_ms=5000)) as producer:
        producer.send(allowed, b"old").get(30)
        with pytest.raises(kafka.errors.TopicAuthorizationFailedError):
            producer.send(other, b"old").get(30)
    consumer = kafka.KafkaConsumer(
        **client, group_id="g", auto_offset_reset="earliest", consumer_timeout_ms=30_000
    )
    with closing(consumer):
        assert consumer.topics() == {allowed}


async def test_clients_use_the_allowed_topics_only(
    modern_cluster: RealCluster, new_topic: Callable[..., str], admin: AdminClient
) -> None:
    allowed, other = new_topic(), new_topic()
    access = Access(topics=only(allowed), groups=only("g"))
    async with running(modern_cluster.bootstrap_servers, access=access) as gateway:
        servers = f"{HOST}:{first_port(gateway)}"
        await asyncio.to_thread(use_as_today, servers, allowed, other)
        async with AIOKafkaAdminClient(bootstrap_servers=servers) as own:
            rows = await own.list_group_lags(["g"])
        # `__consumer_offsets` is hidden.
        assert ("kafka", allowed, 1) in [(row.store, row.topic, row.committed) for row in rows]
        await asyncio.to_thread(use_as_of_old, servers, allowed, other)
    assert "never" not in admin.list_topics(timeout=30).topics
    partition = confluent_kafka.TopicPartition(other, 0, confluent_kafka.OFFSET_END)
    settings = {"bootstrap.servers": modern_cluster.bootstrap_servers, "group.id": "look"}
    with closing(confluent_kafka.Consumer(settings)) as consumer:
        assert consumer.get_watermark_offsets(partition, timeout=30) == (0, 0)


async def test_read_only_clients_create_no_topic(
    modern_cluster: RealCluster, admin: AdminClient, unique_topic: Callable[..., str]
) -> None:
    name = unique_topic("gateway")

    def name_it(servers: str) -> None:
        client = {"bootstrap_servers": servers, "api_version": (0, 9)}
        producer = kafka.KafkaProducer(**client, max_block_ms=2000)
        with closing(producer), pytest.raises(kafka.errors.KafkaError):
            producer.send(name, b"value").get(10)

    access = Access(is_read_only=True)
    async with running(modern_cluster.bootstrap_servers, access=access) as gateway:
        await asyncio.to_thread(name_it, f"{HOST}:{first_port(gateway)}")
    assert name not in admin.list_topics(timeout=30).topics


async def test_check_tells_release_settings_and_rights(
    modern_cluster: RealCluster, new_topic: Callable[..., str]
) -> None:
    plain, zstd = new_topic(), new_topic(**{"compression.type": "zstd"})
    target = await sample_target(target_network(modern_cluster.bootstrap_servers), is_quick=False)
    assert target.topics is not None
    target.topics = {name: target.topics[name] for name in (plain, zstd)}
    findings = list(judge(target, gateway_options("kafka:9092"), FLAG_NAMES))
    codes = {one.code: one for one in findings}
    assert "Kafka 4.1" in codes[CheckCode.TARGET].why
    assert codes[CheckCode.ZSTD].where == f"topic {zstd}"
    assert codes[CheckCode.SIZES].where.startswith("message.max.bytes=")
    assert "message.timestamp.after.max.ms" in codes[CheckCode.TIMESTAMPS].why
    assert not codes.keys() & {CheckCode.VERSIONS, CheckCode.PERMISSION, CheckCode.UNREAD}
    assert target.topics[plain].operations is not None
