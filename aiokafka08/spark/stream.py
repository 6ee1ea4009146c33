"""Micro-batches: where each one begins and ends, as Spark's streaming engine asks for it.

Spark journals only the *ends* of batches, and asks for the initial offset again when it has to
repeat batch 0. If that had begun at "latest", the end of the log would have moved on, and what came
in between would be skipped without a word. So batch 0 is empty: the first end that is told is the
initial offset itself, and from then on it stands in the journal; a batch 0 that is repeated plans
nothing, wherever the log has moved to, unless Spark's own source began the checkpoint with one that
wasn't empty. Shown by tests/spark/test_stream.py. The arithmetic is `planning`'s.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from aiokafka08.errors import OffsetOutOfRangeError
from aiokafka08.spark.driver import Driver
from aiokafka08.spark.offsets import OffsetDict, Offsets, dump, load, text
from aiokafka08.spark.options import ByOffset, ReadOptions
from aiokafka08.spark.planning import (
    Resolved,
    available,
    beyond_text,
    cut_text,
    gone_text,
    lag_text,
    limited,
    loss_text,
    must_wait,
    plan_batch,
    went_back,
)
from aiokafka08.spark.reader import read_task, resolve_bound, tasks
from aiokafka08.structs import TopicPartition

_logger = logging.getLogger("aiokafka08.spark")

_NO_LIMIT = 2**63 - 1


class Kafka08StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming query's source; lives on the driver, `read` in the tasks."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._driver = Driver(options)
        self._initial: Resolved | None = None
        self._fresh = True  # no batch was planned or ended yet
        self._there: frozenset[TopicPartition] = frozenset()  # as metadata had it last
        self._latest: Resolved = {}
        self._all_now = False
        self._target: Resolved | None = None
        self._last_batch = -math.inf

    def __getstate__(self) -> dict[str, object]:
        # A task needs the options only; connections don't travel.
        return {"_options": self._options}

    # --- called on the driver ---------------------------------------------------------------------

    def initialOffset(self) -> OffsetDict:
        """Where a new query begins; the same at each call.

        Raises:
            OffsetOutOfRangeError: an offset of the options is beyond the log's end, and
                `failOnDataLoss` is true.
        """
        if self._initial is None:
            for note in self._options.notes:
                _logger.warning("%s", note)
            driver, bound = self._driver, self._options.start
            chosen = driver.partitions()
            given = bound.offsets if isinstance(bound, ByOffset) else {}
            earliest, latest = driver.earliest(chosen), driver.latest(chosen, given)
            begin = resolve_bound(driver, bound, chosen, earliest, latest, start=True)
            beyond = sorted(went_back(latest, begin).items())
            if beyond:
                told = loss_text(
                    (beyond_text(tp, *ends) for tp, ends in beyond), self._options.fail_on_data_loss
                )
                if self._options.fail_on_data_loss:
                    raise OffsetOutOfRangeError(told)
                _logger.warning("%s", told)
            self._initial = {tp: min(one, latest[tp]) for tp, one in begin.items()}
            _logger.info("the query begins at %s", text(self._initial))
        return dump(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Anything but `ReadAllAvailable` means: as the options say."""
        limits = self._options.limits
        if limits.max_offsets is None and limits.min_offsets is None:
            return ReadAllAvailable()
        return ReadMaxRows(limits.max_offsets or _NO_LIMIT)

    def prepareForTriggerAvailableNow(self) -> None:
        """The query ends where the log ends at the first call of `latestOffset`."""
        self._all_now = True

    def latestOffset(self, start: OffsetDict, limit: ReadLimit) -> OffsetDict:
        """Where the next batch ends.

        Raises:
            OffsetOutOfRangeError: a partition is gone, or ends before the last batch did, and
                `failOnDataLoss` is true.
        """
        begin = load(start)
        fresh, self._fresh = self._fresh, False
        self._latest = self._end_of_log(begin)
        if fresh and begin == self._initial:
            return start  # batch 0 is empty, see above
        _logger.info("%s", lag_text(begin, self._latest))
        if isinstance(limit, ReadAllAvailable):
            return dump(self._latest)
        return dump(self._limited(begin, self._latest))

    def reportLatestOffset(self) -> OffsetDict | None:
        """The end of the log, as it was last seen."""
        return dump(self._latest) if self._latest else None

    def partitions(self, start: OffsetDict, end: OffsetDict) -> list[InputPartition]:
        """The tasks of one batch; the same after a restart, but for what aged out meanwhile."""
        fresh, self._fresh = self._fresh, False
        begin, stop = load(start), load(end)
        if fresh and begin == self._initial:
            # No end was asked for before: it is batch 0 that is repeated. Its end was the initial
            # offset then, below which the one of now isn't, or Spark's own source began it.
            begin = {tp: min(begin.get(tp, last), last) for tp, last in stop.items()}
        if begin == stop:
            return []
        if not stop.keys() <= self._there:
            self._there = frozenset(self._driver.partitions(known=stop.keys()))
        there = [tp for tp in stop if tp in self._there]
        earliest = self._driver.earliest(there)
        latest = self._latest
        if any(tp in earliest and latest.get(tp, -1) < offset for tp, offset in stop.items()):
            latest = self._driver.latest(there, stop)
        return tasks(self._options, plan_batch(begin, stop, earliest, latest))

    def commit(self, end: OffsetDict) -> None:
        """Nothing to do: the checkpoint has it."""

    def stop(self) -> None:
        """Close all connections."""
        self._driver.close()

    # --- called in a task -------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one task."""
        return read_task(self._options, partition)

    # --- inside -----------------------------------------------------------------------------------

    def _end_of_log(self, begin: Offsets) -> Resolved:
        if self._target is not None:
            return {tp: max(one, begin.get(tp, one)) for tp, one in self._target.items()}
        chosen = self._driver.partitions(known=begin.keys())
        self._there = frozenset(chosen)
        latest = self._driver.latest(chosen, begin)
        losses = gone_text(begin.keys() - latest.keys())
        losses += [cut_text(tp, *ends) for tp, ends in sorted(went_back(latest, begin).items())]
        if losses and self._options.fail_on_data_loss:
            # In the journal it would be the batch's end for good, also if the log comes back.
            raise OffsetOutOfRangeError(loss_text(losses, True))
        if self._all_now:
            self._target = latest
        return latest

    def _limited(self, begin: Resolved, latest: Resolved) -> Resolved:
        limits = self._options.limits
        earliest = self._driver.earliest([tp for tp in latest if tp not in begin])
        count = available(begin, latest, earliest)
        now = time.monotonic()
        if not self._all_now and must_wait(count, limits, now - self._last_batch):
            return begin
        self._last_batch = now
        if limits.max_offsets is None:
            return latest
        return limited(begin, latest, earliest, limits.max_offsets)
