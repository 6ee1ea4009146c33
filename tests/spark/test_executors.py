"""Executors in separate processes get the package as a zip or as a wheel."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aiokafka08.protocol.compression import Codec
from aiokafka08.spark.options import read_options
from aiokafka08.spark.reader import Kafka08Reader
from aiokafka08.testing import EmbeddedCluster
from tests.spark.conftest import SHORT_JVM, cluster_home
from tests.spark.packaging import pip, python_with, wheel, zipped
from tests.support.paths import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture
def filled() -> Iterator[EmbeddedCluster]:
    """The numbers below 5000 in each of two partitions, compressed with snappy."""
    with EmbeddedCluster(brokers=2, topics={"t": 2, "copy": 2}) as cluster:
        for partition in (0, 1):
            for start in range(0, 5000, 500):
                values = [str(number).encode() for number in range(start, start + 500)]
                cluster.append("t", partition, values, codec=Codec.SNAPPY)
        yield cluster


def run(
    cluster: EmbeddedCluster,
    folder: Path,
    python: str = sys.executable,
    package: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run the job; `python` is the Python of its executors, and the driver runs this one."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in {"AIOKAFKA08_IMPL", "PYTHONASYNCIODEBUG", "PYTHONPATH", "SPARK_HOME"}
        and not name.startswith("PYSPARK")
    }
    environment |= {
        "PYSPARK_PYTHON": python,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_HOME": cluster_home(folder),
        "SPARK_LOCAL_DIRS": str(folder),
        "SPARK_SUBMIT_OPTS": f"-Djava.io.tmpdir={folder} {SHORT_JVM}",
    }
    if package is not None:
        environment["PYTHONPATH"] = str(package)
    return subprocess.run(
        [
            sys.executable,
            str(ROOT / "tests" / "spark" / "executor_job.py"),
            cluster.bootstrap_servers,
            SHORT_JVM,
            *([] if package is None else [str(package)]),
        ],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=560,
    )


def copied(done: subprocess.CompletedProcess[str], cluster: EmbeddedCluster) -> dict[str, Any]:
    """Check that the job read and wrote all messages, and return its summary."""
    assert done.returncode == 0, done.stderr[-5000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert found["messages"] == 10_000
    assert found["total"] == 2 * sum(range(5000))
    assert found["executors"] == 2
    for partition in (0, 1):
        values = sorted(int(one.value or b"") for one in cluster.log("copy", partition))
        assert values == list(range(5000))
    return found


READ = """
import pickle, sys
import aiokafka08.spark
reader, tasks = pickle.load(sys.stdin.buffer)
rows = [value for task in tasks for batch in reader.read(task) for value in batch["value"]]
numbers = sorted(int(value.as_py()) for value in rows)
print(aiokafka08.__file__, numbers == sorted([*range(5000)] * 2))
"""


def test_zip_of_the_package_reads_tasks(filled: EmbeddedCluster, tmp_path: Path) -> None:
    """In a process like Spark's executors; with `--full` in executors."""
    given = {"kafka.bootstrap.servers": filled.bootstrap_servers, "subscribe": "t"}
    reader = Kafka08Reader(read_options(given, streaming=False))
    package = zipped(tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(package), "PYTHONASYNCIODEBUG": ""}
    environment.pop("AIOKAFKA08_IMPL", None)
    done = subprocess.run(
        [sys.executable, "-c", READ],
        input=pickle.dumps((reader, reader.partitions())),
        cwd=tmp_path,
        env=environment,
        capture_output=True,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode().split() == [str(package / "aiokafka08" / "__init__.py"), "True"]


@pytest.mark.full
def test_zip_of_the_package_runs_on_two_executors(filled: EmbeddedCluster, tmp_path: Path) -> None:
    found = copied(run(filled, tmp_path, package=zipped(tmp_path)), filled)
    assert all(".zip" in file for file in found["files"])
    assert found["twins"] == ["python"]


@pytest.mark.full
@pytest.mark.timeout(1500)
def test_wheel_alone_runs_on_executors(filled: EmbeddedCluster, tmp_path: Path) -> None:
    python = python_with(tmp_path, f"aiokafka08[arrow] @ {wheel(tmp_path).as_uri()}")
    found = copied(run(filled, tmp_path, python), filled)
    assert all(Path(file).is_relative_to(tmp_path / "venv") for file in found["files"])
    assert found["twins"] == ["c"]


@pytest.mark.full
@pytest.mark.timeout(1500)
def test_zip_without_codec_packages_names_them(filled: EmbeddedCluster, tmp_path: Path) -> None:
    """pyarrow is always needed; packages of codecs only for topics that use them."""
    python = python_with(tmp_path, "pyarrow")
    done = run(filled, tmp_path, python, zipped(tmp_path))
    assert done.returncode
    assert "codec snappy: no module named" in done.stderr
    pip(python, "install", "python-snappy", "cramjam")
    again = tmp_path / "again"
    again.mkdir()
    copied(run(filled, again, python, tmp_path / "aiokafka08.zip"), filled)
