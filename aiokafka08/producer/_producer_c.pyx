# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, binding=True
"""The producer's work on single messages, in C. The references are `appender.PureAppender`,
`future.PureDeliveryFuture`, `topics.pure_choose_each`, `partitioner.pure_murmur2` and
`partitioner.pure_partitions_of`: docstrings and reasons stand there.

Imported only by `compiled`. Reads and writes the slots of batches, queues, memory and deliveries
directly; whatever isn't exactly one of those, or isn't the usual case, goes the slow way.
"""

import asyncio
import copy
import os
import random

cimport cython
from cpython.array cimport array, clone
from cpython.object cimport PyObject
from cpython.pythread cimport PyThread_get_thread_ident
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport int64_t, uint32_t, uint64_t
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from aiokafka08.protocol._message_set_c cimport Blobs, MessageSetBuilder

from aiokafka08.producer.batch import Batch, PartitionQueue
from aiokafka08.producer.delivery import Delivery
from aiokafka08.producer.memory import BufferMemory
from aiokafka08.structs import RecordMetadata

cdef extern from "../protocol/_native.h":
    Py_ssize_t slot_offset(object type, const char *name) except -1
    void fill_slot(object instance, Py_ssize_t offset, object value)
    PyObject *slot_of(object instance, Py_ssize_t offset)

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
    void PyTuple_SET_ITEM(object, Py_ssize_t, object)
    object PyContext_CopyCurrent()
    int PyContext_Enter(object) except -1
    int PyContext_Exit(object) except -1
    void PyObject_GC_Track(PyObject *)
    void PyObject_GC_UnTrack(PyObject *)
    bint PyObject_GC_IsTracked(PyObject *)

cdef enum:
    LOOK_EVERY = 64
    LOOK_EVERY_AWAIT = 256

cdef Py_ssize_t queue_open = slot_offset(PartitionQueue, "open_batch")
cdef Py_ssize_t batch_builder = slot_offset(Batch, "builder")
cdef Py_ssize_t batch_limit = slot_offset(Batch, "limit_bytes")
cdef Py_ssize_t batch_count = slot_offset(Batch, "count")
cdef Py_ssize_t batch_delivery = slot_offset(Batch, "delivery")
cdef Py_ssize_t batch_due = slot_offset(Batch, "due_at")
cdef Py_ssize_t memory_waiters = slot_offset(BufferMemory, "_waiters")
cdef Py_ssize_t memory_used = slot_offset(BufferMemory, "used_bytes")
cdef Py_ssize_t memory_limit = slot_offset(BufferMemory, "limit_bytes")
cdef Py_ssize_t delivery_base = slot_offset(Delivery, "base_offset")
cdef Py_ssize_t delivery_done = slot_offset(Delivery, "done")
cdef Py_ssize_t delivery_error = slot_offset(Delivery, "error")
cdef Py_ssize_t delivery_halves = slot_offset(Delivery, "halves")
cdef Py_ssize_t delivery_loop = slot_offset(Delivery, "loop")
cdef Py_ssize_t delivery_place = slot_offset(Delivery, "topic_partition")
cdef Py_ssize_t delivery_stamped = slot_offset(Delivery, "has_timestamps")
cdef Py_ssize_t delivery_timestamp = slot_offset(Delivery, "timestamp_ms")
cdef Py_ssize_t delivery_turns = slot_offset(Delivery, "turns")
cdef Py_ssize_t delivery_watched = slot_offset(Delivery, "watched")
# Of `routes` and `partitioner`, which import this module: known when the first appender is made.
cdef Py_ssize_t route_available, route_is_open, route_partitioner, route_partitions, route_queues
cdef object route_type = None
cdef object default_partitioner = None

cdef object queue_type = PartitionQueue
cdef object batch_type = Batch
cdef object delivery_type = Delivery
cdef object metadata_type = RecordMetadata
cdef object cancelled_type = asyncio.CancelledError
cdef object invalid_state = asyncio.InvalidStateError

cdef int until_look = LOOK_EVERY_AWAIT
cdef long forks = 0
cdef uint64_t chance = random.getrandbits(64) | 1


def _forked():
    global forks
    forks += 1


os.register_at_fork(after_in_child=_forked)


cdef inline object get(object instance, Py_ssize_t offset):
    """What a slot holds; AttributeError if nothing."""
    cdef PyObject *found = slot_of(instance, offset)
    if found == NULL:
        raise AttributeError("an empty slot")
    return <object>found


