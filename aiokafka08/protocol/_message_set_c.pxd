# What the producer's compiled way in needs of the builder.

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
    cdef int _append(self, object key, object value, int64_t timestamp_ms, Py_ssize_t limit) except -1
    cdef void _seal(self, char *begin, Py_ssize_t body) noexcept
    cdef object _view(self)
    cdef Py_ssize_t _adopt(self, MessageSetBuilder other, Py_ssize_t pos) except -1
