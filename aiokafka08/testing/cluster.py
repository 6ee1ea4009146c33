"""`EmbeddedCluster`: the class that tests use.

Invariant: each method may be called from any thread. It runs in the cluster's event loop, and its
effect is visible when it returns. No method waits for a client. (The properties `nodes` and
`bootstrap_servers` read the state in the calling thread.)
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Concatenate, Literal, NamedTuple, ParamSpec, Self, TypeVar

from aiokafka08 import environment
from aiokafka08._core.server.listener import Listener
from aiokafka08._core.server.listening import keep_port
from aiokafka08._core.server.sasl import SaslUsers
from aiokafka08.errors import IllegalStateError
from aiokafka08.protocol.api import Request
from aiokafka08.protocol.compression import Codec
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.protocol.requests.topics import CreateTopicsRequest, DeleteTopicsRequest
from aiokafka08.testing import controls
from aiokafka08.testing.broker_lines import LINES
from aiokafka08.testing.controls import LoggedMessage, Offsets
from aiokafka08.testing.faults import Answer, Effect, Fault, is_version_probe
from aiokafka08.testing.handlers import HANDLERS
from aiokafka08.testing.options import check_options
from aiokafka08.testing.runtime import DEFAULT_MAX_BUFFERED_BYTES, ClusterRuntime, Recorded
from aiokafka08.testing.server import open_listener
from aiokafka08.testing.state import WEEK_MS, BrokerSettings, BrokerState, ClusterState, Commit

T = TypeVar("T")
P = ParamSpec("P")

AfterDeath = Literal["elect", "leaderless", "unnoticed"]


class NodeInfo(NamedTuple):
    """A broker of the cluster: its id, its address and whether it is alive."""

    node_id: int
    host: str
    port: int
    alive: bool


class EmbeddedCluster:
    """A Kafka cluster of 0.8 - 0.10 inside this process, on real sockets.

    `async with` runs it in the running event loop, `with` in a thread and event loop of its own.
    The brokers have the ids 0, 1, 2, …; partition p of a topic is led by broker p % brokers.

    Args:
        brokers: the number of brokers.
        version: the broker line: "0.8.0", "0.8.1", "0.8.2", "0.9" or "0.10", which is 0.10.2.2.
        topics: name → number of partitions, created at the start.
        auto_create: whether Metadata requests create the topics that they name.
        default_partitions: the number of partitions of auto-created topics.
        default_replication_factor: the replication factor of topics that are created without
            naming one; None: the number of brokers, at most 3.
        message_max_bytes: the size limit of a message, with the offset and size before it; a
            compressed wrapper counts as one message.
        segment_bytes: the size at which a log begins a new segment.
        retention_bytes: a partition keeps at least this many bytes, and at most one segment more;
            None: all.
        retention_ms: messages older than this are deleted 30 s after the start, and then every 5
            minutes; on "0.10" their timestamps count. A week by default, as on real brokers; None:
            they are kept.
        group_min_session_timeout_ms: the shortest session timeout that group members may have.
        max_buffered_bytes: the memory that all connections together may hold, in requests that have
            arrived and responses that clients haven't read; beyond it the connection that holds the
            most is closed, and the log says so.
        host: the loopback address to listen on.
        port: the port of the first broker, the next ones follow; 0: free ones.
        advertised_host: the host that Metadata names; "{}" in it stands for the broker's id; None:
            `host`.
        advertised_port: the port that Metadata names for the first broker, such as that of a proxy
            or of a container's mapping, the next ones follow; None: the one it listens on, which
            `nodes` and `bootstrap_servers` name in any case.
        clock: returns seconds since the epoch, for segments, timestamps and retention; None: the
            wall clock.
        sasl: user names → passwords: clients must authenticate by PLAIN, SCRAM-SHA-256 or
            SCRAM-SHA-512 (`security_protocol="SASL_PLAINTEXT"`). Only on "0.10", and with the extra
            `sasl`; None: no authentication.

    Raises:
        ModuleNotFoundError: `sasl` is given, and the extra isn't installed.
        ValueError: the value of an option is invalid; the text names both. Starting the cluster
            raises OSError if a broker can't listen.
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
        retention_ms: int | None = WEEK_MS,
        group_min_session_timeout_ms: int = 6000,
        max_buffered_bytes: int = DEFAULT_MAX_BUFFERED_BYTES,
        host: str = "127.0.0.1",
        port: int = 0,
        advertised_host: str | None = None,
        advertised_port: int | None = None,
        clock: Callable[[], float] | None = None,
        sasl: Mapping[str, str] | None = None,
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
            retention_ms=retention_ms,
            group_min_session_timeout_ms=group_min_session_timeout_ms,
            max_buffered_bytes=max_buffered_bytes,
            host=host,
            port=port,
            advertised_host=advertised_host,
            advertised_port=advertised_port,
            clock=clock,
            sasl=sasl,
        )
        self.version = version
        self._host = host
        self._topics = dict(topics or {})
        self._clock = clock or _wall_time
        self._max_buffered_bytes = max_buffered_bytes
        self._sasl_users = None if sasl is None else SaslUsers(sasl)
        settings = BrokerSettings(
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
            retention_ms=retention_ms,
            group_min_session_timeout_ms=group_min_session_timeout_ms,
        )
        nodes = [
            BrokerState(
                node_id,
                (advertised_host or host).replace("{}", str(node_id)),
                port + node_id if port else 0,
                advertised_port=advertised_port and advertised_port + node_id,
            )
            for node_id in range(brokers)
        ]
        self._state = ClusterState(LINES[version], settings, nodes)
        self._listeners: dict[int, Listener] = {}  # the listeners of brokers that are alive
        self._closing: list[Listener] = []  # the listeners of brokers that have died
        self._kept_ports: dict[int, socket.socket] = {}
        self._runtime: ClusterRuntime | None = None
        self._after_disk_full: dict[int, AfterDeath] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread: int | None = None
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        state = "not running" if self._runtime is None else self.bootstrap_servers
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
        self._refuse_if_running()  # before `_thread` of the running cluster is overwritten
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
        if self._runtime is not None:
            raise IllegalStateError("embedded cluster can't start: it is already running")

    async def _start(self) -> None:
        self._refuse_if_running()
        environment.enter(f"EmbeddedCluster of {self.version}")
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._runtime = ClusterRuntime(
            self._state, self._clock, self._max_buffered_bytes, sasl_users=self._sasl_users
        )
        loop = self._loop
        self._runtime.halt = lambda node_id: loop.call_soon(self._halt, node_id)
        try:
            for node in self._state.nodes.values():
                if node.alive:
                    self._listen(self._runtime, node)
            for name, partitions in self._topics.items():
                if name not in self._state.topics:  # after a restart they exist
                    self.create_topic(name, partitions)
        except BaseException:
            await self._stop()
            raise

    def _listen(self, runtime: ClusterRuntime, node: BrokerState) -> None:
        self._release_port(node.node_id)
        self._listeners[node.node_id] = open_listener(runtime, node, self._host)

    async def _stop(self) -> None:
        runtime, self._runtime = self._runtime, None  # callbacks that run meanwhile find it closed
        for node_id in list(self._kept_ports):
            self._release_port(node_id)
        for node_id in list(self._listeners):
            self._close_listener(node_id)
        for listener in self._closing:
            await listener.wait_closed()
        self._closing.clear()
        if runtime is not None:
            await runtime.close()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._runtime is None or self._loop is None:
            raise IllegalStateError(
                "embedded cluster isn't running: use its methods inside `with` or `async with`"
            )
        return self._loop

    def _call(
        self, act: Callable[Concatenate[ClusterRuntime, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `act(runtime, …)` in the cluster's event loop, then complete delayed requests."""
        loop, runtime = self._running_loop(), self._runtime
        assert runtime is not None

        def act_and_complete() -> T:
            result = act(runtime, *args, **kwargs)
            # Requests may have waited for this change.
            runtime.complete_delayed()
            return result

        async def in_loop() -> T:
            return act_and_complete()

        if threading.get_ident() == self._loop_thread:
            if not loop.is_running():  # between two runs of a loop that is run piece by piece
                return loop.run_until_complete(in_loop())
            return act_and_complete()
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

    def kill(self, node: int, then: AfterDeath = "elect", *, unflushed: int = 0) -> None:
        """End a broker as `kill -9` does: its connections break, and its port refuses new ones.

        Args:
            unflushed: how many of the last messages of each of its logs are lost, as when the
                machine loses power, since brokers let the operating system decide when to write
                messages to disk. Replicas on other brokers keep theirs; if this broker leads when
                it returns, the messages are gone.
            then: "elect": when this returns, the controller has noticed and elected new leaders.
                "leaderless": it has noticed, but the broker's partitions have no leader until
                `elect()`. "unnoticed": Metadata still lists the broker, and acks=-1 waits for
                it, until `notice()` is called. Real brokers with default settings notice after 7 s.
        """

        def act(runtime: ClusterRuntime) -> None:
            self._end_listener(node)
            if unflushed:
                self._state.lose_tail(node, unflushed)
            self._state.mark_dead(node)
            if then != "unnoticed":
                self._state.notice(node, elect=then == "elect")

        self._call(act)

    def fill_disk(self, node: int, then: AfterDeath = "elect") -> None:
        """Let a broker halt, as after `kill`, at the next message that it is to store as a leader.

        It neither stores nor acknowledges this message. `restart` finds the disk with room again.

        Args:
            then: see `kill`.
        """

        def act(runtime: ClusterRuntime) -> None:
            self._state.nodes[controls.check_alive(self._state, node)].disk_is_full = True
            self._after_disk_full[node] = then

        self._call(act)

    def _halt(self, node: int) -> None:
        if self._runtime is not None and self._state.nodes[node].alive:
            self.kill(node, self._after_disk_full[node])

    def change_version(self, version: str) -> None:
        """Let `restart` start brokers of another line from now on, as after an up- or downgrade.

        Logs, settings, committed offsets and groups stay.

        Raises:
            IllegalStateError: a broker is alive. Kill or stop all of them before.
            ValueError: there is no such line, or logs have messages in a format that it doesn't
                know: logs of "0.10" can't go back to an earlier line.
        """
        if version not in LINES:
            raise ValueError(f"version={version!r}: expected one of {', '.join(map(repr, LINES))}")

        def act(runtime: ClusterRuntime) -> None:
            if alive := [node.node_id for node in self._state.nodes.values() if node.alive]:
                raise IllegalStateError(
                    f"change_version({version!r}): brokers {', '.join(map(str, alive))} are alive; "
                    "kill or stop them before"
                )
            self._state.change_line(LINES[version])
            self.version = version

        self._call(act)

    def notice(self, node: int, *, elect: bool = True) -> None:
        """Let the controller notice the death of a broker that was killed "unnoticed"."""
        self._call(lambda runtime: self._state.notice(node, elect=elect))

    def elect(self, topic: str | None = None, partition: int | None = None) -> None:
        """Elect leaders for partitions without one: all, those of a topic, or a single one."""
        self._call(controls.elect, topic, partition)

    def stop(self, node: int) -> None:
        """Shut a broker down cleanly.

        First other brokers take over its partitions, then its connections end.
        """

        def act(runtime: ClusterRuntime) -> None:
            for partition in self._state.all_partitions():
                if partition.leader == node:
                    others = [i for i in partition.isr if i != node and self._state.nodes[i].alive]
                    if others:
                        self._state.lead(partition, others[0])
            runtime.complete_delayed()
            self._end_listener(node)
            self._state.mark_dead(node)
            self._state.notice(node)

        self._call(act)

    def restart(self, node: int, port: int | None = None) -> None:
        """Bring a dead broker back with its log, in sync.

        Args:
            port: None: its previous port; 0: any other.
        """

        def act(runtime: ClusterRuntime) -> None:
            broker = controls.find_node(self._state, node)
            if broker.alive:
                raise IllegalStateError(f"broker {node} can't restart: it is alive")
            if port is not None:
                broker.port = port
            self._listen(runtime, broker)
            self._state.revive(node)

        self._call(act)

    def drop_connections(self, node: int | None = None) -> int:
        """Break the clients' connections to one broker or to all; return their number.

        The brokers themselves stay alive.
        """

        def act(runtime: ClusterRuntime) -> int:
            count = 0
            for node_id, listener in self._listeners.items():
                if node in (None, node_id):
                    count += len(listener.connections)
                    listener.drop_connections()
            return count

        return self._call(act)

    def connections(self, node: int | None = None) -> int:
        """Return the number of connections to one broker or to all."""
        return self._call(
            lambda runtime: sum(
                len(listener.connections)
                for node_id, listener in self._listeners.items()
                if node in (None, node_id)
            )
        )

    def _end_listener(self, node: int) -> None:
        if not controls.find_node(self._state, node).alive:
            raise IllegalStateError(f"broker {node} can't be stopped: it is already dead")
        # Keep the port, because another process could take it before `restart`.
        listener = self._close_listener(node)
        if (kept := keep_port(self._host, listener.port)) is not None:
            self._kept_ports[node] = kept

    def _close_listener(self, node: int) -> Listener:
        """Close a broker's listener; `_stop` waits for the connections that it has accepted."""
        self._closing = [one for one in self._closing if not one.is_closed]
        listener = self._listeners.pop(node)
        listener.close()
        self._closing.append(listener)
        return listener

    def _release_port(self, node_id: int) -> None:
        if (kept := self._kept_ports.pop(node_id, None)) is not None:
            kept.close()

    # --- topics and logs --------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic; it can be used when this returns.

        Args:
            config: settings of the topic, as Kafka's tools take them ("min.insync.replicas": "2").
                The cluster's Kafka version decides which settings exist.

        Raises:
            ValueError: the name, a number or the config is invalid.
        """
        self._call(controls.create_topic, name, partitions, replication_factor, config)

    def delete_topic(self, name: str) -> None:
        """Delete a topic; requests that wait for it get UnknownTopicOrPartition."""
        self._call(lambda runtime: self._state.delete_topic(name))

    def append(
        self,
        topic: str,
        partition: int,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        *,
        codec: Codec = Codec.NONE,
        timestamp_ms: int = -1,
    ) -> int:
        """Append messages in one set, as a producer would; return the offset of the first one."""
        return self._call(controls.append, topic, partition, values, keys, codec, timestamp_ms)

    def append_raw(
        self, topic: str, partition: int, message_set: bytes, next_offset: int | None = None
    ) -> None:
        """Append bytes unchanged and unchecked.

        For tests with corrupt messages, gaps between offsets, or padding that is no message. A
        fetch fails with error -1 if the search for its offset meets a size field below 14 in the
        set of that offset, as on real brokers (docs/brokers.md 7.19).

        Args:
            next_offset: the offset of the next message after these bytes; None: one more than
                before the call.
        """
        self._call(controls.append_raw, topic, partition, message_set, next_offset)

    def log(self, topic: str, partition: int) -> list[LoggedMessage]:
        """Return all messages of a partition; a corrupt message has its raw bytes as value."""
        return self._call(controls.log, topic, partition)

    def offsets(self, topic: str, partition: int) -> Offsets:
        """Return the bounds of a partition's log."""
        return self._call(controls.offsets, topic, partition)

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Delete the messages below `offset`, as retention does if a segment starts there."""
        self._call(controls.delete_before, topic, partition, offset)

    def apply_retention(self) -> None:
        """Delete messages now, in all partitions, by `retention_ms` and `retention_bytes`.

        Brokers do so 30 s after their start, and then every 5 minutes.
        """
        self._call(lambda runtime: self._state.apply_retention(runtime.now_ms()))

    def truncate(self, topic: str, partition: int, offset: int) -> None:
        """Delete the messages from `offset` on, as an unclean election does."""
        self._call(controls.truncate, topic, partition, offset)

    def remove(self, topic: str, partition: int, offsets: Iterable[int]) -> None:
        """Delete single messages and leave holes in the offsets, as compaction does."""
        self._call(controls.remove, topic, partition, frozenset(offsets))

    def compact(self, topic: str, partition: int) -> None:
        """Keep only the last message of each key, and the messages without a key."""
        self._call(controls.compact, topic, partition)

    def roll_segment(self, topic: str, partition: int) -> None:
        """Let the next message begin a new segment."""
        self._call(controls.roll_segment, topic, partition)

    # --- leaders, replicas, coordinators ----------------------------------------------------------

    def leader(self, topic: str, partition: int) -> int:
        """Return the id of the leader; -1 without one."""
        return self._call(controls.leader, topic, partition)

    def move_leader(self, topic: str, partition: int, to: int | None = None) -> int:
        """Make another live replica the leader; return its id.

        Args:
            to: the new leader; None: the next replica that is in sync. A replica that isn't in sync
                truncates the log to the offset that it had reached.
        """
        return self._call(controls.move_leader, topic, partition, to)

    def shrink_isr(self, topic: str, partition: int, *nodes: int) -> None:
        """Let followers stop following and leave the ISR: those named, or all."""
        self._call(controls.shrink_isr, topic, partition, nodes)

    def restore_isr(self, topic: str, partition: int) -> None:
        """Let all live replicas catch up and rejoin the ISR."""
        self._call(controls.restore_isr, topic, partition)

    def hold_metadata(self, node: int) -> None:
        """Withhold the controller's updates from a broker, until `release_metadata`.

        Its Metadata responses name the leaders, ISRs, topics and brokers as they were at this call.
        As a leader or follower the broker is up to date. A restart ends this too.
        """
        self._call(controls.hold_metadata, node)

    def release_metadata(self, node: int) -> None:
        """Let a broker learn of the changes since `hold_metadata`."""
        self._call(controls.release_metadata, node)

    def advertise(self, node: int, host: str | None = None, port: int | None = None) -> None:
        """Let responses name another address of a broker, as a wrong `advertised.listeners` does.

        Metadata and the lookups of a coordinator then name it, for example a host that can't be
        resolved. The broker still listens at its own address, which `nodes` and `bootstrap_servers`
        name.

        Args:
            node: the broker.
            host: None: the host on which it listens, or `advertised_host`.
            port: None: the port on which it listens, or `advertised_port`.
        """
        self._call(controls.advertise, node, host, port)

    def move_controller(self, node: int) -> None:
        """Let a live broker become the controller, which Metadata names from "0.10" on.

        By default, or while that broker is dead, the controller is the live one of the lowest id.
        """
        self._call(controls.move_controller, node)

    def coordinator(self, group: str) -> int | None:
        """Return the group's coordinator; None before the first request for one."""
        return self._call(lambda runtime: self._state.coordinator(group))

    def move_coordinator(self, group: str) -> int:
        """Make another live broker the group's coordinator, and return its id.

        The old one lives on, and refuses requests with NotCoordinatorForGroup. Committed offsets
        stay; the new one knows the last stored state of the group, as real brokers do.

        Raises:
            ValueError: no client has looked the coordinator up yet, or no other broker is in sync.
        """
        return self._call(controls.move_coordinator, group)

    def committed(
        self,
        group: str,
        topic: str,
        partition: int,
        store: Literal["kafka", "zookeeper"] = "kafka",
    ) -> Commit | None:
        """Return a group's last commit to `__consumer_offsets` or to ZooKeeper; None without
        one.
        """
        return self._call(controls.committed, group, topic, partition, store)

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
        """Add a fault: apply an effect to some of the next requests.

        Args:
            request: the class of the requests that count.
            then: the effect.
            node: count only the requests to this broker.
            nth: the first counted request that gets the effect; 1 is the next one.
            times: how many counted requests get the effect, in a row; None: all, without end.
            where: count only requests for which this function returns True.

        Raises:
            ValueError: an argument is invalid.
        """
        if request not in HANDLERS:
            known = ", ".join(sorted(request_class.__name__ for request_class in HANDLERS))
            raise ValueError(
                f"request={request!r}: expected one of these classes of protocol.api: {known}"
            )
        if not isinstance(then, Effect):
            raise ValueError(f"then={then!r}: expected an effect, such as Answer(6) or Silence()")
        if node is not None:
            controls.find_node(self._state, node)
        if nth < 1 or (times is not None and times < 1):
            raise ValueError(f"nth={nth}, times={times}: expected integers >= 1")
        whole = (MetadataRequest, CreateTopicsRequest, DeleteTopicsRequest)
        if isinstance(then, Answer) and then.only is not None and request in whole:
            raise ValueError(
                f"Answer(only=…) selects partitions, but {request.__name__} has no partitions; "
                "expected Answer(code) without only"
            )
        fault = Fault(request, then, node, nth, times, where)
        self._call(lambda runtime: runtime.faults.add(fault))
        return fault

    def clear_faults(self) -> None:
        """Cancel all faults."""
        self._call(lambda runtime: runtime.faults.clear())

    @property
    def history(self) -> list[Recorded]:
        """The requests that the brokers have read, oldest first.

        It keeps the last 10,000 requests; fewer if their message sets are large.
        """
        return self._call(lambda runtime: list(runtime.history))

    def requests(self, request: type[Request[Any]], node: int | None = None) -> list[Any]:
        """Return the requests of one class in the history, decoded.

        A Fetch without topics, by which clients detect the brokers' version, is left out.
        """
        return [
            recorded.request
            for recorded in self.history
            if type(recorded.request) is request
            and node in (None, recorded.node)
            and not is_version_probe(recorded.request)
        ]

    def next_request(
        self,
        request: type[Request[Any]],
        *,
        nth: int = 1,
        node: int | None = None,
        where: Callable[[Any], bool] | None = None,
    ) -> Future[Recorded]:
        """Return a future for the n-th such request from now on.

        Use `.result(timeout)`, or `await asyncio.wrap_future(…)`.
        """
        return self._call(lambda runtime: runtime.expect_request(request, nth, node, where))


def _wall_time() -> float:
    return environment.wall_time()  # read at each use: a simulation may begin after the constructor


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
