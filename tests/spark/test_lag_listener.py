"""The lag of streaming queries, as log lines and as Prometheus gets it."""

from __future__ import annotations

import logging
import re
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from pyspark.sql.streaming.listener import QueryIdleEvent, QueryProgressEvent, QueryTerminatedEvent

from aiokafka08.spark import LagListener
from aiokafka08.testing import EmbeddedCluster
from tests.brokers.waiting import wait_for
from tests.spark.conftest import fill
from tests.spark.stream_query import Stream

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

QUERY = uuid.UUID(int=7)


def progress(*sources: tuple[Any, Any], name: str | None = "copy") -> QueryProgressEvent:
    """Return the event of a batch of a new run. Each source has the ends of the batch and of the
    log.
    """
    rates = {"numInputRows": 0, "inputRowsPerSecond": 0.0, "processedRowsPerSecond": 0.0}
    shown = [
        {"description": "", "startOffset": None, "endOffset": end, "latestOffset": latest} | rates
        for end, latest in sources
    ]
    ids = {"id": str(QUERY), "runId": str(uuid.uuid4())}
    given = ids | {"name": name, "timestamp": "", "batchId": 3}
    sink = {"description": "", "numOutputRows": 0}
    rest = {"batchDuration": 1, "stateOperators": [], "sources": shown, "sink": sink}
    return QueryProgressEvent.fromJson({"progress": given | rest})


def series(registry: CollectorRegistry) -> dict[tuple[str, ...], float]:
    """Return the values by name and labels; without the times."""
    return {
        (one.name.removeprefix("aiokafka08_spark_"), *one.labels.values()): one.value
        for metric in registry.collect()
        for one in metric.samples
        if not one.name.endswith("_seconds")
    }


def test_batch_shows_its_lag_in_log_and_gauges(caplog: pytest.LogCaptureFixture) -> None:
    registry = CollectorRegistry()
    listener = LagListener(registry)
    with caplog.at_level(logging.INFO, "aiokafka08.spark"):
        listener.onQueryProgress(progress(({"t": {"0": 5}}, {"t": {"0": 9, "1": 2}})))
    assert "query 'copy', batch 3: 6 offsets behind in 2 partitions, most in t/0: 4" in caplog.text
    assert series(registry) == {
        ("lag", "copy"): 6,
        ("partition_lag", "copy", "t", "0"): 4,
        ("partition_lag", "copy", "t", "1"): 2,
    }


def test_deleted_partition_and_ended_query_lose_their_series() -> None:
    registry = CollectorRegistry()
    listener = LagListener(registry)
    listener.onQueryProgress(progress(({"t": {"0": 5, "1": 1}}, {"t": {"0": 9, "1": 2}})))
    listener.onQueryProgress(progress(({"t": {"0": 9}}, {"t": {"0": 9}})))
    assert series(registry) == {("lag", "copy"): 0, ("partition_lag", "copy", "t", "0"): 0}
    for _ in range(2):
        listener.onQueryTerminated(QueryTerminatedEvent(QUERY, QUERY, None, None))
        assert [one for metric in registry.collect() for one in metric.samples] == []


def test_only_sources_with_partitions_count(caplog: pytest.LogCaptureFixture) -> None:
    """A query may join them, and read a topic twice; others have offsets of another form."""
    registry = CollectorRegistry()
    listener = LagListener(registry)
    others = [
        (None, None),
        (7, 8),
        ({"logOffset": 1}, None),
        ("None", "None"),
        ({"a": {"b": 1}}, 1),
    ]
    with caplog.at_level(logging.INFO, "aiokafka08.spark"):
        listener.onQueryProgress(progress(*others, name=None))
        assert (caplog.text, series(registry)) == ("", {})
        reads = [({"t": {"0": 8}}, {"t": {"0": 9}}), ({"t": {"0": 5}}, {"t": {"0": 9}})]
        listener.onQueryProgress(progress(*others, *reads, ({"u": {"0": 1}}, {"u": {"0": 1}})))
    assert series(registry)["lag", "copy"] == 4
    assert "4 offsets behind in 2 partitions" in caplog.text


