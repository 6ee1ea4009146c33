"""Batch queries on the embedded cluster: rows, offsets, filters, lost data, wrong options."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import pytest

from aiokafka08.protocol.compression import Codec
from aiokafka08.spark import PUSHDOWN_CONF, register
from aiokafka08.testing import EmbeddedCluster
from tests.brokers.ports import free_port
from tests.spark.conftest import fill, found, reading

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


def values(partition: int, start: int, end: int) -> list[str]:
    return [f"{partition}-{i}" for i in range(start, end)]


@pytest.mark.full
def test_columns_are_those_of_sparks_own_source(spark: Any, cluster: EmbeddedCluster) -> None:
    cluster.append("t", 1, [b"v", None, b""], [None, b"k", b""], codec=Codec.SNAPPY)
    frame = reading(spark, cluster, includeHeaders="true")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    rows = [tuple(row) for row in frame.orderBy("offset").collect()]
    assert rows == [
        (None, b"v", "t", 1, 0, None, -1, None),
        (b"k", None, "t", 1, 1, None, -1, None),
        (b"", b"", "t", 1, 2, None, -1, None),
    ]


def test_timestamp_of_message_format_1_is_read(spark: Any) -> None:
    with EmbeddedCluster(version="0.10", topics={"t": 1}) as cluster:
        cluster.append("t", 0, [b"a"], timestamp_ms=1_600_000_000_123)
        [row] = reading(spark, cluster).collect()
    assert row.timestamp.astimezone(datetime.UTC) == datetime.datetime(
        2020, 9, 13, 12, 26, 40, 123000, datetime.UTC
    )
    assert row.timestampType == 0


def test_query_reads_each_message_once(spark: Any, cluster: EmbeddedCluster) -> None:
    fill(cluster, [500, 0, 300])
    frame = reading(spark, cluster)
    assert frame.rdd.getNumPartitions() == 2
    assert found(frame) == values(0, 0, 500) + values(2, 0, 300)
    split = reading(spark, cluster, minPartitions="7")
    assert split.rdd.getNumPartitions() == 7
    assert found(split) == values(0, 0, 500) + values(2, 0, 300)
    small = reading(spark, cluster, maxRecordsPerPartition="100")
    assert small.rdd.getNumPartitions() == 8
    assert small.count() == 800


def test_small_partitions_make_two_tasks_per_core(spark: Any) -> None:
    """The planner process doesn't know the parallelism of the session; `register` passes it on."""
    with EmbeddedCluster(brokers=2, topics={"t": 20}) as cluster:
        fill(cluster, [3] * 20)
        frame = reading(spark, cluster)
        assert frame.rdd.getNumPartitions() == 4  # local[2]
        assert sorted(found(frame)) == sorted(f"{p}-{i}" for p in range(20) for i in range(3))
        assert reading(spark, cluster, minPartitions="3").rdd.getNumPartitions() == 3
        assert reading(spark, cluster, maxRecordsPerPartition="6").rdd.getNumPartitions() == 12
        spark.conf.set("spark.sql.leafNodeDefaultParallelism", "1")
        try:
            register(spark)
            assert reading(spark, cluster).rdd.getNumPartitions() == 2
        finally:
            spark.conf.unset("spark.sql.leafNodeDefaultParallelism")
            register(spark)


def test_empty_topic_returns_no_rows(spark: Any, cluster: EmbeddedCluster) -> None:
    assert reading(spark, cluster).count() == 0


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"startingOffsets": '{"t":{"0":3,"1":-2,"2":1}}'},
            values(0, 3, 5) + values(1, 0, 4) + values(2, 1, 2),
        ),
        (
            {
                "startingOffsets": '{"t":{"0":1,"1":-2,"2":0}}',
                "endingOffsets": '{"t":{"0":3,"1":-1,"2":0}}',
            },
            values(0, 1, 3) + values(1, 0, 4),
        ),
        ({"assign": '{"t":[1]}'}, values(1, 0, 4)),
        ({"subscribePattern": "t|x.*"}, values(0, 0, 5) + values(1, 0, 4) + values(2, 0, 2)),
        ({"subscribePattern": "T"}, []),
    ],
)
def test_options_select_partitions_and_offsets(
    spark: Any, cluster: EmbeddedCluster, options: dict[str, str], expected: list[str]
) -> None:
    fill(cluster, [5, 4, 2])
    assert found(reading(spark, cluster, **options)) == expected


@pytest.fixture
def pushdown(spark: Any) -> Iterator[None]:
    register(spark, filter_pushdown=True)
    yield
    spark.conf.unset(PUSHDOWN_CONF)
    register(spark)


@pytest.mark.full
def test_queries_of_a_frame_do_not_share_filters(spark: Any, cluster: EmbeddedCluster) -> None:
    """With pushdown, Spark 4.3 keeps the filters of a query for the next unfiltered one."""
    fill(cluster, [100, 100])
    frame = reading(spark, cluster)
    counts = [frame.count(), frame.where("offset < 10").count(), frame.count()]
    assert counts == [200, 20, 200]
    assert frame.where("partition = 1").count() == 100
    assert len(found(frame)) == 200


