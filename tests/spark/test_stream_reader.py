"""Micro-batches on the embedded cluster have each message once, after failures and restarts."""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from aiokafka08.errors import NoBrokersAvailable, OffsetOutOfRangeError
from aiokafka08.spark.stream import Kafka08StreamReader
from aiokafka08.testing import EmbeddedCluster
from tests.brokers.ports import free_port
from tests.spark.conftest import MakeReader, fill, ranges
from tests.spark.stream_query import Stream
from tests.support.full import in_full

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


@pytest.fixture
def stream(spark: Any, cluster: EmbeddedCluster, tmp_path: Path) -> Stream:
    return Stream(spark, cluster, tmp_path)


def expected(*counts: int) -> list[str]:
    return [f"{partition}-{i}" for partition, count in enumerate(counts) for i in range(count)]


def test_query_resumes_where_it_ended(stream: Stream, cluster: EmbeddedCluster) -> None:
    fill(cluster, [5, 3, 0])
    stream.run()
    assert stream.values() == expected(5, 3)
    assert stream.journal(0) == {"t": {"0": 0, "1": 0, "2": 0}}
    assert stream.journal(1) == {"t": {"0": 5, "1": 3, "2": 0}}
    fill(cluster, [1, 0, 2])
    stream.run()
    assert stream.values() == expected(6, 3, 2)
    stream.run()
    assert stream.values() == expected(6, 3, 2)


@pytest.mark.parametrize(
    ("begin", "fail_in"),
    [
        ("latest", 1),
        *in_full(("earliest", 0), ("earliest", 1), ("latest", 0)),
    ],
)
def test_failed_first_batch_is_repeated_without_a_gap(
    stream: Stream, cluster: EmbeddedCluster, begin: str, fail_in: int
) -> None:
    fill(cluster, [4, 4, 4])
    stream.options["startingOffsets"] = begin
    if begin == "latest":
        before = [4, 4, 4]
        if fail_in == 1:  # batch 1 needs new messages: journal batch 0 first
            stream.run()
            fill(cluster, [2, 0, 1])
    else:
        before = [0, 0, 0]
    with pytest.raises(Exception, match=f"batch {fail_in} fails on purpose"):
        stream.run(fail_in=fail_in)
    fill(cluster, [3, 3, 3])  # the latest offset moves
    if begin == "earliest" and fail_in == 0:
        cluster.delete_before("t", 2, 0)
    stream.run()
    ends = [cluster.offsets("t", partition).end for partition in range(3)]
    assert stream.values() == [f"{p}-{i}" for p in range(3) for i in range(before[p], ends[p])]


def test_aged_out_first_batch_raises_or_is_skipped(
    stream: Stream, cluster: EmbeddedCluster
) -> None:
    """The log begins later at the restart: that is a loss, not a new start of the query."""
    fill(cluster, [6])
    with pytest.raises(Exception, match="batch 1 fails on purpose"):
        stream.run(fail_in=1)
    cluster.delete_before("t", 0, 2)
    with pytest.raises(Exception, match=r"the range \[0, 2\) aged out"):
        stream.run()
    stream.run(failOnDataLoss="false")
    assert stream.values() == ["0-2", "0-3", "0-4", "0-5"]


def test_max_offsets_per_trigger_limits_batches(stream: Stream, cluster: EmbeddedCluster) -> None:
    fill(cluster, [20, 10, 0])
    stream.run(maxOffsetsPerTrigger="12")
    assert [len(batch) for batch in stream.batches()] == [0, 12, 12, 6]
    assert stream.values() == expected(20, 10)


def test_available_now_ignores_min_offsets_per_trigger(
    stream: Stream, cluster: EmbeddedCluster
) -> None:
    fill(cluster, [3])
    stream.run(minOffsetsPerTrigger="100", maxTriggerDelay="1h")
    assert stream.values() == expected(3)


