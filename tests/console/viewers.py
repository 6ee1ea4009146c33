"""Viewers who leave pages of a console open, which load themselves again at each interval.

    python -m tests.console.viewers [--viewers 200] [--topics 50 --partitions 20] [--seconds 60]

This measures the pages. The embedded cluster and the console have a process each, the viewers are
in this one, on the same machine.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import httpx
import psutil

from aiokafka08.admin import AIOKafkaAdminClient
from aiokafka08.structs import TopicPartition
from tests.console.consoles import is_ready
from tests.console.test_command import running
from tests.support.waiting import eventually
from tests.tools.bench.embedded import embedded_cluster

GROUPS = 50
MIB = 1 << 20


def topics_named(topics: int, partitions: int) -> dict[str, int]:
    """Return the names of topics with their number of partitions."""
    return {f"topic-{number:02}": partitions for number in range(topics)}


async def commit_all(servers: str, topics: Mapping[str, int], groups: int = GROUPS) -> None:
    """Commit an offset of each partition for each group."""
    tps = [TopicPartition(topic, one) for topic, count in topics.items() for one in range(count)]
    async with AIOKafkaAdminClient(bootstrap_servers=servers) as admin:
        for number in range(groups):
            await admin.reset_consumer_group_offsets(f"group-{number:02}", dict.fromkeys(tps, 0))


def pages_of(topics: Mapping[str, int], groups: int = GROUPS) -> list[str]:
    """Return the pages that viewers leave open: of the cluster, of each topic, of each group."""
    return [
        *("/", "/topics?sort=-rate", "/groups?sort=-lag", "/watch"),
        *(f"/topics/{topic}" for topic in topics),
        *(f"/group?name=group-{number:02}" for number in range(groups)),
    ]


class Viewers:
    """Viewers of one console, each of whom has a page open.

    Args:
        base, token: where it is, and what admits.
        pages: the paths; viewer n has page n, and so on from the first one again.
        interval_s: time from one load of a page to the next.
    """

    def __init__(self, base: str, token: str, pages: Sequence[str], interval_s: float) -> None:
        self._pages, self._interval_s = pages, interval_s
        self._client = httpx.AsyncClient(
            base_url=base,
            headers={"authorization": f"Bearer {token}"},
            # The console ends an idle connection after 5 s. On a busy machine the client may learn
            # that only when it has sent the next request, so each load has its own connection.
            limits=httpx.Limits(max_keepalive_connections=0),
            timeout=60,
        )

    async def __aenter__(self) -> Viewers:
        await eventually(lambda: is_ready(self._client))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def watch(self, viewers: int, seconds: float) -> list[float]:
        """Keep this number of pages open; return how long each load took."""
        took: list[float] = []
        begin = time.monotonic()

        async def view(number: int) -> None:
            at = begin + self._interval_s * number / viewers
            while at < begin + seconds:
                await asyncio.sleep(at - time.monotonic())
                started = time.perf_counter()
                page = await self._client.get(self._pages[number % len(self._pages)])
                took.append(time.perf_counter() - started)
                assert page.status_code == 200, page.text
                at = max(at + self._interval_s, time.monotonic())

        async with asyncio.TaskGroup() as tasks:
            for number in range(viewers):
                tasks.create_task(view(number))
        return took


@contextmanager
def console_of(servers: str, interval_s: float) -> Iterator[tuple[psutil.Process, str, str]]:
    """Run a console; yield its process, its base URL and its token."""
    at = ("-b", servers, "--listen", ":0", "--interval", f"{interval_s:g}")
    with running(*at) as (process, url):
        base, token = url.split("/?token=")
        yield psutil.Process(process.pid), base, token


async def _measure(servers: str, options: argparse.Namespace) -> None:
    topics = topics_named(options.topics, options.partitions)
    await commit_all(servers, topics, options.groups)
    pages = pages_of(topics, options.groups)
    with console_of(servers, options.interval) as (process, base, token):
        async with Viewers(base, token, pages, options.interval) as viewers:
            await viewers.watch(options.viewers, options.interval)
            used, rss = process.cpu_times(), process.memory_info().rss
            took = sorted(await viewers.watch(options.viewers, options.seconds))
            now = process.cpu_times()
    cpu = (now.user + now.system - used.user - used.system) / options.seconds
    p50, p99 = (took[math.ceil(len(took) * share) - 1] for share in (0.5, 0.99))
    print(
        f"{options.viewers} viewers, {len(took) / options.seconds:.0f} pages/s, "
        f"{options.topics * options.partitions} partitions, {options.groups} groups, a sample "
        f"each {options.interval:g} s: median {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms, "
        f"longest {took[-1] * 1000:.0f} ms; {100 * cpu:.0f} % of a core, {rss / MIB:.0f} MiB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--viewers", type=int, default=200)
    parser.add_argument("--topics", type=int, default=50)
    parser.add_argument("--partitions", type=int, default=20)
    parser.add_argument("--groups", type=int, default=GROUPS)
    parser.add_argument("--interval", type=float, default=10.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    topics = topics_named(options.topics, options.partitions)
    with embedded_cluster(topics, "--version=0.10", "--brokers=3") as servers:
        asyncio.run(_measure(servers, options))


if __name__ == "__main__":
    main()
