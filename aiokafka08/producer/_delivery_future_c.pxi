# The compiled twin of `batch_delivery.PureDeliveryFuture`; part of `_producer_c.pyx`.
#
# The appender (`_appender_c.pxi`) and `intake` make the futures, and `CallbackQueue` in
# `batch_delivery` calls `run_callbacks()`.
#
# A program may keep millions of futures, so a future has 32 bytes: a link to its batch's delivery,
# and the message's index there. What most futures never need is in a `FutureState`: a future that
# needs one links to it, and the state links to the delivery.
#
# Invariant: neither class takes part in garbage collection, which would cost 16 bytes and the
# collector's time for each future. So no reference cycle may lead through a future for good. The
# callbacks are dropped when they have run, and the producer ends each batch, at the latest in
# `stop()`. An error, whose traceback may lead back to the future, is referenced weakly.

cdef enum:
    CHECK_EVERY_AWAIT = 256

cdef int until_check = CHECK_EVERY_AWAIT


@cython.final
@cython.no_gc
@cython.freelist(1024)
cdef class FutureState:
    cdef object delivery
    cdef object fn  # the first callback, in most cases the only one
    cdef object context
    cdef object more  # a list of the other callbacks, with their contexts
    cdef object error  # a weak reference to the future's copy of the batch's error
    cdef object cancelled_by  # the arguments of the CancelledError


@cython.final
@cython.no_gc
@cython.auto_pickle(False)
cdef class DeliveryFuture:
    cdef object _link
    cdef int _index
    cdef public bint _asyncio_future_blocking

    def __init__(self, delivery, int index, int64_t timestamp_ms):
        link_to(self, delivery, index)
        if timestamp_ms >= 0:
            delivery.note_timestamp(index, timestamp_ms)

    def __repr__(self):
        topic, partition = origin_of(self).topic_partition
        return f"<DeliveryFuture {topic}/{partition} {self._status()}>"

    def _status(self):
        if self.cancelled():
            return "cancelled"
        delivery = current(self)
        if not delivery.done:
            return "pending"
        if delivery.error is not None:
            return f"failed: {delivery.error}"
        return "sent" if delivery.base_offset < 0 else f"offset {self.result().offset}"

    def _current_delivery(self):
        return current(self)

    # --- the interface of asyncio.Future ----------------------------------------------------------

    # The future is its own iterator: the only state of a separate iterator would be whether the
    # future is done, which the future knows.

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        if is_done(self):
            if yield_is_due(origin_of(self)):
                return None
            raise StopIteration(result_of(self))
        self._asyncio_future_blocking = True
        return self

    def done(self):
        return is_done(self)

    def cancelled(self):
        return cancelled_by(self) is not None

    def result(self):
        return result_of(self)

    def exception(self):
        cdef FutureState state
        cdef object delivery, error
        if cancelled_by(self) is not None:
            raise self._make_cancelled_error()
        delivery = current(self)
        if not delivery.done:
            raise invalid_state("the message isn't acknowledged yet")
        if delivery.error is None:
            return None
        state = state_of(self)
        error = None if state.error is None else state.error()
        if error is None:
            error = copy.copy(delivery.error)
            state.error = weak_reference(error)
        return error

    def cancel(self, msg=None):
        cdef FutureState state
        if is_done(self):
            return False
        state = state_of(self)
        state.cancelled_by = () if msg is None else (msg,)
        if state.fn is not None:
            state.delivery.schedule_callbacks(self)
        return True

    def add_done_callback(self, fn, *, context=None):
        cdef FutureState state = state_of(self)
        cdef object delivery
        if context is None:
            context = PyContext_CopyCurrent()
        if state.fn is not None:
            if state.more is None:
                state.more = []
            (<list>state.more).append((fn, context))
            return
        state.fn = fn
        state.context = context
        delivery = current(self)
        if state.cancelled_by is not None:
            delivery.schedule_callbacks(self)
        elif get(delivery, delivery_done) is True:
            delivery.watch(self)
        else:
            (<list?>get(delivery, delivery_with_callbacks)).append(self)

    def remove_done_callback(self, fn):
        cdef FutureState state
        cdef list kept, entries
        if type(self._link) is not FutureState:
            return 0
        state = <FutureState>self._link
        if state.fn is None:
            return 0
        entries = [(state.fn, state.context)] + (state.more or [])
        kept = [entry for entry in entries if entry[0] != fn]
        state.more = kept[1:] or None
        if kept:
            state.fn, state.context = kept[0]
        else:
            # The delivery still has this future in `with_callbacks`. If `fn` were None, the next
            # add_done_callback() would append the future there a second time.
            state.fn = no_callback
        return len(entries) - len(kept)

    def get_loop(self):
        return get(origin_of(self), delivery_loop)

    @property
    def _cancel_message(self):
        arguments = cancelled_by(self)
        return arguments[0] if arguments else None

    def _make_cancelled_error(self):
        return cancelled_type(*(cancelled_by(self) or ()))

    def _run_callbacks(self):
        run_callbacks_of(self)


