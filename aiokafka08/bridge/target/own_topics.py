"""The topics in which a bridge keeps its claims and offsets: their settings, and their creation.

Invariant: a setting that a topic has of its own stays, since a user has chosen it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.bridge.copy.offset_runs import RECORD_BYTES
from aiokafka08.bridge.errors import (
    BridgeError,
    TargetAuthenticationError,
    TargetError,
    TargetUnavailableError,
)
from aiokafka08.bridge.sink.sink import BridgeRun
from aiokafka08.bridge.target.message_limits import TargetLimits
from aiokafka08.bridge.target.target_cluster import Target, TopicSpec
from aiokafka08.bridge.target.topic_plan import SETTINGS_REFUSED
from aiokafka08.bridge.target.when_available import when_available

_log: Final = logging.getLogger("aiokafka08.bridge")

_POLICY: Final = "cleanup.policy"
_LIMIT: Final = "max.message.bytes"

# A session reads both topics from the beginning, so their brokers must compact them soon. By
# default a broker doesn't compact the segment that it writes to for a week or 1 GiB, keeps a
# removed key for a day, and waits until half of a log is new.
OWN_CONFIG: Final = {
    _POLICY: "compact",
    "segment.bytes": "8388608",
    "segment.ms": "600000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "600000",  # longer than any read of the topics
}


async def create_own_topics(
    config: BridgeConfig, target: Target, target_topics: Collection[str], run: BridgeRun
) -> None:
    """Create the topics of the bridge, or give existing ones the settings that they lack.

    If the target refuses to change or to show the settings, a warning names them; the copy doesn't
    need them.

    Args:
        config: the file of the bridge.
        target: the connection.
        target_topics: the topics that the target has.
        run: the start of the process, which logs each text once.

    Raises:
        TargetError: the target refuses to create a topic, or doesn't respond.
    """
    names = (config.state_topic, config.offsets_topic)
    for name in names:
        if name in target_topics:
            refused = await _add_settings(config, target, name)
        else:
            refused = await _create(config, target, name)
        if refused is not None:
            wanted = ",".join(f"{key}={value}" for key, value in OWN_CONFIG.items())
            run.log_once(
                config.client_id,
                f"each start reads topic {name!r}, which grows for long without these settings: "
                f"{wanted}. Set them by hand: {refused}",
            )
    # The broker that answers may not know a new topic yet.
    for text in await when_available(lambda: _wrong_settings(target, names)):
        run.log_once(config.client_id, text)


class OwnTopicProblems(NamedTuple):
    """Texts about the topics of a bridge: those that `run` raises, and those that it only logs."""

    refused: list[str]
    logged: list[str]


async def own_topic_problems(
    config: BridgeConfig, target: Target, target_topics: Collection[str]
) -> OwnTopicProblems:
    """Return the texts that a run raises or logs about the topics of the bridge; change nothing.

    Raises:
        TargetError: the target doesn't respond.
    """
    names = (config.state_topic, config.offsets_topic)
    missing = [_least_spec(config, name) for name in names if name not in target_topics]
    refused = [
        f"{name}: {code}: {text}"
        for name, (code, text) in (await target.refused_topics(missing)).items()
    ]
    if config.offsets_topic in target_topics:
        try:
            await own_batch_limit(config, target)
        except BridgeError as error:
            refused.append(error.text)
    logged = await _wrong_settings(target, [name for name in names if name in target_topics])
    return OwnTopicProblems(refused, logged)


async def _wrong_settings(target: Target, names: Iterable[str]) -> list[str]:
    """Return warnings about existing topics of the bridge that a run takes as they are."""
    texts: list[str] = []
    for name in names:
        try:
            own = await target.own_topic_config(name)
        except (TargetUnavailableError, TargetAuthenticationError):
            raise
        except TargetError as error:
            texts.append(
                f"the settings of topic {name!r} at the target aren't known: {error.text}. The "
                f"bridge needs {_POLICY}={OWN_CONFIG[_POLICY]}, and a {_LIMIT} of at least "
                f"{RECORD_BYTES}"
            )
            continue
        # Warn only about a policy of the topic itself. Without one, the start gives it the right
        # policy, whatever the brokers' default is.
        policy = own.get(_POLICY, OWN_CONFIG[_POLICY])
        if policy != OWN_CONFIG[_POLICY]:
            texts.append(
                f"topic {name!r} at the target has {_POLICY}={policy} of its own, and so loses "
                f"what the bridge needs: set {_POLICY}={OWN_CONFIG[_POLICY]}"
            )
    return texts


async def own_batch_limit(config: BridgeConfig, target: Target) -> int | None:
    """Return the largest batch that the offsets topic takes. The topic must exist.

    None if the target doesn't let the bridge read the limit.

    Raises:
        BridgeError: it doesn't take a record of exact offsets, so no transaction could end.
        TargetError: the target doesn't respond.
    """
    name = config.offsets_topic
    try:
        settings = (await target.topic_configs([name]))[name]
    except (TargetUnavailableError, TargetAuthenticationError):
        raise
    except TargetError:
        return None
    limit = TargetLimits.of(settings).max_message_bytes
    if limit < RECORD_BYTES:
        raise BridgeError(
            f"topic {name!r} at the target: {_LIMIT}={limit}: expected at least {RECORD_BYTES}, "
            f"for a record of exact offsets. Raise {_LIMIT} of this topic, or message.max.bytes of "
            "the target's brokers"
        )
    return limit


async def _create(config: BridgeConfig, target: Target, name: str) -> str | None:
    """Create a topic; return why it doesn't have all the settings, None if it has."""
    spec = TopicSpec(name, 1, config.target.replication_factor, OWN_CONFIG)
    refused = (await target.refused_topics([spec])).get(name)
    if refused is None or refused.code not in SETTINGS_REFUSED:
        await target.create_topic(spec)
        return None
    # The copy needs only the policy: the target's defaults do for the rest.
    await target.create_topic(_least_spec(config, name))
    return refused.text


def _least_spec(config: BridgeConfig, name: str) -> TopicSpec:
    """Return a topic with the settings that it can't do without."""
    least = {_POLICY: OWN_CONFIG[_POLICY]}
    return TopicSpec(name, 1, config.target.replication_factor, least)


async def _add_settings(config: BridgeConfig, target: Target, name: str) -> str | None:
    """Give a topic the settings that it lacks; return why not, None if it has them now."""
    try:
        added = await target.add_topic_config(name, OWN_CONFIG)
    except (TargetUnavailableError, TargetAuthenticationError):
        raise
    except TargetError as error:
        return error.text
    if added:
        _log.info("%s: topic %r now has %s", config.client_id, name, ", ".join(added))
    return None
