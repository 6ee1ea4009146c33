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
_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_HEADERS = StructField("headers", ArrayType(_HEADER))


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

    def schema(self) -> StructType:
        """The columns that are read."""
        return StructType([*_COLUMNS, _HEADERS] if include_headers(self.options) else _COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch query's reader."""
        self._check_schema(schema)
        return self._reader(read_options(self.options, streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A streaming query's reader."""
        self._check_schema(schema)
        return Kafka08StreamReader(read_options(self.options, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch query's writer.

        Raises:
            IllegalArgumentError: wrong options or columns, or the mode "overwrite".
        """
        options = write_options(self.options)
        if overwrite:
            raise IllegalArgumentError(
                f"mode='overwrite': {NAME} can only append to a topic; set mode('append')"
            )
        check_partitioner(options)
        check_columns(schema, options)
        return Kafka08Writer(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """A streaming query's writer; every output mode appends, as with Spark's own sink."""
        options = write_options(self.options)
        check_partitioner(options)
        check_columns(schema, options)
        # Not a DataSourceStreamWriter for Spark's type hints, but what it accepts beside it.
        return cast(DataSourceStreamWriter, Kafka08StreamWriter(options))

    def _check_schema(self, schema: StructType) -> None:
        own = self.schema().simpleString()
        if schema.simpleString() != own:
            raise IllegalArgumentError(
                f"the schema of {NAME} is fixed, {own}; given was {schema.simpleString()}"
            )


class Kafka08PushdownDataSource(Kafka08DataSource):
    """The same, with filters pushed down: only while Spark's setting for that is on.

    Spark 4.3 fails each batch read of a reader that has `pushFilters` while the setting is off.
    """

    _reader = Kafka08PushdownReader
