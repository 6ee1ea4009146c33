"""The calls of `AIOKafkaAdminClient` that change groups: reset offsets, plan it, delete a group.

`GroupChanges` has them; the client's methods of the same names document arguments and errors.
`offset_reset` computes the offsets of a reset. Groups are deleted by a request (`group_requests`),
by the expiry of their offsets (`_core.offset_store.kafka_store`), or in ZooKeeper
(`_core.zookeeper.group_nodes`).

Invariant: no group is reset or deleted if a member of it is found. The calls ask the coordinator on
brokers from 0.9 on, and ZooKeeper if `zookeeper_connect` is given; a change on 0.8, or of offsets
in ZooKeeper, needs it. A plan changes nothing, and creates nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from aiokafka08._core.net.cluster import check_partitions
from aiokafka08._core.net.config import OffsetsStorage, check_one_of
from aiokafka08._core.net.coordinator_lookup import CoordinatorLookup, check_group_id
from aiokafka08._core.offset_store import CommitIdentity
from aiokafka08._core.offset_store.group_offsets import fetch_group_offsets
from aiokafka08._core.offset_store.kafka_store import KafkaOffsetStore
from aiokafka08._core.zookeeper.session import is_node_name
from aiokafka08.admin.connection import AdminConnection
from aiokafka08.admin.group_lag import GroupStore, StoredGroup, check_stored_group
from aiokafka08.admin.group_requests import delete_group
from aiokafka08.admin.groups import GroupCalls, open_offset_store
from aiokafka08.admin.offset_reset import (
    PlannedOffset,
    PlanTarget,
    ResetTarget,
    check_plan_target,
    check_target,
    find_offsets,
    plan_offsets,
)
from aiokafka08.admin.stored_groups import StoredGroupCalls
from aiokafka08.errors import (
    CommitFailedError,
    IllegalArgumentError,
    IllegalStateError,
    NonEmptyGroup,
    UnsupportedVersionError,
)
from aiokafka08.structs import TopicPartition

DeletionOutcome = Literal["deleted", "expiring", "missing"]
"""What became of a group: it is gone; its coordinator removes the offsets at its next check, within
`offsets.retention.check.interval.ms` (by default ten minutes); there was none."""


class GroupDeletion(NamedTuple):
    """The outcome of a group's deletion from one store."""

    group: str
    store: GroupStore
    outcome: DeletionOutcome


