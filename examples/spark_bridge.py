"""Copy the history of a cluster to one of 0.11 – 4.x, each message once, with Spark.

spark-submit examples/spark_bridge.py bridge.toml

The file is that of `aiokafka08 bridge run`, which goes on where this job ends. The job may be
killed and started again at any time. `copy.producers` in the file is the number of Spark tasks that
write at the same time.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.sql import SparkSession

from aiokafka08.bridge.config import read_config
from aiokafka08.bridge.spark_copy import copy_with_spark


def main() -> None:
    """Parse the arguments, copy, and print the positions."""
    parser = argparse.ArgumentParser(description="Copy topics to a modern cluster, exactly once.")
    parser.add_argument("file", type=Path, help="the bridge's file")
    parser.add_argument(
        "--records-per-round",
        type=int,
        default=5_000_000,
        help="the most messages of a round of Spark jobs (default: 5 million)",
    )
    given = parser.parse_args()
    config = read_config(given.file)
    spark = SparkSession.builder.appName(f"bridge {config.name}").getOrCreate()
    positions = copy_with_spark(
        spark,
        config,
        records_per_round=given.records_per_round,
        on_round=lambda done: print(f"copied up to {sum(done.values())} offsets", flush=True),
    )
    for (topic, partition), offset in sorted(positions.items()):
        print(f"{topic}/{partition}: copied up to {offset}")


if __name__ == "__main__":
    main()
