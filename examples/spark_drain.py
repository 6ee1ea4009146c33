"""Copy a topic from an old cluster to another one, and resume where the last run ended.

spark-submit examples/spark_drain.py --source old:9092 --target new:9092 --topic events \
    --checkpoint /var/lib/drain/events

The topic must exist in the target cluster, with at least as many partitions. A run copies all
available messages and ends; with --follow it continues with new messages. Messages keep their key,
value, partition and order. After a killed run, the next one may write the last batch again.

A cluster of 4.x needs Spark's own sink, whose jars belong to Spark's version:

spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 examples/spark_drain.py \
    --sink kafka --source old:9092 --target new:9092 --topic events \
    --checkpoint /var/lib/drain/events

spark_bridge.py copies each message once.
"""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from aiokafka08.spark import register


def drain(
    spark: SparkSession,
    source: str,
    target: str,
    topic: str,
    checkpoint: str,
    *,
    sink: str = "kafka08",
    follow: bool = False,
    max_offsets_per_trigger: int = 5_000_000,
) -> StreamingQuery:
    """Start the copy and return the running query.

    `sink` is "kafka08" (for a target of 0.8 to 3.9) or "kafka" (Spark's own, for 0.10 to 4.x).
    """
    register(spark)
    messages = (
        spark.readStream.format("kafka08")
        .option("kafka.bootstrap.servers", source)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", max_offsets_per_trigger)
        .load()
    )
    writer = (
        messages.select("topic", "partition", "key", "value")
        .writeStream.format(sink)
        .option("kafka.bootstrap.servers", target)
        .option("kafka.compression.type", "snappy")
        .option("checkpointLocation", checkpoint)
    )
    if follow:
        return writer.trigger(processingTime="5 seconds").start()
    return writer.trigger(availableNow=True).start()


def main() -> None:
    """Parse the arguments, copy, and print the end offsets."""
    parser = argparse.ArgumentParser(description="Stream a topic from one cluster to another.")
    parser.add_argument("--source", required=True, help="bootstrap servers of the old cluster")
    parser.add_argument("--target", required=True, help="bootstrap servers of the other cluster")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--checkpoint", required=True, help="folder for the progress of the query")
    parser.add_argument(
        "--sink",
        choices=["kafka08", "kafka"],
        default="kafka08",
        help="kafka: Spark's own sink, for a target of 4.x; it needs its jars (default: kafka08)",
    )
    parser.add_argument("--follow", action="store_true", help="continue with new messages")
    given = parser.parse_args()
    spark = SparkSession.builder.appName(f"drain {given.topic}").getOrCreate()
    query = drain(
        spark,
        given.source,
        given.target,
        given.topic,
        given.checkpoint,
        sink=given.sink,
        follow=given.follow,
    )
    query.awaitTermination()
    # Spark keeps the progress of the last batches only: print offsets, not the number of messages.
    progress = query.lastProgress
    assert progress is not None, "each run reports a progress, even without new messages"
    print(f"copied {given.topic} up to {progress['sources'][0]['endOffset']}")


if __name__ == "__main__":
    main()
