"""Leaves no broker behind: a small watcher process that outlives us, whatever we die of.

We tell it over a pipe which processes and folders are ours. When the pipe ends (normal exit,
Ctrl-C, SIGTERM, SIGKILL, a crash) it kills those processes and removes those folders, then ends.

Why not PR_SET_PDEATHSIG: Linux sends that signal when the *thread* that started the child ends, so
a broker restarted through ``asyncio.to_thread`` would die with the thread pool, in the middle of a
later test. A process is held by a pidfd where there is one, so a recycled pid is never signalled.

This file is also the watcher's program (run as a script, in isolated mode): standard library only.
"""

from __future__ import annotations

import atexit
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

_GRACE = 10.0


class Reaper:
    """Our end of the pipe; one for the whole process, started at its first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watcher: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def watch_process(self, pid: int) -> None:
        """Have this process killed when we are gone."""
        self._tell(f"+pid {pid}")

    def forget_process(self, pid: int) -> None:
        """The process ended and we waited for it: its number may become somebody else's."""
        self._tell(f"-pid {pid}")

    def watch_folder(self, folder: Path) -> None:
        """Have this folder removed when we are gone."""
        self._tell(f"+folder {folder}")

    def forget_folder(self, folder: Path) -> None:
        """The folder is gone already."""
        self._tell(f"-folder {folder}")

    def _tell(self, line: str) -> None:
        with self._lock:
            if self._owner != os.getpid():
                self._start()
            assert self._watcher is not None
            assert self._watcher.stdin is not None
            self._watcher.stdin.write(os.fsencode(line) + b"\n")

    def _start(self) -> None:
        # A forked child has a watcher of its own: the inherited pipe is the parent's.
        self._watcher = subprocess.Popen(
            [sys.executable, "-I", __file__, str(os.getpid())],
            stdin=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,  # a Ctrl-C in the terminal must not reach it
        )
        self._owner = os.getpid()
        atexit.register(self._end)

    def _end(self) -> None:
        if self._watcher is None or self._owner != os.getpid():
            return
        assert self._watcher.stdin is not None
        self._watcher.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._watcher.wait(2 * _GRACE)


reaper = Reaper()


class _Process:
    """A process of our parent's, seen from the watcher."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.handle = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            if self.handle is not None:
                signal.pidfd_send_signal(self.handle, signal.SIGKILL)
            else:
                os.kill(self.pid, signal.SIGKILL)

    def wait_gone(self) -> None:
        """Until it can't write to its folder any more."""
        if self.handle is not None:
            select.select([self.handle], [], [], _GRACE)

    def forget(self) -> None:
        if self.handle is not None:
            os.close(self.handle)


class _Watch:
    """What the watcher has to do at the end."""

    def __init__(self) -> None:
        self.processes: dict[int, _Process] = {}
        self.folders: set[str] = set()

    def hear(self, line: str) -> None:
        order, _, value = line.partition(" ")
        if order == "+pid":
            with suppress(ProcessLookupError):  # it was quicker
                self.processes[int(value)] = _Process(int(value))
        elif order == "-pid":
            known = self.processes.pop(int(value), None)
            if known is not None:
                known.forget()
        elif order == "+folder":
            self.folders.add(value)
        elif order == "-folder":
            self.folders.discard(value)

    def finish(self) -> None:
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait_gone()
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)


def _watch_until_alone(parent: int) -> None:
    watch = _Watch()
    buffer = b""
    # The end of the pipe normally says that the parent is gone. Its own forks may hold the pipe
    # open, though, so look at the parent too.
    while os.getppid() == parent:
        if not select.select([0], [], [], 0.5)[0]:
            continue
        data = os.read(0, 65536)
        if not data:
            break
        *lines, buffer = (buffer + data).split(b"\n")
        for line in lines:
            watch.hear(os.fsdecode(line))
    watch.finish()


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _watch_until_alone(int(sys.argv[1]))