cdef DeliveryFuture new_future(object delivery, Py_ssize_t index):
    """Make a future without its timestamp."""
    cdef DeliveryFuture future = DeliveryFuture.__new__(DeliveryFuture)
    link_to(future, delivery, <int>index)
    return future


cdef inline int link_to(DeliveryFuture future, object delivery, int index) except -1:
    if type(delivery) is not delivery_type:
        raise TypeError(f"delivery is {type(delivery).__name__}, not BatchDelivery")
    future._link = delivery
    future._index = index
    return 0


cdef inline object origin_of(DeliveryFuture future):
    """Return the delivery that the future was made with."""
    cdef object link = future._link
    if type(link) is FutureState:
        return (<FutureState>link).delivery
    if type(link) is not delivery_type:
        raise TypeError("this DeliveryFuture was made without __init__()")
    return link


cdef inline object current(DeliveryFuture future):
    """Return the delivery that the message belongs to after all splits so far."""
    cdef object origin = origin_of(future)
    if get(origin, delivery_split) is None:
        return origin
    return origin.locate(future._index)[0]


cdef inline object cancelled_by(DeliveryFuture future):
    cdef object link = future._link
    return (<FutureState>link).cancelled_by if type(link) is FutureState else None


cdef inline bint is_done(DeliveryFuture future) except -1:
    return get(current(future), delivery_done) is True or cancelled_by(future) is not None


cdef FutureState state_of(DeliveryFuture future):
    """Return the future's state; make it if there is none."""
    cdef FutureState state
    if type(future._link) is FutureState:
        return <FutureState>future._link
    state = FutureState.__new__(FutureState)
    state.delivery = origin_of(future)
    future._link = state
    return state


cdef object result_of(DeliveryFuture future):
    cdef object origin = origin_of(future), delivery = origin, timestamp = None, kind = None
    cdef int64_t base, at, index = future._index
    if get(origin, delivery_split) is not None:
        delivery, index = origin.locate(index)
    if (
        get(delivery, delivery_done) is not True
        or get(delivery, delivery_error) is not None
        or cancelled_by(future) is not None
    ):
        raise future.exception().with_traceback(None)
    base = get(delivery, delivery_base)
    if base < 0:
        return None
    if get(delivery, delivery_has_timestamps) is True:
        at = get(delivery, delivery_timestamp)
        timestamp, kind = (timestamp_at(origin, future._index), 0) if at < 0 else (at, 1)
    return record_metadata(get(delivery, delivery_partition), base + index, timestamp, kind)


cdef object last_made = None  # the `RecordMetadata` that was made last


cdef object record_metadata(object topic_partition, object offset, object timestamp, object kind):
    """Make a `RecordMetadata`, of the last one if that isn't referenced any more.

    CPython reuses the tuples of zip() and enumerate() in the same way.
    """
    global last_made
    cdef object made = last_made
    if made is None or Py_REFCNT(made) != 2:  # `last_made` and `made`
        made = PyType_GenericAlloc(<PyTypeObject *>metadata_type, 7)
        last_made = made
    forget_hash(made)
    topic, partition = topic_partition
    fill(made, 0, topic)
    fill(made, 1, partition)
    fill(made, 2, topic_partition)
    fill(made, 3, offset)
    fill(made, 4, timestamp)
    fill(made, 5, kind)
    fill(made, 6, None)
    return made