cdef inline int put(object instance, Py_ssize_t offset, object value) except -1:
    cdef PyObject *before = slot_of(instance, offset)
    Py_INCREF(value)
    fill_slot(instance, offset, value)
    Py_XDECREF(before)
    return 0


@cython.no_gc_clear  # a slot of its delivery is read unasked; all else in a cycle can be cleared
cdef class DeliveryFuture:
    cdef object _delivery
    cdef int64_t _timestamp_ms
    cdef object _own
    cdef object _fn  # the first callback, in most cases the only one
    cdef object _context
    cdef list _more
    cdef object __weakref__
    cdef int _index
    cdef public bint _asyncio_future_blocking

    def __cinit__(self, delivery, int index, int64_t timestamp_ms):
        if type(delivery) is not delivery_type:
            raise TypeError(f"delivery is {type(delivery).__name__}, not Delivery")
        self._delivery = delivery
        self._index = index
        self._timestamp_ms = timestamp_ms
        # It is in no cycle as long as nobody waits and nothing is raised; most live and die so.
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
        delivery = self._place()
        if not delivery.done:
            return "pending"
        if delivery.error is not None:
            return f"failed: {delivery.error}"
        return f"offset {self.result().offset}"

    cpdef object _place(self):
        if get(self._delivery, delivery_halves) is not None:
            self._delivery, self._index = self._delivery.at(self._index)
        return self._delivery

    # --- what asyncio.Future has ------------------------------------------------------------------

    cdef inline bint _is_done(self) except -1:
        return get(self._place(), delivery_done) is True or self._own is not None

    # It is its own iterator, since all that one would have to know is whether it is done.

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        if self._is_done():
            if turn_is_due(self._delivery):
                return None
            raise StopIteration(self._result())
        self._asyncio_future_blocking = True
        return self

    def done(self):
        return self._is_done()

    cpdef bint cancelled(self) except -1:
        return type(self._own) is cancelled_type

    cdef object _result(self):
        cdef object delivery = self._place(), place, timestamp = None, kind = None, made
        cdef int64_t base, at
        if (
            get(delivery, delivery_done) is not True
            or get(delivery, delivery_error) is not None
            or self._own is not None
        ):
            raise self.exception().with_traceback(None)
        place = get(delivery, delivery_place)
        base = get(delivery, delivery_base)
        if get(delivery, delivery_stamped):
            at = get(delivery, delivery_timestamp)
            timestamp, kind = (self._timestamp_ms, 0) if at < 0 else (at, 1)
        made = PyType_GenericAlloc(<PyTypeObject *>metadata_type, 7)
        topic, partition = place
        fill(made, 0, topic)
        fill(made, 1, partition)
        fill(made, 2, place)
        fill(made, 3, base + self._index if base >= 0 else -1)
        fill(made, 4, timestamp)
        fill(made, 5, kind)
        fill(made, 6, None)
        return made

    def result(self):
        return self._result()

    cpdef object exception(self):
        cdef object delivery
        if self._own is not None:
            if self.cancelled():
                raise self._own.with_traceback(None)
            return self._own
        delivery = self._place()
        if not delivery.done:
            raise invalid_state("the message isn't acknowledged yet")
        if delivery.error is not None:
            self._own = copy.copy(delivery.error)
            self._track()
        return self._own

    def cancel(self, msg=None):
        if self._is_done():
            return False
        self._own = cancelled_type() if msg is None else cancelled_type(msg)
        self._track()
        if self._fn is not None:
            self._delivery.tell_soon(self)
        return True

    def add_done_callback(self, fn, *, context=None):
        cdef object delivery, watched
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
        delivery = self._place()
        if self._own is not None:
            delivery.tell_soon(self)
        elif get(delivery, delivery_done) is True:
            delivery.watch(self)
        else:
            watched = get(delivery, delivery_watched)
            (<list?>watched).append(self)

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
            self._fn, self._context = no_callback, self._context  # the delivery watches it
        return len(entries) - len(kept)

    def get_loop(self):
        return get(self._delivery, delivery_loop)

    @property
    def _cancel_message(self):
        return self._own.args[0] if self._own is not None and self._own.args else None

    def _make_cancelled_error(self):
        return self._own if self._own is not None else cancelled_type()

    def _tell(self):
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


cdef inline bint turn_is_due(object delivery) except -1:
    """Whether who awaits a future that is done is to give a turn of the loop first."""
    global until_look
    cdef object turns
    until_look -= 1
    if until_look > 0:
        return False
    until_look = LOOK_EVERY_AWAIT
    turns = get(delivery, delivery_turns)
    return turns is not None and turns.pop_due()


