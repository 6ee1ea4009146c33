"""Decide what happens to a batch after its request, and carry the decision out.

Invariants: a batch is acknowledged only if a response reports success and an offset for its
partition, or with acks=0 when its request is written. After a retriable error code it is retried
until its deadline, after an unexplained error at most `MAX_UNEXPLAINED_RETRIES` times. The bytes of
a batch are released to `memory` once, by `finish` or `expire`. A batch that expires in flight keeps
its memory until its request ends, and each half of a split releases its own bytes.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from aiokafka08._core.histogram import Histogram
from aiokafka08._core.net.backoff import delay_s
from aiokafka08._core.net.config import NetConfig
from aiokafka08._core.net.metadata_cache import Metadata
from aiokafka08._wording import counted, partition_name
from aiokafka08.errors import (
    BROKER_ERRORS,
    Action,
    BrokerResponseError,
    CorruptRecordException,
    InvalidRecordError,
    InvalidTimestampError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    NotLeaderForPartitionError,
    UnknownError,
    action_for,
    broker_error,
    topic_code,
)
from aiokafka08.producer.accumulator import Accumulator
from aiokafka08.producer.batch import Batch
from aiokafka08.producer.memory import BufferMemory
from aiokafka08.protocol.api import left_out
from aiokafka08.protocol.requests.produce import ProducedPartition
from aiokafka08.structs import TopicPartition
from aiokafka08.telemetry import BatchFailed, BatchRetried, Telemetry

MAX_UNEXPLAINED_RETRIES: Final = 5
"""How often a batch is retried for a reason that the client doesn't know."""

# The error codes with which brokers refuse, among other things, a message without a key for a
# compacted topic (docs/brokers.md 5.11)
_BY_KEY: Final = frozenset({CorruptRecordException.errno, InvalidRecordError.errno})
# The error codes with which brokers refuse, among other things, a whole batch because of single
# messages in it
_BY_MESSAGE: Final = _BY_KEY | {InvalidTimestampError.errno}


class Outcome(enum.Enum):
    """What happens to a batch."""

    STORED = "acknowledge it"
    RETRY = "put it back into its queue"
    SPLIT = "replace it by its halves"
    FAILED = "fail it"


class BatchDecision(NamedTuple):
    """The outcome of a batch, and further consequences of the response."""

    outcome: Outcome  # what happens to the batch
    error: KafkaError | None = None  # the reason; None if the batch is stored
    may_be_stored: bool = False  # a retry may store the messages twice
    refresh: bool = False
    too_large: bool = False  # the size of the batch is the reason
    unexplained: bool = False  # the client doesn't know the reason


_STORED: Final = BatchDecision(Outcome.STORED)


def decide(
    response: ProducedPartition | None,
    topic_partition: TopicPartition,
    messages: int,
    unexplained_retries: int,
    *,
    key_lengths: Callable[[], tuple[int, int]],
    waits_for_replicas: bool = False,
) -> BatchDecision:
    """Map the broker's response for a batch to an outcome.

    Args:
        response: the response for the batch's partition; None if the broker left it out.
        unexplained_retries: how often the batch was retried for unknown reasons.
        key_lengths: returns the lengths of the shortest and the longest key in the batch; no key
            counts as -1.
        waits_for_replicas: acks is neither 0 nor 1.
    """
    if response is not None and response.error_code == 0 and response.offset >= 0:
        return _STORED
    where = f"produce to {partition_name(topic_partition)}"
    if response is None:
        absent = left_out(partition_name(topic_partition))
        return _decide_unexplained(absent, unexplained_retries, may_be_stored=True)
    code = topic_code(response.error_code)
    if code == 0:  # docs/brokers.md 5.7, 6.8
        error = KafkaError(f"{where}: the broker reports success, but stored nothing (offset -1)")
        return _decide_unexplained(error, unexplained_retries, may_be_stored=False)
    error = broker_error(code, where)
    if code not in BROKER_ERRORS or code == UnknownError.errno:
        return _decide_unexplained(error, unexplained_retries, may_be_stored=True)
    match action_for(code):
        case Action.REFRESH:
            # A broker that ceases to lead the partition while it waits for replicas returns this
            # code, though it has appended the messages, and the new leader may have them too
            # (docs/brokers.md 5.16).
            may_be_stored = waits_for_replicas and code == NotLeaderForPartitionError.errno
            return BatchDecision(Outcome.RETRY, error, may_be_stored, refresh=True)
        case Action.BACK_OFF | Action.NOT_STORED:
            return BatchDecision(Outcome.RETRY, error)
        case Action.MAYBE_STORED:
            return BatchDecision(Outcome.RETRY, error, may_be_stored=True)
        case Action.SPLIT if messages > 1:
            return BatchDecision(Outcome.SPLIT, error, too_large=True)
        case Action.SPLIT:
            return BatchDecision(Outcome.FAILED, MessageSizeTooLargeError(error.text))
        case Action.FINAL if code in _BY_MESSAGE:
            return _decide_refused(error, where, messages, *key_lengths())
        case Action.FINAL:
            return BatchDecision(Outcome.FAILED, error)
        case _:  # a code that no response to Produce should have
            return _decide_unexplained(error, unexplained_retries, may_be_stored=True)


