"""Stand in for kazoo's client on a simulated server, with kazoo's names, results and exceptions.

In a simulation, a function that `_core.zookeeper` gives to a thread runs in the loop, in one piece.

Invariant: nothing blocks. A request has its result when it is made, or none while the network is
away. In that case `get` raises kazoo's timeout error at once, and `SimulatedZookeeper.spend` gets
the time for which a thread would have been blocked. The client has only the methods that
`_core.zookeeper` calls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any, Final

from aiokafka08.errors import KafkaTimeoutError
from aiokafka08.testing.simulation.zookeeper import (
    CALLBACK_S,
    PING_PART,
    SILENCE_PART,
    Session,
    SimulatedZookeeper,
    Timer,
)
from aiokafka08.testing.simulation.zookeeper_tree import EventKind, TreeNode, join, split

Watch = Callable[[Any], object]
# From the return of the network to the client's next attempt.
_RECONNECT_S: Final = 0.05


class SimulatedResult:
    """The result of a request: kazoo's IAsyncResult as far as the package reads it."""

    def __init__(
        self,
        server: SimulatedZookeeper,
        limit_s: float,
        call_back: Callable[[Callable[[Any], object], object], object],
    ) -> None:
        self._server = server
        self._limit_s = limit_s
        self._call_back = call_back
        self._links: list[Callable[[Any], object]] = []
        # When the client will learn that its session has ended; None: it won't.
        self.ends_at: float | None = None
        self._done = False
        self._value: Any = None
        self._error: BaseException | None = None

    def run(self, request: Callable[[], Any]) -> None:
        """Perform the request; keep its result or exception."""
        try:
            self._value = request()
        except Exception as error:
            self._error = error
        self._finish()

    def fail(self, error: BaseException) -> None:
        """End the request with an exception."""
        self._error = error
        self._finish()

    def _finish(self) -> None:
        self._done = True
        links, self._links = self._links, []
        for link in links:
            self._call_back(link, self)

    def rawlink(self, callback: Callable[[Any], object]) -> None:
        """Call a function with this object once there is a result."""
        if self._done:
            self._call_back(callback, self)
        else:
            self._links.append(callback)

    def successful(self) -> bool:
        """Return whether there is a result that isn't an exception."""
        return self._done and self._error is None

    def wait(self, timeout: float | None = None) -> bool:
        """Return whether there is a result; without one, note how long kazoo would have blocked."""
        if not self._done:
            limit_s = self._limit_s if timeout is None else timeout
            if self.ends_at is not None and self.ends_at - self._server.time() <= limit_s:
                from kazoo.exceptions import SessionExpiredError

                limit_s = self.ends_at - self._server.time()
                self.fail(SessionExpiredError())
            self._server.spend(limit_s)
        return self._done

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Return the result, or raise the request's exception.

        Raises:
            KazooTimeoutError: there is none.
            KafkaTimeoutError: there is none, and the call has no timeout.
        """
        if not self._done:
            from kazoo.handlers.threading import KazooTimeoutError

            if not self.wait(timeout if block else 0):
                # Only requests inside `_core.zookeeper.session.temporary_session` have no timeout;
                # there the real client's requests end with this error.
                if block and timeout is None:
                    raise KafkaTimeoutError("ZooKeeper doesn't respond in time")
                raise KazooTimeoutError
        if self._error is not None:
            raise self._error
        return self._value


class SimulatedKazooClient:
    """A client of a simulated server, with the methods of kazoo.client.KazooClient.

    Args:
        server: the simulated server.
        timeout: seconds until its session expires; also the default timeout of its requests.
        kazoo_options: other options of kazoo's client; they have no effect.

    Attributes:
        session: the session; None before `start`, after `stop`, and once it has ended.
        state: "CONNECTED", "SUSPENDED" or "LOST".
        chroot: path that is put before each path.
        loses_response: whether the connection breaks before the next change has its result.
    """

    def __init__(
        self, server: SimulatedZookeeper, *, timeout: float, **kazoo_options: object
    ) -> None:
        self.session: Session | None = None
        self.state = "LOST"
        self.chroot = ""
        self.loses_response = False
        self._server = server
        self._timeout_s = timeout
        self._stopped = True
        self._listeners: list[Callable[[str], object]] = []
        self._callbacks: deque[tuple[Timer, Callable[[Any], object], object]] = deque()
        self._queue: deque[tuple[SimulatedResult, Callable[[], Any]]] = deque()
        self._data_watchers: dict[str, dict[Watch, None]] = {}
        self._child_watchers: dict[str, dict[Watch, None]] = {}
        self._away_until = 0.0
        self._reconnect: Timer | None = None
        self._notice: Timer | None = None
        self._silent_ping_at = 0.0  # when it sends the ping whose response will be missing
        self._ping: Timer | None = None
        self._context: Context = copy_context()  # the context of the process that has the client

    # --- life -------------------------------------------------------------------------------------

    def start(self, timeout: float = 15) -> None:
        """Open a session.

        Raises:
            KazooTimeoutError: the server can't be reached; kazoo would block for the timeout.
        """
        if not self._server.is_reachable:
            from kazoo.handlers.threading import KazooTimeoutError

            self._server.spend(timeout)
            raise KazooTimeoutError("Connection time-out")
        self._stopped = False
        self._context = copy_context()
        self._server.attach(self)
        self._open_session()
        self._schedule_ping()

    def stop(self) -> None:
        """End the session, if the server can be reached; else it ends after its timeout."""
        if self._stopped:
            return
        self._stopped = True
        while self._callbacks:
            self._callbacks[0][0].cancel()
            self._run_callback()
        for timer in (self._reconnect, self._notice, self._ping):
            if timer is not None:
                timer.cancel()
        session, self.session = self.session, None
        self._server.detach(self)
        if session is not None:
            self._server.forget_watches(session)
            if self._has_network:
                self._server.end_session(session)
        self._fail_queue("ConnectionLoss")
        self._change_state("LOST")
        self._reset_watchers()

    def close(self) -> None:
        """Do nothing: there is nothing to free."""

    @property
    def connected(self) -> bool:
        """Whether there is a session and a connection."""
        return self.state == "CONNECTED"

    @property
    def client_id(self) -> tuple[int, bytes] | None:
        """The session's id and password; None without a connection."""
        if self.session is None or not self.connected:
            return None
        return self.session.number, b""

    def add_listener(self, listener: Callable[[str], object]) -> None:
        """Call a function with each new state."""
        self._listeners.append(listener)

    def _open_session(self) -> None:
        self.session = self._server.open_session(self._timeout_s)
        self._change_state("CONNECTED")

    def _change_state(self, state: str) -> None:
        if state != self.state:
            self.state = state
            for listener in self._listeners:
                self._call_back(listener, state)

    def _call_back(self, callback: Callable[[Any], object], argument: object) -> None:
        """Call a function soon, as kazoo's threads do; `stop` makes the calls that are left."""
        if self._stopped:
            callback(argument)
        else:
            timer = self._later(CALLBACK_S, self._run_callback)
            self._callbacks.append((timer, callback, argument))

    def _run_callback(self) -> None:
        """Make the oldest of the pending calls."""
        _, callback, argument = self._callbacks.popleft()
        callback(argument)

    def _later(self, delay: float, callback: Callable[..., object], *args: object) -> Timer:
        return self._server.later(delay, self._context, callback, *args)

    def _schedule_ping(self) -> None:
        self._ping = self._later(self._timeout_s * PING_PART, self._send_ping)

    def _send_ping(self) -> None:
        """Keep the session alive, or learn that it has ended."""
        self._schedule_ping()
        if self.session is None or not self._has_network or self.state != "CONNECTED":
            return
        # The process may have been paused for longer than the session lasts.
        if not self._server.hear(self.session):
            self.lose_network(self._server.time(), silent=False)

    # --- the network ------------------------------------------------------------------------------

    @property
    def _has_network(self) -> bool:
        return self._server.time() >= self._away_until

    def lose_network(self, until: float, *, silent: bool) -> None:
        """Lose the network until a time of the loop; see `SimulatedZookeeper.disconnect`."""
        if self._stopped:
            return
        now = self._server.time()
        self._away_until = max(self._away_until, until)
        if self.state == "CONNECTED" and self._notice is None:
            if silent:
                heard = now if self.session is None else self.session.last_heard
                self._silent_ping_at = heard + self._timeout_s * PING_PART
                self._notice_at(heard + self._timeout_s * SILENCE_PART)
            else:
                self._connection_lost()
        elif not silent:
            self._connection_lost()
        if self._reconnect is not None:
            self._reconnect.cancel()
        self._reconnect = self._later(self._away_until - now + _RECONNECT_S, self._network_is_back)

    def _delay_notice(self) -> None:
        """Postpone the detection of a silent network loss, because a request is sent."""
        # For kazoo a request counts as a ping, so it sends its next ping later, and notices the
        # lost network by the missing response to that ping.
        now, ping_s = self._server.time(), self._timeout_s * PING_PART
        if now < self._silent_ping_at:
            self._silent_ping_at = now + ping_s
            self._notice_at(self._silent_ping_at + ping_s)
        else:
            self._notice_at(now + ping_s)

    def _notice_at(self, when: float) -> None:
        if self._notice is not None:
            self._notice.cancel()
        self._notice = self._later(max(when - self._server.time(), 0.0), self._connection_lost)

    def _connection_lost(self) -> None:
        if self._notice is not None:
            self._notice.cancel()
            self._notice = None
        if self.state != "CONNECTED":
            return
        self._fail_queue("ConnectionLoss")
        self._change_state("SUSPENDED")
        if self.session is not None:
            self._server.forget_watches(self.session)
        self._reset_watchers()

    def _network_is_back(self) -> None:
        """Reconnect, or keep the connection if the client hasn't noticed the loss."""
        self._reconnect = None
        session = self.session
        assert session is not None
        if not self._server.hear(session):
            self._connection_lost()  # the server closes it
            self.session = None
            self._change_state("LOST")
            self._fail_queue("SessionExpiredError")
            self._reset_watchers()
            self._open_session()
            return
        if self._notice is not None:
            self._notice.cancel()
            self._notice = None
        self._change_state("CONNECTED")
        while self._queue:
            result, request = self._queue.popleft()
            result.run(request)

    def _fail_queue(self, name: str) -> None:
        from kazoo import exceptions

        while self._queue:
            result, _ = self._queue.popleft()
            result.fail(getattr(exceptions, name)())

    def _send(self, request: Callable[[], Any], *, is_change: bool = False) -> SimulatedResult:
        """Perform a request, or queue it while there is no network."""
        from kazoo import exceptions

        result = SimulatedResult(self._server, self._timeout_s, self._call_back)
        if self._stopped:
            result.fail(exceptions.ConnectionClosedError("Connection has been closed"))
        elif self._has_network and self.state == "CONNECTED":
            self._server.spend(self._server.latency_s)
            if not self._is_alive():
                result.fail(exceptions.ConnectionLoss())
                return result
            result.run(request)
            if is_change and self.loses_response:
                self.loses_response = False
                result.fail(exceptions.ConnectionLoss())
                self.lose_network(self._server.time(), silent=False)
        else:
            if self._notice is not None:
                self._delay_notice()
            # As with kazoo, the request takes effect when the network is back within the session,
            # although its caller has a timeout error by then.
            self._queue.append((result, request))
            returns_at = self._away_until + _RECONNECT_S
            if self.session is None or not self._server.lives_until(self.session, returns_at):
                result.ends_at = returns_at
        return result

    def _is_alive(self) -> bool:
        """Return whether the session lasts; if it doesn't, lose the connection."""
        if self.session is not None and self._server.hear(self.session):
            return True
        self.lose_network(self._server.time(), silent=False)
        return False

    # --- watches ----------------------------------------------------------------------------------

    def notify(self, kind: EventKind, path: str) -> None:
        """Call the functions that watch a node or its children; twice if a function does both."""
        from kazoo.protocol.states import EventType, WatchedEvent

        watchers: list[Watch] = []
        if kind != "CHILD":
            watchers += self._data_watchers.pop(path, ())
        if kind in ("CHILD", "DELETED"):
            watchers += self._child_watchers.pop(path, ())
        event = WatchedEvent(getattr(EventType, kind), "CONNECTED", self._without_root(path))
        for watcher in watchers:
            self._call_back(watcher, event)

    def _reset_watchers(self) -> None:
        """Call all functions that watch something, since their watches are lost."""
        from kazoo.protocol.states import EventType, WatchedEvent

        event = WatchedEvent(EventType.NONE, self.state, None)
        for by_path in (self._child_watchers, self._data_watchers):
            for watchers in by_path.values():
                for watcher in watchers:
                    self._call_back(watcher, event)
            by_path.clear()

    def _watch(self, path: str, watch: Watch | None, *, children: bool = False) -> None:
        if watch is not None and self.session is not None:
            by_path = self._child_watchers if children else self._data_watchers
            by_path.setdefault(path, {})[watch] = None
            self._server.watch(path, self.session, children=children)

    # --- requests ---------------------------------------------------------------------------------

    def get_async(self, path: str, watch: Watch | None = None) -> SimulatedResult:
        """Request a node's data and stat."""
        full = self._with_root(path)

        def get() -> tuple[bytes, Any]:
            node = self._server.tree.node(full)
            self._watch(full, watch)
            return node.data, node.stat()

        return self._send(get)

    def exists_async(self, path: str, watch: Watch | None = None) -> SimulatedResult:
        """Request a node's stat; None if there is no such node."""
        full = self._with_root(path)

        def exists() -> Any:
            self._watch(full, watch)
            node: TreeNode | None = self._server.tree.find(full)
            return None if node is None else node.stat()

        return self._send(exists)

    def get_children_async(self, path: str, watch: Watch | None = None) -> SimulatedResult:
        """Request the names of a node's children."""
        full = self._with_root(path)

        def get_children() -> list[str]:
            names = self._server.tree.node(full).names()
            self._watch(full, watch, children=True)
            return names

        return self._send(get_children)

    def set_async(self, path: str, value: bytes, version: int = -1) -> SimulatedResult:
        """Request a write of a node's data; the result is its stat."""
        full = self._with_root(path)

        def write() -> Any:
            tree = self._server.tree
            self._server.publish(tree.set(full, value, self._server.now_ms(), version))
            return tree.node(full).stat()

        return self._send(write, is_change=True)

    def create_async(
        self,
        path: str,
        value: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        makepath: bool = False,
    ) -> SimulatedResult:
        """Request the creation of a node; the result is its path."""
        full = self._with_root(path)

        def create() -> str:
            server, session = self._server, self.session
            assert session is not None
            if makepath:
                self._make_path(split(full)[0])
            created, events = server.tree.create(
                full,
                value,
                server.now_ms(),
                owner=session.number if ephemeral else 0,
                sequence=sequence,
            )
            server.publish(events)
            return self._without_root(created)

        return self._send(create, is_change=True)

    def delete_async(self, path: str, version: int = -1) -> SimulatedResult:
        """Request the deletion of a node."""
        full = self._with_root(path)

        def delete() -> bool:
            self._server.publish(self._server.tree.delete(full, version))
            return True

        return self._send(delete, is_change=True)

    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Any]:
        """Return a node's data and stat."""
        data_and_stat: tuple[bytes, Any] = self.get_async(path, watch).get()
        return data_and_stat

    def exists(self, path: str, watch: Watch | None = None) -> Any:
        """Return a node's stat; None if there is no such node."""
        return self.exists_async(path, watch).get()

    def get_children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return the names of a node's children."""
        names: list[str] = self.get_children_async(path, watch).get()
        return names

    def set(self, path: str, value: bytes, version: int = -1) -> Any:
        """Write a node's data; return its stat."""
        return self.set_async(path, value, version).get()

    def create(
        self,
        path: str,
        value: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        makepath: bool = False,
    ) -> str:
        """Create a node; return its path."""
        created: str = self.create_async(
            path, value, ephemeral=ephemeral, sequence=sequence, makepath=makepath
        ).get()
        return created

    def delete(self, path: str, version: int = -1, recursive: bool = False) -> bool:
        """Delete a node; with `recursive`, first the nodes below it, ignoring missing nodes."""
        if not recursive:
            done: bool = self.delete_async(path, version).get()
            return done
        from kazoo.exceptions import NoNodeError

        try:
            for name in self.get_children(path):
                self.delete(join(path, name), recursive=True)
            return self.delete(path)
        except NoNodeError:
            return True

    # --- paths ------------------------------------------------------------------------------------

    def _make_path(self, path: str) -> None:
        tree = self._server.tree
        if tree.find(path) is None:
            self._make_path(split(path)[0])
            self._server.publish(tree.create(path, b"", self._server.now_ms())[1])

    def _with_root(self, path: str) -> str:
        return (self.chroot + path).rstrip("/") or "/"

    def _without_root(self, path: str) -> str:
        return path.removeprefix(self.chroot) or "/"
