"""Send a member's heartbeats from a task of its own, also during a rebalance.

Invariants: only the user's read calls count as activity. A rebalance doesn't, so the time since the
last activity runs on from one generation to the next, until the member leaves the group (`stop`).
JoinGroup and SyncGroup, which may take as long as a session timeout, don't delay a heartbeat,
because they have a connection of their own (`Lane.JOIN`).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from aiokafka08._core.net.coordinator_lookup import CoordinatorLookup
from aiokafka08._core.net.router import Router
from aiokafka08.consumer.config import ConsumerConfig
from aiokafka08.consumer.membership.generation import Generation, NextStep, next_step
from aiokafka08.errors import KafkaError, UnsupportedVersionError
from aiokafka08.protocol.requests.groups import HeartbeatRequest


class Heartbeat:
    """Sends heartbeats for one generation at a time.

    Args:
        activity: `Assignee.activity`.
        on_response: called with the generation, the next step and the error code of a response.
        on_unsupported: called with the generation and the error if the brokers no longer support
            groups, because they were downgraded to 0.8.
        on_poll_timeout: called when the user hasn't called for records for
            `max_poll_interval_ms`.
    """

    def __init__(
        self,
        router: Router,
        config: ConsumerConfig,
        coordinator: CoordinatorLookup,
        *,
        activity: Callable[[], int | None],
        on_response: Callable[[Generation, NextStep, int], object],
        on_unsupported: Callable[[Generation, UnsupportedVersionError], object],
        on_poll_timeout: Callable[[], object],
    ) -> None:
        self._router = router
        self._config = config
        self._coordinator = coordinator
        self._activity = activity
        self._on_response = on_response
        self._on_unsupported = on_unsupported
        self._on_poll_timeout = on_poll_timeout
        self._task: asyncio.Task[None] | None = None
        self._last_activity: int | None = None
        self._active_at: float | None = None  # loop time; None before the first generation
        self._loop: asyncio.AbstractEventLoop | None = None
        self._session_ends = -math.inf  # loop time, as far as this member knows

    def start(self, generation: Generation) -> None:
        """Send heartbeats for this generation from now on, and for no earlier one."""
        self.cancel()
        self._loop = asyncio.get_running_loop()
        self._extend_session()
        self._task = self._loop.create_task(self._run(generation), name="aiokafka08 heartbeat")

    @property
    def is_session_alive(self) -> bool:
        """Whether a heartbeat or the join was accepted within the session timeout."""
        return self._loop is not None and self._loop.time() < self._session_ends

    def cancel(self) -> None:
        """Send no more heartbeats; doesn't wait for the task."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def stop(self) -> None:
        """Send no more heartbeats, and wait until the task has ended; for a member that leaves."""
        task = self._task
        self.cancel()
        self._active_at = None
        if task is not None:
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self, generation: Generation) -> None:
        loop = asyncio.get_running_loop()
        next_at = loop.time() + self._config.heartbeat_interval_s
        while True:
            idle_at = self._last_use(loop.time()) + self._config.max_poll_interval_s
            if idle_at <= loop.time():
                self._on_poll_timeout()
                return
            await asyncio.sleep(max(min(next_at, idle_at) - loop.time(), 0))
            if loop.time() < next_at:
                continue
            next_at = loop.time() + self._config.heartbeat_interval_s
            step = await self._send(generation)
            if step in (NextStep.JOIN_AS_NEW, NextStep.FAIL):
                return
            # Heartbeats continue during a rebalance: from 0.10 on they keep the session alive while
            # the listener works (docs/brokers.md 8.13).
            if step not in (NextStep.CONTINUE, NextStep.REJOIN):
                next_at = loop.time() + self._router.config.retry_backoff_s

    def _last_use(self, now: float) -> float:
        """Return when the user was last seen to make a read call or to wait in one."""
        activity = self._activity()
        if self._active_at is None or activity is None or activity != self._last_activity:
            self._last_activity = activity
            self._active_at = now
        return self._active_at

    def _extend_session(self) -> None:
        self._session_ends = asyncio.get_running_loop().time() + self._config.session_timeout_s

    async def _send(self, generation: Generation) -> NextStep:
        node_id: int | None = None
        # After the session timeout the coordinator has evicted the member, so a response that comes
        # later is useless.
        timeout_s = min(self._router.config.request_timeout_s, self._config.session_timeout_s)
        try:
            node_id = await self._coordinator.node_id(timeout_s=timeout_s)
            response = await self._router.request(
                HeartbeatRequest(self._coordinator.group, generation.number, generation.member),
                node_id=node_id,
                timeout_s=timeout_s,
            )
        except UnsupportedVersionError as error:
            # The brokers were downgraded to 0.8, so another lookup of the coordinator doesn't help.
            self._on_unsupported(generation, error)
            return NextStep.FAIL
        except KafkaError:
            if node_id is not None:
                self._coordinator.invalidate(node_id)
            return NextStep.FIND_COORDINATOR
        step = next_step(response.error_code)
        if step is NextStep.CONTINUE:
            self._extend_session()
        if step is NextStep.FIND_COORDINATOR:
            self._coordinator.invalidate(node_id)
        self._on_response(generation, step, response.error_code)
        return step
