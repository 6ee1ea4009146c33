"""`ClusterWatch`: one sampler for all viewers of the console, and one router for messages.

`application` starts and stops it; `pages` reads `view`, `histories` and `problem`.

Invariant: no page waits for a sample. While samples fail, the last view stays, and `problem` says
why it gets older. The clients create no topic, join no group and commit nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any, Final

from aiokafka08._core.net.router import Router
from aiokafka08._core.ranges.range_router import open_range_router
from aiokafka08._tools.console.cluster_view import ClusterView, Histories, view_of
from aiokafka08._tools.console.live_tail import TailPeriod, tail
from aiokafka08._tools.console.neighbours import Neighbour
from aiokafka08._tools.monitoring.cluster_history import ClusterHistory
from aiokafka08._tools.monitoring.cluster_sample import BrokerSample, ClusterSample
from aiokafka08._tools.monitoring.refresher import Refresher
from aiokafka08._tools.monitoring.sampler import ClusterSampler
from aiokafka08._tools.records.types import Pick
from aiokafka08.admin import AIOKafkaAdminClient
from aiokafka08.errors import KafkaError, KafkaTimeoutError
from aiokafka08.structs import TopicPartition

_log: Final = logging.getLogger("aiokafka08.console")

_ZOOKEEPER_OPTIONS: Final = frozenset(
    {"zookeeper_connect", "zookeeper_check", "zookeeper_options", "on_event"}
)
"""Options of the admin client that the router for messages doesn't have."""

_DEFAULTS: Final = {
    "bootstrap_servers": "localhost",
    "client_id": "aiokafka08-console",
    "request_timeout_ms": 10_000,  # so that a broker that hangs is noticed soon
}

_WATCHED_S: Final = 60.0
"""The least time between the two samples that the doctor's rules compare, once the console has run
for so long. Only a few samples of this time are kept, because they are large."""

_TAILS: Final = 50
"""How many live views are open at once."""
_AT_ONCE: Final = 4
"""How many searches for messages run at once; further ones wait."""


class NotRunningError(Exception):
    """The console isn't running, so nothing would close the connections that a search opens."""


