"""The way of batches to one broker: connect, drain, write, wait for the answers.

Several requests are in flight at once, over disjoint partitions. Nothing is taken out of the
queues before a connection is open and takes writes: what can't be sent stays where it grows.
acks=0 gets no answer, so a tiny request that is answered goes behind each produce on the same
connection: its answer says that the broker has read all before it; when the broker closes the
connection instead, which is its way to say "error", the fate of all since the last answer is
unknown (docs/brokers.md 3.3). A broker that is silent is left with the batches that another one
leads by now: they may be stored twice, as after any lost connection. When to pump is `sender`'s
business, the ends are `settle`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from aiokafka08.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError
from aiokafka08.net.cluster import ClusterSnapshot
from aiokafka08.net.router import Lane, Router
from aiokafka08.net.transport import Connection
from aiokafka08.net.versions import BrokerLine
from aiokafka08.net.watchdog import ResponseWatchdog
from aiokafka08.producer.accumulator import Accumulator, Batch
from aiokafka08.producer.guard import Guard
from aiokafka08.producer.options import ProducerOptions
from aiokafka08.producer.settle import Settler
from aiokafka08.protocol.api import (
    ListOffsetsRequest,
    ProducedPartition,
    ProducePartition,
    ProduceRequest,
    Topic,
    by_topic,
)
from aiokafka08.protocol.types import Buffer
from aiokafka08.structs import TopicPartition
from aiokafka08.telemetry import Acks0Unknown

_PING: Final = ListOffsetsRequest(-1, [])

_BROKER_SHARE: Final = 0.9
"""The broker's part of `request_timeout_ms` to wait for its replicas: its answer, which says what
happened, comes before the client gives up."""

_MAX_INT32: Final = 2**31 - 1


class _Request:
    """A produce request in flight."""

    __slots__ = ("answer", "batches", "connection", "doubt", "magic", "timer")

    def __init__(
        self,
        batches: list[Batch],
        connection: Connection,
        answer: asyncio.Future[Any],
        timer: asyncio.TimerHandle,
        doubt: ResponseWatchdog,
    ) -> None:
        self.batches = batches
        self.connection = connection
        self.magic = connection.version.magic
        self.answer = answer
        self.timer = timer
        self.doubt = doubt

    @property
    def broker_is_silent(self) -> bool:
        """Its answer is overdue, and none before it has come for a while either."""
        return self.doubt.overdue and self.connection.owing_s > self.doubt.after_s / 2

    def end(self) -> None:
        """It is answered, or given up."""
        self.timer.cancel()
        self.doubt.end()


class Sink:
    """One broker, as the producer sees it.

    Attributes:
        bytes_sent: message sets handed to the socket, compressed, repetitions included.
        requests_sent: produce requests.
        trouble: why the broker can't be reached; None when all is well.
    """

    def __init__(
        self,
        node_id: int,
        router: Router,
        accumulator: Accumulator,
        settler: Settler,
        options: ProducerOptions,
        wake: Callable[[], object],
        guard: Guard,
    ) -> None:
        self.bytes_sent = 0
        self.requests_sent = 0
        self.trouble: KafkaError | None = None
        self._node_id = node_id
        self._router = router
        self._accumulator = accumulator
        self._settler = settler
        self._options = options
        self._wake = wake
        self._guard = guard
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = None
        self._requests: dict[_Request, None] = {}
        self._preparing: asyncio.Task[None] | None = None
        self._stopped = False

    def __repr__(self) -> str:
        return f"<Sink node={self._node_id} {self.in_flight} in flight>"

    @property
    def in_flight(self) -> int:
        """Produce requests that aren't answered yet."""
        return len(self._requests)

    def pump(self) -> None:
        """Send what is due, as far as the connection takes it now."""
        mute = self._options.required_acks != 0
        while (
            len(self._requests) < self._options.max_in_flight
            and self._accumulator.has_ready(self._node_id)
            and not self._stopped
        ):
            connection = self._connection
            if connection is None or not connection.writable:
                # done(): an eager task factory may have ended it before it was assigned
                if self._preparing is None or self._preparing.done():
                    self._preparing = self._loop.create_task(self._prepare())
                return
            self._write(
                connection,
                self._accumulator.drain(
                    self._node_id, self._options.max_request_size, self._loop.time(), mute=mute
                ),
            )

    def follow(self, snapshot: ClusterSnapshot) -> None:
        """Take back what another broker leads by now from one that is silent.

        An answer that comes all the same is read and dropped. With acks=0 nothing waits for it.
        """
        if self._options.required_acks == 0 or self._stopped:
            return
        now = self._loop.time()
        for request in [one for one in self._requests if one.broker_is_silent]:
            staying: list[Batch] = []
            for batch in request.batches:
                leader = snapshot.leader(batch.queue.topic_partition)
                if leader is None or leader == self._node_id:
                    staying.append(batch)
                    continue
                error = KafkaTimeoutError(
                    f"node {self._node_id}: no answer yet, and node {leader} leads by now"
                )
                self._settler.put_back(batch, error, now, may_be_stored=True)
            request.batches = staying
            if not staying:
                request.answer.cancel()

    def shut(self) -> None:
        """Wait for nothing more: what is in flight is for the caller to end."""
        self._stopped = True
        for request in self._requests:
            request.end()
        if self._options.required_acks == 0:
            self._tell_unknown(list(self._requests), "the producer was stopped")
        self._requests.clear()
        if self._preparing is not None:
            self._preparing.cancel()

    async def wait_ended(self) -> None:
        """After `shut`: wait for the end of the background work."""
        if self._preparing is not None:
            await asyncio.gather(self._preparing, return_exceptions=True)

    async def _prepare(self) -> None:
        """Get a connection that takes writes."""
        with self._guard:
            try:
                with ResponseWatchdog(self._router.metadata):
                    connection = await self._router.connection(self._node_id, Lane.PRODUCE)
                    await connection.wait_writable()
                self._connection = connection
                self.trouble = None
            except KafkaError as error:
                self.trouble = error
                if error.retriable:
                    await asyncio.sleep(self._router.config.retry_backoff_s)
                else:
                    self._fail_due(error)
            finally:
                self._preparing = None
            self.pump()

    def _fail_due(self, error: KafkaError) -> None:
        """The broker is none that this client can ever speak to."""
        while True:
            now = self._loop.time()
            batches = self._accumulator.drain(self._node_id, self._options.max_request_size, now)
            if not batches:
                return
            self._settler.abandon(batches, error, now)

    def _write(self, connection: Connection, batches: list[Batch]) -> None:
        now = self._loop.time()
        try:
            self._options.check_broker(connection.version, f"node {self._node_id}")
        except KafkaError as error:
            self._settler.abandon(batches, error, now)
            return
        encoded: list[Batch] = []
        asked: list[tuple[str, ProducePartition]] = []
        magic = connection.version.magic
        for batch in batches:
            try:
                message_set = _encode(batch, magic)
            except Exception as error:  # compression: whatever it is, the senders must hear of it
                self._settler.fail(batch, KafkaError(f"can't encode the batch: {error!r}"), now)
                continue
            topic, partition = batch.queue.topic_partition
            asked.append((topic, ProducePartition(partition, message_set)))
            self.bytes_sent += len(message_set)
            encoded.append(batch)
        if not encoded:
            return
        acks = self._options.required_acks
        timeout_s = self._router.config.request_timeout_s
        request = ProduceRequest(
            acks,
            min(int(timeout_s * 1000 * _BROKER_SHARE), _MAX_INT32),
            by_topic(asked),
        )
        try:
            answer: asyncio.Future[Any] = connection.start(request)
            if acks == 0:
                answer = connection.start(_PING, version=0)
        except KafkaConnectionError as error:
            for batch in encoded:
                self._settler.put_back(batch, error, now, may_be_stored=False)
            return
        self.requests_sent += 1
        if acks == 0:
            for batch in encoded:
                self._settler.written(batch)
        # A broker serves one request at a time: each one before this has a right to its time.
        timer = self._loop.call_later(
            timeout_s * connection.in_flight, self._out_of_patience, connection, answer
        )
        doubt = ResponseWatchdog(self._router.metadata, on_overdue=self._doubted)
        flying = _Request(encoded, connection, answer, timer, doubt)
        self._requests[flying] = None
        answer.add_done_callback(partial(self._ended, flying))

    def _doubted(self) -> None:
        with self._guard:
            self.follow(self._router.metadata.snapshot)
            if self._accumulator.news:
                self._wake()

    def _out_of_patience(self, connection: Connection, answer: asyncio.Future[Any]) -> None:
        connection.close_if_dead(self._router.config.request_timeout_s)
        answer.cancel()  # no effect if the closing has ended it

    def _ended(self, request: _Request, answer: asyncio.Future[Any]) -> None:
        request.end()
        error: KafkaError | None = None
        if answer.cancelled():
            limit_ms = self._router.config.request_timeout_s * 1000
            error = KafkaTimeoutError(f"node {self._node_id}: no answer within {limit_ms:.0f} ms")
        elif (failure := answer.exception()) is not None:
            error = failure if isinstance(failure, KafkaError) else KafkaError(repr(failure))
        if self._stopped or request not in self._requests:
            return
        del self._requests[request]
        with self._guard:
            self._settle(request, error, answer)

    def _settle(
        self, request: _Request, error: KafkaError | None, answer: asyncio.Future[Any]
    ) -> None:
        now = self._loop.time()
        if error is not None:
            self._router.metadata.request_refresh()
        if self._options.required_acks == 0:
            self._ended_without_acks(request, error, now)
        elif error is not None:
            for batch in request.batches:
                self._settler.put_back(batch, error, now, may_be_stored=True)
        else:
            self._take_answers(request, answer.result().topics, now)
        self.pump()
        if self._accumulator.news:
            self._wake()

    def _take_answers(
        self, request: _Request, topics: list[Topic[ProducedPartition]], now: float
    ) -> None:
        # by name, not by place: brokers' order is that of hash maps (docs/brokers.md 3.11)
        answers = {
            TopicPartition(topic.topic, one.partition): one
            for topic in topics
            for one in topic.partitions
        }
        waited = self._waited_on_an_old_line(request)
        for batch in request.batches:
            magic = min(batch.builder.magic, request.magic)
            answer = answers.get(batch.queue.topic_partition)
            if waited and answer is not None and answer.offset >= batch.count:
                answer.offset -= batch.count
            self._settler.answered(batch, answer, magic, now)

    def _waited_on_an_old_line(self, request: _Request) -> bool:
        """Brokers below 0.8.2 that have waited for replicas tell the offset behind a batch, not its
        first one. They wait unless each partition of the request has one replica."""
        if self._options.required_acks == 1 or request.connection.version.line >= BrokerLine.V0_8_2:
            return False
        snapshot = self._router.metadata.snapshot
        return any(
            known is not None and len(known.replicas) > 1
            for batch in request.batches
            for topic, partition in (batch.queue.topic_partition,)
            for known in (snapshot.partitions(topic).get(partition),)
        )

    def _ended_without_acks(self, request: _Request, error: KafkaError | None, now: float) -> None:
        ended = [request]
        if error is not None:
            if request.connection.closed is not None:  # it took the others with it
                ended += [one for one in self._requests if one.connection is request.connection]
            for one in ended:
                one.end()
                self._requests.pop(one, None)
            self._tell_unknown(ended, error.text)
        for one in ended:
            for batch in one.batches:
                self._settler.finished(batch, now)

    def _tell_unknown(self, requests: list[_Request], reason: str) -> None:
        messages = sum(batch.count for request in requests for batch in request.batches)
        if messages:
            self._router.telemetry.emit(Acks0Unknown(messages, reason))


def _encode(batch: Batch, magic: int) -> Buffer:
    builder = batch.builder
    if builder.magic > magic:  # the leader is of an older line than the one it was built for
        builder = builder.as_format_0()
    return builder.build()
