"""The calls of `AIOKafkaAdminClient` that read groups: members, committed offsets, lag.

The client's methods of the same names document arguments and errors.

Invariant: no call creates a group, or changes one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager
from typing import Final

from aiokafka08._core.concurrency.task_set import run_together
from aiokafka08._core.net.cluster import INTERNAL_TOPICS, check_partitions
from aiokafka08._core.net.config import OffsetsStorage, check_one_of
from aiokafka08._core.net.coordinator_lookup import CoordinatorLookup, check_any_group_id
from aiokafka08._core.net.list_offsets import list_offsets
from aiokafka08._core.offset_store import OffsetStore
from aiokafka08._core.offset_store.choose import choose_offset_store
from aiokafka08._core.zookeeper.session import check_node_name
from aiokafka08._wording import newer_protocol, shorten
from aiokafka08.admin.arguments import check_node_id, check_node_ids
from aiokafka08.admin.connection import AdminConnection
from aiokafka08.admin.group_description import GroupDescriptions
from aiokafka08.admin.group_requests import describe_group, list_groups
from aiokafka08.errors import IllegalArgumentError, UnsupportedVersionError
from aiokafka08.protocol.requests.groups import DescribedGroup
from aiokafka08.protocol.requests.list_offsets import LATEST
from aiokafka08.structs import OffsetAndMetadata, TopicPartition

_NOTHING: Final = OffsetAndMetadata(-1, "")


class GroupCalls:
    """The calls that read one store of groups: the default of the brokers' line, or a named one."""

    def __init__(self, connection: AdminConnection) -> None:
        self._connection = connection
        self._router = connection.router

    async def find_coordinator(self, group_id: str, coordinator_type: int) -> int:
        self._connection.check()
        if coordinator_type != 0:
            raise UnsupportedVersionError(
                f"coordinator_type={shorten(coordinator_type)} needs "
                f"{newer_protocol('FindCoordinator 1')}"
            )
        return await CoordinatorLookup(self._router, check_any_group_id(group_id)).node_id()

    async def list_consumer_groups(self, broker_ids: list[int] | None) -> list[tuple[str, str]]:
        self._connection.check()
        node_ids = None if broker_ids is None else check_node_ids("broker_ids", broker_ids)
        if not self._connection.has_coordinators():
            nodes = self._connection.require_group_nodes("list_consumer_groups")
            return [
                (name, "consumer") for name in await self._connection.run_on_zookeeper(nodes.names)
            ]
        response = await self._connection.fetch_metadata()
        if node_ids is None:
            node_ids = [broker.node_id for broker in response.brokers]
        listed = await run_together(*(list_groups(self._router, node_id) for node_id in node_ids))
        return sorted({group for groups in listed for group in groups})

    async def describe_consumer_groups(
        self,
        group_ids: list[str],
        group_coordinator_id: int | None,
        include_authorized_operations: bool,
    ) -> list[GroupDescriptions]:
        """Return state, members and assignments, in one item per coordinator."""
        self._connection.check()
        if include_authorized_operations:
            raise UnsupportedVersionError(
                "include_authorized_operations=True needs DescribeGroups 3 (brokers from 2.3 on); "
                "this client speaks the protocol of 0.8"
            )
        if group_coordinator_id is not None:
            check_node_id("group_coordinator_id", group_coordinator_id)
        described = await self.describe(check_group_ids(group_ids), group_coordinator_id)
        return [GroupDescriptions.of(groups) for groups in described.values()]

    async def describe(
        self, groups: Collection[str], coordinator_id: int | None
    ) -> dict[int | None, list[DescribedGroup]]:
        """Return the groups by coordinator; by None in ZooKeeper, or without the offsets topic."""
        if not self._connection.has_coordinators():
            nodes = self._connection.require_group_nodes("describe_consumer_groups")
            for group in groups:
                check_node_name("group_id", group)
            read = await self._connection.run_on_zookeeper(nodes.describe, groups)
            for one in read:
                if one.error is not None:
                    raise one.error
            return {None: [one.described for one in read]}
        # Without the offsets topic there are no groups, and a coordinator lookup would create it.
        # The metadata also gives the router the addresses of the nodes.
        if not await self._connection.has_offsets_topic():
            return {None: [DescribedGroup(0, group, "Dead", "", "", []) for group in groups]}
        described: dict[int | None, list[DescribedGroup]] = {}
        for node_id, described_group in await run_together(
            *(
                describe_group(self._router, CoordinatorLookup(self._router, group, coordinator_id))
                for group in groups
            )
        ):
            described.setdefault(node_id, []).append(described_group)
        return described

    async def list_consumer_group_offsets(
        self,
        group_id: str,
        group_coordinator_id: int | None,
        partitions: list[TopicPartition] | None,
        *,
        offsets_storage: OffsetsStorage | None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        self._connection.check()
        async with open_offset_store(
            self._connection, group_id, offsets_storage, group_coordinator_id
        ) as store:
            if partitions is None:
                wanted = await self._all_partitions()
            else:
                wanted = check_partitions(partitions)
            commits = await store.fetch(wanted)
        committed = {tp: commits.get(tp) for tp in wanted}
        if partitions is None:
            return {tp: commit for tp, commit in committed.items() if commit is not None}
        return {tp: commit or _NOTHING for tp, commit in committed.items()}

    async def list_consumer_group_lag(
        self,
        group_id: str,
        partitions: list[TopicPartition] | None,
        *,
        offsets_storage: OffsetsStorage | None,
    ) -> dict[TopicPartition, int | None]:
        committed = await self.list_consumer_group_offsets(
            group_id, None, partitions, offsets_storage=offsets_storage
        )
        known = {tp: commit.offset for tp, commit in committed.items() if commit.offset >= 0}
        ends = await list_offsets(self._router, dict.fromkeys(known, LATEST))
        lags = {tp: max(ends[tp][0] - offset, 0) for tp, offset in known.items()}
        return {tp: lags.get(tp) for tp in committed}

    # --- inside -----------------------------------------------------------------------------------

    async def _all_partitions(self) -> list[TopicPartition]:
        response = await self._connection.fetch_metadata()
        return [
            TopicPartition(topic.topic, partition.partition)
            for topic in response.topics
            if topic.topic not in INTERNAL_TOPICS
            for partition in topic.partitions
        ]


@asynccontextmanager
async def open_offset_store(
    connection: AdminConnection,
    group_id: str,
    storage: str | None,
    coordinator_id: int | None = None,
) -> AsyncIterator[OffsetStore]:
    """Open the store of a group's offsets for the time of a `with` block.

    `storage` is "kafka", "zookeeper" or "dual"; None for the default of the brokers' line.
    """
    check_one_of("offsets_storage", storage, [None, "kafka", "zookeeper", "dual"])
    if coordinator_id is not None:
        check_node_id("group_coordinator_id", coordinator_id)
    router = connection.router
    coordinator = CoordinatorLookup(router, check_any_group_id(group_id), coordinator_id)
    if coordinator_id is not None:
        await router.metadata.fetch_all()  # so that the router knows the node's address
    store = await choose_offset_store(router, coordinator, storage, connection.zookeeper)
    try:
        await store.start()
        yield store
    finally:
        await store.stop()


def check_group_ids(groups: object) -> list[str]:
    """Return the names of groups, or raise IllegalArgumentError."""
    if isinstance(groups, str) or not isinstance(groups, Iterable):
        raise IllegalArgumentError(f"group_ids={shorten(groups)}: expected a list of names")
    return [check_any_group_id(group) for group in groups]
