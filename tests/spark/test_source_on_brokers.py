"""Spark reads and writes each line of real brokers, and copies a topic from 0.8.2.2 to 3.9.1."""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aiokafka08.spark.driver import DriverClient
from aiokafka08.spark.options import read_options
from aiokafka08.spark.planning import ResolvedOffsets
from tests.brokers.fixtures import BrokerClusters
from tests.brokers.waiting import wait_for
from tests.spark.conftest import reading, writing
from tests.support.paths import ROOT

drain = runpy.run_path(str(ROOT / "examples" / "spark_drain.py"))["drain"]

pytestmark = [pytest.mark.spark, pytest.mark.real, pytest.mark.timeout(300)]

NewName = Callable[..., str]
full = pytest.mark.full
LINES = ["0.8.2.2", *(pytest.param(one, marks=full) for one in ("0.9.0.1", "0.10.2.2", "3.9.1"))]


def write(spark: Any, servers: str, topic: str, start: int, end: int, codec: str = "none") -> None:
    """Write numbers as values, with their last digit as key, to partition number % 3."""
    frame = spark.range(start, end, 1, 2).selectExpr(
        "CAST(id % 10 AS STRING) AS key",
        "CAST(id AS STRING) AS value",
        "CAST(id % 3 AS INT) AS partition",
    )
    writing(frame, servers, topic=topic, kafka__compression__type=codec)


def rows(spark: Any, servers: str, topic: str) -> list[tuple[Any, ...]]:
    """Return partition, key and value of each message, in the order of the log."""
    found = reading(spark, servers, subscribe=topic)
    columns = found.select("partition", "offset", "key", "value").collect()
    return [
        (r.partition, *(None if one is None else bytes(one) for one in (r.key, r.value)))
        for r in sorted(columns, key=lambda row: (row.partition, row.offset))
    ]


@pytest.mark.parametrize("version", LINES)
def test_written_rows_are_read(
    spark: Any, broker_clusters: BrokerClusters, unique_topic: NewName, version: str
) -> None:
    cluster = broker_clusters.get(version)
    topic = unique_topic("spark")
    cluster.create_topic(topic, 3)
    for number, codec in enumerate(["none", "gzip", "snappy"]):
        write(spark, cluster.bootstrap_servers, topic, 5000 * number, 5000 * (number + 1), codec)
    found = rows(spark, cluster.bootstrap_servers, topic)
    assert len(found) == 15_000
    assert sorted(int(value) for _, _, value in found) == list(range(15_000))
    assert all((partition, key) == (int(value) % 3, value[-1:]) for partition, key, value in found)
    part = reading(
        spark,
        cluster.bootstrap_servers,
        assign=f'{{"{topic}":[1]}}',
        startingOffsets=f'{{"{topic}":{{"1":1000}}}}',
        endingOffsets=f'{{"{topic}":{{"1":1010}}}}',
        minPartitions="4",
    )
    assert sorted(row.offset for row in part.collect()) == list(range(1000, 1010))


@pytest.mark.parametrize("version", LINES)
def test_range_deleted_by_retention_raises_or_is_skipped(
    spark: Any, broker_clusters: BrokerClusters, unique_topic: NewName, version: str
) -> None:
    cluster = broker_clusters.get(version)
    topic = unique_topic("aged")
    cluster.create_topic(topic, 3, config={"segment.bytes": 18_000, "retention.bytes": 1})
    for number in range(5):  # several segments per partition; retention keeps the last one
        write(spark, cluster.bootstrap_servers, topic, 1200 * number, 1200 * (number + 1))
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic}
    driver = DriverClient(read_options(given, streaming=False))
    try:
        partitions = driver.partitions()

        def deleted() -> ResolvedOffsets | None:
            first = driver.earliest(partitions)
            return first if all(first.values()) else None

        first = wait_for(deleted, 100, "retention")  # brokers start to check after 30 s
    finally:
        driver.close()
    zeros = {topic: {"0": 0, "1": 0, "2": 0}}
    options = {"subscribe": topic, "startingOffsets": json.dumps(zeros)}
    message = rf"topic '{topic}', partition 0: the range \[0, [0-9]+\) aged out; the log begins at"
    with pytest.raises(Exception, match=message):
        reading(spark, cluster.bootstrap_servers, **options).collect()
    kept = reading(spark, cluster.bootstrap_servers, **options, failOnDataLoss="false").collect()
    for (_, partition), begin in first.items():
        offsets = sorted(row.offset for row in kept if row.partition == partition)
        assert offsets == list(range(offsets[0], 2000))
        assert offsets[0] >= begin > 0


@pytest.mark.full
def test_drain_to_modern_broker_is_resumed(
    spark: Any, broker_clusters: BrokerClusters, unique_topic: NewName, tmp_path: Path
) -> None:
    old, new = broker_clusters.get("0.8.2.2"), broker_clusters.get("3.9.1")
    topic = unique_topic("drain")
    for cluster in (old, new):
        cluster.create_topic(topic, 3)
    odd = [(b"k", None), (None, b"v"), (None, None), (b"", b"")]
    frame = spark.createDataFrame(odd, "key binary, value binary")
    for start, end in ((0, 3000), (3000, 4000)):
        write(spark, old.bootstrap_servers, topic, start, end)
        writing(frame.selectExpr("*", "2 AS partition"), old.bootstrap_servers, topic=topic)
        query = drain(
            spark,
            old.bootstrap_servers,
            new.bootstrap_servers,
            topic,
            str(tmp_path / "checkpoint"),
            max_offsets_per_trigger=1000,
        )
        query.awaitTermination()
        expected = rows(spark, old.bootstrap_servers, topic)
        assert len(expected) == end + len(odd) * (1 if end == 3000 else 2)
        assert (2, None, None) in expected
        assert rows(spark, new.bootstrap_servers, topic) == expected


@pytest.mark.full  # tests/_core/net starts a 4.1.0 anyway, and sees the same error
def test_too_new_broker_raises_with_its_version(
    spark: Any, broker_clusters: BrokerClusters, tmp_path: Path
) -> None:
    servers = broker_clusters.get("4.1.0").bootstrap_servers
    message = r"UnsupportedVersionError: .*it is a 4\.x"
    with pytest.raises(Exception, match=message):
        reading(spark, servers, subscribe="t").collect()
    with pytest.raises(Exception, match=message):
        writing(spark.range(1).selectExpr("'v' AS value"), servers, topic="t")
    query = drain(spark, servers, servers, "t", str(tmp_path))
    with pytest.raises(Exception, match=message):
        query.awaitTermination()
