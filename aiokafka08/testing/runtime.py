"""`ClusterRuntime`: the faults, the history and the delayed operations of a running cluster.

A runtime belongs to one event loop, and is used only there. Each start of the cluster creates a new
runtime.

Invariant: after each change of the state, except by retention, `complete_delayed()` runs before the
event loop continues. Nothing polls: a delayed operation is checked when one of its keys is in
`state.changed`, and at its timeout.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from aiokafka08._core.server.connection import Exchange
from aiokafka08._core.server.resources import ServerResources
from aiokafka08._core.server.sasl import SaslUsers
from aiokafka08._core.server.scheduler import Job
from aiokafka08._core.server.work import Work, finish
from aiokafka08.protocol.api import Request
from aiokafka08.structs import TopicPartition
from aiokafka08.testing.broker_lines import ReceivedRequest
from aiokafka08.testing.faults import Faults, is_version_probe
from aiokafka08.testing.group import GroupKey
from aiokafka08.testing.handlers.outcome import Disconnect, Reply, Wait
from aiokafka08.testing.state import OFFSETS_TOPIC, ClusterState

DEFAULT_MAX_BUFFERED_BYTES: Final = 512 << 20
# When real brokers delete old messages: the time from their start to the first check, and between
# two checks (`log.retention.check.interval.ms`, brokers.md 8.18).
_FIRST_RETENTION_S: Final = 30.0
_RETENTION_S: Final = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryLimits:
    """The limits of the history of requests."""

    requests: int = 10_000
    # The size of the history: the bytes of each request as it was received, and `item_bytes` for
    # each item of its arrays.
    total_bytes: int = 32 << 20
    item_bytes: int = 200


class Recorded(NamedTuple):
    """A request that a broker has read."""

    node: int
    # The connection's number; each connection gets a new one.
    connection: int
    client_id: str | None
    api_version: int
    correlation_id: int
    request: Request[Any]
    # When the broker read it, by the event loop's clock.
    read_at: float


class DelayedOperation:
    """A request that waits; `respond` is called once with its outcome, never after `cancel()`.

    Args:
        exchange: the request; the check runs when its connection's turn has come.
        respond: returns the steps of the response.
    """

    __slots__ = (
        "_checking",
        "_exchange",
        "_expired",
        "_is_outdated",
        "_job",
        "_respond",
        "_runtime",
        "_timer",
        "wait",
    )

    def __init__(
        self,
        runtime: ClusterRuntime,
        wait: Wait,
        exchange: Exchange,
        respond: Callable[[Reply | Disconnect], Work[None]],
    ) -> None:
        self._runtime = runtime
        self._exchange = exchange
        self._respond = respond
        self._expired = False
        self._checking = False
        self._is_outdated = False  # whether the state has changed since a check began
        # The running check; None after its end, like a timer that has fired. Otherwise a reference
        # cycle would keep each request that has waited until the next garbage collection.
        self._job: Job | None = None
        self.wait = wait
        self._timer: asyncio.TimerHandle | None = None
        if wait.timeout_ms is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(wait.timeout_ms, 0) / 1000, self._time_out)

    def cancel(self) -> None:
        """Stop waiting, because the connection has ended."""
        self._forget()
        if self._job is not None:
            self._runtime.resources.scheduler.cancel(self._job)
            self._job = None

    def check(self) -> None:
        """Respond if the changed state allows it, now or when it is the connection's turn."""
        self._is_outdated = True
        if not self._checking:
            self._checking = True
            job = self._exchange.run(self._steps(), self._checked)
            if self._checking and self._job is None:  # else it has ended
                self._job = job

    def _time_out(self) -> None:
        self._timer = None
        self._expired = True
        self.check()

    def _steps(self) -> Work[None]:
        # A check with many steps may have passed what has changed since, so it is repeated.
        while self._is_outdated:
            self._is_outdated, expired = False, self._expired
            outcome = yield from finish(self.wait.check(expired))
            if outcome is not None:
                self._forget()
                yield from self._respond(outcome)
                return
            if expired:
                raise AssertionError("check(expired=True) returned None: expected a reply")

    def _checked(self) -> None:
        self._checking = False
        self._job = None

    def _forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._runtime.forget(self)


