"""Read stdin and write stdout in an event loop, without a thread and without a non-blocking mode.

Invariants: a task that waits here can be cancelled. A descriptor keeps its mode, because it shares
the mode with other processes (the shell, the other commands of a pipeline). A pipe,
terminal or socket is read and written only while it is ready, so that no call blocks; regular files
never block for long.
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
# The most that a pipe holds on macOS and BSD, where its writer can't ask how much it holds.
_OTHER_PIPE_BYTES: Final = 64 * 1024
_F_SETPIPE_SZ: Final = getattr(fcntl, "F_SETPIPE_SZ", None)
_F_GETPIPE_SZ: Final = getattr(fcntl, "F_GETPIPE_SZ", None)


def _enlarge(descriptor: int) -> None:
    """Enlarge the buffer of a pipe; nothing happens for other files."""
    if stat.S_ISFIFO(os.fstat(descriptor).st_mode) and _F_SETPIPE_SZ is not None:
        with contextlib.suppress(OSError):  # not allowed, or the pipe holds more already
            fcntl.fcntl(descriptor, _F_SETPIPE_SZ, _PIPE_BYTES)


def _may_block(descriptor: int) -> bool:
    """Return True for pipes, sockets and terminals."""
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISCHR(mode):
        return os.isatty(descriptor)
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


async def read_blocks(descriptor: int, max_bytes: int = BLOCK_BYTES) -> AsyncIterator[bytes]:
    """Yield the bytes of a file up to its end, each block as soon as it can be read.

    Args:
        descriptor: an open file; nothing else reads it.
        max_bytes: the maximum size of a block (default 1048576).

    Raises:
        OSError: it can't be read.
    """
    _enlarge(descriptor)
    waits = _may_block(descriptor)
    while True:
        if waits:
            await _until_readable(descriptor)
        block = os.read(descriptor, max_bytes)
        if not block:
            return
        yield block


class Output(Protocol):
    """The output for a command's data."""

    @property
    def is_terminal(self) -> bool:
        """Whether it is a terminal."""

    @property
    def written_bytes(self) -> int:
        """How many bytes were written in all."""

    def taken_bytes(self) -> int:
        """Return how many of the written bytes the reader of a pipe or socket has taken.

        On some systems the result may be too small, but never too large.
        """

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
        enlarge: whether a pipe gets a larger buffer, which is faster (default True).

    Attributes:
        is_terminal: whether it is a terminal.
        written_bytes: how many bytes were written.
    """

    def __init__(self, descriptor: int, *, enlarge: bool = True) -> None:
        if enlarge:
            _enlarge(descriptor)
        self.is_terminal = os.isatty(descriptor)
        self.written_bytes = 0
        self._taken_bytes = 0
        self._descriptor = descriptor
        self._is_socket = stat.S_ISSOCK(os.fstat(descriptor).st_mode)
        self._waits = _may_block(descriptor)
        self._capacity = _pipe_bytes(descriptor)
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)

    async def write(self, data: bytes) -> None:
        """See `Output`."""
        descriptor, poll = self._descriptor, self._poll.poll
        view = memoryview(data)
        try:
            while view:
                if self._waits and not poll(0):
                    await _until_writable(descriptor)
                count = os.write(descriptor, view[: self._room()] if self._waits else view)
                self.written_bytes += count
                view = view[count:]
        except OSError as error:
            raise OSError(error.errno, error.strerror, "stdout") from None

    def _room(self) -> int:
        """Return how many bytes a write can take without blocking, if the descriptor is ready."""
        if self._capacity is None:
            return select.PIPE_BUF
        # The pipe's content occupies whole pages, but the first and the last may be partly empty.
        held = self._ask(termios.FIONREAD)
        return max(self._capacity - held - 2 * mmap.PAGESIZE, select.PIPE_BUF)

    def taken_bytes(self) -> int:
        """See `Output`."""
        taken = self.written_bytes - self._unread_bytes()
        self._taken_bytes = max(self._taken_bytes, taken)
        return self._taken_bytes

    def _unread_bytes(self) -> int:
        if self.is_terminal or not self._waits:
            return 0
        if self._capacity is not None:  # Linux counts them even after the reader has ended
            return self._ask(termios.FIONREAD)
        if not self._is_socket:
            return _OTHER_PIPE_BYTES
        unread = self._ask(termios.TIOCOUTQ)
        # A socket drops unread bytes when its reader ends, and counts them as taken.
        is_closed = any(
            event & (select.POLLERR | select.POLLHUP) for _, event in self._poll.poll(0)
        )
        return self.written_bytes if is_closed else unread

    def _ask(self, question: int) -> int:
        return int.from_bytes(fcntl.ioctl(self._descriptor, question, bytes(4)), sys.byteorder)


def _pipe_bytes(descriptor: int) -> int | None:
    """Return the capacity of a pipe; None for another file, or if the system doesn't give it."""
    if _F_GETPIPE_SZ is None or not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        return None
    return fcntl.fcntl(descriptor, _F_GETPIPE_SZ)


class OutputObject:
    """Write to a `sys.stdout` that a program has replaced by an object without a descriptor."""

    is_terminal = False

    def __init__(self) -> None:
        self.written_bytes = 0

    def taken_bytes(self) -> int:
        """Return how many bytes were written."""
        return self.written_bytes

    async def write(self, data: bytes) -> None:
        """Write all of `data`; raises as `Output`."""
        write_bytes(data)
        self.written_bytes += len(data)


def open_stdout(*, enlarge: bool = True) -> Output:
    """Return an output for stdout.

    Args:
        enlarge: whether a pipe gets a larger buffer, which is faster (default True).

    Raises:
        OSError: stdout is closed.
    """
    if sys.stdout is None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF), "stdout")
    try:
        descriptor = sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):
        return OutputObject()
    return OutputPipe(descriptor, enlarge=enlarge)


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
