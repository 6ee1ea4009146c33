"""Gateways as processes, which can be killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests._tools.gateway.gateways import HOST
from tests.brokers.ports import accepts, free_ports
from tests.brokers.waiting import wait_for

_START_S = 120.0


class Gateways:
    """Gateways to one cluster that are peers, each of them a process.

    Args:
        target: brokers of the cluster.
        folder: gets their logs.
        count: how many.
        options: more options of each.
    """

    def __init__(self, target: str, folder: Path, count: int, *options: str) -> None:
        self.ports = [free_ports() for _ in range(count)]
        self._folder = folder
        self._options = ["--to", target, *options]
        for port in self.ports if count > 1 else ():
            self._options += ["--peers", f"{HOST}:{port}"]
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def servers(self) -> str:
        """The addresses of all."""
        return ",".join(f"{HOST}:{port}" for port in self.ports)

    def start(self, number: int) -> None:
        """Start one, and wait until it listens; it may have been killed before."""
        port = self.ports[number]

        def listens() -> bool:
            assert self._processes[number].poll() is None, self.log(number)
            return accepts(port)

        with (self._folder / f"gateway-{port}.log").open("ab") as log:
            self._processes[number] = subprocess.Popen(
                [
                    *(sys.executable, "-m", "aiokafka08", "gateway", "run"),
                    *("--listen", f"{HOST}:{port}", *self._options),
                ],
                stdout=log,
                stderr=log,
            )
        wait_for(listens, _START_S, f"gateway {number} listens")

    def log(self, number: int) -> str:
        """Return what one has logged."""
        return (self._folder / f"gateway-{self.ports[number]}.log").read_text()

    def kill(self, number: int) -> None:
        """Send SIGKILL."""
        process = self._processes.pop(number)
        process.kill()
        process.wait(30)

    def close(self) -> None:
        """Kill those that run."""
        for number in list(self._processes):
            self.kill(number)
