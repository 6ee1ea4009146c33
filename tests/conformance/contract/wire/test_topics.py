"""CreateTopics and DeleteTopics: error codes and texts, which brokers carry them out."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aiokafka08.protocol.api import ApiKey
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.protocol.requests.topics import (
    ConfigEntry,
    CreateTopicsRequest,
    DeletedTopic,
    DeleteTopicsRequest,
    ReplicaAssignment,
    RequestedTopic,
)
from tests.conformance.contract.targets import on_lines
from tests.conformance.contract.wire.requests import plain, produce
from tests.conformance.contract.wire.target import Target
from tests.conformance.contract.wire.wire_client import WireClient
from tests.support.names import unique_name

creates_topics = on_lines(lambda line: ApiKey.CREATE_TOPICS in line.apis)
WAIT_MS = 20_000
Outcome = tuple[int, str | None]


@pytest.fixture
def name() -> str:
    return unique_name()


def new_topic(
    name: str,
    partitions: int = 1,
    replication_factor: int = 1,
    replicas: dict[int, list[int]] | None = None,
    config: dict[str, str] | None = None,
) -> RequestedTopic:
    assignments = [ReplicaAssignment(number, nodes) for number, nodes in (replicas or {}).items()]
    configs = [ConfigEntry(key, value) for key, value in (config or {}).items()]
    return RequestedTopic(name, partitions, replication_factor, assignments, configs)


def create(
    wire: WireClient,
    *topics: RequestedTopic,
    timeout_ms: int = WAIT_MS,
    validate_only: bool = False,
) -> dict[str, Outcome]:
    request = CreateTopicsRequest(list(topics), timeout_ms, validate_only)
    response = wire.request(request, 1)
    return {one.topic: (one.error_code, one.error_message) for one in response.topics}


def delete(wire: WireClient, *names: str, timeout_ms: int = WAIT_MS) -> dict[str, int]:
    response = wire.request(DeleteTopicsRequest(list(names), timeout_ms))
    assert all(isinstance(one, DeletedTopic) for one in response.topics)
    return {one.topic: one.error_code for one in response.topics}


def topics(wire: WireClient) -> dict[str, int]:
    """Return the number of partitions of each topic."""
    response = wire.request(MetadataRequest(None), 1)
    return {topic.topic: len(topic.partitions) for topic in response.topics}


@creates_topics
def test_created_topic_is_used_at_once_and_deleted(wire: WireClient, name: str) -> None:
    assert create(wire, new_topic(name, 3)) == {name: (0, None)}
    assert topics(wire)[name] == 3
    assert produce(wire, name, plain(b"x"), partition=2) == (0, 0)
    exists = {name: (36, f"Topic '{name}' already exists.")}
    assert create(wire, new_topic(name, 3)) == exists
    assert delete(wire, name, name, "no-" + name) == {name: 0, "no-" + name: 3}
    assert name not in topics(wire)


@creates_topics
def test_create_topics_v0_has_no_texts(wire: WireClient, name: str) -> None:
    request = CreateTopicsRequest([new_topic(name), new_topic("", 1)], WAIT_MS)
    done = {one.topic: (one.error_code, one.error_message) for one in wire.request(request).topics}
    assert done == {name: (0, None), "": (17, None)}


@creates_topics
def test_validate_only_creates_nothing(wire: WireClient, name: str) -> None:
    few = new_topic("b" + name, 0)
    assert create(wire, new_topic(name), few, validate_only=True) == {
        name: (0, None),
        few.topic: (37, "number of partitions must be larger than 0"),
    }
    assert not {name, few.topic} & topics(wire).keys()


@creates_topics
def test_request_that_does_not_wait_times_out(wire: WireClient, name: str) -> None:
    assert create(wire, new_topic(name), timeout_ms=0) == {name: (7, None)}
    assert create(wire, new_topic(name), timeout_ms=0)[name][0] == 36


@creates_topics
def test_topic_named_twice_is_invalid(wire: WireClient, name: str) -> None:
    other = "o" + name
    text = (
        "Create topics request from client `peer` contains multiple entries for the following "
        f"topics: {name}"
    )
    assert create(wire, new_topic(name), new_topic(other), new_topic(name)) == {
        name: (42, text),
        other: (0, None),
    }


_SET_TWICE = (
    "Both numPartitions or replicationFactor and replicasAssignments were set. Both cannot be used "
    "at the same time."
)


@creates_topics
@pytest.mark.parametrize(
    ("numbers", "replicas", "expected"),
    [
        ((0, 1), None, (37, "number of partitions must be larger than 0")),
        ((-1, -1), None, (37, "number of partitions must be larger than 0")),
        ((1, 0), None, (38, "replication factor must be larger than 0")),
        ((1, 9), None, (38, "replication factor: 9 larger than available brokers: 1")),
        ((-1, -1), {0: [0], 1: [0]}, (0, None)),
        ((1, 1), {0: [0]}, (42, _SET_TWICE)),
        (
            (-1, -1),
            {0: [0, 0]},
            (39, "Duplicate replica assignment found: Map(0 -> ArrayBuffer(0, 0))"),
        ),
        (
            (-1, -1),
            {0: [0], 1: []},
            (39, "All partitions should have the same number of replicas"),
        ),
    ],
)
def test_numbers_and_assignments_are_checked(
    wire: WireClient,
    name: str,
    numbers: tuple[int, int],
    replicas: dict[int, list[int]] | None,
    expected: Outcome,
) -> None:
    assert create(wire, new_topic(name, *numbers, replicas)) == {name: expected}
    assert (name in topics(wire)) == (not expected[0])


@creates_topics
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("", "topic name is illegal, can't be empty"),
        ("..", 'topic name cannot be "." or ".."'),
        ("x" * 250, "topic name is illegal, can't be longer than 249 characters"),
        (
            "a b",
            "topic name a b is illegal, contains a character other than ASCII alphanumerics, '.', "
            "'_' and '-'",
        ),
    ],
)
def test_invalid_name_is_refused_with_its_reason(wire: WireClient, name: str, text: str) -> None:
    assert create(wire, new_topic(name)) == {name: (17, text)}


@creates_topics
def test_name_that_differs_by_a_dot_collides(wire: WireClient, name: str) -> None:
    first, second = f"{name}.a_b", f"{name}_a.b"
    assert create(wire, new_topic(first))[first][0] == 0
    text = f"Topic '{second}' collides with existing topics: {first}"
    assert create(wire, new_topic(second)) == {second: (17, text)}
    [topic] = wire.request(MetadataRequest([second]), 1).topics  # nor by auto-creation
    assert topic.error_code == 17


@creates_topics
@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"flush.ms": "5", "cleanup.policy": "compact,delete", "preallocate": "TRUE"}, (0, None)),
        ({"nonsense": "1"}, (40, "Unknown Log configuration nonsense.")),
        (
            {"retention.ms": "1h"},
            (-1, "Invalid value 1h for configuration retention.ms: Not a number of type LONG"),
        ),
        (
            {"min.insync.replicas": "0"},
            (-1, "Invalid value 0 for configuration min.insync.replicas: Value must be at least 1"),
        ),
        (
            {"min.cleanable.dirty.ratio": "7"},
            (
                -1,
                "Invalid value 7.0 for configuration min.cleanable.dirty.ratio: Value must be no "
                "more than 1",
            ),
        ),
        (
            {"cleanup.policy": "x"},
            (
                -1,
                "Invalid value x for configuration cleanup.policy: String must be one of: compact, "
                "delete",
            ),
        ),
        (
            {"preallocate": "maybe"},
            (
                -1,
                "Invalid value maybe for configuration preallocate: Expected value to be either "
                "true or false",
            ),
        ),
    ],
)
def test_configs_are_checked(
    wire: WireClient, name: str, config: dict[str, str], expected: Outcome
) -> None:
    assert create(wire, new_topic(name, config=config)) == {name: expected}


@creates_topics
def test_config_of_a_created_topic_has_its_effect(wire: WireClient, name: str) -> None:
    create(wire, new_topic(name, config={"max.message.bytes": "100"}))
    assert produce(wire, name, plain(bytes(200))).error_code == 10


@pytest.fixture
def by_node(target: Target) -> Iterator[dict[int, WireClient]]:
    clients = {node: WireClient(target.address(node)) for node in target.nodes()}
    yield clients
    for client in clients.values():
        client.socket.close()


@on_lines(lambda line: ApiKey.CREATE_TOPICS in line.apis, brokers=3)
def test_only_the_controller_changes_topics(by_node: dict[int, WireClient], name: str) -> None:
    controller = by_node[0].request(MetadataRequest([]), 1).controller_id
    other = next(client for node, client in by_node.items() if node != controller)
    assert create(other, new_topic(name)) == {name: (41, None)}
    assert create(by_node[controller], new_topic(name, 3)) == {name: (0, None)}
    assert delete(other, name) == {name: 41}
    assert delete(by_node[controller], name) == {name: 0}
