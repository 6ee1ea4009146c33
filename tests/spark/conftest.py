"""Fixtures and helpers for tests with Spark: one local Spark session with two cores.

All tests share the session, since a JVM takes seconds to start. Spark's Python workers are separate
processes. They find the package through PYTHONPATH, and run without asyncio's debug mode, which is
set for the test process.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aiokafka08.spark import register
from aiokafka08.spark.options import ReadOptions, read_options
from aiokafka08.testing import EmbeddedCluster
from tests.spark.class_archive import mapping_options
from tests.spark.home import make_home, pyspark_folder, shared_home
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pyspark.sql.datasource import InputPartition

    from aiokafka08.spark.stream import Kafka08StreamReader

PACKAGES = os.pathsep.join([str(ROOT), str(ROOT / "aiokafka08" / "spark" / "discovery")])
"""What the wheel installs at the top level: the client, and the package that Spark looks for."""

QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
"""Options of a JVM that runs for seconds: the optimising compiler would cost more than it saves."""
SHORT_JVM = " ".join([QUICK_START, *mapping_options()])
"""The same, with the archive of Spark's classes, if there is one."""


@contextmanager
def running_spark(folder: Path, java_options: str) -> Iterator[Any]:
    """Start a local Spark of two cores, whose files are in the folder, and stop it at the end."""
    from pyspark.sql import SparkSession

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        # The JVM passes this environment on to its workers. The patch ends before other tests.
        patch.setenv("PYTHONPATH", PACKAGES)
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("SPARK_HOME", quick_home())
        patch.delenv("PYTHONASYNCIODEBUG", raising=False)
        warnings.simplefilter("ignore")
        session = (
            SparkSession.builder.master("local[2]")
            .appName("aiokafka08 tests")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.warehouse.dir", str(folder))
            .config("spark.local.dir", str(folder))
            .config(
                "spark.driver.extraJavaOptions",
                f"-Dderby.system.home={folder} -Djava.io.tmpdir={folder} {java_options}",
            )
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.log.level", "OFF")
            .config("spark.python.authenticate.socketTimeout", "120s")  # for busy machines
            .getOrCreate()
        )
    register(session)
    try:
        yield session
    finally:
        gateway: Any = session.sparkContext._gateway
        session.stop()
        gateway.shutdown()
        process = gateway.proc
        process.stdin.close()
        try:
            process.wait(300)  # it may write an archive of its classes
        finally:
            process.kill()
            process.wait()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with running_spark(tmp_path_factory.mktemp("spark"), SHORT_JVM) as session:
        yield session


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2, version="0.8.2", topics={"t": 3}) as running:
        yield running


MakeReader = Callable[..., "Kafka08StreamReader"]


@pytest.fixture
def reader(cluster: EmbeddedCluster) -> Iterator[MakeReader]:
    """Makes readers of streams of topic t, for tests without a session."""
    from aiokafka08.spark.stream import Kafka08StreamReader

    readers: list[Kafka08StreamReader] = []

    def make(clock: Callable[[], float] = time.monotonic, **options: str) -> Kafka08StreamReader:
        given = {
            "kafka.bootstrap.servers": cluster.bootstrap_servers,
            "subscribe": "t",
            "fetchOffset.retryIntervalMs": "1",
        }
        read = read_options(given | options, streaming=True)
        readers.append(Kafka08StreamReader(read, clock=clock))
        return readers[-1]

    yield make
    for one in readers:
        one.stop()


def ranges(tasks: list[InputPartition]) -> list[tuple[int, int, int]]:
    """Return partition, start and end of the ranges of all tasks."""
    return [(one.partition, one.start, one.end) for task in tasks for one in task.value]


def quick_home() -> str:
    """Return the SPARK_HOME of all tests but those with a local cluster."""
    pyspark = pyspark_folder()
    assert pyspark is not None
    return str(shared_home(pyspark))


def cluster_home(folder: Path) -> str:
    """Make a SPARK_HOME in a folder: a local cluster writes to SPARK_HOME/work."""
    pyspark, home = pyspark_folder(), folder / "home"
    assert pyspark is not None
    home.mkdir()
    make_home(home, pyspark)
    return str(home)


def reading(spark: Any, cluster: EmbeddedCluster | str, **options: str) -> Any:
    """Return a batch DataFrame; of topic t unless the options select another one."""
    servers = cluster if isinstance(cluster, str) else cluster.bootstrap_servers
    reader = spark.read.format("kafka08").option("kafka.bootstrap.servers", servers)
    if not {"assign", "subscribe", "subscribePattern"} & options.keys():
        reader = reader.option("subscribe", "t")
    for name, value in options.items():
        reader = reader.option(name.replace("__", "."), value)
    return reader.load()


def writing(frame: Any, cluster: EmbeddedCluster | str, **options: str) -> None:
    """Append a DataFrame to a topic."""
    servers = cluster if isinstance(cluster, str) else cluster.bootstrap_servers
    writer = frame.write.format("kafka08").option("kafka.bootstrap.servers", servers)
    for name, value in options.items():
        writer = writer.option(name.replace("__", "."), value)
    writer.mode("append").save()


def fill(cluster: EmbeddedCluster, counts: list[int], topic: str = "t") -> None:
    """Append `counts` messages to the partitions, with values like "partition-number"."""
    for partition, count in enumerate(counts):
        if count:
            begin = cluster.offsets(topic, partition).end
            values = [f"{partition}-{i}".encode() for i in range(begin, begin + count)]
            cluster.append(topic, partition, values, [b"k%d" % partition] * count)


def batch_options(cluster: EmbeddedCluster, **given: str) -> ReadOptions:
    """Return checked options of a batch query of topic t, for tests without a session."""
    named = {name.replace("__", "."): value for name, value in given.items()}
    base = {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "subscribe": "t",
        "kafka.retry.backoff.ms": "10",
        "kafkaConsumer.pollTimeoutMs": "20000",
    }
    return read_options(base | named, streaming=False)


def found(frame: Any) -> list[str]:
    """Return the values of a DataFrame, sorted by partition and offset."""
    rows = frame.select("partition", "offset", "value").collect()
    return [bytes(row.value).decode() for row in sorted(rows)]
