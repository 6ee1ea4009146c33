"""Viewers who leave pages of a console open, which load themselves again at each interval.

    python -m tests.console.viewers [--viewers 200] [--topics 50 --partitions 20] [--seconds 60]

This measures the pages, and how soon a console that was just started has one. The embedded cluster
and the console have a process each, the viewers are in this one, on the same machine. Memory is
that of the console's process.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path

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
    of_topics = [f"/topics/{topic}" for topic in topics]
    of_groups = [f"/group?name=group-{number:02}" for number in range(groups)]
    return [
        *("/", "/topics?sort=-rate", "/groups?sort=-lag", "/watch"),
        *(page for both in zip_longest(of_groups, of_topics) for page in both if page is not None),
    ]


class Viewers:
    """Viewers of one console, each of whom has a page open.

    Args:
        base, token: where it is, and what admits.
        pages: the paths; viewer n has page n, and so on from the first one again.
        interval_s: time from one load of a page to the next.

    Attributes:
        first_at, complete_at: when there was the first page, and the first one with data.
    """

    first_at: float | None = None
    complete_at: float | None = None

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
        await eventually(self._is_ready)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def _is_ready(self) -> bool:
        if await is_ready(self._client):
            self.complete_at = time.time()
        self.first_at = self.first_at or time.time()
        return self.complete_at is not None

    async def watch(self, viewers: int, seconds: float) -> list[tuple[float, str]]:
        """Keep this number of pages open; return how long each load took, and of which page."""
        took: list[tuple[float, str]] = []
        begin = time.monotonic()

        async def view(number: int) -> None:
            at = begin + self._interval_s * number / viewers
            while at < begin + seconds:
                await asyncio.sleep(at - time.monotonic())
                started = time.perf_counter()
                path = self._pages[number % len(self._pages)]
                page = await self._client.get(path)
                took.append((time.perf_counter() - started, path))
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
            used = process.cpu_times()
            took = sorted(await viewers.watch(options.viewers, options.seconds))
            now, rss = process.cpu_times(), process.memory_info().rss
            status = Path(f"/proc/{process.pid}/status").read_text()
            first_s, complete_s = (
                (at or math.nan) - process.create_time()
                for at in (viewers.first_at, viewers.complete_at)
            )
    cpu = (now.user + now.system - used.user - used.system) / options.seconds
    (longest_s, path), peak = took[-1], int(status.split("VmHWM:")[1].split()[0])
    p50, p99 = (took[math.ceil(len(took) * share) - 1][0] for share in (0.5, 0.99))
    print(
        f"{options.viewers} viewers, {len(took) / options.seconds:.0f} pages/s, "
        f"{options.topics * options.partitions} partitions, {options.groups} groups, a sample "
        f"each {options.interval:g} s: median {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms, "
        f"longest {longest_s * 1000:.0f} ms ({path}); {100 * cpu:.0f} % of a core; "
        f"{rss / MIB:.0f} MiB, at most {peak / 1024:.0f}; first page after {first_s:.1f} s, "
        f"complete after {complete_s:.1f} s"
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
