"""One broker: open and close its connections, find its version, back off after failures.

A node has up to one connection per `Lane`. A connection opens on demand, and is closed when it is
idle, unless `node_registry` keeps it.

Invariant: for each lane, at most one attempt to open it runs at a time. All callers that need the
lane share the attempt; the cancellation of a caller doesn't cancel it.
"""

from __future__ import annotations

import asyncio
import enum
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from aiokafka08._core.net.backoff import Backoff
from aiokafka08._core.net.config import Address, NetConfig, address_text
from aiokafka08._core.net.probe import probe_version
from aiokafka08._core.net.transport import BrokerConnection, open_connection
from aiokafka08._core.net.versions import BrokerLine, BrokerVersion
from aiokafka08.errors import (
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    KafkaUnavailableError,
)
from aiokafka08.protocol.api import Request, Response
from aiokafka08.protocol.requests.list_offsets import ListOffsetsRequest
from aiokafka08.telemetry import Connected, ConnectFailed, Disconnected, Telemetry

R = TypeVar("R", bound=Response)
T = TypeVar("T")

IDLE: Final = "idle"
"""The close reason of an idle connection."""

SESSION_ENDS: Final = "the SASL session ends"
"""The close reason of a connection that is replaced before the broker closes it."""

# Close reasons that say nothing about the broker's health
_HEALTHY: Final = (IDLE, SESSION_ENDS)

# The share of a SASL session's lifetime after which its connection is replaced
_DRAIN_AT: Final = 0.8

# The least time before a connection is replaced, whatever lifetime the broker names
_SHORTEST_SESSION_S: Final = 0.1

# How much too early an event loop may run a timer: uvloop counts milliseconds
_TIMER_SLACK_S: Final = 0.0005


class Lane(enum.Enum):
    """The purpose of a connection to a broker; a client has at most one connection per lane.

    A broker processes one request at a time per connection, and a Produce with acks=all, a long
    poll or a JoinGroup can take seconds (docs/brokers.md 3.1).
    """

    PRODUCE = "produce"
    FETCH = "fetch"  # long polls, and reads of a bounded range
    # Fetches without a wait, beside a long poll in flight. A fetch is urgent if the log may have
    # messages for it now, and the long poll doesn't return them.
    URGENT_FETCH = "urgent-fetch"
    CONTROL = "control"  # short requests only: Metadata, ListOffsets, commits, heartbeats
    JOIN = "join"  # JoinGroup and SyncGroup, which wait for the other members


