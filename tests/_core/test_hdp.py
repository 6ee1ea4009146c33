"""HDP 2.3, a 0.8.2 with an authorizer, says 24 where other brokers say 29 or 30.

The embedded cluster stands for its brokers, which are not to be had (docs/brokers.md 14.15).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka08.admin import AIOKafkaAdminClient
from aiokafka08.errors import (
    GroupAuthorizationFailedError,
    KafkaError,
    TopicAuthorizationFailedError,
    ZookeeperMismatchError,
)
from aiokafka08.protocol.api import Request
from aiokafka08.protocol.requests.committed_offsets import OffsetCommitRequest, OffsetFetchRequest
from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.protocol.requests.groups import GroupCoordinatorRequest
from aiokafka08.protocol.requests.list_offsets import ListOffsetsRequest
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.protocol.requests.produce import ProduceRequest
from aiokafka08.testing import Answer, EmbeddedCluster
from aiokafka08.testing.simulation import simulate

T0 = TopicPartition("t", 0)
NOT_AUTHORIZED = 24


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(version="0.8.2", topics={"t": 1}) as cluster:
        yield cluster


async def send(servers: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        await producer.send_and_wait("t", b"tea")


def consumer_of(servers: str) -> AIOKafkaConsumer[bytes, bytes]:
    return AIOKafkaConsumer(
        bootstrap_servers=servers,
        group_id="g",
        offsets_storage="kafka",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )


async def read(servers: str) -> None:
    async with consumer_of(servers) as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 0)
        await consumer.getone()


async def begin(servers: str) -> None:
    async with consumer_of(servers) as consumer:
        await consumer.beginning_offsets([T0])


async def committed(servers: str) -> None:
    async with consumer_of(servers) as consumer:
        consumer.assign([T0])
        await consumer.committed(T0)


async def commit(servers: str) -> None:
    async with consumer_of(servers) as consumer:
        consumer.assign([T0])
        await consumer.commit({T0: 0})


TOPIC, GROUP = TopicAuthorizationFailedError, GroupAuthorizationFailedError


@pytest.mark.parametrize(
    ("request_class", "call", "expected"),
    [
        (MetadataRequest, send, TOPIC),
        (ProduceRequest, send, TOPIC),
        (FetchRequest, read, TOPIC),
        (ListOffsetsRequest, begin, TOPIC),
        (OffsetFetchRequest, committed, GROUP),
        (OffsetCommitRequest, commit, GROUP),
        (GroupCoordinatorRequest, committed, GROUP),
    ],
)
async def test_code_24_is_a_missing_right(
    cluster: EmbeddedCluster,
    request_class: type[Request[Any]],
    call: Callable[[str], Awaitable[None]],
    expected: type[KafkaError],
) -> None:
    cluster.append("t", 0, [b"tea"])
    cluster.fault(request_class, then=Answer(NOT_AUTHORIZED), times=None)
    with pytest.raises(expected, match="not authorized"):
        await call(cluster.bootstrap_servers)


async def test_description_of_a_topic_has_the_code_of_other_brokers(
    cluster: EmbeddedCluster,
) -> None:
    async with AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        cluster.fault(MetadataRequest, then=Answer(NOT_AUTHORIZED), times=None)
        assert {one["error_code"] for one in await admin.describe_topics()} == {TOPIC.errno}


def test_nodes_of_brokers_without_a_plain_listener_identify_their_cluster() -> None:
    """Their host is null; what the metadata names is among the endpoints."""
    with simulate(1, version="0.8.2", topics={"t": 2}) as world:

        def register(port: int) -> None:
            for node in world.cluster.nodes.values():
                endpoint = f"PLAINTEXTSASL://{node.host}:{port or node.port}"
                content = {"version": 2, "host": None, "port": -1, "endpoints": [endpoint]}
                path, data = f"/brokers/ids/{node.node_id}", json.dumps(content).encode()
                world.zookeeper.tree.set(path, data, world.zookeeper.now_ms())

        options: dict[str, Any] = {
            "bootstrap_servers": world.cluster.bootstrap_servers,
            "zookeeper_connect": world.zookeeper_connect,
        }

        async def scenario() -> None:
            register(0)
            async with AIOKafkaConsumer("t", group_id="g", **options) as consumer:
                assert len(consumer.assignment()) == 2
                await consumer.commit({T0: 0})
            async with AIOKafkaAdminClient(**options) as admin:
                _, errors = await admin.describe_cluster_nodes()
                assert not errors
            register(1)
            async with AIOKafkaAdminClient(**options) as admin:
                with pytest.raises(ZookeeperMismatchError, match="0 at kafka0:1"):
                    await admin.describe_cluster_nodes()

        world.run(scenario)
