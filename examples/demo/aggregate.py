"""The stage for Spark: what the packages are like, compared with what was sent.

Spark runs in a process of its own (`spark_job`), with a folder and an environment of its own: so
what it logs is told only where it fails, and all of it can be ended at any moment.
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
from pathlib import Path
from typing import Any

from examples.demo.prerequisites import missing_for_spark
from examples.demo.run import DemoError, Run, Speed
from examples.demo.tally import Package, count_packages

ROOT = Path(__file__).parents[2]
PATIENCE_S = 5.0
"""For the JVM's end."""
TOLD = 5
LAST_WORDS = 4
"""Lines of the log: Spark's start script complains after Java did."""

Listen = Callable[[], dict[str, Any]]


def aggregate(run: Run) -> Sequence[Speed]:
    """Let Spark count by top-level package; without Spark or Java, say how to get it.

    Raises:
        DemoError: Spark failed, or counted something else than what was sent.
    """
    if missing := missing_for_spark():
        run.console.print(f"Spark is left out: {missing}")
        return []
    run.console.print("Spark starts")
    begun = time.perf_counter()
    with run.console.status("Spark"), _job(run.bootstrap, run.topic) as listen:
        session = listen()
        started = time.perf_counter()
        run.console.print(f"Spark {session['spark']} is there, on {session['cores']} cores")
        found = {name: Package(*counts) for name, *counts in listen()["packages"]}
        ended = time.perf_counter()
    compare(found, count_packages(run.input.parts()), run.topic)
    run.packages = found
    messages = sum(package.messages for package in found.values())
    run.console.print(
        f"{messages:,} messages of {len(found):,} packages were counted by Spark: of each the "
        "messages, bytes and comment lines are those of what was sent."
    )
    return [
        Speed("start Spark", 0, 0, started - begun),
        Speed("aggregate in Spark", messages, run.input.sent.size_bytes, ended - started),
    ]


def compare(found: dict[str, Package], sent: dict[str, Package], topic: str) -> None:
    """Raise `DemoError`, naming the packages, unless both are the same."""
    differing = [
        f"package {name!r}: {found.get(name)}, sent were {sent.get(name)}"
        for name in sorted(sent.keys() | found.keys())
        if found.get(name) != sent.get(name)
    ]
    if differing:
        more = f"; and {len(differing) - TOLD:,} packages more" if len(differing) > TOLD else ""
        raise DemoError(
            f"in topic {topic!r} Spark doesn't find what was sent: "
            f"{'; '.join(differing[:TOLD])}{more}"
        )


@contextmanager
def _job(bootstrap: str, topic: str) -> Iterator[Listen]:
    """The process, while it is entered; what is given waits for what it says next."""
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
            start_new_session=True,  # Ctrl-C is the demo's to hear; and a group to end
        )
        assert process.stdin is not None
        assert process.stdout is not None
        answers = process.stdout

        def listen() -> dict[str, Any]:
            answer: dict[str, Any] = json.loads(answers.readline() or '{"error": ""}')
            if "error" in answer:
                log.seek(0)
                raise DemoError(f"Spark failed: {why(answer['error'], log.read())}")
            return answer

        try:
            yield listen
        finally:
            process.stdin.close()
            try:
                process.wait(PATIENCE_S)
            finally:  # it took too long, or Ctrl-C came again
                if process.returncode is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                answers.close()


def why(error: str, log: str) -> str:
    """The line that tells what went wrong.

    Args:
        error: the exception's text, perhaps with the stacks of a Python worker and of the JVM,
            whose lines are indented; empty if there was none.
        log: what Spark and Java said otherwise.
    """
    if not error or "JAVA_GATEWAY_EXITED" in error:  # the reason is what Java said then
        said = "; ".join(log.strip().splitlines()[-LAST_WORDS:])
        return f"it ended, its last words were: {said}" if said else "it ended"
    python = re.split("^(?:JVM|Driver) stacktrace:", error, maxsplit=1, flags=re.MULTILINE)[0]
    lines = [line for line in python.splitlines() if line.strip() and not line[0].isspace()]
    return ([line for line in lines if not line.endswith(":")] or lines or [error])[-1]


def _environment() -> dict[str, str]:
    """Without what is set up for another Spark; workers run this Python, and find the package."""
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
