"""The doctor on the embedded cluster, brought into states that it finds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from aiokafka08 import AIOKafkaConsumer, TopicPartition
from aiokafka08._tools.doctor.examination import examine
from aiokafka08._tools.doctor.finding import Finding, FindingCode
from aiokafka08.protocol.message_set import encode_entry
from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.protocol.requests.list_offsets import ListOffsetsRequest
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.testing import Close, EmbeddedCluster
from tests._tools.cli.conftest import RunCommand
from tests._tools.doctor.samples import look_at, told

TP = TopicPartition("t", 0)


async def examined(
    cluster: EmbeddedCluster, watch: Callable[[], Awaitable[object]] | None = None
) -> list[Finding]:
    """Return the findings, without notes; `watch` runs between the two samples."""

    async def sleep(seconds: float) -> None:
        assert watch is not None
        await watch()

    watch_s = None if watch is None else 60
    seen = await look_at(cluster.bootstrap_servers, watch_s=watch_s, sleep=sleep)
    return [one for one in examine(seen) if one.code.severity != "note"]


async def commit(cluster: EmbeddedCluster, offset: int, group: str = "g") -> None:
    """Commit an offset without being a member of the group."""
    consumer: AIOKafkaConsumer[bytes, bytes] = AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers, group_id=group, enable_auto_commit=False
    )
    consumer.assign([TP])
    async with consumer:
        await consumer.commit({TP: offset})


async def nothing() -> None:
    """Change nothing between the two samples."""


# --- brokers and replicas -------------------------------------------------------------------------


async def test_healthy_cluster() -> None:
    async with EmbeddedCluster(3, topics={"t": 6}) as cluster:
        cluster.append("t", 0, [b"v"] * 10)
        assert await examined(cluster) == []


async def test_partitions_without_leader_or_replica() -> None:
    async with EmbeddedCluster(3) as cluster:
        cluster.create_topic("t", 3, 1)
        cluster.create_topic("u", 2, 3)
        cluster.shrink_isr("u", 0, 1)
        cluster.kill(2, then="leaderless")
        found = await examined(cluster)
    assert told(found) == [
        ("leaderless-partition", "topic 't', partition 2"),
        ("under-replicated", "topic 'u', partition 0"),
        ("under-replicated", "topic 'u', partition 1"),
    ]


@pytest.mark.parametrize("zookeeper", [None, "127.0.0.1:1"])
async def test_stale_isr_of_0_8_is_only_a_note(zookeeper: str | None) -> None:
    """A restarted broker is in sync again, which Metadata of 0.8 doesn't show."""
    async with EmbeddedCluster(3, version="0.8.2") as cluster:
        cluster.create_topic("t", 3, 3)
        cluster.kill(1)
        cluster.restart(1)
        seen = await look_at(cluster.bootstrap_servers, zookeeper, 1.0, watch_s=None)
    found = told(examine(seen))
    assert ("unchecked", "topic 't', partitions 0-2") in found
    assert {code for code, _ in found} <= {"unchecked", "unreadable"}


async def test_broker_that_is_dead_and_unnoticed() -> None:
    async with EmbeddedCluster(2, topics={"t": 2}) as cluster:
        cluster.kill(1, then="unnoticed")
        found = await examined(cluster)
    assert told(found)[0] == (
        "unreachable-broker",
        f"broker 1 at 127.0.0.1:{cluster.nodes[1].port}",
    )
    assert len(found) == 1  # the offsets that it doesn't return are no finding of their own
    assert found[0].cause == "broker 1 is missing"


# --- groups ---------------------------------------------------------------------------------------


async def test_idle_group() -> None:
    async with EmbeddedCluster(version="0.10", topics={"t": 1}) as cluster:
        cluster.append("t", 0, [b"v"] * 10)
        await commit(cluster, 4)
        assert told(await examined(cluster)) == [("idle-group-lag", "group 'g' (kafka)")]

        async def work() -> None:
            await commit(cluster, 5)

        assert await examined(cluster, work) == []