cdef inline void fill(object made, Py_ssize_t index, object value) noexcept:
    cdef PyObject *before = PyTuple_GET_ITEM(made, index)
    Py_INCREF(value)
    PyTuple_SET_ITEM(made, index, value)
    Py_XDECREF(before)


cdef object timestamp_at(object delivery, int index):
    """Do what `BatchDelivery.timestamp_at` does."""
    cdef list starts = <list?>get(delivery, delivery_run_starts)
    cdef Py_ssize_t low = 0, high = len(starts), middle
    while low < high:
        middle = (low + high) // 2
        if <int>starts[middle] <= index:
            low = middle + 1
        else:
            high = middle
    return (<list?>get(delivery, delivery_run_timestamps))[low - 1] if low else -1


cdef int note_timestamp(object delivery, Py_ssize_t index, int64_t timestamp_ms) except -1:
    """Do what `BatchDelivery.note_timestamp` does."""
    cdef list timestamps = <list?>get(delivery, delivery_run_timestamps)
    cdef Py_ssize_t count = len(timestamps)
    if not count or <int64_t>timestamps[count - 1] != timestamp_ms:
        (<list?>get(delivery, delivery_run_starts)).append(index)
        timestamps.append(timestamp_ms)
    return 0


cdef inline bint yield_is_due(object delivery) except -1:
    """Return True if awaiting a completed future should first yield to the event loop."""
    global until_check
    cdef object loop_yield
    until_check -= 1
    if until_check > 0:
        return False
    until_check = CHECK_EVERY_AWAIT
    loop_yield = get(delivery, delivery_loop_yield)
    return loop_yield is not None and loop_yield.pop_due()


def no_callback(future):
    pass


def run_callbacks(futures, Py_ssize_t limit):
    cdef Py_ssize_t count = min(<Py_ssize_t>len(futures), limit), done
    cdef object pop = futures.popleft, future
    for done in range(count):
        future = pop()
        if type(future) is DeliveryFuture:
            run_callbacks_of(<DeliveryFuture>future)
        else:
            future._run_callbacks()


cdef int run_callbacks_of(DeliveryFuture future) except -1:
    cdef FutureState state
    cdef object fn, context, more
    if type(future._link) is not FutureState:
        return 0
    state = <FutureState>future._link
    fn, context, more = state.fn, state.context, state.more
    if fn is None:
        return 0
    state.fn = state.context = state.more = None
    if state.cancelled_by is None and state.error is None:
        future._link = state.delivery
    state = None
    call(future, fn, context)
    if more is not None:
        for fn, context in <list>more:
            call(future, fn, context)
    return 0


cdef int call(DeliveryFuture future, object fn, object context) except -1:
    try:
        PyContext_Enter(context)
        try:
            fn(future)
        finally:
            PyContext_Exit(context)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        future.get_loop().call_exception_handler(
            {"message": f"exception in callback {fn!r}", "exception": error}
        )
    return 0


cdef PySendResult send_to(PyObject *self, PyObject *value, PyObject **result) except PYGEN_ERROR:
    """Do one step of `await` without a StopIteration that carries the result."""
    cdef DeliveryFuture future = <DeliveryFuture>self
    cdef object outcome
    cdef bint due
    result[0] = NULL
    if is_done(future):
        due = yield_is_due(origin_of(future))
        outcome = None if due else result_of(future)
        Py_INCREF(outcome)
        result[0] = <PyObject *>outcome
        return PYGEN_NEXT if due else PYGEN_RETURN
    future._asyncio_future_blocking = True
    Py_INCREF(future)
    result[0] = self
    return PYGEN_NEXT


(<PyTypeObject *>DeliveryFuture).tp_as_async.am_send = <sendfunc>send_to
