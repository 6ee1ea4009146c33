"""`CopySession`: copy over one set of connections to both clusters, exactly once.

A session ends with an error when a cluster has failed in a way that new connections may cure;
`daemon` then begins another one. So a restart after a crash and one after an outage are the same.

Invariants:
- One task reads records, applies the sink's events and seeks. So a seek after an abort never falls
  between reading records and putting them into the sink. Otherwise they would be copied twice.
- A partition that can't continue stops with a reason; with `on_loss = "skip"` it skips lost
  offsets instead. The others continue.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from aiokafka08._core.concurrency.rate import RateLimit
from aiokafka08._wording import counted, partition_text
from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.bridge.copy.copy_positions import StoredRuns, read_stored_runs
from aiokafka08.bridge.copy.copy_starts import CopyStarts, LeftOut
from aiokafka08.bridge.copy.session_watch import SessionWatch
from aiokafka08.bridge.copy.status import CopyStatus, PartitionStatus
from aiokafka08.bridge.errors import BridgeError, TargetError
from aiokafka08.bridge.sink.events import (
    Chunk,
    RecordRefused,
    TransactionAborted,
    TransactionCommitted,
    WorkerFailed,
    data_bytes,
    split_between_offsets,
)
from aiokafka08.bridge.sink.sink import BridgeRun, TransactionSink
from aiokafka08.bridge.source.source_reader import PartitionLostError, Records, SourceReader
from aiokafka08.bridge.source.topic_identity import TopicIdentities
from aiokafka08.bridge.target.own_topics import create_own_topics, own_batch_limit
from aiokafka08.bridge.target.target_cluster import Target
from aiokafka08.bridge.target.topic_creation import TargetTopics
from aiokafka08.bridge.target.topic_plan import LEAST_MESSAGE_BYTES
from aiokafka08.bridge.target.when_available import when_available
from aiokafka08.bridge.wording import size_text
from aiokafka08.errors import KafkaError
from aiokafka08.structs import ConsumerRecord, TopicPartition

_log: Final = logging.getLogger("aiokafka08.bridge")

_READ_S: Final = 0.2
# A worker holds the interpreter's lock for a chunk, so a chunk has at most this many records,
# except those that share an offset.
CHUNK_RECORDS: Final = 2000
# How long to wait at the start for leaders of the source's partitions.
LEADER_S: Final = 10.0
# How long to wait at the start for the releases of the source's brokers.
RELEASE_S: Final = 5.0
# The last transactions' share of the 5 s after SIGTERM; the rest is for closing.
STOP_S: Final = 3.0
# A target that has committed nothing for the time of a transaction plus this is reported, and again
# after each `_SILENT_LOG_S`.
_SILENT_S: Final = 10.0
_SILENT_LOG_S: Final = 30.0
# How long `prepare` may take to commit the first positions.
_PREPARE_S: Final = 60.0

OnCommit = Callable[[TransactionCommitted], None]


def _producer(number: int) -> str:
    """Return the key of an aborted transaction's producer in `CopyStatus.errors`."""
    return f"producer {number}"


class PreparedCopy(NamedTuple):
    """The target partition and position of each source partition; the target's largest batch."""

    positions: Mapping[TopicPartition, tuple[TopicPartition, int]]
    batch_bytes: int


class CopyParts(NamedTuple):
    """The objects of a session, made from the file or by a test."""

    source: SourceReader
    target: Target
    sink: TransactionSink
    identities: TopicIdentities
    starts: CopyStarts
    watch: SessionWatch

    @classmethod
    def of(
        cls,
        config: BridgeConfig,
        status: CopyStatus,
        run: BridgeRun,
        *,
        new_sink: Callable[[BridgeConfig, Target, BridgeRun], TransactionSink] = TransactionSink,
        new_identities: Callable[..., TopicIdentities] = TopicIdentities,
    ) -> CopyParts:
        """Make the parts of a session."""
        source, target = SourceReader(config), Target(config)
        target.settings["error_cb"].report = partial(status.note_away, "target")
        sink = new_sink(config, target, run)
        identities = new_identities(config, target, sink, run)
        starts = CopyStarts(config, source, target, identities, run)
        watch = SessionWatch(config, source, sink, identities, status)
        return cls(source, target, sink, identities, starts, watch)