def test_progress_reports_the_latest_offset(stream: Stream, cluster: EmbeddedCluster) -> None:
    fill(cluster, [5, 5, 5])
    query = stream.start(trigger={"processingTime": "100 milliseconds"}, maxOffsetsPerTrigger="6")
    try:
        query.processAllAvailable()
        progress = [one for one in query.recentProgress if one["numInputRows"]]
    finally:
        query.stop()
    assert stream.values() == expected(5, 5, 5)
    [source] = progress[0]["sources"]
    assert json.loads(source["latestOffset"]) == {"t": {"0": 5, "1": 5, "2": 5}}


def test_added_topic_is_read_from_its_earliest_offset(
    stream: Stream, cluster: EmbeddedCluster
) -> None:
    del stream.options["subscribe"]
    stream.options |= {"subscribePattern": "t.*", "startingOffsets": "latest"}
    fill(cluster, [5])
    stream.run()
    cluster.create_topic("t2", 1)
    fill(cluster, [2], "t2")
    fill(cluster, [1])
    stream.run()
    assert sorted(stream.values()) == ["0-0", "0-1", "0-5"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": '{"t":{"0":1}}'}, "startingOffsets: no entry for t/1, t/2"),
        *in_full(
            ({"endingOffsets": "latest"}, "endingOffsets='latest' is not supported in streaming"),
            ({"maxOffsetsPerTrigger": "none"}, "maxOffsetsPerTrigger='none': expected an integer"),
            ({"subscribe": "nowhere"}, "topic 'nowhere' doesn't exist, or this principal"),
        ),
    ],
)
def test_wrong_options_fail_the_query(
    stream: Stream, options: dict[str, str], message: str
) -> None:
    stream.options |= options
    with pytest.raises(Exception, match=message):
        stream.run()


# --- the reader alone, without a Spark session ----------------------------------------------------


def test_pickled_reader_has_only_the_options(reader: MakeReader, cluster: EmbeddedCluster) -> None:
    one = reader()
    first = one.initialOffset()
    fill(cluster, [3])
    assert one.initialOffset() == first
    copy = pickle.loads(pickle.dumps(one))
    assert list(copy.__dict__) == ["_options"]


def test_repeated_batch_0_reads_nothing(reader: MakeReader, cluster: EmbeddedCluster) -> None:
    fill(cluster, [5, 5, 5])
    journaled = reader(startingOffsets="latest").initialOffset()
    fill(cluster, [2, 2, 2])
    again = reader(startingOffsets="latest")
    assert again.initialOffset() != journaled
    assert again.partitions(again.initialOffset(), journaled) == []


def test_repeated_batch_0_of_sparks_own_source_is_read(
    reader: MakeReader, cluster: EmbeddedCluster
) -> None:
    """Spark's own source has messages in batch 0; this source resumes its checkpoint."""
    fill(cluster, [5, 5, 5])
    one = reader(startingOffsets="earliest")
    begin = one.initialOffset()
    assert ranges(one.partitions(begin, {"t": {"0": 3, "1": 0, "2": 5}})) == [(0, 0, 3), (2, 0, 5)]


def test_small_batch_is_delayed(reader: MakeReader, cluster: EmbeddedCluster) -> None:
    now = [1000.0]
    one = reader(
        lambda: now[0], startingOffsets="latest", minOffsetsPerTrigger="4", maxTriggerDelay="60s"
    )
    limit = one.getDefaultReadLimit()
    begin = one.initialOffset()
    assert one.latestOffset(begin, limit) == begin  # batch 0
    fill(cluster, [1])
    first = one.latestOffset(begin, limit)
    assert first == {"t": {"0": 1, "1": 0, "2": 0}}  # the first batch is never delayed
    fill(cluster, [1, 2])
    now[0] += 59.9
    assert one.latestOffset(first, limit) == first
    fill(cluster, [1])
    full = one.latestOffset(first, limit)
    assert full == {"t": {"0": 3, "1": 2, "2": 0}}
    fill(cluster, [0, 0, 1])
    now[0] += 59.9  # since the last batch
    assert one.latestOffset(full, limit) == full
    now[0] += 0.1
    assert one.latestOffset(full, limit) == {"t": {"0": 3, "1": 2, "2": 1}}


