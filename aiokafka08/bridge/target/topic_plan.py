"""The topics of the target: which to create or grow, with which settings (`plan_topics`, pure).

Invariant: partition n of the source goes to partition n of the target. A target topic that has
fewer partitions is grown only if the bridge has copied into it before; otherwise it is refused,
since it may be another program's. A topic of the target is never deleted, shrunk or reconfigured,
except the bridge's own topics, which `own_topics` gives missing settings.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from aiokafka08._core.topic_names import NewTopicNames
from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.bridge.target.target_cluster import RefusedTopic, Target, TopicSpec
from aiokafka08.errors import InvalidTopicError

_log: Final = logging.getLogger("aiokafka08.bridge")

# The settings that a created target topic takes over from its source topic. Of the others
# `unclean.leader.election.enable` is false by default today, and `flush.*`, `index.*`,
# `segment.index.bytes` and `file.delete.delay.ms` only tune a broker.
CARRIED: Final = (
    "cleanup.policy",
    "retention.ms",  # by the records' timestamps today, not by the segment file's time
    "retention.bytes",
    "delete.retention.ms",
    "min.cleanable.dirty.ratio",
    "segment.bytes",
    "segment.ms",
    "max.message.bytes",
    "min.insync.replicas",
)

# The default of `max.message.bytes` today. The sink's batches have up to a million bytes.
LEAST_MESSAGE_BYTES: Final = 1_048_588

# Errors about a topic's settings, which a retry doesn't cure.
SETTINGS_REFUSED: Final = ("INVALID_CONFIG", "POLICY_VIOLATION")

_ADVICE: Final = {
    "INVALID_CONFIG": ". Mend it in [target.topic_config], which overrides what the source has",
    "INVALID_REPLICATION_FACTOR": ". Mend target.replication_factor",
}


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """The topics to create and to grow at the target, and why source topics can't be copied."""

    create: tuple[TopicSpec, ...]
    grow: Mapping[str, int]
    # By the name of the source topic.
    refused: Mapping[str, str]


def plan_topics(
    config: BridgeConfig,
    source: Mapping[str, int],
    target: Mapping[str, int],
    configs: Mapping[str, Mapping[str, str]],
    owned: Collection[str],
) -> TopicPlan:
    """Compare the topics of both clusters.

    Args:
        config: the file of the bridge.
        source: the source's topics, with their partition counts.
        target: all topics of the target, with their partition counts.
        configs: settings of source topics, as far as they are known.
        owned: target topics into which this bridge has copied before.
    """
    create: list[TopicSpec] = []
    grow: dict[str, int] = {}
    refused: dict[str, str] = {}
    replication = config.target.replication_factor
    names = NewTopicNames(target)
    for topic, name in config.topics.pairs(source).items():
        count, target_count = source[topic], target.get(name)
        if target_count is None:
            try:
                names.add(name)
            except InvalidTopicError as error:
                refused[topic] = f"topic {topic!r}: {error.text}"
                continue
            settings = {
                **target_config(configs.get(topic, {}), replication),
                **config.target.topic_config,
            }
            create.append(TopicSpec(name, count, replication, settings))
        elif target_count < count and name in owned:
            grow[name] = count
        elif target_count < count:
            refused[topic] = (
                f"topic {topic!r} has {count} partitions, but {name!r} at the target has only "
                f"{target_count}; expected at least as many. Add partitions there, or rename "
                "the copy (topics.rename)"
            )
    return TopicPlan(tuple(create), grow, refused)


async def refused_by_target(
    config: BridgeConfig, target: Target, plan: TopicPlan
) -> dict[str, RefusedTopic]:
    """Return the topics of a plan that the target refuses to create, with advice; change nothing.

    If the plan creates no topic, the result may have one with a made-up name.

    Raises:
        TargetError: the target doesn't respond.
    """
    specs = plan.create
    # With nothing to create, try the settings that a new topic would get. Only INVALID_CONFIG
    # counts then: any other error, even POLICY_VIOLATION, may be about the made-up name.
    if not specs and config.target.topic_config:
        specs = (_new_topic(config, config.target.topic_config),)
    return {
        name: RefusedTopic(code, f"{code}: {text}{_ADVICE.get(code, '')}")
        for name, (code, text) in (await target.refused_topics(specs)).items()
        if plan.create or code == "INVALID_CONFIG"
    }


async def refuses_settings_of_file(config: BridgeConfig, target: Target) -> bool:
    """Return whether the target refuses a topic only because of `target.topic_config`.

    Nothing is changed.

    Raises:
        TargetError: the target doesn't respond.
    """

    async def are_refused(settings: Mapping[str, str]) -> bool:
        refused = await target.refused_topics([_new_topic(config, settings)])
        return any(topic.code in SETTINGS_REFUSED for topic in refused.values())

    settings = config.target.topic_config
    # If the target refuses the topic even without settings, the settings aren't the reason.
    return bool(settings) and await are_refused(settings) and not await are_refused({})


def _new_topic(config: BridgeConfig, settings: Mapping[str, str]) -> TopicSpec:
    """Return a topic with a made-up name, to try settings with."""
    name = f"{config.client_id}.new-topic"
    return TopicSpec(name, 1, config.target.replication_factor, settings)


def target_config(config: Mapping[str, str], replication_factor: int) -> dict[str, str]:
    """Return the settings of a topic to create, made from those of the source's topic.

    `replication_factor` is that of the target; -1 if the target decides itself.
    """
    settings = {name: config[name] for name in CARRIED if name in config}
    # 0.8.1 called it "dedupe".
    if "cleanup.policy" in settings:
        settings["cleanup.policy"] = settings["cleanup.policy"].replace("dedupe", "compact")
    # `max.message.bytes` limits a whole batch today, so set at least the target's default.
    if "max.message.bytes" in settings:
        settings["max.message.bytes"] = str(
            max(int(settings["max.message.bytes"]), LEAST_MESSAGE_BYTES)
        )
    # With more replicas required than there are, no record could be written. -1 counts as too few,
    # because the target's default isn't known.
    least = settings.get("min.insync.replicas")
    if least is not None and int(least) > replication_factor:
        del settings["min.insync.replicas"]
    return settings


async def apply_plan(config: BridgeConfig, target: Target, plan: TopicPlan) -> None:
    """Create and grow topics.

    Raises:
        TargetError: the target refuses, or doesn't respond.
    """
    for spec in plan.create:
        if await target.create_topic(spec):
            _log.info(
                "%s: created topic %r with %d partitions at the target",
                config.client_id, spec.name, spec.partitions,
            )  # fmt: skip
    for name, count in plan.grow.items():
        await target.grow_topic(name, count)
        _log.info("%s: topic %r at the target now has %d partitions", config.client_id, name, count)
