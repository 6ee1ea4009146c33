"""Other gateways to the same cluster, which clients see as brokers that lead nothing.

A client that knows only one gateway is stuck when that gateway dies. So each gateway names its
peers in its lists of brokers. The address of a peer is its entry: a listener that leads to any of
its brokers.

Invariant: the id of a peer is never that of a broker of the target. To requests that clients send
to all brokers, to add up the responses, the entry answers as a broker that has nothing: the
brokers' own listeners list everything once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping
from typing import Final

from aiokafka08._core.net.config import Address
from aiokafka08._tools.gateway.layouts import Api
from aiokafka08._tools.gateway.options import GatewayOptions

Peers = Callable[[], Mapping[int, Address]]
"""Returns the brokers that stand for other gateways, by their ids."""

FIRST_ID: Final = 1_000_000_001
"""The first id of a peer, far from those of brokers. Otherwise gateways that have seen different
brokers would number the peers differently. Java clients use the highest ids for connections of
their own."""

_OF_EACH_BROKER: Final = frozenset({"ListGroups", "DescribeLogDirs", "ListTransactions"})
"""The APIs that clients send to all brokers, to add up the responses."""


def peer_brokers(options: GatewayOptions, node_ids: Collection[int]) -> dict[int, Address]:
    """Return the brokers that stand for gateways.

    Gateways with the same list name the same brokers, so that none goes when a client changes from
    one gateway to another: hence a gateway that is in its own list names itself.

    Args:
        options: the options of this gateway.
        node_ids: the ids of the target's brokers.
    """
    free = (node_id for node_id in itertools.count(FIRST_ID) if node_id not in node_ids)
    return dict(zip(free, options.peers, strict=False))


def has_no_own(api: Api, version: int) -> bool:
    """Return whether the entry answers a request itself, as a broker that has nothing."""
    return api.name in _OF_EACH_BROKER and version in api.versions
