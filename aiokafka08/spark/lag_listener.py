"""Show how far streaming queries are behind their topics, in the log and to Prometheus.

Invariant: a series exists only while its query runs. An event that can't be understood, such as the
progress of another source, is ignored: a listener never fails a query.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

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
    from prometheus_client import CollectorRegistry
    from pyspark.sql.streaming.listener import SourceProgress

_log: Final = logging.getLogger("aiokafka08.spark")


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
            reported a batch of the query, or that it waits for messages.

    Raises:
        ValueError: the registry has the gauges of another listener.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._gauges = None if registry is None else _LagGauges(registry)
        self._names: dict[str, str] = {}  # id → name of running queries that have reported a lag

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: the first batch has the first lag."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Log and show the lag as of a batch."""
        progress = event.progress
        lags = _lags(progress.sources)
        if lags is None:
            return
        query = progress.name or str(progress.id)
        self._names[str(progress.id)] = query
        _log.info("query %r, batch %d: %s", query, progress.batchId, describe_lags(lags))
        if self._gauges is not None:
            self._gauges.show(query, lags)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Note that a query without new messages is alive."""
        query = self._names.get(str(event.id))
        if query is not None and self._gauges is not None:
            self._gauges.touch(query)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Drop the series of an ended query."""
        query = self._names.pop(str(event.id), None)
        if query is not None and self._gauges is not None:
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
    """The gauges of one listener."""

    def __init__(self, registry: CollectorRegistry) -> None:
        from prometheus_client import Gauge

        self._total = Gauge(
            "aiokafka08_spark_lag",
            "Offsets from the end of the last batch to the ends of the logs",
            ["query"],
            registry=registry,
        )
        self._partition = Gauge(
            "aiokafka08_spark_partition_lag",
            "As aiokafka08_spark_lag, for one partition",
            ["query", "topic", "partition"],
            registry=registry,
        )
        self._last_event = Gauge(
            "aiokafka08_spark_last_event_timestamp_seconds",
            "When Spark last reported a batch of the query, or that it waits for messages",
            ["query"],
            registry=registry,
        )
        self._shown: dict[str, set[TopicPartition]] = {}  # the partitions of a query's series

    def show(self, query: str, lags: Mapping[TopicPartition, int]) -> None:
        self._forget(query, self._shown.get(query, set()) - lags.keys())
        self._shown[query] = set(lags)
        for (topic, partition), lag in lags.items():
            self._partition.labels(query, topic, partition).set(lag)
        self._total.labels(query).set(sum(lags.values()))
        self.touch(query)

    def touch(self, query: str) -> None:
        self._last_event.labels(query).set(time.time())

    def drop(self, query: str) -> None:
        self._forget(query, self._shown.pop(query))
        self._total.remove(query)
        self._last_event.remove(query)

    def _forget(self, query: str, partitions: Iterable[TopicPartition]) -> None:
        for topic, partition in partitions:
            self._partition.remove(query, topic, partition)
