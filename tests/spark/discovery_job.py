"""Read a topic in a new Spark session without `register`, then with it; print what was found.

    python discovery_job.py BOOTSTRAP_SERVERS

test_discovery runs it.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

from aiokafka08.spark import register


def main(servers: str) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )

    def read(session: Any) -> Any:
        reader = session.read.format("kafka08").option("kafka.bootstrap.servers", servers)
        return reader.option("subscribe", "t").load()

    def tasks(session: Any) -> int:
        return int(read(session).where("partition = 1").rdd.getNumPartitions())

    found = {
        "by itself": read(spark).count(),
        "tasks without pushdown": tasks(spark),
        "in a new session": read(spark.newSession()).count(),
    }
    register(spark)
    found |= {"registered": read(spark).count(), "tasks with pushdown": tasks(spark)}
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
