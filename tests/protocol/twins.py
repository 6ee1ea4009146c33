"""The two implementations of the message set, both in this process, and the one under test now.

Tests of message sets make theirs from `twin` and mark their module `pytestmark = each_twin`; then
each of them runs for both, whichever of them `aiokafka08.protocol.message_set` has chosen.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from aiokafka08.protocol import (
    _blobs_py,
    _builder_py,
    _columns_py,
    _murmur2_py,
    _reader_py,
    message_set,
)

NAMES = (
    "Blobs",
    "Columns",
    "MessageSetBuilder",
    "MessageSetReader",
    "murmur2",
    "partitions_of",
    "survey",
)

TWINS: dict[str, tuple[ModuleType, ...]] = {
    "python": (_blobs_py, _builder_py, _columns_py, _murmur2_py, _reader_py)
}
try:
    from aiokafka08.protocol import _message_set_c
except ImportError:
    pass  # it couldn't be built here: AIOKAFKA08_IMPL=c, as in `nox -s tests`, says so loudly
else:
    TWINS["c"] = (_message_set_c,)


class Twin:
    """One of the two; `use` chooses."""

    Blobs: Any
    Columns: Any
    MessageSetBuilder: Any
    MessageSetReader: Any
    murmur2: Any
    partitions_of: Any
    survey: Any

    def __init__(self, name: str) -> None:
        self.use(name)

    def use(self, name: str) -> None:
        """Be this twin from now on."""
        self.name = name
        for one in NAMES:
            [found] = [getattr(part, one) for part in TWINS[name] if _own(part, one)]
            setattr(self, one, found)


def _own(module: ModuleType, name: str) -> bool:
    return getattr(getattr(module, name, None), "__module__", None) == module.__name__


twin = Twin(message_set.IMPLEMENTATION)

each_twin = pytest.mark.usefixtures("each_twin")
