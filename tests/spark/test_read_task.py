"""What a task reads, without a Spark session: ranges, batches, losses, failures, filters."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    In,
    LessThan,
    Not,
)
from pyspark.sql.pandas.types import from_arrow_schema

from aiokafka08._core.arrow import schema
from aiokafka08._core.ranges.range_fetches import RangeFetches
from aiokafka08.errors import (
    CorruptRecordException,
    OffsetOutOfRangeError,
    RecordTooLargeError,
)
from aiokafka08.protocol.compression import Codec
from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.spark import reader
from aiokafka08.spark.driver import BlockingClient, DriverClient
from aiokafka08.spark.options import read_options, write_options
from aiokafka08.spark.planning import OffsetRange, apply_filters
from aiokafka08.spark.reader import (
    MAX_BATCH_BYTES,
    MAX_BATCH_ROWS,
    MAX_INTERVALS,
    ReadTask,
    read_task,
    to_column_filter,
)
from aiokafka08.spark.source import Kafka08DataSource
from aiokafka08.spark.writer import write_task
from aiokafka08.structs import TopicPartition
from aiokafka08.testing import Close, Delay, EmbeddedCluster
from tests.brokers.fixtures import BrokerClusters
from tests.spark.conftest import batch_options, fill
from tests.support.fake_pandas import imports_pandas
from tests.support.full import in_full
from tests.support.waiting import until

pytestmark = pytest.mark.spark

T0 = TopicPartition("t", 0)
OTHER_LINES = ("0.9.0.1", "0.10.2.2", "3.9.1")


def task(
    cluster: EmbeddedCluster, start: int, end: int, max_rows: int = MAX_BATCH_ROWS, **given: Any
) -> Iterator[Any]:
    one = ReadTask([OffsetRange("t", 0, start, end)])
    return read_task(batch_options(cluster, **given), one, max_rows=max_rows)


def offsets(batches: Iterator[Any]) -> list[int]:
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_task_reads_exactly_its_range(cluster: EmbeddedCluster, codec: Codec) -> None:
    for start in range(0, 1000, 100):
        cluster.append("t", 0, [b"%d" % i for i in range(start, start + 100)], codec=codec)
    for start, end in ((0, 1000), (5, 6), (99, 101), (150, 950), (1000, 1000)):
        assert offsets(task(cluster, start, end)) == list(range(start, end))


def test_batches_are_limited_by_bytes_and_rows(cluster: EmbeddedCluster) -> None:
    big = 300_000
    for _ in range(40):
        cluster.append("t", 0, [bytes(big)] * 3)
    batches = list(task(cluster, 0, 120))
    assert len(batches) >= 4
    # A batch may exceed the limit by the rest of the last message set.
    assert all(
        batch.nbytes <= MAX_BATCH_BYTES + 3 * big + 100 * batch.num_rows for batch in batches
    )
    sizes = [batch.num_rows for batch in task(cluster, 0, 120, 7)]
    assert sizes == [7] * 17 + [1]


def test_range_with_compacted_offsets_ends(cluster: EmbeddedCluster) -> None:
    fill(cluster, [20])
    cluster.remove("t", 0, [*range(5, 10), *range(15, 20)])
    assert offsets(task(cluster, 0, 20)) == [*range(5), *range(10, 15)]


@pytest.mark.parametrize("fail", [True, False])
def test_range_that_aged_out_raises_or_is_skipped(
    cluster: EmbeddedCluster, fail: bool, caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster, [10])
    cluster.delete_before("t", 0, 4)
    batches = task(cluster, 1, 8, failOnDataLoss=str(fail).lower())
    message = "topic 't', partition 0: the range [1, 4) aged out; the log begins at offset 4"
    if fail:
        with pytest.raises(OffsetOutOfRangeError) as caught:
            offsets(batches)
        assert message in str(caught.value)
    else:
        assert offsets(batches) == [4, 5, 6, 7]
        assert message in caplog.text


@pytest.mark.parametrize("fail", [True, False])
@pytest.mark.parametrize("end", [2, 6])
def test_truncated_log_raises_or_is_read_to_its_end(
    cluster: EmbeddedCluster, fail: bool, end: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The log may end before or after the start of the task, as after a new topic."""
    fill(cluster, [10])
    cluster.truncate("t", 0, end)
    batches = task(cluster, 4, 10, failOnDataLoss=str(fail).lower())
    message = (
        f"topic 't', partition 0: the range [{max(end, 4)}, 10) doesn't exist; the log ends at"
    )
    if fail:
        with pytest.raises(OffsetOutOfRangeError) as caught:
            offsets(batches)
        assert f"{message} offset {end}" in str(caught.value)
        assert "failOnDataLoss" in str(caught.value)
    else:
        assert offsets(batches) == list(range(4, end))
        assert f"{message} offset {end}" in caplog.text


