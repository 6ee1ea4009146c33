"""`OrderedSink`: write to a target below 0.11, in order and at least once.

It does in order what a transaction does at once. A round takes chunks as a transaction does; at its
end

1. all records are acknowledged by all replicas, in the order of each partition: the producer has
   one request of a partition in flight, also across retries;
2. the last claim is still that of this start;
3. the runs of offsets are written to the offsets topic;
4. the last claim is still that of this start, and the positions are committed in the group of the
   bridge.

A process that is killed before step 4 begins anew at the last positions, and writes the records of
the round again. Nothing is lost: each step begins when the one before it has succeeded. The runs
come before the positions, so that each position has its runs; of two copies of a record the later
one counts (`offset_runs`).

Brokers can't fence here. A newer start is found in step 2 or 4, so two starts may write at the same
time for one round.

A broker refuses a whole batch. `RefusalSearch` finds the record that it means: the round ends, and
the next ones pass the records of this batch on in pieces, each after the one before it is stored.

Invariants:
- The chunks of a partition are written in the order in which they were put.
- A round keeps its records until it ends, at most `buffer_bytes` of them and one chunk more,
  to name a refused one.
- A position is committed only if all records in front of it are acknowledged.
- After a failed record the epoch is higher, and chunks with a lower one are dropped: the caller
  reads again from the last positions.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.bridge.errors import BridgeError, TargetError, TargetUnavailableError
from aiokafka08.bridge.formats import RunsKey, encode_runs, encode_runs_key
from aiokafka08.bridge.offset_runs import OffsetRun, RunLog
from aiokafka08.bridge.old_target import OldTarget
from aiokafka08.bridge.sink.base import BATCH_BYTES, BridgeRun, BridgeSink
from aiokafka08.bridge.sink.events import (
    Chunk,
    ChunkTaken,
    RecordRefused,
    TransactionAborted,
    TransactionCommitted,
    WorkerFailed,
)
from aiokafka08.bridge.sink.refusal import RefusalSearch, RefusedOffset
from aiokafka08.bridge.sink.transaction import OpenTransaction, SentChunk, timestamps_of
from aiokafka08.bridge.target_retry import when_available
from aiokafka08.errors import (
    CorruptRecordException,
    InvalidFetchRequestError,
    InvalidRecordError,
    InvalidTimestampError,
    KafkaError,
    MessageSizeTooLargeError,
    PolicyViolationError,
    RecordListTooLargeError,
)
from aiokafka08.producer import AIOKafkaProducer
from aiokafka08.producer.deliveries import Deliveries
from aiokafka08.structs import ConsumerRecord, TopicPartition

_log = logging.getLogger("aiokafka08.bridge")

_WORKER: Final = 0
"""There is one worker: the producer keeps the order of each partition by itself."""
_DELIVERY_S: Final = 60.0
"""How long a record may take; then its partition is read again."""
_CLOSE_S: Final = 0.5


_REFUSED: Final = (
    CorruptRecordException,
    InvalidFetchRequestError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageSizeTooLargeError,
    PolicyViolationError,
    RecordListTooLargeError,
)
"""Errors that are about a record; others that aren't retriable are about the bridge."""


class _PassedOn(NamedTuple):
    """A chunk of a round, or a piece of one, and what became of its records."""

    chunk: Chunk
    sent: SentChunk | None
    """None if it has no records."""
    outcome: Deliveries | MessageSizeTooLargeError | None
    """The error if the producer takes none of the records, since one of them is too large."""

    async def errors(self) -> dict[int, KafkaError]:
        """Wait until each record is stored or has failed; return the errors by index.

        Without errors, the offsets at the target are noted in `sent`.
        """
        if isinstance(self.outcome, MessageSizeTooLargeError):
            return dict.fromkeys(range(len(self.chunk.records)), self.outcome)
        if self.sent is None or self.outcome is None:
            return {}
        try:
            stored = await self.outcome
        except KafkaError as error:
            return self.outcome.errors() or {0: error}
        last = len(stored) - 1
        known = {0: stored[0].offset, last: stored[last].offset}
        if known[last] - known[0] != last:  # somebody else writes to it, or a retry did
            known = {index: one.offset for index, one in enumerate(stored)}
        self.sent.acknowledged = known
        return {}

    def is_alone(self, error: KafkaError) -> bool:
        """Return whether an error is about one record: the producer splits a batch too large."""
        return isinstance(error, MessageSizeTooLargeError) and error is not self.outcome


