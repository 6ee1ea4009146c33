"""Leave objects out of garbage collections that live on anyway; for programs, not for clients.

A full collection visits each object, those of imports too, and holds the event loop meanwhile.
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


@contextmanager
def rare_full_collections(clock: Callable[[], float], interval_s: float = 3600.0) -> Iterator[None]:
    """Let a full garbage collection visit old objects only once in a while, while the block runs.

    For a program that keeps hundreds of thousands of objects, such as samples of a large cluster: a
    full collection of these takes a tenth of a second or more. Others than the first one in
    `interval_s` seconds leave out what exists at their begin. Young garbage is collected as always,
    and reference counts free most of the rest; what is left waits for that time. It is for programs
    that serve: one that ends after its work, such as the doctor, keeps no client waiting.
    """
    has_frozen = gc.get_freeze_count() > _FROZEN_BY_PYTHON
    visited_at = clock()

    def collection(phase: str, info: dict[str, int]) -> None:
        nonlocal visited_at
        if phase != "start" or info["generation"] < 2:
            return
        if clock() - visited_at < interval_s:
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
