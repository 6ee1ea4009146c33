# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, binding=True
"""The producer's work on single messages, in C. The references are `appender.PureAppender`,
`partitioner.pure_murmur2` and `partitioner.pure_partitions_of`.

Imported only by `compiled`. Reads and writes the slots of batches, queues and memory directly;
whatever isn't exactly one of those, or isn't the usual case, goes the slow way.
"""

from cpython.array cimport array, clone
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport int64_t, uint32_t
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from aiokafka08.protocol._message_set_c cimport Blobs, MessageSetBuilder

from aiokafka08.producer.accumulator import Batch, PartitionQueue
from aiokafka08.producer.delivery import DeliveryFuture
from aiokafka08.producer.memory import BufferMemory

cdef extern from "../protocol/_native.h":
    Py_ssize_t slot_offset(object type, const char *name) except -1
    void fill_slot(object instance, Py_ssize_t offset, object value)
    PyObject *slot_of(object instance, Py_ssize_t offset)

cdef extern from "Python.h":
    ctypedef struct PyTypeObject
    object PyType_GenericAlloc(PyTypeObject *type, Py_ssize_t items)

cdef Py_ssize_t queue_open = slot_offset(PartitionQueue, "open")
cdef Py_ssize_t batch_builder = slot_offset(Batch, "builder")
cdef Py_ssize_t batch_limit = slot_offset(Batch, "limit_bytes")
cdef Py_ssize_t batch_count = slot_offset(Batch, "count")
cdef Py_ssize_t batch_delivery = slot_offset(Batch, "delivery")
cdef Py_ssize_t batch_due = slot_offset(Batch, "due_at")
cdef Py_ssize_t memory_queue = slot_offset(BufferMemory, "_queue")
cdef Py_ssize_t memory_used = slot_offset(BufferMemory, "used_bytes")
cdef Py_ssize_t memory_limit = slot_offset(BufferMemory, "limit_bytes")
cdef Py_ssize_t future_delivery = slot_offset(DeliveryFuture, "_delivery")
cdef Py_ssize_t future_index = slot_offset(DeliveryFuture, "_index")
cdef Py_ssize_t future_timestamp = slot_offset(DeliveryFuture, "_timestamp_ms")
cdef Py_ssize_t future_own = slot_offset(DeliveryFuture, "_own")
cdef Py_ssize_t future_to_call = slot_offset(DeliveryFuture, "_to_call")
cdef Py_ssize_t future_blocking = slot_offset(DeliveryFuture, "_asyncio_future_blocking")

cdef object queue_type = PartitionQueue
cdef object batch_type = Batch
cdef object future_type = DeliveryFuture


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


cdef class Appender:
    cdef object _memory
    cdef Py_ssize_t _batch_bytes
    cdef object _slowly
    cdef object _on_full

    def __init__(self, memory, Py_ssize_t batch_bytes, slowly, on_full):
        if type(memory) is not BufferMemory:
            raise TypeError(f"memory is {type(memory).__name__}, not BufferMemory")
        self._memory = memory
        self._batch_bytes = batch_bytes
        self._slowly = slowly
        self._on_full = on_full

    def append(self, queue, key, value, timestamp_ms):
        cdef MessageSetBuilder builder
        cdef Py_ssize_t size, total, used, index
        cdef int64_t now_ms = -1
        cdef timespec now
        cdef double due_at
        if timestamp_ms is not None or type(queue) is not queue_type:
            return self._slowly(queue, key, value, timestamp_ms)
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
            or len(get(self._memory, memory_queue))
        ):
            return self._slowly(queue, key, value, None)
        if builder.magic:
            clock_gettime(CLOCK_REALTIME, &now)
            now_ms = <int64_t>now.tv_sec * 1000 + now.tv_nsec // 1000000
        index = get(batch, batch_count)
        builder._append(key, value, now_ms, -1)
        put(self._memory, memory_used, used)
        put(batch, batch_count, index + 1)
        future = PyType_GenericAlloc(<PyTypeObject *>future_type, 0)
        put(future, future_delivery, get(batch, batch_delivery))
        put(future, future_index, index)
        put(future, future_timestamp, now_ms)
        put(future, future_own, None)
        put(future, future_to_call, None)
        put(future, future_blocking, False)
        due_at = get(batch, batch_due)
        if total + size > self._batch_bytes and due_at > 0.0:
            self._on_full(batch, size)
        return future


def murmur2(data):
    cdef bytes key = data if type(data) is bytes else bytes(memoryview(data))
    return murmur2_of(<const unsigned char *><const char *>key, len(key))


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
