"""Heartbeats: a task of its own, on the control lane, whatever the user and the rebalance do.

It says what it learned and decides nothing about joining. Law: no request of the group's waits in
front of a heartbeat (JoinGroup and SyncGroup have a lane of their own). It also watches for a user
who takes no messages for `max_poll_interval_ms`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiokafka08.consumer.config import ConsumerConfig
from aiokafka08.consumer.membership.generation import Generation, Next, after
from aiokafka08.errors import KafkaError
from aiokafka08.net.coordinator import Coordinator
from aiokafka08.net.router import Router
from aiokafka08.protocol.api import HeartbeatRequest


class Heartbeat:
    """Beats for one generation.

    Args:
        activity: a number that changes with what the user takes and asks for; None while a call
            waits for messages.
        on_news: called with what an answer says about the generation, and its code.
        on_idle: called when the user has taken nothing for `max_poll_interval_ms`.
    """

    def __init__(
        self,
        router: Router,
        config: ConsumerConfig,
        coordinator: Coordinator,
        *,
        activity: Callable[[], int | None],
        on_news: Callable[[Generation, Next, int], object],
        on_idle: Callable[[], object],
    ) -> None:
        self._router = router
        self._config = config
        self._coordinator = coordinator
        self._activity = activity
        self._on_news = on_news
        self._on_idle = on_idle
        self._task: asyncio.Task[None] | None = None
        self._seen: int | None = None
        self._active_at = 0.0

    def begin(self, generation: Generation) -> None:
        """Beat for this generation from now on."""
        self.end()
        self._task = asyncio.get_running_loop().create_task(
            self._beat(generation), name="aiokafka08 heartbeat"
        )

    def end(self) -> None:
        """Beat no more."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def used(self) -> None:
        """The user does something: idleness begins anew."""
        self._active_at = asyncio.get_running_loop().time()

    async def stop(self) -> None:
        """End, and wait for it."""
        task = self._task
        self.end()
        if task is not None:
            await asyncio.gather(task, return_exceptions=True)

    async def _beat(self, generation: Generation) -> None:
        loop = asyncio.get_running_loop()
        self.used()
        next_beat = loop.time() + self._config.heartbeat_interval_s
        while True:
            idle_at = self._active_at + self._config.max_poll_interval_s
            await asyncio.sleep(max(min(next_beat, idle_at) - loop.time(), 0))
            activity = self._activity()
            if activity is None or activity != self._seen:
                self._seen = activity
                self.used()
            elif loop.time() >= self._active_at + self._config.max_poll_interval_s:
                self._on_idle()
                return
            if loop.time() < next_beat:
                continue
            next_beat = loop.time() + self._config.heartbeat_interval_s
            what = await self._ask(generation)
            if what in (Next.JOIN_ANEW, Next.GIVE_UP):
                return
            # In a rebalance the beats go on: the member is alive while its listener works.
            if what not in (Next.GO_ON, Next.REJOIN):
                next_beat = loop.time() + self._router.config.retry_backoff_s

    async def _ask(self, generation: Generation) -> Next:
        node_id: int | None = None
        # An answer later than this would come after the session.
        patience_s = min(self._router.config.request_timeout_s, self._config.session_timeout_s)
        try:
            node_id = await self._coordinator.node_id(timeout_s=patience_s)
            answer = await self._router.request(
                HeartbeatRequest(self._coordinator.group, generation.number, generation.member),
                node_id=node_id,
                timeout_s=patience_s,
            )
        except KafkaError:
            if node_id is not None:
                self._coordinator.forget(node_id)
            return Next.LOOK_UP
        what = after(answer.error_code)
        if what is Next.LOOK_UP:
            self._coordinator.forget(node_id)
        self._on_news(generation, what, answer.error_code)
        return what