def test_a_frame_keeps_the_end_of_its_first_query(spark: Any, cluster: EmbeddedCluster) -> None:
    fill(cluster, [3])
    frame = reading(spark, cluster)
    assert frame.count() == 3
    fill(cluster, [2])
    assert [frame.count(), reading(spark, cluster).count()] == [3, 5]


@pytest.mark.usefixtures("pushdown")
def test_filter_pushdown_limits_tasks(spark: Any, cluster: EmbeddedCluster) -> None:
    fill(cluster, [1000, 1000, 1000])

    def tasks(condition: str) -> tuple[int, list[str]]:
        kept = reading(spark, cluster).where(condition)
        return kept.rdd.getNumPartitions(), found(kept)

    assert tasks("partition = 1 AND offset = 500") == (1, values(1, 500, 501))
    assert tasks("offset IN (3, 999) AND partition > 1") == (2, ["2-3", "2-999"])
    assert tasks("offset >= 990 AND offset < 992 AND topic = 't'") == (
        3,
        values(0, 990, 992) + values(1, 990, 992) + values(2, 990, 992),
    )
    assert tasks("topic = 'other'")[1] == []
    assert tasks("partition <= 0 AND offset > 997") == (1, values(0, 998, 1000))


def test_without_pushdown_all_partitions_are_read(spark: Any, cluster: EmbeddedCluster) -> None:
    fill(cluster, [10, 10, 10])
    assert spark.conf.get(PUSHDOWN_CONF) == "false"
    kept = reading(spark, cluster).where("partition = 1 AND offset = 5")
    assert kept.rdd.getNumPartitions() == 3
    assert found(kept) == ["1-5"]


def test_reading_missing_topic_does_not_create_it(spark: Any, cluster: EmbeddedCluster) -> None:
    with pytest.raises(Exception, match="topic 'missing' doesn't exist, or this principal"):
        reading(spark, cluster, subscribe="missing").collect()
    assert found(reading(spark, cluster, subscribePattern="missing.*")) == []
    fill(cluster, [1])
    assert found(reading(spark, cluster)) == ["0-0"]
    with pytest.raises(ValueError, match="topic 'missing' doesn't exist"):
        cluster.offsets("missing", 0)


def test_requests_do_not_grow_with_partitions(spark: Any) -> None:
    """The driver and the one task send no request per partition."""
    from aiokafka08.protocol.requests.list_offsets import ListOffsetsRequest

    with EmbeddedCluster(brokers=2, topics={"t": 40}) as cluster:
        cluster.append("t", 0, [b"x"])
        assert reading(spark, cluster).count() == 1
        requests = [
            request
            for request in cluster.requests(ListOffsetsRequest)
            if any(topic.topic == "t" for topic in request.topics)
        ]
    assert len(requests) == 4


# --- timestamps -----------------------------------------------------------------------------------


@pytest.fixture
def timed() -> Any:
    """Ten messages in each of two partitions, with timestamps from 1000 to 10000; 0.10."""
    with EmbeddedCluster(version="0.10", topics={"t": 2}, clock=lambda: 20.0) as cluster:
        for partition in (0, 1):
            for i in range(10):
                value = f"{partition}-{i}".encode()
                cluster.append("t", partition, [value], timestamp_ms=1000 * (i + 1))
        yield cluster


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingTimestamp": "8500"}, values(0, 8, 10) + values(1, 8, 10)),
        (
            {"startingOffsetsByTimestamp": '{"t":{"0":9000,"1":10000}}'},
            values(0, 8, 10) + values(1, 9, 10),
        ),
        ({"endingTimestamp": "2000"}, values(0, 0, 1) + values(1, 0, 1)),
        (
            {"startingTimestamp": "3000", "endingTimestamp": "4001"},
            values(0, 2, 4) + values(1, 2, 4),
        ),
        ({"endingTimestamp": "99999999"}, values(0, 0, 10) + values(1, 0, 10)),
        (
            {"startingTimestamp": "11000", "startingOffsetsByTimestampStrategy": "latest"},
            [],
        ),
    ],
)
def test_timestamp_bounds_are_exact_with_timestamps(
    spark: Any, timed: EmbeddedCluster, options: dict[str, str], expected: list[str]
) -> None:
    assert found(reading(spark, timed, **options)) == expected


def test_timestamp_bound_without_message_raises(spark: Any, timed: EmbeddedCluster) -> None:
    with pytest.raises(
        Exception, match=r"startingTimestamp=11000: topic .t., partition .: no message"
    ):
        reading(spark, timed, startingTimestamp="11000").collect()


