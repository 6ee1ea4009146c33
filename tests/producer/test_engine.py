"""A crash: an unexpected exception in the background raises in every call that sends, at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

import pytest

from aiokafka08._core.net.router import Router
from aiokafka08.errors import KafkaError
from aiokafka08.producer.accumulator import Accumulator
from aiokafka08.producer.outcome import BatchResolver
from aiokafka08.protocol.requests.produce import ProduceRequest
from aiokafka08.testing import EmbeddedCluster, Hang
from tests.producer.conftest import Producer
from tests.support.waiting import until

ProducerFor = Callable[..., Awaitable[Producer]]
CRASH = r"producer failed: internal error RuntimeError\('a bug'\).*make a new one"


def bug(*args: Any, **kwargs: Any) -> NoReturn:
    raise RuntimeError("a bug")


@pytest.mark.parametrize(
    ("where", "name"),
    [
        (Router, "connection"),  # in the task that connects
        (Accumulator, "drain"),  # in a pass of the sender, and after a response
        (Accumulator, "begin_pass"),  # on a timer
        (BatchResolver, "resolve"),  # in the callback of a response
    ],
)
async def test_after_a_crash_every_send_raises(
    where: type,
    name: str,
    cluster: EmbeddedCluster,
    producer_for: ProducerFor,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    unhandled: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    producer = await producer_for(cluster)
    await producer.partitions_for("t")
    monkeypatch.setattr(where, name, bug)
    async with asyncio.timeout(20):
        sent = await producer.send("t", b"v", partition=0)
        with pytest.raises(KafkaError, match=CRASH):
            await sent
        await producer.flush()
        for call in (
            producer.send("t", b"v"),
            producer.send("other", b"v"),
            producer.send_many("t", [b"v"]),
        ):
            with pytest.raises(KafkaError, match=CRASH):
                await call
    assert not producer.ready()
    assert producer.metrics()["buffer_used_bytes"] == 0
    monkeypatch.undo()
    await producer.stop()
    assert unhandled == []
    logged = [record.exc_info[1] for record in caplog.records if record.exc_info is not None]
    assert [type(error) for error in logged] == [RuntimeError]


async def test_a_crash_raises_in_senders_waiting_for_memory(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster, buffer_memory=5000)
    await producer.partitions_for("t")
    cluster.fault(ProduceRequest, then=Hang(), times=None)
    many = asyncio.create_task(producer.send_many("t", [b"v" * 474] * 100, partition=0))
    await until(lambda: bool(producer.metrics()["senders_waiting"]), "waiting for memory")
    one = asyncio.create_task(producer.send("t", b"v" * 474, partition=1))
    producer.engine.fail(RuntimeError("a bug"))
    async with asyncio.timeout(20):
        for waiting in (many, one):
            with pytest.raises(KafkaError, match=CRASH):
                await waiting
