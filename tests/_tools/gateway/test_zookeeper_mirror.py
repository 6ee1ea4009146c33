"""A real ZooKeeper that follows the embedded cluster."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from aiokafka08._core.names import NamePatterns, compile_patterns
from aiokafka08._tools.gateway.access import Access
from aiokafka08._tools.gateway.gateway import Gateway
from aiokafka08._tools.gateway.options import gateway_options
from aiokafka08._tools.gateway.peers import FIRST_ID
from aiokafka08._tools.gateway.port_table import PortTable
from aiokafka08._tools.gateway.zookeeper_mirror import ZookeeperMirror, why_unusable
from aiokafka08.testing import EmbeddedCluster
from tests._tools.gateway.gateways import HOST
from tests.brokers.fixtures import zookeeper_alone
from tests.brokers.ports import free_ports
from tests.brokers.zookeeper import ZooKeeperServer
from tests.support.waiting import eventually, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

NUMBERS = itertools.count()
SILENT = logging.getLogger("tests.kazoo")
SILENT.setLevel(logging.CRITICAL + 1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with zookeeper_alone(tmp_path_factory.mktemp("zookeeper"), "0.10.2.2") as made:
        yield made


class Tree:
    """A chroot."""

    def __init__(self, server: ZooKeeperServer) -> None:
        self._root = f"/mirror-{next(NUMBERS)}"
        self.connect = server.connect + self._root
        self._client = KazooClient(server.connect, timeout=60, logger=SILENT)
        self._client.start(30)
        self._client.ensure_path(self._root)

    def close(self) -> None:
        self._client.stop()
        self._client.close()

    async def _do(self, call: Callable[..., Any], path: str, *values: Any, **options: Any) -> Any:
        return await asyncio.to_thread(call, self._root + path, *values, **options)

    async def put(self, path: str, text: str) -> None:
        await self._do(self._client.create, path, text.encode(), makepath=True)

    async def remove(self, path: str) -> None:
        await self._do(self._client.delete, path)

    async def names(self, path: str) -> list[str]:
        try:
            return sorted(await self._do(self._client.get_children, path))
        except NoNodeError:
            return []

    async def fields(self, path: str) -> dict[str, Any]:
        found = json.loads((await self._do(self._client.get, path))[0])
        assert isinstance(found, dict)
        return found

    async def until_names(self, path: str, *names: str) -> None:
        async def are_there() -> bool:
            return await self.names(path) == sorted(names)

        await eventually(are_there, 60, 0.1)


@pytest.fixture
async def tree(server: ZooKeeperServer) -> AsyncIterator[Tree]:
    made = await asyncio.to_thread(Tree, server)
    yield made
    await asyncio.to_thread(made.close)


@asynccontextmanager
async def mirrored(
    targets: str, tree: Tree, interval_s: float = 0.2, **changed: Any
) -> AsyncIterator[tuple[Gateway, ZookeeperMirror]]:
    """Run a gateway that keeps a ZooKeeper current."""
    changed = {"listen": (HOST, free_ports()), **changed}
    options = replace(gateway_options(targets, zookeeper=tree.connect), **changed)
    gateway = Gateway(options, PortTable())
    mirror = ZookeeperMirror(options, gateway.address_of, gateway.peers, interval_s)
    await gateway.start()
    mirror.start()
    try:
        yield gateway, mirror
    finally:
        await mirror.stop()
        await gateway.stop()


async def test_allowed_topics_and_the_gateways_addresses_are_written(tree: Tree) -> None:
    only = Access(NamePatterns(compile_patterns("include", ["orders|new"])))
    async with (
        EmbeddedCluster(2, version="0.10", topics={"orders": 2, "secret": 1}) as cluster,
        mirrored(
            cluster.bootstrap_servers, tree, access=only, peers=(("g2", 9092),), advertise="here"
        ) as (gateway, _),
    ):
        await tree.until_names("/brokers/topics", "orders")
        await tree.until_names("/brokers/ids", "0", "1", str(FIRST_ID))
        for node, port in gateway.ports.items():
            fields = await tree.fields(f"/brokers/ids/{node}")
            assert (fields["host"], fields["port"]) == ("here", port)
        peer = await tree.fields(f"/brokers/ids/{FIRST_ID}")
        assert (peer["host"], peer["port"]) == ("g2", 9092)
        cluster.create_topic("new", 1)
        await tree.until_names("/brokers/topics", "new", "orders")
        cluster.kill(1)

        async def has_moved() -> bool:
            states = [
                await tree.fields(f"/brokers/topics/orders/partitions/{number}/state")
                for number in (0, 1)
            ]
            return [one["leader"] for one in states] == [0, 0]

        await eventually(has_moved, 60, 0.1)
        await tree.until_names("/brokers/ids", "0", str(FIRST_ID))
    await tree.until_names("/brokers/ids")
    await tree.until_names("/brokers/topics", "new", "orders")


@pytest.mark.parametrize("is_silent", [False, True])
async def test_nodes_come_back_when_zookeeper_does(
    is_silent: bool, tree: Tree, server: ZooKeeperServer, caplog: pytest.LogCaptureFixture
) -> None:
    """It restarts, or is silent for longer than sessions last. That is logged once."""
    async with (
        EmbeddedCluster(1, version="0.10", topics={"t": 1}) as cluster,
        mirrored(cluster.bootstrap_servers, tree),
    ):
        await tree.until_names("/brokers/ids", "0")
        if is_silent:
            server.process.pause()
        else:
            await asyncio.to_thread(server.process.terminate, 30)
        cluster.create_topic("new", 1)

        def errors() -> list[logging.LogRecord]:
            return [
                one
                for one in caplog.records
                if one.name == "aiokafka08.gateway" and one.levelno >= logging.ERROR
            ]

        await until(errors, timeout_s=60)
        if is_silent:
            server.process.resume()
        else:
            await asyncio.to_thread(server.start, 60)
        await tree.until_names("/brokers/topics", "new", "t")
        await tree.until_names("/brokers/ids", "0")
        assert len(errors()) <= 3  # such as no response, refused, can't be reached
        assert all("Trying again every 0.2 s" in one.getMessage() for one in errors())


async def test_broker_in_the_tree_is_an_error_once_and_then_no_more(
    tree: Tree, caplog: pytest.LogCaptureFixture
) -> None:
    await tree.put("/brokers/ids/5", '{"version":1,"host":"kafka1","port":9092}')
    async with (
        EmbeddedCluster(1, version="0.10", topics={"t": 1}) as cluster,
        mirrored(cluster.bootstrap_servers, tree),
    ):
        await until(lambda: "a broker (kafka1:9092)" in caplog.text, timeout_s=30)
        await tree.until_names("/brokers/topics")
        await tree.remove("/brokers/ids/5")
        await tree.until_names("/brokers/ids", "0")
        assert caplog.text.count("a broker (kafka1:9092)") == 1


async def test_check_finds_what_is_in_the_way_in_zookeeper(
    tree: Tree, server: ZooKeeperServer
) -> None:
    options = gateway_options("kafka:9092", zookeeper=tree.connect)
    await tree.put("/brokers/topics/t", '{"version":1,"partitions":{"0":[7]}}')
    assert await why_unusable(options) is None
    assert await tree.names("/") == ["brokers"]  # nothing was written
    await tree.put("/brokers/ids/5", '{"version":1,"host":"kafka1","port":9092}')
    assert "a broker (kafka1:9092)" in str(await why_unusable(options))
    missing = replace(options, zookeeper=f"{server.connect}/missing")
    assert str(await why_unusable(missing)).endswith("has no chroot /missing")


async def test_topics_that_vanish_together_stay(
    tree: Tree, caplog: pytest.LogCaptureFixture
) -> None:
    """The gateway may have lost the right to describe them. A new one deletes none at once."""
    await tree.put("/brokers/topics/a", '{"version":1,"partitions":{"0":[7,8]}}')
    names = ["a", "b", "c"]
    async with EmbeddedCluster(1, version="0.10", topics=dict.fromkeys(names, 1)) as cluster:
        async with mirrored(cluster.bootstrap_servers, tree):
            await tree.until_names("/brokers/topics", *names)
            cluster.delete_topic("c")
            await tree.until_names("/brokers/topics", "a", "b")
            cluster.delete_topic("a")
            cluster.delete_topic("b")
            await until(lambda: "more than half of all: a, b." in caplog.text, timeout_s=30)
            cluster.create_topic("d", 1)
            await tree.until_names("/brokers/topics", "a", "b", "d")
            assert caplog.text.count("more than half of all: a, b.") == 1
        assert (await tree.fields("/brokers/topics/a"))["partitions"] == {"0": [0]}
        async with mirrored(cluster.bootstrap_servers, tree, interval_s=3600):
            await tree.until_names("/brokers/ids", "0")
            assert await tree.names("/brokers/topics") == ["a", "b", "d"]
        async with mirrored(cluster.bootstrap_servers, tree):
            await tree.until_names("/brokers/topics", "a", "d")
        assert (await tree.fields("/brokers/topics/a"))["partitions"] == {}


async def test_target_that_is_away_removes_nothing(
    tree: Tree, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        EmbeddedCluster(1, version="0.10", topics={"t": 1}) as cluster,
        mirrored(cluster.bootstrap_servers, tree),
    ):
        await tree.until_names("/brokers/topics", "t")
        cluster.kill(0)
        await until(lambda: "ZooKeeper isn't kept current" in caplog.text, timeout_s=30)
        assert await tree.names("/brokers/ids") == ["0"]
        assert await tree.names("/brokers/topics") == ["t"]