def test_read_of_all_is_not_delayed(reader: MakeReader, cluster: EmbeddedCluster) -> None:
    one = reader(
        lambda: 0.0, startingOffsets="latest", minOffsetsPerTrigger="4", maxTriggerDelay="60s"
    )
    begin = one.initialOffset()
    fill(cluster, [1])
    first = one.latestOffset(begin, one.getDefaultReadLimit())
    fill(cluster, [0, 0, 1])
    assert one.latestOffset(first, ReadAllAvailable()) == {"t": {"0": 1, "1": 0, "2": 1}}


def test_start_after_log_end_raises_or_moves_to_the_end(
    reader: MakeReader, cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster, [10])
    given = {"startingOffsets": '{"t":{"0":12,"1":-2,"2":-1}}'}
    message = "topic 't', partition 0: the query would start at offset 12; the log ends at 10"
    with pytest.raises(OffsetOutOfRangeError) as caught:
        reader(**given).initialOffset()
    assert message in str(caught.value)
    lenient = reader(**given, failOnDataLoss="false")
    assert lenient.initialOffset() == {"t": {"0": 10, "1": 0, "2": 0}}
    assert message in caplog.text


def test_unreachable_broker_raises(reader: MakeReader) -> None:
    port = free_port()
    options = {"kafka.bootstrap.servers": f"127.0.0.1:{port}", "kafka.request.timeout.ms": "300"}
    one = reader(**options)
    with pytest.raises(NoBrokersAvailable, match=f"127.0.0.1:{port}"):
        one.initialOffset()


FIRST_CALLS: dict[str, Callable[[Kafka08StreamReader], object]] = {
    "new query": lambda one: one.initialOffset(),
    "restart": lambda one: one.latestOffset({"t": {"0": 0}}, ReadAllAvailable()),
    "restart that repeats a batch": lambda one: one.partitions({"t": {"0": 0}}, {"t": {"0": 1}}),
}


@pytest.mark.parametrize("call", FIRST_CALLS)
def test_wrong_address_is_tried_for_one_timeout_only(
    reader: MakeReader, caplog: pytest.LogCaptureFixture, call: str
) -> None:
    one = reader(
        **{
            "kafka.bootstrap.servers": f"127.0.0.1:{free_port()}",
            "kafka.request.timeout.ms": "100",
            "fetchOffset.numRetries": "1000000",
        }
    )
    with pytest.raises(NoBrokersAvailable, match=r"set kafka\.request\.timeout\.ms above 100: "):
        FIRST_CALLS[call](one)
    assert "request to the cluster failed" not in caplog.text


def test_running_query_outlives_an_outage(reader: MakeReader, cluster: EmbeddedCluster) -> None:
    one = reader(**{"kafka.request.timeout.ms": "3000", "fetchOffset.numRetries": "1000000"})
    begin = one.initialOffset()
    for node_id in (0, 1):
        cluster.kill(node_id)
    outage = EndOutage(cluster)
    logger = logging.getLogger("aiokafka08.spark")
    logger.addHandler(outage)
    try:
        assert one.latestOffset(begin, ReadAllAvailable()) == begin
    finally:
        logger.removeHandler(outage)
    assert outage.failures >= 2


class EndOutage(logging.Handler):
    """Start the brokers again at the second failed request of the driver."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        super().__init__()
        self.failures = 0
        self._cluster = cluster

    def emit(self, record: logging.LogRecord) -> None:
        """Count the warnings of failed requests."""
        if "request to the cluster failed" not in record.getMessage():
            return
        self.failures += 1
        if self.failures == 2:
            for node_id in (0, 1):
                self._cluster.restart(node_id)
