"""Each mechanism on each line of real brokers, with the line's Java client as control."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka08.admin import AIOKafkaAdminClient
from tests.brokers.sasl import java_reads
from tests.sasl.conftest import StartCluster, options_of
from tests.support.full import in_full

UniqueTopic = Callable[..., str]


@pytest.mark.parametrize(
    ("version", "mechanism", "tls"),
    [
        ("0.9.0.1", "GSSAPI", False),
        ("0.9.0.1", "GSSAPI", True),
        ("0.10.2.2", "GSSAPI", False),
        ("0.10.2.2", "PLAIN", False),
        ("0.10.2.2", "SCRAM-SHA-512", False),
        ("3.9.1", "GSSAPI", False),
        ("3.9.1", "PLAIN", True),
        ("3.9.1", "SCRAM-SHA-256", False),
        *in_full(
            ("0.10.2.2", "GSSAPI", True),
            ("0.10.2.2", "PLAIN", True),
            ("0.10.2.2", "SCRAM-SHA-256", True),
            ("3.9.1", "GSSAPI", True),
            ("3.9.1", "PLAIN", False),
            ("3.9.1", "SCRAM-SHA-512", True),
        ),
    ],
)
async def test_produce_and_consume_in_a_group(
    version: str,
    mechanism: str,
    tls: bool,
    sasl_cluster: StartCluster,
    unique_topic: UniqueTopic,
) -> None:
    cluster = await asyncio.to_thread(sasl_cluster, version)
    topic, group = unique_topic(), unique_topic("g")
    await asyncio.to_thread(cluster.create_topic, topic, 1)
    options = options_of(cluster, mechanism, tls=tls)
    async with AIOKafkaProducer(**options) as producer:
        sent = [await producer.send_and_wait(topic, b"%d" % number) for number in range(3)]
    assert [one.offset for one in sent] == [0, 1, 2]
    if version >= "3" or not tls:  # the line's own client is the control
        read = await asyncio.to_thread(java_reads, cluster, mechanism, topic, 3, tls=tls)
        assert read == ["0", "1", "2"]
    for expected in (0, 1):  # the second member begins where the first one has committed
        async with AIOKafkaConsumer(
            topic, group_id=group, auto_offset_reset="earliest", max_poll_records=1, **options
        ) as consumer:
            message = await consumer.getone()
            assert (message.offset, message.value) == (expected, b"%d" % expected)
            await consumer.commit()
    async with AIOKafkaAdminClient(**options) as admin:
        assert topic in await admin.list_topics()


@pytest.mark.release("0.9.0.1")
async def test_hdp_name_of_the_protocol(
    sasl_cluster: StartCluster, unique_topic: UniqueTopic
) -> None:
    cluster = await asyncio.to_thread(sasl_cluster, "0.9.0.1")
    options = options_of(cluster, "GSSAPI", security_protocol="PLAINTEXTSASL")
    async with AIOKafkaProducer(**options) as producer:
        await producer.send_and_wait(unique_topic(), b"tea")


@pytest.mark.release("0.9.0.1")
async def test_ticket_of_the_cache_is_used_without_a_keytab(
    sasl_cluster: StartCluster, unique_topic: UniqueTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await asyncio.to_thread(sasl_cluster, "0.9.0.1")
    assert cluster.sasl.kdc is not None
    cache = cluster.folder / "cache-of-kinit"
    await asyncio.to_thread(cluster.sasl.kdc.kinit, "client", cache)
    before = cache.read_bytes()
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
    options = options_of(cluster, "GSSAPI", sasl_kerberos_keytab=None, sasl_kerberos_principal=None)
    async with AIOKafkaProducer(**options) as producer:
        await producer.send_and_wait(unique_topic(), b"tea")
    assert cache.read_bytes().startswith(before)
