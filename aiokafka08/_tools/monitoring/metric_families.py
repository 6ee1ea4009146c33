"""Turn a sample of a cluster, and its history, into families of metrics. Pure.

Invariant: names and labels are those of danielqsj/kafka_exporter, so that its dashboards and alerts
work. A series exists only for names in the sample, so none outlives its group, topic or partition;
an unknown value has no series.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from aiokafka08._core.metrics.metric_family import MetricFamily
from aiokafka08._tools.monitoring.cluster_history import ClusterHistory
from aiokafka08._tools.monitoring.cluster_sample import BrokerSample, ClusterSample, GroupSample
from aiokafka08.structs import TopicPartition


def cluster_families(
    sample: ClusterSample, history: ClusterHistory, now: float
) -> list[MetricFamily]:
    """Return the metrics of topics and groups.

    Args:
        sample: the newest sample; the history has it already.
        history: the history of the cluster.
        now: when the sample was taken, by the history's clock.
    """
    return [
        *_topics(sample),
        *_groups(sample, history, now),
    ]


def broker_families(brokers: Collection[BrokerSample]) -> list[MetricFamily]:
    """Return the metrics of brokers."""
    count = MetricFamily(
        "kafka_brokers",
        "Number of Brokers in the Kafka Cluster that respond.",
        series=[((), sum(broker.error is None for broker in brokers))],
    )
    labels = ("id", "address")
    info = MetricFamily("kafka_broker_info", "Information about the Kafka Broker.", labels)
    up = MetricFamily("kafka_broker_up", "1 if the Broker responds, 0 if it doesn't.", labels)
    for broker in brokers:
        info.add(1, str(broker.node_id), broker.address)
        up.add(int(broker.error is None), str(broker.node_id), broker.address)
    return [count, info, up]


def _topics(sample: ClusterSample) -> Iterator[MetricFamily]:
    yield MetricFamily(
        "kafka_topic_partitions",
        "Number of partitions for this Topic",
        ("topic",),
        [((name,), len(topic.partitions)) for name, topic in sorted(sample.topics.items())],
    )

    def per_partition(name: str, text: str) -> MetricFamily:
        return MetricFamily(f"kafka_topic_partition_{name}", text, ("topic", "partition"))

    current = per_partition("current_offset", "Current Offset of a Broker at Topic/Partition")
    oldest = per_partition("oldest_offset", "Oldest Offset of a Broker at Topic/Partition")
    leader = per_partition("leader", "Leader Broker ID of this Topic/Partition, or -1")
    preferred = per_partition(
        "leader_is_preferred", "1 if Topic/Partition is using the Preferred Broker"
    )
    replicas = per_partition("replicas", "Number of Replicas for this Topic/Partition")
    in_sync = per_partition(
        "in_sync_replica", "Number of In-Sync Replicas for this Topic/Partition"
    )
    under = per_partition("under_replicated_partition", "1 if Topic/Partition is under Replicated")
    families = (current, oldest, leader, preferred, replicas, in_sync, under)
    # A large cluster has many partitions, so no attribute is looked up in the loop.
    add = [family.series.append for family in families]
    add_end, add_start, add_leader, add_preferred, add_replicas, add_in_sync, add_under = add
    for tp, partition in sample.partitions():
        labels = tp.topic, str(tp.partition)  # one tuple for all of them
        if partition.end is not None:
            add_end((labels, partition.end))
        if partition.start is not None:
            add_start((labels, partition.start))
        add_leader((labels, -1 if partition.leader is None else partition.leader))
        add_preferred((labels, 1 if partition.has_preferred_leader else 0))
        add_replicas((labels, len(partition.all_replicas)))
        if not partition.perhaps_in_sync:
            add_in_sync((labels, len(partition.in_sync)))
        is_under = partition.is_under_replicated
        if is_under is not None:
            add_under((labels, 1 if is_under else 0))
    yield from families


def _groups(sample: ClusterSample, history: ClusterHistory, now: float) -> list[MetricFamily]:
    families = _GroupFamilies(sample, history, now)
    by_name: dict[str, dict[str, GroupSample]] = {}
    for group in sample.groups:
        by_name.setdefault(group.group, {})[group.store] = group
    for name, stores in sorted(by_name.items()):
        families.add(name, stores)
    return families.all()


class _GroupFamilies:
    """The families of groups, filled group by group."""

    def __init__(self, sample: ClusterSample, history: ClusterHistory, now: float) -> None:
        self._sample = sample
        self._history = history
        self._now = now
        partition = ("consumergroup", "topic", "partition")
        topic = ("consumergroup", "topic")
        prefix = "kafka_consumergroup"
        self._info = MetricFamily(
            f"{prefix}_info",
            "Where the offsets of a ConsumerGroup are: kafka or zookeeper",
            ("consumergroup", "store"),
        )
        self._members = MetricFamily(
            f"{prefix}_members", "Amount of members in a consumer group", ("consumergroup",)
        )
        self._offset = MetricFamily(
            f"{prefix}_current_offset",
            "Current Offset of a ConsumerGroup at Topic/Partition",
            partition,
        )
        self._offset_sum = MetricFamily(
            f"{prefix}_current_offset_sum",
            "Current Offset of a ConsumerGroup at Topic for all partitions",
            topic,
        )
        self._lag = MetricFamily(
            f"{prefix}_lag",
            "Current Approximate Lag of a ConsumerGroup at Topic/Partition",
            partition,
        )
        self._lag_sum = MetricFamily(
            f"{prefix}_lag_sum",
            "Current Approximate Lag of a ConsumerGroup at Topic for all partitions",
            topic,
        )
        self._uncommitted = MetricFamily(
            f"{prefix}_uncommitted_partitions",
            "Number of partitions of Topic without a committed offset of a ConsumerGroup that has "
            "one for other partitions",
            topic,
        )
        self._beyond_end = MetricFamily(
            f"{prefix}_offset_beyond_end",
            "Number of offsets between the end of Topic/Partition and the larger committed offset "
            "of a ConsumerGroup: the log was truncated, or made anew",
            partition,
        )
        self._lag_s = MetricFamily(
            f"{prefix}_lag_seconds",
            "Seconds for which the next message of a ConsumerGroup at Topic/Partition has been "
            "waiting, counted from the exporter's first sample at the earliest",
            partition,
        )
        self._headroom_s = MetricFamily(
            f"{prefix}_retention_headroom_seconds",
            "Seconds until retention deletes the next message of a ConsumerGroup at "
            "Topic/Partition if the group stands still",
            partition,
        )
        self._zookeeper_lag = MetricFamily(
            "kafka_consumergroupzookeeper_lag_zookeeper",
            "Current Approximate Lag(zookeeper) of a ConsumerGroup at Topic/Partition",
            partition,
        )

    def all(self) -> list[MetricFamily]:
        """Return the families."""
        return [
            self._info,
            self._members,
            self._offset,
            self._offset_sum,
            self._lag,
            self._lag_sum,
            self._uncommitted,
            self._beyond_end,
            self._lag_s,
            self._headroom_s,
            self._zookeeper_lag,
        ]

    def add(self, name: str, stores: Mapping[str, GroupSample]) -> None:
        """Add the series of one group; offsets in topics that don't exist any more are left out."""
        members: set[str] = set()
        for store, group in stores.items():
            self._info.add(1, name, store)
            members.update(group.members or ())
        if any(group.members is not None for group in stores.values()):
            self._members.add(len(members), name)
        offsets: dict[str, int] = {}
        counts: dict[str, int] = {}
        lags: dict[str, int] = {}
        for tp, committed in _newest(stores.values()).items():
            partition = self._sample.partition(tp)
            if partition is None:
                continue
            labels = name, tp.topic, str(tp.partition)
            self._offset.add(committed, *labels)
            offsets[tp.topic] = offsets.get(tp.topic, 0) + committed
            counts[tp.topic] = counts.get(tp.topic, 0) + 1
            lag = partition.lag(committed)
            if lag is not None:
                self._lag.add(lag, *labels)
                if beyond := partition.beyond_end(committed):
                    self._beyond_end.add(beyond, *labels)
                lags[tp.topic] = lags.get(tp.topic, 0) + lag
                lag_s = self._history.lag_s(self._now, tp, committed)
                if lag_s is not None:
                    self._lag_s.add(lag_s, *labels)
            headroom_s = self._history.headroom_s(self._now, tp, committed)
            if headroom_s is not None:
                self._headroom_s.add(headroom_s, *labels)
        for topic, total in offsets.items():
            self._offset_sum.add(total, name, topic)
            uncommitted = len(self._sample.topics[topic].partitions) - counts[topic]
            self._uncommitted.add(uncommitted, name, topic)
        for topic, total in lags.items():
            self._lag_sum.add(total, name, topic)
        if "zookeeper" in stores:
            for tp, committed in stores["zookeeper"].committed.items():
                partition = self._sample.partition(tp)
                lag = None if partition is None else partition.lag(committed)
                if lag is not None:
                    self._zookeeper_lag.add(lag, name, tp.topic, str(tp.partition))


def _newest(stores: Iterable[GroupSample]) -> dict[TopicPartition, int]:
    """Return the committed offsets; of a partition in both stores the higher one."""
    # Consumers with `offsets_storage="dual"` start there too, as Scala's do.
    newest: dict[TopicPartition, int] = {}
    for group in stores:
        for tp, offset in group.committed.items():
            newest[tp] = max(offset, newest.get(tp, offset))
    return newest
