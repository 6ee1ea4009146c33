# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, binding=True, embedsignature=False
"""The compiled twin of the message set: what `_message_set_py` and `_columns_py` do, in C.

Imported only by `message_set`. The pure twins are the reference: docstrings, the wire format and
the reasons stand there, and both run the same tests. Law: bytes from the network are hostile;
each length is checked against what is left before it is used. Numbers that the arithmetic of
offsets may drive beyond 64 bits are kept in 128.
"""

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
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memset

from aiokafka08.errors import CorruptRecordException
from aiokafka08.protocol._columns_py import (
    DEFAULT_MAX_COLUMN_BYTES,
    MAX_TIMESTAMP_MS,
    Column,
    already_given,
    check_max_bytes,
    too_long,
)
from aiokafka08.protocol._message_set_py import MAX_NESTING, Survey, corrupt
from aiokafka08.protocol.compression import Codec, compress, decompress
from aiokafka08.structs import ConsumerRecord

cdef extern from "_crc32.h" nogil:
    void crc_prepare()
    uint32_t crc_of(const char *data, size_t length)

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
    BODY_AT = 16  # what the CRC covers begins here
    LEAST_0 = 14  # the least size field of format 0, and of format 1
    LEAST_1 = 22
    MIN_ENTRY_BYTES = 26
    CODEC_BITS = 0x07
    LOG_APPEND_TIME_BIT = 0x08

crc_prepare()


def crc32(data):
    """The CRC-32 of a buffer, as `zlib.crc32` gives it."""
    cdef Py_buffer buffer
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        return crc_of(<const char *>buffer.buf, <size_t>buffer.len)
    finally:
        PyBuffer_Release(&buffer)


# --- building -------------------------------------------------------------------------------------


