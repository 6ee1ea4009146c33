"""Live views, downloads, filters by regular expression, and masks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from aiokafka08._tools.console import watch
from aiokafka08.console import Console, app
from aiokafka08.testing import EmbeddedCluster
from tests._tools.cli.conftest import RunCommand, cli
from tests.console.consoles import PAYLOADS, client_of, is_ready, json_of, opened, text_of
from tests.support.waiting import eventually, until

__all__ = ["cli"]  # the fixture


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    """A topic with hostile messages, and one with JSON."""
    async with EmbeddedCluster(version="0.10", topics={"orders": 2, "cards": 1}) as made:
        made.append("orders", 0, [b"tea 1", None, b"\xff\xfe"], keys=[b"ann", b"", None])
        made.append("orders", 1, [one.encode() for one in PAYLOADS])
        made.append(
            "cards", 0, [b'{"id": 1.10, "card": {"number": 4111111111111111}}', b"not JSON"]
        )
        yield made


class View:
    """A live view: a connection that takes events until it leaves."""

    def __init__(self, console: Console, path: str, query: str = "") -> None:
        self._left = asyncio.Event()
        self._is_requested = False
        self.console = console
        self.status = 0
        self.events: list[tuple[str, str]] = []
        scope = {
            "type": "http",
            "method": "GET",
            "path": path,
            "query_string": query.encode(),
            "headers": [(b"host", b"127.0.0.1")],
            "client": ("127.0.0.1", 1),
        }
        self.task = asyncio.create_task(console(scope, self._receive, self._send))

    def texts(self, name: str) -> list[str]:
        return [text for kind, text in self.events if kind == name]

    async def leave(self) -> None:
        self._left.set()
        async with asyncio.timeout(20):
            await self.task

    async def _receive(self) -> dict[str, Any]:
        if not self._is_requested:
            self._is_requested = True
            return {"type": "http.request"}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif body := message["body"].decode():
            assert body.endswith("\n\n")
            first, *lines = body[:-2].split("\n")
            assert all(line.startswith("data: ") for line in lines)
            text = "\n".join(line.removeprefix("data: ") for line in lines)
            self.events.append((first.removeprefix("event: "), text))


@asynccontextmanager
async def viewed(
    cluster: EmbeddedCluster,
    path: str = "/topics/orders/tail/events",
    query: str = "",
    **options: Any,
) -> AsyncIterator[View]:
    """Yield a live view that has begun."""
    console = app(bootstrap_servers=cluster.bootstrap_servers, **options)
    async with console:
        async with client_of(console) as client:
            await eventually(lambda: is_ready(client))
        view = View(console, path, query)
        await until(lambda: bool(view.texts("state")), timeout_s=60)
        yield view
        await view.leave()


async def test_live_view_shows_what_is_written_from_then_on(cluster: EmbeddedCluster) -> None:
    async with viewed(cluster) as view:
        values = [*(one.encode() for one in PAYLOADS), None]
        cluster.append("orders", 0, values, keys=values)
        await until(lambda: "tombstone" in "".join(view.texts("rows")), timeout_s=60)
        rows = "".join(view.texts("rows"))
        assert rows.count("<tr>") == len(values)
        assert "tea" not in rows
        shown = text_of(f"{rows}<script src=/static/a></script><script src=/static/b></script>")
        assert all(one in shown for one in PAYLOADS[:4])
        assert 'href="/topics/orders/messages/0/3"' in rows
        assert set(view.texts("state")) == {"Live: each message is shown."}


async def test_live_view_is_filtered_and_masked(cluster: EmbeddedCluster) -> None:
    path, query = "/topics/cards/tail/events", "contains=hidden&partition=0"
    async with viewed(cluster, path, query, mask=["c*=card.number"]) as view:
        cluster.append("cards", 0, [b'{"card": {"number": 4111111111111111}}', b'{"id": 7}'])
        cluster.append("cards", 0, [b'{"card": {"number": 4222222222222222}}'])
        await until(lambda: "".join(view.texts("rows")).count("<tr>") == 2, timeout_s=60)
        rows = "".join(view.texts("rows"))
        assert "4111111111111111" not in rows
        assert "4222222222222222" not in rows


async def test_fast_topic_is_sampled_and_says_so(cluster: EmbeddedCluster) -> None:
    async with viewed(cluster) as view:
        cluster.append("orders", 0, [b"many"] * 20_000)
        await until(lambda: any("Sampled" in one for one in view.texts("state")), timeout_s=60)
        cluster.append("orders", 0, [b"last"])
        await until(lambda: "last" in "".join(view.texts("rows")), timeout_s=60)
        assert max(one.count("<tr>") for one in view.texts("rows")) == 10
        [sampled] = [one for one in view.texts("state") if "of about" in one]
        assert sampled == "Sampled: 10 of about 20,000 messages of the last second."


async def test_consumer_of_a_live_view_is_closed_with_it(cluster: EmbeddedCluster) -> None:
    async with viewed(cluster) as view:
        before = cluster.connections()
        await view.leave()
        await until(lambda: cluster.connections() < before, timeout_s=60)


async def test_live_views_end_with_the_topic_and_are_limited(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_TAILS", 1)
    console = app(bootstrap_servers=cluster.bootstrap_servers)
    async with console, client_of(console) as client:
        await eventually(lambda: is_ready(client))
        first = View(console, "/topics/orders/tail/events")
        await until(lambda: bool(first.events), timeout_s=60)
        second = View(console, "/topics/orders/tail/events")
        await second.task
        assert second.events == [("end", "1 live views are open already. Close one of them")]
        for path, status in (("nothing/tail/events", 404), ("orders/tail/events?partition=x", 400)):
            assert (await client.get(f"/topics/{path}")).status_code == status
    async with asyncio.timeout(20):
        await first.task  # the console was stopped
    assert first.status == 200


async def test_live_page_needs_no_inline_script(cluster: EmbeddedCluster) -> None:
    async with opened(cluster.bootstrap_servers) as client:
        for query in ("", "?partition=1&contains=%3Cscript%3E&key=%22&regex=1&as=hex"):
            page = await client.get(f"/topics/orders/tail{query}")
            assert page.status_code == 200
            assert "needs JavaScript" in text_of(page.text)
        assert 'data-tail="/topics/orders/tail/events?partition=1&amp;contains=' in page.text


async def test_download_is_what_produce_takes(cluster: EmbeddedCluster, cli: RunCommand) -> None:
    async with opened(cluster.bootstrap_servers) as client:
        path = "/topics/orders/messages?partition=0&format=jsonl"
        file = await client.get(path)
        assert file.headers["content-disposition"] == 'attachment; filename="orders.jsonl"'
        assert file.headers["content-type"] == "application/jsonl"
        assert file.headers["x-content-type-options"] == "nosniff"
        assert [json.loads(line)["offset"] for line in file.text.splitlines()] == [0, 1, 2]
        part = await client.get(f"{path}&from=beginning&count=2")
        assert part.headers["content-disposition"] == 'attachment; filename="orders.part.jsonl"'
        at = ("-b", cluster.bootstrap_servers, "--format", "jsonl")
        await asyncio.to_thread(cli, "produce", "cards", *at, stdin=file.content)
        copied = await json_of(client, "/topics/cards/messages", **{"from": "2"})
        assert [(one["key"], one["value"]) for one in copied["messages"]] == [
            ("ann", "tea 1"),
            ("", None),
            (None, {"base64": "//4="}),
        ]


async def test_download_has_thousands_of_messages(cluster: EmbeddedCluster) -> None:
    cluster.append("cards", 0, [b"x"] * 12_000)
    async with opened(cluster.bootstrap_servers) as client:
        for start, first in (("beginning", 0), ("", 2002)):
            file = await client.get(
                "/topics/cards/messages", params={"format": "jsonl", "from": start}
            )
            lines = file.text.splitlines()
            assert len(lines) == 10_000
            assert json.loads(lines[0])["offset"] == first


async def test_regular_expressions_are_searched_for(cluster: EmbeddedCluster) -> None:
    pytest.importorskip("re2", reason="google-re2 isn't installed")
    async with opened(cluster.bootstrap_servers) as client:
        path = "/topics/orders/messages"
        query = {
            "from": "beginning",
            "contains": r"^TEA \d$".replace("TEA", "(?i)TEA"),
            "regex": "1",
        }
        found = await json_of(client, path, **query)
        assert [one["value"] for one in found["messages"]] == ["tea 1"]
        literal = await json_of(client, path, **{**query, "regex": ""})
        assert literal["messages"] == []
        for wrong in ("(", r"(a)\1", "a{1000}{1000}", "\\C(?<x"):
            page = await client.get(path, params={"contains": wrong, "regex": "1"})
            assert page.status_code == 400, wrong
            assert "expected a regular expression" in text_of(page.text)
        evil = {"contains": "(a+)+$", "regex": "1"}
        cluster.append("orders", 0, [b"a" * 50_000 + b"!"])
        assert (await json_of(client, path, **evil))["messages"] == []


async def test_masked_values_are_on_no_page_and_found_by_no_filter(
    cluster: EmbeddedCluster,
) -> None:
    async with opened(
        cluster.bootstrap_servers, mask=["cards=card.number", "orders=key"]
    ) as client:
        for path in (
            "/topics/cards/messages",
            "/topics/cards/messages?as=hex",
            "/topics/cards/messages/0/0",
            "/topics/cards/messages?format=json",
            "/topics/cards/messages?format=jsonl",
            "/topics/cards/messages/0/0?format=json",
        ):
            page = await client.get(path)
            assert page.status_code == 200
            assert "4111111111111111" not in page.text
            assert "34 31 31 31" not in page.text
            assert "hidden" in page.text or "as=hex" in path
        assert (await json_of(client, "/topics/cards/messages", contains="4111111111111111"))[
            "messages"
        ] == []
        assert (await json_of(client, "/topics/orders/messages", key="ann"))["messages"] == []


async def test_missing_extra_is_named(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "re2", None)
    async with opened(cluster.bootstrap_servers) as client:
        page: httpx.Response = await client.get("/topics/orders/messages?contains=a&regex=1")
    assert page.status_code == 503
    assert "pip install 'aiokafka08[console]'" in text_of(page.text)
