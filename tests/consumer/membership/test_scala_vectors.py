"""Assignments of groups in ZooKeeper equal those of Kafka's own Scala classes (`scala_vectors`)."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest

from aiokafka08._core.zookeeper.scala_format import decode_partitions, decode_registration
from aiokafka08._core.zookeeper.scala_registry import GroupSnapshot
from aiokafka08.consumer.membership.scala_assignment import (
    RANGE,
    ROUNDROBIN,
    assign_to_member,
)
from aiokafka08.errors import KafkaConfigurationError
from tests.brokers.fixtures import BrokerClusters
from tests.consumer.membership import scala_vectors
from tests.consumer.membership.scala_vectors import FILE, VERSION, Case

VECTORS: dict[str, Case] = json.loads(FILE.read_text())

Threads = dict[str, dict[str, list[int]]]


def assigned(strategy: str, case: Case) -> Threads | None:
    """Return the assignments that the members compute, in the form of Vectors.java."""
    members = {
        name: decode_registration(name, json.dumps(written).encode())
        for name, written in case["members"].items()
    }
    threads: dict[str, list[str]] = defaultdict(list)
    for member in members.values():
        for topic, names in member.threads(case["topics"]).items():
            threads[topic] += names
    found: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for name, member in members.items():
        topics = member.threads(case["topics"])
        snapshot = GroupSnapshot(threads, {topic: _partitions(case, topic) for topic in topics})
        try:
            share = assign_to_member(strategy, snapshot, topics, name)
        except KafkaConfigurationError:
            return None
        for topic_partition, thread in sorted(share.items()):
            found[thread][topic_partition.topic].append(topic_partition.partition)
    return {thread: dict(topics) for thread, topics in found.items()}


def _partitions(case: Case, topic: str) -> list[int]:
    node = {"version": 1, "partitions": {str(one): [0] for one in case["topics"].get(topic, ())}}
    return decode_partitions(json.dumps(node).encode())


@pytest.mark.parametrize("strategy", [RANGE, ROUNDROBIN])
@pytest.mark.parametrize("name", list(VECTORS))
def test_assignment_equals_scala_vector(name: str, strategy: str) -> None:
    assert assigned(strategy, VECTORS[name]) == VECTORS[name][strategy]


def test_vectors_contain_the_edge_cases() -> None:
    cases: list[dict[str, Any]] = list(VECTORS.values())
    assert len(cases) >= 40
    assert {len(case["members"]) for case in cases} >= {1, 2, 3, 4, 5}
    assert {len(case["topics"]) for case in cases} >= {1, 2, 3, 4}
    counts = {len(numbers) for case in cases for numbers in case["topics"].values()}
    assert counts == set(range(18))
    written = [one for case in cases for one in case["members"].values()]
    assert {one["pattern"] for one in written} >= {"static", "white_list", "black_list", "Static"}
    assert {count for one in written for count in one["subscription"].values()} >= {1, 2, 3}
    refused = [case for case in cases if case[ROUNDROBIN] is None]
    assert len(refused) >= 5
    assert len(cases) - len(refused) >= 20


@pytest.mark.real
@pytest.mark.full
def test_scala_classes_reproduce_the_vectors(broker_clusters: BrokerClusters) -> None:
    cases = {
        name: {"members": case["members"], "topics": case["topics"]}
        for name, case in VECTORS.items()
    }
    assert scala_vectors.run_scala(broker_clusters.get(VERSION), cases) == VECTORS
