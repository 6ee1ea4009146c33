# The compiled twin of `_builder_py` (`MessageSetBuilder`); part of `_message_set_c.pyx`. The
# producer uses it by way of `message_set`; `producer._producer_c` calls `_append` in C.
#
# Invariant: the first `size_bytes` bytes of `_buffer` are whole messages with valid CRCs and
# offsets from 0 on; later appends don't change a set that `build()` has returned.

cdef class MessageSetBuilder:  # the .pxd declares its attributes
    def __init__(self, int magic, codec=Codec.NONE):
        self.magic = magic
        self.codec = codec
        self.size_bytes = 0
        self.max_timestamp_ms = -1
        self._buffer = bytearray()
        self._room = 0
        self._count = 0

    def __len__(self):
        return self._count

    cdef int _make_room(self, Py_ssize_t more) except -1:
        cdef Py_ssize_t room = self.size_bytes + more
        if room <= self._room:
            return 0
        room = max(room, 2 * self._room, 1024)
        try:
            PyByteArray_Resize(self._buffer, room)
        except BufferError:  # a caller has a view of a built set: leave it the old buffer
            fresh = bytearray(memoryview(self._buffer)[:self.size_bytes])
            PyByteArray_Resize(fresh, room)
            self._buffer = fresh
        self._room = room
        return 0

    cdef int _append(
        self, object key, object value, int64_t timestamp_ms, Py_ssize_t limit
    ) except -1:
        """Append a message and return 1, or return 0 if the set would then exceed `limit`.

        A negative `limit` means no limit (`extend` passes 0 instead). An empty builder takes its
        first message at any size.
        """
        cdef Py_ssize_t key_size = -1, value_size = -1
        cdef const char *key_at = NULL
        cdef const char *value_at = NULL
        if key is not None:
            if not PyBytes_CheckExact(key):
                key = bytes(memoryview(key))
            key_at, key_size = PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)
        if value is not None:
            if not PyBytes_CheckExact(value):
                value = bytes(memoryview(value))
            value_at, value_size = PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value)
        return self._put(key_at, key_size, value_at, value_size, timestamp_ms, limit)

    cdef int _put(
        self,
        const char *key,
        Py_ssize_t key_size,
        const char *value,
        Py_ssize_t value_size,
        int64_t timestamp_ms,
        Py_ssize_t limit,
    ) except -1:
        """Do what `_append` does; a size of -1 means null."""
        cdef Py_ssize_t key_bytes = max(key_size, 0), value_bytes = max(value_size, 0), body
        cdef char *at
        cdef char *begin
        if key_bytes > INT32_MAX - 64 or value_bytes > INT32_MAX - 64 - key_bytes:
            raise OverflowError("append a message: key and value have 2 GiB or more")
        body = (10 if self.magic == 0 else 18) + key_bytes + value_bytes
        if limit >= 0 and self._count and self.size_bytes + BODY_AT + body > limit:
            return 0
        self._make_room(BODY_AT + body)
        begin = PyByteArray_AS_STRING(self._buffer) + self.size_bytes
        at = begin + BODY_AT
        at[0] = self.magic
        at[1] = 0
        at += 2
        if self.magic:
            put_int64(at, timestamp_ms)
            at += 8
        put_int32(at, <int32_t>key_size)
        if key_bytes:
            memcpy(at + 4, key, key_bytes)
        at += 4 + key_bytes
        put_int32(at, <int32_t>value_size)
        if value_bytes:
            memcpy(at + 4, value, value_bytes)
        self._seal(begin, body)
        if self.magic and timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = timestamp_ms
        return 1

    cdef void _seal(self, char *begin, Py_ssize_t body) noexcept:
        """Fill in the offset, size and CRC at `begin`; the body after them is already written."""
        put_int64(begin, self._count)
        put_int32(begin + 8, <int32_t>(body + 4))
        put_int32(begin + 12, <int32_t>crc_of(begin + BODY_AT, body))
        self._count += 1
        self.size_bytes += BODY_AT + body

    def append(self, key, value, timestamp_ms):
        self._append(key, value, timestamp_ms if self.magic else -1, -1)

    def extend(self, keys, values, timestamps_ms, Py_ssize_t start, Py_ssize_t limit_bytes):
        cdef object all_keys = None, all_values, all_timestamps = None, key = None
        cdef int64_t timestamp = -1
        cdef Py_ssize_t index, count
        if (
            type(values) is BinaryColumn
            and (keys is None or type(keys) is BinaryColumn)
            and (isinstance(timestamps_ms, int) or is_int64s(timestamps_ms))
        ):
            return extend_blobs(self, keys, values, timestamps_ms, start, limit_bytes)
        all_values = PySequence_Fast(values, "values must be a sequence")
        if keys is not None:
            all_keys = PySequence_Fast(keys, "keys must be a sequence")
        if not isinstance(timestamps_ms, int):
            all_timestamps = PySequence_Fast(timestamps_ms, "timestamps_ms must be a sequence")
        elif self.magic:
            timestamp = timestamps_ms
        count = PySequence_Fast_GET_SIZE(all_values)
        limit_bytes = max(limit_bytes, 0)
        index = start
        while index < count:
            # Check the lengths each time: `_append` converts a key or value that isn't bytes by the
            # buffer protocol, which may run Python code that shortens these lists.
            if index >= PySequence_Fast_GET_SIZE(all_values):
                raise IndexError("values got shorter")
            if all_keys is not None:
                if index >= PySequence_Fast_GET_SIZE(all_keys):
                    raise IndexError("there are fewer keys than values")
                key = <object>PySequence_Fast_GET_ITEM(all_keys, index)
            if all_timestamps is not None and self.magic:
                if index >= PySequence_Fast_GET_SIZE(all_timestamps):
                    raise IndexError("there are fewer timestamps than values")
                timestamp = <object>PySequence_Fast_GET_ITEM(all_timestamps, index)
            if not self._append(
                key, <object>PySequence_Fast_GET_ITEM(all_values, index), timestamp, limit_bytes
            ):
                return index
            index += 1
        return count

    cdef object _view(self):
        return memoryview(self._buffer)[:self.size_bytes]

    def build(self):
        cdef Py_buffer buffer
        cdef char *entry
        cdef Py_ssize_t value_at = BODY_AT + (10 if self.magic == 0 else 18)
        if self.codec is Codec.NONE or not self._count:
            return self._view()
        wrapper = compress_behind(self.codec, self._view(), magic=self.magic, room=value_at)
        PyObject_GetBuffer(wrapper.getbuffer(), &buffer, PyBUF_SIMPLE)
        if buffer.len > INT32_MAX:
            PyBuffer_Release(&buffer)
            raise OverflowError("build: the compressed messages have 2 GiB or more")
        entry = <char *>buffer.buf
        put_int64(entry, self._count - 1)
        put_int32(entry + 8, <int32_t>(buffer.len - ENTRY_HEADER_BYTES))
        entry[BODY_AT] = self.magic
        entry[BODY_AT + 1] = <int>self.codec
        if self.magic:
            put_int64(entry + BODY_AT + 2, self.max_timestamp_ms)
        put_int32(entry + value_at - 8, -1)
        put_int32(entry + value_at - 4, <int32_t>(buffer.len - value_at))
        put_int32(entry + 12, <int32_t>long_crc_of(entry + BODY_AT, buffer.len - BODY_AT))
        PyBuffer_Release(&buffer)
        return wrapper.getvalue()

    def split(self):
        cdef MessageSetBuilder first = MessageSetBuilder(self.magic, self.codec)
        cdef MessageSetBuilder second = MessageSetBuilder(self.magic, self.codec)
        cdef Py_ssize_t pos = 0, index
        for index in range(self._count):
            pos = (first if index < self._count // 2 else second)._adopt(self, pos)
        return first, second

    def key_lengths(self):
        cdef const char *data = PyByteArray_AS_STRING(self._buffer)
        cdef Py_ssize_t key_at = BODY_AT + (2 if self.magic == 0 else 10)
        cdef Py_ssize_t pos = 0, _index
        cdef int32_t length, shortest = -1, longest = -1
        for _index in range(self._count):
            length = get_int32(data + pos + key_at)
            shortest = length if _index == 0 else min(shortest, length)
            longest = max(longest, length)
            pos += ENTRY_HEADER_BYTES + get_int32(data + pos + 8)
        return shortest, longest

    def as_format_0(self):
        cdef MessageSetBuilder part = MessageSetBuilder(0, self.codec)
        cdef Py_ssize_t pos = 0, _index
        for _index in range(self._count):
            pos = part._adopt(self, pos)
        return part

    cdef Py_ssize_t _adopt(self, MessageSetBuilder other, Py_ssize_t pos) except -1:
        """Append the message at `pos` of another builder; return the position of the next."""
        cdef const char *source = PyByteArray_AS_STRING(other._buffer) + pos
        cdef Py_ssize_t body = get_int32(source + 8) - 4
        cdef Py_ssize_t drop = 8 if other.magic and not self.magic else 0
        cdef char *begin
        cdef int64_t timestamp
        self._make_room(BODY_AT + body)
        begin = PyByteArray_AS_STRING(self._buffer) + self.size_bytes
        memcpy(begin + BODY_AT, source + BODY_AT, 2)
        begin[BODY_AT] = self.magic
        memcpy(begin + BODY_AT + 2, source + BODY_AT + 2 + drop, body - 2 - drop)
        self._seal(begin, body - drop)
        if self.magic:
            timestamp = get_int64(source + BODY_AT + 2)
            self.max_timestamp_ms = max(self.max_timestamp_ms, timestamp)
        return pos + BODY_AT + body


cdef bint is_int64s(object data) except -1:
    return isinstance(data, memoryview) and data.format == "q" and data.c_contiguous


cdef Py_ssize_t extend_blobs(
    MessageSetBuilder builder,
    BinaryColumn keys,
    BinaryColumn values,
    timestamps_ms,
    Py_ssize_t start,
    Py_ssize_t limit,
) except -1:
    """Do what `MessageSetBuilder.extend` does, without an object per message."""
    cdef Py_buffer times
    cdef bint per_message = not isinstance(timestamps_ms, int)
    cdef int64_t timestamp = -1
    cdef const char *key = NULL
    cdef const char *value = NULL
    cdef Py_ssize_t index, key_size = -1, value_size
    if start < 0:
        raise IndexError(f"start={start}")
    if builder.magic and not per_message:
        timestamp = timestamps_ms
    limit = max(limit, 0)
    PyObject_GetBuffer(timestamps_ms if per_message else b"", &times, PyBUF_SIMPLE)
    try:
        for index in range(start, values._count):
            if keys is not None:
                if index >= keys._count:
                    raise IndexError("there are fewer keys than values")
                key_size = keys.find(index, &key)
            if per_message and builder.magic:
                if index >= times.len // 8:
                    raise IndexError("there are fewer timestamps than values")
                memcpy(&timestamp, <const char *>times.buf + 8 * index, 8)
            value_size = values.find(index, &value)
            if not builder._put(key, key_size, value, value_size, timestamp, limit):
                return index
    finally:
        PyBuffer_Release(&times)
    return values._count
