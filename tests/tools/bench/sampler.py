"""Measure refreshes of the exporter: ``python -m tests.tools.bench.sampler TOPICS PARTITIONS``.

The embedded cluster runs in a process of its own. Each line is one refresh, as the exporter does
them: the first one connects, the others keep the client. It has the CPU seconds of this process,
for sample, history and page, without the cluster's, and the longest callback of its event loop, in
CPU seconds and in seconds.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
import time
from multiprocessing.connection import Connection

from aiokafka08._core.garbage import rare_full_collections
from aiokafka08._tools.monitoring.refresher import Refresher
from aiokafka08._tools.monitoring.sampler import ClusterSampler
from aiokafka08.admin import AIOKafkaAdminClient
from aiokafka08.testing import EmbeddedCluster

_REFRESHES = 4


def _serve(topics: int, partitions: int, pipe: Connection) -> None:
    """Run a cluster until the other end of the pipe is closed."""
    names = {f"topic-{number:05d}": partitions for number in range(topics)}
    with EmbeddedCluster(version="0.8.2", brokers=3, topics=names) as cluster:
        pipe.send(cluster.bootstrap_servers)
        pipe.poll(None)


async def _measure(servers: str) -> None:
    longest = [0.0, 0.0]
    real = asyncio.Handle._run

    def run(handle: asyncio.Handle) -> None:
        began, used = time.perf_counter(), time.thread_time()
        real(handle)
        longest[0] = max(longest[0], time.thread_time() - used)
        longest[1] = max(longest[1], time.perf_counter() - began)

    asyncio.Handle._run = run  # type: ignore[method-assign,assignment]
    refresher = Refresher(
        lambda: AIOKafkaAdminClient(bootstrap_servers=servers),
        lambda admin: ClusterSampler(admin, has_zookeeper=False),
        client_id="bench",
        interval_s=1.0,
    )
    used, done = time.process_time(), 0
    running = asyncio.create_task(refresher.run())
    while done < _REFRESHES:
        await asyncio.sleep(0.05)
        if refresher.status.refreshes == done:
            continue
        done, now = refresher.status.refreshes, time.process_time()
        failed = refresher.status.error or "; ".join(refresher.status.gaps)
        print(
            f"CPU {now - used:.2f} s, longest {longest[0]:.3f} s, held {longest[1]:.3f} s"
            + (f"; not a whole refresh: {failed}" if failed else ""),
            flush=True,
        )
        used, longest[:] = now, [0.0, 0.0]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def main() -> None:
    """Run the command."""
    topics, partitions = map(int, sys.argv[1:])
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_serve, args=(topics, partitions, theirs), daemon=True
    )
    process.start()
    try:
        with rare_full_collections(time.monotonic):
            asyncio.run(_measure(ours.recv()))
    finally:
        process.kill()
        process.join()


if __name__ == "__main__":
    main()
