"""One interface to an embedded cluster and to a real one, for tests of single requests.

It has only what both can do: create topics, name leaders and addresses. Everything else in such a
test goes over a socket (`wire_client`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from aiokafka08.testing import EmbeddedCluster
from aiokafka08.testing.broker_lines import LINES, LineRules
from tests.brokers import RealCluster
from tests.conformance.contract.targets import RELEASES

_LINE_OF_RELEASE = {release: LINES[line] for line, release in RELEASES.items()}


class Target(Protocol):
    """A cluster under test. `real` is only for the few waits that real brokers need."""

    line: LineRules
    real: bool

    def address(self, node: int) -> tuple[str, int]: ...

    def nodes(self) -> list[int]: ...

    def leader(self, topic: str, partition: int) -> int: ...

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Mapping[str, str] | None = None,
    ) -> None: ...

    def apply_retention(self) -> None:
        """Let the brokers delete what is due. Real ones do so by themselves."""


class EmbeddedTarget:
    """An embedded cluster."""

    real = False

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self.line = LINES[cluster.version]

    def address(self, node: int) -> tuple[str, int]:
        info = self.cluster.nodes[node]
        return info.host, info.port

    def nodes(self) -> list[int]:
        return list(self.cluster.nodes)

    def leader(self, topic: str, partition: int) -> int:
        return self.cluster.leader(topic, partition)

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Mapping[str, str] | None = None,
    ) -> None:
        self.cluster.create_topic(name, partitions, replication_factor, config)

    def apply_retention(self) -> None:
        self.cluster.apply_retention()


class RealTarget:
    """Real brokers; their line is the one that their release stands for."""

    real = True

    def __init__(self, cluster: RealCluster) -> None:
        self.cluster = cluster
        self.line = _LINE_OF_RELEASE[cluster.version]

    def address(self, node: int) -> tuple[str, int]:
        host, _, port = self.cluster.nodes[node].rpartition(":")
        return host, int(port)

    def nodes(self) -> list[int]:
        return list(self.cluster.nodes)

    def leader(self, topic: str, partition: int) -> int:
        return self.cluster.leader(topic, partition)

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Mapping[str, str] | None = None,
    ) -> None:
        self.cluster.create_topic(name, partitions, replication_factor, config)

    def apply_retention(self) -> None:
        pass


@contextmanager
def embedded(line: str, brokers: int) -> Iterator[EmbeddedTarget]:
    """Run an embedded cluster in a thread of its own."""
    cluster = EmbeddedCluster(
        brokers, line, default_partitions=3, group_min_session_timeout_ms=1000
    )
    with cluster:
        yield EmbeddedTarget(cluster)


def has_config(name: str) -> Callable[[LineRules], bool]:
    """Return a predicate for `on_lines`: the line's topics have this setting."""
    return lambda line: name in line.topic_configs
