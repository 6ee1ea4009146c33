"""The topics of the target: which to create or grow, with which settings. Pure but `apply_plan`.

`plan_topics` compares the two clusters, and `TopicPlan` says what to do; `plan` of the command line
shows it, and a run applies it at each refresh.

Invariant: partition n of the source goes to partition n of the target. A target topic that has
fewer partitions is grown only if the bridge has copied into it before; otherwise it is refused,
since it belongs to somebody else. A topic of the target is never deleted, shrunk or reconfigured
(the bridge's own topics: `own_topics`).

What the settings of 0.8 mean today (`CARRIED`; others are left to the target's defaults):

| 0.8 | today |
|---|---|
| `cleanup.policy` | the same; `dedupe` of 0.8.1 is `compact` |
| `retention.ms` | the same, but by the records' timestamps, not by the segment file's time |
| `retention.bytes` | the same |
| `delete.retention.ms`, `min.cleanable.dirty.ratio`, `segment.bytes`, `segment.ms` | the same |
| `max.message.bytes` | a whole batch, not a message: at least the target's default is set |
| `min.insync.replicas` | the same, if the target's replication factor allows it |
| `unclean.leader.election.enable` | left out: false by default |
| `flush.*`, `index.*`, `segment.index.bytes`, `file.delete.delay.ms` | left out: tuning |
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

CARRIED: Final = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "delete.retention.ms",
    "min.cleanable.dirty.ratio",
    "segment.bytes",
    "segment.ms",
    "max.message.bytes",
    "min.insync.replicas",
)
"""The settings of a source topic that a created target topic gets."""

LEAST_MESSAGE_BYTES: Final = 1_048_588
"""The default of `max.message.bytes` today. The sink's batches have up to a million bytes."""

SETTINGS_REFUSED: Final = ("INVALID_CONFIG", "POLICY_VIOLATION")
"""Errors about a topic's settings: no later attempt helps."""

_ADVICE: Final = {
    "INVALID_CONFIG": ". Mend it in [target.topic_config], which overrides what the source has",
    "INVALID_REPLICATION_FACTOR": ". Mend target.replication_factor",
}


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """What to do at the target: topics to create, topics to grow, and why some can't be copied.

    `refused` has the names of source topics.
    """

    create: tuple[TopicSpec, ...]
    grow: Mapping[str, int]
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
        source: the source's topics that are copied, with their partition counts.
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
    """Return which topics of the target can't be created, and what to do; change nothing.

    If there is none to create, a topic is tried that a new topic of the source would get. Of this
    one only refused settings are returned: its name is made up, and it may never be created.

    Args:
        config: the file of the bridge.
        target: the connection.
        plan: what is to be created.

    Raises:
        TargetError: the target doesn't respond.
    """
    specs = plan.create
    if not specs and config.target.topic_config:
        specs = (_new_topic(config, config.target.topic_config),)
    return {
        name: RefusedTopic(code, f"{code}: {text}{_ADVICE.get(code, '')}")
        for name, (code, text) in (await target.refused_topics(specs)).items()
        if plan.create or code == "INVALID_CONFIG"
    }


async def refuses_settings_of_file(config: BridgeConfig, target: Target) -> bool:
    """Return whether the target refuses a topic for `target.topic_config` alone; change nothing.

    A topic that the target refuses without any settings isn't refused for these.

    Args:
        config: the file of the bridge.
        target: the connection.

    Raises:
        TargetError: the target doesn't respond.
    """

    async def are_refused(settings: Mapping[str, str]) -> bool:
        refused = await target.refused_topics([_new_topic(config, settings)])
        return any(topic.code in SETTINGS_REFUSED for topic in refused.values())

    settings = config.target.topic_config
    return bool(settings) and await are_refused(settings) and not await are_refused({})


def _new_topic(config: BridgeConfig, settings: Mapping[str, str]) -> TopicSpec:
    """Return a topic with which settings are tried; its name is made up."""
    name = f"{config.client_id}.new-topic"
    return TopicSpec(name, 1, config.target.replication_factor, settings)


def target_config(config: Mapping[str, str], replication_factor: int) -> dict[str, str]:
    """Return the settings of a topic to create, for those that the source's topic has.

    Args:
        config: the source's settings.
        replication_factor: of the target; -1 if it decides itself.
    """
    settings = {name: config[name] for name in CARRIED if name in config}
    if "cleanup.policy" in settings:
        settings["cleanup.policy"] = settings["cleanup.policy"].replace("dedupe", "compact")
    if "max.message.bytes" in settings:
        settings["max.message.bytes"] = str(
            max(int(settings["max.message.bytes"]), LEAST_MESSAGE_BYTES)
        )
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
