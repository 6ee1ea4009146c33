"""The future of one message, as light as it can be: `send()` returns it.

It holds no result of its own, only its place in a batch (`delivery`). It does what `asyncio.Future`
does for those who wait (await, gather, wait, wait_for, shield, callbacks, `asyncio.isfuture`), and
more: a task that awaits one after the other that is done gives others turns of the loop (`turns`).
Law: cancelling it, or a task that awaits it, never touches the batch.

`DeliveryFuture` is the compiled one (`_producer_c`) where the compiled message set is in use, else
`PureDeliveryFuture`, the reference.
"""

from __future__ import annotations

import asyncio
import contextvars
import copy
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final

from aiokafka08.producer.compiled import compiled
from aiokafka08.producer.delivery import Delivery
from aiokafka08.structs import RecordMetadata

Callback = Callable[["PureDeliveryFuture"], object]

_LOOK_EVERY: Final = 256
"""So many futures are awaited between two questions whether others want a turn of the loop."""

_until_look = _LOOK_EVERY
_copy_context = contextvars.copy_context

if TYPE_CHECKING:
    # For annotations such as `asyncio.Future[RecordMetadata]`, and those of `asyncio.wait`.
    _Future = asyncio.Future[RecordMetadata]
else:
    _Future = object


class PureDeliveryFuture(_Future):
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
        if self._delivery.halves is not None:
            self._delivery, self._index = self._delivery.at(self._index)
        return self._delivery

    # --- what asyncio.Future has ------------------------------------------------------------------

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        global _until_look  # noqa: PLW0603
        if not self.done():
            self._asyncio_future_blocking = True
            yield self
        _until_look -= 1
        if _until_look <= 0:
            _until_look = _LOOK_EVERY
            turns = self._place().turns
            if turns is not None and turns.pop_due():
                yield
        return self.result()

    __iter__ = __await__

    def done(self) -> bool:
        """Whether there is a result or an error, or it was cancelled."""
        delivery = self._delivery
        if delivery.halves is not None:
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
        if delivery.halves is not None:
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
            self._delivery.tell_soon(self)
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
        if self._own is not None:
            self._delivery.tell_soon(self)
        else:
            self._place().watch(self)

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

    # What gather() and Task look at beside the public names.

    @property
    def _cancel_message(self) -> object:
        return self._own.args[0] if self._own is not None and self._own.args else None

    def _make_cancelled_error(self) -> BaseException:
        return self._own if self._own is not None else asyncio.CancelledError()

    def _tell(self) -> None:
        """Run the callbacks, each in its own context; lets out only what ends the program."""
        callbacks = self._to_call
        if callbacks is None:
            return  # it was cancelled, and has told so
        self._to_call = None
        for fn, context in callbacks:
            try:
                context.run(fn, self)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                self.get_loop().call_exception_handler(
                    {"message": f"exception in callback {fn!r}", "exception": error}
                )


_compiled = compiled()
if TYPE_CHECKING or _compiled is None:
    DeliveryFuture = PureDeliveryFuture
else:
    DeliveryFuture = _compiled.DeliveryFuture
