"""The state of one batch (`Batch`) and of one partition's queue of batches (`PartitionQueue`).

Plain data. `accumulator` creates both and is the only module that moves a batch
between states; `sink` encodes the batches that it sends, and `outcome` counts their retries.

Invariant: the slots that the compiled twin (`_producer_c`) reads and writes directly are always
set (though `open_batch` may be None), and neither class has subclasses. These slots are `builder`,
`count`, `delivery`, `due_at` and `limit_bytes` of a batch, and `open_batch` of a queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from aiokafka08.errors import KafkaError
from aiokafka08.producer.batch_delivery import BatchDelivery
from aiokafka08.protocol.message_set import MessageSetBuilder
from aiokafka08.structs import TopicPartition


@dataclass(slots=True, eq=False)
class Batch:
    """Messages of one partition that are sent, and acknowledged, together.

    Attributes:
        queue: the partition's queue.
        builder: the messages, encoded; it grows while the batch is its queue's `open_batch`.
        delivery: the state that the futures of its messages read.
        count: number of messages.
        limit_bytes: a message that would make the batch larger than this goes into the next one.
        due_at: when the batch may be sent; minus infinity once it is full, closed or flushed.
        deadline: when the batch expires.
        attempts: how often the batch was put back into its queue to be retried.
        unexplained_retries: how many of these retries had a reason that the client doesn't know.
        in_flight: it was taken out of its queue for a request that hasn't ended.
        is_written: that request was written, so the broker may have stored the batch.
        is_expired: the batch expired in flight, so its messages have failed already.
        last_error: the reason of the last retry.
    """

    queue: PartitionQueue
    builder: MessageSetBuilder
    delivery: BatchDelivery
    count: int
    limit_bytes: int
    due_at: float
    deadline: float
    attempts: int = 0
    unexplained_retries: int = 0
    in_flight: bool = False
    is_written: bool = False
    is_expired: bool = False
    last_error: KafkaError | None = None

    def accepts(self, size: int, magic: int) -> bool:
        """Whether a message of this size and format still fits in."""
        builder = self.builder
        return builder.magic == magic and builder.size_bytes + size <= self.limit_bytes

    def __repr__(self) -> str:
        topic, partition = self.queue.topic_partition
        state = "in flight" if self.in_flight else "buffered"
        return f"<Batch {topic}/{partition} messages={self.count} attempts={self.attempts} {state}>"


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """The batches of one partition that wait to be sent, oldest first.

    Attributes:
        topic_partition: the partition.
        limit_bytes: size up to which a batch may grow; lowered when a broker finds a batch too
            large, or may have done so (acks=0).
        leader: node id of the partition's leader; None while there is no leader.
        magic: message format of the next batch.
        batches: the batches; those in flight are not among them.
        open_batch: the last batch, while it accepts messages that are sent now.
        muted_by: the batch in flight that the next batch has to wait for, so that the broker stores
            both in order; None if there is no such batch, and with acks=0. The partition is then
            *muted*: the word of Java's producer (`RecordAccumulator.mutePartition`).
        not_before: end of the backoff after a retry.
        is_ready: the accumulator lists the queue among those with a due batch.
        on_new_batch: called with the partition when `open_batch` is closed, so that the next
            message begins a new batch; not called if the open batch expires or fails.
    """

    topic_partition: TopicPartition
    limit_bytes: int
    leader: int | None = None
    magic: int = 0
    batches: deque[Batch] = field(default_factory=deque)
    open_batch: Batch | None = None
    muted_by: Batch | None = None
    not_before: float = 0.0
    is_ready: bool = False
    on_new_batch: Callable[[int], object] | None = None

    def __repr__(self) -> str:
        topic, partition = self.topic_partition
        return f"<PartitionQueue {topic}/{partition} leader={self.leader} {len(self.batches)}>"
