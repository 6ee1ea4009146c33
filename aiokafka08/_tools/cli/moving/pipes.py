"""Read stdin and write stdout in an event loop, without a thread and without a non-blocking mode.

A descriptor's non-blocking mode is shared with other processes (the shell, the other commands of a
pipeline), so it stays as it is. Instead a pipe, terminal or socket is read when it is readable, and
written while it is writable: `PIPE_BUF` bytes, or on Linux as many as a pipe has room for. Neither
blocks. Regular files never block for long.

Invariant: a task that waits here can be cancelled.

Called by `consuming` and `producing`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import mmap
import os
import select
import stat
import sys
import termios
from collections.abc import AsyncIterator, Callable
from typing import Final, Protocol

from aiokafka08._tools.cli.output import write_bytes

BLOCK_BYTES: Final = 1024 * 1024
_PIPE_BYTES: Final = 1024 * 1024
_F_SETPIPE_SZ: Final = getattr(fcntl, "F_SETPIPE_SZ", None)
_F_GETPIPE_SZ: Final = getattr(fcntl, "F_GETPIPE_SZ", None)


def _may_block(descriptor: int) -> bool:
    """Return True for pipes, sockets and terminals; enlarge the buffer of a pipe."""
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISFIFO(mode) and _F_SETPIPE_SZ is not None:
        with contextlib.suppress(OSError):  # not allowed, or the pipe holds more already
            fcntl.fcntl(descriptor, _F_SETPIPE_SZ, _PIPE_BYTES)
    if stat.S_ISCHR(mode):
        return os.isatty(descriptor)
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


async def read_blocks(descriptor: int, max_bytes: int = BLOCK_BYTES) -> AsyncIterator[bytes]:
    """Yield what can be read, as soon as it can be read, up to the end.

    Args:
        descriptor: an open file; nothing else reads it.
        max_bytes: the maximum size of a block (default 1048576).

    Raises:
        OSError: it can't be read.
    """
    waits = _may_block(descriptor)
    while True:
        if waits:
            await _until_readable(descriptor)
        block = os.read(descriptor, max_bytes)
        if not block:
            return
        yield block


class Output(Protocol):
    """Where a command writes its data."""

    @property
    def is_terminal(self) -> bool:
        """Whether it is a terminal."""

    async def write(self, data: bytes) -> None:
        """Write all of `data`.

        Raises:
            BrokenPipeError: the reader has closed it.
            OSError: the disk is full, or another error of the system.
        """


class OutputPipe:
    """Write all bytes to a descriptor.

    Args:
        descriptor: an open file, such as that of stdout.

    Attributes:
        is_terminal: whether it is a terminal.
    """

    def __init__(self, descriptor: int) -> None:
        self.is_terminal = os.isatty(descriptor)
        self._descriptor = descriptor
        self._waits = _may_block(descriptor)
        self._capacity = _pipe_bytes(descriptor)
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)

    async def write(self, data: bytes) -> None:
        """See `Output`."""
        descriptor, poll = self._descriptor, self._poll.poll
        view, at = memoryview(data), 0
        try:
            while at < len(view):
                if not self._waits:
                    at += os.write(descriptor, view[at:])
                    continue
                if not poll(0):
                    await _until_writable(descriptor)
                at += os.write(descriptor, view[at : at + self._room()])
        except OSError as error:
            raise OSError(error.errno, error.strerror, "stdout") from None

    def _room(self) -> int:
        """Return how many bytes a write doesn't block for, when the descriptor is writable."""
        if self._capacity is None:
            return select.PIPE_BUF
        held = int.from_bytes(
            fcntl.ioctl(self._descriptor, termios.FIONREAD, bytes(4)), sys.byteorder
        )
        # The first and the last page of what it holds may be partly empty.
        return max(self._capacity - held - 2 * mmap.PAGESIZE, select.PIPE_BUF)


def _pipe_bytes(descriptor: int) -> int | None:
    """Return the capacity of a pipe; None if it isn't one, or the system doesn't tell."""
    if _F_GETPIPE_SZ is None or not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        return None
    return fcntl.fcntl(descriptor, _F_GETPIPE_SZ)


class OutputObject:
    """Write to a `sys.stdout` that a program has replaced by an object without a descriptor."""

    is_terminal = False

    async def write(self, data: bytes) -> None:
        """Write all of `data`; raises as `Output`."""
        write_bytes(data)


def open_stdout() -> Output:
    """Return what writes to stdout.

    Raises:
        OSError: stdout is closed.
    """
    if sys.stdout is None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF), "stdout")
    try:
        descriptor = sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):
        return OutputObject()
    return OutputPipe(descriptor)


async def _until_readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    await _until_ready(loop.add_reader, loop.remove_reader, descriptor)


async def _until_writable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    await _until_ready(loop.add_writer, loop.remove_writer, descriptor)


async def _until_ready(
    add: Callable[[int, Callable[[], object]], object],
    remove: Callable[[int], object],
    descriptor: int,
) -> None:
    ready = asyncio.Event()
    add(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        remove(descriptor)
