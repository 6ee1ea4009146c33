"""`simulate()` and `World`: run asyncio code and a cluster in virtual time, repeatably.

In `world.run()` the unmodified client, the embedded brokers and the caller's coroutine share one
`SimulatedLoop`.

Invariant: everything that varies is drawn from the seed, so the same seed results in the same run
with the same `trace_hash`.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import math
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from random import Random
from typing import Any, Final, TypeVar

from aiokafka08 import environment
from aiokafka08.testing.cluster import EmbeddedCluster
from aiokafka08.testing.simulation.arguments import (
    check_awaitable,
    check_callback,
    check_party,
    check_scenario,
    check_seconds,
    check_simulation,
)
from aiokafka08.testing.simulation.errors import LeftoverError, SimulationError
from aiokafka08.testing.simulation.fabric import Fabric
from aiokafka08.testing.simulation.guard import guarded, seeded_random
from aiokafka08.testing.simulation.loop import START_S, SimulatedLoop
from aiokafka08.testing.simulation.network import Network
from aiokafka08.testing.simulation.party import NO_PARTY, PARTY, Parties
from aiokafka08.testing.simulation.tasks import (
    NumberedTask,
    describe_tasks,
    restart_numbers,
)
from aiokafka08.testing.simulation.threads import Threads
from aiokafka08.testing.simulation.trace import Trace
from aiokafka08.testing.simulation.transport import SimulatedTransport
from aiokafka08.testing.simulation.zookeeper import SimulatedZookeeper
from aiokafka08.testing.simulation.zookeeper_brokers import BrokerNodes
from aiokafka08.testing.simulation.zookeeper_client import SimulatedKazooClient
from aiokafka08.testing.simulation.zookeeper_tree import Tree
from aiokafka08.testing.state import StoredCommit

T = TypeVar("T")

_EPOCH_S: Final = 1_600_000_000.0 - START_S  # the wall clock at loop time 0
_LONGEST_S: Final = 6 * 3600.0
_SETTLE_STEPS: Final = 10
# How often the end of a simulation cancels the tasks that still run.
_CANCELS: Final = 3
# How long it waits for them each time, in virtual seconds.
_CANCEL_S: Final = 600.0
_TESTING: Final = f"{EmbeddedCluster.__module__.rpartition('.')[0]}."
# The party of the brokers' shared parts, such as the controller.
_CLUSTER: Final = "cluster"


@contextmanager
def simulate(
    seed: int,
    *,
    brokers: int = 3,
    version: str = "0.8.2",
    network: Network | None = None,
    **options: Any,
) -> Iterator[World]:
    """Make a world with a cluster for one block.

    Args:
        seed: everything that varies is drawn from it.
        brokers: the number of brokers (default 3).
        version: the broker line (default "0.8.2"); see `EmbeddedCluster`.
        network: how connections behave (default `Network()`).
        options: further options of `EmbeddedCluster`, such as `topics`.

    Raises:
        SimulationError: an event loop runs in this thread, this process simulates already, or a
            cluster or client was started in another thread whose event loop runs.
        LeftoverError: at the end of the block, a task still runs although it was cancelled.
        ValueError: the value of an option is invalid.
    """
    running = asyncio._get_running_loop()
    if running is not None:
        raise SimulationError(
            f"simulate() inside a running {type(running).__module__}.{type(running).__name__}: "
            "call it from synchronous code; it brings its own event loop"
        )
    check_simulation(seed, network, options)
    world = World(
        seed,
        network or Network(),
        EmbeddedCluster(brokers, version, advertised_host="kafka{}", **options),
    )
    try:
        with _replaced(world._environment()), seeded_random(seed):
            try:
                world._start()
                yield world
            except BaseException as error:
                try:
                    world._stop()
                except Exception as second:
                    error.add_note(f"The simulation's end failed too: {second!r}")
                raise
            world._stop()
    finally:
        world._loop.close()


@contextmanager
def _replaced(names: dict[str, Any]) -> Iterator[None]:
    with ExitStack() as stack:
        try:
            stack.enter_context(environment.replace(**names))
        except RuntimeError as error:
            raise SimulationError(f"simulate(): {error}") from None
        yield


class World:
    """A simulated distributed system: loop, network and cluster; `simulate()` makes it.

    Its brokers and clients are parties, which `simulation.party` defines.

    Attributes:
        cluster: the brokers, as outside a simulation. Their names are kafka0, kafka1 and so on.
        network: the network between the parties, with its faults and the addresses of host names.
        random: a generator for the scenario's own choices, drawn from the seed.
        threads: the simulated threads.
        zookeeper: the cluster's ZooKeeper, with the faults between it and the clients.
        zookeeper_connect: its address, for `zookeeper_connect` of a client.
    """

    zookeeper_connect = "zookeeper:2181"

    def __init__(self, seed: int, network: Network, cluster: EmbeddedCluster) -> None:
        self._seed = seed
        self._trace = Trace()
        restart_numbers()
        self._loop = SimulatedLoop(self._trace)
        self.random = self._generator("scenario")
        self._parties = Parties(lambda: cluster.nodes)
        self.network = Fabric(
            self._loop, network, self._generator("network"), self._trace, self._parties
        )
        self._loop.network = self.network
        self.cluster = cluster
        for node in cluster.nodes.values():
            self.network.dns[node.host] = ["127.0.0.1"]
        self.threads = Threads(self._loop, self._generator("threads"))
        self.zookeeper = SimulatedZookeeper(self._loop, self.wall_time, self.threads.spend)
        self._skew_s: dict[str, float] = {}

    def _generator(self, name: str) -> Random:
        return Random(f"{self._seed}/{name}")

    def _environment(self) -> dict[str, Any]:
        random = self._generator("environment")
        return {
            "wall_time": self.wall_time,
            "monotonic": self.threads.monotonic,
            "random": random,
            "unique_id": lambda: _uuid4(random),
            "new_number": itertools.count(1).__next__,
            "host_name": PARTY.get,
            "resolve": lambda host: self.network.dns.get(host, []),
            "run_in_thread": self.threads.run_in_thread,
            "worker_threads": self.threads.executor,
            "zookeeper_client": partial(SimulatedKazooClient, self.zookeeper),
            "new_seed": lambda name: self._generator(name).getrandbits(64),
        }

    # --- life -------------------------------------------------------------------------------------

    def _start(self) -> None:
        with guarded(), self.process(_CLUSTER):
            self._loop.run_until_complete(self.cluster.__aenter__())
            self._loop.run_until_complete(self._start_zookeeper())

    async def _start_zookeeper(self) -> None:
        self._broker_nodes = BrokerNodes(self.zookeeper, self.cluster)

    def register_brokers(self, others: Mapping[int, tuple[str, int]] | None) -> None:
        """Let ZooKeeper name other brokers, as another cluster's ZooKeeper would.

        Args:
            others: node id → host and port; `{}`: no broker is registered; None: the
                cluster's brokers, as at the start. With others, `/cluster/id` differs, too.
        """
        self._broker_nodes.register(others)

    def lead_zookeeper_to(self, nodes: Mapping[str, bytes] | None) -> Tree:
        """Let the address of ZooKeeper lead to another cluster's ZooKeeper, like a wrong DNS entry.

        All sessions end. The brokers keep the nodes that they have.

        Args:
            nodes: the nodes of the other ZooKeeper, path → data, parents included; None: return to
                the cluster's own ZooKeeper.

        Returns:
            The nodes that clients use from now on.
        """
        tree = self._broker_nodes.tree
        if nodes is not None:
            tree = Tree()
            for path in sorted(nodes):
                tree.create(path, nodes[path], self.zookeeper.now_ms())
        self._trace.event(f"lead ZooKeeper to {'the own' if nodes is None else sorted(nodes)}")
        self.zookeeper.lead_to(tree)
        return tree

    def _stop(self) -> None:
        self._loop.resume_all()
        self.network.heal()
        self._loop.ends_at = float("inf")
        with guarded():
            try:
                self._loop.run_until_complete(_cancel_tasks())
            finally:
                self._loop.run_until_complete(self.cluster.__aexit__(None, None, None))

    def run(
        self,
        function: Callable[..., Coroutine[Any, Any, T]],
        *arguments: Any,
        limit_s: float = _LONGEST_S,
    ) -> T:
        """Run a coroutine function to its end, and return its result.

        Args:
            function: the scenario; it may use `cluster`, `network` and any asyncio code.
            arguments: its arguments.
            limit_s: virtual seconds after which the run fails (default six hours).

        Raises:
            WaitsForeverError: a task waits, and nothing is scheduled or the limit is over. The
                text has each waiting task's stack and the future that it awaits.
            LeftoverError: the run has ended and has left tasks, connections or timers behind.
            SimulationError: the code asked for a thread, a real socket or the like, a callback
                of the event loop has raised an exception, or a fault named a party that hasn't
                begun.
            ValueError: an argument is invalid, such as a coroutine in place of its function.
        """
        check_scenario(function)
        check_seconds("limit_s", limit_s)
        if self._loop.is_closed():
            raise SimulationError("run() after the end of the block of simulate()")
        running = asyncio._get_running_loop()
        if running is not None:
            raise SimulationError(
                f"run() inside a running {type(running).__module__}.{type(running).__name__}: call "
                "it from synchronous code"
            )
        loop = self._loop
        loop.ends_at = loop.time() + limit_s
        loop.errors.clear()
        with guarded():
            scenario = function(*arguments)
            check_awaitable(function, scenario)
            result = loop.run_until_complete(scenario)
            loop.run_until_complete(_settle())
            gc.collect()  # failed tasks report their errors now, not at some later collection
        self._check_errors()
        self._check_leftovers()
        self._parties.check()
        return result

    def _check_errors(self) -> None:
        if self._loop.errors:
            context = self._loop.errors[0]
            text = f"the event loop reports: {context['message']}: {context!r}"
            raise SimulationError(text) from context.get("exception")

    def _check_leftovers(self) -> None:
        servers = {_CLUSTER, *(f"broker {node_id}" for node_id in self.cluster.nodes)}
        _, ends, timers = self._leftovers(lambda party: party not in servers)
        left = []
        # Tasks of any party, also those of the scenario, which has ended.
        if tasks := asyncio.all_tasks(self._loop):
            left.append(f"tasks:\n{describe_tasks(tasks)}")
        if ends:
            left.append(f"connections: {', '.join(map(repr, ends))}")
        if timers:
            left.append(f"timers: {', '.join(map(repr, timers))}")
        if left:
            raise LeftoverError("the run has ended and left behind " + "\nand ".join(left))

    def _leftovers(
        self, concerns: Callable[[str], bool]
    ) -> tuple[set[NumberedTask], list[SimulatedTransport], list[asyncio.TimerHandle]]:
        tasks = {
            task
            for task in asyncio.all_tasks(self._loop)
            if isinstance(task, NumberedTask) and concerns(task.party)
        }
        ends = [end for end in self.network.transports if concerns(end.parties[0])]
        timers = [
            timer
            for party, timer in self._loop.pending_timers()
            if party and concerns(party) and not _is_of_the_cluster(timer)
        ]
        return tasks, ends, timers

    async def left_by(self, party: str) -> dict[str, int]:
        """Return how many tasks, connections and timers a party has, by these names.

        After a client has stopped, a party that does nothing else should have none. The running
        task doesn't count. Call it in a scenario: it first lets closed connections end.
        """
        self._parties.name("left_by", party)
        await _settle()
        tasks, ends, timers = self._leftovers(party.__eq__)
        tasks = {task for task in tasks if task is not asyncio.current_task()}
        return {"tasks": len(tasks), "connections": len(ends), "timers": len(timers)}

    def watch_commits(self, watcher: Callable[[StoredCommit], object]) -> None:
        """Call a function with each offset that a group commits, when its store has it.

        Both stores are watched: the offsets topic and the brokers' ZooKeeper.
        """
        check_callback(watcher)
        self.cluster._state.on_commit = self._broker_nodes.on_commit = watcher

    # --- time and trace ---------------------------------------------------------------------------

    @property
    def trace_hash(self) -> str:
        """A hash over all events, arrived data and virtual times so far, 16 hex digits."""
        return self._trace.hash

    @property
    def virtual_s(self) -> float:
        """The virtual seconds since the start."""
        return self._loop.time() - START_S

    def wall_time(self) -> float:
        """Return the wall clock of the running party, in seconds since 1970."""
        return _EPOCH_S + self._loop.time() + self._skew_s.get(PARTY.get(), 0.0)

    def call_later(self, seconds: float, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function after this many virtual seconds, in no party.

        Virtual time passes only while `run` runs. So the function is called during a run, but that
        run doesn't wait for it. If the last run ends earlier, the function isn't called.

        Raises:
            ValueError: an argument is invalid, such as a coroutine function.
        """
        check_seconds("seconds", seconds)
        check_callback(function)
        self._loop.call_later(seconds, function, *arguments, context=NO_PARTY)

    # --- processes --------------------------------------------------------------------------------

    @contextmanager
    def process(self, party: str) -> Iterator[None]:
        """Let the code of this block, and all tasks that it starts, belong to a party.

        Args:
            party: its name; connections, pauses and clocks are per party.
        """
        check_party("party", party)
        self._parties.add(party)
        token = PARTY.set(party)
        try:
            yield
        finally:
            PARTY.reset(token)

    def pause(self, party: str) -> None:
        """Stop a party as SIGSTOP does, until `resume`: time passes, and its kernel still works."""
        self._parties.name("pause", party)
        self._trace.event(f"pause {party}")
        self._loop.pause(party)

    def resume(self, party: str) -> None:
        """Let a paused party continue; its overdue timers run at once."""
        self._parties.name("resume", party)
        self._trace.event(f"resume {party}")
        self._loop.resume(party)

    def hold(self, seconds: float) -> None:
        """Block the event loop: let time pass in the running callback, as a long computation does.

        This blocks all parties. To stop one of them, use `pause` and `resume`.
        """
        check_seconds("seconds", seconds)
        self._loop.hold(seconds)

    def skew(self, party: str, seconds: float) -> None:
        """Set how far the wall clock of a party is ahead, from now on; negative: behind."""
        check_seconds("seconds", seconds, lowest=-math.inf)
        self._parties.name("skew", party)
        self._trace.event(f"skew {party} {seconds}")
        self._skew_s[party] = seconds


async def _cancel_tasks() -> None:
    for _ in range(_CANCELS):
        tasks = sorted(asyncio.all_tasks() - {asyncio.current_task()}, key=hash)
        if not tasks:
            return
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=_CANCEL_S)
    if left := asyncio.all_tasks() - {asyncio.current_task()}:
        raise LeftoverError(
            f"tasks that don't end when they are cancelled:\n{describe_tasks(left)}"
        )


async def _settle() -> None:
    """Let the callbacks run that closed connections have scheduled."""
    for _ in range(_SETTLE_STEPS):
        await asyncio.sleep(0)


def _is_of_the_cluster(timer: asyncio.TimerHandle) -> bool:
    """Return whether a timer is the brokers'; the cluster's methods may set one in any party."""
    module: str = getattr(timer._callback, "__module__", None) or ""  # type: ignore[attr-defined]
    return module.startswith(_TESTING)


def _uuid4(random: Random) -> str:
    import uuid

    return str(uuid.UUID(int=random.getrandbits(128), version=4))
