"""The bridge beside MirrorMaker 2 of 3.9.1, in turn, from the same source to the same target.

    nox -s bench -- --bridge                        # 0.10.2.2, the oldest that MirrorMaker 2 reads
    python -m tests.tools.bench.bridge --messages 1000000 --size 100 --rounds 3

Each round copies the same full topic once with each copier, to a topic of its own. Time, and CPU
seconds of the copier's process with its children, are counted from the moment when the first
message is at the target until all are, committed; so neither JVM's nor Python's start counts.
Afterwards a reader counts the committed messages of each copy.

`bridge` has its defaults: transactions, exact offsets, lz4. `mm2` has MirrorMaker 2's defaults, but
for the two settings without which it doesn't run on 0.10; `mm2-tuned` also has a linger of 50 ms
and batches of 256 KiB. MirrorMaker 2 has no transactions, and its JVM has the optimising compiler.
The target's topic is created beforehand: MirrorMaker 2 can't create it, since 0.10 has no
DescribeConfigs. It would rely on auto-creation with the target's `num.partitions`, and never copy
the source's other partitions. Half of a value is random, the other half is the same in all.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

from aiokafka08 import AIOKafkaProducer
from tests.brokers import RealCluster
from tests.brokers.java_process import java_argv, write_logging_files
from tests.brokers.versions import find_version
from tests.support.paths import ROOT
from tests.tools.bench.bridge_meter import TargetMeter

FAST = ("-XX:TieredStopAtLevel=4", "-Xmx1g")
"""Options of JVMs: with the optimising compiler."""
TOPIC = "history"
_START_S = 120.0
"""How long a copier may take until its first message is at the target."""
_IDLE_S = 60.0
"""How long a copy may go without progress."""
_FILL_S = 300.0
_POLL_S = 0.05
_SAY_S = 5.0
_TUNED = {"producer.linger.ms": 50, "producer.batch.size": 262144}


class CopyFigures(NamedTuple):
    """A copy: messages per second, CPU seconds per million messages, peak memory in MB."""

    rate: float
    cpu_per_million: float
    rss_mb: float


def values_of(size: int, count: int, seed: int) -> list[bytes]:
    """Return values, half of whose bytes are random."""
    chance = random.Random(seed)
    noise, text = size - size // 2, b'"agent":"Mozilla/5.0 (X11; Linux x86_64)","status":200,'
    padding = (text * (size // len(text) + 1))[: size // 2]
    return [chance.randbytes(noise) + padding for _ in range(count)]


async def fill(source: RealCluster, topic: str, messages: int, size: int, partitions: int) -> int:
    """Write the messages to copy; return how many.

    Raises:
        TimeoutError: it takes too long.
    """
    await asyncio.to_thread(source.create_topic, topic, partitions)
    of_partition = messages // partitions
    values = values_of(size, min(of_partition, 20_000), partitions)
    async with (
        asyncio.timeout(_FILL_S),
        AIOKafkaProducer(bootstrap_servers=source.bootstrap_servers, acks="all") as producer,
    ):
        for partition in range(partitions):
            for start in range(0, of_partition, len(values)):
                some = values[: of_partition - start]
                await (await producer.send_many(topic, some, partition=partition))
    return of_partition * partitions


def used_by(process: psutil.Process) -> tuple[float, float]:
    """Return the CPU seconds and the resident MB of a process with its children."""
    family = [process, *process.children(recursive=True)]
    used = sum(sum(one.cpu_times()[:2]) for one in family)
    return used, sum(one.memory_info().rss for one in family) / 2**20


@contextmanager
def running(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a copier while the block runs; its output goes to the end of `log`."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def clusters(version: str) -> Iterator[tuple[RealCluster, RealCluster, Path]]:
    """Yield a source of this version, a target of 4.1.0, and a folder for files."""
    with (
        tempfile.TemporaryDirectory() as name,
        RealCluster(version, java_options=FAST) as source,
        RealCluster("4.1.0", 1, {"auto.create.topics.enable": False}, java_options=FAST) as target,
    ):
        yield source, target, Path(name)


def measure(
    meter: TargetMeter, topic: str, partitions: int, messages: int, command: list[str], log: Path
) -> CopyFigures:
    """Run a copier until all messages are at the target, and kill it.

    Raises:
        RuntimeError: it ends, makes no progress, or copies another number of messages.
    """
    with running(command, log) as process:
        family = psutil.Process(process.pid)
        began: tuple[float, float] | None = None
        peak, best = 0.0, 0
        progress_at = said_at = time.monotonic()
        while True:
            written, committed = meter.written(topic, partitions)
            now, (used, rss) = time.monotonic(), used_by(family)
            peak = max(peak, rss)
            if began is None and written:
                began = now, used
            if began is not None and written == committed >= messages:
                break
            if committed > best:
                best, progress_at = committed, now
            reason = None
            if (code := process.poll()) is not None:
                reason = f"ended with exit code {code}"
            elif now - progress_at > (_START_S if not best else _IDLE_S):
                reason = f"made no progress for {now - progress_at:.0f} s"
            if reason is not None:
                text = log.read_text(errors="replace")[-4000:]
                raise RuntimeError(
                    f"{topic}: the copier {reason}; {written} of {messages} messages were "
                    f"written, {committed} committed:\n{text}"
                )
            if now - said_at > _SAY_S:
                said_at = now
                print(f"  {topic}: {committed:,} of {messages:,}", file=sys.stderr, flush=True)
            time.sleep(_POLL_S)
    found = meter.count(topic, partitions)
    if found != messages:
        raise RuntimeError(f"{topic}: {found} messages are at the target, {messages} at the source")
    return CopyFigures(
        messages / max(now - began[0], 1e-9), (used - began[1]) / messages * 1e6, peak
    )


def bridge_text(source: RealCluster, target: RealCluster, alias: str, more: str = "") -> str:
    """Return the file of the bridge; it copies to the topic that MirrorMaker 2 would name."""
    return (
        f'name = "{alias}"\n[source]\nbootstrap = "{source.bootstrap_servers}"\n'
        f'[target]\nbootstrap = "{target.bootstrap_servers}"\n[topics]\ninclude = ["{TOPIC}"]\n'
        f'rename = [{{ pattern = "(.*)", to = "{alias}.\\\\1" }}]\n{more}'
    )


def bridge_command(
    source: RealCluster, target: RealCluster, alias: str, folder: Path, more: str = ""
) -> list[str]:
    """Write the file of the bridge; return its command."""
    file = folder / f"{alias}.toml"
    file.write_text(bridge_text(source, target, alias, more))
    return [sys.executable, "-m", "aiokafka08", "bridge", "run", str(file)]


def mirror_command(
    source: RealCluster, target: RealCluster, alias: str, folder: Path, *, tuned: bool
) -> list[str]:
    """Return the command of MirrorMaker 2."""
    properties = {
        "clusters": f"{alias},target",
        f"{alias}.bootstrap.servers": source.bootstrap_servers,
        "target.bootstrap.servers": target.bootstrap_servers,
        f"{alias}->target.enabled": "true",
        f"{alias}->target.topics": TOPIC,
        f"target->{alias}.enabled": "false",
        "replication.factor": 1,
        "refresh.topics.interval.seconds": 5,
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
        **({f"target.{name}": value for name, value in _TUNED.items()} if tuned else {}),
    }
    file = folder / f"{alias}.properties"
    file.write_text("".join(f"{name} = {value}\n" for name, value in properties.items()))
    return java_argv(
        find_version("3.9.1-mirror"),
        folder,
        "org.apache.kafka.connect.mirror.MirrorMaker",
        str(file),
        heap="1g",
        java_options=FAST[:1],
        logging="server",
    )


def table(figures: dict[str, list[CopyFigures]]) -> str:
    """Return the medians of each copier, beside those of the bridge."""
    lines = [
        "| | messages/s | CPU-s per million | peak RSS, MB | bridge: rate | bridge: CPU |",
        "|---|---|---|---|---|---|",
    ]
    medians = {
        copier: CopyFigures(*map(statistics.median, zip(*runs, strict=True)))
        for copier, runs in figures.items()
    }
    for copier, (rate, cpu, rss) in medians.items():
        ratios = " | | |"
        if (ours := medians.get("bridge")) is not None and copier != "bridge":
            ratios = f" | {ours.rate / rate:.2f} × | {ours.cpu_per_million / cpu:.2f} × |"
        lines.append(f"| {copier} | {rate:,.0f} | {cpu:.2f} | {rss:.0f}{ratios}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        prog="python -m tests.tools.bench.bridge",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--messages", type=int, default=1_000_000, help="default 1000000")
    parser.add_argument("--size", type=int, default=100, help="bytes of a value (default 100)")
    parser.add_argument(
        "--partitions", type=int, nargs="+", default=[4], help="one table each (default 4)"
    )
    parser.add_argument("--rounds", type=int, default=5, help="copies by each (default 5)")
    parser.add_argument("--source", default="0.10.2.2", help="version (default 0.10.2.2)")
    parser.add_argument("--only", action="append", help="a copier; may be repeated (default all)")
    parser.add_argument("--copy", default="", help="lines for the bridge's section [copy]")
    options = parser.parse_args()
    for partitions in options.partitions:
        compare(options, partitions)


def compare(options: argparse.Namespace, partitions: int) -> None:
    """Run all rounds with a number of partitions, and print their table."""
    figures: dict[str, list[CopyFigures]] = {}
    with clusters(options.source) as (source, target, folder):
        write_logging_files(folder)
        copiers: dict[str, Callable[[str], list[str]]] = {
            "bridge": lambda alias: bridge_command(
                source, target, alias, folder, f"[copy]\n{options.copy}\n"
            ),
            "mm2": lambda alias: mirror_command(source, target, alias, folder, tuned=False),
            "mm2-tuned": lambda alias: mirror_command(source, target, alias, folder, tuned=True),
        }
        print(f"writing {options.messages:,} messages to {options.source}", file=sys.stderr)
        messages = asyncio.run(fill(source, TOPIC, options.messages, options.size, partitions))
        for number in range(options.rounds):
            for copier in options.only or list(copiers):
                alias = f"{copier}-{number}"
                topic = f"{alias}.{TOPIC}"
                meter = TargetMeter(target.bootstrap_servers)
                meter.create(topic, partitions)
                log = folder / f"{alias}.log"
                found = measure(meter, topic, partitions, messages, copiers[copier](alias), log)
                meter.delete(topic)
                figures.setdefault(copier, []).append(found)
                print(
                    f"{copier}: {found.rate:,.0f}/s, {found.cpu_per_million:.2f} CPU-s/M, "
                    f"{found.rss_mb:.0f} MB, load {os.getloadavg()[0]:.1f}",
                    flush=True,
                )
    print(
        f"\n{messages:,} messages of {options.size} B, {partitions} partitions, "
        f"{options.source} to 4.1.0, medians of {options.rounds} rounds\n\n{table(figures)}\n",
        flush=True,
    )


if __name__ == "__main__":
    main()
