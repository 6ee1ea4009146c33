"""`WorkersGateway`: a gateway with workers, as a process whose workers can be killed."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from tests._tools.cli.conftest import command_line
from tests._tools.gateway.gateways import HOST
from tests.brokers.ports import free_port, free_ports
from tests.brokers.reaper import reaper
from tests.brokers.waiting import wait_for
from tests.support.environments import as_users

_START_S = 120.0
_END_S = 30.0


class WorkersGateway:
    """See the module.

    Args:
        targets: brokers of the target.
        folder: gets the log.
        count: how many workers.
        options: a file, and more options.
    """

    def __init__(self, targets: str, folder: Path, count: int, *options: str) -> None:
        self.count = count
        self.port, self._metrics_port = free_ports(), free_port()
        self._log = folder / "gateway.log"
        command = command_line(
            *("gateway", "run", *options, "--to", targets, "--listen", f"{HOST}:{self.port}"),
            *("--metrics", f":{self._metrics_port}", "--workers", str(count)),
        )
        with self._log.open("ab") as log:
            # Where temporary files would be, which a killed gateway leaves
            environment = as_users(TMPDIR=str(folder))
            self._process = subprocess.Popen(command, stderr=log, env=environment)
        self.pid = self._process.pid
        reaper.watch_process(self.pid)

    @property
    def bootstrap_servers(self) -> str:
        """The address of the first listener."""
        return f"{HOST}:{self.port}"

    def wait_until_listening(self) -> None:
        """Wait until all workers listen."""

        def listens() -> bool:
            assert self.code is None, self.log()
            return "gateway: listening on port" in self.log()

        wait_for(listens, _START_S, "workers listen")

    def workers(self) -> list[psutil.Process]:
        """Return the workers that run and listen."""
        return [
            one for one in psutil.Process(self.pid).children() if psutil.CONN_LISTEN in states(one)
        ]

    def wait_for_workers(self) -> None:
        """Wait until all workers listen again."""
        wait_for(lambda: len(self.workers()) == self.count, _START_S, "all workers listen again")

    def page(self, path: str) -> bytes:
        """Return what the gateway serves."""
        with urllib.request.urlopen(f"http://{HOST}:{self._metrics_port}/{path}") as page:
            found: bytes = page.read()
        return found

    def clients(self) -> list[dict[str, Any]]:
        """Return the list of clients."""
        found: list[dict[str, Any]] = json.loads(self.page("clients"))
        return found

    def log(self) -> str:
        """Return what it and its workers have logged."""
        return self._log.read_text()

    def end(self, signal_number: int) -> float:
        """Send a signal; return after how many seconds it and all its children have ended."""
        began = time.monotonic()
        children = psutil.Process(self.pid).children()
        self._process.send_signal(signal_number)
        self._process.wait(_END_S)
        left = psutil.wait_procs(children, _END_S)[1]
        assert not left
        return time.monotonic() - began

    @property
    def code(self) -> int | None:
        """The exit code, if it has ended."""
        return self._process.poll()

    def close(self) -> None:
        """Kill it and its workers."""
        if self.code is None:
            children = psutil.Process(self.pid).children()
            self._process.kill()
            self._process.wait()
            for child in psutil.wait_procs(children, _END_S)[1]:
                child.kill()
        reaper.forget_process(self.pid)


@contextmanager
def workers_gateway(
    targets: str, folder: Path, count: int, *options: str
) -> Iterator[WorkersGateway]:
    """Run a gateway with workers; end it, and them."""
    gateway = WorkersGateway(targets, folder, count, *options)
    try:
        gateway.wait_until_listening()
        yield gateway
    finally:
        gateway.close()


def states(process: psutil.Process) -> Counter[str]:
    """Return how many connections a process has, by their states."""
    try:
        return Counter(one.status for one in process.net_connections("tcp"))
    except psutil.NoSuchProcess:
        return Counter()


def connect(port: int) -> socket.socket:
    """Return a connection to a gateway."""
    return socket.create_connection((HOST, port), 30)