def _decide_refused(
    error: BrokerResponseError, where: str, messages: int, shortest_key: int, longest_key: int
) -> BatchDecision:
    """Decide about a batch that the broker may have refused because of single messages in it."""
    # A broker stores all messages of a batch or none. Splitting goes on until only the refused
    # messages fail; the halves keep the order.
    if error.errno not in _BY_KEY:
        outcome = Outcome.SPLIT if messages > 1 else Outcome.FAILED
        return BatchDecision(outcome, error)
    if shortest_key > 0:  # each message has a key, so halves would be refused too
        return BatchDecision(Outcome.FAILED, error)
    refused = f"{where}: the broker refused {counted(messages, 'message')}"
    if messages > 1 and longest_key >= 0:  # 0.9 takes an empty key for none
        error = type(error)(f"{refused}, of which at least one has no key or an empty one")
        return BatchDecision(Outcome.SPLIT, error)
    error = type(error)(
        f"{refused} without a key. Either the topic is compacted and needs keys: send a key with "
        "each message, or take compact out of the topic's cleanup.policy. Or "
        f"{error.description}"
    )
    return BatchDecision(Outcome.FAILED, error)


def _decide_unexplained(error: KafkaError, retries: int, *, may_be_stored: bool) -> BatchDecision:
    if retries >= MAX_UNEXPLAINED_RETRIES:
        return BatchDecision(Outcome.FAILED, error)
    return BatchDecision(Outcome.RETRY, error, may_be_stored, refresh=True, unexplained=True)


