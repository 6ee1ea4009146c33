"""The archive of the classes that Spark's JVM loads: one that maps it takes half the CPU time.

It takes 7.8 in place of 16.4 CPU-s to start, read and run two streams. `python -m
tests.spark.class_archive` writes the archive, if there is none, into the tests' SPARK_HOME: a JVM
maps it only with the same jars in the same place. A JVM without an archive, or with one that it
can't map, starts as ever.

Invariant: a file is complete or absent. A JVM writes it under another name, at its end.
"""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from tests.brokers.class_archive import QUIET, writing_options
from tests.brokers.errors import MissingToolError
from tests.brokers.jars import java_command
from tests.spark.home import pyspark_folder, shared_home, shared_home_path


def archive_path() -> Path | None:
    """Return where the archive is, or would be; None without pyspark or Java."""
    pyspark = pyspark_folder()
    try:
        java = Path(java_command()).resolve()
    except MissingToolError:
        return None
    if pyspark is None:
        return None
    digest = hashlib.sha256(f"{java} {java.stat().st_mtime_ns}".encode()).hexdigest()[:8]
    return shared_home_path(pyspark) / f"classes-{digest}.jsa"


def mapping_options() -> tuple[str, ...]:
    """Return the options with which Spark's JVM maps the archive, if there is one."""
    path = archive_path()
    return (f"-XX:SharedArchiveFile={path}", *QUIET) if path and path.is_file() else ()


def main() -> None:
    """Write the archive, unless it exists, by a JVM that does what most tests do."""
    path, pyspark = archive_path(), pyspark_folder()
    if path is None or pyspark is None or path.is_file():
        return
    shared_home(pyspark)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        partial = Path(folder, path.name)
        try:
            _use_spark(Path(folder), " ".join(writing_options(partial)))
        except subprocess.TimeoutExpired:
            print("no archive of Spark's classes: its JVM hasn't written one within 5 minutes")
        else:
            if partial.is_file():  # not every JVM can
                partial.replace(path)


def _use_spark(folder: Path, java_options: str) -> None:
    # Imported here: the conftest imports this module for the options of its JVMs.
    from aiokafka08.testing import EmbeddedCluster
    from tests.spark.conftest import QUICK_START, fill, reading, running_spark

    with (
        running_spark(folder, f"{QUICK_START} {java_options}") as spark,
        EmbeddedCluster(version="0.8.2", topics={"t": 2}) as cluster,
    ):
        fill(cluster, [10, 10])
        assert reading(spark, cluster).groupBy("partition").count().count() == 2
        stream: Any = spark.readStream.format("kafka08").options(
            **{
                "kafka.bootstrap.servers": cluster.bootstrap_servers,
                "subscribe": "t",
                "startingOffsets": "earliest",
            }
        )
        copied = stream.load().writeStream.format("parquet").trigger(availableNow=True)
        query = copied.option("checkpointLocation", str(folder / "checkpoint"))
        assert query.start(str(folder / "lake")).awaitTermination(120)


if __name__ == "__main__":
    main()
