"""The calls of `AIOKafkaAdminClient` about groups in Kafka and in ZooKeeper, and about their lag.

The client's methods of the same names document arguments and errors. A group may be in both stores:
a Scala group of 0.8.2 may commit to either, and a group that is being moved commits to both.

Invariant: no call here creates or changes anything. No coordinator is looked up unless
`__consumer_offsets` exists, since the first lookup would create it (docs/brokers.md 8.9). A group
or partition that can't be read doesn't keep others from being read. Its error is in the result; a
call whose result has no place for errors raises the first one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from aiokafka08._core.concurrency.loop_yield import in_chunks
from aiokafka08._core.concurrency.task_set import run_together
from aiokafka08._core.net.cluster import iter_partitions
from aiokafka08._core.net.config import check_one_of
from aiokafka08._core.net.coordinator_lookup import CoordinatorLookup
from aiokafka08._core.net.list_offsets import list_reachable_offsets
from aiokafka08._core.net.versions import BrokerLine
from aiokafka08._core.offset_store.group_offsets import fetch_group_offsets
from aiokafka08._core.offset_store.requests import not_fetched
from aiokafka08._core.offset_store.responses import combined_error, with_text
from aiokafka08._core.offset_store.zookeeper_v0_store import ZookeeperV0OffsetStore
from aiokafka08._core.zookeeper.group_nodes import ReadGroup
from aiokafka08._core.zookeeper.session import is_node_name
from aiokafka08._wording import partition_name
from aiokafka08.admin.arguments import check_items
from aiokafka08.admin.connection import AdminConnection
from aiokafka08.admin.group_description import GroupDescriptions, assigned_partitions
from aiokafka08.admin.group_lag import (
    GroupLags,
    GroupStore,
    LogBounds,
    PartitionLag,
    PartitionOwner,
    RefusedLogBounds,
    StoredGroup,
    StoredGroupDescription,
    StoredGroupListing,
    StoredOffsets,
    check_stored_groups,
    lag_rows,
)
from aiokafka08.admin.group_requests import describe_group
from aiokafka08.admin.groups import GroupCalls, check_group_ids
from aiokafka08.coordinator.protocol import PROTOCOL_TYPE
from aiokafka08.errors import (
    AUTHORIZATION_ERRORS,
    KafkaConfigurationError,
    KafkaError,
    KafkaUnavailableError,
    NotLeaderForPartitionError,
    UnsupportedVersionError,
)
from aiokafka08.protocol.requests.groups import DescribedGroup
from aiokafka08.protocol.requests.list_offsets import (
    ALL_SEGMENTS,
    LATEST,
    ListOffsetsRequest,
)
from aiokafka08.structs import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from aiokafka08.admin.offsets_topic import OffsetsTopic, OffsetsTopicReader

_LEFT_OUT: Final = (
    "groups in ZooKeeper weren't looked for: brokers of 0.8 keep the members of groups there, and "
    "by default their offsets. Give zookeeper_connect='host:2181/chroot'"
)
_STORES: Final = ("kafka", "zookeeper")
# How many groups are requested at a time; the requests to a coordinator are pipelined
_AT_ONCE: Final = 32
_UNKNOWN: Final = LogBounds(None, None)
_REFUSED: Final = RefusedLogBounds(None, None)


class StoredGroupCalls:
    """The calls that read both stores of groups."""

    def __init__(self, connection: AdminConnection, groups: GroupCalls) -> None:
        self._connection = connection
        self._router = connection.router
        self._groups = groups
        self._coordinators: dict[str, CoordinatorLookup] = {}
        self._offsets_topic: OffsetsTopicReader | None = None

    async def list_stored_groups(self) -> list[StoredGroup]:
        listings = await run_together(
            self.list_groups_of_store("kafka"), self.list_groups_of_store("zookeeper")
        )
        if errors := [error for listing in listings for error in listing.errors]:
            raise errors[0]
        return sorted(group for listing in listings for group in listing.groups)

    async def list_groups_of_store(self, store: GroupStore) -> StoredGroupListing:
        """Return the groups of one store as `list_stored_groups` does, as many as can be read."""
        self._connection.check()
        check_one_of("store", store, _STORES)
        return await (self._list_in_kafka() if store == "kafka" else self._list_in_zookeeper())

    async def list_groups_of_stores(
        self, stores: Collection[GroupStore] = ("kafka", "zookeeper")
    ) -> list[StoredGroupListing]:
        """Return the groups of each store; a store that fails has its error in its listing."""
        for store in check_items("stores", stores, object, "a list of 'kafka' and 'zookeeper'"):
            check_one_of("stores", store, _STORES)

        async def listed(store: GroupStore) -> StoredGroupListing:
            try:
                return await self.list_groups_of_store(store)
            except (KafkaConfigurationError, UnsupportedVersionError):
                raise
            except KafkaError as error:
                return StoredGroupListing([], [error])

        return await run_together(*map(listed, stores))

    async def possible_groups(self, group_ids: Collection[str]) -> list[StoredGroup]:
        """Return each named group in each store that it may be in, whether or not it is there."""
        self._connection.check()
        names = check_group_ids(group_ids)
        line = (await self._router.exact_version()).line
        if self._connection.group_nodes is None and line is BrokerLine.V0_8_0:
            self._connection.require_group_nodes("possible_groups")
        has_kafka = line not in (BrokerLine.V0_8_0, BrokerLine.V0_8_1)
        stores: list[GroupStore] = ["kafka", "zookeeper"] if has_kafka else ["zookeeper"]
        return [
            StoredGroup(group, store, "")
            for group in names
            for store in stores
            if store == "kafka" or is_node_name(group)
        ]

    async def list_stored_offsets(self, groups: Iterable[StoredGroup]) -> list[StoredOffsets]:
        self._connection.check()
        wanted = check_stored_groups(groups)
        metadata = await self._connection.fetch_metadata()
        known = await self._connection.partitions_of(metadata)
        in_kafka = [group.group for group in wanted if group.store == "kafka"]
        in_zookeeper = [group.group for group in wanted if group.store == "zookeeper"]
        results: dict[tuple[GroupStore, str], StoredOffsets] = {}
        if in_kafka and not await self._connection.has_offsets_topic(metadata):
            in_kafka = []
        if in_kafka:
            # Until the exact line is known, 0.8.2 counts as 0.8.0, which has no offsets in Kafka.
            await self._router.exact_version()
        for listed in await run_together(
            self._offsets_in_kafka(in_kafka, known), self._offsets_in_zookeeper(in_zookeeper, known)
        ):
            results |= {(stored.store, stored.group): stored for stored in listed}
        return [
            results.get((group.store, group.group)) or StoredOffsets(group.group, group.store, {})
            for group in wanted
        ]

    async def list_group_lags(self, group_ids: Collection[str] | None) -> list[PartitionLag]:
        rows, errors, _ = await self.read_group_lags(group_ids)
        if errors:
            raise errors[0]
        return rows

    async def read_group_lags(self, group_ids: Collection[str] | None) -> GroupLags:
        """Return the rows of `list_group_lags` that can be read, and the errors of the others."""
        errors: list[KafkaError] = []
        left_out: str | None = None
        groups: list[StoredGroup] = []
        may_add_rows = True
        if group_ids is None:
            for listing in await self.list_groups_of_stores():
                groups += listing.groups
                errors += listing.errors
                left_out = left_out or listing.left_out
            groups.sort()
            may_add_rows = not errors  # else a group may have offsets in the store that failed
        else:
            groups = await self.possible_groups(group_ids)
        stored = await self.list_stored_offsets(groups)
        for one in stored:
            # `others` are the errors of nodes that may hide partitions of the group.
            errors += [*(() if one.error is None else (one.error,)), *one.others]
        described = await self._describe_stored(groups)
        for group in described.values():
            errors += [*(() if group.error is None else (group.error,)), *group.errors]
        owners = _owners(described)
        tps = {tp for of_group in stored for tp in (*of_group.offsets, *of_group.errors)}
        tps.update(tp for owned in owners.values() for tp in owned)
        # `lag_rows` also adds a row for each partition of a group's topics that has no offset.
        if may_add_rows and tps:
            topics = {tp.topic for tp in tps}
            known = await self._connection.partitions_of(await self._connection.fetch_metadata())
            async for some in in_chunks(known):
                tps.update(tp for tp in some if tp.topic in topics)
        bounds = await self.list_log_bounds(sorted(tps), starts=False)
        ends = {tp: log.end for tp, log in bounds.items()}
        return GroupLags(lag_rows(stored, ends, owners), errors, left_out)

    async def list_partition_owners(
        self, groups: Iterable[StoredGroup]
    ) -> dict[str, dict[TopicPartition, PartitionOwner]]:
        self._connection.check()
        described = await self._describe_stored(groups)
        for result in described.values():
            if result.error is not None:
                # The caller named the group, so its error must not be left out.
                raise result.error
        return _owners(described)

    async def describe_stored_groups(
        self, groups: Iterable[StoredGroup]
    ) -> list[StoredGroupDescription]:
        """Return state, members and assignments of groups, those in Kafka first."""
        self._connection.check()
        return [
            StoredGroupDescription(
                group,
                store,
                GroupDescriptions.of([result.described]).groups[0]
                if result.error is None
                else None,
                result.error,
                result.errors,
            )
            for (group, store), result in (await self._describe_stored(groups)).items()
        ]

    async def list_log_bounds(
        self, partitions: Collection[TopicPartition] | None, *, starts: bool
    ) -> dict[TopicPartition, LogBounds]:
        """Return first and next offset of partitions, in few requests per broker."""
        self._connection.check()
        named = None
        if partitions is not None:
            named = [tp async for some in in_chunks(iter_partitions(partitions)) for tp in some]
        known = await self._connection.partitions_of(await self._connection.fetch_metadata())
        wanted = known if named is None else [tp for tp in named if tp in known]
        # A leader lists the end of the log first, then where each segment begins, the oldest one
        # last. So one request returns both the end and the start.
        listed = await list_reachable_offsets(
            self._router, wanted, LATEST, ALL_SEGMENTS if starts else 1
        )
        bounds: dict[TopicPartition, LogBounds] = {}
        async for some in in_chunks(listed.items()):
            for tp, found in some:
                if isinstance(found, KafkaError):
                    # Refused: the leader in the metadata responds that it isn't the leader.
                    is_refused = isinstance(found, NotLeaderForPartitionError)
                    bounds[tp] = _REFUSED if is_refused else _UNKNOWN
                else:
                    end, start = found
                    bounds[tp] = LogBounds(start if starts else None, end)
        return bounds

    async def read_offsets_topic(self) -> OffsetsTopic:
        self._connection.check()
        if self._offsets_topic is None:
            # Imported on first use: most programs don't need the reader of ranges.
            from aiokafka08.admin.offsets_topic import OffsetsTopicReader

            self._offsets_topic = OffsetsTopicReader(self._router)
        return await self._offsets_topic.read()

    # --- inside -----------------------------------------------------------------------------------

    async def _describe_stored(
        self, groups: Iterable[StoredGroup]
    ) -> dict[tuple[str, GroupStore], ReadGroup]:
        wanted = check_stored_groups(groups)
        in_kafka = [group.group for group in wanted if group.store == "kafka"]
        in_zookeeper = [group.group for group in wanted if group.store == "zookeeper"]
        described: dict[tuple[str, GroupStore], ReadGroup] = {}
        if (
            in_kafka
            and self._connection.has_coordinators()
            and await self._connection.has_offsets_topic()
        ):
            turns = asyncio.Semaphore(_AT_ONCE)

            async def describe(group: str) -> ReadGroup:
                async with turns:
                    try:
                        _, found = await describe_group(self._router, self._coordinator(group))
                    except KafkaError as error:
                        return _undescribed(group, error)
                return ReadGroup(found)

            results = await run_together(*map(describe, in_kafka))
            described |= {
                (group, "kafka"): result for group, result in zip(in_kafka, results, strict=True)
            }
        if in_zookeeper and self._connection.group_nodes is not None:
            try:
                nodes = await self._connection.run_on_zookeeper(
                    self._connection.group_nodes.describe, in_zookeeper
                )
                described |= {(group.described.group, "zookeeper"): group for group in nodes}
            except KafkaError as error:
                described |= {
                    (group, "zookeeper"): _undescribed(group, error) for group in in_zookeeper
                }
        return described

    async def _list_in_kafka(self) -> StoredGroupListing:
        has_offsets_topic = await self._connection.has_offsets_topic()
        # Return before the exact release is probed, because 0.8.0 logs an error on that.
        if not has_offsets_topic and self._connection.group_nodes is not None:
            return StoredGroupListing([])
        line = (await self._router.exact_version()).line
        if BrokerLine.V0_8 < line < BrokerLine.V0_8_2:
            self._connection.require_group_nodes("list_stored_groups")
        if not has_offsets_topic:
            return StoredGroupListing([])
        errors: list[KafkaError] = []
        types: dict[str, str] = {}
        if line >= BrokerLine.V0_9:
            types = dict(await self._groups.list_consumer_groups(None))
        if not self._lists_idle_groups():
            topic = await self.read_offsets_topic()
            errors += [
                (type(error) if isinstance(error, AUTHORIZATION_ERRORS) else KafkaUnavailableError)(
                    f"groups of {partition_name(tp)} not read: {error.text}"
                )
                for tp, error in topic.errors.items()
            ]
            for group in topic.offsets:
                state = topic.groups.get(group)
                types.setdefault(group, "" if state is None else state.protocol_type)
        groups = [StoredGroup(group, "kafka", type_) for group, type_ in types.items()]
        return StoredGroupListing(groups, errors)

    def _lists_idle_groups(self) -> bool:
        """Return whether ListGroups names groups without members: from 0.10.1 on."""
        versions = [node.version for node in self._router.nodes if node.version is not None]
        # 0.10.1 is also the first release with ListOffsets 1.
        return all(version.supports(ListOffsetsRequest, 1) for version in versions)

    async def _list_in_zookeeper(self) -> StoredGroupListing:
        if self._connection.group_nodes is None:
            version = self._router.version()
            is_0_8 = version is not None and version.line < BrokerLine.V0_9
            return StoredGroupListing([], left_out=_LEFT_OUT if is_0_8 else None)
        names = await self._connection.run_on_zookeeper(self._connection.group_nodes.names)
        zookeeper = self._connection.zookeeper
        if not names and zookeeper is not None and zookeeper.mismatch:
            why = f"no groups in ZooKeeper, perhaps since it is the wrong one. {zookeeper.mismatch}"
            return StoredGroupListing(
                [], left_out=f"{why}Check zookeeper_connect, its chroot, and bootstrap_servers"
            )
        return StoredGroupListing([StoredGroup(name, "zookeeper", PROTOCOL_TYPE) for name in names])

    def _coordinator(self, group: str) -> CoordinatorLookup:
        return self._coordinators.setdefault(group, CoordinatorLookup(self._router, group))

    async def _offsets_in_kafka(
        self, groups: Collection[str], known: Collection[TopicPartition]
    ) -> list[StoredOffsets]:
        # Forget the coordinators of other groups, so that their number stays bounded.
        self._coordinators = {group: self._coordinator(group) for group in groups}
        coordinators = list(self._coordinators.values())
        turns = asyncio.Semaphore(_AT_ONCE)

        async def fetch(coordinator: CoordinatorLookup) -> StoredOffsets:
            async with turns:
                try:
                    offsets = await fetch_group_offsets(self._router, coordinator, known)
                except KafkaError as error:
                    return StoredOffsets(coordinator.group, "kafka", {}, error)
            return StoredOffsets(coordinator.group, "kafka", offsets)

        return await run_together(*map(fetch, coordinators))

    async def _offsets_in_zookeeper(
        self, groups: Collection[str], known: Collection[TopicPartition]
    ) -> list[StoredOffsets]:
        if not groups:
            return []
        if self._connection.group_nodes is None:
            line = (await self._router.exact_version()).line
            return [await self._offsets_by_brokers(group, line, known) for group in groups]
        try:
            offsets_by_group = await self._connection.run_on_zookeeper(
                self._connection.group_nodes.offsets, groups
            )
        except KafkaError as error:
            return [StoredOffsets(group, "zookeeper", {}, error) for group in groups]
        return [
            StoredOffsets(
                group,
                "zookeeper",
                {tp: OffsetAndMetadata(offset, "") for tp, offset in read.offsets.items()},
                errors=read.errors,
                others=read.others,
                texts=read.texts,
            )
            for group, read in offsets_by_group.items()
        ]

    async def _offsets_by_brokers(
        self, group: str, line: BrokerLine, known: Collection[TopicPartition]
    ) -> StoredOffsets:
        store = ZookeeperV0OffsetStore(self._router, group, line)
        try:
            fetched = await store.look_at_each(known)
        except UnsupportedVersionError:  # the brokers have no ZooKeeper
            return StoredOffsets(group, "zookeeper", {})
        except KafkaError as error:
            return StoredOffsets(group, "zookeeper", {}, error)
        offsets = {tp: one for tp, one in fetched.items() if isinstance(one, OffsetAndMetadata)}
        errors = {
            tp: with_text(
                one,
                f"group {group!r}, {partition_name(tp)}: the brokers don't read its offset in "
                f"ZooKeeper: {one.text}. To read the node itself, give "
                "zookeeper_connect='host:2181/chroot'",
            )
            for tp, one in fetched.items()
            if isinstance(one, KafkaError)
        }
        # If no partition can be read, the brokers or the group are the cause, not a node.
        if errors and len(errors) == len(known):
            return StoredOffsets(group, "zookeeper", {}, combined_error(not_fetched(group), errors))
        return StoredOffsets(group, "zookeeper", offsets, errors=errors)


def _owners(
    described: Mapping[tuple[str, GroupStore], ReadGroup],
) -> dict[str, dict[TopicPartition, PartitionOwner]]:
    owners: dict[str, dict[TopicPartition, PartitionOwner]] = {}
    for (group, store), result in described.items():
        if result.described.protocol_type == PROTOCOL_TYPE:
            for tp, member in _owned(result.described).items():
                owners.setdefault(group, {}).setdefault(tp, PartitionOwner(member, store))
    return owners


def _undescribed(group: str, error: KafkaError) -> ReadGroup:
    return ReadGroup(DescribedGroup(0, group, "", "", "", []), error=error)


def _owned(group: DescribedGroup) -> dict[TopicPartition, str]:
    owned: dict[TopicPartition, str] = {}
    for member in group.members:
        owned.update(dict.fromkeys(assigned_partitions(bytes(member.assignment)), member.member))
    return owned
