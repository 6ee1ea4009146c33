"""`register_sink`, `save`: write a DataFrame with `spark_task`, by a Python data source of Spark.

Invariant: each `SparkPart` has a class of its own, with the part as an attribute, since Spark
pickles the class of a data source for its tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from aiokafka08.bridge.sink.spark_task import SparkPart, write_part


def register_sink(spark: SparkSession, part: SparkPart) -> str:
    """Register the format that writes a part; return its name.

    It replaces the format of the producer's previous part.
    """
    # Two bridges may copy in one session at the same time.
    name = f"aiokafka08_bridge_{part.run}_{part.producer}"
    attributes = {"part": part, "name": classmethod(lambda cls: name)}
    spark.dataSource.register(type("BridgeDataSource", (BridgeDataSource,), attributes))
    return name


def save(spark: SparkSession, rows: DataFrame, sink: str) -> None:
    """Write rows in one task, and wait for it. May be called in any thread.

    Args:
        spark: the session.
        rows: as `spark_task.write_part` takes them.
        sink: the name of the format.

    Raises:
        PySparkException: the job failed, after Spark's own retries.
    """
    # Spark 4.3 finds the format only in this thread's active session. This call sets that session.
    spark.createDataFrame([], "none int")
    # One task writes for one producer, so nothing is shuffled, and the ranges come one after the
    # other.
    rows.coalesce(1).write.format(sink).mode("append").save()


class BridgeDataSource(DataSource):
    """The format that writes `part`."""

    part: ClassVar[SparkPart]

    def writer(self, schema: StructType, overwrite: bool) -> BridgeRowWriter:
        """Return the writer."""
        return BridgeRowWriter(self.part)


class BridgeRowWriter(DataSourceArrowWriter):
    """Writes the rows of a task. The target's transactions commit them; Spark commits nothing."""

    def __init__(self, part: SparkPart) -> None:
        self._part = part

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Write the rows, and commit them."""
        write_part(self._part, iterator)
        return WriterCommitMessage()
