"""The outcome of one batch, and the futures of the messages in it.

`BatchDelivery` is the outcome of one batch. A `DeliveryFuture` is the future of one message, which
`send()` returns: it holds no result, only its batch's `BatchDelivery` and its index there. So one
step completes the futures of all messages, and a future that is never read causes no further work.

Invariants: cancelling a future, or a task that awaits it, never changes its batch or the batch's
other futures. A future keeps the delivery and the index that it was made with; `locate()` finds its
message after splits. `PureDeliveryFuture` is the reference for the compiled `DeliveryFuture`.
"""

from __future__ import annotations

import asyncio
import contextvars
import copy
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from aiokafka08 import environment
from aiokafka08._core.concurrency.loop_yield import LoopYield
from aiokafka08.errors import KafkaError
from aiokafka08.structs import RecordMetadata, TopicPartition

# How many futures run their callbacks in one event-loop iteration (about a millisecond)
_CALLBACKS_PER_ITERATION: Final = 512

# Number of awaited futures after which `__await__` checks whether to yield to the event loop
_CHECK_EVERY: Final = 256

_until_check = _CHECK_EVERY


def _restart_checks() -> None:
    """Count the awaits from the beginning of a simulation, so that it is reproducible."""
    global _until_check  # noqa: PLW0603
    _until_check = _CHECK_EVERY


environment.on_replace(_restart_checks)
_copy_context = contextvars.copy_context
_new_tuple = tuple.__new__


class CallbackQueue:
    """Runs the callbacks of one producer's completed futures.

    Invariant: callbacks run in the order in which their futures were added, never inside the call
    that adds them.
    """

    __slots__ = ("_futures", "_is_held", "_is_scheduled", "_run_callbacks", "loop")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, run_callbacks: RunCallbacks | None = None
    ) -> None:
        self.loop = loop
        self._run_callbacks = run_callbacks or pure_run_callbacks
        self._futures: deque[PureDeliveryFuture] = deque()
        self._is_held = False
        self._is_scheduled = False

    def add(self, futures: Iterable[PureDeliveryFuture]) -> None:
        """Run the callbacks of these futures in the next event-loop iteration, or in `release`."""
        self._futures.extend(futures)
        if not self._is_held:
            self._schedule()

    def hold(self) -> None:
        """Schedule nothing until `release`, which has to follow in the same callback."""
        # The callback of an awaited future wakes the task that awaits it. So `release` runs the
        # user's tasks while responses are handled, and their next messages need no further event-
        # loop iteration.
        self._is_held = True

    def release(self) -> bool:
        """Run callbacks now, unless earlier ones are scheduled; return False if some are left."""
        self._is_held = False
        if not self._futures:
            return True
        if self._is_scheduled:
            return False
        try:
            self._run()
        except BaseException as error:  # SystemExit or KeyboardInterrupt
            # This runs in a protocol's callback: if it raised the error, uvloop would take that for
            # a failure of the transport.
            self.loop.call_soon(_raise, error)
        return not self._futures

    def _schedule(self) -> None:
        if self._futures and not self._is_scheduled:
            self._is_scheduled = True
            self.loop.call_soon(self._run)

    def _run(self) -> None:
        # From here on, added futures are scheduled for the next iteration.
        self._is_scheduled = False
        try:
            # Run a limited number, so that other tasks, timers and sockets are served in between.
            self._run_callbacks(self._futures, _CALLBACKS_PER_ITERATION)
        finally:
            self._schedule()


def _raise(error: BaseException) -> None:
    raise error


def pure_run_callbacks(futures: deque[PureDeliveryFuture], limit: int) -> None:
    """Remove the first futures, at most `limit` of those present, and run their callbacks."""
    for _ in range(min(len(futures), limit)):
        # Free each future before the next callback allocates, so that the garbage collector runs
        # less often: it runs when allocations outnumber deallocations by a threshold.
        futures.popleft()._run_callbacks()


RunCallbacks = Callable[[deque["PureDeliveryFuture"], int], None]