class Node:
    """A broker at one address.

    Args:
        on_lost: called when a lane was lost or closed.
        keep_idle: called before the last lane is closed because it is idle; True keeps it open.
    """

    def __init__(
        self,
        node_id: int | None,
        address: Address,
        config: NetConfig,
        telemetry: Telemetry,
        *,
        open_connection: Callable[..., Awaitable[BrokerConnection]] = open_connection,
        on_lost: Callable[[], object] = lambda: None,
        keep_idle: Callable[[], bool] = lambda: False,
    ) -> None:
        self.node_id = node_id  # None for a bootstrap address
        self.address = address
        # The shortest time that the broker took to respond while its version was probed; None if it
        # wasn't probed yet
        self.round_trip_s: float | None = None
        self._config = config
        self._telemetry = telemetry
        self._open_connection = open_connection
        self._report_loss = on_lost
        self._keep_idle = keep_idle
        # When the broker last responded to a probe, or on a connection that is closed by now
        self._last_response = -math.inf
        self._lanes: dict[Lane, BrokerConnection] = {}
        self._connecting: dict[Lane, asyncio.Task[BrokerConnection]] = {}
        self._callers: Counter[Lane] = Counter()  # how many callers wait for a lane to open
        self._probing: asyncio.Task[BrokerVersion] | None = None
        self._version = config.pinned_version
        self._outages = 0  # each makes the probed version stale, as the broker may be another
        self._version_outages = 0  # value of `_outages` when the version was probed last
        # The IP address that responded to the last probe. All lanes connect to it, because another
        # address of the name may belong to another broker, or to none. The name is resolved anew
        # after each outage.
        self._ip: str | None = None
        # Probe the exact line with the version; see `exact_version()`
        self.needs_exact_line = False
        # Whether the last probe found 0.8.0, which logs a stack trace when it is asked for its
        # exact line. So it isn't asked again until the broker may have been replaced, which isn't
        # assumed while another lane stays open, or after an idle close.
        self._is_0_8_0 = False
        self._progress = "connecting"  # the step that is waited for, as a timeout's text names it
        self._failure = ""
        self._backoff = Backoff(
            config.limits.reconnect_backoff_s, config.limits.reconnect_backoff_max_s
        )
        self._not_before = 0.0
        # The last lost connection never received a response, so a new one doesn't reset `_backoff`.
        self._was_mute = False
        self._idle_timer: asyncio.TimerHandle | None = None
        self._closing: dict[BrokerConnection, None] = {}  # closed, but the socket isn't yet
        self._closed = False
        self._close_reason = ""

    def __repr__(self) -> str:
        lanes = " ".join(
            f"{lane.value}={connection.in_flight}" for lane, connection in self._lanes.items()
        )
        name = "bootstrap" if self.node_id is None else self.node_id
        return f"<Node {name} {address_text(self.address)} {lanes or 'not connected'}>"

    @property
    def version(self) -> BrokerVersion | None:
        """What the broker supports; None if it isn't known yet."""
        return self._version

    def adopt_version(self, version: BrokerVersion) -> None:
        """Use a version that was probed elsewhere, until a connection is lost."""
        if self._version is None:
            self._version, self._version_outages = version, self._outages

    @property
    def is_connected(self) -> bool:
        return bool(self._lanes)

    @property
    def last_response(self) -> float:
        """Loop time of the last data from this broker; minus infinity if there is none yet."""
        open_lanes = (lane.last_received for lane in self._lanes.values() if lane.has_responded)
        return max([self._last_response, *open_lanes])

    @property
    def is_unresponsive(self) -> bool:
        """Whether a response has been due for more than `NetLimits.unresponsive_s`."""
        # Produce and fetch may take that long on a healthy broker. Even so, another broker is then
        # the better choice for a request that any broker can process.
        limit_s = self._config.limits.unresponsive_s
        return any(
            connection.response_wait_s > limit_s
            for lane, connection in self._lanes.items()
            if lane is not Lane.JOIN
        )

    @property
    def in_flight(self) -> int:
        return sum(connection.in_flight for connection in self._lanes.values())

    @property
    def is_backing_off(self) -> bool:
        """Whether the last attempts failed and the next one must wait."""
        return self._not_before > asyncio.get_running_loop().time()

    @property
    def failures(self) -> int:
        """Number of failed attempts in a row; lanes that fail together count once."""
        return self._backoff.attempts

    async def request(
        self,
        request: Request[R],
        *,
        lane: Lane = Lane.CONTROL,
        version: int | None = None,
        timeout_s: float | None = None,
    ) -> R:
        """Send a request on a lane and wait for its response; open the lane if necessary.

        By default `version` is the highest one that both sides support, and `timeout_s` is the
        option `request_timeout_ms`.

        Raises:
            KafkaUnavailableError: not all 0.8 lines have the API, and the broker's line can't be
                told yet: see `exact_version`.
            KafkaError: as `BrokerConnection.request` and `connection`.
        """
        limit_s = self._config.request_timeout_s if timeout_s is None else timeout_s
        clock = asyncio.get_running_loop().time
        deadline = clock() + limit_s
        connection = await self.connection(lane, timeout_s=limit_s)
        known = connection.version
        if version is None and not (known.is_exact or known.supports(type(request))):
            known = await self.exact_version(timeout_s=max(deadline - clock(), 0.0))
            if not known.is_exact:
                raise KafkaUnavailableError(
                    f"{address_text(self.address)}: {type(request).__name__} not sent: without any "
                    "topic, a broker doesn't show which of the 0.8 lines it is: create a topic"
                )
        left_s = max(deadline - clock(), 0.0)
        return await connection.request(request, version=version, timeout_s=left_s)

    async def exact_version(self, *, timeout_s: float | None = None) -> BrokerVersion:
        """Return the version of the broker, with its exact line if that can be told.

        Open connections get it too. The line stays `BrokerLine.V0_8` while a broker of 0.8.1 or
        0.8.2 has no topic. Raises as `connection`.
        """
        limit_s = self._config.request_timeout_s if timeout_s is None else timeout_s
        clock = asyncio.get_running_loop().time
        deadline = clock() + limit_s
        self.needs_exact_line = True
        if self._version is not None and self._version.is_exact:
            return self._version
        connection = await self.connection(Lane.CONTROL, timeout_s=limit_s)
        # Another lane may have been opened when a probe couldn't tell the line.
        if all(lane.version.is_exact for lane in self._lanes.values()):
            return connection.version
        return await self._wait_for(self._probe(), max(deadline - clock(), 0.0))

    def open_lane(self, lane: Lane) -> BrokerConnection | None:
        return self._lanes.get(lane)

    async def connection(self, lane: Lane, *, timeout_s: float | None = None) -> BrokerConnection:
        """Return the open connection of a lane; open it, after the backoff, if necessary.

        Raises:
            KafkaConnectionError: the broker can't be reached, or the node is closed.
            KafkaTimeoutError: the lane didn't open within `timeout_s`.
            UnsupportedVersionError: it is a 4.x broker.
            KafkaProtocolError: it isn't a Kafka broker.
        """
        connection = self._lanes.get(lane)
        if connection is not None and not connection.is_draining:
            return connection
        limit_s = self._config.request_timeout_s if timeout_s is None else timeout_s
        if connection is not None:
            # Don't open the next connection beside the draining one, because the requests of a
            # producer must reach the broker in their order.
            began = asyncio.get_running_loop().time()
            await asyncio.wait((connection.socket_closed,), timeout=limit_s)
            limit_s = max(limit_s - (asyncio.get_running_loop().time() - began), 0.0)
            if self._lanes.get(lane) is connection:
                raise KafkaTimeoutError(
                    f"{address_text(self.address)}: no connection in time: the one before it, "
                    f"whose SASL session ends, still awaits a response"
                )
        attempt = self._attempt(lane)
        self._callers[lane] += 1
        try:
            return await self._wait_for(attempt, limit_s)
        finally:
            self._callers[lane] -= 1

    async def ping(self, timeout_s: float) -> None:
        """Have the broker respond to a request that all lines know; raises as `request`."""
        await self.request(ListOffsetsRequest(-1, []), version=0, timeout_s=timeout_s)

    def close_if_abandoned(self, lane: Lane) -> None:
        """Close a lane on which the broker is silent, and no caller waits for a response."""
        connection = self._lanes.get(lane)
        if connection is None or connection.is_awaited:
            return
        silent_s = connection.response_wait_s
        if silent_s >= self._config.limits.unresponsive_s:
            # A firewall that has forgotten a connection drops its packets without a word, and a new
            # connection works. Closing loses nothing.
            connection.close(f"no response for {silent_s * 1000:.0f} ms")

    def close(self, reason: str = "closed by the client") -> None:
        """Close all lanes and cancel all attempts; their callers get an error."""
        if self._closed:
            return
        self._closed, self._close_reason = True, reason
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        for attempt in self._attempts():
            attempt.cancel()
        for connection in list(self._lanes.values()):
            connection.close(reason)

    async def stop(self, reason: str = "closed by the client") -> None:
        self.close(reason)  # complete, even if the wait below is cancelled
        await asyncio.gather(*self._attempts(), return_exceptions=True)
        await asyncio.gather(*(connection.socket_closed for connection in self._closing))

    def _attempts(self) -> list[asyncio.Task[Any]]:
        attempts: list[asyncio.Task[Any]] = list(self._connecting.values())
        if self._probing is not None:
            attempts.append(self._probing)
        return attempts

    def _attempt(self, lane: Lane) -> asyncio.Task[BrokerConnection]:
        """Return the running attempt to open the lane, or start one."""
        if self._closed:
            raise KafkaConnectionError(f"{self!r} is closed")
        attempt = self._connecting.get(lane)
        if attempt is None:
            attempt = self._connecting[lane] = _background(self._open(lane))
            attempt.add_done_callback(lambda _: self._connecting.pop(lane, None))
        return attempt

    async def _wait_for(self, attempt: asyncio.Task[T], limit_s: float) -> T:
        """Wait for a shared attempt; a caller that is cancelled doesn't cancel it."""
        await asyncio.wait((attempt,), timeout=limit_s)
        where = address_text(self.address)
        if not attempt.done():
            raise KafkaTimeoutError(
                f"{where}: no connection within {limit_s * 1000:.0f} ms: {self._progress}"
            )
        if attempt.cancelled():
            raise KafkaConnectionError(f"{where}: {self._close_reason}, while connecting")
        return attempt.result()

    async def _open(self, lane: Lane) -> BrokerConnection:
        loop = asyncio.get_running_loop()
        delay = self._not_before - loop.time()
        if delay > 0:
            self._set_progress(f"backing off after: {self._failure}")
            await asyncio.sleep(delay)
        try:
            if self._is_doubtful:
                await self._probe_once()  # its error says what the peer is
                self._was_mute = False
            while True:
                version = await self._find_version()
                self._set_progress("connecting")
                connection = await self._open_connection(
                    self.address,
                    self._config,
                    version,
                    lambda connection, reason, lost: self._on_lost(lane, connection, reason, lost),
                    self._ip if self._version_outages == self._outages else None,
                )
                if connection.close_reason is not None:  # it was lost again meanwhile
                    raise KafkaConnectionError(
                        f"{address_text(self.address)}: {connection.close_reason}"
                    )
                if self._is_current(version):
                    break
                # Another lane was lost since the version was probed, so this connection may have
                # reached a broker of another version.
                connection.close("the broker may have been replaced")
        except KafkaError as error:
            self._failed(error)
            raise
        if not self._was_mute:
            self._backoff.reset()
        self._not_before = 0.0
        self._lanes[lane] = connection
        self._telemetry.emit(Connected(address_text(self.address), lane.value, str(version.line)))
        self._schedule_idle_check()
        if connection.session_lifetime_s < math.inf:
            due_s = max(_DRAIN_AT * connection.session_lifetime_s, _SHORTEST_SESSION_S)
            timer = loop.call_later(due_s, _end_session, connection)
            connection.socket_closed.add_done_callback(lambda _: timer.cancel())
        return connection

    def _failed(self, error: KafkaError) -> None:
        where = address_text(self.address)
        self._failure = error.text.removeprefix(f"{where}: ")
        # Probe again before the next connection, because the broker may have been replaced by one
        # of another version since it was probed.
        self._outages += 1
        self._is_0_8_0 = False
        self._back_off()
        self._telemetry.emit(ConnectFailed(where, self._failure))

    def _back_off(self) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._not_before:  # lanes that fail together count as one failure
            self._not_before = now + self._backoff.next()

    def _set_progress(self, text: str) -> None:
        self._progress = text

    async def _find_version(self) -> BrokerVersion:
        """Return the broker's version; it is probed once per outage, for all lanes."""
        if self._version is not None and self._is_current(self._version):
            return self._version
        return await asyncio.shield(self._probe())

    @property
    def _is_doubtful(self) -> bool:
        """Whether a peer with a pinned version has never responded, so it may be no broker."""
        return (
            self._config.pinned_version is not None
            and self._was_mute
            and self._last_response == -math.inf
        )

    def _is_current(self, version: BrokerVersion) -> bool:
        """Return whether no connection was lost since `version` was found, or it is pinned."""
        if self._config.pinned_version is not None:
            return True
        return version == self._version and self._version_outages == self._outages

    def _probe(self) -> asyncio.Task[BrokerVersion]:
        """Return the running probe of the version, or start one."""
        if self._probing is None:
            self._probing = _background(self._probe_version())
            self._probing.add_done_callback(self._on_probed)
        return self._probing

    async def _probe_version(self) -> BrokerVersion:
        outages = self._outages
        version = await self._probe_once()
        if self._needs_confirmation(version):
            version = await self._probe_once()
        self._is_0_8_0 = version.line is BrokerLine.V0_8_0
        self._version, self._version_outages = version, outages
        if version.is_exact:
            self._make_lanes_exact(version)
        return version

    def _needs_confirmation(self, version: BrokerVersion) -> bool:
        """Return whether to probe again before this version is believed."""
        # A probe recognizes an 0.8.0 broker by the connections that it closes, and they may have
        # been lost for another reason. If a broker were taken for an older one by mistake, running
        # operations would fail, and the offsets of produced messages would be wrong.
        if self._version is None:
            return version.line is BrokerLine.V0_8_0
        if version.line is BrokerLine.V0_8_0:
            return self._version.line is not BrokerLine.V0_8_0
        return version.is_exact and version.line < self._version.line

    def _make_lanes_exact(self, version: BrokerVersion) -> None:
        """Set the exact line of the open lanes whose line is still `BrokerLine.V0_8`."""
        for connection in list(self._lanes.values()):
            # Other lanes keep their version: behind a load balancer they may have reached another
            # broker.
            if not connection.version.is_exact:
                if version.line < BrokerLine.V0_9:
                    connection.version = version
                else:
                    connection.close("the broker may have been replaced")

    async def _probe_once(self) -> BrokerVersion:
        exact = self.needs_exact_line
        took: list[float] = []
        ips: list[str] = []
        version = await probe_version(
            self.address,
            self._config,
            self._set_progress,
            took.append,
            ips.append,
            exact=exact and not self._is_0_8_0,
        )
        (self._ip,) = ips
        self.round_trip_s = min(took, default=None)
        self._last_response = asyncio.get_running_loop().time()
        if version.is_exact:
            return version
        if self._is_0_8_0:
            return BrokerVersion.of(BrokerLine.V0_8_0)
        if self.needs_exact_line and not exact:  # a caller has asked for it meanwhile
            return await self._probe_once()
        return version

    def _on_probed(self, task: asyncio.Task[BrokerVersion]) -> None:
        self._probing = None

    def _on_lost(self, lane: Lane, connection: BrokerConnection, reason: str, lost: int) -> None:
        self._closing[connection] = None
        connection.socket_closed.add_done_callback(lambda _: self._closing.pop(connection, None))
        if self._lanes.get(lane) is not connection:
            return  # no caller has it yet; `_open` raises the error
        self._last_response = self.last_response
        del self._lanes[lane]
        if reason not in _HEALTHY:
            # Back off from a broker that accepts connections and closes them at once.
            self._was_mute = not connection.has_responded
            if self._was_mute:
                self._failure = reason
                self._back_off()
        if reason not in _HEALTHY or not self._lanes:
            # Probe again before the next connection, since the broker may come back as another
            # version (a rolling upgrade). After an idle close, this isn't necessary if another lane
            # is still open, because the broker is then still the same.
            self._outages += 1
        if reason not in _HEALTHY and not self._lanes:
            self._is_0_8_0 = False
        self._telemetry.emit(Disconnected(address_text(self.address), lane.value, reason, lost))
        self._report_loss()

    def _schedule_idle_check(self) -> None:
        idle_s = self._config.connections_max_idle_s
        if self._idle_timer is not None or not self._lanes or idle_s == math.inf:
            return
        now = asyncio.get_running_loop().time()
        due = min(self._idle_since(lane, now) for lane in self._lanes) + idle_s
        self._idle_timer = asyncio.get_running_loop().call_at(due, self._close_idle)

    def _close_idle(self) -> None:
        """Close idle lanes, before the broker does so while the next request is on its way."""
        self._idle_timer = None
        now = asyncio.get_running_loop().time()
        limit = now - self._config.connections_max_idle_s
        for lane, connection in list(self._lanes.items()):
            if self._idle_since(lane, now) > limit + _TIMER_SLACK_S:
                continue
            if len(self._lanes) == 1 and self._keep_idle():
                again_at = now + self._config.connections_max_idle_s
                self._idle_timer = asyncio.get_running_loop().call_at(again_at, self._close_idle)
                return
            connection.close(IDLE)
        self._schedule_idle_check()

    def _idle_since(self, lane: Lane, now: float) -> float:
        """Return since when a lane has been idle; `now` if it is in use."""
        connection = self._lanes[lane]
        # A lane is also in use while callers wait for it to open; otherwise it could be closed
        # before their first write. When they no longer wait, they write before the loop runs this
        # check again.
        in_use = connection.in_flight or not connection.writable or self._callers[lane]
        return now if in_use else connection.last_used


def _end_session(connection: BrokerConnection) -> None:
    if connection.close_reason is None:
        connection.drain(SESSION_ENDS)


def _background(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start a task that several callers may wait for."""
    task = asyncio.get_running_loop().create_task(work)
    # asyncio logs a warning if no caller is left to retrieve the exception.
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task
