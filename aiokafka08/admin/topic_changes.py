"""The calls of `AIOKafkaAdminClient` that change topics, through ZooKeeper.

The client's methods of the same names document arguments and errors. No release before 0.10.1 has
requests for changes of topics.

Invariant: a `BrokerResponseError` (an error with a Kafka code) of one topic goes into the returned
`TopicErrors`, and the call continues with the remaining topics. Any other error, and an error
before the first topic, is raised and ends the call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Iterable, Mapping
from typing import Final

from aiokafka08 import environment
from aiokafka08._core.net.config import check_positive
from aiokafka08._core.net.versions import BrokerLine
from aiokafka08._core.topic_names import NewTopicNames, check_topic_name, check_topic_names
from aiokafka08._core.zookeeper.topic_nodes import TopicNodes
from aiokafka08._wording import counted, some_of
from aiokafka08.admin.arguments import check_items, check_mapping
from aiokafka08.admin.connection import AdminConnection
from aiokafka08.admin.new_topic import (
    NewPartitions,
    NewTopic,
    assign_replicas,
    check_partition_count,
    checked_assignment,
    new_partitions,
    new_topics,
    spread,
)
from aiokafka08.admin.topic_config import check_configs, config_texts
from aiokafka08.admin.topic_errors import DeletionErrors, TopicErrors
from aiokafka08.errors import (
    BrokerResponseError,
    InvalidPartitionsError,
    InvalidReplicationAssignmentError,
    KafkaTimeoutError,
    NoError,
    TopicAlreadyExistsError,
    UnsupportedVersionError,
)
from aiokafka08.structs import TopicPartition

CANNOT_DELETE_TOPICS: Final = frozenset({BrokerLine.V0_8_0, BrokerLine.V0_8_1})
"""The release lines whose brokers can't delete topics safely."""

# The pause between two checks whether a topic has its leaders, or is gone
_POLL_S: Final = 0.05

# The calls that need ZooKeeper, as errors name them
_ACTIONS: Final = {
    "create_topics": "creating topics",
    "create_partitions": "adding partitions",
    "delete_topics": "deleting topics",
    "list_topic_overrides": "reading the configs of topics",
    "alter_topic_overrides": "changing the configs of a topic",
}

_CHANGES: Final = "a mapping of configs to values"


