"""The state of one batch (`Batch`) and of one partition's queue of batches (`PartitionQueue`).

Plain data; only `accumulator` moves a batch between states.

Invariant: the slots that the compiled twin (`_producer_c`) reads and writes directly are always
set (though `open_batch` may be None), and neither class has subclasses. These slots are `builder`,
`count`, `delivery`, `due_at` and `limit_bytes` of a batch, and `open_batch` of a queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from aiokafka08._wording import partition_name
from aiokafka08.errors import KafkaError
from aiokafka08.producer.batch_delivery import BatchDelivery
from aiokafka08.protocol.message_set import MessageSetBuilder
from aiokafka08.structs import TopicPartition


@dataclass(slots=True, eq=False)
class Batch:
    """Messages of one partition that are sent, and acknowledged, together."""

    queue: PartitionQueue
    # The messages, encoded; it grows while the batch is its queue's `open_batch`
    builder: MessageSetBuilder
    delivery: BatchDelivery  # the state that the futures of its messages read
    count: int  # number of messages
    limit_bytes: int  # a message that would make the batch larger than this goes into the next one
    due_at: float  # when the batch may be sent; minus infinity once it is full, closed or flushed
    deadline: float  # when the batch expires
    attempts: int = 0  # how often the batch was put back into its queue to be retried
    # How many of these retries had a reason that the client doesn't know
    unexplained_retries: int = 0
    in_flight: bool = False  # it was taken out of its queue for a request that hasn't ended
    is_written: bool = False  # that request was written, so the broker may have stored the batch
    is_expired: bool = False  # the batch expired in flight, so its messages have failed already
    last_error: KafkaError | None = None  # the reason of the last retry

    def accepts(self, size: int, magic: int) -> bool:
        builder = self.builder
        return builder.magic == magic and builder.size_bytes + size <= self.limit_bytes

    def __repr__(self) -> str:
        name = partition_name(self.queue.topic_partition)
        state = "in flight" if self.in_flight else "buffered"
        return f"<Batch {name} messages={self.count} attempts={self.attempts} {state}>"


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """The batches of one partition that wait to be sent, oldest first."""

    topic_partition: TopicPartition
    # Size up to which a batch may grow; lowered when a broker finds a batch too large, or may have
    # done so (acks=0)
    limit_bytes: int
    leader: int | None = None  # node id of the partition's leader; None while there is no leader
    magic: int = 0  # message format of the next batch
    # The batches; those in flight are not among them
    batches: deque[Batch] = field(default_factory=deque)
    open_batch: Batch | None = None  # the last batch, while a new `send()` may add a message to it
    # The batch in flight that the next batch has to wait for, so that the broker stores both in
    # order. It *mutes* the partition, in the words of Java's producer
    # (`RecordAccumulator.mutePartition`). None without such a batch, and always with acks=0.
    muted_by: Batch | None = None
    not_before: float = 0.0  # end of the backoff after a retry
    is_ready: bool = False  # the accumulator lists the queue among those with a due batch
    # Called with the partition when `open_batch` is closed, so that the next message begins a new
    # batch; not called if the open batch expires or fails
    on_new_batch: Callable[[int], object] | None = None

    def __repr__(self) -> str:
        name = partition_name(self.topic_partition)
        return f"<PartitionQueue {name} leader={self.leader} {len(self.batches)}>"
