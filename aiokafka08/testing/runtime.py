"""Where the connections of all brokers meet: state, faults, history, and who waits for what.

Lives in one event loop and is touched from there only. Law: whoever changed the state calls
`settle()`, which wakes those that wait for what changed; nothing polls. Sockets are `server`'s.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, NamedTuple

from aiokafka08.protocol.api import ProduceRequest, Request
from aiokafka08.testing.broker_lines import Incoming
from aiokafka08.testing.faults import Faults
from aiokafka08.testing.handlers.outcome import Reply, Wait
from aiokafka08.testing.state import ClusterState

HISTORY_REQUESTS = 10_000
HISTORY_BYTES = 32 << 20
"""What the message sets of the remembered produce requests may take together."""


class Recorded(NamedTuple):
    """A request that a broker has read."""

    node: int
    connection: int
    """A number for the connection, new for each one."""
    client_id: str | None
    api_version: int
    correlation_id: int
    request: Request[Any]


class Parked:
    """A request that waits; `on_reply` is called once with its reply."""

    __slots__ = ("_hub", "_timer", "on_reply", "wait")

    def __init__(self, hub: ClusterRuntime, wait: Wait, on_reply: Callable[[Reply], None]) -> None:
        self._hub = hub
        self.wait = wait
        self.on_reply = on_reply
        self._timer: asyncio.TimerHandle | None = None
        if wait.timeout_ms is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(wait.timeout_ms, 0) / 1000, self._expired)

    def cancel(self) -> None:
        """The connection is gone: wait no longer."""
        if self._timer is not None:
            self._timer.cancel()
        self._hub.unpark(self)

    def changed(self) -> None:
        """Something that it waits for has changed."""
        reply = self.wait.check(False)
        if reply is not None:
            self.cancel()
            self.on_reply(reply)

    def _expired(self) -> None:
        self._hub.unpark(self)
        reply = self.wait.check(True)
        if reply is None:
            raise AssertionError("a wait that has timed out has no reply")
        self.on_reply(reply)
        self._hub.settle()


@dataclass(slots=True)
class _Watch:
    request: type[Request[Any]]
    node: int | None
    where: Callable[[Any], bool] | None
    left: int
    future: Future[Recorded]


class ClusterRuntime:
    """What the brokers of a cluster share at run time."""

    def __init__(self, state: ClusterState, clock: Callable[[], float]) -> None:
        self.state = state
        self.faults = Faults()
        self.history: deque[Recorded] = deque()
        self._history_bytes = 0
        self._clock = clock
        self._parked: dict[Hashable, set[Parked]] = {}
        self._group_timer: asyncio.TimerHandle | None = None
        self._settling = False
        self._watches: list[_Watch] = []
        self._connections = 0

    def now_ms(self) -> int:
        """Wall-clock time, for segments and timestamps."""
        return int(self._clock() * 1000)

    def now_s(self) -> float:
        """The loop's time, for sessions."""
        return asyncio.get_running_loop().time()

    def next_connection(self) -> int:
        """A number for a new connection."""
        self._connections += 1
        return self._connections

    # --- waiting ----------------------------------------------------------------------------------

    def park(self, wait: Wait, on_reply: Callable[[Reply], None]) -> Parked:
        """Let a request wait; its `on_reply` is never called from within this call."""
        parked = Parked(self, wait, on_reply)
        for key in wait.keys:
            self._parked.setdefault(key, set()).add(parked)
        return parked

    def unpark(self, parked: Parked) -> None:
        """Forget a request that waited."""
        for key in parked.wait.keys:
            waiting = self._parked.get(key)
            if waiting is not None:
                waiting.discard(parked)
                if not waiting:
                    del self._parked[key]

    def settle(self) -> None:
        """Wake who waits for what has changed. Replies let connections go on to their next
        requests, which may change more: one loop sees to all of it."""
        if self._settling:
            return
        self._settling = True
        try:
            while self.state.changed:
                changed, self.state.changed = self.state.changed, set()
                for key in changed:
                    for parked in list(self._parked.get(key, ())):
                        parked.changed()
        finally:
            self._settling = False
        self._arm_group_timer()

    def _arm_group_timer(self) -> None:
        due = self.state.groups.due()
        if self._group_timer is not None:
            if self._group_timer.when() == due:
                return
            self._group_timer.cancel()
            self._group_timer = None
        if due is not None:
            loop = asyncio.get_running_loop()
            self._group_timer = loop.call_at(due, self._expire_groups)

    def _expire_groups(self) -> None:
        """Sessions of group members, and rebalances, come to their end."""
        self._group_timer = None
        self.state.changed |= self.state.groups.expire(self.now_s())
        self.settle()

    # --- history ----------------------------------------------------------------------------------

    def record(self, node: int, connection: int, incoming: Incoming) -> None:
        """Remember a request; the oldest ones are forgotten."""
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
        if self._watches:
            self._watches = [watch for watch in self._watches if not _meets(watch, recorded)]

    def watch(
        self,
        request: type[Request[Any]],
        nth: int,
        node: int | None,
        where: Callable[[Any], bool] | None,
    ) -> Future[Recorded]:
        """A future for the n-th such request from now on."""
        future: Future[Recorded] = Future()
        self._watches.append(_Watch(request, node, where, nth, future))
        return future

    def close(self) -> None:
        """Cancel what will never come."""
        if self._group_timer is not None:
            self._group_timer.cancel()
        for watch in self._watches:
            watch.future.cancel()
        self._watches.clear()


def _set_bytes(request: Request[Any]) -> int:
    if not isinstance(request, ProduceRequest):
        return 0
    return sum(len(one.message_set) for topic in request.topics for one in topic.partitions)


def _meets(watch: _Watch, recorded: Recorded) -> bool:
    if watch.future.cancelled():
        return True
    if (
        type(recorded.request) is watch.request
        and watch.node in (None, recorded.node)
        and (watch.where is None or watch.where(recorded.request))
    ):
        watch.left -= 1
        if not watch.left:
            watch.future.set_result(recorded)
            return True
    return False
