"""Spark reads and writes Kafka 0.8: the data source `kafka08` for PySpark (extra `[spark]`).

    from aiokafka08.spark import register
    register(spark)
    spark.read.format("kafka08").option("kafka.bootstrap.servers", …).option("subscribe", …).load()

Options, schema and offset JSON are those of Spark's own source. Law: the arithmetic is pure and
stands in `offsets`, `properties`, `options` and `planning`, which know neither pyspark nor the
network; `brokers` asks the cluster for the driver, `reader`, `stream` and `writer` are what Spark
calls, `source` puts them together. pyspark is imported when `register` or the class is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiokafka08.errors import KafkaConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from aiokafka08.spark.source import Kafka08DataSource, Kafka08PushdownDataSource

__all__ = ["Kafka08DataSource", "Kafka08PushdownDataSource", "register"]

PUSHDOWN_CONF = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession, *, filter_pushdown: bool = True) -> None:
    """Make the format `kafka08` known to a session.

    Args:
        spark: the session.
        filter_pushdown: filters on topic, partition and offset bound what batch queries read. It
            needs Spark's `spark.sql.python.filterPushdown.enabled`, which is set for the session;
            with False that setting stays as it is, and Spark filters what was read.

    Raises:
        KafkaConfigurationError: pyspark, or what it needs for Python data sources, isn't installed.
    """
    if filter_pushdown:
        from_source = _source().Kafka08PushdownDataSource
        spark.conf.set(PUSHDOWN_CONF, "true")
    else:
        from_source = _source().Kafka08DataSource
    spark.dataSource.register(from_source)


def _source() -> Any:
    try:
        from aiokafka08.spark import source
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("pyspark", "pyarrow"):
            raise
        raise KafkaConfigurationError(
            f"the data source kafka08 needs pyspark from 4.2 on, and pyarrow ({error}): "
            "pip install 'aiokafka08[spark]'"
        ) from error
    return source


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(_source(), name)
    return value
