"""After kill -9 in the middle of a stream, the resumed query has each message once."""

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
import pyarrow as pa
import pytest

from aiokafka08.spark.options import read_options, write_options
from aiokafka08.spark.reader import Kafka08Reader
from aiokafka08.spark.writer import write_task
from aiokafka08.testing import EmbeddedCluster
from tests.brokers.cluster import RealCluster
from tests.brokers.fixtures import require_real_brokers
from tests.spark.conftest import SHORT_JVM, cluster_home, fill, quick_home
from tests.support.paths import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

COUNTS = [3200, 3200, 1600]
HALF = [1600, 1600, 800]


def start(
    servers: str, folder: Path, *more: str, master: str = "local[2]"
) -> subprocess.Popen[bytes]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in {"PYTHONASYNCIODEBUG", "SPARK_HOME"} and not name.startswith("PYSPARK")
    }
    is_cluster = master.startswith("local-cluster")
    environment["SPARK_HOME"] = cluster_home(folder) if is_cluster else quick_home()
    return subprocess.Popen(
        [
            sys.executable,
            str(ROOT / "tests" / "spark" / "stream_job.py"),
            servers,
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
            # A killed process doesn't remove its files.
            "SPARK_LOCAL_DIRS": str(folder),
            "SPARK_SUBMIT_OPTS": f"-Djava.io.tmpdir={folder} {SHORT_JVM}",
        },
        start_new_session=True,
    )


def end(job: subprocess.Popen[bytes]) -> None:
    """Send SIGKILL to the driver and all its processes."""
    if job.poll() is None:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()


def committed(folder: Path) -> int:
    """Return the number of committed batches."""
    commits = folder / "checkpoint" / "commits"
    return len([one for one in commits.glob("*") if one.name.isdigit()])


def wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 400
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def sink(folder: Path) -> list[str]:
    """Return the values that the sink's log lists; files of unfinished batches don't count."""
    paths = {
        json.loads(line)["path"].removeprefix("file://")
        for log in (folder / "sink" / "_spark_metadata").glob("[0-9]*")
        for line in log.read_text().splitlines()[1:]
    }
    return [
        json.loads(row)["value"] for path in paths for row in Path(path).read_text().splitlines()
    ]


def expected(counts: list[int]) -> list[str]:
    return sorted(f"{p}-{i}" for p, count in enumerate(counts) for i in range(count))


def python_workers(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Return the processes in which Spark runs the Python of tasks."""
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


@pytest.mark.full
def test_killed_driver_resumes_exactly_once(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    fill(cluster, HALF)
    first = start(cluster.bootstrap_servers, tmp_path, "follow")
    try:
        wait(lambda: committed(tmp_path) >= 3)
    finally:
        end(first)
    assert committed(tmp_path) * 500 < sum(HALF)
    last = start(cluster.bootstrap_servers, tmp_path)
    try:
        assert last.wait(600) == 0
    finally:
        end(last)
    assert sorted(sink(tmp_path)) == expected(HALF)


def kill_workers(job: subprocess.Popen[bytes], folder: Path, count: int) -> None:
    """Send SIGKILL to `count` Python workers, one after the other, each during another batch."""
    killed = 0
    while killed < count and job.poll() is None:
        for worker in python_workers(job)[:1]:
            worker.kill()
            killed += 1
        done = committed(folder)
        wait(lambda done=done: committed(folder) > done or job.poll() is not None)  # type: ignore[misc]
    assert killed == count


@pytest.mark.full
def test_killed_python_workers_and_broker_lose_nothing(
    filled: EmbeddedCluster, tmp_path: Path
) -> None:
    job = start(filled.bootstrap_servers, tmp_path, master="local-cluster[2,1,1024]")
    try:
        wait(lambda: committed(tmp_path) >= 3)
        filled.kill(0)
        kill_workers(job, tmp_path, 3)
        assert job.wait(600) == 0
    finally:
        end(job)
    assert sorted(sink(tmp_path)) == expected(COUNTS)


@pytest.mark.full
@pytest.mark.real
@pytest.mark.timeout(1500)
def test_killed_real_broker_workers_and_driver_lose_nothing(tmp_path: Path) -> None:
    """One of three brokers 0.8.2.2 is killed in the middle of the stream and stays down."""
    require_real_brokers()
    with RealCluster("0.8.2.2", 3) as real:
        real.create_topic("t", 3, 3)
        append(real, [0, 0, 0], HALF)
        first = start(real.bootstrap_servers, tmp_path, "follow", master="local-cluster[2,1,1024]")
        try:
            wait(lambda: committed(tmp_path) >= 3)
            real.kill(real.leader("t", 0))
            kill_workers(first, tmp_path, 2)
            append(real, HALF, COUNTS)
            done = committed(tmp_path)
            wait(lambda: committed(tmp_path) > done)
        finally:
            end(first)
        last = start(real.bootstrap_servers, tmp_path)
        try:
            assert last.wait(600) == 0
        finally:
            end(last)
        stored = log(real)
    # A produce request whose response was lost may be stored twice.
    assert sorted(set(stored)) == expected(COUNTS)
    assert sorted(sink(tmp_path)) == sorted(stored)


def append(real: RealCluster, starts: list[int], ends: list[int]) -> None:
    """Append messages to each partition, acknowledged by all in-sync replicas."""
    options = {"kafka.bootstrap.servers": real.bootstrap_servers, "topic": "t", "kafka.acks": "all"}
    for partition, (start, end) in enumerate(zip(starts, ends, strict=True)):
        values = [f"{partition}-{i}" for i in range(start, end)]
        rows = {"value": values, "partition": pa.array([partition] * len(values), pa.int32())}
        write_task(write_options(options), iter([pa.RecordBatch.from_pydict(rows)]))


def log(real: RealCluster) -> list[str]:
    """Return the values of all stored messages."""
    options = {"kafka.bootstrap.servers": real.bootstrap_servers, "subscribe": "t"}
    reader = Kafka08Reader(read_options(options, streaming=False))
    return [
        value.decode()
        for task in reader.partitions()
        for batch in reader.read(task)
        for value in batch.column("value").to_pylist()
    ]
