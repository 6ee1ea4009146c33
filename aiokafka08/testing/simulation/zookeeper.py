"""A simulated ZooKeeper server: sessions, ephemeral nodes, watches, and a network that fails.

    zookeeper = SimulatedZookeeper(loop, wall_time, spend)
    client = SimulatedKazooClient(zookeeper, timeout=6.0)
    zookeeper.disconnect(for_s=10)  # longer than the timeout, so the session ends

Invariant: nothing blocks and nothing runs in a thread. A request of a connected client has its
result at once; callbacks and everything that takes time are timers of the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import Context
from typing import Any, Final, Protocol

from aiokafka08.testing.simulation.party import NO_PARTY, PARTY
from aiokafka08.testing.simulation.zookeeper_tree import EventKind, Tree, WatchEvent

# Seconds until an event reaches the functions that wait for it.
CALLBACK_S: Final = 0.001
# The parts of the session timeout after which kazoo pings the server, and after which it gives up a
# silent connection.
PING_PART: Final = 1 / 3
SILENCE_PART: Final = 2 / 3


class Timer(Protocol):
    """A timer of a `Scheduler`."""

    def cancel(self) -> None:
        """Cancel the call."""


class Scheduler(Protocol):
    """The clock and timers of an event loop; a test can have its own."""

    def time(self) -> float:
        """Return the time in seconds."""

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> Timer:
        """Call a function later, in this context."""


class ConnectedClient(Protocol):
    """A started client, as the server sees it (`zookeeper_client`)."""

    session: Session | None
    loses_response: bool

    def lose_network(self, until: float, *, silent: bool) -> None:
        """Lose the network until a time of the loop."""

    def notify(self, kind: EventKind, path: str) -> None:
        """Receive the event of a watched node."""


class Session:
    """A session at the server.

    Attributes:
        number: kazoo's session id.
        party: the party (simulated process, `simulation.party`) of its client.
        timeout_s: seconds without a ping or a request, after which the session ends.
        last_heard: the time of the last ping or request.
        expiry: checks whether the session has ended.
    """

    def __init__(self, number: int, timeout_s: float, now: float) -> None:
        self.number = number
        self.party = PARTY.get()
        self.timeout_s = timeout_s
        self.last_heard = now
        self.expiry: Timer | None = None


class SimulatedZookeeper:
    """The server that all simulated clients of one run talk to.

    Args:
        scheduler: the event loop.
        wall_time: returns seconds since the epoch.
        spend: called with the seconds for which a request blocks its thread.

    Attributes:
        tree: the nodes.
        latency_s: for how long each request blocks.
        spend: see above.
        on_event: called after each change of a node, with the kind of the event and the path.
        on_session_end: called when a client closes its session or the session expires, with the
            client's party and the paths of the session's ephemeral nodes, just before these are
            deleted.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        wall_time: Callable[[], float],
        spend: Callable[[float], object],
    ) -> None:
        self.tree = Tree()
        self.latency_s = 0.0
        self.spend = spend
        self.on_event: Callable[[EventKind, str], object] = lambda kind, path: None
        self.on_session_end: Callable[[str, list[str]], object] = lambda party, paths: None
        self._scheduler = scheduler
        self._wall_time = wall_time
        self._clients: list[ConnectedClient] = []
        self._sessions: dict[int, Session] = {}
        self._next_session = 0x1000
        self._data_watches: dict[str, dict[int, None]] = {}
        self._child_watches: dict[str, dict[int, None]] = {}

    # --- the scenario -----------------------------------------------------------------------------

    @property
    def clients(self) -> list[ConnectedClient]:
        """The started clients, oldest first."""
        return list(self._clients)

    def disconnect(
        self,
        for_s: float,
        clients: Iterable[ConnectedClient] | None = None,
        *,
        silent: bool = False,
    ) -> None:
        """Interrupt the network between clients and server.

        A session ends if its client is away for longer than the session's timeout. The client
        learns of the end when it is connected again.

        Args:
            for_s: seconds until the network is back.
            clients: the clients that lose the network; None: all, also ones that start meanwhile.
            silent: whether the network loses packets without closing connections. The clients
                then notice after two thirds of their session's timeout, or later if they send
                requests, which kazoo counts as pings.
        """
        end = self._scheduler.time() + for_s
        chosen = self._clients if clients is None else clients
        if clients is None:
            self._unreachable_until = max(self._unreachable_until, end)
        for client in list(chosen):
            client.lose_network(end, silent=silent)

    def expire(self, client: ConnectedClient) -> None:
        """End a client's session, as if its timeout had passed; the client learns it at once.

        Raises:
            ValueError: the client has no session.
        """
        session = client.session
        if session is None:
            raise ValueError("this client has no session that could expire")
        self.end_session(session)
        client.lose_network(self._scheduler.time() + CALLBACK_S, silent=False)

    def lead_to(self, tree: Tree) -> None:
        """Let the address lead to another ZooKeeper, with these nodes; all sessions end."""
        # A client learns the end of its session when it connects to the other ZooKeeper.
        clients = list(self._clients)
        for session in list(self._sessions.values()):
            self.end_session(session)
        self.tree = tree
        for client in clients:
            client.lose_network(self._scheduler.time() + CALLBACK_S, silent=False)

    def lose_response(self, client: ConnectedClient) -> None:
        """Apply the client's next change, but break its connection before it gets the result."""
        client.loses_response = True

    @property
    def is_reachable(self) -> bool:
        """Whether a client that starts now gets a session."""
        return self._scheduler.time() >= self._unreachable_until

    _unreachable_until = 0.0

    # --- clients ----------------------------------------------------------------------------------

    def time(self) -> float:
        """Return the loop's time in seconds."""
        return self._scheduler.time()

    def later(
        self, delay: float, context: Context, callback: Callable[..., object], *args: Any
    ) -> Timer:
        """Call a function later, in the context of a client."""
        return self._scheduler.call_later(delay, callback, *args, context=context)

    def now_ms(self) -> int:
        """Return the wall-clock time."""
        return int(self._wall_time() * 1000)

    def attach(self, client: ConnectedClient) -> None:
        """Add a started client."""
        self._clients.append(client)

    def detach(self, client: ConnectedClient) -> None:
        """Remove a stopped client."""
        if client in self._clients:
            self._clients.remove(client)

    def open_session(self, timeout_s: float) -> Session:
        """Return a new session."""
        self._next_session += 1
        session = Session(self._next_session, timeout_s, self.time())
        self._sessions[session.number] = session
        self._watch_expiry(session, timeout_s)
        return session

    def hear(self, session: Session) -> bool:
        """Note a ping or a request; return False if the session has ended."""
        session.last_heard = self.time()
        return session.number in self._sessions

    def lives_until(self, session: Session, when: float) -> bool:
        """Return whether a session lasts until `when` if no ping or request comes before."""
        return session.number in self._sessions and when < session.last_heard + session.timeout_s

    def _watch_expiry(self, session: Session, delay: float) -> None:
        session.expiry = self.later(delay, NO_PARTY, self._check_expiry, session)

    def _check_expiry(self, session: Session) -> None:
        left = session.last_heard + session.timeout_s - self.time()
        if left > 0:
            self._watch_expiry(session, left)
        else:
            self.end_session(session)

    def end_session(self, session: Session) -> None:
        """End a session: its watches go, its ephemeral nodes are deleted."""
        if session.expiry is not None:
            session.expiry.cancel()
        if self._sessions.pop(session.number, None) is None:
            return
        self.forget_watches(session)
        ephemerals = self.tree.ephemerals(session.number)
        self.on_session_end(session.party, ephemerals)
        for path in ephemerals:
            self.publish(self.tree.delete(path))

    # --- watches ----------------------------------------------------------------------------------

    def watch(self, path: str, session: Session, *, children: bool) -> None:
        """Set a watch: the session gets the next change of a node, or of its list of children."""
        watches = self._child_watches if children else self._data_watches
        watches.setdefault(path, {})[session.number] = None

    def forget_watches(self, session: Session) -> None:
        """Remove the watches of a session."""
        for watches in (self._data_watches, self._child_watches):
            for watching in watches.values():
                watching.pop(session.number, None)

    def publish(self, events: Iterable[WatchEvent]) -> None:
        """Trigger the watches of these events, each once."""
        for kind, path in events:
            watching: dict[int, None] = {}
            if kind != "CHILD":
                watching |= self._data_watches.pop(path, {})
            if kind in ("CHILD", "DELETED"):
                watching |= self._child_watches.pop(path, {})
            for client in self._clients:
                if client.session is not None and client.session.number in watching:
                    client.notify(kind, path)
            self.on_event(kind, path)
