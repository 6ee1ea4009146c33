"""Let Spark find the format `kafka08` by itself, without `aiokafka08.spark.register`.

Invariant: importing this module never raises and imports nothing of `aiokafka08`, because Spark
imports it in each session, also in those that never read from Kafka, and an error would fail them.
"""

# At the first use of a Python data source, a session of Spark 4 imports every importable package
# whose name begins with `pyspark_`, and registers its `DefaultSource`. The wheel installs this
# package beside `aiokafka08`.

from __future__ import annotations

from typing import Any

try:
    from pyspark.sql.datasource import DataSource
except ImportError:  # no Spark 4, so there is no session that looks for a DefaultSource
    pass
else:

    class DefaultSource(DataSource):
        """Stands for `Kafka08DataSource`, the class without filter pushdown, until it is used."""

        # The class with filter pushdown would fail in sessions whose setting for it is off;
        # `register` sets both.

        def __new__(cls, options: dict[str, str]) -> Any:
            """Return the data source, which Spark uses in place of this class from then on.

            Raises:
                KafkaConfigurationError: pyarrow is not installed, or pyspark is too old.
            """
            from aiokafka08.spark import Kafka08DataSource

            return Kafka08DataSource(options)

        @classmethod
        def name(cls) -> str:
            """Return the name for `format()`."""
            return "kafka08"
