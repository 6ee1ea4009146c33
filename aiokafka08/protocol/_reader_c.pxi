# The compiled twins of `_reader_py` (`summarize_set`, `MessageSetReader`), a part of
# `_message_set_c.pyx`.
# `_core.ranges.next_fetch`, `consumer.record_buffer` and `spark.driver` make readers;
# `_core.ranges.next_fetch` and `_core.ranges.range_reader` call `summarize_set`.
#
# Invariant: whatever the bytes are, nothing outside of the message set is read, and the messages
# before a corrupt one are returned before its error is raised.

cdef struct Headers:
    int64_t highest
    Py_ssize_t whole_bytes
    int64_t tail_size  # -1: none
    bint rises


cdef void walk_headers(const char *data, Py_ssize_t end, Headers *found) noexcept nogil:
    cdef Py_ssize_t pos = 0
    cdef int64_t offset, size
    found.highest = found.tail_size = -1
    found.rises = True
    while end - pos >= ENTRY_HEADER_BYTES:
        offset = get_int64(data + pos)
        size = get_int32(data + pos + 8)
        if size > end - pos - ENTRY_HEADER_BYTES:
            if offset >= 0:
                found.tail_size = ENTRY_HEADER_BYTES + size
            break
        if size < MIN_MESSAGE_BYTES_0:
            break
        if offset > found.highest:
            found.highest = offset
        else:
            found.rises = False
        pos += ENTRY_HEADER_BYTES + size
    found.whole_bytes = pos


cdef struct InnerHeaders:
    Py_ssize_t whole_bytes
    int64_t first
    int64_t last
    bint rises


cdef void walk_inner_headers(const char *data, Py_ssize_t end, InnerHeaders *found) noexcept nogil:
    cdef Py_ssize_t pos = 0
    cdef int64_t offset, size
    found.first = found.last = 0
    found.rises = True
    while end - pos >= ENTRY_HEADER_BYTES:
        offset = get_int64(data + pos)
        size = get_int32(data + pos + 8)
        if size > end - pos - ENTRY_HEADER_BYTES or size < MIN_MESSAGE_BYTES_0:
            break
        if pos == 0:
            found.first = offset
        elif offset <= found.last:
            found.rises = False
        found.last = offset
        pos += ENTRY_HEADER_BYTES + size
    found.whole_bytes = pos


def summarize_set(message_set):
    cdef Py_buffer buffer
    cdef Headers found
    PyObject_GetBuffer(message_set, &buffer, PyBUF_SIMPLE)
    walk_headers(<const char *>buffer.buf, buffer.len, &found)
    PyBuffer_Release(&buffer)
    return SetSummary(
        None if found.highest < 0 else <object>found.highest + 1,
        found.whole_bytes,
        None if found.tail_size < 0 else found.tail_size,
        found.rises,
    )


cdef struct Message:
    int64_t offset
    int64_t timestamp_ms
    int timestamp_type  # -1 in format 0
    const char *key
    const char *value
    Py_ssize_t key_size  # -1: null
    Py_ssize_t value_size
    uint32_t crc


cdef Py_ssize_t at_topic = slot_offset(ConsumerRecord, "topic")
cdef Py_ssize_t at_partition = slot_offset(ConsumerRecord, "partition")
cdef Py_ssize_t at_offset = slot_offset(ConsumerRecord, "offset")
cdef Py_ssize_t at_timestamp = slot_offset(ConsumerRecord, "timestamp")
cdef Py_ssize_t at_timestamp_type = slot_offset(ConsumerRecord, "timestamp_type")
cdef Py_ssize_t at_key = slot_offset(ConsumerRecord, "key")
cdef Py_ssize_t at_value = slot_offset(ConsumerRecord, "value")
cdef Py_ssize_t at_checksum = slot_offset(ConsumerRecord, "checksum")
cdef Py_ssize_t at_key_size = slot_offset(ConsumerRecord, "serialized_key_size")
cdef Py_ssize_t at_value_size = slot_offset(ConsumerRecord, "serialized_value_size")
cdef Py_ssize_t at_headers = slot_offset(ConsumerRecord, "headers")
cdef object record_type = ConsumerRecord
track_when_assigned(ConsumerRecord)  # the garbage collector tracks a record once it is changed
cdef object no_headers = ()


cdef inline object nullable(const char *data, Py_ssize_t size):
    return None if size < 0 else PyBytes_FromStringAndSize(data, size)


cdef inline int fill(object record, Py_ssize_t at, object value) except -1:
    Py_INCREF(value)
    fill_slot(record, at, value)
    return 0


