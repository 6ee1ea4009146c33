"""What frameworks read of aiokafka's coordinator and subscription, from a consumer's attributes.

`AIOKafkaConsumer` returns them as `_coordinator` and `_subscription`. FastStream logs them.
"""

from __future__ import annotations

from typing import NamedTuple


class CoordinatorAttributes(NamedTuple):
    """`consumer._coordinator`: this member of the group."""

    # The member id that a broker gave; "" without a group, and before the first join
    member_id: str
    # The generation that this member joined last; -1 without a broker's group, and before the first
    # join
    generation: int


class SubscriptionAttributes(NamedTuple):
    """`consumer._subscription`: what `consumer.subscription()` returns."""

    topics: frozenset[str]  # the subscribed topics, or those that match the pattern now
