"""Buffer messages in batches, one queue of batches per partition, and decide which batches are due.

Pure: no I/O and no clock. Times are seconds of any monotonic clock, passed as `now`. `memory`, not
this module, counts bytes against `buffer_memory`.

Invariants: at most one batch of a partition is in flight (except with acks=0, see `drain`), and a
batch that is put back becomes the head of its queue. So the messages of a partition keep their
order through retries, leader changes and splits. Between two passes of the sender, `wake_sender` is
called at most once.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from typing import Final, Generic, TypeVar

from aiokafka08.producer.batch import Batch, PartitionQueue
from aiokafka08.producer.batch_delivery import BatchDelivery
from aiokafka08.protocol.compression import Codec
from aiokafka08.protocol.message_set import MessageSetBuilder
from aiokafka08.protocol.types import Buffer
from aiokafka08.structs import TopicPartition

# Refused batches don't lower the batch size of a partition below this
_MIN_LIMIT_BYTES: Final = 1024

# The least and the most time for which a batch accepts messages, as shares of `delivery_timeout_s`
_OPEN_SHARES: Final = (0.1, 0.5)

# `Batch.due_at` of a batch that no longer lingers
_ALREADY_DUE: Final = float("-inf")

K = TypeVar("K", bound=Hashable)


class Accumulator:
    """The queues of all partitions of one producer.

    Args:
        batch_bytes: size at which a batch is full (`max_batch_size`).
        max_request_bytes: upper limit of the size of a batch.
        linger_s: how long a batch waits for more messages, at most half of `delivery_timeout_s`.
        delivery_timeout_s: a batch expires this long after its first message was sent.
        growth_bytes: returns the size to which a batch for this leader, with messages of this mean
            size, may grow while it waits for an earlier batch.
        wake_sender: called when the sender has to run a pass soon.
    """

    def __init__(
        self,
        *,
        batch_bytes: int,
        max_request_bytes: int,
        linger_s: float,
        delivery_timeout_s: float,
        codec: Codec,
        growth_bytes: Callable[[int | None, float], int],
        new_delivery: Callable[[TopicPartition], BatchDelivery],
        wake_sender: Callable[[], object],
    ) -> None:
        self.batch_bytes = min(batch_bytes, max_request_bytes)  # size at which a batch is full
        self.delivery_timeout_s = delivery_timeout_s
        # A batch accepts messages for `linger_s` after its first one, within these limits. All its
        # messages have the first one's deadline, so each has at least the rest of
        # `delivery_timeout_s`.
        least_s, most_s = (share * delivery_timeout_s for share in _OPEN_SHARES)
        self._least_time_s = delivery_timeout_s - max(least_s, min(linger_s, most_s))
        self._max_request_bytes = max_request_bytes
        self._linger_s = linger_s
        self._skip_linger = False
        self._codec = codec
        self._growth_bytes = growth_bytes
        self._new_delivery = new_delivery
        self._wake_sender = wake_sender
        self._sender_is_awake = False
        # Queues with a due batch by leader, in the order in which they became ready. An entry
        # counts only while its queue is ready and still has that leader.
        self._ready: dict[int | None, deque[PartitionQueue]] = {}
        self._waiting: Timers[PartitionQueue] = Timers()  # lingering or backing off
        # One time per unfinished batch: while it is open, when it has to be closed; later, its
        # deadline.
        self._unfinished: Timers[Batch] = Timers()
        self._expired_in_flight: dict[Batch, None] = {}  # failed, and their requests haven't ended

    # --- messages in ------------------------------------------------------------------------------

    def new_queue(self, topic_partition: TopicPartition) -> PartitionQueue:
        return PartitionQueue(topic_partition, self._max_request_bytes)

    def append(
        self,
        queue: PartitionQueue,
        key: Buffer | None,
        value: Buffer | None,
        timestamp_ms: int,
        size: int,
        now: float,
        since: float | None = None,
    ) -> Batch:
        """Append a message and return its batch, in which it is the last message.

        `timestamp_ms` is -1 in message format 0. `since`: when the caller passed the message to the
        producer, if that was before `now`.
        """
        batch = self.batch_for(queue, size, now, since)
        batch.builder.append(key, value, timestamp_ms)
        self.messages_added(batch, size, now)
        return batch

    def batch_for(
        self, queue: PartitionQueue, size: int, now: float, since: float | None = None
    ) -> Batch:
        """Return the batch for the queue's next message; begin one if the last one is full."""
        sent_at = now if since is None else since
        if queue.batches:
            batch = queue.batches[-1]
            first, last = sent_at + self._least_time_s, sent_at + self.delivery_timeout_s
            if first <= batch.deadline <= last and batch.accepts(size, queue.magic):
                return batch
        self.close_batch(queue, now)
        limit = self.batch_bytes
        earlier = queue.batches[-1] if queue.batches else queue.muted_by
        if earlier is not None:
            # An idle partition's batch is full at `batch_bytes`. After an earlier batch the next
            # one grows, so that one partition fills a link with a long round trip.
            message_bytes = earlier.builder.size_bytes / max(earlier.count, 1)
            limit = max(limit, self._growth_bytes(queue.leader, message_bytes))
        batch = Batch(
            queue,
            MessageSetBuilder(queue.magic, self._codec),
            self._new_delivery(queue.topic_partition),
            count=0,
            limit_bytes=min(limit, queue.limit_bytes),
            due_at=now + self._linger_s,
            deadline=sent_at + self.delivery_timeout_s,
        )
        if batch.deadline >= now + self._least_time_s:
            queue.open_batch = batch
        else:
            # Too little of `delivery_timeout_s` is left to add messages that come later. Only
            # messages whose calls have waited as long still join it, through this function.
            batch.due_at = _ALREADY_DUE
        self._enqueue(batch, now)
        return batch

    def messages_added(self, batch: Batch, size: int, now: float) -> None:
        """Update the batch after its builder got messages, the last one of `size` bytes."""
        builder = batch.builder
        batch.count = len(builder)
        # Due if another message of that size would make the batch larger than `batch_bytes`.
        if builder.size_bytes + size > self.batch_bytes:
            self._make_due(batch, now)

    def add_batch(
        self,
        queue: PartitionQueue,
        builder: MessageSetBuilder,
        now: float,
        since: float | None = None,
    ) -> Batch:
        """Queue messages that the caller has encoded as a batch of their own, due at once."""
        self.close_batch(queue, now)
        batch = Batch(
            queue,
            builder,
            self._new_delivery(queue.topic_partition),
            count=len(builder),
            limit_bytes=0,
            due_at=_ALREADY_DUE,
            deadline=(now if since is None else since) + self.delivery_timeout_s,
        )
        self._enqueue(batch, now)
        return batch

    def close_batch(self, queue: PartitionQueue, now: float) -> None:
        """Add no more messages to the queue's open batch, and make it due."""
        batch = queue.open_batch
        if batch is None:
            return
        queue.open_batch = None
        # The last message may be as recent as `now`, so a late event loop moves the deadline.
        batch.deadline = max(batch.deadline, now + self._least_time_s)
        if queue.on_new_batch is not None:
            queue.on_new_batch(queue.topic_partition.partition)
        self._make_due(batch, now)

    def flush(self, now: float) -> list[Batch]:
        """Make every buffered batch due; return all unfinished batches, the expired ones too."""
        batches = [*self._unfinished, *self._expired_in_flight]
        for batch in batches:
            self._make_due(batch, now)
        return batches

    def suspend_linger(self, now: float) -> None:
        """Make all batches due without lingering, until `resume_linger`."""
        # A call waits for memory: batches that are sent earlier release theirs earlier.
        self._skip_linger = True
        for queue in list(self._waiting):
            self._schedule(queue, now)

    def resume_linger(self) -> None:
        self._skip_linger = False

    # --- batches out ------------------------------------------------------------------------------

    def set_leader(self, queue: PartitionQueue, leader: int | None, now: float) -> None:
        """Change the leader of a partition. This ends the backoff after a retry."""
        if leader == queue.leader:
            return
        queue.leader = leader
        queue.not_before = 0.0
        queue.is_ready = False
        self._schedule(queue, now)

    def begin_pass(self, now: float) -> None:
        """Begin a pass of the sender: queues whose linger or backoff is over become ready."""
        # No wake-up during the pass, since the sender looks at the queues later in the same pass.
        self._sender_is_awake = True
        for queue in self._waiting.pop_due(now):
            self._make_ready(queue)

    def end_pass(self) -> float | None:
        """End the pass; return when the next one has to begin, None if there is nothing to do."""
        self._sender_is_awake = False
        times = [t for t in (self._waiting.first(), self._unfinished.first()) if t is not None]
        return min(times, default=None)

    def ready_nodes(self) -> list[int]:
        """Return the leaders that have due batches."""
        return [node for node in self._ready if node is not None and self.has_ready(node)]

    def has_ready(self, node: int | None) -> bool:
        ready = self._ready.get(node)
        while ready:
            queue = ready[0]
            if queue.is_ready and queue.leader == node:
                return True
            ready.popleft()
        return False

    def drain(
        self,
        node: int,
        max_bytes: int,
        now: float,
        *,
        mute: bool = True,
        max_batches: int | None = None,
    ) -> list[Batch]:
        """Take the due batches of a node, one per partition, for one request.

        Args:
            node: the leader.
            max_bytes: size of all batches together; a single batch may be larger.
            now: the time.
            mute: let the next batch of each partition wait until this one is finished or put back.
                False with acks=0, where no response tells that a batch is stored.
            max_batches: number of batches; None for any number.
        """
        ready = self._ready.get(node)
        batches: list[Batch] = []
        total = 0
        while ready and len(batches) != max_batches:
            queue = ready.popleft()
            if not queue.is_ready or queue.leader != node:
                continue
            batch = queue.batches[0]
            if batches and total + batch.builder.size_bytes > max_bytes:
                ready.appendleft(queue)
                break
            if batch is queue.open_batch:
                batch.due_at = _ALREADY_DUE
                self.close_batch(queue, now)
            queue.is_ready = False
            queue.batches.popleft()
            batch.in_flight = True
            if mute:
                queue.muted_by = batch
            total += batch.builder.size_bytes
            batches.append(batch)
        if not mute:
            for batch in batches:
                self._schedule(batch.queue, now)
        return batches

    # --- batches back -----------------------------------------------------------------------------

    def finish(self, batch: Batch, now: float) -> None:
        """Forget a batch that is acknowledged or failed; the partition's next one may be sent."""
        self._unfinished.discard(batch)
        self._expired_in_flight.pop(batch, None)
        if not batch.in_flight:
            queue = batch.queue
            queue.batches.remove(batch)
            if queue.open_batch is batch:
                queue.open_batch = None
            if queue.is_ready and not queue.batches:
                queue.is_ready = False
        self._land(batch, now)

    def put_back(self, batch: Batch, now: float, delay_s: float) -> None:
        """Make a batch in flight the head of its queue again, due after `delay_s`."""
        batch.attempts += 1
        batch.limit_bytes = 0  # the broker may have these messages already
        queue = batch.queue
        queue.batches.appendleft(batch)
        queue.not_before = now + delay_s
        batch.due_at = _ALREADY_DUE
        self._land(batch, now)

    def split(self, batch: Batch, now: float, *, too_large: bool = True) -> tuple[Batch, Batch]:
        """Replace a batch in flight by its halves."""
        queue = batch.queue
        # The size is the reason, so the partition's later batches stay small too.
        if too_large:
            self._halve_limit(batch)
        first, second = (
            Batch(
                queue,
                builder,
                self._new_delivery(queue.topic_partition),
                count=len(builder),
                limit_bytes=0,
                due_at=_ALREADY_DUE,
                deadline=batch.deadline,
            )
            for builder in batch.builder.split()
        )
        batch.delivery.split(first.count, first.delivery, second.delivery)
        self._unfinished.discard(batch)
        for half in (second, first):
            queue.batches.appendleft(half)
            self._unfinished.set(half, half.deadline)
        self._land(batch, now)
        return first, second

    def lower_limit(self, batch: Batch) -> None:
        """Keep the partition's later batches at half the size of this one, if it has grown.

        For acks=0, after a batch that the broker may have refused.
        """
        # The limit isn't raised again, because each batch that is too large is lost.
        if batch.builder.size_bytes > self.batch_bytes:
            self._halve_limit(batch)

    def raise_limit(self, batch: Batch) -> None:
        """Raise by 1/64 a limit that a split has lowered, after a batch was stored."""
        queue = batch.queue
        limit = queue.limit_bytes
        # A small batch says nothing about the limit.
        if limit < self._max_request_bytes and 2 * batch.builder.size_bytes > limit:
            queue.limit_bytes = min(limit + limit // 64, self._max_request_bytes)

    def expire(self, now: float) -> list[Batch]:
        """Finish and return the batches whose deadline is over; close those open too long."""
        expired: list[Batch] = []
        for batch in self._unfinished.pop_due(now):
            if batch.queue.open_batch is batch:
                # The fast path appends without a clock, so this timer closes the batch in its
                # place. If the event loop is late, closing moves the deadline by the delay.
                self.close_batch(batch.queue, now)
            if batch.deadline > now:
                self._unfinished.set(batch, batch.deadline)
            else:
                expired.append(batch)
        for batch in expired:
            if batch.in_flight:
                # The partition's next batch waits until the request of this one has ended;
                # otherwise the broker could store them in the wrong order.
                batch.is_expired = True
                self._expired_in_flight[batch] = None
            else:
                self.finish(batch, now)
        return expired

    # --- gauges -----------------------------------------------------------------------------------

    @property
    def unfinished(self) -> int:
        return len(self._unfinished)

    def oldest_age_s(self, now: float) -> float:
        """Return the age of the oldest unfinished batch in seconds; 0 if there is none."""
        return max((self.age_s(batch, now) for batch in self._unfinished), default=0.0)

    def age_s(self, batch: Batch, now: float) -> float:
        """Return how long ago the first message of a batch was sent."""
        return max(now - (batch.deadline - self.delivery_timeout_s), 0.0)

    # --- inside -----------------------------------------------------------------------------------

    def _halve_limit(self, batch: Batch) -> None:
        queue = batch.queue
        half = batch.builder.size_bytes // 2
        queue.limit_bytes = max(_MIN_LIMIT_BYTES, min(queue.limit_bytes, half))

    def _enqueue(self, batch: Batch, now: float) -> None:
        queue = batch.queue
        queue.batches.append(batch)
        is_open = batch is queue.open_batch
        self._unfinished.set(batch, batch.deadline - (self._least_time_s if is_open else 0.0))
        self._wake()  # the sender has to watch this time
        if len(queue.batches) == 1:
            self._schedule(queue, now)

    def _make_due(self, batch: Batch, now: float) -> None:
        if batch.due_at != _ALREADY_DUE:
            batch.due_at = _ALREADY_DUE
            queue = batch.queue
            if not batch.in_flight and queue.batches[0] is batch:
                self._schedule(queue, now)

    def _land(self, batch: Batch, now: float) -> None:
        """Note that no request carries the batch any more, and schedule its queue."""
        batch.in_flight = batch.is_written = False
        queue = batch.queue
        if queue.muted_by is batch:
            queue.muted_by = None
        self._schedule(queue, now)

    def _schedule(self, queue: PartitionQueue, now: float) -> None:
        """List the queue among the ready or the waiting ones; in neither if nothing can be sent."""
        if queue.is_ready:
            return
        if queue.muted_by is not None or not queue.batches:
            self._waiting.discard(queue)
            return
        time = queue.not_before
        if not self._skip_linger:
            time = max(time, queue.batches[0].due_at)
        if time > now:
            first = self._waiting.first()
            self._waiting.set(queue, time)
            if first is None or time < first:
                self._wake()
            return
        self._waiting.discard(queue)
        self._make_ready(queue)
        if not self._sender_is_awake:
            self._wake()

    def _make_ready(self, queue: PartitionQueue) -> None:
        queue.is_ready = True
        ready = self._ready.get(queue.leader)
        if ready is None:
            ready = self._ready[queue.leader] = deque()
        ready.append(queue)

    def _wake(self) -> None:
        if not self._sender_is_awake:
            self._sender_is_awake = True
            self._wake_sender()


class Timers(Generic[K]):
    """One time per key, the earliest first."""

    __slots__ = ("_fifo", "_heap", "_pushed", "_times")

    def __init__(self) -> None:
        self._times: dict[K, float] = {}
        self._fifo: deque[tuple[float, K]] = deque()
        self._heap: list[tuple[float, int, K]] = []
        self._pushed = 0  # breaks ties: keys needn't be comparable

    def __len__(self) -> int:
        return len(self._times)

    def __iter__(self) -> Iterator[K]:
        return iter(self._times)

    def set(self, key: K, time: float) -> None:
        times, fifo = self._times, self._fifo
        times[key] = time
        # Times mostly come in ascending order, since all batches have the same linger and the same
        # timeout: O(1). Any other entry costs O(log n).
        if not fifo or fifo[-1][0] <= time:
            fifo.append((time, key))
        else:
            self._pushed += 1
            heapq.heappush(self._heap, (time, self._pushed, key))
        # `set` and `discard` leave the key's earlier entry where it is; stale entries are removed
        # here.
        if len(fifo) + len(self._heap) > 2 * len(times) + 64:
            self._fifo = deque(entry for entry in fifo if times.get(entry[1]) == entry[0])
            self._heap = [entry for entry in self._heap if times.get(entry[2]) == entry[0]]
            heapq.heapify(self._heap)

    def discard(self, key: K) -> None:
        self._times.pop(key, None)

    def first(self) -> float | None:
        """Return the earliest time; None if there are no keys."""
        times, fifo, heap = self._times, self._fifo, self._heap
        while fifo and times.get(fifo[0][1]) != fifo[0][0]:
            fifo.popleft()
        while heap and times.get(heap[0][2]) != heap[0][0]:
            heapq.heappop(heap)
        if not heap:
            return fifo[0][0] if fifo else None
        return min(heap[0][0], fifo[0][0]) if fifo else heap[0][0]

    def pop_due(self, now: float) -> Iterator[K]:
        """Remove and yield the keys whose time has come, earliest first."""
        while (time := self.first()) is not None and time <= now:
            # `first` has removed stale entries from both heads.
            if self._fifo and self._fifo[0][0] == time:
                key = self._fifo.popleft()[1]
            else:
                key = heapq.heappop(self._heap)[2]
            del self._times[key]
            yield key
