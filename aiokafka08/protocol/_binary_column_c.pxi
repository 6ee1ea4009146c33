# The compiled twin of `_binary_column_py`: `BinaryColumn`, a binary column in Arrow's layout. Part
# of `_message_set_c.pyx`. `_core.arrow` constructs it; `_builder_c.pxi` and `partitions_of` call
# `find`.
#
# Invariant: the constructor checks all offsets and the instance holds the buffers, so `find` reads
# nothing outside of them while 0 <= index < count.

cdef class BinaryColumn:  # the .pxd declares its attributes
    def __cinit__(
        self, Py_ssize_t first, Py_ssize_t count, validity, offsets, data, bint wide=False
    ):
        cdef Py_ssize_t rows, row
        cdef int64_t before, at
        if first < 0 or count < 0:
            raise ValueError(f"first={first}, count={count}: expected integers >= 0")
        self._first, self._count, self._wide = first, count, wide
        if validity is not None:
            PyObject_GetBuffer(validity, &self._validity, PyBUF_SIMPLE)
            self._nullable = True
        if offsets is not None:
            PyObject_GetBuffer(offsets, &self._offsets, PyBUF_SIMPLE)
        if data is not None:
            PyObject_GetBuffer(data, &self._data, PyBUF_SIMPLE)
        if not count:
            return
        rows = self._offsets.len // (8 if wide else 4) - 1
        if self._nullable:
            rows = min(rows, 8 * self._validity.len)
        if first > rows or count > rows - first:
            raise ValueError(f"buffers of a column: expected at least {<object>first + count} rows")
        before = self._offset(first)
        if before < 0:
            raise wrong_offsets()
        for row in range(first + 1, first + count + 1):
            at = self._offset(row)
            if at < before:
                raise wrong_offsets()
            before = at
        if before > self._data.len:
            raise wrong_offsets()

    @staticmethod
    def split(bytes data not None, bytes delimiter not None, bint skip_empty=False):
        cdef Py_ssize_t size = PyBytes_GET_SIZE(data), rows = 0, used = 0, room = 64
        cdef const char *at = PyBytes_AS_STRING(data)
        cdef const char *end = at + size
        cdef const char *mark_at
        cdef char *to
        cdef char mark
        cdef bytes joined
        cdef bytearray offsets
        check_split(size, delimiter)
        mark = PyBytes_AS_STRING(delimiter)[0]
        joined = PyBytes_FromStringAndSize(NULL, size)
        to = PyBytes_AS_STRING(joined)
        offsets = bytearray(4 * room)
        (<int32_t *>PyByteArray_AS_STRING(offsets))[0] = 0
        while True:
            mark_at = <const char *>memchr(at, mark, end - at)
            if mark_at == NULL:
                mark_at = end
            if mark_at > at or not skip_empty:
                memcpy(to + used, at, mark_at - at)
                used += mark_at - at
                rows += 1
                if rows == room:
                    room *= 2
                    PyByteArray_Resize(offsets, 4 * room)
                (<int32_t *>PyByteArray_AS_STRING(offsets))[rows] = <int32_t>used
            if mark_at == end:
                return BinaryColumn(0, rows, None, offsets, joined)
            at = mark_at + 1

    def longest(self):
        cdef Py_ssize_t index, most = 0
        cdef const char *begin
        for index in range(self._count):
            most = max(most, self.find(index, &begin))
        return most

    def __dealloc__(self):
        PyBuffer_Release(&self._validity)  # does nothing for a buffer that was never filled
        PyBuffer_Release(&self._offsets)
        PyBuffer_Release(&self._data)

    def __len__(self):
        return self._count

    def __getitem__(self, index):
        cdef const char *begin
        cdef Py_ssize_t at, size
        if isinstance(index, slice):
            return [self[row] for row in range(*index.indices(self._count))]
        at = index
        if not -self._count <= at < self._count:
            raise IndexError(f"row {index}: there are {self._count} rows")
        size = self.find(at + self._count if at < 0 else at, &begin)
        return nullable(begin, size)

    cdef int64_t _offset(self, Py_ssize_t row) noexcept nogil:
        cdef int32_t narrow
        cdef int64_t wide
        if self._wide:
            memcpy(&wide, <const char *>self._offsets.buf + 8 * row, 8)
            return wide
        memcpy(&narrow, <const char *>self._offsets.buf + 4 * row, 4)
        return narrow

    cdef Py_ssize_t find(self, Py_ssize_t index, const char **begin) noexcept nogil:
        """Return the size of a row, -1 if it is null; set `begin` to its first byte.

        The caller has checked that 0 <= index < count.
        """
        cdef Py_ssize_t row = self._first + index
        cdef int64_t at
        if self._nullable and not (<const uint8_t *>self._validity.buf)[row >> 3] >> (row & 7) & 1:
            begin[0] = NULL
            return -1
        at = self._offset(row)
        begin[0] = <const char *>self._data.buf + at
        return self._offset(row + 1) - at


cdef object wrong_offsets():
    return ValueError("buffers of a column: offsets decrease or exceed the data")
