# The compiled twins of `_record_batch_py`: `crc32c`, `read_records`, `convert_records`,
# `RecordBatchBuilder`; part of `_message_set_c.pyx`. Python code uses them by way of
# `record_batch`.
#
# A conversion walks its input twice: `measure_...` checks all and sums up the size, `write_...`
# writes without checks. So nothing grows, nothing half-written is returned, and both run without
# the GIL if the input is large and no thread can change it.
#
# Invariant: a `write_...` gets the bytes that its `measure_...` has checked, unchanged: the caller
# holds an export of the buffer during both, and the GIL unless the buffer is read-only.

cdef enum:  # the numbers of RecordFault
    RECORD_CUT_OFF = 1
    RECORD_VARINT = 2
    RECORD_SIZE = 3
    RECORD_OFFSET = 4
    RECORD_HEADERS = 5

cdef enum:  # the numbers of MessageFault
    MESSAGE_MAGIC = 1
    MESSAGE_CRC = 2
    MESSAGE_FIELDS = 3
    MESSAGE_SIZE = 4

cdef enum:
    TOO_MUCH = 99  # neither of a record nor of a message

cdef enum:  # the numbers of Stop
    STOP_END = 0
    STOP_WRAPPER = 1
    STOP_FULL = 2

cdef enum:
    MIN_RECORD_BYTES = 7
    BATCH_HEADER_BYTES = 61  # HEADER.size

cdef object _pure = None


cdef object pure():
    """Return `_record_batch_py`, for what both twins share. Clients never import it."""
    global _pure
    if _pure is None:
        from aiokafka08.protocol import _record_batch_py

        _pure = _record_batch_py
    return _pure


def crc32c(data, bint tables=False):
    cdef Py_buffer buffer
    cdef uint32_t crc
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        if buffer.len < WITHOUT_GIL_BYTES:
            return crc32c_of(<const char *>buffer.buf, <size_t>buffer.len, tables)
        with nogil:
            crc = crc32c_of(<const char *>buffer.buf, <size_t>buffer.len, tables)
        return crc
    finally:
        PyBuffer_Release(&buffer)


# --- the records of a batch ---

cdef struct RecordWalk:
    const char *data
    Py_ssize_t pos
    Py_ssize_t end
    int64_t base_offset
    int64_t last_delta
    int64_t previous  # the offset delta of the record before
    int64_t base_timestamp
    int64_t append_time
    bint has_append_time
    int64_t index  # of the next record
    int64_t count


cdef struct RecordView:
    int64_t offset
    int64_t timestamp
    const char *key
    Py_ssize_t key_size  # -1: null
    const char *value
    Py_ssize_t value_size
    Py_ssize_t headers_at
    Py_ssize_t header_count


cdef int begin_walk(RecordWalk *walk, object header, const char *data, Py_ssize_t end) except -1:
    walk.data, walk.pos, walk.end = data, 0, end
    walk.base_offset = header.base_offset
    walk.last_delta = header.last_offset_delta
    walk.previous = -1
    walk.base_timestamp = header.base_timestamp_ms
    walk.append_time = header.max_timestamp_ms
    walk.has_append_time = header.has_append_time
    walk.index = 0
    walk.count = header.record_count
    return 0


cdef inline int take_varint(RecordWalk *walk, int most, int64_t *number) noexcept nogil:
    """Read a zigzag number of up to `most` bytes; return 0 or a fault."""
    cdef uint64_t found = 0
    cdef uint8_t byte
    cdef int shift = 0
    while True:
        if walk.pos >= walk.end:
            return RECORD_SIZE
        byte = <uint8_t>walk.data[walk.pos]
        walk.pos += 1
        found |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift == 7 * most:
            return RECORD_VARINT
    if most == 5:
        found &= 0xFFFFFFFFu
    number[0] = <int64_t>((found >> 1) ^ (0 - (found & 1)))
    return 0


