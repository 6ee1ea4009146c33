"""Write the log of Spark's Python processes to their stderr, with time and level.

Spark plans, reads, writes and commits in processes of its own, in which no program configures
logging: Python would print warnings without time and level, and drop the report of a write.

Invariants:
- Only processes that Spark started are changed, and there only the loggers of this package.
- If the root logger has a handler (Spark has a setting for one), only that gets the records.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import MutableMapping
from typing import Final

_log: Final = logging.getLogger("aiokafka08.spark")

_LEVEL: Final = "AIOKAFKA08_LOG_LEVEL"


def pass_level(environment: MutableMapping[str, str]) -> None:
    """Enter this program's log level into the environment of Spark's Python processes."""
    environment[_LEVEL] = logging.getLevelName(_log.getEffectiveLevel())


def show_worker_log() -> None:
    """Log to stderr if this is a process of Spark.

    The level of `aiokafka08.spark` is that of `pass_level`, or WARNING. The other loggers, of which
    each task logs its connections at INFO, stay at WARNING or above.
    """
    if not _is_spark_process():
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handler.addFilter(lambda _: not logging.getLogger().handlers)
    level = logging.getLevelNamesMapping().get(os.environ.get(_LEVEL, ""), logging.WARNING)
    _log.setLevel(level)
    package = logging.getLogger("aiokafka08")
    package.setLevel(max(level, logging.WARNING))
    package.addHandler(handler)


def _is_spark_process() -> bool:
    """Return True in `python -m pyspark.daemon`, `python -m pyspark.worker` and their like."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
