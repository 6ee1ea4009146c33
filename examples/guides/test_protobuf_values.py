"""Protobuf values, with a class that the package protobuf has, in place of yours."""

import pytest
from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import Struct
from protobuf_values import new_consumer, new_producer

from aiokafka08 import TopicPartition


@pytest.mark.asyncio
@pytest.mark.kafka_cluster(topics={"orders": 1})
async def test_a_message_comes_back(kafka_cluster):
    servers = kafka_cluster.bootstrap_servers
    order = Struct()
    order.update({"item": "tea", "pieces": 2})
    async with new_producer(servers) as producer:
        await producer.send_and_wait("orders", order)
    kafka_cluster.append("orders", 0, [b"not protobuf", None])
    async with new_consumer(servers, "orders", Struct) as consumer:
        assert (await consumer.getone()).value == order
        with pytest.raises(DecodeError):
            await consumer.getone()
        consumer.seek(TopicPartition("orders", 0), 2)  # past it: the position stays in front
        assert (await consumer.getone()).value is None
