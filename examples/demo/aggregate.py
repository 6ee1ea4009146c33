"""The stage for Spark: aggregate the topic by package, and compare the result with the input.

Spark runs in a process of its own (`spark_job`), with a folder and an environment of its own. So
the demo shows Spark's log only if Spark fails, and can end all its processes at any moment.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from examples.demo.prerequisites import missing_for_spark
from examples.demo.run import DemoError, Run, Speed
from examples.demo.tally import Package, count_packages

ROOT = Path(__file__).parents[2]
START_SPARK, IN_SPARK = "start Spark", "aggregate in Spark"
"""The stages."""
PATIENCE_S = 5.0
"""Time for the JVM to end."""
NAMED = 5
LAST_LINES = 4
"""Lines of the log in an error: Spark's start script prints a complaint after Java's."""

Receive = Callable[[], dict[str, Any]]


def aggregate(run: Run) -> Sequence[Speed]:
    """Let Spark count by top-level package; without Spark or Java, print how to install it.

    Raises:
        DemoError: Spark failed, or its counts differ from the input.
    """
    if run.without_spark:
        return []
    if missing := missing_for_spark():
        run.console.print(f"Spark skipped: {missing}")
        return []
    run.console.print("Spark starts: a JVM, Python's workers and a first small query")
    begun = time.perf_counter()
    with run.console.status("Spark"), _job(run.bootstrap, run.topic) as receive:
        session = receive()
        started = time.perf_counter()
        run.console.print(f"Spark {session['spark']} started, on {session['cores']} cores")
        found = {name: Package(*counts) for name, *counts in receive()["packages"]}
        ended = time.perf_counter()
    repeated = ((key, [value]) for key, value in run.repeated)
    compare(found, count_packages(chain(run.input.parts(), repeated)), run.topic)
    run.packages = found
    messages = sum(package.messages for package in found.values())
    run.console.print(
        f"{messages:,} messages of {len(found):,} packages were counted by Spark. For each package "
        "the numbers of messages, bytes and comment lines are as sent."
    )
    return [
        Speed(START_SPARK, 0, 0, started - begun),
        Speed(IN_SPARK, messages, run.input.total_bytes, ended - started),
    ]


def compare(found: dict[str, Package], sent: dict[str, Package], topic: str) -> None:
    """Raise `DemoError` with the names of the packages that differ."""
    differing = [
        f"package {name!r}: {found.get(name)}; expected {sent.get(name)}"
        for name in sorted(sent.keys() | found.keys())
        if found.get(name) != sent.get(name)
    ]
    if differing:
        more = f"; and {len(differing) - NAMED:,} more packages" if len(differing) > NAMED else ""
        raise DemoError(
            f"verification of topic {topic!r} in Spark failed: {'; '.join(differing[:NAMED])}{more}"
        )


@contextmanager
def _job(bootstrap: str, topic: str) -> Iterator[Receive]:
    """Run the process, and yield a function that waits for its next message."""
    with (
        tempfile.TemporaryDirectory(
            prefix="aiokafka08-demo-", ignore_cleanup_errors=True
        ) as folder,
        open(Path(folder, "log"), "w+", errors="replace") as log,
    ):
        process = subprocess.Popen(
            [sys.executable, "-m", "examples.demo.spark_job", bootstrap, topic, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=ROOT,
            env=_environment(),
            start_new_session=True,  # the demo handles Ctrl-C, and ends the whole process group
        )
        assert process.stdin is not None
        assert process.stdout is not None
        messages = process.stdout

        def receive() -> dict[str, Any]:
            message: dict[str, Any] = json.loads(messages.readline() or '{"error": ""}')
            if "error" in message:
                log.seek(0)
                raise DemoError(f"Spark failed: {reason(message['error'], log.read())}")
            return message

        try:
            yield receive
        finally:
            process.stdin.close()
            try:
                process.wait(PATIENCE_S)
            finally:  # the process takes too long, or the user pressed Ctrl-C again
                if process.returncode is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                messages.close()


def reason(error: str, log: str) -> str:
    """Return the line of an error or of a log that has the reason of a failure.

    Args:
        error: the exception's text, perhaps with the indented stacks of a Python worker and of the
            JVM; empty if there was no exception.
        log: the other output of Spark and Java.
    """
    if not error or "JAVA_GATEWAY_EXITED" in error:  # then Java's output has the reason
        last = "; ".join(log.strip().splitlines()[-LAST_LINES:])
        return f"the process ended; its last lines: {last}" if last else "the process ended"
    python = re.split("^(?:JVM|Driver) stacktrace:", error, maxsplit=1, flags=re.MULTILINE)[0]
    lines = [line for line in python.splitlines() if line.strip() and not line[0].isspace()]
    return ([line for line in lines if not line.endswith(":")] or lines or [error])[-1]


def _environment() -> dict[str, str]:
    """Return an environment without the settings of another Spark, for workers on this Python."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SPARK_", "PYSPARK_"))
    }
    return kept | {
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
