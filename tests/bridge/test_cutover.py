"""Hand a group of Kafka's own Scala consumers on 0.8.2.2 to a Java 4.x group, and back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from aiokafka08 import AIOKafkaProducer
from tests._tools.cli.conftest import RunCommand
from tests.bridge.hand_copy import HandCopy, create_topics, write_config
from tests.brokers import RealCluster

PARTITIONS = 3
COUNT = 900
"""Messages in each partition."""


def scala_reads(
    source: RealCluster, folder: Path, topic: str, group: str, count: int, *options: str
) -> set[str]:
    """Let Kafka's own consumer of 0.8.2.2 read messages and commit them in ZooKeeper."""
    properties = folder / f"{group}.properties"
    properties.write_text(f"group.id={group}\n")
    done = source.run_java(
        "kafka.tools.ConsoleConsumer",
        *("--zookeeper", source.zookeeper_connect, "--topic", topic),
        *("--consumer.config", str(properties), "--max-messages", str(count)),
        *options,
    )
    assert done.returncode == 0, done.stderr
    values = done.stdout.splitlines()
    assert len(values) == len(set(values)) == count
    return set(values)


def java_reads(target: RealCluster, topic: str, group: str, count: int) -> list[str]:
    """Let a Java 4.x group read as many messages as there are, and commit them."""
    done = target.run_java(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", target.bootstrap_servers, "--topic", topic, "--group", group),
        *("--timeout-ms", "8000", "--isolation-level", "read_committed"),
        *("--consumer-property", "auto.offset.reset=none"),
        *("--max-messages", str(count)),
    )
    return done.stdout.splitlines()


@pytest.mark.real
@pytest.mark.timeout(300)
@pytest.mark.full
async def test_scala_group_goes_on_as_a_java_group(
    source: RealCluster,
    target: RealCluster,
    unique_topic: Callable[..., str],
    tmp_path: Path,
    cli: RunCommand,
) -> None:
    """0 lost, 0 repeated; and after a rollback the Scala consumers go on where Java ended."""
    topic, group, name = unique_topic("cut"), unique_topic("billing"), unique_topic("b")
    await asyncio.to_thread(source.create_topic, topic, PARTITIONS)
    await asyncio.to_thread(create_topics, target.bootstrap_servers, {topic: PARTITIONS})
    values = {
        partition: [f"{partition}-{number}".encode() for number in range(COUNT)]
        for partition in range(PARTITIONS)
    }
    async with AIOKafkaProducer(bootstrap_servers=source.bootstrap_servers, acks="all") as producer:
        for partition, some in values.items():
            await (await producer.send_many(topic, some, partition=partition))
    everything = {value.decode() for some in values.values() for value in some}
    config = write_config(
        tmp_path, name, source, target, [topic], f'[groups]\ninclude = ["{group}"]\n'
    )

    read = await asyncio.to_thread(
        scala_reads, source, tmp_path, topic, group, 1234, "--from-beginning"
    )

    async def cut_over(*more: str) -> dict[str, tuple[bool, str]]:
        done = await asyncio.to_thread(
            cli, "bridge", "cutover", str(config.path), "--format", "json", *more
        )
        steps = {row["step"]: (row["ready"], row["detail"]) for row in done.json}
        assert (done.code == 0) == all(ready for ready, _ in steps.values())
        return steps

    copy = await asyncio.to_thread(HandCopy, config)
    for partition, some in values.items():
        messages = [(offset, None, value) for offset, value in enumerate(some)]
        for start in range(0, COUNT, 100):
            part = messages[start : start + 100]
            if start % 300 == 0:
                await asyncio.to_thread(copy.copy, topic, partition, part, abort=True)
            if (partition, start) != (2, 800):
                await asyncio.to_thread(copy.copy, topic, partition, part)
    steps = await cut_over("--execute", "--quiet", "0.2", "--timeout", "1")
    assert list(steps) == ["topics", "producers", "copy"]  # it stops at the first
    assert steps["copy"] == (False, f"not copied yet: {topic} (100 behind); is 'bridge run' up?")
    rest = [(offset, None, values[2][offset]) for offset in range(800, COUNT)]
    await asyncio.to_thread(copy.copy, topic, 2, rest)

    planned = await cut_over("--quiet", "0.2")
    assert planned["verification"] == (False, "none yet: run 'bridge verify'")
    steps = await cut_over("--execute", "--quiet", "0.2")
    assert list(steps)[-1] == "carried over", steps
    assert steps["verification"][1] == f"{PARTITIONS * COUNT} messages are equal"

    part_of_rest = await asyncio.to_thread(java_reads, target, topic, group, 500)
    assert len(part_of_rest) == len(set(part_of_rest)) == 500
    assert not set(part_of_rest) & read

    done = await asyncio.to_thread(
        cli, "bridge", "cutover", str(config.path), "--rollback", "--format", "json"
    )
    assert done.code == 0, done.err
    assert {row["outcome"] for row in done.json} <= {"move", "same"}
    back = await asyncio.to_thread(scala_reads, source, tmp_path, topic, group, 400)
    assert not back & (read | set(part_of_rest))

    steps = await cut_over("--execute", "--quiet", "0.2")
    assert list(steps)[-1] == "carried over", steps
    last = await asyncio.to_thread(java_reads, target, topic, group, COUNT * PARTITIONS)
    assert sorted([*last, *back, *part_of_rest, *read]) == sorted(everything)
