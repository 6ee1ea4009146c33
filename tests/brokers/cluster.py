"""Run a real Kafka cluster on loopback, ZooKeeper and brokers of one version, as a context manager.

Invariant: when a method returns, its effect is complete: a started broker responds and is
registered, a created topic has leaders, a stopped process is gone. ``close()`` leaves no process
and no file behind.

All calls block; from a coroutine use ``asyncio.to_thread``. Tests get shared clusters from
``fixtures.py`` or create their own. ``broker.py``, ``zookeeper.py``, ``topics.py`` and ``tools.py``
do the work for one broker, ZooKeeper, topics and Java programs.
"""

from __future__ import annotations

import base64
import shutil
import tempfile
import uuid
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.brokers.broker import Broker
from tests.brokers.errors import HarnessError, UnsupportedByBrokerError
from tests.brokers.java_process import JavaProcess, write_logging_files
from tests.brokers.ports import accepts, free_port
from tests.brokers.properties import HOST
from tests.brokers.reaper import reaper
from tests.brokers.registry import Registry
from tests.brokers.sasl import HOST_NAME, SaslUsers
from tests.brokers.tls import ServerIdentity, make_identity
from tests.brokers.tools import JavaResult, JavaTools
from tests.brokers.topics import NewTopic, Topics
from tests.brokers.versions import find_version
from tests.brokers.waiting import wait_for
from tests.brokers.wire import metadata
from tests.brokers.zookeeper import ZooKeeperSecurity, ZooKeeperServer

_START_ATTEMPTS = 5


