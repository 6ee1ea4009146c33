"""What the process of a bridge does beside its sessions."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import platform
import weakref
from collections.abc import Iterator

import psutil
import pytest

from aiokafka08.bridge.config import parse_config
from aiokafka08.bridge.copy.status import CopyStatus
from aiokafka08.bridge.daemon import run_bridge
from tests.support.waiting import until

NOWHERE = parse_config(
    'name="x"\n[source]\nbootstrap="127.0.0.1:1"\n[target]\nbootstrap="127.0.0.1:1"\n'
    '[topics]\ninclude=["t"]\n'
)

BLOCK, FREED = 32 * 1024, 64 << 20
"""Smaller blocks than those that glibc maps by themselves, and how many bytes of them are freed."""


@pytest.fixture
def nothing_frozen() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.freeze()  # else the collection after each test would visit all modules


@pytest.mark.usefixtures("nothing_frozen")
async def test_collections_leave_out_what_is_older_than_the_copy() -> None:
    """A full collection of all objects holds the event loop for 15 to 25 ms of CPU time."""
    older, status = [object()], CopyStatus()
    running = asyncio.create_task(run_bridge(NOWHERE, status))
    try:
        await until(lambda: status.sessions, "a session begins", 30)
        assert all(one is not older for one in gc.get_objects())
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert any(one is older for one in gc.get_objects())


async def test_garbage_of_the_start_is_collected() -> None:
    """Collections leave out what exists at the start, so it would stay for the bridge's life."""

    class Cycle:
        def __init__(self) -> None:
            self.itself = self

    gc.disable()
    garbage, status = weakref.ref(Cycle()), CopyStatus()
    assert garbage() is not None
    running = asyncio.create_task(run_bridge(NOWHERE, status))
    try:
        await until(lambda: status.sessions, "a session begins", 30)
        assert garbage() is None
    finally:
        gc.enable()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has malloc_trim")
async def test_end_of_a_session_returns_freed_memory() -> None:
    """glibc keeps what lies below a block in use, such as what a session of librdkafka leaves."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    blocks = [ctypes.c_void_p(libc.malloc(BLOCK)) for _ in range(FREED // BLOCK)]
    kept, status = ctypes.c_void_p(libc.malloc(BLOCK)), CopyStatus()
    for block in blocks:
        ctypes.memset(block, 1, BLOCK)
        libc.free(block)
    before = psutil.Process().memory_info().rss
    running = asyncio.create_task(run_bridge(NOWHERE, status))
    try:
        await until(lambda: status.sessions == 2, "a session has failed", 30)
        assert psutil.Process().memory_info().rss < before - FREED // 2
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        libc.free(kept)
