"""A source and a target of a bridge in tests, and a reader that shares no code with it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

import confluent_kafka

from aiokafka08 import AIOKafkaProducer
from aiokafka08.bridge.config import BridgeConfig, parse_config
from aiokafka08.bridge.copy.copy_session import CopySession
from aiokafka08.bridge.copy.status import CopyStatus
from aiokafka08.bridge.daemon import run_bridge
from aiokafka08.testing import EmbeddedCluster
from tests.brokers import RealCluster

EOF = confluent_kafka.KafkaError._PARTITION_EOF


class Message(NamedTuple):
    """What must arrive, byte for byte."""

    key: bytes | None
    value: bytes | None


MESSAGES = [
    Message(b"key", b"value"),
    Message(None, b"without key"),
    Message(b"", b""),
    Message(b"deleted", None),
    Message(b"\x00\xff", b"\xff\x00" * 1000),
]
"""Null and empty keys and values, and bytes that are no text."""


def bridge_text(
    name: str,
    source: RealCluster | EmbeddedCluster,
    target: RealCluster,
    topics: str,
    more: str = "",
) -> str:
    """Return a bridge's file; `more` are further sections."""
    zookeeper = ""
    if isinstance(source, RealCluster):
        zookeeper = f'zookeeper = "{source.zookeeper_connect}"\n'
    return (
        f'name = "{name}"\n'
        f'[source]\nbootstrap = "{source.bootstrap_servers}"\n{zookeeper}'
        f'[target]\nbootstrap = "{target.bootstrap_servers}"\n'
        f'[topics]\ninclude = ["{topics}"]\n{more}'
    )


def bridge_config(
    name: str, source: RealCluster, target: RealCluster, topics: str, more: str = ""
) -> BridgeConfig:
    return parse_config(bridge_text(name, source, target, topics, more))


def config_without_zookeeper(
    name: str,
    source: EmbeddedCluster | RealCluster,
    target: RealCluster,
    topics: str,
    more: str = "",
) -> BridgeConfig:
    return parse_config(
        f'name = "{name}"\n[source]\nbootstrap = "{source.bootstrap_servers}"\n'
        f'[target]\nbootstrap = "{target.bootstrap_servers}"\n'
        f'[topics]\ninclude = ["{topics}"]\n{more}'
    )


async def write(
    source: EmbeddedCluster | RealCluster, topic: str, messages: Mapping[int, Sequence[Message]]
) -> None:
    """Write messages to the partitions of a topic."""
    async with AIOKafkaProducer(bootstrap_servers=source.bootstrap_servers, acks="all") as producer:
        for partition, of_partition in messages.items():
            for one in of_partition:
                await producer.send(topic, one.value, one.key, partition=partition)
        await producer.flush()


async def copy(
    config: BridgeConfig, new_session: Callable[..., CopySession] = CopySession
) -> CopyStatus:
    """Copy what is there, and return what was done."""
    status = CopyStatus()
    await run_bridge(config, status, until_caught_up=True, new_session=new_session)
    return status


@asynccontextmanager
async def running_bridge(
    config: BridgeConfig,
    *,
    until_caught_up: bool = False,
    new_session: Callable[..., CopySession] = CopySession,
) -> AsyncIterator[tuple[CopyStatus, asyncio.Task[None]]]:
    """Run a bridge while the block runs; yield its status and its task."""
    status = CopyStatus()
    running = asyncio.create_task(
        run_bridge(config, status, until_caught_up=until_caught_up, new_session=new_session)
    )
    try:
        yield status, running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


class TargetReader:
    """Reads a topic of the target with librdkafka, committed records only."""

    def __init__(self, target: RealCluster) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": target.bootstrap_servers,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "log_level": 2,
            }
        )

    def read(self, topic: str) -> dict[int, list[confluent_kafka.Message]]:
        """Return all committed records by partition, up to the present end; blocks."""
        count = len(self._consumer.list_topics(topic, timeout=30).topics[topic].partitions)
        found: dict[int, list[confluent_kafka.Message]] = {number: [] for number in range(count)}
        self._consumer.assign([confluent_kafka.TopicPartition(topic, one, 0) for one in found])
        ended: set[int] = set()
        deadline = time.monotonic() + 60
        while len(ended) < count:
            assert time.monotonic() < deadline, f"{topic} isn't read after 60 s; at ends: {ended}"
            # It waits for so many messages, or for the whole time.
            for one in self._consumer.consume(10_000, 0.1):
                error, partition = one.error(), one.partition()
                assert partition is not None
                if error is None:
                    found[partition].append(one)
                else:
                    assert error.code() == EOF, error
                    ended.add(partition)
        return found

    def messages(self, topic: str) -> dict[int, list[Message]]:
        """Return keys and values by partition."""
        return {
            number: [Message(one.key(), one.value()) for one in records]
            for number, records in self.read(topic).items()
        }

    def close(self) -> None:
        self._consumer.close()
