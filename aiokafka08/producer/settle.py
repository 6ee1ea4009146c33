"""Carries out what became of a batch: resolves it, puts it back, splits it, gives it up.

The one place where batches, their deliveries, the buffer memory and the telemetry are brought to
agree. What an answer means is `verdict`'s to say, where batches wait `accumulator`'s.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from aiokafka08.errors import KafkaError, KafkaTimeoutError
from aiokafka08.net.config import NetConfig
from aiokafka08.net.metadata import Metadata
from aiokafka08.producer.accumulator import Accumulator, Batch
from aiokafka08.producer.memory import BufferMemory
from aiokafka08.producer.verdict import Outcome, judge
from aiokafka08.protocol.api import ProducedPartition
from aiokafka08.telemetry import BatchFailed, BatchRetried, Telemetry


class Settler:
    """Ends what the sender began.

    Attributes:
        messages_sent: acknowledged; with acks=0 written.
        messages_failed: given up.
    """

    def __init__(
        self,
        accumulator: Accumulator,
        memory: BufferMemory,
        metadata: Metadata,
        config: NetConfig,
        telemetry: Telemetry,
    ) -> None:
        self.messages_sent = 0
        self.messages_failed = 0
        self._accumulator = accumulator
        self._memory = memory
        self._metadata = metadata
        self._config = config
        self._telemetry = telemetry

    def answered(
        self, batch: Batch, answer: ProducedPartition | None, magic: int, now: float
    ) -> None:
        """The broker has answered the request that carried the batch, in format `magic`."""
        verdict = judge(answer, batch.queue.topic_partition, batch.count, batch.unexplained)
        if verdict.outcome is Outcome.STORED:
            assert answer is not None
            if not batch.is_over:
                self.messages_sent += batch.count
            batch.delivery.acknowledge(answer.offset, answer.timestamp, has_timestamps=magic > 0)
            self._accumulator.grown_well(batch)
            self._end(batch, now)
            return
        assert verdict.error is not None
        if verdict.refresh:
            self._metadata.request_refresh()
        if verdict.unexplained:
            batch.unexplained += 1
        if batch.is_over:
            self._end(batch, now)
        elif verdict.outcome is Outcome.SPLIT:
            self._retried(batch, verdict.error, may_be_stored=False)
            self._accumulator.split(batch, now)
        elif verdict.outcome is Outcome.RETRY:
            self.put_back(batch, verdict.error, now, may_be_stored=verdict.may_be_stored)
        else:
            self.fail(batch, verdict.error, now)

    def put_back(self, batch: Batch, error: KafkaError, now: float, *, may_be_stored: bool) -> None:
        """The batch is to be tried again, after a while."""
        if batch.is_over:
            self._end(batch, now)
            return
        self._retried(batch, error, may_be_stored=may_be_stored)
        batch.last_error = error
        self._accumulator.put_back(batch, now, self._delay_s(batch.attempts))

    def fail(self, batch: Batch, error: KafkaError, now: float) -> None:
        """Give the batch up."""
        self._tell_failed(batch, error)
        self._end(batch, now)

    def written(self, batch: Batch) -> None:
        """acks=0: the batch was handed to the socket, which is all that its senders wait for."""
        self.messages_sent += batch.count
        batch.delivery.acknowledge(-1, -1, has_timestamps=False)

    def finished(self, batch: Batch, now: float) -> None:
        """acks=0: the broker has read the batch, or nobody will ever know."""
        self._end(batch, now)

    def expire(self, now: float, reason: str) -> None:
        """Give up the batches whose time is over; `reason` is for those that nothing is known of.

        One that is out isn't waited for any more, but keeps its memory until its request ends.
        """
        for batch in self._accumulator.expire(now):
            topic, partition = batch.queue.topic_partition
            limit_ms = self._accumulator.delivery_timeout_s * 1000
            if batch.is_out:
                why = "the broker hasn't answered; the messages may be in the log"
            elif batch.last_error is not None:
                why = f"last: {batch.last_error}"
            elif batch.queue.leader is None:
                why = "the partition has no leader"
            else:
                why = reason
            self._tell_failed(
                batch,
                KafkaTimeoutError(
                    f"{topic}/{partition}: not acknowledged within {limit_ms:.0f} ms; {why}"
                ),
            )
            batch.delivery.finish()
            if not batch.is_out:
                self._memory.give(batch.builder.size_bytes)

    def abandon(self, batches: Iterable[Batch], error: KafkaError, now: float) -> None:
        """The producer ends: give up what is left."""
        for batch in batches:
            self.fail(batch, error, now)

    def _end(self, batch: Batch, now: float) -> None:
        self._accumulator.finish(batch, now)
        batch.delivery.finish()
        self._memory.give(batch.builder.size_bytes)

    def _tell_failed(self, batch: Batch, error: KafkaError) -> None:
        if batch.delivery.done:
            return
        self.messages_failed += batch.count
        batch.delivery.fail(error)
        self._telemetry.emit(BatchFailed(batch.queue.topic_partition, batch.count, error.text))

    def _retried(self, batch: Batch, error: KafkaError, *, may_be_stored: bool) -> None:
        self._telemetry.emit(
            BatchRetried(batch.queue.topic_partition, batch.count, error.text, may_be_stored)
        )

    def _delay_s(self, attempts: int) -> float:
        delay = self._config.retry_backoff_s * 2.0 ** min(attempts, 30)
        return min(delay, self._config.retry_backoff_max_s) * random.uniform(0.8, 1.2)