cdef inline int take_field(
    RecordWalk *walk, Py_ssize_t stop, const char **field, Py_ssize_t *size
) noexcept nogil:
    cdef int64_t found = 0
    cdef int fault = take_varint(walk, 5, &found)
    if fault:
        return fault
    field[0] = walk.data + walk.pos
    if found < 0:
        size[0] = -1
        return 0
    if found > stop - walk.pos:
        return RECORD_SIZE
    size[0] = <Py_ssize_t>found
    walk.pos += <Py_ssize_t>found
    return 0


cdef int next_record(RecordWalk *walk, RecordView *record) noexcept nogil:
    """Read the next record, which must be within the count; return 0 or a fault."""
    cdef int64_t size = 0, delta = 0, timestamp = 0, headers = 0, _index
    cdef Py_ssize_t stop, field_size = -1
    cdef const char *field = NULL
    cdef int fault
    if walk.end - walk.pos < MIN_RECORD_BYTES:
        return RECORD_CUT_OFF
    fault = take_varint(walk, 5, &size)
    if fault:
        return fault
    if size > walk.end - walk.pos:
        return RECORD_CUT_OFF
    if size < MIN_RECORD_BYTES - 1:
        return RECORD_SIZE
    stop = walk.pos + <Py_ssize_t>size
    walk.pos += 1  # the attributes
    fault = take_varint(walk, 10, &timestamp) or take_varint(walk, 5, &delta)
    if fault:
        return fault
    if delta <= walk.previous or delta > walk.last_delta:
        return RECORD_OFFSET
    walk.previous = delta
    fault = (
        take_field(walk, stop, &record.key, &record.key_size)
        or take_field(walk, stop, &record.value, &record.value_size)
        or take_varint(walk, 5, &headers)
    )
    if fault:
        return fault
    record.headers_at = walk.pos
    record.header_count = <Py_ssize_t>headers
    if headers:
        if headers < 0 or headers > (stop - walk.pos) // 2:
            return RECORD_HEADERS
        for _index in range(headers):
            fault = take_field(walk, stop, &field, &field_size)
            if fault:
                return fault
            if field_size < 0:
                return RECORD_HEADERS
            fault = take_field(walk, stop, &field, &field_size)
            if fault:
                return fault
    if walk.pos != stop:
        return RECORD_SIZE
    record.offset = walk.base_offset + delta
    if walk.has_append_time:
        record.timestamp = walk.append_time
    else:
        record.timestamp = <int64_t>(<uint64_t>walk.base_timestamp + <uint64_t>timestamp)
    walk.index += 1
    return 0


cdef class _RecordIterator:
    cdef object _header
    cdef bytes _plain
    cdef RecordWalk _walk

    def __iter__(self):
        return self

    def __next__(self):
        cdef RecordView record
        cdef int fault
        if self._walk.index >= self._walk.count:
            if self._walk.pos == self._walk.end:
                raise StopIteration
            rest = self._walk.end - self._walk.pos
            self._walk.pos = self._walk.end
            raise pure().damaged_rest(self._header, rest)
        fault = next_record(&self._walk, &record)
        if fault:
            index, self._walk.index = self._walk.index, self._walk.count
            self._walk.pos = self._walk.end
            raise pure().damaged_record(self._header, index, fault)
        return (
            record.offset,
            record.timestamp,
            nullable(record.key, record.key_size),
            nullable(record.value, record.value_size),
            no_headers if record.header_count == 0 else self._headers(&record),
        )

    cdef tuple _headers(self, RecordView *record):
        cdef RecordWalk walk = self._walk
        cdef const char *field = NULL
        cdef Py_ssize_t size = -1
        cdef list headers = []
        walk.pos = record.headers_at
        while len(headers) < record.header_count:
            take_field(&walk, walk.end, &field, &size)  # it was checked
            key = nullable(field, size)
            take_field(&walk, walk.end, &field, &size)
            headers.append((key, nullable(field, size)))
        return tuple(headers)


def read_records(header, plain):
    cdef _RecordIterator records = _RecordIterator.__new__(_RecordIterator)
    records._header = header
    records._plain = plain if type(plain) is bytes else bytes(memoryview(plain))
    begin_walk(
        &records._walk, header, PyBytes_AS_STRING(records._plain), PyBytes_GET_SIZE(records._plain)
    )
    return records


