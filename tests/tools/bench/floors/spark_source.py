"""A streaming source in Python that only returns rows: the floor of a trigger of `kafka08`.

A row of `tests.tools.bench.spark`. The rows have the columns of `kafka08` and are the same Arrow
batch each time; the end of the "log" is a number in a file, the option `path`. So a trigger takes
what Spark needs for any source in Python: its planning, two calls of the process that runs the
reader on the driver, one task with a Python worker, and the rows' way to the JVM.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

NAME = "floor"
VALUE = bytes(100)
SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, "
    "timestamp timestamp, timestampType int"
)


def append(path: Path, rows: int) -> None:
    """Append rows to the "log" of a stream."""
    path.write_text(str(int(path.read_text()) + rows))


class FloorSource(DataSource):
    """The format `floor`."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format()`."""
        return NAME

    def schema(self) -> str:
        """Return the columns of `kafka08`."""
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a streaming query."""
        return _FloorReader(Path(self.options["path"]))


class _FloorReader(DataSourceStreamReader):
    def __init__(self, path: Path) -> None:
        self._path = path

    def initialOffset(self) -> dict[str, int]:
        return {"end": int(self._path.read_text())}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return {"end": int(self._path.read_text())}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(end["end"] - start["end"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        rows: int = partition.value
        columns = [
            pa.nulls(rows, pa.binary()),
            pa.array([VALUE] * rows, pa.binary()),
            pa.array(["bench"] * rows, pa.string()),
            pa.array([0] * rows, pa.int32()),
            pa.array(range(rows), pa.int64()),
            pa.array([0] * rows, pa.timestamp("us", tz="UTC")),
            pa.array([0] * rows, pa.int32()),
        ]
        names = [column.split()[0] for column in SCHEMA.split(", ")]
        yield pa.RecordBatch.from_arrays(columns, names=names)