class CopySession:
    """Copy until `run` is cancelled, has caught up, or fails.

    Args:
        config: the file of the bridge.
        status: updated while the session copies.
        run: this start of the process.
        on_commit: called after each commit, in the event loop.
        parts: the source, the sink and the other objects of the session; None makes them from the
            file.
        clock: returns the time of commits and observations; None is the event loop's clock.
        leader_s: how long to wait at the start for leaders of the source's partitions.
        release_s: how long to wait at the start for the releases of the source's brokers.

    Attributes:
        parts: the objects of the session.
    """

    def __init__(
        self,
        config: BridgeConfig,
        status: CopyStatus,
        run: BridgeRun,
        on_commit: OnCommit | None = None,
        *,
        parts: CopyParts | None = None,
        clock: Callable[[], float] | None = None,
        leader_s: float = LEADER_S,
        release_s: float = RELEASE_S,
    ) -> None:
        self._config = config
        self._status = status
        self.parts = parts or CopyParts.of(config, status, run)
        self._source, self._target, self._sink, self._identities, self._starts, self._watch = (
            self.parts
        )
        self._clock = clock or asyncio.get_running_loop().time
        self._leader_s, self._release_s = leader_s, release_s
        self._on_commit = on_commit
        self._run = run
        self._client_id = config.client_id
        self._topics: dict[TopicPartition, TopicPartition] = {}
        self._stored = StoredRuns(ends_only=True)
        self._target_topics = TargetTopics(config, self._source, self._target, status, run)
        # The epoch of each worker that had an abort: each abort raises it, and chunks of an older
        # epoch are dropped.
        self._epochs: dict[int, int] = {}
        self._batch_bytes = LEAST_MESSAGE_BYTES
        # By partition, the offset after the last record put into the sink; none if it is left out.
        self._put: dict[TopicPartition, int] = {}
        # Partitions that have no position at the target, with no records in the sink yet.
        self._begins: set[TopicPartition] = set()
        # Offsets that the target refuses: records before them are copied.
        self._refused: dict[TopicPartition, int] = {}
        # When a commit of each position was last done or tried, for `_recommit`.
        self._committed_at: dict[TopicPartition, float] = {}
        self._silence_logged_at = -math.inf
        rate = config.copy.rate
        self._rate = None if rate is None else RateLimit(rate, self._clock())

    async def run(self, *, until_caught_up: bool = False) -> None:
        """Copy until all partitions have reached their ends, or for ever.

        Args:
            until_caught_up: if True, end as soon as all that the source has at the start is
                committed, and look for no new partitions or leaders meanwhile (default False).

        Raises:
            BridgeFencedError: a newer start has taken over.
            BridgeError: the bridge or a cluster needs a change by hand.
            KafkaError: one of the clusters failed.
        """
        tasks: list[asyncio.Task[None]] = []
        try:
            await self._start(may_come_later=not until_caught_up)
            ends = await self._ends() if until_caught_up else None
            new_pairs = self._new_pairs if ends is None else None
            watch = self._watch.follow(self._refused, new_pairs)
            watching = asyncio.create_task(watch, name="bridge watch")
            tasks.append(watching)
            self._status.begin_session()
            tasks.append(asyncio.create_task(self._watch_silence(), name="bridge target watch"))
            limit = self._config.copy.rate
            rate = "" if limit is None else f", at most {size_text(limit)}/s"
            count = counted(len(self._topics), "partition")
            _log.info("%s: copying %s%s", self._client_id, count, rate)
            while ends is None or not self.has_reached(ends):
                if watching.done():
                    watching.result()
                await self.step(ends)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._close()

    async def prepare(self) -> PreparedCopy:
        """Claim the bridge, create topics and find the positions, for a copy by other processes.

        Raises:
            BridgeFencedError: a newer start has taken over.
            BridgeError: the bridge or a cluster needs a change by hand.
            KafkaError: one of the clusters failed.
        """
        try:
            await self._start(may_come_later=False)
            positions = {
                tp: (self._topics[tp], status.position)
                for tp, status in self._status.partitions.items()
                if status.stopped is None
            }
        finally:
            failed = await self._close(_PREPARE_S)
        if failed is not None:
            raise failed  # the first positions aren't committed
        return PreparedCopy(positions, self._batch_bytes)

    async def _close(self, timeout_s: float = STOP_S) -> KafkaError | None:
        """Commit the chunks in the sink, and release everything, even if the task was cancelled.

        Returns:
            The first error that kept a position from its commit; None if all are committed.
        """
        failed: KafkaError | None = None
        await self._sink.stop(timeout_s)
        for event in iter(self._sink.next_event, None):
            match event:
                case TransactionCommitted():
                    self._apply_commit(event)
                case TransactionAborted():
                    failed = failed or TargetError(f"a transaction was aborted: {event.reason}")
                case WorkerFailed():
                    failed = failed or event.error
                case _:
                    pass
        await asyncio.gather(self._source.stop(), self._sink.close(), return_exceptions=True)
        await self._target.close()
        return failed

    # --- the start --------------------------------------------------------------------------------

    async def _start(self, *, may_come_later: bool) -> None:
        await self._source.start()
        if not self._run.has_warned and (text := await self._source.left_out(self._release_s)):
            _log.warning("%s: %s", self._client_id, text)
            self._run.has_warned = True
        target_counts = await self._target.partition_counts()
        await self._target_topics.check(target_counts, may_come_later=may_come_later)
        await create_own_topics(self._config, self._target, target_counts, self._run)
        self._batch_bytes = await self._target_topics.batch_limit(target_counts)
        # The broker that answers may not know a new topic yet.
        own = await when_available(lambda: own_batch_limit(self._config, self._target))
        self._batch_bytes = min(self._batch_bytes, own or self._batch_bytes)
        await self._sink.start(self._batch_bytes)
        # Read the runs only now: the sink has fenced older starts, so their topic doesn't change
        # any more.
        self._stored = await read_stored_runs(self._config, self._target, ends_only=True)
        await self._identities.start(self._stored)
        self._sink.run_workers(self._stored.run_logs())
        await self.add(await self._new_pairs(), self._leader_s)
        self._run.has_begun = True

    async def _new_pairs(self) -> dict[TopicPartition, TopicPartition]:
        """Return the partitions that aren't copied yet, with their target partitions."""
        pairs = await self._target_topics.prepare(self._stored)
        return {tp: copy for tp, copy in pairs.items() if tp not in self._topics}

    async def add(self, pairs: dict[TopicPartition, TopicPartition], wait_s: float = 0.0) -> None:
        """Begin to copy partitions; wait up to `wait_s` for leaders if there is no position."""
        if not pairs:
            return
        starts = await self._starts.find(
            pairs, self._stored, has_run=self._sink.has_run, wait_s=wait_s
        )
        for tp, left_out in starts.left_out.items():
            self._leave_out(tp, pairs.pop(tp), left_out)
        for tp in starts.leaderless:
            self._wait_leader(tp)
            del pairs[tp]
        self._topics |= pairs
        self._begins |= starts.begins
        for tp, (offset, _) in starts.positions.items():
            status = self._status.partitions.setdefault(tp, PartitionStatus(offset))
            status.position = offset
            status.stopped = None
            self._put[tp] = offset
            self._committed_at[tp] = self._clock()
        self._source.add({tp: offset for tp, (offset, _) in starts.positions.items()})
        for tp, (offset, commit) in starts.positions.items():
            if commit:
                await self._put_chunk(tp, [], offset)

    def _leave_out(self, tp: TopicPartition, copy: TopicPartition, why: LeftOut) -> None:
        """Don't copy a partition in this session."""
        self._topics[tp] = copy
        self._status.partitions[tp] = PartitionStatus(why.position, stopped=why.reason)
        _log.error("%s: %s", self._client_id, why.reason)

    def _wait_leader(self, tp: TopicPartition) -> None:
        """Leave out a partition that was never copied; the watch finds it again."""
        reason = (
            f"{partition_text(tp)}: the source has no leader for it; "
            f"looked for again every {self._config.copy.look_s:g} s"
        )
        if tp not in self._status.stopped:
            _log.error("%s: %s", self._client_id, reason)
        self._status.partitions[tp] = PartitionStatus(0, stopped=reason)

    # --- the copy ---------------------------------------------------------------------------------

    async def step(self, ends: Mapping[TopicPartition, int] | None) -> None:
        """Apply the sink's events, and put the records of one read into the sink."""
        await self._apply_events()
        while not self._watch.found.empty():
            pairs = self._watch.found.get_nowait()
            await self.add({tp: copy for tp, copy in pairs.items() if tp not in self._topics})
        for tp in self._watch.expired & self._refused.keys():
            self._source.seek(tp, self._put[tp])  # the read finds the loss
        self._watch.expired.clear()
        for tp, end in (ends or {}).items():
            if tp in self._watch.leaderless and not self._has_all(tp, end):
                self._stop_leaderless(tp, f"for {self._config.copy.outage_s:g} s")
        if not self._sink.has_room:
            await self._sink.wait_room()
            return
        if not self._topics:
            await asyncio.sleep(_READ_S)
            return
        try:
            records = await self._source.read(_READ_S)
        except PartitionLostError as lost:
            await self._partition_lost(lost)
            return
        epochs = dict(self._epochs)
        for tp, of_partition in records.items():
            await self._put_records(tp, of_partition, epochs)
        self._observe(records)
        if not records:
            await self._put_positions(ends)
        await self._recommit()

    async def _put_records(
        self,
        tp: TopicPartition,
        records: Sequence[ConsumerRecord[bytes, bytes]],
        epochs: Mapping[int, int],
    ) -> None:
        epoch = epochs.get(self._sink.worker_of(tp), 0)
        last = records[-1].offset + 1
        # The record at a refused offset would abort the transaction again.
        end = min(last, self._refused.get(tp, last))
        if end < last:
            self._source.suspend(tp)
            records = [record for record in records if record.offset < end]
        for part in split_between_offsets(records, CHUNK_RECORDS):
            await self._put_chunk(tp, part, part[-1].offset + 1, epoch)
        # Offsets after the last record hold no message that can be copied, but the position passes
        # them.
        if self._put[tp] < end:
            await self._put_chunk(tp, [], end, epoch)

    async def _put_chunk(
        self,
        tp: TopicPartition,
        records: Sequence[ConsumerRecord[Any, Any]],
        next_offset: int,
        epoch: int | None = None,
    ) -> None:
        size = data_bytes(records)
        if epoch is None:
            epoch = self._epochs.get(self._sink.worker_of(tp), 0)
        while not self._sink.has_room:
            await self._sink.wait_room()
            if (failure := self._sink.failure) is not None:
                await self._worker_failed(failure)
        if records and tp in self._begins:
            self._begins.discard(tp)
            self._run.begun.add(tp)
        self._sink.put(Chunk(epoch, tp, self._topics[tp], records, next_offset, size))
        self._put[tp] = next_offset
        if records and self._status.copying_since is None:
            self._status.copying_since = self._clock()
        if self._rate is not None and size:
            await asyncio.sleep(self._rate.delay_s(size, self._clock()))

    async def _put_positions(self, ends: Mapping[TopicPartition, int] | None) -> None:
        """Commit positions that have passed a hole at the end of the log."""
        for tp in list(self._put):
            end = self._source.end_of(tp) if ends is None else ends.get(tp)
            if end is None:
                continue
            status = self._status.partitions[tp]
            if status.stopped is None and self._put[tp] < end:
                position = await self._source.position(tp)
                if position > self._put[tp]:
                    await self._put_chunk(tp, [], position)

    async def _recommit(self) -> None:
        """Commit idle positions again, and those of stopped partitions, so that they don't expire.

        Invariant: this never moves a position. So a partition with records in the sink is left out.
        """
        now = self._clock()
        for tp, at in self._committed_at.items():
            status = self._status.partitions[tp]
            is_due = now - at >= self._config.copy.recommit_s
            if is_due and status.position == self._put[tp]:
                self._committed_at[tp] = now
                if status.position or self._config.copy.start == "latest":
                    await self._put_chunk(tp, [], status.position)

    # --- events -----------------------------------------------------------------------------------

    async def _apply_events(self) -> None:
        for event in iter(self._sink.next_event, None):
            match event:
                case TransactionCommitted():
                    self._apply_commit(event)
                case TransactionAborted():
                    self._status.aborts += 1
                    self._note_abort(event)
                    self._rewind(event.worker, event.epoch)
                case RecordRefused():
                    self._status.note_success(_producer(event.worker))
                    tp = event.source
                    self._refused[tp] = event.offset
                    self._rewind(event.worker, event.epoch)
                    self._note_stop(
                        tp,
                        f"{partition_text(tp)}: the target refuses the "
                        f"record at offset {event.offset} of the source: {event.reason}",
                    )
                case WorkerFailed():
                    await self._worker_failed(event)
                case _:
                    pass

    def _note_abort(self, event: TransactionAborted) -> None:
        """Count an aborted transaction.

        Raises:
            BridgeError: another attempt hasn't helped for `copy.outage_s`.
        """
        failed = self._status.note_error(_producer(event.worker), event.reason)
        _log.log(
            logging.DEBUG if event.is_known else logging.WARNING,
            "%s: what producer %d has not committed is read again: %s",
            self._client_id, event.worker, failed,
        )  # fmt: skip
        if failed.lasted_s >= self._config.copy.outage_s:
            raise BridgeError(
                f"producer {event.worker} has committed nothing for {self._config.copy.outage_s:g} "
                f"s; the last transaction was aborted: {failed}"
            )

    def _apply_commit(self, event: TransactionCommitted) -> None:
        self._status.note_success(_producer(event.worker))
        self._status.note_away("target", None)
        now = self._clock()
        self._status.transactions += 1
        self._status.committed_at = now
        self._status.records += event.records
        self._status.size += event.size
        for begun in (self._begins, self._run.begun):
            begun.difference_update(event.positions)
        for tp, offset in event.positions.items():
            self._committed_at[tp] = now
            status = self._status.partitions[tp]
            status.position = offset
            status.observe(self._source.end_of(tp), now)
        self._observe_copying()
        if self._on_commit is not None:
            self._on_commit(event)

    def _rewind(self, worker: int, epoch: int) -> None:
        """Read a worker's partitions again from their committed positions."""
        self._epochs[worker] = epoch
        for tp, status in self._status.partitions.items():
            # A partition that is left out isn't in `_put`, since its position may not be known.
            if tp in self._put and self._sink.worker_of(tp) == worker:
                is_dropped = self._put[tp] > status.position
                self._put[tp] = status.position
                # A dropped chunk may have been empty, to commit an idle position. Commit it again.
                self._committed_at[tp] = -math.inf
                if status.stopped is None or is_dropped:
                    if tp not in self._refused:
                        status.stopped = None  # it stops again after these chunks
                    self._source.seek(tp, status.position)
        self._observe_copying()

    def _observe_copying(self) -> None:
        """Count the time in which messages were in flight."""
        known = self._status.partitions
        is_copying = any(put > known[tp].position for tp, put in self._put.items())
        self._status.observe_copying(self._clock(), is_copying=is_copying)

    async def _worker_failed(self, event: WorkerFailed) -> None:
        """Raise the reason of the session's end: a newer start, or the failure of the producer."""
        try:
            await self._sink.check_owner()
        except TargetError as error:
            raise event.error from error
        raise event.error

    async def _partition_lost(self, lost: PartitionLostError) -> None:
        tp = lost.partition
        if self._config.copy.on_loss == "stop" or lost.resume is None:
            way_out = (
                "Start the bridge again once more of the log can be read"
                if lost.resume is None
                else 'Go on with copy.on_loss = "skip"'
            )
            self._stop_partition(tp, f"{lost.text}. {way_out}")
            return
        if lost.offset > lost.last:
            await self._identities.refresh()  # raises if the topic was created again
        status = self._status.partitions[tp]
        status.skipped += lost.missing
        # A later abort seeks to `position`. If the log is shorter now and `position` stayed beyond
        # its end, that seek would skip messages once the log has grown past `position`.
        status.position = min(status.position, lost.resume)
        if self._refused.get(tp, lost.resume) < lost.resume:
            del self._refused[tp]
            status.stopped = None
        _log.warning("%s: %s; skipped to offset %d", self._client_id, lost.text, lost.resume)
        self._source.seek(tp, lost.resume)
        await self._put_chunk(tp, lost.records, lost.resume)

    def _stop_partition(self, tp: TopicPartition, reason: str) -> None:
        self._source.suspend(tp)
        self._refused.pop(tp, None)
        self._note_stop(tp, reason)

    def _stop_leaderless(self, tp: TopicPartition, detail: str) -> None:
        if self._status.partitions[tp].stopped is None:
            text = f"{partition_text(tp)}: the source has no leader for it"
            self._stop_partition(tp, f"{text}, {detail}")

    def _note_stop(self, tp: TopicPartition, reason: str) -> None:
        self._status.partitions[tp].stopped = reason
        _log.error("%s: %s", self._client_id, reason)

    async def _watch_silence(self) -> None:
        """Until cancelled, report a target that acknowledges nothing and so seems to hang."""
        # librdkafka itself waits for a minute before it reports a timeout.
        while True:
            await asyncio.sleep(1.0)
            self.note_silence()

    def note_silence(self) -> None:
        """Log and note that the target hangs, if it has long acknowledged none of the messages."""
        since, now = self._status.copying_since, self._clock()
        if self._sink.has_new_commit:
            return  # `step` hasn't applied the commit yet, since a low `copy.rate` delays it
        if since is None or now - since < self._config.copy.transaction_s + _SILENT_S:
            self._silence_logged_at = -math.inf
            return
        text = f"no response: messages have been waiting for {now - since:.0f} s for a commit"
        self._status.note_away("target", text)
        if now - self._silence_logged_at >= _SILENT_LOG_S:
            self._silence_logged_at = now
            _log.warning("%s: the target is away: %s", self._client_id, text)

    # --- progress ---------------------------------------------------------------------------------

    def _observe(self, records: Records) -> None:
        now = self._clock()
        if records:
            self._status.note_away("source", None)
        for tp in records or self._topics:
            self._status.partitions[tp].observe(self._source.end_of(tp), now)

    async def _ends(self) -> dict[TopicPartition, int]:
        bounds = await self._source.reachable_bounds(self._topics, self._leader_s)
        for tp in self._topics:
            if tp not in bounds and self._status.partitions[tp].stopped is None:
                self._stop_leaderless(tp, "so its end isn't known")
        return {tp: last for tp, (_, last) in bounds.items()}

    def has_reached(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Return whether each partition is copied to its end, or as far as it will be."""
        for tp, end in ends.items():
            status = self._status.partitions[tp]
            if status.stopped is not None:
                if status.position < self._refused.get(tp, 0):
                    return False
            elif not self._has_all(tp, end):
                return False
        return True

    def _has_all(self, tp: TopicPartition, end: int) -> bool:
        """Return whether all is committed, and a fetch has shown that the log isn't shorter."""
        known_end = self._source.end_of(tp)
        return known_end is not None and end <= self._status.partitions[tp].position <= known_end
