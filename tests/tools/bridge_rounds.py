"""Rounds of kill −9 of a bridge, of source leaders and of target brokers, under load.

`python -m tests.tools.bridge_rounds --rounds 20` (`nox -s bridge-rounds -- --rounds 20`) runs them
for pairs of versions; `test_rounds.py` runs a few. A producer writes numbered messages to the
source. In each round the bridge's process is killed, in some rounds after a broker of the source or
of the target, or after the process was paused for longer than a transaction may last. In the end
the target holds the source's messages: none lost, none twice, in the same order and partition.
Messages that the source has doubled itself count as they are: the comparison is with what a reader
of the source sees. Kafka's own consumer of 4.1 with `read_committed` says what the target holds.

A broker of the source is killed only while all replicas are in sync: otherwise 0.8 elects one that
isn't (`unclean.leader.election.enable`), and the source loses messages that were copied.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka08.errors import KafkaError
from aiokafka08.structs import TopicPartition
from tests.bridge.clusters import Message, bridge_text
from tests.brokers import RealCluster
from tests.brokers.java_process import write_logging_files
from tests.brokers.tools import JavaTools
from tests.brokers.versions import find_version
from tests.support.paths import ROOT
from tests.support.waiting import until

PARTITIONS = 4
PAUSE_S = 18.0
"""Longer than a transaction may last, and than the target takes to notice that (10 s)."""
FAULTS = ("bridge", "source", "target", "pause")
JUDGE = Path(__file__).parent / "CommittedReader.java"


class BridgeProcess:
    """`aiokafka08 bridge run` in a process of its own, which may be killed."""

    def __init__(self, file: Path, *options: str) -> None:
        self._file, self._options = file, options
        self.log = file.with_suffix(".log")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; its log goes on in the same file."""
        command = [sys.executable, "-m", "aiokafka08", "bridge", "run", str(self._file)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *self._options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
            )

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def kill(self) -> None:
        """Send SIGKILL, and wait for the end."""
        self.process.kill()
        self.process.wait()

    def finish(self, timeout_s: float = 240.0) -> int:
        """Wait for the end, and return the exit code; kill it after `timeout_s`."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"no end within {timeout_s:g} s:\n{self.tail()}") from None

    def close(self) -> None:
        """Kill it if it still runs."""
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def tail(self) -> str:
        """Return the end of the log."""
        return self.log.read_text(errors="replace")[-4000:]


@dataclass(slots=True)
class Load:
    """Writes numbered messages to all partitions of a topic until it is stopped."""

    source: RealCluster
    topic: str
    per_second: float = 2000.0
    sent: int = 0
    _stop: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self) -> None:
        self._stop.set()

    async def run(self) -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=self.source.bootstrap_servers,
            acks="all",
            request_timeout_ms=60_000,
            linger_ms=5,
        ) as producer:
            while not self._stop.is_set():
                for _ in range(int(self.per_second / 20)):
                    number = self.sent
                    await producer.send(
                        self.topic,
                        b"%d" % number if number % 10 else None,
                        b"k%d" % (number % 100) if number % 5 != 1 else None,
                        partition=number % PARTITIONS,
                    )
                    self.sent += 1
                await asyncio.sleep(0.05)
            try:
                await producer.flush()
            except KafkaError:
                pass  # the source's own losses don't matter here


async def read_source(source: RealCluster, topic: str) -> dict[int, list[Message]]:
    """Return what the source has, by partition."""
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    found: dict[int, list[Message]] = {number: [] for number in range(PARTITIONS)}
    async with AIOKafkaConsumer(bootstrap_servers=source.bootstrap_servers) as consumer:
        ends = await consumer.end_offsets(partitions)
        consumer.assign(partitions)
        for tp in partitions:
            consumer.seek(tp, 0)
        while any([await consumer.position(tp) < ends[tp] for tp in partitions]):
            for tp, records in (await consumer.getmany(timeout_ms=500)).items():
                found[tp.partition] += [Message(one.key, one.value) for one in records]
    return found


def read_committed(target: RealCluster, topic: str, folder: Path) -> dict[int, list[Message]]:
    """Return what Kafka's own consumer sees of the target, by partition; blocks."""
    own = folder / f"judge-{topic}"  # the output of another topic would be in the same file
    own.mkdir()
    write_logging_files(own)
    tools = JavaTools(find_version("4.1.0"), own)
    done = tools.run(str(JUDGE), target.bootstrap_servers, topic, input=None, timeout=120)
    assert done.returncode == 0, done.stderr
    found: dict[int, list[Message]] = {}
    previous: dict[int, int] = {}

    def unhex(text: str) -> bytes | None:
        return None if text == "-" else bytes.fromhex(text[1:])

    *lines, end = done.stdout.splitlines()
    assert end == f"end {topic}"
    for line in lines:
        number, offset, key, value, _ = line.split()
        partition = int(number)
        assert int(offset) > previous.get(partition, -1), line
        previous[partition] = int(offset)
        found.setdefault(partition, []).append(Message(unhex(key), unhex(value)))
    return found


def kill_leader(source: RealCluster, topic: str, chance: random.Random) -> int:
    """Kill the leader of some partition as soon as all replicas are in sync; blocks."""
    for number in range(PARTITIONS):
        source.wait_isr(topic, number, source.nodes, timeout=60.0)
    node = source.leader(topic, chance.randrange(PARTITIONS))
    source.kill(node)
    return node


