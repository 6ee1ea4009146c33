"""Send the fetches of several bounded reads; due fetches from the same leader share a request.

Invariant: a request waits for no data, so a partition without new messages delays no other one. The
exception is a fetch that must be alone (see the module `next_fetch`): the broker waits for data,
and no other request to this broker is in flight, so that the time until the response shows how long
the broker has waited. A request whose callers have all gone is cancelled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aiokafka08 import environment
from aiokafka08._core.net.quota import log_withheld, quota_exceeded
from aiokafka08._core.net.router import Lane, Router
from aiokafka08._wording import partition_name
from aiokafka08.protocol.api import by_partition, by_topic, left_out
from aiokafka08.protocol.requests.fetch import FetchedPartition, FetchPartition, FetchRequest
from aiokafka08.structs import TopicPartition

_log = logging.getLogger(__name__)

WAIT_S: Final = 0.5
"""How long a broker may wait for the data of a fetch that is alone."""
# If the event loop stood still for longer (as between two Spark batches), its time doesn't show how
# long the broker has waited.
_PAUSE_S: Final = 0.05


@dataclass(slots=True, eq=False)
class _DueFetch:
    """A fetch of one partition, and the future of its response."""

    tp: TopicPartition
    offset: int
    max_bytes: int
    timeout_s: float
    alone: bool
    response: asyncio.Future[tuple[FetchedPartition, float]]


class RangeFetches:
    """The fetches of bounded reads through one router."""

    def __init__(self, router: Router) -> None:
        # Held by the one reader that fetches more than its usual size, for a large message
        self.large = asyncio.Lock()
        self._router = router
        self._leaders: dict[int, _LeaderFetches] = {}

    def fetch(
        self,
        node_id: int,
        tp: TopicPartition,
        offset: int,
        max_bytes: int,
        *,
        timeout_s: float,
        alone: bool,
    ) -> asyncio.Future[tuple[FetchedPartition, float]]:
        """Fetch from one partition; the result also has the seconds until the response.

        `alone`: send no other partition in the same request, and let the broker wait for data.
        `timeout_s`: seconds to connect, again for the response, and again for a quota. The future
        raises KafkaTimeoutError if the client exceeds its quota for longer, and KafkaError for any
        other failure.
        """
        leader = self._leaders.get(node_id)
        if leader is None:
            leader = self._leaders[node_id] = _LeaderFetches(self._router, node_id)
        response = asyncio.get_running_loop().create_future()
        leader.add(_DueFetch(tp, offset, max_bytes, timeout_s, alone, response))
        return response


class _LeaderFetches:
    """The fetches from one broker: those that are due, and the requests in flight."""

    def __init__(self, router: Router, node_id: int) -> None:
        self._router = router
        self._node_id = node_id
        self._due: list[_DueFetch] = []
        self._requests: set[asyncio.Task[None]] = set()
        self._is_alone = False  # a fetch is in flight alone, or waits for the other requests to end
        self._is_throttled = False  # the last response had no data because of a quota

    def add(self, fetch: _DueFetch) -> None:
        """Send a fetch after the callbacks that are ready now, with the fetches that they add."""
        if not self._due:
            asyncio.get_running_loop().call_soon(self._send_due)
        self._due.append(fetch)

    def _send_due(self) -> None:
        due, self._due = [fetch for fetch in self._due if not fetch.response.done()], []
        while due and not self._is_alone:
            if due[0].alone:
                self._is_alone = True
                self._start_request(due[:1])
                due = due[1:]
                continue
            request: dict[TopicPartition, _DueFetch] = {}
            for fetch in due:
                if not fetch.alone:
                    request.setdefault(fetch.tp, fetch)
            self._start_request(list(request.values()))
            sent = set(request.values())
            due = [fetch for fetch in due if fetch not in sent]
        self._due = due

    def _start_request(self, fetches: Sequence[_DueFetch]) -> None:
        task = asyncio.get_running_loop().create_task(self._request(fetches))
        self._requests.add(task)
        waiting = len(fetches)

        def caller_left(_: object) -> None:
            nonlocal waiting
            waiting -= 1
            if not waiting:
                task.cancel()  # no effect after the response

        def ended(_: object) -> None:
            self._requests.discard(task)
            error = None if task.cancelled() else task.exception()
            for fetch in fetches:
                if error is not None and not fetch.response.done():
                    fetch.response.set_exception(error)
                fetch.response.cancel()  # no effect after the response
            if fetches[0].alone:
                self._is_alone = False
                self._send_due()

        for fetch in fetches:
            fetch.response.add_done_callback(caller_left)
        task.add_done_callback(ended)

    async def _request(self, fetches: Sequence[_DueFetch]) -> None:
        if fetches[0].alone and len(self._requests) > 1:
            await asyncio.wait(self._requests - {asyncio.current_task()})
        responses, elapsed_s = await self._exchange(fetches)
        for fetch in fetches:
            fetched = responses.get(fetch.tp)
            if fetch.response.done():
                continue  # the caller is gone
            if fetched is None:
                fetch.response.set_exception(left_out(partition_name(fetch.tp), self._node_id))
            else:
                fetch.response.set_result((fetched, elapsed_s))

    async def _exchange(
        self, fetches: Sequence[_DueFetch]
    ) -> tuple[dict[tuple[str, int], FetchedPartition], float]:
        """Send one request; return the response by partition, and the seconds that it took."""
        loop = asyncio.get_running_loop()
        timeout_s = max(fetch.timeout_s for fetch in fetches)
        wait_s = WAIT_S if fetches[0].alone else 0.0
        partitions = (
            (fetch.tp.topic, FetchPartition(fetch.tp.partition, fetch.offset, fetch.max_bytes))
            for fetch in fetches
        )
        request = FetchRequest(-1, round(wait_s * 1000), 1, by_topic(partitions))
        connection = await self._router.connection(self._node_id, Lane.FETCH, timeout_s=timeout_s)
        deadline = loop.time() + timeout_s
        while True:
            sent, began = loop.time(), environment.monotonic()
            response = await connection.request(request, timeout_s=wait_s + timeout_s)
            elapsed_s = loop.time() - sent
            # A quota is exceeded: ask again after the delay, until the timeout.
            if response.withheld_s > 0:
                client_id = self._router.config.client_id
                if not self._is_throttled:
                    self._is_throttled = True
                    log_withheld(_log, client_id, self._node_id, response.withheld_s)
                left_s = max(deadline - loop.time(), 0)
                await asyncio.sleep(min(response.withheld_s, left_s))
                if response.withheld_s >= left_s:
                    raise quota_exceeded(client_id, self._node_id, timeout_s)
                continue
            self._is_throttled = False
            # If the event loop stood still meanwhile, the time says nothing: repeat the request.
            if not fetches[0].alone or environment.monotonic() - began - elapsed_s < _PAUSE_S:
                break
        return by_partition(response.topics), elapsed_s
