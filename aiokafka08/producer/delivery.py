"""What became of messages: one `Delivery` per batch, a light `DeliveryFuture` per message.

`send()` returns a `DeliveryFuture`. It holds no result of its own, only its place in a batch: so a
batch of ten thousand messages is resolved in one step, and what nobody looks at costs nothing.
It does what `asyncio.Future` does for those who wait (await, gather, wait, wait_for, shield,
callbacks, `asyncio.isfuture`). Law: cancelling it, or a task that awaits it, never touches the
batch. A failure that nobody asks about is told by one `BatchFailed` event, not per message.
"""

from __future__ import annotations

import asyncio
import contextvars
import copy
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final

from aiokafka08.errors import KafkaError
from aiokafka08.structs import RecordMetadata, TopicPartition

_CALLBACKS_PER_TURN: Final = 256
"""Callbacks run in one turn of the loop: others get theirs in between (about a millisecond)."""

_new_tuple = tuple.__new__
_copy_context = contextvars.copy_context

Callback = Callable[["DeliveryFuture"], object]
_Waiter = tuple["asyncio.Future[RecordMetadata]", int, int]
"""A future of asyncio's own for one message: itself, the message's index and timestamp."""


class Delivery:
    """The fate of one batch. Decided once: acknowledged, failed, or divided into two others.

    Attributes:
        done: it is acknowledged or failed.
        base_offset: that of the first message; -1 with acks=0.
        timestamp_ms: the broker's, under LogAppendTime; else -1.
        has_timestamps: the batch was stored in message format 1.
        error: why it failed.
    """

    __slots__ = (
        "_finished",
        "_halves",
        "_is_finished",
        "_waiting",
        "_watched",
        "base_offset",
        "done",
        "error",
        "has_timestamps",
        "loop",
        "timestamp_ms",
        "topic_partition",
    )

    def __init__(
        self, topic_partition: TopicPartition, loop: asyncio.AbstractEventLoop | None
    ) -> None:
        self.topic_partition = topic_partition
        self.loop = loop
        self.done = False
        self.base_offset = -1
        self.timestamp_ms = -1
        self.has_timestamps = False
        self.error: KafkaError | None = None
        self._halves: tuple[int, Delivery, Delivery] | None = None
        self._watched: list[DeliveryFuture] | None = None
        self._waiting: list[_Waiter] | None = None
        self._finished: asyncio.Future[None] | None = None
        self._is_finished = False

    def acknowledge(self, base_offset: int, timestamp_ms: int, *, has_timestamps: bool) -> None:
        """The batch is stored (or, with acks=0, written)."""
        if not self.done:
            self.base_offset = base_offset
            self.timestamp_ms = timestamp_ms
            self.has_timestamps = has_timestamps
            self._decide()

    def fail(self, error: KafkaError) -> None:
        """The batch is given up."""
        if not self.done:
            self.error = error
            self._decide()

    def divide(self, first_count: int, first: Delivery, second: Delivery) -> None:
        """The batch was split; the first `first_count` messages now belong to `first`."""
        self._halves = (first_count, first, second)
        watched, self._watched = self._watched, None
        for future in watched or ():
            future._place()._watch(future)
        waiting, self._waiting = self._waiting, None
        for waiter, index, timestamp_ms in waiting or ():
            part, place = self.at(index)
            part._wait((waiter, place, timestamp_ms))
        self.finish()

    def finish(self) -> None:
        """Nothing more will happen to the batch: with acks=0 that is later than `done`."""
        self._is_finished = True
        if self._finished is not None and not self._finished.done():
            self._finished.set_result(None)

    async def wait_finished(self) -> None:
        """Wait until the batch, or all that it was split into, is finished."""
        if not self._is_finished:
            if self._finished is None:
                self._finished = asyncio.get_running_loop().create_future()
            await asyncio.wait((self._finished,))  # others may wait for it too: not cancelled
        if self._halves is not None:
            await self._halves[1].wait_finished()
            await self._halves[2].wait_finished()

    def parts(self) -> list[Delivery]:
        """Itself, or what it was split into."""
        if self._halves is None:
            return [self]
        return self._halves[1].parts() + self._halves[2].parts()

    def at(self, index: int) -> tuple[Delivery, int]:
        """The delivery that message `index` belongs to now, and its index there."""
        delivery = self
        while delivery._halves is not None:
            first_count, first, second = delivery._halves
            if index < first_count:
                delivery = first
            else:
                delivery, index = second, index - first_count
        return delivery, index

    def metadata(self, index: int, timestamp_ms: int) -> RecordMetadata:
        """Where message `index` of the acknowledged batch went."""
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

    def _decide(self) -> None:
        self.done = True
        watched, self._watched = self._watched, None
        if watched is not None:
            assert self.loop is not None
            self.loop.call_soon(_run_callbacks, watched, 0)
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._resolve(waiting, 0)

    def _wait(self, waiter: _Waiter) -> None:
        if self._waiting is None:
            self._waiting = [waiter]
        else:
            self._waiting.append(waiter)

    def _resolve(self, waiting: list[_Waiter], start: int) -> None:
        stop = min(start + _CALLBACKS_PER_TURN, len(waiting))
        error = self.error
        for future, index, timestamp_ms in waiting[start:stop]:
            if future.done():
                continue  # its task was cancelled
            if error is None:
                future.set_result(self.metadata(index, timestamp_ms))
            else:
                future.set_exception(copy.copy(error))
        if stop < len(waiting):
            assert self.loop is not None
            self.loop.call_soon(self._resolve, waiting, stop)

    def _watch(self, future: DeliveryFuture) -> None:
        if self.done:
            assert self.loop is not None
            self.loop.call_soon(_run_callbacks, [future], 0)
        elif self._watched is None:
            self._watched = [future]
        else:
            self._watched.append(future)


