"""Asking for metadata: which broker, for how long, and topic by topic where one spoils the rest.

Law: one broker that hangs, or one topic that a broker can't answer for, costs the others nothing
but time (docs/brokers.md 4.4, 4.5). When to ask, and what is kept of the answers, is `metadata`'s
business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import NamedTuple

from aiokafka08.errors import KafkaError, NoBrokersAvailable
from aiokafka08.net.cluster import is_failed_by_one_topic, rejects_all_topics
from aiokafka08.net.config import NetConfig
from aiokafka08.net.node import Lane, Node
from aiokafka08.net.node_registry import NodeRegistry
from aiokafka08.protocol.api import MetadataRequest, MetadataResponse

PATIENCE_S = 5.0
"""How long one broker may keep a metadata request before the next one is asked."""


class MetadataReply(NamedTuple):
    """A broker's answer; `everything`: all topics were asked for."""

    response: MetadataResponse
    everything: bool


class MetadataFetcher:
    """Asks brokers for metadata, each question within `request_timeout_ms`."""

    def __init__(self, nodes: NodeRegistry, config: NetConfig) -> None:
        self._nodes = nodes
        self._config = config
        self._spoilers: set[str] = set()  # topics that spoil the answer for others

    async def everything(self, wanted: Collection[str] = ()) -> list[MetadataReply]:
        """Ask for all topics; for those that are `wanted`, but not listed, by name too.

        Raises:
            NoBrokersAvailable: no broker answered.
        """
        end = self._end()
        listing = await self._ask_any([], True, end)
        answers = [MetadataReply(listing, True)]
        # The listing creates none, and may leave out one that was just created.
        listed = {state.topic for state in listing.topics}
        if missing := sorted(set(wanted) - listed):
            answers += await self._ask_topics(missing, end)
        return answers

    async def topics(self, topics: list[str]) -> list[MetadataReply]:
        """Ask for these topics: one answer, or one for each where a topic spoils the others'.

        Raises:
            NoBrokersAvailable: no broker answered.
        """
        return await self._ask_topics(topics, self._end())

    # --- inside -----------------------------------------------------------------------------------

    async def _ask_topics(self, topics: list[str], end: float) -> list[MetadataReply]:
        alone = [topic for topic in topics if topic in self._spoilers]
        together = [topic for topic in topics if topic not in self._spoilers]
        answers = []
        if together or not alone:
            answer = await self._ask_any(together, False, end)
            if is_failed_by_one_topic(answer, together):
                alone = topics
            else:
                answers.append(MetadataReply(answer, False))
        for topic in alone:
            answer = await self._ask_any([topic], False, end)
            answers.append(MetadataReply(answer, False))
            if rejects_all_topics(answer):
                self._spoilers.add(topic)
            else:
                self._spoilers.discard(topic)
        self._spoilers.intersection_update(topics)
        return answers

    def _end(self) -> float:
        """When questions that begin now must have been answered."""
        return asyncio.get_running_loop().time() + self._config.request_timeout_s

    async def _ask_any(self, topics: list[str], everything: bool, end: float) -> MetadataResponse:
        """The answer of the first broker that gives one."""
        loop = asyncio.get_running_loop()
        errors: dict[str, None] = {}
        candidates = self._nodes.candidates()
        while candidates:
            node = candidates.pop(0)
            left_s = end - loop.time()
            if left_s <= 0:
                errors["no time is left to ask others"] = None
                break
            # One that hangs must not take all the time from those that would answer.
            patience_s = min(PATIENCE_S, left_s / 2 if candidates else left_s)
            try:
                return await self._ask(node, topics, everything, patience_s)
            except KafkaError as error:
                errors[error.text] = None
        raise NoBrokersAvailable("no broker answers: " + "; ".join(sorted(errors)))

    async def _ask(
        self, node: Node, topics: list[str], everything: bool, timeout_s: float
    ) -> MetadataResponse:
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        connection = await node.connection(Lane.CONTROL, timeout_s=timeout_s)
        version = connection.version.highest(MetadataRequest)
        request = MetadataRequest(topics)
        if everything:
            request = MetadataRequest([] if version == 0 else None)
        elif not topics and version == 0:
            # [] would mean all topics; an 0.8 broker can't name brokers only.
            return MetadataResponse([], -1, [])
        return await connection.request(request, version=version, timeout_s=end - loop.time())
