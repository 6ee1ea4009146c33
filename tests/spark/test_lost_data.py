"""A stream that lost data fails again after each restart, or goes on if the options say so.

A topic that brokers don't list isn't lost: the journal keeps the place where the query was in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from aiokafka08.errors import (
    KafkaUnavailableError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from aiokafka08.protocol.requests.list_offsets import ListOffsetsRequest
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.spark.stream import Kafka08StreamReader
from aiokafka08.testing import EmbeddedCluster
from aiokafka08.testing.faults import Omit
from tests.brokers.fixtures import BrokerClusters
from tests.brokers.waiting import wait_for
from tests.spark.conftest import MakeReader, fill, ranges, writing
from tests.spark.stream_query import Stream
from tests.support.full import in_full

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

NewName = Callable[..., str]


# --- the reader alone, without a Spark session ----------------------------------------------------

BEGIN = {"t": {"0": 10, "1": 0, "2": 0}}


def test_truncated_log_is_returned_then_raises(
    reader: MakeReader, cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster, [10])
    cluster.truncate("t", 0, 6)
    one = reader()
    lower = one.latestOffset(BEGIN, ReadAllAvailable())
    assert lower == {"t": {"0": 6, "1": 0, "2": 0}}
    message = "topic 't', partition 0: the end of the log went back from offset 10 to 6"
    with pytest.raises(OffsetOutOfRangeError) as caught:
        one.partitions(BEGIN, lower)
    assert message in str(caught.value)
    fill(cluster, [20])
    with pytest.raises(OffsetOutOfRangeError) as caught:
        reader().partitions(BEGIN, lower)
    assert message in str(caught.value)
    lenient = reader(failOnDataLoss="false")
    assert lenient.partitions(BEGIN, lower) == []
    assert message in caplog.text
    end = lenient.latestOffset(lower, ReadAllAvailable())
    assert end == {"t": {"0": 26, "1": 0, "2": 0}}
    assert ranges(lenient.partitions(lower, end)) == [(0, 6, 26)]


def test_lower_end_is_not_delayed_by_min_offsets(
    reader: MakeReader, cluster: EmbeddedCluster
) -> None:
    """The log could grow past the old end before the delayed batch."""
    fill(cluster, [11])
    one = reader(lambda: 0.0, minOffsetsPerTrigger="1000", maxTriggerDelay="1s")
    limit = one.getDefaultReadLimit()
    begin = one.latestOffset(BEGIN, limit)  # the first batch is never delayed
    assert begin == {"t": {"0": 11, "1": 0, "2": 0}}
    assert one.latestOffset(begin, limit) == begin
    cluster.truncate("t", 0, 6)
    assert one.latestOffset(begin, limit) == {"t": {"0": 6, "1": 0, "2": 0}}


def test_lower_end_with_available_now_is_returned(
    reader: MakeReader, cluster: EmbeddedCluster
) -> None:
    fill(cluster, [10, 30])
    cluster.truncate("t", 0, 6)
    one = reader(maxOffsetsPerTrigger="20")
    one.prepareForTriggerAvailableNow()
    lower = one.latestOffset(BEGIN, one.getDefaultReadLimit())
    assert lower == {"t": {"0": 6, "1": 20, "2": 0}}
    with pytest.raises(OffsetOutOfRangeError, match="went back from offset 10 to 6"):
        one.partitions(BEGIN, lower)


def test_truncation_before_batch_0_is_returned_next(
    reader: MakeReader, cluster: EmbeddedCluster
) -> None:
    """Batch 0 is empty, so the loss is in batch 1, also where AvailableNow fixed the end."""
    fill(cluster, [10])
    one = reader(startingOffsets="latest")
    one.prepareForTriggerAvailableNow()
    begin = one.initialOffset()
    cluster.truncate("t", 0, 6)
    assert one.latestOffset(begin, ReadAllAvailable()) == begin
    fill(cluster, [20])
    lower = one.latestOffset(begin, ReadAllAvailable())
    with pytest.raises(OffsetOutOfRangeError, match="went back from offset 10 to 6"):
        one.partitions(begin, lower)


def test_leader_that_catches_up_is_no_loss(reader: MakeReader, cluster: EmbeddedCluster) -> None:
    fill(cluster, [10])
    cluster.truncate("t", 0, 6)
    one = reader(**{"fetchOffset.numRetries": "1000", "fetchOffset.retryIntervalMs": "20"})
    with ThreadPoolExecutor(1) as pool:
        end = pool.submit(one.latestOffset, BEGIN, ReadAllAvailable())
        wait_for(lambda: len(cluster.requests(ListOffsetsRequest)) >= 4 or None, 60, "retries")
        fill(cluster, [4])
        assert end.result(60) == BEGIN
    assert one.partitions(BEGIN, BEGIN) == []


@pytest.fixture
def forgetful(reader: MakeReader) -> Iterator[tuple[EmbeddedCluster, MakeReader]]:
    """A broker of 0.8 that was restarted, and has no update of a controller yet: its Metadata
    responses have neither brokers nor topics. Topic t has messages.
    """
    with EmbeddedCluster(version="0.8.2") as restarted:
        restarted.hold_metadata(0)
        restarted.create_topic("t", 3)
        fill(restarted, [10])
        servers = {"kafka.bootstrap.servers": restarted.bootstrap_servers}

        def restart(**options: str) -> Kafka08StreamReader:
            return reader(**servers, **options)

        yield restarted, restart


def test_restarted_broker_that_knows_no_topic_is_no_loss(
    forgetful: tuple[EmbeddedCluster, MakeReader],
) -> None:
    """Else the journal had an end without partitions, and the query could never go on."""
    cluster, restart = forgetful
    one = restart()
    with ThreadPoolExecutor(1) as pool:
        end = pool.submit(one.latestOffset, BEGIN, ReadAllAvailable())
        wait_for(lambda: len(cluster.requests(MetadataRequest)) >= 20 or None, 60, "more requests")
        cluster.release_metadata(0)
        assert end.result(60) == BEGIN


def test_restarted_broker_that_stays_without_topics_fails_the_query(
    forgetful: tuple[EmbeddedCluster, MakeReader],
) -> None:
    """Nothing is journaled, so the next start of the query goes on where this one was."""
    cluster, restart = forgetful
    start = {"t": {"0": 5, "1": 0, "2": 0}}
    for fail in ("true", "false"):
        one = restart(**{"kafka.request.timeout.ms": "200", "failOnDataLoss": fail})
        with pytest.raises(KafkaUnavailableError, match="no broker names a broker or a topic"):
            one.latestOffset(start, ReadAllAvailable())
        with pytest.raises(KafkaUnavailableError, match="start the query again"):
            one.partitions(start, BEGIN)
    cluster.release_metadata(0)
    again = restart()
    assert again.latestOffset(start, ReadAllAvailable()) == BEGIN
    assert ranges(again.partitions(start, BEGIN)) == [(0, 5, 10)]


def test_restarted_broker_is_asked_with_pauses_even_without_a_retry_interval(
    forgetful: tuple[EmbeddedCluster, MakeReader],
) -> None:
    cluster, restart = forgetful
    waits = {"kafka.request.timeout.ms": "500", "fetchOffset.retryIntervalMs": "0"}
    one = restart(**waits)
    before = len(cluster.requests(MetadataRequest))
    with pytest.raises(KafkaUnavailableError):
        one.latestOffset(BEGIN, ReadAllAvailable())
    assert len(cluster.requests(MetadataRequest)) - before < 30


def test_topic_that_brokers_do_not_list_fails_the_query(
    reader: MakeReader, cluster: EmbeddedCluster
) -> None:
    """They name themselves, but no topic. Nothing is journaled, so the next start goes on."""
    fill(cluster, [10])
    start = {"t": {"0": 5, "1": 0, "2": 0}}
    fault = cluster.fault(MetadataRequest, then=Omit(), times=None)
    calls: list[Callable[[Kafka08StreamReader], object]] = [
        lambda one: one.latestOffset(start, ReadAllAvailable()),
        lambda one: one.partitions(start, BEGIN),
    ]
    for call in calls:
        with pytest.raises(UnknownTopicOrPartitionError) as caught:
            call(reader())
        text = str(caught.value)
        assert all(server in text for server in cluster.bootstrap_servers.split(","))
        assert "don't list t/0" in text
        assert "start the query again, and it goes on where it was" in text
        assert "leave them out of subscribe='t', and set failOnDataLoss to false for one" in text
    fault.cancel()
    again = reader()
    assert again.latestOffset(start, ReadAllAvailable()) == BEGIN
    assert ranges(again.partitions(start, BEGIN)) == [(0, 5, 10)]


def test_topic_that_brokers_do_not_list_keeps_its_place_without_fail_on_data_loss(
    reader: MakeReader, cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Counted as deleted, it would be read from its first message when it is back."""
    fill(cluster, [10])
    start = {"t": {"0": 5, "1": 0, "2": 0}}
    one = reader(failOnDataLoss="false")
    fault = cluster.fault(MetadataRequest, then=Omit(), times=None)
    for _ in range(2):
        assert one.latestOffset(start, ReadAllAvailable()) == start
    assert one.partitions(start, start) == []
    assert caplog.text.count("The query goes on without them (failOnDataLoss=false)") == 1
    again = reader(failOnDataLoss="false")
    [task] = again.partitions(start, BEGIN)  # of a batch that was journaled
    with ThreadPoolExecutor(1) as pool:
        before = fault.hits
        rows = pool.submit(lambda: sum(batch.num_rows for batch in again.read(task)))
        wait_for(lambda: fault.hits >= before + 3 or None, 60, "requests of the task")
        fault.cancel()
        assert rows.result(60) == 5
    assert one.latestOffset(start, ReadAllAvailable()) == BEGIN
    assert ranges(one.partitions(start, BEGIN)) == [(0, 5, 10)]


