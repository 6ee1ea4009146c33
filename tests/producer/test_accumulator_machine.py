"""The accumulator's invariants hold for any sequence of events (Hypothesis)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aiokafka08.producer.accumulator import Accumulator
from aiokafka08.producer.batch import Batch, PartitionQueue
from aiokafka08.producer.batch_delivery import BatchDelivery
from aiokafka08.protocol.compression import Codec
from aiokafka08.protocol.message_set import message_size
from aiokafka08.structs import TopicPartition
from tests.protocol.entries import entries

NODES = [0, 1, None]
partitions = st.integers(0, 2)
choices = st.integers(0, 1 << 30)
sizes = st.sampled_from([8, 50, 300, 900])


class AccumulatorMachine(RuleBasedStateMachine):
    """Messages are numbered per partition; they must be stored in the order of their numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.accumulator = Accumulator(
            batch_bytes=200,
            max_request_bytes=1000,
            linger_s=0.5,
            delivery_timeout_s=10.0,
            codec=Codec.NONE,
            growth_bytes=lambda leader, _: 1000 if leader == 0 else 0,
            new_delivery=lambda topic_partition: BatchDelivery(topic_partition, None),
            wake_sender=self.wake_sender,
        )
        self.wakes = 0  # since the last pass of the sender
        self.is_in_pass = False
        self.next_pass: float | None = None
        self.seen: set[PartitionQueue] = set()  # ready queues that the last pass left behind
        self.queues = [self.accumulator.new_queue(TopicPartition("t", p)) for p in range(3)]
        self.sent: list[list[float]] = [[], [], []]  # when each message was sent
        self.stored: list[list[int]] = [[], [], []]
        self.expired: list[set[int]] = [set(), set(), set()]
        self.in_flight: list[Batch] = []

    def wake_sender(self) -> None:
        assert not self.is_in_pass
        self.wakes += 1

    @contextmanager
    def sender_pass(self) -> Iterator[None]:
        self.is_in_pass = True
        self.accumulator.begin_pass(self.now)
        yield
        self.next_pass = self.accumulator.end_pass()
        self.is_in_pass = False
        self.wakes = 0
        self.seen = {queue for queue in self.queues if queue.is_ready}

    @rule(partition=partitions, size=sizes, waited_s=st.sampled_from([None, 0.3, 2.0, 8.0]))
    def append(self, partition: int, size: int, waited_s: float | None) -> None:
        since = None if waited_s is None else self.now - waited_s
        value = self.next_value(partition, size, self.now if since is None else since)
        queue = self.queues[partition]
        size = message_size(0, None, value)
        self.accumulator.append(queue, None, value, -1, size, self.now, since)

    @rule(partition=partitions, size=sizes)
    def append_fast(self, partition: int, size: int) -> None:
        """Append as the fast path does, which reads no clock."""
        batch = self.queues[partition].open_batch
        if batch is not None and batch.builder.size_bytes + size + 26 <= batch.limit_bytes:
            batch.builder.append(None, self.next_value(partition, size, self.now), -1)
            batch.count += 1

    def next_value(self, partition: int, size: int, sent_at: float) -> bytes:
        self.sent[partition].append(sent_at)
        return b"%08d" % (len(self.sent[partition]) - 1) + b"v" * (size - 8)

    @rule(partition=partitions, leader=st.sampled_from(NODES))
    def move(self, partition: int, leader: int | None) -> None:
        self.accumulator.set_leader(self.queues[partition], leader, self.now)

    @rule(node=st.sampled_from([0, 1]), max_bytes=st.sampled_from([100, 1000]))
    def drain(self, node: int, max_bytes: int) -> None:
        with self.sender_pass():
            ready = self.accumulator.has_ready(node)
            batches = self.accumulator.drain(node, max_bytes, self.now)
        assert bool(batches) == ready
        assert len({batch.queue for batch in batches}) == len(batches)
        assert all(batch.queue.leader == node and batch.in_flight for batch in batches)
        self.in_flight += batches

    @precondition(lambda self: self.in_flight)
    @rule(choice=choices)
    def finish(self, choice: int) -> None:
        batch = self.in_flight.pop(choice % len(self.in_flight))
        numbers = self.numbers(batch)
        if not batch.is_expired:
            self.stored[batch.queue.topic_partition.partition] += numbers
        self.accumulator.finish(batch, self.now)

    @precondition(lambda self: any(not batch.is_expired for batch in self.in_flight))
    @rule(choice=choices, split=st.booleans(), delay_s=st.sampled_from([0.0, 0.1, 3.0]))
    def put_back_or_split(self, choice: int, split: bool, delay_s: float) -> None:
        candidates = [batch for batch in self.in_flight if not batch.is_expired]
        batch = candidates[choice % len(candidates)]
        self.in_flight.remove(batch)
        if split and batch.count > 1:
            numbers = self.numbers(batch)
            first, second = self.accumulator.split(batch, self.now)
            assert self.numbers(first) + self.numbers(second) == numbers
        else:
            self.accumulator.put_back(batch, self.now, delay_s)

    @rule(seconds=st.sampled_from([0.01, 0.5, 4.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        with self.sender_pass():
            self.expire()

    @rule(seconds=st.sampled_from([0.01, 0.5, 4.0]), partition=partitions, size=sizes)
    def send_after_holding_the_loop(self, seconds: float, partition: int, size: int) -> None:
        self.now += seconds
        self.append_fast(partition, size)
        self.pass_time(0.0)

    def expire(self) -> None:
        for batch in self.accumulator.expire(self.now):
            partition = batch.queue.topic_partition.partition
            numbers = self.numbers(batch)
            self.expired[partition] |= set(numbers)
            assert all(self.now - self.sent[partition][number] > 8.999 for number in numbers)

    @rule()
    def flush(self) -> None:
        self.accumulator.flush(self.now)

    @rule(hurried=st.booleans())
    def hurry(self, hurried: bool) -> None:
        if hurried:
            self.accumulator.suspend_linger(self.now)
        else:
            self.accumulator.resume_linger()

    @staticmethod
    def numbers(batch: Batch) -> list[int]:
        return [int((entry.value or b"")[:8]) for entry in entries(batch.builder.build())]

    @invariant()
    def order_is_kept(self) -> None:
        for stored in self.stored:
            assert stored == sorted(set(stored))

    @invariant()
    def at_most_one_batch_of_a_partition_is_in_flight(self) -> None:
        assert len({batch.queue for batch in self.in_flight}) == len(self.in_flight)

    @invariant()
    def every_queue_is_ready_or_has_a_timer(self) -> None:
        """A queue with batches is ready, muted, or waits for a time in the future."""
        for queue in self.queues:
            if queue.batches and queue.muted_by is None and not queue.is_ready:
                due = max(queue.batches[0].due_at, queue.not_before)
                assert queue in set(self.accumulator._waiting)
                assert due > self.now or self.accumulator._skip_linger

    @invariant()
    def sender_is_woken_once_and_never_too_late(self) -> None:
        assert self.wakes <= 1
        if not self.wakes:
            assert {queue for queue in self.queues if queue.is_ready} <= self.seen
            for timers in (self.accumulator._waiting, self.accumulator._unfinished):
                first = timers.first()
                assert first is None or (self.next_pass is not None and first >= self.next_pass)

    def teardown(self) -> None:
        for queue in self.queues:
            self.accumulator.set_leader(queue, 0, self.now)
        for _ in range(2000):
            for batch in list(self.in_flight):
                self.in_flight.remove(batch)
                if not batch.is_expired:
                    self.stored[batch.queue.topic_partition.partition] += self.numbers(batch)
                self.accumulator.finish(batch, self.now)
            if not self.accumulator.unfinished:
                break
            self.accumulator.flush(self.now)
            with self.sender_pass():
                self.in_flight += self.accumulator.drain(0, 1000, self.now)
            self.now += 0.01
            self.expire()
        assert self.accumulator.unfinished == 0
        for sent, stored, expired in zip(self.sent, self.stored, self.expired, strict=True):
            assert stored == sorted(set(stored))
            assert set(stored) | expired == set(range(len(sent)))
            assert not set(stored) & expired


TestAccumulatorMachine = AccumulatorMachine.TestCase
TestAccumulatorMachine.settings = settings(max_examples=100, stateful_step_count=60)
