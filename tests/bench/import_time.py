"""Measure the CPU time of an import of the producer beside that of the modules that it needs.

    python -m tests.bench.import_time
    python -m tests.bench.import_time --runs 100

Starts whole processes in turn and prints the median CPU time (user and system) of each, and the
ratio. The modules' bytecode is cached: the first round isn't counted. docs/performance.md quotes
them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys

THEIRS = "import asyncio, ssl, logging, dataclasses"
OURS = "import aiokafka08; aiokafka08.AIOKafkaProducer"


def cpu_ms(code: str) -> float:
    """Run the code in a process of its own and return the CPU time of the process."""
    process = os.posix_spawn(sys.executable, [sys.executable, "-c", code], os.environ)
    _, status, used = os.wait4(process, 0)
    if status:
        raise SystemExit(f"{code}: failed with status {os.waitstatus_to_exitcode(status)}")
    return (used.ru_utime + used.ru_stime) * 1000


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=40, help="processes of each (default: 40)")
    runs = parser.parse_args().runs
    if runs < 1:
        parser.error(f"--runs {runs}: expected at least 1")
    rounds = [(cpu_ms(THEIRS), cpu_ms(OURS)) for _ in range(runs + 1)][1:]
    theirs, ours = map(statistics.median, zip(*rounds, strict=True))
    print(f"{theirs:.1f} ms  {THEIRS}\n{ours:.1f} ms  {OURS}\n{ours / theirs:.2f} ×")


if __name__ == "__main__":
    main()