class BatchDelivery:
    """The outcome of one batch: acknowledged, failed, or split into two other batches."""

    __slots__ = (
        "_callback_queue",
        "_finished",
        "_is_finished",
        "base_offset",
        "done",
        "error",
        "has_timestamps",
        "loop",
        "loop_yield",
        "run_starts",
        "run_timestamps_ms",
        "split_into",
        "timestamp_ms",
        "topic_partition",
        "with_callbacks",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        callback_queue: CallbackQueue | None,
        loop_yield: LoopYield | None = None,
    ) -> None:
        self.topic_partition = topic_partition
        # The producer's event loop; None without `callback_queue`
        self.loop = None if callback_queue is None else callback_queue.loop
        self._callback_queue = callback_queue
        # Decides whether awaiting a completed future first yields to the event loop
        self.loop_yield = loop_yield
        self.done = False  # True once the batch is acknowledged or failed; this never changes back
        self.base_offset = -1  # the offset of the first message; -1 with acks=0
        self.timestamp_ms = -1  # the broker's timestamp under LogAppendTime, else -1
        self.has_timestamps = False  # True if the batch was stored in message format 1
        self.error: KafkaError | None = None  # why the batch failed
        # None before a split. After it: the number of messages in the first half, the delivery of
        # the first half, and the delivery of the second half.
        self.split_into: tuple[int, BatchDelivery, BatchDelivery] | None = None
        # The indices at which the timestamps of the messages change, ascending
        self.run_starts: list[int] = []
        self.run_timestamps_ms: list[int] = []  # the timestamps from there on
        # Pending futures that have callbacks, in the order of their first callback
        self.with_callbacks: list[PureDeliveryFuture] = []
        self._finished: asyncio.Future[None] | None = None
        self._is_finished = False

    def acknowledge(self, base_offset: int, timestamp_ms: int, *, has_timestamps: bool) -> None:
        """Acknowledge the batch: the broker has stored it (or, with acks=0, it was written)."""
        if not self.done:
            self.base_offset = base_offset
            self.timestamp_ms = timestamp_ms
            self.has_timestamps = has_timestamps
            self._resolve()

    def fail(self, error: KafkaError) -> None:
        if not self.done:
            self.error = error
            self._resolve()

    def split(self, first_count: int, first: BatchDelivery, second: BatchDelivery) -> None:
        """Hand the first `first_count` messages over to `first` and the others to `second`."""
        self.split_into = (first_count, first, second)
        futures, self.with_callbacks = self.with_callbacks, []
        for future in futures:
            future._current_delivery().watch(future)
        self.finish()

    def finish(self) -> None:
        """Wake `wait_finished()`: the producer has no more work with this batch."""
        # With acks=0 this comes later than `done`: once the broker is known to have read the batch.
        self._is_finished = True
        if self._finished is not None and not self._finished.done():
            self._finished.set_result(None)

    async def wait_finished(self) -> None:
        """Wait until the batch, or each batch that it was split into, is finished."""
        if not self._is_finished:
            if self._finished is None:
                self._finished = asyncio.get_running_loop().create_future()
            # wait() leaves the future alone when this task is cancelled: other tasks may wait too.
            await asyncio.wait((self._finished,))
        if self.split_into is not None:
            await self.split_into[1].wait_finished()
            await self.split_into[2].wait_finished()

    def parts(self) -> list[BatchDelivery]:
        """Return the deliveries that the batch was split into; `[self]` without a split."""
        if self.split_into is None:
            return [self]
        return self.split_into[1].parts() + self.split_into[2].parts()

    def spans(
        self, start: int, stop: int, first_index: int = 0
    ) -> Iterator[tuple[BatchDelivery, range]]:
        """Yield the messages `start` to `stop` (exclusive), grouped by their current delivery.

        All indices, also those in the yielded ranges, count from the first message of the batch
        before its splits. Only recursive calls pass `first_index`, the index of this delivery's
        first message.
        """
        if start >= stop:
            return
        if self.split_into is None:
            yield self, range(start, stop)
            return
        first_count, first, second = self.split_into
        middle = first_index + first_count
        yield from first.spans(start, min(stop, middle), first_index)
        yield from second.spans(max(start, middle), stop, middle)

    def locate(self, index: int) -> tuple[BatchDelivery, int]:
        """Return the current delivery of message `index`, after all splits, and its index there."""
        delivery = self
        while delivery.split_into is not None:
            first_count, first, second = delivery.split_into
            if index < first_count:
                delivery = first
            else:
                delivery, index = second, index - first_count
        return delivery, index

    def note_timestamp(self, index: int, timestamp_ms: int) -> None:
        """Note the timestamp of message `index`, and of those after it until another is noted."""
        timestamps = self.run_timestamps_ms
        if not timestamps or timestamps[-1] != timestamp_ms:
            self.run_starts.append(index)
            timestamps.append(timestamp_ms)

    def timestamp_at(self, index: int) -> int:
        """Return the timestamp noted for message `index` (before splits), else -1."""
        number = bisect_right(self.run_starts, index)
        return self.run_timestamps_ms[number - 1] if number else -1

    def metadata(self, index: int, timestamp_ms: int) -> RecordMetadata:
        """Make the `RecordMetadata` of message `index` of the acknowledged batch."""
        base_offset = self.base_offset
        topic_partition = self.topic_partition
        timestamp: int | None = None
        timestamp_type: int | None = None
        if self.has_timestamps:
            if self.timestamp_ms < 0:
                timestamp, timestamp_type = timestamp_ms, 0
            else:
                timestamp, timestamp_type = self.timestamp_ms, 1
        return _new_tuple(
            RecordMetadata,
            (
                topic_partition[0],
                topic_partition[1],
                topic_partition,
                base_offset + index if base_offset >= 0 else -1,
                timestamp,
                timestamp_type,
                None,
            ),
        )

    def watch(self, future: PureDeliveryFuture) -> None:
        """Run the callbacks of a future of this batch once the batch is acknowledged or failed."""
        if self.done:
            self.schedule_callbacks(future)
        else:
            # Compiled futures don't take part in cycle collection. This cycle (delivery, future,
            # callbacks) ends when the batch is done, at the latest in the producer's `stop()`.
            self.with_callbacks.append(future)

    def schedule_callbacks(self, future: PureDeliveryFuture) -> None:
        """Run the callbacks of a completed future soon."""
        assert self._callback_queue is not None
        self._callback_queue.add((future,))

    def _resolve(self) -> None:
        self.done = True
        futures, self.with_callbacks = self.with_callbacks, []
        if futures:
            assert self._callback_queue is not None
            self._callback_queue.add(futures)


