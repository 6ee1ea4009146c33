"""Build the parts of a running producer, and end them together.

Invariants: no part holds a reference to `AIOKafkaProducer`, so a producer that is dropped without
`stop()` is garbage-collected and can warn. When the background work raises an unexpected exception
(a crash), the engine sets `crash`. Messages not acknowledged by then fail with it, and until `stop`
every pending and every later call that sends raises a copy of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from aiokafka08._core.concurrency.loop_yield import HOLD_S, LoopYield
from aiokafka08._core.concurrency.offload import Offload
from aiokafka08._core.histogram import Histogram
from aiokafka08._core.net.lifecycle import run_all_steps
from aiokafka08._core.net.router import Router
from aiokafka08.errors import KafkaError, ProducerClosed
from aiokafka08.partitioner import Partitioner
from aiokafka08.producer.batch_delivery import BatchDelivery, CallbackQueue
from aiokafka08.producer.fast_path import run_callbacks
from aiokafka08.producer.intake import Intake
from aiokafka08.producer.memory import BufferMemory
from aiokafka08.producer.options import ProducerOptions
from aiokafka08.producer.sender import Sender
from aiokafka08.producer.sink import Encode, encode_batch
from aiokafka08.producer.topics import LEADER_WAIT_S, TopicRoutes

_log: Final = logging.getLogger("aiokafka08.producer")


class ProducerEngine:
    """The parts of one producer; they run in the event loop in which it is created, until `stop`.

    Args:
        hold_s: for how many seconds a task may hold the event loop.
        leader_wait_s: see `topics.LEADER_WAIT_S`.
        new_offload: makes the threads of the producer.
        encode: makes the message set of a batch.
    """

    def __init__(
        self,
        router: Router,
        options: ProducerOptions,
        new_partitioner: Callable[[], Partitioner],
        *,
        hold_s: float = HOLD_S,
        leader_wait_s: float = LEADER_WAIT_S,
        new_offload: Callable[[], Offload] = Offload,
        encode: Encode = encode_batch,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.loop_yield = LoopYield(hold_s)  # decides when a busy task yields to the event loop
        # The error after an unexpected exception in the background
        self.crash: KafkaError | None = None
        self._client_id = router.config.client_id
        self.memory = BufferMemory(options.buffer_memory)  # the memory of the buffered messages
        self._offload = new_offload()
        callback_queue = CallbackQueue(self._loop, run_callbacks)
        self.sender = Sender(
            router,
            self.memory,
            options,
            partial(BatchDelivery, callback_queue=callback_queue, loop_yield=self.loop_yield),
            callback_queue,
            self.fail,
            self._offload,
            encode,
        )
        self.topics = TopicRoutes(
            router, self.sender.accumulator, options, new_partitioner, leader_wait_s
        )
        self.intake = Intake(
            self.topics,
            self.sender.accumulator,
            self.memory,
            options,
            self.loop_yield,
        )

    @property
    def used_bytes(self) -> int:
        return self.memory.used_bytes

    def close(self) -> None:
        """Accept no more messages; raise `ProducerClosed` in the calls that wait."""
        self._refuse(ProducerClosed("the producer was stopped"))

    async def stop(self, error: KafkaError) -> None:
        """End all work; unfinished batches fail with `error`."""
        self.close()
        await run_all_steps(self._client_id, partial(self.sender.stop, error), self._offload.stop)

    def _refuse(self, error: KafkaError) -> None:
        self.memory.close(error)
        self.topics.close(error)

    def fail(self, error: Exception) -> None:
        """Record an unexpected exception in the background: set `crash`, and end all sending."""
        if self.crash is not None:
            # The first crash is the cause; later ones may follow from it.
            return
        _log.error("%s: producer failed: internal error", self._client_id, exc_info=error)
        self.crash = KafkaError(
            f"producer failed: internal error {error!r}, see the log for the traceback; brokers "
            "may have stored messages that weren't acknowledged. Stop this producer and make a new "
            "one"
        )
        self._refuse(self.crash)
        self.sender.abort(self.crash)

    def metrics(self) -> dict[str, float]:
        sinks = self.sender.sinks
        accumulator, resolver = self.sender.accumulator, self.sender.resolver
        return {
            "messages_sent": resolver.messages_sent,
            "messages_failed": resolver.messages_failed,
            "bytes_sent": sum(sink.bytes_sent for sink in sinks),
            "requests_sent": sum(sink.requests_sent for sink in sinks),
            "requests_in_flight": sum(sink.in_flight for sink in sinks),
            "buffer_used_bytes": self.memory.used_bytes,
            "senders_waiting": self.memory.waiters + self.topics.waiters,
            "batches_unfinished": accumulator.unfinished,
            "oldest_batch_ms": accumulator.oldest_age_s(self._loop.time()) * 1000,
            **resolver.acknowledgement_times.metrics(),
            **self.sender.request_times.metrics(),
        }


NO_METRICS: Final = dict.fromkeys(
    (
        "messages_sent",
        "messages_failed",
        "bytes_sent",
        "requests_sent",
        "requests_in_flight",
        "buffer_used_bytes",
        "senders_waiting",
        "batches_unfinished",
        "oldest_batch_ms",
        *Histogram("acknowledgement_seconds").metrics(),
        *Histogram("request_seconds").metrics(),
    ),
    0.0,
)
"""`ProducerEngine.metrics()` before the producer is started."""
