"""Tests of examples/service.py on the embedded cluster: docs/guides/services.md."""

import asyncio
import os
import sys

import httpx2
import pytest
import pytest_asyncio
import service

from aiokafka08.errors import KafkaConfigurationError

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.kafka_cluster(version="0.9", topics={"orders": 2, "bills": 1}),
]


@pytest_asyncio.fixture
async def client(kafka_cluster, monkeypatch):
    monkeypatch.setenv("KAFKA", kafka_cluster.bootstrap_servers)
    monkeypatch.setenv("METRICS_PORT", "0")  # any free one
    monkeypatch.setattr(service, "RESTART_S", 0.1)
    transport = httpx2.ASGITransport(service.app)
    async with (
        service.lifespan(service.app),
        httpx2.AsyncClient(transport=transport, base_url="http://service") as client,
    ):
        await until_ready(client)
        yield client


async def until_ready(client, status=200):
    async with asyncio.timeout(30):
        while (await client.get("/ready")).status_code != status:
            await asyncio.sleep(0.01)


async def until_logged(caplog, text):
    async with asyncio.timeout(30):
        while text not in caplog.text:
            await asyncio.sleep(0.01)


async def until_billed(cluster, partition, offset):
    """Wait until the group has committed that it has billed the order."""
    async with asyncio.timeout(30):
        while (done := cluster.committed("billing", "orders", partition)) is None or (
            done.offset <= offset
        ):
            await asyncio.sleep(0.01)
    return [message.value for message in cluster.log("bills", 0)]


async def test_an_order_is_acknowledged_and_billed(client, kafka_cluster):
    response = await client.post("/orders", content=b"tea")
    assert response.status_code == 200
    place = response.json()
    [order] = kafka_cluster.log("orders", place["partition"])
    assert (order.offset, order.value) == (place["offset"], b"tea")
    assert await until_billed(kafka_cluster, **place) == [b"bill for tea"]


async def test_a_failure_of_billing_shows_and_loses_no_order(
    client, kafka_cluster, monkeypatch, caplog
):
    def fail(order):
        raise RuntimeError("no connection to the database")

    with monkeypatch.context() as failing:
        failing.setattr(service, "bill", fail)
        place = (await client.post("/orders", content=b"tea")).json()
        await until_ready(client, 503)
        assert (await client.get("/live")).status_code == 200
        assert (await client.post("/orders", content=b"milk")).status_code == 200
        await until_logged(caplog, "no connection to the database")
    await until_ready(client)
    assert b"bill for tea" in await until_billed(kafka_cluster, **place)


async def test_dead_brokers_are_no_reason_to_wait_or_to_restart(
    client, kafka_cluster, monkeypatch, caplog
):
    def bill_and_kill(order):
        kafka_cluster.kill(0)
        return b"a bill that no broker gets"

    with monkeypatch.context() as failing:
        failing.setattr(service, "bill", bill_and_kill)
        place = (await client.post("/orders", content=b"milk")).json()
        await until_ready(client, 503)
    response = await client.post("/orders", content=b"tea")
    assert response.status_code == 503
    assert "127.0.0.1" not in response.text  # which is for the log
    assert "/orders not served: " in caplog.text
    await until_logged(caplog, "billing has failed")
    assert (await client.get("/ready")).status_code == 503
    assert (await client.get("/live")).status_code == 200
    assert "Traceback" not in caplog.text
    kafka_cluster.restart(0)
    await until_ready(client)
    assert b"bill for milk" in await until_billed(kafka_cluster, **place)


async def test_wrong_options_of_billing_end_the_start(monkeypatch):
    monkeypatch.setenv("ZOOKEEPER", "zk1:2181")
    monkeypatch.setitem(sys.modules, "kazoo", None)  # the extra isn't installed
    with pytest.raises(KafkaConfigurationError, match="zookeeper"):
        async with service.lifespan(service.app):
            pass


@pytest.mark.kafka_cluster(version="0.8.2", topics={"orders": 2, "bills": 1})
async def test_a_group_on_0_8_without_zookeeper_ends_the_service(
    kafka_cluster, monkeypatch, caplog
):
    ended = asyncio.Event()
    monkeypatch.setattr(os, "kill", lambda process, number: ended.set())
    monkeypatch.setenv("KAFKA", kafka_cluster.bootstrap_servers)
    monkeypatch.setenv("METRICS_PORT", "0")
    monkeypatch.setenv("ZOOKEEPER", "")
    async with service.lifespan(service.app), asyncio.timeout(30):
        await ended.wait()
    assert "the consumer can't start: this process ends" in caplog.text
    assert "or give zookeeper_connect" in caplog.text


async def test_it_starts_before_the_brokers(monkeypatch):
    monkeypatch.setenv("KAFKA", "127.0.0.1:1")
    monkeypatch.setenv("METRICS_PORT", "0")
    transport = httpx2.ASGITransport(service.app)
    async with (
        service.lifespan(service.app),
        httpx2.AsyncClient(transport=transport, base_url="http://service") as client,
    ):
        assert (await client.get("/live")).status_code == 200
        assert (await client.get("/ready")).json() == {"producer": False, "consumer": False}
        assert (await client.post("/orders", content=b"tea")).status_code == 503


async def test_metrics_tell_the_workers_apart(client):
    await client.post("/orders", content=b"tea")
    port = service.app.state.service.metrics.server_port
    async with httpx2.AsyncClient() as scraper:
        text = (await scraper.get(f"http://127.0.0.1:{port}/metrics")).text
    for name in (
        f'producer_acknowledgement_seconds_count{{client_id="orders-{os.getpid()}"}} ',
        f'consumer_assigned_partitions{{client_id="billing-{os.getpid()}"}} 2.0',
    ):
        assert f"aiokafka08_{name}" in text
