"""The format `kafka08`, as Spark sees it: which class does what.

Law: nothing is asked of the cluster here; wrong options are told before that. Reading is `reader`'s
and `stream`'s business, writing `writer`'s.
"""

from __future__ import annotations

from typing import cast

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from aiokafka08.errors import IllegalArgumentError
from aiokafka08.spark.options import include_headers, read_options
from aiokafka08.spark.reader import Kafka08PushdownReader, Kafka08Reader
from aiokafka08.spark.stream import Kafka08StreamReader

NAME = "kafka08"

COLUMNS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int"
)
HEADERS = "headers array<struct<key: string, value: binary>>"


class Kafka08DataSource(DataSource):
    """Kafka brokers 0.8.0 to 3.9: batch and micro-batch reads and writes.

    The schema is that of Spark's own source; `headers`, which message formats 0 and 1 don't have,
    are null.
    """

    _reader: type[Kafka08Reader] = Kafka08Reader

    @classmethod
    def name(cls) -> str:
        """What `format()` takes."""
        return NAME

    def schema(self) -> str:
        """The columns that are read."""
        return f"{COLUMNS}, {HEADERS}" if include_headers(self.options) else COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch query's reader."""
        self._check_schema(schema)
        return self._reader(read_options(self.options, streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A streaming query's reader."""
        self._check_schema(schema)
        return Kafka08StreamReader(read_options(self.options, streaming=True))

    def _check_schema(self, schema: StructType) -> None:
        own = cast(StructType, StructType.fromDDL(self.schema()))
        if schema.fieldNames() != own.fieldNames() or [one.dataType for one in schema.fields] != [
            one.dataType for one in own.fields
        ]:
            raise IllegalArgumentError(
                f"the schema of {NAME} is fixed, {self.schema()}; given was {schema.simpleString()}"
            )


class Kafka08PushdownDataSource(Kafka08DataSource):
    """The same, with filters pushed down: only while Spark's setting for that is on.

    Spark 4.3 fails each batch read of a reader that has `pushFilters` while the setting is off.
    """

    _reader = Kafka08PushdownReader
