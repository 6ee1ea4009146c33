# The compiled twins of `fast_path` (`Appender`, `are_bytes`, `longest`, `choose_each`); part of
# `_producer_c.pyx`.
#
# `intake` makes the appender and calls `append()`, `AIOKafkaProducer` calls `send()`, `messages`
# calls `longest()` and `choose_each()`, `serialize` calls `are_bytes()`. When `send()` returns
# None, it has appended nothing.

cdef enum:
    CHECK_EVERY = 64

cdef long forks = 0
cdef uint64_t random_state  # of the xorshift64 in `choose`; not 0
cdef bint is_real_time


def _forked():
    global forks, random_state
    forks += 1
    random_state = environment.new_seed("_producer_c") | 1  # children don't choose alike


os.register_at_fork(after_in_child=_forked)


def _environment_replaced():
    global random_state, is_real_time, until_check
    random_state = environment.new_seed("_producer_c") | 1
    is_real_time = environment.is_real
    until_check = CHECK_EVERY_AWAIT  # else a simulation depends on what ran before it


environment.on_replace(_environment_replaced)


cdef class Appender:
    cdef dict _by_topic
    cdef object _memory
    cdef Py_ssize_t _batch_bytes
    cdef Py_ssize_t _max_message_bytes
    cdef object _append_slowly
    cdef object _on_full
    cdef object _yield_is_due
    cdef object _is_running
    cdef unsigned long _thread
    cdef long _forks
    cdef int _until_check

    def __init__(
        self,
        dict by_topic not None,
        memory,
        Py_ssize_t batch_bytes,
        Py_ssize_t max_message_bytes,
        append_slowly,
        on_full,
        yield_is_due,
    ):
        if type(memory) is not memory_type:
            raise TypeError(f"memory is {type(memory).__name__}, not BufferMemory")
        self._by_topic = by_topic
        self._memory = memory
        self._batch_bytes = batch_bytes
        self._max_message_bytes = max_message_bytes
        self._append_slowly = append_slowly
        self._on_full = on_full
        self._yield_is_due = yield_is_due
        # `send()` has to check that the appender's loop is the one that runs the caller. Since
        # asyncio.get_running_loop() costs a system call for the process id, it checks three things
        # instead: the appender's loop is running, the thread is that loop's, and no fork has
        # happened since. A thread runs one loop at a time, so that is enough. `append()` checks
        # nothing: `AIOKafkaProducer` has checked the loop before.
        self._is_running = asyncio.get_running_loop().is_running
        self._thread = PyThread_get_thread_ident()
        self._forks = forks
        self._until_check = CHECK_EVERY

    def send(self, topic, value, key, partition, timestamp_ms, headers):
        cdef Py_ssize_t size = 34
        self._until_check -= 1
        if self._until_check <= 0:
            self._until_check = CHECK_EVERY
            if self._yield_is_due():
                return None
        if (
            timestamp_ms is not None
            or headers
            or self._thread != PyThread_get_thread_ident()
            or self._forks != forks
            or not self._is_running()
        ):
            return None
        route = self._by_topic.get(topic)
        if type(route) is not route_type or get(route, route_is_open) is not True:
            return None
        if value is not None:
            if type(value) is not bytes:
                return None
            size += len(<bytes>value)
        if key is not None:
            if type(key) is not bytes or len(<bytes>key) > self._max_message_bytes:
                return None
            size += len(<bytes>key)
        elif value is None:
            return None
        if (
            <Py_ssize_t>get(self._memory, memory_used) + size
            > <Py_ssize_t>get(self._memory, memory_limit)
            or len(get(self._memory, memory_waiters))
        ):
            return None
        if partition is None:
            queue = choose(route, key)
        elif type(partition) is not int:
            return None
        else:
            queue = (<dict?>get(route, route_queues)).get(partition)
            if queue is None:
                return None
        return self._append(queue, key, value)

    def append(self, queue, key, value, timestamp_ms):
        if timestamp_ms is not None or type(queue) is not queue_type:
            return self._append_slowly(queue, key, value, timestamp_ms)
        return self._append(queue, key, value)

    cdef object _append(self, object queue, object key, object value):
        cdef MessageSetBuilder builder
        cdef DeliveryFuture future
        cdef Py_ssize_t size, total, used, index
        cdef int64_t now_ms = -1
        cdef timespec now
        cdef double due_at
        batch = get(queue, queue_open)
        if type(batch) is not batch_type:
            return self._append_slowly(queue, key, value, None)
        found = get(batch, batch_builder)
        if type(found) is not MessageSetBuilder:
            return self._append_slowly(queue, key, value, None)
        builder = <MessageSetBuilder>found
        size = 34 if builder.magic else 26
        if value is not None:
            size += len(<bytes?>value)
        if key is not None:
            size += len(<bytes?>key)
        total = builder.size_bytes + size
        used = get(self._memory, memory_used)
        used += size
        if (
            total > <Py_ssize_t>get(batch, batch_limit)
            or used > <Py_ssize_t>get(self._memory, memory_limit)
            or len(get(self._memory, memory_waiters))
        ):
            return self._append_slowly(queue, key, value, None)
        if builder.magic:
            if is_real_time:
                clock_gettime(CLOCK_REALTIME, &now)
                now_ms = <int64_t>now.tv_sec * 1000 + now.tv_nsec // 1000000
            else:
                now_ms = environment.wall_time_ms()
        index = get(batch, batch_count)
        delivery = get(batch, batch_delivery)
        future = new_future(delivery, index)
        if builder.magic:
            note_timestamp(delivery, index, now_ms)
        builder._append(key, value, now_ms, -1)
        put(self._memory, memory_used, used)
        put(batch, batch_count, index + 1)
        due_at = get(batch, batch_due)
        if total + size > self._batch_bytes and due_at > 0.0:
            self._on_full(batch, size)
        return future


