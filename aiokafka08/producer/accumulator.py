"""What waits to be sent: per partition a queue of batches in wire format. Pure.

Decides which batches are due and when to look again; the sender carries it out. Law: at most one
batch of a partition is out at a time, and one that comes back goes to the head of its queue, so a
partition's messages keep their order through retries, leader moves and splits. The first batch of
an idle partition is full at `batch_bytes`; behind one that is out or waits the next one grows up
to `max_request_bytes`: that is how one partition fills a long link. Times are seconds of any
monotonic clock, given in. What is counted against `buffer_memory` lives in `memory`, what an
answer means in `verdict`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from aiokafka08.errors import KafkaError
from aiokafka08.producer.delivery import Delivery
from aiokafka08.producer.timers import Timers
from aiokafka08.protocol.compression import Codec
from aiokafka08.protocol.message_set import MessageSetBuilder
from aiokafka08.protocol.types import Buffer
from aiokafka08.structs import TopicPartition

_LEAST_LIMIT_BYTES: Final = 1024
"""Splits don't lower a partition's batch size below this."""
_AT_ONCE: Final = float("-inf")


class Batch:
    """Messages of one partition that are sent, and acknowledged, together.

    Attributes:
        builder: the messages; more may come while it is its queue's open batch.
        delivery: what its messages' futures look at.
        count: how many messages.
        limit_bytes: it takes no more messages beyond this.
        due_at: when its lingering ends; minus infinity: it is full, closed or flushed.
        deadline: when its messages are given up.
        attempts: how often it has come back.
        unexplained: how often it came back for an unknown reason.
        is_out: a request carries it.
        is_over: it was given up while a request carried it: its answer means nothing any more.
        last_error: why it came back last.
    """

    __slots__ = (
        "attempts",
        "builder",
        "count",
        "deadline",
        "delivery",
        "due_at",
        "is_out",
        "is_over",
        "last_error",
        "limit_bytes",
        "queue",
        "unexplained",
    )

    def __init__(
        self,
        queue: PartitionQueue,
        builder: MessageSetBuilder,
        delivery: Delivery,
        *,
        limit_bytes: int,
        due_at: float,
        deadline: float,
    ) -> None:
        self.queue = queue
        self.builder = builder
        self.delivery = delivery
        self.count = len(builder)
        self.limit_bytes = limit_bytes
        self.due_at = due_at
        self.deadline = deadline
        self.attempts = 0
        self.unexplained = 0
        self.is_out = False
        self.is_over = False
        self.last_error: KafkaError | None = None

    def __repr__(self) -> str:
        topic, partition = self.queue.topic_partition
        state = "out" if self.is_out else "waits"
        return f"<Batch {topic}/{partition} messages={self.count} attempts={self.attempts} {state}>"


class PartitionQueue:
    """The batches of one partition, oldest first.

    Attributes:
        leader: the node to send to; None while there is none.
        magic: message format for the next batch.
        open: the last batch, while it takes more messages.
        muted_by: the batch that is out, while the next one must wait for it.
        limit_bytes: how large a batch may grow here; less than the default where a split taught it.
    """

    __slots__ = (
        "batches",
        "is_ready",
        "leader",
        "limit_bytes",
        "magic",
        "muted_by",
        "not_before",
        "on_new_batch",
        "open",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition, limit_bytes: int) -> None:
        self.topic_partition = topic_partition
        self.leader: int | None = None
        self.magic = 0
        self.limit_bytes = limit_bytes
        self.batches: deque[Batch] = deque()
        self.open: Batch | None = None
        self.muted_by: Batch | None = None
        self.not_before = 0.0
        self.is_ready = False
        self.on_new_batch: Callable[[int], object] | None = None

    def __repr__(self) -> str:
        topic, partition = self.topic_partition
        return f"<PartitionQueue {topic}/{partition} leader={self.leader} {len(self.batches)}>"


class Accumulator:
    """All partitions' queues of one producer.

    Args:
        batch_bytes: when a batch is full (`max_batch_size`).
        max_request_bytes: how far a waiting batch may grow.
        linger_s: how long a batch waits for more messages.
        delivery_timeout_s: how long after its start a batch is given up.
        codec: compression of the batches.
        new_delivery: makes the delivery of a new batch.

    Attributes:
        news: something became ready, or is due earlier than before; the sender resets it.
    """

    def __init__(
        self,
        *,
        batch_bytes: int,
        max_request_bytes: int,
        linger_s: float,
        delivery_timeout_s: float,
        codec: Codec,
        new_delivery: Callable[[TopicPartition], Delivery],
    ) -> None:
        self.batch_bytes = min(batch_bytes, max_request_bytes)
        self.news = False
        self._hurried = False
        self._max_request_bytes = max_request_bytes
        self._linger_s = linger_s
        self.delivery_timeout_s = delivery_timeout_s
        self._codec = codec
        self._new_delivery = new_delivery
        # Queues with a due batch by their leader, in the order in which they became ready. An
        # entry counts only while its queue is ready and has that leader.
        self._ready: dict[int | None, deque[PartitionQueue]] = {}
        self._waiting: Timers[PartitionQueue] = Timers()
        self._live: Timers[Batch] = Timers()  # all unfinished batches by their deadlines

    # --- in ---------------------------------------------------------------------------------------

    def new_queue(self, topic_partition: TopicPartition) -> PartitionQueue:
        """The queue of one more partition."""
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
        """Append a message of `size` bytes (`message_size`); it is the last one of the batch.

        `since`: when it was handed in, if that was before `now`.
        """
        batch = queue.open
        if batch is None or batch.builder.size_bytes + size > batch.limit_bytes:
            batch = self.open_batch(queue, now, since=since)
        builder = batch.builder
        builder.append(key, value, timestamp_ms)
        self.filled(batch, size, now)
        return batch

    def open_batch(self, queue: PartitionQueue, now: float, *, since: float | None = None) -> Batch:
        """Begin a new batch at the end of the queue; the open one takes no more messages.

        `since`: when its first message was handed in, if that was before `now`.
        """
        self.close_open(queue, now)
        grows = queue.muted_by is not None or bool(queue.batches)
        limit = queue.limit_bytes
        batch = Batch(
            queue,
            MessageSetBuilder(queue.magic, self._codec),
            self._new_delivery(queue.topic_partition),
            limit_bytes=limit if grows else min(self.batch_bytes, limit),
            due_at=now + self._linger_s,
            deadline=(now if since is None else since) + self.delivery_timeout_s,
        )
        queue.open = batch
        self._enqueue(batch, now)
        return batch

    def filled(self, batch: Batch, size: int, now: float) -> None:
        """Messages were appended to the batch's builder, the last one of `size` bytes.

        The batch is full, and due, where another one like that wouldn't fit.
        """
        builder = batch.builder
        batch.count = len(builder)
        if builder.size_bytes + size > self.batch_bytes:
            self._make_due(batch, now)

    def add_batch(self, queue: PartitionQueue, builder: MessageSetBuilder, now: float) -> Batch:
        """Queue messages that somebody has put together, as a batch of their own, due at once."""
        self.close_open(queue, now)
        batch = Batch(
            queue,
            builder,
            self._new_delivery(queue.topic_partition),
            limit_bytes=0,
            due_at=_AT_ONCE,
            deadline=now + self.delivery_timeout_s,
        )
        self._enqueue(batch, now)
        return batch

    def close_open(self, queue: PartitionQueue, now: float) -> None:
        """The open batch takes no more messages, and is due."""
        batch = queue.open
        if batch is None:
            return
        queue.open = None
        if queue.on_new_batch is not None:
            queue.on_new_batch(queue.topic_partition.partition)
        self._make_due(batch, now)

    def flush(self, now: float) -> list[Batch]:
        """All that waits is due now; gives every batch that isn't finished."""
        batches = list(self._live)
        for batch in batches:
            self._make_due(batch, now)
        return batches

    def hurry(self, now: float) -> None:
        """Somebody waits for memory: nothing lingers until `relax`."""
        self._hurried = True
        for queue in list(self._waiting):
            self._place(queue, now)

    def relax(self) -> None:
        """Nobody waits any longer: new batches linger again."""
        self._hurried = False

    # --- out --------------------------------------------------------------------------------------

    def set_leader(self, queue: PartitionQueue, leader: int | None, now: float) -> None:
        """The partition has another leader: what came back needn't wait any longer."""
        if leader == queue.leader:
            return
        queue.leader = leader
        queue.not_before = 0.0
        queue.is_ready = False
        self._place(queue, now)

    def advance(self, now: float) -> None:
        """Time has passed: what has lingered or backed off long enough becomes ready."""
        for queue in self._waiting.pop_due(now):
            self._place(queue, now)

    def next_time(self) -> float | None:
        """When to call `advance` and `expire` next."""
        times = [time for time in (self._waiting.first(), self._live.first()) if time is not None]
        return min(times, default=None)

    def ready_nodes(self) -> list[int]:
        """The leaders that batches are due for."""
        return [node for node in self._ready if node is not None and self.has_ready(node)]

    def has_ready(self, node: int | None) -> bool:
        """Whether batches are due for a node; for None: due, but without a leader."""
        ready = self._ready.get(node)
        while ready:
            queue = ready[0]
            if queue.is_ready and queue.leader == node:
                return True
            ready.popleft()
        return False

    def drain(self, node: int, max_bytes: int, now: float, *, mute: bool = True) -> list[Batch]:
        """Take the due batches for a node, one per partition, for a request of `max_bytes`.

        At least one batch is taken if there is one. `mute`: the partitions' next batches wait until
        these are finished or put back.
        """
        ready = self._ready.get(node)
        batches: list[Batch] = []
        total = 0
        while ready:
            queue = ready.popleft()
            if not queue.is_ready or queue.leader != node:
                continue
            batch = queue.batches[0]
            if batches and total + batch.builder.size_bytes > max_bytes:
                ready.appendleft(queue)
                break
            if batch is queue.open:
                self.close_open(queue, now)
            queue.is_ready = False
            queue.batches.popleft()
            batch.is_out = True
            if mute:
                queue.muted_by = batch
            total += batch.builder.size_bytes
            batches.append(batch)
        if not mute:
            for batch in batches:
                self._place(batch.queue, now)
        return batches

    # --- back -------------------------------------------------------------------------------------

    def finish(self, batch: Batch, now: float) -> None:
        """The batch is acknowledged or given up; the partition's next one may go."""
        self._live.discard(batch)
        if not batch.is_out:
            queue = batch.queue
            queue.batches.remove(batch)
            if queue.open is batch:
                queue.open = None
            if queue.is_ready and not queue.batches:
                queue.is_ready = False
        self._returned(batch, now)

    def put_back(self, batch: Batch, now: float, delay_s: float) -> None:
        """The batch wasn't acknowledged: it goes to the head of its queue, to wait `delay_s`."""
        batch.attempts += 1
        queue = batch.queue
        queue.batches.appendleft(batch)
        queue.not_before = now + delay_s
        batch.due_at = _AT_ONCE
        self._returned(batch, now)

    def split(self, batch: Batch, now: float) -> tuple[Batch, Batch]:
        """The batch was too large: its halves take its place, and later ones stay smaller."""
        queue = batch.queue
        queue.limit_bytes = max(
            _LEAST_LIMIT_BYTES, min(queue.limit_bytes, batch.builder.size_bytes // 2)
        )
        first, second = (
            Batch(
                queue,
                builder,
                self._new_delivery(queue.topic_partition),
                limit_bytes=0,
                due_at=_AT_ONCE,
                deadline=batch.deadline,
            )
            for builder in batch.builder.split()
        )
        batch.delivery.divide(first.count, first.delivery, second.delivery)
        self._live.discard(batch)
        for half in (second, first):
            queue.batches.appendleft(half)
            self._live.set(half, half.deadline)
        self._returned(batch, now)
        return first, second

    def grown_well(self, batch: Batch) -> None:
        """A batch near its partition's learnt limit was stored: the limit may rise again."""
        queue = batch.queue
        limit = queue.limit_bytes
        if limit < self._max_request_bytes and 2 * batch.builder.size_bytes > limit:
            queue.limit_bytes = min(limit + limit // 64, self._max_request_bytes)

    def expire(self, now: float) -> list[Batch]:
        """Give up the batches whose time is over; says which.

        One that is out stays so, `is_over`: the partition's next batch waits for the end of its
        request all the same, or the two could change places in the log.
        """
        expired = list(self._live.pop_due(now))
        for batch in expired:
            if batch.is_out:
                batch.is_over = True
            else:
                self.finish(batch, now)
        return expired

    # --- gauges -----------------------------------------------------------------------------------

    @property
    def unfinished(self) -> int:
        """Batches that are neither acknowledged nor given up."""
        return len(self._live)

    def oldest_age_s(self, now: float) -> float:
        """Seconds since the oldest unfinished batch was begun; 0 if there is none."""
        first = self._live.first()
        return 0.0 if first is None else max(now - (first - self.delivery_timeout_s), 0.0)

    # --- inside -----------------------------------------------------------------------------------

    def _enqueue(self, batch: Batch, now: float) -> None:
        queue = batch.queue
        queue.batches.append(batch)
        self._live.set(batch, batch.deadline)
        self.news = True  # the sender has to watch its deadline
        if len(queue.batches) == 1:
            self._place(queue, now)

    def _make_due(self, batch: Batch, now: float) -> None:
        if batch.due_at != _AT_ONCE:
            batch.due_at = _AT_ONCE
            queue = batch.queue
            if not batch.is_out and queue.batches[0] is batch:
                self._place(queue, now)

    def _returned(self, batch: Batch, now: float) -> None:
        """The request that carried the batch, if any, has ended."""
        batch.is_out = False
        queue = batch.queue
        if queue.muted_by is batch:
            queue.muted_by = None
        self._place(queue, now)

    def _place(self, queue: PartitionQueue, now: float) -> None:
        """Put the queue among the ready or the waiting, or nowhere."""
        if queue.is_ready:
            return
        if queue.muted_by is not None or not queue.batches:
            self._waiting.discard(queue)
            return
        time = queue.not_before
        if not self._hurried:
            time = max(time, queue.batches[0].due_at)
        if time > now:
            first = self._waiting.first()
            self._waiting.set(queue, time)
            if first is None or time < first:
                self.news = True
            return
        self._waiting.discard(queue)
        queue.is_ready = True
        self.news = True
        ready = self._ready.get(queue.leader)
        if ready is None:
            ready = self._ready[queue.leader] = deque()
        ready.append(queue)
