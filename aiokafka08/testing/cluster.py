"""`EmbeddedCluster`: the life of a cluster and of its brokers, faults and history.

Every method may be called from any thread and returns when its effect is there; none of them
waits for a client. The other handles are in `controls`, what brokers do is in `handlers`, sockets
are in `server`.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self, TypeVar

from aiokafka08.errors import IllegalStateError
from aiokafka08.protocol.api import MetadataRequest, Request
from aiokafka08.testing.broker_lines import LINES
from aiokafka08.testing.controls import Controls
from aiokafka08.testing.faults import Answer, Effect, Fault
from aiokafka08.testing.handlers import HANDLERS
from aiokafka08.testing.options import check_options
from aiokafka08.testing.runtime import ClusterRuntime, Recorded
from aiokafka08.testing.server import Listener
from aiokafka08.testing.state import ClusterState, Node, Settings

T = TypeVar("T")

AfterDeath = Literal["elect", "leaderless", "unnoticed"]


class NodeInfo(NamedTuple):
    """A broker of the cluster."""

    node_id: int
    host: str
    port: int
    alive: bool


class EmbeddedCluster(Controls):
    """A Kafka cluster of 0.8 – 0.10 inside this process, on real sockets.

    `async with` runs it in the running loop, `with` in a thread and loop of its own. Brokers have
    the ids 0, 1, 2, …; partition p of a topic is led by broker p % brokers.

    Args:
        brokers: how many.
        version: the line of brokers: "0.8.0", "0.8.1", "0.8.2", "0.9" or "0.10".
        topics: name → number of partitions, created at the start.
        auto_create: Metadata requests create the topics that they name.
        default_partitions: for topics that are created so.
        default_replication_factor: None: as many as there are brokers, at most 3.
        message_max_bytes: the size limit of a message, as it is in a message set.
        segment_bytes: where a log begins a new segment.
        retention_bytes: what a partition keeps at least, and at most a segment more; None: all.
        group_min_session_timeout_ms: the shortest session timeout that group members may have.
        host: the loopback address to listen on.
        port: that of the first broker, the next ones follow; 0: free ones.
        advertised_host: what clients are told; None: `host`.
        clock: seconds since the epoch, for segments and timestamps.

    Raises:
        ValueError: an option's value isn't allowed; it names both. Starting the cluster raises
            OSError where a broker can't listen.
    """

    def __init__(
        self,
        brokers: int = 1,
        version: str = "0.8.2",
        topics: Mapping[str, int] | None = None,
        *,
        auto_create: bool = True,
        default_partitions: int = 1,
        default_replication_factor: int | None = None,
        message_max_bytes: int = 1000012,
        segment_bytes: int = 128 << 20,
        retention_bytes: int | None = 1 << 30,
        group_min_session_timeout_ms: int = 6000,
        host: str = "127.0.0.1",
        port: int = 0,
        advertised_host: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        check_options(
            brokers=brokers,
            version=version,
            topics=topics,
            auto_create=auto_create,
            default_partitions=default_partitions,
            default_replication_factor=default_replication_factor,
            message_max_bytes=message_max_bytes,
            segment_bytes=segment_bytes,
            retention_bytes=retention_bytes,
            port=port,
        )
        self.version = version
        self._host = host
        self._topics = dict(topics or {})
        self._clock = clock
        settings = Settings(
            auto_create=auto_create,
            default_partitions=default_partitions,
            default_replication_factor=(
                min(brokers, 3)
                if default_replication_factor is None
                else default_replication_factor
            ),
            message_max_bytes=message_max_bytes,
            segment_bytes=segment_bytes,
            retention_bytes=retention_bytes,
            group_min_session_timeout_ms=group_min_session_timeout_ms,
        )
        nodes = [
            Node(node_id, advertised_host or host, port + node_id if port else 0)
            for node_id in range(brokers)
        ]
        self._state = ClusterState(LINES[version], settings, nodes)
        self._listeners: dict[int, Listener] = {}
        self._hub: ClusterRuntime | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread: int | None = None
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        state = "not running" if self._hub is None else self.bootstrap_servers
        return f"<EmbeddedCluster {self.version} {state}>"

    # --- life -------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self._start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stop()

    def __enter__(self) -> Self:
        self._refuse_if_running()  # before the thread of the one that runs is forgotten
        loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=_run_loop, args=(loop,), name="aiokafka08 embedded cluster", daemon=True
        )
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._start(), loop).result()
        except BaseException:
            self._end_thread(loop)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        loop = self._running_loop()
        try:
            asyncio.run_coroutine_threadsafe(self._stop(), loop).result()
        finally:
            self._end_thread(loop)

    def _end_thread(self, loop: asyncio.AbstractEventLoop) -> None:
        thread, self._thread = self._thread, None
        loop.call_soon_threadsafe(loop.stop)
        if thread is not None:
            thread.join()

    def _refuse_if_running(self) -> None:
        if self._hub is not None:
            raise IllegalStateError("this embedded cluster is running already")

    async def _start(self) -> None:
        self._refuse_if_running()
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._hub = ClusterRuntime(self._state, self._clock)
        try:
            for node in self._state.nodes.values():
                if node.alive:
                    self._listen(self._hub, node)
            for name, partitions in self._topics.items():
                if name not in self._state.topics:  # a second start
                    self.create_topic(name, partitions)
        except BaseException:
            await self._stop()
            raise

    def _listen(self, hub: ClusterRuntime, node: Node) -> None:
        listener = Listener(hub, node, self._host)
        listener.open()
        self._listeners[node.node_id] = listener

    async def _stop(self) -> None:
        for listener in self._listeners.values():
            listener.close()
        for listener in self._listeners.values():
            await listener.wait_closed()
        self._listeners.clear()
        if self._hub is not None:
            self._hub.close()
        self._hub = None

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._hub is None or self._loop is None:
            raise IllegalStateError("this embedded cluster isn't running")
        return self._loop

    def _call(self, act: Callable[[ClusterRuntime], T]) -> T:
        """Run `act` in the cluster's loop, wake who waits for what it changed."""
        loop, hub = self._running_loop(), self._hub
        assert hub is not None

        def act_and_settle() -> T:
            result = act(hub)
            hub.settle()
            return result

        if threading.get_ident() == self._loop_thread:
            return act_and_settle()

        async def in_loop() -> T:
            return act_and_settle()

        return asyncio.run_coroutine_threadsafe(in_loop(), loop).result()

    # --- brokers ----------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """ "host:port,host:port", as all clients take it."""
        return ",".join(f"{node.host}:{node.port}" for node in self._state.nodes.values())

    @property
    def nodes(self) -> dict[int, NodeInfo]:
        """The brokers by their ids, dead ones too."""
        return {
            node.node_id: NodeInfo(node.node_id, node.host, node.port, node.alive)
            for node in self._state.nodes.values()
        }

    def kill(self, node: int, then: AfterDeath = "elect") -> None:
        """End a broker like kill -9: its connections break, its port refuses.

        Args:
            then: "elect": the others have noticed and elected new leaders when this returns.
                "leaderless": they have noticed, its partitions have no leader (5) until
                `elect()`. "unnoticed": Metadata goes on naming it, acks=-1 waits for it, until
                `notice()`; on a default cluster that state lasts 7 s.
        """

        def act(hub: ClusterRuntime) -> None:
            self._end(node)
            self._state.die(node)
            if then != "unnoticed":
                self._state.notice(node, elect=then == "elect")

        self._call(act)

    def notice(self, node: int, *, elect: bool = True) -> None:
        """Let the others notice the death of a broker that was killed "unnoticed"."""
        self._call(lambda hub: self._state.notice(node, elect=elect))

    def elect(self, topic: str | None = None, partition: int | None = None) -> None:
        """Elect leaders for the partitions that have none (of one topic, or one of them)."""

        def act(hub: ClusterRuntime) -> None:
            for one in self._state.all_partitions():
                if (
                    one.leader < 0
                    and topic in (None, one.topic)
                    and partition in (None, one.number)
                ):
                    self._state.elect(one)

        self._call(act)

    def stop(self, node: int) -> None:
        """Controlled shutdown: others lead its partitions first, then its connections end."""

        def act(hub: ClusterRuntime) -> None:
            for one in self._state.all_partitions():
                if one.leader == node:
                    others = [i for i in one.isr if i != node and self._state.nodes[i].alive]
                    if others:
                        self._state.lead(one, others[0])
            hub.settle()
            self._end(node)
            self._state.die(node)
            self._state.notice(node)

        self._call(act)

    def restart(self, node: int, port: int | None = None) -> None:
        """Bring a dead broker back, with its log, in sync again.

        Args:
            port: None: the one it had; 0: any other.
        """

        def act(hub: ClusterRuntime) -> None:
            broker = self._node(node)
            if broker.alive:
                raise IllegalStateError(f"broker {node} is alive")
            if port is not None:
                broker.port = port
            self._listen(hub, broker)
            self._state.revive(node)

        self._call(act)

    def drop_connections(self, node: int | None = None) -> int:
        """Break the clients' connections to one broker or all; the brokers live on. Says how
        many there were."""

        def act(hub: ClusterRuntime) -> int:
            count = 0
            for node_id, listener in self._listeners.items():
                if node in (None, node_id):
                    count += len(listener.connections)
                    listener.drop_connections()
            return count

        return self._call(act)

    def connections(self, node: int | None = None) -> int:
        """How many connections there are."""
        return self._call(
            lambda hub: sum(
                len(listener.connections)
                for node_id, listener in self._listeners.items()
                if node in (None, node_id)
            )
        )

    def _end(self, node: int) -> None:
        if not self._node(node).alive:
            raise IllegalStateError(f"broker {node} is dead already")
        self._listeners[node].close()

    def _node(self, node: int) -> Node:
        if node not in self._state.nodes:
            known = ", ".join(map(str, self._state.nodes))
            raise ValueError(f"there is no broker {node!r} (there are: {known})")
        return self._state.nodes[node]

    # --- faults, history --------------------------------------------------------------------------

    def fault(
        self,
        request: type[Request[Any]],
        *,
        then: Effect,
        node: int | None = None,
        nth: int = 1,
        times: int | None = 1,
        where: Callable[[Any], bool] | None = None,
    ) -> Fault:
        """Let something go wrong with requests to come.

        Args:
            request: the class of the requests that count.
            then: what goes wrong.
            node: count those to this broker only.
            nth: begin with the n-th one from now on.
            times: with how many; None: with all from there on.
            where: count only requests for which this is true.

        Raises:
            ValueError: an argument isn't what it has to be.
        """
        if request not in HANDLERS:
            known = ", ".join(sorted(one.__name__ for one in HANDLERS))
            raise ValueError(f"fault({request!r}): one of protocol.api's {known} is needed")
        if not isinstance(then, Effect):
            raise ValueError(f"then={then!r}: an effect is needed, as Answer(6) or Silence()")
        if node is not None:
            self._node(node)
        if nth < 1 or (times is not None and times < 1):
            raise ValueError(f"nth and times begin at 1: nth={nth}, times={times}")
        if isinstance(then, Answer) and then.only is not None and request is MetadataRequest:
            raise ValueError("Metadata is answered by topic: Answer(only=…) means nothing to it")
        fault = Fault(request, then, node, nth, times, where)
        self._call(lambda hub: hub.faults.add(fault))
        return fault

    def clear_faults(self) -> None:
        """Cancel all faults."""
        self._call(lambda hub: hub.faults.clear())

    @property
    def history(self) -> list[Recorded]:
        """The requests that were read, oldest first; the last 10,000 of them, fewer if their
        message sets are large."""
        return self._call(lambda hub: list(hub.history))

    def requests(self, request: type[Request[Any]], node: int | None = None) -> list[Any]:
        """The requests of one class in the history, decoded."""
        return [
            recorded.request
            for recorded in self.history
            if type(recorded.request) is request and node in (None, recorded.node)
        ]

    def next_request(
        self,
        request: type[Request[Any]],
        *,
        nth: int = 1,
        node: int | None = None,
        where: Callable[[Any], bool] | None = None,
    ) -> Future[Recorded]:
        """A future for the n-th such request from now on: `.result(timeout)`, or
        `await asyncio.wrap_future(…)`."""
        return self._call(lambda hub: hub.watch(request, nth, node, where))


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        pending = asyncio.all_tasks(loop)
        for task in pending:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
    finally:
        loop.close()
