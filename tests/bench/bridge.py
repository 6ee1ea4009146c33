"""The bridge beside MirrorMaker 2 of 3.9.1, by turns, from the same source to the same target.

    nox -s bench -- --bridge                        # 0.10.2.2, the oldest that MirrorMaker 2 reads
    python -m tests.bench.bridge --messages 500000 --size 100 --runs 3

A run copies a topic that is full before it starts. Rate, CPU seconds and memory are measured from
outside, from the moment when a tenth of the messages are at the target until all are: so neither
JVM's nor Python's start counts. `mm2` has MirrorMaker 2's defaults, but for the two settings
without which it doesn't run on 0.10; `mm2-tuned` has a linger of 50 ms and batches of 256 KiB. Each
JVM has the optimising compiler. The bridge has its defaults, with transactions and exact offsets;
MirrorMaker 2 is without transactions.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import confluent_kafka
import psutil

from aiokafka08 import AIOKafkaProducer
from tests.brokers import RealCluster
from tests.brokers.java_process import java_argv, write_logging_files
from tests.brokers.versions import find_version

ROOT = Path(__file__).parents[2]
_TIMEOUT_S = 600.0
_BEGIN_SHARE = 0.1


class CopyFigures(NamedTuple):
    """A copy: messages per second, CPU seconds per million messages, peak memory in MB."""

    rate: float
    cpu_per_million: float
    rss_mb: float


async def fill(source: RealCluster, topic: str, messages: int, size: int, partitions: int) -> None:
    """Write the messages to copy."""
    await asyncio.to_thread(source.create_topic, topic, partitions)
    async with AIOKafkaProducer(bootstrap_servers=source.bootstrap_servers, acks="all") as producer:
        for partition in range(partitions):
            left = messages // partitions
            while left:
                count = min(left, 20_000)
                values = [os.urandom(8) + b"x" * (size - 8) for _ in range(count)]
                await (await producer.send_many(topic, values, partition=partition))
                left -= count


def at_target(consumer: confluent_kafka.Consumer, topic: str, partitions: int) -> int:
    """Return how many offsets the target's topic has."""
    found = 0
    for number in range(partitions):
        partition = confluent_kafka.TopicPartition(topic, number)
        try:
            found += consumer.get_watermark_offsets(partition, timeout=10)[1]
        except confluent_kafka.KafkaException:
            continue  # not created yet
    return found


