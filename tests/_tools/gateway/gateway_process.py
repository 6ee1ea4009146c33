"""`aiokafka08 gateway` as a process, which a test kills and starts again."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests._tools.cli.conftest import command_line
from tests._tools.gateway.gateways import HOST
from tests.brokers.ports import free_ports
from tests.brokers.reaper import reaper
from tests.support.environments import as_users

_START_S = 90


class GatewayProcess:
    """A gateway that keeps its ports from one start to the next."""

    def __init__(self, targets: str, brokers: int, folder: Path) -> None:
        self.first_port = free_ports()
        self._brokers = brokers
        self._log = folder / "gateway.log"
        self._command = command_line(
            "gateway",
            *("--to", targets, "--listen", f"{HOST}:{self.first_port}"),
            *("--state", str(folder / "listeners.json")),
        )
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The id of the running process."""
        assert self._process is not None
        return self._process.pid

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all listeners."""
        return ",".join(f"{HOST}:{self.first_port + number}" for number in range(self._brokers))

    def start(self) -> None:
        """Start it, and wait until it listens for the brokers that can be reached."""
        begin = len(self.log())
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stderr=log, env=as_users())
        reaper.watch_process(self._process.pid)
        deadline = time.monotonic() + _START_S
        while "gateway: listening on port" not in self.log()[begin:]:
            assert self._process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.05)

    def kill(self) -> None:
        """Send SIGKILL, and wait for the end."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            reaper.forget_process(self._process.pid)
            self._process = None

    def log(self) -> str:
        """Return what it has logged since the first start."""
        return self._log.read_text() if self._log.exists() else ""


@contextmanager
def gateway_process(targets: str, brokers: int, folder: Path) -> Iterator[GatewayProcess]:
    """Run a gateway to these brokers, and kill it at the end."""
    gateway = GatewayProcess(targets, brokers, folder)
    try:
        gateway.start()
        yield gateway
    finally:
        gateway.kill()
