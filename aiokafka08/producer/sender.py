"""Moves batches from the queues to the brokers: when to look, and at whom.

One `Sink` per leader does the work; the sender wakes them when something is due, follows the
clock (linger, backoff, expiry) and keeps asking for metadata while batches have no leader.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aiokafka08.errors import KafkaError
from aiokafka08.net.cluster import ClusterSnapshot
from aiokafka08.net.router import Router
from aiokafka08.producer.accumulator import Accumulator
from aiokafka08.producer.guard import Guard
from aiokafka08.producer.options import ProducerOptions
from aiokafka08.producer.settle import Settler
from aiokafka08.producer.sink import Sink

_LEAST_PAUSE_S: Final = 0.01
"""Between two questions for a leader, also with `retry_backoff_ms=0`."""


class Sender:
    """Runs from its making until `stop`, in the running loop."""

    def __init__(
        self,
        router: Router,
        accumulator: Accumulator,
        settler: Settler,
        options: ProducerOptions,
        guard: Guard,
    ) -> None:
        self._router = router
        self._accumulator = accumulator
        self._settler = settler
        self._options = options
        self._guard = guard
        self._loop = asyncio.get_running_loop()
        self._links: dict[int, Sink] = {}
        self._soon: asyncio.Handle | None = None
        self._timer: asyncio.Handle | None = None
        self._timer_at = 0.0
        self._stopped = False
        router.metadata.watch(self._follow)

    @property
    def links(self) -> list[Sink]:
        """The ways to the brokers that were needed so far."""
        return list(self._links.values())

    def wake(self) -> None:
        """Something is due: look at it in the next turn of the loop, when more may have come."""
        if self._soon is None and not self._stopped:
            self._soon = self._loop.call_soon(self._pump)

    async def flush(self) -> None:
        """Send all that waits, and wait until every batch of now is finished."""
        batches = self._accumulator.flush(self._loop.time())
        self.wake()
        for batch in batches:
            await batch.delivery.wait_finished()

    def shut(self, error: KafkaError) -> None:
        """End; what isn't finished fails with `error`."""
        self._stopped = True
        for handle in (self._soon, self._timer):
            if handle is not None:
                handle.cancel()
        for link in self._links.values():
            link.shut()
        now = self._loop.time()
        self._settler.abandon(self._accumulator.flush(now), error, now)

    async def stop(self, error: KafkaError) -> None:
        """`shut`, and wait for the end of the background work.

        Cancelled while it waits, it has ended everything all the same.
        """
        self.shut(error)
        for link in self._links.values():
            await link.wait_ended()

    def _pump(self) -> None:
        self._soon = None
        if not self._stopped:
            with self._guard:
                self._look()

    def _look(self) -> None:
        accumulator = self._accumulator
        accumulator.news = False
        now = self._loop.time()
        accumulator.advance(now)
        self._settler.expire(now, self._trouble())
        for node_id in accumulator.ready_nodes():
            link = self._links.get(node_id)
            if link is None:
                link = self._links[node_id] = Sink(
                    node_id,
                    self._router,
                    accumulator,
                    self._settler,
                    self._options,
                    self.wake,
                    self._guard,
                )
            link.pump()
        next_time = accumulator.next_time()
        if accumulator.has_ready(None):
            self._router.metadata.request_refresh()
            again = now + max(self._router.config.retry_backoff_s, _LEAST_PAUSE_S)
            next_time = again if next_time is None else min(again, next_time)
        self._schedule(next_time)

    def _follow(self, snapshot: ClusterSnapshot) -> None:
        with self._guard:
            for link in self._links.values():
                link.follow(snapshot)
            if self._accumulator.news:
                self.wake()

    def _schedule(self, time: float | None) -> None:
        timer = self._timer
        if time is None or (timer is not None and self._timer_at <= time):
            return  # woken too early does no harm, and most batches end long before their deadline
        if timer is not None:
            timer.cancel()
        # Its time isn't asked of the handle: for one that is past uvloop gives a plain Handle.
        self._timer_at = time
        self._timer = self._loop.call_at(time, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        self._pump()

    def _trouble(self) -> str:
        troubles = [link.trouble.text for link in self._links.values() if link.trouble is not None]
        return "; ".join(troubles) or "it was still waiting to be sent"