class RealCluster:
    """ZooKeeper and ``brokers`` brokers (node ids 0, 1, ...) of one version.

    ``properties`` are server properties of all brokers; they override those of the harness.
    ``advertised`` maps node ids to the ports that brokers advertise, for proxies. Up to 0.9 the
    brokers use these ports among themselves, too: start the proxies first, with
    ``planned_address``. All brokers advertise ``advertised_host``. ``java_options`` override those
    of the harness. By default brokers run without the optimising compiler; a benchmark turns it on
    with ``["-XX:TieredStopAtLevel=4", "-Xmx2g"]``. ``sasl`` adds SASL listeners, which advertise
    ``localhost``. ``zookeeper_users`` lets ZooKeeper authenticate these users by DIGEST-MD5, and
    with ``ssl`` gives it a port for TLS. Each broker of 4.x is a controller too.
    """

    def __init__(
        self,
        version: str,
        brokers: int = 1,
        properties: Mapping[str, object] | None = None,
        ssl: bool = False,
        advertised: Mapping[int, int] | None = None,
        *,
        advertised_host: str = HOST,
        java_options: Sequence[str] = (),
        sasl: SaslUsers | None = None,
        zookeeper_users: Mapping[str, str] | None = None,
        start_timeout: float = 90.0,
    ) -> None:
        self._version = find_version(version)
        self._brokers = brokers
        self._properties = dict(properties or {})
        self._ssl = ssl
        self._advertised = dict(advertised or {})
        self._advertised_host = advertised_host
        self._java_options = list(java_options)
        self._sasl = sasl
        self._zookeeper_users = zookeeper_users
        self._start_timeout = start_timeout
        self._folder: Path | None = None
        self._zookeeper: ZooKeeperServer | None = None
        self._registry_or_none: Registry | None = None
        self._identity: ServerIdentity | None = None
        self._planned_ports: dict[int, int] = {}
        self._nodes: dict[int, Broker] = {}
        self._voters: dict[int, int] = {}
        self._tools: JavaTools | None = None
        if brokers < 1:
            raise HarnessError(f"brokers={brokers}: expected at least one broker")
        if ssl and self._version.number < (0, 9):
            raise UnsupportedByBrokerError(
                f"ssl=True: Kafka {version} has no SSL listeners; expected 0.9 or newer"
            )
        if sasl is not None and not sasl.enabled(self._version):
            raise UnsupportedByBrokerError(
                f"sasl={sasl}: Kafka {version} has none of its mechanisms; expected 0.9 or newer"
                " for GSSAPI, 0.10 for PLAIN, 0.10.2 for SCRAM"
            )
        if unknown := set(self._advertised) - set(range(brokers)):
            raise HarnessError(
                f"advertised: unknown nodes {sorted(unknown)}; expected 0 to {brokers - 1}"
            )

    def __repr__(self) -> str:
        nodes = ", ".join(repr(node) for node in self._nodes.values())
        return f"<RealCluster {self.version} [{nodes}]>"

    # ---- start and stop -----------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start ZooKeeper and the brokers. After a failure no process and no file is left."""
        if self._folder is not None:
            raise HarnessError("cluster: already started")
        self._folder = Path(tempfile.mkdtemp(prefix="aiokafka08-brokers-"))
        reaper.watch_folder(self._folder)
        try:
            write_logging_files(self._folder)
            self._tools = JavaTools(self._version, self._folder)
            if self._ssl:
                self._identity = make_identity(self._folder)
            if self._version.needs_zookeeper:
                security = None
                if self._zookeeper_users is not None:
                    security = ZooKeeperSecurity(self._zookeeper_users, self._identity)
                self._zookeeper = ZooKeeperServer(self._version, self._folder, security)
                self._zookeeper.start(self._start_timeout)
                self._registry_or_none = Registry(self._zookeeper.connect)
                if self._sasl is not None:
                    self._registry_or_none.write_nodes(self._sasl.scram_nodes(self._version))
            if self._sasl is not None:
                self._java_options += self._sasl.java_options(self._version, self._folder)
            for node_id in range(self._brokers):
                self._nodes[node_id] = self._make_broker(node_id, self._folder)
            if not self._version.needs_zookeeper:
                self._format_storages()
            for broker in self._nodes.values():
                broker.launch()
            for broker in self._nodes.values():
                self._wait_ready(broker, may_move=broker.node_id not in self._planned_ports)
            self._wait_cluster()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Kill all processes of the cluster and remove its files. May be called twice."""
        if self._tools is not None:
            self._tools.kill_all()
        for broker in self._nodes.values():
            if broker.running:
                broker.process.kill()
        if self._zookeeper is not None:
            self._zookeeper.kill()
        self._nodes.clear()
        self._voters.clear()
        self._tools = None
        self._zookeeper = None
        self._registry_or_none = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            reaper.forget_folder(self._folder)
            self._folder = None

    def heal(self) -> None:
        """Resume paused nodes and start stopped ones, until all nodes run."""
        if self._zookeeper is not None:
            if not self._zookeeper.process.running:
                self.start_zookeeper()
            elif self._zookeeper.process.paused:
                self.resume_zookeeper()
        # Resume before starting: a paused broker may be the controller.
        for broker in self._nodes.values():
            if broker.running and broker.process.paused:
                self.resume(broker.node_id)
        for broker in self._nodes.values():
            if not broker.running:
                self.restart(broker.node_id)
        self._wait_cluster()

    # ---- addresses ----------------------------------------------------------------------------

    @property
    def version(self) -> str:
        """The version of the brokers."""
        return self._version.name

    @property
    def bootstrap_servers(self) -> str:
        """The advertised addresses of all nodes, also of stopped ones."""
        return ",".join(broker.advertised_address for broker in self._live().values())

    @property
    def ssl_bootstrap_servers(self) -> str:
        """The addresses of the SSL listeners (only with ``ssl=True``)."""
        self._require_ssl()
        return ",".join(f"{HOST}:{broker.listeners.ssl_port}" for broker in self._live().values())

    @property
    def sasl(self) -> SaslUsers:
        """The users, and the KDC, of the SASL listeners (only with ``sasl``)."""
        if self._sasl is None:
            raise HarnessError("cluster: no SASL listeners; expected RealCluster(..., sasl=...)")
        return self._sasl

    @property
    def sasl_bootstrap_servers(self) -> str:
        """The addresses of the SASL_PLAINTEXT listeners (only with ``sasl``)."""
        return ",".join(
            f"{HOST_NAME}:{broker.listeners.sasl_port}" for broker in self._live().values()
        )

    @property
    def sasl_ssl_bootstrap_servers(self) -> str:
        """The addresses of the SASL_SSL listeners (only with ``sasl`` and ``ssl=True``)."""
        return ",".join(
            f"{HOST_NAME}:{broker.listeners.sasl_ssl_port}" for broker in self._live().values()
        )

    @property
    def ca_path(self) -> Path:
        """The PEM file that verifies the SSL listeners (only with ``ssl=True``)."""
        return self._require_ssl().ca_path

    @property
    def zookeeper_connect(self) -> str:
        """ZooKeeper's address; 4.x has none."""
        return self._require_zookeeper().connect

    @property
    def zookeeper_tls_connect(self) -> str:
        """ZooKeeper's address for TLS, with ``ssl`` and ``zookeeper_users``, from 3.5 on."""
        return self._require_zookeeper().tls_connect

    @property
    def nodes(self) -> dict[int, str]:
        """The address on which each broker listens, which is the upstream of a proxy."""
        return {node_id: broker.address for node_id, broker in self._live().items()}

    def planned_address(self, node_id: int) -> str:
        """Return the address on which a broker will listen, for a proxy that starts before it.

        Brokers up to 0.9 become ready only if their proxies run. A port that this method returned
        is kept: if another process takes it meanwhile (rare), the start fails.
        """
        if node_id not in range(self._brokers):
            raise HarnessError(f"no node {node_id}; expected 0 to {self._brokers - 1}")
        if self._nodes:
            return self._node(node_id).address
        return f"{HOST}:{self._planned_ports.setdefault(node_id, free_port())}"

    def port(self, node_id: int) -> int:
        """Return the port on which a broker listens, for ``tests.brokers.wire``."""
        return self._node(node_id).listeners.port

    @property
    def folder(self) -> Path:
        """The temporary folder with logs, data and properties."""
        if self._folder is None:
            raise HarnessError("cluster: not started. Call start(), or use a with statement")
        return self._folder

    def log(self, node_id: int) -> str:
        """Return a broker's log of all its starts."""
        return self._node(node_id).process.stderr()

    def cpu_s(self, node_id: int) -> float:
        """Return the CPU seconds that a running broker has used; on Linux only."""
        return self._node(node_id).process.cpu_s()

    # ---- brokers ------------------------------------------------------------------------------

    def kill(self, node_id: int) -> None:
        """Send SIGKILL, as in a crash. ZooKeeper keeps the session until its timeout (30 s)."""
        self._node(node_id).process.kill()

    def stop(self, node_id: int, timeout: float = 60.0) -> None:
        """Send SIGTERM and wait for the end of the controlled shutdown."""
        self._node(node_id).process.terminate(timeout)

    def expire(self, node_id: int) -> None:
        """Remove a killed broker from ZooKeeper, so that the failover starts at once."""
        if self._node(node_id).running:
            raise HarnessError(f"broker {node_id}: running. Kill it first")
        self._registry().remove_broker(node_id)

    def restart(
        self,
        node_id: int,
        port: int | None = None,
        properties: Mapping[str, object] | None = None,
    ) -> None:
        """Start a broker again and wait until it is ready; stop it first if it runs.

        ``port`` moves it to another port (0: any). ``properties`` are added for this start and the
        next ones.
        """
        broker = self._node(node_id)
        if broker.running:
            self.stop(node_id)
        if self._zookeeper is not None:
            # Depending on the version, a start fails or waits while ZooKeeper still has the session
            # of a killed broker.
            self._registry().remove_broker(node_id)
        if port is not None:
            broker.move(port)
        if properties is not None:
            broker.use_properties(properties)
        broker.launch()
        self._wait_ready(broker, may_move=port == 0)
        self._wait_cluster()

    def change_version(self, version: str) -> None:
        """Let the brokers, all of which are stopped, be of another version at their next starts.

        ZooKeeper and the Java tools stay as they are.
        """
        if running := [node_id for node_id, broker in self._nodes.items() if broker.running]:
            raise HarnessError(f"change_version({version!r}): brokers {running} run. Stop them")
        self._version = find_version(version)
        for broker in self._nodes.values():
            broker.change_version(self._version)

    def pause(self, node_id: int) -> None:
        """Send SIGSTOP: connections stay open, but the broker doesn't respond."""
        self._node(node_id).process.pause()

    def resume(self, node_id: int) -> None:
        """Send SIGCONT."""
        self._node(node_id).process.resume()

    # ---- ZooKeeper ----------------------------------------------------------------------------

    def pause_zookeeper(self) -> None:
        """Send SIGSTOP to ZooKeeper. Sessions expire if it resumes after their timeout."""
        self._require_zookeeper().process.pause()

    def resume_zookeeper(self) -> None:
        """Send SIGCONT to ZooKeeper."""
        self._require_zookeeper().process.resume()

    def stop_zookeeper(self, timeout: float = 30.0) -> None:
        """Send SIGTERM to ZooKeeper and wait for its end."""
        self._require_zookeeper().process.terminate(timeout)

    def start_zookeeper(self) -> None:
        """Start ZooKeeper again, with the same data and port."""
        self._require_zookeeper().start(self._start_timeout)

    def controller(self) -> int | None:
        """Return the node id of the controller."""
        return self._registry().controller()

    # ---- topics -------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Mapping[str, object] | None = None,
        assignment: Mapping[int, Sequence[int]] | None = None,
        timeout: float = 30.0,
    ) -> None:
        """Create a topic through ZooKeeper and wait until all running brokers know its leaders.

        ``assignment`` maps partitions to node ids, with the preferred leader first; it replaces
        ``partitions`` and ``replication_factor``. ``config`` needs 0.8.1 or newer.
        """
        self._topics().create(name, partitions, replication_factor, config, assignment, timeout)

    def create_topics(self, topics: Mapping[str, NewTopic], timeout: float = 60.0) -> None:
        """Create many topics at once, and wait until all running brokers know their leaders."""
        self._topics().create_many(topics, timeout)

    def delete_topic(self, name: str, timeout: float = 60.0) -> None:
        """Delete a topic and wait until it is gone from ZooKeeper (0.8.2 or newer)."""
        self._topics().delete(name, timeout)

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the leader's node id in ZooKeeper; -1 without a leader."""
        return self._topics().leader(topic, partition)

    def isr(self, topic: str, partition: int = 0) -> list[int]:
        """Return the in-sync replicas in ZooKeeper; those in Metadata may be stale."""
        return self._topics().isr(topic, partition)

    def wait_isr(
        self, topic: str, partition: int, node_ids: Collection[int], timeout: float = 30.0
    ) -> None:
        """Wait until exactly these nodes are in sync, in ZooKeeper."""
        self._topics().wait_isr(topic, partition, node_ids, timeout)

    def wait_leader(
        self, topic: str, partition: int, node_ids: Collection[int], timeout: float = 30.0
    ) -> int:
        """Wait until one of these nodes is the leader, in ZooKeeper, and return it."""
        return self._topics().wait_leader(topic, partition, node_ids, timeout)

    # ---- Java programs ------------------------------------------------------------------------

    def run_java(
        self,
        main_class: str,
        *args: str,
        input: str | None = None,
        timeout: float = 60.0,
        java_options: Sequence[str] = (),
    ) -> JavaResult:
        """Run a class of this version's jars and wait for its end."""
        return self._java_tools().run(
            main_class, *args, input=input, timeout=timeout, java_options=java_options
        )

    def popen_java(self, main_class: str, *args: str, writable_stdin: bool = False) -> JavaProcess:
        """Start a class of this version's jars. ``close()`` kills it if it still runs."""
        return self._java_tools().popen(main_class, *args, writable_stdin=writable_stdin)

    # ---- inside -------------------------------------------------------------------------------

    def _make_broker(self, node_id: int, folder: Path) -> Broker:
        return Broker(
            self._version,
            node_id,
            self._brokers,
            folder,
            zookeeper_connect=self._zookeeper.connect if self._zookeeper else None,
            properties=self._properties,
            security={
                **(self._identity.server_properties() if self._identity else {}),
                **(self._sasl.server_properties(self._version) if self._sasl else {}),
            },
            ssl=self._ssl,
            sasl=self._sasl is not None,
            port=self._planned_ports.get(node_id),
            advertised_port=self._advertised.get(node_id),
            advertised_host=self._advertised_host,
            java_options=self._java_options,
            voters=self._voters,
        )

    def _format_storages(self) -> None:
        """Format the storages, without which 4.x doesn't start, all for one cluster."""
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        formats = []
        for broker in self._nodes.values():
            broker.write_settings()
            formats.append(
                self.popen_java(
                    "kafka.tools.StorageTool",
                    "format",
                    f"--cluster-id={cluster_id}",
                    "-c",
                    str(broker.settings_file),
                    *(self._sasl.scram_arguments(self._version) if self._sasl else ()),
                )
            )
        for process in formats:
            if process.wait(self._start_timeout):
                raise HarnessError(f"storage: format failed: {process.stdout()}{process.stderr()}")

    def _wait_ready(self, broker: Broker, *, may_move: bool) -> None:
        """Wait until a broker responds and is registered; after a port clash try other ports."""
        for attempt in range(_START_ATTEMPTS):
            wait_for(
                lambda: not broker.running or self._is_ready(broker) or broker.port_clash,
                self._start_timeout,
                lambda: f"broker {broker.node_id} responds; its log:\n{broker.process.log_tail()}",
            )
            if broker.running and not broker.port_clash:
                return
            broker.process.kill()
            if not (may_move and broker.port_clash) or attempt + 1 == _START_ATTEMPTS:
                break
            broker.move()
            broker.launch()
        raise HarnessError(
            f"broker {broker.node_id} of Kafka {self.version} ended at its start:\n"
            f"{broker.process.log_tail()}"
        )

    def _is_ready(self, broker: Broker) -> bool:
        """Return True if a broker is ready; the cheapest check comes first."""
        if not accepts(broker.listeners.port):
            return False
        # The port may belong to another process; the registration shows that it is our broker.
        if self._registry_or_none and broker.node_id not in self._registry_or_none.broker_ids():
            return False
        return broker.responds()

    def _wait_cluster(self) -> None:
        """Wait until all running brokers are registered and know each other, with a controller."""
        live = {node.node_id: node for node in self._nodes.values() if node.responsive}
        if self._version.needs_zookeeper:
            registry = self._registry()
            wait_for(
                lambda: registry.broker_ids() >= set(live) and registry.controller() in live,
                self._start_timeout,
                f"brokers {sorted(live)} are registered, and one of them is the controller",
            )
        if self._version.number < (0, 9):
            return  # 0.8 has no brokers in Metadata before the first topic

        def unknown_brokers() -> dict[int, set[int]]:
            views = {
                node_id: set(live) - set(metadata(node.listeners.port).brokers)
                for node_id, node in live.items()
            }
            return {node_id: missing for node_id, missing in views.items() if missing}

        wait_for(
            lambda: not unknown_brokers(),
            self._start_timeout,
            lambda: f"all brokers know each other; missing: {unknown_brokers()}",
        )

    def _live(self) -> dict[int, Broker]:
        if not self._nodes:
            raise HarnessError("cluster: not started. Call start(), or use a with statement")
        return self._nodes

    def _node(self, node_id: int) -> Broker:
        try:
            return self._live()[node_id]
        except KeyError:
            raise HarnessError(
                f"no node {node_id}; expected one of {sorted(self._nodes)}"
            ) from None

    def _require_ssl(self) -> ServerIdentity:
        if self._identity is None:
            raise HarnessError("cluster: no SSL listeners; expected RealCluster(..., ssl=True)")
        return self._identity

    def _require_zookeeper(self) -> ZooKeeperServer:
        if not self._version.needs_zookeeper:
            raise UnsupportedByBrokerError(
                f"Kafka {self.version} has no ZooKeeper. Create topics by auto-creation, or with "
                'run_java("org.apache.kafka.tools.TopicCommand", ...)'
            )
        if self._zookeeper is None:
            raise HarnessError("cluster: not started. Call start(), or use a with statement")
        return self._zookeeper

    def _registry(self) -> Registry:
        self._require_zookeeper().require_working()
        assert self._registry_or_none is not None
        return self._registry_or_none

    def _topics(self) -> Topics:
        return Topics(self._version, self._registry(), self._live())

    def _java_tools(self) -> JavaTools:
        if self._tools is None:
            raise HarnessError("cluster: not started. Call start(), or use a with statement")
        return self._tools
