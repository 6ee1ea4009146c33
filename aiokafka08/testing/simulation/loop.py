"""`SimulatedLoop`: an asyncio event loop whose time is virtual and whose network is simulated.

When no callback is ready, the clock jumps to the next timer. Each callback belongs to a *party*, a
simulated process, named by its context. The callbacks of a paused party wait until it resumes, in
their order.

Invariant: the loop uses nothing of the real process: no time, no descriptor, no thread. A call that
needs one raises `SimulationError`, which names it.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from contextvars import Context
from typing import Any, Final

from aiokafka08._core.server.listening import Listening, ProtocolFactory
from aiokafka08.testing.simulation.errors import SimulationError, WaitsForeverError
from aiokafka08.testing.simulation.fabric import Fabric
from aiokafka08.testing.simulation.party import PARTY
from aiokafka08.testing.simulation.tasks import NumberedTask, describe_tasks
from aiokafka08.testing.simulation.threads import SimulatedExecutor
from aiokafka08.testing.simulation.trace import Trace

# The loop's time at the start of a simulation, in seconds.
START_S: Final = 1000.0

# The shortest positive delay of `call_later`. Otherwise a timer whose delay rounds to nothing, and
# which sets itself again, would stop the time.
_RESOLUTION_S: Final = 1e-6
# Iterations at one virtual time after which the run fails.
_MOST_AT_ONE_TIME: Final = 100_000
# How many callbacks the error of such a run describes.
_DESCRIBED: Final = 10


class SimulatedLoop(asyncio.BaseEventLoop):
    """See the module.

    Args:
        trace: gets each iteration.

    Attributes:
        network: Makes the connections; to be set before the loop runs.
        ends_at: The virtual time at which the run fails.
        errors: The exceptions of callbacks, as contexts of asyncio's exception handler.
    """

    network: Fabric

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self.set_debug(False)  # it would keep the stack of each callback
        self.ends_at = float("inf")
        self.errors: list[dict[str, Any]] = []
        self._trace = trace
        self._now = START_S
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timer_numbers = itertools.count()
        self._cancelled_timers = 0
        self._last_time = 0.0
        self._at_one_time = 0  # iterations since the time was `_last_time`
        self._paused: dict[str, deque[asyncio.Handle]] = {}
        self.set_task_factory(NumberedTask.make)
        self.set_exception_handler(lambda loop, context: self.errors.append(context))

    # --- time -------------------------------------------------------------------------------------

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._now

    def hold(self, seconds: float) -> None:
        """Let virtual time pass in the running callback, as if it took this long."""
        self._now += seconds

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """See asyncio."""
        # As asyncio's method, with fewer function calls.
        self._check_closed()  # type: ignore[attr-defined]
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """See asyncio."""
        self._check_closed()  # type: ignore[attr-defined]
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._timer_numbers), timer))
        return timer

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """See asyncio; a positive delay is at least 1 µs."""
        if 0 < delay < _RESOLUTION_S:
            delay = _RESOLUTION_S
        return self.call_at(self._now + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._cancelled_timers += 1
        if self._cancelled_timers > 100 and self._cancelled_timers * 2 > len(self._timers):
            self._timers = [entry for entry in self._timers if not entry[2].cancelled()]
            heapq.heapify(self._timers)
            self._cancelled_timers = 0

    def pending_timers(self) -> list[tuple[str, asyncio.TimerHandle]]:
        """Return the timers that are still to run, with their parties."""
        return [
            (_party(timer), timer) for _, _, timer in sorted(self._timers) if not timer.cancelled()
        ]

    # --- iterations -------------------------------------------------------------------------------

    def _run_once(self) -> None:
        ready: deque[asyncio.Handle] = self._ready  # type: ignore[attr-defined]
        timers = self._timers
        if not ready and not self._stopping:  # type: ignore[attr-defined]
            while timers and timers[0][2].cancelled():
                heapq.heappop(timers)
            if not timers:
                raise WaitsForeverError(f"nothing is scheduled any more. {self._waiting()}")
            self._now = max(self._now, timers[0][0])
            if self._now > self.ends_at:
                raise WaitsForeverError(f"the virtual time limit is over. {self._waiting()}")
        while timers and timers[0][0] <= self._now:
            timer = heapq.heappop(timers)[2]
            if not timer.cancelled():
                ready.append(timer)
        if self._now > self._last_time:
            self._last_time, self._at_one_time = self._now, 0
        self._at_one_time += 1
        if self._at_one_time > _MOST_AT_ONE_TIME:
            self._at_one_time = 0  # the end of the simulation runs the loop again
            raise SimulationError(
                f"virtual time stands still: {_MOST_AT_ONE_TIME:,} iterations of the event loop at "
                f"{self._now:.6f} s. Let what runs again and again wait for an event, or sleep. "
                f"The next callbacks:\n{_describe_callbacks(ready)}"
            )
        count = len(ready)
        self._trace.step(self._now, count)
        paused = self._paused
        for _ in range(count):
            handle = ready.popleft()
            if handle.cancelled():
                continue
            if paused:
                waiting = paused.get(_party(handle))
                if waiting is not None:
                    waiting.append(handle)
                    continue
            handle._run()

    def _waiting(self) -> str:
        paused = f"Paused: {', '.join(self._paused)}. " if self._paused else ""
        return f"{paused}These tasks wait:\n{describe_tasks(asyncio.all_tasks(self))}"

    # --- parties ----------------------------------------------------------------------------------

    def pause(self, party: str) -> None:
        """Run no callback of a party until `resume`."""
        self._paused.setdefault(party, deque())

    def resume(self, party: str) -> None:
        """Run the callbacks that have waited since `pause`, in their order."""
        self._ready.extend(self._paused.pop(party, ()))  # type: ignore[attr-defined]

    def resume_all(self) -> None:
        """Resume all parties."""
        for party in list(self._paused):
            self.resume(party)

    # --- network ----------------------------------------------------------------------------------

    def listen(self, factory: ProtocolFactory, host: str, port: int, name: str) -> Listening:
        """See `_core.server.listening.listen`; `name` becomes the server's party."""
        return self.network.listen(factory, host, port, name)

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any
    ) -> Any:
        """See asyncio; TCP without TLS only."""
        _refuse_options("create_connection", options)
        return await self.network.connect(protocol_factory, host, port)

    async def create_server(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any
    ) -> Any:
        """See asyncio; TCP without TLS only. The port is open at once."""
        _refuse_options("create_server", options)
        return self.network.create_server(protocol_factory, host or "127.0.0.1", port or 0)

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        """See asyncio; the addresses come from `Fabric.dns`."""
        return await self.network.getaddrinfo(host, port)

    # --- what there isn't -------------------------------------------------------------------------

    def run_in_executor(self, executor: Executor | None, func: Any, *args: Any) -> Any:  # type: ignore[override]
        """See asyncio; only with the executors of the simulation itself."""
        if not isinstance(executor, SimulatedExecutor):
            raise _missing("run_in_executor() and asyncio.to_thread()", "threads", func)
        return super().run_in_executor(executor, func, *args)

    def _write_to_self(self) -> None:
        if threading.get_ident() != self._thread_id:  # type: ignore[attr-defined]
            raise _missing("call_soon_threadsafe() of another thread", "threads")

    def _process_events(self, event_list: object) -> None:
        raise AssertionError("unreachable: the loop has no selector")


