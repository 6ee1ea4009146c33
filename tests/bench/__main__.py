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

from tests.bench.cases import CASES, PARTITIONS, Case, Client
from tests.bench.plot import plot
from tests.bench.report import markdown
from tests.brokers.cluster import RealCluster

BROKER = "0.8.2.2"
OPTIMISED = ["-XX:TieredStopAtLevel=4", "-Xmx2g"]  # the harness starts brokers quick to start
FILLER = Client("ours", "send_many", "fills the topics")
QUICK_MESSAGES, QUICK_ROUNDS = 200_000, 1


def main() -> None:
    """Parse the arguments, measure, report."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument(
        "--messages", type=int, default=1_000_000, help="per case; fewer for slow clients"
    )
    parser.add_argument("--rounds", type=int, default=3, help="interleaved; medians are told")
    parser.add_argument(
        "--quick", action="store_true", help=f"one round of {QUICK_MESSAGES:,} messages, some cases"
    )
    parser.add_argument("--case", help="only cases whose title contains this")
    parser.add_argument("--ours", action="store_true", help="without the peers")
    parser.add_argument(
        "--output", type=Path, help="write PATH.json, PATH.md and PATH.png (the plot) too"
    )
    options = parser.parse_args()
    if options.quick:
        options.messages, options.rounds = QUICK_MESSAGES, QUICK_ROUNDS
    cases = [
        case
        for case in CASES
        if (options.case in case.title if options.case else case.in_quick or not options.quick)
    ]
    if not cases:
        parser.error(f"--case: no case in {[case.title for case in CASES]} contains it")
    clients = {
        case: [one for one in case.clients if one.module == "ours" or not options.ours]
        for case in cases
    }

    console = Console(stderr=True)
    results: dict[Case, dict[Client, list[dict[str, float]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    with (
        RealCluster(BROKER, java_options=OPTIMISED) as cluster,
        Progress(console=console) as progress,
    ):
        task = progress.add_task("starting", total=sum(map(len, clients.values())) * options.rounds)
        for case in cases:
            cluster.create_topic(case.topic, partitions=PARTITIONS)
            if case.work == "consume":
                _run(cluster, case, options.messages, FILLER, fill=True)
        for _ in range(options.rounds):
            for case in cases:
                for client in clients[case]:
                    progress.update(task, description=f"{case.title}: {client.words}")
                    results[case][client].append(_run(cluster, case, options.messages, client))
                    progress.advance(task)
    table = markdown(results)
    print(table)
    if options.output is not None:
        _write(options.output, results, table, options.rounds)


def _write(
    path: Path, results: dict[Case, dict[Client, list[dict[str, float]]]], table: str, rounds: int
) -> None:
    machine = (
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}"
    )
    record = {
        "machine": machine,
        "broker": BROKER,
        "rounds": rounds,
        "results": {
            case.title: {client.words: found for client, found in measured.items()}
            for case, measured in results.items()
        },
    }
    path.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n")
    path.with_suffix(".md").write_text(table)
    plot(results, path.with_suffix(".png"))


def _run(
    cluster: RealCluster, case: Case, messages: int, client: Client, *, fill: bool = False
) -> dict[str, float]:
    """One measurement, in a process of its own."""
    job = {
        "client": client.module,
        "call": client.call,
        "produces": fill or case.work != "consume",
        "bootstrap": cluster.bootstrap_servers,
        "topic": case.topic,
        "messages": max(int(messages * case.share * client.share), 1000),
        "value_bytes": case.value_bytes,
        "compression": case.compression,
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.worker", json.dumps(job)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "AIOKAFKA08_IMPL": client.implementation},
    )
    if done.returncode != 0:
        raise SystemExit(f"{client.words} failed in {case.title!r}:\n{done.stderr[-3000:]}")
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


if __name__ == "__main__":
    main()
