"""Rules about leaders, replicas and in-sync replicas (ISR). Pure.

Invariant: the rules judge the last sample. A fault that a change in progress would explain must be
in the first sample too, because brokers learn of a change with a delay.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from aiokafka08._core.topic_names import MAX_NEW_NAME, may_be_new
from aiokafka08._tools.doctor.finding import Finding, FindingCode
from aiokafka08._tools.doctor.places import grouped, node_list, topic_list
from aiokafka08._tools.monitoring.cluster_sample import ClusterSample, PartitionSample
from aiokafka08._wording import counted, partition_name, some_of
from aiokafka08.structs import TopicPartition

# How many bytes the name of a file or folder may have.
_MAX_FOLDER_NAME: Final = 255


def leaderless(cluster: ClusterSample) -> Iterator[Finding]:
    """Find partitions without a leader, and topics without partitions."""
    for name, topic in sorted(cluster.topics.items()):
        if not topic.partitions:
            yield Finding(
                FindingCode.LEADERLESS_PARTITION,
                f"topic {name!r}",
                "the brokers list it without partitions: it can't be written or read",
                "A topic that was just created has its leaders within seconds: look again. If it "
                "stays so, restart the controller's broker",
            )
    without = (
        (tp, (_in_order(partition.stored_isr), _in_order(partition.assigned)))
        for tp, partition in cluster.partitions()
        if partition.leader is None
    )
    for where, (isr, assigned) in grouped(without):
        yield Finding(
            FindingCode.LEADERLESS_PARTITION,
            where,
            "no broker leads it: it can't be written or read",
            _how_to_get_a_leader(isr, assigned),
            missing_brokers(cluster, isr or assigned),
        )


def _how_to_get_a_leader(isr: tuple[int, ...], assigned: tuple[int, ...]) -> str:
    if isr:
        return (
            f"Start {node_list(isr)}: the last ISR, which has all messages. Only if its disks are "
            "lost, let an out-of-sync replica lead (unclean.leader.election.enable=true for the "
            "topic): that loses messages"
        )
    # Where unclean elections are allowed, brokers empty the ISR.
    if assigned:
        return (
            f"Start {node_list(assigned)}, which {'has' if len(assigned) == 1 else 'have'} its "
            "replicas. The ISR in ZooKeeper is empty: the first one that starts leads, so start "
            "the one first that failed last"
        )
    return "Start the stopped brokers. --zookeeper shows which of them have its replicas"


def under_replicated(cluster: ClusterSample) -> Iterator[Finding]:
    """Find partitions that have a leader, but not all replicas in sync."""
    details = (
        (
            tp,
            (
                len(partition.in_sync),
                _replica_count(partition),
                _missing(partition),
                _has_unlisted_replica(partition),
                partition.perhaps_in_sync,
            ),
        )
        for tp, partition in cluster.partitions()
        if partition.leader is not None
    )
    for where, (in_sync, replicas, missing, is_one_unlisted, perhaps) in grouped(details):
        if not missing and not is_one_unlisted:
            continue
        count = f"{in_sync} to {in_sync + len(perhaps)}" if perhaps else str(in_sync)
        why = f"{count} of {replicas} replicas in sync"
        if missing:
            why += f"; missing: {node_list(missing)}"
            if dead := [node_id for node_id in missing if node_id not in cluster.brokers]:
                why += f" (the cluster doesn't name {node_list(dead)} any more)"
        if is_one_unlisted:
            why += "; Metadata leaves out a replica on a dead broker (--zookeeper shows which)"
        consequence = "Fewer failures are survived than there are replicas for"
        if in_sync + len(perhaps) == 1:
            consequence = "If the leader fails too, acknowledged messages may be lost"
        yield Finding(
            FindingCode.UNDER_REPLICATED,
            where,
            f"{why}. {consequence}",
            "Start the missing broker, or see in its log why its replicas fall behind (a full "
            "disk, the network, long garbage collections)",
            missing_brokers(cluster, missing),
        )


def unknown_isr(cluster: ClusterSample, *, asks_zookeeper: bool) -> Iterator[Finding]:
    """Report live replicas missing from an ISR of 0.8, which may be stale (docs/brokers.md 4.8)."""
    perhaps = (
        (tp, partition.perhaps_in_sync)
        for tp, partition in cluster.partitions()
        if partition.perhaps_in_sync
    )
    for where, node_ids in grouped(perhaps):
        verb = "responds" if len(node_ids) == 1 else "respond"
        yield Finding(
            FindingCode.UNCHECKED,
            where,
            f"Metadata reports {node_list(node_ids)} as out of sync. On 0.8 its ISR may be stale: "
            f"{node_list(node_ids)} {verb}, and may be in sync again",
            "See why ZooKeeper wasn't read: it has the true ISR"
            if asks_zookeeper
            else "Give --zookeeper host:2181/chroot, which has the true ISR",
        )


def missing_brokers(cluster: ClusterSample, node_ids: Collection[int]) -> frozenset[int]:
    """Return the brokers if each is dead (not listed any more, or silent); else none."""
    are_missing = all(
        node_id not in cluster.brokers or cluster.brokers[node_id].error is not None
        for node_id in node_ids
    )
    return frozenset(node_ids) if are_missing else frozenset()


def not_leading(first: ClusterSample, last: ClusterSample) -> Iterator[Finding]:
    """Find live brokers that lead nothing, or not the partitions that the cluster says they
    lead.
    """
    before = _refused(first)
    for node_id, refused in _refused(last).items():
        # Only those that are refused in both samples, since a change of leaders takes a moment.
        names = [tp for tp in refused if tp in before.get(node_id, ())]
        if not names:
            continue
        led = sum(partition.leader == node_id for _, partition in last.partitions())
        shown = some_of(sorted(map(partition_name, names)))
        extent = "none" if len(names) == led else f"{led - len(names)} of them"
        yield Finding(
            FindingCode.NOT_LEADING,
            f"broker {node_id} at {last.brokers[node_id].address}",
            f"the cluster names it as the leader of {counted(led, 'partition')}, and it leads "
            f"{extent}: it responds that it isn't the leader of {shown}. They can't be written or "
            "read, though no broker reports an error",
            "A change of leaders ends within seconds: look again. Else see the first ERROR behind "
            "the start in the broker's log. With a long-topic-name finding, that topic is the "
            "cause: delete it, and restart the broker",
        )
    idle = _idle(first)
    for node_id, count in _idle(last).items():
        if node_id in idle and node_id not in before:
            yield Finding(
                FindingCode.NOT_LEADING,
                f"broker {node_id} at {last.brokers[node_id].address}",
                f"it responds, but leads nothing and is in sync with nothing, though it has "
                f"replicas of {counted(count, 'partition')}",
                "A broker that has just started catches up: look again. Else see the first ERROR "
                "behind the start in its log, and restart it. With a long-topic-name finding, that "
                "topic is the cause",
            )


def _refused(cluster: ClusterSample) -> dict[int, set[TopicPartition]]:
    """Return the partitions that each live broker doesn't lead though it is named as the leader."""
    refused: dict[int, set[TopicPartition]] = {}
    for tp, partition in cluster.partitions():
        leader = partition.leader
        if leader is not None and partition.is_refused and leader in cluster.brokers:
            refused.setdefault(leader, set()).add(tp)
    return refused


