"""`Turns`: share the event loop's time among the connections of a cluster.

The connections (`server`) pass the work for a request as `Steps`. Small requests are done at once.
When the requests of one iteration of the event loop have taken `SLICE_S`, the rest waits for the
next iterations. Among those that wait, the connection that has used the least time is next, so a
client with small requests hardly notices the others' large ones.

Large requests (see `steps`) are worked on one after the other, their pure parts in a worker thread.
So memory has to hold only one request's items and decompressed messages.

Invariants: the brokers' work takes about `SLICE_S` of each iteration of the event loop, and one
step more. The state is only used in the event loop: the worker thread runs pure functions.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from aiokafka08 import environment
from aiokafka08.testing.steps import ALONE, Need, Offload, Steps

SLICE_S = 0.005
"""How long the brokers work until the event loop reads and writes again, in seconds."""

_NEWCOMER_S = 0.05
"""How much time a new connection is said to have used, so that one that reconnects for each request
doesn't overtake the others. Its first request that takes less than `_CHEAP_S` ends that: it then
comes before a crowd of other new connections."""

_CHEAP_S = 0.001


class Turn:
    """The time that one connection has used.

    `added_s` of it wasn't used, but is that of a new connection.
    """

    __slots__ = ("added_s", "used_s")

    def __init__(self, used_s: float = 0.0, added_s: float = 0.0) -> None:
        self.used_s = used_s + added_s
        self.added_s = added_s

    def use(self, seconds: float, *, ended: bool) -> None:
        """Count time that was used, at the end of a request or before."""
        self.used_s += seconds
        if ended and self.added_s and seconds < _CHEAP_S:
            self.used_s -= self.added_s
            self.added_s = 0.0


class Job:
    """Steps on their way to their end.

    Args:
        turn: the connection that they work for.
        steps: the work.
        ended: called at the end, unless the job was cancelled or has ended within `Turns.run`.
        failed: called with an exception that ends the steps. The job counts as ended then.
    """

    __slots__ = ("cancelled", "ended", "failed", "pending", "steps", "turn")

    def __init__(
        self,
        turn: Turn,
        steps: Steps[None],
        ended: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self.turn = turn
        self.steps = steps
        self.ended = ended
        self.failed = failed
        self.cancelled = False
        self.pending: Offload | asyncio.Future[Any] | None = None
        """The function that has to run before the next step, or its outcome."""

    def step(self) -> Need | Offload:
        """Run the next step; return what comes after it.

        Raises:
            StopIteration: it was the last one.
        """
        outcome, self.pending = self.pending, None
        if not isinstance(outcome, asyncio.Future):
            return next(self.steps)
        error = outcome.exception()
        return self.steps.send(outcome.result()) if error is None else self.steps.throw(error)

    def drop(self) -> None:
        """End the steps where they are, and free what they hold."""
        self.pending = None
        self.steps.close()


class _Queue:
    """Jobs that wait; the one whose connection has used the least time comes first."""

    __slots__ = ("_heap", "_number", "floor_s")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Job]] = []
        self._number = itertools.count()
        self.floor_s = 0.0
        """What the connection that came last had used: no other connection has more credit."""

    def __bool__(self) -> bool:
        return bool(self._heap)

    def push(self, job: Job) -> None:
        job.turn.used_s = max(job.turn.used_s, self.floor_s)
        heapq.heappush(self._heap, (job.turn.used_s, next(self._number), job))

    def pop(self) -> Job | None:
        """Return the next job; None if none waits."""
        while self._heap:
            self.floor_s, _, job = heapq.heappop(self._heap)
            if not job.cancelled:
                return job
        return None


class Turns:
    """The jobs of a running cluster.

    Args:
        after_step: called after each step, when the state may have changed.
        clock: returns seconds; None: `environment.monotonic`.
    """

    def __init__(
        self, after_step: Callable[[], None], clock: Callable[[], float] | None = None
    ) -> None:
        self._after_step = after_step
        self._clock = clock
        self._ready = _Queue()
        self._slice_ends: float | None = None  # None: the next job begins a slice
        self._stepping: Job | None = None
        self._large: Job | None = None
        self._large_waiting = _Queue()
        self._worker: Executor | None = None
        self._offloaded: asyncio.Future[Any] | None = None  # runs for the large job
        self._closed = False

    def newcomer(self) -> Turn:
        """Return the turn of a new connection."""
        return Turn(self._ready.floor_s, _NEWCOMER_S)

    def run(self, job: Job) -> bool:
        """Run a job now, or when its turn comes; return whether it has already ended."""
        if self._stepping is not None or self._ready or self._is_slice_over():
            self._ready.push(job)
            return False
        return self._run(job)

    def cancel(self, job: Job) -> None:
        """Drop a job. What runs of it now, in the worker thread, runs to its end for nothing."""
        job.cancelled = True
        if job is not self._stepping and (job is not self._large or self._offloaded is None):
            self._drop(job)

    async def close(self) -> None:
        """End the worker thread; no job goes on."""
        self._closed = True
        if self._offloaded is not None:
            await asyncio.wait([self._offloaded])
        if self._worker is not None:
            self._worker.shutdown()

    def _now_s(self) -> float:
        return (self._clock or environment.monotonic)()

    # --- slices -----------------------------------------------------------------------------------

    def _is_slice_over(self) -> bool:
        """Return whether the event loop should go on; begin a slice if there is none."""
        now = self._now_s()
        if self._slice_ends is None:
            self._slice_ends = now + SLICE_S
            asyncio.get_running_loop().call_soon(self._next_slice)
        return now >= self._slice_ends

    def _next_slice(self) -> None:
        """Run the jobs that wait, until they or the slice are at their end."""
        self._slice_ends = None
        if not self._ready or self._closed:
            return
        while not self._is_slice_over() and (job := self._ready.pop()) is not None:
            if self._run(job):
                job.ended()

    def _run(self, job: Job) -> bool:
        """Run a job until it ends or has to wait; return whether it has ended."""
        began, ended = self._now_s(), False
        self._stepping = job
        try:
            while True:
                need = job.step()
                if isinstance(need, Offload) or (need is ALONE and job is not self._large):
                    job.pending = need if isinstance(need, Offload) else None
                    self._enlarge(job)
                    return False
                if self._is_slice_over():
                    self._ready.push(job)
                    return False
        except StopIteration:
            ended = True
            self._release(job)
            return True
        except Exception as error:
            self._release(job)
            job.failed(error)
            return True
        finally:
            self._stepping = None
            job.turn.use(self._now_s() - began, ended=ended)
            if job.cancelled:
                self._drop(job)
            self._after_step()

    def _drop(self, job: Job) -> None:
        job.drop()
        self._release(job)

    # --- large requests ---------------------------------------------------------------------------

    def _enlarge(self, job: Job) -> None:
        """Go on with a job as the large one, or let it wait until it can be that."""
        if self._large not in (None, job):
            self._large_waiting.push(job)
            return
        self._large = job
        if isinstance(job.pending, Offload):
            self._offload(job, job.pending)
        else:
            self._ready.push(job)
            self._is_slice_over()  # so that there is a next slice

    def _offload(self, job: Job, wanted: Offload) -> None:
        if self._worker is None:
            self._worker = environment.worker_threads(1, "aiokafka08 large requests")
        began = self._now_s()
        loop = asyncio.get_running_loop()
        self._offloaded = loop.run_in_executor(self._worker, wanted.function)
        job.pending = None

        def computed(outcome: asyncio.Future[Any]) -> None:
            self._offloaded = None
            job.turn.used_s += self._now_s() - began
            outcome.exception()  # so that a cancelled job's error isn't reported as unnoticed
            if job.cancelled or self._closed:
                self._drop(job)
                return
            job.pending = outcome
            self._ready.push(job)
            self._is_slice_over()

        self._offloaded.add_done_callback(computed)

    def _release(self, job: Job) -> None:
        if job is self._large:
            self._large = None
            if not self._closed and (waiting := self._large_waiting.pop()) is not None:
                self._enlarge(waiting)