if TYPE_CHECKING:
    # For annotations such as `asyncio.Future[RecordMetadata]`, and those of `asyncio.wait`.
    _Future = asyncio.Future[RecordMetadata]
else:
    _Future = object


class DeliveryFuture(_Future):
    """The fate of one message, as `asyncio.Future` would tell it; made by the producer.

    The result is a `RecordMetadata`. Errors are those of `send()`'s docstring. It stands in for a
    future wherever one is awaited or waited for, but is not an instance of `asyncio.Future`.
    """

    __slots__ = (
        "__weakref__",
        "_asyncio_future_blocking",
        "_delivery",
        "_index",
        "_own",
        "_timestamp_ms",
        "_to_call",
    )

    def __init__(self, delivery: Delivery, index: int, timestamp_ms: int) -> None:
        self._delivery = delivery
        self._index = index
        self._timestamp_ms = timestamp_ms
        # None; its own copy of the batch's error; or how it was cancelled
        self._own: BaseException | None = None
        self._to_call: list[tuple[Callback, contextvars.Context]] | None = None
        self._asyncio_future_blocking = False

    def __repr__(self) -> str:
        topic, partition = self._delivery.topic_partition
        return f"<DeliveryFuture {topic}/{partition} {self._status()}>"

    def _status(self) -> str:
        if self.cancelled():
            return "cancelled"
        delivery = self._place()
        if not delivery.done:
            return "pending"
        if delivery.error is not None:
            return f"failed: {delivery.error}"
        return f"offset {self.result().offset}"

    def _place(self) -> Delivery:
        """The delivery it belongs to, after what splits there were."""
        if self._delivery._halves is not None:
            self._delivery, self._index = self._delivery.at(self._index)
        return self._delivery

    # --- what asyncio.Future has ------------------------------------------------------------------

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        if not self.done():
            self._asyncio_future_blocking = True
            yield self
        return self.result()

    __iter__ = __await__

    def done(self) -> bool:
        """Whether there is a result or an error, or it was cancelled."""
        delivery = self._delivery
        if delivery._halves is not None:
            delivery = self._place()
        return delivery.done or self._own is not None

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self._own.__class__ is asyncio.CancelledError

    def result(self) -> RecordMetadata:
        """Where the message went.

        Raises:
            asyncio.InvalidStateError: it isn't known yet.
            asyncio.CancelledError: it was cancelled.
            KafkaError: the message was given up.
        """
        delivery = self._delivery
        if delivery._halves is not None:
            delivery = self._place()
        if delivery.done and delivery.error is None and self._own is None:
            return delivery.metadata(self._index, self._timestamp_ms)
        error = self.exception()
        assert error is not None
        raise error.with_traceback(None)

    def exception(self) -> BaseException | None:
        """Why the message was given up; None if it wasn't.

        Raises:
            asyncio.InvalidStateError: it isn't known yet.
            asyncio.CancelledError: it was cancelled.
        """
        if self._own is not None:
            if self.cancelled():
                raise self._own.with_traceback(None)
            return self._own
        delivery = self._place()
        if not delivery.done:
            raise asyncio.InvalidStateError("the message isn't acknowledged yet")
        if delivery.error is not None:
            # Its own copy: raised in many places, one object would gather all their tracebacks.
            self._own = copy.copy(delivery.error)
        return self._own

    def cancel(self, msg: object = None) -> bool:
        """Give up waiting for it; the message is sent all the same."""
        if self.done():
            return False
        self._own = asyncio.CancelledError() if msg is None else asyncio.CancelledError(msg)
        if self._to_call is not None:
            self.get_loop().call_soon(_run_callbacks, [self], 0)
        return True

    def add_done_callback(
        self, fn: Callback, *, context: contextvars.Context | None = None
    ) -> None:
        """Call `fn` with this future, in the event loop, when it is done."""
        if context is None:
            context = _copy_context()
        if self._to_call is not None:
            self._to_call.append((fn, context))
            return
        self._to_call = [(fn, context)]
        delivery = self._delivery
        watched = delivery._watched
        if watched is not None and self._own is None:  # it is pending, and not split
            watched.append(self)
        elif self._own is not None:
            self.get_loop().call_soon(_run_callbacks, [self], 0)
        else:
            self._place()._watch(self)

    def remove_done_callback(self, fn: Callback) -> int:
        """Forget a callback; says how often it was there."""
        if self._to_call is None:
            return 0
        kept = [entry for entry in self._to_call if entry[0] != fn]
        removed = len(self._to_call) - len(kept)
        self._to_call[:] = kept
        return removed

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The producer's event loop."""
        loop = self._delivery.loop
        assert loop is not None
        return loop

    def as_future(self) -> asyncio.Future[RecordMetadata]:
        """The same as a new `asyncio.Future`: for one task that awaits it at once, it is cheaper
        to wake up by. This one must not be done."""
        future: asyncio.Future[RecordMetadata] = self.get_loop().create_future()
        self._place()._wait((future, self._index, self._timestamp_ms))
        return future

    # What gather() and Task look at beside the public names.

    @property
    def _cancel_message(self) -> object:
        return self._own.args[0] if self._own is not None and self._own.args else None

    def _make_cancelled_error(self) -> BaseException:
        return self._own if self._own is not None else asyncio.CancelledError()


def _run_callbacks(futures: list[DeliveryFuture], start: int) -> None:
    """Run the callbacks of many futures in one turn of the loop, instead of one turn's slot each.

    A callback may wake a task, which then runs at once, in its own context.
    """
    stop = min(start + _CALLBACKS_PER_TURN, len(futures))
    for index in range(start, stop):
        future = futures[index]
        callbacks = future._to_call
        if callbacks is None:
            continue  # it was cancelled, and has told so
        future._to_call = None
        for fn, context in callbacks:
            try:
                context.run(fn, future)
            except (SystemExit, KeyboardInterrupt):
                future.get_loop().call_soon(_run_callbacks, futures, index + 1)
                raise
            except BaseException as error:
                future.get_loop().call_exception_handler(
                    {"message": f"exception in callback {fn!r}", "exception": error}
                )
    if stop < len(futures):
        futures[stop].get_loop().call_soon(_run_callbacks, futures, stop)