class OrderedSink(BridgeSink):
    """The producer of a bridge to a target without transactions.

    Args:
        config: the file of the bridge.
        target: a connection for topics, positions and claims.
        run: this start; the same one for all sinks of a process.
    """

    _target: OldTarget

    def __init__(self, config: BridgeConfig, target: OldTarget, run: BridgeRun) -> None:
        super().__init__(config, target, run)
        self._chunks: asyncio.Queue[Chunk | None] = asyncio.Queue()
        self._epoch = 0
        self._round: OpenTransaction | None = None
        self._was_full = False
        """Whether the last round whose positions were committed was full."""
        self._passed_on: list[_PassedOn] = []
        self._passed_on_bytes = 0
        self._run_logs: dict[TopicPartition, RunLog] = {}
        self._producer: AIOKafkaProducer | None = None
        self._task: asyncio.Task[None] | None = None
        self._claims_end = -1
        self._refusals = RefusalSearch()
        has_stamps = (config.target.release or "").startswith("0.10")
        self._keeps_stamps = has_stamps and config.copy.timestamps == "keep"

    async def _initialise(self, first: int, end: int, batch_bytes: int) -> None:
        """Start the producer; nothing can be fenced."""
        if self._producer is not None:
            return
        config = self._config
        codec: Any = config.target.compression
        producer = AIOKafkaProducer(
            **self._target.network,
            acks="all",
            compression_type=None if codec == "none" else codec,
            max_batch_size=min(BATCH_BYTES, batch_bytes),
            max_request_size=config.copy.buffer_bytes,
            buffer_memory=config.copy.buffer_bytes,
            linger_ms=20,
            delivery_timeout_ms=round(_DELIVERY_S * 1000),
        )
        async with self._target.asking("start the producer"):
            await producer.start()
        self._producer = producer

    async def begin_anew(
        self,
        pairs: Mapping[TopicPartition, TopicPartition],
        stale: Mapping[TopicPartition, Sequence[bytes]],
    ) -> None:
        """Set positions to 0 and remove runs; see `BridgeSink`."""
        await self.check_owner()
        positions = dict.fromkeys(pairs.values(), (0, ""))
        await self._target.commit(self._config.position_group, positions)
        keys = [(key, None) for of_partition in stale.values() for key in of_partition]
        await self._target.write_all(self._config.offsets_topic, keys)

    def run_workers(self, run_logs: Mapping[TopicPartition, RunLog]) -> None:
        """Start the worker; see `BridgeSink`."""
        self._run_logs = dict(run_logs)
        self._task = asyncio.get_running_loop().create_task(self._run_worker(), name="bridge sink")

    def worker_of(self, tp: TopicPartition) -> int:
        """Return the number of the only worker."""
        return _WORKER

    def put(self, chunk: Chunk) -> None:
        """Pass a chunk to the worker; wait for room first, with `wait_room`."""
        self._waiting_bytes += chunk.memory
        self._chunks.put_nowait(chunk)

    async def stop(self, timeout_s: float) -> None:
        """Let the worker commit what it has begun, and end; give up after `timeout_s`.

        A worker that doesn't end reports a failure.
        """
        if self._task is None:
            return
        self._chunks.put_nowait(None)
        _, left = await asyncio.wait([self._task], timeout=timeout_s)
        if left:
            error = TargetUnavailableError(f"producer: not done in {timeout_s:g} s")
            self._on_event(WorkerFailed(_WORKER, error))
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None

    async def close(self) -> None:
        """Stop the producer."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.stop(_CLOSE_S)

    # --- the worker -------------------------------------------------------------------------------

    async def _run_worker(self) -> None:
        try:
            await self._take_chunks()
        except KafkaError as error:
            self._on_event(WorkerFailed(_WORKER, error))
        except Exception as error:
            _log.exception("%s: the sink has a bug", self._config.client_id)
            text = f"internal error in the sink, see the log for the traceback: {error!r}"
            self._on_event(WorkerFailed(_WORKER, BridgeError(text)))

    async def _take_chunks(self) -> None:
        while True:
            is_stop, chunk = await self._next_chunk()
            is_over = chunk is None or await self._take(chunk)
            if self._round is not None and (is_over or self._is_full(self._round)):
                await self._commit(self._round)
            if is_stop:
                return

    def _is_full(self, taken: OpenTransaction) -> bool:
        copy = self._config.copy
        return taken.is_full(copy) or self._passed_on_bytes >= copy.buffer_bytes

    async def _next_chunk(self) -> tuple[bool, Chunk | None]:
        """Return whether to stop, and the next chunk; None if the round is over."""
        now = asyncio.get_running_loop().time
        while True:
            timeout = None
            if self._round is not None:
                timeout = self._round.wait_s(self._config.copy, now())
                if timeout <= 0:
                    return False, None
            try:
                async with asyncio.timeout(timeout):
                    chunk = await self._chunks.get()
            except TimeoutError:
                return False, None
            if chunk is None:
                return True, None
            if chunk.epoch == self._epoch:
                return False, chunk
            self._on_event(ChunkTaken(chunk.memory))

    async def _take(self, chunk: Chunk) -> bool:
        """Pass a chunk on, in pieces if one of its records was refused.

        Returns:
            Whether the round must end, since a record has failed.
        """
        if self._round is None:
            now = asyncio.get_running_loop().time()
            self._round = OpenTransaction(now, follows_full=self._was_full)
        pieces = self._refusals.pieces(chunk.source, [one.offset for one in chunk.records])
        try:
            if pieces and await self._has_failed(self._passed_on):
                return True
            for piece in [_piece(chunk, one) for one in pieces] or [chunk]:
                sent = self._round.add(piece)
                outcome = None if sent is None else await self._send(piece)
                self._passed_on.append(_PassedOn(piece, sent, outcome))
                self._passed_on_bytes += piece.memory
                if isinstance(outcome, KafkaError):
                    return True
                if pieces and await self._has_failed(self._passed_on[-1:]):
                    return True
        finally:
            self._on_event(ChunkTaken(chunk.memory))
        return False

    async def _has_failed(self, passed_on: Sequence[_PassedOn]) -> bool:
        """Wait until each record is stored or has failed; return whether one has."""
        return any([await one.errors() for one in passed_on])

    async def _send(self, chunk: Chunk) -> Deliveries | MessageSizeTooLargeError:
        assert self._producer is not None
        async with self._target.asking(f"write to {chunk.target.topic}/{chunk.target.partition}"):
            try:
                return await self._producer.send_many(
                    chunk.target.topic,
                    [one.value for one in chunk.records],
                    [one.key for one in chunk.records],
                    chunk.target.partition,
                    self._timestamps(chunk.records),
                )
            except MessageSizeTooLargeError as error:
                return MessageSizeTooLargeError(f"{error.text}, by copy.buffer_bytes")

    def _timestamps(self, records: Sequence[ConsumerRecord[Any, Any]]) -> list[int] | None:
        """Return the timestamps to write; None if no record has one, or the target stores none."""
        stamps = timestamps_of(records, keep=self._keeps_stamps)
        if not any(stamps):
            return None
        now_ms = int(time.time() * 1000)
        return [one or now_ms for one in stamps]

    # --- the end of a round -----------------------------------------------------------------------

    async def _commit(self, taken: OpenTransaction) -> None:
        was_full = self._is_full(taken)
        passed_on, self._passed_on, self._round = self._passed_on, [], None
        self._passed_on_bytes = 0
        failed: dict[TopicPartition, str] = {}
        refusal: str | None = None
        positions: dict[TopicPartition, int] = {}
        runs: dict[TopicPartition, list[OffsetRun]] = {}
        records = size = 0
        for one in passed_on:
            chunk, tp = one.chunk, one.chunk.source
            if errors := await one.errors():
                failed.setdefault(tp, self._note(one, errors))
                if any(
                    not each.retriable and not isinstance(each, _REFUSED)
                    for each in errors.values()
                ):
                    refusal = refusal or failed[tp]
            if tp in failed:
                continue
            if one.sent is not None:
                runs.setdefault(tp, []).extend(one.sent.runs() or ())
            positions[tp] = chunk.next_offset
            records += len(chunk.records)
            size += chunk.size
        if positions:
            await self._keep_positions(taken, positions, runs)
            self._was_full = was_full
            self._refusals.is_on(positions)
            self._on_event(TransactionCommitted(_WORKER, positions, runs, records, size))
        if refusal is not None:
            raise TargetError(f"target {self._config.target.bootstrap}: write: {refusal}")
        if failed:
            self._read_again(next(iter(failed.values())))

    async def _keep_positions(
        self,
        taken: OpenTransaction,
        positions: Mapping[TopicPartition, int],
        runs: Mapping[TopicPartition, Sequence[OffsetRun]],
    ) -> None:
        """Write the runs, then the positions; both may be repeated.

        Raises:
            BridgeFencedError: a newer start has claimed the bridge.
            TargetError: the target doesn't respond in time, or refuses.
        """
        config, target = self._config, self._target
        await when_available(self._check_last_claim)
        logs: dict[TopicPartition, RunLog] = {}
        pairs: list[tuple[bytes, bytes | None]] = []
        for tp, of_partition in runs.items():
            log = self._run_logs.get(tp, RunLog())
            self._check_end(taken.targets[tp], log.end_target, of_partition)
            records, logs[tp] = log.append(of_partition)
            pairs += [
                (
                    encode_runs_key(RunsKey(*tp, one.source)),
                    None if one.runs is None else encode_runs(one.runs),
                )
                for one in records
            ]
        await when_available(lambda: target.write_all(config.offsets_topic, pairs))
        wanted = {taken.targets[tp]: (offset, "") for tp, offset in positions.items()}
        await when_available(self._check_last_claim)  # the runs may have taken 30 s
        await when_available(lambda: target.commit(config.position_group, wanted))
        self._run_logs |= logs

    def _check_end(self, tp: TopicPartition, end: int, runs: Sequence[OffsetRun]) -> None:
        """Log a warning if a partition of the target has given an offset again.

        Args:
            tp: the partition of the target.
            end: the offset behind the last message before the runs.
            runs: new ones.
        """
        for run in runs:
            if run.target < end:
                _log.warning(
                    "%s: topic %r, partition %d at the target: the next message got offset %d; "
                    "expected at least %d. The target has lost the messages between, which it had "
                    "acknowledged (see unclean.leader.election.enable); 'bridge verify' compares",
                    self._config.client_id, *tp, run.target, end,
                )  # fmt: skip
                return
            end = run.target + run.length

    async def _check_last_claim(self) -> None:
        """Verify that no newer start has claimed the bridge; read the claims if there is a new one.

        Raises:
            BridgeFencedError: a newer start has claimed it.
            TargetError: the target doesn't respond.
        """
        tp = TopicPartition(self._config.state_topic, 0)
        end = (await self._target.log_bounds([tp]))[tp][1]
        if end != self._claims_end:
            await self.check_owner()
            self._claims_end = end

    def _note(self, passed_on: _PassedOn, errors: Mapping[int, KafkaError]) -> str:
        """Note the records that were refused; return a text about the first error."""
        chunk, tp = passed_on.chunk, passed_on.chunk.source
        for index, error in errors.items():
            if isinstance(error, _REFUSED):
                record, text = chunk.records[index], str(error)
                if record.key is None and isinstance(error, CorruptRecordException):
                    text += ", or it has a null key, and the topic is compacted"
                refused = RefusedOffset(tp, record.offset, text)
                self._refusals.note(refused, alone=passed_on.is_alone(error))
        index, error = next(iter(errors.items()))
        offset = chunk.records[index].offset
        return f"topic {tp.topic!r}, partition {tp.partition}, source offset {offset}: {error}"

    def _read_again(self, reason: str) -> None:
        """Drop the chunks that wait: the source is read again from the last positions."""
        self._epoch += 1
        refused = self._refusals.end_attempt(every=True)
        if refused is not None:
            self._on_event(RecordRefused(_WORKER, self._epoch, *refused))
        else:
            self._on_event(TransactionAborted(_WORKER, self._epoch, reason))


def _piece(chunk: Chunk, piece: slice) -> Chunk:
    """Return some records of a chunk as a chunk."""
    records = chunk.records[piece]
    is_last = piece.stop == len(chunk.records)
    return chunk._replace(
        records=records,
        next_offset=chunk.next_offset if is_last else chunk.records[piece.stop].offset,
        size=sum(len(one.key or b"") + len(one.value or b"") for one in records),
    )
