"""Spark finds the format by itself where the wheel, and so `pyspark_kafka08`, is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from aiokafka08.testing import EmbeddedCluster
from tests.spark.conftest import SHORT_JVM, fill

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
PACKAGES = os.pathsep.join([str(ROOT), str(ROOT / "aiokafka08" / "spark" / "discovery")])
"""What the wheel installs at the top level: the client, and the package that Spark looks for."""


def run(
    *command: str, folder: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": PACKAGES} | variables
    environment.pop("PYTHONASYNCIODEBUG", None)
    return subprocess.run(
        [sys.executable, *command], env=environment, cwd=folder, capture_output=True, text=True
    )


@pytest.mark.timeout(300)
def test_session_reads_without_register(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    fill(cluster, [2, 3, 4])
    done = run(
        str(ROOT / "tests" / "spark" / "discovery_job.py"),
        cluster.bootstrap_servers,
        folder=tmp_path,
        PYSPARK_PYTHON=sys.executable,
        SPARK_LOCAL_IP="127.0.0.1",
        SPARK_LOCAL_DIRS=str(tmp_path),
        SPARK_SUBMIT_OPTS=SHORT_JVM,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found.pop("tasks with pushdown") < found.pop("tasks without pushdown")
    assert set(found.values()) == {9}


@pytest.mark.parametrize("without", ["aiokafka08", "pyspark"])
def test_import_never_raises(without: str) -> None:
    """Spark imports the package in each session, and an error would fail them all."""
    code = f"import sys; sys.modules[{without!r}] = None; import pyspark_kafka08"
    done = run("-W", "error", "-c", code)
    assert (done.returncode, done.stderr) == (0, "")


def test_missing_pyarrow_raises_at_the_first_use() -> None:
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from pyspark_kafka08 import DefaultSource; print(DefaultSource.name())\n"
        "DefaultSource({})"
    )
    done = run("-c", code)
    assert done.stdout == "kafka08\n"
    assert "KafkaConfigurationError" in done.stderr
    assert "pip install 'aiokafka08[spark]'" in done.stderr
