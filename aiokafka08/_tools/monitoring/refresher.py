"""`Refresher`: take samples of a cluster in the background, and keep metrics of them ready.

Invariant: `status` is replaced as a whole, and its values never change, so any thread may read it
and a scrape never waits for a broker. A failed refresh keeps the metrics of the last sample. A
refresh fails if its sample takes longer than `RefreshStatus.kept_s`.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from aiokafka08._core.concurrency.loop_yield import run_in_steps
from aiokafka08._core.metrics.text_format import write_text
from aiokafka08._tools.monitoring.cluster_history import ClusterHistory, KnownBrokers
from aiokafka08._tools.monitoring.cluster_sample import ClusterSample
from aiokafka08._tools.monitoring.metric_families import cluster_families
from aiokafka08._tools.monitoring.refresh_status import MIN_KEPT_S, ReadyMetrics, RefreshStatus
from aiokafka08._tools.monitoring.sampler import ClusterSampler
from aiokafka08.admin import AIOKafkaAdminClient
from aiokafka08.errors import (
    IllegalArgumentError,
    KafkaConfigurationError,
    KafkaError,
    KafkaTimeoutError,
    UnsupportedVersionError,
)

_log: Final = logging.getLogger("aiokafka08.monitoring")

# The pause between two refreshes if one takes longer than the interval.
_MIN_PAUSE_S: Final = 0.1

# Errors that no later refresh can cure.
_FINAL: Final = (UnsupportedVersionError, KafkaConfigurationError, IllegalArgumentError)

# Makes `RefreshStatus.ready` from a sample, the history (which has the sample already) and the time
# of the sample.
Prepare = Callable[[ClusterSample, ClusterHistory, float], Awaitable[ReadyMetrics | None]]


async def prepare_metrics(
    sample: ClusterSample, history: ClusterHistory, taken_at: float
) -> ReadyMetrics:
    """Return the metrics of a sample, as text."""

    def write() -> ReadyMetrics:
        text = write_text(cluster_families(sample, history, taken_at))
        return ReadyMetrics(text, gzip.compress(text, compresslevel=1, mtime=0), taken_at)

    # In a thread, since the text of a large cluster takes long.
    return await asyncio.to_thread(write)


class Refresher:
    """Refresh the metrics of one cluster again and again.

    Args:
        open_admin: makes an admin client, not yet started.
        sampler: makes a sampler that uses a started admin client.
        client_id: log lines begin with it.
        interval_s: seconds from the start of a refresh to the start of the next one.
        clock: returns monotonic seconds (default `time.monotonic`).
        min_kept_s: how long the metrics of a sample are served at least (default 60).
        prepare: is awaited with each sample; its result is the status's `ready` (default
            `prepare_metrics`).

    Attributes:
        status: The results of the last refreshes.
    """

    def __init__(
        self,
        open_admin: Callable[[], AIOKafkaAdminClient],
        sampler: Callable[[AIOKafkaAdminClient], ClusterSampler],
        *,
        client_id: str,
        interval_s: float,
        clock: Callable[[], float] = time.monotonic,
        min_kept_s: float = MIN_KEPT_S,
        prepare: Prepare = prepare_metrics,
    ) -> None:
        self._open_admin = open_admin
        self._sampler = sampler
        self._client_id = client_id
        self._interval_s = interval_s
        self._clock = clock
        self._prepare = prepare
        self._history = ClusterHistory()
        self._brokers = KnownBrokers()
        self._admin: AIOKafkaAdminClient | None = None
        self._reported = ""
        self.status = RefreshStatus(interval_s, ended_at=clock(), min_kept_s=min_kept_s)

    def now(self) -> float:
        """Return the time, by the clock of `status`."""
        return self._clock()

    async def refresh_once(self) -> None:
        """Refresh one time, without a log line; raises as `run`."""
        try:
            await self._refresh()
        finally:
            await self._close()

    async def run(self) -> None:
        """Refresh until it is cancelled.

        Raises:
            UnsupportedVersionError: the cluster is of 4.x.
            KafkaConfigurationError, IllegalArgumentError: an option is wrong.
        """
        try:
            while True:
                begin = self._clock()
                self._report(await self._refresh())
                pause_s = begin + self._interval_s - self._clock()
                await asyncio.sleep(max(pause_s, _MIN_PAUSE_S))
        finally:
            await self._close()

    async def _refresh(self) -> tuple[int, str]:
        """Take one sample and replace `status`; raises as `run`.

        Returns:
            The level and the text of the problem to log; "" without a problem.
        """
        begin = self._clock()
        try:
            sample = await self._sample()
        except _FINAL:
            raise
        except KafkaError as error:
            self.status = replace(
                self.status,
                ended_at=self._clock(),
                is_up=False,
                brokers=tuple(replace(broker, error=error.text) for broker in self.status.brokers),
                refreshes=self.status.refreshes + 1,
                failures=self.status.failures + 1,
                gaps=(),
                hints=(),
                error=error.text,
                duration_s=self._clock() - begin,
            )
            return logging.ERROR, f"refresh failed: {error.text}"
        taken_at = self._clock()
        brokers = tuple(self._brokers.add(taken_at, sample.brokers).values())
        await run_in_steps(self._history.add_in_steps(taken_at, sample))
        ready = await self._prepare(sample, self._history, taken_at)
        self.status = RefreshStatus(
            self._interval_s,
            ended_at=self._clock(),
            ready=ready,
            is_up=all(broker.error is None for broker in brokers),
            brokers=brokers,
            refreshes=self.status.refreshes + 1,
            failures=self.status.failures,
            gaps=sample.errors,
            hints=sample.hints,
            duration_s=self._clock() - begin,
            history_begin=self._history.begin(),
            min_kept_s=self.status.min_kept_s,
        )
        gaps = "; ".join([*sample.errors, *sample.hints])
        return logging.WARNING, gaps and f"refresh incomplete: {gaps}"

    async def _sample(self) -> ClusterSample:
        limit_s = self.status.kept_s
        limit = asyncio.timeout(limit_s)
        try:
            async with limit:
                return await (await self._opened()).sample()
        except TimeoutError:
            if not limit.expired():
                raise
            raise KafkaTimeoutError(
                f"the cluster wasn't read within {limit_s:.0f} s. Give a longer --interval, a "
                "shorter --timeout, or filters for topics and groups"
            ) from None

    async def _opened(self) -> ClusterSampler:
        """Return a sampler with a running client; connect if there is none yet."""
        if self._admin is None:
            admin = self._open_admin()
            await admin.start()
            self._admin = admin
        return self._sampler(self._admin)

    async def _close(self) -> None:
        admin, self._admin = self._admin, None
        if admin is not None:
            await admin.close()

    def _report(self, outcome: tuple[int, str]) -> None:
        """Log the problem of the refreshes, when it has changed."""
        level, problem = outcome
        if problem == self._reported:
            return
        if problem:
            _log.log(level, "%s: %s", self._client_id, problem)
        else:
            _log.info("%s: refresh complete again", self._client_id)
        self._reported = problem
