# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, binding=True
"""The compiled twins of the code that the producer runs for each message.

They are `DeliveryFuture`, `run_callbacks`, `Appender`, `are_bytes`, `longest` and `choose_each`.
Each has a pure twin, which defines what it does and has the docstrings:
`batch_delivery.PureDeliveryFuture` and `pure_run_callbacks`, and those of `fast_path`. Only
`fast_path` uses this module; it loads it with `protocol.twins`.

The code reads and writes the slots of five of the producer's classes directly: batch, delivery,
memory, queue and route. `protocol.twins` passes these classes and the default partitioner to
`bind()` once, before anything else is called, so this module imports no module of the producer.

Invariant: a slot is accessed only in an object whose exact class was checked, or in an object that
a checked one holds. A route, queue, batch or builder of another class is left to Python code:
`send()` returns None, or `append_slowly()` or `route.choose()` is called. A memory or delivery of
another class raises TypeError.
"""

import asyncio
import copy
import os
import weakref

cimport cython
from cpython.object cimport PyObject
from cpython.pythread cimport PyThread_get_thread_ident
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport int64_t, uint32_t, uint64_t
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from aiokafka08.protocol._message_set_c cimport MessageSetBuilder

from aiokafka08 import environment
from aiokafka08.structs import RecordMetadata

cdef extern from "../protocol/_native.h":
    Py_ssize_t slot_offset(object type, const char *name) except -1
    void fill_slot(object instance, Py_ssize_t offset, object value)
    PyObject *slot_of(object instance, Py_ssize_t offset)
    void forget_hash(object tuple)

cdef extern from "../protocol/_murmur2.h":
    uint32_t partition_index_of(const char *key, Py_ssize_t size, uint32_t count)

cdef extern from "Python.h":
    ctypedef enum PySendResult:
        PYGEN_RETURN
        PYGEN_ERROR
        PYGEN_NEXT
    ctypedef PySendResult (*sendfunc)(PyObject *, PyObject *, PyObject **) noexcept
    ctypedef struct PyAsyncMethods:
        sendfunc am_send
    ctypedef struct PyTypeObject:
        PyAsyncMethods *tp_as_async
    object PyType_GenericAlloc(PyTypeObject *type, Py_ssize_t items)
    PyObject *PyTuple_GET_ITEM(object, Py_ssize_t)
    Py_ssize_t Py_REFCNT(object)
    void PyTuple_SET_ITEM(object, Py_ssize_t, object)
    object PyContext_CopyCurrent()
    int PyContext_Enter(object) except -1
    int PyContext_Exit(object) except -1

cdef object metadata_type = RecordMetadata
cdef object cancelled_type = asyncio.CancelledError
cdef object invalid_state = asyncio.InvalidStateError
cdef object weak_reference = weakref.ref

# --- the classes whose slots are read and written -------------------------------------------------

cdef object batch_type = None
cdef object delivery_type = None
cdef object memory_type = None
cdef object default_partitioner = None
cdef object queue_type = None
cdef object route_type = None

cdef Py_ssize_t batch_builder, batch_count, batch_delivery, batch_due, batch_limit
cdef Py_ssize_t delivery_base, delivery_done, delivery_error, delivery_has_timestamps
cdef Py_ssize_t delivery_loop, delivery_loop_yield, delivery_partition, delivery_run_starts
cdef Py_ssize_t delivery_run_timestamps, delivery_split, delivery_timestamp, delivery_with_callbacks
cdef Py_ssize_t memory_limit, memory_waiters, memory_used
cdef Py_ssize_t queue_open
cdef Py_ssize_t route_available, route_is_open, route_partitioner, route_partitions, route_queues


def bind(batch, delivery, memory, partitioner, queue, route):
    """Take the producer's classes and look up the offsets of their slots.

    Raises:
        ImportError: a class has no such slot, so this build doesn't fit the sources beside it.
    """
    global batch_type, delivery_type, memory_type, default_partitioner, queue_type, route_type
    global batch_builder, batch_count, batch_delivery, batch_due, batch_limit
    global delivery_base, delivery_done, delivery_error, delivery_has_timestamps
    global delivery_loop, delivery_loop_yield, delivery_partition, delivery_run_starts
    global delivery_run_timestamps, delivery_split, delivery_timestamp, delivery_with_callbacks
    global memory_limit, memory_waiters, memory_used
    global queue_open
    global route_available, route_is_open, route_partitioner, route_partitions, route_queues
    batch_builder = slot_offset(batch, "builder")
    batch_count = slot_offset(batch, "count")
    batch_delivery = slot_offset(batch, "delivery")
    batch_due = slot_offset(batch, "due_at")
    batch_limit = slot_offset(batch, "limit_bytes")
    delivery_base = slot_offset(delivery, "base_offset")
    delivery_done = slot_offset(delivery, "done")
    delivery_error = slot_offset(delivery, "error")
    delivery_has_timestamps = slot_offset(delivery, "has_timestamps")
    delivery_loop = slot_offset(delivery, "loop")
    delivery_loop_yield = slot_offset(delivery, "loop_yield")
    delivery_partition = slot_offset(delivery, "topic_partition")
    delivery_run_starts = slot_offset(delivery, "run_starts")
    delivery_run_timestamps = slot_offset(delivery, "run_timestamps_ms")
    delivery_split = slot_offset(delivery, "split_into")
    delivery_timestamp = slot_offset(delivery, "timestamp_ms")
    delivery_with_callbacks = slot_offset(delivery, "with_callbacks")
    memory_limit = slot_offset(memory, "limit_bytes")
    memory_waiters = slot_offset(memory, "_waiters")
    memory_used = slot_offset(memory, "used_bytes")
    queue_open = slot_offset(queue, "open_batch")
    route_available = slot_offset(route, "available")
    route_is_open = slot_offset(route, "is_open")
    route_partitioner = slot_offset(route, "partitioner")
    route_partitions = slot_offset(route, "partitions")
    route_queues = slot_offset(route, "queues")
    batch_type, delivery_type, memory_type = batch, delivery, memory
    default_partitioner, queue_type, route_type = partitioner, queue, route


cdef inline object get(object instance, Py_ssize_t offset):
    """Read a slot; AttributeError if it is empty."""
    cdef PyObject *value = slot_of(instance, offset)
    if value == NULL:
        raise AttributeError("an empty slot")
    return <object>value


cdef inline int put(object instance, Py_ssize_t offset, object value) except -1:
    """Write a slot."""
    cdef PyObject *before = slot_of(instance, offset)
    Py_INCREF(value)
    fill_slot(instance, offset, value)
    Py_XDECREF(before)
    return 0


include "_delivery_future_c.pxi"
include "_appender_c.pxi"
