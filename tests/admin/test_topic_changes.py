"""Topics created, extended and deleted through a fake of `TopicNodes` on an embedded cluster."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Collection, Mapping
from types import SimpleNamespace
from typing import cast

import pytest

from aiokafka08._core.zookeeper.topic_nodes import ReplicaAssignment, TopicNodes
from aiokafka08.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka08.errors import (
    IllegalArgumentError,
    InvalidConfigurationError,
    InvalidTopicError,
    KafkaTimeoutError,
    TopicAlreadyExistsError,
)
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.testing import Answer, EmbeddedCluster


class FakeTopicNodes:
    """The interface of `TopicNodes` on the state of the embedded cluster."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        self.topics: set[str] = set()

    def broker_ids(self) -> set[int]:
        return set(self._cluster.nodes)

    def topic_names(self) -> set[str]:
        return self.topics | {"here"}

    def create_topic(
        self, topic: str, assignment: ReplicaAssignment, configs: Mapping[str, str]
    ) -> None:
        self._cluster.create_topic(topic, partitions=len(assignment))
        self.topics.add(topic)

    def assignment(self, topic: str) -> ReplicaAssignment:
        return {0: [0]}

    def add_partitions(self, topic: str, added: ReplicaAssignment) -> None:
        pass

    def request_deletion(self, topic: str) -> None:
        self._cluster.delete_topic(topic)
        self.topics.remove(topic)

    def overrides(self, topics: Collection[str]) -> dict[str, dict[str, str]]:
        return {topic: {"cleanup.policy": "compact", "retention.ms": "1"} for topic in topics}

    def deletion_state(self, topic: str) -> tuple[bool, bool]:
        return topic in self.topics, False


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(topics={"here": 1}) as running:
        yield running


@pytest.fixture
async def admin(cluster: EmbeddedCluster) -> AsyncIterator[AIOKafkaAdminClient]:
    async with AIOKafkaAdminClient(
        bootstrap_servers=cluster.bootstrap_servers, request_timeout_ms=5000
    ) as running:
        running._connection.topic_nodes = cast(TopicNodes, FakeTopicNodes(cluster))
        yield running


async def test_deleted_topic_is_not_created_again(
    cluster: EmbeddedCluster, admin: AIOKafkaAdminClient
) -> None:
    """Brokers with auto.create.topics.enable create the topics that a Metadata request names."""
    made = await admin.create_topics([NewTopic("gone", 2, 1)])
    assert made.topic_errors == [("gone", 0, None)]
    assert (await admin.delete_topics(["gone"])).topic_errors == [("gone", 0, None)]
    await admin._router.metadata.refresh()  # as at metadata_max_age_ms
    await admin.create_topics([NewTopic("another", 1, 1)])
    assert set(await admin.list_topics()) == {"here", "another"}
    assert not any("gone" in (one.topics or ()) for one in cluster.requests(MetadataRequest))


@pytest.mark.parametrize("validate_only", [False, True])
async def test_new_names_that_brokers_do_not_survive_are_refused(
    admin: AIOKafkaAdminClient, validate_only: bool
) -> None:
    await admin.create_topics([NewTopic("a_b", 1, 1)])
    new = [NewTopic(name, 1, 1) for name in ("x" * 250, "a.b", "c.d", "c_d", "e")]
    made = await admin.create_topics(new, validate_only=validate_only)
    assert [(name, code) for name, code, _ in made.topic_errors] == [
        ("x" * 250, InvalidTopicError.errno),
        ("a.b", InvalidTopicError.errno),
        ("c.d", 0),
        ("c_d", InvalidTopicError.errno),
        ("e", 0),
    ]
    made_now = set() if validate_only else {"c.d", "e"}
    assert set(await admin.list_topics()) == {"here", "a_b"} | made_now


async def test_topics_of_aiokafka_are_created_and_grown(admin: AIOKafkaAdminClient) -> None:
    """A program that moves may still make them by its old import."""
    theirs = pytest.importorskip("aiokafka.admin")
    new = [
        theirs.NewTopic("counted", 2, 1, topic_configs={"retention.ms": "60000"}),
        theirs.NewTopic("placed", -1, -1, {0: [0], 1: [0]}),
    ]
    made = await admin.create_topics(new)
    assert made.topic_errors == [("counted", 0, None), ("placed", 0, None)]
    partitions = importlib.import_module("aiokafka.admin.new_partitions").NewPartitions
    grown = await admin.create_partitions({"here": partitions(2)}, validate_only=True)
    assert grown.topic_errors == [("here", 0, None)]


async def test_wrong_attributes_of_a_topic_are_named(admin: AIOKafkaAdminClient) -> None:
    new = SimpleNamespace(name="t", num_partitions="2", replication_factor=1)
    with pytest.raises(IllegalArgumentError, match="num_partitions='2': expected an integer"):
        await admin.create_topics(cast(list[NewTopic], [new]))
    with pytest.raises(TypeError, match=r"'t' in the list; expected a list of NewTopic"):
        await admin.create_topics(cast(list[NewTopic], ["t"]))
    with pytest.raises(TypeError, match=r"'here' has 3; expected NewPartitions"):
        await admin.create_partitions(cast(dict[str, NewPartitions], {"here": 3}))


async def test_dry_run_says_that_a_topic_exists(admin: AIOKafkaAdminClient) -> None:
    made = await admin.create_topics([NewTopic("here", 1, 1)], validate_only=True)
    assert made.topic_errors == [
        ("here", TopicAlreadyExistsError.errno, "topic 'here' exists already")
    ]


async def test_dry_run_of_configs_returns_what_they_would_be(admin: AIOKafkaAdminClient) -> None:
    changes = {"retention.ms": None, "segment.ms": 5}
    after = await admin.alter_topic_overrides("here", changes, validate_only=True)
    assert after == {"cleanup.policy": "compact", "segment.ms": "5"}
    with pytest.raises(InvalidConfigurationError, match=r"segment\.ms='x'; expected"):
        await admin.alter_topic_overrides("here", {"segment.ms": "x"}, validate_only=True)


async def test_wrong_timeout_raises_before_any_change(
    cluster: EmbeddedCluster, admin: AIOKafkaAdminClient
) -> None:
    for wrong in (0, -1, "1"):
        for call in (
            admin.create_topics([NewTopic("x", 1, 1)], timeout_ms=cast(int, wrong)),
            admin.create_partitions({"here": NewPartitions(2)}, timeout_ms=cast(int, wrong)),
            admin.delete_topics(["here"], timeout_ms=cast(int, wrong)),
        ):
            with pytest.raises(IllegalArgumentError, match="timeout_ms"):
                await call
    assert await admin.list_topics() == ["here"]


async def test_topic_without_leaders_raises_at_timeout(
    cluster: EmbeddedCluster, admin: AIOKafkaAdminClient
) -> None:
    cluster.fault(MetadataRequest, then=Answer(5), times=None)
    with pytest.raises(KafkaTimeoutError, match="'x' was created, but has no leaders of x/0 after"):
        await admin.create_topics([NewTopic("x", 1, 1)], timeout_ms=200)


async def test_grown_topic_without_new_leaders_is_called_grown(admin: AIOKafkaAdminClient) -> None:
    grown = "'here' was grown to 3 partitions, but has no leaders of here/1, here/2 after 200 ms"
    with pytest.raises(KafkaTimeoutError, match=grown):
        await admin.create_partitions({"here": NewPartitions(3)}, timeout_ms=200)
