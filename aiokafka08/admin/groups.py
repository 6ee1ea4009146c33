"""What an admin client can be asked and told about groups: members, offsets, lag, resets.

The part of `AIOKafkaAdminClient` that is about groups; a base class only so that each file keeps to
one subject. Brokers from 0.9 on coordinate groups and are asked; those of 0.8 don't know their
groups, which are in ZooKeeper (`zookeeper_groups`). Where offsets are kept is `offset_store`'s
business.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Literal, TypeVar

from aiokafka08.errors import (
    CommitFailedError,
    IllegalArgumentError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    UnsupportedVersionError,
    broker_error,
)
from aiokafka08.net.cluster import INTERNAL_TOPICS
from aiokafka08.net.config import one_of
from aiokafka08.net.coordinator_lookup import CoordinatorLookup, check_group_id
from aiokafka08.net.lifecycle import Lifecycle
from aiokafka08.net.list_offsets import list_offsets
from aiokafka08.net.offsets_for_times import offsets_for_times
from aiokafka08.net.retry import retry
from aiokafka08.net.router import Router
from aiokafka08.net.versions import BrokerLine
from aiokafka08.offset_store import CommitIdentity, OffsetStore
from aiokafka08.offset_store.choose import choose_offset_store
from aiokafka08.protocol.api import (
    EARLIEST,
    LATEST,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
)
from aiokafka08.structs import OffsetAndMetadata, TopicPartition
from aiokafka08.zookeeper.groups import GroupRegistry

ResetTo = int | Literal["earliest", "latest"] | datetime.datetime
"""Where a group's offset is put: an offset, an end of the log, or a time."""

_T = TypeVar("_T")
_Question = Callable[[float], Awaitable[_T | KafkaError]]
"""Of the seconds that it may take."""

_NOTHING = OffsetAndMetadata(-1, "")