cdef object new_record(object topic, object partition, Message *m):
    """Do what calling ConsumerRecord does, without the call; each slot is filled.

    The garbage collector doesn't track the record, because a single visit would take as long as
    making the record. No field refers back to the record, so it is in no cycle (until a caller
    assigns a field: `track_when_assigned`).
    """
    cdef object record = PyType_GenericAlloc(<PyTypeObject *>record_type, 0)
    PyObject_GC_UnTrack(record)
    fill(record, at_topic, topic)
    fill(record, at_partition, partition)
    fill(record, at_offset, m.offset)
    if m.timestamp_type < 0:
        fill(record, at_timestamp, None)
        fill(record, at_timestamp_type, None)
    else:
        fill(record, at_timestamp, m.timestamp_ms)
        fill(record, at_timestamp_type, m.timestamp_type)
    fill(record, at_key, nullable(m.key, m.key_size))
    fill(record, at_value, nullable(m.value, m.value_size))
    fill(record, at_checksum, m.crc)
    fill(record, at_key_size, m.key_size)
    fill(record, at_value_size, m.value_size)
    fill(record, at_headers, no_headers)
    return record


cdef enum Found:
    END = 0
    MESSAGE = 1
    WRAPPER = 2


cdef class _Decompression:
    cdef int128 pause_after_bytes
    cdef int128 decompressed_bytes
    cdef bint paused
    cdef object long_wrapper

    cdef void begin_call(self) noexcept:
        self.decompressed_bytes = 0
        self.paused = False