@dataclass(slots=True)
class _ExpectedRequest:
    request: type[Request[Any]]
    node: int | None
    where: Callable[[Any], bool] | None
    # How many matching requests are still to come, including the expected one.
    remaining: int
    future: Future[Recorded]


class ClusterRuntime:
    """The faults, history and delayed operations of a running cluster.

    Args:
        history_limits: the default, or smaller ones for a test.
        sasl_users: the users that may connect; None: there is no authentication.

    Attributes:
        resources: Shared by the connections to all brokers.
        halt: Called with the id of a broker whose disk is full.
        changes: How often delayed operations were checked after a change.
    """

    def __init__(
        self,
        state: ClusterState,
        clock: Callable[[], float],
        max_buffered_bytes: int,
        history_limits: HistoryLimits = HistoryLimits(),
        sasl_users: SaslUsers | None = None,
    ) -> None:
        self.state = state
        self.sasl_users = sasl_users
        self.resources = ServerResources(
            max_buffered_bytes, "max_buffered_bytes", self.complete_delayed
        )
        self.faults = Faults()
        self.halt: Callable[[int], object] = lambda node_id: None
        self.history: deque[Recorded] = deque()
        self._history_limits = history_limits
        self._history_sizes: deque[int] = deque()
        self._history_bytes = 0
        self._clock = clock
        self._context = copy_context()  # for timers, which belong to the cluster, not to a client
        self.changes = 0
        self._delayed_operations: dict[Hashable, dict[DelayedOperation, None]] = {}
        self._group_timer: asyncio.TimerHandle | None = None
        self._retention_timer: asyncio.TimerHandle | None = None
        self._started_s = self.now_s()
        self._completing = False
        self._expected: list[_ExpectedRequest] = []
        self._connections = 0
        if state.topics:  # the cluster was stopped and is started again
            self._arm_retention_timer()

    def now_ms(self) -> int:
        """Return the wall-clock time, for segments and timestamps."""
        return int(self._clock() * 1000)

    def now_s(self) -> float:
        """Return the event loop's time, for the sessions of group members."""
        return asyncio.get_running_loop().time()

    def next_connection(self) -> int:
        """Return the number of a new connection."""
        self._connections += 1
        return self._connections

    # --- delayed operations -----------------------------------------------------------------------

    def delay(
        self,
        wait: Wait,
        exchange: Exchange,
        respond: Callable[[Reply | Disconnect], Work[None]],
        since: int,
    ) -> DelayedOperation:
        """Register a request that waits; check it soon if `changes` isn't `since` any more.

        `since` is the value before the steps that decided to wait.
        """
        operation = DelayedOperation(self, wait, exchange, respond)
        for key in wait.keys:
            self._delayed_operations.setdefault(key, {})[operation] = None
        if self.changes != since:
            operation.check()
        return operation

    def forget(self, operation: DelayedOperation) -> None:
        """Remove a request that waited."""
        for key in operation.wait.keys:
            waiting = self._delayed_operations.get(key)
            if waiting is not None:
                waiting.pop(operation, None)
                if not waiting:
                    del self._delayed_operations[key]

    def complete_delayed(self) -> None:
        """Check the delayed operations whose keys have changed."""
        if self.state.publish is not None:
            self.state.publish()
        # A reply lets its connection handle the next request, which may change the state again and
        # call this method. A nested call returns at once; the loop of the outermost call handles
        # its changes.
        if self._completing or not self.state.changed:
            return
        self._completing = True
        regroup = False
        try:
            while self.state.changed:
                changed, self.state.changed = self.state.changed, set()
                self.changes += 1
                regroup |= any(map(_may_change_groups, changed))
                # Sorted, because a set's order differs between processes, and simulations have to
                # be repeatable.
                for key in sorted(changed, key=repr) if len(changed) > 1 else changed:
                    for operation in list(self._delayed_operations.get(key, ())):
                        operation.check()
        finally:
            self._completing = False
        if regroup:
            self._arm_group_timer()
        if self._retention_timer is None:
            self._arm_retention_timer()

    def _arm_group_timer(self) -> None:
        next_deadline = self.state.groups.next_deadline()
        if self._group_timer is not None:
            if self._group_timer.when() == next_deadline:
                return
            self._group_timer.cancel()
            self._group_timer = None
        if next_deadline is not None:
            loop = asyncio.get_running_loop()
            self._group_timer = loop.call_at(
                next_deadline, self._expire_groups, context=self._context
            )

    def _expire_groups(self) -> None:
        """Evict group members whose session is over, and end rebalances that are due."""
        self._group_timer = None
        self.state.changed |= self.state.groups.expire(self.now_s())
        self.complete_delayed()
        self._arm_group_timer()

    # --- retention --------------------------------------------------------------------------------

    def _arm_retention_timer(self) -> None:
        loop, wait_s = asyncio.get_running_loop(), _FIRST_RETENTION_S
        passed_s = loop.time() - self._started_s
        if passed_s >= _FIRST_RETENTION_S:
            checks = (passed_s - _FIRST_RETENTION_S) // _RETENTION_S + 1
            wait_s += checks * _RETENTION_S
        self._retention_timer = loop.call_at(
            self._started_s + wait_s, self._apply_retention, context=self._context
        )

    def _apply_retention(self) -> None:
        self._retention_timer = None
        # If no messages are left to delete, the timer stays off until the next change of the state.
        if self.state.apply_retention(self.now_ms()):
            self._arm_retention_timer()

    # --- history ----------------------------------------------------------------------------------

    def record(
        self, node: int, connection: int, incoming: ReceivedRequest, received_bytes: int
    ) -> None:
        """Add a request to the history, and evict the oldest ones beyond its limits."""
        header, request = incoming.header, incoming.body
        recorded = Recorded(
            node,
            connection,
            header.client_id,
            header.api_version,
            header.correlation_id,
            request,
            self.now_s(),
        )
        self.history.append(recorded)
        limits = self._history_limits
        self._history_sizes.append(received_bytes + limits.item_bytes * incoming.items)
        self._history_bytes += self._history_sizes[-1]
        while len(self.history) > limits.requests or self._history_bytes > limits.total_bytes:
            self.history.popleft()
            self._history_bytes -= self._history_sizes.popleft()
        if self._expected:
            self._expected = [
                expected for expected in self._expected if not _is_done(expected, recorded)
            ]

    def expect_request(
        self,
        request: type[Request[Any]],
        nth: int,
        node: int | None,
        where: Callable[[Any], bool] | None,
    ) -> Future[Recorded]:
        """Return a future for the n-th such request from now on."""
        future: Future[Recorded] = Future()
        self._expected.append(_ExpectedRequest(request, node, where, nth, future))
        return future

    async def close(self) -> None:
        """Cancel the timers, and the futures of requests that will never come.

        Also end the work that is still done for closed connections.
        """
        for timer in (self._group_timer, self._retention_timer):
            if timer is not None:
                timer.cancel()
        for expected in self._expected:
            expected.future.cancel()
        self._expected.clear()
        await self.resources.close()


def _may_change_groups(key: Hashable) -> bool:
    """Return whether a key is a group, or a partition whose leader coordinates groups."""
    return isinstance(key, GroupKey) or (
        isinstance(key, TopicPartition) and key.topic == OFFSETS_TOPIC
    )


def _is_done(expected: _ExpectedRequest, recorded: Recorded) -> bool:
    """Count the request if it matches; return whether `expected` is fulfilled or cancelled."""
    if expected.future.cancelled():
        return True
    if (
        type(recorded.request) is expected.request
        and not is_version_probe(recorded.request)
        and expected.node in (None, recorded.node)
        and (expected.where is None or expected.where(recorded.request))
    ):
        expected.remaining -= 1
        if not expected.remaining:
            expected.future.set_result(recorded)
            return True
    return False
