"""The calls of `AIOKafkaAdminClient` that change groups: reset offsets, plan resets, delete groups.

The client's methods of the same names document arguments and errors.

Invariant: no group is reset or deleted if a member of it is found. The coordinator names the
members on brokers from 0.9 on, and ZooKeeper does if `zookeeper_connect` is given. Changes on 0.8,
and changes of offsets in ZooKeeper, require `zookeeper_connect`. A plan changes nothing, and
creates nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import Final, Literal, NamedTuple

from aiokafka08._core.concurrency.task_set import run_together
from aiokafka08._core.net.cluster import check_partitions
from aiokafka08._core.net.config import OffsetsStorage
from aiokafka08._core.net.coordinator_lookup import CoordinatorLookup
from aiokafka08._core.offset_store import CommitIdentity
from aiokafka08._core.offset_store.group_offsets import fetch_group_offsets
from aiokafka08._core.offset_store.kafka_store import KafkaOffsetStore
from aiokafka08._core.offset_store.responses import with_text
from aiokafka08._core.zookeeper.session import how_to_install, is_node_name
from aiokafka08._wording import some_of
from aiokafka08.admin.arguments import check_mapping
from aiokafka08.admin.connection import AdminConnection
from aiokafka08.admin.group_lag import (
    GroupStore,
    StoredGroup,
    check_stored_group,
    check_stored_groups,
)
from aiokafka08.admin.group_requests import delete_group
from aiokafka08.admin.groups import open_offset_store
from aiokafka08.admin.offset_reset import (
    PlannedOffset,
    PlanTarget,
    ResetTarget,
    ShiftBy,
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
    KafkaConfigurationError,
    KafkaError,
    NonEmptyGroup,
    UnsupportedVersionError,
)
from aiokafka08.structs import TopicPartition

DeletionOutcome = Literal["deleted", "expiring", "missing"]
"""The outcome of a deletion. "deleted": the group is gone. "expiring": its coordinator removes the
offsets at its next check, within `offsets.retention.check.interval.ms` (by default ten minutes).
"missing": there was no such group."""

# How many groups in Kafka are deleted at a time
_AT_ONCE: Final = 32

_TARGETS: Final = "a mapping of TopicPartition(topic, partition) to targets"


class GroupDeletion(NamedTuple):
    """The outcome of a group's deletion from one store."""

    group: str
    store: GroupStore
    outcome: DeletionOutcome


