"""Schedule a sender's passes, each of which expires batches and sends those that are due.

Invariants: `wake` schedules a pass for the next event-loop iteration, unless one is scheduled
already, so one pass handles the messages that tasks buffer in one iteration. While responses are
handled, neither the callbacks of completed futures nor a pass run; `responses_end` runs both. After
`stop` no pass runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiokafka08.producer.batch_delivery import CallbackQueue


class PassScheduler:
    """Runs the passes of one sender, in the running event loop.

    Invariant: neither `run_pass` nor `check_deadlines`, which precedes the timer's pass, raises.
    """

    def __init__(
        self,
        callback_queue: CallbackQueue,
        run_pass: Callable[[], object],
        check_deadlines: Callable[[], object],
    ) -> None:
        self._callback_queue = callback_queue
        self._run_pass = run_pass
        self._check_deadlines = check_deadlines
        self._loop = asyncio.get_running_loop()
        self._next_pass: asyncio.Handle | None = None
        self._in_responses = False
        self._wakes_after_responses = False
        self._timer: asyncio.Handle | None = None
        self._timer_at = 0.0
        self._stopped = False

    def wake(self) -> None:
        """Run a pass in the next event-loop iteration, or in `responses_end`."""
        if self._in_responses:
            self._wakes_after_responses = True
        elif self._next_pass is None and not self._stopped:
            self._next_pass = self._loop.call_soon(self._run_scheduled_pass)

    def responses_begin(self) -> None:
        """Begin to handle responses; the same callback of the event loop calls `responses_end`."""
        self._in_responses = True
        self._callback_queue.hold()

    def responses_end(self) -> None:
        """Run the tasks that wait for the responses, then a pass if they have buffered messages."""
        if not self._in_responses:
            return
        # The tasks that wait for the responses run first, so the pass sends what they buffer. A
        # loop that sends one message and waits for it then takes one event-loop iteration per
        # message.
        all_have_run = self._callback_queue.release()
        self._in_responses = False
        if self._wakes_after_responses:
            self._wakes_after_responses = False
            if all_have_run and self._next_pass is None and not self._stopped:
                self._run_pass()
            else:
                self.wake()

    def set_timer(self, time: float) -> None:
        """Check the deadlines of the requests and run a pass at this loop time, or earlier."""
        timer = self._timer
        if timer is not None:
            if self._timer_at <= time:
                # The timer isn't moved to a later time. Most deadlines are never reached; moving
                # the timer for each of them costs more than an early pass now and then.
                return
            timer.cancel()
        # The time is kept here, not read from the handle: if it is in the past, uvloop's call_at
        # returns a Handle without when().
        self._timer_at = time
        self._timer = self._loop.call_at(time, self._timer_expired)

    def stop(self) -> None:
        self._stopped = True
        for handle in (self._next_pass, self._timer):
            if handle is not None:
                handle.cancel()

    def _run_scheduled_pass(self) -> None:
        self._next_pass = None
        if not self._stopped:
            self._run_pass()

    def _timer_expired(self) -> None:
        self._timer = None
        if self._stopped:
            return
        self._check_deadlines()
        if not self._stopped:
            self._run_pass()
