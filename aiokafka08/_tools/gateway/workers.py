"""`Workers`: several worker processes that share the ports of a gateway, and their keeper.

Each worker runs `Gateways` of its own, and the system spreads connections over them. The keeper,
the process with `Workers`, serves no clients: it has the table of ports and the list of clients,
and writes to ZooKeeper. A pipe connects it to each worker. The worker sends a `Report` every
second, and the ids of new brokers, for which it gets indices of the table.

Invariants: a worker that has listened and then ends is started again, after a pause that grows. A
worker that stops reporting is killed. A worker that its keeper stops, or that has lost its
keeper, answers the requests in flight, reports its counts, and ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Final, NamedTuple

from aiokafka08 import environment
from aiokafka08._core.concurrency.daemon_thread import DaemonThread
from aiokafka08._core.concurrency.task_set import TaskSet
from aiokafka08._core.net.config import Address
from aiokafka08._tools.gateway.clients import ClientTable, Counted, SeenClient
from aiokafka08._tools.gateway.gateway import STOP_S, ListenerState
from aiokafka08._tools.gateway.gateways import Gateways, Ports
from aiokafka08._tools.gateway.measurements import Series
from aiokafka08._tools.gateway.options import GatewayOptions, listener_port
from aiokafka08._tools.gateway.peers import peer_brokers
from aiokafka08._tools.gateway.port_table import ANSWER_S, PortTable
from aiokafka08.errors import KafkaConnectionError, KafkaError

_log: Final = logging.getLogger("aiokafka08.gateway")

SILENT_S: Final = 15.0
"""A worker is killed if two waits of this length in a row bring no report. One isn't enough: if the
keeper itself was suspended during it, the reports are late, and the next wait finds them."""
_REPORT_S: Final = 1.0
_NO_ANSWER: Final = "the process that has the table of ports doesn't answer"
_RESTART_S: Final = 1.0
_MAX_RESTART_S: Final = 30.0
_STABLE_S: Final = 60.0
"""After a worker has run for this long, the pause before its next start is `_RESTART_S` again."""


NewProcess = Callable[[int, Connection], BaseProcess]
"""Makes a worker's process, not started yet, from its number and its end of the pipe."""


class Report(NamedTuple):
    """The counts of a worker since its last report, and its state.

    Attributes:
        clients: the clients that were seen.
        totals: how many requests there were.
        states: the states of its ports.
        ports: see `Gateways.ports`.
        measured: see `Measurements.take`.
    """

    clients: list[SeenClient]
    totals: Counter[Counted]
    states: list[ListenerState]
    ports: Ports
    measured: Counter[Series]


