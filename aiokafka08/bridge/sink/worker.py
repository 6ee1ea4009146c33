"""`TransactionWorker`: one transactional producer, in a thread of its own.

Each transaction has records, the runs of their offsets (`offset_runs`) and the source positions, so
the target has all state.

Invariants:
- The chunks of a partition are written in the order in which they were put.
- An abort raises the worker's epoch (not the producer's). The worker drops chunks of a lower
  epoch, and the caller reads again from the last committed positions.
- At most `buffer_bytes` and one chunk more wait for the target's acknowledgement.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from aiokafka08._wording import partition_name
from aiokafka08.bridge.config import CopyConfig
from aiokafka08.bridge.copy.offset_runs import RunLog, RunRecord
from aiokafka08.bridge.copy.run_formats import RunsKey, encode_runs, encode_runs_key
from aiokafka08.bridge.errors import BridgeError, TargetError, TargetUnavailableError
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
from aiokafka08.bridge.sink.refusal_search import RefusalSearch, RefusedOffset
from aiokafka08.bridge.sink.transaction import (
    DeliveryReport,
    OpenTransaction,
    SentChunk,
    callbacks_of,
)
from aiokafka08.bridge.target.target_cluster import (
    TargetWatch,
    import_confluent,
    is_transient,
    target_error,
)
from aiokafka08.errors import KafkaError
from aiokafka08.structs import TopicPartition

T = TypeVar("T")

_log: Final = logging.getLogger("aiokafka08.bridge")

# How long one call of librdkafka may block. Between two calls the worker checks for a stop.
_CALL_S: Final = 1.0
INITIALISE_S: Final = 30.0
# How long the callbacks of purged messages may take.
_PURGE_S: Final = 10.0
_POLL_S: Final = 0.05
_RETRY_S: Final = 0.2
# After this time without an acknowledgement librdkafka is asked for the reason.
_STUCK_S: Final = 1.0
_FENCED_NAMES: Final = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})
_REFUSED_NAMES: Final = frozenset(
    {
        "MSG_SIZE_TOO_LARGE", "INVALID_RECORD", "INVALID_TIMESTAMP", "INVALID_MSG",
        "POLICY_VIOLATION", "INVALID_MSG_SIZE", "RECORD_LIST_TOO_LARGE",
    }
)  # fmt: skip


class _Abort(Exception):
    """The transaction must be aborted; the text says why."""


class _Stopped(Exception):
    """`request_stop()` was called, and its deadline has passed."""


class _Stuck:
    """Detects each period of `_STUCK_S` in which no message was acknowledged."""

    def __init__(self) -> None:
        self._left, self._since = -1, 0.0

    def is_stuck(self, left: int) -> bool:
        """Return whether to look for the reason; `left` messages wait for their acknowledgement."""
        now = time.monotonic()
        is_stuck = left == self._left and now - self._since >= _STUCK_S
        if is_stuck or left != self._left:
            self._left, self._since = left, now
        return is_stuck


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """A worker's number and ids, settings of librdkafka and the bridge, and where state is kept."""

    number: int
    client_id: str
    transactional_id: str
    producer: Mapping[str, Any]
    position_group: str
    offsets_topic: str
    copy: CopyConfig