cdef inline bint runs_without_gil(Py_buffer *buffer) noexcept:
    return buffer.readonly and buffer.len >= WITHOUT_GIL_BYTES


# --- conversion to messages ---

cdef struct Conversion:
    int magic
    int64_t first_offset
    int64_t relative_to
    Py_ssize_t limit
    int64_t at_least
    Py_ssize_t size
    int64_t messages
    int64_t last_offset
    int64_t newest
    int64_t next_offset


cdef int measure_conversion(RecordWalk *walk, Conversion *made) noexcept nogil:
    """Check the records up to the limit, and sum up their messages; return 0 or a fault."""
    cdef RecordView record
    cdef Py_ssize_t size
    cdef int fault
    made.size = made.messages = 0
    made.last_offset = made.newest = -1
    made.next_offset = walk.base_offset + walk.last_delta + 1
    while walk.index < walk.count:
        fault = next_record(walk, &record)
        if fault:
            return fault
        if record.offset < made.first_offset:
            continue
        size = 26 if made.magic == 0 else 34
        size += max(record.key_size, 0) + max(record.value_size, 0)
        if made.size + size > made.limit and made.messages >= made.at_least:
            made.next_offset = record.offset
            walk.pos = walk.end  # what follows doesn't matter
            return 0
        if made.size + size > INT32_MAX:
            return TOO_MUCH
        made.size += size
        made.messages += 1
        made.last_offset = record.offset
        if made.magic and record.timestamp > made.newest:
            made.newest = record.timestamp
    return 0


cdef inline char *put_message_field(char *at, const char *field, Py_ssize_t size) noexcept nogil:
    put_int32(at, <int32_t>size)
    if size > 0:
        memcpy(at + 4, field, size)
        return at + 4 + size
    return at + 4


cdef void write_messages(RecordWalk *walk, Conversion *made, char *at) noexcept nogil:
    cdef RecordView record
    cdef int64_t left = made.messages
    cdef char *begin
    while left > 0:
        next_record(walk, &record)  # it was checked
        if record.offset < made.first_offset:
            continue
        left -= 1
        begin = at
        put_int64(begin, <int64_t>(<uint64_t>record.offset - <uint64_t>made.relative_to))
        begin[16] = made.magic
        begin[17] = LOG_APPEND_TIME_BIT if made.magic and walk.has_append_time else 0
        at = begin + 18
        if made.magic:
            put_int64(at, record.timestamp)
            at += 8
        at = put_message_field(at, record.key, record.key_size)
        at = put_message_field(at, record.value, record.value_size)
        put_int32(begin + 8, <int32_t>(at - begin - ENTRY_HEADER_BYTES))
        put_int32(begin + 12, <int32_t>crc_of(begin + BODY_AT, at - begin - BODY_AT))


def convert_records(
    header,
    plain,
    int magic,
    *,
    int64_t first_offset=0,
    Py_ssize_t limit_bytes=INT32_MAX,
    int64_t at_least=0,
    int64_t relative_to=0,
):
    cdef Py_buffer buffer
    cdef RecordWalk walk, again
    cdef Conversion made
    cdef bytes data
    cdef char *at
    cdef int fault
    made.magic, made.first_offset, made.relative_to = magic, first_offset, relative_to
    made.limit, made.at_least = limit_bytes, at_least
    PyObject_GetBuffer(plain, &buffer, PyBUF_SIMPLE)
    try:
        begin_walk(&walk, header, <const char *>buffer.buf, buffer.len)
        again = walk
        if runs_without_gil(&buffer):
            with nogil:
                fault = measure_conversion(&walk, &made)
        else:
            fault = measure_conversion(&walk, &made)
        if fault == TOO_MUCH:
            raise pure().too_much()
        if fault:
            raise pure().damaged_record(header, walk.index, fault)
        if walk.pos != walk.end:
            raise pure().damaged_rest(header, walk.end - walk.pos)
        data = PyBytes_FromStringAndSize(NULL, made.size)
        at = PyBytes_AS_STRING(data)
        if runs_without_gil(&buffer):
            with nogil:
                write_messages(&again, &made, at)
        else:
            write_messages(&again, &made, at)
    finally:
        PyBuffer_Release(&buffer)
    return pure().ConvertedMessages(
        data, made.messages, made.last_offset, made.newest, made.next_offset
    )


