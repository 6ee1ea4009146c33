"""What isn't a partition number is refused by each call that takes one to the brokers."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka08.admin import AIOKafkaAdminClient
from aiokafka08.errors import IllegalArgumentError
from aiokafka08.producer.batch_builder import BatchBuilder
from aiokafka08.testing import EmbeddedCluster

pytestmark = pytest.mark.fast

Clients = tuple[AIOKafkaProducer, AIOKafkaConsumer, AIOKafkaAdminClient]


@pytest.fixture
async def clients() -> AsyncIterator[Clients]:
    """With metadata of the topic."""
    async with EmbeddedCluster(1, "0.9", {"t": 2}) as cluster:
        servers = cluster.bootstrap_servers
        async with (
            AIOKafkaProducer(bootstrap_servers=servers) as producer,
            AIOKafkaConsumer(bootstrap_servers=servers, group_id="g") as consumer,
            AIOKafkaAdminClient(bootstrap_servers=servers) as admin,
        ):
            consumer.assign([TopicPartition("t", 1)])
            await producer.partitions_for("t")
            yield producer, consumer, admin


def batch_of(producer: AIOKafkaProducer) -> BatchBuilder:
    batch = producer.create_batch()
    batch.append(key=None, value=b"v", timestamp=None)
    return batch


CALLS: dict[str, Callable[[Clients, Any], Any]] = {
    "send": lambda of, bad: of[0].send("t", b"v", partition=bad),
    "send_many": lambda of, bad: of[0].send_many("t", [b"v"], partition=bad),
    "send_batch": lambda of, bad: of[0].send_batch(batch_of(of[0]), "t", partition=bad),
    "_partition": lambda of, bad: of[0]._partition("t", bad, None, b"v", None, b"v"),
    "commit": lambda of, bad: of[1].commit({TopicPartition("t", bad): 1}),
    "committed": lambda of, bad: of[1].committed(TopicPartition("t", bad)),
    "end_offsets": lambda of, bad: of[1].end_offsets([TopicPartition("t", bad)]),
    "offsets_for_times": lambda of, bad: of[1].offsets_for_times({TopicPartition("t", bad): 1}),
    "getone": lambda of, bad: of[1].getone(TopicPartition("t", bad)),
    "getmany": lambda of, bad: of[1].getmany(TopicPartition("t", bad)),
    "assign": lambda of, bad: of[1].assign([TopicPartition("t", bad)]),
    "list_log_bounds": lambda of, bad: of[2].list_log_bounds([TopicPartition("t", bad)]),
    "list_offsets": lambda of, bad: of[2].list_offsets({TopicPartition("t", bad): "earliest"}),
    "list_consumer_group_offsets": lambda of, bad: of[2].list_consumer_group_offsets(
        "g", partitions=[TopicPartition("t", bad)]
    ),
}


async def result_of(clients: Clients, call: str, bad: object) -> None:
    result = CALLS[call](clients, bad)
    if inspect.isawaitable(result):
        await result


@pytest.mark.parametrize("call", CALLS)
async def test_what_is_no_partition_number_is_refused(clients: Clients, call: str) -> None:
    """Some of it equals one in a dict: 1.0 and True are found there."""
    for bad in (1.0, True, "1", -1):
        with pytest.raises(IllegalArgumentError, match="expected an integer >= 0"):
            await result_of(clients, call, bad)
