"""The types of the dicts of `describe_topics` and `describe_cluster`; their keys are aiokafka's."""

from __future__ import annotations

from typing import TypedDict


class PartitionDescription(TypedDict):
    """A partition; `leader` is -1 without one. `replicas` and `isr` are node ids."""

    error_code: int
    partition: int
    leader: int
    replicas: list[int]
    isr: list[int]


class TopicDescription(TypedDict):
    """A topic; `error_code` is 0 if it exists."""

    error_code: int
    topic: str
    is_internal: bool
    partitions: list[PartitionDescription]


class BrokerDescription(TypedDict):
    """A broker; `rack` is None before 0.10."""

    node_id: int
    host: str
    port: int
    rack: str | None


class ClusterDescription(TypedDict):
    """A cluster; `cluster_id` is None before 0.10.1, `controller_id` -1 before 0.10."""

    brokers: list[BrokerDescription]
    cluster_id: str | None
    controller_id: int
