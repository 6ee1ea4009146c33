"""The ZooKeeper server of one real cluster: its process, from the jars of the same version.

What Kafka keeps *inside* ZooKeeper is read and written in ``registry.py``.
"""

from __future__ import annotations

import socket
from pathlib import Path

from tests.brokers.errors import HarnessError
from tests.brokers.java_process import JavaProcess, java_argv
from tests.brokers.ports import free_port
from tests.brokers.properties import HOST, render, zookeeper_properties
from tests.brokers.versions import BrokerVersion
from tests.brokers.waiting import wait_for

_MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_ATTEMPTS = 5


def _serves(port: int) -> bool:
    """Whether it says so itself.

    Its port accepts some milliseconds before it takes sessions (seen: 3.8.4), and what asks for a
    session in between, client or broker, hangs until its connection timeout.
    """
    try:
        with socket.create_connection((HOST, port), timeout=1) as connection:
            connection.sendall(b"srvr")
            with connection.makefile("rb") as stream:
                return b"Zookeeper version" in stream.read()
    except OSError:
        return False


class ZooKeeperServer:
    """One stand-alone server; it keeps its data and its port from one start to the next."""

    def __init__(self, version: BrokerVersion, folder: Path) -> None:
        self._version = version
        self._folder = folder
        self._port: int | None = None
        self._process: JavaProcess | None = None

    @property
    def connect(self) -> str:
        """The address as ``zookeeper.connect`` wants it."""
        if self._port is None:
            raise HarnessError("ZooKeeper was never started")
        return f"{HOST}:{self._port}"

    @property
    def process(self) -> JavaProcess:
        """Its last process."""
        if self._process is None:
            raise HarnessError("ZooKeeper was never started")
        return self._process

    def require_working(self) -> None:
        """Fail at once where a call would otherwise hang until a timeout."""
        if not self.process.running or self.process.paused:
            state = "paused" if self.process.paused else "stopped"
            raise HarnessError(f"ZooKeeper is {state}: start or resume it first")

    def start(self, timeout: float) -> None:
        """Start it and wait until its port accepts."""
        if self._process is not None and self._process.running:
            raise HarnessError("ZooKeeper is running already")
        for attempt in range(_ATTEMPTS):
            port = self._port or free_port()
            process = self._launch(port)
            self._wait_serving(process, port, timeout)
            if process.running:
                self._port = port
                return
            if self._port or "already in use" not in process.stderr() or attempt + 1 == _ATTEMPTS:
                raise HarnessError(f"ZooKeeper ended at its start:\n{process.log_tail()}")

    def kill(self) -> None:
        """SIGKILL, whatever state it is in."""
        if self._process is not None:
            self._process.kill()

    def _wait_serving(self, process: JavaProcess, port: int, timeout: float) -> None:
        wait_for(
            lambda: not process.running or _serves(port),
            timeout,
            lambda: f"ZooKeeper serves; its log:\n{process.log_tail()}",
        )

    def _launch(self, port: int) -> JavaProcess:
        data_dir = self._folder / "zookeeper"
        data_dir.mkdir(exist_ok=True)
        file = self._folder / "zookeeper.properties"
        file.write_text(render(zookeeper_properties(data_dir, port)))
        self._process = JavaProcess(
            "ZooKeeper",
            java_argv(
                self._version, self._folder, _MAIN_CLASS, str(file), heap="256m", logging="server"
            ),
            self._folder / "zookeeper.log",
        )
        return self._process
