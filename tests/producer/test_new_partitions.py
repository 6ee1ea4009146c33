"""Sends to a named partition that the brokers don't list (yet)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aiokafka08._core.net.limits import NetLimits
from aiokafka08.errors import UnknownTopicOrPartitionError
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.testing import EmbeddedCluster
from tests.producer.conftest import MakeProducer
from tests.support.waiting import until

pytestmark = pytest.mark.both_loops


def grow(cluster: EmbeddedCluster, partitions: int) -> None:
    """Give the topic, which is empty, more partitions."""
    cluster.delete_topic("t")
    cluster.create_topic("t", partitions)


@pytest.mark.parametrize("call", ["send", "send_many", "send_batch"])
async def test_send_waits_for_a_partition_that_is_being_added(
    cluster: EmbeddedCluster, producer_for: MakeProducer, call: str
) -> None:
    producer = await producer_for(cluster)
    assert await producer.partitions_for("t") == {0, 1, 2}
    before = len(cluster.requests(MetadataRequest))

    async def send() -> Any:
        if call == "send":
            return await producer.send_and_wait("t", b"v", partition=4)
        if call == "send_many":
            deliveries = await producer.send_many("t", [b"v"], partition=4)
            return (await deliveries)[0]
        batch = producer.create_batch()
        batch.append(key=None, value=b"v", timestamp=None)
        return await (await producer.send_batch(batch, "t", partition=4))

    sending = asyncio.create_task(send())
    await until(lambda: len(cluster.requests(MetadataRequest)) >= before + 2, "asked twice")
    grow(cluster, 5)
    assert (await asyncio.wait_for(sending, 10)).partition == 4


async def test_sends_to_a_missing_partition_wait_together(
    cluster: EmbeddedCluster, producer_for: MakeProducer
) -> None:
    producer = await producer_for(cluster, net_limits=NetLimits(partition_unknown_s=0.3))
    began = asyncio.get_running_loop().time()
    calls = [producer.send("t", b"v", partition=7) for _ in range(50)]
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert {str(result) for result in results} == {
        "[Error 3] UnknownTopicOrPartitionError: topic 't' has no partition 7; it has 0 to 2"
    }
    assert asyncio.get_running_loop().time() - began < 5
    # A later call begins anew: the partition may have been added since.
    grow(cluster, 8)
    assert (await producer.send_and_wait("t", b"v", partition=7)).partition == 7


@pytest.mark.parametrize("first", [True, False], ids=["unknown-topic", "known-topic"])
async def test_missing_partition_delays_no_other_partition(
    cluster: EmbeddedCluster, producer_for: MakeProducer, first: bool
) -> None:
    producer = await producer_for(cluster, net_limits=NetLimits(partition_unknown_s=60.0))
    if not first:
        await producer.partitions_for("t")
    asked = len(cluster.requests(MetadataRequest))
    waiting = asyncio.gather(*(producer.send("t", b"%d" % n, partition=4) for n in range(5)))
    await until(lambda: len(cluster.requests(MetadataRequest)) >= asked + 3, "looked up")
    for _ in range(3):
        await producer.send_and_wait("t", b"v", partition=0)
    assert not waiting.done()
    grow(cluster, 5)
    # These calls come later than those that wait, so they are served after them.
    last = await producer.send_and_wait("t", b"last", partition=4)
    earlier = await asyncio.gather(*await waiting)
    assert [one.offset for one in earlier] == [0, 1, 2, 3, 4]
    assert last.offset == 5


async def test_partition_that_was_just_missing_is_asked_for_once(
    cluster: EmbeddedCluster, producer_for: MakeProducer
) -> None:
    producer = await producer_for(cluster, net_limits=NetLimits(partition_unknown_s=2.0))
    with pytest.raises(UnknownTopicOrPartitionError, match="has no partition 7"):
        await producer.send("t", b"v", partition=7)
    asked = len(cluster.requests(MetadataRequest))
    for _ in range(3):
        with pytest.raises(UnknownTopicOrPartitionError, match="has no partition 7"):
            await producer.send("t", b"v", partition=7)
    assert len(cluster.requests(MetadataRequest)) <= asked + 3


async def test_max_block_ms_ends_the_wait(
    cluster: EmbeddedCluster, producer_for: Callable[..., Any]
) -> None:
    producer = await producer_for(cluster, max_block_ms=300)
    await producer.partitions_for("t")
    began = asyncio.get_running_loop().time()
    with pytest.raises(UnknownTopicOrPartitionError, match="has no partition 7"):
        await producer.send("t", b"v", partition=7)
    assert 0.25 < asyncio.get_running_loop().time() - began < 3
