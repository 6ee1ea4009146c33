# What other files use of the builder (`producer._producer_c`) and of `BinaryColumn` (the included
# ones).

from libc.stdint cimport int64_t


cdef class MessageSetBuilder:
    cdef readonly int magic
    cdef readonly object codec
    cdef readonly Py_ssize_t size_bytes
    cdef readonly int64_t max_timestamp_ms
    cdef bytearray _buffer  # the first `size_bytes` count
    cdef Py_ssize_t _room  # its length
    cdef Py_ssize_t _count

    cdef int _make_room(self, Py_ssize_t more) except -1
    cdef int _append(
        self, object key, object value, int64_t timestamp_ms, Py_ssize_t limit
    ) except -1
    cdef int _put(
        self,
        const char *key,
        Py_ssize_t key_size,
        const char *value,
        Py_ssize_t value_size,
        int64_t timestamp_ms,
        Py_ssize_t limit,
    ) except -1
    cdef void _seal(self, char *begin, Py_ssize_t body) noexcept
    cdef object _view(self)
    cdef Py_ssize_t _adopt(self, MessageSetBuilder other, Py_ssize_t pos) except -1


cdef class BinaryColumn:
    cdef Py_buffer _validity
    cdef Py_buffer _offsets
    cdef Py_buffer _data
    cdef Py_ssize_t _first
    cdef Py_ssize_t _count
    cdef bint _nullable
    cdef bint _wide

    cdef int64_t _offset(self, Py_ssize_t row) noexcept nogil
    cdef Py_ssize_t find(self, Py_ssize_t index, const char **begin) noexcept nogil