def no_callback(future):
    pass


cdef PySendResult send_to(PyObject *self, PyObject *value, PyObject **result) except PYGEN_ERROR:
    """What `await` does at each step, with no StopIteration to carry the result."""
    cdef DeliveryFuture future = <DeliveryFuture>self
    cdef object outcome
    cdef bint due
    result[0] = NULL
    if future._is_done():
        due = turn_is_due(future._delivery)
        outcome = None if due else future._result()
        Py_INCREF(outcome)
        result[0] = <PyObject *>outcome
        return PYGEN_NEXT if due else PYGEN_RETURN
    future._asyncio_future_blocking = True
    Py_INCREF(future)
    result[0] = self
    return PYGEN_NEXT


(<PyTypeObject *>DeliveryFuture).tp_as_async.am_send = <sendfunc>send_to


cdef class Appender:
    cdef dict _by_topic
    cdef object _memory
    cdef Py_ssize_t _batch_bytes
    cdef Py_ssize_t _max_message_bytes
    cdef object _slowly
    cdef object _on_full
    cdef object _turn_is_due
    cdef object _is_running
    cdef unsigned long _thread
    cdef long _forks
    cdef int _until_look

    def __init__(
        self,
        dict by_topic not None,
        memory,
        Py_ssize_t batch_bytes,
        Py_ssize_t max_message_bytes,
        slowly,
        on_full,
        turn_is_due,
    ):
        if type(memory) is not BufferMemory:
            raise TypeError(f"memory is {type(memory).__name__}, not BufferMemory")
        learn_routes()
        self._by_topic = by_topic
        self._memory = memory
        self._batch_bytes = batch_bytes
        self._max_message_bytes = max_message_bytes
        self._slowly = slowly
        self._on_full = on_full
        self._turn_is_due = turn_is_due
        # asyncio's own question asks the kernel for the process id. This thread can't run another
        # loop while this one runs.
        self._is_running = asyncio.get_running_loop().is_running
        self._thread = PyThread_get_thread_ident()
        self._forks = forks
        self._until_look = LOOK_EVERY

    def send(self, topic, value, key, partition, timestamp_ms, headers):
        cdef Py_ssize_t size = 34
        self._until_look -= 1
        if self._until_look <= 0:
            self._until_look = LOOK_EVERY
            if self._turn_is_due():
                return None
        if (
            timestamp_ms is not None
            or headers
            or self._thread != PyThread_get_thread_ident()
            or self._forks != forks
            or not self._is_running()
        ):
            return None
        route = self._by_topic.get(topic)
        if type(route) is not route_type or get(route, route_is_open) is not True:
            return None
        if value is not None:
            if type(value) is not bytes:
                return None
            size += len(<bytes>value)
        if key is not None:
            if type(key) is not bytes or len(<bytes>key) > self._max_message_bytes:
                return None
            size += len(<bytes>key)
        elif value is None:
            return None
        if (
            <Py_ssize_t>get(self._memory, memory_used) + size
            > <Py_ssize_t>get(self._memory, memory_limit)
            or len(get(self._memory, memory_waiters))
        ):
            return None
        if partition is None:
            queue = choose(route, key)
        else:
            queue = (<dict?>get(route, route_queues)).get(partition)
            if queue is None:
                return None
        return self._append(queue, key, value)

    def append(self, queue, key, value, timestamp_ms):
        if timestamp_ms is not None or type(queue) is not queue_type:
            return self._slowly(queue, key, value, timestamp_ms)
        return self._append(queue, key, value)

    cdef object _append(self, object queue, object key, object value):
        cdef MessageSetBuilder builder
        cdef DeliveryFuture future
        cdef Py_ssize_t size, total, used, index
        cdef int64_t now_ms = -1
        cdef timespec now
        cdef double due_at
        batch = get(queue, queue_open)
        if type(batch) is not batch_type:
            return self._slowly(queue, key, value, None)
        found = get(batch, batch_builder)
        if type(found) is not MessageSetBuilder:
            return self._slowly(queue, key, value, None)
        builder = <MessageSetBuilder>found
        size = 34 if builder.magic else 26
        if value is not None:
            size += len(<bytes?>value)
        if key is not None:
            size += len(<bytes?>key)
        total = builder.size_bytes + size
        used = get(self._memory, memory_used)
        used += size
        if (
            total > <Py_ssize_t>get(batch, batch_limit)
            or used > <Py_ssize_t>get(self._memory, memory_limit)
            or len(get(self._memory, memory_waiters))
        ):
            return self._slowly(queue, key, value, None)
        if builder.magic:
            clock_gettime(CLOCK_REALTIME, &now)
            now_ms = <int64_t>now.tv_sec * 1000 + now.tv_nsec // 1000000
        index = get(batch, batch_count)
        future = DeliveryFuture(get(batch, batch_delivery), <int>index, now_ms)
        builder._append(key, value, now_ms, -1)
        put(self._memory, memory_used, used)
        put(batch, batch_count, index + 1)
        due_at = get(batch, batch_due)
        if total + size > self._batch_bytes and due_at > 0.0:
            self._on_full(batch, size)
        return future


