"""The requests that a sink holds back, though batches are due."""

from __future__ import annotations

import asyncio

from aiokafka08.net.send_window import SendWindow
from aiokafka08.protocol.api import ProduceRequest
from aiokafka08.testing import Delay, EmbeddedCluster
from tests.producer.conftest import MakeProducer as ProducerFor
from tests.waiting import until


async def test_probe_after_one_too_large_waits_until_it_is_alone(
    producer_for: ProducerFor,
) -> None:
    """Among other requests it would measure nothing, and small ones would go on for ever."""
    async with EmbeddedCluster(version="0.8.2", topics={"t": 3}) as cluster:
        producer = await producer_for(cluster)
        await producer.send_and_wait("t", b"connects", partition=0)
        assert producer._engine is not None
        [sink] = producer._engine.sender.sinks
        window = SendWindow(1 << 20, 1 << 14)
        now = asyncio.get_running_loop().time()
        window.acknowledged(now - 10, now - 9, 1, 1 << 20, alone=True)
        sink._window = window
        cluster.fault(ProduceRequest, then=Delay(0.2))
        first = await producer.send("t", b"probe", partition=1)
        await until(lambda: producer.metrics()["requests_in_flight"], "a request is in flight")
        second = await producer.send("t", b"waits", partition=2)
        for _ in range(5):  # a pass takes one iteration
            await asyncio.sleep(0)
        assert producer.metrics()["requests_in_flight"] == 1
        await asyncio.gather(first, second)
        assert window.round_trip_s is not None
