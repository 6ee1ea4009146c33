"""Groups of a target below 0.11, through this package's own client.

Invariant: offsets are committed only for groups without members. The coordinator of 0.9 and later
refuses others itself; in 0.8.2 only ZooKeeper knows the members, so `target.zookeeper` is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.bridge.errors import TargetError
from aiokafka08.bridge.old_target import OldTarget
from aiokafka08.bridge.target_groups import TargetGroups
from aiokafka08.structs import TopicPartition


class OldTargetGroups(TargetGroups):
    """The groups of a target without transactions; see `TargetGroups`."""

    _target: OldTarget

    def __init__(self, target: OldTarget, config: BridgeConfig) -> None:
        super().__init__(target, config)

    async def members(self, groups: Sequence[str]) -> dict[str, list[str]]:
        """See `TargetGroups`.

        Raises:
            TargetError: the target doesn't respond, or only ZooKeeper knows the members.
        """
        found: dict[str, list[str]] = {group: [] for group in groups}
        if not groups:
            return found
        release = self._config.target.release or ""
        if release.startswith("0.8") and self._config.target.zookeeper is None:
            raise TargetError(
                f"members of groups at the target: brokers of {release} don't know them, ZooKeeper "
                'does; expected target.zookeeper = "host:2181/chroot"'
            )
        async with self._target.asking("describe groups"):
            admin = await self._target.admin()
            stored = await admin.possible_groups(groups)
            for one in await admin.describe_stored_groups(stored):
                if one.error is not None:
                    raise one.error
                if one.description is not None:
                    found[one.group] += [
                        f"{member.client_id or member.member_id} ({member.client_host})"
                        for member in one.description.members
                    ]
        return found

    async def commit(self, group: str, offsets: Mapping[TopicPartition, tuple[int, str]]) -> None:
        """See `TargetGroups`."""
        await self._target.commit(group, offsets)