def difference(source: dict[int, list[Message]], target: dict[int, list[Message]]) -> str | None:
    """Return the first difference in words; None if both hold the same."""
    for number, wanted in source.items():
        got = target.get(number, [])
        if got == wanted:
            continue
        at = next(
            (i for i, (a, b) in enumerate(zip(got, wanted, strict=False)) if a != b),
            min(len(got), len(wanted)),
        )
        return (
            f"partition {number}: {len(wanted)} at the source, {len(got)} at the target; at index "
            f"{at} {wanted[at : at + 2]} became {got[at : at + 2]}"
        )
    return None


def copy_text(producers: int) -> str:
    """Return the sections of a bridge's file with this number of producers, and short timeouts."""
    return (
        f"[copy]\nproducers = {producers}\ntransaction_s = 0.3\n"
        '[target.properties]\n"transaction.timeout.ms" = 5000\n"socket.timeout.ms" = 4000\n'
    )


async def play(
    source: RealCluster,
    target: RealCluster,
    topic: str,
    folder: Path,
    *,
    rounds: int,
    seed: int,
    producers: Sequence[int] = (1, 2, 4),
    faults: Sequence[str] = FAULTS,
) -> str:
    """Play rounds on one topic; return a summary.

    Raises:
        AssertionError: the target differs from the source, or the bridge doesn't end.
    """
    chance = random.Random(seed)
    number = 0
    await asyncio.to_thread(source.create_topic, topic, PARTITIONS, len(source.nodes))
    file = folder / f"{topic}.toml"
    load = Load(source, topic)
    writing = asyncio.create_task(load.run())
    bridge = BridgeProcess(file)
    kills = 0
    began = time.monotonic()
    try:
        for _ in range(rounds):
            number = chance.choice(producers)
            file.write_text(bridge_text(topic, source, target, topic, copy_text(number)))
            begun = bridge.log.read_text().count("copying") if bridge.log.exists() else 0
            bridge.start()
            await until(
                lambda: bridge.log.read_text().count("copying") > begun,  # noqa: B023
                "the bridge copies",
                120,
                0.1,
            )
            await asyncio.sleep(chance.uniform(0.0, 4.0))
            fault = chance.choice(faults)
            if fault == "source":
                node = await asyncio.to_thread(kill_leader, source, topic, chance)
                await asyncio.to_thread(source.restart, node)
                await asyncio.sleep(chance.uniform(0.0, 3.0))
            elif fault == "target":
                node = chance.choice(list(target.nodes))
                await asyncio.to_thread(target.kill, node)
                await asyncio.sleep(chance.uniform(0.0, 3.0))
                await asyncio.to_thread(target.restart, node)
            elif fault == "pause":
                bridge.process.send_signal(signal.SIGSTOP)
                await asyncio.sleep(PAUSE_S)
                bridge.process.send_signal(signal.SIGCONT)
                await asyncio.sleep(chance.uniform(0.0, 5.0))
            assert bridge.process.poll() is None, f"the bridge has ended:\n{bridge.tail()}"
            bridge.kill()
            kills += 1
        load.stop()
        await writing
        number = chance.choice([one for one in producers if one != number])
        file.write_text(bridge_text(topic, source, target, topic, copy_text(number)))
        last = BridgeProcess(file, "--until-caught-up")
        bridge.log = last.log
        last.start()
        try:
            code = await asyncio.to_thread(last.finish)
        finally:
            last.close()
        assert code == 0, f"exit code {code}:\n{last.tail()}"
        wanted = await read_source(source, topic)
        got = await asyncio.to_thread(read_committed, target, topic, folder)
        found = difference(wanted, got)
        assert found is None, f"seed {seed}: {found}"
        count = sum(map(len, wanted.values()))
        assert count > 0
        took = time.monotonic() - began
        return f"{count} messages, {kills} kills of the bridge, {took:.0f} s: equal"
    finally:
        load.stop()
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        bridge.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, prog="python -m tests.tools.bridge_rounds"
    )
    parser.add_argument("--rounds", type=int, default=20, help="rounds per pair (default 20)")
    parser.add_argument("--source", action="append", help="a version; may be repeated")
    parser.add_argument("--brokers", type=int, default=2, help="brokers of the source (default 2)")
    parser.add_argument("--fault", action="append", choices=FAULTS, help="only these faults")
    parser.add_argument("--seed", type=int, default=1, help="of the faults (default 1)")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds}: expected at least 1")
    versions = options.source or ["0.8.0", "0.8.2.2", "0.9.0.1", "0.10.2.2", "3.9.1"]
    with tempfile.TemporaryDirectory() as folder, RealCluster("4.1.0") as target:
        for version in versions:
            with RealCluster(version, options.brokers) as source:
                topic = f"rounds-{version.replace('.', '-')}"
                summary = asyncio.run(
                    play(
                        source,
                        target,
                        topic,
                        Path(folder),
                        rounds=options.rounds,
                        seed=options.seed,
                        faults=options.fault or FAULTS,
                    )
                )
                print(f"{version} to 4.1.0, seed {options.seed}: {summary}", flush=True)


if __name__ == "__main__":
    main()
