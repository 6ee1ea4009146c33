"""Create, delete and watch topics of a real cluster through ZooKeeper.

Invariant: after ``create`` ZooKeeper has a leader of each partition, *and* each responsive broker
has these leaders in its Metadata responses. Brokers know a leader some milliseconds later than
ZooKeeper; a test that starts in between would get error 3 or 5.

Called by ``RealCluster``, whose methods have the same names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from kazoo.client import KazooClient

from tests.brokers.broker import Broker
from tests.brokers.errors import HarnessError, UnsupportedByBrokerError
from tests.brokers.registry import Registry, read_partition_states, write_topic
from tests.brokers.versions import BrokerVersion
from tests.brokers.waiting import wait_for
from tests.brokers.wire import metadata

_LEGAL_NAME = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")


class NewTopic(NamedTuple):
    """A topic to create."""

    partitions: int = 1
    replication_factor: int = 1
    config: Mapping[str, object] | None = None


class Topics:
    """The topics of one cluster."""

    def __init__(
        self, version: BrokerVersion, registry: Registry, brokers: Mapping[int, Broker]
    ) -> None:
        self._version = version
        self._registry = registry
        self._brokers = brokers

    def create(
        self,
        name: str,
        partitions: int,
        replication_factor: int,
        config: Mapping[str, object] | None,
        assignment: Mapping[int, Sequence[int]] | None,
        timeout: float,
    ) -> None:
        """Write the nodes of a topic and wait for leaders; see ``RealCluster.create_topic``."""
        if assignment is None:
            assignment = self._spread(partitions, replication_factor)
        with self._registry.client() as client:
            write_topic(client, name, *self._checked(name, assignment, config))
            leaders = _elected(client, name, assignment, timeout)
        for broker in self._brokers.values():
            if broker.responsive:
                self._wait_known(broker, {name: leaders}, timeout)

    def create_many(self, topics: Mapping[str, NewTopic], timeout: float) -> None:
        """Write the nodes of many topics, and wait until each broker knows all their leaders."""
        assignments = {
            name: self._spread(one.partitions, one.replication_factor)
            for name, one in topics.items()
        }
        nodes = [
            (name, *self._checked(name, assignments[name], one.config))
            for name, one in topics.items()
        ]
        with self._registry.client() as client:
            for name, assignment, config in nodes:
                write_topic(client, name, assignment, config)
        leaders = {
            name: {partition: nodes[0] for partition, nodes in assignment.items()}
            for name, assignment in assignments.items()
        }
        for broker in self._brokers.values():
            if broker.responsive:
                self._wait_known(broker, leaders, timeout)

    def _checked(
        self,
        name: str,
        assignment: Mapping[int, Sequence[int]],
        config: Mapping[str, object] | None,
    ) -> tuple[Mapping[int, Sequence[int]], dict[str, str] | None]:
        """Return the assignment and the config as ZooKeeper has them."""
        if not _LEGAL_NAME.fullmatch(name):
            raise HarnessError(
                f"topic {name!r}: expected 1 to 249 letters, digits and characters of '._-'"
            )
        self._check(assignment)
        settings = {key: _java_text(value) for key, value in (config or {}).items()}
        has_configs = self._version.number >= (0, 8, 1)
        if settings and not has_configs:
            raise UnsupportedByBrokerError(
                "Kafka 0.8.0 has no topic configs; expected 0.8.1 or newer"
            )
        return assignment, settings if has_configs else None

    def delete(self, name: str, timeout: float) -> None:
        """Request the deletion of a topic and wait until its nodes are gone."""
        if self._version.number < (0, 8, 2):
            raise UnsupportedByBrokerError(
                f"Kafka {self._version.name} can't delete topics; expected 0.8.2 or newer"
            )
        if not self._registry.has_topic(name):
            raise HarnessError(f"no topic {name!r}")
        self._registry.request_topic_deletion(name)
        wait_for(lambda: not self._registry.has_topic(name), timeout, f"topic {name!r} is deleted")

    def leader(self, topic: str, partition: int) -> int:
        """Return the leader; -1 without one."""
        return int(self._registry.partition_state(topic, partition)["leader"])

    def isr(self, topic: str, partition: int) -> list[int]:
        """Return the in-sync replicas."""
        return [int(node_id) for node_id in self._registry.partition_state(topic, partition)["isr"]]

    def wait_isr(
        self, topic: str, partition: int, node_ids: Collection[int], timeout: float
    ) -> None:
        """Wait until exactly these nodes are in sync."""
        wanted = set(node_ids)
        self._wait_state(
            topic, partition, lambda state: set(state["isr"]) == wanted, timeout, f"isr {wanted}"
        )

    def wait_leader(
        self, topic: str, partition: int, node_ids: Collection[int], timeout: float
    ) -> int:
        """Wait until one of these nodes is the leader, and return it."""
        wanted = set(node_ids)
        state = self._wait_state(
            topic, partition, lambda state: state["leader"] in wanted, timeout, f"leader {wanted}"
        )
        return int(state["leader"])

    def _wait_state(
        self,
        topic: str,
        partition: int,
        test: Callable[[dict[str, Any]], bool],
        timeout: float,
        what: str,
    ) -> dict[str, Any]:
        last: dict[str, Any] | None = None

        def probe() -> dict[str, Any] | None:
            nonlocal last
            # A new partition has no state at first.
            last = self._registry.partition_states(topic).get(partition)
            return last if last and test(last) else None

        return wait_for(probe, timeout, lambda: f"{what} of {topic}-{partition}; it is {last}")

    def _spread(self, partitions: int, replication_factor: int) -> dict[int, list[int]]:
        """Return replicas and leaders that are assigned to the nodes round robin."""
        nodes = sorted(self._brokers)
        if not 1 <= replication_factor <= len(nodes):
            raise HarnessError(
                f"replication_factor={replication_factor}: expected 1 to {len(nodes)} (brokers)"
            )
        return {
            partition: [nodes[(partition + i) % len(nodes)] for i in range(replication_factor)]
            for partition in range(partitions)
        }

    def _check(self, assignment: Mapping[int, Sequence[int]]) -> None:
        if not assignment or sorted(assignment) != list(range(len(assignment))):
            raise HarnessError(f"assignment: partitions {sorted(assignment)}; expected 0, 1, ...")
        for partition, node_ids in assignment.items():
            unique = set(node_ids)
            if not unique or len(unique) < len(node_ids) or not unique <= set(self._brokers):
                raise HarnessError(
                    f"assignment: partition {partition} on nodes {list(node_ids)}; expected "
                    f"distinct nodes of {sorted(self._brokers)}"
                )

    def _wait_known(
        self, broker: Broker, leaders: Mapping[str, Mapping[int, int]], timeout: float
    ) -> None:
        seen: dict[str, dict[int, int]] = {}

        def known() -> bool:
            nonlocal seen
            seen = metadata(broker.listeners.port, leaders).leaders
            return seen == leaders

        def missing() -> str:
            name = next(one for one in leaders if seen.get(one) != leaders[one])
            return (
                f"broker {broker.node_id} has the leaders {leaders[name]} of {name!r}; it has "
                f"{seen.get(name, {})}"
            )

        wait_for(known, timeout, missing)


def _elected(
    client: KazooClient, name: str, assignment: Mapping[int, Sequence[int]], timeout: float
) -> dict[int, int]:
    """Wait until ZooKeeper has a leader of each partition, and return the leaders."""
    states: dict[int, dict[str, Any]] = {}

    def elected() -> bool:
        states.update(read_partition_states(client, name))
        return all(states.get(number, {"leader": -1})["leader"] >= 0 for number in assignment)

    wait_for(elected, timeout, lambda: f"topic {name!r} has leaders; ZooKeeper has {states}")
    return {number: state["leader"] for number, state in states.items()}


def _java_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
