"""Sample a cluster, once or twice, for the rules.

Invariant: only requests that read are sent, none by which a broker creates a topic, and none that
leaves an error in a broker's log, except where a partition is damaged at a group's position.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

from aiokafka08._core.net.router import Router
from aiokafka08._tools.doctor.brokers import releases_of
from aiokafka08._tools.doctor.examination import Examination
from aiokafka08._tools.doctor.log_samples import LogSampler
from aiokafka08._tools.monitoring.sampler import ClusterSampler
from aiokafka08.admin import AIOKafkaAdminClient


async def look(
    admin: AIOKafkaAdminClient,
    router: Router,
    *,
    has_zookeeper: bool,
    watch_s: float | None,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    search_clock: Callable[[], float] = time.monotonic,
) -> Examination:
    """Return the samples of the cluster.

    Args:
        admin: a started client of the cluster.
        router: a started router of the cluster, which creates no topic.
        has_zookeeper: whether the client may read the cluster's ZooKeeper.
        watch_s: seconds between two samples; None takes only one.
        sleep: waits this many seconds.
        search_clock: returns seconds, to measure the brokers' searches.

    Raises:
        KafkaError: no broker responds.
    """
    clock = asyncio.get_running_loop().time
    cluster = ClusterSampler(admin, has_zookeeper=has_zookeeper)
    logs = LogSampler(router, router.config.request_timeout_s, search_clock)
    began, first = clock(), await cluster.sample()
    releases = releases_of(first)
    # `mixed_lines` compares the exact releases of 0.8; a single broker needs no comparison.
    if len(releases) > 1:
        releases = await logs.tell_0_8_apart(first, releases)
    formats = await logs.formats(first, releases)
    searches = await logs.searches(first)
    damaged = await logs.damaged_positions(first)
    seen = Examination(
        first,
        first,
        0.0,
        has_zookeeper,
        releases,
        formats,
        searches,
        damaged,
        refused_topics=logs.refused_topics,
    )
    if watch_s is None:
        return seen
    scans = await logs.key_scans(first)
    await sleep(max(began + watch_s - clock(), 0.0))
    elapsed_s, last = clock() - began, await cluster.sample()
    later = await logs.key_scans(last)
    return replace(seen, last=last, elapsed_s=elapsed_s, scans=(scans, later))
