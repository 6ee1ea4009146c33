"""`FairScheduler`: share the event loop's time among the connections of a server.

Small requests are done at once. When the requests of one iteration of the event loop have taken
`SLICE_S`, the rest waits, and the connection that has used the least time is next. Large requests
(see `work`) are done one after the other, their pure parts in a worker thread.

A client may send many requests without waiting for responses. Those behind its oldest one wait in a
queue of their own, which gets every second turn: otherwise a thousand such clients would hold up
one that always waits for its response for as long as their requests take together. Each queue
counts the time of its own jobs only. With one count for both, a connection that has used much in
one queue would wait in the other one behind all that have used less there.

Invariants: the server's work takes about `SLICE_S` of each iteration of the event loop, plus one
step. While both queues have jobs, they get their turns alternately, so a job waits for at most one
more job of the other queue than of its own. Only the event loop uses the state: the worker thread
runs pure functions.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Final

from aiokafka08 import environment
from aiokafka08._core.server.work import ALONE, Need, OffloadedCall, Work

# How long the connections work until the event loop reads and writes again, in seconds.
SLICE_S: Final = 0.003

# Added to the time of a new connection when its first request takes more than `_CHEAP_S`, so that a
# client that reconnects for each request doesn't overtake others.
_NEWCOMER_S: Final = 0.05

_CHEAP_S: Final = 0.0002


class TimeAccount:
    """The time that one connection has used in each queue.

    Args:
        used_s: what it has used in a queue before its first job there; None: as much as a
            connection that always had work and got its share (default 0).
        is_new: sets the attribute.

    Attributes:
        is_new: Whether its first request has neither ended nor taken `_CHEAP_S`.
    """

    __slots__ = ("_used_s", "_used_s_first", "is_new")

    def __init__(self, used_s: float | None = 0.0, *, is_new: bool = False) -> None:
        self._used_s_first = used_s
        self._used_s: dict[_Queue, float] = {}
        self.is_new = is_new

    def used_s(self, queue: _Queue) -> float:
        """Return the time used in a queue."""
        first_s = queue.fair_s if self._used_s_first is None else self._used_s_first
        return self._used_s.get(queue, first_s)

    def set_used_s(self, queue: _Queue, used_s: float) -> None:
        """Set the time used in a queue."""
        self._used_s[queue] = used_s

    def forgive(self) -> None:
        """Count as if it had used its share in each queue."""
        self._used_s_first = None
        self._used_s.clear()


class Job:
    """Work that hasn't ended.

    Args:
        account: the account of the connection that the job works for.
        steps: the work.
        ended: called at the end, unless the job was cancelled or has ended within
            `FairScheduler.run`.
        failed: called with an exception that ends the steps. The job counts as ended then.
        is_behind: whether the connection has an older request without a response.
    """

    __slots__ = ("account", "cancelled", "ended", "failed", "is_behind", "pending", "steps")

    def __init__(
        self,
        account: TimeAccount,
        steps: Work[None],
        ended: Callable[[], None],
        failed: Callable[[Exception], None],
        *,
        is_behind: bool = False,
    ) -> None:
        self.account = account
        self.is_behind = is_behind
        self.steps = steps
        self.ended = ended
        self.failed = failed
        self.cancelled = False
        # The function that has to run in the worker thread before the next step, the future of its
        # result, or another future that a step waits for.
        self.pending: OffloadedCall | asyncio.Future[Any] | None = None

    def step(self) -> Need | OffloadedCall | asyncio.Future[Any]:
        """Run the next step; return its need.

        Raises:
            StopIteration: the steps have ended.
        """
        outcome, self.pending = self.pending, None
        if not isinstance(outcome, asyncio.Future):
            return next(self.steps)
        error = outcome.exception()
        return self.steps.send(outcome.result()) if error is None else self.steps.throw(error)

    def drop(self) -> None:
        """End the steps where they are, and free their memory."""
        self.pending = None
        self.steps.close()


class _Queue:
    """Jobs that wait; the one whose connection has used the least time comes first."""

    __slots__ = ("_heap", "_number", "fair_s")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Job]] = []
        self._number = itertools.count()
        # The time of a connection that always had work and got its share; it never decreases.
        self.fair_s = 0.0

    def __bool__(self) -> bool:
        return bool(self._heap)

    def push(self, job: Job) -> None:
        # As in fair schedulers of operating systems, idle connections get credit for a slice.
        # Without it, a client whose small requests come one after the other would wait behind all
        # large ones each time.
        used_s = max(job.account.used_s(self), self.fair_s - SLICE_S)
        job.account.set_used_s(self, used_s)
        heapq.heappush(self._heap, (used_s, next(self._number), job))

    def charge(self, job: Job, seconds: float) -> None:
        """Count time that a job has used, but that the others haven't waited for."""
        job.account.set_used_s(self, job.account.used_s(self) + seconds)

    def use(self, job: Job, seconds: float) -> None:
        """Count time that a job has used, while the others waited."""
        self.charge(job, seconds)
        self.fair_s += seconds / (len(self._heap) + 1)

    def pop(self) -> Job | None:
        """Return the next job; None if none waits."""
        while self._heap:
            used_s, _, job = heapq.heappop(self._heap)
            if not job.cancelled:
                self.fair_s = max(self.fair_s, used_s)
                return job
        return None


