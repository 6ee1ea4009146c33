"""Executors in processes of their own, which get the package as a zip."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from aiokafka08.protocol.compression import Codec
from aiokafka08.testing import EmbeddedCluster
from tests.spark.conftest import spark_home

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]


def test_a_job_runs_on_several_executors_with_the_package_as_a_zip(tmp_path: Path) -> None:
    package = tmp_path / "aiokafka08.zip"
    with zipfile.ZipFile(package, "w") as archive:
        for path in (ROOT / "aiokafka08").rglob("*.py"):
            archive.write(path, path.relative_to(ROOT))
    environment = {
        name: value
        for name, value in os.environ.items()
        # A zip has pure Python only.
        if name not in {"AIOKAFKA08_IMPL", "PYTHONASYNCIODEBUG", "PYTHONPATH", "SPARK_HOME"}
        and not name.startswith("PYSPARK")
    }
    with EmbeddedCluster(brokers=2, topics={"t": 2, "copy": 2}) as cluster:
        for partition in (0, 1):
            for start in range(0, 5000, 500):
                values = [str(number).encode() for number in range(start, start + 500)]
                cluster.append("t", partition, values, codec=Codec.SNAPPY)
        done = subprocess.run(
            [
                sys.executable,
                str(ROOT / "tests" / "spark" / "job.py"),
                cluster.bootstrap_servers,
                str(package),
            ],
            cwd=tmp_path,
            env=environment
            | {
                "PYTHONPATH": str(package),
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_HOME": spark_home(tmp_path),
                "SPARK_LOCAL_DIRS": str(tmp_path),
                "SPARK_SUBMIT_OPTS": f"-Djava.io.tmpdir={tmp_path}",
            },
            capture_output=True,
            text=True,
            timeout=280,
        )
        assert done.returncode == 0, done.stderr[-5000:]
        found = json.loads(done.stdout.splitlines()[-1])
        assert found["messages"] == 10_000
        assert found["total"] == 2 * sum(range(5000))
        assert found["executors"] == 2
        assert all(".zip" in file for file in found["files"])
        for partition in (0, 1):
            copied = sorted(int(one.value or b"") for one in cluster.log("copy", partition))
            assert copied == list(range(5000))
