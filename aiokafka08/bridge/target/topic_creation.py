"""`TargetTopics`: create and grow topics of the target to match those of the source.

Invariant: `check` writes nothing; `prepare` does only what `topic_plan` decides.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Final

from aiokafka08._wording import some_of
from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.bridge.copy.copy_positions import StoredRuns, owned_topics
from aiokafka08.bridge.copy.status import CopyStatus
from aiokafka08.bridge.errors import BridgeError
from aiokafka08.bridge.sink.sink import BridgeRun
from aiokafka08.bridge.source.source_reader import SourceReader
from aiokafka08.bridge.target.filled_topics import filled_text, filled_topics
from aiokafka08.bridge.target.message_limits import TargetLimits
from aiokafka08.bridge.target.target_cluster import Target
from aiokafka08.bridge.target.topic_plan import (
    LEAST_MESSAGE_BYTES,
    SETTINGS_REFUSED,
    TopicPlan,
    apply_plan,
    plan_topics,
    refused_by_target,
    refuses_settings_of_file,
)
from aiokafka08.errors import KafkaConfigurationError, KafkaError
from aiokafka08.structs import TopicPartition

_log: Final = logging.getLogger("aiokafka08.bridge")


class TargetTopics:
    """The topics that a session copies into; `prepare` updates `status.refused_topics`."""

    def __init__(
        self,
        config: BridgeConfig,
        source: SourceReader,
        target: Target,
        status: CopyStatus,
        run: BridgeRun,
    ) -> None:
        self._config, self._source, self._target = config, source, target
        self._status, self._run = status, run

    async def batch_limit(self, target_topics: Collection[str]) -> int:
        """Return the smallest `max.message.bytes` of existing and new copies, at most the default.

        Raises:
            KafkaError: one of the clusters doesn't respond.
        """
        names = self._config.topics.pairs(await self._source.partition_counts()).values()
        configs = await self._target.topic_configs(
            [name for name in names if name in target_topics]
        )
        new = self._config.target.topic_config
        # A limit that the target leaves out counts as Kafka's default.
        limits = [TargetLimits.of(config).max_message_bytes for config in (new, *configs.values())]
        return min(LEAST_MESSAGE_BYTES, *limits)

    async def check(self, target_counts: Mapping[str, int], *, may_come_later: bool) -> None:
        """Verify that the bridge may copy, and that the target takes the settings of new topics.

        Call it before anything is written.

        Args:
            target_counts: all topics of the target, with their partition counts.
            may_come_later: True only logs the patterns that match no topic of the source.

        Raises:
            BridgeError: a pattern of `topics.include` matches no topic, or no topic is left; the
                bridge has never run, and target topics have messages; or the target refuses
                settings of the source's topics.
            KafkaConfigurationError: the target refuses settings of `target.topic_config`.
            KafkaError: one of the clusters doesn't respond.
        """
        source = await self._source.partition_counts()
        if (mismatch := self._config.topics.mismatch(source)) is not None:
            if not may_come_later:
                raise BridgeError(mismatch)
            _log.warning("%s: %s", self._config.client_id, mismatch)
        if names := await filled_topics(
            self._config, self._target, source, target_counts, self._run
        ):
            raise BridgeError(filled_text(self._config, names))
        plan = await self._plan(source, target_counts, ())
        refused = await refused_by_target(self._config, self._target, plan)
        texts = [
            f"{name}: {topic.text}"
            for name, topic in refused.items()
            if topic.code in SETTINGS_REFUSED
        ]
        if texts:
            text = f"the target refuses to create {some_of(texts)}"
            if await refuses_settings_of_file(self._config, self._target):
                raise KafkaConfigurationError(text)
            raise BridgeError(text)

    async def prepare(self, stored: StoredRuns) -> dict[TopicPartition, TopicPartition]:
        """Create and grow topics; return each partition of the source with that of the target.

        Args:
            stored: the records of the offsets topic; they show which topics the bridge has copied.

        Raises:
            KafkaError: one of the clusters doesn't respond, or the target refuses a topic.
        """
        source = await self._source.partition_counts()
        target = await self._target.partition_counts()
        names = self._config.topics.pairs(source)
        existing = [
            TopicPartition(name, number)
            for topic, name in names.items()
            for number in range(min(source[topic], target.get(name, 0)))
        ]
        # Positions are asked for only if a topic has to grow.
        owned: set[str] = set()
        if any(target.get(name, source[topic]) < source[topic] for topic, name in names.items()):
            committed = await self._target.committed(self._config.position_group, existing)
            owned = owned_topics(committed, stored)
            owned |= {names[topic] for topic in owned if topic in names}
        plan = await self._plan(source, target, owned)
        for topic, reason in plan.refused.items():
            # Logged once for each reason, not at each refresh.
            if self._status.refused_topics.get(topic) != reason:
                _log.error("%s: %s", self._config.client_id, reason)
        self._status.refused_topics = dict(plan.refused)
        await apply_plan(self._config, self._target, plan)
        return {
            TopicPartition(topic, number): TopicPartition(name, number)
            for topic, name in names.items()
            if topic not in plan.refused
            for number in range(source[topic])
        }

    async def _plan(
        self, source: Mapping[str, int], target: Mapping[str, int], owned: Collection[str]
    ) -> TopicPlan:
        configs: Mapping[str, Mapping[str, str]] = {}
        if any(name not in target for name in self._config.topics.pairs(source).values()):
            configs = await self._source_configs()
        return plan_topics(self._config, source, target, configs, owned)

    async def _source_configs(self) -> Mapping[str, Mapping[str, str]]:
        try:
            return await self._source.topic_configs()
        except KafkaConfigurationError:
            raise
        except KafkaError as error:
            raise KafkaError(
                f"settings of the source's topics: {error.text}. Without source.zookeeper in the "
                "bridge's file topics are created with the target's defaults"
            ) from error