@pytest.mark.parametrize("fail", [True, False])
def test_deleted_topic_raises_or_is_skipped(
    cluster: EmbeddedCluster, fail: bool, caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster, [10])
    cluster.delete_topic("t")
    given: dict[str, Any] = (
        {"fetchOffset__retryIntervalMs": "10"} if fail else {"kafkaConsumer__pollTimeoutMs": "2000"}
    )
    batches = task(cluster, 4, 10, failOnDataLoss=str(fail).lower(), **given)
    message = "topic 't', partition 0 was deleted: the range [4, 10) wasn't read"
    if fail:
        with pytest.raises(OffsetOutOfRangeError) as caught:
            offsets(batches)
        assert message in str(caught.value)
    else:
        assert offsets(batches) == []
        assert message in caplog.text
    with pytest.raises(ValueError, match="topic 't' doesn't exist"):  # the task didn't create it
        cluster.offsets("t", 0)


def test_task_survives_lost_connection_and_killed_broker(cluster: EmbeddedCluster) -> None:
    for start in range(0, 1000, 10):
        cluster.append("t", 0, [b"%d" % i for i in range(start, start + 10)])
    cluster.fault(FetchRequest, nth=2, then=Close(after_bytes=30))
    batches = task(cluster, 0, 1000, 50, kafka__max__partition__fetch__bytes="1000")
    found = offsets(iter([next(batches)]))
    cluster.kill(cluster.leader("t", 0))
    found += offsets(batches)
    assert found == list(range(1000))


def test_corrupt_message_raises_with_hint_for_spark(cluster: EmbeddedCluster) -> None:
    fill(cluster, [3])
    cluster.append_raw("t", 0, b"\0" * 7 + b"\3" + b"\0\0\0\x20" + bytes(32))
    fill(cluster, [1])
    with pytest.raises(CorruptRecordException, match="partition 0, offset 3") as caught:
        offsets(task(cluster, 0, 5))
    assert "In Spark: skip the message with startingOffsets and endingOffsets" in str(caught.value)
    assert "kafka.check.crcs=false" in str(caught.value)


def test_too_large_message_raises_with_sparks_option(cluster: EmbeddedCluster) -> None:
    cluster.append("t", 0, [bytes(5000)])
    sizes: dict[str, Any] = {
        "kafka__max__partition__fetch__bytes": "1000",
        "kafka__fetch__max__bytes": "2000",
    }
    with pytest.raises(RecordTooLargeError, match=r"In Spark: raise the option kafka\.fetch\.max"):
        offsets(task(cluster, 0, 1, **sizes))


# --- several ranges -------------------------------------------------------------------------------


def many(cluster: EmbeddedCluster, ranges: list[tuple[int, int, int]], **given: str) -> ReadTask:
    """Return a task with these ranges (partition, start, end), and with the leaders."""
    driver = DriverClient(batch_options(cluster, **given))
    try:
        driver.earliest(driver.partitions())
        leaders = driver.leaders()
    finally:
        driver.close()
    return ReadTask([OffsetRange("t", *one) for one in ranges], leaders)


