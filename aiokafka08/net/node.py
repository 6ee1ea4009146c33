"""One broker: its lanes, its version, connecting again with backoff, closing what idles.

A lane is a connection with one purpose. A broker answers one request at a time per connection, and
an acks=all produce or a long poll can take seconds: nothing urgent may queue behind them
(docs/brokers.md 3.1). Lanes open on demand. Law: at most one attempt per lane is under way,
whoever asks; a cancelled caller cancels nobody else's attempt.
"""

from __future__ import annotations

import asyncio
import enum
import math
from collections import Counter
from collections.abc import Coroutine
from typing import Any, TypeVar

from aiokafka08.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError
from aiokafka08.net.backoff import Backoff
from aiokafka08.net.config import Address, NetConfig, address_text
from aiokafka08.net.probe import probe_version
from aiokafka08.net.transport import BrokerConnection, open_connection
from aiokafka08.net.versions import BrokerVersion
from aiokafka08.protocol.api import Request, Response
from aiokafka08.telemetry import Connected, ConnectFailed, Disconnected, Telemetry

R = TypeVar("R", bound=Response)
T = TypeVar("T")

RECONNECT_BACKOFF_S = 0.05
RECONNECT_BACKOFF_MAX_S = 5.0

UNRESPONSIVE_S = 1.0
"""How long the answer to a short request may take before others are asked first."""

IDLE = "idle"
"""The reason of a close that is our own doing, and tells nothing about the broker."""

_EARLY_S = 0.0005
"""How much too early loops may call: uvloop counts milliseconds."""


class Lane(enum.Enum):
    """What a connection is for."""

    PRODUCE = "produce"
    FETCH = "fetch"
    CONTROL = "control"
    """Metadata, ListOffsets, commits, heartbeats: short requests only."""
    JOIN = "join"
    """JoinGroup and SyncGroup, which wait for the other members."""


