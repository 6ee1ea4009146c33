"""200 viewers of a cluster of 1,000 partitions cost its brokers what one viewer does."""

from __future__ import annotations

import gc
import time
from collections import Counter

import pytest

from aiokafka08._tools.monitoring.cluster_sample import ClusterSample
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.testing import EmbeddedCluster
from tests.console.consoles import opened
from tests.console.viewers import MIB, Viewers, commit_all, console_of, pages_of, topics_named
from tests.support.waiting import eventually

INTERVAL_S = 2.0
VIEWERS = 200
GROUPS = 2
WARM_UP_S = 60.0
"""Some samples of a minute are kept: the doctor's rules compare them."""
GROWTH_MIB = 16


def kinds_sent(cluster: EmbeddedCluster, begin: int) -> Counter[type]:
    """Return the kinds of requests after a place of the history."""
    return Counter(type(recorded.request) for recorded in cluster.history[begin:])


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(12.0, marks=pytest.mark.timeout(180)),
        pytest.param(600.0, marks=[pytest.mark.full, pytest.mark.timeout(1200)]),
    ],
)
async def test_viewers_cost_brokers_and_memory_nothing(seconds: float) -> None:
    topics = topics_named(50, 20)
    async with EmbeddedCluster(version="0.10", brokers=3, topics=topics) as cluster:
        await commit_all(cluster.bootstrap_servers, topics, GROUPS)
        with console_of(cluster.bootstrap_servers, INTERVAL_S) as (process, base, token):
            async with Viewers(base, token, pages_of(topics, GROUPS), INTERVAL_S) as viewers:
                begin = len(cluster.history)
                await viewers.watch(1, 4 * INTERVAL_S)
                for_one = kinds_sent(cluster, begin)
                await viewers.watch(VIEWERS, min(seconds / 2, WARM_UP_S))
                before = process.memory_info().rss / MIB
                begin, started = len(cluster.history), time.monotonic()
                loads = await viewers.watch(VIEWERS, seconds)
                samples = (time.monotonic() - started) / INTERVAL_S + 2
                for_all = kinds_sent(cluster, begin)
                after = process.memory_info().rss / MIB
    assert len(loads) >= VIEWERS
    # Each sample begins with one request for the cluster's metadata.
    of_a_sample = for_one.total() / for_one[MetadataRequest]
    assert for_all.total() <= samples * of_a_sample * 1.5
    assert after <= before + GROWTH_MIB


async def test_few_samples_are_kept() -> None:
    async with (
        EmbeddedCluster(version="0.10", topics={"orders": 1}) as cluster,
        opened(cluster.bootstrap_servers),
    ):
        begin = len(cluster.history)

        async def are_taken() -> bool:
            return kinds_sent(cluster, begin)[MetadataRequest] >= 8

        await eventually(are_taken)
        gc.collect()
        assert sum(isinstance(one, ClusterSample) for one in gc.get_objects()) <= 4
