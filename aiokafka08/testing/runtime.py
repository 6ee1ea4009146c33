"""`ClusterRuntime`: what the brokers of a running cluster share in addition to `ClusterState`.

It owns the faults, the history of requests and the delayed operations: requests whose response
waits for a change of the state (long polls, acks, group rebalances). It lives in one event loop and
is used from there only; `cluster` creates it at each start.

Invariant: after each change of the state `complete_delayed()` runs before the event loop continues.
Nothing polls: a delayed operation is checked when one of its keys is in `state.changed`, and at its
timeout. The connections (`server`) and the methods of `cluster` call `complete_delayed()`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, NamedTuple

from aiokafka08.protocol.api import ProduceRequest, Request
from aiokafka08.testing.broker_lines import ReceivedRequest
from aiokafka08.testing.faults import Faults, is_version_probe
from aiokafka08.testing.handlers.outcome import Reply, Wait
from aiokafka08.testing.state import ClusterState

HISTORY_REQUESTS = 10_000
HISTORY_BYTES = 32 << 20
"""Limit of the history: the bytes of all message sets in its produce requests."""


class Recorded(NamedTuple):
    """A request that a broker has read."""

    node: int
    connection: int
    """The connection's number; each connection gets a new one."""
    client_id: str | None
    api_version: int
    correlation_id: int
    request: Request[Any]


class DelayedOperation:
    """A request that waits; `on_reply` is called once with its reply, never after `cancel()`."""

    __slots__ = ("_runtime", "_timer", "on_reply", "wait")

    def __init__(
        self, runtime: ClusterRuntime, wait: Wait, on_reply: Callable[[Reply], None]
    ) -> None:
        self._runtime = runtime
        self.wait = wait
        self.on_reply = on_reply
        self._timer: asyncio.TimerHandle | None = None
        if wait.timeout_ms is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(wait.timeout_ms, 0) / 1000, self._expired)

    def cancel(self) -> None:
        """Stop waiting, because the connection has ended or the reply is there."""
        if self._timer is not None:
            self._timer.cancel()
        self._runtime.forget(self)

    def check(self) -> None:
        """Reply if the changed state allows it."""
        reply = self.wait.check(False)
        if reply is not None:
            self.cancel()
            self.on_reply(reply)

    def _expired(self) -> None:
        self._runtime.forget(self)
        reply = self.wait.check(True)
        if reply is None:
            raise AssertionError("check(expired=True) returned None: expected a reply")
        self.on_reply(reply)
        self._runtime.complete_delayed()


@dataclass(slots=True)
class _ExpectedRequest:
    request: type[Request[Any]]
    node: int | None
    where: Callable[[Any], bool] | None
    remaining: int
    """How many matching requests are still to come, including the expected one."""
    future: Future[Recorded]


class ClusterRuntime:
    """The faults, history and delayed operations of a running cluster."""

    def __init__(self, state: ClusterState, clock: Callable[[], float]) -> None:
        self.state = state
        self.faults = Faults()
        self.history: deque[Recorded] = deque()
        self._history_bytes = 0
        self._clock = clock
        self._delayed_operations: dict[Hashable, set[DelayedOperation]] = {}
        self._group_timer: asyncio.TimerHandle | None = None
        self._completing = False
        self._expected: list[_ExpectedRequest] = []
        self._connections = 0

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

    def delay(self, wait: Wait, on_reply: Callable[[Reply], None]) -> DelayedOperation:
        """Register a request that waits; this call itself never calls `on_reply`."""
        operation = DelayedOperation(self, wait, on_reply)
        for key in wait.keys:
            self._delayed_operations.setdefault(key, set()).add(operation)
        return operation

    def forget(self, operation: DelayedOperation) -> None:
        """Remove a request that waited."""
        for key in operation.wait.keys:
            waiting = self._delayed_operations.get(key)
            if waiting is not None:
                waiting.discard(operation)
                if not waiting:
                    del self._delayed_operations[key]

    def complete_delayed(self) -> None:
        """Check the delayed operations whose keys have changed.

        A reply lets its connection handle the next request, which may change the state again and
        call this method. Such a nested call returns at once; the loop of the outermost call handles
        its changes.
        """
        if self._completing:
            return
        self._completing = True
        try:
            while self.state.changed:
                changed, self.state.changed = self.state.changed, set()
                for key in changed:
                    for operation in list(self._delayed_operations.get(key, ())):
                        operation.check()
        finally:
            self._completing = False
        self._arm_group_timer()

    def _arm_group_timer(self) -> None:
        next_deadline = self.state.groups.next_deadline()
        if self._group_timer is not None:
            if self._group_timer.when() == next_deadline:
                return
            self._group_timer.cancel()
            self._group_timer = None
        if next_deadline is not None:
            loop = asyncio.get_running_loop()
            self._group_timer = loop.call_at(next_deadline, self._expire_groups)

    def _expire_groups(self) -> None:
        """Evict group members whose session is over, and end rebalances that are due."""
        self._group_timer = None
        self.state.changed |= self.state.groups.expire(self.now_s())
        self.complete_delayed()

    # --- history ----------------------------------------------------------------------------------

    def record(self, node: int, connection: int, incoming: ReceivedRequest) -> None:
        """Add a request to the history, evict the oldest ones beyond its limits."""
        header, request = incoming.header, incoming.body
        recorded = Recorded(
            node,
            connection,
            header.client_id,
            header.api_version,
            header.correlation_id,
            request,
        )
        self.history.append(recorded)
        self._history_bytes += _set_bytes(request)
        while len(self.history) > HISTORY_REQUESTS or self._history_bytes > HISTORY_BYTES:
            self._history_bytes -= _set_bytes(self.history.popleft().request)
        if self._expected:
            self._expected = [one for one in self._expected if not _is_done(one, recorded)]

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

    def close(self) -> None:
        """Cancel the timer, and the futures of requests that will never come."""
        if self._group_timer is not None:
            self._group_timer.cancel()
        for expected in self._expected:
            expected.future.cancel()
        self._expected.clear()


def _set_bytes(request: Request[Any]) -> int:
    if not isinstance(request, ProduceRequest):
        return 0
    return sum(len(one.message_set) for topic in request.topics for one in topic.partitions)


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
