"""Tickets and sessions that expire while messages flow, on 3.9.1; the short forms run in `tests`.

The SASL_SSL listener ends each session of GSSAPI after 3 s, and then needs a ticket for the next.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka08.structs import RecordMetadata
from aiokafka08.telemetry import Connected, ConnectFailed, Event
from tests.brokers.kdc import Kdc
from tests.brokers.sasl import HOST_NAME, REAUTHENTICATION_MS, SERVICE
from tests.sasl.conftest import Options, StartCluster, options_of
from tests.support.waiting import until

VERSION = "3.9.1"
PAUSE_S = 0.01

pytestmark = pytest.mark.release(VERSION)

UniqueTopic = Callable[..., str]


@asynccontextmanager
async def outage(kdc: Kdc) -> AsyncIterator[None]:
    await asyncio.to_thread(kdc.stop)
    try:
        yield
    finally:
        await asyncio.to_thread(kdc.start)


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
        pytest.param(3, 7, 4, marks=pytest.mark.timeout(180)),
        pytest.param(60, 600, 0, marks=[pytest.mark.full, pytest.mark.timeout(900)]),
        pytest.param(60, 240, 120, marks=[pytest.mark.full, pytest.mark.timeout(600)]),
    ],
)
async def test_tickets_and_sessions_expire_while_messages_flow(
    ticket_s: int,
    seconds: int,
    outage_s: int,
    kdc: Kdc,
    sasl_cluster: StartCluster,
    unique_topic: UniqueTopic,
) -> None:
    """During the outage of the KDC the last ticket expires, and messages wait for the next one."""
    cluster = await asyncio.to_thread(sasl_cluster, VERSION)
    principal = f"client/short-{ticket_s}-{seconds}"  # may do what client may
    keytab = await asyncio.to_thread(kdc.add_principal, principal, ticket_s=ticket_s)
    topic = unique_topic()
    await asyncio.to_thread(cluster.create_topic, topic)
    options = options_of(
        cluster,
        "GSSAPI",
        tls=True,
        sasl_kerberos_keytab=str(keytab),
        sasl_kerberos_principal=principal,
    )
    async with flowing(options, topic) as events:
        await asyncio.sleep(ticket_s)  # the test's length
        if outage_s:
            async with outage(kdc):
                await asyncio.sleep(outage_s)
        await asyncio.sleep(seconds - ticket_s)
    # Two clients, each with a session that lasts at most three seconds.
    assert events["Connected"] > 2 * seconds * 1000 / REAUTHENTICATION_MS


@pytest.mark.parametrize(
    ("ticket_s", "outage_s"),
    [(6, 2), pytest.param(200, 120, marks=[pytest.mark.full, pytest.mark.timeout(400)])],
)
async def test_client_outlives_an_outage_of_the_kdc_in_which_its_ticket_ends(
    ticket_s: int,
    outage_s: int,
    kdc: Kdc,
    sasl_cluster: StartCluster,
    unique_topic: UniqueTopic,
) -> None:
    """It has renewed the ticket before, though it made no connection then."""
    cluster = await asyncio.to_thread(sasl_cluster, VERSION)
    principal = f"client/{unique_topic('long-lived')}"  # the KDC counts its tickets
    keytab = await asyncio.to_thread(kdc.add_principal, principal, ticket_s=ticket_s)
    topic = unique_topic()
    await asyncio.to_thread(cluster.create_topic, topic)
    events: list[Event] = []
    options = options_of(
        cluster,
        "GSSAPI",
        sasl_kerberos_keytab=str(keytab),
        sasl_kerberos_principal=principal,
        connections_max_idle_ms=500,
        on_event=events.append,
    )
    async with AIOKafkaProducer(**options) as producer:
        await producer.send_and_wait(topic, b"tea")
        ends = time.monotonic() + ticket_s
        service = f"{SERVICE}/{HOST_NAME}"
        await until(lambda: kdc.tickets(principal, service) == 2, "it is renewed", ticket_s)
        assert kdc.tickets(principal) == 2
        async with outage(kdc):
            await asyncio.sleep(ends + 0.25 * outage_s - time.monotonic())
            events.clear()
            await producer.send_and_wait(topic, b"milk")
            assert any(isinstance(event, Connected) for event in events)
            await asyncio.sleep(max(ends + 0.5 * outage_s - time.monotonic(), 0))
    assert not [event for event in events if isinstance(event, ConnectFailed)]
