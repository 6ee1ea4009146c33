"""The worker of a sink, against librdkafka's own mock broker."""

from __future__ import annotations

import dataclasses
import gc
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from aiokafka08.bridge.config import parse_config
from aiokafka08.bridge.errors import TargetAuthenticationError
from aiokafka08.bridge.sink import worker
from aiokafka08.bridge.sink.events import (
    Chunk,
    ChunkTaken,
    RecordRefused,
    SinkEvent,
    TransactionAborted,
    TransactionCommitted,
    WorkerFailed,
)
from aiokafka08.bridge.sink.producing import produce_records
from aiokafka08.bridge.sink.sink import worker_settings
from aiokafka08.bridge.sink.transaction import OpenTransaction
from aiokafka08.bridge.sink.worker import TransactionWorker, WorkerSettings
from aiokafka08.bridge.target.target_cluster import Target
from aiokafka08.structs import ConsumerRecord, TopicPartition
from tests.bridge.begun import begun_transactions
from tests.bridge.hand_copy import create_topics
from tests.brokers import RealCluster
from tests.brokers.waiting import wait_for

pytestmark = pytest.mark.each_python

TP = TopicPartition("t", 0)
ABORTED = (TransactionAborted, RecordRefused)
BUFFER_BYTES = 100_000
MINIMAL = """
name = "b"
[source]
bootstrap = "localhost:1"
[target]
bootstrap = "localhost:1"
[topics]
include = ["t"]
[copy]
transaction_s = 60
"""


def chunk(first: int, count: int, size: int, key: bytes | None = None) -> Chunk:
    records = [
        ConsumerRecord("t", 0, offset, 5000, 0, key, b"x" * size, None, -1, size, ())
        for offset in range(first, first + count)
    ]
    return Chunk(0, TP, TP, records, first + count, count * size)


class Running:
    """A worker on a mock broker, its events, and what waited for the broker at each of them."""

    def __init__(
        self, transaction_s: float = 60.0, transaction_records: int = 200_000, **producer: Any
    ) -> None:
        config = parse_config(MINIMAL)
        self.events: list[SinkEvent] = []
        self.unacknowledged: list[int] = []
        self.failed = threading.Event()
        self.worker = TransactionWorker(
            WorkerSettings(
                0,
                "b",
                "b-0",
                {
                    "bootstrap.servers": "localhost:1",
                    "test.mock.num.brokers": 1,
                    "transaction.timeout.ms": 60_000,
                    **producer,
                },
                "b",
                "b.offsets",
                dataclasses.replace(
                    config.copy,
                    buffer_bytes=BUFFER_BYTES,
                    transaction_s=transaction_s,
                    transaction_records=transaction_records,
                ),
            ),
            self._report,
        )
        self.worker.initialise()
        self.worker.start({})

    def _report(self, event: SinkEvent) -> None:
        self.events.append(event)
        if isinstance(event, WorkerFailed):
            self.failed.set()
        if (waiting := self.worker.unacknowledged) is not None:
            self.unacknowledged.append(waiting)

    def wait_commits(self, count: int) -> None:
        def commits() -> int:
            return sum(isinstance(one, TransactionCommitted) for one in self.events)

        wait_for(lambda: commits() == count, 30, f"commit {count}")

    def finish(self) -> None:
        """Let it commit, and wait for its end."""
        self.worker.request_stop(60)
        self.worker.join(60)
        assert not self.worker.is_running
        self.worker.close()


def test_worker_waits_while_its_buffer_is_unacknowledged() -> None:
    running = Running(**{"test.mock.broker.rtt": 100})
    chunks = [chunk(first, 100, 600) for first in range(0, 1000, 100)]
    for one in chunks:
        running.worker.put(one)
    running.finish()
    assert sum(isinstance(one, ChunkTaken) for one in running.events) == len(chunks)
    (committed,) = [one for one in running.events if isinstance(one, TransactionCommitted)]
    assert committed.records == 1000
    assert [(run.source, run.length) for run in committed.runs[TP]] == [(0, 1000)]
    assert max(running.unacknowledged) < BUFFER_BYTES + chunks[0].memory


def test_end_of_a_backlog_is_committed_before_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows a transaction that wasn't full waits again."""
    begun = begun_transactions(worker, monkeypatch)
    running = Running(transaction_records=10)
    for one in (chunk(0, 10, 6), chunk(10, 3, 6)):
        running.worker.put(one)
    running.wait_commits(2)
    running.worker.put(chunk(13, 3, 6))
    running.finish()
    commits = [one for one in running.events if isinstance(one, TransactionCommitted)]
    assert [one.records for one in commits] == [10, 3, 3]
    assert [one.follows_full for one in begun] == [False, True, False]


def test_transactions_leave_no_error_of_librdkafka() -> None:
    """confluent-kafka never frees an error that it has raised: a day of copying had left 150 MB."""

    def errors() -> int:
        gc.collect()
        return sum(type(one).__name__ == "KafkaError" for one in gc.get_objects())

    before = errors()
    running = Running(transaction_s=0.1, **{"test.mock.broker.rtt": 100})
    for number in range(5):
        running.worker.put(chunk(10 * number, 10, 10))
        running.wait_commits(number + 1)
    running.finish()
    assert not running.failed.is_set()
    assert errors() == before


def test_records_between_the_first_and_the_last_have_no_callback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    callbacks: list[str] = []

    def produce(*arguments: Any) -> tuple[int, int] | None:
        callbacks.append("".join("-" if one is None else "c" for one in arguments[-1]))
        return produce_records(*arguments)

    monkeypatch.setattr(worker, "produce_records", produce)
    running = Running()
    for count in (10, 1, 2, 3):
        running.worker.put(chunk(0, count, 10)._replace(source=TopicPartition("t", count)))
    running.finish()
    assert callbacks == ["c--------c", "c", "cc", "c-c"]
    [committed] = [one for one in running.events if isinstance(one, TransactionCommitted)]
    assert committed.records == 16


