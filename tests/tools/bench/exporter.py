"""Measure a refresh of the exporter: 1,000 partitions and 50 groups that have read all of them.

    python -m tests.tools.bench.exporter [--releases 0.8.2.2 0.10.2.2] [--partitions 1000] [--groups
    50]

The brokers are real ones, in processes of their own, on the same machine. On 0.8 the groups are in
ZooKeeper, later in Kafka. Each refresh reads everything anew, estimates lag and headroom, and
writes and compresses the text; its time is that of `kafka_exporter_scrape_duration_seconds`. The
CPU time is that of a later refresh, with the scrapes meanwhile. A scrape is a whole GET of
/metrics, most of them while a refresh runs. docs/monitoring.md quotes the table.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import statistics
import sys
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokafka08._core.metrics.endpoint import MetricsEndpoint
from aiokafka08._core.zookeeper.session import temporary_session
from aiokafka08._tools.cli.commands.exporter import SWITCH_S, health_page, metrics_page
from aiokafka08._tools.monitoring.refresher import Refresher
from aiokafka08._tools.monitoring.sampler import ClusterSampler
from aiokafka08.admin import AIOKafkaAdminClient, NewTopic
from aiokafka08.structs import TopicPartition
from tests.brokers.cluster import RealCluster
from tests.support.zookeeper import UncheckedZookeeper

RELEASES = ("0.8.2.2", "0.9.0.1", "0.10.2.2", "3.9.1")
PER_TOPIC = 100
REFRESHES = 5


async def fill(cluster: RealCluster, partitions: int, groups: int) -> None:
    """Create the topics, and commit an offset of each partition for each group."""
    tps = []
    async with AIOKafkaAdminClient(
        bootstrap_servers=cluster.bootstrap_servers, zookeeper_connect=cluster.zookeeper_connect
    ) as admin:
        for number in range(partitions // PER_TOPIC):
            topic = f"topic-{number:02}"
            await admin.create_topics([NewTopic(topic, PER_TOPIC, 1)])
            tps += [TopicPartition(topic, one) for one in range(PER_TOPIC)]
        if cluster.version.startswith("0.8"):
            await asyncio.to_thread(fill_zookeeper, cluster.zookeeper_connect, tps, groups)
            return
        for number in range(groups):
            await admin.reset_consumer_group_offsets(f"group-{number:02}", dict.fromkeys(tps, 0))


def fill_zookeeper(connect: str, tps: list[TopicPartition], groups: int) -> None:
    """Write the nodes that Scala consumers of 0.8 write."""
    with temporary_session(UncheckedZookeeper(connect), 30, "bench") as client:
        for number in range(groups):
            group = f"/consumers/group-{number:02}/offsets"
            for topic in dict.fromkeys(tp.topic for tp in tps):
                client.ensure_path(f"{group}/{topic}")
            waiting = [
                client.create_async(f"{group}/{tp.topic}/{tp.partition}", b"0") for tp in tps
            ]
            for one in waiting:
                one.get(timeout=30)


@asynccontextmanager
async def running(refresher: Refresher) -> AsyncIterator[MetricsEndpoint]:
    """Refresh and serve for the time of the block."""
    endpoint = MetricsEndpoint(
        "127.0.0.1",
        0,
        functools.partial(metrics_page, refresher),
        functools.partial(health_page, refresher),
        client_id="bench",
    )
    task = asyncio.create_task(refresher.run())
    try:
        yield endpoint
    finally:
        task.cancel()
        await asyncio.wait([task])
        endpoint.close()


def scrape(url: str, stop: asyncio.Event) -> list[float]:
    """Scrape until the event is set; return how long each scrape took."""
    times = []
    while not stop.is_set():
        begin = time.perf_counter()
        request = urllib.request.Request(url, headers={"Accept-Encoding": "gzip"})
        with urllib.request.urlopen(request, timeout=30) as response:
            response.read()
        times.append(time.perf_counter() - begin)
        time.sleep(0.1)
    return times


async def measure(cluster: RealCluster) -> tuple[list[float], list[float], float, int]:
    """Return the seconds of refreshes, of scrapes and of CPU per refresh, and the series."""
    has_zookeeper = cluster.version.startswith("0.8")
    connect = cluster.zookeeper_connect if has_zookeeper else None
    refresher = Refresher(
        lambda: AIOKafkaAdminClient(
            bootstrap_servers=cluster.bootstrap_servers,
            zookeeper_connect=connect,
            request_timeout_ms=20_000,
        ),
        lambda admin: ClusterSampler(admin, has_zookeeper=has_zookeeper),
        client_id="bench",
        interval_s=0,
    )
    durations: list[float] = []
    stop = asyncio.Event()
    async with running(refresher) as endpoint:
        scrapes = asyncio.create_task(asyncio.to_thread(scrape, endpoint.url, stop))
        while len(durations) < REFRESHES:
            seen = refresher.status.refreshes
            while refresher.status.refreshes == seen:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            durations.append(refresher.status.duration_s)
            if len(durations) == 1:
                begin = time.process_time()
        cpu_s = (time.process_time() - begin) / (REFRESHES - 1)
        ready = refresher.status.ready
        stop.set()
        times = await scrapes
    assert refresher.status.is_up, refresher.status
    assert not refresher.status.gaps, refresher.status.gaps
    assert ready is not None
    return durations, times, cpu_s, sum(line[:1] != b"#" for line in ready.text.splitlines())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--releases", nargs="+", default=RELEASES)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--groups", type=int, default=50)
    options = parser.parse_args()
    sys.setswitchinterval(SWITCH_S)
    print(f"{options.partitions} partitions, {options.groups} groups\n")
    print("| brokers | groups in | series | first refresh | later | CPU | scrape, median | worst |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    for release in options.releases:
        with RealCluster(release, java_options=["-XX:TieredStopAtLevel=4", "-Xmx2g"]) as cluster:
            asyncio.run(fill(cluster, options.partitions, options.groups))
            durations, scrapes, cpu_s, series = asyncio.run(measure(cluster))
        store = "ZooKeeper" if release.startswith("0.8") else "Kafka"
        print(
            f"| {release} | {store} | {series:,} | {durations[0]:.2f} s "
            f"| {statistics.median(durations[1:]):.2f} s | {cpu_s:.2f} s "
            f"| {statistics.median(scrapes):.3f} s | {max(scrapes):.3f} s |",
            flush=True,
        )


if __name__ == "__main__":
    main()
