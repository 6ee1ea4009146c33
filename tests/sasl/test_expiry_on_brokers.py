"""Tickets and sessions that expire while messages flow, on 3.9.1; the short forms run in `tests`.

The broker ends each session after 3 s, so each of them needs a valid ticket for its next one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka08.structs import RecordMetadata
from tests.brokers import RealCluster
from tests.brokers.kdc import Kdc
from tests.brokers.sasl import PASSWORDS, REFUSED, SaslUsers
from tests.sasl.conftest import Options, options_of
from tests.support.waiting import until

VERSION = "3.9.1"
REAUTHENTICATION_MS = 3000
PAUSE_S = 0.01

pytestmark = pytest.mark.release(VERSION)

UniqueTopic = Callable[..., str]


@asynccontextmanager
async def short_sessions(kdc: Kdc) -> AsyncIterator[RealCluster]:
    """Run a broker that ends sessions."""
    cluster = RealCluster(
        VERSION,
        properties={"connections.max.reauth.ms": REAUTHENTICATION_MS},
        sasl=SaslUsers(PASSWORDS, kdc, REFUSED),
    )
    await asyncio.to_thread(cluster.start)
    try:
        yield cluster
    finally:
        await asyncio.to_thread(cluster.close)


@asynccontextmanager
async def flowing(options: Options, topic: str) -> AsyncIterator[Counter[str]]:
    """Send numbers and read them during the body; then check that all came, in order.

    The counter has the clients' events.
    """
    events = Counter[str]()
    options = options | {"on_event": lambda event: events.update([type(event).__name__])}
    read: list[int] = []
    ended = asyncio.Event()

    async def send(producer: AIOKafkaProducer) -> int:
        deliveries: list[asyncio.Future[RecordMetadata]] = []
        while not ended.is_set():
            deliveries.append(await producer.send(topic, b"%d" % len(deliveries), partition=0))
            await asyncio.sleep(PAUSE_S)  # the rate
        await asyncio.gather(*deliveries)
        return len(deliveries)

    async def receive(consumer: AIOKafkaConsumer) -> None:
        async for message in consumer:
            assert message.value is not None
            read.append(int(message.value))

    async with (
        AIOKafkaProducer(acks="all", delivery_timeout_ms=300_000, **options) as producer,
        AIOKafkaConsumer(auto_offset_reset="earliest", **options) as consumer,
    ):
        consumer.assign([TopicPartition(topic, 0)])
        receiving = asyncio.create_task(receive(consumer))
        sending = asyncio.create_task(send(producer))
        try:
            yield events
            ended.set()
            count = await sending
            await until(lambda: len({*read}) == count or receiving.done(), "all are read", 60)
        finally:
            for task in (sending, receiving):
                task.cancel()
            await asyncio.gather(sending, receiving, return_exceptions=True)
    assert list(dict.fromkeys(read)) == list(range(count))  # a retry may store one twice


@pytest.mark.parametrize(
    ("ticket_s", "seconds", "outage_s"),
    [
        pytest.param(4, 14, 6, marks=pytest.mark.timeout(180)),
        pytest.param(60, 600, 0, marks=[pytest.mark.full, pytest.mark.timeout(900)]),
        pytest.param(60, 300, 120, marks=[pytest.mark.full, pytest.mark.timeout(600)]),
    ],
)
async def test_tickets_and_sessions_expire_while_messages_flow(
    ticket_s: int, seconds: int, outage_s: int, kdc: Kdc, unique_topic: UniqueTopic
) -> None:
    """During the outage of the KDC the last ticket expires, and messages wait for the next one."""
    principal = f"short-{ticket_s}-{seconds}"
    keytab = await asyncio.to_thread(kdc.add_principal, principal, ticket_s=ticket_s)
    topic = unique_topic()
    async with short_sessions(kdc) as cluster:
        await asyncio.to_thread(cluster.create_topic, topic)
        options = options_of(
            cluster, "GSSAPI", sasl_kerberos_keytab=str(keytab), sasl_kerberos_principal=principal
        )
        async with flowing(options, topic) as events:
            if outage_s:
                await asyncio.sleep(ticket_s)
                await asyncio.to_thread(kdc.stop)
                try:
                    await asyncio.sleep(outage_s)
                finally:
                    await asyncio.to_thread(kdc.start)
            await asyncio.sleep(seconds - outage_s)
        # Two clients, each with a session that lasts at most three seconds.
        assert events["Connected"] > 2 * (seconds - outage_s) * 1000 / REAUTHENTICATION_MS
