"""The state of one batch (`Batch`) and of one partition's queue of batches (`PartitionQueue`).

Plain data without rules. `accumulator` creates both and is the only module that moves a batch
between states; `sink` encodes the batches that it sends, and `outcome` reads why a batch failed.

Invariant: the slots that the compiled appender (`_producer_c.pyx`) reads and writes directly are
never empty, and neither class has subclasses. These slots are `builder`, `count`, `delivery`,
`due_at` and `limit_bytes` of a batch, and `open_batch` of a queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from aiokafka08.errors import KafkaError
from aiokafka08.producer.batch_delivery import BatchDelivery
from aiokafka08.protocol.message_set import MessageSetBuilder
from aiokafka08.structs import TopicPartition


class Batch:
    """Messages of one partition that are sent, and acknowledged, together.

    Attributes:
        queue: the partition's queue.
        builder: the messages, encoded; it grows while the batch is its queue's `open_batch`.
        delivery: the state that the futures of its messages read.
        count: number of messages.
        limit_bytes: size that the batch must not exceed by another message.
        due_at: when the batch may be sent; minus infinity once it is full, closed or flushed.
        deadline: when the batch expires.
        attempts: how often the batch was put back into its queue.
        unexplained_retries: how many of these retries had a reason that the client doesn't know.
        in_flight: a request carries the batch.
        is_expired: the batch expired in flight, so the response no longer matters to its senders.
        last_error: the reason of the last retry.
    """

    __slots__ = (
        "attempts",
        "builder",
        "count",
        "deadline",
        "delivery",
        "due_at",
        "in_flight",
        "is_expired",
        "last_error",
        "limit_bytes",
        "queue",
        "unexplained_retries",
    )

    def __init__(
        self,
        queue: PartitionQueue,
        builder: MessageSetBuilder,
        delivery: BatchDelivery,
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
        self.unexplained_retries = 0
        self.in_flight = False
        self.is_expired = False
        self.last_error: KafkaError | None = None

    def __repr__(self) -> str:
        topic, partition = self.queue.topic_partition
        state = "in flight" if self.in_flight else "buffered"
        return f"<Batch {topic}/{partition} messages={self.count} attempts={self.attempts} {state}>"


class PartitionQueue:
    """The batches of one partition that wait to be sent, oldest first.

    Attributes:
        topic_partition: the partition.
        leader: node id of the partition's leader; None while there is no leader.
        magic: message format of the next batch.
        limit_bytes: size up to which a batch may grow; lowered when a broker finds a batch too
            large.
        batches: the batches; those in flight are not among them.
        open_batch: the last batch, while it accepts messages.
        muted_by: the batch in flight that the next batch has to wait for.
        not_before: end of the backoff after a retry.
        is_ready: the accumulator lists the queue among those with a due batch.
        on_new_batch: called with the partition whenever `open_batch` is closed.
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
        "open_batch",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition, limit_bytes: int) -> None:
        self.topic_partition = topic_partition
        self.leader: int | None = None
        self.magic = 0
        self.limit_bytes = limit_bytes
        self.batches: deque[Batch] = deque()
        self.open_batch: Batch | None = None
        self.muted_by: Batch | None = None
        self.not_before = 0.0
        self.is_ready = False
        self.on_new_batch: Callable[[int], object] | None = None

    def __repr__(self) -> str:
        topic, partition = self.topic_partition
        return f"<PartitionQueue {topic}/{partition} leader={self.leader} {len(self.batches)}>"
