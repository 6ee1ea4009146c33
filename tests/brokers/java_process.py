"""One Java process of ours: started, signalled, waited for, its output kept in files.

Law: only processes started here are ever signalled, by their own id; each is known to the reaper
from its start to its end, and output goes to files, so no full pipe can ever block a broker.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

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
    """Logging settings for servers (INFO) and tools (WARN, so that their stderr is readable)."""
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
    """The command that runs a class of this version's jars."""
    return [
        java_command(),
        # Most JVMs of a test run live for seconds: without the optimising compiler a start takes
        # a quarter less CPU (measured: 3.9.1 2.2 instead of 3.2 s, 0.8.2.2 0.9 instead of 1.2 s).
        "-XX:TieredStopAtLevel=1",
        "-XX:+IgnoreUnrecognizedVMOptions",
        "-Djava.net.preferIPv4Stack=true",
        "-Dfile.encoding=UTF-8",
        f"-Djava.io.tmpdir={folder}",  # codecs unpack there; a killed JVM leaves them
        f"-Dlog4j.configuration=file:{folder / f'{logging}-log4j.properties'}",
        f"-Dlog4j2.configurationFile={folder / f'{logging}-log4j2.properties'}",
        f"-Xmx{heap}",
        *version.java_options,
        *java_options,
        "-cp",
        f"{jar_folder(version.name)}/*",
        main_class,
        *args,
    ]


class JavaProcess:
    """A running (or ended) JVM; ``log_path`` has its stderr, and its stdout unless told apart."""

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
                start_new_session=True,  # a Ctrl-C in the terminal is for us, not for brokers
            )
        reaper.watch_process(self.pid)

    def __repr__(self) -> str:
        state = "paused" if self.paused else "running" if self.running else "ended"
        return f"<JavaProcess {self.name} pid={self.pid} {state}>"

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._popen.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended yet (a paused one has not)."""
        return self.returncode is None

    @property
    def returncode(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        known = self._popen.returncode
        if known is None and self._popen.poll() is not None:
            self._ended()
        return self._popen.returncode

    def write(self, text: str) -> None:
        """Send text to its stdin (only where ``writable_stdin`` was asked for)."""
        if self._popen.stdin is None:
            raise HarnessError(f"{self.name} was started without a writable stdin")
        self._popen.stdin.write(text.encode())

    def close_stdin(self) -> None:
        """End its input, as Ctrl-D does."""
        if self._popen.stdin is not None:
            self._popen.stdin.close()

    def stdout(self) -> str:
        """What it has written to stdout so far."""
        return self.stdout_path.read_text(errors="replace")

    def stderr(self) -> str:
        """What it has written to stderr (and its log) so far."""
        return self.log_path.read_text(errors="replace")

    def log_tail(self, lines: int = 30) -> str:
        """The end of its log, for an error message."""
        return "\n".join(self.stderr().splitlines()[-lines:])

    def pause(self) -> None:
        """SIGSTOP: it keeps its connections and says nothing more from now on."""
        if self.paused:
            return
        self._signal(signal.SIGSTOP)
        self.paused = True
        # Its many threads stop one by one, and on a busy machine one still answers meanwhile; the
        # kernel reports the stop when the last one has.
        wait_for(
            lambda: os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG) is not None,
            10,
            f"{self.name} has stopped",
        )

    def resume(self) -> None:
        """SIGCONT: it goes on where it was."""
        self._signal(signal.SIGCONT)
        self.paused = False

    def terminate(self, timeout: float) -> int:
        """SIGTERM, and wait until it has ended; return the exit code."""
        if self.running:
            self._signal(signal.SIGTERM)
            if self.paused:
                self.resume()
        return self.wait(timeout)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone; nothing to do if it ended before."""
        if self.running:
            self._popen.kill()
            self.wait(30)

    def wait(self, timeout: float) -> int:
        """Wait until it ends; return the exit code."""
        if self.returncode is None:
            try:
                self._popen.wait(timeout)
            except subprocess.TimeoutExpired:
                raise HarnessTimeoutError(
                    f"{self.name} (pid {self.pid}) has not ended after {timeout:g} s;"
                    f" its log ends:\n{self.log_tail()}"
                ) from None
            self._ended()
        assert self._popen.returncode is not None
        return self._popen.returncode

    def _signal(self, number: signal.Signals) -> None:
        if not self.running:
            raise HarnessError(f"{self.name} is not running (exit code {self.returncode})")
        self._popen.send_signal(number)

    def _ended(self) -> None:
        self.close_stdin()
        self.paused = False
        reaper.forget_process(self.pid)