def measure(
    target: RealCluster, topic: str, messages: int, partitions: int, command: list[str], log: Path
) -> CopyFigures:
    """Run a copier until all messages are at the target, and kill it."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": target.bootstrap_servers, "group.id": "meter", "log_level": 2}
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
        )
    try:
        meter = psutil.Process(process.pid)
        deadline = time.monotonic() + _TIMEOUT_S
        begun: tuple[float, float, int] | None = None
        peak = 0
        while True:
            count = at_target(consumer, topic, partitions)
            now, used = time.monotonic(), sum(meter.cpu_times()[:2])
            peak = max(peak, meter.memory_info().rss)
            if begun is None and count >= messages * _BEGIN_SHARE:
                begun = now, used, count
            if count >= messages and begun is not None:
                copied = max(messages - begun[2], 1)
                return CopyFigures(
                    copied / max(now - begun[0], 1e-9),
                    (used - begun[1]) / copied * 1e6,
                    peak / 2**20,
                )
            if process.poll() is not None or now > deadline:
                text = log.read_text(errors="replace")[-3000:]
                raise RuntimeError(f"{command[0]}: {count} of {messages} were copied:\n{text}")
            time.sleep(0.02)
    finally:
        process.kill()
        process.wait()
        consumer.close()


def bridge_command(source: RealCluster, target: RealCluster, topic: str, folder: Path) -> list[str]:
    """Return the command of the bridge."""
    file = folder / f"{topic}.toml"
    file.write_text(
        f'name = "{topic}"\n[source]\nbootstrap = "{source.bootstrap_servers}"\n'
        f'[target]\nbootstrap = "{target.bootstrap_servers}"\n[topics]\ninclude = ["{topic}"]\n'
    )
    return [sys.executable, "-m", "aiokafka08", "bridge", "run", str(file)]


def mirror_command(
    source: RealCluster, target: RealCluster, topic: str, folder: Path, *, tuned: bool
) -> list[str]:
    """Return the command of MirrorMaker 2."""
    tuning = {"producer.linger.ms": 50, "producer.batch.size": 262144} if tuned else {}
    properties = {
        "clusters": "source,target",
        "source.bootstrap.servers": source.bootstrap_servers,
        "target.bootstrap.servers": target.bootstrap_servers,
        "source->target.enabled": "true",
        "source->target.topics": topic,
        "target->source.enabled": "false",
        "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        "replication.factor": 1,
        "tasks.max": 2,
        "emit.heartbeats.enabled": "false",
        "emit.checkpoints.enabled": "false",
        "sync.topic.acls.enabled": "false",
        "sync.topic.configs.enabled": "false",
        "offset-syncs.topic.replication.factor": 1,
        "offset-syncs.topic.location": "target",
        "offset.storage.replication.factor": 1,
        "status.storage.replication.factor": 1,
        "config.storage.replication.factor": 1,
        **{f"target.{name}": value for name, value in tuning.items()},
    }
    file = folder / f"{topic}.properties"
    file.write_text("".join(f"{name} = {value}\n" for name, value in properties.items()))
    return java_argv(
        find_version("3.9.1-mirror"),
        folder,
        "org.apache.kafka.connect.mirror.MirrorMaker",
        str(file),
        heap="1g",
        java_options=["-XX:TieredStopAtLevel=4"],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.bench.bridge")
    parser.add_argument("--messages", type=int, default=500_000, help="per run (default 500000)")
    parser.add_argument("--size", type=int, default=100, help="bytes of a value (default 100)")
    parser.add_argument("--partitions", type=int, default=4, help="of a topic (default 4)")
    parser.add_argument("--runs", type=int, default=3, help="of each copier (default 3)")
    parser.add_argument("--source", default="0.10.2.2", help="version (default 0.10.2.2)")
    parser.add_argument("--only", action="append", help="a copier; may be repeated (default all)")
    options = parser.parse_args()
    fast = ["-XX:TieredStopAtLevel=4", "-Xmx1g"]
    figures: dict[str, list[CopyFigures]] = {}
    with (
        tempfile.TemporaryDirectory() as name,
        RealCluster(options.source, java_options=fast) as source,
        RealCluster("4.1.0", java_options=fast) as target,
    ):
        folder = Path(name)
        write_logging_files(folder)
        copiers: dict[str, Callable[[str], list[str]]] = {
            "bridge": lambda topic: bridge_command(source, target, topic, folder),
            "mm2": lambda topic: mirror_command(source, target, topic, folder, tuned=False),
            "mm2-tuned": lambda topic: mirror_command(source, target, topic, folder, tuned=True),
        }
        chosen = options.only or list(copiers)
        for run in range(options.runs):
            for copier in chosen:
                topic = f"{copier}-{run}"
                asyncio.run(fill(source, topic, options.messages, options.size, options.partitions))
                count = options.messages // options.partitions * options.partitions
                found = measure(
                    target,
                    topic,
                    count,
                    options.partitions,
                    copiers[copier](topic),
                    folder / f"{topic}.log",
                )
                figures.setdefault(copier, []).append(found)
                print(
                    f"{copier}: {found.rate:,.0f}/s, {found.cpu_per_million:.2f} CPU-s/M, "
                    f"{found.rss_mb:.0f} MB",
                    flush=True,
                )
    load = os.getloadavg()[0]
    print(
        f"\n{options.messages:,} messages of {options.size} B, {options.partitions} partitions, "
        f"{options.source} to 4.1.0, median of {options.runs} runs, load {load:.0f}\n\n"
        "| | messages/s | CPU-s per million | peak RSS, MB |\n|---|---|---|---|"
    )
    for copier, runs in figures.items():
        rate, cpu, rss = (statistics.median(column) for column in zip(*runs, strict=True))
        print(f"| {copier} | {rate:,.0f} | {cpu:.2f} | {rss:.0f} |")


if __name__ == "__main__":
    main()
