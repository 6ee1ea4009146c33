"""`CoordinatorLookup`: one lookup for all callers, errors, brokers that Metadata doesn't name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from aiokafka08._core.net.config import Address
from aiokafka08._core.net.coordinator_lookup import CoordinatorLookup
from aiokafka08._core.net.router import Router
from aiokafka08.errors import (
    GroupCoordinatorNotAvailableError,
    KafkaConnectionError,
    UnsupportedVersionError,
)
from aiokafka08.protocol.api import ApiKey
from aiokafka08.protocol.requests.committed_offsets import OffsetFetchRequest
from aiokafka08.protocol.requests.groups import GroupCoordinatorRequest, GroupCoordinatorResponse
from aiokafka08.testing import Answer, EmbeddedCluster
from tests._core.net.conftest import MakeConfig, Recorder
from tests._core.net.scripted_peers import OF_0_8_2, ScriptedPeer, listening

MakeRouter = Callable[..., Any]
FETCH = OffsetFetchRequest("g", [])


@pytest.fixture
async def make_router(make_config: MakeConfig, telemetry: Recorder) -> AsyncIterator[MakeRouter]:
    """Started routers, stopped at the end of the test."""
    made: list[Router] = []

    async def make(at: EmbeddedCluster | Address, **options: Any) -> Router:
        servers = at.bootstrap_servers if isinstance(at, EmbeddedCluster) else [at]
        router = Router(make_config(servers, **options), telemetry)
        made.append(router)
        await router.start()
        return router

    yield make
    for router in made:
        await router.stop()


@pytest.mark.parametrize("version", ["0.8.2", "0.9", "0.10"])
async def test_coordinator_is_found_without_tracked_topics(
    make_router: MakeRouter, version: str
) -> None:
    async with EmbeddedCluster(3, version, topics={"t": 1}) as cluster:
        router = await make_router(cluster)
        coordinator = CoordinatorLookup(router, "g")
        node_id = await coordinator.node_id()
        assert node_id == cluster.coordinator("g")
        await router.request(FETCH, node_id=node_id, version=1)
        # What Metadata says of others doesn't take it away.
        await router.metadata.wait_for_topic("t", timeout_s=5)
        await router.request(FETCH, node_id=node_id, version=1)


async def test_concurrent_callers_share_one_lookup(make_router: MakeRouter) -> None:
    async with EmbeddedCluster(1, "0.9", topics={"t": 1}) as cluster:
        router = await make_router(cluster)
        coordinator = CoordinatorLookup(router, "g")
        first = await coordinator.node_id()
        coordinator.invalidate(first + 1)  # not the one that is known
        before = len(cluster.requests(GroupCoordinatorRequest))
        assert await asyncio.gather(*(coordinator.node_id() for _ in range(5))) == [first] * 5
        assert len(cluster.requests(GroupCoordinatorRequest)) == before
        coordinator.invalidate(first)
        assert await asyncio.gather(*(coordinator.node_id() for _ in range(5))) == [first] * 5
        assert len(cluster.requests(GroupCoordinatorRequest)) == before + 1


async def test_0_8_2_without_any_topic_error_has_a_hint(make_router: MakeRouter) -> None:
    async with EmbeddedCluster(1, "0.8.2") as cluster:
        router = await make_router(cluster)
        with pytest.raises(GroupCoordinatorNotAvailableError, match="create a topic") as failure:
            await CoordinatorLookup(router, "g").node_id(timeout_s=0.3)
        assert "'g': no coordinator within 300 ms" in str(failure.value)
        cluster.create_topic("t")
        assert await CoordinatorLookup(router, "g").node_id() == cluster.coordinator("g")


async def test_leaderless_offsets_partition_is_the_hint(make_router: MakeRouter) -> None:
    async with EmbeddedCluster(2, "0.9", topics={"t": 1}) as cluster:
        router = await make_router(cluster)
        node_id = await CoordinatorLookup(router, "g").node_id()
        cluster.kill(node_id, then="leaderless")
        with pytest.raises(GroupCoordinatorNotAvailableError) as failure:
            await CoordinatorLookup(router, "g").node_id(timeout_s=1)
        text = str(failure.value)
        assert "of __consumer_offsets, which store the groups, have no leader: start the" in text
        assert "create a topic" not in text


@pytest.mark.parametrize("version", ["0.8.2", "0.9", "0.10"])
async def test_unavailable_coordinator_hint_fits_the_cluster(
    make_router: MakeRouter, version: str
) -> None:
    async with EmbeddedCluster(1, version, topics={"t": 1}) as cluster:
        router = await make_router(cluster)
        cluster.fault(GroupCoordinatorRequest, then=Answer(15), times=None)
        with pytest.raises(GroupCoordinatorNotAvailableError) as failure:
            await CoordinatorLookup(router, "g").node_id(timeout_s=0.3)
        assert "haven't created __consumer_offsets" in str(failure.value)
        assert "offsets.topic.replication.factor" in str(failure.value)
        assert ("create a topic" in str(failure.value)) == (version == "0.8.2")
        with pytest.raises(GroupCoordinatorNotAvailableError, match="has its leaders: see"):
            await CoordinatorLookup(router, "g").node_id(timeout_s=0.3)


async def test_lines_without_coordinators_fail_at_once(make_router: MakeRouter) -> None:
    async with EmbeddedCluster(1, "0.8.1", topics={"t": 1}) as cluster:
        router = await make_router(cluster)
        with pytest.raises(UnsupportedVersionError, match=r"0\.8\.1"):
            await CoordinatorLookup(router, "g").node_id()


@pytest.mark.parametrize(
    ("node_id", "host", "port"), [(-1, "h", 1), (0, "", 1), (0, "h", 0), (0, "h", 65536)]
)
async def test_an_invalid_coordinator_is_refused(
    make_router: MakeRouter, node_id: int, host: str, port: int
) -> None:
    answers = OF_0_8_2 | {
        ApiKey.GROUP_COORDINATOR: GroupCoordinatorResponse(0, node_id, host, port)
    }
    async with listening(ScriptedPeer(answers)) as peer:
        router = await make_router(peer.address)
        with pytest.raises(GroupCoordinatorNotAvailableError, match="invalid coordinator"):
            await CoordinatorLookup(router, "g").node_id(timeout_s=2)
        with pytest.raises(KafkaConnectionError, match="isn't in the cluster's metadata"):
            await router.request(FETCH, node_id=node_id, version=1)