cdef int learn_routes() except -1:
    global route_type, default_partitioner
    global route_available, route_is_open, route_partitioner, route_partitions, route_queues
    if route_type is None:
        from aiokafka08.producer.partitioner import DefaultPartitioner
        from aiokafka08.producer.topics import TopicRoute

        route_available = slot_offset(TopicRoute, "available")
        route_is_open = slot_offset(TopicRoute, "is_open")
        route_partitioner = slot_offset(TopicRoute, "partitioner")
        route_partitions = slot_offset(TopicRoute, "partitions")
        route_queues = slot_offset(TopicRoute, "queues")
        default_partitioner = DefaultPartitioner
        route_type = TopicRoute
    return 0


cdef object choose(object route, object key):
    """`TopicRoute.choose`; what the default partitioner does, without calling it."""
    global chance
    cdef list partitions
    cdef object queue
    cdef uint64_t number
    if type(get(route, route_partitioner)) is not default_partitioner:
        return route.choose(key)
    partitions = <list?>get(route, route_partitions)
    if key is None:
        partitions = <list?>get(route, route_available) or partitions
        chance ^= chance << 13  # xorshift64
        chance ^= chance >> 7
        chance ^= chance << 17
        number = chance >> 32
    else:
        number = hash_of(<bytes>key) & 0x7FFFFFFF
    queue = (<dict?>get(route, route_queues)).get(
        partitions[<Py_ssize_t>(number % <uint64_t>len(partitions))]
    )
    return route.choose(key) if type(queue) is not queue_type else queue


def choose_each(route, keys, Py_ssize_t start, Py_ssize_t stop):
    cdef dict chosen = {}
    cdef Py_ssize_t index
    cdef object key = None, queue, indices
    learn_routes()
    for index in range(start, stop):
        if keys is not None:
            key = keys[index]
        if type(route) is route_type and (key is None or isinstance(key, bytes)):
            queue = choose(route, key)
        else:
            queue = route.choose(key)
        indices = chosen.get(queue)
        if indices is None:
            chosen[queue] = [index]
        else:
            (<list>indices).append(index)
    return chosen


def murmur2(data):
    return hash_of(data if type(data) is bytes else bytes(memoryview(data)))


def partitions_of(Blobs keys not None, partitions):
    cdef array found = clone(int32s, len(keys), zero=False)
    cdef array all_partitions = array("i", partitions)
    cdef uint32_t count = len(all_partitions)
    cdef const char *key
    cdef Py_ssize_t index, size
    if not count:
        raise ValueError("no partitions to choose from")
    for index in range(len(found)):
        size = keys.find(index, &key)
        if size < 0:
            found.data.as_ints[index] = -1
        else:
            found.data.as_ints[index] = all_partitions.data.as_ints[
                (murmur2_of(<const unsigned char *>key, size) & 0x7FFFFFFFU) % count
            ]
    return found


cdef array int32s = array("i")


cdef uint32_t hash_of(bytes key) noexcept:
    return murmur2_of(<const unsigned char *><const char *>key, len(key))


cdef uint32_t murmur2_of(const unsigned char *at, Py_ssize_t left) noexcept nogil:
    cdef uint32_t word, hash_ = 0x9747B28CU ^ <uint32_t>left
    while left >= 4:
        word = at[0] | <uint32_t>at[1] << 8 | <uint32_t>at[2] << 16 | <uint32_t>at[3] << 24
        word *= 0x5BD1E995U
        hash_ = hash_ * 0x5BD1E995U ^ (word ^ word >> 24) * 0x5BD1E995U
        at += 4
        left -= 4
    if left:
        word = at[0]
        if left > 1:
            word |= <uint32_t>at[1] << 8
        if left > 2:
            word |= <uint32_t>at[2] << 16
        hash_ = (hash_ ^ word) * 0x5BD1E995U
    hash_ = (hash_ ^ hash_ >> 13) * 0x5BD1E995U
    return hash_ ^ hash_ >> 15
