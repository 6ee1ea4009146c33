"""The Spark job, in a process of its own that `aggregate` starts.

    python -m examples.demo.spark_job BOOTSTRAP TOPIC FOLDER

It prints a line of JSON when the session has started and answered a first small query (`{"spark":
version, "cores": n}`), and another one with the result (`{"packages": [[name, messages, bytes,
comments], …]}`), or `{"error": text}`. When its stdin ends, at any moment, it ends with all
processes that it started: Spark's start script, the JVM, and Python's workers, which end with the
JVM. Then it removes FOLDER, which has its files.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WARM_UP = 100
"""Messages of the first query. It starts Python's workers and generates code, which takes longer
than all messages do."""

JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
"""For a JVM of a few seconds: with full compilation the demo took 28 s of CPU time, not 20."""


def start(folder: str) -> SparkSession:
    """Return a session on all cores with the format `kafka08`, with its files in a folder."""
    from pyspark.sql import SparkSession

    from aiokafka08.spark import register

    spark = (
        SparkSession.builder.master("local[*]")
        .appName("aiokafka08 demo")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", f"-Djava.io.tmpdir={folder} {JVM}")
        .config("spark.local.dir", folder)
        .config("spark.sql.warehouse.dir", folder)
        .config("spark.sql.shuffle.partitions", "2")  # some hundred packages
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    register(spark)
    return spark


def read(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    """Return the messages of a topic."""
    return (
        spark.read.format("kafka08")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("minPartitions", str(spark.sparkContext.defaultParallelism))
        .load()
    )


def packages(lines: DataFrame) -> DataFrame:
    """Return messages, bytes of values and comment lines by top-level package."""
    return (
        lines.selectExpr(
            # A key is a module's name, perhaps followed by "@" and the round.
            "split_part(split_part(CAST(key AS STRING), '@', 1), '.', 1) AS package",
            "octet_length(value) AS length",
            r"startswith(trim(LEADING ' \t\f' FROM CAST(value AS STRING)), '#') AS is_comment",
        )
        .groupBy("package")
        .agg({"*": "count", "length": "sum", "is_comment": "count_if"})
        .selectExpr(
            "CAST(package AS BINARY) AS package",
            "`count(1)` AS messages",
            "`sum(length)` AS size_bytes",
            "`count_if(is_comment)` AS comments",
        )
    )


def main(bootstrap: str, topic: str, folder: str) -> None:
    """Run the job, print the result, and wait for the end of stdin."""
    output = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # the JVM inherits stdout; its output there goes to the log
    signal.signal(signal.SIGTERM, lambda *_: None)  # `_end` sends it to the other processes
    end = threading.Thread(target=_end, args=[folder])
    end.start()
    try:
        spark = start(folder)
        lines = read(spark, bootstrap, topic)
        packages(lines.limit(WARM_UP)).collect()
        _print(output, spark=spark.version, cores=spark.sparkContext.defaultParallelism)
        rows = packages(lines).collect()
        _print(
            output,
            packages=[[bytes(name).decode(errors="replace"), *counts] for name, *counts in rows],
        )
    except Exception as error:
        _print(output, error=f"{type(error).__name__}: {error}")
    end.join()


def _print(output: TextIO, **message: object) -> None:
    print(json.dumps(message), file=output)


def _end(folder: str) -> None:
    """At the end of stdin, end this process's group and remove its files."""
    sys.stdin.buffer.read()
    with contextlib.suppress(ChildProcessError):  # no children are left
        while True:
            os.killpg(0, signal.SIGTERM)  # repeated, since a child may just have been started
            os.waitpid(-1, os.WNOHANG)
            time.sleep(0.05)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
