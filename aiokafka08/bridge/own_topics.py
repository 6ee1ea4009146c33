"""The topics in which a bridge keeps its claims and offsets: their settings, and their creation.

A session reads both topics from the beginning, so their brokers must compact them soon. A broker
never compacts the segment that it writes to, which by default takes a week or 1 GiB; it keeps a
removed key for a day; and it waits until half of a log is new.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Final

from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.bridge.errors import TargetError, TargetUnavailableError
from aiokafka08.bridge.target_cluster import TargetCluster, TopicSpec
from aiokafka08.bridge.topics import SETTINGS_REFUSED, release_config

_log = logging.getLogger("aiokafka08.bridge")

_POLICY: Final = "cleanup.policy"

OWN_CONFIG: Final = {
    _POLICY: "compact",
    "segment.bytes": "8388608",
    "segment.ms": "600000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "600000",  # longer than any read of the topics
}


async def create_own_topics(
    config: BridgeConfig, target: TargetCluster, there: Collection[str]
) -> None:
    """Create the topics of the bridge, or give existing ones the settings that they lack.

    A setting that a topic has of its own stays: somebody has chosen it. If the target doesn't allow
    the change, the log says so, and the copy goes on. So it does if the target refuses to create a
    topic with all settings: it is created compacted, with the target's defaults for the rest.

    Args:
        config: the file of the bridge.
        target: the connection.
        there: the topics that the target has.

    Raises:
        TargetError: the target refuses to create a topic, or doesn't respond.
    """
    settings = release_config(config) | OWN_CONFIG
    for name in (config.state_topic, config.offsets_topic):
        if name in there:
            refused = await _add_settings(config, target, name, settings)
        else:
            refused = await _create(config, target, name, settings)
        if refused is not None:
            wanted = ",".join(f"{key}={value}" for key, value in settings.items())
            _log.warning(
                "%s: each start reads topic %r, which grows for long without these settings: %s. "
                "Set them by hand: %s", config.client_id, name, wanted, refused,
            )  # fmt: skip


async def _create(
    config: BridgeConfig, target: TargetCluster, name: str, settings: Mapping[str, str]
) -> str | None:
    """Create a topic; return why it doesn't have all the settings, None if it has."""
    spec = TopicSpec(name, 1, config.target.replication_factor, settings)
    refused = (await target.refused_topics([spec])).get(name)
    if refused is None or refused.code not in SETTINGS_REFUSED:
        await target.create_topic(spec)
        return None
    least = release_config(config) | {_POLICY: OWN_CONFIG[_POLICY]}
    await target.create_topic(spec._replace(config=least))
    return refused.text


async def _add_settings(
    config: BridgeConfig, target: TargetCluster, name: str, settings: Mapping[str, str]
) -> str | None:
    """Give a topic the settings that it lacks; return why not, None if it has them now."""
    try:
        added = await target.add_topic_config(name, settings)
    except TargetUnavailableError:
        raise
    except TargetError as error:
        return error.text
    if added:
        _log.info("%s: topic %r now has %s", config.client_id, name, ", ".join(added))
    return None