class TopicChanges:
    """The calls that change topics, or read their configs in ZooKeeper."""

    def __init__(self, connection: AdminConnection) -> None:
        self._connection = connection
        self._router = connection.router

    async def create_topics(
        self,
        topics: list[NewTopic],
        timeout_ms: int | None,
        validate_only: bool,
    ) -> TopicErrors:
        nodes = self._require_topic_nodes("create_topics")
        limit_ms = self._limit_ms(timeout_ms)
        wanted = new_topics(topics)
        node_ids = await self._connection.run_on_zookeeper(nodes.broker_ids)
        needs_line = any(topic.topic_configs for topic in wanted)
        line = (await self._router.exact_version()).line if needs_line else BrokerLine.V0_8
        names = NewTopicNames(await self._connection.run_on_zookeeper(nodes.topic_names))

        async def create(topic: NewTopic) -> None:
            if validate_only and topic.name in names:
                raise TopicAlreadyExistsError(f"topic {topic.name!r} exists already")
            # Add it in a dry run too, so that collisions within the list are found.
            names.add(topic.name)
            check_configs(topic.name, topic.topic_configs, line)
            assignment = assign_replicas(
                topic, node_ids, environment.random.randrange(len(node_ids))
            )
            if not validate_only:
                await self._connection.run_on_zookeeper(
                    nodes.create_topic, topic.name, assignment, topic.topic_configs
                )
                await self._wait_leaders(
                    topic.name, range(len(assignment)), limit_ms, "was created"
                )

        return TopicErrors(await _per_topic((topic.name, create(topic)) for topic in wanted))

    async def create_partitions(
        self,
        topic_partitions: dict[str, NewPartitions],
        timeout_ms: int | None,
        validate_only: bool,
    ) -> TopicErrors:
        nodes = self._require_topic_nodes("create_partitions")
        limit_ms = self._limit_ms(timeout_ms)
        topics = new_partitions(topic_partitions)
        node_ids = await self._connection.run_on_zookeeper(nodes.broker_ids)

        async def grow(topic: str, wanted: NewPartitions) -> None:
            check_partition_count(topic, "total_count", wanted.total_count)
            known = await self._connection.run_on_zookeeper(nodes.assignment, topic)
            added = range(len(known), wanted.total_count)
            if not added:
                raise InvalidPartitionsError(
                    f"topic {topic!r}: total_count={wanted.total_count}; expected more than its "
                    f"{counted(len(known), 'partition')}"
                )
            if wanted.new_assignments is None:
                factor = len(next(iter(known.values())))
                new = spread(
                    topic, added, factor, node_ids, environment.random.randrange(len(node_ids))
                )
            elif len(wanted.new_assignments) != len(added):
                raise InvalidReplicationAssignmentError(
                    f"topic {topic!r}: {len(wanted.new_assignments)} assignments; expected one for "
                    f"each of {len(added)} new partitions"
                )
            else:
                checked = checked_assignment(
                    topic, dict(enumerate(wanted.new_assignments)), node_ids
                )
                new = {len(known) + index: replicas for index, replicas in checked.items()}
            if not validate_only:
                await self._connection.run_on_zookeeper(nodes.add_partitions, topic, new)
                await self._wait_leaders(
                    topic, added, limit_ms, f"was grown to {wanted.total_count} partitions"
                )

        work = ((name, grow(name, new)) for name, new in topics.items())
        return TopicErrors(await _per_topic(work))

    async def delete_topics(self, topics: list[str], timeout_ms: int | None) -> DeletionErrors:
        nodes = self._require_topic_nodes("delete_topics")
        limit_ms = self._limit_ms(timeout_ms)
        names = check_topic_names(topics)
        line = (await self._router.exact_version()).line
        if line in CANNOT_DELETE_TOPICS:
            raise UnsupportedVersionError(
                f"delete_topics: brokers of the {line} line can't delete topics; expected 0.8.2 or "
                "later"
            )

        async def delete(topic: str) -> None:
            await self._connection.run_on_zookeeper(nodes.request_deletion, topic)
            try:
                async with asyncio.timeout(limit_ms / 1000):
                    while True:
                        exists, is_requested = await self._connection.run_on_zookeeper(
                            nodes.deletion_state, topic
                        )
                        if not exists:
                            return
                        # The controller has removed the request, but not the topic.
                        if not is_requested:
                            raise UnsupportedVersionError(
                                f"topic {topic!r} not deleted: the brokers refuse. Set "
                                "delete.topic.enable=true on them"
                            )
                        await asyncio.sleep(_POLL_S)
            except TimeoutError:
                raise KafkaTimeoutError(
                    f"topic {topic!r} not deleted within {limit_ms} ms: it is marked for deletion. "
                    "Brokers delete it with delete.topic.enable=true and all replicas alive"
                ) from None

        work = ((name, delete(name)) for name in names)
        return DeletionErrors(await _per_topic(work))

    async def list_topic_overrides(self, topics: Collection[str]) -> dict[str, dict[str, str]]:
        nodes = self._require_topic_nodes("list_topic_overrides")
        return await self._connection.run_on_zookeeper(nodes.overrides, check_topic_names(topics))

    async def alter_topic_overrides(
        self, topic: str, changes: Mapping[str, object | None], validate_only: bool
    ) -> dict[str, str]:
        nodes = self._require_topic_nodes("alter_topic_overrides")
        check_topic_name(topic)
        check_items("changes", check_mapping("changes", changes, _CHANGES).keys(), str, _CHANGES)
        line = (await self._router.exact_version()).line
        new = config_texts({name: value for name, value in changes.items() if value is not None})
        check_configs(topic, new, line)
        removed = changes.keys() - new.keys()
        if validate_only:
            known = (await self._connection.run_on_zookeeper(nodes.overrides, [topic]))[topic]
            return {name: value for name, value in known.items() if name not in removed} | new
        return await self._connection.run_on_zookeeper(
            nodes.alter_overrides, topic, new, removed, as_json_object=line >= BrokerLine.V0_9
        )

    # --- inside -----------------------------------------------------------------------------------

    def _require_topic_nodes(self, call: str) -> TopicNodes:
        self._connection.check()
        if self._connection.topic_nodes is None:
            hint = (
                "; with auto.create.topics.enable a first message creates a topic"
                if call == "create_topics"
                else ""
            )
            raise UnsupportedVersionError(
                f"{_ACTIONS[call]} goes through ZooKeeper only: brokers before 0.10.1 have no "
                "request for it. Give zookeeper_connect='host:2181/chroot', or use the brokers' "
                f"own tools (kafka-topics.sh){hint}"
            )
        return self._connection.topic_nodes

    def _limit_ms(self, timeout_ms: int | None) -> int:
        if timeout_ms is None:
            return self._connection.request_timeout_ms
        return check_positive("timeout_ms", timeout_ms)

    async def _wait_leaders(self, topic: str, partitions: range, limit_ms: int, done: str) -> None:
        """Wait until the metadata shows a leader for each of these partitions."""
        metadata = self._router.metadata
        wanted = [TopicPartition(topic, partition) for partition in partitions]
        try:
            async with asyncio.timeout(limit_ms / 1000):
                while True:
                    # Fetch all topics: if this one were fetched by name, each later refresh would
                    # name it too, and auto-create it after its deletion.
                    await metadata.fetch_all(limit_ms / 1000)
                    if all(metadata.snapshot.leader(tp) is not None for tp in wanted):
                        return
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            leaderless = [tp for tp in wanted if metadata.snapshot.leader(tp) is None]
            raise KafkaTimeoutError(
                f"topic {topic!r} {done}, but has no leaders of {some_of(leaderless)} after "
                f"{limit_ms} ms. A partition gets one when a broker of its replicas is alive"
            ) from None


async def _per_topic(
    work: Iterable[tuple[str, Awaitable[None]]],
) -> list[tuple[str, int, str | None]]:
    """Await the work of each topic in order; errors with a Kafka code go into the result."""
    results: list[tuple[str, int, str | None]] = []
    for name, task in work:
        try:
            await task
        except BrokerResponseError as error:
            results.append((name, error.errno, error.text or error.description))
        else:
            results.append((name, NoError.errno, None))
    return results