# --- building ---

cdef inline Py_ssize_t varint_size(uint64_t zigzag) noexcept nogil:
    cdef Py_ssize_t size = 1
    while zigzag >= 0x80:
        zigzag >>= 7
        size += 1
    return size


cdef inline uint64_t zigzag_of(int64_t number) noexcept nogil:
    return (<uint64_t>number << 1) ^ (0 - <uint64_t>(number < 0))


cdef inline char *put_varint(char *at, int64_t number) noexcept nogil:
    cdef uint64_t zigzag = zigzag_of(number)
    while zigzag >= 0x80:
        at[0] = <char>(<uint8_t>(zigzag & 0x7F) | 0x80)
        zigzag >>= 7
        at += 1
    at[0] = <char><uint8_t>zigzag
    return at + 1


cdef struct NewRecord:
    int64_t timestamp_delta
    int64_t index
    const char *key
    Py_ssize_t key_size  # -1: null
    const char *value
    Py_ssize_t value_size
    const char *headers  # with their count
    Py_ssize_t headers_size
    Py_ssize_t body  # what the size field says


cdef inline void begin_record(NewRecord *record) noexcept nogil:
    """Set what most records have: no key, value and headers."""
    record.key = record.value = NULL
    record.key_size = record.value_size = -1
    record.headers, record.headers_size = "\0", 1  # their count


cdef inline Py_ssize_t measure_record(NewRecord *record) noexcept nogil:
    """Fill in `body`; return the size of the record."""
    record.body = (
        1
        + varint_size(zigzag_of(record.timestamp_delta))
        + varint_size(zigzag_of(record.index))
        + varint_size(zigzag_of(record.key_size)) + max(record.key_size, 0)
        + varint_size(zigzag_of(record.value_size)) + max(record.value_size, 0)
        + record.headers_size
    )
    return varint_size(zigzag_of(record.body)) + record.body


cdef inline char *write_record(char *at, NewRecord *record) noexcept nogil:
    at = put_varint(at, record.body)
    at[0] = 0
    at = put_varint(at + 1, record.timestamp_delta)
    at = put_varint(at, record.index)
    at = put_varint(at, record.key_size)
    if record.key_size > 0:
        memcpy(at, record.key, record.key_size)
        at += record.key_size
    at = put_varint(at, record.value_size)
    if record.value_size > 0:
        memcpy(at, record.value, record.value_size)
        at += record.value_size
    memcpy(at, record.headers, record.headers_size)
    return at + record.headers_size


cdef struct MessageWalk:
    const char *data
    Py_ssize_t pos
    Py_ssize_t end
    Py_ssize_t limit
    Py_ssize_t size  # of the records, those of the builder included
    int64_t count
    int64_t base_timestamp
    int64_t newest
    int seen_attributes
    int why  # STOP_...
    int fault  # MESSAGE_... or TOO_MUCH


cdef inline Py_ssize_t take_message_field(
    const char *data, Py_ssize_t at, Py_ssize_t stop, const char **field, Py_ssize_t *size
) noexcept nogil:
    """Return the position behind a field of a message; -1: it doesn't fit."""
    if at < 0 or stop - at < 4:
        return -1
    size[0] = get_int32(data + at)
    at += 4
    field[0] = data + at
    if size[0] == -1:
        return at
    if size[0] < 0 or size[0] > stop - at:
        return -1
    return at + size[0]