class Workers:
    """See the module.

    Args:
        count: the number of workers.
        new_process: makes the process of a worker, which calls `work`.
        options: the options of the first listener, for ZooKeeper.
        table: the listeners' indices.

    Attributes:
        clients: the clients that were seen.
        ports: see `Gateways.ports`.
    """

    def __init__(
        self, count: int, new_process: NewProcess, options: GatewayOptions, table: PortTable
    ) -> None:
        self.clients = ClientTable()
        self.ports: Ports = {}
        self._count = count
        self._new_process = new_process
        self._options = options
        self._table = table
        self._lock = threading.Lock()
        self._measured: Counter[Series] = Counter()
        self._states: dict[int, list[ListenerState]] = {}
        self._running: dict[int, tuple[BaseProcess, Connection]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()
        self._executor = ThreadPoolExecutor(count, "aiokafka08-worker")

    async def start(self) -> None:
        """Start the workers, and wait until they listen.

        Raises:
            KafkaConnectionError: a worker ended before it listened, or couldn't be started.
        """
        ready = [asyncio.get_running_loop().create_future() for _ in range(self._count)]
        self._tasks = [asyncio.create_task(self._keep(*one)) for one in enumerate(ready, 1)]
        try:
            await asyncio.gather(*ready)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End the workers, each as `Gateway.stop` does it; kill those that take longer."""
        self._stopping.set()
        for _, pipe in list(self._running.values()):
            with contextlib.suppress(OSError):
                pipe.send(None)
        await asyncio.wait(self._tasks, timeout=STOP_S + _REPORT_S)
        for number, (process, _) in list(self._running.items()):
            _log.error("worker %d is killed: it hasn't ended in %g s", number, STOP_S + _REPORT_S)
            process.kill()
        await asyncio.gather(*self._tasks)
        self._executor.shutdown()

    def states(self) -> list[ListenerState]:
        """Return the states of the ports, those of each worker; may be called in any thread."""
        return [state for states in list(self._states.values()) for state in states]

    def address_of(self, node_id: int, host: str, port: int) -> Address:
        """Return the address that clients use for a broker, as `Gateway.address_of` does.

        Its port is opened when a client finds the broker by Metadata.
        """
        index = self._add([node_id])[node_id]
        return self._options.advertise, listener_port(self._options, index)

    def peers(self) -> dict[int, Address]:
        """Return the brokers that stand for other gateways."""
        return peer_brokers(self._options, self._table.indices)

    def measured(self) -> Mapping[Series, float]:
        """Return what all workers have measured; may be called in any thread."""
        with self._lock:
            return dict(self._measured)

    def _add(self, node_ids: Iterable[int]) -> Mapping[int, int]:
        with self._lock:
            self._table.add(node_ids)
            return self._table.indices

    async def _keep(self, number: int, ready: asyncio.Future[None]) -> None:
        """Run a worker; once it has listened, start it again each time that it ends."""
        loop, delay_s = asyncio.get_running_loop(), 0.0
        listens = partial(loop.call_soon_threadsafe, _set_done, ready)
        while not self._stopping.is_set():
            began = environment.monotonic()
            text = await loop.run_in_executor(self._executor, self._run, number, listens)
            if self._stopping.is_set():
                break
            if not ready.done():
                ready.set_exception(KafkaConnectionError(f"{text}, before it has listened"))
                return
            is_stable = environment.monotonic() - began >= _STABLE_S
            delay_s = _RESTART_S if is_stable or not delay_s else min(2 * delay_s, _MAX_RESTART_S)
            _log.error("%s; starting it again in %g s", text, delay_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay_s):
                    await self._stopping.wait()
        ready.cancel()

    def _run(self, number: int, listens: Callable[[], object]) -> str:
        """Run a worker until its end, in a thread; return how it has ended."""
        pipe, other = multiprocessing.Pipe()
        with pipe:
            with other:
                process = self._new_process(number, other)
                try:
                    process.start()
                except OSError as error:
                    return f"worker {number} can't be started: {error}"
            self._running[number] = process, pipe
            if self._stopping.is_set():
                process.kill()
            has_reported = False  # until then silence is no reason to kill: the start may take long
            end = "ended"
            with contextlib.suppress(EOFError, OSError):
                while True:
                    if has_reported and not (pipe.poll(SILENT_S) or pipe.poll(SILENT_S)):
                        end = f"not reported for {2 * SILENT_S:g} s, and ended"
                        process.kill()
                        break
                    message = pipe.recv()
                    if isinstance(message, Report):
                        has_reported = True
                        self.clients.add(message.clients, message.totals)
                        with self._lock:
                            self._measured.update(message.measured)
                        self._states[number], self.ports = message.states, message.ports
                        listens()
                    else:
                        pipe.send(self._answer(message))
            process.join()
            del self._running[number]
        self._states.pop(number, None)
        return f"worker {number} (process {process.pid}) has {end} with code {process.exitcode}"

    def _answer(self, node_ids: list[int]) -> Mapping[int, int] | KafkaError:
        """Return the answer to a question that a worker's `WorkerTable.learn` has sent."""
        try:
            return self._add(node_ids)
        except KafkaError as error:
            return error


def _set_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class WorkerTable(PortTable):
    """The table of ports in a worker.

    Args:
        pipe: the worker's end of the pipe.

    Attributes:
        stopped: set when the worker has to end.
    """

    def __init__(self, pipe: Connection) -> None:
        super().__init__()
        self.stopped = asyncio.Event()
        self._pipe = pipe
        # Don't use the default executor, since DNS lookups may occupy it for over `SILENT_S`.
        self._sender = DaemonThread()
        self._tasks = TaskSet()
        # The questions to the keeper that it hasn't answered yet, the oldest first
        self._asked: dict[frozenset[int], asyncio.Future[None]] = {}
        self._problem: KafkaError = KafkaConnectionError(_NO_ANSWER)
        # Read in a thread: with `loop.add_reader()`, uvloop would make the pipe non-blocking.
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._receive, args=(loop,), daemon=True).start()

    def learn(self, node_ids: Iterable[int]) -> asyncio.Future[None] | None:
        """See `PortTable.learn`."""
        new = frozenset(set(node_ids) - self._indices.keys())
        if not new or self.stopped.is_set():
            return None
        if new not in self._asked:
            loop = asyncio.get_running_loop()
            self._asked[new] = loop.create_future()
            loop.call_later(ANSWER_S, _set_done, self._asked[new])
            self._tasks.start(self.send(list(new)))
        return self._asked[new]

    def add(self, node_ids: Iterable[int]) -> None:
        """See `PortTable.add`; only brokers that `learn` has found have an index."""
        if not set(node_ids) <= self._indices.keys():
            raise self._problem.with_traceback(None)

    async def send(self, message: Report | list[int]) -> None:
        """Send a report, or the ids of new brokers."""
        with contextlib.suppress(OSError):  # `_receive` notices it
            await self._sender.run(partial(self._pipe.send, message))

    def _receive(self, loop: asyncio.AbstractEventLoop) -> None:
        """Receive the keeper's messages, in a thread, until the keeper has gone."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            with contextlib.suppress(EOFError, OSError):
                while True:
                    loop.call_soon_threadsafe(self._received, self._pipe.recv())
            loop.call_soon_threadsafe(self._received, None)

    def _received(self, message: Mapping[int, int] | KafkaError | None) -> None:
        """Take a message of the keeper; None: the worker has to end."""
        if message is None:
            self.stopped.set()
            return
        if not isinstance(message, KafkaError):
            self._indices, message = dict(message), KafkaConnectionError(_NO_ANSWER)
        self._problem = message
        _set_done(self._asked.pop(next(iter(self._asked))))


async def work(gateways: Gateways, table: WorkerTable) -> None:
    """Run the gateways of a worker until it has to end.

    Raises:
        KafkaConnectionError: no broker can be reached.
        OSError: a port is not available.
    """

    async def report() -> None:
        measured, states = gateways.measurements.take(), gateways.states()
        await table.send(Report(*gateways.clients.take(), states, gateways.ports, measured))

    await gateways.start()
    try:
        while not table.stopped.is_set():
            await report()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_REPORT_S):
                    await table.stopped.wait()
    finally:
        await gateways.stop()
        await report()
