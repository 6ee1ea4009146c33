"""A query goes on from a checkpoint that an older release or Spark's own source wrote.

tests/spark/checkpoint is of commit 26f081b9, before modules of the package were moved: a query of
topic t with the messages [5, 3, 0] of batch 1, and a batch 2 with [1, 0, 2] more, which failed. A
checkpoint holds JSON only: no pickle, no name of a module.

tests/spark/checkpoint_of_spark is of Spark's own source: the jars of 4.2.0, PySpark 4.3.0, a broker
3.9.1. Topic t had 20 messages, [7, 7, 6], a batch six at most; batch 2 failed.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from aiokafka08.testing import EmbeddedCluster
from tests.spark.conftest import fill
from tests.spark.stream_query import Stream

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

CHECKPOINT = Path(__file__).parent / "checkpoint"
CHECKPOINT_OF_SPARK = Path(__file__).parent / "checkpoint_of_spark"


def test_query_goes_on_from_a_checkpoint_of_an_older_release(
    spark: Any, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    """It repeats the batch that failed, with the same messages, and reads what follows."""
    shutil.copytree(CHECKPOINT, tmp_path / "checkpoint")
    stream = Stream(spark, cluster, tmp_path)
    fill(cluster, [6, 3, 2])
    fill(cluster, [1, 2, 1])
    stream.run()
    assert stream.batches() == [["0-5", "2-0", "2-1"], ["0-6", "1-3", "1-4", "2-2"]]
    assert stream.journal(2) == {"t": {"0": 6, "1": 3, "2": 2}}
    assert stream.journal(3) == {"t": {"0": 7, "1": 5, "2": 3}}


def test_query_goes_on_from_a_checkpoint_of_sparks_own_source(
    spark: Any, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    shutil.copytree(CHECKPOINT_OF_SPARK, tmp_path / "checkpoint")
    stream = Stream(spark, cluster, tmp_path)
    fill(cluster, [7, 7, 6])
    stream.run()
    repeated = ["0-4", "0-5", "1-4", "1-5", "2-3", "2-4"]
    assert stream.batches() == [repeated, ["0-6", "1-6", "2-5"]]
    assert stream.journal(3) == {"t": {"0": 7, "1": 7, "2": 6}}