def rows(
    cluster: EmbeddedCluster, one: ReadTask, max_rows: int = MAX_BATCH_ROWS, **given: str
) -> dict[int, list[int]]:
    """Return the offsets that a task reads, by partition, in the order of the rows."""
    found: dict[int, list[int]] = {}
    sent = pickle.loads(pickle.dumps(one))
    for batch in read_task(batch_options(cluster, **given), sent, max_rows=max_rows):
        columns = (batch.column(name).to_pylist() for name in ("partition", "offset", "value"))
        for partition, offset, value in zip(*columns, strict=True):
            assert value == f"{partition}-{offset}".encode()
            found.setdefault(partition, []).append(offset)
    return found


def test_task_reads_all_its_ranges_in_order(cluster: EmbeddedCluster) -> None:
    fill(cluster, [3000, 500, 5])
    ranges = [(0, 5, 900), (0, 1000, 2500), (1, 0, 499), (2, 4, 5)]
    one = many(cluster, ranges)
    expected = {0: [*range(5, 900), *range(1000, 2500)], 1: [*range(499)], 2: [4]}
    for size in ("1000", "1048576"):
        assert rows(cluster, one, 100, kafka__max__partition__fetch__bytes=size) == expected


def test_small_ranges_need_one_request_per_leader(cluster: EmbeddedCluster) -> None:
    """The leaders travel with the ranges: no version is probed, no metadata requested."""
    fill(cluster, [12, 12, 12])
    one = many(cluster, [(0, 0, 12), (1, 2, 12), (2, 0, 12)])
    before = len(cluster.history)
    assert rows(cluster, one) == {0: [*range(12)], 1: [*range(2, 12)], 2: [*range(12)]}
    sent = [recorded.request for recorded in cluster.history[before:]]
    assert [type(request) for request in sent] == [FetchRequest] * 2
    partitions = [
        sorted(part.partition for topic in request.topics for part in topic.partitions)
        for request in sent
        if isinstance(request, FetchRequest)
    ]
    assert sorted(partitions) == [[0, 2], [1]]


@pytest.mark.parametrize("then", ["moved", "killed"])
def test_task_finds_a_leader_that_moved_after_planning(cluster: EmbeddedCluster, then: str) -> None:
    fill(cluster, [20, 20, 20])
    one = many(cluster, [(0, 0, 20), (1, 0, 20), (2, 0, 20)])
    if then == "moved":
        cluster.move_leader("t", 0)
    else:
        cluster.kill(cluster.leader("t", 1))
    assert rows(cluster, one) == {partition: [*range(20)] for partition in range(3)}


def test_lost_range_is_skipped_while_the_others_are_read(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster, [100, 100, 100])
    one = many(cluster, [(0, 0, 100), (1, 0, 100), (2, 50, 100)])
    cluster.delete_before("t", 0, 40)
    cluster.truncate("t", 2, 60)
    with pytest.raises(OffsetOutOfRangeError, match=r"aged out|doesn't exist"):
        rows(cluster, one)
    found = rows(cluster, one, failOnDataLoss="false")
    assert found == {0: [*range(40, 100)], 1: [*range(100)], 2: [*range(50, 60)]}
    assert "partition 0: the range [0, 40) aged out" in caplog.text
    assert "partition 2: the range [60, 100) doesn't exist" in caplog.text


