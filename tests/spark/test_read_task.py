"""What the driver asks and what a task reads, without a Spark session: losses, bounds, failures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
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

from aiokafka08.errors import (
    CorruptRecordException,
    IllegalArgumentError,
    KafkaConfigurationError,
    KafkaError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
)
from aiokafka08.protocol.api import FetchRequest, ListOffsetsRequest, MetadataRequest
from aiokafka08.protocol.compression import Codec
from aiokafka08.protocol.message_set import encode_entry
from aiokafka08.spark import driver as driver_module
from aiokafka08.spark import reader
from aiokafka08.spark.driver import DriverClient
from aiokafka08.spark.options import ReadOptions, TimestampBound, read_options, write_options
from aiokafka08.spark.planning import OffsetRange, ResolvedOffsets, apply_filters
from aiokafka08.spark.properties import TlsOptions
from aiokafka08.spark.reader import (
    MAX_BATCH_BYTES,
    MAX_INTERVALS,
    ReadTask,
    read_task,
    to_column_filter,
)
from aiokafka08.spark.writer import write_task
from aiokafka08.structs import TopicPartition
from aiokafka08.testing import Close, EmbeddedCluster
from tests.brokers.cluster import RealCluster
from tests.brokers.fixtures import BrokerClusters, require_real_brokers
from tests.spark.conftest import fill

pytestmark = pytest.mark.spark

T0 = TopicPartition("t", 0)
OTHER_LINES = ("0.9.0.1", "0.10.2.2", "3.9.1")


def options(cluster: EmbeddedCluster, **given: str) -> ReadOptions:
    named = {name.replace("__", "."): value for name, value in given.items()}
    base = {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "subscribe": "t",
        "kafka.retry.backoff.ms": "10",
        "kafkaConsumer.pollTimeoutMs": "20000",
    }
    return read_options(base | named, streaming=False)


def task(cluster: EmbeddedCluster, start: int, end: int, **given: str) -> Iterator[Any]:
    return read_task(options(cluster, **given), ReadTask(OffsetRange("t", 0, start, end)))


def offsets(batches: Iterator[Any]) -> list[int]:
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_task_reads_its_range_and_nothing_else(cluster: EmbeddedCluster, codec: Codec) -> None:
    for start in range(0, 1000, 100):
        cluster.append("t", 0, [b"%d" % i for i in range(start, start + 100)], codec=codec)
    for start, end in ((0, 1000), (5, 6), (99, 101), (150, 950), (1000, 1000)):
        assert offsets(task(cluster, start, end)) == list(range(start, end))


def test_batches_are_bounded_by_bytes_and_rows(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    big = 300_000
    for _ in range(40):
        cluster.append("t", 0, [bytes(big)] * 3)
    batches = list(task(cluster, 0, 120))
    assert len(batches) >= 4
    # What is behind the last message taken of a fetched set may come along.
    assert all(
        batch.nbytes <= MAX_BATCH_BYTES + 3 * big + 100 * batch.num_rows for batch in batches
    )
    monkeypatch.setattr(reader, "MAX_BATCH_ROWS", 7)
    sizes = [batch.num_rows for batch in task(cluster, 0, 120)]
    assert sizes == [7] * 17 + [1]


def test_holes_and_compaction_end_a_range_all_the_same(cluster: EmbeddedCluster) -> None:
    fill(cluster, [20])
    cluster.remove("t", 0, [*range(5, 10), *range(15, 20)])
    assert offsets(task(cluster, 0, 20)) == [*range(5), *range(10, 15)]


@pytest.mark.parametrize("fail", [True, False])
def test_what_ages_out_after_planning_is_told_or_skipped(
    cluster: EmbeddedCluster, fail: bool, caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster, [10])
    cluster.delete_before("t", 0, 4)
    batches = task(cluster, 1, 8, failOnDataLoss=str(fail).lower())
    says = "topic 't', partition 0: the range [1, 4) aged out; the log begins at offset 4"
    if fail:
        with pytest.raises(OffsetOutOfRangeError) as caught:
            offsets(batches)
        assert says in str(caught.value)
    else:
        assert offsets(batches) == [4, 5, 6, 7]
        assert says in caplog.text


@pytest.mark.parametrize("fail", [True, False])
@pytest.mark.parametrize("end", [2, 6])
def test_a_log_that_was_cut_after_planning_is_told_or_read_up_to_its_end(
    cluster: EmbeddedCluster, fail: bool, end: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Behind and before where the task is to begin: truncated, or the topic made anew."""
    fill(cluster, [10])
    cluster.truncate("t", 0, end)
    batches = task(cluster, 4, 10, failOnDataLoss=str(fail).lower())
    says = f"topic 't', partition 0: the range [{max(end, 4)}, 10) doesn't exist; the log ends at"
    if fail:
        with pytest.raises(OffsetOutOfRangeError) as caught:
            offsets(batches)
        assert f"{says} offset {end}" in str(caught.value)
        assert "failOnDataLoss" in str(caught.value)
    else:
        assert offsets(batches) == list(range(4, end))
        assert f"{says} offset {end}" in caplog.text


