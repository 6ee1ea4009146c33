# The compiled twin of `batch_delivery.PureDeliveryFuture`; part of `_producer_c.pyx`.
#
# The appender (`_appender_c.pxi`) and `intake` make the futures.

cdef enum:
    CHECK_EVERY_AWAIT = 256

cdef int until_check = CHECK_EVERY_AWAIT


# The garbage collector must not clear `_delivery`: `get()` reads it without checking its type.
@cython.no_gc_clear
cdef class DeliveryFuture:
    cdef object _delivery
    cdef int64_t _timestamp_ms
    cdef object _own_error
    cdef object _fn  # the first callback, in most cases the only one
    cdef object _context
    cdef list _more
    cdef object __weakref__
    cdef int _index
    cdef public bint _asyncio_future_blocking

    def __cinit__(self, delivery, int index, int64_t timestamp_ms):
        if type(delivery) is not delivery_type:
            raise TypeError(f"delivery is {type(delivery).__name__}, not BatchDelivery")
        self._delivery = delivery
        self._index = index
        self._timestamp_ms = timestamp_ms
        # A future can be part of a reference cycle only once it has a callback or an `_own_error`.
        # Most futures never get one, so the garbage collector doesn't track them until then.
        PyObject_GC_UnTrack(<PyObject *>self)

    cdef inline void _track(self) noexcept:
        if not PyObject_GC_IsTracked(<PyObject *>self):
            PyObject_GC_Track(<PyObject *>self)

    def __repr__(self):
        topic, partition = self._delivery.topic_partition
        return f"<DeliveryFuture {topic}/{partition} {self._status()}>"

    def _status(self):
        if self.cancelled():
            return "cancelled"
        delivery = self._current_delivery()
        if not delivery.done:
            return "pending"
        if delivery.error is not None:
            return f"failed: {delivery.error}"
        return f"offset {self.result().offset}"

    cpdef object _current_delivery(self):
        if get(self._delivery, delivery_split) is not None:
            self._delivery, self._index = self._delivery.locate(self._index)
        return self._delivery

    # --- the interface of asyncio.Future ----------------------------------------------------------

    cdef inline bint _is_done(self) except -1:
        return get(self._current_delivery(), delivery_done) is True or self._own_error is not None

    # The future is its own iterator: the only state of a separate iterator would be whether the
    # future is done, which the future knows.

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        if self._is_done():
            if yield_is_due(self._delivery):
                return None
            raise StopIteration(self._result())
        self._asyncio_future_blocking = True
        return self

    def done(self):
        return self._is_done()

    cpdef bint cancelled(self) except -1:
        return type(self._own_error) is cancelled_type

    cdef object _result(self):
        cdef object delivery = self._current_delivery(), topic_partition, made
        cdef object timestamp = None, kind = None
        cdef int64_t base, at
        if (
            get(delivery, delivery_done) is not True
            or get(delivery, delivery_error) is not None
            or self._own_error is not None
        ):
            raise self.exception().with_traceback(None)
        topic_partition = get(delivery, delivery_partition)
        base = get(delivery, delivery_base)
        if get(delivery, delivery_has_timestamps):
            at = get(delivery, delivery_timestamp)
            timestamp, kind = (self._timestamp_ms, 0) if at < 0 else (at, 1)
        made = PyType_GenericAlloc(<PyTypeObject *>metadata_type, 7)
        topic, partition = topic_partition
        fill(made, 0, topic)
        fill(made, 1, partition)
        fill(made, 2, topic_partition)
        fill(made, 3, base + self._index if base >= 0 else -1)
        fill(made, 4, timestamp)
        fill(made, 5, kind)
        fill(made, 6, None)
        return made

    def result(self):
        return self._result()

    cpdef object exception(self):
        cdef object delivery
        if self._own_error is not None:
            if self.cancelled():
                raise self._own_error.with_traceback(None)
            return self._own_error
        delivery = self._current_delivery()
        if not delivery.done:
            raise invalid_state("the message isn't acknowledged yet")
        if delivery.error is not None:
            self._own_error = copy.copy(delivery.error)
            self._track()
        return self._own_error

    def cancel(self, msg=None):
        if self._is_done():
            return False
        self._own_error = cancelled_type() if msg is None else cancelled_type(msg)
        self._track()
        if self._fn is not None:
            self._delivery.schedule_callbacks(self)
        return True

    def add_done_callback(self, fn, *, context=None):
        cdef object delivery, futures
        if context is None:
            context = PyContext_CopyCurrent()
        if self._fn is not None:
            if self._more is None:
                self._more = []
            self._more.append((fn, context))
            return
        self._fn = fn
        self._context = context
        self._track()
        delivery = self._current_delivery()
        if self._own_error is not None:
            delivery.schedule_callbacks(self)
        elif get(delivery, delivery_done) is True:
            delivery.watch(self)
        else:
            futures = get(delivery, delivery_with_callbacks)
            (<list?>futures).append(self)

    def remove_done_callback(self, fn):
        cdef list kept, entries
        if self._fn is None:
            return 0
        entries = [(self._fn, self._context)] + (self._more or [])
        kept = [entry for entry in entries if entry[0] != fn]
        self._more = kept[1:] or None
        if kept:
            self._fn, self._context = kept[0]
        else:
            # The delivery still has this future in `with_callbacks`. If `_fn` were None, the next
            # add_done_callback() would append the future there a second time.
            self._fn = no_callback
        return len(entries) - len(kept)

    def get_loop(self):
        return get(self._delivery, delivery_loop)

    @property
    def _cancel_message(self):
        error = self._own_error
        return error.args[0] if error is not None and error.args else None

    def _make_cancelled_error(self):
        return self._own_error if self._own_error is not None else cancelled_type()

    def _run_callbacks(self):
        cdef object fn = self._fn, context = self._context
        cdef list more = self._more
        if fn is None:
            return
        self._fn = self._context = self._more = None
        self._call(fn, context)
        if more is not None:
            for fn, context in more:
                self._call(fn, context)

    cdef int _call(self, object fn, object context) except -1:
        try:
            PyContext_Enter(context)
            try:
                fn(self)
            finally:
                PyContext_Exit(context)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self.get_loop().call_exception_handler(
                {"message": f"exception in callback {fn!r}", "exception": error}
            )
        return 0


cdef inline void fill(object made, Py_ssize_t index, object value) noexcept:
    Py_INCREF(value)
    PyTuple_SET_ITEM(made, index, value)


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


cdef PySendResult send_to(PyObject *self, PyObject *value, PyObject **result) except PYGEN_ERROR:
    """Do one step of `await` without a StopIteration that carries the result."""
    cdef DeliveryFuture future = <DeliveryFuture>self
    cdef object outcome
    cdef bint due
    result[0] = NULL
    if future._is_done():
        due = yield_is_due(future._delivery)
        outcome = None if due else future._result()
        Py_INCREF(outcome)
        result[0] = <PyObject *>outcome
        return PYGEN_NEXT if due else PYGEN_RETURN
    future._asyncio_future_blocking = True
    Py_INCREF(future)
    result[0] = self
    return PYGEN_NEXT


(<PyTypeObject *>DeliveryFuture).tp_as_async.am_send = <sendfunc>send_to
