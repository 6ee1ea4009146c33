"""Start one Java process, send it signals, wait for its end, and keep its output in files.

Invariant: only processes that were started here get signals, each by its own id. The reaper knows
each of them from its start to its end. Output goes to files, so that a full pipe can't block a
broker.

Used for brokers (``broker.py``), ZooKeeper (``zookeeper.py``) and Java programs (``tools.py``).
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from tests.brokers.class_archive import mapping_options
from tests.brokers.errors import HarnessError, HarnessTimeoutError
from tests.brokers.jars import jar_folder, java_command
from tests.brokers.reaper import reaper
from tests.brokers.versions import BrokerVersion
from tests.brokers.waiting import wait_for

_LOG4J_1 = """\
log4j.rootLogger={level}, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.target=System.err
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
_LOG4J_2 = """\
rootLogger.level={level}
rootLogger.appenderRef.out.ref=out
appender.out.type=Console
appender.out.name=out
appender.out.target=SYSTEM_ERR
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=[%d] %p %m (%c)%n
"""


def write_logging_files(folder: Path) -> None:
    """Write log4j settings for servers (INFO) and tools (WARN, to keep stderr readable)."""
    for name, level in (("server", "INFO"), ("tool", "WARN")):
        (folder / f"{name}-log4j.properties").write_text(_LOG4J_1.format(level=level))
        (folder / f"{name}-log4j2.properties").write_text(_LOG4J_2.format(level=level))


def java_argv(
    version: BrokerVersion,
    folder: Path,
    main_class: str,
    *args: str,
    heap: str = "512m",
    java_options: Sequence[str] = (),
    logging: str = "tool",
) -> list[str]:
    """Return the command that runs a class of this version's jars."""
    return [
        java_command(),
        # Most JVMs of a test run exist for seconds. Without the optimising compiler a start takes
        # a quarter less CPU (measured: 3.9.1 2.2 instead of 3.2 s, 0.8.2.2 0.9 instead of 1.2 s).
        "-XX:TieredStopAtLevel=1",
        "-XX:+IgnoreUnrecognizedVMOptions",
        "-Djava.net.preferIPv4Stack=true",
        "-Dfile.encoding=UTF-8",
        f"-Djava.io.tmpdir={folder}",  # for libraries of codecs, which a killed JVM leaves
        f"-Dlog4j.configuration=file:{folder / f'{logging}-log4j.properties'}",
        f"-Dlog4j2.configurationFile={folder / f'{logging}-log4j2.properties'}",
        f"-Xmx{heap}",
        *mapping_options(version),
        *version.java_options,
        *java_options,
        "-cp",
        f"{jar_folder(version.name)}/*",
        main_class,
        *args,
    ]


class JavaProcess:
    """A running or ended JVM. ``log_path`` gets stderr, and stdout without ``stdout_path``."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        log_path: Path,
        *,
        stdout_path: Path | None = None,
        stdin_path: Path | None = None,
        writable_stdin: bool = False,
    ) -> None:
        self.name = name
        self.log_path = log_path
        self.stdout_path = stdout_path or log_path
        self.paused = False
        with (
            log_path.open("ab") as log,
            self.stdout_path.open("ab") as stdout,
            (stdin_path or Path("/dev/null")).open("rb") as stdin,
        ):
            self._popen = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE if writable_stdin else stdin,
                stdout=stdout,
                stderr=log,
                bufsize=0,
                start_new_session=True,  # Ctrl-C in the terminal must not reach it
            )
        reaper.watch_process(self.pid)

    def __repr__(self) -> str:
        state = "paused" if self.paused else "running" if self.running else "ended"
        return f"<JavaProcess {self.name} pid={self.pid} {state}>"

    @property
    def pid(self) -> int:
        """The process id."""
        return self._popen.pid

    @property
    def running(self) -> bool:
        """True until the process ends, also while it is paused."""
        return self.returncode is None

    @property
    def returncode(self) -> int | None:
        """The exit code, negative after a signal; None while the process runs."""
        known = self._popen.returncode
        if known is None and self._popen.poll() is not None:
            self._ended()
        return self._popen.returncode

    def write(self, text: str) -> None:
        """Write text to stdin; needs ``writable_stdin=True``."""
        if self._popen.stdin is None:
            raise HarnessError(
                f"{self.name}: stdin isn't writable; expected writable_stdin=True at the start"
            )
        self._popen.stdin.write(text.encode())

    def close_stdin(self) -> None:
        """Close stdin, as Ctrl-D does."""
        if self._popen.stdin is not None:
            self._popen.stdin.close()

    def stdout(self) -> str:
        """Return the output on stdout so far."""
        return self.stdout_path.read_text(errors="replace")

    def stderr(self) -> str:
        """Return the output on stderr, and so the log, so far."""
        return self.log_path.read_text(errors="replace")

    def cpu_s(self) -> float:
        """Return the CPU seconds that the process has used, to the microsecond; on Linux only."""
        # The clock of another process (clock_getcpuclockid(3)), which includes ended threads.
        return time.clock_gettime(~self.pid << 3 | 2)

    def log_tail(self, lines: int = 30) -> str:
        """Return the end of the log, for an error message."""
        return "\n".join(self.stderr().splitlines()[-lines:])

    def pause(self) -> None:
        """Send SIGSTOP: connections stay open, but the process doesn't respond any more."""
        if self.paused:
            return
        self._signal(signal.SIGSTOP)
        self.paused = True
        # Threads stop one by one, and on a busy machine one of them may still respond. The kernel
        # reports the stop after the last one has stopped.
        wait_for(
            lambda: os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG) is not None,
            10,
            f"{self.name} has stopped",
        )

    def resume(self) -> None:
        """Send SIGCONT."""
        self._signal(signal.SIGCONT)
        self.paused = False

    def terminate(self, timeout: float) -> int:
        """Send SIGTERM, wait for the end, and return the exit code."""
        if self.running:
            self._signal(signal.SIGTERM)
            if self.paused:
                self.resume()
        return self.wait(timeout)

    def kill(self) -> None:
        """Send SIGKILL and wait for the end. Does nothing after the end."""
        if self.running:
            self._popen.kill()
            self.wait(30)

    def wait(self, timeout: float) -> int:
        """Wait for the end and return the exit code."""
        if self.returncode is None:
            try:
                self._popen.wait(timeout)
            except subprocess.TimeoutExpired:
                raise HarnessTimeoutError(
                    f"{self.name} (pid {self.pid}): still running after {timeout:g} s; the end of"
                    f" its log:\n{self.log_tail()}"
                ) from None
            self._ended()
        assert self._popen.returncode is not None
        return self._popen.returncode

    def _signal(self, number: signal.Signals) -> None:
        if not self.running:
            raise HarnessError(f"{self.name}: not running (exit code {self.returncode})")
        self._popen.send_signal(number)

    def _ended(self) -> None:
        self.close_stdin()
        self.paused = False
        reaper.forget_process(self.pid)
