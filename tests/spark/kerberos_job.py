"""Copy a topic to another one with a stream, through Kerberos, in a separate process.

    python kerberos_job.py OPTIONS KEYTAB FOLDER TOPIC COPY

OPTIONS are the options `kafka.*` of reading and writing, as JSON. The keytab is shipped as
`--files` ships it. test_kerberos_on_brokers runs it.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

from aiokafka08.spark import register


def main(given: str, keytab: str, folder: str, topic: str, copy: str) -> None:
    options = json.loads(given)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.files", keytab)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    register(spark)
    read = spark.readStream.format("kafka08").options(**options)
    query = (
        read.option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "10")
        .load()
        .select("key", "value", "partition")
        .writeStream.format("kafka08")
        .options(**options)
        .option("topic", copy)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
