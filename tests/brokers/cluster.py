"""A real Kafka cluster on loopback: ZooKeeper and brokers of one version, as a context manager.

Law: what a method promises is true when it returns (a started broker answers and is registered, a
created topic has leaders, a stopped process is gone), and ``close`` leaves nothing behind. All
calls block: from a coroutine use ``asyncio.to_thread``.
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
from tests.brokers.tls import ServerIdentity, make_identity
from tests.brokers.tools import JavaResult, JavaTools
from tests.brokers.topics import Topics
from tests.brokers.versions import find_version
from tests.brokers.waiting import wait_for
from tests.brokers.wire import metadata
from tests.brokers.zookeeper import ZooKeeperServer

_START_ATTEMPTS = 5


class RealCluster:
    """ZooKeeper plus ``brokers`` brokers (node ids 0, 1, ...) of one version.

    ``properties`` are server properties for all brokers and win over the harness's own.
    ``advertised`` maps node ids to the ports that clients are told (those of proxies). Up to 0.9
    the brokers' own traffic goes there too: start the proxies first, with ``planned_address``.
    ``java_options`` come last and win; brokers run without the optimising compiler, which a
    benchmark takes back with ``["-XX:TieredStopAtLevel=4", "-Xmx2g"]``.
    """

    def __init__(
        self,
        version: str,
        brokers: int = 1,
        properties: Mapping[str, object] | None = None,
        ssl: bool = False,
        advertised: Mapping[int, int] | None = None,
        *,
        java_options: Sequence[str] = (),
        start_timeout: float = 90.0,
    ) -> None:
        self._version = find_version(version)
        self._brokers = brokers
        self._properties = dict(properties or {})
        self._ssl = ssl
        self._advertised = dict(advertised or {})
        self._java_options = java_options
        self._start_timeout = start_timeout
        self._folder: Path | None = None
        self._zookeeper: ZooKeeperServer | None = None
        self._registry_or_none: Registry | None = None
        self._identity: ServerIdentity | None = None
        self._planned_ports: dict[int, int] = {}
        self._nodes: dict[int, Broker] = {}
        self._tools: JavaTools | None = None
        if brokers < 1:
            raise HarnessError(f"a cluster needs at least one broker, not {brokers}")
        if brokers > 1 and not self._version.needs_zookeeper:
            raise UnsupportedByBrokerError(f"the harness runs one broker of Kafka {version}")
        if ssl and self._version.number < (0, 9):
            raise UnsupportedByBrokerError(f"Kafka {version} has no SSL listeners (0.9 or newer)")
        if unknown := set(self._advertised) - set(range(brokers)):
            raise HarnessError(f"advertised ports of unknown nodes {sorted(unknown)}")

    def __repr__(self) -> str:
        nodes = ", ".join(repr(node) for node in self._nodes.values())
        return f"<RealCluster {self.version} [{nodes}]>"

    # ---- life ---------------------------------------------------------------------------------

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
        """Start everything; on any failure nothing is left."""
        if self._folder is not None:
            raise HarnessError("the cluster was started already")
        self._folder = Path(tempfile.mkdtemp(prefix="aiokafka08-brokers-"))
        reaper.watch_folder(self._folder)
        try:
            write_logging_files(self._folder)
            self._tools = JavaTools(self._version, self._folder)
            if self._ssl:
                self._identity = make_identity(self._folder)
            if self._version.needs_zookeeper:
                self._zookeeper = ZooKeeperServer(self._version, self._folder)
                self._zookeeper.start(self._start_timeout)
                self._registry_or_none = Registry(self._zookeeper.connect)
            for node_id in range(self._brokers):
                self._nodes[node_id] = self._make_broker(node_id, self._folder)
            for broker in self._nodes.values():
                self._format_storage(broker)
                broker.launch()
            for broker in self._nodes.values():
                self._wait_ready(broker, may_move=broker.node_id not in self._planned_ports)
            self._wait_cluster()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Kill every process of this cluster and remove its files; may be called twice."""
        if self._tools is not None:
            self._tools.kill_all()
        for broker in self._nodes.values():
            if broker.running:
                broker.process.kill()
        if self._zookeeper is not None:
            self._zookeeper.kill()
        self._nodes.clear()
        self._tools = None
        self._zookeeper = None
        self._registry_or_none = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            reaper.forget_folder(self._folder)
            self._folder = None

    def heal(self) -> None:
        """Back to all nodes running: resume what is paused, start what is down."""
        if self._zookeeper is not None:
            if not self._zookeeper.process.running:
                self.start_zookeeper()
            elif self._zookeeper.process.paused:
                self.resume_zookeeper()
        # First those who sleep: the controller may be among them.
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
        """The version, as it was asked for."""
        return self._version.name

    @property
    def bootstrap_servers(self) -> str:
        """What clients are given: the advertised addresses of all nodes, also of dead ones."""
        return ",".join(broker.advertised_address for broker in self._live().values())

    @property
    def ssl_bootstrap_servers(self) -> str:
        """The addresses of the SSL listeners (only with ``ssl=True``)."""
        self._require_ssl()
        return ",".join(f"{HOST}:{broker.listeners.ssl_port}" for broker in self._live().values())

    @property
    def ca_path(self) -> Path:
        """The PEM file that verifies the SSL listeners (only with ``ssl=True``)."""
        return self._require_ssl().ca_path

    @property
    def zookeeper_connect(self) -> str:
        """ZooKeeper's address; 4.x has none."""
        return self._require_zookeeper().connect

    @property
    def nodes(self) -> dict[int, str]:
        """Where each broker really listens: the upstream address of a proxy."""
        return {node_id: broker.address for node_id, broker in self._live().items()}

    def planned_address(self, node_id: int) -> str:
        """Where a broker is going to listen: the upstream of a proxy, before the start.

        Brokers up to 0.9 need their proxies to become ready at all. A port told here is kept, so a
        clash (rare) fails the start instead of being stepped aside.
        """
        if node_id not in range(self._brokers):
            raise HarnessError(f"no node {node_id} among {self._brokers}")
        if self._nodes:
            return self._node(node_id).address
        return f"{HOST}:{self._planned_ports.setdefault(node_id, free_port())}"

    def port(self, node_id: int) -> int:
        """Where a broker really listens, for ``tests.brokers.wire``."""
        return self._node(node_id).listeners.port

    @property
    def folder(self) -> Path:
        """Its temporary folder: logs, data and settings."""
        if self._folder is None:
            raise HarnessError("the cluster is not started")
        return self._folder

    def log(self, node_id: int) -> str:
        """A broker's log so far, all its starts included."""
        return self._node(node_id).process.stderr()

    # ---- brokers ------------------------------------------------------------------------------

    def kill(self, node_id: int) -> None:
        """SIGKILL: a crash. ZooKeeper keeps its session until the timeout (6 s)."""
        self._node(node_id).process.kill()

    def stop(self, node_id: int, timeout: float = 60.0) -> None:
        """SIGTERM: a controlled shutdown, which has ended when this returns."""
        self._node(node_id).process.terminate(timeout)

    def expire(self, node_id: int) -> None:
        """Have ZooKeeper forget a killed broker now: the failover starts without the 6 s wait."""
        if self._node(node_id).running:
            raise HarnessError(f"broker {node_id} is running")
        self._registry().remove_broker(node_id)

    def restart(
        self,
        node_id: int,
        port: int | None = None,
        properties: Mapping[str, object] | None = None,
    ) -> None:
        """Start a broker again (a running one is stopped first) and wait until it is ready.

        ``port``: at another port (0: any). ``properties``: added to its settings from now on.
        """
        broker = self._node(node_id)
        if broker.running:
            self.stop(node_id)
        if self._zookeeper is not None:
            # A registration left from a SIGKILL would make the start fail or wait for its expiry,
            # depending on the version.
            self._registry().remove_broker(node_id)
        if port is not None:
            broker.move(port)
        if properties is not None:
            broker.use_properties(properties)
        broker.launch()
        self._wait_ready(broker, may_move=port == 0)
        self._wait_cluster()

    def pause(self, node_id: int) -> None:
        """SIGSTOP: connections stay open, nothing is answered."""
        self._node(node_id).process.pause()

    def resume(self, node_id: int) -> None:
        """SIGCONT."""
        self._node(node_id).process.resume()

    # ---- ZooKeeper ----------------------------------------------------------------------------

    def pause_zookeeper(self) -> None:
        """SIGSTOP for ZooKeeper: sessions expire when it goes on after their timeout."""
        self._require_zookeeper().process.pause()

    def resume_zookeeper(self) -> None:
        """SIGCONT for ZooKeeper."""
        self._require_zookeeper().process.resume()

    def stop_zookeeper(self, timeout: float = 30.0) -> None:
        """SIGTERM for ZooKeeper; it has ended when this returns."""
        self._require_zookeeper().process.terminate(timeout)

    def start_zookeeper(self) -> None:
        """Start ZooKeeper again, with the same data and port."""
        self._require_zookeeper().start(self._start_timeout)

    def controller(self) -> int | None:
        """The node that is the controller."""
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
        """Create a topic through ZooKeeper and wait until every live broker names its leaders.

        ``assignment`` maps partitions to node ids, the preferred leader first; it replaces
        ``partitions`` and ``replication_factor``. ``config`` needs 0.8.1 or newer.
        """
        self._topics().create(name, partitions, replication_factor, config, assignment, timeout)

    def delete_topic(self, name: str, timeout: float = 60.0) -> None:
        """Delete a topic and wait until it is gone from ZooKeeper (0.8.2 or newer)."""
        self._topics().delete(name, timeout)

    def leader(self, topic: str, partition: int = 0) -> int:
        """The leader's node id as ZooKeeper has it; -1 while there is none."""
        return self._topics().leader(topic, partition)

    def isr(self, topic: str, partition: int = 0) -> list[int]:
        """The in-sync replicas as ZooKeeper has them: the truth (Metadata's may be stale)."""
        return self._topics().isr(topic, partition)

    def wait_isr(
        self, topic: str, partition: int, node_ids: Collection[int], timeout: float = 30.0
    ) -> None:
        """Wait until exactly these nodes are in sync."""
        self._topics().wait_isr(topic, partition, node_ids, timeout)

    def wait_leader(
        self, topic: str, partition: int, node_ids: Collection[int], timeout: float = 30.0
    ) -> int:
        """Wait until one of these nodes leads (in ZooKeeper), and return it."""
        return self._topics().wait_leader(topic, partition, node_ids, timeout)

    # ---- foreign programs ---------------------------------------------------------------------

    def run_java(
        self,
        main_class: str,
        *args: str,
        input: str | None = None,
        timeout: float = 60.0,
    ) -> JavaResult:
        """Run a class of this version's jars to its end: ``(stdout, stderr, returncode)``."""
        return self._java_tools().run(main_class, *args, input=input, timeout=timeout)

    def popen_java(self, main_class: str, *args: str, writable_stdin: bool = False) -> JavaProcess:
        """Start a class of this version's jars; it is killed with the cluster at the latest."""
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
            tls=self._identity.server_properties() if self._identity else {},
            port=self._planned_ports.get(node_id),
            advertised_port=self._advertised.get(node_id),
            java_options=self._java_options,
        )

    def _format_storage(self, broker: Broker) -> None:
        """4.x starts only on formatted storage."""
        if self._version.needs_zookeeper:
            return
        broker.write_settings()
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        result = self.run_java(
            "kafka.tools.StorageTool",
            "format",
            f"--cluster-id={cluster_id}",
            "-c",
            str(broker.settings_file),
        )
        if result.returncode:
            raise HarnessError(f"could not format the storage: {result.stdout}{result.stderr}")

    def _wait_ready(self, broker: Broker, *, may_move: bool) -> None:
        """Until it answers and is registered; on a port clash try again elsewhere."""
        for attempt in range(_START_ATTEMPTS):
            wait_for(
                lambda: not broker.running or self._is_ready(broker),
                self._start_timeout,
                lambda: f"broker {broker.node_id} answers; its log:\n{broker.process.log_tail()}",
            )
            if broker.running:
                return
            if not (may_move and broker.port_clash) or attempt + 1 == _START_ATTEMPTS:
                break
            broker.move()
            broker.launch()
        raise HarnessError(
            f"broker {broker.node_id} of Kafka {self.version} ended at its start:\n"
            f"{broker.process.log_tail()}"
        )

    def _is_ready(self, broker: Broker) -> bool:
        """Cheapest first: ZooKeeper is asked by opening a session."""
        if not accepts(broker.listeners.port):
            return False
        # Only this shows that it is our broker, and nobody else who was quicker to the port.
        if self._registry_or_none and broker.node_id not in self._registry_or_none.broker_ids():
            return False
        return broker.answers()

    def _wait_cluster(self) -> None:
        """Until all live brokers are registered, one of them controls, and they know each other."""
        live = {node.node_id: node for node in self._nodes.values() if node.responsive}
        if self._version.needs_zookeeper:
            registry = self._registry()
            wait_for(
                lambda: registry.broker_ids() >= set(live) and registry.controller() in live,
                self._start_timeout,
                f"the registration of brokers {sorted(live)} and a controller among them",
            )
        if self._version.number < (0, 9):
            return  # 0.8 names its brokers only once there is a topic

        def strangers() -> dict[int, set[int]]:
            views = {
                node_id: set(live) - set(metadata(node.listeners.port).brokers)
                for node_id, node in live.items()
            }
            return {node_id: missing for node_id, missing in views.items() if missing}

        wait_for(
            lambda: not strangers(),
            self._start_timeout,
            lambda: f"brokers know each other; missing: {strangers()}",
        )

    def _live(self) -> dict[int, Broker]:
        if not self._nodes:
            raise HarnessError("the cluster is not started")
        return self._nodes

    def _node(self, node_id: int) -> Broker:
        try:
            return self._live()[node_id]
        except KeyError:
            raise HarnessError(f"no node {node_id}; there are {sorted(self._nodes)}") from None

    def _require_ssl(self) -> ServerIdentity:
        if self._identity is None:
            raise HarnessError("the cluster was not started with ssl=True")
        return self._identity

    def _require_zookeeper(self) -> ZooKeeperServer:
        if not self._version.needs_zookeeper:
            raise UnsupportedByBrokerError(
                f"Kafka {self.version} has no ZooKeeper; topics appear by auto-creation, or by "
                'run_java("org.apache.kafka.tools.TopicCommand", ...)'
            )
        if self._zookeeper is None:
            raise HarnessError("the cluster is not started")
        return self._zookeeper

    def _registry(self) -> Registry:
        self._require_zookeeper().require_working()
        assert self._registry_or_none is not None
        return self._registry_or_none

    def _topics(self) -> Topics:
        return Topics(self._version, self._registry(), self._live())

    def _java_tools(self) -> JavaTools:
        if self._tools is None:
            raise HarnessError("the cluster is not started")
        return self._tools
