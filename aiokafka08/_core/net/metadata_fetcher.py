"""Request metadata: choose a broker, limit its time, and request bad topics alone.

A topic is bad if its name is invalid or if it can't be created. On 0.8, a bad topic turns the
response for all topics of the request into errors (docs/brokers.md 4.4, 4.5).

Invariant: a broker that hangs delays the result, but doesn't prevent it. A bad topic stays out of
requests for other topics until it gets a different response or isn't needed any more. A topic is
never requested by a name that is too long for a new topic (`topic_names.MAX_NEW_NAME`).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from aiokafka08._core.net.cluster import has_only_errors, is_failed_by_one_topic
from aiokafka08._core.net.config import NetConfig
from aiokafka08._core.net.node import Lane, Node
from aiokafka08._core.net.node_registry import NodeRegistry
from aiokafka08._core.net.staggered_race import Stagger
from aiokafka08._core.topic_names import may_be_new
from aiokafka08.errors import InvalidTopicError
from aiokafka08.protocol.requests.metadata import MetadataRequest, MetadataResponse, TopicState


class MetadataReply(NamedTuple):
    """A Metadata response, and whether all topics were requested."""

    response: MetadataResponse
    all_topics: bool


class _Deadlines(NamedTuple):
    """Loop times: `own`, the deadline of all requests; `soonest`, the earliest one of a caller."""

    own: float
    soonest: float
    stagger: Stagger


class MetadataFetcher:
    """Send metadata requests; each call ends within `request_timeout_ms`."""

    def __init__(self, nodes: NodeRegistry, config: NetConfig) -> None:
        self._nodes = nodes
        self._config = config
        self._isolated: set[str] = set()  # bad topics, to be requested alone

    async def all_topics(
        self,
        by_name: Collection[str] = (),
        *,
        soonest: float = math.inf,
        stagger: Stagger | None = None,
    ) -> list[MetadataReply]:
        """Request all topics, and then by name those of `by_name` that the brokers don't list.

        Args:
            by_name: names of topics.
            soonest: earliest deadline of a caller (loop time); each broker gets a share of the time
                until then.
            stagger: as for `NodeRegistry.request_any()`, shared by all requests of this call.

        Raises:
            NoBrokersAvailable: no broker responded.
        """
        deadlines = self._deadlines(soonest, stagger)
        listing = await self._request_any([], True, deadlines)
        replies = [MetadataReply(listing, True)]
        # The listing creates no topic, and may lack one that was just created.
        listed = {state.topic for state in listing.topics}
        missing = sorted(set(by_name) - listed)
        if too_long := [topic for topic in missing if not may_be_new(topic)]:
            replies.append(_only(listing, too_long))
        if missing := list(filter(may_be_new, missing)):
            replies += await self._request_topics(missing, deadlines)
            self._isolated.intersection_update(by_name)
        return replies

    async def topics(
        self,
        topics: list[str],
        needed: Collection[str],
        *,
        soonest: float = math.inf,
        stagger: Stagger | None = None,
    ) -> list[MetadataReply]:
        """Request these topics: in one request, or one by one if one of them is bad.

        `needed`: all topics that the client needs now; others that are bad are forgotten. The other
        arguments are those of `all_topics()`. Raises NoBrokersAvailable if no broker responded.
        """
        self._isolated.intersection_update(needed)
        deadlines = self._deadlines(soonest, stagger)
        too_long = [topic for topic in topics if not may_be_new(topic)]
        if not too_long:
            return await self._request_topics(topics, deadlines)
        # A request by name could create the topic. The list of all topics shows whether it exists.
        replies = [_only(await self._request_any([], True, deadlines), too_long)]
        if by_name := list(filter(may_be_new, topics)):
            replies += await self._request_topics(by_name, deadlines)
        return replies

    # --- inside -----------------------------------------------------------------------------------

    async def _request_topics(
        self, topics: list[str], deadlines: _Deadlines
    ) -> list[MetadataReply]:
        alone = [topic for topic in topics if topic in self._isolated]
        together = [topic for topic in topics if topic not in self._isolated]
        replies = []
        if together or not alone:
            response = await self._request_any(together, False, deadlines)
            # One of them is bad. Requested alone, it fails alone.
            if is_failed_by_one_topic(response, together):
                alone = topics
            else:
                replies.append(MetadataReply(response, False))
        for topic in alone:
            response = await self._request_any([topic], False, deadlines)
            replies.append(MetadataReply(response, False))
            if has_only_errors(response):
                self._isolated.add(topic)
            else:
                self._isolated.discard(topic)
        return replies

    def _deadlines(self, soonest: float, stagger: Stagger | None) -> _Deadlines:
        now = asyncio.get_running_loop().time()
        return _Deadlines(now + self._config.request_timeout_s, soonest, stagger or Stagger())

    async def _request_any(
        self, topics: list[str], all_topics: bool, deadlines: _Deadlines
    ) -> MetadataResponse:
        attempt_s, now = self._config.limits.attempt_s, asyncio.get_running_loop().time()
        return await self._nodes.request_any(
            lambda node, limit_s: self._request(node, topics, all_topics, min(attempt_s, limit_s)),
            deadlines.own - now,
            caller_s=max(deadlines.soonest - now, 0.0),
            stagger=deadlines.stagger,
        )

    async def _request(
        self, node: Node, topics: list[str], all_topics: bool, timeout_s: float
    ) -> MetadataResponse:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        connection = await node.connection(Lane.CONTROL, timeout_s=timeout_s)
        version = connection.version.highest(MetadataRequest)
        request = MetadataRequest(topics)
        if all_topics:
            request = MetadataRequest([] if version == 0 else None)
        elif not topics and version == 0:
            # In version 0, [] requests all topics, and no request returns only the brokers. So just
            # check that the broker responds, unless it has responded a moment ago.
            if loop.time() - node.last_response > self._config.limits.unresponsive_s:
                await node.ping(deadline - loop.time())
            return MetadataResponse([], -1, [])
        return await connection.request(request, version=version, timeout_s=deadline - loop.time())


def _only(listing: MetadataResponse, topics: Collection[str]) -> MetadataReply:
    """Return the states of topics from a list of all, since a request by name could create them."""
    states = {state.topic: state for state in listing.topics}
    invalid = InvalidTopicError.errno
    response = replace(
        listing,
        topics=[states.get(topic) or TopicState(invalid, topic, False, []) for topic in topics],
    )
    return MetadataReply(response, False)