cdef void measure_messages(MessageWalk *walk) noexcept nogil:
    """Check the messages up to one that isn't to be taken, and sum up their records."""
    cdef const char *data = walk.data
    cdef Py_ssize_t pos, stop, at, size
    cdef int magic, attributes
    cdef int64_t message, timestamp
    cdef NewRecord record
    begin_record(&record)
    walk.why, walk.fault = STOP_END, 0
    while walk.end - walk.pos >= MIN_ENTRY_BYTES:
        pos = walk.pos
        message = get_int32(data + pos + 8)
        if message > walk.end - pos - ENTRY_HEADER_BYTES:
            break
        magic = <int><signed char>data[pos + BODY_AT]
        attributes = <int><uint8_t>data[pos + 17]
        if (
            magic < 0
            or magic > 1
            or message < (MIN_MESSAGE_BYTES_1 if magic else MIN_MESSAGE_BYTES_0)
        ):
            walk.fault = MESSAGE_MAGIC
            return
        stop = pos + ENTRY_HEADER_BYTES + <Py_ssize_t>message
        if crc_of(data + pos + BODY_AT, stop - pos - BODY_AT) != <uint32_t>get_int32(
            data + pos + 12
        ):
            walk.fault = MESSAGE_CRC
            return
        timestamp = get_int64(data + pos + 18) if magic else -1
        at = pos + (26 if magic else 18)
        at = take_message_field(data, at, stop, &record.key, &record.key_size)
        at = take_message_field(data, at, stop, &record.value, &record.value_size)
        if at != stop:
            walk.fault = MESSAGE_FIELDS
            return
        if attributes & CODEC_BITS:
            walk.why = STOP_WRAPPER
            return
        if walk.count == 0:
            walk.base_timestamp = timestamp
        record.timestamp_delta = <int64_t>(<uint64_t>timestamp - <uint64_t>walk.base_timestamp)
        record.index = walk.count
        size = walk.size + measure_record(&record)
        if walk.count and BATCH_HEADER_BYTES + size > walk.limit:
            walk.why = STOP_FULL
            return
        if BATCH_HEADER_BYTES + size > INT32_MAX:
            walk.fault = TOO_MUCH
            return
        if walk.count == 0 or timestamp > walk.newest:
            walk.newest = timestamp
        walk.size = size
        walk.count += 1
        if magic:
            walk.seen_attributes |= attributes
        walk.pos = stop
    if (
        walk.end - walk.pos >= ENTRY_HEADER_BYTES
        and get_int32(data + walk.pos + 8) < MIN_MESSAGE_BYTES_0
    ):
        walk.fault = MESSAGE_SIZE


cdef void write_records(
    const char *data,
    Py_ssize_t pos,
    Py_ssize_t stop,
    int64_t base_timestamp,
    int64_t index,
    char *at,
) noexcept nogil:
    """Write the records of the messages between two positions, which were checked."""
    cdef NewRecord record
    cdef Py_ssize_t field
    cdef int64_t timestamp
    begin_record(&record)
    record.index = index
    while pos < stop:
        timestamp = get_int64(data + pos + 18) if data[pos + BODY_AT] else -1
        field = pos + (26 if data[pos + BODY_AT] else 18)
        pos += ENTRY_HEADER_BYTES + get_int32(data + pos + 8)
        field = take_message_field(data, field, pos, &record.key, &record.key_size)
        take_message_field(data, field, pos, &record.value, &record.value_size)
        record.timestamp_delta = <int64_t>(<uint64_t>timestamp - <uint64_t>base_timestamp)
        measure_record(&record)
        at = write_record(at, &record)
        record.index += 1