async def test_group_that_retention_overtakes() -> None:
    async with EmbeddedCluster(version="0.10", topics={"t": 1}) as cluster:
        cluster.append("t", 0, [b"v"] * 1000)
        cluster.delete_before("t", 0, 100)
        await commit(cluster, 200)

        async def write() -> None:
            cluster.append("t", 0, [b"v"] * 600)
            await commit(cluster, 205)

        async def delete() -> None:
            cluster.delete_before("t", 0, 300)
            await commit(cluster, 210)

        assert told(await examined(cluster, write)) == [
            ("retention-near", "group 'g' (kafka), topic 't', partition 0")
        ]
        assert told(await examined(cluster, delete)) == [
            ("group-overtaken", "group 'g' (kafka), topic 't', partition 0")
        ]


async def test_group_after_the_end_of_a_log_that_was_cut() -> None:
    async with EmbeddedCluster(version="0.9", topics={"t": 1}) as cluster:
        cluster.append("t", 0, [b"v"] * 10)
        async with AIOKafkaConsumer(
            "t", bootstrap_servers=cluster.bootstrap_servers, group_id="g"
        ) as consumer:
            await consumer.commit({TP: 10})
            cluster.truncate("t", 0, 7)
            assert told(await examined(cluster, nothing)) == [
                ("offset-beyond-end", "group 'g' (kafka), topic 't', partition 0")
            ]


@pytest.mark.parametrize("committed", [2, 3])
async def test_group_in_front_of_damage(committed: int) -> None:
    """Zeroed bytes stand at offset 2, in the set of 2 and 3: the next set begins at 4."""
    async with EmbeddedCluster(version="0.9", topics={"t": 1}) as cluster:
        cluster.append("t", 0, [b"v"] * 2)
        damaged = bytes(64) + encode_entry(3, None, b"v")
        cluster.append_raw("t", 0, damaged, next_offset=4)
        cluster.append("t", 0, [b"v"] * 2)
        await commit(cluster, committed)
        await commit(cluster, 1, "well")
        findings = await examined(cluster)
        [finding] = [found for found in findings if found.code is FindingCode.DAMAGED_LOG]
        assert told([finding]) == [("damaged-log", "group 'g' (kafka), topic 't', partition 0")]
        assert "can be read again from 4 on" in finding.why
        assert "group reset g --to-offset 4 --topic t:0" in finding.action


# --- messages -------------------------------------------------------------------------------------


async def test_topic_with_two_formats() -> None:
    async with EmbeddedCluster(version="0.10", topics={"t": 1, "u": 1}) as cluster:
        cluster.append("u", 0, [b"v"])
        cluster.append_raw("t", 0, encode_entry(0, None, b"v"))
        cluster.append_raw("t", 0, encode_entry(1, None, b"v", magic=1, timestamp_ms=1))
        assert told(await examined(cluster)) == [("mixed-formats", "topic 't'")]


@pytest.mark.parametrize("version", ["0.8.0", "0.9"])
async def test_topic_with_a_format_that_is_newer(version: str) -> None:
    async with EmbeddedCluster(version=version, topics={"t": 1}) as cluster:
        cluster.append_raw("t", 0, encode_entry(0, None, b"v", magic=1, timestamp_ms=1))
        assert told(await examined(cluster)) == [("foreign-format", "topic 't'")]


async def test_logs_that_can_not_be_sampled_are_left_out() -> None:
    async with EmbeddedCluster(version="0.10", topics={"t": 1}) as cluster:
        cluster.append("t", 0, [b"v"] * 1000)
        cluster.fault(FetchRequest, then=Close(), times=None)
        assert await examined(cluster) == []


@pytest.mark.parametrize(("messages", "is_found"), [(2_000, False), (30_000, True)])
async def test_slow_fetches_of_a_short_log_are_no_long_search(
    messages: int, is_found: bool
) -> None:
    """On a busy machine each fetch is slow, however little it brings."""
    async with EmbeddedCluster(version="0.8.2", topics={"t": 1}) as cluster:
        cluster.append("t", 0, [b"v" * 100] * messages)

        def spent_s() -> float:
            fetches = cluster.requests(FetchRequest)
            sizes = [fetch.topics[0].partitions[0].max_bytes for fetch in fetches]
            return sum(0.009 + size / (1 << 30) for size in sizes)

        seen = await look_at(cluster.bootstrap_servers, watch_s=None, search_clock=spent_s)
    found = [one.code for one in examine(seen) if one.code.severity != "note"]
    assert found == [FindingCode.LARGE_SETS] * is_found


# --- the command ----------------------------------------------------------------------------------