def test_range_above_the_watermark_waits_alone(cluster: EmbeddedCluster) -> None:
    fill(cluster, [10, 10, 10])
    follower = 1 - cluster.leader("t", 0)
    cluster.kill(follower, then="unnoticed")
    fill(cluster, [5])
    assert cluster.offsets("t", 0) == (0, 10, 15)
    one = ReadTask([OffsetRange("t", 0, 0, 15), OffsetRange("t", 2, 0, 10)])
    at_the_end = cluster.fault(
        FetchRequest,
        then=Delay(0),
        times=None,
        where=lambda request: any(
            (part.partition, part.fetch_offset) == (0, 15)
            for topic in request.topics
            for part in topic.partitions
        ),
    )
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(rows, cluster, one)
        deadline = time.monotonic() + 20
        while at_the_end.hits < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert at_the_end.hits >= 2
        assert not reading.done()
        cluster.notice(follower)
        assert reading.result(20) == {0: [*range(15)], 2: [*range(10)]}


def test_pause_between_batches_is_no_time_without_progress(cluster: EmbeddedCluster) -> None:
    """Spark may process a batch for longer than `kafkaConsumer.pollTimeoutMs`."""
    for _ in range(20):
        fill(cluster, [50, 50, 50])
    given = {"kafkaConsumer.pollTimeoutMs": "300", "kafka.max.partition.fetch.bytes": "2000"}
    options = batch_options(cluster, **{name.replace(".", "__"): v for name, v in given.items()})
    one = many(cluster, [(0, 0, 1000), (1, 0, 1000), (2, 0, 1000)])
    batches = read_task(options, one, max_rows=100)
    count = next(batches).num_rows
    slow = cluster.fault(FetchRequest, then=Delay(0.1), times=None)
    count += next(batches).num_rows
    time.sleep(0.6)  # the passage of time is the subject
    slow.cancel()
    assert count + sum(batch.num_rows for batch in batches) == 3000


def test_pause_between_batches_hides_no_wait_of_the_broker(cluster: EmbeddedCluster) -> None:
    """A wait that looked short would turn an empty offset into a message that is too large."""
    fill(cluster, [10])
    cluster.remove("t", 0, [9])
    with BlockingClient(batch_options(cluster).client) as client:

        async def fetch_alone() -> asyncio.Future[Any]:
            leader = cluster.leader("t", 0)
            alone = RangeFetches(client.router).fetch(leader, T0, 9, 99, timeout_s=9, alone=True)
            await until(lambda: cluster.requests(FetchRequest))
            return alone

        alone = client.run(fetch_alone())
        time.sleep(1)  # the passage of time is the subject
        _, elapsed_s = client.run(asyncio.wait_for(alone, 20))
        assert elapsed_s >= 0.4


@pytest.mark.real
@pytest.mark.timeout(180)
@pytest.mark.parametrize("fail", [True, False])
@pytest.mark.parametrize("version", ["0.8.2.2", *in_full(*OTHER_LINES)])
def test_real_topic_deleted_or_recreated_raises_or_is_skipped(
    broker_clusters: BrokerClusters,
    unique_topic: Callable[..., str],
    version: str,
    fail: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    real = broker_clusters.get(version)
    topic = unique_topic("cut")
    given = {
        "kafka.bootstrap.servers": real.bootstrap_servers,
        "subscribe": topic,
        "failOnDataLoss": str(fail).lower(),
        "kafkaConsumer.pollTimeoutMs": "120000" if fail else "20000",
    }
    checked = read_options(given, streaming=False)

    def read(start: int) -> list[int]:
        return offsets(read_task(checked, ReadTask([OffsetRange(topic, 0, start, 9)])))

    def loses(start: int, message: str) -> None:
        caplog.clear()
        if fail:
            with pytest.raises(OffsetOutOfRangeError) as caught:
                read(start)
            assert message in str(caught.value)
        else:
            assert read(start) == list(range(start, 5))
            assert message in caplog.text

    def append(count: int) -> None:
        batch = pa.RecordBatch.from_pydict({"value": [b"v"] * count})
        to = write_options({"kafka.bootstrap.servers": real.bootstrap_servers, "topic": topic})
        assert write_task(to, iter([batch])).rows == {TopicPartition(topic, 0): count}

    real.create_topic(topic)
    append(9)
    assert read(3) == list(range(3, 9))
    real.delete_topic(topic)
    loses(7, f"topic {topic!r}, partition 0 was deleted: the range [7, 9) wasn't read")
    real.create_topic(topic)
    append(5)
    loses(7, "the range [7, 9) doesn't exist; the log ends at offset 5")
    loses(3, "the range [5, 9) doesn't exist; the log ends at offset 5")


# --- columns --------------------------------------------------------------------------------------


def test_spark_columns_are_those_of_the_arrow_schema() -> None:
    """Spark's own types (`source`) stand beside the one Arrow schema (`arrow`)."""
    plain = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}
    with_headers = plain | {"includeHeaders": "true"}
    assert from_arrow_schema(reader.BATCH_SCHEMA) == Kafka08DataSource(plain).schema()
    assert (
        from_arrow_schema(reader.BATCH_SCHEMA_WITH_HEADERS)
        == Kafka08DataSource(with_headers).schema()
    )
    assert reader.BATCH_SCHEMA.names == schema().names
    assert reader.BATCH_SCHEMA.types == schema().types


