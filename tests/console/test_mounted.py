"""The console inside a FastAPI service: examples/console_in_fastapi.py."""

from __future__ import annotations

import importlib
import sys

import httpx
import pytest

from aiokafka08.testing import EmbeddedCluster
from tests.console.consoles import json_of
from tests.support.waiting import eventually


async def test_example_is_served_below_its_prefix_to_operators_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("fastapi", reason="fastapi is in the dependency group test only")
    async with EmbeddedCluster(version="0.10", topics={"orders": 1}) as cluster:
        cluster.append("orders", 0, [b"tea"])
        monkeypatch.setenv("KAFKA", cluster.bootstrap_servers)
        monkeypatch.setenv("OPERATORS", "ann,bob")
        monkeypatch.delitem(sys.modules, "examples.console_in_fastapi", raising=False)
        service = importlib.import_module("examples.console_in_fastapi").app
        transport = httpx.ASGITransport(service, client=("203.0.113.5", 4711))
        async with (
            service.router.lifespan_context(service),
            httpx.AsyncClient(transport=transport, base_url="https://shop.example") as client,
        ):
            assert (await client.get("/kafka/topics")).status_code == 403
            assert (await client.get("/kafka/", headers={"X-User": "eve"})).status_code == 403
            client.headers["X-User"] = "ann"

            async def is_read() -> bool:
                return (await client.get("/kafka/")).status_code == 200

            await eventually(is_read)
            for path in ("/kafka/", "/kafka/topics", "/kafka/topics/orders", "/kafka/groups"):
                page = (await client.get(path)).text
                links = [part.split('"')[0] for part in page.split('href="')[1:]]
                assert all(link.startswith(("/kafka/", "#")) for link in links), links
                assert 'aria-current="page"' in page
            assert (await client.get("/kafka/static/console.css")).status_code == 200
            assert (await json_of(client, "/kafka/topics/orders"))["messages"] == 1
            messages = await json_of(client, "/kafka/topics/orders/messages")
            assert [one["value"] for one in messages["messages"]] == ["tea"]