cdef class RecordBatchBuilder:
    cdef public object codec
    cdef readonly int64_t max_timestamp_ms
    cdef readonly int seen_attributes
    cdef bytearray _records  # the first `_size` bytes count
    cdef Py_ssize_t _size
    cdef int64_t _count
    cdef int64_t _base_timestamp

    def __init__(self, codec=BatchCodec.NONE):
        self.codec = codec
        self.max_timestamp_ms = self._base_timestamp = -1
        self.seen_attributes = 0
        self._records = bytearray()
        self._size = self._count = 0

    def __len__(self):
        return self._count

    @property
    def size_bytes(self):
        return BATCH_HEADER_BYTES + self._size

    cdef int _make_room(self, Py_ssize_t size) except -1:
        """Make the buffer at least that large; BufferError if it is in use elsewhere."""
        if size > len(self._records):
            PyByteArray_Resize(self._records, max(size, min(2 * self._size, INT32_MAX), 1024))
        return 0

    def append(self, key, value, int64_t timestamp_ms, headers=()):
        cdef NewRecord record
        cdef bytes packed
        cdef Py_ssize_t size
        begin_record(&record)
        if key is not None:
            if not PyBytes_CheckExact(key):
                key = bytes(memoryview(key))
            record.key, record.key_size = PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)
        if value is not None:
            if not PyBytes_CheckExact(value):
                value = bytes(memoryview(value))
            record.value, record.value_size = PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value)
        if headers:
            packed = pure().pack_headers(headers)
            record.headers, record.headers_size = (
                PyBytes_AS_STRING(packed), PyBytes_GET_SIZE(packed)
            )
        if self._count == 0:
            self._base_timestamp = timestamp_ms
        record.timestamp_delta = <int64_t>(
            <uint64_t>timestamp_ms - <uint64_t>self._base_timestamp
        )
        record.index = self._count
        size = self._size + measure_record(&record)
        if BATCH_HEADER_BYTES + size > INT32_MAX:
            raise pure().too_much()
        self._make_room(size)
        write_record(PyByteArray_AS_STRING(self._records) + self._size, &record)
        if self._count == 0 or timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = timestamp_ms
        self._size = size
        self._count += 1

    def extend_from_messages(
        self, message_set, Py_ssize_t start=0, Py_ssize_t limit_bytes=INT32_MAX
    ):
        cdef Py_buffer buffer
        cdef MessageWalk walk
        cdef Py_ssize_t size
        PyObject_GetBuffer(message_set, &buffer, PyBUF_SIMPLE)
        try:
            if not 0 <= start <= buffer.len:
                raise IndexError(f"start={start}: expected 0 to {buffer.len}")
            walk.data, walk.pos, walk.end = <const char *>buffer.buf, start, buffer.len
            walk.limit = limit_bytes
            size = self._size
            walk.size, walk.count = size, self._count
            walk.base_timestamp, walk.newest = self._base_timestamp, self.max_timestamp_ms
            walk.seen_attributes = self.seen_attributes
            if runs_without_gil(&buffer):
                with nogil:
                    measure_messages(&walk)
                if self._size != size:
                    raise RuntimeError("a thread has appended to the builder of another one")
            else:
                measure_messages(&walk)
            self._write(&walk, start, runs_without_gil(&buffer))
            if walk.fault == TOO_MUCH:
                raise pure().too_much()
            if walk.fault:
                view = memoryview(message_set).cast("B")
                raise pure().damaged_message(view, walk.pos, walk.fault)
        finally:
            PyBuffer_Release(&buffer)
        return walk.pos, pure().Stop(walk.why)

    cdef int _write(self, MessageWalk *walk, Py_ssize_t start, bint without_gil) except -1:
        """Append what was measured."""
        cdef Py_buffer target
        cdef char *at
        cdef int64_t index = self._count
        if walk.count == self._count:
            return 0
        self._make_room(walk.size)
        PyObject_GetBuffer(self._records, &target, PyBUF_SIMPLE)  # its address stays
        at = <char *>target.buf + self._size
        if without_gil:
            with nogil:
                write_records(walk.data, start, walk.pos, walk.base_timestamp, index, at)
        else:
            write_records(walk.data, start, walk.pos, walk.base_timestamp, index, at)
        PyBuffer_Release(&target)
        self._size, self._count = walk.size, walk.count
        self._base_timestamp, self.max_timestamp_ms = walk.base_timestamp, walk.newest
        self.seen_attributes = walk.seen_attributes
        return 0

    def build(self, base_offset=0):
        if not self._count:
            return b""
        with memoryview(self._records) as records, records[:self._size] as whole:
            return pure().build_batch(
                self.codec,
                whole,
                self._count,
                base_offset,
                (self._base_timestamp, self.max_timestamp_ms),
                crc32c,
            )
