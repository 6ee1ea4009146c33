"""The part of `AIOKafkaAdminClient` that changes groups in one store: plan a reset, delete a group.

`GroupChangeCalls` is a base class of the client. `offset_reset` computes a plan; the reset itself
is `reset_consumer_group_offsets()` of `groups`. Groups are deleted by a request (`group_requests`),
by the expiry of their offsets (`offset_store.kafka_store`), or in ZooKeeper (`zookeeper.groups`).

Invariant: a plan changes nothing, and creates nothing. No group is deleted if a member of it is
found, in Kafka or in ZooKeeper; see `groups`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from aiokafka08 import environment
from aiokafka08.admin.group_lag import GroupStore, StoredGroup, check_stored_group
from aiokafka08.admin.group_requests import delete_group
from aiokafka08.admin.offset_reset import (
    PlannedOffset,
    PlanTarget,
    check_plan_target,
    plan_offsets,
)
from aiokafka08.admin.stored_groups import StoredGroupCalls, all_partitions
from aiokafka08.errors import (
    CommitFailedError,
    IllegalArgumentError,
    IllegalStateError,
    NonEmptyGroup,
)
from aiokafka08.net.config import one_of
from aiokafka08.net.coordinator_lookup import CoordinatorLookup, check_group_id
from aiokafka08.offset_store.group_offsets import fetch_group_offsets
from aiokafka08.offset_store.kafka_store import KafkaOffsetStore
from aiokafka08.structs import TopicPartition

DeletionOutcome = Literal["deleted", "expiring", "missing"]
"""What became of a group: it is gone; its coordinator removes the offsets at its next check, within
`offsets.retention.check.interval.ms` (by default ten minutes); there was none."""


class GroupDeletion(NamedTuple):
    """The outcome of a group's deletion from one store."""

    group: str
    store: GroupStore
    outcome: DeletionOutcome


class GroupChangeCalls(StoredGroupCalls):
    """The calls that change groups; `AIOKafkaAdminClient` sets the attributes."""

    async def plan_group_reset(
        self, group: StoredGroup, targets: Mapping[TopicPartition, PlanTarget]
    ) -> list[PlannedOffset]:
        """Return what a reset of a group would commit, ordered; change nothing.

        An offset outside the log is moved to the nearest one inside (see `PlannedOffset.wanted`).
        To carry the plan out, pass its offsets to `reset_consumer_group_offsets()`, with the
        group's store as `offsets_storage`.

        Args:
            group: the group in one store.
            targets: per partition what `reset_consumer_group_offsets()` takes, or "current" for the
                committed offset (the end of the log if there is none), or a `ShiftBy`.

        Raises:
            IllegalStateError: the group has live members, as far as these can be asked for; the
                error names them.
            IllegalArgumentError: `group` is a name; or a target isn't one of these values, or is a
                `ShiftBy` for a partition without a committed offset.
            UnknownTopicOrPartitionError: a partition doesn't exist.
            KafkaError: offsets could not be fetched.
        """
        self._lifecycle.check()
        check_stored_group(group)
        checked = {TopicPartition(*tp): check_plan_target(tp, one) for tp, one in targets.items()}
        if not checked:
            raise IllegalArgumentError(f"targets={targets!r}: expected at least one partition")
        await self._refuse_known_members(group.group)
        [stored] = await self.list_stored_offsets([group])
        if stored.error is not None:
            raise stored.error
        return await plan_offsets(self._router, checked, stored.offsets)

    async def check_group_change(self, group: StoredGroup) -> None:
        """Raise if a reset or the deletion of a group would be refused now; change nothing.

        Those calls check it themselves. Call it before a change of several groups, for all of them,
        so that none is changed if another one can't be.

        Args:
            group: the group in one store.

        Raises:
            IllegalStateError: the group has live members; the error names them.
            UnsupportedVersionError: the group is in ZooKeeper, or the brokers are of 0.8, and there
                is no `zookeeper_connect`.
            KafkaUnavailableError: `zookeeper_connect` names none of the cluster's brokers.
            KafkaError: a broker or ZooKeeper doesn't respond, or refuses.
        """
        self._lifecycle.check()
        check_group_id(check_stored_group(group).group)
        one_of("store", group.store, ["kafka", "zookeeper"])
        await self._refuse_live_group(group.group, group.store)

    async def delete_stored_group(self, group: StoredGroup) -> GroupDeletion:
        """Delete a group without members from one store, with its committed offsets.

        - In ZooKeeper the group's node is deleted. It needs `zookeeper_connect`.
        - In Kafka from 1.1 on the coordinator deletes the group at once.
        - In Kafka from 0.8.2 to 1.0, which have no request for it, the offsets are committed again
          as of 1970. So the coordinator removes them at its next check, within
          `offsets.retention.check.interval.ms` (by default ten minutes), and writes the tombstones.

        Args:
            group: the group in one store.

        Raises:
            IllegalStateError: the group has live members; the error names them.
            UnsupportedVersionError: the group is in ZooKeeper, or the brokers are of 0.8, and there
                is no `zookeeper_connect`.
            KafkaUnavailableError: `zookeeper_connect` names none of the cluster's brokers.
            KafkaError: a broker or ZooKeeper doesn't respond, or refuses.
        """
        self._lifecycle.check()
        check_group_id(check_stored_group(group).group)
        one_of("store", group.store, ["kafka", "zookeeper"])
        try:
            if group.store == "zookeeper":
                nodes = self._require_group_nodes("delete_stored_group")
                await self._refuse_live_group(group.group, group.store)
                deleted = await environment.run_in_thread(nodes.delete, group.group)
                outcome: DeletionOutcome = "deleted" if deleted else "missing"
            else:
                outcome = await self._delete_from_kafka(group.group)
        except (NonEmptyGroup, CommitFailedError) as error:
            raise IllegalStateError(
                f"group {group.group!r} is live: {error.text}. Stop its members first"
            ) from error
        return GroupDeletion(group.group, group.store, outcome)

    async def _delete_from_kafka(self, group: str) -> DeletionOutcome:
        await self._router.exact_version()  # 0.8.2 differs from the older lines
        metadata = await self._router.metadata.fetch_all()
        if not await self._has_offsets_topic():
            return "missing"
        await self._refuse_live_group(group, "kafka")
        coordinator = CoordinatorLookup(self._router, group)
        deleted = await delete_group(self._router, coordinator)
        if deleted is not None:
            return "deleted" if deleted else "missing"
        known = all_partitions(metadata)
        offsets = await fetch_group_offsets(self._router, coordinator, known)
        if not offsets:
            return "missing"
        # Brokers from 0.9 on accept no commits for topics that are gone.
        there = {tp: one for tp, one in offsets.items() if tp in known}
        await KafkaOffsetStore(self._router, coordinator).expire(there)
        return "expiring"
