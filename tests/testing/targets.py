"""The embedded cluster and real brokers behind one face, for tests that hold on both.

Only what both can do is here: create topics, say who leads, give an address. Everything else such
a test does over a socket (`Peer`).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol, TypeVar

from aiokafka08.testing import EmbeddedCluster
from aiokafka08.testing.broker_lines import LINES, Line
from tests.brokers import RealCluster

REAL = {
    "0.8.0": "0.8.0",
    "0.8.1": "0.8.1.1",
    "0.8.2": "0.8.2.2",
    "0.9": "0.9.0.1",
    "0.10": "0.10.2.2",
}
"""Line → the release that stands for it."""


class Target(Protocol):
    """A cluster under test. `real` is only for the few waits that real brokers need."""

    line: Line
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


class EmbeddedTarget:
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


class RealTarget:
    real = True

    def __init__(self, cluster: RealCluster, line: Line) -> None:
        self.cluster = cluster
        self.line = line

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


@contextmanager
def embedded(line: str, brokers: int) -> Iterator[EmbeddedTarget]:
    cluster = EmbeddedCluster(
        brokers, line, default_partitions=3, group_min_session_timeout_ms=1000
    )
    with cluster:
        yield EmbeddedTarget(cluster)


Test = TypeVar("Test", bound=Callable[..., object])


def only(lines: Callable[[Line], bool]) -> Callable[[Test], Test]:
    """A test of `target` for some lines of brokers only."""

    def mark(test: Test) -> Test:
        test.only_lines = lines  # type: ignore[attr-defined]
        return test

    return mark


def has_config(name: str) -> Callable[[Line], bool]:
    """Lines whose topics have this setting."""
    return lambda line: name in line.topic_configs


def new_name(prefix: str = "t") -> str:
    """A name nobody has used."""
    return f"{prefix}-{uuid.uuid4().hex[:8]}"
