"""The metrics of a sample: names and labels of kafka_exporter, and nothing that isn't known."""

from __future__ import annotations

from aiokafka08._tools.monitoring.cluster_history import ClusterHistory
from aiokafka08._tools.monitoring.cluster_sample import (
    BrokerSample,
    ClusterSample,
    GroupSample,
    PartitionSample,
    TopicSample,
)
from aiokafka08._tools.monitoring.metric_families import broker_families, cluster_families
from aiokafka08.structs import TopicPartition

KAFKA_EXPORTER = {
    "kafka_brokers": (),
    "kafka_broker_info": ("id", "address"),
    "kafka_topic_partitions": ("topic",),
    "kafka_topic_partition_current_offset": ("topic", "partition"),
    "kafka_topic_partition_oldest_offset": ("topic", "partition"),
    "kafka_topic_partition_leader": ("topic", "partition"),
    "kafka_topic_partition_replicas": ("topic", "partition"),
    "kafka_topic_partition_in_sync_replica": ("topic", "partition"),
    "kafka_topic_partition_leader_is_preferred": ("topic", "partition"),
    "kafka_topic_partition_under_replicated_partition": ("topic", "partition"),
    "kafka_consumergroup_current_offset": ("consumergroup", "topic", "partition"),
    "kafka_consumergroup_current_offset_sum": ("consumergroup", "topic"),
    "kafka_consumergroup_lag": ("consumergroup", "topic", "partition"),
    "kafka_consumergroup_lag_sum": ("consumergroup", "topic"),
    "kafka_consumergroupzookeeper_lag_zookeeper": ("consumergroup", "topic", "partition"),
    "kafka_consumergroup_members": ("consumergroup",),
}
"""The metrics of danielqsj/kafka_exporter at commit 953e2f1, kafka_exporter.go."""

T0, T1, GONE = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("gone", 0)

Series = dict[str, dict[tuple[str, ...], float]]


def values(sample: ClusterSample) -> Series:
    history = ClusterHistory()
    history.add(0, sample)
    families = broker_families(list(sample.brokers.values()))
    families += cluster_families(sample, history, 10)
    assert len({family.name for family in families}) == len(families)
    for family in families:
        assert all(len(labels) == len(family.labels) for labels, _ in family.series)
        assert len(dict(family.series)) == len(family.series), family.name
    return {family.name: dict(family.series) for family in families}


def sample(*groups: GroupSample, **partitions: PartitionSample) -> ClusterSample:
    numbers = {int(name[1:]): one for name, one in partitions.items()}
    return ClusterSample(
        {1: BrokerSample(1, "a:9092"), 2: BrokerSample(2, "b:9092", error="connection refused")},
        {"t": TopicSample(numbers)} if numbers else {},
        groups,
    )


def test_names_and_labels_are_those_of_kafka_exporter() -> None:
    families = broker_families([]) + cluster_families(sample(), ClusterHistory(), 0)
    ours = {family.name: tuple(family.labels) for family in families}
    assert ours | KAFKA_EXPORTER == ours
    assert sorted(ours.keys() - KAFKA_EXPORTER) == [
        "kafka_broker_up",
        "kafka_consumergroup_info",
        "kafka_consumergroup_lag_seconds",
        "kafka_consumergroup_offset_beyond_end",
        "kafka_consumergroup_retention_headroom_seconds",
        "kafka_consumergroup_uncommitted_partitions",
    ]


def test_brokers_that_respond_are_counted() -> None:
    found = values(sample())
    assert found["kafka_brokers"] == {(): 1}
    assert found["kafka_broker_up"] == {("1", "a:9092"): True, ("2", "b:9092"): False}
    assert found["kafka_broker_info"] == {("1", "a:9092"): 1, ("2", "b:9092"): 1}


def test_partition_in_good_health() -> None:
    found = values(sample(p0=PartitionSample(1, (1, 2), (1, 2), start=5, end=9)))
    assert {
        name.removeprefix("kafka_topic_partition_"): series.get(("t", "0"))
        for name, series in found.items()
        if name.startswith("kafka_topic_partition_")
    } == {
        "current_offset": 9,
        "oldest_offset": 5,
        "leader": 1,
        "leader_is_preferred": True,
        "replicas": 2,
        "in_sync_replica": 2,
        "under_replicated_partition": False,
    }
    assert found["kafka_topic_partitions"] == {("t",): 1}


def test_leaderless_partition_has_no_offsets() -> None:
    found = values(sample(p0=PartitionSample(None, (1,), ())))
    assert found["kafka_topic_partition_leader"] == {("t", "0"): -1}
    assert found["kafka_topic_partition_leader_is_preferred"] == {("t", "0"): False}
    assert found["kafka_topic_partition_under_replicated_partition"] == {("t", "0"): True}
    assert found["kafka_topic_partition_current_offset"] == {}
    assert found["kafka_topic_partition_oldest_offset"] == {}


