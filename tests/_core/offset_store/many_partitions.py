"""Commit 1,000 partitions to the ZooKeeper of a real cluster, through a broker and directly.

    python -m tests._core.offset_store.many_partitions

Prints the first commit, which creates the nodes, the median of five more, and a fetch. The CPU time
is that of this process, in all threads.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable

from aiokafka08 import TopicPartition
from aiokafka08._core.net.coordinator_lookup import CoordinatorLookup
from aiokafka08._core.net.router import Router
from aiokafka08._core.offset_store import CommitIdentity, OffsetStore
from aiokafka08._core.offset_store.choose import choose_offset_store
from aiokafka08.structs import OffsetAndMetadata
from aiokafka08.telemetry import Telemetry
from tests._core.offset_store.conftest import store_config
from tests.brokers.cluster import RealCluster
from tests.support.zookeeper import UncheckedZookeeper

RELEASE = "0.8.2.2"
PARTITIONS = 1000
OFFSETS = {
    TopicPartition("t", number): OffsetAndMetadata(number, "") for number in range(PARTITIONS)
}


async def main() -> None:
    with RealCluster(RELEASE) as cluster:
        await asyncio.to_thread(cluster.create_topic, "t")  # the nodes of others are taken too
        router = Router(
            store_config(cluster.bootstrap_servers, request_timeout_ms=60_000), Telemetry()
        )
        await router.start()
        for name, zookeeper in (
            ("broker", None),
            ("directly", UncheckedZookeeper(cluster.zookeeper_connect)),
        ):
            coordinator = CoordinatorLookup(router, name)
            store = await choose_offset_store(router, coordinator, "zookeeper", zookeeper)
            await store.start()
            await measure(name, store)
            await store.stop()
        await router.stop()


async def measure(name: str, store: OffsetStore) -> None:
    async def commit() -> None:
        await store.commit(OFFSETS, CommitIdentity())

    async def fetch() -> None:
        assert await store.fetch(OFFSETS) == OFFSETS

    print(f"{name}, first commit: {await timed(commit, 1)}")
    print(f"{name}, commit: {await timed(commit, 5)}")
    print(f"{name}, fetch: {await timed(fetch, 5)}")


async def timed(call: Callable[[], Awaitable[None]], times: int) -> str:
    took, cpu = [], []
    for _ in range(times):
        begin, begin_cpu = time.perf_counter(), time.process_time()
        await call()
        took.append(time.perf_counter() - begin)
        cpu.append(time.process_time() - begin_cpu)
    return f"{1e3 * statistics.median(took):.0f} ms, CPU {1e3 * statistics.median(cpu):.0f} ms"


if __name__ == "__main__":
    asyncio.run(main())
