"""The slots of searches for messages: how many there are, how long each is held, and by whom."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from aiokafka08._tools.console import pages, sending
from aiokafka08.console import Console, app
from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.testing import EmbeddedCluster, Hang
from tests.console.consoles import client_of
from tests.support.waiting import eventually

PATH = "/topics/orders/messages"


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    """20 messages of 100 kB."""
    async with EmbeddedCluster(version="0.10", topics={"orders": 1}) as made:
        made.append("orders", 0, [b"x" * 100_000] * 20)
        yield made


class Viewer:
    """A connection to the application that takes nothing after the first `taken` pieces."""

    def __init__(self, console: Console, query: str = "format=json", taken: int = 1) -> None:
        self.left, self.pieces = asyncio.Event(), [b""]
        self._taken = taken
        scope = {
            "type": "http",
            "method": "GET",
            "path": PATH,
            "query_string": query.encode(),
            "headers": [(b"host", b"127.0.0.1")],
            "client": ("127.0.0.1", 1),
        }
        self.task = asyncio.create_task(console(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if not self.pieces[0]:
            self.pieces[0] = b"requested"
            return {"type": "http.request"}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.body":
            self.pieces.append(message["body"])
            if len(self.pieces) > self._taken:
                await asyncio.Event().wait()


async def test_slots_are_held_until_the_page_is_sent(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "LIMIT_S", 300.0)
    monkeypatch.setattr(sending, "SEND_S", 300.0)
    console = app(bootstrap_servers=cluster.bootstrap_servers)
    async with console, client_of(console) as client:
        viewers = [Viewer(console) for _ in range(4)]

        async def are_served() -> bool:
            return all(len(one.pieces) == 2 for one in viewers)

        await eventually(are_served)
        assert {len(one.pieces[-1]) for one in viewers} == {64 * 1024}
        monkeypatch.setattr(pages, "LIMIT_S", 1.0)
        refused = await client.get(PATH)
        assert refused.status_code == 503
        assert "4 other searches for messages are running" in refused.text
        for one in viewers:
            one.task.cancel()
        await asyncio.gather(*(one.task for one in viewers), return_exceptions=True)
        assert (await client.get(PATH)).status_code == 200


async def test_viewer_who_takes_nothing_is_closed(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sending, "SEND_S", 0.5)
    console = app(bootstrap_servers=cluster.bootstrap_servers)
    async with console:
        await Viewer(console).task
    assert caplog.text.count("a viewer didn't take a page within 0.5 s: closed") == 1


async def test_page_in_pieces_is_whole(cluster: EmbeddedCluster) -> None:
    console = app(bootstrap_servers=cluster.bootstrap_servers)
    async with console, client_of(console) as client:
        page = (await client.get(f"{PATH}?format=json")).json()
        assert [len(one["value"]) for one in page["messages"]] == [100_000] * 20


async def test_viewer_who_leaves_ends_the_search(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "LIMIT_S", 300.0)
    console = app(bootstrap_servers=cluster.bootstrap_servers)
    cluster.fault(FetchRequest, then=Hang(), times=4)
    async with console:
        begin = len(cluster.history)
        viewers = [Viewer(console, f"contains={number}") for number in range(4)]

        async def is_fetching() -> bool:
            return any(type(one.request) is FetchRequest for one in cluster.history[begin:])

        await eventually(is_fetching)
        for one in viewers:
            one.left.set()
        async with asyncio.timeout(60):
            await asyncio.gather(*(one.task for one in viewers))
        assert [one.pieces for one in viewers] == [[b"requested"]] * 4


async def test_dead_cluster_is_told_to_all_after_the_same_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pages, "LIMIT_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        console = app(bootstrap_servers=f"127.0.0.1:{silent.getsockname()[1]}")
        async with console, client_of(console) as client:
            responses: list[httpx.Response] = await asyncio.gather(
                *(client.get(PATH) for _ in range(8))
            )
    for response in responses:
        assert response.status_code == 503
        assert "no broker responds within 1 s" in response.text


async def test_page_of_a_leader_that_is_silent_says_that_nothing_was_read(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It doesn't say that there is no message, and has no link to the same place."""
    monkeypatch.setattr(pages, "LIMIT_S", 0.5)
    console = app(bootstrap_servers=cluster.bootstrap_servers)
    cluster.fault(FetchRequest, then=Hang(), times=None)
    async with console, client_of(console) as client:
        page = (await client.get(f"{PATH}?partition=0")).text
    assert "No message could be read" in page
    assert "There is no message" not in page
    assert "Go on" not in page


async def test_console_that_is_not_run_reads_no_messages(cluster: EmbeddedCluster) -> None:
    console = app(bootstrap_servers=cluster.bootstrap_servers)
    begin = len(cluster.history)
    async with client_of(console) as client:
        for _ in range(2):
            for path in (PATH, f"{PATH}/0/0"):
                page = await client.get(path)
                assert (page.status_code, "async with console" in page.text) == (503, True)
            assert len(cluster.history) == begin
            async with console:
                assert (await client.get(PATH)).status_code == 200
            begin = len(cluster.history)
