"""A producer on an embedded cluster behind TLS: docs/guides/tls.md."""

import pytest
from tls_cluster import tls_cluster

from aiokafka08 import AIOKafkaProducer
from aiokafka08.errors import NoBrokersAvailable
from aiokafka08.helpers import create_ssl_context


@pytest.mark.asyncio
async def test_a_message_arrives_over_tls(tmp_path):
    async with tls_cluster(tmp_path, brokers=2, topics={"orders": 2}) as (cluster, cafile):
        async with AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers,
            security_protocol="SSL",
            ssl_context=create_ssl_context(cafile=cafile),
        ) as producer:
            for partition in (0, 1):  # each is led by another broker
                await producer.send_and_wait("orders", b"tea", partition=partition)
        assert [cluster.offsets("orders", partition).end for partition in (0, 1)] == [1, 1]


@pytest.mark.asyncio
async def test_an_unknown_authority_is_refused(tmp_path):
    async with tls_cluster(tmp_path) as (cluster, _):
        producer = AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers,
            security_protocol="SSL",
            ssl_context=create_ssl_context(),  # the system's authorities
        )
        with pytest.raises(NoBrokersAvailable, match="certificate verify failed"):
            await producer.start()
