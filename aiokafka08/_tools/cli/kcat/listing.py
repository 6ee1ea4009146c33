"""The output of `kcat -L`: the cluster as text, and as JSON in kcat's form. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable

from aiokafka08._core.net.cluster import ClusterSnapshot, PartitionInfo, TopicInfo
from aiokafka08._core.net.config import address_text
from aiokafka08.errors import LeaderNotAvailableError, ReplicaNotAvailableError, error_class
from aiokafka08.protocol.requests.metadata import Broker


def kcat_text(snapshot: ClusterSnapshot, topics: Iterable[str], query: str | None, at: str) -> str:
    """Return the cluster as kcat prints it.

    Args:
        snapshot: the cluster.
        topics: the topics to list.
        query: the topic that was asked for; None: all.
        at: the bootstrap addresses.
    """
    infos = [snapshot.topics[name] for name in topics]
    node_id, name = _answered(snapshot, at)
    lines = [f"Metadata for {query or 'all topics'} (from broker {node_id}: {name}):"]
    lines.append(f" {len(snapshot.brokers)} brokers:")
    for node_id, broker in snapshot.brokers.items():
        controller = " (controller)" if node_id == snapshot.controller_id else ""
        lines.append(f"  broker {node_id} at {_name(broker)}{controller}")
    lines.append(f" {len(infos)} topics:")
    for info in infos:
        error = _topic_error(info)
        lines.append(
            f'  topic "{info.topic}" with {len(info.partitions)} partitions:'
            + (f" {error}" if error else "")
        )
        for partition, partition_info in sorted(info.partitions.items()):
            failure = _partition_error(partition_info)
            lines.append(
                f"    partition {partition}, leader {_leader(partition_info)}, "
                f"replicas: {','.join(map(str, partition_info.replicas))}, "
                f"isrs: {','.join(map(str, partition_info.isr))}"
                + (f", {failure}" if failure else "")
            )
    return "\n".join(lines) + "\n"


def kcat_json(snapshot: ClusterSnapshot, topics: Iterable[str], query: str | None, at: str) -> str:
    """Return the cluster as the JSON object of `kcat -L -J`; arguments as for `kcat_text`."""
    listed = []
    for name in topics:
        info = snapshot.topics[name]
        error = _topic_error(info)
        partitions = []
        for partition, partition_info in sorted(info.partitions.items()):
            failure = _partition_error(partition_info)
            partitions.append(
                {
                    "partition": partition,
                    **({"error": failure} if failure else {}),
                    "leader": _leader(partition_info),
                    "replicas": [{"id": node_id} for node_id in partition_info.replicas],
                    "isrs": [{"id": node_id} for node_id in partition_info.isr],
                }
            )
        listed.append(
            {"topic": name, **({"error": error} if error else {}), "partitions": partitions}
        )
    node_id, name = _answered(snapshot, at)
    described = {
        "originating_broker": {"id": node_id, "name": name},
        "query": {"topic": query or "*"},
        "controllerid": snapshot.controller_id,
        "brokers": [
            {"id": node_id, "name": _name(broker)} for node_id, broker in snapshot.brokers.items()
        ],
        "topics": listed,
    }
    return json.dumps(described, ensure_ascii=False, separators=(",", ":")) + "\n"


def _answered(snapshot: ClusterSnapshot, at: str) -> tuple[int, str]:
    """Return the id and the name of the broker at a bootstrap address, as kcat names it."""
    for node_id, broker in snapshot.brokers.items():
        if _name(broker) in at.split(","):
            return node_id, f"{_name(broker)}/{node_id}"
    return -1, f"{at}/bootstrap"


def _name(broker: Broker) -> str:
    return address_text((broker.host, broker.port))


def _leader(partition_info: PartitionInfo) -> int:
    return -1 if partition_info.leader is None else partition_info.leader


def _topic_error(info: TopicInfo) -> str | None:
    return _error_name(info.error_code) if info.error_code else None


def _partition_error(partition_info: PartitionInfo) -> str | None:
    if (
        partition_info.error_code in (0, ReplicaNotAvailableError.errno)
        and partition_info.leader is not None
    ):
        return None
    return _error_name(partition_info.error_code or LeaderNotAvailableError.errno)


def _error_name(code: int) -> str:
    return error_class(code).__name__.removesuffix("Error")
