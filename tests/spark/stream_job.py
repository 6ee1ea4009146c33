"""Run a streaming query that test_stream_recovery kills, in a separate process.

python stream_job.py BOOTSTRAP_SERVERS FOLDER MASTER [follow]: topic t into JSON files, 500 messages
a batch, until all is read; with `follow` until it is killed.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from aiokafka08.spark import register


def main(servers: str, folder: str, master: str, follow: str = "") -> None:
    spark = (
        SparkSession.builder.master(master)
        .config("spark.task.maxFailures", "8")
        .config("spark.executor.memory", "640m")
        # A killed executor leaves its unpacked libraries behind, here in the test's folder.
        .config("spark.executor.extraJavaOptions", f"-Djava.io.tmpdir={folder}")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    register(spark)
    writer = (
        spark.readStream.format("kafka08")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "t")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "500")
        .load()
        .selectExpr("partition", "CAST(value AS STRING) AS value")
        .writeStream.format("json")
        .option("path", f"{folder}/sink")
        .option("checkpointLocation", f"{folder}/checkpoint")
    )
    if follow:
        query = writer.trigger(processingTime="0 seconds").start()
    else:
        query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
