"""Run FastStream's own connected Kafka tests, unmodified, on this package.

    python -m tests.conformance.foreign.faststream                      on the embedded cluster
    python -m tests.conformance.foreign.faststream --real 0.8.2.2       on a real broker
    python -m tests.conformance.foreign.faststream --source DIR -k ack  another repository; some
    tests

The tests come from FastStream's repository, since its sdist has none; nothing of them is kept here.
They run in a venv of their own, without the distribution aiokafka, by `python -m
aiokafka08.compat -m pytest -m connected`. They expect a broker at localhost:9092, which a
proxy forwards to the cluster.

Tests that read from `latest` and send at once may fail on a busy machine, see docs/frameworks.md.

The output has a line for each test that failed, with the reason if it is in `KNOWN`. Exit code 1
means that a test failed which isn't there.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple
from xml.etree import ElementTree

from aiokafka08.testing import EmbeddedCluster
from tests.brokers import RealCluster
from tests.brokers.proxy import TcpProxy
from tests.support.paths import ROOT

REPOSITORY: Final = "https://github.com/ag2ai/faststream.git"
COMMIT: Final = "7c9a125dfdf20cc45b64aac26b53559057443da1"
"""A commit of 2026-08-22, after 0.7.4; its tests run on 0.7.8, whose sdist has no tests."""

REQUIREMENTS: Final = (
    "faststream[cli,confluent,nats,rabbit,redis]==0.7.8",
    "cramjam",
    "dirty-equals",
    "fastapi",
    "httpx",
    "kazoo",
    "pydantic-settings",
    "pytest",
    "pytest-asyncio",
    "pytest-rerunfailures",
    "pytest-timeout",
    "python-multipart",
    "python-snappy",
)
"""What the tests and this package import; test_misconfigure.py needs the other brokers' extras."""

NO_CREATE_TOPICS: Final = "the test creates topics by a request, which brokers below 0.10.1 lack"
STOPS_EARLY: Final = (
    "the test stops its consumer right after five sends, and expects two messages by then"
)
NO_FUTURE: Final = "the result of publish() is awaitable, but no instance of asyncio.Future"

KNOWN: Final[Mapping[str, str]] = {
    "test_concurrent_consume": STOPS_EARLY,
    "test_return_future": NO_FUTURE,
}
"""Tests that fail on each line, always or at times, with the reason."""

KNOWN_WITHOUT_TOPICS: Final[Mapping[str, str]] = {
    **KNOWN,
    **dict.fromkeys(
        (
            "test_consume_by_pattern",
            "test_concurrent_consume_between_partitions",
            "test_concurrent_consume_between_partitions_commit[manual commit]",
            "test_concurrent_consume_between_partitions_commit[commit after process]",
            "test_concurrent_consume_between_partitions_assignment_warning[partitions < consumers]",
            "test_concurrent_consume_between_partitions_assignment_warning[partitions > consumers]",
        ),
        NO_CREATE_TOPICS,
    ),
}
"""As `KNOWN`, on the embedded cluster and on brokers below 0.10.1 without ZooKeeper."""


class Outcome(NamedTuple):
    """What became of the tests."""

    passed: int
    skipped: int
    failed: Mapping[str, str]
    """The first line of the error by "module::test"."""


