# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, binding=True, embedsignature=False
"""The compiled twin of the message set and of the record batch.

Each included file is the compiled twin of one pure module: `_builder_c.pxi` of `_builder_py`,
`_reader_c.pxi` of `_reader_py`, `_columns_c.pxi` of `_columns_py`, `_binary_column_c.pxi` of
`_binary_column_py`. This file has the hashes: `crc32`, which equals zlib's, and `murmur2` and
`partitions_of`, the twins of `_murmur2_py`. The pure modules have the docstrings and the reasons,
`message_format` has the layout; both twins pass the same tests. Python code uses this module by way
of `twins`, `message_set` and `record_batch` only; `producer._producer_c` uses the builder in C.

All of it is one extension module, because calls across a module boundary would be slower: for each
message the reader calls `Columns` and the builder calls `BinaryColumn`.

Invariant: bytes from the network are hostile, so before a length is used, it is checked against
the number of remaining bytes. The sum of two message offsets can exceed 64 bits, so such sums are
128 bits wide (`int128`, see `_native.h`).
"""

from cpython.array cimport array, clone
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.bytes cimport (
    PyBytes_AS_STRING,
    PyBytes_CheckExact,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcpy, memset

from aiokafka08.errors import CorruptRecordException
from aiokafka08.protocol._binary_column_py import check_split
from aiokafka08.protocol._columns_py import (
    DEFAULT_MAX_COLUMN_BYTES,
    MAX_TIMESTAMP_MS,
    Column,
    already_read,
    check_max_bytes,
    too_long,
)
from aiokafka08.protocol._reader_py import NO_END, LongWrapper, SetSummary, describe_rest
from aiokafka08.protocol.compression import (
    BatchCodec,
    Codec,
    compress_behind,
    decompress,
    decompress_unless_long,
)
from aiokafka08.protocol.message_format import MAX_NESTING, corrupt
from aiokafka08.structs import ConsumerRecord

cdef extern from "_crc32.h" nogil:
    void crc_prepare()
    uint32_t crc_of(const char *data, size_t length)
    uint32_t crc32c_of(const char *data, size_t length, int tables)

cdef extern from "_murmur2.h" nogil:
    uint32_t murmur2_of(const unsigned char *at, Py_ssize_t left)
    uint32_t partition_index_of(const char *key, Py_ssize_t size, uint32_t count)

cdef extern from "_native.h":
    ctypedef long long int128
    int32_t get_int32(const char *at) nogil
    int64_t get_int64(const char *at) nogil
    void put_int32(char *at, int32_t value) nogil
    void put_int64(char *at, int64_t value) nogil
    Py_ssize_t slot_offset(object type, const char *name) except -1
    void fill_slot(object instance, Py_ssize_t offset, object value)
    int track_when_assigned(object type) except -1

cdef extern from "Python.h":
    ctypedef struct PyTypeObject
    object PyType_GenericAlloc(PyTypeObject *type, Py_ssize_t items)
    void PyObject_GC_UnTrack(object)
    object PySequence_Fast(object, const char *message)
    Py_ssize_t PySequence_Fast_GET_SIZE(object)
    PyObject *PySequence_Fast_GET_ITEM(object, Py_ssize_t)

cdef enum:
    ENTRY_HEADER_BYTES = 12  # offset and size
    BODY_AT = 16  # the magic byte, the first byte that the CRC covers
    WITHOUT_GIL_BYTES = 262144  # the CRC of more bytes is computed without the GIL
    # The smallest valid value of a message's size field, by format:
    MIN_MESSAGE_BYTES_0 = 14
    MIN_MESSAGE_BYTES_1 = 22
    MIN_ENTRY_BYTES = 26
    CODEC_BITS = 0x07
    LOG_APPEND_TIME_BIT = 0x08

crc_prepare()


cdef uint32_t long_crc_of(const char *data, size_t length) noexcept:
    """Return the CRC. The caller holds an export of the bytes: others may run meanwhile."""
    cdef uint32_t crc
    if length < WITHOUT_GIL_BYTES:
        return crc_of(data, length)
    with nogil:
        crc = crc_of(data, length)
    return crc


def crc32(data):
    """Return the CRC-32 of a buffer, as `zlib.crc32` does."""
    cdef Py_buffer buffer
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        return long_crc_of(<const char *>buffer.buf, <size_t>buffer.len)
    finally:
        PyBuffer_Release(&buffer)


def murmur2(data):
    cdef bytes key = data if type(data) is bytes else bytes(memoryview(data))
    return murmur2_of(<const unsigned char *><const char *>key, len(key))


include "_binary_column_c.pxi"
include "_builder_c.pxi"
include "_reader_c.pxi"
include "_columns_c.pxi"
include "_record_batch_c.pxi"


cdef array int32s = array("i")


def partitions_of(BinaryColumn keys not None, partitions):
    cdef array chosen = clone(int32s, len(keys), zero=False)
    cdef array all_partitions = array("i", partitions)
    cdef uint32_t count = len(all_partitions)
    cdef const char *key
    cdef Py_ssize_t index, size
    if not count:
        raise ValueError("no partitions to choose from")
    for index in range(len(chosen)):
        size = keys.find(index, &key)
        if size < 0:
            chosen.data.as_ints[index] = -1
        else:
            chosen.data.as_ints[index] = all_partitions.data.as_ints[
                partition_index_of(key, size, count)
            ]
    return chosen
