"""A broker that accepts a request and never responds costs a caller a share of its own time.

Another broker would respond. The request timeout, which is longer, doesn't matter.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from aiokafka08._core.net.limits import NET_LIMITS
from aiokafka08._core.net.router import Router
from aiokafka08.protocol.requests.list_offsets import ListOffsetsRequest
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.testing import Delay, EmbeddedCluster, Fault, Hang
from tests._core.net.conftest import MakeConfig, Recorder
from tests.support.waiting import until

pytestmark = pytest.mark.both_loops

Connect = Callable[[EmbeddedCluster], Any]

LIMIT_S = 2.0
"""How long the callers wait."""


@pytest.fixture
def connect(make_config: MakeConfig, telemetry: Recorder) -> Connect:
    """`async with connect(cluster) as router`: of the brokers, only node 0 is connected to.

    So node 0 gets the next request for any broker.
    """

    @contextlib.asynccontextmanager
    async def connect(cluster: EmbeddedCluster) -> AsyncIterator[Router]:
        first = cluster.nodes[0]
        config = make_config(f"{first.host}:{first.port}", request_timeout_ms=60_000)
        router = Router(config, telemetry)
        router.metadata.add_topics(["t"])
        await router.start()
        try:
            yield router
        finally:
            await router.stop()

    return connect


def hang(cluster: EmbeddedCluster) -> Fault:
    return cluster.fault(MetadataRequest, then=Hang(), node=0, times=None)


async def _refresh(router: Router) -> object:
    return await router.metadata.refresh(LIMIT_S)


async def _fetch_all(router: Router) -> object:
    return await router.metadata.fetch_all(LIMIT_S)


async def _wait_for_topic(router: Router) -> object:
    return await router.metadata.wait_for_topic("new", timeout_s=LIMIT_S)


async def _wait_for_partitions(router: Router) -> None:
    await router.metadata.wait_for_partitions("t", [0], timeout_s=LIMIT_S)


CALLERS: list[Callable[[Router], Awaitable[object]]] = [
    _refresh,
    _fetch_all,
    _wait_for_topic,
    _wait_for_partitions,
]


@pytest.mark.parametrize("call", CALLERS)
async def test_a_hanging_broker_costs_a_share_of_the_callers_time(
    connect: Connect, call: Callable[[Router], Awaitable[object]]
) -> None:
    async with EmbeddedCluster(brokers=2, topics={"t": 1}) as cluster, connect(cluster) as router:
        fault = hang(cluster)
        began = asyncio.get_running_loop().time()
        await call(router)
        assert asyncio.get_running_loop().time() - began < LIMIT_S
        assert fault.hits


async def test_a_caller_that_joins_a_hanging_refresh_has_time_left(connect: Connect) -> None:
    """The refresh in the background has the request timeout, the caller that joins it less."""
    async with EmbeddedCluster(brokers=2, topics={"t": 1}) as cluster, connect(cluster) as router:
        fault = hang(cluster)
        router.metadata.request_refresh()
        await until(lambda: fault.hits, "the refresh hangs")
        await router.metadata.wait_for_topic("new", timeout_s=3)


async def test_a_caller_that_joins_a_refresh_hurries_it(connect: Connect) -> None:
    """Two brokers of four hang, each for a share of the time of the one who joins."""
    async with EmbeddedCluster(brokers=4, topics={"t": 1}) as cluster, connect(cluster) as router:
        faults = [
            cluster.fault(MetadataRequest, then=Hang(), node=node, times=None) for node in (0, 1)
        ]
        nodes = [router.nodes.get(node) for node in range(4)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(router.nodes, "candidates", lambda: nodes)
            router.metadata.request_refresh()
            await until(lambda: faults[0].hits, "the refresh hangs")
            began = asyncio.get_running_loop().time()
            await router.metadata.refresh(1.8)
            assert asyncio.get_running_loop().time() - began < 1.8
        assert faults[1].hits


async def test_the_start_goes_on_with_another_broker(
    make_config: MakeConfig, telemetry: Recorder
) -> None:
    async with EmbeddedCluster(brokers=2, topics={"t": 1}) as cluster:
        hang(cluster)
        config = make_config(
            cluster.bootstrap_servers, request_timeout_ms=60_000, start_timeout_ms=4000
        )
        router = Router(config, telemetry)
        router.metadata.add_topics(["t"])
        try:
            await router.start()
        finally:
            await router.stop()


async def test_a_slow_response_counts_when_no_broker_is_faster(connect: Connect) -> None:
    """The request to the first broker goes on beside that to the next one."""
    async with EmbeddedCluster(brokers=2, topics={"t": 1}) as cluster, connect(cluster) as router:
        cluster.fault(MetadataRequest, then=Delay(1.5), node=0, times=None)
        cluster.fault(MetadataRequest, then=Hang(), node=1, times=None)
        await router.metadata.refresh(4)


async def test_a_refresh_outlasts_a_caller_that_waits_no_longer(connect: Connect) -> None:
    async with EmbeddedCluster(topics={"t": 1}) as cluster, connect(cluster) as router:
        fault = cluster.fault(MetadataRequest, then=Delay(0.5))
        patient = asyncio.create_task(router.metadata.refresh())
        await until(lambda: fault.hits, "the refresh is under way")
        with pytest.raises(TimeoutError):
            await router.metadata.refresh(0.05)
        await patient


async def test_a_silent_address_comes_after_the_broker(
    make_config: MakeConfig, telemetry: Recorder
) -> None:
    """Both are connected; only one of them has ever responded. See `test_half_dead_addresses`."""
    limits = NET_LIMITS._replace(unresponsive_s=1000.0)
    async with EmbeddedCluster(brokers=2, topics={"t": 1}) as cluster:
        cluster.fault(ListOffsetsRequest, then=Hang(), node=0, times=None)
        config = make_config(
            cluster.bootstrap_servers,
            api_version="0.8.2",
            request_timeout_ms=60_000,
            start_timeout_ms=4000,
            limits=limits,
        )
        router = Router(config, telemetry)
        try:
            node = await router.nodes.bootstrap()
            silent = [other for other in router.nodes.candidates() if other is not node]
            assert [other.is_connected for other in silent] == [True]
            for _ in range(30):  # the rest of the order is random
                assert router.nodes.candidates()[0] is node
        finally:
            await router.stop()
