"""Run the benchmark: every client does every case in turn on a real broker, then growth.

`python -m tests.tools.bench`; `--quick` leaves out growth and some cases, `--growth` all but
growth. `--ours --before DIR` compares this checkout with another one, in the same run.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.brokers.cluster import RealCluster
from tests.brokers.errors import HarnessError
from tests.tools.bench import growth as growing
from tests.tools.bench.cases import BEFORE, BROKER, CASES, PARTITIONS, Case, Client
from tests.tools.bench.peers import Peers, UnavailableError
from tests.tools.bench.report import Record, as_json, document
from tests.tools.bench.run import OPTIMISED, FailedError

FILLER = Client("ours", "fill", "fills the topics")
FULL_MESSAGES, FULL_ROUNDS = 1_000_000, 3
QUICK_MESSAGES, QUICK_ROUNDS = 200_000, 1
TOPIC_S = 300
"""An 0.8.2.2 takes 45 seconds to create a topic of a thousand partitions."""


def main() -> int:
    """Parse the arguments, measure, report; return 1 if a measurement failed."""
    parser = _parser()
    options = parser.parse_args()
    if options.quick:
        options.messages, options.rounds = QUICK_MESSAGES, QUICK_ROUNDS
    cases = _cases(options)
    if not cases:
        parser.error(f"--case: expected a part of one of {[case.title for case in CASES]}")
    signal.signal(signal.SIGTERM, _interrupt)
    console = Console(stderr=True)
    record = Record(_machine(), options.rounds, options.messages, os.getloadavg()[0])
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    try:
        with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
            task = progress.add_task("starting", total=None)

            def advance(words: str) -> None:
                progress.update(task, description=words, advance=1)
                if not console.is_terminal:  # nobody sees the bar
                    console.print(words, highlight=False)

            if not options.growth:
                clients = {case: _clients(case, options) for case in cases}
                progress.update(task, total=sum(map(len, clients.values())) * options.rounds)
                _measure(record, clients, options.messages, options.before, advance)
            partial = options.quick or options.case or options.ours or options.before
            if options.growth or not partial:
                todo = [
                    one for one in growing.points() if options.growth in (None, one.table, "all")
                ]
                progress.reset(task, total=growing.count(todo, options.rounds))
                share = options.messages / FULL_MESSAGES
                record.growth = growing.Growth()
                try:
                    growing.run(record.growth, todo, options.rounds, share, advance)
                except (FailedError, HarnessError) as error:  # report the points before it
                    record.growth.failures.append(f"growth ended early: {error}")
    except KeyboardInterrupt:
        console.print("interrupted")
        return 130
    text = document(record)
    print(text)
    if options.output is not None:
        _write(options.output, record, text)
    failures = [*record.failures, *(record.growth.failures if record.growth else ())]
    for failure in failures:
        console.print(failure, markup=False)
    return 1 if failures else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.tools.bench", description=__doc__)
    parser.add_argument(
        "--messages",
        type=int,
        default=FULL_MESSAGES,
        help="messages of a case; fewer for slow clients, and in growth",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=FULL_ROUNDS,
        help="interleaved rounds; the report has the medians",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"one round of {QUICK_MESSAGES:,} messages, some cases and clients",
    )
    parser.add_argument(
        "--growth",
        nargs="?",
        const="all",
        choices=("all", *growing.TABLES),
        help="only growth with partitions, brokers, round-trip time, batches; or one table of it",
    )
    parser.add_argument("--case", help="only cases whose title contains this, without growth")
    parser.add_argument("--ours", action="store_true", help="without the peers and growth")
    parser.add_argument(
        "--before",
        type=Path,
        metavar="DIR",
        help="measure another checkout of this repository beside this one, without growth",
    )
    parser.add_argument(
        "--output",
        type=Path,
        help="also write PATH.json, PATH.md, PATH.png and PATH_growth.png: docs/benchmarks",
    )
    return parser


def _cases(options: argparse.Namespace) -> list[Case]:
    if options.case:
        return [case for case in CASES if options.case in case.title]
    return [case for case in CASES if case.in_quick or not options.quick]


def _clients(case: Case, options: argparse.Namespace) -> list[Client]:
    """Return the clients of a case that take part; with `--before`, ours come in pairs."""
    chosen = []
    for client in case.clients:
        if (options.ours and not (client.is_ours or client.is_floor)) or (
            options.quick and not client.in_quick
        ):
            continue
        chosen.append(client)
        if options.before and client.is_ours:
            chosen.append(client.before())
    return chosen


def _measure(
    record: Record,
    clients: Mapping[Case, Sequence[Client]],
    messages: int,
    before: Path | None,
    advance: Callable[[str], None],
) -> None:
    """Start the brokers, fill the topics to be read, and let every client do every case in turn."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="aiokafka08-bench-"))
        peers = Peers(Path(folder), before)
        able = {case: _able(peers, some, record) for case, some in clients.items()}
        names = {BROKER, *(one.broker for some in able.values() for one in some)}
        clusters = {
            name: stack.enter_context(RealCluster(name, java_options=OPTIMISED))
            for name in sorted(names)
        }
        for case, some in able.items():
            for name in {one.broker for one in some}:
                clusters[name].create_topic(case.topic, partitions=case.partitions, timeout=TOPIC_S)
                if case.work == "consume":
                    peers.measure(FILLER, _job(clusters[name], case, FILLER, messages))
        for number in range(record.rounds):
            for case, some in able.items():
                # Every second round goes backwards: the first of a pair has no advantage.
                for client in reversed(some) if before and number % 2 else some:
                    advance(f"{case.title}: {client.words}")
                    job = _job(clusters[client.broker], case, client, messages)
                    try:
                        found = peers.measure(client, job)
                    except FailedError as error:
                        record.failures.append(f"{case.title}, {client.words}: {error}")
                    else:
                        record.results[case][client].append(found)


