# The compiled twin of `_columns_py` (`Columns`); part of `_message_set_c.pyx`. `_reader_c.pxi`
# calls `reserve`, `full` and `add`, `consumer.record_buffer` calls `extend`, `_core.arrow` reads
# the columns.
#
# Invariants: once a column is read, no message is appended, so the returned buffers never move. The
# callers of `add` check this, not `add` itself. `ColumnMemory` lends a buffer again only when
# neither a `Columns` nor a returned buffer refers to it.

cdef extern from *:
    """
    /* How many views (buffer exports) of a bytearray exist. */
    #define view_count(data) (((PyByteArrayObject *)(data))->ob_exports)
    """
    Py_ssize_t view_count(bytearray data)
    Py_ssize_t Py_REFCNT(object owner)

cdef class _Bytes:
    """A growing bytearray of `room` bytes.

    `put_bytes` appends keys and values after the first `used` bytes. For all other fields `used`
    stays 0: they are written by row index.
    """

    cdef bytearray data
    cdef char *at
    cdef Py_ssize_t used
    cdef Py_ssize_t room

    def __cinit__(self):
        self.data = bytearray()
        self.at = PyByteArray_AS_STRING(self.data)
        self.used = self.room = 0

    cdef int grow(self, Py_ssize_t more) except -1:
        cdef Py_ssize_t room = max(self.used + more, 2 * self.room, 256)
        PyByteArray_Resize(self.data, room)
        self.at = PyByteArray_AS_STRING(self.data)
        self.room = room
        return 0

    cdef object finish(self, Py_ssize_t size):
        """Return the first `size` bytes: a view, or a copy if a view would keep too much memory."""
        if 2 * size < self.room:
            return PyBytes_FromStringAndSize(self.at, size)
        return memoryview(self.data)[:size]


cdef enum:
    BUFFERS = 11  # of one `Columns`
    KEPT = 3  # one is filled, the reader has one, and a reader that works ahead has another one
    KEPT_BYTES = 16 * 1024 * 1024  # larger ones aren't kept


cdef class ColumnMemory:
    cdef list _kept  # tuples of `_Bytes`

    def __init__(self):
        self._kept = []

    cdef tuple borrow(self):
        """Return the buffers of an earlier `Columns`, if they are free, or new ones."""
        cdef tuple buffers
        cdef list small = [buffers for buffers in self._kept if room_of(buffers) <= KEPT_BYTES]
        for buffers in small:
            if are_free(buffers):
                break
        else:
            buffers = new_buffers()
            small.append(buffers)
        self._kept = small[-KEPT:]
        return buffers


cdef tuple new_buffers():
    return tuple([_Bytes() for _ in range(BUFFERS)])


cdef Py_ssize_t room_of(tuple buffers):
    cdef _Bytes buffer
    cdef Py_ssize_t room = 0
    for buffer in buffers:
        room += buffer.room
    return room


cdef bint are_free(tuple buffers):
    """Return True if only the tuple refers to the buffers, and there is no view of them."""
    cdef _Bytes buffer
    for buffer in buffers:
        if Py_REFCNT(buffer) > 2 or view_count(buffer.data):  # the tuple, and the variable `buffer`
            return False
    return True


