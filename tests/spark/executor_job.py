"""Copy a topic with a Spark job whose executors are separate processes.

    python executor_job.py BOOTSTRAP_SERVERS JVM_OPTIONS [ZIP_OF_THE_PACKAGE]

The job reads topic `t`, writes it to topic `copy`, and prints a summary as JSON. With a zip, Spark
sends that to the executors; otherwise the package is installed there. test_executors runs it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable

from pyspark.sql import SparkSession

from aiokafka08.spark import register


def where(_: Iterable[int]) -> Iterable[tuple[int, str, str]]:
    """Yield the executor's Python daemon, the path of the package, and the twin in use."""
    import os

    import aiokafka08
    from aiokafka08.protocol.message_set import IMPLEMENTATION

    yield os.getppid(), aiokafka08.__file__, IMPLEMENTATION


def main(servers: str, jvm: str, package: str = "") -> None:
    spark = (
        SparkSession.builder.master("local-cluster[2,1,1024]")
        .config("spark.submit.pyFiles", package)
        .config("spark.executor.memory", "640m")
        .config("spark.executor.extraJavaOptions", jvm)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
        .config("spark.scheduler.maxRegisteredResourcesWaitingTime", "120s")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
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
    ran = spark.sparkContext.parallelize(range(8), 8).mapPartitions(where).collect()
    print(
        json.dumps(
            {
                "messages": rows[0].messages,
                "total": rows[0].total,
                "executors": len({daemon for daemon, _, _ in ran}),
                "files": sorted({file for _, file, _ in ran}),
                "twins": sorted({twin for _, _, twin in ran}),
            }
        )
    )
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
