"""Run one broker of a real cluster: its properties file, its process, and a check that it responds.

A broker keeps its node id and its data from one start to the next, and its ports unless ``move()``
is called. ``cluster.py`` creates the brokers; topics and other state of the cluster are there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tests.brokers.errors import HarnessError
from tests.brokers.java_process import JavaProcess, java_argv
from tests.brokers.ports import free_port
from tests.brokers.properties import HOST, Listeners, render, server_properties
from tests.brokers.versions import BrokerVersion
from tests.brokers.wire import metadata

MAIN_CLASS = "kafka.Kafka"


class Broker:
    """One node, which can be started and stopped any number of times."""

    def __init__(
        self,
        version: BrokerVersion,
        node_id: int,
        brokers: int,
        folder: Path,
        *,
        zookeeper_connect: str | None,
        properties: Mapping[str, object],
        port: int | None,
        advertised_port: int | None,
        java_options: Sequence[str],
        voters: dict[int, int],
        advertised_host: str = HOST,
        security: Mapping[str, object] = {},
        ssl: bool = False,
        sasl: bool = False,
    ) -> None:
        self.node_id = node_id
        self._version = version
        self._brokers = brokers
        self._folder = folder
        self._zookeeper_connect = zookeeper_connect
        self._properties = dict(properties)
        self._security = dict(security)
        self._ssl = ssl
        self._sasl = sasl
        self._advertised_port = advertised_port
        self._advertised_host = advertised_host
        self._java_options = java_options
        self._voters = voters  # the controllers' ports, which all brokers share
        self._process: JavaProcess | None = None
        self._log_length = 0  # at the last start
        self.listeners = self._choose_ports(port)

    def __repr__(self) -> str:
        return f"<Broker {self.node_id} {self.address} {self._process!r}>"

    @property
    def address(self) -> str:
        """Address on which the broker listens; it may advertise another one."""
        return f"{HOST}:{self.listeners.port}"

    @property
    def advertised_address(self) -> str:
        """Address that the broker advertises to clients."""
        return f"{HOST}:{self.listeners.advertised_port}"

    @property
    def process(self) -> JavaProcess:
        """The process of its last start."""
        if self._process is None:
            raise HarnessError(f"broker {self.node_id}: never started. Call launch() first")
        return self._process

    @property
    def running(self) -> bool:
        """True while its process exists, also a paused one."""
        return self._process is not None and self._process.running

    @property
    def responsive(self) -> bool:
        """True while its process exists and isn't paused."""
        return self.running and not self.process.paused

    @property
    def settings_file(self) -> Path:
        """Path of its properties file."""
        return self._folder / f"server-{self.node_id}.properties"

    @property
    def port_clash(self) -> bool:
        """True if its last start failed because another process had a port.

        With several listeners brokers up to 0.10 at least may go on running then, without any.
        """
        return "already in use" in self.process.stderr()[self._log_length :]

    def move(self, port: int | None = None) -> None:
        """Choose other ports for the next start; ``port`` for the plain listener."""
        if self._brokers == 1:
            self._voters.clear()
        self.listeners = self._choose_ports(port)

    def use_properties(self, properties: Mapping[str, object]) -> None:
        """Add properties for the next starts."""
        self._properties |= properties

    def change_version(self, version: BrokerVersion) -> None:
        """Let the next starts be of another version, with the same data."""
        self._version = version

    def write_settings(self) -> None:
        """Write the properties file for the next start."""
        settings = server_properties(
            self._version,
            self.node_id,
            self._brokers,
            self.listeners,
            self._folder / f"data-{self.node_id}",
            self._zookeeper_connect,
            self._security,
            self._voters,
        )
        self.settings_file.write_text(render(settings | self._properties))

    def launch(self) -> None:
        """Start its process. The caller waits until the broker is ready."""
        if self.running:
            raise HarnessError(f"broker {self.node_id}: already running. Stop it first")
        self.write_settings()
        self._log_length = len(self._process.stderr()) if self._process else 0
        self._process = JavaProcess(
            f"broker {self.node_id} of Kafka {self._version.name}",
            java_argv(
                self._version,
                self._folder,
                MAIN_CLASS,
                str(self.settings_file),
                logging="server",
                java_options=self._java_options,
            ),
            self._folder / f"broker-{self.node_id}.log",
        )

    def responds(self) -> bool:
        """Return True if it responds to a Metadata request."""
        try:
            metadata(self.listeners.port)
        except OSError:
            return False
        return True

    def _choose_ports(self, port: int | None = None) -> Listeners:
        port = port or free_port()
        listeners = Listeners(
            port, self._advertised_port or port, advertised_host=self._advertised_host
        )
        if self._ssl:
            listeners = replace(listeners, ssl_port=free_port())
        if self._sasl:
            listeners = replace(listeners, sasl_port=free_port())
        if self._ssl and self._sasl:
            listeners = replace(listeners, sasl_ssl_port=free_port())
        if self._advertised_port and self._version.number >= (0, 10, 2):
            # Replication bypasses the proxy. Older brokers have one address for all.
            listeners = replace(listeners, internal_port=free_port())
        if not self._version.needs_zookeeper:
            # The other brokers know it from their start on, so it stays.
            controller_port = self._voters.setdefault(self.node_id, free_port())
            listeners = replace(listeners, controller_port=controller_port)
        return listeners
