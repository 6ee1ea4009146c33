"""Send the due batches of one broker: connect, drain, write, and match responses to batches.

Invariants: batches stay in their queues, where they can still grow, until a connection is open and
writable. No two produce requests in flight carry batches of the same partition, unless acks=0.
Requests are written in the order in which they were drained. Until `stop`, the sink hands each
drained batch to `BatchResolver` exactly once per request, by `resolve`, `retry` or `fail`. With
acks=0 it calls `acknowledge_written` when the request is written, and `finish` when the request
ends. (A batch that has expired while it was compressed is only handed to `finish`.) After `stop` it
hands over none: `Sender.abort` fails all unfinished batches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from aiokafka08._core.concurrency.offload import Offload
from aiokafka08._core.histogram import Histogram
from aiokafka08._core.net.cluster import ClusterSnapshot
from aiokafka08._core.net.router import Lane, Router
from aiokafka08._core.net.send_window import PROBE_BATCHES, PROBE_BYTES, SendWindow
from aiokafka08._core.net.transport import BrokerConnection
from aiokafka08._core.net.versions import BrokerLine
from aiokafka08._core.net.watchdog import ResponseWatchdog
from aiokafka08._wording import partition_name
from aiokafka08.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError
from aiokafka08.producer.accumulator import Accumulator
from aiokafka08.producer.batch import Batch
from aiokafka08.producer.options import ProducerOptions
from aiokafka08.producer.outcome import BatchResolver
from aiokafka08.producer.passes import PassScheduler
from aiokafka08.protocol.api import by_partition, by_topic
from aiokafka08.protocol.compression import LONG_COMPRESS_BYTES, Codec
from aiokafka08.protocol.message_set import MessageSetBuilder
from aiokafka08.protocol.requests.list_offsets import ListOffsetsRequest
from aiokafka08.protocol.requests.produce import (
    ProducedPartition,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
)
from aiokafka08.protocol.types import Buffer
from aiokafka08.telemetry import Acks0Unknown

# Share of `request_timeout_ms` that the broker may wait for its replicas. Its response, with the
# error code, then arrives before the client times out.
_BROKER_TIMEOUT_SHARE: Final = 0.9

_MAX_INT32: Final = 2**31 - 1

# After a request of many batches, the event loop runs once per this many batches before the next
# request. Sending them takes about a millisecond; a busy task may hold the loop for up to four
# (`loop_yield.HOLD_S`).
_BATCHES_PER_ITERATION: Final = 32


Encode = Callable[[MessageSetBuilder, int], Buffer]
"""Makes the message set of a batch, as `encode_batch` does."""


class _ProduceInFlight:
    """A produce request in flight, which waits for its response (`transport.ResponseWaiter`)."""

    __slots__ = (
        "_sink",
        "batches",
        "connection",
        "is_alone",
        "is_ended",
        "is_overdue",
        "overdue_at",
        "sent_at",
        "sent_batches",
        "sent_bytes",
        "times_out_at",
    )

    def __init__(
        self,
        sink: Sink,
        batches: list[Batch],
        size_bytes: int,
        connection: BrokerConnection,
        *,
        alone: bool,
    ) -> None:
        self._sink = sink
        self.batches = batches  # the batches; the sink may take some of them back
        self.sent_batches = len(batches)  # number of batches when it was sent
        self.sent_bytes = size_bytes  # bytes of their message sets
        self.is_alone = alone  # no other request was in flight then
        self.connection = connection
        # Loop times, which the sink sets when it has sent the request: when it sent it, when the
        # response counts as overdue (again), and when the sink gives the request up
        self.sent_at = self.overdue_at = self.times_out_at = 0.0
        self.is_overdue = False
        self.is_ended = False  # whether the sink has stopped waiting for the response

    @property
    def is_broker_silent(self) -> bool:
        """Whether the response is overdue and no earlier response has come for a while either."""
        return self.is_overdue and self.connection.response_wait_s > self._sink.overdue_s / 2

    def done(self) -> bool:
        return self.is_ended

    def set_result(self, response: Any) -> None:
        self._sink.response_received(self, response)

    def set_exception(self, error: KafkaConnectionError) -> None:
        self._sink.request_failed(self, error)

    def match(
        self, response: ProduceResponse, required_acks: int, snapshot: ClusterSnapshot
    ) -> Iterator[tuple[Batch, ProducedPartition | None, int, int]]:
        """Yield each batch with the response for its partition; None if the broker left that out.

        The other items of a tuple are the offset of the batch's first message, if it is stored, and
        the message format in which the batch was sent.
        """
        version = self.connection.version
        assert version.is_exact or required_acks == 1  # see `Sink._connect`
        responses = by_partition(response.topics)
        # Brokers below 0.8.2 return the offset after a batch, not that of its first message, if
        # they waited for replicas. They wait if acks isn't 1 and a partition of the request has
        # more than one replica, or doesn't exist on this broker. After such a wait, a partition
        # that doesn't exist fails with offset 0, not -1 (docs/brokers.md 5.13).
        returns_next_offset = (required_acks != 1 and version.line < BrokerLine.V0_8_2) and (
            any(self._is_replicated(batch, snapshot) for batch in self.batches)
            or any(produced.error_code and produced.offset == 0 for produced in responses.values())
        )
        for batch in self.batches:
            produced = responses.get(batch.queue.topic_partition)
            base_offset = -1 if produced is None else produced.offset
            if returns_next_offset and base_offset >= batch.count:
                base_offset -= batch.count
            yield batch, produced, base_offset, min(batch.builder.magic, version.magic)

    def _is_replicated(self, batch: Batch, snapshot: ClusterSnapshot) -> bool:
        topic, partition = batch.queue.topic_partition
        known = snapshot.partitions(topic).get(partition)
        return known is not None and len(known.replicas) > 1


class Sink:
    """Sends to one broker."""

    def __init__(
        self,
        node_id: int,
        router: Router,
        accumulator: Accumulator,
        resolver: BatchResolver,
        options: ProducerOptions,
        passes: PassScheduler,
        on_crash: Callable[[Exception], object],
        offload: Offload,
        encode: Encode,
        request_times: Histogram,
    ) -> None:
        self.bytes_sent = 0  # bytes of message sets written, compressed, retries included
        self.requests_sent = 0  # number of produce requests written
        self.last_error: KafkaError | None = None  # why the broker can't be reached; None if it can
        # Seconds after which a response is overdue (`NetLimits`)
        self.overdue_s = router.config.limits.overdue_s
        self._node_id = node_id
        self._router = router
        self._accumulator = accumulator
        self._resolver = resolver
        self._options = options
        self._passes = passes
        self._on_crash = on_crash
        self._offload = offload
        self._encode = encode
        self._request_times = request_times
        self._loop = asyncio.get_running_loop()
        self._connection: BrokerConnection | None = None
        # How much is sent before responses come; each connection has its own
        self.window = self._new_window(router.expected_round_trip_s(node_id))
        self._requests: dict[_ProduceInFlight, None] = {}
        self._connecting: asyncio.Task[None] | None = None
        self._compressing: asyncio.Task[None] | None = None
        self._next_send: asyncio.Handle | None = None
        self._stopped = False

    def __repr__(self) -> str:
        return f"<Sink node={self._node_id} {self.in_flight} in flight>"

    @property
    def in_flight(self) -> int:
        return len(self._requests)

    @property
    def round_trip_s(self) -> float:
        return self.window.round_trip_s

    def send_due(self, now: float) -> None:
        """Send due batches until none is left or the broker has to respond first.

        `now`: loop time at which the current callback of the event loop began, or later.
        """
        mute = self._options.required_acks != 0
        while (
            len(self._requests) < self._options.max_in_flight
            and self._accumulator.has_ready(self._node_id)
            and not self._stopped
            and self._compressing is None
            and self._next_send is None
        ):
            connection = self._connection
            if connection is None or not connection.writable:
                # done(): under an eager task factory the task may end within create_task(). Then
                # `_connect` sets `_connecting` to None first, and the assignment below sets it to
                # the completed task.
                if self._connecting is None or self._connecting.done():
                    self._connecting = self._loop.create_task(
                        self._connect(), name=f"aiokafka08 connect to node {self._node_id}"
                    )
                    self._connecting.add_done_callback(self._connecting_ended)
                return
            max_bytes, max_batches = self._options.max_request_size, None
            if self.window.is_probe_due(now):
                if self._requests and not self.window.is_new:
                    return
                max_bytes, max_batches = min(PROBE_BYTES, max_bytes), PROBE_BATCHES
            elif self.window.is_full(sum(request.sent_batches for request in self._requests)):
                return
            batches = self._accumulator.drain(
                self._node_id, max_bytes, now, mute=mute, max_batches=max_batches
            )
            self._send(connection, batches, now)
            pause = len(batches) // _BATCHES_PER_ITERATION
            if self._options.codec is not Codec.NONE and self._accumulator.has_ready(self._node_id):
                pause = max(pause, 1)
            if pause:
                self._next_send = self._loop.call_soon(self._pause, pause)

    def _pause(self, iterations: int) -> None:
        # Wait for this many iterations of the event loop, then send.
        self._next_send = None
        if iterations > 1:
            self._next_send = self._loop.call_soon(self._pause, iterations - 1)
            return
        try:
            self.send_due(self._loop.time())
        except Exception as error:
            self._on_crash(error)

    def retry_moved(self, snapshot: ClusterSnapshot) -> None:
        """Take back batches from a silent broker if their partitions have another leader now."""
        # With acks=0 no batch waits for a response, so there is nothing to retry.
        if self._options.required_acks == 0 or self._stopped:
            return
        now = self._loop.time()
        for request in [request for request in self._requests if request.is_broker_silent]:
            staying: list[Batch] = []
            for batch in request.batches:
                leader = snapshot.leader(batch.queue.topic_partition)
                if leader is None or leader == self._node_id:
                    staying.append(batch)
                    continue
                error = KafkaTimeoutError(
                    f"node {self._node_id}: no response yet, and node {leader} is the leader now"
                )
                # The batch may be stored twice, as after any lost connection. A response that comes
                # later is read and dropped.
                self._resolver.retry(batch, error, now, may_be_stored=True)
            request.batches = staying
            if not staying:
                self._end(request)
                self._passes.wake()

    def check_deadlines(self, now: float) -> None:
        """Give up requests that have timed out; look for new leaders if responses are overdue."""
        found_overdue = False
        for request in list(self._requests):
            if request.is_ended:  # `_time_out` of an earlier request has closed its connection
                continue
            if request.times_out_at <= now:
                self._time_out(request)
            elif request.overdue_at <= now:
                request.overdue_at = now + self.overdue_s
                request.is_overdue = found_overdue = True
        if found_overdue:
            self._router.metadata.request_refresh()
            self.retry_moved(self._router.metadata.snapshot)
        for request in self._requests:
            self._passes.set_timer(min(request.times_out_at, request.overdue_at))

    def stop(self) -> None:
        self._stopped = True
        for request in self._requests:
            request.is_ended = True
        if self._options.required_acks == 0:
            self._emit_unknown(list(self._requests), "the producer was stopped")
        self._requests.clear()
        for pending in (self._connecting, self._compressing, self._next_send):
            if pending is not None:
                pending.cancel()

    async def wait_stopped(self) -> None:
        tasks = [task for task in (self._connecting, self._compressing) if task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connect(self) -> None:
        """Get a writable connection, then send."""
        try:
            try:
                with ResponseWatchdog(self._router.metadata, self.overdue_s):
                    exact = self._options.needs_exact_line
                    connection = await self._router.connection(
                        self._node_id, Lane.PRODUCE, exact=exact
                    )
                    await connection.wait_writable()
                connection.on_received = self._passes.responses_end
                if connection is not self._connection:
                    # Keep the known round trip, since the new connection measures it only with
                    # small requests, and all batches may be large.
                    known_s = self.window.round_trip_s
                    self.window = self._new_window(
                        known_s or self._router.expected_round_trip_s(self._node_id)
                    )
                self._connection = connection
                self.last_error = None
            except KafkaError as error:
                self.last_error = error
                if error.retriable:
                    await asyncio.sleep(self._router.config.retry_backoff_s)
                else:
                    self._fail_due(error)
            finally:
                self._connecting = None
            self.send_due(self._loop.time())
        except Exception as error:
            self._on_crash(error)

    def _connecting_ended(self, task: asyncio.Task[None]) -> None:
        """Try again if the task was cancelled; see `_compression_ended`."""
        if task.cancelled() and not self._stopped:
            self._passes.wake()

    def _new_window(self, expected_s: float) -> SendWindow:
        return SendWindow(expected_s, self._accumulator.batch_bytes)

    def _fail_due(self, error: KafkaError) -> None:
        """Fail all due batches: this client can never speak to the broker."""
        while True:
            now = self._loop.time()
            batches = self._accumulator.drain(self._node_id, self._options.max_request_size, now)
            if not batches:
                return
            self._resolver.fail_all(batches, error, now)

    def _send(self, connection: BrokerConnection, batches: list[Batch], now: float) -> None:
        version, codec = connection.version, self._options.codec
        if version.line not in self._options.supported_lines:
            error = self._options.unsupported_line(version, f"node {self._node_id}")
            self._resolver.fail_all(batches, error, now)
        elif (
            codec is not Codec.NONE
            and sum(batch.builder.size_bytes for batch in batches) > LONG_COMPRESS_BYTES[codec]
        ):
            # No other request is drained while a thread compresses this one.
            self._compressing = self._loop.create_task(
                self._compress(connection, batches),
                name=f"aiokafka08 compress for node {self._node_id}",
            )
            self._compressing.add_done_callback(partial(self._compression_ended, batches))
        else:
            self._write(connection, batches, self._encode_all(batches, version.magic), now)

    async def _compress(self, connection: BrokerConnection, batches: list[Batch]) -> None:
        """Encode the batches in a thread, write them, and go on sending."""
        try:
            encode = partial(self._encode_all, batches, connection.version.magic)
            message_sets = await self._offload.run(encode)
            self._compressing = None
            now = self._loop.time()
            self._write(connection, batches, message_sets, now)
            self.send_due(now)
        except Exception as error:
            self._on_crash(error)

    def _encode_all(self, batches: list[Batch], magic: int) -> list[Buffer | Exception]:
        """Return the message set of each batch, or the exception that encoding it raised."""
        encoded: list[Buffer | Exception] = []
        for batch in batches:
            try:
                encoded.append(self._encode(batch.builder, magic))
            except Exception as failure:  # compression may raise anything; the batch must fail
                encoded.append(failure)
        return encoded

    def _compression_ended(self, batches: list[Batch], task: asyncio.Task[None]) -> None:
        """Retry the batches if the task was cancelled, perhaps before its first step."""
        if self._compressing is task:
            self._compressing = None
        # Cancelled by `stop`, or by a program that cancels all tasks, as asyncio.run() does at its
        # end.
        if task.cancelled() and not self._stopped:
            name = partition_name(batches[0].queue.topic_partition)
            cancelled = KafkaError(f"produce to {name}: compression was cancelled")
            now = self._loop.time()
            for batch in batches:
                self._resolver.retry(batch, cancelled, now, may_be_stored=False)

    def _write(
        self,
        connection: BrokerConnection,
        batches: list[Batch],
        message_sets: list[Buffer | Exception],
        now: float,
    ) -> None:
        encoded: list[Batch] = []
        size_bytes = 0
        partitions: list[tuple[str, ProducePartition]] = []
        for batch, message_set in zip(batches, message_sets, strict=True):
            topic, partition = batch.queue.topic_partition
            if batch.is_expired:  # while it was compressed
                self._resolver.finish(batch, now)
                continue
            if isinstance(message_set, Exception):
                name = partition_name(batch.queue.topic_partition)
                text = f"produce to {name}: can't encode the batch: {message_set!r}"
                self._resolver.fail(batch, KafkaError(text), now)
                continue
            partitions.append((topic, ProducePartition(partition, message_set)))
            size_bytes += len(message_set)
            batch.is_written = True
            encoded.append(batch)
        if not encoded:
            return
        acks = self._options.required_acks
        timeout_s = self._router.config.request_timeout_s
        produce = ProduceRequest(
            acks,
            min(int(timeout_s * 1000 * _BROKER_TIMEOUT_SHARE), _MAX_INT32),
            by_topic(partitions),
        )
        alone = not self._requests
        request = _ProduceInFlight(self, encoded, size_bytes, connection, alone=alone)
        try:
            connection.send(produce, request)
            if acks == 0:
                # A broker doesn't respond to this produce request. The response to the tiny request
                # after it shows that the broker has read everything before. If the produce request
                # fails, the broker closes the connection, and the outcome of all messages sent
                # since the last such response is unknown (docs/brokers.md 3.3).
                connection.send(ListOffsetsRequest(-1, []), request, version=0)
        except KafkaConnectionError as error:
            for batch in encoded:
                self._resolver.retry(batch, error, now, may_be_stored=False)
            return
        self.requests_sent += 1
        self.bytes_sent += size_bytes
        if acks == 0:
            for batch in encoded:
                self._resolver.acknowledge_written(batch)
        sent_at = request.sent_at = connection.last_used
        request.overdue_at = sent_at + self.overdue_s
        # A broker serves one request of a connection at a time, so every request before this one
        # may use its own timeout first.
        request.times_out_at = sent_at + timeout_s * connection.in_flight
        self._requests[request] = None
        self._passes.set_timer(min(request.times_out_at, request.overdue_at))

    # --- the end of a request ---------------------------------------------------------------------

    def response_received(self, request: _ProduceInFlight, response: ProduceResponse) -> None:
        """End a request by its response, and send what waited for that."""
        self._end(request)
        # The callers' tasks run once all responses in the received data are handled.
        self._passes.responses_begin()
        try:
            now = request.connection.last_received
            self._request_times.add(now - request.sent_at)
            if request.connection is self._connection:
                self.window.acknowledged(
                    request.sent_at,
                    now,
                    request.sent_batches,
                    request.sent_bytes,
                    alone=request.is_alone,
                )
            if self._options.required_acks == 0:
                self._finish_unacknowledged(request, None, now)
            else:
                snapshot = self._router.metadata.snapshot
                for matched in request.match(response, self._options.required_acks, snapshot):
                    self._resolver.resolve(*matched, now)
            self.send_due(now)
        except Exception as crash:
            self._on_crash(crash)

    def request_failed(self, request: _ProduceInFlight, error: KafkaError) -> None:
        """End a request without a response: retry its batches, or with acks=0 finish them."""
        self._end(request)
        try:
            now = self._loop.time()
            self._router.metadata.request_refresh()
            if self._options.required_acks == 0:
                self._finish_unacknowledged(request, error, now)
            else:
                for batch in request.batches:
                    self._resolver.retry(batch, error, now, may_be_stored=True)
            # Not `send_due`, because this may run while the connection is being closed.
            self._passes.wake()
        except Exception as crash:
            self._on_crash(crash)

    def _end(self, request: _ProduceInFlight) -> None:
        request.is_ended = True
        self._requests.pop(request, None)

    def _time_out(self, request: _ProduceInFlight) -> None:
        timeout_s = self._router.config.request_timeout_s
        request.connection.close_if_silent(timeout_s)
        if not request.is_ended:  # the connection is still open
            text = f"node {self._node_id}: no response within {timeout_s * 1000:.0f} ms"
            self.request_failed(request, KafkaTimeoutError(text))

    def _finish_unacknowledged(
        self, request: _ProduceInFlight, error: KafkaError | None, now: float
    ) -> None:
        """acks=0: finish the batches of a request that has ended.

        If `error` is None, the broker has read the request; else it may not have.
        """
        ended = [request]
        if error is not None:
            connection = request.connection
            if connection.close_reason is not None:  # the other requests on it are lost as well
                ended += [other for other in self._requests if other.connection is connection]
                # Requests fail in the order in which they were sent, so if the broker has refused a
                # batch, this request has it.
                for batch in request.batches:
                    self._accumulator.lower_limit(batch)
            for lost in ended:
                self._end(lost)
            self._emit_unknown(ended, str(error))
        for finished in ended:
            for batch in finished.batches:
                self._resolver.finish(batch, now)

    def _emit_unknown(self, requests: list[_ProduceInFlight], reason: str) -> None:
        batches = [batch for request in requests for batch in request.batches]
        if batches:
            partitions = tuple(sorted({batch.queue.topic_partition for batch in batches}))
            messages = sum(batch.count for batch in batches)
            self._router.telemetry.emit(Acks0Unknown(partitions, messages, reason))


def encode_batch(builder: MessageSetBuilder, magic: int) -> Buffer:
    """Return the message set of a batch, for a broker that reads formats up to `magic`."""
    if builder.magic > magic:  # the leader is of an older broker line than when the batch began
        builder = builder.as_format_0()
    return builder.build()
