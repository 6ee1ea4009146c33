"""Measure the CPU time of an import of producer and consumer beside that of aiokafka's.

    python -m tests.tools.bench.import_time
    python -m tests.tools.bench.import_time --runs 100

Starts whole processes in turn and prints the median CPU time (user and system) of each, and the
ratio to aiokafka's. The modules' bytecode is cached in a folder of its own: the first round, which
fills it, isn't counted. docs/performance.md quotes the numbers.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile

NAMES = "import AIOKafkaProducer, AIOKafkaConsumer"
THEIRS = f"from aiokafka {NAMES}"
PROGRAMS = (THEIRS, f"from aiokafka08 {NAMES}", "from aiokafka08 import AIOKafkaProducer")


def cpu_ms(code: str, environment: dict[str, str]) -> float:
    """Run the code in a process of its own and return the CPU time of the process."""
    process = os.posix_spawn(sys.executable, [sys.executable, "-c", code], environment)
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
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        rounds = [[cpu_ms(code, environment) for code in PROGRAMS] for _ in range(runs + 1)][1:]
    medians = dict(zip(PROGRAMS, map(statistics.median, zip(*rounds, strict=True)), strict=True))
    for code, median in medians.items():
        print(f"{median:6.1f} ms  {median / medians[THEIRS]:.2f} ×  {code}")


if __name__ == "__main__":
    main()
