"""Measure `aiokafka08 produce` and `consume` beside kcat: raw lines of 100 bytes through a pipe.

    python -m tests.bench.command_line                  5 million lines on a real 0.8.2.2 broker
    python -m tests.bench.command_line --lines 1000000 --version 0.9.0.1

Both programs write to the same broker and read what they wrote, in turns, several rounds in one
run. Each reads lines from `cat` and writes them to `cat`, as in a pipeline. Prints a row for each
direction and program: median rate and CPU time, peak memory. docs/performance.md quotes them.

kcat is told the broker's version, and waits for all in-sync replicas, as ours does.
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

from tests.brokers.cluster import RealCluster

LINE = b"x" * 99 + b"\n"
ROOT = Path(__file__).parents[2]


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


def programs(bootstrap: str, version: str, topic: str) -> dict[str, tuple[list[str], list[str]]]:
    """Return for each program how it produces and how it consumes."""
    told = ["-X", "api.version.request=false", "-X", f"broker.version.fallback={version}"]
    kcat = ["kcat", "-q", "-b", bootstrap, "-t", f"{topic}-kcat", *told]
    ours = [sys.executable, "-m", "aiokafka08"]
    to_ours = [f"{topic}-ours", "-b", bootstrap]
    return {
        "kcat": ([*kcat, "-P"], [*kcat, "-C", "-e"]),
        "aiokafka08": ([*ours, "produce", *to_ours], [*ours, "consume", *to_ours, "--exit"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lines", type=int, default=5_000_000)
    parser.add_argument("--version", default="0.8.2.2", help="of the broker")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with (
        tempfile.NamedTemporaryFile() as file,
        RealCluster(options.version, 1) as cluster,
    ):
        for _ in range(options.lines // 10_000):
            file.write(LINE * 10_000)
        file.flush()
        found: dict[tuple[str, str], list[Run]] = {}
        for number in range(options.rounds):
            both = programs(cluster.bootstrap_servers, options.version, f"bench-{number}")
            for name in ("kcat", "ours"):
                cluster.create_topic(f"bench-{number}-{name}", 1)
            for name, (produce, _) in both.items():
                found.setdefault(("produce", name), []).append(
                    timed(produce, source=Path(file.name))
                )
            for name, (_, consume) in both.items():
                found.setdefault(("consume", name), []).append(timed(consume))
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