def test_missing_topic_does_not_delay_the_others_without_fail_on_data_loss(
    reader: MakeReader, cluster: EmbeddedCluster
) -> None:
    """The driver looks for it again only when it is first missed."""
    cluster.create_topic("gone", 1)
    one = reader(subscribe="t,gone", failOnDataLoss="false")
    begin = one.initialOffset()
    one.latestOffset(begin, ReadAllAvailable())  # batch 0
    cluster.delete_topic("gone")
    fill(cluster, [2])
    assert one.latestOffset(begin, ReadAllAvailable()) == begin | {"t": {"0": 2, "1": 0, "2": 0}}
    before = len(cluster.requests(MetadataRequest))
    fill(cluster, [1])
    end = one.latestOffset(begin, ReadAllAvailable())
    assert end == begin | {"t": {"0": 3, "1": 0, "2": 0}}
    assert ranges(one.partitions(begin, end)) == [(0, 0, 3)]
    assert len(cluster.requests(MetadataRequest)) == before + 1


def test_recreated_topic_is_read_from_its_beginning_without_fail_on_data_loss(
    reader: MakeReader, cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """It was missing, and is back with a shorter log: then it counts as deleted, and as added."""
    cluster.create_topic("gone", 1)
    fill(cluster, [5], "gone")
    one = reader(subscribe="t,gone", failOnDataLoss="false", startingOffsets="latest")
    begin = one.initialOffset()
    one.latestOffset(begin, ReadAllAvailable())  # batch 0
    cluster.delete_topic("gone")
    assert one.latestOffset(begin, ReadAllAvailable()) == begin
    cluster.create_topic("gone", 1)
    fill(cluster, [3], "gone")
    without = one.latestOffset(begin, ReadAllAvailable())
    assert without == {"t": begin["t"]}
    assert one.partitions(begin, without) == []
    assert "the partitions gone/0 were deleted" in caplog.text
    end = one.latestOffset(without, ReadAllAvailable())
    assert end == {"t": begin["t"], "gone": {"0": 3}}
    assert ranges(one.partitions(without, end)) == [(0, 0, 3)]


def test_journaled_batch_without_a_partition_raises_or_continues(
    reader: MakeReader, cluster: EmbeddedCluster
) -> None:
    """A run without failOnDataLoss may have ended before it committed such a batch."""
    cluster.create_topic("gone", 1)
    one = reader(subscribe="t,gone")
    begin = one.initialOffset()
    without = {"t": begin["t"]}
    with pytest.raises(OffsetOutOfRangeError, match="the partitions gone/0 were deleted"):
        reader(subscribe="t,gone").partitions(begin | {"gone": {"0": 1}}, without)
    lenient = reader(subscribe="t,gone", failOnDataLoss="false")
    assert lenient.partitions(begin | {"gone": {"0": 1}}, without) == []


def test_topic_left_out_at_a_restart_is_read_to_the_end_of_its_batch(
    reader: MakeReader, cluster: EmbeddedCluster
) -> None:
    """A journaled batch is repeated exactly. The next one says what the option left out."""
    cluster.create_topic("other", 1)
    one = reader(subscribe="t,other")
    begin = one.initialOffset()
    one.latestOffset(begin, ReadAllAvailable())  # batch 0
    fill(cluster, [2], "other")
    fill(cluster, [3], "t")
    end = one.latestOffset(begin, ReadAllAvailable())
    again = reader(subscribe="t", startingOffsets="earliest")
    found = {(part.topic, part.end) for task in again.partitions(begin, end) for part in task.value}
    assert found == {("other", 2), ("t", 3)}
    without = again.latestOffset(end, ReadAllAvailable())
    assert without == {"t": end["t"]}
    with pytest.raises(
        OffsetOutOfRangeError, match="subscribe='t' doesn't select other/0 of the checkpoint any"
    ) as caught:
        again.partitions(end, without)
    assert "deleted" not in str(caught.value)


def test_partition_deleted_before_planning_raises_or_is_left_to_its_task(
    reader: MakeReader, cluster: EmbeddedCluster
) -> None:
    """`latestOffset` has seen the partition; it is gone when `partitions` plans the batch."""
    for fail in ("true", "false"):
        cluster.create_topic("gone", 1)
        one = reader(subscribe="t,gone", failOnDataLoss=fail)
        begin = one.initialOffset()
        one.latestOffset(begin, ReadAllAvailable())  # batch 0
        fill(cluster, [2], "gone")
        fill(cluster, [2], "t")
        end = one.latestOffset(begin, ReadAllAvailable())
        cluster.delete_topic("gone")
        if fail == "true":
            with pytest.raises(UnknownTopicOrPartitionError, match="don't list gone/0 of"):
                one.partitions(begin, end)
        else:
            found = {part.topic for task in one.partitions(begin, end) for part in task.value}
            assert found == {"gone", "t"}


def test_partition_deleted_during_a_lookup_fails_the_query(
    reader: MakeReader, cluster: EmbeddedCluster
) -> None:
    cluster.create_topic("gone", 1)
    one = reader(subscribe="t,gone")
    begin = one.initialOffset()
    one.latestOffset(begin, ReadAllAvailable())
    fault = cluster.fault(ListOffsetsRequest, then=Omit(), times=None)
    with ThreadPoolExecutor(1) as pool:
        end = pool.submit(one.latestOffset, begin, ReadAllAvailable())
        wait_for(lambda: fault.hits >= 2 or None, 60, "requests")
        cluster.delete_topic("gone")
        fault.cancel()
        with pytest.raises(UnknownTopicOrPartitionError, match="don't list gone/0 of"):
            end.result(60)


# --- queries on the embedded cluster --------------------------------------------------------------


@pytest.fixture
def stream(spark: Any, cluster: EmbeddedCluster, tmp_path: Path) -> Stream:
    return Stream(spark, cluster, tmp_path)


def numbers(start: int, end: int) -> list[str]:
    return [f"0-{i}" for i in range(start, end)]


@pytest.mark.parametrize("limits", [{}, *in_full({"maxOffsetsPerTrigger": "40"})])
def test_lower_end_fails_each_restart_until_it_is_skipped(
    stream: Stream, cluster: EmbeddedCluster, limits: dict[str, str]
) -> None:
    """The topic is created again, and its log grows past the old end between two restarts."""
    stream.options |= limits
    fill(cluster, [50])
    stream.run()
    batches = len(stream.batches())
    cluster.delete_topic("t")
    cluster.create_topic("t", 3)
    for count in (10, 90):
        fill(cluster, [count])
        with pytest.raises(Exception, match="went back from offset 50 to 10"):
            stream.run()
        assert stream.journal(batches) == {"t": {"0": 10, "1": 0, "2": 0}}
        assert len(stream.batches()) == batches
    stream.run(failOnDataLoss="false")
    read = [value for batch in stream.batches()[batches:] for value in batch]
    assert sorted(read) == sorted(numbers(10, 100))


@pytest.mark.full
def test_deleted_topic_fails_each_restart_until_it_is_left_out(
    stream: Stream, cluster: EmbeddedCluster
) -> None:
    cluster.create_topic("gone", 1)
    fill(cluster, [2], "gone")
    stream.options["subscribe"] = "t,gone"
    stream.run()
    cluster.delete_topic("gone")
    fill(cluster, [1])
    for _ in range(2):
        with pytest.raises(Exception, match="don't list gone/0 of the checkpoint"):
            stream.run()
        assert len(stream.batches()) == 2
    stream.options["subscribe"] = "t"
    stream.run(failOnDataLoss="false")
    assert stream.journal(2) == {"t": {"0": 1, "1": 0, "2": 0}}
    cluster.create_topic("gone", 1)
    fill(cluster, [3], "gone")
    stream.options["subscribe"] = "t,gone"
    stream.run()  # the topic counts as new
    assert stream.batches()[-1] == numbers(0, 3)


@pytest.mark.full
def test_truncated_log_raises_or_is_read_again(stream: Stream, cluster: EmbeddedCluster) -> None:
    fill(cluster, [10])
    stream.run()
    cluster.truncate("t", 0, 6)
    with pytest.raises(Exception, match="went back from offset 10 to 6"):
        stream.run()
    stream.run(failOnDataLoss="false")
    cluster.append("t", 0, [b"new"])
    stream.run()
    assert stream.values() == [*numbers(0, 6), "0-6", "new", *numbers(7, 10)]


# --- real brokers ---------------------------------------------------------------------------------


def write(stream: Stream, topic: str, start: int, end: int) -> None:
    frame = stream.spark.range(start, end, 1, 1).selectExpr(
        "CAST(id AS STRING) AS value", "0 AS partition"
    )
    writing(frame, stream.cluster.bootstrap_servers, topic=topic)


def expect_loss_until_skipped(stream: Stream, topic: str) -> None:
    """After the log's end went back from 50 to 10: fail, grow the log, fail again, skip."""
    for grow in (True, False):
        with pytest.raises(Exception, match="went back from offset 50 to 10"):
            stream.run()
        assert stream.journal(2) == {topic: {"0": 10}}
        assert [len(batch) for batch in stream.batches()] == [0, 50]
        if grow:
            write(stream, topic, 1010, 1100)
    stream.run(failOnDataLoss="false")
    read = [value for batch in stream.batches()[2:] for value in batch]
    assert sorted(read) == sorted(str(i) for i in range(1010, 1100))


@pytest.mark.real
@pytest.mark.parametrize("version", ["0.8.2.2", "3.9.1"])
@pytest.mark.full
def test_recreated_topic_fails_each_restart(
    spark: Any,
    broker_clusters: BrokerClusters,
    unique_topic: NewName,
    tmp_path: Path,
    version: str,
) -> None:
    topic = unique_topic("recreated")
    cluster = broker_clusters.get(version)
    stream = Stream(spark, cluster, tmp_path, subscribe=topic)
    cluster.create_topic(topic, 1)
    write(stream, topic, 0, 50)
    stream.run()
    cluster.delete_topic(topic)
    cluster.create_topic(topic, 1)
    write(stream, topic, 1000, 1010)
    expect_loss_until_skipped(stream, topic)


@pytest.mark.real
@pytest.mark.parametrize("version", ["0.8.2.2", "0.10.2.2"])
@pytest.mark.full
def test_unclean_election_fails_each_restart(
    spark: Any,
    broker_clusters: BrokerClusters,
    unique_topic: NewName,
    tmp_path: Path,
    version: str,
) -> None:
    """A replica that missed 40 messages becomes the leader, and the log grows on from there."""
    topic = unique_topic("unclean")
    cluster = broker_clusters.get(version, 2)
    stream = Stream(spark, cluster, tmp_path, subscribe=topic)
    unclean = {"unclean.leader.election.enable": "true"}
    cluster.create_topic(topic, config=unclean, assignment={0: [0, 1]})
    write(stream, topic, 0, 10)
    cluster.stop(1)
    cluster.wait_isr(topic, 0, [0])
    write(stream, topic, 10, 50)
    stream.run()
    cluster.kill(0)
    cluster.expire(0)
    cluster.restart(1)
    cluster.wait_leader(topic, 0, [1])
    expect_loss_until_skipped(stream, topic)