cdef class MessageSetBuilder:  # its attributes stand in the .pxd
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
        cdef Py_ssize_t wanted = self.size_bytes + more
        if wanted <= self._room:
            return 0
        wanted = max(wanted, 2 * self._room, 1024)
        try:
            PyByteArray_Resize(self._buffer, wanted)
        except BufferError:  # somebody holds on to what was built
            fresh = bytearray(memoryview(self._buffer)[:self.size_bytes])
            PyByteArray_Resize(fresh, wanted)
            self._buffer = fresh
        self._room = wanted
        return 0

    cdef int _append(
        self, object key, object value, int64_t timestamp_ms, Py_ssize_t limit
    ) except -1:
        """1: appended; 0: it would take the set beyond `limit`, which isn't negative."""
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
        """As `_append`; a size of -1 means null."""
        cdef Py_ssize_t key_bytes = max(key_size, 0), value_bytes = max(value_size, 0), body
        cdef char *at
        cdef char *begin
        if key_bytes > INT32_MAX - 64 or value_bytes > INT32_MAX - 64 - key_bytes:
            raise OverflowError("a message of 2 GiB or more")
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
        """Offset, size and CRC before a body that stands in the buffer."""
        put_int64(begin, self._count)
        put_int32(begin + 8, <int32_t>(body + 4))
        put_int32(begin + 12, <int32_t>crc_of(begin + BODY_AT, body))
        self._count += 1
        self.size_bytes += BODY_AT + body

    def append(self, key, value, timestamp_ms):
        self._append(key, value, timestamp_ms if self.magic else -1, -1)

    def extend(self, keys, values, timestamps_ms, Py_ssize_t start, Py_ssize_t limit_bytes):
        cdef object all_keys = None, all_values, each = None, key = None
        cdef int64_t timestamp = -1
        cdef Py_ssize_t index, count
        if (
            type(values) is Blobs
            and (keys is None or type(keys) is Blobs)
            and (isinstance(timestamps_ms, int) or is_int64s(timestamps_ms))
        ):
            return extend_blobs(self, keys, values, timestamps_ms, start, limit_bytes)
        all_values = PySequence_Fast(values, "values must be a sequence")
        if keys is not None:
            all_keys = PySequence_Fast(keys, "keys must be a sequence")
        if not isinstance(timestamps_ms, int):
            each = PySequence_Fast(timestamps_ms, "timestamps_ms must be a sequence")
        elif self.magic:
            timestamp = timestamps_ms
        count = PySequence_Fast_GET_SIZE(all_values)
        limit_bytes = max(limit_bytes, 0)
        index = start
        while index < count:
            # What isn't bytes runs code of its own in `_append`, which could shorten the lists.
            if index >= PySequence_Fast_GET_SIZE(all_values):
                raise IndexError("values got shorter")
            if all_keys is not None:
                if index >= PySequence_Fast_GET_SIZE(all_keys):
                    raise IndexError("there are fewer keys than values")
                key = <object>PySequence_Fast_GET_ITEM(all_keys, index)
            if each is not None and self.magic:
                if index >= PySequence_Fast_GET_SIZE(each):
                    raise IndexError("there are fewer timestamps than values")
                timestamp = <object>PySequence_Fast_GET_ITEM(each, index)
            if not self._append(
                key, <object>PySequence_Fast_GET_ITEM(all_values, index), timestamp, limit_bytes
            ):
                return index
            index += 1
        return count

    cdef object _view(self):
        return memoryview(self._buffer)[:self.size_bytes]

    def build(self):
        cdef bytes content
        cdef MessageSetBuilder wrapper
        if self.codec is Codec.NONE or not self._count:
            return self._view()
        wrapper = MessageSetBuilder(self.magic)
        content = bytes(compress(self.codec, self._view(), magic=self.magic))
        wrapper._append(None, content, self.max_timestamp_ms, -1)
        cdef char *begin = PyByteArray_AS_STRING(wrapper._buffer)
        begin[BODY_AT + 1] = <int>self.codec
        put_int64(begin, self._count - 1)
        put_int32(begin + 12, <int32_t>crc_of(begin + BODY_AT, wrapper.size_bytes - BODY_AT))
        return wrapper._view()

    def split(self):
        cdef MessageSetBuilder first = MessageSetBuilder(self.magic, self.codec)
        cdef MessageSetBuilder second = MessageSetBuilder(self.magic, self.codec)
        cdef Py_ssize_t pos = 0, index
        for index in range(self._count):
            pos = (first if index < self._count // 2 else second)._adopt(self, pos)
        return first, second

    def as_format_0(self):
        cdef MessageSetBuilder part = MessageSetBuilder(0, self.codec)
        cdef Py_ssize_t pos = 0, _index
        for _index in range(self._count):
            pos = part._adopt(self, pos)
        return part

    cdef Py_ssize_t _adopt(self, MessageSetBuilder other, Py_ssize_t pos) except -1:
        """Append the message that stands there in another builder; gives where the next stands."""
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


# --- reading --------------------------------------------------------------------------------------


cdef struct Headers:
    int64_t highest
    Py_ssize_t whole_bytes
    int64_t tail_size  # -1: none


cdef void walk_headers(const char *data, Py_ssize_t end, Headers *found) noexcept nogil:
    cdef Py_ssize_t pos = 0
    cdef int64_t offset, size
    found.highest = found.tail_size = -1
    while end - pos >= ENTRY_HEADER_BYTES:
        offset = get_int64(data + pos)
        size = get_int32(data + pos + 8)
        if size > end - pos - ENTRY_HEADER_BYTES:
            if offset >= 0:
                found.tail_size = ENTRY_HEADER_BYTES + size
            break
        if size < LEAST_0:
            break
        if offset > found.highest:
            found.highest = offset
        pos += ENTRY_HEADER_BYTES + size
    found.whole_bytes = pos


def survey(message_set):
    cdef Py_buffer buffer
    cdef Headers found
    PyObject_GetBuffer(message_set, &buffer, PyBUF_SIMPLE)
    walk_headers(<const char *>buffer.buf, buffer.len, &found)
    PyBuffer_Release(&buffer)
    return Survey(
        None if found.highest < 0 else <object>found.highest + 1,
        found.whole_bytes,
        None if found.tail_size < 0 else found.tail_size,
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
track_when_assigned(ConsumerRecord)
cdef object no_headers = ()


cdef inline object nullable(const char *data, Py_ssize_t size):
    return None if size < 0 else PyBytes_FromStringAndSize(data, size)


cdef inline int fill(object record, Py_ssize_t at, object value) except -1:
    Py_INCREF(value)
    fill_slot(record, at, value)
    return 0


cdef object new_record(object topic, object partition, Message *m):
    """What calling ConsumerRecord does, without the call: a slot left empty by an error is none.

    With nothing in it that could lead back to it, garbage collections needn't walk it: that would
    take as long as its making.
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


cdef class _Turn:
    cdef int128 limit_bytes
    cdef int128 opened_bytes
    cdef bint paused

    cdef void begin(self) noexcept:
        self.opened_bytes = 0
        self.paused = False


cdef class MessageSetReader:
    cdef readonly object error
    cdef object _topic_partition
    cdef object _topic
    cdef object _partition
    cdef object _message_set
    cdef object _limit
    # Its bytes, while it is read: an export held for longer would get in the way of garbage
    # collection, which clears a memoryview of a cycle with no regard for who exports it.
    cdef const char *_data
    cdef Py_ssize_t _end
    cdef Py_ssize_t _pos
    cdef int128 _fetch_offset
    cdef int128 _end_offset
    cdef bint _check_crcs
    cdef MessageSetReader _inner
    cdef _Turn _turn
    # Set on the reader of a wrapper's inside:
    cdef int _nesting
    cdef object _behind
    cdef int128 _relative_to
    cdef bint _has_offset
    cdef int64_t _offset
    cdef bint _has_timestamp
    cdef int64_t _timestamp

    def __init__(
        self,
        topic_partition,
        message_set,
        fetch_offset,
        *,
        bint check_crcs=True,
        max_decompressed_bytes,
        end_offset=None,
        turn_bytes=1 << 63,
    ):
        self._topic_partition = topic_partition
        self._topic, self._partition = topic_partition
        self._fetch_offset = fetch_offset
        self._end_offset = (1 << 63) if end_offset is None else end_offset
        self._check_crcs = check_crcs
        self._limit = max_decompressed_bytes
        memoryview(message_set)  # a buffer, or TypeError now
        self._message_set = message_set
        self._turn = _Turn()
        self._turn.limit_bytes = turn_bytes

    @property
    def opened_bytes(self):
        return <object>self._turn.opened_bytes

    @property
    def paused(self):
        return self._turn.paused

    def move_to(self, bytes message_set not None):
        if PyBytes_GET_SIZE(message_set) < self._pos:
            raise ValueError("not a copy of the message set")
        self._message_set = message_set

    cdef int _hold(self, Py_buffer *buffer) except -1:
        if self._data != NULL:
            raise RuntimeError("this reader is being read by somebody else")
        PyObject_GetBuffer(self._message_set, buffer, PyBUF_SIMPLE)
        self._data, self._end = <const char *>buffer.buf, buffer.len
        return 0

    cdef void _let_go(self, Py_buffer *buffer) noexcept:
        self._data = NULL
        PyBuffer_Release(buffer)

    def read(self, Py_ssize_t max_records):
        cdef list records = []
        cdef Message m
        cdef Py_ssize_t count = 0
        cdef Py_buffer buffer
        self._turn.begin()
        if self.error is None:
            self._hold(&buffer)
            try:
                while count < max_records and self._next(&m):
                    records.append(new_record(self._topic, self._partition, &m))
                    count += 1
            except CorruptRecordException as error:
                self.error = error
            finally:
                self._let_go(&buffer)
        if self.error is not None and not count:
            raise self.error.with_traceback(None)
        return records

    def read_columns(self, Columns columns not None, Py_ssize_t max_records):
        cdef Message m
        cdef Py_ssize_t count = 0
        cdef Py_buffer buffer
        self._turn.begin()
        if max_records <= 0 or columns.full():
            return 0
        if self.error is None:
            self._hold(&buffer)
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
                self._let_go(&buffer)
        if self.error is not None and not count:
            raise self.error.with_traceback(None)
        return count

    cdef bint _next(self, Message *m) except -1:
        """The next message, whose pointers lead into the set; False: there are no more."""
        cdef Found found
        while True:
            if self._inner is not None:
                if self._inner._next(m):
                    return True
                if self._turn.paused:
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
                if end - pos >= ENTRY_HEADER_BYTES:
                    size = get_int32(data + pos + 8)
                    if size <= end - pos - ENTRY_HEADER_BYTES:
                        raise self._impossible_size(get_int64(data + pos), size)
                return END
            size = get_int32(data + pos + 8)
            if size > end - pos - ENTRY_HEADER_BYTES:
                self._pos = end
                return END
            if size < LEAST_0:
                raise self._impossible_size(get_int64(data + pos), size)
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
            if self._check_crcs and crc_of(data + pos + BODY_AT, stop - pos - BODY_AT) != m.crc:
                raise self._corrupt(offset, "its CRC doesn't match")
            if magic == 0:
                m.timestamp_type = -1
                m.timestamp_ms = -1
                at = pos + 18
            elif magic == 1 and size >= LEAST_1:
                if self._has_timestamp:
                    m.timestamp_ms = self._timestamp
                    m.timestamp_type = 1
                else:
                    m.timestamp_ms = get_int64(data + pos + 18)
                    m.timestamp_type = (attributes & LOG_APPEND_TIME_BIT) >> 3
                at = pos + 26
            else:
                raise self._corrupt(offset, f"magic {magic} with size {size}")
            # At least the two length fields fit: the sizes were checked.
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
                if self._turn.opened_bytes >= self._turn.limit_bytes:
                    self._turn.paused = True
                    self._pos = pos
                    return END
                self._inner = self._open(offset, magic, attributes, m)
                self._fetch_offset = offset + 1
                return WRAPPER
            m.offset = <int64_t>offset
            if not self._has_offset:
                self._fetch_offset = offset + 1
            return MESSAGE

    cdef MessageSetReader _open(self, int128 offset, int magic, int attributes, Message *m):
        cdef int codec = attributes & CODEC_BITS
        cdef MessageSetReader inner
        cdef Headers inside
        cdef const char *begin
        cdef Py_ssize_t rest
        cdef int64_t size
        if self._nesting == MAX_NESTING:
            raise self._corrupt(offset, "it is a wrapper in a wrapper in a wrapper")
        if m.value_size < 0:
            raise self._corrupt(offset, "it is a wrapper without a value")
        try:
            value = PyBytes_FromStringAndSize(m.value, m.value_size)
            plain = bytes(decompress(Codec(codec), value, self._limit))
        except ValueError as error:
            raise self._corrupt(offset, f"codec {codec}: {error}") from None
        inner = MessageSetReader(
            self._topic_partition,
            plain,
            self._fetch_offset,
            check_crcs=self._check_crcs,
            max_decompressed_bytes=self._limit,
        )
        self._turn.opened_bytes += PyBytes_GET_SIZE(plain)
        inner._turn = self._turn
        inner._data, inner._end = PyBytes_AS_STRING(plain), PyBytes_GET_SIZE(plain)
        inner._end_offset = self._end_offset
        inner._nesting = self._nesting + 1
        inner._behind = <object>offset + 1
        if magic == 1 and attributes & LOG_APPEND_TIME_BIT:
            inner._has_timestamp = True
            inner._timestamp = m.timestamp_ms
        if self._nesting:
            inner._has_offset = True
            inner._offset = <int64_t>offset
        elif magic == 1:
            begin = inner._data
            walk_headers(begin, inner._end, &inside)
            rest = inner._end - inside.whole_bytes
            if rest >= ENTRY_HEADER_BYTES:
                size = get_int32(begin + inside.whole_bytes + 8)
                if size < LEAST_0:
                    raise self._corrupt(offset, f"the size of one inside is {size}")
            if inside.highest >= 0:
                inner._relative_to = offset - inside.highest
        return inner

    cdef object _impossible_size(self, int64_t offset, int64_t size):
        found = <object>offset + <object>self._relative_to
        if self._has_offset:
            found = <object>self._offset
        wanted = <object>self._fetch_offset
        next_offset = None if self._behind is None else max(self._behind, wanted)
        return corrupt(self._topic_partition, found, next_offset, f"its size field says {size}")

    cdef object _corrupt(self, int128 offset, object why):
        found = <object>offset
        return corrupt(self._topic_partition, found, found + 1, why)


# --- columns --------------------------------------------------------------------------------------


cdef class _Bytes:
    """A bytearray in the making: only the first `used` bytes count."""

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
        PyByteArray_Resize(self.data, size)
        return memoryview(self.data)


cdef class Columns:
    cdef Py_ssize_t _max_bytes
    cdef Py_ssize_t _size
    cdef Py_ssize_t _count
    cdef Py_ssize_t _rows  # there is room for
    cdef int64_t _last_offset
    cdef bint _given
    cdef Py_ssize_t _keys
    cdef Py_ssize_t _values
    cdef Py_ssize_t _times
    cdef Py_ssize_t _types
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

    def __init__(self, max_bytes=DEFAULT_MAX_COLUMN_BYTES):
        check_max_bytes(max_bytes)
        self._max_bytes = max_bytes
        self._size = self._count = self._rows = 0
        self._keys = self._values = self._times = self._types = 0
        self._given = False
        self._last_offset = -1
        self._key, self._value = _Bytes(), _Bytes()
        self._key_offsets, self._value_offsets = _Bytes(), _Bytes()
        self._offset, self._timestamp, self._timestamp_type = _Bytes(), _Bytes(), _Bytes()
        self._key_bits, self._value_bits = _Bytes(), _Bytes()
        self._timestamp_bits, self._type_bits = _Bytes(), _Bytes()
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
        return self._size >= self._max_bytes or self._given

    cdef int reserve(self, Py_ssize_t more) except -1:
        """Room for so many more messages, the bytes of keys and values apart."""
        cdef Py_ssize_t rows = self._count + more, bits
        cdef _Bytes one
        if rows <= self._rows:
            return 0
        rows = max(rows, 2 * self._rows, 64)
        for one in (self._offset, self._timestamp):
            one.grow(8 * rows)
        for one in (self._timestamp_type,):
            one.grow(4 * rows)
        for one in (self._key_offsets, self._value_offsets):
            one.grow(4 * (rows + 1))
        bits = (self._rows + 7) // 8
        for one in (self._key_bits, self._value_bits, self._timestamp_bits, self._type_bits):
            one.grow((rows + 7) // 8)
            memset(one.at + bits, 0, one.room - bits)
        self._rows = rows
        return 0

    cdef int add(self, Message *m) except -1:
        cdef Py_ssize_t row = self._count
        cdef Py_ssize_t key_size = max(m.key_size, 0), value_size = max(m.value_size, 0)
        if self._size + key_size + value_size > INT32_MAX:
            raise too_long()
        if row == self._rows:
            self.reserve(1)
        if m.key_size >= 0:
            put_bytes(self._key, m.key, key_size)
            set_bit(self._key_bits, row)
            self._keys += 1
        if m.value_size >= 0:
            put_bytes(self._value, m.value, value_size)
            set_bit(self._value_bits, row)
            self._values += 1
        (<int32_t *>self._key_offsets.at)[row + 1] = <int32_t>self._key.used
        (<int32_t *>self._value_offsets.at)[row + 1] = <int32_t>self._value.used
        (<int64_t *>self._offset.at)[row] = m.offset
        if m.timestamp_type < 0:
            (<int64_t *>self._timestamp.at)[row] = 0
            (<int32_t *>self._timestamp_type.at)[row] = 0
        else:
            (<int32_t *>self._timestamp_type.at)[row] = m.timestamp_type
            set_bit(self._type_bits, row)
            self._types += 1
            if 0 <= m.timestamp_ms <= most_timestamp_ms:
                (<int64_t *>self._timestamp.at)[row] = m.timestamp_ms * 1000
                set_bit(self._timestamp_bits, row)
                self._times += 1
            else:
                (<int64_t *>self._timestamp.at)[row] = 0
        self._size += key_size + value_size
        self._count = row + 1
        self._last_offset = m.offset
        return 0

    def extend(self, records):
        cdef Message m
        if self._given:
            raise already_given()
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

    def column_key(self):
        return self._binary(self._key_bits, self._key_offsets, self._key, self._count - self._keys)

    def column_value(self):
        return self._binary(
            self._value_bits, self._value_offsets, self._value, self._count - self._values
        )

    def column_offset(self):
        return self._fixed(None, self._offset, 8, 0)

    def column_timestamp(self):
        return self._fixed(self._timestamp_bits, self._timestamp, 8, self._count - self._times)

    def column_timestamp_type(self):
        return self._fixed(self._type_bits, self._timestamp_type, 4, self._count - self._types)

    cdef object _binary(self, _Bytes bits, _Bytes offsets, _Bytes data, Py_ssize_t nulls):
        self._given = True
        return Column(
            bits.finish((self._count + 7) // 8) if nulls else None,
            offsets.finish(4 * (self._count + 1)),
            data.finish(data.used),
            nulls,
        )

    cdef object _fixed(self, _Bytes bits, _Bytes data, int width, Py_ssize_t nulls):
        self._given = True
        return Column(
            bits.finish((self._count + 7) // 8) if nulls else None,
            None,
            data.finish(width * self._count),
            nulls,
        )


cdef int64_t most_timestamp_ms = MAX_TIMESTAMP_MS


cdef inline int put_bytes(_Bytes target, const char *data, Py_ssize_t size) except -1:
    if size > target.room - target.used:
        target.grow(size)
    memcpy(target.at + target.used, data, size)
    target.used += size
    return 0


cdef inline void set_bit(_Bytes bits, Py_ssize_t row) noexcept:
    bits.at[row >> 3] |= 1 << (row & 7)


# --- from columns ---------------------------------------------------------------------------------


cdef class Blobs:  # its attributes stand in the .pxd
    def __cinit__(
        self, Py_ssize_t first, Py_ssize_t count, validity, offsets, data, bint wide=False
    ):
        cdef Py_ssize_t rows, row
        cdef int64_t before, at
        if first < 0 or count < 0:
            raise ValueError(f"first={first}, count={count}: allowed are integers from 0 on")
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
            raise ValueError(f"the buffers hold fewer than {<object>first + count} rows")
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

    def __dealloc__(self):
        PyBuffer_Release(&self._validity)  # those that were never filled are left alone
        PyBuffer_Release(&self._offsets)
        PyBuffer_Release(&self._data)

    def __len__(self):
        return self._count

    def __getitem__(self, index):
        cdef const char *begin
        cdef Py_ssize_t at, size
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(self._count))]
        at = index
        if not -self._count <= at < self._count:
            raise IndexError(f"{index}: there are {self._count} rows")
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
        """The size of a row that there is, and where it begins; -1: null."""
        cdef Py_ssize_t row = self._first + index
        cdef int64_t at
        if self._nullable and not (<const uint8_t *>self._validity.buf)[row >> 3] >> (row & 7) & 1:
            begin[0] = NULL
            return -1
        at = self._offset(row)
        begin[0] = <const char *>self._data.buf + at
        return self._offset(row + 1) - at


cdef object wrong_offsets():
    return ValueError("offsets fall, or lead out of the data")


cdef bint is_int64s(object data) except -1:
    return isinstance(data, memoryview) and data.format == "q" and data.c_contiguous


cdef Py_ssize_t extend_blobs(
    MessageSetBuilder builder,
    Blobs keys,
    Blobs values,
    timestamps_ms,
    Py_ssize_t start,
    Py_ssize_t limit,
) except -1:
    """`extend` without an object per message."""
    cdef Py_buffer times
    cdef bint each = not isinstance(timestamps_ms, int)
    cdef int64_t timestamp = -1
    cdef const char *key = NULL
    cdef const char *value = NULL
    cdef Py_ssize_t index, key_size = -1, value_size
    if start < 0:
        raise IndexError(f"start={start}")
    if builder.magic and not each:
        timestamp = timestamps_ms
    limit = max(limit, 0)
    PyObject_GetBuffer(timestamps_ms if each else b"", &times, PyBUF_SIMPLE)
    try:
        for index in range(start, values._count):
            if keys is not None:
                if index >= keys._count:
                    raise IndexError("there are fewer keys than values")
                key_size = keys.find(index, &key)
            if each and builder.magic:
                if index >= times.len // 8:
                    raise IndexError("there are fewer timestamps than values")
                memcpy(&timestamp, <const char *>times.buf + 8 * index, 8)
            value_size = values.find(index, &value)
            if not builder._put(key, key_size, value, value_size, timestamp, limit):
                return index
    finally:
        PyBuffer_Release(&times)
    return values._count
