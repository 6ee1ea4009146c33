"""Tests of examples/service.py on the embedded cluster: docs/guides/services.md."""

import asyncio
import os

import httpx
import pytest
import pytest_asyncio
import service

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.kafka_cluster(version="0.9", topics={"orders": 2, "bills": 1}),
]


@pytest_asyncio.fixture
async def client(kafka_cluster, monkeypatch):
    monkeypatch.setenv("KAFKA", kafka_cluster.bootstrap_servers)
    monkeypatch.setenv("METRICS_PORT", "0")  # any free one
    monkeypatch.setattr(service, "RESTART_S", 0.1)
    transport = httpx.ASGITransport(service.app)
    async with (
        service.lifespan(service.app),
        httpx.AsyncClient(transport=transport, base_url="http://service") as client,
    ):
        await until_ready(client)
        yield client


async def until_ready(client, status=200):
    async with asyncio.timeout(30):
        while (await client.get("/ready")).status_code != status:
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
    assert "no connection to the database" in caplog.text
    await until_ready(client)
    assert b"bill for tea" in await until_billed(kafka_cluster, **place)


async def test_dead_brokers_are_no_reason_to_wait_or_to_restart(client, kafka_cluster, caplog):
    kafka_cluster.kill(0)
    response = await client.post("/orders", content=b"tea")
    assert response.status_code == 503
    assert "127.0.0.1" not in response.text  # which is for the log
    assert "/orders not served: " in caplog.text
    await until_ready(client, 503)
    assert (await client.get("/live")).status_code == 200
    kafka_cluster.restart(0)
    await until_ready(client)


async def test_it_starts_before_the_brokers(monkeypatch):
    monkeypatch.setenv("KAFKA", "127.0.0.1:1")
    monkeypatch.setenv("METRICS_PORT", "0")
    transport = httpx.ASGITransport(service.app)
    async with (
        service.lifespan(service.app),
        httpx.AsyncClient(transport=transport, base_url="http://service") as client,
    ):
        assert (await client.get("/live")).status_code == 200
        assert (await client.get("/ready")).json() == {"producer": False, "consumer": False}
        assert (await client.post("/orders", content=b"tea")).status_code == 503


async def test_metrics_tell_the_workers_apart(client):
    await client.post("/orders", content=b"tea")
    port = service.app.state.service.metrics.server_port
    async with httpx.AsyncClient() as scraper:
        text = (await scraper.get(f"http://127.0.0.1:{port}/metrics")).text
    labels = f'{{client_id="orders-{os.getpid()}"}}'
    assert f"aiokafka08_producer_acknowledgement_seconds_count{labels} " in text
    assert f"aiokafka08_consumer_assigned_partitions{labels} 2.0" in text
