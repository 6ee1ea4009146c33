"""Runs the benchmark: starts a real 0.8.2.2 broker, lets every client do every case in turn."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from tests.bench.cases import CASES, PARTITIONS, Case
from tests.bench.report import markdown
from tests.brokers.cluster import RealCluster

BROKER = "0.8.2.2"
OPTIMISED = ["-XX:TieredStopAtLevel=4", "-Xmx2g"]  # the harness starts brokers quick to start
BASELINE = "kafka-python"


def main() -> None:
    """Parse the arguments, measure, report."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--messages", type=int, default=300_000, help="per case of 100-byte values")
    parser.add_argument("--rounds", type=int, default=3, help="interleaved; medians are told")
    parser.add_argument("--quick", action="store_true", help="one round of 50,000 messages")
    parser.add_argument("--case", help="only cases whose title contains this")
    parser.add_argument("--output", type=Path, help="write PATH.json and PATH.md too")
    options = parser.parse_args()
    if options.quick:
        options.messages, options.rounds = 50_000, 1
    cases = [case for case in CASES if not options.case or options.case in case.title]
    if not cases:
        parser.error(f"--case: no case in {[case.title for case in CASES]} contains it")

    console = Console(stderr=True)
    results: dict[Case, dict[str, list[dict[str, float]]]] = defaultdict(lambda: defaultdict(list))
    steps = sum(len(case.clients) for case in cases) * options.rounds
    with (
        RealCluster(BROKER, java_options=OPTIMISED) as cluster,
        Progress(console=console) as progress,
    ):
        task = progress.add_task("starting", total=steps)
        for case in cases:
            cluster.create_topic(f"{case.topic}-{case.work}", partitions=PARTITIONS)
            if case.work == "consume":
                _run(cluster, case, options.messages, "ours", "send_many", fill=True)
        for _ in range(options.rounds):
            for case in cases:
                for client, call, words in case.clients:
                    progress.update(task, description=f"{case.title}: {words}")
                    measured = _run(cluster, case, options.messages, client, call)
                    results[case][words].append(measured)
                    progress.advance(task)
    table = markdown(results, BASELINE)
    print(table)
    if options.output is not None:
        machine = (
            f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, "
            f"Python {platform.python_version()}"
        )
        record = {
            "machine": machine,
            "broker": BROKER,
            "rounds": options.rounds,
            "results": {case.title: dict(found) for case, found in results.items()},
        }
        options.output.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n")
        options.output.with_suffix(".md").write_text(table)


def _run(
    cluster: RealCluster, case: Case, messages: int, client: str, call: str, *, fill: bool = False
) -> dict[str, float]:
    """One measurement, in a process of its own."""
    job = {
        "client": client,
        "call": call,
        "work": "produce" if fill else case.work,
        "bootstrap": cluster.bootstrap_servers,
        "topic": f"{case.topic}-{case.work}",
        "messages": messages if case.value_bytes <= 100 else messages // 3,
        "value_bytes": case.value_bytes,
        "compression": case.compression,
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.worker", json.dumps(job)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"{client}.{call} failed in {case.title!r}:\n{done.stderr[-3000:]}")
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


if __name__ == "__main__":
    main()