class Node:
    """A broker at one address. `node_id` is None for a bootstrap address."""

    def __init__(
        self, node_id: int | None, address: Address, config: NetConfig, telemetry: Telemetry
    ) -> None:
        self.node_id = node_id
        self.address = address
        self._config = config
        self._telemetry = telemetry
        self._lanes: dict[Lane, BrokerConnection] = {}
        self._connecting: dict[Lane, asyncio.Task[BrokerConnection]] = {}
        self._callers: Counter[Lane] = Counter()  # who wait for a lane to open
        self._detecting: asyncio.Task[BrokerVersion] | None = None
        self._version = config.pinned_version
        self._outages = 0
        self._version_outage = 0  # the number of outages when the version was asked for last
        self._doing = "connecting"  # for the text of timeouts
        self._failure = ""
        self._backoff = Backoff(RECONNECT_BACKOFF_S, RECONNECT_BACKOFF_MAX_S)
        self._not_before = 0.0
        self._mute = False  # the last connection that was lost had brought no answer
        self._reaper: asyncio.TimerHandle | None = None
        self._closing: set[BrokerConnection] = set()  # closed by us, their sockets not gone yet
        self._closed = False

    def __repr__(self) -> str:
        lanes = " ".join(
            f"{lane.value}={connection.in_flight}" for lane, connection in self._lanes.items()
        )
        name = "bootstrap" if self.node_id is None else self.node_id
        return f"<Node {name} {address_text(self.address)} {lanes or 'not connected'}>"

    @property
    def version(self) -> BrokerVersion | None:
        """What the broker speaks; None until the first connection was made."""
        return self._version

    @property
    def is_connected(self) -> bool:
        """Whether any lane is open."""
        return bool(self._lanes)

    @property
    def is_unresponsive(self) -> bool:
        """Whether it has owed an answer for long. Produce and fetch may take as long on a broker
        that is well, but where others can be asked they are the better choice all the same."""
        return any(
            connection.response_wait_s > UNRESPONSIVE_S
            for lane, connection in self._lanes.items()
            if lane is not Lane.JOIN
        )

    @property
    def in_flight(self) -> int:
        """Requests in flight over all lanes."""
        return sum(connection.in_flight for connection in self._lanes.values())

    @property
    def is_backing_off(self) -> bool:
        """Whether the last attempts failed and the next one must wait."""
        return self._not_before > asyncio.get_running_loop().time()

    async def request(
        self,
        request: Request[R],
        *,
        lane: Lane = Lane.CONTROL,
        version: int | None = None,
        timeout_s: float | None = None,
    ) -> R:
        """Send a request on a lane, opening it if need be, and wait for the answer.

        `timeout_s` (default: `request_timeout_ms`) covers all of it. Raises as
        `BrokerConnection.request` and `connection`.
        """
        deadline_s = self._config.request_timeout_s if timeout_s is None else timeout_s
        end = asyncio.get_running_loop().time() + deadline_s
        connection = await self.connection(lane, timeout_s=deadline_s)
        left = max(end - asyncio.get_running_loop().time(), 0.0)
        return await connection.request(request, version=version, timeout_s=left)

    async def connection(self, lane: Lane, *, timeout_s: float | None = None) -> BrokerConnection:
        """The open connection of a lane; waits for the backoff after failures.

        Raises:
            KafkaConnectionError: the broker can't be reached, or the node was closed.
            KafkaTimeoutError: not within `timeout_s`.
            UnsupportedVersionError: it is a 4.x broker.
            KafkaProtocolError: it isn't a Kafka broker.
        """
        connection = self._lanes.get(lane)
        if connection is not None:
            return connection
        attempt = self._attempt(lane)
        self._callers[lane] += 1
        try:
            return await self._join(
                attempt, self._config.request_timeout_s if timeout_s is None else timeout_s
            )
        finally:
            self._callers[lane] -= 1

    def close(self, reason: str = "closed by the client") -> None:
        """Close all lanes and give up all attempts; whoever waits gets an error."""
        if self._closed:
            return
        self._closed = True
        if self._reaper is not None:
            self._reaper.cancel()
        for attempt in self._attempts():
            attempt.cancel()
        for connection in list(self._lanes.values()):
            connection.close(reason)

    async def stop(self, reason: str = "closed by the client") -> None:
        """`close`, and wait until the sockets are gone."""
        self.close(reason)  # all of it, whatever becomes of the waiting
        await asyncio.gather(*self._attempts(), return_exceptions=True)
        await asyncio.gather(*(connection.socket_closed for connection in self._closing))

    def _attempts(self) -> list[asyncio.Task[Any]]:
        attempts: list[asyncio.Task[Any]] = list(self._connecting.values())
        if self._detecting is not None:
            attempts.append(self._detecting)
        return attempts

    def _attempt(self, lane: Lane) -> asyncio.Task[BrokerConnection]:
        """The one attempt to open the lane, whoever asks."""
        if self._closed:
            raise KafkaConnectionError(f"{self!r} is closed")
        attempt = self._connecting.get(lane)
        if attempt is None:
            attempt = self._connecting[lane] = _background(self._open(lane))
            attempt.add_done_callback(lambda _: self._connecting.pop(lane, None))
        return attempt

    async def _join(
        self, attempt: asyncio.Task[BrokerConnection], limit_s: float
    ) -> BrokerConnection:
        """Wait for a shared attempt without cancelling it for the others."""
        await asyncio.wait((attempt,), timeout=limit_s)
        where = address_text(self.address)
        if not attempt.done():
            raise KafkaTimeoutError(
                f"{where}: no connection within {limit_s * 1000:.0f} ms: {self._doing}"
            )
        if attempt.cancelled():
            raise KafkaConnectionError(f"{where}: closed by the client while it connected")
        return attempt.result()

    async def _open(self, lane: Lane) -> BrokerConnection:
        loop = asyncio.get_running_loop()
        delay = self._not_before - loop.time()
        if delay > 0:
            self._tell(f"waiting to try again after: {self._failure}")
            await asyncio.sleep(delay)
        try:
            while True:
                version = await self._detect()
                self._tell("connecting")
                connection = await open_connection(
                    self.address,
                    self._config,
                    version,
                    lambda connection, reason, lost: self._lost(lane, connection, reason, lost),
                )
                if connection.close_reason is not None:  # lost between its making and now
                    raise KafkaConnectionError(
                        f"{address_text(self.address)}: {connection.close_reason}"
                    )
                if self._is_current(version):
                    break
                # Another lane was lost since the version was asked for: this one may have reached
                # the broker's successor.
                connection.close("the broker may be another one by now")
        except KafkaError as error:
            self._failed(error)
            raise
        if not self._mute:
            self._backoff.reset()
        self._not_before = 0.0
        self._lanes[lane] = connection
        self._telemetry.emit(Connected(address_text(self.address), lane.value, str(version.line)))
        self._schedule_reaper()
        return connection

    def _failed(self, error: KafkaError) -> None:
        where = address_text(self.address)
        self._failure = error.text.removeprefix(f"{where}: ")
        # Whoever listens there the next time may be another version: the broker that was asked may
        # have ended between its answer and the connection.
        self._outages += 1
        self._back_off()
        self._telemetry.emit(ConnectFailed(where, self._failure))

    def _back_off(self) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._not_before:  # lanes that fail together are one failure
            self._not_before = now + self._backoff.next()

    def _tell(self, doing: str) -> None:
        self._doing = doing

    async def _detect(self) -> BrokerVersion:
        """The broker's version, asked once per outage, whichever lanes want it."""
        if self._version is not None and self._is_current(self._version):
            return self._version
        if self._detecting is None:
            self._detecting = _background(self._ask_version())
            self._detecting.add_done_callback(self._detected)
        return await asyncio.shield(self._detecting)

    def _is_current(self, version: BrokerVersion) -> bool:
        """Whether a version was found after all that was lost until now, or is pinned."""
        if self._config.pinned_version is not None:
            return True
        return version == self._version and self._version_outage == self._outages

    async def _ask_version(self) -> BrokerVersion:
        outage = self._outages
        version = await probe_version(self.address, self._config, self._tell)
        if self._version is not None and version.line < self._version.line:
            # Brokers hardly ever get older, but to close a connection is what makes an old one;
            # one that is taken for older than it is loses what the user is in the middle of.
            version = await probe_version(self.address, self._config, self._tell)
        self._version, self._version_outage = version, outage
        return version

    def _detected(self, task: asyncio.Task[BrokerVersion]) -> None:
        self._detecting = None

    def _lost(self, lane: Lane, connection: BrokerConnection, reason: str, lost: int) -> None:
        self._closing.add(connection)
        connection.socket_closed.add_done_callback(lambda _: self._closing.discard(connection))
        if self._lanes.get(lane) is not connection:
            return  # nobody has got it yet; `_open` tells
        del self._lanes[lane]
        if reason != IDLE:
            # One that accepts connections and closes them mustn't be run against.
            self._mute = not connection.has_responded
            if self._mute:
                self._failure = reason
                self._back_off()
        if reason != IDLE or not self._lanes:
            # The broker may come back as another version (a rolling upgrade), unless another
            # connection has been there all the while: ask again.
            self._outages += 1
        self._telemetry.emit(Disconnected(address_text(self.address), lane.value, reason, lost))

    def _schedule_reaper(self) -> None:
        idle_s = self._config.connections_max_idle_s
        if self._reaper is not None or not self._lanes or idle_s == math.inf:
            return
        now = asyncio.get_running_loop().time()
        due = min(self._idle_since(lane, now) for lane in self._lanes) + idle_s
        self._reaper = asyncio.get_running_loop().call_at(due, self._reap)

    def _reap(self) -> None:
        """Close lanes that idle, before the broker does so under our next request."""
        self._reaper = None
        now = asyncio.get_running_loop().time()
        limit = now - self._config.connections_max_idle_s
        for lane, connection in list(self._lanes.items()):
            if self._idle_since(lane, now) <= limit + _EARLY_S:
                connection.close(IDLE)
        self._schedule_reaper()

    def _idle_since(self, lane: Lane, now: float) -> float:
        """Since when nobody uses a lane.

        Callers that waited for it to open use it: it must not be closed between the end of the
        attempt and their turn. After that they write without giving way to the reaper.
        """
        connection = self._lanes[lane]
        in_use = connection.in_flight or not connection.writable or self._callers[lane]
        return now if in_use else connection.last_used


def _background(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task that several callers may join; its error is theirs, also if all of them have gone."""
    task = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task