class GroupCalls:
    """The calls about groups; `AIOKafkaAdminClient` sets the attributes."""

    _router: Router
    _lifecycle: Lifecycle
    _zookeeper_connect: str | None
    _groups: GroupRegistry | None

    # --- groups -----------------------------------------------------------------------------------

    async def find_coordinator(self, group_id: str, coordinator_type: int = 0) -> int:
        """The node id of a group's coordinator (brokers from 0.8.2 on).

        Raises:
            UnsupportedVersionError: the brokers have no coordinators; or another
                `coordinator_type` than 0, which needs brokers from 0.11 on.
            GroupCoordinatorNotAvailableError: none was named within `request_timeout_ms`.
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
        """All groups, as pairs of name and protocol type.

        Brokers from 0.9 on list the groups that they coordinate ("consumer" is the type of
        consumers, "" that of groups that have only committed). On 0.8 it is the groups in
        ZooKeeper.

        Args:
            broker_ids: ask these brokers only.

        Raises:
            UnsupportedVersionError: 0.8 brokers, and no `zookeeper_connect`.
            KafkaError: a broker doesn't answer, or refuses.
        """
        self._lifecycle.check()
        if not self._coordinates():
            registry = self._require_groups("list_consumer_groups")
            return [(name, "consumer") for name in await asyncio.to_thread(registry.groups)]
        answer = await self._router.metadata.fetch_all()
        if broker_ids is None:
            broker_ids = [broker.node_id for broker in answer.brokers]
        listed = await asyncio.gather(*map(self._list, broker_ids))
        return sorted({one for some in listed for one in some})

    async def describe_consumer_groups(
        self,
        group_ids: list[str],
        group_coordinator_id: int | None = None,
        include_authorized_operations: bool = False,
    ) -> list[DescribeGroupsResponse]:
        """Groups with their states, members, and what each member reads; one answer per group.

        `aiokafka08.coordinator.protocol` reads members' metadata and assignments. A group that
        nobody knows is "Dead". On 0.8 it is what ZooKeeper shows, in the same form; there no host
        and client id are known.

        Args:
            group_ids: the names.
            group_coordinator_id: the coordinator of all of them, if it is known.

        Raises:
            UnsupportedVersionError: 0.8 brokers, and no `zookeeper_connect`; or
                `include_authorized_operations`, which needs brokers from 2.3 on.
            KafkaError: a coordinator doesn't answer, or refuses.
        """
        self._lifecycle.check()
        if include_authorized_operations:
            raise UnsupportedVersionError(
                "include_authorized_operations=True needs DescribeGroups 3 (brokers from 2.3 on); "
                "this client speaks the protocol of 0.8"
            )
        described = await self._describe(_checked_names(group_ids), group_coordinator_id)
        return [DescribeGroupsResponse([group]) for group in described]

    # --- their offsets ----------------------------------------------------------------------------

    async def list_consumer_group_offsets(
        self,
        group_id: str,
        group_coordinator_id: int | None = None,
        partitions: list[TopicPartition] | None = None,
        *,
        offsets_storage: str | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a group has committed.

        Args:
            group_id: the group.
            group_coordinator_id: its coordinator, if it is known.
            partitions: of which partitions: then those without an offset have -1. None: of all
                that have one.
            offsets_storage: "kafka", "zookeeper" or "dual", as the group's consumers have it;
                None: the default of the brokers' line (`docs/groups.md`).

        Raises:
            KafkaConfigurationError: an 0.8.0 cluster, and no `zookeeper_connect`.
            UnsupportedVersionError: the brokers' line has no such storage.
            KafkaError: the offsets weren't found out.
        """
        self._lifecycle.check()
        async with self._store(group_id, offsets_storage, group_coordinator_id) as store:
            asked = await self._all_partitions() if partitions is None else _pairs(partitions)
            found = await store.fetch(asked)
        committed = {tp: found.get(tp) for tp in asked}
        if partitions is None:
            return {tp: one for tp, one in committed.items() if one is not None}
        return {tp: one or _NOTHING for tp, one in committed.items()}

    async def list_consumer_group_lag(
        self,
        group_id: str,
        partitions: list[TopicPartition] | None = None,
        *,
        offsets_storage: str | None = None,
    ) -> dict[TopicPartition, int | None]:
        """How many offsets a group is behind the ends of its partitions.

        Offsets aren't messages: compaction and transactions leave holes. Where nothing is committed
        the lag is None.

        Args and errors as `list_consumer_group_offsets`.
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
        offsets: Mapping[TopicPartition, ResetTo],
        *,
        offsets_storage: str | None = None,
    ) -> dict[TopicPartition, int]:
        """Put a group's offsets elsewhere; nobody of the group may be reading meanwhile.

        Consumers that use `assign()` aren't seen by anybody: stop them first.

        Args:
            group_id: the group.
            offsets: per partition an offset within the log, "earliest", "latest", or a `datetime`:
                then so that no message from that time on is missed (as exactly as
                `AIOKafkaConsumer.offsets_for_times` can); "latest" where there is none since.
            offsets_storage: as in `list_consumer_group_offsets`.

        Returns:
            What is committed now.

        Raises:
            IllegalStateError: the group is live; names its members.
            IllegalArgumentError: an offset outside the log, or another value that isn't allowed.
            UnsupportedVersionError: on 0.8 whether a group is live is in ZooKeeper, and there is
                no `zookeeper_connect`.
            KafkaError: not all was committed; names the partitions.
        """
        self._lifecycle.check()
        wanted = {TopicPartition(*tp): _checked_target(tp, to) for tp, to in offsets.items()}
        if not wanted:
            raise IllegalArgumentError(f"offsets={offsets!r}: allowed are partitions, at least one")
        async with self._store(group_id, offsets_storage) as store:
            await self._refuse_live(group_id)
            chosen = await self._targets(wanted)
            try:
                await store.commit(
                    {tp: OffsetAndMetadata(offset, "") for tp, offset in chosen.items()},
                    CommitIdentity(),
                )
            except CommitFailedError as error:
                raise IllegalStateError(
                    f"group {group_id!r} is live: its coordinator takes commits of its members "
                    "only. Stop them first"
                ) from error
        return chosen

    # --- inside -----------------------------------------------------------------------------------

    def _coordinates(self) -> bool:
        """Whether the brokers coordinate groups."""
        version = self._router.version()
        return version is not None and version.line >= BrokerLine.V0_9

    def _require_groups(self, what: str) -> GroupRegistry:
        if self._groups is None:
            raise UnsupportedVersionError(
                f"{what}: brokers of 0.8 don't know their groups, ZooKeeper does. Give "
                "zookeeper_connect='host:2181/chroot' (extra zookeeper)"
            )
        return self._groups

    @asynccontextmanager
    async def _store(
        self, group_id: str, storage: str | None, coordinator_id: int | None = None
    ) -> AsyncIterator[OffsetStore]:
        one_of("offsets_storage", storage, [None, "kafka", "zookeeper", "dual"])
        coordinator = CoordinatorLookup(self._router, check_group_id(group_id), coordinator_id)
        if coordinator_id is not None:
            await self._router.metadata.fetch_all()
        store = choose_offset_store(self._router, coordinator, storage, self._zookeeper_connect)
        try:
            await store.start()
            yield store
        finally:
            await store.stop()

    async def _all_partitions(self) -> list[TopicPartition]:
        answer = await self._router.metadata.fetch_all()
        return [
            TopicPartition(topic.topic, one.partition)
            for topic in answer.topics
            if topic.topic not in INTERNAL_TOPICS
            for one in topic.partitions
        ]

    async def _list(self, node_id: int) -> list[tuple[str, str]]:
        async def ask(left_s: float) -> list[tuple[str, str]] | KafkaError:
            answer = await self._router.request(
                ListGroupsRequest(), node_id=node_id, timeout_s=left_s
            )
            if answer.error_code:
                return broker_error(answer.error_code, f"the groups of node {node_id}")
            return [(one.group, one.protocol_type) for one in answer.groups]

        return await self._patiently(ask)

    async def _describe(
        self, groups: Collection[str], coordinator_id: int | None
    ) -> list[DescribedGroup]:
        if not self._coordinates():
            registry = self._require_groups("describe_consumer_groups")
            return await asyncio.to_thread(registry.describe, groups)
        if coordinator_id is not None:
            await self._router.metadata.fetch_all()  # it has to be reached by its id
        return await asyncio.gather(*(self._describe_one(one, coordinator_id) for one in groups))

    async def _describe_one(self, group: str, coordinator_id: int | None) -> DescribedGroup:
        coordinator = CoordinatorLookup(self._router, group, coordinator_id)

        async def ask(left_s: float) -> DescribedGroup | KafkaError:
            node_id = await coordinator.node_id(timeout_s=left_s)
            try:
                answer = await self._router.request(
                    DescribeGroupsRequest([group]), node_id=node_id, timeout_s=left_s
                )
            except KafkaError:
                coordinator.invalidate(node_id)
                raise
            for one in answer.groups:
                if one.group == group and not one.error_code:
                    return one
                if one.group == group:
                    coordinator.invalidate(node_id)
                    return broker_error(one.error_code, f"group {group!r}")
            return KafkaTimeoutError(f"node {node_id} left group {group!r} out of its answer")

        return await self._patiently(ask)

    async def _patiently(self, ask: _Question[_T]) -> _T:
        """Ask again what may pass, within `request_timeout_ms`."""
        limit_s = self._router.config.request_timeout_s
        return await retry(
            ask,
            deadline=asyncio.get_running_loop().time() + limit_s,
            backoff=self._router.config.backoff(at_least_s=0.01),
            timed_out=lambda last: last or KafkaTimeoutError("no answer"),
            attempt_s=max(limit_s / 4, 1.0),
            is_final=lambda error: not error.retriable,
        )

    async def _refuse_live(self, group: str) -> None:
        """Raise where the group has members, as far as anybody knows."""
        members: list[str] = []
        if self._coordinates():
            [described] = await self._describe([group], None)
            members += [one.member for one in described.members]
        if not self._coordinates() or self._groups is not None:
            registry = self._require_groups("reset_consumer_group_offsets")
            if "/" not in group:  # else ZooKeeper can't have it
                [described] = await asyncio.to_thread(registry.describe, [group])
                members += [one.member for one in described.members]
        if members:
            raise IllegalStateError(
                f"group {group!r} is live: its members would go on from where they are, and commit "
                f"over the new offsets. Stop them first: {', '.join(members)}"
            )

    async def _targets(self, wanted: Mapping[TopicPartition, ResetTo]) -> dict[TopicPartition, int]:
        """The offsets that are meant, within their logs."""
        first, end = await asyncio.gather(
            list_offsets(self._router, dict.fromkeys(wanted, EARLIEST)),
            list_offsets(self._router, dict.fromkeys(wanted, LATEST)),
        )
        times = {
            tp: max(int(to.timestamp() * 1000), 0)
            for tp, to in wanted.items()
            if isinstance(to, datetime.datetime)
        }
        since = await offsets_for_times(self._router, times) if times else {}
        chosen: dict[TopicPartition, int] = {}
        outside = []
        for tp, to in wanted.items():
            if to == "earliest":
                chosen[tp] = first[tp][0]
            elif isinstance(to, int):
                chosen[tp] = to
                if not first[tp][0] <= to <= end[tp][0]:
                    outside.append(
                        f"{tp.topic}/{tp.partition}: {to}, allowed are {first[tp][0]} to "
                        f"{end[tp][0]}"
                    )
            else:
                found = since.get(tp)
                chosen[tp] = end[tp][0] if found is None else found.offset
        if outside:
            raise IllegalArgumentError(f"offsets outside the log: {'; '.join(outside)}")
        return chosen


def _checked_names(groups: object) -> list[str]:
    if isinstance(groups, str) or not isinstance(groups, Iterable):
        raise IllegalArgumentError(f"group_ids={groups!r}: allowed is a list of names")
    return [check_group_id(group) for group in groups]


def _pairs(partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    return [TopicPartition(*tp) for tp in partitions]


def _checked_target(tp: object, to: object) -> ResetTo:
    if isinstance(to, datetime.datetime) or (type(to) is int and to >= 0):
        return to
    if to == "earliest":
        return "earliest"
    if to == "latest":
        return "latest"
    raise IllegalArgumentError(
        f"{to!r} for {tp}: allowed are an offset, 'earliest', 'latest' and a datetime"
    )
