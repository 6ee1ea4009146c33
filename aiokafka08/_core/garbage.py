"""Keep full garbage collections short in programs with many long-lived objects.

A full collection visits each object, those of imports too, and holds the event loop meanwhile. Only
the package's own programs use this module, since a client must not change the garbage collection of
its process.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

# More frozen objects than an interpreter has at its start: Python 3.12.1 has 375, others none
_FROZEN_BY_PYTHON: Final = 1000


@contextmanager
def older_objects_left_out() -> Iterator[None]:
    """Let no garbage collection visit the objects that exist now, while the block runs.

    If such blocks overlap, the end of the one that began first ends the effect of all.
    """
    has_frozen = gc.get_freeze_count() > _FROZEN_BY_PYTHON
    # Garbage that has survived two collections is left out too, since only a full collection would
    # find it, and that holds the event loop.
    gc.collect(1)
    gc.freeze()
    try:
        yield
    finally:
        # If the program has frozen objects itself (`gc.freeze`), all stay frozen, because Python
        # doesn't tell them apart.
        if not has_frozen:
            gc.unfreeze()


@contextmanager
def rare_full_collections(clock: Callable[[], float], interval_s: float = 3600.0) -> Iterator[None]:
    """Let a full garbage collection visit old objects only once in `interval_s`, in the block.

    For a program that serves and keeps hundreds of thousands of objects, such as the samples of a
    large cluster.
    """
    has_frozen = gc.get_freeze_count() > _FROZEN_BY_PYTHON
    visited_at = clock()

    def collection(phase: str, info: dict[str, int]) -> None:
        nonlocal visited_at
        if phase != "start" or info["generation"] < 2:
            return
        if clock() - visited_at < interval_s:
            # Young garbage is collected as always, and reference counts free most of the rest; what
            # is left waits until old objects are visited again.
            gc.freeze()
        elif not has_frozen:
            visited_at = clock()
            gc.unfreeze()

    gc.callbacks.append(collection)
    try:
        yield
    finally:
        gc.callbacks.remove(collection)
        if not has_frozen:
            gc.unfreeze()
