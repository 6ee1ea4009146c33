"""Run the sending side of a producer: decide when to send, expire batches, watch for leaders.

Invariant: a pass (`passes`) or a sink hands an unexpected exception to `on_crash`, which ends the
producer. It is never only logged while callers wait for messages that can't be sent any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from aiokafka08._core.concurrency.offload import Offload
from aiokafka08._core.histogram import Histogram
from aiokafka08._core.net.cluster import ClusterSnapshot
from aiokafka08._core.net.router import Router
from aiokafka08._core.net.send_window import STORABLE_BYTES, acks0_growth_bytes, growth_bytes
from aiokafka08.errors import KafkaError
from aiokafka08.producer.accumulator import Accumulator
from aiokafka08.producer.batch_delivery import BatchDelivery, CallbackQueue
from aiokafka08.producer.memory import BufferMemory
from aiokafka08.producer.options import ProducerOptions
from aiokafka08.producer.outcome import BatchResolver
from aiokafka08.producer.passes import PassScheduler
from aiokafka08.producer.sink import Encode, Sink
from aiokafka08.protocol.compression import Codec
from aiokafka08.structs import TopicPartition

# Shortest time between two metadata refreshes because of missing leaders. Applies if
# `retry_backoff_ms` is lower, for example 0.
_MIN_LEADER_RETRY_S: Final = 0.01


class Sender:
    """Sends what the accumulator buffers, from its construction until `stop`."""

    def __init__(
        self,
        router: Router,
        memory: BufferMemory,
        options: ProducerOptions,
        new_delivery: Callable[[TopicPartition], BatchDelivery],
        callback_queue: CallbackQueue,
        on_crash: Callable[[Exception], object],
        offload: Offload,
        encode: Encode,
    ) -> None:
        self.passes = PassScheduler(callback_queue, self._run_pass, self._check_deadlines)
        self.accumulator = Accumulator(
            batch_bytes=options.max_batch_size,
            max_request_bytes=options.max_request_size,
            linger_s=options.linger_s,
            delivery_timeout_s=options.delivery_timeout_s,
            codec=options.codec,
            growth_bytes=self._growth_bytes,
            new_delivery=new_delivery,
            wake_sender=self.passes.wake,
        )
        # Ends batches, and counts their messages
        self.resolver = BatchResolver(
            self.accumulator,
            memory,
            router.metadata,
            router.config,
            router.telemetry,
            options.required_acks,
        )
        # From the write of each produce request to its response
        self.request_times = Histogram("request_seconds")
        self._router = router
        self._options = options
        self._on_crash = on_crash
        self._offload = offload
        self._encode = encode
        self._loop = asyncio.get_running_loop()
        self._sinks: dict[int, Sink] = {}
        router.metadata.add_listener(self._metadata_changed)

    @property
    def sinks(self) -> list[Sink]:
        return list(self._sinks.values())

    async def flush(self) -> None:
        """Send everything that is buffered, and wait until each of these batches has ended."""
        batches = self.accumulator.flush(self._loop.time())
        for batch in batches:
            await batch.delivery.wait_finished()

    def abort(self, error: KafkaError) -> None:
        """Stop sending; every unfinished batch fails with `error`."""
        self.passes.stop()
        for sink in self._sinks.values():
            sink.stop()
        now = self._loop.time()
        self.resolver.fail_all(self.accumulator.flush(now), error, now)

    async def stop(self, error: KafkaError) -> None:
        """Call `abort`, and wait until the background work has ended."""
        # Abort before the first await, so that all sending stops even if the caller is cancelled.
        self.abort(error)
        for sink in self._sinks.values():
            await sink.wait_stopped()

    def _run_pass(self) -> None:
        try:
            self._send_due()
        except Exception as error:
            self._on_crash(error)

    def _send_due(self) -> None:
        accumulator = self.accumulator
        now = self._loop.time()
        accumulator.begin_pass(now)
        self.resolver.expire(now, self._why_not_sent)
        for node_id in accumulator.ready_nodes():
            sink = self._sinks.get(node_id)
            if sink is None:
                sink = self._sinks[node_id] = Sink(
                    node_id,
                    self._router,
                    accumulator,
                    self.resolver,
                    self._options,
                    self.passes,
                    self._on_crash,
                    self._offload,
                    self._encode,
                    self.request_times,
                )
            sink.send_due(now)
        leaderless = accumulator.has_ready(None)
        next_time = accumulator.end_pass()
        # Batches without a leader wake no sink, so the metadata is refreshed until one is known.
        if leaderless:
            self._router.metadata.request_refresh()
            retry_at = now + max(self._router.config.retry_backoff_s, _MIN_LEADER_RETRY_S)
            next_time = retry_at if next_time is None else min(retry_at, next_time)
        if next_time is not None:
            self.passes.set_timer(next_time)

    def _growth_bytes(self, leader: int | None, message_bytes: float) -> int:
        """Return the size to which a batch may grow while it waits for an earlier one."""
        acks0 = self._options.required_acks == 0
        if self._options.codec is not Codec.NONE:
            return STORABLE_BYTES if acks0 else self._options.max_request_size
        sink = None if leader is None else self._sinks.get(leader)
        if sink is not None:
            round_trip_s = sink.round_trip_s
        else:
            round_trip_s = self._router.expected_round_trip_s(leader)
        if acks0:
            return acks0_growth_bytes(round_trip_s, self._options.max_in_flight)
        return growth_bytes(round_trip_s, message_bytes)

    def _metadata_changed(self, snapshot: ClusterSnapshot) -> None:
        try:
            for sink in self._sinks.values():
                sink.retry_moved(snapshot)
        except Exception as error:
            self._on_crash(error)

    def _check_deadlines(self) -> None:
        try:
            now = self._loop.time()
            for sink in self._sinks.values():
                sink.check_deadlines(now)
        except Exception as error:
            self._on_crash(error)

    def _why_not_sent(self) -> str:
        errors = [sink.last_error.text for sink in self._sinks.values() if sink.last_error]
        return "; ".join(errors) or "the messages were still waiting to be sent"