cdef class Columns:
    cdef Py_ssize_t _max_bytes
    cdef Py_ssize_t _size
    cdef Py_ssize_t _count
    cdef Py_ssize_t _capacity  # the number of messages that fit into the buffers
    cdef int64_t _last_offset
    cdef bint _is_read
    # The numbers of messages whose key, value, timestamp or timestamp type isn't null:
    cdef Py_ssize_t _key_count
    cdef Py_ssize_t _value_count
    cdef Py_ssize_t _timestamp_count
    cdef Py_ssize_t _type_count
    cdef _Bytes _key
    cdef _Bytes _value
    cdef _Bytes _key_offsets
    cdef _Bytes _value_offsets
    cdef _Bytes _offset
    cdef _Bytes _timestamp
    cdef _Bytes _timestamp_type
    cdef _Bytes _key_bits
    cdef _Bytes _value_bits
    cdef _Bytes _timestamp_bits
    cdef _Bytes _type_bits

    def __init__(self, max_bytes=DEFAULT_MAX_COLUMN_BYTES, ColumnMemory memory=None):
        cdef _Bytes buffer
        check_max_bytes(max_bytes)
        self._max_bytes = max_bytes
        self._size = self._count = 0
        self._key_count = self._value_count = self._timestamp_count = self._type_count = 0
        self._is_read = False
        self._last_offset = -1
        (
            self._key,
            self._value,
            self._key_offsets,
            self._value_offsets,
            self._offset,
            self._timestamp,
            self._timestamp_type,
            self._key_bits,
            self._value_bits,
            self._timestamp_bits,
            self._type_bits,
        ) = new_buffers() if memory is None else memory.borrow()
        self._key.used = self._value.used = 0
        self._capacity = self._offset.room // 8
        for buffer in (self._key_bits, self._value_bits, self._timestamp_bits, self._type_bits):
            memset(buffer.at, 0, buffer.room)
        self.reserve(1)
        (<int32_t *>self._key_offsets.at)[0] = 0
        (<int32_t *>self._value_offsets.at)[0] = 0

    def __len__(self):
        return self._count

    @property
    def size_bytes(self):
        return self._size

    @property
    def is_full(self):
        return self.full()

    @property
    def last_offset(self):
        return self._last_offset

    cdef inline bint full(self) noexcept:
        return self._size >= self._max_bytes or self._is_read

    cdef int reserve(self, Py_ssize_t more) except -1:
        """Make room for `more` messages, not counting the bytes of their keys and values."""
        cdef Py_ssize_t rows = self._count + more, bits
        cdef _Bytes buffer
        if rows <= self._capacity:
            return 0
        rows = max(rows, 2 * self._capacity, 64)
        self._timestamp.grow(8 * rows)
        for buffer in (self._timestamp_type,):
            buffer.grow(4 * rows)
        for buffer in (self._key_offsets, self._value_offsets):
            buffer.grow(4 * (rows + 1))
        bits = (self._capacity + 7) // 8
        for buffer in (self._key_bits, self._value_bits, self._timestamp_bits, self._type_bits):
            buffer.grow((rows + 7) // 8)
            memset(buffer.at + bits, 0, buffer.room - bits)
        # Last: the next `Columns` with this memory computes its capacity from this buffer, also if
        # there was no memory for one of the others.
        self._offset.grow(8 * rows)
        self._capacity = rows
        return 0

    cdef int add(self, Message *m) except -1:
        cdef Py_ssize_t row = self._count
        cdef Py_ssize_t key_size = max(m.key_size, 0), value_size = max(m.value_size, 0)
        if self._size + key_size + value_size > INT32_MAX:
            raise too_long()
        if row == self._capacity:
            self.reserve(1)
        if m.key_size >= 0:
            put_bytes(self._key, m.key, key_size)
            set_bit(self._key_bits, row)
            self._key_count += 1
        if m.value_size >= 0:
            put_bytes(self._value, m.value, value_size)
            set_bit(self._value_bits, row)
            self._value_count += 1
        (<int32_t *>self._key_offsets.at)[row + 1] = <int32_t>self._key.used
        (<int32_t *>self._value_offsets.at)[row + 1] = <int32_t>self._value.used
        (<int64_t *>self._offset.at)[row] = m.offset
        if m.timestamp_type < 0:
            (<int64_t *>self._timestamp.at)[row] = 0
            (<int32_t *>self._timestamp_type.at)[row] = 0
        else:
            (<int32_t *>self._timestamp_type.at)[row] = m.timestamp_type
            set_bit(self._type_bits, row)
            self._type_count += 1
            if 0 <= m.timestamp_ms <= most_timestamp_ms:
                (<int64_t *>self._timestamp.at)[row] = m.timestamp_ms * 1000
                set_bit(self._timestamp_bits, row)
                self._timestamp_count += 1
            else:
                (<int64_t *>self._timestamp.at)[row] = 0
        self._size += key_size + value_size
        self._count = row + 1
        self._last_offset = m.offset
        return 0

    def extend(self, records):
        cdef Message m
        if self._is_read:
            raise already_read()
        for record in list(records):
            key, value, timestamp = record.key, record.value, record.timestamp
            m.key_size = m.value_size = m.timestamp_type = -1
            m.key = m.value = NULL
            m.timestamp_ms = -1
            if key is not None:
                m.key, m.key_size = PyBytes_AS_STRING(<bytes?>key), PyBytes_GET_SIZE(key)
            if value is not None:
                m.value, m.value_size = PyBytes_AS_STRING(<bytes?>value), PyBytes_GET_SIZE(value)
            if timestamp is not None:
                m.timestamp_ms, m.timestamp_type = timestamp, record.timestamp_type
            m.offset = record.offset
            self.add(&m)

    def delimited(self, bytes end not None, bytes null not None=b"", bytes between=None):
        cdef Py_ssize_t row, total = self._value.used
        cdef Py_ssize_t end_size = PyBytes_GET_SIZE(end), null_size = PyBytes_GET_SIZE(null)
        cdef Py_ssize_t between_size = 0
        cdef char *at
        cdef bytes out
        total += self._count * end_size + (self._count - self._value_count) * null_size
        if between is not None:
            between_size = PyBytes_GET_SIZE(between)
            total += self._key.used + self._count * between_size
            total += (self._count - self._key_count) * null_size
        out = PyBytes_FromStringAndSize(NULL, total)
        at = PyBytes_AS_STRING(out)
        for row in range(self._count):
            if between is not None:
                at = put_field(
                    at, self._key_bits, self._key_offsets, self._key, row, null, null_size
                )
                memcpy(at, PyBytes_AS_STRING(between), between_size)
                at += between_size
            at = put_field(
                at, self._value_bits, self._value_offsets, self._value, row, null, null_size
            )
            memcpy(at, PyBytes_AS_STRING(end), end_size)
            at += end_size
        return out

    def column_key(self):
        return self._binary(
            self._key_bits, self._key_offsets, self._key, self._count - self._key_count
        )

    def column_value(self):
        return self._binary(
            self._value_bits, self._value_offsets, self._value, self._count - self._value_count
        )

    def column_offset(self):
        return self._fixed(None, self._offset, 8, 0)

    def column_timestamp(self):
        return self._fixed(
            self._timestamp_bits, self._timestamp, 8, self._count - self._timestamp_count
        )

    def column_timestamp_type(self):
        return self._fixed(self._type_bits, self._timestamp_type, 4, self._count - self._type_count)

    cdef object _binary(self, _Bytes bits, _Bytes offsets, _Bytes data, Py_ssize_t nulls):
        self._is_read = True
        return Column(
            bits.finish((self._count + 7) // 8) if nulls else None,
            offsets.finish(4 * (self._count + 1)),
            data.finish(data.used),
            nulls,
        )

    cdef object _fixed(self, _Bytes bits, _Bytes data, int width, Py_ssize_t nulls):
        self._is_read = True
        return Column(
            bits.finish((self._count + 7) // 8) if nulls else None,
            None,
            data.finish(width * self._count),
            nulls,
        )


cdef int64_t most_timestamp_ms = MAX_TIMESTAMP_MS


cdef inline char *put_field(
    char *at,
    _Bytes bits,
    _Bytes offsets,
    _Bytes data,
    Py_ssize_t row,
    bytes null,
    Py_ssize_t null_size,
) noexcept:
    """Copy the key or value of a row, or `null`, to `at`; return where it ends."""
    cdef int32_t begin = (<int32_t *>offsets.at)[row]
    cdef Py_ssize_t size = (<int32_t *>offsets.at)[row + 1] - begin
    if not (<uint8_t *>bits.at)[row >> 3] >> (row & 7) & 1:
        memcpy(at, PyBytes_AS_STRING(null), null_size)
        return at + null_size
    memcpy(at, data.at + begin, size)
    return at + size


cdef inline int put_bytes(_Bytes target, const char *data, Py_ssize_t size) except -1:
    if size > target.room - target.used:
        target.grow(size)
    memcpy(target.at + target.used, data, size)
    target.used += size
    return 0


cdef inline void set_bit(_Bytes bits, Py_ssize_t row) noexcept:
    bits.at[row >> 3] |= 1 << (row & 7)