def test_timestamp_bound_in_format_0_starts_at_segment(spark: Any) -> None:
    now = [1000.0]
    with EmbeddedCluster(topics={"t": 1}, clock=lambda: now[0]) as cluster:
        fill(cluster, [5])
        cluster.roll_segment("t", 0)
        now[0] = 5000.0
        fill(cluster, [5])
        with pytest.raises(Exception, match="the messages have no timestamps") as caught:
            reading(spark, cluster, startingTimestamp="4000000").collect()
        assert "to 'segment'" in str(caught.value)
        frame = reading(
            spark,
            cluster,
            startingTimestamp="4000000",
            startingOffsetsByTimestampStrategy="segment",
        )
        assert found(frame) == values(0, 5, 10)
        for strategy in ("error", "segment"):
            frame = reading(
                spark,
                cluster,
                endingTimestamp="4000000",
                startingOffsetsByTimestampStrategy=strategy,
            )
            with pytest.raises(Exception, match=r"no timestamps .* Use endingOffsets"):
                frame.collect()


# --- lost data and wrong input --------------------------------------------------------------------


def test_aged_out_offsets_raise_or_are_skipped(spark: Any, cluster: EmbeddedCluster) -> None:
    fill(cluster, [10])
    cluster.delete_before("t", 0, 4)
    start = '{"t":{"0":2,"1":-2,"2":-2}}'
    with pytest.raises(Exception, match=r"the range \[2, 4\) aged out") as caught:
        reading(spark, cluster, startingOffsets=start).collect()
    assert "topic 't', partition 0" in str(caught.value)
    assert "failOnDataLoss" in str(caught.value)
    frame = reading(spark, cluster, startingOffsets=start, failOnDataLoss="false")
    assert found(frame) == values(0, 4, 10)
    assert found(reading(spark, cluster)) == values(0, 4, 10)


def test_offsets_after_log_end_raise_or_are_skipped(spark: Any, cluster: EmbeddedCluster) -> None:
    fill(cluster, [10])
    end = '{"t":{"0":12,"1":-1,"2":-1}}'
    with pytest.raises(Exception, match=r"the range \[10, 12\) doesn't exist; the log ends at"):
        reading(spark, cluster, endingOffsets=end).collect()
    frame = reading(spark, cluster, endingOffsets=end, failOnDataLoss="false")
    assert found(frame) == values(0, 0, 10)
    with pytest.raises(Exception, match="would start at offset 12 and end at 10; expected"):
        reading(spark, cluster, startingOffsets=end.replace("-1", "-2")).collect()


def test_corrupt_message_raises_with_its_offset(spark: Any, cluster: EmbeddedCluster) -> None:
    from aiokafka08.protocol.message_set import encode_entry

    fill(cluster, [3])
    broken = bytearray(encode_entry(3, None, b"broken"))
    broken[-1] ^= 1
    cluster.append_raw("t", 0, bytes(broken))
    fill(cluster, [2])
    with pytest.raises(Exception, match="corrupt message in topic 't', partition 0, offset 3"):
        reading(spark, cluster).collect()
    around = reading(spark, cluster, assign='{"t":[0]}', startingOffsets='{"t":{"0":4}}')
    assert found(around) == values(0, 4, 6)


@pytest.mark.full
def test_cut_off_set_in_a_wrapper_raises_with_its_offset(
    spark: Any, cluster: EmbeddedCluster
) -> None:
    from aiokafka08.protocol.compression import compress
    from aiokafka08.protocol.message_set import encode_entry

    fill(cluster, [3])
    inside = encode_entry(3, None, b"whole") + encode_entry(4, None, b"cut off")[:-1]
    value = compress(Codec.GZIP, inside)
    cluster.append_raw("t", 0, encode_entry(4, None, value, attributes=Codec.GZIP), next_offset=5)
    with pytest.raises(Exception, match="partition 0, offset 4: it is cut off within its wrapper"):
        reading(spark, cluster).collect()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": "{"}, r"startingOffsets='{': invalid JSON"),
        ({"startingOffsets": '{"t":{"0":0}}'}, "startingOffsets: no entry for t/1, t/2"),
        ({"assign": '{"t":[9]}'}, "topic 't' has no partition 9; expected one of 0, 1, 2"),
        ({"startingOffset": "earliest"}, "startingoffset=…: unknown option"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss='no': expected one of true, false"),
        ({"kafka__auto__offset__reset": "x"}, r"kafka.auto.offset.reset='x' is not supported"),
    ],
)
def test_wrong_options_raise_on_the_driver(
    spark: Any, cluster: EmbeddedCluster, options: dict[str, str], message: str
) -> None:
    with pytest.raises(Exception, match=message):
        reading(spark, cluster, **options).collect()


def test_user_schema_is_refused(spark: Any, cluster: EmbeddedCluster) -> None:
    frame = (
        spark.read.format("kafka08")
        .schema("value string")
        .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        .option("subscribe", "t")
        .load()
    )
    with pytest.raises(Exception, match="the schema of kafka08 is fixed"):
        frame.collect()


def test_unreachable_broker_raises(spark: Any) -> None:
    port = free_port()
    with pytest.raises(Exception, match=f"NoBrokersAvailable.*127.0.0.1:{port}"):
        reading(
            spark,
            f"127.0.0.1:{port}",
            kafka__request__timeout__ms="300",
            fetchOffset__retryIntervalMs="10",
        ).collect()
