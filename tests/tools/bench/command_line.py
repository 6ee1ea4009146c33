"""Measure `aiokafka08 produce` and `consume` beside kcat: raw lines of 100 bytes through a pipe.

    python -m tests.tools.bench.command_line              5 million lines on a real 0.8.2.2 broker
    python -m tests.tools.bench.command_line --lines 1000000 --version 0.9.0.1

Both programs write to the same broker, to one partition, and both read what each of them wrote, in
turns, several rounds in one run. Each reads lines from `cat` and writes them to `cat`, as in a
pipeline. Beside them run the floors of `tests.tools.bench.floors.produce_lines`: ready message sets
on a bare socket, with one request in flight: as large as ours, and 256 KiB; then with five in
flight; and reading and cutting the lines, without a broker. Prints a row for each direction and
program:
median rate and CPU time, peak memory. docs/performance.md quotes them.

The programs have their own settings, which agree in this: acks of all in-sync replicas, no
compression. kcat waits 5 ms for more messages, sends sets of up to 10,000 messages or 1,000,000
bytes, and as many requests of a partition at a time as it has; ours doesn't wait, sends sets of up
to 1,000,000 bytes too, and one request of a partition at a time. Ours runs a second time with sets
of 256 KiB, which readers read faster. kcat gets the broker's version as an option.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from aiokafka08._core.net.send_window import MIN_GROWTH_BYTES
from tests.brokers.cluster import RealCluster
from tests.support.paths import ROOT
from tests.tools.bench.run import OPTIMISED

LINE = b"x" * 99 + b"\n"
LARGE_SET = 1_000_000
"""Bytes to which the sets of kcat and of ours grow."""
WRITTEN = ("kcat", "ours", "ours-small-sets")
"""Who writes the topics that are read."""


class Run(NamedTuple):
    """One run of a program."""

    seconds: float
    cpu_s: float
    peak_mib: float


def timed(command: Sequence[str], *, source: Path | None = None) -> Run:
    """Run a command between two `cat`s, or after none; measure the command itself."""
    before = os.times().elapsed
    feeder = None if source is None else subprocess.Popen(["cat", source], stdout=subprocess.PIPE)
    sink = None
    if source is None:
        sink = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL if feeder is None else feeder.stdout,
        stdout=subprocess.DEVNULL if sink is None else sink.stdin,
        stderr=subprocess.DEVNULL,
    )
    if feeder is not None and feeder.stdout is not None:
        feeder.stdout.close()
    if sink is not None and sink.stdin is not None:
        sink.stdin.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    for other in (feeder, sink):
        if other is not None:
            other.wait()
    if process.returncode:
        raise RuntimeError(f"{command[0]}: exit code {process.returncode}")
    seconds = os.times().elapsed - before
    return Run(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def producers(bootstrap: str, version: str, number: int) -> dict[str, tuple[str, list[str]]]:
    """Return the topic that each program writes to in a round, and its command."""
    told = ["-X", "api.version.request=false", "-X", f"broker.version.fallback={version}"]
    floor = [sys.executable, "-m", "tests.tools.bench.floors.produce_lines"]
    ours = [sys.executable, "-m", "aiokafka08", "produce", "-b", bootstrap]
    written = (*WRITTEN, "floor", "floor-of-small-sets", "floor-of-five")
    topics = {name: f"bench-{number}-{name}" for name in written}
    commands = {
        "kcat": ["kcat", "-q", "-b", bootstrap, "-t", topics["kcat"], *told, "-P"],
        "ours": [*ours, topics["ours"]],
        "ours-small-sets": [*ours, topics["ours-small-sets"], "-X", "batch.size=16384"],
        "floor": [*floor, "send", bootstrap, topics["floor"], f"--set-bytes={LARGE_SET}"],
        "floor-of-small-sets": [
            *(*floor, "send", bootstrap, topics["floor-of-small-sets"]),
            f"--set-bytes={MIN_GROWTH_BYTES}",
        ],
        "floor-of-five": [
            *(*floor, "send", bootstrap, topics["floor-of-five"]),
            *(f"--set-bytes={LARGE_SET}", "--in-flight=5"),
        ],
        "floor-of-splitting": [*floor, "split"],
    }
    return {name: (topics.get(name, ""), command) for name, command in commands.items()}


def consumers(bootstrap: str, version: str, topic: str) -> dict[str, list[str]]:
    """Return the command of each program that reads a topic."""
    told = ["-X", "api.version.request=false", "-X", f"broker.version.fallback={version}"]
    return {
        "kcat": ["kcat", "-q", "-b", bootstrap, "-t", topic, *told, "-C", "-e"],
        "ours": [sys.executable, "-m", "aiokafka08", "consume", topic, "-b", bootstrap, "--exit"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lines", type=int, default=5_000_000)
    parser.add_argument("--version", default="0.8.2.2", help="of the broker")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    found: dict[tuple[str, str], list[Run]] = {}
    with (
        tempfile.NamedTemporaryFile() as file,
        RealCluster(options.version, 1, java_options=OPTIMISED) as cluster,
    ):
        for _ in range(options.lines // 10_000):
            file.write(LINE * 10_000)
        file.flush()
        address = cluster.bootstrap_servers
        for number in range(options.rounds):
            for name, (topic, command) in producers(address, options.version, number).items():
                if topic:
                    cluster.create_topic(topic, 1)
                if "send" in command:
                    command += ["--lines", str(options.lines)]
                run = timed(command, source=Path(file.name))
                found.setdefault(("produce", name), []).append(run)
            for written in WRITTEN:
                topic = f"bench-{number}-{written}"
                for name, command in consumers(address, options.version, topic).items():
                    row = (f"consume the topic of {written}", name)
                    found.setdefault(row, []).append(timed(command))
    print("| | lines/s | CPU µs per line | peak MiB |\n|---|---:|---:|---:|")
    for (direction, name), runs in found.items():
        seconds = statistics.median(run.seconds for run in runs)
        cpu_s = statistics.median(run.cpu_s for run in runs)
        peak_mib = max(run.peak_mib for run in runs)
        print(
            f"| {direction}, {name} | {options.lines / seconds:,.0f} | "
            f"{cpu_s / options.lines * 1e6:.2f} | {peak_mib:.0f} |"
        )


if __name__ == "__main__":
    main()
