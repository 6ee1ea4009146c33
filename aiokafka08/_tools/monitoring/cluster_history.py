"""`ClusterHistory`: estimate lag in seconds and retention headroom from samples over time.

Pure: each call gets the time, in seconds of a monotonic clock. No estimate needs timestamps in
messages, so all work for brokers of 0.8 too.

Invariant: `ClusterHistory` has histories of the last sample's partitions, and of no others. An
estimate without a basis is None.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Final

from aiokafka08._core.concurrency.loop_yield import STEP_ITEMS, finish_steps
from aiokafka08._tools.monitoring.cluster_sample import BrokerSample, ClusterSample
from aiokafka08._tools.monitoring.offset_history import OffsetHistory
from aiokafka08.structs import TopicPartition

_RATE_WINDOW_S: Final = 3600.0
_BROKER_KEPT_S: Final = 3600.0
# How many deletions of segments are remembered to measure their rate.
_STEPS: Final = 32


class PartitionHistory:
    """The ends and the starts of one log over time."""

    __slots__ = ("_deletions", "_ends", "_start")

    def __init__(self) -> None:
        self._ends = OffsetHistory()
        self._start: int | None = None
        # None until the first deletion, since an empty deque takes more memory than all the rest.
        self._deletions: deque[tuple[float, int]] | None = None

    @property
    def begin(self) -> float | None:
        """The time of the oldest sample; None without a sample."""
        return self._ends.begin

    def add(self, now: float, start: int, end: int) -> None:
        """Add a sample of the log's first offset and its end."""
        self._ends.add(now, end)
        if start == self._start:
            return
        if self._start is not None and start < self._start:  # the topic was created anew
            self._deletions = None
        elif self._start is not None:
            if self._deletions is None:
                self._deletions = deque(maxlen=_STEPS)
            self._deletions.append((now, start))
        self._start = start

    def lag_s(self, now: float, committed: int) -> float | None:
        """Return for how many seconds the next message of a group has been waiting; 0 without one.

        If the message is older than the first sample, the result is the time since that sample, as
        a lower bound. None without samples, or if that is the only one.
        """
        if self._ends.last is None:
            return None
        written = self._ends.time_of(committed)
        if written is not None and now == self._ends.begin:
            return None
        return 0.0 if written is None else max(now - written, 0.0)

    def headroom_s(self, now: float, committed: int) -> float | None:
        """Return after how many seconds retention deletes the next message of a group that stands
        still.

        0 if the message is deleted already, or is the log's first. None if retention hasn't deleted
        anything yet, if its speed is unknown, or if the log is empty and the group has read all of
        it.
        """
        if not self._start or committed >= self._start == self._ends.last:
            return None
        if committed <= self._start:
            return 0.0
        rate = self._deletion_rate(now)
        return (committed - self._start) / rate if rate else None

    def _deletion_rate(self, now: float) -> float | None:
        """Return how many offsets a second retention deletes; None if that isn't known."""
        # Until two deletions were seen, return the rate of writing, because a log that retention
        # limits loses as much as it gains.
        if self._deletions is None or len(self._deletions) < 2:
            return self._ends.rate(now, _RATE_WINDOW_S)
        # Retention deletes whole segments, so the rate is measured from one deletion to another.
        (begin, low), (end, high) = self._deletions[0], self._deletions[-1]
        usual_pause = (end - begin) / (len(self._deletions) - 1)
        overdue = max(now - end - usual_pause, 0.0)
        return (high - low) / (end - begin + overdue)


class KnownBrokers:
    """The brokers that the cluster has named within the last hour."""

    # A dead broker leaves the metadata within seconds (docs/brokers.md 4.7); here it stays, with an
    # error. After an hour it counts as taken out for good.

    def __init__(self) -> None:
        self._named: dict[int, tuple[float, BrokerSample]] = {}

    def add(self, now: float, named: Mapping[int, BrokerSample]) -> dict[int, BrokerSample]:
        """Add the brokers of a sample; return them with those that it doesn't name any more."""
        self._named |= {node_id: (now, broker) for node_id, broker in named.items()}
        self._named = {
            node_id: (at, broker)
            for node_id, (at, broker) in sorted(self._named.items())
            if now - at <= _BROKER_KEPT_S
        }
        return {
            node_id: broker
            if node_id in named
            else replace(broker, version=None, error="the cluster doesn't name it any more")
            for node_id, (_, broker) in self._named.items()
        }


class ClusterHistory:
    """The histories of all partitions of a cluster."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, PartitionHistory] = {}
        self._begin: float | None = None

    def add(self, now: float, sample: ClusterSample) -> None:
        """Add a sample, and forget the partitions that it doesn't name.

        A partition whose offsets couldn't be read keeps its history.
        """
        finish_steps(self.add_in_steps(now, sample))

    def add_in_steps(self, now: float, sample: ClusterSample) -> Generator[None, None, None]:
        """Do the same as `add`, as a generator that yields now and then."""
        histories: dict[TopicPartition, PartitionHistory] = {}
        first: float | None = None
        for number, (tp, partition) in enumerate(sample.partitions(), 1):
            history = histories[tp] = self._partitions.get(tp) or PartitionHistory()
            if partition.start is not None and partition.end is not None:
                history.add(now, partition.start, partition.end)
            begin = history.begin
            if begin is not None and (first is None or begin < first):
                first = begin
            if number % STEP_ITEMS == 0:
                yield
        self._partitions = histories
        self._begin = first

    def lag_s(self, now: float, tp: TopicPartition, committed: int) -> float | None:
        """See `PartitionHistory.lag_s`; None for an unknown partition."""
        history = self._partitions.get(tp)
        return None if history is None else history.lag_s(now, committed)

    def headroom_s(self, now: float, tp: TopicPartition, committed: int) -> float | None:
        """See `PartitionHistory.headroom_s`; None for an unknown partition."""
        history = self._partitions.get(tp)
        return None if history is None else history.headroom_s(now, committed)

    def begin(self) -> float | None:
        """Return the time of the oldest sample; None without a sample."""
        return self._begin