class GroupChanges:
    """The calls that change groups, or check whether a change would be refused."""

    def __init__(self, connection: AdminConnection, stored_groups: StoredGroupCalls) -> None:
        self._connection = connection
        self._router = connection.router
        self._stored_groups = stored_groups

    async def reset_consumer_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, ResetTarget],
        *,
        offsets_storage: OffsetsStorage | None,
    ) -> dict[TopicPartition, int]:
        self._connection.check()
        targets = {
            tp: check_target(tp, target)
            for tp, target in zip(
                check_partitions(check_mapping("offsets", offsets, _TARGETS)),
                offsets.values(),
                strict=True,
            )
        }
        if not targets:
            raise IllegalArgumentError(f"offsets={offsets!r}: expected at least one partition")
        async with open_offset_store(self._connection, group_id, offsets_storage) as store:
            self._require_members_known(group_id, offsets_storage)
            await self._refuse_known_members([group_id])
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
        self._connection.check()
        check_stored_group(group)
        checked = {
            tp: check_plan_target(tp, target)
            for tp, target in zip(
                check_partitions(check_mapping("targets", targets, _TARGETS)),
                targets.values(),
                strict=True,
            )
        }
        if not checked:
            raise IllegalArgumentError(f"targets={targets!r}: expected at least one partition")
        await self._refuse_known_members([group.group])
        [stored] = await self._stored_groups.list_stored_offsets([group])
        if stored.error is not None:
            raise stored.error
        for tp, target in checked.items():
            if tp in stored.errors and (target == "current" or isinstance(target, ShiftBy)):
                raise stored.errors[tp]
        return await plan_offsets(self._router, checked, stored.offsets, stored.errors)

    async def check_group_changes(self, groups: Iterable[StoredGroup]) -> None:
        self._connection.check()
        wanted = _checked(groups)
        for group in wanted:
            self._require_members_known(group.group, group.store)
        await self._refuse_known_members(dict.fromkeys(group.group for group in wanted))

    async def delete_stored_groups(
        self, groups: Iterable[StoredGroup]
    ) -> list[GroupDeletion | KafkaError]:
        self._connection.check()
        wanted = _checked(groups)
        for group in wanted:
            self._require_members_known(group.group, group.store)
        # All groups are checked before the first one is deleted.
        members = await self._known_members(dict.fromkeys(group.group for group in wanted))
        results: dict[StoredGroup, GroupDeletion | KafkaError] = {}
        for group in wanted:
            if (error := _live_error(group.group, members[group.group])) is not None:
                results[group] = error
        left = [group for group in wanted if group not in results]
        in_zookeeper = {group.group: group for group in left if group.store == "zookeeper"}
        in_kafka = {group.group: group for group in left if group.store == "kafka"}
        outcomes: dict[StoredGroup, DeletionOutcome | KafkaError] = {}
        if in_zookeeper:
            nodes = self._connection.require_group_nodes("delete_stored_group")
            try:
                deleted = await self._connection.run_on_zookeeper(nodes.delete, list(in_zookeeper))
            except (IllegalArgumentError, KafkaConfigurationError):
                raise  # before anything is deleted
            except KafkaError as error:
                deleted = dict.fromkeys(in_zookeeper, error)
            for name, done in deleted.items():
                outcomes[in_zookeeper[name]] = (
                    done if isinstance(done, KafkaError) else "deleted" if done else "missing"
                )
        try:
            deleted_from_kafka = await self._delete_from_kafka(list(in_kafka))
        except KafkaError as error:
            deleted_from_kafka = dict.fromkeys(in_kafka, error)
        for name, outcome in deleted_from_kafka.items():
            outcomes[in_kafka[name]] = outcome
        for group, outcome in outcomes.items():
            if isinstance(outcome, NonEmptyGroup | CommitFailedError):
                live = IllegalStateError(
                    f"group {group.group!r} is live: {outcome.text}. Stop its members first"
                )
                live.__cause__ = outcome
                results[group] = live
            elif isinstance(outcome, KafkaError):
                results[group] = outcome
            else:
                results[group] = GroupDeletion(group.group, group.store, outcome)
        return [results[group] for group in wanted]

    # --- inside -----------------------------------------------------------------------------------

    async def _delete_from_kafka(
        self, groups: Collection[str]
    ) -> dict[str, DeletionOutcome | KafkaError]:
        if not groups:
            return {}
        await self._router.exact_version()  # 0.8.2 differs from the older lines
        metadata = await self._connection.fetch_metadata()
        if not await self._connection.has_offsets_topic(metadata):
            return dict.fromkeys(groups, "missing")
        known = await self._connection.partitions_of(metadata)
        turns = asyncio.Semaphore(_AT_ONCE)

        async def delete(group: str) -> DeletionOutcome | KafkaError:
            async with turns:
                try:
                    return await self._delete_one_from_kafka(group, known)
                except KafkaError as error:
                    return error

        outcomes = await run_together(*map(delete, groups))
        return dict(zip(groups, outcomes, strict=True))

    async def _delete_one_from_kafka(
        self, group: str, known: Collection[TopicPartition]
    ) -> DeletionOutcome:
        coordinator = CoordinatorLookup(self._router, group)
        deleted = await delete_group(self._router, coordinator)
        if deleted is not None:
            return "deleted" if deleted else "missing"

        offsets = await fetch_group_offsets(self._router, coordinator, known)
        if not offsets:
            return "missing"
        # Brokers from 0.9 on accept no commits for topics that are gone.
        known_offsets = {tp: commit for tp, commit in offsets.items() if tp in known}
        await KafkaOffsetStore(self._router, coordinator).expire(known_offsets)
        return "expiring"

    def _require_members_known(self, group: str, storage: str | None) -> None:
        """Raise if only ZooKeeper knows all members, and there is no `zookeeper_connect`."""
        if not self._connection.has_coordinators():
            self._connection.require_group_nodes("a change of a group")
        # The members of a group with offsets in ZooKeeper may be Scala consumers, which no broker
        # knows.
        elif storage in ("zookeeper", "dual") and self._connection.group_nodes is None:
            raise UnsupportedVersionError(
                "a change of a group's offsets in ZooKeeper: only ZooKeeper knows whether the "
                f"group {group!r} has live Scala consumers. Give "
                f"zookeeper_connect='host:2181/chroot'{how_to_install()}"
            )

    async def _refuse_known_members(self, groups: Collection[str]) -> None:
        """Raise if a coordinator or ZooKeeper returns members, or can't be asked."""
        errors = [
            error
            for group, members in (await self._known_members(groups)).items()
            if (error := _live_error(group, members)) is not None
        ]
        if len(errors) > 1:
            # Each reason once: with ZooKeeper away, it is the same for all groups.
            texts = list(dict.fromkeys(error.text for error in errors))
            raise with_text(errors[0], some_of(texts, separator="; "))
        if errors:
            raise errors[0]

    async def _known_members(self, groups: Collection[str]) -> dict[str, list[str] | KafkaError]:
        """Return the members of each group, or the error of a store that can't be read."""
        asked: list[StoredGroup] = []
        if self._connection.has_coordinators():
            asked += [StoredGroup(group, "kafka", "") for group in groups]
        if self._connection.group_nodes is not None:
            asked += [
                StoredGroup(group, "zookeeper", "") for group in groups if is_node_name(group)
            ]
        members: dict[str, list[str] | KafkaError] = {group: [] for group in groups}
        for found in await self._stored_groups.describe_stored_groups(asked):
            known = members[found.group]
            if found.error is not None:
                members[found.group] = found.error
            elif isinstance(known, list) and found.description is not None:
                known += [member.member_id for member in found.description.members]
        return members


def _checked(groups: Iterable[StoredGroup]) -> list[StoredGroup]:
    return list(dict.fromkeys(check_stored_groups(groups)))


def _live_error(group: str, members: list[str] | KafkaError) -> KafkaError | None:
    if isinstance(members, KafkaError):
        return members
    if not members:
        return None
    return IllegalStateError(
        f"group {group!r} is live: its members would continue at their positions, and "
        f"commit over the change. Stop them first: {', '.join(members)}"
    )
