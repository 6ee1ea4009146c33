"""Show how far streaming queries are behind their topics, in the log and to Prometheus.

Invariants:
- A series exists only while its query runs.
- An event that can't be understood, such as the progress of another source, is ignored, so that a
  listener never fails a query.
- A second listener, as when a notebook cell runs again, duplicates neither series nor log lines.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from aiokafka08.errors import IllegalArgumentError
from aiokafka08.spark.offsets import from_checkpoint
from aiokafka08.spark.planning import describe_lags, partition_lags
from aiokafka08.structs import TopicPartition

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric
    from pyspark.sql.streaming.listener import SourceProgress

_log: Final = logging.getLogger("aiokafka08.spark")

# All listeners of a process share the next two, since Spark calls each listener that was added.
# Registry → its gauges
_gauges: Final[WeakKeyDictionary[CollectorRegistry, _LagGauges]] = WeakKeyDictionary()
# Id of a query's run → its last batch that was logged, in the order of the log lines
_logged: Final[dict[str, int]] = {}
# How many runs `_logged` keeps. Spark doesn't report the end of a run whose listeners were removed.
_MAX_RUNS: Final = 1000


class LagListener(StreamingQueryListener):
    """A listener for `spark.streams.addListener` that shows the lag of each streaming query.

    The lag of a partition is the number of offsets between the end of a batch and the end of the
    log, as of the time when the batch was planned. Sources `kafka08` and `kafka` have one. After
    each batch one line is logged by `aiokafka08.spark`, at INFO.

    Args:
        registry: a registry of prometheus-client, which gets three gauges (default None: no
            gauges). `aiokafka08_spark_lag` is the lag over all partitions, with the label `query`:
            the query's name, or its id without one. `aiokafka08_spark_partition_lag` is the lag of
            a partition, with the labels `query`, `topic` and `partition`.
            `aiokafka08_spark_last_event_timestamp_seconds` is the Unix time at which Spark last
            reported a batch of the query, or that it waits for messages. The listeners of a
            registry share its gauges.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._gauges = _LagGauges() if registry is None else _gauges_of(registry)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: the first batch has the first lag."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Log and show the lag as of a batch."""
        progress = event.progress
        lags = _lags(progress.sources)
        if lags is None:
            return
        query = progress.name or str(progress.id)
        self._gauges.names[str(progress.id)] = query
        self._gauges.show(query, lags)
        run = str(progress.runId)
        if _logged.pop(run, None) != progress.batchId:
            _log.info("query %r, batch %d: %s", query, progress.batchId, describe_lags(lags))
        _logged[run] = progress.batchId
        if len(_logged) > _MAX_RUNS:
            _logged.pop(next(iter(_logged)), None)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Note that a query without new messages is alive."""
        query = self._gauges.names.get(str(event.id))
        if query is not None:
            self._gauges.touch(query)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Drop the series of an ended query."""
        _logged.pop(str(event.runId), None)
        query = self._gauges.names.pop(str(event.id), None)
        if query is not None:
            self._gauges.drop(query)


def _lags(sources: Iterable[SourceProgress]) -> dict[TopicPartition, int] | None:
    """Return the lag of each partition; None without a source that has partitions."""
    found: dict[TopicPartition, int] | None = None
    for source in sources:
        try:
            end = from_checkpoint(json.loads(source.endOffset))
            latest = from_checkpoint(json.loads(source.latestOffset))
        except (ValueError, IllegalArgumentError):
            continue  # another source, or one without a batch yet
        found = found or {}
        for tp, lag in partition_lags(end, latest).items():
            found[tp] = max(lag, found.get(tp, 0))  # a query may read a topic twice
    return found


class _LagGauges:
    """The lags of the running queries, as a collector of prometheus-client."""

    def __init__(self) -> None:
        # Id → name of each running query of which any listener has got a lag
        self.names: dict[str, str] = {}
        self._lags: dict[str, Mapping[TopicPartition, int]] = {}  # by query
        self._last_events: dict[str, float] = {}

    def show(self, query: str, lags: Mapping[TopicPartition, int]) -> None:
        self._lags[query] = lags
        self.touch(query)

    def touch(self, query: str) -> None:
        self._last_events[query] = time.time()

    def drop(self, query: str) -> None:
        self._lags.pop(query, None)
        self._last_events.pop(query, None)

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges. A thread of prometheus-client calls this."""
        from prometheus_client.core import GaugeMetricFamily

        total = GaugeMetricFamily(
            "aiokafka08_spark_lag",
            "Offsets from the end of the last batch to the ends of the logs",
            labels=["query"],
        )
        partition = GaugeMetricFamily(
            "aiokafka08_spark_partition_lag",
            "As aiokafka08_spark_lag, for one partition",
            labels=["query", "topic", "partition"],
        )
        last_event = GaugeMetricFamily(
            "aiokafka08_spark_last_event_timestamp_seconds",
            "When Spark last reported a batch of the query, or that it waits for messages",
            labels=["query"],
        )
        for query, lags in list(self._lags.items()):
            total.add_metric([query], sum(lags.values()))
            for (topic, number), lag in lags.items():
                partition.add_metric([query, topic, str(number)], lag)
        for query, at in list(self._last_events.items()):
            last_event.add_metric([query], at)
        yield from (total, partition, last_event)

    describe = collect  # tells the registry the names, for requests like /metrics?name[]=…


def _gauges_of(registry: CollectorRegistry) -> _LagGauges:
    """Return the gauges of a registry; register them for its first listener."""
    gauges = _gauges.get(registry)
    if gauges is None:
        gauges = _LagGauges()
        registry.register(gauges)
        _gauges[registry] = gauges
    return gauges
