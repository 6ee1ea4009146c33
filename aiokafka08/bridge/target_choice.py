"""Choose what the bridge writes with, by the release of the target.

| target | cluster | sink | guarantee |
|---|---|---|---|
| 0.11 and later | `Target` | `TransactionSink` | exactly once |
| 0.8.2 to 0.10 | `OldTarget` | `OrderedSink` | at least once |

Invariant: `config.target.release` alone decides, so all parts of a bridge make the same choice.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Protocol

from aiokafka08.bridge.checked_source import SourceChecksums
from aiokafka08.bridge.checked_target import TargetChecksums
from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.bridge.old_groups import OldTargetGroups
from aiokafka08.bridge.old_target import OldTarget
from aiokafka08.bridge.sequence_check import Portion
from aiokafka08.bridge.sink.base import BridgeRun, BridgeSink
from aiokafka08.bridge.sink.ordered import OrderedSink
from aiokafka08.bridge.sink.sink import TransactionSink
from aiokafka08.bridge.target import Target
from aiokafka08.bridge.target_cluster import TargetCluster
from aiokafka08.bridge.target_groups import ConfluentGroups, TargetGroups
from aiokafka08.bridge.target_release import old_release
from aiokafka08.errors import KafkaConfigurationError, UnsupportedVersionError
from aiokafka08.structs import TopicPartition


class Checksums(Protocol):
    """What reads a range of a partition of the target for its verification."""

    def read(self, tp: TopicPartition, start: int, end: int) -> AsyncGenerator[Portion, None]:
        """Yield the messages from `start` to before `end`, in portions."""

    async def close(self) -> None:
        """Release what it holds."""


async def with_releases(config: BridgeConfig) -> BridgeConfig:
    """Return the configuration with the release of the target, if that is below 0.11.

    A target that isn't known to be old counts as one that has transactions: librdkafka may connect
    where this package's client can't. See `target_release.old_release`.

    Args:
        config: the file of the bridge.

    Raises:
        TargetUnavailableError: no broker of the target responds.
        UnsupportedVersionError: the target is of 0.8.0 or 0.8.1.
        KafkaConfigurationError: the target doesn't know the compression.
    """
    release = await old_release(config)
    if release is None:
        return config
    if release in ("0.8.0", "0.8.1"):
        raise UnsupportedVersionError(
            f"target {config.target.bootstrap} is of {release}, which keeps no groups, so the "
            "bridge could keep no positions there; expected 0.8.2 or later"
        )
    if config.target.compression == "zstd":
        raise KafkaConfigurationError(
            f"target.compression='zstd': the target is of {release}; expected none, gzip, snappy "
            "or lz4"
        )
    return replace(config, target=replace(config.target, release=release))


def guarantee(config: BridgeConfig) -> str:
    """Return what the copy guarantees, in a sentence or two.

    Args:
        config: of `with_releases`.
    """
    if (release := config.target.release) is None:
        return "exactly once: records, exact offsets and positions are in one transaction"
    stamps = "" if release.startswith("0.10") else ", and keeps no timestamps"
    text = (
        f"at least once: the target is of {release}, which has no transactions{stamps}. Records "
        "come first, then the positions, so a crash repeats the records behind the last positions. "
        "None is lost that the target keeps; it may lose acknowledged ones where "
        "unclean.leader.election.enable is true, its default. Brokers don't fence: an older start "
        "of this bridge ends at its next commit, and writes until then"
    )
    if release.startswith("0.8.2"):
        text += (
            ". log.cleaner.enable is false by default in 0.8.2: unless server.properties set it to "
            f"true, {config.offsets_topic} grows for ever"
        )
    return text


def make_target(config: BridgeConfig) -> TargetCluster:
    """Return a connection to the target.

    Args:
        config: of `with_releases`.

    Raises:
        KafkaError: `target.properties` has what the client doesn't support.
    """
    return Target(config) if config.target.release is None else OldTarget(config)


def make_sink(config: BridgeConfig, target: TargetCluster, run: BridgeRun) -> BridgeSink:
    """Return what writes to a target; the arguments are those of `BridgeSink`."""
    if isinstance(target, Target):
        return TransactionSink(config, target, run)
    assert isinstance(target, OldTarget)
    return OrderedSink(config, target, run)


def make_groups(config: BridgeConfig, target: TargetCluster) -> TargetGroups:
    """Return the groups of a target; the arguments are those of `TargetGroups`."""
    if isinstance(target, Target):
        return ConfluentGroups(target, config)
    assert isinstance(target, OldTarget)
    return OldTargetGroups(target, config)


async def make_checksums(config: BridgeConfig, target: TargetCluster) -> Checksums:
    """Return what reads partitions of a target for their verification.

    Args:
        config: the file of the bridge.
        target: the connection, which must outlive the result.

    Raises:
        TargetError: the target doesn't respond.
    """
    if isinstance(target, Target):
        return TargetChecksums(target, config)
    assert isinstance(target, OldTarget)
    async with target.asking("connect"):
        return SourceChecksums(await target.router())