class TransactionWorker:
    """Write chunks in transactions.

    Args:
        settings: the settings of this worker.
        report: called with each event, in the worker's thread.
    """

    def __init__(self, settings: WorkerSettings, report: Callable[[SinkEvent], None]) -> None:
        self._confluent = import_confluent()
        self._settings = settings
        self._report = report
        self._chunks: queue.SimpleQueue[Chunk | None] = queue.SimpleQueue()
        self._epoch = 0
        self._open: OpenTransaction | None = None
        self._run_logs: dict[TopicPartition, RunLog] = {}
        # Whether the next transaction needs a callback for each record.
        self._acknowledge_all = False
        # Whether the last committed transaction was full.
        self._was_full = False
        self._transaction_timeout_s = int(settings.producer["transaction.timeout.ms"]) / 1000
        self._refusals = RefusalSearch()
        self._watch: TargetWatch | None = settings.producer.get("error_cb")
        # How often the target had refused the user at the last commit.
        self._denials = 0
        self._stop_at: float | None = None
        self._thread: threading.Thread | None = None
        self._producer = self._confluent.Producer(
            {
                "linger.ms": 20,
                "message.max.bytes": 1_000_000_000,
                **settings.producer,
                "transactional.id": settings.transactional_id,
                "enable.idempotence": True,
                # The worker limits the queue itself, in `_take`.
                "queue.buffering.max.messages": 0,
                "queue.buffering.max.kbytes": 2_097_151,
            }
        )
        consumer = self._confluent.Consumer(
            {
                **{k: v for k, v in settings.producer.items() if not k.startswith("compression")},
                "group.id": settings.position_group,
                "enable.auto.commit": False,
            }
        )
        # Only this metadata is needed. An unpolled consumer would collect log lines for ever.
        self._group = consumer.consumer_group_metadata()
        consumer.close()

    # --- called by the event loop -----------------------------------------------------------------

    @property
    def unacknowledged(self) -> int | None:
        """Bytes of the open transaction that the target hasn't acknowledged; None without one."""
        return None if self._open is None else self._open.unacknowledged

    @property
    def waiting_chunks(self) -> int:
        """Number of chunks that the thread hasn't taken yet."""
        return self._chunks.qsize()

    def initialise(self) -> None:
        """Fence older producers of this transactional id, and end their transaction; blocks.

        Raises:
            KafkaException: it failed; the type of `target_cluster.target_error(…)` says whether it
                may work later.
        """
        self._producer.init_transactions(INITIALISE_S)

    def begin_anew(self, copies: Sequence[TopicPartition], stale: Sequence[bytes]) -> None:
        """Set positions to 0 and remove runs, in one transaction, before `start`; blocks.

        Args:
            copies: the partitions of the target.
            stale: the keys to remove from the offsets topic.

        Raises:
            KafkaException: it failed; the type of `target_cluster.target_error(…)` says whether it
                may work later.
        """
        self._producer.begin_transaction()
        for key in stale:
            self._producer.produce(self._settings.offsets_topic, None, key, 0)
        positions = [self._confluent.TopicPartition(*copy, 0) for copy in copies]
        self._producer.send_offsets_to_transaction(positions, self._group, INITIALISE_S)
        self._producer.commit_transaction(INITIALISE_S)

    def start(self, run_logs: Mapping[TopicPartition, RunLog]) -> None:
        """Start the thread; `run_logs` has the stored runs of the partitions that it will write."""
        self._run_logs = dict(run_logs)
        name = f"aiokafka08-bridge-sink-{self._settings.number}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, chunk: Chunk) -> None:
        """Queue a chunk."""
        self._chunks.put(chunk)

    def request_stop(self, timeout_s: float) -> None:
        """Commit the open transaction, and end; after `timeout_s` end without a commit."""
        self._stop_at = time.monotonic() + timeout_s
        self._chunks.put(None)

    def drop_chunks(self) -> None:
        """Free the queued chunks of a thread that doesn't end because a call doesn't return."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._chunks.get_nowait()
        self._chunks.put(None)

    def join(self, timeout_s: float) -> None:
        """Wait until the thread has ended, up to `timeout_s`; blocks."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    @property
    def has_begun(self) -> bool:
        """Whether the thread was started. If so, it closes the worker when it ends."""
        return self._thread is not None

    @property
    def is_running(self) -> bool:
        """Whether the thread hasn't ended."""
        return self._thread is not None and self._thread.is_alive()

    def close(self) -> None:
        """Release librdkafka's handles; blocks. A started thread calls this at its end."""
        # The callback of a message keeps the worker and its producer alive until it is called.
        self._producer.purge()
        deadline = time.monotonic() + _PURGE_S
        while len(self._producer) and time.monotonic() < deadline:
            # A fatal error is raised here, once, before the callbacks.
            with contextlib.suppress(self._confluent.KafkaException):
                self._producer.poll(_POLL_S)

    # --- in the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._take_chunks()
        except _Stopped:
            self._failed(TargetError("stopped before the last transaction was committed"))
        except self._confluent.KafkaException as error:
            with contextlib.suppress(self._confluent.KafkaException):
                self._producer.poll(0)  # calls `error_cb` if the target has refused the user
            self._failed(target_error(f"producer {self._settings.transactional_id}", error))
        except Exception as error:
            _log.exception("%s: the sink has a bug", self._settings.client_id)
            text = f"internal error in the sink, see the log for the traceback: {error!r}"
            self._failed(BridgeError(text))
        finally:
            self.close()

    def _failed(self, error: KafkaError) -> None:
        # If the target refuses the user, librdkafka keeps trying, and its calls only time out.
        if self._watch is not None and isinstance(error, TargetError):
            error = self._watch.error_since(self._denials) or error
        self._report(WorkerFailed(self._settings.number, error))

    def _take_chunks(self) -> None:
        while True:
            reason: str | None = None
            try:
                is_stop, chunk = self._next_chunk()
                if chunk is not None:
                    self._take(chunk)
                if self._open is not None and (
                    chunk is None or self._open.is_full(self._settings.copy)
                ):
                    self._commit(self._open)
                if is_stop:
                    return
            except _Abort as abort:
                reason = str(abort)
            # Abort outside the `except`. Inside it, an error of librdkafka would keep the exception
            # alive, and so the producer in its frames (`_check_open`).
            if reason is not None:
                self._abort(reason)
                if self._stop_at is not None:
                    return  # the queued chunks are of an older epoch

    def _next_chunk(self) -> tuple[bool, Chunk | None]:
        """Return whether to stop, and the next chunk; None if the transaction has to end."""
        while True:
            timeout = None
            if self._open is not None:
                timeout = self._open.wait_s(self._settings.copy, time.monotonic())
                if timeout <= 0:
                    return False, None
            try:
                chunk = self._chunks.get(timeout=timeout)
            except queue.Empty:
                return False, None
            if chunk is None:
                return True, None
            if chunk.epoch == self._epoch:
                return False, chunk
            self._report(ChunkTaken(chunk.memory))

    def _take(self, chunk: Chunk) -> None:
        if self._open is None:
            self._producer.begin_transaction()
            self._open = OpenTransaction(
                time.monotonic(), every=self._acknowledge_all, follows_full=self._was_full
            )
        sent = self._open.add(chunk)
        try:
            if sent is not None:
                self._produce(self._open, chunk, sent)
        finally:
            self._report(ChunkTaken(chunk.memory))
        self._producer.poll(0)
        stuck = _Stuck()
        # Poll for acknowledgements until there is room, since librdkafka's queue has no limit here.
        while self._open.unacknowledged >= self._settings.copy.buffer_bytes:
            self._producer.poll(_POLL_S)
            self._check_stop()
            if stuck.is_stuck(len(self._producer)):
                self._check_open()

    def _produce(self, transaction: OpenTransaction, chunk: Chunk, sent: SentChunk) -> None:
        last = len(chunk.records) - 1
        transaction.unacknowledged += chunk.memory

        def callback(index: int) -> Callable[[Any, Any], None]:
            def acknowledge(error: Any, message: Any) -> None:
                if index == last:
                    transaction.unacknowledged -= chunk.memory
                if error is None:
                    # The offset is unknown if the batch was stored, but the response was lost.
                    if (offset := message.offset()) is not None:
                        sent.acknowledged[index] = offset
                # An abort follows; `RefusalSearch` finds the record over several attempts.
                elif error.name() in _REFUSED_NAMES:
                    self._refusals.note(refused(index, error))

            return acknowledge

        def refused(index: int, error: Any) -> RefusedOffset:
            return RefusedOffset(
                chunk.source, sent.offsets[index], f"{error.name()}: {error.str()}"
            )

        count = len(chunk.records)
        callbacks = callbacks_of(count, callback, every=transaction.every)
        pieces = self._refusals.pieces(chunk.source, sent.offsets)
        for piece in pieces or [slice(0, count)]:
            # Each piece is sent alone, so that the refused piece is known.
            if pieces:
                self._flush()
                self._check_open()
            failed = self._pass_on(chunk, piece, callbacks[piece])
            if failed is not None:
                index, error = failed
                if error.name() in _REFUSED_NAMES:
                    self._refusals.note(refused(index, error), alone=True)
                else:  # an earlier record was refused: librdkafka takes no others
                    self._check_open()
                raise _Abort(f"{partition_name(chunk.target)}: {error.str()}")
        if pieces:
            self._flush()
            self._check_open()

    def _pass_on(
        self, chunk: Chunk, piece: slice, callbacks: list[DeliveryReport | None]
    ) -> tuple[int, Any] | None:
        """Pass records to librdkafka; return the index of the first that it refuses, and the
        error.
        """
        keep = self._settings.copy.timestamps == "keep"
        records = chunk.records[piece]
        failed = produce_records(self._producer, *chunk.target, records, keep, callbacks)
        if failed is None:
            return None
        index, code = failed
        return piece.start + index, self._confluent.KafkaError(code)

    # --- the end of a transaction -----------------------------------------------------------------

    def _commit(self, transaction: OpenTransaction) -> None:
        # The order matters: acknowledgements give the offsets of the runs, and the commit makes
        # records, runs and positions visible at once.
        self._flush()
        failed = "another producer writes to a target topic: each record's offset is needed"
        try:
            runs = transaction.runs()
        except ValueError as error:
            # A record failed (then the commit would fail too), or a batch's offsets are unknown.
            runs, failed = None, str(error)
        if runs is None:
            self._check_open()
            self._acknowledge_all = True
            raise _Abort(failed)
        logs, records = dict[TopicPartition, RunLog](), list[tuple[TopicPartition, RunRecord]]()
        for tp, of_partition in runs.items():
            added, logs[tp] = self._run_logs.get(tp, RunLog()).append(of_partition)
            records += ((tp, record) for record in added)
        if (refused := self._produce_runs(records)) is not None:
            self._check_open()
            raise refused
        self._send_positions(transaction)
        self._call(lambda: self._producer.commit_transaction(_CALL_S))
        # Only now: a failure before this point leaves the transaction open for `_abort`.
        self._open = None
        if self._watch is not None:
            self._denials = self._watch.refusals
        self._was_full = transaction.is_full(self._settings.copy)
        self._acknowledge_all = self._refusals.is_on(transaction.positions)
        self._run_logs |= logs
        self._report(
            TransactionCommitted(
                self._settings.number,
                transaction.positions,
                runs,
                transaction.records,
                transaction.size,
            )
        )

    def _produce_runs(self, records: Sequence[tuple[TopicPartition, RunRecord]]) -> Any:
        """Pass the runs of offsets to librdkafka; return its exception if it doesn't take them."""
        for tp, record in records:
            try:
                self._producer.produce(
                    self._settings.offsets_topic,
                    None if record.runs is None else encode_runs(record.runs),
                    encode_runs_key(RunsKey(*tp, record.source)),
                    0,
                )
            except self._confluent.KafkaException as error:
                return error
        return None

    def _flush(self) -> None:
        """Wait until each record of the transaction is acknowledged, or has failed."""
        stuck = _Stuck()
        while left := self._producer.flush(_POLL_S):
            self._check_stop()
            if stuck.is_stuck(left):
                self._check_open()

    def _send_positions(self, transaction: OpenTransaction) -> None:
        positions = [
            self._confluent.TopicPartition(*transaction.targets[tp], offset)
            for tp, offset in transaction.positions.items()
        ]
        send = self._producer.send_offsets_to_transaction
        self._call(lambda: send(positions, self._group, _CALL_S))

    def _abort(self, reason: str) -> None:
        """Abort the transaction, raise the epoch, and report the abort or the refused record."""
        self._call(lambda: self._producer.abort_transaction(_CALL_S))
        reason, is_known = self._refusals.explain(reason)
        refused = self._refusals.end_attempt(every=self._open is not None and self._open.every)
        self._open = None
        self._epoch += 1
        number = self._settings.number
        if refused is not None:
            self._report(RecordRefused(number, self._epoch, *refused))
        else:
            self._report(TransactionAborted(number, self._epoch, reason, is_known))

    def _call(self, call: Callable[[], T]) -> T:
        """Call librdkafka until it neither times out nor asks to try again.

        Raises:
            _Abort: the transaction must be aborted.
            KafkaException: the producer can't continue.
        """
        # A call may take long: `send_offsets_to_transaction` of librdkafka 2.16 ignores its timeout
        # while it doesn't know the coordinator (#5456). So the worker fails once the target has
        # ended the transaction itself. Only a new producer learns how it ended.
        limit_s = self._transaction_timeout_s
        name = self._settings.transactional_id
        hang = TargetUnavailableError(f"producer {name}: no result of a call for {limit_s:.0f} s")
        watchdog = threading.Timer(limit_s + 2 * _CALL_S, self._failed, [hang])
        watchdog.daemon = True
        watchdog.start()
        try:
            return self._retry(call, time.monotonic() + limit_s)
        finally:
            watchdog.cancel()

    def _retry(self, call: Callable[[], T], deadline: float) -> T:
        while True:
            try:
                return call()
            except self._confluent.KafkaException as error:
                self._raise_if_ended(error)
                if not is_transient(error.args[0]) or time.monotonic() >= deadline:
                    raise
            self._check_stop()
            time.sleep(_RETRY_S)

    def _raise_if_ended(self, error: Any) -> None:
        """Raise the error that ends the producer, or its transaction."""
        kafka = error.args[0]
        if kafka.fatal() or kafka.name() in _FENCED_NAMES:
            raise error
        if kafka.txn_requires_abort():
            if not is_transient(kafka):
                self._acknowledge_all = True  # to name the record that was refused
            raise _Abort(f"{kafka.name()}: {kafka.str()}") from None

    def _check_open(self) -> None:
        """Verify that the transaction can still be committed; don't call it in an exception's
        handler.
        """
        # Once a record was refused, librdkafka sends no others, and keeps them until they time out.
        # Only few records have a callback, so ask librdkafka for its state: a second
        # `begin_transaction` always raises an error, which says whether the transaction must be
        # aborted. confluent-kafka 2.16 never frees such an error, nor an exception that is being
        # handled meanwhile, with the objects of its frames. So call this method only if there may
        # be an error, and never in a handler.
        try:
            self._producer.begin_transaction()
        except self._confluent.KafkaException as error:
            self._raise_if_ended(error)

    def _check_stop(self) -> None:
        if self._stop_at is not None and time.monotonic() >= self._stop_at:
            raise _Stopped