def _idle(cluster: ClusterSample) -> dict[int, int]:
    """Return the replica count of each live broker that leads nothing and is in no ISR."""
    replicas: dict[int, int] = {}
    busy: set[int | None] = set()
    for _, partition in cluster.partitions():
        # A live replica of a partition without a leader can't come back into the ISR, so it isn't a
        # sign of a broker that doesn't work.
        if partition.leader is None:
            continue
        busy |= {partition.leader, *partition.in_sync, *partition.perhaps_in_sync}
        for node_id in partition.all_replicas:
            replicas[node_id] = replicas.get(node_id, 0) + 1
    return {
        node_id: replicas[node_id]
        for node_id, broker in cluster.brokers.items()
        if broker.error is None and node_id in replicas and node_id not in busy
    }


def long_names(cluster: ClusterSample) -> Iterator[Finding]:
    """Find topics whose names are longer than those of new topics may be."""
    for name, topic in sorted(cluster.topics.items()):
        if may_be_new(name) or not topic.partitions:
            continue
        longest = len(f"{name}-{max(topic.partitions)}")
        why = f"its name has {len(name)} characters; Kafka's limit from 0.10 on is {MAX_NEW_NAME}. "
        # A replica's folder is named after topic and partition, so the longest name decides.
        if longest > _MAX_FOLDER_NAME:
            why += (
                f"The folder of a partition has {longest}, and file systems allow "
                f"{_MAX_FOLDER_NAME}: after its next restart a broker up to 0.9 that has a replica "
                "leads only a part of its partitions, or none"
            )
        else:
            why += (
                "From a certain number of partitions on, a broker up to 0.9 can't make their "
                "folders, and leads only a part of its partitions after a restart, or none"
            )
        yield Finding(
            FindingCode.LONG_TOPIC_NAME,
            f"topic {name!r}",
            why,
            "Copy its messages to a topic with a shorter name, and delete it before a broker is "
            "restarted (aiokafka08 topic delete; 0.8.0 and 0.8.1 can't delete topics)",
        )