def _party(handle: asyncio.Handle) -> str:
    party: str = handle._context.get(PARTY, "client")  # type: ignore[attr-defined]
    return party


def _describe_callbacks(handles: Iterable[asyncio.Handle]) -> str:
    """Return the first callbacks, one a line; for a step of a task, the future that the task
    awaits.
    """
    lines = []
    for handle in itertools.islice(handles, _DESCRIBED):
        task: object = getattr(handle._callback, "__self__", None)  # type: ignore[attr-defined]
        if isinstance(task, asyncio.Task):
            lines.append(describe_tasks([task]))
        else:
            lines.append(f"  {handle!r}")
    return "\n".join(lines)


def _refuse_options(method: str, options: dict[str, Any]) -> None:
    names = {name for name, value in options.items() if value not in (None, 0, False)}
    if refused := names - {"reuse_address", "reuse_port", "backlog", "start_serving", "local_addr"}:
        raise SimulationError(
            f"{method}({', '.join(sorted(refused))}): not part of a simulation, which has TCP by "
            "host and port only, without TLS and without sockets"
        )


def _missing(calls: str, kind: str, function: object = None) -> SimulationError:
    asked = "" if function is None else f" (for {function!r})"
    return SimulationError(
        f"{calls}{asked}: a simulation has no {kind}. It runs code that takes its time and "
        "connections from the asyncio loop"
    )


def _refuse(name: str, kind: str) -> Callable[..., Any]:
    def refuse(self: SimulatedLoop, *arguments: Any, **options: Any) -> Any:
        raise _missing(f"loop.{name}()", kind)

    return refuse


_MISSING: Final = {
    "real sockets": (
        *("add_reader", "remove_reader", "add_writer", "remove_writer", "sock_recv"),
        *("sock_recv_into", "sock_sendall", "sock_connect", "sock_accept", "sock_sendfile"),
        *("sock_recvfrom", "sock_recvfrom_into", "sock_sendto", "sendfile"),
        *("connect_accepted_socket", "create_datagram_endpoint", "create_unix_connection"),
        *("create_unix_server", "start_tls"),
    ),
    "processes and pipes": (
        *("connect_read_pipe", "connect_write_pipe", "subprocess_shell", "subprocess_exec"),
    ),
    "signals": ("add_signal_handler", "remove_signal_handler"),
}
for _kind, _names in _MISSING.items():
    for _name in _names:
        setattr(SimulatedLoop, _name, _refuse(_name, _kind))
