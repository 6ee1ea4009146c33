"""Kill brokers and remove folders after the test process ends, whatever ended it.

A small watcher process gets the processes and folders over a pipe. When the pipe ends (normal exit,
Ctrl-C, SIGTERM, SIGKILL, a crash) it kills these processes, removes these folders, and ends.

PR_SET_PDEATHSIG is no alternative: Linux sends that signal when the *thread* that started the child
ends, so that a broker started with ``asyncio.to_thread`` would die with the thread pool, in the
middle of a later test. Where the kernel has pidfds, the watcher uses them, so that it never signals
a process that got a recycled id.

This file is also the watcher's program, run in isolated mode: it imports only the standard library.
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
    """The test process's end of the pipe; the first use starts the watcher."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watcher: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def watch_process(self, pid: int) -> None:
        """Kill this process after the test process ends."""
        self._send(f"+pid {pid}")

    def forget_process(self, pid: int) -> None:
        """Don't kill this process: it has ended, and its id may be used again."""
        self._send(f"-pid {pid}")

    def watch_folder(self, folder: Path) -> None:
        """Remove this folder after the test process ends."""
        self._send(f"+folder {folder}")

    def forget_folder(self, folder: Path) -> None:
        """Don't remove this folder: it no longer exists."""
        self._send(f"-folder {folder}")

    def _send(self, line: str) -> None:
        with self._lock:
            if self._owner != os.getpid():
                self._start()
            assert self._watcher is not None
            assert self._watcher.stdin is not None
            self._watcher.stdin.write(os.fsencode(line) + b"\n")

    def _start(self) -> None:
        # A forked child starts its own watcher: the inherited pipe belongs to the parent.
        self._watcher = subprocess.Popen(
            [sys.executable, "-I", __file__, str(os.getpid())],
            stdin=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,  # Ctrl-C in the terminal must not reach it
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
    """A process to kill, in the watcher."""

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
        """Wait until the process can't write to its folder any more."""
        if self.handle is not None:
            select.select([self.handle], [], [], _GRACE)

    def forget(self) -> None:
        if self.handle is not None:
            os.close(self.handle)


class _Watch:
    """The processes and folders of the parent, in the watcher."""

    def __init__(self) -> None:
        self.processes: dict[int, _Process] = {}
        self.folders: set[str] = set()

    def handle(self, line: str) -> None:
        command, _, value = line.partition(" ")
        if command == "+pid":
            with suppress(ProcessLookupError):  # it has ended already
                self.processes[int(value)] = _Process(int(value))
        elif command == "-pid":
            known = self.processes.pop(int(value), None)
            if known is not None:
                known.forget()
        elif command == "+folder":
            self.folders.add(value)
        elif command == "-folder":
            self.folders.discard(value)

    def finish(self) -> None:
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait_gone()
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)


def _watch_until_orphaned(parent: int) -> None:
    watch = _Watch()
    buffer = b""
    # The pipe normally ends with the parent. Forks of the parent may keep it open, so check the
    # parent's id, too.
    while os.getppid() == parent:
        if not select.select([0], [], [], 0.5)[0]:
            continue
        data = os.read(0, 65536)
        if not data:
            break
        *lines, buffer = (buffer + data).split(b"\n")
        for line in lines:
            watch.handle(os.fsdecode(line))
    watch.finish()


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _watch_until_orphaned(int(sys.argv[1]))