class FairScheduler:
    """The jobs of a running server.

    Args:
        after_step: called each time that steps of a job have run, since they may change the state.
        clock: returns seconds; None: `environment.monotonic`.
    """

    def __init__(
        self, after_step: Callable[[], None], clock: Callable[[], float] | None = None
    ) -> None:
        self._after_step = after_step
        self._clock = clock
        self._oldest, self._behind = _Queue(), _Queue()  # by `Job.is_behind`
        self._was_turn_of_oldest = False
        self._slice_ends: float | None = None  # None: the next job begins a slice
        self._stepping: Job | None = None
        self._large: Job | None = None
        self._large_waiting = _Queue()
        self._worker: Executor | None = None
        self._offloaded: asyncio.Future[Any] | None = None  # runs for the large job
        self._closed = False

    def newcomer(self) -> TimeAccount:
        """Return the account of a new connection."""
        return TimeAccount(None, is_new=True)

    def run(self, job: Job) -> bool:
        """Run a job now, or when it is the next one; return whether it has already ended."""
        if self._stepping is not None or self._has_waiting() or self._is_slice_over():
            self._push(job)
            return False
        return self._run(job)

    def works_for(self, account: TimeAccount) -> bool:
        """Return whether the call comes from a step of a job of this connection."""
        return self._stepping is not None and self._stepping.account is account

    def cancel(self, job: Job) -> None:
        """Drop a job; a function of it that runs in the worker thread ends without effect."""
        job.cancelled = True
        if job is not self._stepping and (job is not self._large or self._offloaded is None):
            self._drop(job)

    async def close(self) -> None:
        """End the worker thread; no job continues."""
        self._closed = True
        if self._offloaded is not None:
            await asyncio.wait([self._offloaded])
        if self._worker is not None:
            self._worker.shutdown()

    def _now_s(self) -> float:
        return (self._clock or environment.monotonic)()

    # --- slices -----------------------------------------------------------------------------------

    def _is_slice_over(self) -> bool:
        """Return whether to yield to the event loop; begin a slice if there is none."""
        now = self._now_s()
        if self._slice_ends is None:
            self._slice_ends = now + SLICE_S
            asyncio.get_running_loop().call_soon(self._next_slice)
        return now >= self._slice_ends

    def _next_slice(self) -> None:
        """Run the waiting jobs, until they or the slice are at their end."""
        self._slice_ends = None
        if not self._has_waiting() or self._closed:
            return
        while not self._is_slice_over() and (job := self._pop()) is not None:
            if self._run(job):
                job.ended()

    def _has_waiting(self) -> bool:
        return bool(self._oldest or self._behind)

    def _pop(self) -> Job | None:
        """Return the next job, from both queues by turns; None if none waits."""
        queues = (self._oldest, self._behind)
        self._was_turn_of_oldest = not self._was_turn_of_oldest
        first, second = queues if self._was_turn_of_oldest else reversed(queues)
        return first.pop() or second.pop()

    def _queue_of(self, job: Job) -> _Queue:
        return self._behind if job.is_behind else self._oldest

    def _run(self, job: Job) -> bool:
        """Run a job until it ends or has to wait; return whether it has ended."""
        began = self._now_s()
        ended, failure, wait = True, None, self._push
        self._stepping = job
        try:
            while True:
                need = job.step()
                if isinstance(need, asyncio.Future):
                    job.pending, ended, wait = need, False, self._await
                    break
                if isinstance(need, OffloadedCall) or (need is ALONE and job is not self._large):
                    # Large jobs run one at a time, so that memory holds only one request's items
                    # and decompressed messages.
                    job.pending = need if isinstance(need, OffloadedCall) else None
                    ended, wait = False, self._enlarge
                    break
                # A first request that isn't a small one waits behind older connections.
                if self._is_slice_over() or (
                    job.account.is_new and self._now_s() >= began + _CHEAP_S
                ):
                    ended = False
                    break
        except StopIteration:
            pass
        except Exception as error:
            failure = error
        finally:
            self._stepping = None
        queue = self._queue_of(job)
        queue.use(job, self._now_s() - began)
        if job.account.is_new:
            job.account.is_new = False
            if not ended:
                queue.charge(job, _NEWCOMER_S)
        if ended or job.cancelled:
            self._drop(job)
        else:
            wait(job)
        if failure is not None:
            job.failed(failure)
        self._after_step()
        return ended

    def _await(self, job: Job) -> None:
        """Continue a job when its future is done; another job may be the large one meanwhile."""

        def done(_: object) -> None:
            if not (job.cancelled or self._closed):
                self._push(job)

        assert isinstance(job.pending, asyncio.Future)
        job.pending.add_done_callback(done)
        self._release(job)

    def _push(self, job: Job) -> None:
        self._queue_of(job).push(job)
        self._is_slice_over()  # so that there is a next slice

    def _drop(self, job: Job) -> None:
        job.drop()
        self._release(job)

    # --- large requests ---------------------------------------------------------------------------

    def _enlarge(self, job: Job) -> None:
        """Continue a job as the large one, or queue it while another job is the large one."""
        if self._large not in (None, job):
            self._large_waiting.push(job)
            return
        self._large = job
        if isinstance(job.pending, OffloadedCall):
            self._offload(job, job.pending)
        else:
            self._push(job)

    def _offload(self, job: Job, wanted: OffloadedCall) -> None:
        if self._worker is None:
            self._worker = environment.worker_threads(1, "aiokafka08 large requests")
        began = self._now_s()
        loop = asyncio.get_running_loop()
        self._offloaded = loop.run_in_executor(self._worker, wanted.function)
        job.pending = None

        def computed(outcome: asyncio.Future[Any]) -> None:
            self._offloaded = None
            # The time also counts where large jobs wait for each other.
            for queue in (self._queue_of(job), self._large_waiting):
                queue.charge(job, self._now_s() - began)
            outcome.exception()  # so that a cancelled job's error isn't reported as unnoticed
            if job.cancelled or self._closed:
                self._drop(job)
                return
            job.pending = outcome
            self._push(job)

        self._offloaded.add_done_callback(computed)

    def _release(self, job: Job) -> None:
        if job is self._large:
            self._large = None
            if not self._closed and (waiting := self._large_waiting.pop()) is not None:
                self._enlarge(waiting)
