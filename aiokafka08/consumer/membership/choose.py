"""Which membership the options ask for, and whether the brokers' line has it.

The line is known once the router has started, so `check_subscribe` is asked by `start()`, and by
`subscribe()` for a consumer that runs.
"""

from __future__ import annotations

from aiokafka08.consumer.config import ConsumerConfig
from aiokafka08.consumer.membership import Assignee, Membership
from aiokafka08.consumer.membership.broker import BrokerGroup
from aiokafka08.consumer.membership.none import NoGroup
from aiokafka08.consumer.standing import Standing
from aiokafka08.consumer.subscription import Subscription
from aiokafka08.errors import UnsupportedVersionError
from aiokafka08.net.coordinator import Coordinator
from aiokafka08.net.router import Router
from aiokafka08.net.versions import Line


def choose_membership(
    config: ConsumerConfig,
    router: Router,
    subscription: Subscription,
    assignee: Assignee,
    standing: Standing,
    coordinator: Coordinator | None,
) -> Membership:
    """The membership for these options; `coordinator` is None without a group.

    Raises:
        IllegalArgumentError: `partition_assignment_strategy` has something else than assignors.
    """
    if coordinator is None:
        return NoGroup(router, subscription, assignee)
    return BrokerGroup(config, router, subscription, assignee, standing, coordinator)


def check_subscribe(config: ConsumerConfig, router: Router) -> None:
    """Whether `subscribe()` can work with these options on the brokers that were met.

    Raises:
        UnsupportedVersionError: they ask for a membership that isn't there.
    """
    version = router.version()
    if config.group_id is not None and version is not None and version.line < Line.V0_9:
        raise UnsupportedVersionError(
            f"subscribe() with group_id={config.group_id!r}: brokers of {version.line} have no "
            "groups, those from 0.9 on do. Here use assign(), which works with a group_id and "
            "commits; without a group_id, subscribe() reads all partitions"
        )
