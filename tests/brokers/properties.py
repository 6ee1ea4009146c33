"""Build the properties of brokers and ZooKeeper for each version. Pure: no files, no sockets.

Invariant: brokers run with their defaults, except where loopback, a small machine or short tests
need another value; a comment gives the reason. Properties of the caller override all of these.

Called by ``broker.py`` and ``zookeeper.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.brokers.versions import BrokerVersion

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Listeners:
    """The ports of one broker; ``advertised_port`` is that of a proxy, if there is one.

    ``advertised_host`` may be a name that only the broker can resolve.
    """

    port: int
    advertised_port: int
    ssl_port: int | None = None
    internal_port: int | None = None
    controller_port: int | None = None
    sasl_port: int | None = None
    sasl_ssl_port: int | None = None
    advertised_host: str = HOST


def render(properties: Mapping[str, object]) -> str:
    """Return the text of a Java properties file."""
    lines = []
    for key, value in properties.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        escaped = text.replace("\\", "\\\\")  # the only character in these values that needs it
        lines.append(f"{key}={escaped}\n")
    return "".join(lines)


def zookeeper_properties(data_dir: Path, port: int) -> dict[str, object]:
    """Return the settings of the ZooKeeper server."""
    return {
        "dataDir": data_dir,
        "clientPort": port,
        "clientPortAddress": HOST,
        "maxClientCnxns": 0,
        # Sessions expire at multiples of it, and last at least twice as long by default. With 500
        # ms a test can set zookeeper.session.timeout.ms for quick failovers.
        "tickTime": 500,
        "maxSessionTimeout": 120000,
        "admin.enableServer": False,
    }


def server_properties(
    version: BrokerVersion,
    node_id: int,
    brokers: int,
    listeners: Listeners,
    data_dir: Path,
    zookeeper_connect: str | None,
    security: Mapping[str, object],
    voters: Mapping[int, int],
) -> dict[str, object]:
    """Return the settings of one broker, without those of the caller.

    ``voters`` maps the nodes of 4.x to the ports of their controllers.
    """
    number = version.number
    properties: dict[str, object] = {
        "log.dirs": data_dir,
        "num.partitions": 3,
        # Auto-creation fails above the number of running brokers.
        "default.replication.factor": min(brokers, 3),
        "auto.create.topics.enable": True,
        "controlled.shutdown.enable": True,
        # On by default from 0.8.2: leaders move 5 s after each change of the controller. A broker
        # that a test stops just then takes acknowledged messages with it (docs/brokers.md 9.6).
        "auto.leader.rebalance.enable": False,
        # The default of 0.8, here for all versions.
        "message.max.bytes": 1000012,
        # By default 0.8.0 flushes each 500 messages: slow, and tests don't crash the machine.
        "log.flush.interval.messages": 1000000,
    }
    if zookeeper_connect is not None:
        properties |= {
            "broker.id": node_id,
            "zookeeper.connect": zookeeper_connect,
            "zookeeper.connection.timeout.ms": 30000,
            # 6 s by default up to 2.4. On a busy machine such sessions expire, and a controller of
            # 0.8.2 may then never work again (docs/brokers.md 9.9). RealCluster.expire() removes a
            # killed broker at once.
            "zookeeper.session.timeout.ms": 30000,
            # 30 s by default: a broker makes known no new leaders while it waits as long, twice,
            # for a paused one that it replicates from (docs/brokers.md 9.4).
            "replica.socket.timeout.ms": 5000,
        }
    else:
        properties |= {
            "process.roles": "broker,controller",
            "node.id": node_id,
            "controller.quorum.voters": ",".join(
                f"{voter}@{HOST}:{port}" for voter, port in voters.items()
            ),
            "controller.listener.names": "CONTROLLER",
            # 9 s by default: a killed broker would be refused as long when it is started again.
            "broker.session.timeout.ms": 3000,
            "broker.heartbeat.interval.ms": 500,
        }
    properties |= _listener_properties(number, listeners)
    if number >= (0, 8, 1):
        properties |= {
            # Compaction begins about a second after a segment is closed.
            "log.cleaner.enable": True,
            "log.cleaner.backoff.ms": 250,
            "log.cleaner.min.cleanable.ratio": 0.01,
            # 128 MB by default. The cleaner of 0.9 dies on a segment with more messages than fit:
            # this is room for about 150,000.
            "log.cleaner.dedupe.buffer.size": 4 * 1024 * 1024,
            "log.cleaner.io.buffer.size": 128 * 1024,
            # 5 minutes by default.
            "log.retention.check.interval.ms": 1000,
        }
    if number >= (0, 8, 2):
        properties |= {
            "delete.topic.enable": True,
            "offsets.topic.replication.factor": min(brokers, 3),
            # 50 by default: the first lookup of a coordinator would take seconds.
            "offsets.topic.num.partitions": 4,
        }
    if number >= (0, 9):
        properties |= {"group.min.session.timeout.ms": 1000, **security}
    if number >= (0, 10):
        # A week by default, by the messages' own timestamps: the check that comes each second
        # would delete messages of 1970 while a test reads them. Before 0.9 a negative value
        # deletes everything (docs/brokers.md 8.18).
        properties["log.retention.ms"] = -1
    if number >= (0, 11):
        properties |= {
            "group.initial.rebalance.delay.ms": 0,
            "transaction.state.log.replication.factor": min(brokers, 3),
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 4,
        }
    return properties


def _listener_properties(number: tuple[int, ...], listeners: Listeners) -> dict[str, object]:
    if number < (0, 9):
        return {
            "port": listeners.port,
            "host.name": HOST,
            "advertised.host.name": listeners.advertised_host,
            "advertised.port": listeners.advertised_port,
        }
    ours = {"PLAINTEXT": listeners.port}
    advertised = {"PLAINTEXT": listeners.advertised_port}
    protocols = {"PLAINTEXT": "PLAINTEXT"}
    properties: dict[str, object] = {}
    if listeners.ssl_port is not None:
        ours["SSL"] = advertised["SSL"] = listeners.ssl_port
        protocols["SSL"] = "SSL"
    for name, port in (
        ("SASL_PLAINTEXT", listeners.sasl_port),
        ("SASL_SSL", listeners.sasl_ssl_port),
    ):
        if port is not None:
            ours[name] = advertised[name] = port
            protocols[name] = name
    if listeners.internal_port is not None:
        ours["INTERNAL"] = advertised["INTERNAL"] = listeners.internal_port
        protocols["INTERNAL"] = "PLAINTEXT"
        properties["inter.broker.listener.name"] = "INTERNAL"
    if listeners.controller_port is not None:
        ours["CONTROLLER"] = listeners.controller_port
        protocols["CONTROLLER"] = "PLAINTEXT"
    if len(protocols) > 1 and number >= (0, 10, 2):
        pairs = (f"{name}:{protocol}" for name, protocol in protocols.items())
        properties["listener.security.protocol.map"] = ",".join(pairs)
    properties["listeners"] = _listener_list(ours)
    properties["advertised.listeners"] = _listener_list(advertised, listeners.advertised_host)
    return properties


def _listener_list(ports: Mapping[str, int], host: str = HOST) -> str:
    return ",".join(
        # The principal of the service names the host, and no realm has one for an address.
        f"{name}://{'localhost' if name.startswith('SASL') and host == HOST else host}:{port}"
        for name, port in ports.items()
    )
