"""Which membership the options ask for."""

from __future__ import annotations

from aiokafka08.consumer.config import ConsumerConfig
from aiokafka08.consumer.membership import Assignee, Membership
from aiokafka08.consumer.membership.none import NoGroup
from aiokafka08.consumer.subscription import Subscription
from aiokafka08.errors import UnsupportedVersionError
from aiokafka08.net.router import Router


def choose_membership(
    config: ConsumerConfig, router: Router, subscription: Subscription, assignee: Assignee
) -> Membership:
    """The membership for these options."""
    return NoGroup(router, subscription, assignee)


def check_subscribe(config: ConsumerConfig) -> None:
    """Whether `subscribe()` can work with these options.

    Raises:
        UnsupportedVersionError: they ask for a membership that isn't there.
    """
    if config.group_id is not None:
        raise UnsupportedVersionError(
            f"subscribe() with group_id={config.group_id!r} needs consumer groups, which this "
            "version of aiokafka08 doesn't have yet. assign() works with a group_id; without "
            "one, subscribe() reads all partitions"
        )
