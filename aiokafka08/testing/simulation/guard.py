"""`guarded()`: refuse what would make a run depend on the process it runs in.

Real sockets, threads, processes, look-ups of hosts and `time.sleep` are refused to all code in the
thread of the simulation; real time and randomness only to modules of `aiokafka08`, which have
`environment` for them: the clocks of `time`, `os.urandom`, and the functions of `random`, `secrets`
and `uuid`. Logging and asyncio may read the clock: what they do with it stays outside the
simulation. `seeded_random()`: what other code draws from `random` follows the seed.

It sees calls by way of the module (`random.choice()`). It doesn't see names that a module imported
before (`from random import choice`), `datetime.now()`, nor compiled code;
tests/testing/simulation/test_sources.py finds those in the sources.
"""

from __future__ import annotations

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
from typing import Any

from aiokafka08.testing.simulation.errors import SimulationError

_FOR_ALL: tuple[tuple[Any, str, str], ...] = (
    (socket.socket, "__init__", "a real socket"),
    (threading.Thread, "start", "a thread"),
    (socket, "getaddrinfo", "socket.getaddrinfo(), which holds the event loop"),
    (subprocess.Popen, "__init__", "a process"),
    *((os, name, "a process") for name in ("fork",) if hasattr(os, name)),
    (time, "sleep", "time.sleep(), which holds the event loop"),
)
_FOR_THE_PACKAGE: tuple[tuple[Any, str, str], ...] = (
    *((time, name, f"time.{name}()") for name in ("time", "time_ns", "monotonic", "monotonic_ns")),
    *((time, name, f"time.{name}()") for name in ("perf_counter", "perf_counter_ns")),
    (os, "urandom", "os.urandom()"),
    *((random, name, f"random.{name}()") for name in random.__all__ if name[0].islower()),
    *((secrets, name, f"secrets.{name}()") for name in secrets.__all__ if name[0].islower()),
    *((uuid, name, f"uuid.{name}()") for name in ("uuid1", "uuid4")),
)
_PACKAGE = __name__.partition(".")[0]


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
    """Raise SimulationError where the code of this block asks for what isn't simulated."""
    thread = threading.get_ident()
    before = []
    for owners, for_all in ((_FOR_ALL, True), (_FOR_THE_PACKAGE, False)):
        for owner, name, what in owners:
            real = getattr(owner, name)
            before.append((owner, name, real))
            setattr(owner, name, _refusing(real, what, thread, for_all=for_all))
    try:
        yield
    finally:
        for owner, name, real in before:
            setattr(owner, name, real)


def _refusing(
    real: Callable[..., Any], what: str, thread: int, *, for_all: bool
) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        frame = sys._getframe(1)
        module = frame.f_globals.get("__name__", "")
        ours = for_all or module == _PACKAGE or module.startswith(f"{_PACKAGE}.")
        if ours and threading.get_ident() == thread:
            raise SimulationError(
                f"{module} ({frame.f_code.co_filename}:{frame.f_lineno}) asks for {what}, which a "
                "simulation doesn't have. It runs code that takes its time and connections from "
                "the asyncio loop"
            )
        return real(*arguments, **options)

    return call