def main() -> int:
    """Parse the arguments, run the tests, print the report."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance.foreign.faststream",
        description="Run FastStream's Kafka tests.",
    )
    parser.add_argument("--real", metavar="VERSION", help="a real broker, such as 0.8.2.2")
    parser.add_argument(
        "--embedded", metavar="LINE", default="0.10", help="the embedded line (default: 0.10)"
    )
    parser.add_argument(
        "--no-zookeeper", action="store_true", help="with --real: create topics by requests only"
    )
    parser.add_argument("--source", default=REPOSITORY, help="FastStream's repository")
    parser.add_argument("--commit", default=COMMIT, help=f"which commit (default: {COMMIT[:9]})")
    parser.add_argument("--port", type=int, default=9092, help="where the tests expect a broker")
    options, arguments = parser.parse_known_args()
    with tempfile.TemporaryDirectory(prefix="aiokafka08-faststream-") as folder:
        python = _prepare(Path(folder), options.source, options.commit)
        outcome = asyncio.run(_run(options, Path(folder), python, arguments))
    return _report(options, outcome)


def _prepare(folder: Path, source: str, commit: str) -> str:
    """Fetch the tests and make their venv; return its Python."""
    checkout = folder / "faststream"
    for command in (
        ("git", "clone", "--quiet", "--no-checkout", source, str(checkout)),
        ("git", "-C", str(checkout), "checkout", "--quiet", commit, "--", "tests", "docs"),
        ("git", "-C", str(checkout), "checkout", "--quiet", commit, "--", "pyproject.toml"),
    ):
        subprocess.run(command, check=True)
    venv.create(folder / "venv", with_pip=True)
    python = str(folder / "venv" / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", *REQUIREMENTS], check=True)
    return python


@asynccontextmanager
async def _cluster(options: argparse.Namespace) -> AsyncIterator[tuple[str, str | None]]:
    """Start the cluster; yield its address, and ZooKeeper's if it is to be used."""
    if options.real is None:
        async with EmbeddedCluster(version=options.embedded) as embedded:
            yield embedded.bootstrap_servers, None
        return
    real = RealCluster(options.real)
    await asyncio.to_thread(real.start)
    try:
        yield real.bootstrap_servers, None if options.no_zookeeper else real.zookeeper_connect
    finally:
        await asyncio.to_thread(real.close)


async def _run(
    options: argparse.Namespace, folder: Path, python: str, arguments: Sequence[str]
) -> Outcome:
    """Run the tests on a cluster behind the port that they expect."""
    environment = {**os.environ, "AIOKAFKA08_HEADERS": "embedded"}
    environment["PYTHONPATH"] = str(ROOT)
    results = folder / "results.xml"
    async with _cluster(options) as (servers, zookeeper):
        if zookeeper is not None:
            environment["AIOKAFKA08_ZOOKEEPER_CONNECT"] = zookeeper
        async with TcpProxy(servers, port=options.port):
            process = await asyncio.create_subprocess_exec(
                *(python, "-m", "aiokafka08.compat", "-m", "pytest", "tests/brokers/kafka"),
                *("-m", "connected", "-q", "--tb=short", f"--junitxml={results}", *arguments),
                cwd=folder / "faststream",
                env=environment,
                stdout=sys.stderr,
            )
            try:
                await process.wait()
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
    if not results.exists():
        raise SystemExit("no results: pytest ended before the tests, see its output")
    return read_results(results)


def read_results(path: Path) -> Outcome:
    """Read a report in JUnit's format; of a test that was repeated the last run counts."""
    runs = {}
    for case in ElementTree.parse(path).iter("testcase"):
        module = case.get("classname", "").removeprefix("tests.brokers.kafka.")
        runs[f"{module}::{case.get('name')}"] = case
    skipped = 0
    failed = {}
    for name, case in runs.items():
        wrong = case.find("failure")
        wrong = case.find("error") if wrong is None else wrong
        if wrong is not None:
            failed[name] = wrong.get("message", "").partition("\n")[0]
        elif case.find("skipped") is not None:
            skipped += 1
    return Outcome(len(runs) - skipped - len(failed), skipped, failed)


def _report(options: argparse.Namespace, outcome: Outcome) -> int:
    creates_topics = options.real is not None and not options.no_zookeeper
    known = KNOWN if creates_topics else KNOWN_WITHOUT_TOPICS
    unknown = 0
    for name, error in outcome.failed.items():
        reason = known.get(name.partition("::")[2])
        unknown += reason is None
        print(f"{name}: {error if reason is None else reason}")
    print(
        f"faststream: passed={outcome.passed} skipped={outcome.skipped} "
        f"failed={len(outcome.failed)} unknown={unknown}"
    )
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
