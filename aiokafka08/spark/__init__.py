"""Read and write Kafka 0.8 with Spark: the PySpark data source `kafka08` (extra `[spark]`).

    from aiokafka08.spark import register
    register(spark)
    spark.read.format("kafka08").option("kafka.bootstrap.servers", …).option("subscribe", …).load()

`LagListener` shows how far the streaming queries of a session are behind.

Options, columns and the JSON of offsets are those of Spark's own Kafka source.

Invariant: `offsets`, `properties`, `options` and `planning` are pure: they import neither pyspark
nor `aiokafka08._core.net`. Importing this module doesn't import pyspark.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any, Final

from aiokafka08.errors import KafkaConfigurationError
from aiokafka08.spark.reasons import show_class_once
from aiokafka08.spark.worker_log import show_worker_log
from aiokafka08.spark.workers import prepare_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from aiokafka08.spark.lag_listener import LagListener
    from aiokafka08.spark.source import Kafka08DataSource, Kafka08PushdownDataSource

__all__ = ["Kafka08DataSource", "Kafka08PushdownDataSource", "LagListener", "register"]

_log: Final = logging.getLogger("aiokafka08.spark")

PUSHDOWN_CONF: Final = "spark.sql.python.filterPushdown.enabled"
PARALLELISM_CONFS: Final = ("spark.sql.leafNodeDefaultParallelism", "spark.default.parallelism")


def register(spark: SparkSession, *, filter_pushdown: bool = False) -> None:
    """Register the format `kafka08` in a session.

    Queries combine small ranges of offsets until there are about two tasks for each core. The
    number of cores is the session's at this call: `spark.sql.leafNodeDefaultParallelism`, or
    `spark.default.parallelism`, or `SparkContext.defaultParallelism`.

    Args:
        spark: the session.
        filter_pushdown: let filters on topic, partition and offset limit what batch queries read
            (default False: Spark filters after reading). Only for programs that use each DataFrame
            of `load()` in one query: Spark 4.3 keeps the filters of a frame's query for its later
            queries that push none, which then miss rows without an error. This sets
            `spark.sql.python.filterPushdown.enabled` for the session.

    Spark runs the data source in Python processes of its own. If the package is imported from a
    zip, or Spark sends one (`--py-files`), it is put on the path of these processes.

    Raises:
        KafkaConfigurationError: pyspark or pyarrow is not installed, or too old; or the Python that
            Spark runs can't import this package or pyarrow, or is of another version.
    """
    try:
        _register(spark, filter_pushdown)
    except KafkaConfigurationError as error:
        show_class_once(error)
        raise


def _register(spark: SparkSession, filter_pushdown: bool) -> None:
    context = _context(spark)
    if context is not None:
        _import("source")  # before the workers, since its error is about this Python
        prepare_workers(context)
    if filter_pushdown:
        data_source = _import("source").Kafka08PushdownDataSource
        spark.conf.set(PUSHDOWN_CONF, "true")
    else:
        data_source = _import("source").Kafka08DataSource
    parallelism = _default_parallelism(spark, context)
    if parallelism is not None:
        # Spark's planner process doesn't know the parallelism. The class is pickled with this
        # attribute.
        data_source = type(data_source.__name__, (data_source,), {"parallelism": parallelism})
    spark.dataSource.register(data_source)


def _context(spark: SparkSession) -> Any:
    """Return the `SparkContext`; None where only the server has one (Spark Connect)."""
    try:
        return spark.sparkContext
    except Exception:  # the class of the error differs between Spark and managed platforms
        _log.debug("the session has no SparkContext", exc_info=True)
        return None


def _default_parallelism(spark: SparkSession, context: Any) -> int | None:
    """Return how many tasks Spark runs at the same time; None if only the server knows."""
    for name in PARALLELISM_CONFS:
        value = spark.conf.get(name, None)
        if value is not None and value.isdecimal() and int(value) > 0:
            return int(value)
    try:
        return None if context is None else int(context.defaultParallelism)
    except Exception:  # as in `workers`, the JVM may refuse the call
        _log.debug("the session doesn't tell its parallelism", exc_info=True)
        return None


def _import(module: str) -> Any:
    """Import a module of this package that needs pyspark."""
    try:
        return importlib.import_module(f"{__name__}.{module}")
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("pyspark", "pyarrow"):
            raise
        raise KafkaConfigurationError(
            f"data source kafka08: {error}; expected pyspark 4.2 or newer, and pyarrow. Run "
            "pip install 'aiokafka08[spark]'"
        ) from error


show_worker_log()


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(_import("lag_listener" if name == "LagListener" else "source"), name)
    return value