@pytest.mark.parametrize("index", [0, 3, 9])
def test_refused_record_is_named_by_its_offset(index: int) -> None:
    running = Running(**{"message.max.bytes": 2000})
    part = chunk(50, 10, 10)
    large = ConsumerRecord("t", 0, 50 + index, 5000, 0, None, b"x" * 5000, None, -1, 5000, ())
    records = [large if at == index else one for at, one in enumerate(part.records)]
    running.worker.put(part._replace(records=records))
    running.finish()
    (refused,) = [one for one in running.events if isinstance(one, RecordRefused)]
    assert (refused.source, refused.offset) == (TP, 50 + index)
    assert not any(isinstance(one, TransactionCommitted) for one in running.events)


@pytest.mark.real
@pytest.mark.timeout(120)
def test_refused_record_is_named_while_chunks_come(
    target: RealCluster, unique_topic: Callable[..., str]
) -> None:
    """librdkafka takes no more records then, and says only that its state is wrong."""
    copy = TopicPartition(unique_topic("compacted"), 0)
    create_topics(target.bootstrap_servers, {copy.topic: 1}, {"cleanup.policy": "compact"})
    no_mock: dict[str, Any] = {
        "bootstrap.servers": target.bootstrap_servers,
        "test.mock.num.brokers": 0,
    }
    running = Running(1.0, **no_mock)
    keyless = chunk(7, 1, 10).records
    bad = chunk(0, 10, 10, b"k")
    bad = bad._replace(records=[*bad.records[:7], *keyless, *bad.records[8:]], target=copy)
    first, refused = 0, list[RecordRefused]()
    epoch = -1
    while not refused:
        last = max((one.epoch for one in running.events if isinstance(one, ABORTED)), default=0)
        if last > epoch:
            epoch, first = last, 0  # read from the position again
        part = bad if first == 0 else chunk(first, 10, 10, b"k")
        running.worker.put(part._replace(epoch=epoch, target=copy))
        first += 10
        time.sleep(0.02)  # a steady feed
        refused = [one for one in running.events if isinstance(one, RecordRefused)]
    running.finish()
    assert (refused[0].source, refused[0].offset) == (TP, 7)


def test_worker_is_freed_after_unacknowledged_records() -> None:
    """confluent-kafka keeps the exception in whose handler one of its calls is refused."""
    late = {"test.mock.broker.rtt": 2000, "delivery.timeout.ms": 500, "linger.ms": 0}
    running = Running(**late)
    running.worker.put(chunk(0, 10, 10))
    running.worker.request_stop(60)
    running.worker.join(60)
    assert any(isinstance(one, ABORTED) for one in running.events)
    running.worker.close()
    worker = weakref.ref(running.worker)
    del running

    def is_freed() -> bool:
        gc.collect()
        return worker() is None

    wait_for(is_freed, 10, "the worker is freed")  # the thread of a watchdog may have to end


def test_call_that_never_returns_fails_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `send_offsets_to_transaction` after some restarts of the target; planted here."""
    running = Running(**{"transaction.timeout.ms": 1000})
    returned = threading.Event()

    def send_positions(transaction: OpenTransaction) -> None:
        running.worker._call(lambda: returned.wait(60))

    monkeypatch.setattr(running.worker, "_send_positions", send_positions)
    running.worker.put(chunk(0, 10, 10))
    running.worker.request_stop(60)
    assert running.failed.wait(30), running.events
    running.worker.put(chunk(10, 10, 10))
    running.worker.drop_chunks()  # they would be kept as long as the call doesn't return
    assert running.worker.waiting_chunks == 1
    returned.set()
    running.finish()


def test_chunks_put_during_a_commit_are_committed_at_the_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last rows of a Spark task came while a transaction was committed for its age."""
    running = Running(transaction_s=0.01)
    commits, go_on = threading.Event(), threading.Event()
    original = running.worker._send_positions

    def send_positions(transaction: OpenTransaction) -> None:
        commits.set()
        assert go_on.wait(60)
        original(transaction)

    monkeypatch.setattr(running.worker, "_send_positions", send_positions)
    running.worker.put(chunk(0, 10, 10))
    assert commits.wait(60)
    running.worker.put(chunk(10, 10, 10))
    running.worker.request_stop(60)
    go_on.set()
    running.finish()
    positions = [
        one.positions[TP] for one in running.events if isinstance(one, TransactionCommitted)
    ]
    assert positions == [10, 20]


class Refusal:
    """librdkafka's error about a user."""

    def name(self) -> str:
        return "_AUTHENTICATION"

    def str(self) -> str:
        return "SASL authentication error: Authentication failed: Invalid username or password"


@pytest.mark.parametrize("is_refused", [True, False])
def test_refused_user_is_the_reason_of_a_failure(is_refused: bool) -> None:
    """To librdkafka a refusal passes: the calls of a producer time out, and say nothing of it."""
    config = parse_config(MINIMAL)
    target = Target(config)
    events: list[SinkEvent] = []
    sink = TransactionWorker(worker_settings(config, target, 0, 1_000_000), events.append)
    if is_refused:
        target.settings["error_cb"](Refusal())
    sink.start({})
    sink.put(chunk(0, 1, 10))  # it fails: the producer isn't initialised
    sink.join(30)
    [failed] = [event for event in events if isinstance(event, WorkerFailed)]
    assert isinstance(failed.error, TargetAuthenticationError) == is_refused
    assert ("Invalid username" in failed.error.text) == is_refused
