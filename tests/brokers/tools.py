"""Programs of a broker version's jars: console producers and consumers, admin tools, ...

They are the foreign peers of interoperability tests. Input and output go through files, so a
program that nobody reads never blocks; all are killed with their cluster.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import NamedTuple

from tests.brokers.java_process import JavaProcess, java_argv
from tests.brokers.versions import BrokerVersion


class JavaResult(NamedTuple):
    """What a program left."""

    stdout: str
    stderr: str
    returncode: int


class JavaTools:
    """Starts programs of one version and keeps hold of them."""

    def __init__(self, version: BrokerVersion, folder: Path) -> None:
        self._version = version
        self._folder = folder
        self._numbers = itertools.count(1)
        self._running: list[JavaProcess] = []

    def popen(
        self,
        main_class: str,
        *args: str,
        writable_stdin: bool = False,
        stdin_path: Path | None = None,
    ) -> JavaProcess:
        """Start a program; the caller may wait for it or forget it."""
        self._running = [process for process in self._running if process.running]
        name = f"{main_class.rpartition('.')[2]}-{next(self._numbers)}"
        process = JavaProcess(
            name,
            java_argv(self._version, self._folder, main_class, *args, heap="256m"),
            self._folder / f"{name}.err",
            stdout_path=self._folder / f"{name}.out",
            stdin_path=stdin_path,
            writable_stdin=writable_stdin,
        )
        self._running.append(process)
        return process

    def run(
        self,
        main_class: str,
        *args: str,
        input: str | None,
        timeout: float,
    ) -> JavaResult:
        """Run a program to its end; it is killed at the timeout."""
        stdin_path = None
        if input is not None:
            stdin_path = self._folder / f"input-{next(self._numbers)}"
            stdin_path.write_text(input)
        process = self.popen(main_class, *args, stdin_path=stdin_path)
        try:
            returncode = process.wait(timeout)
        finally:
            process.kill()
        return JavaResult(process.stdout(), process.stderr(), returncode)

    def kill_all(self) -> None:
        """Kill whatever still runs."""
        for process in self._running:
            process.kill()
        self._running.clear()