Callback = Callable[["PureDeliveryFuture"], object]

if TYPE_CHECKING:
    # Type checkers accept a `DeliveryFuture` for `asyncio.Future[RecordMetadata]` and as an
    # argument of `asyncio.wait`.
    _Future = asyncio.Future[RecordMetadata]
else:
    _Future = object


class PureDeliveryFuture(_Future):
    """The future of one message; the producer makes it, `send()` returns it.

    The result is a `RecordMetadata`, or None with acks=0, as in aiokafka; `send()` documents the
    errors. The future works with `await`, `asyncio.gather`, `wait`, `wait_for`, `shield`,
    `isfuture` and callbacks as an `asyncio.Future` does, but isn't an instance of that class, and
    can't be referenced weakly. A task that awaits many completed futures in a row yields to the
    event loop now and then.

    Args:
        delivery: the outcome of the message's batch.
        index: the message's index in the batch; ascends from one future of a batch to the next.
        timestamp_ms: the message's timestamp; -1 in message format 0.
    """

    __slots__ = (
        "_added_callbacks",
        "_asyncio_future_blocking",
        "_cancelled_by",
        "_delivery",
        "_error",
        "_index",
    )

    def __init__(self, delivery: BatchDelivery, index: int, timestamp_ms: int) -> None:
        self._delivery = delivery
        self._index = index
        if timestamp_ms >= 0:
            delivery.note_timestamp(index, timestamp_ms)
        self._error: BaseException | None = None  # this future's copy of the batch's error
        self._cancelled_by: tuple[object, ...] | None = None  # the arguments of the CancelledError
        self._added_callbacks: list[tuple[Callback, contextvars.Context]] | None = None
        self._asyncio_future_blocking = False

    def __repr__(self) -> str:
        topic, partition = self._delivery.topic_partition
        return f"<DeliveryFuture {topic}/{partition} {self._status()}>"

    def _status(self) -> str:
        if self.cancelled():
            return "cancelled"
        delivery = self._current_delivery()
        if not delivery.done:
            return "pending"
        if delivery.error is not None:
            return f"failed: {delivery.error}"
        return "sent" if delivery.base_offset < 0 else f"offset {self.result().offset}"

    def _current_delivery(self) -> BatchDelivery:
        delivery = self._delivery
        # The message belongs to this one after all splits so far.
        return delivery if delivery.split_into is None else delivery.locate(self._index)[0]

    # --- the interface of asyncio.Future ----------------------------------------------------------

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        global _until_check  # noqa: PLW0603
        if not self.done():
            self._asyncio_future_blocking = True
            yield self
        _until_check -= 1
        if _until_check <= 0:
            _until_check = _CHECK_EVERY
            loop_yield = self._delivery.loop_yield
            if loop_yield is not None and loop_yield.pop_due():
                yield
        return self.result()

    __iter__ = __await__

    def done(self) -> bool:
        """Return True if there is a result or an error, or the future was cancelled."""
        return self._current_delivery().done or self._cancelled_by is not None

    def cancelled(self) -> bool:
        """Return True if the future was cancelled."""
        return self._cancelled_by is not None

    def result(self) -> RecordMetadata:
        """Return the partition and the offset that the message was stored at; None with acks=0.

        Raises:
            asyncio.InvalidStateError: the batch isn't acknowledged yet.
            asyncio.CancelledError: the future was cancelled.
            KafkaError: the batch failed.
        """
        origin, index = self._delivery, self._index
        delivery = origin
        if delivery.split_into is not None:
            delivery, index = delivery.locate(index)
        if delivery.done and delivery.error is None and self._cancelled_by is None:
            if delivery.base_offset < 0:
                # The annotation omits None: else type checkers would demand a check with other
                # acks, too.
                return None  # type: ignore[return-value]
            return delivery.metadata(index, origin.timestamp_at(self._index))
        error = self.exception()
        assert error is not None
        raise error.with_traceback(None)

    def exception(self) -> BaseException | None:
        """Return the error that the batch failed with; None if it was acknowledged.

        Raises:
            asyncio.InvalidStateError: the batch isn't acknowledged yet.
            asyncio.CancelledError: the future was cancelled.
        """
        if self._cancelled_by is not None:
            raise self._make_cancelled_error()
        delivery = self._current_delivery()
        if not delivery.done:
            raise asyncio.InvalidStateError("the message isn't acknowledged yet")
        if delivery.error is not None and self._error is None:
            # A copy per future: one object raised in many places would collect all tracebacks.
            self._error = copy.copy(delivery.error)
        return self._error

    def cancel(self, msg: object = None) -> bool:
        """Cancel the future, not the message: the producer sends that all the same."""
        if self.done():
            return False
        self._cancelled_by = () if msg is None else (msg,)
        if self._added_callbacks is not None:
            self._delivery.schedule_callbacks(self)
        return True

    def add_done_callback(
        self, fn: Callback, *, context: contextvars.Context | None = None
    ) -> None:
        """Call `fn` with this future, in the event loop, once the future is done."""
        if context is None:
            context = _copy_context()
        if self._added_callbacks is not None:
            self._added_callbacks.append((fn, context))
            return
        self._added_callbacks = [(fn, context)]
        if self._cancelled_by is not None:
            self._delivery.schedule_callbacks(self)
        else:
            self._current_delivery().watch(self)

    def remove_done_callback(self, fn: Callback) -> int:
        """Remove a callback and return how many times it had been added."""
        if self._added_callbacks is None:
            return 0
        kept = [entry for entry in self._added_callbacks if entry[0] != fn]
        removed = len(self._added_callbacks) - len(kept)
        self._added_callbacks[:] = kept
        return removed

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the producer's event loop."""
        loop = self._delivery.loop
        assert loop is not None
        return loop

    # Private attributes of asyncio.Future that gather() and Task read too.

    @property
    def _cancel_message(self) -> object:
        return self._cancelled_by[0] if self._cancelled_by else None

    def _make_cancelled_error(self) -> asyncio.CancelledError:
        return asyncio.CancelledError(*(self._cancelled_by or ()))

    def _run_callbacks(self) -> None:
        """Run each callback in its own context; raise only SystemExit and KeyboardInterrupt."""
        callbacks = self._added_callbacks
        if callbacks is None:
            return  # the callbacks ran after `cancel()`, before the batch was completed
        self._added_callbacks = None
        for fn, context in callbacks:
            try:
                context.run(fn, self)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                self.get_loop().call_exception_handler(
                    {"message": f"exception in callback {fn!r}", "exception": error}
                )
