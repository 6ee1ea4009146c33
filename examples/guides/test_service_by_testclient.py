"""FastAPI's TestClient on the embedded cluster: a test without `async`. docs/guides/services.md."""

import time

import pytest
import service
from fastapi.testclient import TestClient


@pytest.mark.kafka_cluster(version="0.9", topics={"orders": 2, "bills": 1})
def test_an_order_is_acknowledged_and_billed(kafka_cluster, monkeypatch):
    monkeypatch.setenv("KAFKA", kafka_cluster.bootstrap_servers)
    monkeypatch.setenv("METRICS_PORT", "0")  # any free one
    with TestClient(service.app) as client:  # `with` runs the lifespan
        until(lambda: client.get("/ready").status_code == 200)
        response = client.post("/orders", content=b"tea")
        assert response.status_code == 200
        [order] = kafka_cluster.log("orders", response.json()["partition"])
        assert (order.offset, order.value) == (response.json()["offset"], b"tea")
        until(lambda: kafka_cluster.log("bills", 0))
    [bill] = kafka_cluster.log("bills", 0)
    assert bill.value == b"bill for tea"


def until(met):
    end = time.monotonic() + 30
    while not met():
        assert time.monotonic() < end
        time.sleep(0.01)