def test_idle_query_counts_as_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = CollectorRegistry()
    listener = LagListener(registry)
    for now, event in (
        (10.0, QueryIdleEvent(QUERY, QUERY, "")),  # of a query without a lag
        (20.0, progress(({"t": {"0": 5}}, {"t": {"0": 9}}), name=None)),
        (30.0, QueryIdleEvent(QUERY, QUERY, "")),
    ):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        if isinstance(event, QueryIdleEvent):
            listener.onQueryIdle(event)
        else:
            listener.onQueryProgress(event)
        name = "aiokafka08_spark_last_event_timestamp_seconds"
        found = registry.get_sample_value(name, {"query": str(QUERY)})
        assert found == (None if now == 10.0 else now)


def test_listener_that_is_made_again_doubles_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """The cell of a notebook runs twice: Spark calls both listeners."""
    registry = CollectorRegistry()
    both = LagListener(registry), LagListener(registry)
    event = progress(({"t": {"0": 5}}, {"t": {"0": 9}}))
    with caplog.at_level(logging.INFO, "aiokafka08.spark"):
        for listener in both:
            listener.onQueryProgress(event)
    assert series(registry) == {("lag", "copy"): 4, ("partition_lag", "copy", "t", "0"): 4}
    assert caplog.text.count("4 offsets behind") == 1
    for listener in both:
        listener.onQueryTerminated(QueryTerminatedEvent(QUERY, QUERY, None, None))
    assert series(registry) == {}


def test_listener_that_is_made_again_ends_the_series_of_its_forerunner() -> None:
    """The query has no new messages: only the first listener has seen its lag."""
    registry = CollectorRegistry()
    LagListener(registry).onQueryProgress(progress(({"t": {"0": 5}}, {"t": {"0": 9}})))
    LagListener(registry).onQueryTerminated(QueryTerminatedEvent(QUERY, QUERY, None, None))
    assert series(registry) == {}


def test_runs_whose_end_is_not_reported_are_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    """Where all listeners are removed before their queries end. So its last line comes again."""
    listener = LagListener()
    event = progress(({"t": {"0": 5}}, {"t": {"0": 9}}), name="first")
    with caplog.at_level(logging.INFO, "aiokafka08.spark"):
        listener.onQueryProgress(event)
        for number in range(1000):
            listener.onQueryProgress(progress(({"t": {"0": 5}}, {"t": {"0": 9}})))
            if number < 999:
                LagListener().onQueryProgress(event)
        assert caplog.text.count("query 'first'") == 1
        for _ in range(1000):
            listener.onQueryProgress(progress(({"t": {"0": 5}}, {"t": {"0": 9}})))
        listener.onQueryProgress(event)
    assert caplog.text.count("query 'first'") == 2


def test_gauges_are_found_by_name() -> None:
    registry = CollectorRegistry(auto_describe=False)
    LagListener(registry).onQueryProgress(progress(({"t": {"0": 5}}, {"t": {"0": 9}})))
    found = list(registry.restricted_registry(["aiokafka08_spark_lag"]).collect())
    assert [one.name for one in found] == ["aiokafka08_spark_lag"]


def test_running_query_shows_how_far_it_is_behind(
    spark: Any, cluster: EmbeddedCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    registry = CollectorRegistry()
    listener = LagListener(registry)
    fill(cluster, [5, 5, 5])
    spark.streams.addListener(listener)
    try:
        with caplog.at_level(logging.INFO, "aiokafka08.spark"):
            query = Stream(spark, cluster, tmp_path).start(
                trigger={"processingTime": "100 milliseconds"}, maxOffsetsPerTrigger="6"
            )
            labels = {"query": str(query.id)}

            def lag() -> float | None:
                return registry.get_sample_value("aiokafka08_spark_lag", labels)

            try:
                wait_for(lambda: lag() == 0, 120, lambda: f"lag 0: {caplog.text}")
            finally:
                query.stop()
            wait_for(lambda: lag() is None, 60, "no series of an ended query")
    finally:
        spark.streams.removeListener(listener)
    behind = re.findall(r"batch \d+: (\d+) offsets? behind in 3 partitions", caplog.text)
    assert behind == ["15", "9", "3", "0"]
