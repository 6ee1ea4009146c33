"""A job for executors in processes of their own: run by test_executors in a process of its own.

python job.py BOOTSTRAP_SERVERS ZIP_OF_THE_PACKAGE: reads topic t, writes it to topic `copy`, and
prints as JSON what it found.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from aiokafka08.spark import register


def where(batches: Iterator[Any]) -> Iterator[Any]:
    """The process, and the file that the package came from."""
    import os

    import aiokafka08

    for _ in batches:
        yield pa.RecordBatch.from_pylist([{"parent": os.getppid(), "file": aiokafka08.__file__}])


def main(servers: str, package: str) -> None:
    spark = (
        SparkSession.builder.master("local-cluster[2,1,1024]")
        .config("spark.submit.pyFiles", package)
        .config("spark.executor.memory", "512m")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    register(spark)
    frame = (
        spark.read.format("kafka08")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "t")
        .option("minPartitions", "8")
        .load()
    )
    rows = frame.selectExpr(
        "count(*) AS messages", "sum(CAST(CAST(value AS STRING) AS BIGINT)) AS total"
    ).collect()
    (
        frame.select("key", "value", "partition")
        .write.format("kafka08")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", "copy")
        .mode("append")
        .save()
    )
    ran = spark.range(0, 8, 1, 8).mapInArrow(where, "parent long, file string").collect()
    print(
        json.dumps(
            {
                "messages": rows[0].messages,
                "total": rows[0].total,
                "executors": len({row.parent for row in ran}),
                "files": sorted({row.file for row in ran}),
            }
        )
    )
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