def test_missing_replica_is_under_replication() -> None:
    """Brokers of 0.8.2 leave a dead replica out of the list, but report that one is missing."""
    found = values(
        sample(
            p0=PartitionSample(1, (1,), (1,), lacks_replica=True),
            p1=PartitionSample(1, (1,), (1,), assigned=(2, 1), stored_isr=(1,)),
        )
    )
    under = found["kafka_topic_partition_under_replicated_partition"]
    assert under == {("t", "0"): True, ("t", "1"): True}
    assert found["kafka_topic_partition_replicas"] == {("t", "0"): 1, ("t", "1"): 2}
    preferred = found["kafka_topic_partition_leader_is_preferred"]
    assert preferred == {("t", "0"): True, ("t", "1"): False}


def test_isr_that_may_be_stale_has_no_series() -> None:
    perhaps = PartitionSample(1, (1, 2), (1,), perhaps_in_sync=(2,))
    found = values(sample(p0=perhaps, p1=perhaps._replace(lacks_replica=True)))
    assert found["kafka_topic_partition_in_sync_replica"] == {}
    assert found["kafka_topic_partition_under_replicated_partition"] == {("t", "1"): True}


def test_group_in_kafka() -> None:
    group = GroupSample("g", "kafka", ("m1", "m2"), {T0: 4, T1: 20, GONE: 7})
    found = values(
        sample(
            group,
            p0=PartitionSample(1, start=2, end=10),
            p1=PartitionSample(None),
        )
    )
    assert found["kafka_consumergroup_info"] == {("g", "kafka"): 1}
    assert found["kafka_consumergroup_members"] == {("g",): 2}
    assert found["kafka_consumergroup_current_offset"] == {("g", "t", "0"): 4, ("g", "t", "1"): 20}
    assert found["kafka_consumergroup_current_offset_sum"] == {("g", "t"): 24}
    assert found["kafka_consumergroup_lag"] == {("g", "t", "0"): 6}
    assert found["kafka_consumergroup_lag_sum"] == {("g", "t"): 6}
    assert found["kafka_consumergroup_lag_seconds"] == {("g", "t", "0"): 10}
    assert found["kafka_consumergroupzookeeper_lag_zookeeper"] == {}


def test_partitions_without_an_offset_are_counted() -> None:
    both = {"p0": PartitionSample(1, start=0, end=10), "p1": PartitionSample(1, start=0, end=1020)}
    name = "kafka_consumergroup_uncommitted_partitions"
    assert values(sample(GroupSample("g", "kafka", (), {T0: 4}), **both))[name] == {("g", "t"): 1}
    assert values(sample(GroupSample("g", "kafka", (), {T0: 4, T1: 0}), **both))[name] == {
        ("g", "t"): 0
    }


def test_group_in_both_stores_has_the_higher_offset() -> None:
    found = values(
        sample(
            GroupSample("g", "zookeeper", ("m",), {T0: 4, T1: 9}),
            GroupSample("g", "kafka", None, {T0: 8}),
            p0=PartitionSample(1, start=0, end=10),
            p1=PartitionSample(1, start=0, end=10),
        )
    )
    assert found["kafka_consumergroup_info"] == {("g", "kafka"): 1, ("g", "zookeeper"): 1}
    assert found["kafka_consumergroup_members"] == {("g",): 1}
    assert found["kafka_consumergroup_lag"] == {("g", "t", "0"): 2, ("g", "t", "1"): 1}
    zookeeper = found["kafka_consumergroupzookeeper_lag_zookeeper"]
    assert zookeeper == {("g", "t", "0"): 6, ("g", "t", "1"): 1}


def test_offset_after_the_end_is_no_silent_zero() -> None:
    """The higher offset of two stores counts, so a stale one after the end shows too."""
    found = values(
        sample(
            GroupSample("g", "zookeeper", (), {T0: 25, T1: 3}),
            GroupSample("g", "kafka", (), {T0: 8, T1: 10}),
            p0=PartitionSample(1, start=0, end=10),
            p1=PartitionSample(1, start=0, end=10),
        )
    )
    assert found["kafka_consumergroup_lag"] == {("g", "t", "0"): 0, ("g", "t", "1"): 0}
    assert found["kafka_consumergroup_offset_beyond_end"] == {("g", "t", "0"): 15}


def test_group_without_known_members_has_no_members_series() -> None:
    found = values(sample(GroupSample("g", "kafka", None, {})))
    assert found["kafka_consumergroup_members"] == {}
