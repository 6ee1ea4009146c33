"""Writes on the embedded cluster: stored messages, refused columns, errors."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from aiokafka08._core.arrow_headers import headers_type
from aiokafka08.errors import (
    EmbeddedHeadersError,
    IllegalArgumentError,
    MessageSizeTooLargeError,
    UnknownTopicOrPartitionError,
)
from aiokafka08.protocol.requests.produce import ProduceRequest
from aiokafka08.spark.options import read_options, write_options
from aiokafka08.spark.planning import OffsetRange
from aiokafka08.spark.reader import ReadTask, read_task
from aiokafka08.spark.source import Kafka08DataSource
from aiokafka08.spark.writer import write_task
from aiokafka08.testing import Answer, EmbeddedCluster
from tests.brokers.ports import free_port
from tests.spark.conftest import fill, writing
from tests.support.full import in_full

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


def stored(cluster: EmbeddedCluster, topic: str = "t", partitions: int = 3) -> list[list[Any]]:
    return [
        [(message.key, message.value) for message in cluster.log(topic, partition)]
        for partition in range(partitions)
    ]


def test_each_row_is_written_once_to_its_keys_partition(
    spark: Any, cluster: EmbeddedCluster
) -> None:
    frame = spark.range(2000).selectExpr(
        "CAST(id % 100 AS STRING) AS key", "CAST(id AS STRING) AS value", "id AS ignored"
    )
    writing(frame.repartition(3, "key"), cluster, topic="t", kafka__compression__type="gzip")
    logs = stored(cluster)
    assert sorted(int(value) for log in logs for _, value in log) == list(range(2000))
    homes: dict[bytes, set[int]] = {}
    for partition, log in enumerate(logs):
        for key, _ in log:
            homes.setdefault(key, set()).add(partition)
    assert len(homes) == 100
    assert all(len(one) == 1 for one in homes.values())


def test_topic_and_partition_columns_are_followed(spark: Any, cluster: EmbeddedCluster) -> None:
    cluster.create_topic("u", 1)
    rows = [("t", 2, b"a"), ("u", None, b"b"), ("t", 0, b"c"), ("t", 2, b"d")]
    frame = spark.createDataFrame(rows, "topic string, partition int, value binary").coalesce(1)
    writing(frame, cluster)
    assert stored(cluster) == [[(None, b"c")], [], [(None, b"a"), (None, b"d")]]
    assert stored(cluster, "u", 1) == [[(None, b"b")]]
    writing(frame.where("partition = 0"), cluster, topic="u")  # the option has precedence
    assert stored(cluster, "u", 1) == [[(None, b"b"), (None, b"c")]]


def test_null_keys_and_values_are_written(spark: Any, cluster: EmbeddedCluster) -> None:
    rows = [("k", None), (None, "v"), (None, None), ("", ""), (None, None)]
    frame = spark.createDataFrame(rows, "key string, value string").coalesce(1)
    writing(frame.selectExpr("*", "0 AS partition"), cluster, topic="t")
    written = [(b"k", None), (None, b"v"), (None, None), (b"", b""), (None, None)]
    assert stored(cluster) == [written, [], []]
    writing(frame.selectExpr("value", "1 AS partition"), cluster, topic="t")
    assert stored(cluster)[1] == [(None, value) for _, value in written]


def test_timestamps_need_message_format_1_or_drop(spark: Any, cluster: EmbeddedCluster) -> None:
    at = datetime.datetime(2020, 1, 2, 3, 4, 5, 678000, datetime.UTC)
    frame = spark.createDataFrame([("x", at)], "value string, timestamp timestamp")
    with pytest.raises(Exception, match="column 'timestamp'") as caught:
        writing(frame, cluster, topic="t")
    assert "set the option timestamps=drop" in str(caught.value)
    assert "timestamp_ms" not in str(caught.value)
    writing(frame, cluster, topic="t", timestamps="drop")
    assert sum(map(len, stored(cluster))) == 1
    writing(frame.selectExpr("value", "CAST(NULL AS TIMESTAMP) AS timestamp"), cluster, topic="t")
    assert sum(map(len, stored(cluster))) == 2
    with EmbeddedCluster(version="0.10", topics={"t": 1}) as newer:
        mixed = spark.createDataFrame([("x", at), ("y", None)], frame.schema).coalesce(1)
        writing(mixed, newer, topic="t")
        given, now = newer.log("t", 0)
        assert given.timestamp_ms == round(at.timestamp() * 1000)
        assert now.timestamp_ms is not None
        assert now.timestamp_ms > given.timestamp_ms


@pytest.mark.parametrize(
    ("expression", "options", "message"),
    [
        (["id AS key"], {"topic": "t"}, "no column 'value'"),
        (["'v' AS value", "CAST(NULL AS STRING) AS topic"], {}, "a row has no topic"),
        *in_full(
            (["id AS value"], {"topic": "t"}, "'value': type bigint; expected string or bin"),
            (["'v' AS value"], {}, "neither the option 'topic' nor a column 'topic' is given"),
            (["'v' AS value", "1.5 AS partition"], {"topic": "t"}, "'partition': type decimal"),
            (
                [
                    "'v' AS value",
                    "array(named_struct('key', 'h', 'value', CAST('x' AS BINARY))) headers",
                ],
                {"topic": "t"},
                "'headers': 1 rows: headers need message format 2",
            ),
            (["'v' AS value", "'x' AS headers"], {"topic": "t"}, "'headers': type string"),
            (
                ["'v' AS value", "7 AS partition"],
                {"topic": "t"},
                "topic 't' has no partition 7; it has",
            ),
            (["'v' AS value"], {"topic": "t", "acks": "1"}, "acks=…: unknown option"),
            (["'v' AS value"], {"topic": "t/u"}, "invalid topic name 't/u'"),
        ),
    ],
)
def test_unwritable_columns_raise(
    spark: Any,
    cluster: EmbeddedCluster,
    expression: list[str],
    options: dict[str, str],
    message: str,
) -> None:
    with pytest.raises(Exception, match=message):
        writing(spark.range(1).selectExpr(*expression), cluster, **options)
    assert stored(cluster) == [[], [], []]


def test_modes_other_than_append_raise(spark: Any, cluster: EmbeddedCluster) -> None:
    writer = (
        spark.range(1)
        .selectExpr("'v' AS value")
        .write.format("kafka08")
        .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        .option("topic", "t")
    )
    # Spark itself refuses its default mode, errorifexists, for Python sources.
    with pytest.raises(Exception, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        writer.save()
    with pytest.raises(Exception, match="mode='overwrite': kafka08 can only append"):
        writer.mode("overwrite").save()
    assert stored(cluster) == [[], [], []]


def test_broker_error_fails_the_job(spark: Any, cluster: EmbeddedCluster) -> None:
    cluster.fault(ProduceRequest, then=Answer(29))
    with pytest.raises(Exception, match=r"TopicAuthorization.*rows for .* were not written"):
        writing(spark.range(10).selectExpr("'v' AS value"), cluster, topic="t")


def test_unreachable_broker_fails_the_job(spark: Any) -> None:
    with pytest.raises(Exception, match="NoBrokersAvailable"):
        writing(
            spark.range(1).selectExpr("'v' AS value"),
            f"127.0.0.1:{free_port()}",
            topic="t",
            kafka__request__timeout__ms="300",
        )


def test_stream_copy_resumes_where_it_ended(
    spark: Any, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    with EmbeddedCluster(version="0.9", topics={"t": 3}) as target:

        def copy() -> None:
            query = (
                spark.readStream.format("kafka08")
                .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
                .option("subscribe", "t")
                .option("startingOffsets", "earliest")
                .load()
                .select("key", "value", "topic", "partition")
                .writeStream.format("kafka08")
                .option("kafka.bootstrap.servers", target.bootstrap_servers)
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()

        fill(cluster, [300, 20, 0])
        copy()
        assert stored(target) == stored(cluster)
        fill(cluster, [5, 5, 5])
        copy()
        assert stored(target) == stored(cluster)


# --- without a Spark session ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "column", [pa.large_string(), pa.large_binary(), pa.string_view(), pa.binary_view()]
)
def test_all_arrow_types_of_text_and_bytes_are_written(
    cluster: EmbeddedCluster, column: pa.DataType
) -> None:
    """Spark sends large types with spark.sql.execution.arrow.useLargeVarTypes."""
    values = pa.array([b"a", None, b""], pa.binary())
    values = (
        values.cast(pa.string()).cast(column) if "string" in str(column) else values.cast(column)
    )
    batch = pa.RecordBatch.from_arrays(
        [values, pa.array(["k"] * 3, pa.large_string())], ["value", "key"]
    )
    options = write_options({"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": "t"})
    written = write_task(options, iter([batch]))
    assert sum(written.rows.values()) == 3
    assert [one for log in stored(cluster) for one in log] == [
        (b"k", b"a"),
        (b"k", None),
        (b"k", b""),
    ]


def test_too_large_row_raises_with_its_number(cluster: EmbeddedCluster) -> None:
    batches = [
        pa.RecordBatch.from_pydict({"value": ["a", "b", "c"]}),
        pa.RecordBatch.from_pydict({"value": ["d", "v" * 2000], "key": [None, "k"]}),
    ]
    given = {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "topic": "t",
        "kafka.max.request.size": "1000",
    }
    with pytest.raises(MessageSizeTooLargeError) as caught:
        write_task(write_options(given), iter(batches))
    assert str(caught.value).startswith(
        "[Error 10] MessageSizeTooLargeError: topic 't': row 1 takes 2035"
    )
    assert "That batch begins with row 3 of the task" in str(caught.value)
    assert "kafka.max.request.size" in str(caught.value)
    written = sorted(value for log in stored(cluster) for _, value in log)
    assert written in ([], [b"a", b"b", b"c"]), "no row of the batch with that row is written"


def test_rows_of_several_partitions_keep_their_order(
    cluster: EmbeddedCluster,
) -> None:
    cluster.create_topic("u", 2)
    count = 30_000
    rows = pa.RecordBatch.from_pydict(
        {
            "topic": ["t" if number % 2 else "u" for number in range(count)],
            "partition": pa.array([number // 2 % 2 for number in range(count)], pa.int32()),
            "value": [str(number) for number in range(count)],
        }
    )
    options = write_options({"kafka.bootstrap.servers": cluster.bootstrap_servers})
    written = write_task(options, iter([rows.slice(0, 10_001), rows.slice(10_001)]))
    assert sum(written.rows.values()) == count
    found = {"t": stored(cluster), "u": stored(cluster, "u", 2)}
    for rest in range(4):
        log = found["t" if rest % 2 else "u"][rest // 2]
        assert [int(value) for _, value in log] == list(range(rest, count, 4))


def test_missing_topic_without_auto_create_raises_with_similar_names() -> None:
    batch = pa.RecordBatch.from_pydict({"value": pa.array([b"v"])})
    with EmbeddedCluster(auto_create=False, topics={"orders": 1}) as cluster:
        given = {
            "kafka.bootstrap.servers": cluster.bootstrap_servers,
            "topic": "ordrs",
            "kafka.request.timeout.ms": "500",
        }
        message = r"topic 'ordrs' doesn't exist .*Did you mean 'orders'\?"
        with pytest.raises(UnknownTopicOrPartitionError, match=message):
            write_task(write_options(given), iter([batch]))


@pytest.mark.parametrize("streaming", [False, True])
def test_wrong_partitioner_raises_on_the_driver(streaming: bool) -> None:
    source = Kafka08DataSource(
        {"kafka.bootstrap.servers": "nowhere:1", "topic": "t", "partitioner": "murmur3"}
    )
    make = source.streamWriter if streaming else source.writer
    with pytest.raises(IllegalArgumentError) as caught:
        make(StructType([StructField("value", BinaryType())]), False)
    assert "partitioner='murmur3': expected one of murmur2, scala-0.8.0" in str(caught.value)


# --- headers --------------------------------------------------------------------------------------


def test_headers_are_embedded_and_read_back(cluster: EmbeddedCluster) -> None:
    """Rows with headers come back with them; tests/headers checks the bytes."""
    header = [{"key": "a", "value": b"b"}]
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array([b"v", b"\xff", None, b""], pa.binary()),
            pa.array([header, None, header, []], headers_type()),
        ],
        ["value", "headers"],
    )
    base = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "headers": "embedded"}
    write_task(write_options({**base, "topic": "t"}), iter([rows]))
    reading = {**base, "subscribe": "t", "includeHeaders": "true"}
    ends = [(number, len(cluster.log("t", number))) for number in range(len(stored(cluster)))]
    task = ReadTask([OffsetRange("t", number, 0, end) for number, end in ends if end])
    [batch] = read_task(read_options(reading, streaming=False), task)
    expected = [(b"v", header), (b"\xff", None), (None, None), (b"", None)]
    assert [(row["value"], row["headers"]) for row in batch.to_pylist()] == expected
    plain = read_options({**reading, "headers": "refuse"}, streaming=False)
    [batch] = read_task(plain, task)
    assert batch["headers"].null_count == 4
    assert batch["value"][1].as_py() == b"\xff\x00\xff"


def test_damaged_envelope_fails_the_task_with_its_offset(cluster: EmbeddedCluster) -> None:
    cluster.append("t", 0, [b"v", b"\xff\x01"])
    base = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "headers": "embedded"}
    options = read_options({**base, "subscribe": "t"}, streaming=False)
    with pytest.raises(EmbeddedHeadersError, match=r"offset 1: .*In Spark: skip.*headers=refuse"):
        list(read_task(options, ReadTask([OffsetRange("t", 0, 0, 2)])))


def test_headers_are_dropped_by_option(cluster: EmbeddedCluster) -> None:
    rows = pa.RecordBatch.from_arrays(
        [pa.array([b"v"]), pa.array([[{"key": "a", "value": b"b"}]], headers_type())],
        ["value", "headers"],
    )
    base = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": "t"}
    write_task(write_options({**base, "headers": "drop"}), iter([rows]))
    assert [one for log in stored(cluster) for one in log] == [(None, b"v")]
