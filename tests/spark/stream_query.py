"""Run streaming queries for tests, and look at what they wrote and journaled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from aiokafka08.testing import EmbeddedCluster
from tests.brokers.cluster import RealCluster


class Stream:
    """A query with an idempotent sink: one file per batch, overwritten by a repeated batch."""

    def __init__(
        self, spark: Any, cluster: EmbeddedCluster | RealCluster, folder: Path, **options: str
    ) -> None:
        self.spark, self.cluster, self.folder = spark, cluster, folder
        self.options = {
            "subscribe": "t",
            "startingOffsets": "earliest",
            "fetchOffset.retryIntervalMs": "10",
        } | options

    def run(self, fail_in: int | None = None, **options: str) -> Any:
        """Run until all available messages are read, and raise the error of the query."""
        query = self.start(fail_in, **options)
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return query

    def start(self, fail_in: int | None = None, trigger: Any = None, **options: str) -> Any:
        reader = self.spark.readStream.format("kafka08").option(
            "kafka.bootstrap.servers", self.cluster.bootstrap_servers
        )
        for name, value in (self.options | options).items():
            reader = reader.option(name, value)
        sink = str(self.folder / "sink")

        def write(frame: Any, batch: int) -> None:
            if batch == fail_in:
                raise RuntimeError(f"batch {batch} fails on purpose")
            rows = frame.select("partition", "offset", "value").collect()
            Path(sink).mkdir(exist_ok=True)
            text = json.dumps([[r.partition, r.offset, bytes(r.value).decode()] for r in rows])
            (Path(sink) / f"{batch}.json").write_text(text)

        return (
            reader.load()
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(**(trigger or {"availableNow": True}))
            .start()
        )

    def batches(self) -> list[list[str]]:
        """Return the values of each batch in the sink."""
        found = sorted((self.folder / "sink").glob("*.json"), key=lambda path: int(path.stem))
        return [[value for _, _, value in sorted(json.loads(p.read_text()))] for p in found]

    def values(self) -> list[str]:
        rows = [
            tuple(row)
            for path in (self.folder / "sink").glob("*.json")
            for row in json.loads(path.read_text())
        ]
        return [value for _, _, value in sorted(rows)]

    def journal(self, batch: int) -> Any:
        """Return the offsets that Spark journaled as the end of a batch."""
        lines = (self.folder / "checkpoint" / "offsets" / str(batch)).read_text().splitlines()
        return json.loads(lines[2])
