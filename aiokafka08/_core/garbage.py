"""Keep full garbage collections short in programs with many long-lived objects.

A full collection visits each object, those of imports too, and holds the event loop meanwhile. Only
the package's own programs use this module, since a client must not change the garbage collection of
its process, nor how often threads take the GIL from each other.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

# More frozen objects than an interpreter has at its start: Python 3.12.1 has 375, others none
_FROZEN_BY_PYTHON: Final = 1000

# The seconds between two full garbage collections, and between two switches of the GIL.
_COLLECTION_S: Final = 60.0
_SWITCH_S: Final = 0.00005


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


@contextmanager
def short_holds() -> Iterator[None]:
    """Bound the time for which the interpreter holds the event loop of a server, in the block.

    A full garbage collection is made once a minute only. So connections that end must leave no
    cycles.
    """
    loop = asyncio.get_running_loop()
    thresholds, switch_s = gc.get_threshold(), sys.getswitchinterval()
    timer: asyncio.TimerHandle

    def collect() -> None:
        nonlocal timer
        gc.collect()
        timer = loop.call_later(_COLLECTION_S, collect)

    with older_objects_left_out():
        # A full collection visits the objects of all connections. By default it runs whenever the
        # number of objects has grown by a quarter: with many short connections that is several
        # times a second.
        gc.set_threshold(*thresholds[:2], 1_000_000)
        # After each wait for I/O the event loop's thread gets the GIL back within this time, also
        # while the worker thread runs Python code. With the default, 5 ms, each read of a
        # connection could wait that long.
        sys.setswitchinterval(_SWITCH_S)
        timer = loop.call_later(_COLLECTION_S, collect)
        try:
            yield
        finally:
            timer.cancel()
            sys.setswitchinterval(switch_s)
            gc.set_threshold(*thresholds)