def _replica_count(partition: PartitionSample) -> str:
    listed = len(partition.all_replicas)
    return f"at least {listed + 1}" if _has_unlisted_replica(partition) else str(listed)


def _has_unlisted_replica(partition: PartitionSample) -> bool:
    """Return whether the brokers report a dead replica, and don't list it (docs/brokers.md 4.7)."""
    return partition.lacks_replica and partition.assigned is None


def _missing(partition: PartitionSample) -> tuple[int, ...]:
    in_sync = {*partition.in_sync, *partition.perhaps_in_sync}
    return _in_order(set(partition.all_replicas) - in_sync)


def _in_order(node_ids: Collection[int] | None) -> tuple[int, ...]:
    """Return the ids sorted, so that `grouped` ignores the order of replicas; () if unknown."""
    return tuple(sorted(node_ids or ()))


def marked_for_deletion(cluster: ClusterSample) -> Iterator[Finding]:
    """Find topics that are marked for deletion."""
    marked = [name for name, topic in cluster.topics.items() if topic.is_marked]
    if marked:
        yield Finding(
            FindingCode.MARKED_FOR_DELETION,
            topic_list(marked),
            "marked for deletion, and still there: it can't be created again or grow, and is gone "
            "for its producers and consumers as soon as the brokers can delete it",
            "A deletion takes seconds: look again. If it stays so, start the brokers that have "
            "replicas of it, set delete.topic.enable=true (false by default below 1.0; 0.8.0 and "
            "0.8.1 can't delete), and end a reassignment of it. To keep the topic, delete "
            "its node below /admin/delete_topics in ZooKeeper, and restart the controller's broker",
        )


def pending_reassignment(cluster: ClusterSample) -> Iterator[Finding]:
    """Find partitions that are being moved to other brokers."""
    moving = (
        (
            TopicPartition(name, number),
            (_in_order(ids), _in_order(set(ids) - set(cluster.brokers))),
        )
        for name, topic in sorted(cluster.topics.items())
        for number, ids in sorted(topic.moving.items())
    )
    for where, (ids, dead) in grouped(moving):
        away = f"; the cluster doesn't name {node_list(dead)}" if dead else ""
        yield Finding(
            FindingCode.PENDING_REASSIGNMENT,
            where,
            f"its replicas are being moved to {node_list(ids)}{away}. Meanwhile it can't be "
            "deleted, and no other reassignment can begin",
            f"Start {node_list(dead)}, or the move never ends"
            if dead
            else "Look again: the node /admin/reassign_partitions in ZooKeeper is gone once all "
            "new replicas are in sync. If it stays so, see the controller's log",
        )


def stale_isr(
    first: ClusterSample, last: ClusterSample, releases: Mapping[int, str]
) -> Iterator[Finding]:
    """Find partitions whose ISR in Metadata isn't the one in ZooKeeper (docs/brokers.md 4.8)."""
    # Brokers from 0.9 on report each change with a delay, so a difference must be in two samples.
    # If only one sample was taken, it is both the first and the last.
    if first is last and not any(release.startswith("0.8") for release in releases.values()):
        return
    before = dict(_differences(first))
    lasting = ((tp, detail) for tp, detail in _differences(last) if before.get(tp) == detail)
    for where, (reported, stored) in grouped(lasting):
        yield Finding(
            FindingCode.STALE_ISR,
            where,
            f"Metadata reports the ISR {list(reported)}, ZooKeeper has {list(stored)}: monitoring "
            "that reads Metadata sees a failure that is over, or misses one",
            "Trust ZooKeeper. Brokers of 0.8 report it so until the next leader election of the "
            "partition, newer ones for some seconds",
        )


def _differences(
    cluster: ClusterSample,
) -> Iterator[tuple[TopicPartition, tuple[tuple[int, ...], tuple[int, ...]]]]:
    for tp, partition in cluster.partitions():
        if partition.leader is not None and partition.stored_isr is not None:
            # Brokers leave a dead broker out of Metadata before ZooKeeper's ISR shrinks.
            reported, stored = (
                tuple(sorted(node_id for node_id in isr if node_id in cluster.brokers))
                for isr in (partition.isr, partition.stored_isr)
            )
            if reported != stored:
                yield tp, (reported, stored)
