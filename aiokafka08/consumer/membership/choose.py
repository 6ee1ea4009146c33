"""Which membership the options ask for, and whether the brokers' line has it.

From 0.9 on groups are the brokers', before that they are in ZooKeeper, whoever knows its address.
The line is known once the router has started, so `check_subscribe` is asked by `start()`, and by
`subscribe()` for a consumer that runs.
"""

from __future__ import annotations

from aiokafka08.consumer.config import ConsumerConfig
from aiokafka08.consumer.member_state import MemberState
from aiokafka08.consumer.membership import Assignee, Membership
from aiokafka08.consumer.membership.broker_group import BrokerGroup
from aiokafka08.consumer.membership.no_group import NoGroup
from aiokafka08.consumer.membership.zookeeper_group import ZookeeperGroup
from aiokafka08.consumer.subscription import Subscription
from aiokafka08.errors import UnsupportedVersionError
from aiokafka08.net.coordinator import Coordinator
from aiokafka08.net.router import Router
from aiokafka08.net.versions import BrokerLine


def choose_membership(
    config: ConsumerConfig,
    router: Router,
    subscription: Subscription,
    assignee: Assignee,
    standing: MemberState,
    coordinator: Coordinator | None,
) -> Membership:
    """The membership for these options; `coordinator` is None without a group.

    Raises:
        IllegalArgumentError: an option has a value that the membership can't use.
        KafkaConfigurationError: `zookeeper_connect` without kazoo.
    """
    if coordinator is None:
        return NoGroup(router, subscription, assignee)
    by_broker = BrokerGroup(config, router, subscription, assignee, standing, coordinator)
    if config.zookeeper_connect is None:
        return by_broker
    in_zookeeper = ZookeeperGroup(
        config, router, subscription, assignee, standing, config.zookeeper_connect
    )
    return _ByLine(router, by_broker, in_zookeeper)


class _ByLine:
    """Becomes the membership that fits the brokers when it is started; it stays that through an
    upgrade, since members of both kinds don't see each other."""

    def __init__(self, router: Router, by_broker: Membership, in_zookeeper: Membership) -> None:
        self._router = router
        self._by_broker = by_broker
        self._in_zookeeper = in_zookeeper
        self._chosen: Membership | None = None

    async def start(self) -> None:
        """Choose, and start the choice."""
        self._chosen = self._by_broker if _has_groups(self._router) else self._in_zookeeper
        await self._chosen.start()

    async def stop(self) -> None:
        """Stop the choice."""
        if self._chosen is not None:
            await self._chosen.stop()

    def changed(self) -> None:
        """See `Membership`."""
        if self._chosen is not None:
            self._chosen.changed()

    def check(self) -> None:
        """See `Membership`."""
        if self._chosen is not None:
            self._chosen.check()


def _has_groups(router: Router) -> bool:
    version = router.version()
    return version is None or version.line >= BrokerLine.V0_9


def check_subscribe(config: ConsumerConfig, router: Router) -> None:
    """Whether `subscribe()` can work with these options on the brokers that were met.

    Raises:
        UnsupportedVersionError: they ask for a membership that isn't there.
    """
    if config.group_id is None or config.zookeeper_connect is not None or _has_groups(router):
        return
    raise UnsupportedVersionError(
        f"subscribe() with group_id={config.group_id!r}: brokers before 0.9 coordinate no groups. "
        "Either use assign(), which commits for a group too, or give zookeeper_connect="
        "'host:2181/chroot' (extra zookeeper): then the group lives in ZooKeeper, together with "
        "Scala consumers. Without a group_id, subscribe() reads all partitions"
    )