def _able(peers: Peers, clients: Sequence[Client], record: Record) -> list[Client]:
    """Return the clients that can take part here; record why the others can't."""
    able = []
    for client in clients:
        try:
            peers.prepare(client)
        except UnavailableError as error:
            record.left_out.setdefault(client.module, str(error))
        else:
            able.append(client)
    return able


def _job(cluster: RealCluster, case: Case, client: Client, messages: int) -> dict[str, object]:
    fills = client is FILLER
    return {
        "client": "ours" if client.module == BEFORE else client.module,
        "call": client.call,
        "produces": fills or case.work != "consume",
        "options": _options(case, client),
        "bootstrap": cluster.bootstrap_servers,
        "zookeeper": cluster.zookeeper_connect,
        "topic": case.topic,
        "messages": max(int(messages * case.share * client.share), 1000),
        "value_bytes": case.value_bytes,
        "distinct": case.distinct,
        "compression": case.compression,
        "partitions": case.partitions,
    }


def _options(case: Case, client: Client) -> dict[str, int]:
    if client is FILLER:
        return {"set_bytes": case.set_bytes, "partitions": case.partitions}
    if case.work == "consume" and case.partitions != PARTITIONS:
        return {"partitions": case.partitions}
    return {"linger_ms": client.linger_ms} if case.by_key else {}


def _write(path: Path, record: Record, text: str) -> None:
    from tests.tools.bench.plot import plot, plot_growth  # importing matplotlib takes a second

    path.with_suffix(".json").write_text(as_json(record))
    path.with_suffix(".md").write_text(text)
    plot(record.results, path.with_suffix(".png"))
    if record.growth is not None:
        plot_growth(record.growth, path.with_name(f"{path.name}_growth.png"))


def _machine() -> str:
    name = platform.processor() or platform.machine()
    return f"{name}, {os.cpu_count()} cores, Linux, Python {platform.python_version()}"


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
