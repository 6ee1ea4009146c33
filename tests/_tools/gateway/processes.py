"""Gateways as processes, which a test kills, stops by SIGSTOP and starts again."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from tests._tools.cli.conftest import command_line
from tests._tools.gateway.gateways import HOST
from tests.brokers.ports import free_ports
from tests.brokers.reaper import reaper
from tests.brokers.waiting import wait_for
from tests.support.environments import as_users

_START_S = 120.0


class Gateways:
    """Gateways to one cluster that are peers, each of them a process.

    They keep their ports from one start to the next.

    Args:
        target: brokers of the cluster.
        folder: gets their logs and tables of ports.
        count: how many.
        options: more options of each.
        brokers: how many brokers of the cluster `servers` names at each (default: as few as lead to
            all of them).

    Attributes:
        ports: their first ports.
    """

    def __init__(
        self, target: str, folder: Path, count: int, *options: str, brokers: int | None = None
    ) -> None:
        self.ports = [free_ports() for _ in range(count)]
        self._folder = folder
        self._options = ["--to", target, *options]
        for port in self.ports if count > 1 else ():
            self._options += ["--peers", f"{HOST}:{port}"]
        # With peers the first port is the entry, and leads to any broker.
        self._named = 1 if brokers is None else brokers + (count > 1)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def servers(self) -> str:
        """The addresses of all."""
        ports = (first + number for first in self.ports for number in range(self._named))
        return ",".join(f"{HOST}:{port}" for port in ports)

    def pid(self, number: int) -> int:
        """Return the id of the process of one that runs."""
        return self._processes[number].pid

    def start(self, number: int) -> None:
        """Start one, and wait until it listens for the brokers that can be reached."""
        begin = len(self.log(number))

        def listens() -> bool:
            assert self._processes[number].poll() is None, self.log(number)
            return "gateway: listening on port" in self.log(number)[begin:]

        with self._path(number, "log").open("ab") as log:
            self._processes[number] = subprocess.Popen(
                command_line(
                    *("gateway", "run", "--listen", f"{HOST}:{self.ports[number]}"),
                    *("--state", str(self._path(number, "json")), *self._options),
                ),
                stdout=log,
                stderr=log,
                env=as_users(),
            )
        reaper.watch_process(self.pid(number))
        wait_for(listens, _START_S, f"gateway {number} listens")

    def log(self, number: int) -> str:
        """Return what one has logged since its first start."""
        path = self._path(number, "log")
        return path.read_text() if path.exists() else ""

    def pause(self, number: int) -> None:
        """Send SIGSTOP: its connections stay open, but it responds no more."""
        self._processes[number].send_signal(signal.SIGSTOP)

    def resume(self, number: int) -> None:
        """Send SIGCONT."""
        self._processes[number].send_signal(signal.SIGCONT)

    def kill(self, number: int) -> None:
        """Send SIGKILL, and wait for the end."""
        process = self._processes.pop(number)
        process.kill()
        process.wait(30)
        reaper.forget_process(process.pid)

    def close(self) -> None:
        """Kill those that run."""
        for number in list(self._processes):
            self.kill(number)

    def _path(self, number: int, kind: str) -> Path:
        return self._folder / f"gateway-{self.ports[number]}.{kind}"