cdef object choose(object route, object key):
    """Do what `TopicRoute.choose` does, with the default partitioner inlined."""
    global random_state
    cdef list partitions
    cdef object queue
    cdef Py_ssize_t index
    if type(get(route, route_partitioner)) is not default_partitioner:
        return route.choose(key)
    partitions = <list?>get(route, route_partitions)
    if key is None:
        partitions = <list?>get(route, route_available) or partitions
        random_state ^= random_state << 13  # xorshift64
        random_state ^= random_state >> 7
        random_state ^= random_state << 17
        index = <Py_ssize_t>((random_state >> 32) % <uint64_t>len(partitions))
    else:
        index = partition_index_of(<bytes>key, len(<bytes>key), <uint32_t>len(partitions))
    queue = (<dict?>get(route, route_queues)).get(partitions[index])
    return route.choose(key) if type(queue) is not queue_type else queue


def are_bytes(list items not None, Py_ssize_t start, Py_ssize_t stop):
    cdef Py_ssize_t index = start
    while index < min(stop, len(items)):
        if items[index] is not None and type(items[index]) is not bytes:
            return False
        index += 1
    return True


def longest(list items not None, Py_ssize_t start, Py_ssize_t stop):
    cdef Py_ssize_t index = start, most = 0
    cdef object item
    # Check the length each time, since `len()` of a subclass of bytes may run Python code.
    while index < min(stop, len(items)):
        item = items[index]
        if item is not None:
            most = max(most, len(item))
        index += 1
    return most


def choose_each(
    route, keys, values, Py_ssize_t start, Py_ssize_t stop, dict chosen not None
):
    cdef Py_ssize_t index
    cdef object key = None, queue, found
    cdef tuple columns
    for index in range(start, stop):
        if keys is not None:
            key = keys[index]
        if type(route) is route_type and (key is None or isinstance(key, bytes)):
            queue = choose(route, key)
        else:
            queue = route.choose(key)
        found = chosen.get(queue)
        if found is None:
            found = chosen[queue] = ([], [], [])
        columns = <tuple?>found
        (<list?>columns[0]).append(index)
        (<list?>columns[1]).append(key)
        (<list?>columns[2]).append(values[index])
