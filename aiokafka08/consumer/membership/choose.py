"""Choose the kind of group membership by the options and the broker line.

Invariant: a consumer chooses once, after the router has started and knows the line. Its kind of
membership stays through an upgrade of the brokers, because members of the two kinds don't see each
other. For the same reason a `BrokerGroup` with `zookeeper_connect` doesn't join while the group has
members in ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from aiokafka08._core.net.router import Router
from aiokafka08._core.net.versions import BrokerLine
from aiokafka08.consumer.config import ConsumerConfig
from aiokafka08.consumer.member_state import MemberState
from aiokafka08.consumer.membership import Assignee, Membership
from aiokafka08.consumer.membership.no_group import NoGroup
from aiokafka08.consumer.subscription import Subscription
from aiokafka08.errors import IllegalArgumentError, UnsupportedVersionError

if TYPE_CHECKING:  # a consumer without a group imports nothing of groups
    from aiokafka08._core.net.coordinator_lookup import CoordinatorLookup
    from aiokafka08._core.zookeeper.cluster_check import ClusterZookeeper
    from aiokafka08.coordinator.assignors.abstract import AbstractPartitionAssignor


def check_group_options(config: ConsumerConfig) -> dict[str, AbstractPartitionAssignor]:
    """Check the options of a group and return its assignors by name; none without a group.

    Raises:
        IllegalArgumentError: a strategy isn't an assignor, or can't be used in ZooKeeper; or the
            group's name can't be the name of a ZooKeeper node; or as `check_heartbeat`.
        KafkaConfigurationError: `zookeeper_connect` is given, and kazoo isn't installed.
    """
    if config.group_id is None:
        return {}
    from aiokafka08.consumer.membership.group_leader import make_assignors

    assignors = make_assignors(config.assignment_strategies)
    if config.zookeeper_connect is not None:
        from aiokafka08._core.zookeeper.session import check_node_name, require_kazoo
        from aiokafka08.consumer.membership.scala_assignment import scala_strategy

        require_kazoo()
        check_node_name("group_id", config.group_id)
        scala_strategy(config.assignment_strategies)
    else:
        check_heartbeat(config)
    return assignors


def check_heartbeat(config: ConsumerConfig) -> None:
    """Raise IllegalArgumentError if the session would end before the first heartbeat."""
    interval_ms, session_ms = config.heartbeat_interval_s * 1000, config.session_timeout_s * 1000
    if interval_ms >= session_ms:
        raise IllegalArgumentError(
            f"heartbeat_interval_ms={interval_ms:.0f}: expected less than session_timeout_ms="
            f"{session_ms:.0f}. A third of it leaves room for a lost heartbeat"
        )


def choose_membership(
    config: ConsumerConfig,
    assignors: Mapping[str, AbstractPartitionAssignor],
    router: Router,
    subscription: Subscription,
    assignee: Assignee,
    member_state: MemberState,
    coordinator: CoordinatorLookup | None,
    zookeeper: ClusterZookeeper | None,
) -> Membership:
    """Return the membership for these options and the detected broker line."""
    if coordinator is None:
        return NoGroup(router, subscription, assignee)
    if zookeeper is None or _has_groups(router):
        if zookeeper is not None:
            # Groups in ZooKeeper send no heartbeats, so this wasn't checked before.
            check_heartbeat(config)
        from aiokafka08.consumer.membership.broker_group import BrokerGroup

        return BrokerGroup(
            config, assignors, router, subscription, assignee, member_state, coordinator, zookeeper
        )
    from aiokafka08.consumer.membership.zookeeper_group import ZookeeperGroup

    return ZookeeperGroup(config, router, subscription, assignee, member_state, zookeeper)


def check_subscribe(config: ConsumerConfig, router: Router) -> None:
    """Check that `subscribe()` can work with these options on the detected broker line.

    Raises UnsupportedVersionError if the brokers have no groups, and there is no
    `zookeeper_connect`.
    """
    if config.group_id is None or config.zookeeper_connect is not None or _has_groups(router):
        return
    from aiokafka08._core.zookeeper.session import how_to_install

    raise UnsupportedVersionError(
        f"subscribe() with group_id={config.group_id!r}: brokers before 0.9 don't coordinate "
        "groups. Either call assign(): commit() works with it too; or give "
        f"zookeeper_connect='host:2181/chroot'{how_to_install()} to join the "
        "group in ZooKeeper, together with Scala consumers; or leave out group_id to read all "
        "partitions"
    )


def _has_groups(router: Router) -> bool:
    version = router.version()
    return version is None or version.line >= BrokerLine.V0_9
