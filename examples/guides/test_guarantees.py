"""What is lost, doubled and refused: docs/guides/guarantees.md says what to expect."""

import pytest

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka08.errors import KafkaTimeoutError
from aiokafka08.protocol.requests.produce import ProduceRequest
from aiokafka08.testing import Close

pytestmark = pytest.mark.asyncio


def values(cluster):
    return [message.value for message in cluster.log("orders", 0)]


async def send(cluster, acks):
    """Send an order; return the producer's counters."""
    async with AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, acks=acks, delivery_timeout_ms=1000
    ) as producer:
        await producer.send_and_wait("orders", b"tea")
    return producer.metrics()


@pytest.mark.parametrize("acks", [1, "all"])
@pytest.mark.kafka_cluster(brokers=3, version="0.8.1", topics={"orders": 1})
async def test_the_only_replica_in_sync_dies_with_an_order(kafka_cluster, acks):
    kafka_cluster.shrink_isr("orders", 0)
    await send(kafka_cluster, acks)
    kafka_cluster.kill(kafka_cluster.leader("orders", 0))
    assert values(kafka_cluster) == []  # a replica out of sync leads now


@pytest.mark.kafka_cluster(brokers=3, version="0.8.2")
async def test_two_replicas_in_sync_are_demanded_so_nothing_is_lost(kafka_cluster):
    config = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}
    kafka_cluster.create_topic("orders", 1, 3, config)
    await send(kafka_cluster, "all")
    kafka_cluster.shrink_isr("orders", 0)
    with pytest.raises(KafkaTimeoutError, match="NotEnoughReplicas"):
        await send(kafka_cluster, "all")  # refused and retried until the deadline: not lost
    kafka_cluster.restore_isr("orders", 0)
    kafka_cluster.kill(kafka_cluster.leader("orders", 0))
    assert values(kafka_cluster) == [b"tea"]


@pytest.mark.kafka_cluster(topics={"orders": 1})
async def test_a_lost_acknowledgement_doubles_an_order(kafka_cluster):
    kafka_cluster.fault(ProduceRequest, then=Close(after_bytes=3))  # stored, and not answered
    found = await send(kafka_cluster, "all")
    assert values(kafka_cluster) == [b"tea", b"tea"]
    assert found["retries"] == 1


@pytest.mark.kafka_cluster(topics={"orders": 1})
async def test_without_acknowledgements_a_lost_order_is_only_counted(kafka_cluster):
    kafka_cluster.fault(ProduceRequest, then=Close())
    found = await send(kafka_cluster, 0)
    assert values(kafka_cluster) == []
    assert found["acks0_unknown"] == 1


@pytest.mark.kafka_cluster(topics={"orders": 1})
async def test_an_order_that_was_never_written_fails(kafka_cluster):
    async with AIOKafkaProducer(
        bootstrap_servers=kafka_cluster.bootstrap_servers, acks=0, delivery_timeout_ms=500
    ) as producer:
        await producer.partitions_for("orders")
        kafka_cluster.kill(0)
        with pytest.raises(KafkaTimeoutError, match="not written within 500 ms"):
            await producer.send_and_wait("orders", b"tea")
    found = producer.metrics()
    assert (found["messages_failed"], found["acks0_unknown"]) == (1, 0)


@pytest.mark.parametrize(("commit_first", "read_again"), [(False, b"tea"), (True, b"milk")])
@pytest.mark.kafka_cluster(version="0.9", topics={"orders": 1})
async def test_a_crash_repeats_or_skips_by_when_it_commits(kafka_cluster, commit_first, read_again):
    kafka_cluster.append("orders", 0, [b"tea", b"milk"])
    options = {
        "bootstrap_servers": kafka_cluster.bootstrap_servers,
        "group_id": "billing",
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
    }
    for expected in (b"tea", read_again):
        async with AIOKafkaConsumer(**options) as consumer:
            consumer.assign([TopicPartition("orders", 0)])
            assert (await consumer.getone()).value == expected
            if commit_first:
                await consumer.commit()
            # The process dies here, in the middle of its work.
