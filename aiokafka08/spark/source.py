"""Define the format `kafka08` for Spark: its name, its columns, its readers and writers.

Invariant: nothing here sends a request to the cluster; wrong options raise before the first one.
"""

from __future__ import annotations

from typing import Final, cast

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
from aiokafka08.spark.options import (
    ReadOptions,
    is_create_table,
    read_options,
    write_options,
)
from aiokafka08.spark.reader import Kafka08PushdownReader, Kafka08Reader
from aiokafka08.spark.reasons import reason_first
from aiokafka08.spark.stream import Kafka08StreamReader, RefusingStreamReader
from aiokafka08.spark.writer import (
    Kafka08StreamWriter,
    Kafka08Writer,
    check_columns,
    check_partitioner,
)

NAME: Final = "kafka08"

# Spark's types for the columns of `aiokafka08._core.arrow.schema`.
_COLUMNS: Final = [
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
]
_HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_HEADERS: Final = StructField("headers", ArrayType(_HEADER))


def _columns(options: ReadOptions) -> StructType:
    return StructType([*_COLUMNS, _HEADERS] if options.include_headers else _COLUMNS)


class Kafka08DataSource(DataSource):
    """Batch and micro-batch reads and writes for Kafka brokers 0.8.0 to 3.9.

    The schema is that of Spark's own Kafka source. The column `headers` is null without the option
    headers=embedded: message formats 0 and 1 have no headers.
    """

    _reader: type[Kafka08Reader] = Kafka08Reader
    parallelism: int | None = None
    """How many tasks Spark runs at the same time; None: as many as the driver has CPUs. `register`
    sets it in a subclass."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format()`."""
        return NAME

    @reason_first
    def schema(self) -> StructType:
        """Return the columns of a read.

        Spark calls this in `load()`, so most wrong options raise there, as in Spark's own source.
        It also calls this in CREATE TABLE. A table with options is refused there, because Spark
        doesn't pass them to the queries of the table.
        """
        if is_create_table(self.options):
            return StructType(_COLUMNS)
        return _columns(read_options(self.options, streaming=None))

    @reason_first
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query."""
        return self._reader(self._read_options(schema, streaming=False), self.parallelism)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a streaming query. With wrong options or columns, each method of the
        reader raises.
        """
        try:
            return Kafka08StreamReader(self._read_options(schema, streaming=True), self.parallelism)
        # Raising here would hide the reason: PySpark would call `stop()` of the missing reader, and
        # the last line of the error would be "UnboundLocalError: … 'reader'" (4.2.1, 4.3.0).
        except Exception as error:
            return RefusingStreamReader(error)

    @reason_first
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

    @reason_first
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of a streaming query. Each output mode appends, as in Spark's sink."""
        options = write_options(self.options)
        check_partitioner(options)
        check_columns(schema, options)
        # Spark accepts a DataSourceStreamArrowWriter, too, which its type hints don't mention.
        return cast(DataSourceStreamWriter, Kafka08StreamWriter(options))

    def _read_options(self, schema: StructType, *, streaming: bool) -> ReadOptions:
        options = read_options(self.options, streaming=streaming)
        own = _columns(options).simpleString()
        if schema.simpleString() != own:
            raise IllegalArgumentError(
                f"schema {schema.simpleString()}: the schema of {NAME} is fixed; expected {own}. "
                "Leave schema() out"
            )
        return options


class Kafka08PushdownDataSource(Kafka08DataSource):
    """The data source with filter pushdown, for sessions in which Spark's setting for it is on."""

    # While the setting is off, each batch read with a reader that has `pushFilters` fails (4.3).
    # While it is on, Spark reuses the tasks of a DataFrame's filtered query for its later queries
    # without a filter, which then miss rows (4.3).

    _reader = Kafka08PushdownReader
