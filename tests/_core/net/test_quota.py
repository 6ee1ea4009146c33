"""`fetch_within_quota()`: a delay that a broker demands is waited for, up to the deadline."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from aiokafka08._core.net.quota import fetch_within_quota
from aiokafka08._core.net.router import Lane, Router
from aiokafka08.errors import KafkaTimeoutError
from aiokafka08.protocol.api import Topic
from aiokafka08.protocol.requests.fetch import FetchPartition, FetchRequest
from aiokafka08.testing import EmbeddedCluster, Omit
from tests._core.net.conftest import MakeConfig, Recorder

PEEK = FetchRequest(-1, 0, 0, [Topic("t", [FetchPartition(0, 0, 1000)])])


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(version="0.10", topics={"t": 1}) as running:
        running.append("t", 0, [b"v"])
        yield running


@pytest.fixture
async def router(cluster: EmbeddedCluster, make_config: MakeConfig) -> AsyncIterator[Router]:
    router = Router(make_config(cluster.bootstrap_servers), Recorder())
    router.metadata.add_topics(["t"])
    await router.start()
    yield router
    await router.stop()


async def test_data_come_after_the_delay(cluster: EmbeddedCluster, router: Router) -> None:
    cluster.fault(FetchRequest, then=Omit(throttle_time_ms=100), times=2)
    began = asyncio.get_running_loop().time()
    response = await fetch_within_quota(router, PEEK, node_id=0, lane=Lane.CONTROL, timeout_s=20)
    assert response.topics[0].partitions[0].message_set
    assert asyncio.get_running_loop().time() - began >= 0.19


async def test_a_delay_beyond_the_deadline_is_an_error_at_once(
    cluster: EmbeddedCluster, router: Router
) -> None:
    cluster.fault(FetchRequest, then=Omit(throttle_time_ms=60_000))
    with pytest.raises(KafkaTimeoutError, match="client_id='tests' exceeds its quota"):
        await asyncio.wait_for(
            fetch_within_quota(router, PEEK, node_id=0, lane=Lane.CONTROL, timeout_s=10), 5
        )
