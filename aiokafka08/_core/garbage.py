"""Leave objects out of garbage collections that live on anyway.

A full collection visits each object, those of imports too, and holds the event loop meanwhile.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_FROZEN_BY_PYTHON: Final = 1000
"""More frozen objects than an interpreter has at its start: Python 3.12.1 has 375, others none."""


@contextmanager
def older_objects_left_out() -> Iterator[None]:
    """Let no garbage collection visit the objects that exist now, while the block runs.

    Young garbage is collected first. Garbage that has survived two collections is left out, too: to
    find it takes a full collection, which is what holds the event loop.
    Of blocks that overlap, the end of the first one ends it for all. If the program had frozen
    objects before (`gc.freeze`), all stay frozen: nobody can tell whose they are.
    """
    has_frozen = gc.get_freeze_count() > _FROZEN_BY_PYTHON
    gc.collect(1)
    gc.freeze()
    try:
        yield
    finally:
        if not has_frozen:
            gc.unfreeze()
