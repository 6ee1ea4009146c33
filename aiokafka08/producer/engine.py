"""The parts of a running producer, put together; made when it has found its cluster.

Knows nothing of `AIOKafkaProducer`: none of the parts keeps the public object alive.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from aiokafka08.concurrency.loop_yield import LoopYield
from aiokafka08.errors import KafkaError, ProducerClosed
from aiokafka08.net.router import Router
from aiokafka08.producer.accumulator import Accumulator
from aiokafka08.producer.admission import Admission
from aiokafka08.producer.bulk import Bulk
from aiokafka08.producer.delivery import Delivery
from aiokafka08.producer.guard import Guard
from aiokafka08.producer.intake import Intake
from aiokafka08.producer.memory import BufferMemory
from aiokafka08.producer.options import ProducerOptions
from aiokafka08.producer.partitioner import Partitioner
from aiokafka08.producer.sender import Sender
from aiokafka08.producer.settle import Settler
from aiokafka08.producer.topics import TopicRoutes

_log = logging.getLogger("aiokafka08.producer")


class ProducerEngine:
    """Runs in the loop that makes it, until `stop`.

    Attributes:
        intake: the way in for one message.
        bulk: the way in for many.
        routes: what is known of topics.
        sender: the way out.
        turns: who does much without waiting gives others theirs.
        crash: what ended it before its time, a bug of ours; every call that sends raises it.
    """

    def __init__(
        self,
        router: Router,
        options: ProducerOptions,
        new_partitioner: Callable[[], Partitioner],
    ) -> None:
        loop = asyncio.get_running_loop()
        turns = self.turns = LoopYield()
        self._loop = loop
        self.crash: KafkaError | None = None
        self._memory = BufferMemory(options.buffer_memory)
        self._accumulator = Accumulator(
            batch_bytes=options.max_batch_size,
            max_request_bytes=options.max_request_size,
            linger_s=options.linger_s,
            delivery_timeout_s=options.delivery_timeout_s,
            codec=options.codec,
            new_delivery=lambda topic_partition: Delivery(topic_partition, loop, turns),
        )
        self._settler = Settler(
            self._accumulator, self._memory, router.metadata, router.config, router.telemetry
        )
        self.sender = Sender(
            router, self._accumulator, self._settler, options, Guard(self._crashed)
        )
        self.routes = TopicRoutes(
            router, self._accumulator, new_partitioner, options.check_broker, self.sender.wake
        )
        admission = Admission(
            self._accumulator,
            self._memory,
            self.routes,
            self.sender,
            options,
            router.config.request_timeout_s,
        )
        self.intake = Intake(admission, self._accumulator, self._memory, self.sender, turns)
        self.bulk = Bulk(admission, self._accumulator, self._memory, self.sender, turns)

    @property
    def used_bytes(self) -> int:
        """Bytes of messages that are accepted and not yet acknowledged."""
        return self._memory.used_bytes

    def close(self) -> None:
        """Accept nothing more: senders that wait get `ProducerClosed`."""
        self._refuse(ProducerClosed("the producer was stopped"))

    async def stop(self, error: KafkaError) -> None:
        """End all work; what isn't finished fails with `error`."""
        self.close()
        await self.sender.stop(error)

    def _refuse(self, error: KafkaError) -> None:
        self._memory.close(error)
        self.routes.close(error)

    def _crashed(self, error: Exception) -> None:
        if self.crash is not None:
            return
        _log.error("the producer can't go on", exc_info=error)
        self.crash = KafkaError(
            f"the producer can't go on, by an error of its own (the log has it all): {error!r}; "
            "stop it and make a new one. What wasn't acknowledged may be in the log"
        )
        self._refuse(self.crash)
        self.sender.shut(self.crash)

    def metrics(self) -> dict[str, float]:
        """Gauges and counters of the parts."""
        links = self.sender.links
        return {
            "messages_sent": self._settler.messages_sent,
            "messages_failed": self._settler.messages_failed,
            "bytes_sent": sum(link.bytes_sent for link in links),
            "requests_sent": sum(link.requests_sent for link in links),
            "requests_in_flight": sum(link.in_flight for link in links),
            "buffer_used_bytes": self._memory.used_bytes,
            "senders_waiting": self._memory.waiting,
            "batches_unfinished": self._accumulator.unfinished,
            "oldest_batch_ms": self._accumulator.oldest_age_s(self._loop.time()) * 1000,
        }


NO_METRICS = dict.fromkeys(
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
    ),
    0.0,
)
"""`ProducerEngine.metrics()` before there is an engine."""
