"""Groups of the target: members, committed offsets, and MirrorMaker 2's topics about them.

Invariant: offsets are committed only for groups without members; the target itself refuses others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from aiokafka08._wording import partition_name
from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.bridge.errors import TargetError
from aiokafka08.bridge.target.target_cluster import Target, TopicSpec
from aiokafka08.structs import TopicPartition

_TIMEOUT_S: Final = 30.0


class TargetGroups:
    """The groups of the target, and the topics about them."""

    def __init__(self, target: Target, config: BridgeConfig) -> None:
        self._target, self._config = target, config

    async def members(self, groups: Sequence[str]) -> dict[str, list[str]]:
        """Return the members of each group, as "client id (host)"; a group may have none.

        Raises:
            TargetError: the target doesn't respond, or refuses.
        """
        members: dict[str, list[str]] = {}
        if not groups:
            return members
        admin = self._target.admin
        described = admin.describe_consumer_groups(list(groups), request_timeout=_TIMEOUT_S)
        for group, future in described.items():
            action = f"describe group {group!r}"
            try:
                description = await self._target.call(action, future.result)
            except TargetError as error:
                if "GROUP_ID_NOT_FOUND" not in error.text:  # 4.x: a group that never existed
                    raise
                members[group] = []
            else:
                members[group] = [
                    f"{member.client_id} ({member.host})" for member in description.members
                ]
        return members

    async def commit(self, group: str, offsets: Mapping[TopicPartition, tuple[int, str]]) -> None:
        """Commit offsets with their metadata for a group without members.

        Raises:
            TargetError: the group has members, or the target doesn't respond.
        """
        from confluent_kafka import ConsumerGroupTopicPartitions

        make = self._target.confluent.TopicPartition
        places = [
            make(tp.topic, tp.partition, offset, metadata)
            for tp, (offset, metadata) in offsets.items()
        ]
        action = f"commit offsets of group {group!r}"
        futures = self._target.admin.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, places)], request_timeout=_TIMEOUT_S
        )
        done = await self._target.call(action, futures[group].result)
        for place in done.topic_partitions:
            if place.error is not None:
                raise TargetError(f"{action}, {partition_name(place)}: {place.error.str()}")

    async def write(self, topic: str, records: Iterable[tuple[bytes, bytes]]) -> None:
        """Write records to partition 0 of a compacted topic; create the topic if it doesn't exist.

        Raises:
            TargetError: a record wasn't written.
        """
        pending = list(records)
        if not pending:
            return
        if topic not in await self._target.partition_counts():
            replicas = self._config.target.replication_factor
            settings = {"cleanup.policy": "compact"}
            await self._target.create_topic(TopicSpec(topic, 1, replicas, settings))
        await self._target.write_all(topic, pending)
