"""Run Java programs of a broker version's jars: console producers and consumers, admin tools, ...

Interoperability tests use them beside this client. Input and output are files, so that a program
doesn't block if its output isn't read. ``RealCluster.close()`` kills all programs.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.brokers.java_process import JavaProcess, java_argv
from tests.brokers.versions import BrokerVersion


class JavaResult(NamedTuple):
    """Output and exit code of a program."""

    stdout: str
    stderr: str
    returncode: int


class JavaTools:
    """Start programs of one version, and kill them at the end."""

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
        java_options: Sequence[str] = (),
    ) -> JavaProcess:
        """Start a program, and don't wait for its end."""
        self._running = [process for process in self._running if process.running]
        name = f"{main_class.rpartition('.')[2]}-{next(self._numbers)}"
        process = JavaProcess(
            name,
            java_argv(
                self._version,
                self._folder,
                main_class,
                *args,
                heap="256m",
                java_options=java_options,
            ),
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
        java_options: Sequence[str] = (),
    ) -> JavaResult:
        """Run a program and wait for its end; kill it at the timeout."""
        stdin_path = None
        if input is not None:
            stdin_path = self._folder / f"input-{next(self._numbers)}"
            stdin_path.write_text(input)
        process = self.popen(main_class, *args, stdin_path=stdin_path, java_options=java_options)
        try:
            returncode = process.wait(timeout)
        finally:
            process.kill()
        return JavaResult(process.stdout(), process.stderr(), returncode)

    def kill_all(self) -> None:
        """Kill all programs that still run."""
        for process in self._running:
            process.kill()
        self._running.clear()
