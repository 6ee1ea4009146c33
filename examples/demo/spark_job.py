"""The Spark job, in a process of its own: started and listened to by `aggregate`.

    python -m examples.demo.spark_job BOOTSTRAP TOPIC FOLDER

Says a line of JSON when the session is there (`{"spark": version, "cores": n}`), another one with
what it found (`{"packages": [[name, messages, bytes, comments], …]}`), or `{"error": text}`. It
ends when its stdin does, at any moment and with all that it started: Spark's start script, the
JVM, and Python's workers, which end with the JVM. FOLDER is for its files, and removed then.
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

JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
"""A JVM that lives for seconds: compiling for a long life made the demo's CPU time 28 s, not 20."""


def start(folder: str) -> SparkSession:
    """A session on all cores that knows `kafka08` and keeps its files in a folder."""
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


def packages(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    """By top-level package: messages, bytes in their values, and lines that are comments."""
    lines = (
        spark.read.format("kafka08")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("minPartitions", str(spark.sparkContext.defaultParallelism))
        .load()
    )
    return (
        lines.selectExpr(
            # A key is a module's name, perhaps with "@" and the round behind it.
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
    """Do it, say it, and wait for the end of stdin."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # the JVM inherits stdout, and whatever it says there is for the log
    signal.signal(signal.SIGTERM, lambda *_: None)  # sent by `_end`, meant for the others
    end = threading.Thread(target=_end, args=[folder])
    end.start()
    try:
        spark = start(folder)
        _say(answers, spark=spark.version, cores=spark.sparkContext.defaultParallelism)
        rows = packages(spark, bootstrap, topic).collect()
        _say(
            answers,
            packages=[[bytes(name).decode(errors="replace"), *counts] for name, *counts in rows],
        )
    except Exception as error:
        _say(answers, error=f"{type(error).__name__}: {error}")
    end.join()


def _say(answers: TextIO, **what: object) -> None:
    print(json.dumps(what), file=answers)


def _end(folder: str) -> None:
    """At the end of stdin, end the process group, which is this process's own, and its files."""
    sys.stdin.buffer.read()
    with contextlib.suppress(ChildProcessError):  # there are none any more
        while True:
            os.killpg(0, signal.SIGTERM)  # again: one may just have been started
            os.waitpid(-1, os.WNOHANG)
            time.sleep(0.05)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