cdef class MessageSetReader:
    cdef readonly object error
    cdef object _topic_partition
    cdef object _topic
    cdef object _partition
    cdef object _message_set
    cdef object _limit
    cdef bint _leave_long
    # The address of the bytes of `_message_set`. In the outermost reader it is set only during a
    # call, which holds a buffer export of its own; between calls it is NULL. (A memoryview
    # attribute wouldn't protect the address: garbage collection of a cycle releases the memoryview,
    # even while the address is in use.) In the reader of a wrapper's messages it is always set:
    # there `_message_set` is a bytes object.
    cdef const char *_data
    cdef Py_ssize_t _end
    cdef Py_ssize_t _pos
    cdef int128 _start
    cdef int128 _fetch_offset
    cdef int128 _end_offset
    cdef bint _check_crcs
    cdef MessageSetReader _inner
    cdef _Decompression _decompression
    # Set in the reader of the messages inside a wrapper (see `_open`):
    cdef int _nesting
    cdef object _after_wrapper  # the offset after the wrapper
    cdef int128 _relative_to  # added to each offset (format 1)
    cdef bint _has_offset
    cdef int64_t _offset  # the offset of each message, that of the wrapper
    cdef bint _has_timestamp
    cdef int64_t _timestamp  # the wrapper's, under LogAppendTime

    def __init__(
        self,
        topic_partition,
        message_set,
        fetch_offset,
        *,
        bint check_crcs=True,
        max_decompressed_bytes,
        end_offset=None,
        pause_after_bytes=NO_END,
        bint leave_long=False,
    ):
        self._topic_partition = topic_partition
        self._topic, self._partition = topic_partition
        self._start = self._fetch_offset = fetch_offset
        self._end_offset = NO_END if end_offset is None else end_offset
        self._check_crcs = check_crcs
        self._limit = max_decompressed_bytes
        self._leave_long = leave_long
        memoryview(message_set)  # raises TypeError unless it is a buffer
        self._message_set = message_set
        self._decompression = _Decompression()
        self._decompression.pause_after_bytes = pause_after_bytes

    @property
    def decompressed_bytes(self):
        return <object>self._decompression.decompressed_bytes

    @property
    def paused(self):
        return self._decompression.paused

    @property
    def shared_offset(self):
        cdef MessageSetReader reader = self
        while reader is not None and not reader._has_offset:
            reader = reader._inner
        return None if reader is None else reader._offset

    @property
    def long_wrapper(self):
        return self._decompression.long_wrapper

    def move_to(self, bytes message_set not None):
        if PyBytes_GET_SIZE(message_set) < self._pos:
            raise ValueError("move_to: expected a copy of the message set")
        self._message_set = message_set
        wrapper = self._decompression.long_wrapper
        if wrapper is not None and not wrapper.is_open:
            self._decompression.long_wrapper = None

    cdef int _export(self, Py_buffer *buffer) except -1:
        if self._data != NULL:
            raise RuntimeError("read: another thread is reading from this reader")
        PyObject_GetBuffer(self._message_set, buffer, PyBUF_SIMPLE)
        self._data, self._end = <const char *>buffer.buf, buffer.len
        return 0

    cdef void _release(self, Py_buffer *buffer) noexcept:
        self._data = NULL
        PyBuffer_Release(buffer)

    def read(self, Py_ssize_t max_records):
        cdef list records = []
        cdef Message m
        cdef Py_ssize_t count = 0
        cdef Py_buffer buffer
        self._decompression.begin_call()
        if self.error is None:
            self._export(&buffer)
            try:
                while count < max_records and self._next(&m):
                    records.append(new_record(self._topic, self._partition, &m))
                    count += 1
            except CorruptRecordException as error:
                self.error = error
            finally:
                self._release(&buffer)
        if self.error is not None and not count:
            raise self.error.with_traceback(None)
        return records

    def read_columns(self, Columns columns not None, Py_ssize_t max_records):
        cdef Message m
        cdef Py_ssize_t count = 0
        cdef Py_buffer buffer
        self._decompression.begin_call()
        if max_records <= 0 or columns.full():
            return 0
        if self.error is None:
            self._export(&buffer)
            try:
                columns.reserve(
                    min(max_records, max(self._end - self._pos, 0) // MIN_ENTRY_BYTES + 1)
                )
                while count < max_records and not columns.full() and self._next(&m):
                    columns.add(&m)
                    count += 1
            except CorruptRecordException as error:
                self.error = error
            finally:
                self._release(&buffer)
        if self.error is not None and not count:
            raise self.error.with_traceback(None)
        return count

    cdef bint _next(self, Message *m) except -1:
        """Read the next message into `m`, whose `key` and `value` then point into the set.

        Return False if no message is left, or if the call paused before a wrapper.
        """
        cdef Found found
        while True:
            if self._inner is not None:
                if self._inner._next(m):
                    return True
                if self._decompression.paused:
                    return False
                self._fetch_offset = max(self._fetch_offset, self._inner._fetch_offset)
                self._inner = None
            found = self._entry(m)
            if found != WRAPPER:
                return found == MESSAGE

    cdef Found _entry(self, Message *m) except *:
        cdef const char *data = self._data
        cdef Py_ssize_t end = self._end, pos, stop, at, key_size, value_size
        cdef int128 offset
        cdef int64_t size
        cdef int magic, attributes
        while True:
            pos = self._pos
            if end - pos < MIN_ENTRY_BYTES:
                self._check_tail(pos)
                return END
            size = get_int32(data + pos + 8)
            if size > end - pos - ENTRY_HEADER_BYTES or size < MIN_MESSAGE_BYTES_0:
                self._check_tail(pos)
                self._pos = end
                return END
            stop = pos + ENTRY_HEADER_BYTES + size
            self._pos = stop
            if self._has_offset:
                offset = self._offset
            else:
                offset = get_int64(data + pos)
                offset = offset + self._relative_to
            if offset < self._fetch_offset:
                continue
            magic = <int><signed char>data[pos + 16]
            attributes = <int><signed char>data[pos + 17]
            if offset >= self._end_offset and not attributes & CODEC_BITS:
                self._pos = end
                return END
            m.crc = <uint32_t>get_int32(data + pos + 12)
            if (
                self._check_crcs
                and self._decompression.long_wrapper is None  # else it was checked before
                and long_crc_of(data + pos + BODY_AT, stop - pos - BODY_AT) != m.crc
            ):
                raise self._corrupt(offset, "its CRC doesn't match")
            if magic == 0:
                m.timestamp_type = -1
                m.timestamp_ms = -1
                at = pos + 18
            elif magic == 1 and size >= MIN_MESSAGE_BYTES_1:
                if self._has_timestamp:
                    m.timestamp_ms = self._timestamp
                    m.timestamp_type = 1
                else:
                    m.timestamp_ms = get_int64(data + pos + 18)
                    m.timestamp_type = (attributes & LOG_APPEND_TIME_BIT) >> 3
                at = pos + 26
            else:
                raise self._corrupt(offset, f"magic {magic} with size {size}")
            # The two length fields fit: the size was checked against the smallest one.
            key_size = get_int32(data + at)
            at += 4
            m.key = data + at
            m.key_size = key_size
            if key_size != -1:
                if key_size < 0 or key_size > stop - at - 4:
                    raise self._corrupt(offset, f"its key length is {key_size}")
                at += key_size
            value_size = get_int32(data + at)
            at += 4
            m.value = data + at
            m.value_size = value_size
            if value_size != stop - at and not (value_size == -1 and at == stop):
                raise self._corrupt(offset, f"its value length is {value_size}")
            if attributes & CODEC_BITS:
                if self._decompression.decompressed_bytes >= self._decompression.pause_after_bytes:
                    self._decompression.paused = True
                    self._pos = pos
                    return END
                plain = self._decompress(offset, attributes, m)
                if plain is None:
                    self._decompression.paused = True
                    self._pos = pos
                    return END
                self._inner = self._inside(offset, magic, attributes, m, plain)
                if not self._has_offset:
                    self._fetch_offset = offset + 1
                return WRAPPER
            m.offset = <int64_t>offset
            if not self._has_offset:
                self._fetch_offset = offset + 1
            return MESSAGE

    cdef int _check_tail(self, Py_ssize_t pos) except -1:
        cdef Py_ssize_t left = self._end - pos
        cdef int64_t size
        if self._fetch_offset >= self._end_offset:
            return 0
        if left >= ENTRY_HEADER_BYTES:
            size = get_int32(self._data + pos + 8)
            if size <= left - ENTRY_HEADER_BYTES:
                raise self._not_a_message(f"its size field says {size}")
        if left and self._after_wrapper is not None:
            raise self._not_a_message("it is cut off within its wrapper")
        return 0

    cdef bytes _decompress(self, int128 offset, int attributes, Message *m):
        """Decompress a wrapper's value; None if that takes long, and isn't done yet."""
        cdef int codec = attributes & CODEC_BITS
        cdef Py_ssize_t at
        if self._nesting == MAX_NESTING:
            raise self._corrupt(offset, "it is a wrapper in a wrapper in a wrapper")
        if m.value_size < 0:
            raise self._corrupt(offset, "it is a wrapper without a value")
        wrapper = self._decompression.long_wrapper
        try:
            if wrapper is not None:
                if not wrapper.is_open:
                    return None
                self._decompression.long_wrapper = None
                return wrapper.result()[0]
            at = m.value - self._data
            value = memoryview(self._message_set).cast("B")[at : at + m.value_size]
            if not self._leave_long:
                return decompress(Codec(codec), value, self._limit)
            plain = decompress_unless_long(Codec(codec), value, self._limit)
            if plain is None:
                self._decompression.long_wrapper = LongWrapper(Codec(codec), value, self._limit)
            return plain
        except ValueError as error:
            raise self._corrupt(offset, f"codec {codec}: {error}") from None

    cdef MessageSetReader _inside(
        self, int128 offset, int magic, int attributes, Message *m, bytes plain
    ):
        """Return a reader of the messages inside a wrapper."""
        cdef MessageSetReader inner
        cdef InnerHeaders inside
        cdef int128 relative_to, lowest
        cdef bint has_offsets, is_whole
        walk_inner_headers(PyBytes_AS_STRING(plain), PyBytes_GET_SIZE(plain), &inside)
        has_offsets = not self._nesting and magic == 0 and inside.rises and inside.last < offset
        is_whole = inside.whole_bytes == PyBytes_GET_SIZE(plain)
        if inside.whole_bytes == 0 or not (is_whole or has_offsets):
            raise self._corrupt(offset, describe_rest(plain, inside.whole_bytes))
        inner = MessageSetReader(
            self._topic_partition,
            plain,
            self._fetch_offset,
            check_crcs=self._check_crcs,
            max_decompressed_bytes=self._limit,
            leave_long=self._leave_long,
        )
        self._decompression.decompressed_bytes += PyBytes_GET_SIZE(plain)
        inner._decompression = self._decompression
        inner._data, inner._end = PyBytes_AS_STRING(plain), PyBytes_GET_SIZE(plain)
        inner._end_offset = self._end_offset
        inner._nesting = self._nesting + 1
        inner._after_wrapper = <object>offset + 1
        if magic == 1 and attributes & LOG_APPEND_TIME_BIT:
            inner._has_timestamp = True
            inner._timestamp = m.timestamp_ms
        relative_to = offset - inside.last if magic == 1 else 0
        lowest = self._fetch_offset if self._fetch_offset > self._start else 0
        if (
            self._nesting
            or not inside.rises
            or relative_to + inside.first < lowest
            or (relative_to + inside.last != offset and is_whole)
        ):
            inner._has_offset = True
            inner._offset = <int64_t>offset
        else:
            inner._relative_to = relative_to
        return inner

    cdef object _not_a_message(self, object why):
        fetch_offset = <object>self._fetch_offset
        position = <object>self._offset if self._has_offset else fetch_offset
        next_offset = self._after_wrapper
        if next_offset is not None:
            next_offset = max(next_offset, fetch_offset)
        return corrupt(self._topic_partition, position, next_offset, why)

    cdef object _corrupt(self, int128 offset, object why):
        found = <object>offset
        return corrupt(self._topic_partition, found, found + 1, why)
