"""Decide where the micro-batches of a streaming query start and end, for Spark's engine.

Invariants:
- Batch 0 is empty, unless Spark's own source began the checkpoint.
- With `failOnDataLoss`, a query that failed for a truncated log fails again after each restart.
- The journal keeps the offset of a partition that brokers don't list, since it may be missing only
  for a while. Only a partition that was missing, and is back with a log that ends earlier, counts
  as deleted and created again.

tests/spark/test_stream_reader.py and tests/spark/test_lost_data.py test them.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from aiokafka08.errors import OffsetOutOfRangeError, UnknownTopicOrPartitionError
from aiokafka08.spark.driver import DriverClient
from aiokafka08.spark.offsets import (
    OffsetDict,
    PartitionOffsets,
    from_checkpoint,
    to_checkpoint,
    to_json,
)
from aiokafka08.spark.options import OffsetBound, ReadOptions
from aiokafka08.spark.planning import (
    ResolvedOffsets,
    count_available,
    describe_lags,
    describe_losses,
    describe_missing_partitions,
    describe_start_beyond_end,
    find_ends_below,
    is_batch_too_small,
    is_data_lost,
    is_selected,
    limit_batch,
    partition_lags,
    plan_micro_batch,
)
from aiokafka08.spark.reader import plan_tasks, read_task, resolve_bound
from aiokafka08.spark.reasons import reason_first
from aiokafka08.structs import TopicPartition

_log: Final = logging.getLogger("aiokafka08.spark")

_NO_LIMIT: Final = 2**63 - 1
_MAX_SHOWN_OFFSETS: Final = 500


class Kafka08StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a streaming query. It is on the driver; the tasks call only `read`.

    Args:
        options: the options of the query.
        parallelism: how many tasks Spark runs at once; None if it isn't known.
        clock: returns seconds from any origin, for `maxTriggerDelay`.
    """

    def __init__(
        self,
        options: ReadOptions,
        parallelism: int | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._parallelism = parallelism
        self._driver = DriverClient(options)
        self._initial: ResolvedOffsets | None = None
        self._is_first_call = True  # no call yet of `latestOffset` or `partitions`
        # The partitions in the last metadata
        self._existing: frozenset[TopicPartition] = frozenset()
        # Partitions of the checkpoint that the brokers didn't list at the last call of
        # `latestOffset`; empty with `failOnDataLoss`, where they end the query
        self._missing: frozenset[TopicPartition] = frozenset()
        self._latest: ResolvedOffsets = {}
        self._is_available_now = False
        self._target: ResolvedOffsets | None = None  # where a query with AvailableNow ends
        self._clock = clock
        self._last_batch = -math.inf

    def __getstate__(self) -> dict[str, object]:
        # A task needs only the options, and connections can't be pickled.
        return {"_options": self._options}

    # --- called on the driver ---------------------------------------------------------------------

    @reason_first
    def initialOffset(self) -> OffsetDict:
        """Return where a new query starts: the same at each call of this object.

        Raises:
            OffsetOutOfRangeError: an offset of the options is after the end of the log, and
                `failOnDataLoss` is true.
        """
        if self._initial is None:
            for note in self._options.notes:
                _log.warning("%s: %s", self._options.client.client_id, note)
            driver, bound = self._driver, self._options.start
            partitions = driver.partitions()
            named = bound.offsets if isinstance(bound, OffsetBound) else {}
            earliest, latest = driver.earliest(partitions), driver.latest(partitions, named)
            start = resolve_bound(driver, bound, partitions, earliest, latest, start=True)
            beyond = sorted(find_ends_below(latest, start).items())
            if beyond:
                message = describe_losses(
                    (describe_start_beyond_end(tp, *offsets) for tp, offsets in beyond),
                    self._options.fail_on_data_loss,
                )
                if self._options.fail_on_data_loss:
                    raise OffsetOutOfRangeError(message)
                _log.warning("%s: %s", self._options.client.client_id, message)
            self._initial = {tp: min(offset, latest[tp]) for tp, offset in start.items()}
            _log.info(
                "%s: query starts at %s", self._options.client.client_id, to_json(self._initial)
            )
        return to_checkpoint(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return `ReadAllAvailable` if the options have no limits, else a `ReadMaxRows`."""
        limits = self._options.limits
        if limits.max_offsets is None and limits.min_offsets is None:
            return ReadAllAvailable()
        return ReadMaxRows(limits.max_offsets or _NO_LIMIT)

    def prepareForTriggerAvailableNow(self) -> None:
        """End the query where the log ends at the first call of `latestOffset`."""
        self._is_available_now = True

    @reason_first
    def latestOffset(self, start: OffsetDict, limit: ReadLimit) -> OffsetDict:
        """Return where the next batch ends.

        The end is before `start` if a log was truncated; `partitions` then reports the loss.
        Without `failOnDataLoss`, a partition that the brokers don't list any more ends at its
        offset in `start`.

        Raises:
            UnknownTopicOrPartitionError: the brokers don't list a partition any more, and
                `failOnDataLoss` is true.
        """
        # If this raised for a truncated log, nothing would be journaled: once the log had grown
        # past the old end, a restart would continue there, and skip the messages written since the
        # loss. So Spark journals the lower end and then calls `partitions`, which raises, and a
        # restart repeats that batch. For a missing partition this method raises, since the
        # partition may be back at the restart, and the query then continues where it was.
        begin = from_checkpoint(start)
        is_first_call, self._is_first_call = self._is_first_call, False
        self._latest = self._fetch_log_ends(begin)
        if is_first_call and begin == self._initial:
            # Spark journals only the *ends* of batches. To repeat batch 0 it calls `initialOffset`
            # again, which may return a later offset if the query starts at "latest". Then the
            # messages between the two offsets would be skipped. So batch 0 ends at the initial
            # offset, which puts that offset into the journal.
            return start
        _log.info(
            "%s: %s; at %s",
            self._options.client.client_id,
            describe_lags(partition_lags(begin, self._latest)),
            to_json(begin)[:_MAX_SHOWN_OFFSETS],
        )
        if isinstance(limit, ReadAllAvailable):
            return to_checkpoint(self._latest)
        return to_checkpoint(self._limit_batch(begin, self._latest))

    def reportLatestOffset(self) -> OffsetDict | None:
        """Return the last known ends of the logs; None before they are known."""
        return to_checkpoint(self._latest) if self._latest else None

    @reason_first
    def partitions(self, start: OffsetDict, end: OffsetDict) -> list[InputPartition]:
        """Return the tasks of a batch. They are the same after a restart, unless messages aged out.

        Raises:
            OffsetOutOfRangeError: data of the batch was lost, and `failOnDataLoss` is true.
            UnknownTopicOrPartitionError: the brokers don't list a partition with messages of the
                batch, and `failOnDataLoss` is true.
        """
        is_first_call, self._is_first_call = self._is_first_call, False
        begin, stop = from_checkpoint(start), from_checkpoint(end)
        if is_first_call and begin == self._initial:
            # No call of `latestOffset` came before, so this is a restart that repeats batch 0. If
            # this source wrote the journal, `stop` is the initial offset of the first run. Unless a
            # log was truncated since, the initial offset of this run is the same or later, so the
            # minimum below makes the batch empty. If Spark's own source wrote the journal, `stop`
            # is after the initial offset, and the batch has messages.
            begin = {tp: min(begin.get(tp, last), last) for tp, last in stop.items()}
        if begin == stop:
            return []
        ranges = [tp for tp, last in stop.items() if begin.get(tp) != last]
        if not self._existing.issuperset(ranges):
            self._existing = self._driver.existing(ranges)
        existing = [tp for tp in ranges if tp in self._existing]
        earliest = self._driver.earliest(existing, missing_ok=True)
        latest = self._latest
        if any(latest.get(tp, -1) < stop[tp] for tp in earliest):
            latest = self._driver.latest(list(earliest), stop, missing_ok=True)
            earliest = {tp: offset for tp, offset in earliest.items() if tp in latest}
        if self._options.fail_on_data_loss:
            self._refuse_missing(tp for tp in ranges if tp not in earliest)
        # Without `failOnDataLoss`, the tasks wait for missing partitions longer than the driver.
        plan = plan_micro_batch(begin, stop, earliest, latest, self._options.topics)
        return plan_tasks(self._options, plan, self._driver.leaders(), self._parallelism)

    def commit(self, end: OffsetDict) -> None:
        """Do nothing: Spark's checkpoint keeps the offsets."""

    def stop(self) -> None:
        """Close all connections."""
        self._driver.close()

    # --- called in a task -------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the messages of one task."""
        return read_task(self._options, partition)

    # --- inside -----------------------------------------------------------------------------------

    def _fetch_log_ends(self, begin: PartitionOffsets) -> ResolvedOffsets:
        """Return the ends of the logs; with AvailableNow those of the first call.

        Without `failOnDataLoss`, a partition that the brokers don't list ends at its offset in
        `begin`. One that was deleted and created again is left out; the next batch adds it.
        """
        if self._target is not None:
            return self._target
        # While a log ends before `begin`, or a partition is missing, the driver looks again (as
        # `fetchOffset.*` says), since a new leader or a restarted broker may not have caught up.
        partitions = self._driver.partitions(known=begin.keys() - self._missing)
        self._existing = frozenset(partitions)
        latest = self._driver.latest(partitions, begin, missing_ok=True)
        missing = frozenset(
            tp for tp in begin if tp not in latest and is_selected(self._options.topics, tp)
        )
        if self._options.fail_on_data_loss:
            self._refuse_missing(missing)
        if missing - self._missing:
            _log.warning("%s: %s", self._options.client.client_id, self._describe_missing(missing))
        for tp in self._missing & find_ends_below(latest, begin).keys():
            del latest[tp]
        latest |= {tp: begin[tp] for tp in missing}
        self._missing = missing
        if self._is_available_now:
            self._target = latest
        return latest

    def _refuse_missing(self, missing: Iterable[TopicPartition]) -> None:
        """Raise if the brokers don't list a partition any more."""
        if partitions := list(missing):
            raise UnknownTopicOrPartitionError(self._describe_missing(partitions))

    def _describe_missing(self, missing: Collection[TopicPartition]) -> str:
        options = self._options
        return describe_missing_partitions(
            missing, self._driver.brokers(), options.topics, options.fail_on_data_loss
        )

    def _limit_batch(self, begin: ResolvedOffsets, latest: ResolvedOffsets) -> ResolvedOffsets:
        """Return the end of the next batch within the limits of the options."""
        limits = self._options.limits
        added = [tp for tp in latest if tp not in begin]
        earliest = self._driver.earliest(added, missing_ok=True)
        count = count_available(begin, latest, earliest)
        now = self._clock()
        waited_s = now - self._last_batch
        may_wait = not self._is_available_now and not is_data_lost(begin, latest)
        if may_wait and is_batch_too_small(count, limits, waited_s):
            return begin
        self._last_batch = now
        if limits.max_offsets is None:
            return latest
        return limit_batch(begin, latest, earliest, limits.max_offsets)


class RefusingStreamReader(DataSourceStreamReader):
    """The reader of a query that can't start: each call raises the reason."""

    def __init__(self, reason: Exception) -> None:
        self._reason = reason

    @reason_first
    def initialOffset(self) -> OffsetDict:
        """Raise the reason; Spark calls this first in a new query."""
        raise self._reason

    @reason_first
    def latestOffset(self, start: OffsetDict, limit: ReadLimit) -> OffsetDict:
        """Raise the reason; Spark calls this first in a restart after a committed batch."""
        raise self._reason

    @reason_first
    def partitions(self, start: OffsetDict, end: OffsetDict) -> list[InputPartition]:
        """Raise the reason; Spark calls this first in a restart that repeats a batch."""
        raise self._reason

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raise the reason. Spark doesn't call it: no batch is planned."""
        raise self._reason
