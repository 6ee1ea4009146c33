"""`guarded()`: refuse resources that would make a run depend on its process.

Real sockets, threads, processes, look-ups of hosts, `time.sleep`, other event loops and librdkafka
are refused to all code in the thread of the simulation; real time and randomness only to modules of
`aiokafka08`, which have `environment` for them.

Only calls through a module are refused, such as `random.choice()`. Calls of names that were
imported before (`from random import choice`), `datetime.now()` and compiled code aren't refused;
tests/testing/simulation/test_sources.py finds those in the sources.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from aiokafka08.testing.simulation.errors import SimulationError
from aiokafka08.testing.simulation.foreign import foreign_starts

_FOR_ALL: Final[tuple[tuple[Any, str, str], ...]] = (
    (socket.socket, "__init__", "a real socket"),
    (socket, "socketpair", "a real socket"),
    (threading.Thread, "start", "a thread"),
    (socket, "getaddrinfo", "socket.getaddrinfo(), which holds the event loop"),
    (subprocess.Popen, "__init__", "a process"),
    *((os, name, "a process") for name in ("fork",) if hasattr(os, name)),
    (time, "sleep", "time.sleep(), which holds the event loop"),
    (asyncio, "new_event_loop", "another event loop"),
)
# Logging and asyncio may read the clock, because their use of it stays outside the simulation.
_FOR_THE_PACKAGE: Final[tuple[tuple[Any, str, str], ...]] = (
    *((time, name, f"time.{name}()") for name in ("time", "time_ns", "monotonic", "monotonic_ns")),
    *((time, name, f"time.{name}()") for name in ("perf_counter", "perf_counter_ns")),
    (os, "urandom", "os.urandom()"),
    *((random, name, f"random.{name}()") for name in random.__all__ if name[0].islower()),
    *((secrets, name, f"secrets.{name}()") for name in secrets.__all__ if name[0].islower()),
    *((uuid, name, f"uuid.{name}()") for name in ("uuid1", "uuid4")),
)
_PACKAGE: Final = __name__.partition(".")[0]
# Modules that act on behalf of their callers: an error names the first caller outside of them.
_PLUMBING: Final = (
    "asyncio",
    "concurrent",
    "multiprocessing",
    "socket",
    "subprocess",
    "threading",
    "uvloop",
)


@contextmanager
def seeded_random(seed: int) -> Iterator[None]:
    """Seed the module `random`, for code that uses it; restore its state after the block."""
    before = random.getstate()
    random.seed(f"{seed}/random")
    try:
        yield
    finally:
        random.setstate(before)


@contextmanager
def guarded() -> Iterator[None]:
    """Raise SimulationError where the code of this block uses a resource that isn't simulated."""
    thread = threading.get_ident()
    before = []
    for_all_code = (*_FOR_ALL, *foreign_starts())
    for owners, for_all in ((for_all_code, True), (_FOR_THE_PACKAGE, False)):
        for owner, name, resource in owners:
            real = getattr(owner, name)
            before.append((owner, name, real))
            setattr(owner, name, _refusing(real, resource, thread, for_all=for_all))
    try:
        yield
    finally:
        for owner, name, real in reversed(before):
            setattr(owner, name, real)


def _refusing(
    real: Callable[..., Any], resource: str, thread: int, *, for_all: bool
) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        frame = sys._getframe(1)
        module = frame.f_globals.get("__name__", "")
        ours = for_all or module == _PACKAGE or module.startswith(f"{_PACKAGE}.")
        if ours and threading.get_ident() == thread:
            frame = _asking(frame)
            module = frame.f_globals.get("__name__", "")
            raise SimulationError(
                f"{module} ({frame.f_code.co_filename}:{frame.f_lineno}) asks for {resource}, "
                "which a simulation doesn't have. It runs code that takes its time and connections "
                "from the asyncio loop"
            )
        return real(*arguments, **options)

    return call


def _asking(frame: FrameType) -> FrameType:
    """Return the frame of the call, or its first caller that isn't plumbing."""
    caller: FrameType | None = frame
    while caller is not None:
        if caller.f_globals.get("__name__", "").partition(".")[0] not in _PLUMBING:
            return caller
        caller = caller.f_back
    return frame
