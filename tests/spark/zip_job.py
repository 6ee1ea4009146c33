"""Copy a topic by a streaming query, in a job that `spark-submit` gets with a zip of the package.

    spark-submit --py-files ZIP zip_job.py BOOTSTRAP_SERVERS FOLDER

The query reads topic `t`, writes to topic `copy`, and ends. The job logs at INFO, and prints as
JSON from which files the driver and the executors imported the package. test_workers runs it.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable

from pyspark.sql import SparkSession

import aiokafka08
from aiokafka08.spark import register


def where(_: Iterable[int]) -> Iterable[tuple[int, str]]:
    """Yield the executor's Python daemon, and the path of the package."""
    import os

    import aiokafka08

    yield os.getppid(), aiokafka08.__file__


def main(servers: str, folder: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    logging.getLogger("aiokafka08").setLevel(logging.INFO)
    register(spark)
    query = (
        spark.readStream.format("kafka08")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "t")
        .option("startingOffsets", "earliest")
        .load()
        .select("key", "value", "partition")
        .writeStream.format("kafka08")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", "copy")
        .option("kafka.client.id", "copy-job")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    ran = spark.sparkContext.parallelize(range(4), 4).mapPartitions(where).collect()
    found = {
        "driver": aiokafka08.__file__,
        "executors": len({daemon for daemon, _ in ran}),
        "files": sorted({file for _, file in ran}),
    }
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
