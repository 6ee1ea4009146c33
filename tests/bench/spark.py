"""The data source kafka08 beside Spark's own source, on the same brokers in the same run.

    python -m tests.bench.spark [--messages 3000000] [--rounds 3] [--no-jvm]

Spark's source comes by Maven; it reads 0.10.2.2, and this package's that and 0.8.2.2. Rounds are
interleaved, the first one warms up and isn't counted; medians are told. CPU seconds and memory are
those of Spark's Python workers.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession

from aiokafka08 import AIOKafkaProducer
from aiokafka08.protocol.message_set import IMPLEMENTATION
from aiokafka08.spark import register
from tests.brokers.cluster import RealCluster

ROOT = Path(__file__).parents[2]
JARS = (
    "org/apache/spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org/apache/spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org/apache/kafka:kafka-clients:3.9.1",
    "org/apache/commons:commons-pool2:2.12.0",
)
GET = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:get"
OPTIMISED = ["-XX:TieredStopAtLevel=4", "-Xmx1g"]
VALUE_BYTES = 100
TOPIC = "bench"
ROWS_WRITTEN = 1_000_000


def jars() -> str:
    """Spark's own source, fetched once."""
    paths = []
    for one in JARS:
        group, name, version = one.split(":")
        path = Path.home() / ".m2/repository" / group / name / version / f"{name}-{version}.jar"
        if not path.exists():
            artifact = f"-Dartifact={group.replace('/', '.')}:{name}:{version}"
            subprocess.run(["mvn", "-q", "-B", GET, "-Dtransitive=false", artifact], check=True)
        paths.append(str(path))
    return ",".join(paths)


async def fill(servers: str, count: int) -> None:
    """So many messages, in three partitions."""
    async with AIOKafkaProducer(bootstrap_servers=servers, acks=1) as producer:
        chunk = [bytes(VALUE_BYTES)] * 100_000
        for start in range(0, count, len(chunk)):
            partition = start // len(chunk) % 3
            await (await producer.send_many(TOPIC, chunk, partition=partition))


class PythonWorkers:
    """CPU seconds and peak memory of the processes in which Spark runs Python."""

    def __init__(self) -> None:
        self.cpu_s = 0.0
        self.peak_bytes = 0

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Measure while the block runs."""
        done = threading.Event()
        begin: dict[int, float] = {}
        last: dict[int, float] = {}

        def look() -> None:
            for one in psutil.Process().children(recursive=True):
                try:
                    if "pyspark" not in " ".join(one.cmdline()):
                        continue
                    times = one.cpu_times()
                    memory = one.memory_info()
                except psutil.Error:
                    continue
                last[one.pid] = times.user + times.system
                self.peak_bytes = max(self.peak_bytes, memory.rss)

        def sample() -> None:
            while not done.wait(0.05):
                look()

        look()
        begin.update(last)
        thread = threading.Thread(target=sample)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
            look()
            self.cpu_s = sum(used - begin.get(pid, 0.0) for pid, used in last.items())


def main() -> None:
    """Parse the arguments, measure, report."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.spark", description=__doc__)
    parser.add_argument("--messages", type=int, default=3_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-jvm", action="store_true", help="without Spark's own source")
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = str(ROOT)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with (
        RealCluster("0.10.2.2", java_options=OPTIMISED) as newer,
        RealCluster("0.8.2.2", java_options=OPTIMISED) as older,
        tempfile.TemporaryDirectory() as folder,
    ):
        for cluster in (newer, older):
            cluster.create_topic(TOPIC, 3)
            cluster.create_topic("written", 3)
            asyncio.run(fill(cluster.bootstrap_servers, options.messages))
        builder = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.memory", "2g")
            .config("spark.log.level", "ERROR")
        )
        if not options.no_jvm:
            builder = builder.config("spark.jars", jars())
        spark = builder.getOrCreate()
        register(spark)
        sources = [("kafka08", newer, "0.10.2.2"), ("kafka08", older, "0.8.2.2")]
        if not options.no_jvm:
            sources.insert(0, ("kafka", newer, "0.10.2.2"))
        measured = measure(spark, sources, options.messages, options.rounds, folder)
        spark.stop()
    print(f"message set: {IMPLEMENTATION}; {options.messages} messages of {VALUE_BYTES} bytes\n")
    print("| work | source | broker | rows/s | Python CPU s per million | peak MB |")
    print("|---|---|---|--:|--:|--:|")
    for (work, name, version), figures in measured.items():
        rows_s, cpu_s, peak = (statistics.median(column) for column in zip(*figures, strict=True))
        print(f"| {work} | {name} | {version} | {rows_s:,.0f} | {cpu_s:.2f} | {peak / 1e6:.0f} |")


def measure(
    spark: SparkSession,
    sources: list[tuple[str, RealCluster, str]],
    messages: int,
    rounds: int,
    folder: str,
) -> dict[tuple[str, str, str], list[tuple[float, float, float]]]:
    """Rows per second, Python's CPU seconds per million rows, and peak bytes; by round."""
    cached = spark.range(ROWS_WRITTEN).selectExpr(f"lpad(id, {VALUE_BYTES}, '0') AS value").cache()
    cached.count()

    def frame(name: str, cluster: RealCluster) -> Any:
        reader = spark.read.format(name).option("subscribe", TOPIC)
        return reader.option("kafka.bootstrap.servers", cluster.bootstrap_servers).load()

    def total(name: str, cluster: RealCluster) -> int:
        [row] = frame(name, cluster).selectExpr("sum(length(value)) AS bytes").collect()
        assert row.bytes == messages * VALUE_BYTES
        return messages

    def parquet(name: str, cluster: RealCluster) -> int:
        frame(name, cluster).write.mode("overwrite").parquet(f"{folder}/parquet")
        return messages

    def write(name: str, cluster: RealCluster) -> int:
        writer = cached.write.format(name).option("topic", "written").mode("append")
        writer = writer.option("kafka.enable.idempotence", "false")  # Java's default needs 0.11
        writer.option("kafka.bootstrap.servers", cluster.bootstrap_servers).save()
        return ROWS_WRITTEN

    works: dict[str, Callable[[str, RealCluster], int]] = {
        "sum(length(value))": total,
        "to Parquet": parquet,
        "write 1 M rows": write,
    }
    measured: dict[tuple[str, str, str], list[tuple[float, float, float]]] = defaultdict(list)
    for number in range(rounds + 1):
        for work, run in works.items():
            for name, cluster, version in sources:
                workers = PythonWorkers()
                began = time.perf_counter()
                with workers.watched():
                    rows = run(name, cluster)
                seconds = time.perf_counter() - began
                figures = (rows / seconds, workers.cpu_s / rows * 1e6, float(workers.peak_bytes))
                print(f"{number} {work} {name} {version}: {rows / seconds:,.0f}", file=sys.stderr)
                if number:
                    measured[work, name, version].append(figures)
    return measured


if __name__ == "__main__":
    main()