class BatchResolver:
    """Acknowledges, retries, splits and fails batches.

    Invariant: the accumulator, the delivery that the callers wait for, the buffer memory and the
    telemetry agree about each batch.
    """

    def __init__(
        self,
        accumulator: Accumulator,
        memory: BufferMemory,
        metadata: Metadata,
        config: NetConfig,
        telemetry: Telemetry,
        required_acks: int,
    ) -> None:
        self.messages_sent = 0  # number of messages acknowledged (with acks=0: written)
        self.messages_failed = 0  # messages of failed batches
        # From the first message of each batch to its acknowledgement; none with acks=0
        self.acknowledgement_times = Histogram("acknowledgement_seconds")
        self._accumulator = accumulator
        self._memory = memory
        self._metadata = metadata
        self._config = config
        self._telemetry = telemetry
        self._waits_for_replicas = required_acks not in (0, 1)
        self._done = "written" if required_acks == 0 else "acknowledged"

    def resolve(
        self,
        batch: Batch,
        response: ProducedPartition | None,
        base_offset: int,
        magic: int,
        now: float,
    ) -> None:
        """Carry out what the broker's response means for a batch in flight.

        `base_offset`: offset of its first message, if it is stored; can differ from
        `response.offset`, because some brokers return the offset after the batch.
        `magic`: the format in which it was sent.
        """
        decision = decide(
            response,
            batch.queue.topic_partition,
            batch.count,
            batch.unexplained_retries,
            key_lengths=batch.builder.key_lengths,
            waits_for_replicas=self._waits_for_replicas,
        )
        if decision.outcome is Outcome.STORED:
            assert response is not None
            # The callers of an expired batch have their error already.
            if not batch.is_expired:
                self.messages_sent += batch.count
                self.acknowledgement_times.add(self._accumulator.age_s(batch, now))
            batch.delivery.acknowledge(base_offset, response.timestamp, has_timestamps=magic > 0)
            self._accumulator.raise_limit(batch)
            self.finish(batch, now)
            return
        assert decision.error is not None
        if decision.refresh:
            self._metadata.request_refresh()
        if decision.unexplained:
            batch.unexplained_retries += 1
        if batch.is_expired:
            self.finish(batch, now)
        elif decision.outcome is Outcome.SPLIT:
            reason = f"{decision.error}; its halves are sent apart"
            self._emit_retried(batch, reason, may_be_stored=False)
            self._accumulator.split(batch, now, too_large=decision.too_large)
        elif decision.outcome is Outcome.RETRY:
            self.retry(batch, decision.error, now, may_be_stored=decision.may_be_stored)
        else:
            self.fail(batch, self._config.named(decision.error), now)

    def retry(self, batch: Batch, error: KafkaError, now: float, *, may_be_stored: bool) -> None:
        """Put a batch in flight back into its queue, to be sent again after a backoff."""
        if batch.is_expired:
            self.finish(batch, now)
            return
        self._emit_retried(batch, str(error), may_be_stored=may_be_stored)
        batch.last_error = error
        wait_s = delay_s(
            batch.attempts, self._config.retry_backoff_s, self._config.retry_backoff_max_s
        )
        self._accumulator.put_back(batch, now, wait_s)

    def fail(self, batch: Batch, error: KafkaError, now: float) -> None:
        self._fail_delivery(batch, error)
        self.finish(batch, now)

    def fail_all(self, batches: Iterable[Batch], error: KafkaError, now: float) -> None:
        for batch in batches:
            self.fail(batch, error, now)

    def acknowledge_written(self, batch: Batch) -> None:
        """acks=0: acknowledge a batch that was written to the socket."""
        # The caller calls `finish` once the broker has read the batch or the connection is lost.
        self.messages_sent += batch.count
        batch.delivery.acknowledge(-1, -1, has_timestamps=False)

    def finish(self, batch: Batch, now: float) -> None:
        """End a batch whose delivery is decided: release its memory, let the next one be sent."""
        self._accumulator.finish(batch, now)
        batch.delivery.finish()
        self._memory.release(batch.builder.size_bytes)

    def expire(self, now: float, reason: Callable[[], str]) -> None:
        """Fail the batches whose deadline is over; `reason` returns the default reason."""
        for batch in self._accumulator.expire(now):
            limit_ms = self._accumulator.delivery_timeout_s * 1000
            if batch.is_written:
                why = "the broker hasn't responded; the messages may be in the log"
            elif batch.last_error is not None:
                why = f"last error: {batch.last_error.nested_text(KafkaTimeoutError)}"
            elif batch.in_flight:
                why = "the messages were still being compressed"
            elif batch.queue.leader is None:
                why = "the partition has no leader"
            else:
                why = reason()
            name = partition_name(batch.queue.topic_partition)
            self._fail_delivery(
                batch,
                KafkaTimeoutError(f"{name}: not {self._done} within {limit_ms:.0f} ms; {why}"),
            )
            batch.delivery.finish()
            # A batch in flight keeps its memory until its request ends.
            if not batch.in_flight:
                self._memory.release(batch.builder.size_bytes)

    def _fail_delivery(self, batch: Batch, error: KafkaError) -> None:
        if batch.delivery.done:
            return
        self.messages_failed += batch.count
        batch.delivery.fail(error)
        self._telemetry.emit(BatchFailed(batch.queue.topic_partition, batch.count, str(error)))

    def _emit_retried(self, batch: Batch, reason: str, *, may_be_stored: bool) -> None:
        self._telemetry.emit(
            BatchRetried(batch.queue.topic_partition, batch.count, reason, may_be_stored)
        )
