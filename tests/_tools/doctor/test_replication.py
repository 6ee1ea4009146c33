"""Rules about leaders, replicas and ISRs."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from aiokafka08._tools.doctor.replication import (
    leaderless,
    long_names,
    not_leading,
    pending_reassignment,
    stale_isr,
    under_replicated,
    unknown_isr,
)
from aiokafka08._tools.monitoring.cluster_sample import ClusterSample, PartitionSample, TopicSample
from tests._tools.doctor.samples import cluster, partition, told


def test_leaderless_partitions_of_a_topic_are_one_finding() -> None:
    dead = partition(isr=[], leader=None)
    seen = cluster(dead, partition(), dead, dead)
    assert told(leaderless(seen)) == [("leaderless-partition", "topic 't', partitions 0, 2-3")]


def test_order_of_replicas_does_not_split_a_finding() -> None:
    def brokers(*node_ids: int, **others: Any) -> PartitionSample:
        return partition(node_ids, node_ids, **others)

    seen = cluster(brokers(1, 2, lacks_replica=True), brokers(2, 1, lacks_replica=True))
    assert told(under_replicated(seen)) == [("under-replicated", "topic 't', partitions 0-1")]
    seen = cluster(
        brokers(leader=None, assigned=(1, 2), stored_isr=(1, 2)),
        brokers(leader=None, assigned=(2, 1), stored_isr=(2, 1)),
    )
    assert told(leaderless(seen)) == [("leaderless-partition", "topic 't', partitions 0-1")]
    moving = {0: (3, 1), 1: (1, 3)}
    seen = ClusterSample({}, {"t": TopicSample({}, None, moving=moving)}, (), has_zookeeper=True)
    assert told(pending_reassignment(seen)) == [
        ("pending-reassignment", "topic 't', partitions 0-1")
    ]


@pytest.mark.parametrize(
    ("isr", "assigned", "action"),
    [
        ([2, 1], [1, 2], "Start brokers 1, 2: the last ISR, which has all messages. "),
        ([], [1, 2], "Start brokers 1, 2, which have its replicas. The ISR in ZooKeeper is empty"),
        (None, None, "Start the stopped brokers. --zookeeper shows which "),
    ],
)
def test_leaderless_partition_names_brokers_to_start(
    isr: list[int] | None, assigned: list[int] | None, action: str
) -> None:
    dead = partition([], [], leader=None, assigned=assigned, stored_isr=isr)
    [found] = leaderless(cluster(dead))
    assert found.where == "topic 't', partition 0"
    assert found.action.startswith(action)


def test_topic_without_partitions_is_leaderless() -> None:
    assert told(leaderless(cluster())) == [("leaderless-partition", "topic 't'")]


def test_broker_that_refuses_to_lead_is_found() -> None:
    """Brokers of 0.8 and 0.9 after a restart with a topic of a too long name."""
    refused = partition(leader=1)._replace(is_refused=True)
    seen = cluster(partition(leader=1), refused, partition(leader=0), refused)
    [found] = not_leading(seen, seen)
    assert (found.code.value, found.where) == ("not-leading", "broker 1 at kafka1:9092")
    assert "the leader of 3 partitions, and it leads 1 of them: it responds" in found.why
    assert "isn't the leader of t/1, t/3" in found.why
    over = cluster(partition(leader=1), partition(leader=1), partition(leader=0))
    assert not list(not_leading(seen, over))
    assert not list(not_leading(over, seen))  # a change of leaders


def test_live_broker_that_is_in_sync_with_nothing_is_found() -> None:
    seen = cluster(partition(isr=[0, 1]), partition(isr=[0, 1], leader=1))
    [found] = not_leading(seen, seen)
    assert (found.code.value, found.where) == ("not-leading", "broker 2 at kafka2:9092")
    assert (
        "leads nothing and is in sync with nothing, though it has replicas of 2 part" in found.why
    )
    in_sync = cluster(partition(isr=[0, 1]), partition(isr=[0, 1, 2], leader=1))
    assert not list(not_leading(in_sync, in_sync))  # it waits for the preferred election


@pytest.mark.parametrize(
    ("length", "partitions", "why"),
    [
        (249, 1, None),
        (250, 1, "its name has 250 characters; Kafka's limit from 0.10 on is 249. From a certain"),
        (253, 10, "its name has 253 characters; Kafka's limit from 0.10 on is 249. From a certain"),
        (253, 11, "The folder of a partition has 256, and file systems allow 255: after its next"),
        (255, 1, "The folder of a partition has 257, and file systems allow 255"),
    ],
)
def test_topics_with_too_long_names_are_found(
    length: int, partitions: int, why: str | None
) -> None:
    found = list(long_names(cluster(*[partition()] * partitions, topic="x" * length)))
    assert told(found) == [("long-topic-name", f"topic {'x' * length!r}")] * (why is not None)
    assert why is None or why in found[0].why


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (partition(isr=[0, 1]), "2 of 3 replicas in sync; missing: broker 2. Fewer failures"),
        (partition(isr=[0]), "1 of 3 replicas in sync; missing: brokers 1, 2. If the leader"),
        # 0.8.2 and 0.9 leave dead brokers out (docs/brokers.md 4.7)
        (
            partition([0, 1], [0, 1], lacks_replica=True),
            "2 of at least 3 replicas in sync; Metadata leaves out a replica on a dead",
        ),
        (
            partition([0, 1], [0, 1], assigned=[0, 1, 7], stored_isr=[0, 1]),
            "2 of 3 replicas in sync; missing: broker 7 (the cluster doesn't name broker 7 any",
        ),
    ],
)
def test_missing_replicas_are_found(one: PartitionSample, why: str) -> None:
    [found] = under_replicated(cluster(one))
    assert (found.code.value, found.where) == ("under-replicated", "topic 't', partition 0")
    assert found.why.startswith(why)


@pytest.mark.parametrize(
    "one",
    [
        partition(),
        partition(isr=[], leader=None),  # a finding of its own
        # ZooKeeper decides
        partition(isr=[0], assigned=[0, 1, 2], stored_isr=[2, 1, 0]),
        partition([0], [0], lacks_replica=True, assigned=[0, 1], stored_isr=[0, 1]),
    ],
)
def test_complete_isr_is_no_finding(one: PartitionSample) -> None:
    assert not list(under_replicated(cluster(one)))


def test_isr_of_0_8_that_lacks_a_live_replica_is_a_note() -> None:
    perhaps = partition([0, 1], [0])._replace(perhaps_in_sync=(1,))
    seen = cluster(perhaps, partition([0, 1], [0, 1]))
    assert not list(under_replicated(seen))
    assert not list(not_leading(seen, seen))
    [found] = unknown_isr(seen, asks_zookeeper=False)
    assert told([found]) == [("unchecked", "topic 't', partition 0")]
    assert found.why.startswith("Metadata reports broker 1 as out of sync. On 0.8 its ISR may be")
    assert found.action.startswith("Give --zookeeper host:2181/chroot")


def test_dead_replica_beside_one_with_a_stale_isr_is_found() -> None:
    one = partition([0, 1], [0], lacks_replica=True)._replace(perhaps_in_sync=(1,))
    [found] = under_replicated(cluster(one))
    assert found.why.startswith("1 to 2 of at least 3 replicas in sync; Metadata leaves out")


def test_isr_that_stays_different_is_stale() -> None:
    stale = cluster(partition(isr=[0, 2], assigned=[0, 1, 2], stored_isr=[2, 1, 0]), config={})
    [found] = stale_isr(stale, stale, {0: "0.8"})
    assert told([found]) == [("stale-isr", "topic 't', partition 0")]
    assert "Metadata reports the ISR [0, 2], ZooKeeper has [0, 1, 2]" in found.why


def test_passing_difference_of_isrs_is_not_stale() -> None:
    stale = cluster(partition(isr=[0, 2], stored_isr=[0, 1, 2]), config={})
    other = cluster(partition(isr=[0], stored_isr=[0, 1, 2]), config={})
    same = cluster(partition(isr=[2, 0, 1], stored_isr=[0, 1, 2]), config={})
    for first, last in ((stale, same), (same, stale), (other, stale)):
        assert not list(stale_isr(first, last, {0: "0.8"}))


def test_dead_broker_in_the_stored_isr_is_not_stale() -> None:
    """ZooKeeper keeps a dead broker in the ISR until the leader notices."""
    seen = cluster(partition([0, 1], [0, 1], stored_isr=[0, 1, 2]), config={}, brokers=[0, 1])
    assert not list(stale_isr(seen, seen, {0: "0.8"}))


def test_newer_brokers_report_an_isr_with_a_delay() -> None:
    stale = cluster(partition(isr=[0, 1, 2], stored_isr=[0, 1]), config={})
    assert not list(stale_isr(stale, stale, {0: "0.9"}))
    assert told(stale_isr(stale, dataclasses.replace(stale), {0: "0.9"}))