@pytest.mark.parametrize("fail", [True, False])
def test_a_topic_that_was_deleted_after_planning_is_told_or_left_out(
    cluster: EmbeddedCluster, fail: bool, caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster, [10])
    cluster.delete_topic("t")
    given = (
        {"fetchOffset__retryIntervalMs": "10"} if fail else {"kafkaConsumer__pollTimeoutMs": "2000"}
    )
    batches = task(cluster, 4, 10, failOnDataLoss=str(fail).lower(), **given)
    says = "topic 't', partition 0 was deleted: the range [4, 10) wasn't read"
    if fail:
        with pytest.raises(OffsetOutOfRangeError) as caught:
            offsets(batches)
        assert says in str(caught.value)
    else:
        assert offsets(batches) == []
        assert says in caplog.text
    with pytest.raises(ValueError, match="there is no topic 't'"):  # nor was it made anew
        cluster.offsets("t", 0)


def test_a_task_survives_lost_connections_and_a_killed_broker(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "MAX_BATCH_ROWS", 50)
    for start in range(0, 1000, 10):
        cluster.append("t", 0, [b"%d" % i for i in range(start, start + 10)])
    cluster.fault(FetchRequest, nth=2, then=Close(after_bytes=30))
    batches = task(cluster, 0, 1000, kafka__max__partition__fetch__bytes="1000")
    found = offsets(iter([next(batches)]))
    cluster.kill(cluster.leader("t", 0))
    found += offsets(batches)
    assert found == list(range(1000))


def test_a_corrupt_message_ends_the_task_behind_those_before_it(cluster: EmbeddedCluster) -> None:
    fill(cluster, [3])
    cluster.append_raw("t", 0, b"\0" * 7 + b"\3" + b"\0\0\0\x20" + bytes(32))
    fill(cluster, [1])
    with pytest.raises(CorruptRecordException, match="partition 0, offset 3") as caught:
        offsets(task(cluster, 0, 5))
    assert "In Spark: skip the message with startingOffsets and endingOffsets" in str(caught.value)
    assert "kafka.check.crcs=false" in str(caught.value)


def test_a_message_that_is_too_large_names_sparks_option(cluster: EmbeddedCluster) -> None:
    cluster.append("t", 0, [bytes(5000)])
    sizes = {"kafka__max__partition__fetch__bytes": "1000", "kafka__fetch__max__bytes": "2000"}
    with pytest.raises(RecordTooLargeError, match=r"In Spark: raise the option kafka\.fetch\.max"):
        offsets(task(cluster, 0, 1, **sizes))


# --- the driver's questions -----------------------------------------------------------------------


@pytest.fixture
def driver(cluster: EmbeddedCluster) -> Iterator[DriverClient]:
    made = DriverClient(options(cluster, fetchOffset__retryIntervalMs="1"))
    yield made
    made.close()


def test_a_question_costs_one_request_per_broker(
    cluster: EmbeddedCluster, driver: DriverClient
) -> None:
    assert len(driver.partitions()) == 3
    before = len(cluster.requests(MetadataRequest))
    partitions = driver.partitions()
    assert len(cluster.requests(MetadataRequest)) == before + 1
    for _ in range(3):
        assert driver.latest(partitions, {}) == dict.fromkeys(partitions, 0)
    # Without topics it is what tells a broker's version.
    asked = [request for request in cluster.requests(ListOffsetsRequest) if request.topics]
    assert len(asked) == 6


