"""Whether the producer's per-message work is done in C: the only door to `_producer_c`.

Law: as the message set goes (`protocol.message_set.IMPLEMENTATION`), so goes the producer; where
only this part couldn't be built the pure one stands in, unless AIOKAFKA08_IMPL=c demands it.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType

from aiokafka08.protocol.message_set import IMPLEMENTATION


def compiled() -> ModuleType | None:
    """The compiled module, or None.

    Raises:
        ImportError: it is demanded, and isn't there.
    """
    if IMPLEMENTATION == "python":
        return None
    try:
        return importlib.import_module("aiokafka08.producer._producer_c")
    except ImportError:
        if os.environ.get("AIOKAFKA08_IMPL") == "c":
            raise
        return None
