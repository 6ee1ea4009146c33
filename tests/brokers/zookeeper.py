"""Run the ZooKeeper server of one real cluster, from the jars of the broker version.

``registry.py`` reads and writes Kafka's nodes in it.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.brokers.errors import HarnessError
from tests.brokers.java_process import JavaProcess, java_argv
from tests.brokers.ports import free_port
from tests.brokers.properties import HOST, render, zookeeper_properties
from tests.brokers.tls import ServerIdentity
from tests.brokers.versions import BrokerVersion
from tests.brokers.waiting import wait_for

_MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_ATTEMPTS = 5


def _serves(port: int) -> bool:
    """Return True if the server responds to the command `srvr`.

    It accepts connections some milliseconds before it accepts sessions (seen in 3.8.4). A client or
    broker that requests a session in between hangs until its connection timeout.
    """
    try:
        with socket.create_connection((HOST, port), timeout=1) as connection:
            connection.sendall(b"srvr")
            with connection.makefile("rb") as stream:
                return b"Zookeeper version" in stream.read()
    except OSError:
        return False


@dataclass(frozen=True)
class ZooKeeperSecurity:
    """What a server asks for: users of DIGEST-MD5, and an identity for a port of TLS (from 3.5 on).

    Clients that don't authenticate are let in, too; ACLs of nodes decide what they may do.
    """

    users: Mapping[str, str]
    identity: ServerIdentity | None = None

    def server_properties(self) -> dict[str, object]:
        """Return the settings of the server."""
        properties: dict[str, object] = {
            "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
        }
        if self.identity is not None:
            of_broker = self.identity.server_properties()
            properties |= {
                "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
                "ssl.keyStore.location": of_broker["ssl.keystore.location"],
                "ssl.keyStore.password": of_broker["ssl.keystore.password"],
                "ssl.keyStore.type": of_broker["ssl.keystore.type"],
                "ssl.clientAuth": "none",
            }
        return properties

    def java_options(self, folder: Path) -> list[str]:
        """Write the JAAS file of the server, and return the option with which it reads it."""
        file = folder / "zookeeper-jaas.conf"
        users = " ".join(f'user_{user}="{password}"' for user, password in self.users.items())
        module = "org.apache.zookeeper.server.auth.DigestLoginModule"
        file.write_text(f"Server {{\n  {module} required {users};\n}};\n")
        return [f"-Djava.security.auth.login.config={file}"]


class ZooKeeperServer:
    """A stand-alone server, which keeps its data and its port from one start to the next."""

    def __init__(
        self, version: BrokerVersion, folder: Path, security: ZooKeeperSecurity | None = None
    ) -> None:
        self._version = version
        self._folder = folder
        self._security = security
        self._port: int | None = None
        self._tls_port: int | None = None
        self._process: JavaProcess | None = None

    @property
    def connect(self) -> str:
        """The address for ``zookeeper.connect``."""
        if self._port is None:
            raise HarnessError("ZooKeeper: never started. Call start() first")
        return f"{HOST}:{self._port}"

    @property
    def tls_connect(self) -> str:
        """The address of the port for TLS."""
        if self._tls_port is None:
            raise HarnessError("ZooKeeper: no port for TLS; expected an identity, and 3.5 or newer")
        return f"{HOST}:{self._tls_port}"

    @property
    def process(self) -> JavaProcess:
        """The process of its last start."""
        if self._process is None:
            raise HarnessError("ZooKeeper: never started. Call start() first")
        return self._process

    def require_working(self) -> None:
        """Raise an error instead of a call that would hang until a timeout.

        Raises:
            HarnessError: ZooKeeper is paused or stopped.
        """
        if not self.process.running or self.process.paused:
            state = "paused" if self.process.paused else "stopped"
            raise HarnessError(f"ZooKeeper is {state}. Start or resume it first")

    def start(self, timeout: float) -> None:
        """Start the server and wait until it accepts sessions."""
        if self._process is not None and self._process.running:
            raise HarnessError("ZooKeeper: already running. Stop it first")
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
        """Send SIGKILL, in any state."""
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
        properties = zookeeper_properties(data_dir, port)
        java_options: list[str] = []
        if (security := self._security) is not None:
            properties |= security.server_properties()
            java_options = security.java_options(self._folder)
            if security.identity is not None:
                properties["secureClientPort"] = self._tls_port = self._tls_port or free_port()
        file.write_text(render(properties))
        self._process = JavaProcess(
            "ZooKeeper",
            java_argv(
                self._version,
                self._folder,
                _MAIN_CLASS,
                str(file),
                heap="256m",
                java_options=java_options,
                logging="server",
            ),
            self._folder / "zookeeper.log",
        )
        return self._process
