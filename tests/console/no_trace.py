"""A console that samples a real cluster each second changes no node of ZooKeeper, and logs nothing.

    python -m tests.console.no_trace [--release 0.8.2.2] [--seconds 1800]

A topic, and a group in each store that the release has, are there before. Viewers open all pages,
of messages too, again and again. It ends with 1 if a node of ZooKeeper, or an entry of a broker's
log, has come, changed or gone. Nodes of sessions aren't compared: a client has one while it looks.
"""

from __future__ import annotations

import argparse
import asyncio
import difflib
import sys
import time
from typing import Any

from aiokafka08 import AIOKafkaProducer, TopicPartition
from aiokafka08._core.zookeeper.session import temporary_session
from aiokafka08.admin import AIOKafkaAdminClient
from tests.brokers.cluster import RealCluster
from tests.brokers.log_entries import entries
from tests.console.consoles import json_of, opened
from tests.support.zookeeper import UncheckedZookeeper

TOPIC, GROUP = "orders", "billing"
PAGES = (
    *("/", "/topics?internal=1", "/groups", "/watch", f"/topics/{TOPIC}", f"/group?name={GROUP}"),
    *(f"/topics/{TOPIC}/messages", f"/topics/{TOPIC}/messages/0/0", "/topics/missing/messages"),
    f"/group/reset?name={GROUP}&to=earliest",
)
"""What viewers open; the last topic doesn't exist, and must not be created."""
SETTLE_S = 5.0
CONNECTION = " INFO Closing socket connection to "
"""What these brokers log of each connection that a client closes, such as for a plan of a reset."""


def tree(connect: str) -> list[str]:
    """Return all nodes of ZooKeeper that last, with their data and version."""
    found: list[str] = []
    with temporary_session(UncheckedZookeeper(connect), 10, "test") as client:
        pending = ["/"]
        while pending:
            path = pending.pop()
            data, stat = client.get(path)
            if not stat.ephemeralOwner:
                found.append(f"{path} {data!r} version {stat.version}, children {stat.cversion}")
                base = path.rstrip("/")
                pending += [f"{base}/{child}" for child in client.get_children(path)]
    return sorted(found)


async def state(cluster: RealCluster) -> list[str]:
    """Return ZooKeeper's nodes and the entries of the broker's log, once they don't change."""
    found: list[str] = []
    while True:
        nodes = await asyncio.to_thread(tree, cluster.zookeeper_connect)
        log = [one for one in entries(cluster.log(0)) if CONNECTION not in one]
        before, found = found, [*nodes, *log]
        if found == before:
            return found
        await asyncio.sleep(SETTLE_S)


async def prepare(cluster: RealCluster) -> None:
    options: dict[str, Any] = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "zookeeper_connect": cluster.zookeeper_connect,
    }
    await asyncio.to_thread(cluster.create_topic, TOPIC, partitions=2)
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        await (await producer.send_many(TOPIC, [b"tea"] * 10, partition=0))
    async with AIOKafkaAdminClient(**options) as admin:
        for store in ("kafka", "zookeeper"):
            await admin.reset_consumer_group_offsets(
                GROUP, {TopicPartition(TOPIC, 0): 5}, offsets_storage=store
            )


async def look(cluster: RealCluster, seconds: float) -> int:
    """Open pages of a console that samples each second; return how many."""
    count, end = 0, time.monotonic() + seconds
    servers, zookeeper = cluster.bootstrap_servers, cluster.zookeeper_connect
    async with opened(servers, zookeeper_connect=zookeeper) as client:
        assert (await json_of(client, "/groups"))["total"] == 2
        while time.monotonic() < end:
            path = PAGES[count % len(PAGES)]
            status = (await client.get(path)).status_code
            assert status == (404 if "missing" in path else 200), path
            count += 1
            await asyncio.sleep(0.1)
    return count


async def compare(release: str, seconds: float) -> bool:
    """Run a cluster and a console; print what has changed, and return whether nothing has."""
    with RealCluster(release) as cluster:
        await prepare(cluster)
        before = await state(cluster)
        pages = await look(cluster, seconds)
        after = await state(cluster)
    changes = [
        line
        for line in difflib.unified_diff(before, after, "before", "after", lineterm="", n=0)
        if not line.startswith(("---", "+++", "@@"))
    ]
    print(*changes, sep="\n", end="\n" if changes else "")
    print(f"{release}: {pages} pages in {seconds:g} s, {len(before)} nodes and log entries before")
    print(f"{len(changes)} changes")
    return not changes


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--release", default="0.8.2.2")
    parser.add_argument("--seconds", type=float, default=1800.0)
    options = parser.parse_args()
    sys.exit(not asyncio.run(compare(options.release, options.seconds)))


if __name__ == "__main__":
    main()
