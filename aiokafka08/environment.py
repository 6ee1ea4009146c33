"""The replaceable environment of client and embedded cluster: randomness, clocks, ids, threads.

They use these names in place of `random`, `time`, `uuid`, executors and `asyncio.to_thread`, so
that a simulation (`testing.simulation`) can replace them all at once. `loop.time()` isn't here: it
is replaced with the loop. The programs and servers (`cli`, `monitoring`, `spark`) are outside.

Invariant: a caller reads a name at each use (`environment.wall_time()`) and never keeps what it
refers to. Only `replace()` assigns to the names. Code that can't read a name at each use, such as
compiled code with a generator of its own, renews its copy in a listener (`on_replace()`).
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Protocol, TypeVar
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from random import Random

P = ParamSpec("P")
T = TypeVar("T")


def _thread_pool(threads: int, name: str) -> Executor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(threads, name)


def _new_seed(name: str) -> int:
    return int.from_bytes(os.urandom(8), "big")


def _resolve(host: str) -> list[str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return [str(address[0]) for *_, address in found]


class _RunInThread(Protocol):
    def __call__(
        self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, T]: ...


def _uuid4() -> str:
    import uuid  # takes milliseconds, and few programs need it

    return str(uuid.uuid4())


wall_time: Callable[[], float] = time.time
"""Returns the seconds since 1970."""

monotonic: Callable[[], float] = time.monotonic
"""Returns seconds that never go back, in threads and where no event loop runs."""

random: Random
"""The generator of all random choices; `__getattr__` makes it."""

unique_id: Callable[[], str] = _uuid4
"""Returns a random UUID as text."""

new_number: Callable[[], int] = itertools.count(1).__next__
"""Returns 1, 2, 3 and so on, for the names of clients."""

host_name: Callable[[], str] = socket.gethostname
"""Returns the name of this machine."""

resolve: Callable[[str], list[str]] = _resolve
"""Returns the addresses of a host's name, none if it has none; blocks."""

run_in_thread: _RunInThread = asyncio.to_thread
"""Runs `function(*arguments)`, which blocks, outside the event loop; to be awaited."""

worker_threads: Callable[[int, str], Executor] = _thread_pool
"""Makes an executor with at most this many threads, whose names begin with a prefix."""

new_seed: Callable[[str], int] = _new_seed
"""Returns 64 bits to seed a generator of the caller's own; the argument is its name."""

zookeeper_client: Callable[..., Any] | None = None
"""Makes a client with the interface of `kazoo.client.KazooClient`; None: kazoo makes it."""

is_real: bool = True
"""False while `replace()` is in force."""

if not TYPE_CHECKING:  # type checkers would accept misspelt names

    def __getattr__(name: str) -> Random:
        """Make `random` at its first use, because the import of `Random` takes a millisecond."""
        if name != "random":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from random import Random

        generator = Random()
        os.register_at_fork(after_in_child=generator.seed)  # else forked processes choose alike
        return globals().setdefault("random", generator)


_NAMES: Final = frozenset(__annotations__) - {"is_real"}
_listeners: list[Callable[[], object]] = []
_users: WeakKeyDictionary[asyncio.AbstractEventLoop, str] = WeakKeyDictionary()
_replacing_thread: int | None = None
_lock = threading.Lock()  # guards `_users`, `_replacing_thread` and `is_real`


def wall_time_ms() -> int:
    """Return the milliseconds since 1970."""
    return int(wall_time() * 1000)


def on_replace(listener: Callable[[], object]) -> None:
    """Call `listener` now, and at each beginning and end of a replacement."""
    _listeners.append(listener)
    listener()


def enter(user: str) -> None:
    """Register that a client or cluster (`user`) starts in the running event loop.

    Raises RuntimeError if a simulation is in force in another thread.
    """
    thread = threading.current_thread()
    with _lock:
        # The names are globals, so that a caller pays for one lookup only. Other threads would
        # therefore see the replacement too.
        if not is_real and thread.ident != _replacing_thread:
            raise RuntimeError(
                f"{user} in thread {thread.name!r}: a simulation in another thread has replaced "
                "clocks, randomness and threads of the whole process. Start it before or after "
                "the simulation, or in another process"
            )
        _users[asyncio.get_running_loop()] = f"{user} was started in thread {thread.name!r}"


def _refuse_replacement() -> None:
    if not is_real:
        raise RuntimeError(
            "two simulations at once: a process has one environment. "
            "End the first, or run the second in another process"
        )
    own = asyncio._get_running_loop()
    for loop, user in list(_users.items()):
        if loop is not own and loop.is_running():
            raise RuntimeError(
                f"{user}, whose event loop runs: a simulation replaces clocks, randomness and "
                "threads of the whole process. End that loop first, or simulate in another process"
            )


@contextmanager
def replace(**names: Any) -> Iterator[None]:
    """Replace functions of this module for one block.

    Raises:
        RuntimeError: a replacement is in force, or a client or cluster was started in another
            thread whose event loop runs: there is one environment per process.
        TypeError: this module has no such name.
    """
    if unknown := names.keys() - _NAMES:
        raise TypeError(f"replace(): no such names: {', '.join(sorted(unknown))}")
    module = globals()
    names |= {"is_real": False, "_replacing_thread": threading.get_ident()}
    with _lock:
        _refuse_replacement()
        before = {name: getattr(sys.modules[__name__], name) for name in names}
        module.update(names)
    try:
        for listener in _listeners:
            listener()
        yield
    finally:
        with _lock:
            module.update(before)
        for listener in _listeners:
            listener()


def _begin_after_fork() -> None:
    """Forget the loops of threads that the child lacks, and a lock that they may hold."""
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()
    _users.clear()


os.register_at_fork(after_in_child=_begin_after_fork)
