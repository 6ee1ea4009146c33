"""Open a console on a cluster, with an HTTP client that needs no socket: `opened`.

async with opened(cluster.bootstrap_servers) as client:
    page = await client.get("/topics")
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from html.parser import HTMLParser
from typing import Any

import httpx

from aiokafka08 import TopicPartition
from aiokafka08.admin import AIOKafkaAdminClient
from aiokafka08.console import Console, app
from aiokafka08.testing import EmbeddedCluster
from tests.support.waiting import eventually

BASE = "http://127.0.0.1:8008"
FORM = {"origin": BASE}
"""What a browser says of a form of the console's own pages."""

PAYLOADS = (
    "<script>hacked=1</script>",
    '"><img src=x onerror=hacked=1>',
    "' onmouseover='hacked=1",
    "</pre></textarea><svg onload=hacked=1>",
    "{{ 7*7 }}{% raw %}",
    "javascript:hacked=1",
    "\u202e\x00<b>",
)
"""What runs, or breaks a page, unless it is escaped."""


@asynccontextmanager
async def opened(
    servers: str, *, is_read: bool = True, **options: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client of a console that runs, after its first sample if `is_read`."""
    console = app(bootstrap_servers=servers, interval_s=1.0, **options)
    async with console, client_of(console) as client:
        if is_read:
            await eventually(lambda: is_ready(client))
        yield client


def client_of(console: Console, **options: Any) -> httpx.AsyncClient:
    """Return a client that calls the application directly."""
    transport = httpx.ASGITransport(console, **options)
    return httpx.AsyncClient(transport=transport, base_url=BASE, timeout=30)


async def is_ready(client: httpx.AsyncClient) -> bool:
    """Return whether the first sample is there."""
    return (await client.get("/")).status_code == 200


async def json_of(client: httpx.AsyncClient, path: str, **query: str) -> Any:
    """Return a page's data."""
    response = await client.get(path, params={**query, "format": "json"})
    assert response.status_code == 200, response.text
    return response.json()


class _Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def text_of(html: str) -> str:
    """Return the text of a page, after a check that it has nothing that a browser would run."""
    parser = _Elements()
    parser.feed(html)
    parser.close()
    for tag, attributes in parser.elements:
        assert tag not in ("img", "iframe", "object", "embed", "base"), tag
        assert not [name for name in attributes if name.startswith("on")], attributes
        assert "style" not in attributes, attributes
        for name in ("href", "src", "action"):
            target = attributes.get(name) or "/"
            assert target[:1] in ("/", "?", "#"), target
            assert target[:2] != "//", target
        if tag == "script":
            assert (attributes.get("src") or "").startswith("/static/"), attributes
    scripts = [tag for tag, _ in parser.elements if tag == "script"]
    assert len(scripts) == 2
    assert "style" not in {tag for tag, _ in parser.elements}
    return "".join(parser.texts)


def fields_of(page: str) -> dict[str, str]:
    """Return the hidden fields of a page's last form."""
    found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page)
    return {name: unescape(value) for name, value in found}


async def post(
    client: httpx.AsyncClient, path: str, at: str | None = None, **fields: str
) -> httpx.Response:
    """Open a page, and post its form as a browser does."""
    page = await client.get(path)
    assert page.status_code == 200, page.text
    assert page.headers["referrer-policy"] == "same-origin"
    data = {"csrf": fields_of(page.text)["csrf"], **fields}
    return await client.post(at or path, data=data, headers=FORM)


async def confirmed(client: httpx.AsyncClient, asked: httpx.Response, **fields: str) -> str:
    """Confirm what a form has asked for, and return the text of the page that shows the outcome."""
    assert asked.status_code == 303, asked.text
    path = asked.headers["location"]
    text_of((await client.get(path)).text)
    done = await post(client, path, **fields)
    assert (done.status_code, done.headers["location"]) == (303, path)
    return " ".join(text_of((await client.get(path)).text).split())


def change_of(page: str) -> str:
    """Return the path to which a page's confirmation is posted."""
    found = re.search(r'action="((?:/kafka)?/changes/[^"]+)"', page)
    assert found, page
    return found[1]


async def commit(cluster: EmbeddedCluster, offset: int) -> None:
    """Commit an offset of orders/0 for the group billing."""
    async with AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        await admin.reset_consumer_group_offsets("billing", {TopicPartition("orders", 0): offset})
