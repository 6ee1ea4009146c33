"""The part of `AIOKafkaAdminClient` that is about groups: members, offsets, lag, resets.

`GroupCalls` is a base class of the client; the calls about topics are in `client`. Brokers from 0.9
on coordinate groups (`group_requests`); the groups of 0.8 are in ZooKeeper (`zookeeper.groups`).
`offset_store` knows where offsets are kept, `offset_reset` computes the offsets of a reset.

Invariant: a reset commits nothing if it finds a member of the group. It asks the coordinator on
brokers from 0.9 on, and ZooKeeper if `zookeeper_connect` is given; a reset on 0.8, or of offsets in
ZooKeeper, needs it. A ZooKeeper that names none of the cluster's brokers is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager

from aiokafka08 import environment
from aiokafka08.admin.group_description import GroupDescriptions
from aiokafka08.admin.group_requests import describe_group, list_groups
from aiokafka08.admin.offset_reset import ResetTarget, check_target, find_offsets
from aiokafka08.errors import (
    CommitFailedError,
    IllegalArgumentError,
    IllegalStateError,
    KafkaUnavailableError,
    UnsupportedVersionError,
)
from aiokafka08.net.cluster import INTERNAL_TOPICS
from aiokafka08.net.config import OffsetsStorage, one_of
from aiokafka08.net.coordinator_lookup import CoordinatorLookup, check_group_id
from aiokafka08.net.lifecycle import Lifecycle
from aiokafka08.net.list_offsets import list_offsets
from aiokafka08.net.router import Router
from aiokafka08.net.versions import BrokerLine
from aiokafka08.offset_store import CommitIdentity, OffsetStore
from aiokafka08.offset_store.choose import choose_offset_store
from aiokafka08.protocol.requests.groups import DescribedGroup
from aiokafka08.protocol.requests.list_offsets import LATEST
from aiokafka08.structs import OffsetAndMetadata, TopicPartition
from aiokafka08.zookeeper.groups import GroupNodes
from aiokafka08.zookeeper.session import is_node_name
from aiokafka08.zookeeper.topics import TopicNodes

_NOTHING = OffsetAndMetadata(-1, "")


class GroupCalls:
    """The calls about groups; `AIOKafkaAdminClient` sets the attributes."""

    _router: Router
    _lifecycle: Lifecycle
    _zookeeper_connect: str | None
    _group_nodes: GroupNodes | None
    _topic_nodes: TopicNodes | None

    # --- groups -----------------------------------------------------------------------------------

    async def find_coordinator(self, group_id: str, coordinator_type: int = 0) -> int:
        """Return the node id of a group's coordinator (brokers from 0.8.2 on).

        Args:
            group_id: the group.
            coordinator_type: 0 for a group (default 0).

        Raises:
            UnsupportedVersionError: the brokers have no coordinators; or `coordinator_type` isn't
                0, which needs brokers from 0.11 on.
            GroupCoordinatorNotAvailableError: no broker named it within `request_timeout_ms`.
        """
        self._lifecycle.check()
        if coordinator_type != 0:
            raise UnsupportedVersionError(
                f"coordinator_type={coordinator_type!r} needs FindCoordinator 1 (brokers from "
                "0.11 on); this client speaks the protocol of 0.8"
            )
        return await CoordinatorLookup(self._router, check_group_id(group_id)).node_id()

    async def list_consumer_groups(
        self, broker_ids: list[int] | None = None
    ) -> list[tuple[str, str]]:
        """Return name and protocol type of all groups.

        Brokers from 0.9 on list the groups that they coordinate. The type is "consumer" for groups
        of consumers. It is "" for groups that have committed offsets, but never had a member. On
        0.8 the groups in ZooKeeper are listed.

        Args:
            broker_ids: the node ids of the brokers to ask; None for all (default None).

        Raises:
            UnsupportedVersionError: the brokers are of 0.8, and there is no `zookeeper_connect`.
            KafkaError: a broker doesn't respond, or refuses.
        """
        self._lifecycle.check()
        if not self._has_coordinators():
            nodes = self._require_group_nodes("list_consumer_groups")
            return [(name, "consumer") for name in await environment.run_in_thread(nodes.names)]
        response = await self._router.metadata.fetch_all()
        if broker_ids is None:
            broker_ids = [broker.node_id for broker in response.brokers]
        listed = await asyncio.gather(*(list_groups(self._router, one) for one in broker_ids))
        return sorted({group for groups in listed for group in groups})

    async def describe_consumer_groups(
        self,
        group_ids: list[str],
        group_coordinator_id: int | None = None,
        include_authorized_operations: bool = False,
    ) -> list[GroupDescriptions]:
        """Return state, members and assignments of the groups, in one item per coordinator.

        `aiokafka08.coordinator.protocol` decodes the members' metadata and assignments. An unknown
        group has the state "Dead". The call creates no group, and not the offsets topic. On 0.8 one
        item shows the groups in ZooKeeper, without hosts and client ids.

        Args:
            group_ids: the names.
            group_coordinator_id: the node id of the coordinator of all these groups; None finds it
                (default None).
            include_authorized_operations: True raises `UnsupportedVersionError` (default False).

        Raises:
            UnsupportedVersionError: the brokers are of 0.8, and there is no `zookeeper_connect`; or
                `include_authorized_operations` is given, which needs brokers from 2.3 on.
            KafkaError: a coordinator doesn't respond, or refuses.
        """
        self._lifecycle.check()
        if include_authorized_operations:
            raise UnsupportedVersionError(
                "include_authorized_operations=True needs DescribeGroups 3 (brokers from 2.3 on); "
                "this client speaks the protocol of 0.8"
            )
        described = await self._describe(_checked_names(group_ids), group_coordinator_id)
        return [GroupDescriptions.of(groups) for groups in described.values()]

    # --- their offsets ----------------------------------------------------------------------------

    async def list_consumer_group_offsets(
        self,
        group_id: str,
        group_coordinator_id: int | None = None,
        partitions: list[TopicPartition] | None = None,
        *,
        offsets_storage: OffsetsStorage | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets that a group has committed.

        Args:
            group_id: the group.
            group_coordinator_id: the node id of its coordinator; None finds it (default None).
            partitions: return these, with offset -1 where nothing is committed. None: return all
                partitions that have a committed offset (default None).
            offsets_storage: "kafka", "zookeeper" or "dual", the same as the group's consumers;
                None for the default of the brokers' line (`docs/groups.md`; default None).

        Raises:
            KafkaConfigurationError: the brokers are of 0.8.0, and there is no `zookeeper_connect`.
            UnsupportedVersionError: the brokers' line doesn't have the storage.
            KafkaError: the offsets could not be fetched.
        """
        self._lifecycle.check()
        async with self._store(group_id, offsets_storage, group_coordinator_id) as store:
            if partitions is None:
                wanted = await self._all_partitions()
            else:
                wanted = [TopicPartition(*tp) for tp in partitions]
            found = await store.fetch(wanted)
        committed = {tp: found.get(tp) for tp in wanted}
        if partitions is None:
            return {tp: one for tp, one in committed.items() if one is not None}
        return {tp: one or _NOTHING for tp, one in committed.items()}

    async def list_consumer_group_lag(
        self,
        group_id: str,
        partitions: list[TopicPartition] | None = None,
        *,
        offsets_storage: OffsetsStorage | None = None,
    ) -> dict[TopicPartition, int | None]:
        """Return how many offsets a group is behind the end of each partition.

        The lag counts offsets, not messages: compaction and transactions leave gaps. It is None
        where nothing is committed. The arguments are those of `list_consumer_group_offsets`, with
        the same defaults, and so are the errors.
        """
        committed = await self.list_consumer_group_offsets(
            group_id, partitions=partitions, offsets_storage=offsets_storage
        )
        known = {tp: one.offset for tp, one in committed.items() if one.offset >= 0}
        ends = await list_offsets(self._router, dict.fromkeys(known, LATEST))
        lags = {tp: max(ends[tp][0] - offset, 0) for tp, offset in known.items()}
        return {tp: lags.get(tp) for tp in committed}

    async def reset_consumer_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, ResetTarget],
        *,
        offsets_storage: OffsetsStorage | None = None,
    ) -> dict[TopicPartition, int]:
        """Move the offsets of a group whose consumers are all stopped.

        The call refuses a group with live members. Brokers and ZooKeeper don't know consumers that
        use `assign()`: stop these before the call.

        Args:
            group_id: the group.
            offsets: per partition an offset within the log (as an `OffsetAndMetadata` with a text),
                "earliest", "latest", or a `datetime`. A datetime means the offset that
                `AIOKafkaConsumer.offsets_for_times` returns for it: a reader that begins there gets
                all messages of that time or later. It means "latest" if there is no such message.
            offsets_storage: as in `list_consumer_group_offsets` (default None).

        Returns:
            The offsets that are committed now.

        Raises:
            IllegalStateError: the group has live members; the error names them.
            IllegalArgumentError: an offset is outside the log, or isn't one of the values above.
            UnsupportedVersionError: the brokers are of 0.8, or the offsets are in ZooKeeper, and
                there is no `zookeeper_connect`: only ZooKeeper knows the members.
            KafkaUnavailableError: `zookeeper_connect` names none of the cluster's brokers.
            KafkaError: some offsets were not committed; the error names the partitions.
        """
        self._lifecycle.check()
        targets = {TopicPartition(*tp): check_target(tp, one) for tp, one in offsets.items()}
        if not targets:
            raise IllegalArgumentError(f"offsets={offsets!r}: expected at least one partition")
        async with self._store(group_id, offsets_storage) as store:
            await self._refuse_live_group(group_id, offsets_storage)
            found = await find_offsets(self._router, targets)
            try:
                await store.commit(found, CommitIdentity())
            except CommitFailedError as error:
                raise IllegalStateError(
                    f"group {group_id!r} is live: its coordinator accepts commits from its members "
                    "only. Stop the members first"
                ) from error
        return {tp: one.offset for tp, one in found.items()}

    # --- inside -----------------------------------------------------------------------------------

    def _has_coordinators(self) -> bool:
        """Return True if the brokers coordinate groups."""
        version = self._router.version()
        return version is not None and version.line >= BrokerLine.V0_9

    def _require_group_nodes(self, call: str) -> GroupNodes:
        if self._group_nodes is None:
            raise UnsupportedVersionError(
                f"{call}: brokers of 0.8 don't know their groups, ZooKeeper does. Give "
                "zookeeper_connect='host:2181/chroot' (pip install 'aiokafka08[zookeeper]')"
            )
        return self._group_nodes

    async def _has_offsets_topic(self) -> bool:
        """Return True if the offsets topic exists, without which no group is in Kafka.

        The first lookup of a coordinator would create it (docs/brokers.md 8.9).
        """
        response = await self._router.metadata.fetch_all()
        return any(topic.topic in INTERNAL_TOPICS for topic in response.topics)

    @asynccontextmanager
    async def _store(
        self, group_id: str, storage: str | None, coordinator_id: int | None = None
    ) -> AsyncIterator[OffsetStore]:
        one_of("offsets_storage", storage, [None, "kafka", "zookeeper", "dual"])
        coordinator = CoordinatorLookup(self._router, check_group_id(group_id), coordinator_id)
        if coordinator_id is not None:
            await self._router.metadata.fetch_all()  # so that the router knows the node's address
        store = await choose_offset_store(
            self._router, coordinator, storage, self._zookeeper_connect
        )
        try:
            await store.start()
            yield store
        finally:
            await store.stop()

    async def _all_partitions(self) -> list[TopicPartition]:
        response = await self._router.metadata.fetch_all()
        return [
            TopicPartition(topic.topic, one.partition)
            for topic in response.topics
            if topic.topic not in INTERNAL_TOPICS
            for one in topic.partitions
        ]

    async def _describe(
        self, groups: Collection[str], coordinator_id: int | None
    ) -> dict[int | None, list[DescribedGroup]]:
        """Return the groups by coordinator; None stands for ZooKeeper."""
        if not self._has_coordinators():
            nodes = self._require_group_nodes("describe_consumer_groups")
            return {None: await environment.run_in_thread(nodes.describe, groups)}
        # The metadata also tells the router the addresses of the nodes.
        if not await self._has_offsets_topic():
            return {None: [DescribedGroup(0, group, "Dead", "", "", []) for group in groups]}
        described: dict[int | None, list[DescribedGroup]] = {}
        for node_id, one in await asyncio.gather(
            *(
                describe_group(self._router, CoordinatorLookup(self._router, one, coordinator_id))
                for one in groups
            )
        ):
            described.setdefault(node_id, []).append(one)
        return described

    async def _refuse_live_group(self, group: str, storage: str | None) -> None:
        """Raise if the coordinator or ZooKeeper knows members of the group.

        On brokers from 0.9 on only groups that have offsets in ZooKeeper need `zookeeper_connect`:
        their members may be Scala consumers, which no broker knows.

        Args:
            group: the group.
            storage: the storage whose offsets are about to change; None for the brokers' default.
        """
        if not self._has_coordinators():
            self._require_group_nodes("a change of a group")
        elif storage in ("zookeeper", "dual") and self._group_nodes is None:
            raise UnsupportedVersionError(
                "a change of a group's offsets in ZooKeeper: only ZooKeeper knows whether the "
                f"group {group!r} has live Scala consumers. Give "
                "zookeeper_connect='host:2181/chroot' (pip install 'aiokafka08[zookeeper]')"
            )
        await self._refuse_known_members(group)

    async def _refuse_known_members(self, group: str) -> None:
        """Raise if members are found in the places that can be asked."""
        members: list[str] = []
        if self._has_coordinators():
            [[described]] = (await self._describe([group], None)).values()
            members += [one.member for one in described.members]
        if self._group_nodes is not None and is_node_name(group):
            await self._refuse_other_zookeeper()
            [described] = await environment.run_in_thread(self._group_nodes.describe, [group])
            members += [one.member for one in described.members]
        if members:
            raise IllegalStateError(
                f"group {group!r} is live: its members would continue at their positions, and "
                f"commit over the change. Stop them first: {', '.join(members)}"
            )

    async def _refuse_other_zookeeper(self) -> None:
        """Raise if `zookeeper_connect` isn't the cluster's: no member would be found there."""
        assert self._topic_nodes is not None  # given together with `_group_nodes`
        registered = await environment.run_in_thread(self._topic_nodes.broker_ids)
        node_ids = {one.node_id for one in (await self._router.metadata.fetch_all()).brokers}
        if registered.isdisjoint(node_ids):
            raise KafkaUnavailableError(
                f"ZooKeeper {self._zookeeper_connect} isn't that of the cluster: it has the "
                f"brokers {_numbers(registered)}, the cluster has {_numbers(node_ids)}. Check its "
                "address and the chroot"
            )


def _numbers(node_ids: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(node_ids)))


def _checked_names(groups: object) -> list[str]:
    if isinstance(groups, str) or not isinstance(groups, Iterable):
        raise IllegalArgumentError(f"group_ids={groups!r}: expected a list of names")
    return [check_group_id(group) for group in groups]
