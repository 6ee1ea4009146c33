"""The pages of a gateway and of a bridge, and the one of graphs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http import HTTPStatus
from typing import Any

import pytest

from aiokafka08._core.metrics.endpoint import MetricsEndpoint, Page
from aiokafka08._core.metrics.text_format import CONTENT_TYPE, write_text
from aiokafka08._tools.gateway.clients import ClientTable, Fate
from aiokafka08._tools.gateway.metrics import PrometheusMetrics
from aiokafka08.bridge.copy.status import CopyStatus, PartitionStatus
from aiokafka08.bridge.copy.status_pages import health_page, metrics_page
from aiokafka08.console import app
from aiokafka08.errors import IllegalArgumentError
from aiokafka08.structs import TopicPartition
from aiokafka08.testing import EmbeddedCluster
from tests.brokers.ports import free_port
from tests.console.consoles import PAYLOADS, json_of, opened, text_of
from tests.support.waiting import eventually


@pytest.fixture
async def servers() -> AsyncIterator[str]:
    async with EmbeddedCluster(version="0.10", topics={"orders": 1}) as made:
        yield made.bootstrap_servers


@contextmanager
def served(metrics: Any, health: Any, **others: Any) -> Iterator[MetricsEndpoint]:
    """Serve pages as a gateway and a bridge do."""
    paths = {f"/{name}": make for name, make in others.items()}
    endpoint = MetricsEndpoint("127.0.0.1", 0, metrics, health, client_id="test", others=paths)
    try:
        yield endpoint
    finally:
        endpoint.close()


def hostile_clients() -> ClientTable:
    """Return the clients of a gateway, whose names are hostile, and one more."""
    clients = ClientTable(lambda: 1e9)
    for payload in PAYLOADS:
        clients.count(payload, payload, ("Produce", 0, Fate.TRANSLATED), software=payload)
    clients.count("modern", "10.0.0.7", ("Fetch", 12, Fate.PASSED))
    clients.count("modern", "10.0.0.7", ("Fetch", 0, Fate.REFUSED))
    return clients


WELL = Page("text/plain", b"ok\n")


def served_gateway(
    clients: ClientTable, health: Callable[[], Page] = lambda: WELL
) -> AbstractContextManager[MetricsEndpoint]:
    """Serve what a gateway does."""
    metrics = PrometheusMetrics()
    metrics.upstream_failed(1, "connect")

    def text() -> Page:
        return Page(CONTENT_TYPE, write_text(clients.families()) + metrics.text())

    def rows() -> Page:
        return Page("application/json", json.dumps(clients.rows()).encode())

    return served(text, health, clients=rows)


def served_bridge(status: CopyStatus) -> AbstractContextManager[MetricsEndpoint]:
    """Serve what a bridge does."""
    return served(lambda: metrics_page(status, 10.0), lambda: health_page(status, 10.0))


async def test_gateway_has_its_clients_and_their_requests(servers: str) -> None:
    health = [WELL]
    with served_gateway(hostile_clients(), lambda: health[-1]) as endpoint:
        async with opened(servers, gateways=[endpoint.url]) as client:

            async def is_read() -> bool:
                return (await json_of(client, "/gateway"))["per_s"] is not None

            await eventually(is_read)
            page = text_of((await client.get("/gateway")).text)
            assert all(payload in page for payload in PAYLOADS[:-1])
            assert "Fetch 0: 1" in page
            assert "Produce 0: 1" in page
            data = await json_of(client, "/gateway", sort="client_id", q="modern")
            assert [one["refused"] for one in data["rows"]] == [["Fetch 0: 1"]]
            assert (data["error"], data["health"]) == (None, "ok")
            assert 'href="/gateway"' in (await client.get("/")).text
            assert 'href="/bridge"' not in (await client.get("/")).text
            assert "Gateway" in text_of((await client.get("/watch")).text)
            health.append(Page("text/plain", b"<script>\n", status=HTTPStatus.SERVICE_UNAVAILABLE))

            async def is_ill() -> bool:
                return "reports problems" in text_of((await client.get("/gateway")).text)

            await eventually(is_ill)
            endpoint.close()

            async def is_old() -> bool:
                return "No new data" in text_of((await client.get("/gateway")).text)

            await eventually(is_old)
            assert "modern" in (await client.get("/gateway")).text


async def test_bridge_has_what_is_left_and_whether_it_is_ready(servers: str) -> None:
    status = CopyStatus()
    status.begin_session()
    for number, end in enumerate((30, 7)):
        partition = PartitionStatus(position=7)
        partition.observe(end, 0.0)
        status.partitions[TopicPartition("orders", number)] = partition
    status.note_error(PAYLOADS[0], "refused")
    with served_bridge(status) as endpoint:
        async with opened(servers, bridges=[endpoint.url]) as client:

            async def has_left(count: int) -> bool:
                return bool((await json_of(client, "/bridge"))["left"] == count)

            await eventually(lambda: has_left(23))
            page = text_of((await client.get("/bridge")).text)
            assert PAYLOADS[0] in page
            data = await json_of(client, "/bridge", sort="-lag")
            assert [(one["partition"], one["lag"], one["lag_s"]) for one in data["rows"]] == [
                (0, 23, 10.0),
                (1, 0, 0.0),
            ]
            assert (data["ready"], data["verification_equal"]) == (False, None)
            status.partitions[TopicPartition("orders", 0)].position = 30
            status.records, status.verified_equal, status.verified_at = 23, 1, 1e9
            status.errors.clear()
            await eventually(lambda: has_left(0))
            assert (await json_of(client, "/bridge"))["ready"]
            assert "ready for cut-over" in text_of((await client.get("/bridge")).text)


async def test_what_is_not_served_is_named(servers: str) -> None:
    ports = free_port(), free_port()
    bridges = [f"127.0.0.1:{port}" for port in ports]
    async with opened(servers, bridges=bridges) as client:

        async def is_named() -> bool:
            page = text_of((await client.get("/bridge")).text)
            return "Nothing could be read" in page and "a bridge serves by `listen`" in page

        await eventually(is_named)
        other = await json_of(client, "/bridge", at=f"http://{bridges[1]}")
        assert other["address"] == f"http://{bridges[1]}"
        for path in ("/gateway", "/bridge?at=http://elsewhere"):
            assert (await client.get(path)).status_code == 404
    with served(
        lambda: Page(CONTENT_TYPE, b"<html>\n"), lambda: Page("text/plain", b"ok"),
        clients=lambda: Page("text/html", b"{}"),
    ) as endpoint:  # fmt: skip
        urls = [endpoint.url]
        async with opened(servers, gateways=urls, bridges=urls) as client:
            for path in ("/gateway", "/bridge"):

                async def is_refused(path: str = path) -> bool:
                    return "/metrics: " in ((await json_of(client, path))["error"] or "")

                await eventually(is_refused)
                text_of((await client.get(path)).text)


def test_address_of_another_kind_is_refused() -> None:
    with pytest.raises(IllegalArgumentError, match="that a gateway serves"):
        app(bootstrap_servers="localhost", gateways=["file:///etc/passwd"])
