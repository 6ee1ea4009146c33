"""kill -9 in the middle of a stream: the sink holds every message once when it has gone on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from aiokafka08.testing import EmbeddedCluster
from tests.spark.conftest import ROOT, fill, spark_home

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.timeout(500)]

COUNTS = [8000, 8000, 4000]


def start(
    cluster: EmbeddedCluster, folder: Path, *more: str, master: str = "local[2]"
) -> subprocess.Popen[bytes]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in {"PYTHONASYNCIODEBUG", "SPARK_HOME"} and not name.startswith("PYSPARK")
    }
    if master.startswith("local-cluster"):
        environment["SPARK_HOME"] = spark_home(folder)
    return subprocess.Popen(
        [
            sys.executable,
            str(ROOT / "tests" / "spark" / "stream_job.py"),
            cluster.bootstrap_servers,
            str(folder),
            master,
            *more,
        ],
        cwd=folder,
        env=environment
        | {
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            # What is killed doesn't tidy up.
            "SPARK_LOCAL_DIRS": str(folder),
            "SPARK_SUBMIT_OPTS": f"-Djava.io.tmpdir={folder}",
        },
        start_new_session=True,
    )


def committed(folder: Path) -> int:
    """How many batches are done."""
    commits = folder / "checkpoint" / "commits"
    return len([one for one in commits.glob("*") if one.name.isdigit()])


def wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 200
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def sink(folder: Path) -> list[str]:
    """What the sink's log says was written: files of batches that were not done don't count."""
    paths = {
        json.loads(line)["path"].removeprefix("file://")
        for log in (folder / "sink" / "_spark_metadata").glob("[0-9]*")
        for line in log.read_text().splitlines()[1:]
    }
    return [
        json.loads(row)["value"] for path in paths for row in Path(path).read_text().splitlines()
    ]


def check(folder: Path) -> None:
    expected = [f"{p}-{i}" for p, count in enumerate(COUNTS) for i in range(count)]
    assert sorted(sink(folder)) == sorted(expected)


def python_workers(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The processes in which Spark runs the tasks' Python."""
    found = []
    for one in psutil.Process(process.pid).children(recursive=True):
        try:
            parent = one.parent()
            if parent is not None and "pyspark.daemon" in " ".join(parent.cmdline()):
                found.append(one)
        except psutil.NoSuchProcess:
            continue
    return found


@pytest.fixture
def filled(cluster: EmbeddedCluster) -> EmbeddedCluster:
    fill(cluster, COUNTS)
    return cluster


def test_the_whole_driver_is_killed(filled: EmbeddedCluster, tmp_path: Path) -> None:
    first = start(filled, tmp_path, "follow")
    try:
        wait(lambda: committed(tmp_path) >= 4)
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    assert committed(tmp_path) < 40
    assert start(filled, tmp_path).wait(300) == 0
    check(tmp_path)


def test_executors_python_workers_and_a_broker_are_killed(
    filled: EmbeddedCluster, tmp_path: Path
) -> None:
    job = start(filled, tmp_path, master="local-cluster[2,1,1024]")
    killed = 0
    try:
        wait(lambda: committed(tmp_path) >= 3)
        filled.kill(0)
        while killed < 3 and job.poll() is None:
            for worker in python_workers(job)[:1]:
                worker.kill()
                killed += 1
            done = committed(tmp_path)
            wait(lambda done=done: committed(tmp_path) > done or job.poll() is not None)  # type: ignore[misc]
        assert job.wait(300) == 0
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
    assert killed == 3
    check(tmp_path)
