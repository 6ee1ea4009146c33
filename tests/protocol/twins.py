"""Both twins of message set and record batch in one process, and the one that is being tested.

Their tests take its classes from `twin` and mark their module `pytestmark = each_twin`;
then each test runs with both twins, whichever one `aiokafka08.protocol.message_set` uses.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from aiokafka08.protocol import (
    _binary_column_py,
    _builder_py,
    _columns_py,
    _murmur2_py,
    _reader_py,
    _record_batch_py,
    message_set,
)

NAMES = (
    "BinaryColumn",
    "ColumnMemory",
    "Columns",
    "MessageSetBuilder",
    "MessageSetReader",
    "RecordBatchBuilder",
    "convert_records",
    "crc32c",
    "murmur2",
    "partitions_of",
    "read_records",
    "summarize_set",
)

TWINS: dict[str, tuple[ModuleType, ...]] = {
    "python": (
        _binary_column_py,
        _builder_py,
        _columns_py,
        _murmur2_py,
        _reader_py,
        _record_batch_py,
    )
}
try:
    from aiokafka08.protocol import _message_set_c
except ImportError:
    pass  # not built here; AIOKAFKA08_IMPL=c, as in `nox -s tests`, raises then
else:
    TWINS["c"] = (_message_set_c,)


class Twin:
    """The classes and functions of one twin."""

    BinaryColumn: Any
    ColumnMemory: Any
    Columns: Any
    MessageSetBuilder: Any
    MessageSetReader: Any
    RecordBatchBuilder: Any
    convert_records: Any
    crc32c: Any
    murmur2: Any
    partitions_of: Any
    read_records: Any
    summarize_set: Any

    def __init__(self, name: str) -> None:
        self.use(name)

    def use(self, name: str) -> None:
        """Switch to this twin."""
        self.name = name
        for one in NAMES:
            [found] = [getattr(part, one) for part in TWINS[name] if _own(part, one)]
            setattr(self, one, found)


def _own(module: ModuleType, name: str) -> bool:
    return getattr(getattr(module, name, None), "__module__", None) == module.__name__


twin = Twin(message_set.IMPLEMENTATION)

each_twin = pytest.mark.usefixtures("each_twin")