class ClusterWatch:
    """Watch one cluster from `start()` to `stop()`.

    Args:
        options: the arguments of `AIOKafkaAdminClient`.
        interval_s: seconds from one sample to the next.
        neighbours: gateways and bridges, which are read too.

    Attributes:
        options: the options of the admin client, with defaults.
        view: the view of the last sample; None before the first one.
        histories: values over time.
        unpacking: held by the one search that has a large compressed message open.
    """

    def __init__(
        self, options: Mapping[str, Any], interval_s: float, neighbours: Sequence[Neighbour] = ()
    ) -> None:
        self.neighbours = neighbours
        self.options = {**_DEFAULTS, **options}
        self.interval_s = interval_s
        self.view: ClusterView | None = None
        self.histories = Histories()
        self._before: tuple[float, ClusterSample] | None = None
        self._watched: deque[tuple[float, ClusterSample]] = deque()
        self._refresher = Refresher(
            lambda: AIOKafkaAdminClient(**self.options),
            lambda admin: ClusterSampler(admin, has_zookeeper=self.has_zookeeper),
            client_id=str(self.options["client_id"]),
            interval_s=interval_s,
            prepare=self._prepare,
        )
        self._task: asyncio.Task[None] | None = None
        self._beside: list[asyncio.Task[None]] = []
        self._exits = AsyncExitStack()
        self._router: Router | None = None
        self._router_lock = asyncio.Lock()
        self._searches = asyncio.Semaphore(_AT_ONCE)
        self._tails = 0
        self.unpacking = asyncio.Lock()

    @property
    def network(self) -> dict[str, Any]:
        """The options that consumers and producers have, too."""
        return {
            name: value for name, value in self.options.items() if name not in _ZOOKEEPER_OPTIONS
        }

    @property
    def has_zookeeper(self) -> bool:
        """Whether ZooKeeper's address is given."""
        return self.options.get("zookeeper_connect") is not None

    @property
    def stale_after_s(self) -> float:
        """The age from which on the data counts as stale: three intervals without a sample."""
        return 3 * self.interval_s

    @property
    def is_running(self) -> bool:
        """Whether `start()` was called, and `stop()` wasn't."""
        return self._task is not None

    @property
    def servers(self) -> str:
        """The addresses that were given, to tell one cluster from another."""
        servers = self.options["bootstrap_servers"]
        return servers if isinstance(servers, str) else ",".join(map(str, servers))

    @property
    def brokers(self) -> Sequence[BrokerSample]:
        """The brokers that the cluster has named within the last hour."""
        return self._refresher.status.brokers

    @property
    def hints(self) -> Sequence[str]:
        """Texts about what isn't read because an option is missing."""
        return self._refresher.status.hints

    def problem(self) -> str | None:
        """Return why there is no new sample, None if there is one or it is still on its way."""
        task = self._task
        if task is not None and task.done() and not task.cancelled():
            error = task.exception()
            return error.text if isinstance(error, KafkaError) else f"internal error: {error!r}"
        status = self._refresher.status
        return status.error or status.problem(self._refresher.now())

    def start(self) -> None:
        """Take samples from now on."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())
            self._beside = [
                asyncio.create_task(one.run(self.interval_s)) for one in self.neighbours
            ]

    async def stop(self) -> None:
        """End samples and searches, and close the connections."""
        task, self._task = self._task, None
        if task is not None:
            for one in (task, *self._beside):
                one.cancel()
            await asyncio.gather(task, *self._beside, return_exceptions=True)
        self._router = None
        await self._exits.aclose()

    async def tail(
        self, topic: str, partition: int | None, pick: Pick
    ) -> AsyncGenerator[TailPeriod, None]:
        """Yield new messages of a topic that the view has, until the console is stopped.

        Raises:
            KafkaTimeoutError: too many views are open.
            KafkaError: as `live_tail.tail`.
        """
        if self._tails == _TAILS:
            raise KafkaTimeoutError(f"{_TAILS} live views are open already. Close one of them")
        numbers = {} if self.view is None else self.view.sample.topics[topic].partitions
        tps = [
            TopicPartition(topic, number)
            for number, one in sorted(numbers.items())
            if one.leader is not None and partition in (None, number)
        ]
        self._tails += 1
        try:
            async with aclosing(tail(self.network, tps, pick)) as periods:
                async for period in periods:
                    if not self.is_running:
                        return
                    yield period
        finally:
            self._tails -= 1

    @asynccontextmanager
    async def search(self, limit_s: float) -> AsyncIterator[Router]:
        """Yield a router to read messages with, as soon as fewer than `_AT_ONCE` searches run.

        The search counts as running until the `async with` block ends, so the block must last as
        long as the messages are in memory.

        Args:
            limit_s: how long to wait for the brokers and for other searches, in all.

        Raises:
            NotRunningError: `start()` wasn't called, or `stop()` was.
            KafkaTimeoutError: no broker responds in time, or too many searches run.
            KafkaError: no broker responds.
        """
        router: Router | None = None
        try:
            async with asyncio.timeout(limit_s):
                # Open the router before waiting for other searches. Otherwise viewers of a dead
                # cluster would wait for it one after another.
                router = await self._opened_router()
                await self._searches.acquire()
        except TimeoutError:
            why = (
                f"no broker responds within {limit_s:g} s"
                if router is None
                else f"{_AT_ONCE} other searches for messages are running. Try again in a moment"
            )
            raise KafkaTimeoutError(why) from None
        try:
            yield router
        finally:
            self._searches.release()

    async def _opened_router(self) -> Router:
        async with self._router_lock:
            self.check_running()
            if self._router is None:
                router = await self._exits.enter_async_context(open_range_router(self.network))
                try:
                    self.check_running()  # the console may have been stopped meanwhile
                except NotRunningError:
                    await self._exits.aclose()
                    raise
                self._router = router
            return self._router

    def check_running(self) -> None:
        """Raise NotRunningError unless the console runs."""
        if not self.is_running:
            raise NotRunningError

    async def _run(self) -> None:
        try:
            await self._refresher.run()
        except KafkaError as error:
            _log.error("no more samples: %s", error.text)
            raise
        except Exception:
            _log.exception("no more samples: internal error")
            raise

    async def _prepare(
        self, sample: ClusterSample, history: ClusterHistory, taken_at: float
    ) -> None:
        while len(self._watched) > 1 and taken_at - self._watched[1][0] >= _WATCHED_S:
            self._watched.popleft()
        _, earlier = self._before or (0.0, ClusterSample({}, {}))
        sample = await asyncio.to_thread(sample.sharing, earlier)
        self.view = await asyncio.to_thread(
            view_of,
            sample,
            self._before,
            self._watched[0] if self._watched else None,
            history,
            taken_at,
            time.time(),
            has_zookeeper=self.has_zookeeper,
            last=self.view,
        )
        self.histories.add(self.view)
        self._before = (taken_at, sample)
        if not self._watched or taken_at - self._watched[-1][0] >= _WATCHED_S / 3:
            self._watched.append(self._before)


Reword = Callable[[str], str]
"""Rewords an error's text for the viewer, such as with names of command-line options."""
