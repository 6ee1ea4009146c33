# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: binding=True
"""The compiled twin of `producing.pure_produce`: pass records to librdkafka without Python's lock.

`produce_records` calls `rd_kafka_produceva` for each record. confluent-kafka's `produce` does that
too, but allocates a state for each message, and takes the interpreter's lock for each report, also
for a message without a callback. A message without a state is reported without the lock.

Only `producing` uses this module; it loads it with `protocol.twins`, and passes the addresses of
librdkafka's functions to `bind()` once.

Invariants: a producer is of exactly the class that was bound, in a release of confluent-kafka in
which its objects begin with their `rd_kafka_t`; nothing closes it during a call. The keys and
values of a call are referenced by this module until the call ends, and librdkafka copies them.
"""

from libc.stdint cimport int32_t, int64_t, uintptr_t
from libc.stdlib cimport free, malloc

cdef extern from *:
    """
    /* The first member behind the header of an object. */
    static void *handle_of(PyObject *object) { return *(void **)(object + 1); }
    """
    void *handle_of(object one)

# By rdkafka.h: the values of RD_KAFKA_VTYPE_RKT and other types, of RD_KAFKA_MSG_F_COPY, and the
# layout of rd_kafka_vu_t.
cdef enum:
    TOPIC_HANDLE = 2
    PARTITION = 3
    VALUE = 4
    KEY = 5
    FLAGS = 7
    TIMESTAMP = 8
    COPY = 2

cdef struct Bytes:
    const char *data
    size_t size

cdef union Argument:
    void *topic_handle
    int flags
    int32_t partition
    int64_t timestamp
    Bytes bytes
    char room[64]

cdef struct TypedArgument:
    int type
    Argument value

cdef struct Record:
    Bytes key
    Bytes value
    int64_t timestamp

ctypedef void *(*produceva_t)(void *, const TypedArgument *, size_t) noexcept nogil
ctypedef int (*error_code_t)(const void *) noexcept nogil
ctypedef void (*destroy_t)(void *) noexcept nogil
ctypedef void *(*topic_new_t)(void *, const char *, void *) noexcept nogil
ctypedef int (*last_error_t)() noexcept nogil

cdef produceva_t produceva = NULL
cdef error_code_t error_code
cdef destroy_t error_destroy
cdef topic_new_t topic_new
cdef destroy_t topic_destroy
cdef last_error_t last_error

FUNCTIONS = (
    "rd_kafka_produceva", "rd_kafka_error_code", "rd_kafka_error_destroy",
    "rd_kafka_topic_new", "rd_kafka_topic_destroy", "rd_kafka_last_error",
)


producer_class = None


def bind(
    type class_of_producers,
    uintptr_t produceva_at, uintptr_t error_code_at, uintptr_t error_destroy_at,
    uintptr_t topic_new_at, uintptr_t topic_destroy_at, uintptr_t last_error_at,
):
    """Take the class `confluent_kafka.Producer`, and the addresses of `FUNCTIONS`."""
    global producer_class
    global produceva, error_code, error_destroy, topic_new, topic_destroy, last_error
    producer_class = class_of_producers
    produceva = <produceva_t>produceva_at
    error_code = <error_code_t>error_code_at
    error_destroy = <destroy_t>error_destroy_at
    topic_new = <topic_new_t>topic_new_at
    topic_destroy = <destroy_t>topic_destroy_at
    last_error = <last_error_t>last_error_at


cdef object point_to(object blob, Bytes *found):
    """Set the pointer and size of a key or value; NULL for None. Return the object to keep."""
    if blob is None:
        found.data, found.size = NULL, 0
    else:
        found.data, found.size = <bytes?>blob, len(<bytes>blob)
    return blob


def produce_records(
    object producer, str topic, int32_t partition, list records, bint keep_timestamps
):
    """Pass on records without callbacks; return the index and code of the first that isn't taken.

    Args:
        producer: an instance of the class that was bound.
        topic: of the target.
        partition: of the topic.
        records: of the source; keys and values are bytes or None.
        keep_timestamps: whether the messages get the records' timestamps, if these are above 0.

    Raises:
        TypeError: the producer, a key, value or timestamp has another type. Nothing is passed on.
        OverflowError: a timestamp has more than 64 bits. Nothing is passed on.
        RuntimeError: the producer is closed.
        MemoryError: there is no memory for the call.
    """
    cdef bytes name = topic.encode()
    cdef const char *topic_name = name
    cdef void *handle
    cdef void *of_topic
    cdef void *error = NULL
    cdef int code = 0
    cdef Py_ssize_t count = len(records), index
    cdef TypedArgument arguments[6]
    cdef list kept = []
    if producer_class is None or type(producer) is not producer_class:
        raise TypeError(f"pass records to {producer!r}: expected a {producer_class}")
    handle = handle_of(producer)
    if handle == NULL:
        raise RuntimeError("pass records to a producer: it is closed")
    cdef Record *found = <Record *>malloc(max(count, 1) * sizeof(Record))
    if found == NULL:
        raise MemoryError
    try:
        for index in range(count):
            record = records[index]
            kept.append(point_to(record.key, &found[index].key))
            kept.append(point_to(record.value, &found[index].value))
            stamp = record.timestamp if keep_timestamps else None
            found[index].timestamp = 0 if stamp is None else max(<int64_t>stamp, 0)
        with nogil:
            of_topic = topic_new(handle, topic_name, NULL)
            index = 0
            if of_topic == NULL:
                code = last_error() or -1
            else:
                arguments[0].type, arguments[0].value.topic_handle = TOPIC_HANDLE, of_topic
                arguments[1].type, arguments[1].value.partition = PARTITION, partition
                arguments[2].type, arguments[2].value.flags = FLAGS, COPY
                arguments[3].type = KEY
                arguments[4].type = VALUE
                arguments[5].type = TIMESTAMP
                while index < count:
                    arguments[3].value.bytes = found[index].key
                    arguments[4].value.bytes = found[index].value
                    arguments[5].value.timestamp = found[index].timestamp
                    error = produceva(handle, arguments, 6)
                    if error != NULL:
                        code = error_code(error)
                        error_destroy(error)
                        break
                    index += 1
                topic_destroy(of_topic)
    finally:
        free(found)
    return (index, code) if code else None