def test_an_end_below_what_was_known_is_asked_again(
    driver: DriverClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [6, 6, 10, 11]

    async def ends(router: Any, partitions: Any, which: int) -> ResolvedOffsets:
        return {T0: answers.pop(0)}

    monkeypatch.setattr(driver, "_ends", ends)
    assert driver.latest([T0], {T0: 10}) == {T0: 10}
    assert answers == [11]
    answers[:] = [6] * 9
    assert driver.latest([T0], {T0: 10}) == {T0: 6}
    assert len(answers) == 5  # once, and fetchOffset.numRetries times


def test_a_partition_that_is_not_known_any_more_is_asked_for_again(
    driver: DriverClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[tuple[TopicPartition, ...]] = [(), (), (T0,), ()]
    monkeypatch.setattr(driver, "choose_partitions", lambda *_, **__: answers.pop(0))
    assert driver.partitions(known=[T0]) == (T0,)
    assert answers == [()]
    answers[:] = [()] * 9
    assert driver.partitions(known=[T0]) == ()
    assert len(answers) == 5  # once, and fetchOffset.numRetries times


def test_a_topic_that_is_deleted_meanwhile_is_not_created_by_asking(
    cluster: EmbeddedCluster,
) -> None:
    once = options(cluster, fetchOffset__numRetries="0", kafka__request__timeout__ms="1000")
    driver = DriverClient(once)
    try:
        partitions = driver.partitions()
        cluster.delete_topic("t")
        driver.partitions(known=[])
        with pytest.raises(KafkaError, match="'t'"):
            driver.latest(partitions, {})
    finally:
        driver.close()
    with pytest.raises(ValueError, match="there is no topic 't'"):
        cluster.offsets("t", 0)


def test_the_driver_goes_on_after_its_connections_broke(
    cluster: EmbeddedCluster, driver: DriverClient
) -> None:
    partitions = driver.partitions()
    cluster.drop_connections()
    fill(cluster, [2])
    assert driver.latest(partitions, {})[T0] == 2
    cluster.kill(0)
    assert driver.latest(partitions, {})[T0] == 2


def on_0_10_0(given: ReadOptions) -> ReadOptions:
    """The broker counts as one that has timestamps, but can't look for them."""
    network = {**given.client.network, "api_version": "0.10.0"}
    return replace(given, client=replace(given.client, network=network))


def test_a_time_is_asked_for_or_looked_for() -> None:
    """By the broker, from 0.10.1 on, in one question; else by reading its segment."""
    times = [1000, 3000, 2000, 5000]
    with EmbeddedCluster(version="0.10", topics={"t": 1}, clock=lambda: 20.0) as cluster:
        for at in times:
            cluster.append("t", 0, [b"x"], timestamp_ms=at)
        for given, fetches in ((options(cluster), False), (on_0_10_0(options(cluster)), True)):
            driver = DriverClient(given)
            before = len(cluster.requests(FetchRequest))
            try:
                for at, offset in ((0, 0), (1001, 1), (3001, 3)):
                    bound = TimestampBound("startingTimestamp", at)
                    assert driver.by_time(bound, [T0], {T0: 4}, start=True) == {T0: offset}
                assert (len(cluster.requests(FetchRequest)) > before) == fetches
                bound = TimestampBound("startingTimestamp", 5001)
                with pytest.raises(IllegalArgumentError, match="no message of that time or later"):
                    driver.by_time(bound, [T0], {T0: 4}, start=True)
                assert driver.by_time(bound, [T0], {T0: 4}, start=False) == {T0: 4}
                # Written since the end was asked for: it isn't part of the query.
                bound = TimestampBound("startingTimestamp", 5000)
                assert driver.by_time(bound, [T0], {T0: 2}, start=False) == {T0: 2}
            finally:
                driver.close()


@pytest.mark.parametrize("line", ["0.8.2", "0.10"])
def test_messages_without_timestamps_are_told_from_messages_before_the_time(line: str) -> None:
    """A broker of 0.10 says only that there is no message of that time."""
    with EmbeddedCluster(version=line, topics={"t": 1}, clock=lambda: 20.0) as cluster:
        cluster.append_raw("t", 0, encode_entry(0, None, b"old", magic=0))
        bound = TimestampBound("startingTimestamp", 2000)
        for strategy in ("error", "latest", "segment"):
            driver = DriverClient(options(cluster, startingOffsetsByTimestampStrategy=strategy))
            try:
                if strategy == "segment":
                    assert driver.by_time(bound, [T0], {T0: 1}, start=True) == {T0: 0}
                else:
                    with pytest.raises(IllegalArgumentError, match="messages have no timestamps"):
                        driver.by_time(bound, [T0], {T0: 1}, start=True)
            finally:
                driver.close()


def test_a_time_is_looked_for_with_the_options_of_the_tasks() -> None:
    """Else a query that tasks could read ends on the driver."""
    broken = bytearray(encode_entry(0, None, b"broken", magic=1, timestamp_ms=1000))
    broken[-1] ^= 1
    with EmbeddedCluster(version="0.10", topics={"t": 1}, clock=lambda: 20.0) as cluster:
        cluster.append_raw("t", 0, bytes(broken))
        cluster.append("t", 0, [b"found"], timestamp_ms=2000)
        given = {check: options(cluster, kafka__check__crcs=check) for check in ("true", "false")}
        for made, expected in (
            (on_0_10_0(given["true"]), None),
            (on_0_10_0(given["false"]), {T0: 1}),
            (given["true"], {T0: 1}),  # the broker finds it by heads
        ):
            driver = DriverClient(made)
            try:
                bound = TimestampBound("startingTimestamp", 2000)
                if expected is None:
                    with pytest.raises(CorruptRecordException, match="partition 0, offset 0"):
                        driver.by_time(bound, [T0], {T0: 2}, start=True)
                else:
                    assert driver.by_time(bound, [T0], {T0: 2}, start=True) == expected
            finally:
                driver.close()


@pytest.mark.parametrize("limit", ["1000", "1000000"])
def test_a_time_is_looked_for_past_messages_as_large_as_tasks_may_read(limit: str) -> None:
    with EmbeddedCluster(version="0.10", topics={"t": 1}, clock=lambda: 20.0) as cluster:
        cluster.append("t", 0, [bytes(5000)], timestamp_ms=1000)
        cluster.append("t", 0, [b"found"], timestamp_ms=2000)
        sizes = {"kafka__max__partition__fetch__bytes": "1000", "kafka__fetch__max__bytes": limit}
        driver = DriverClient(on_0_10_0(options(cluster, **sizes)))
        bound = TimestampBound("startingTimestamp", 2000)
        try:
            if limit == "1000":
                with pytest.raises(RecordTooLargeError):
                    driver.by_time(bound, [T0], {T0: 2}, start=True)
            else:
                assert driver.by_time(bound, [T0], {T0: 2}, start=True) == {T0: 1}
        finally:
            driver.close()


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
def test_a_filter_leaves_few_ranges_that_hold_all_it_lets_through(
    one: Filter, expected: list[tuple[int, int, int]]
) -> None:
    found = to_column_filter(one)
    whole = [OffsetRange("t", 0, 0, 100_000)]
    left = apply_filters(whole, [] if found is None else [found])
    assert [(part.partition, part.start, part.end) for part in left] == expected


def test_a_filter_with_many_offsets_makes_no_more_tasks_than_are_useful() -> None:
    found = to_column_filter(In(("offset",), tuple(range(0, 10**7, 10**4))))
    assert found is not None
    left = apply_filters([OffsetRange("t", 0, 0, 10**7)], [found])
    assert len(left) <= MAX_INTERVALS
    for offset in range(0, 10**7, 10**4):
        assert sum(part.start <= offset < part.end for part in left) == 1


# --- TLS ------------------------------------------------------------------------------------------


def test_files_for_tls_that_cannot_be_read_are_named() -> None:
    with pytest.raises(KafkaConfigurationError) as caught:
        driver_module.ssl_context(TlsOptions(cafile="/nowhere/ca.pem"))
    assert "kafka.ssl.truststore.location='/nowhere/ca.pem'" in str(caught.value)
    assert "and on each executor" in str(caught.value)


@pytest.mark.real
@pytest.mark.timeout(180)
def test_a_cluster_is_asked_over_tls() -> None:
    require_real_brokers()
    with RealCluster("0.9.0.1", ssl=True) as real:
        real.create_topic("t")
        given = {
            "kafka.bootstrap.servers": real.ssl_bootstrap_servers,
            "subscribe": "t",
            "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.location": str(real.ca_path),
            "kafka.ssl.truststore.type": "PEM",
        }
        driver = DriverClient(read_options(given, streaming=False))
        try:
            assert driver.latest(driver.partitions(), {}) == {T0: 0}
        finally:
            driver.close()


@pytest.mark.real
@pytest.mark.timeout(180)
@pytest.mark.parametrize("fail", [True, False])
@pytest.mark.parametrize(
    "version", ["0.8.2.2", *(pytest.param(one, marks=pytest.mark.full) for one in OTHER_LINES)]
)
def test_a_topic_that_is_deleted_or_made_anew_while_it_is_read_is_told_or_left_out(
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
        return offsets(read_task(checked, ReadTask(OffsetRange(topic, 0, start, 9))))

    def loses(start: int, says: str) -> None:
        caplog.clear()
        if fail:
            with pytest.raises(OffsetOutOfRangeError) as caught:
                read(start)
            assert says in str(caught.value)
        else:
            assert read(start) == list(range(start, 5))
            assert says in caplog.text

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
