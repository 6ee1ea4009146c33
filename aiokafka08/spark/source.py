"""Define the format `kafka08` for Spark: its name, its columns, its readers and writers.

Spark calls the classes after `register`. They check the options (`options`) and the columns, and
return the readers of `reader` and `stream` and the writers of `writer`.

Invariant: nothing here sends a request to the cluster; wrong options raise before the first one.
"""

from __future__ import annotations

from typing import cast

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from aiokafka08.errors import IllegalArgumentError
from aiokafka08.spark.options import include_headers, read_options, write_options
from aiokafka08.spark.reader import Kafka08PushdownReader, Kafka08Reader
from aiokafka08.spark.stream import Kafka08StreamReader
from aiokafka08.spark.writer import (
    Kafka08StreamWriter,
    Kafka08Writer,
    check_columns,
    check_partitioner,
)

NAME = "kafka08"

_COLUMNS = [
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
]
"""Spark's types for the columns of `aiokafka08.arrow.schema`."""
_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_HEADERS = StructField("headers", ArrayType(_HEADER))


class Kafka08DataSource(DataSource):
    """Batch and micro-batch reads and writes for Kafka brokers 0.8.0 to 3.9.

    The schema is that of Spark's own Kafka source. The column `headers` is always null: message
    formats 0 and 1 have no headers.
    """

    _reader: type[Kafka08Reader] = Kafka08Reader
    parallelism: int | None = None
    """How many tasks Spark runs at the same time; None: as many as the driver has CPUs. `register`
    sets it in a subclass."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format()`."""
        return NAME

    def schema(self) -> StructType:
        """Return the columns of a read."""
        return StructType([*_COLUMNS, _HEADERS] if include_headers(self.options) else _COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query."""
        self._check_schema(schema)
        return self._reader(read_options(self.options, streaming=False), self.parallelism)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a streaming query."""
        self._check_schema(schema)
        return Kafka08StreamReader(read_options(self.options, streaming=True), self.parallelism)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch query.

        Raises:
            IllegalArgumentError: wrong options or columns, or the mode "overwrite".
        """
        options = write_options(self.options)
        if overwrite:
            raise IllegalArgumentError(
                f"mode='overwrite': {NAME} can only append to a topic; expected mode('append')"
            )
        check_partitioner(options)
        check_columns(schema, options)
        return Kafka08Writer(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of a streaming query. Each output mode appends, as in Spark's sink."""
        options = write_options(self.options)
        check_partitioner(options)
        check_columns(schema, options)
        # Spark accepts a DataSourceStreamArrowWriter, too, which its type hints don't mention.
        return cast(DataSourceStreamWriter, Kafka08StreamWriter(options))

    def _check_schema(self, schema: StructType) -> None:
        own = self.schema().simpleString()
        if schema.simpleString() != own:
            raise IllegalArgumentError(
                f"schema {schema.simpleString()}: the schema of {NAME} is fixed; expected {own}. "
                "Leave schema() out"
            )


class Kafka08PushdownDataSource(Kafka08DataSource):
    """The data source with filter pushdown, for sessions in which Spark's setting for it is on.

    While the setting is off, Spark fails each batch read of a reader that has `pushFilters` (4.3).
    """

    _reader = Kafka08PushdownReader