# --- filters --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (In(("offset",), (7, 5, None, 6, 6)), [(0, 5, 8)]),
        (In(("offset",), tuple(range(10, 2000, 2))), [(0, 10, 1999)]),
        (In(("offset",), (3, 99_000)), [(0, 3, 4), (0, 99_000, 99_001)]),
        (In(("offset",), ()), []),
        (EqualTo(("offset",), None), []),
        (EqualNullSafe(("topic",), None), []),
        (EqualTo(("offset",), 2**62), []),
        (LessThan(("offset",), 2), [(0, 0, 2)]),
        (GreaterThan(("offset",), 99_998), [(0, 99_999, 100_000)]),
        (EqualTo(("value",), b"x"), [(0, 0, 100_000)]),
        (Not(EqualTo(("offset",), 5)), [(0, 0, 100_000)]),
    ],
)
def test_filter_keeps_few_ranges_with_all_matches(
    one: Filter, expected: list[tuple[int, int, int]]
) -> None:
    found = to_column_filter(one)
    whole = [OffsetRange("t", 0, 0, 100_000)]
    left = apply_filters(whole, [] if found is None else [found])
    assert [(part.partition, part.start, part.end) for part in left] == expected


def test_filter_with_many_offsets_makes_few_tasks() -> None:
    found = to_column_filter(In(("offset",), tuple(range(0, 10**7, 10**4))))
    assert found is not None
    left = apply_filters([OffsetRange("t", 0, 0, 10**7)], [found])
    assert len(left) <= MAX_INTERVALS
    for offset in range(0, 10**7, 10**4):
        assert sum(part.start <= offset < part.end for part in left) == 1


RUN_TASKS = """
import asyncio
from array import array
import pyarrow as pa
from aiokafka08.spark.options import read_options, write_options
from aiokafka08.spark.planning import OffsetRange
from aiokafka08.spark.reader import ReadTask, read_task
from aiokafka08.spark.writer import write_task
from aiokafka08.testing import EmbeddedCluster

def texts(data):
    offsets = pa.py_buffer(array("i", range(len(data) + 1)))
    return pa.Array.from_buffers(pa.string(), len(data), [None, offsets, pa.py_buffer(data)])

with EmbeddedCluster(topics={"t": 1, "u": 1}) as cluster:
    servers = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
    rows = pa.RecordBatch.from_pydict({"topic": texts(b"tutt"), "value": texts(b"abcd")})
    write_task(write_options(servers), iter([rows]))
    options = read_options({**servers, "subscribe": "t", "includeHeaders": "true"}, streaming=False)
    [batch] = read_task(options, ReadTask([OffsetRange("t", 0, 0, 3)]))
    assert batch.num_rows == 3
"""


def test_tasks_where_pandas_exists_don_t_import_it(tmp_path: Path) -> None:
    assert not imports_pandas(RUN_TASKS, tmp_path)