class GroupChanges:
    """The calls that change groups, or tell whether that would be refused.

    Args:
        connection: the cluster.
        groups: describes the members of a group.
        stored_groups: reads the offsets that a plan begins with.
    """

    def __init__(
        self, connection: AdminConnection, groups: GroupCalls, stored_groups: StoredGroupCalls
    ) -> None:
        self._connection = connection
        self._router = connection.router
        self._groups = groups
        self._stored_groups = stored_groups

    async def reset_consumer_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, ResetTarget],
        *,
        offsets_storage: OffsetsStorage | None,
    ) -> dict[TopicPartition, int]:
        """Move the offsets of a group whose consumers are all stopped."""
        self._connection.check()
        targets = {
            tp: check_target(tp, target)
            for tp, target in zip(check_partitions(offsets), offsets.values(), strict=True)
        }
        if not targets:
            raise IllegalArgumentError(f"offsets={offsets!r}: expected at least one partition")
        async with open_offset_store(self._connection, group_id, offsets_storage) as store:
            await self._refuse_live_group(group_id, offsets_storage)
            commits = await find_offsets(self._router, targets)
            try:
                await store.commit(commits, CommitIdentity())
            except CommitFailedError as error:
                raise IllegalStateError(
                    f"group {group_id!r} is live: its coordinator accepts commits from its members "
                    "only. Stop the members first"
                ) from error
        return {tp: commit.offset for tp, commit in commits.items()}

    async def plan_group_reset(
        self, group: StoredGroup, targets: Mapping[TopicPartition, PlanTarget]
    ) -> list[PlannedOffset]:
        """Return what a reset of a group would commit, ordered; change nothing."""
        self._connection.check()
        check_stored_group(group)
        checked = {
            tp: check_plan_target(tp, target)
            for tp, target in zip(check_partitions(targets), targets.values(), strict=True)
        }
        if not checked:
            raise IllegalArgumentError(f"targets={targets!r}: expected at least one partition")
        await self._refuse_known_members(group.group)
        [stored] = await self._stored_groups.list_stored_offsets([group])
        if stored.error is not None:
            raise stored.error
        return await plan_offsets(self._router, checked, stored.offsets)

    async def check_group_change(self, group: StoredGroup) -> None:
        """Raise if a reset or the deletion of a group would be refused now; change nothing."""
        self._connection.check()
        check_group_id(check_stored_group(group).group)
        check_one_of("store", group.store, ["kafka", "zookeeper"])
        await self._refuse_live_group(group.group, group.store)

    async def delete_stored_group(self, group: StoredGroup) -> GroupDeletion:
        """Delete a group without members from one store, with its committed offsets."""
        self._connection.check()
        check_group_id(check_stored_group(group).group)
        check_one_of("store", group.store, ["kafka", "zookeeper"])
        try:
            if group.store == "zookeeper":
                nodes = self._connection.require_group_nodes("delete_stored_group")
                await self._refuse_live_group(group.group, group.store)
                deleted = await self._connection.run_on_zookeeper(nodes.delete, group.group)
                outcome: DeletionOutcome = "deleted" if deleted else "missing"
            else:
                outcome = await self._delete_from_kafka(group.group)
        except (NonEmptyGroup, CommitFailedError) as error:
            raise IllegalStateError(
                f"group {group.group!r} is live: {error.text}. Stop its members first"
            ) from error
        return GroupDeletion(group.group, group.store, outcome)

    # --- inside -----------------------------------------------------------------------------------

    async def _delete_from_kafka(self, group: str) -> DeletionOutcome:
        await self._router.exact_version()  # 0.8.2 differs from the older lines
        metadata = await self._connection.fetch_metadata()
        if not await self._connection.has_offsets_topic():
            return "missing"
        await self._refuse_live_group(group, "kafka")
        coordinator = CoordinatorLookup(self._router, group)
        deleted = await delete_group(self._router, coordinator)
        if deleted is not None:
            return "deleted" if deleted else "missing"
        known = await self._connection.partitions_of(metadata)
        offsets = await fetch_group_offsets(self._router, coordinator, known)
        if not offsets:
            return "missing"
        # Brokers from 0.9 on accept no commits for topics that are gone.
        known_offsets = {tp: commit for tp, commit in offsets.items() if tp in known}
        await KafkaOffsetStore(self._router, coordinator).expire(known_offsets)
        return "expiring"

    async def _refuse_live_group(self, group: str, storage: str | None) -> None:
        """Raise if the coordinator or ZooKeeper knows members of the group.

        On brokers from 0.9 on only groups that have offsets in ZooKeeper need `zookeeper_connect`:
        their members may be Scala consumers, which no broker knows.

        Args:
            group: the group.
            storage: the storage whose offsets are about to change; None for the brokers' default.
        """
        if not self._connection.has_coordinators():
            self._connection.require_group_nodes("a change of a group")
        elif storage in ("zookeeper", "dual") and self._connection.group_nodes is None:
            raise UnsupportedVersionError(
                "a change of a group's offsets in ZooKeeper: only ZooKeeper knows whether the "
                f"group {group!r} has live Scala consumers. Give "
                "zookeeper_connect='host:2181/chroot' (pip install 'aiokafka08[zookeeper]')"
            )
        await self._refuse_known_members(group)

    async def _refuse_known_members(self, group: str) -> None:
        """Raise if members are found in the places that can be asked."""
        members: list[str] = []
        if self._connection.has_coordinators():
            [[described]] = (await self._groups.describe([group], None)).values()
            members += [member.member for member in described.members]
        if self._connection.group_nodes is not None and is_node_name(group):
            [described] = await self._connection.run_on_zookeeper(
                self._connection.group_nodes.describe, [group]
            )
            members += [member.member for member in described.members]
        if members:
            raise IllegalStateError(
                f"group {group!r} is live: its members would continue at their positions, and "
                f"commit over the change. Stop them first: {', '.join(members)}"
            )