@pytest.mark.kafka_cluster(brokers=2, version="0.9", topics={"t": 2})
def test_exit_code_and_output(cli: RunCommand, kafka_cluster: EmbeddedCluster) -> None:
    address = ("-b", kafka_cluster.bootstrap_servers)
    done = cli("doctor", *address, "--format", "json")
    assert (done.code, done.err) == (0, "")
    assert done.json["healthy"] is True
    assert {one["severity"] for one in done.json["findings"]} == {"note"}
    kafka_cluster.shrink_isr("t", 1)
    done = cli("doctor", *address, "--format", "json")
    assert (done.code, done.err, done.json["healthy"]) == (1, "", False)
    first = done.json["findings"][0]
    assert list(first) == ["code", "severity", "where", "why", "action", "cause"]
    assert [*first.values()][:3] == ["under-replicated", "warning", "topic 't', partition 1"]
    done = cli("doctor", *address, "--format", "table")
    assert done.code == 1
    assert done.lines[0] == "WARNING   under-replicated: topic 't', partition 1"
    assert done.lines[-1].startswith("unhealthy: 1 warning, ")
    done = cli("doctor", *address)  # not on a terminal
    assert done.lines[0] == "code\tseverity\twhere\twhy\taction"
    done = cli("doctor", *address, "--watch", "1ms", "--format", "jsonl")
    assert (done.code, len(done.lines) > 1) == (1, True)


@pytest.mark.kafka_cluster(brokers=2, version="0.9", topics={"t": 2})
def test_ignored_codes_are_left_out(cli: RunCommand, kafka_cluster: EmbeddedCluster) -> None:
    kafka_cluster.shrink_isr("t", 1)
    address = ("-b", kafka_cluster.bootstrap_servers, "--format", "json")
    done = cli("doctor", *address, "--ignore", "under-replicated")
    assert (done.code, done.json["healthy"]) == (0, True)
    assert [one["code"] for one in done.json["findings"]] == ["unchecked"]
    done = cli("doctor", *address, "--ignore", "under-replicated", "--ignore", "unchecked")
    assert (done.code, done.json["findings"]) == (0, [])
    done = cli("doctor", *address, "--ignore", "isr")
    assert (done.code, done.out) == (2, b"")
    assert done.err.startswith("aiokafka08: --ignore='isr': expected one of keytab-unusable, ")


def test_cluster_that_can_not_be_looked_at(cli: RunCommand) -> None:
    done = cli("doctor", "-b", "127.0.0.1:1", "--timeout", "0.3")
    assert (done.code, done.out) == (2, b"")
    assert done.err.startswith("aiokafka08: ")
    assert done.err.count("\n") == 1


@pytest.mark.kafka_cluster(topics={"t": 1})
def test_zookeeper_that_refuses_is_one_finding(
    cli: RunCommand, kafka_cluster: EmbeddedCluster
) -> None:
    """The brokers were looked at, so the exit code is that of findings."""
    pytest.importorskip("kazoo")
    at = ("-b", kafka_cluster.bootstrap_servers, "--zookeeper", "127.0.0.1:1", "--format", "json")
    done = cli("doctor", *at, "--ignore", "unknown-settings")
    assert (done.code, done.err) == (1, "")
    [found] = [one for one in done.json["findings"] if one["severity"] != "note"]
    assert found["code"] == "unreadable"
    assert found["why"].startswith("groups and topics in ZooKeeper not read: ZooKeeper 127.0.0.1:1")
    assert found["action"].startswith("Check zookeeper.connect, and that ZooKeeper runs there.")


@pytest.mark.parametrize("value", ["soon", "-5s", ""])
def test_wrong_watch(cli: RunCommand, value: str) -> None:
    done = cli("doctor", "-b", "127.0.0.1:1", "--watch", value)
    assert (done.code, done.out) == (2, b"")
    assert done.err.startswith(f"aiokafka08: --watch={value!r}: expected ")


@pytest.mark.kafka_cluster(topics={"t": 1})
def test_no_topic_is_requested_by_name(cli: RunCommand, kafka_cluster: EmbeddedCluster) -> None:
    """On 0.8 that would create it, should it be deleted meanwhile."""
    kafka_cluster.fault(ListOffsetsRequest, then=Close(), nth=3, times=3)
    kafka_cluster.append("t", 0, [b"v"])
    cli("doctor", "-b", kafka_cluster.bootstrap_servers)
    requests = kafka_cluster.requests(MetadataRequest)
    assert requests
    assert not any(request.topics for request in requests)
