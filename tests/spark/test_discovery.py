"""Spark finds the format by itself where the wheel, and so `pyspark_kafka08`, is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from aiokafka08.testing import EmbeddedCluster
from tests.spark.conftest import PACKAGES, fill, found, reading

pytestmark = pytest.mark.spark


def run(*command: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": PACKAGES}
    environment.pop("PYTHONASYNCIODEBUG", None)
    return subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True
    )


@pytest.mark.timeout(300)
def test_new_session_reads_without_register(spark: Any, cluster: EmbeddedCluster) -> None:
    fill(cluster, [2, 3, 4])
    new = spark.newSession()  # `register` was called for the other one
    assert reading(new, cluster).count() == 9
    assert reading(spark, cluster).count() == 9

    frame = reading(new, cluster).where("partition = 1")  # Spark filters after reading
    assert frame.rdd.getNumPartitions() == 3
    assert found(frame) == found(reading(spark, cluster).where("partition = 1"))


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
