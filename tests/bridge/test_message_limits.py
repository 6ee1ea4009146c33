"""What the target refuses: pure rules, and `bridge plan` on real clusters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import pytest

from aiokafka08 import AIOKafkaProducer
from aiokafka08.bridge.target.message_limits import (
    BATCH_BYTES,
    RECORD_BYTES,
    TargetLimits,
    is_expired,
    refusal,
)
from tests._tools.cli.conftest import RunCommand
from tests.bridge.hand_copy import create_topics, write_config
from tests.brokers import RealCluster

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("config", "key", "value", "timestamp", "text"),
    [
        ({}, None, b"v", None, None),
        ({"cleanup.policy": "compact"}, None, b"v", None, "a null key"),
        ({"cleanup.policy": "compact,delete"}, None, b"v", None, "a null key"),
        ({"cleanup.policy": "compact"}, b"", b"v", None, None),
        ({"max.message.bytes": "100"}, None, bytes(100), None, "max.message.bytes=100"),
        ({"message.timestamp.before.max.ms": "10"}, b"", b"", NOW - 11, "before.max.ms=10"),
        ({"message.timestamp.before.max.ms": "10"}, b"", b"", NOW - 10, None),
        ({"message.timestamp.before.max.ms": "10"}, b"", b"", None, None),
        ({}, b"", b"", NOW + 3_600_001, "after.max.ms=3600000"),
        ({"message.timestamp.difference.max.ms": "10"}, b"", b"", NOW - 11, "before.max.ms=10"),
        ({"message.timestamp.difference.max.ms": "10"}, b"", b"", NOW + 11, "after.max.ms=10"),
        ({"message.timestamp.difference.max.ms": f"{2**63 - 1}"}, b"", b"", NOW + 10**10, None),
        ({"message.timestamp.type": "LogAppendTime"}, b"", b"", NOW + 3_600_001, None),
    ],
)
def test_refusal_names_the_setting(
    config: dict[str, str], key: bytes | None, value: bytes, timestamp: int | None, text: str | None
) -> None:
    found = refusal(TargetLimits.of(config), key, value, timestamp, NOW)
    assert (found is None) == (text is None)
    assert text is None or (found is not None and text in found)


def test_expired_messages_are_older_than_retention() -> None:
    limits = TargetLimits.of({"retention.ms": "1000"})
    assert is_expired(limits, NOW - 1001, NOW)
    assert not is_expired(limits, NOW - 1000, NOW)
    assert not is_expired(limits, None, NOW)
    assert not is_expired(TargetLimits.of({"retention.ms": "-1"}), 0, NOW)
    assert not is_expired(TargetLimits.of({"cleanup.policy": "compact"}), 0, NOW)


@pytest.mark.real
@pytest.mark.timeout(120)
async def test_plan_tells_what_the_target_refuses(
    source: RealCluster,
    target: RealCluster,
    unique_topic: Callable[..., str],
    tmp_path: Path,
    cli: RunCommand,
) -> None:
    """And the target itself refuses the same: the limit of a message's size is exact."""
    small, compacted, missing, clashing = map(unique_topic, ("small", "keys", "missing", "a.b"))
    limit = 2000
    await asyncio.to_thread(
        create_topics, target.bootstrap_servers, {clashing.replace(".", "_"): 1}
    )
    await asyncio.to_thread(
        create_topics, target.bootstrap_servers, {small: 1}, {"max.message.bytes": str(limit)}
    )
    await asyncio.to_thread(
        create_topics, target.bootstrap_servers, {compacted: 1}, {"cleanup.policy": "compact"}
    )
    for topic in (small, compacted, missing, clashing):
        await asyncio.to_thread(source.create_topic, topic)
    async with AIOKafkaProducer(bootstrap_servers=source.bootstrap_servers, acks="all") as producer:
        for topic in (small, compacted):
            for number in range(450):
                value = bytes(limit) if number == 225 and topic == small else b"v"
                key = None if number == 225 and topic == compacted else b"k"
                await producer.send(topic, value, key)

    async def plan(topic: str, *more: str) -> dict[str, tuple[bool, str]]:
        config = write_config(tmp_path, unique_topic("b"), source, target, [topic])
        done = await asyncio.to_thread(
            cli, "bridge", "plan", str(config.path), "--quiet", "0.1", "--format", "json", *more
        )
        assert done.code == 1, done.err  # nothing is copied
        return {row["step"]: (row["ready"], row["detail"]) for row in done.json}

    assert (await plan(small))["messages"][0]  # in the middle: samples don't find it
    ready, detail = (await plan(small, "--scan"))["messages"]
    assert (ready, f"{small}/0 from offset 225 on" in detail) == (False, True)
    ready, detail = (await plan(compacted, "--scan"))["messages"]
    assert (ready, "a null key" in detail, "450 messages read" in detail) == (False, True, True)
    steps = await plan(missing)
    assert steps["topics"] == (
        False,
        f"1 of 1 doesn't exist at the target: 'bridge run' creates {missing} "
        "(1 partition, replication of the target's default)",
    )
    assert steps["producers"][0]
    assert steps["copy"] == (True, "1 partition is copied to the end")
    steps = await plan(clashing)
    ready, detail = steps["topics"]
    assert (ready, f"topic {clashing!r}: " in detail) == (False, True)
    assert steps["messages"] == (True, "0 messages sampled; --scan reads all")

    def sent(size: int) -> str | None:
        errors: list[str | None] = []
        writer = confluent_kafka.Producer({"bootstrap.servers": target.bootstrap_servers})
        writer.produce(
            small,
            bytes(size),
            b"k",
            on_delivery=lambda error, _: errors.append(None if error is None else error.name()),
        )
        writer.flush(30)
        return errors[0]

    room = limit - BATCH_BYTES - RECORD_BYTES - 1
    assert refusal(TargetLimits(max_message_bytes=limit), b"k", bytes(room), None, NOW) is None
    assert await asyncio.to_thread(sent, room) is None
    assert await asyncio.to_thread(sent, limit) == "MSG_SIZE_TOO_LARGE"
