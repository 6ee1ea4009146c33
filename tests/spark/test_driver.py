"""The driver's requests to the cluster, without a Spark session: offsets, timestamps, TLS."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from aiokafka08._core.properties import TlsOptions
from aiokafka08.errors import (
    CorruptRecordException,
    IllegalArgumentError,
    KafkaConfigurationError,
    KafkaError,
    RecordTooLargeError,
)
from aiokafka08.protocol.message_set import encode_entry
from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.protocol.requests.list_offsets import ListOffsetsRequest
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.spark import driver as driver_module
from aiokafka08.spark.driver import DriverClient
from aiokafka08.spark.options import ReadOptions, TimestampBound, TopicSelection, read_options
from aiokafka08.spark.planning import ResolvedOffsets
from aiokafka08.structs import TopicPartition
from aiokafka08.testing import EmbeddedCluster
from tests.brokers.cluster import RealCluster
from tests.brokers.fixtures import require_real_brokers
from tests.spark.conftest import batch_options, fill

pytestmark = pytest.mark.spark

T0 = TopicPartition("t", 0)


@pytest.fixture
def driver(cluster: EmbeddedCluster) -> Iterator[DriverClient]:
    client = DriverClient(batch_options(cluster, fetchOffset__retryIntervalMs="1"))
    yield client
    client.close()


@pytest.mark.parametrize(
    ("topics", "shown"),
    [
        (TopicSelection(pattern="x"), "subscribePattern='x'"),
        (TopicSelection(assign=()), "assign={}"),
    ],
)
def test_selection_of_no_partition_is_logged_once(
    cluster: EmbeddedCluster,
    caplog: pytest.LogCaptureFixture,
    topics: TopicSelection,
    shown: str,
) -> None:
    options = replace(batch_options(cluster), topics=topics)
    driver = DriverClient(options)
    try:
        assert driver.partitions() == driver.partitions() == ()
    finally:
        driver.close()
    assert caplog.text.count(f"{shown} selects no partition of the cluster") == 1


def test_call_sends_one_request_per_broker(cluster: EmbeddedCluster, driver: DriverClient) -> None:
    assert len(driver.partitions()) == 3
    before = len(cluster.requests(MetadataRequest))
    partitions = driver.partitions()
    assert len(cluster.requests(MetadataRequest)) == before + 1
    for _ in range(3):
        assert driver.latest(partitions, {}) == dict.fromkeys(partitions, 0)
    # A request without topics only detects the broker's version.
    requests = [request for request in cluster.requests(ListOffsetsRequest) if request.topics]
    assert len(requests) == 6


def test_end_below_known_offset_is_fetched_again(
    driver: DriverClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    responses = [6, 6, 10, 11]

    async def ends(router: Any, partitions: Any, which: int) -> ResolvedOffsets:
        return {T0: responses.pop(0)}

    monkeypatch.setattr(driver_module, "_list_offsets", ends)
    assert driver.latest([T0], {T0: 10}) == {T0: 10}
    assert responses == [11]
    responses[:] = [6] * 9
    assert driver.latest([T0], {T0: 10}) == {T0: 6}
    assert len(responses) == 5  # the first call, and fetchOffset.numRetries retries


def test_missing_known_partition_is_fetched_again(
    driver: DriverClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    responses: list[tuple[TopicPartition, ...]] = [(), (), (T0,), ()]
    monkeypatch.setattr(driver_module, "choose_partitions", lambda *_, **__: responses.pop(0))
    assert driver.partitions(known=[T0]) == (T0,)
    assert responses == [()]
    responses[:] = [()] * 9
    assert driver.partitions(known=[T0]) == ()
    assert len(responses) == 5  # the first call, and fetchOffset.numRetries retries


def test_call_for_deleted_topic_does_not_create_it(
    cluster: EmbeddedCluster,
) -> None:
    once = batch_options(cluster, fetchOffset__numRetries="0", kafka__request__timeout__ms="1000")
    driver = DriverClient(once)
    try:
        partitions = driver.partitions()
        cluster.delete_topic("t")
        driver.partitions(known=[])
        with pytest.raises(KafkaError, match="'t'"):
            driver.latest(partitions, {})
    finally:
        driver.close()
    with pytest.raises(ValueError, match="topic 't' doesn't exist"):
        cluster.offsets("t", 0)


def test_call_after_lost_connections_succeeds(
    cluster: EmbeddedCluster, driver: DriverClient
) -> None:
    partitions = driver.partitions()
    cluster.drop_connections()
    fill(cluster, [2])
    assert driver.latest(partitions, {})[T0] == 2
    cluster.kill(0)
    assert driver.latest(partitions, {})[T0] == 2


def on_0_10_0(given: ReadOptions) -> ReadOptions:
    """Take the broker for 0.10.0, which has timestamps but no index of them."""
    network = {**given.client.network, "api_version": "0.10.0"}
    return replace(given, client=replace(given.client, network=network))


def test_by_time_uses_index_or_reads_the_segment() -> None:
    """From 0.10.1 on the broker finds the offset; before, the driver reads the segment."""
    times = [1000, 3000, 2000, 5000]
    with EmbeddedCluster(version="0.10", topics={"t": 1}, clock=lambda: 20.0) as cluster:
        for at in times:
            cluster.append("t", 0, [b"x"], timestamp_ms=at)
        for given, fetches in (
            (batch_options(cluster), False),
            (on_0_10_0(batch_options(cluster)), True),
        ):
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
                # Messages after the latest offset of the query don't count.
                bound = TimestampBound("startingTimestamp", 5000)
                assert driver.by_time(bound, [T0], {T0: 2}, start=False) == {T0: 2}
            finally:
                driver.close()


@pytest.mark.parametrize("line", ["0.8.2", "0.10"])
def test_by_time_distinguishes_format_0_from_no_match(line: str) -> None:
    """A broker of 0.10 has the same response for both: no message of that time."""
    with EmbeddedCluster(version=line, topics={"t": 1}, clock=lambda: 20.0) as cluster:
        cluster.append_raw("t", 0, encode_entry(0, None, b"old", magic=0))
        bound = TimestampBound("startingTimestamp", 2000)
        for strategy in ("error", "latest", "segment"):
            driver = DriverClient(
                batch_options(cluster, startingOffsetsByTimestampStrategy=strategy)
            )
            try:
                with pytest.raises(IllegalArgumentError, match="Use endingOffsets") as caught:
                    driver.by_time(
                        TimestampBound("endingTimestamp", 2000), [T0], {T0: 1}, start=False
                    )
                assert "the messages have no timestamps" in caught.value.text
                assert "segment" not in caught.value.text
                if strategy == "segment":
                    assert driver.by_time(bound, [T0], {T0: 1}, start=True) == {T0: 0}
                else:
                    with pytest.raises(IllegalArgumentError, match="messages have no timestamps"):
                        driver.by_time(bound, [T0], {T0: 1}, start=True)
            finally:
                driver.close()


def test_by_time_scans_with_the_options_of_the_tasks() -> None:
    """With other options, the driver would fail a query that the tasks can read."""
    broken = bytearray(encode_entry(0, None, b"broken", magic=1, timestamp_ms=1000))
    broken[-1] ^= 1
    with EmbeddedCluster(version="0.10", topics={"t": 1}, clock=lambda: 20.0) as cluster:
        cluster.append_raw("t", 0, bytes(broken))
        cluster.append("t", 0, [b"found"], timestamp_ms=2000)
        given = {
            check: batch_options(cluster, kafka__check__crcs=check) for check in ("true", "false")
        }
        for checked, expected in (
            (on_0_10_0(given["true"]), None),
            (on_0_10_0(given["false"]), {T0: 1}),
            (given["true"], {T0: 1}),  # the broker reads only timestamps, no CRC
        ):
            driver = DriverClient(checked)
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
def test_by_time_scans_past_messages_up_to_the_limit(limit: str) -> None:
    with EmbeddedCluster(version="0.10", topics={"t": 1}, clock=lambda: 20.0) as cluster:
        cluster.append("t", 0, [bytes(5000)], timestamp_ms=1000)
        cluster.append("t", 0, [b"found"], timestamp_ms=2000)
        sizes = {"kafka__max__partition__fetch__bytes": "1000", "kafka__fetch__max__bytes": limit}
        driver = DriverClient(on_0_10_0(batch_options(cluster, **sizes)))
        bound = TimestampBound("startingTimestamp", 2000)
        try:
            if limit == "1000":
                with pytest.raises(RecordTooLargeError):
                    driver.by_time(bound, [T0], {T0: 2}, start=True)
            else:
                assert driver.by_time(bound, [T0], {T0: 2}, start=True) == {T0: 1}
        finally:
            driver.close()


def test_end_below_a_known_offset_looks_for_another_leader(cluster: EmbeddedCluster) -> None:
    """A former leader that doesn't know yet that it is one answers with an older end."""
    driver = DriverClient(batch_options(cluster, fetchOffset__retryIntervalMs="300"))
    try:
        partitions = driver.partitions()
        before = len(cluster.history)
        assert driver.latest(partitions, {T0: 5})[T0] < 5
        asked = [type(one.request) for one in cluster.history[before:]]
        first, *_, last = [at for at, one in enumerate(asked) if one is ListOffsetsRequest]
        assert MetadataRequest in asked[first:last]
    finally:
        driver.close()


@pytest.mark.parametrize(
    ("given", "start_s", "request_s"),
    [({}, 25, 30), ({"kafka__request__timeout__ms": "7000"}, 7, 7)],
)
def test_wrong_address_is_tried_for_less_than_30_s(
    cluster: EmbeddedCluster, given: dict[str, str], start_s: float, request_s: float
) -> None:
    config = driver_module.network_config(batch_options(cluster, **given).client)
    assert (config.start_timeout_s, config.request_timeout_s) == (start_s, request_s)


# --- TLS ------------------------------------------------------------------------------------------


def test_unreadable_tls_file_raises_with_its_path() -> None:
    with pytest.raises(KafkaConfigurationError) as caught:
        driver_module.executor_ssl_context(TlsOptions(cafile="/nowhere/ca.pem"))
    assert "kafka.ssl.*: CA file '/nowhere/ca.pem'" in str(caught.value)
    assert "certificate" not in str(caught.value)
    assert "and on each executor" in str(caught.value)


@pytest.mark.real
@pytest.mark.timeout(180)
def test_real_cluster_responses_over_tls() -> None:
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
